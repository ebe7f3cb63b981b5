"""Quick starts, Rules, Tools, Activity, Keys and Doctor, by their keys, on a real file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from folders import write
from tui_driver import QUICKSTARTS, House, make_library, open_house

from localmcp.config import Settings
from localmcp.doctor.check import Check
from localmcp.doctor.examination import Examination, examine
from localmcp.tools import CallRecord, Scope
from localmcp.tui.app import Surroundings
from localmcp.tui.panes.doctor import speed_words
from localmcp.workspace import Workspace


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(make_library(tmp_path)) as house:
        yield house


# ---------------------------------------------------------------- quick starts


async def test_some_letters_find_a_quick_start_and_are_marked(house: House) -> None:
    pane = await house.go("quickstarts")
    pane.line.value = "kpfr"  # type: ignore[attr-defined]
    await house.settle()
    assert [row.item["name"] for row in house.pane.rows] == ["keep-fresh"]
    shown = house.pane.rows[0].shown
    assert "".join(shown.plain[span.start : span.end] for span in shown.spans) == "Kpfr"


async def test_a_misspelt_title_is_found_too(house: House) -> None:
    pane = await house.go("quickstarts")
    pane.line.value = "indx a foldr"  # type: ignore[attr-defined]
    await house.settle()
    assert "first-search" in [row.item["name"] for row in house.pane.rows]


async def test_tasks_are_ticked_off_and_begun_again(house: House) -> None:
    await house.go("quickstarts")
    await house.press("space")
    await house.until(lambda: "1 of 2 tasks done" in house.text())
    await house.press("space")
    await house.until(lambda: "✓ done" in house.text())
    await house.press("r")
    await house.until(lambda: "0 of 2 tasks done" in house.text())
    await house.press("x")
    await house.until(lambda: "… begun" in house.text())


async def test_favourites_can_be_shown_alone(house: House) -> None:
    await house.go("quickstarts")
    await house.press("down", "f")
    await house.until(lambda: "★ " in house.text())
    await house.press("F")
    assert [row.item["name"] for row in house.pane.rows] == ["keep-fresh"]


async def test_quick_starts_are_imported_and_removed(house: House, tmp_path: Path) -> None:
    file = write(tmp_path / "more.yml", QUICKSTARTS.split("---")[0].replace("first-search", "third"))
    await house.go("quickstarts")
    await house.press("i")
    house.app.screen.query_one("Input").value = str(file)  # type: ignore[attr-defined]
    await house.press("enter")
    await house.until(lambda: len(house.pane.rows) == 3)
    await house.press("d", "y")
    await house.until(lambda: len(house.pane.rows) == 2)


# ---------------------------------------------------------------- rules


async def test_rules_stand_under_their_categories(house: House) -> None:
    await house.go("rules")
    assert [row if isinstance(row, str) else row["rule_text"] for row in house.pane.rows] == [
        "security", "Never log a password.", "style", "Write commit messages in the imperative.", "testing",
        "Test every new function.",
    ]  # fmt: skip


async def test_a_task_shows_the_rules_that_the_assistant_would_get(house: House) -> None:
    pane = await house.go("rules")
    task = "write commit messages in the imperative"
    pane.line.value = task  # type: ignore[attr-defined]
    await house.settle()
    told = house.app.desk.call("getRelevantRules", taskDescription=task, maxResults=20)["rules"]
    given = house.pane.rows[1 : 1 + len(told)]
    assert told
    assert [rule["id"] for rule in given] == [rule["id"] for rule in told]
    assert "The assistant would get these" in house.text()


async def test_a_rule_is_added_changed_retired_and_restored(house: House) -> None:
    await house.go("rules")
    await house.press("a")
    form = house.app.screen.query_one("ToolForm")
    form.query_one("#field-0").text = "Never force-push to main."  # type: ignore[attr-defined]
    form.query_one("#field-1").value = "git"  # type: ignore[attr-defined]
    await house.press("ctrl+r")
    await house.until(lambda: any("force-push" in str(row) for row in house.pane.rows))
    # "git" comes first by name.
    await house.press("g", "e")
    await house.until(lambda: house.app.screen.query("ToolForm"))
    house.app.screen.query_one("#field-0").text = "Never force-push."  # type: ignore[attr-defined]
    await house.press("ctrl+r")
    await house.until(lambda: any("Never force-push." in str(row) for row in house.pane.rows))
    await house.press("d", "y")
    await house.until(lambda: not any("force-push" in str(row) for row in house.pane.rows))
    await house.press("R")
    assert any("force-push" in str(row) for row in house.pane.rows)
    await house.press("u")
    await house.until(lambda: not any("force-push" in str(row) for row in house.pane.rows))


async def test_a_rule_of_a_mounted_pack_is_shown_and_cannot_be_changed(house: House, tmp_path: Path) -> None:
    with Workspace(Settings(database=tmp_path / "team.localmcp", model="hash")) as team:
        rule = {"rule_text": "Page every endpoint that returns a list.", "category": "architecture"}
        team.registry.call("addRule", rule, Scope(caller="cli"))
    house.app.desk.workspace.mounts.mount(tmp_path / "team.localmcp", "team")
    await house.go("rules")
    await house.until(lambda: any("Page every endpoint" in str(row) for row in house.pane.rows))
    for key in ("e", "d"):
        await house.press("g", key)
        await house.until(lambda: "team (mounted)" in house.text())
        assert not house.app.screen.query("ToolForm, #yes")


async def test_a_form_that_cannot_be_saved_says_why_and_stays(house: House) -> None:
    await house.go("rules")
    await house.press("a", "ctrl+r")
    assert "rule_text: required" in house.text()
    await house.press("escape")


async def test_rules_are_imported_from_a_file(house: House, tmp_path: Path) -> None:
    file = write(tmp_path / "CLAUDE.md", "# Rules\n\n- Pin every dependency.\n")
    await house.go("rules")
    await house.press("i")
    house.app.screen.query_one("Input").value = str(file)  # type: ignore[attr-defined]
    await house.press("enter")
    await house.until(lambda: any("Pin every dependency" in str(row) for row in house.pane.rows))


# ---------------------------------------------------------------- tools


async def test_every_tool_is_listed_the_hidden_ones_too(house: House) -> None:
    await house.go("tools")
    listed = {row.name: row.visible for row in house.pane.rows}
    known = {each.name: each.mark.visible for each in house.app.desk.workspace.registry.tools()}
    assert listed == known
    assert set(listed.values()) == {True, False}


async def test_the_search_for_tools_is_the_assistants_with_its_scores(house: House) -> None:
    told: list[CallRecord] = []
    house.app.desk.workspace.registry.observe(told.append)
    pane = await house.go("tools")
    pane.line.value = "remove documents"  # type: ignore[attr-defined]
    await house.until(lambda: told and house.pane.rows and house.pane.rows[0].score is not None)
    answer = told[-1].answer
    assert answer is not None
    hits = [(hit["name"], hit["score"]) for hit in answer.value["tools"]]
    assert told[-1].arguments["query"] == "remove documents"
    assert [(row.name, row.score) for row in house.pane.rows] == hits
    assert hits[0][0] == "remove_source"


async def test_a_tool_runs_from_its_form_and_its_answer_turns(house: House) -> None:
    pane = await house.go("tools")
    pane.line.value = "list_sources"  # type: ignore[attr-defined]
    await house.settle()
    await house.press("enter")
    house.pane.query_one("#field-0").value = "2"
    await house.press("ctrl+r")
    table = house.pane.query_one("#table")
    await house.until(lambda: table.row_count == 2)
    assert house.pane.query_one("AnswerView").switcher.current == "table"
    await house.press("v")
    assert '"count": 2' in house.text()
    await house.press("y")
    assert '"count": 2' in house.app.clipboard


async def test_a_form_asks_for_what_is_missing(house: House) -> None:
    pane = await house.go("tools")
    pane.line.value = "get_context"  # type: ignore[attr-defined]
    await house.settle()
    await house.press("enter", "ctrl+r")
    assert "chunkId: required" in house.text()


async def test_an_error_of_a_tool_is_its_answer(house: House) -> None:
    pane = await house.go("tools")
    pane.line.value = "get_context"  # type: ignore[attr-defined]
    await house.settle()
    await house.press("enter")
    await house.type("xyz")
    await house.press("ctrl+r")
    await house.until(lambda: "✗ chunkId: 'xyz' is not an id" in house.text())


async def test_what_may_remove_something_asks_first(house: House) -> None:
    pane = await house.go("tools")
    pane.line.value = "remove_source"  # type: ignore[attr-defined]
    await house.settle()
    await house.press("ctrl+r")
    assert "Run remove_source?" in house.text()
    await house.press("n")


async def test_providers_and_their_state(house: House) -> None:
    await house.go("tools")
    await house.press("p")
    await house.until(lambda: "Providers of tools" in house.text())
    await house.press("escape")


# ---------------------------------------------------------------- activity, keys, doctor


async def test_calls_of_an_assistant_appear_by_themselves(house: House) -> None:
    await house.go("activity")
    registry = house.app.desk.workspace.registry
    registry.call("search", {"query": "bees"}, Scope(caller="stdio"))
    await house.until(lambda: "stdio" in house.text() and "bees" in house.text(), "the call")
    await house.press("enter")
    await house.until(lambda: '"caller": "stdio"' in house.text())
    await house.press("escape", "s")
    assert "by stdio" in house.text()


async def test_calls_of_the_window_itself_are_shown_on_demand(house: House) -> None:
    await house.type("bees")
    await house.go("activity")
    own = " tui "
    assert own not in house.text()
    await house.press("m")
    await house.until(lambda: own in house.text())


async def test_a_key_is_made_shown_once_and_revoked(house: House) -> None:
    await house.go("keys")
    await house.press("a")
    await house.type("editor")
    await house.press("ctrl+r")
    await house.until(lambda: "Save it now" in house.text())
    await house.press("y")
    made = house.app.clipboard
    assert house.app.desk.workspace.api_keys.verify(made).name == "editor"
    await house.press("escape")
    assert made not in house.text()
    await house.press("d", "y")
    await house.until(lambda: "revoked" in house.text())


async def test_a_key_that_cannot_be_made_says_why(house: House) -> None:
    await house.go("keys")
    await house.press("a")
    await house.type("editor")
    house.app.screen.query_one("#field-2").text = "nowhere"  # type: ignore[attr-defined]
    await house.press("ctrl+r")
    await house.until(lambda: "No collection 'nowhere'" in house.text())
    await house.press("escape")


async def test_the_doctor_looks_at_the_open_file_and_the_last_searches(tmp_path: Path) -> None:
    async with open_house(make_library(tmp_path), (160, 45), surroundings=Surroundings(examine=examine)) as house:
        await house.type("bees")
        await house.go("doctor")
        await house.until(lambda: "✓ integrity" in house.text())
        assert "chunks" in house.text()
        await house.until(lambda: "half below" in house.text())


async def test_the_doctor_shows_every_check_with_the_command_that_mends_it(tmp_path: Path) -> None:
    found = Examination([Check("space", "fail", "The disk is full.", "localmcp trash empty")], [("chunks", 4_200_000)])
    surroundings = Surroundings(examine=lambda _workspace: found)
    async with open_house(make_library(tmp_path), surroundings=surroundings) as house:
        await house.go("doctor")
        await house.until(lambda: "✗ space" in house.text())
        text = house.text()
        assert "$ localmcp trash empty" in text
        assert "chunks" in text
        assert "4.2 MB" in text
        await house.press("y")
        assert "The disk is full." in house.app.clipboard


def test_speeds_in_words() -> None:
    assert speed_words([]) == "No searches yet."
    assert speed_words([float(n) for n in range(100)]) == "100 searches: half below 50 ms, 95 % below 95 ms"
