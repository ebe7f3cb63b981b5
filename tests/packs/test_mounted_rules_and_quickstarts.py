"""Quick starts and rules of mounted packs: found and listed beside one's own, marked with their name, never changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from given_files import change

from localmcp.config import Settings
from localmcp.errors import AccessDenied, NotFound
from localmcp.models import LazyEmbedder, open_embedder
from localmcp.packs.pack import write_pack
from localmcp.rules.rulebook import RuleDraft
from localmcp.tools import Scope
from localmcp.workspace import Workspace

GUIDES = {"deploy": "Deploy a service", "rollback": "Roll back a release", "welcome": "Welcome to the team"}
TEAM_RULES = (
    ("Page every endpoint that returns a list.", "performance", "API"),
    ("Describe every new endpoint in openapi.yaml.", "documentation", "API"),
)
OWN_RULES = (
    ("Write unit tests for every new feature.", "testing", "testing strategies"),
    ("Hash passwords with argon2id.", "security", "login and registration"),
)
TASK = "implement a new api endpoint that returns a list of orders, and write unit tests for it"
BOUND = Scope(caller="key", trusted=False, collections=frozenset({"default", "developer rules"}))


def guide(name: str, title: str, introduction: str = "Read on.") -> dict[str, Any]:
    spec = {"displayName": title, "description": f"{title}, step by step.", "introduction": introduction}
    spec |= {"durationMinutes": 5, "tasks": [{"title": "Begin", "description": "Do the first thing."}]}
    return {"metadata": {"name": name, "tags": [{"kind": "topic", "value": "team"}]}, "spec": spec}


def add_guides(workspace: Workspace, *guides: dict[str, Any]) -> None:
    call(workspace, "importQuickstarts", text=json.dumps(list(guides)), format="json")


def add_rules(workspace: Workspace, rules: tuple[tuple[str, str, str], ...], **fields: Any) -> None:
    workspace.rules.store([RuleDraft(text, category, context, **fields) for text, category, context in rules])


def call(workspace: Workspace, tool: str, scope: Scope | None = None, /, **arguments: Any) -> Any:
    return workspace.registry.call(tool, arguments, scope).value


def search(workspace: Workspace, text: str, **arguments: Any) -> Any:
    return call(workspace, "searchQuickstarts", displayName=text, **arguments)


def names(answer: Any) -> list[str]:
    return [each["name"] for each in answer["results"]]


def ask(workspace: Workspace, task: str = TASK, scope: Scope | None = None, **arguments: Any) -> Any:
    return call(workspace, "getRelevantRules", scope, taskDescription=task, **arguments)


@pytest.fixture(scope="module")
def model() -> Any:
    """The real model, opened once."""
    return open_embedder("default")


@pytest.fixture(autouse=True)
def one_model(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localmcp.workspace.configured_embedder", lambda _: LazyEmbedder(lambda: model))


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Workspace]:
    """A file with one guide and two rules, numbered from 1."""
    with Workspace(Settings(database=tmp_path / "own.localmcp")) as workspace:
        add_guides(workspace, guide("deploy", "Deploy a service", "How I do it."))
        add_rules(workspace, OWN_RULES)
        yield workspace


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("localmcp.workspace.configured_embedder", lambda _: LazyEmbedder(lambda: model))
        with Workspace(Settings(database=folder / "source.localmcp")) as workspace:
            add_guides(workspace, *(guide(name, title) for name, title in GUIDES.items()))
            add_rules(workspace, TEAM_RULES)
            add_rules(workspace, (("Answer in English.", "style", ""),), always_apply=True)
            write_pack(workspace.database, folder / "team.localmcp")
    return folder / "team.localmcp"


@pytest.fixture
def team(packed: Path, tmp_path: Path) -> Path:
    """A pack of three guides and three rules, one of which holds for every task."""
    return Path(shutil.copy(packed, tmp_path / "team.localmcp"))


# ---------------------------------------------------------------- quick starts


def test_own_and_mounted_quick_starts_are_found_together_and_marked(ours: Workspace, team: Path) -> None:
    before = search(ours, "deploy a servce")
    ours.mounts.mount(team)
    found = search(ours, "deploy a servce")
    # The pack has another text under the same name: one's own wins, both are shown.
    assert names(found) == ["deploy", "team:deploy"]
    assert found["result"] == before["result"] and found["results"][0] == before["results"][0]
    assert found["results"][1] == {**before["results"][0], "name": "team:deploy", "origin": "team"}
    only = search(ours, "roll back")
    assert (names(only), only["result"]["origin"]) == (["team:rollback"], "team")
    assert only["result"]["quickstart"]["name"] == "team:rollback"


def test_what_is_in_both_files_as_it_is_counts_as_ones_own(ours: Workspace, team: Path) -> None:
    add_guides(ours, guide("rollback", GUIDES["rollback"]))
    ours.mounts.mount(team)
    assert names(search(ours, "roll back a release")) == ["rollback"]
    listed = call(ours, "listQuickstarts")
    assert [each["name"] for each in listed["quickstarts"]] == ["deploy", "team:deploy", "rollback", "team:welcome"]
    assert (listed["total"], listed["tags"]) == (4, {"topic:team": 4})


def test_a_quick_start_is_read_by_the_name_it_is_shown_under(ours: Workspace, team: Path) -> None:
    ours.mounts.mount(team)
    theirs = call(ours, "showQuickstart", name="team:deploy")
    assert (theirs["name"], theirs["origin"]) == ("team:deploy", "team") and "Read on." in theirs["markdown"]
    own = call(ours, "showQuickstart", name="deploy")
    assert "origin" not in own and "How I do it." in own["markdown"]
    # A name or title that only the pack has needs no prefix.
    assert call(ours, "showQuickstart", name="Roll back a release")["name"] == "team:rollback"
    assert call(ours, "exportQuickstarts", names=["team:welcome"])["count"] == 1
    with pytest.raises(NotFound):
        call(ours, "showQuickstart", name="team:nothing")


def test_what_is_mounted_is_never_changed(ours: Workspace, team: Path) -> None:
    ours.mounts.mount(team)
    before = team.read_bytes()
    changes: list[tuple[str, dict[str, Any]]] = [
        ("removeQuickstart", {"names": ["team:deploy"]}),
        ("removeQuickstart", {"names": ["rollback"]}),
        ("editRule", {"id": "team:1", "weight": 2}),
        ("retireRule", {"id": "team:1"}),
        ("deleteRule", {"id": "team:1"}),
        ("reportRuleUse", {"ruleIds": ["team:1"]}),
    ]
    for tool, arguments in changes:
        with pytest.raises(AccessDenied, match=r"team \(mounted\)") as refused:
            pytest.fail(f"{tool} {arguments}: {call(ours, tool, **arguments)}")
        assert "localmcp merge" in str(refused.value), (tool, arguments)
        assert team.read_bytes() == before and call(ours, "listQuickstarts")["total"] == 4, (tool, arguments)


# ---------------------------------------------------------------- rules


def test_own_and_mounted_rules_are_found_together_and_marked(ours: Workspace, team: Path) -> None:
    own = ask(ours)["rules"]
    ours.mounts.mount(team)
    answer = ask(ours)
    found = {each["rule_text"]: each for each in answer["rules"]}
    assert {text: each.get("origin") for text, each in found.items()} == {
        "Page every endpoint that returns a list.": "team",
        "Describe every new endpoint in openapi.yaml.": "team",
        "Write unit tests for every new feature.": None,
    }
    scores = [each["relevance_score"] for each in answer["rules"]]
    assert scores == sorted(scores, reverse=True) and min(scores) >= 0.7
    assert [each["id"] for each in own] == [1] and found["Write unit tests for every new feature."]["id"] == 1
    assert {each["id"] for each in answer["rules"] if "origin" in each} == {"team:1", "team:2"}
    assert answer["always"] == [{"id": "team:3", "rule_text": "Answer in English.", "origin": "team"}]
    assert "[rule team:1, " in ours.registry.call("getRelevantRules", {"taskDescription": TASK}).text


def test_of_very_many_mounted_rules_the_newest_are_searched(ours: Workspace, team: Path) -> None:
    change(team, "update rules set id = id + 50001 where id = 2")
    ours.mounts.mount(team)
    found = ask(ours, similarityThreshold=-1, maxResults=100)["rules"]
    assert [each["id"] for each in found if "origin" in each] == ["team:50003"]


def test_a_rule_that_ones_own_file_holds_is_left_out(ours: Workspace, team: Path) -> None:
    add_rules(ours, (("page every endpoint that returns a list", "performance", "API"),))
    ours.mounts.mount(team)
    assert sorted(str(each["id"]) for each in ask(ours)["rules"]) == ["1", "3", "team:2"]
    listed = call(ours, "listRules")
    assert {each["id"] for each in listed["rules"]} == {1, 2, 3, "team:2", "team:3"} and listed["total"] == 5
    # Who retired it wants it from nobody.
    call(ours, "retireRule", id=3)
    assert sorted(str(each["id"]) for each in ask(ours)["rules"]) == ["1", "team:2"]
    assert call(ours, "listRules", retired=True)["total"] == 1


def test_rules_of_another_model_are_left_out_and_told(ours: Workspace, team: Path) -> None:
    change(team, "update models set name = 'nobody/knows-it', fingerprint = 'ffffffffffffffff'")
    ours.mounts.mount(team)
    answer = ask(ours)
    assert [each["id"] for each in answer["rules"]] == [1]
    assert any(notice.startswith("team (mounted): its rules") for notice in answer["notices"])
    assert call(ours, "listRules")["total"] == 5


# ---------------------------------------------------------------- who sees them, and what goes wrong


def test_a_caller_that_is_bound_to_collections_sees_nothing_of_mounted_files(ours: Workspace, team: Path) -> None:
    ours.mounts.mount(team)
    answers = [
        call(ours, "searchQuickstarts", BOUND, displayName="roll back"),
        call(ours, "listQuickstarts", BOUND),
        ask(ours, TASK, BOUND),
        call(ours, "listRules", BOUND),
    ]
    assert "team:" not in json.dumps(answers) and answers[1]["total"] == 1 and answers[3]["total"] == 2
    with pytest.raises(NotFound):
        call(ours, "showQuickstart", BOUND, name="team:rollback")


def test_rows_that_are_no_quick_starts_are_passed_over(ours: Workspace, team: Path) -> None:
    deep = "[" * 900 + "]" * 900
    nested = json.dumps(guide("welcome", GUIDES["welcome"]))[:-1] + f', "more": {deep}}}'
    change(
        team,
        "update quickstarts set content = '{\"spec\": ' where name = 'deploy'",
        "update quickstarts set content = '[1]' where name = 'rollback'",
        f"update quickstarts set content = '{nested}' where name = 'welcome'",
    )
    ours.mounts.mount(team)
    for text in ("deploy", "rollback", "welcome"):
        found = call(ours, "searchQuickstarts", name=text, displayName=text)
        assert all("origin" not in each for each in found["results"])
    assert search(ours, "deploy")["result"]["quickstart"]["name"] == "deploy"
    assert call(ours, "listQuickstarts")["quickstarts"][0]["name"] == "deploy"
    call(ours, "listQuickstarts")
    with pytest.raises(NotFound):
        call(ours, "showQuickstart", name="team:deploy")
