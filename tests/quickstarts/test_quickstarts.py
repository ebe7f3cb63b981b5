"""Quick starts: what is imported, what a search finds and at which score, and that it never guesses."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from desk import check_promise
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from localmcp.config import sample_directory
from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.index.federation import Federation
from localmcp.index.search import Index
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.quickstarts.catalog import Quickstarts
from localmcp.quickstarts.store import MOST_FALLBACK, folded_text
from localmcp.storage.database import Database
from localmcp.tools import Json, Registry, Scope


def catalog_of(database: Database) -> Quickstarts:
    """The quick starts of a file with nothing mounted beside it."""
    return Quickstarts(database, Federation(Index(database, LazyEmbedder(HashEmbedder))))


@pytest.fixture(name="quickstarts")
def make_quickstarts(database: Database) -> Quickstarts:
    return catalog_of(database)


@pytest.fixture(name="registry")
def make_registry(quickstarts: Quickstarts) -> Registry:
    registry = Registry()
    registry.add_service(quickstarts)
    return registry


def row(name: str, title: str = "", description: str = "", **spec: Any) -> Json:
    return {
        "name": name,
        "content": {"kind": "QuickStarts", "spec": {"displayName": title, "description": description, **spec}},
    }


def fill(quickstarts: Quickstarts, *rows: Json) -> None:
    quickstarts.import_quickstarts(text=json.dumps(list(rows)), format="json")


def names(answer: Any) -> list[str]:
    return [each["name"] for each in answer["results"]]


GUIDES = (
    row("boiler-service", "Service your boiler", "Drain, clean and refill the boiler once a year."),
    row("boiler-errors", "Understand boiler error codes", "What E110 and E125 mean and what to do first."),
    row("garden-watering", "Plan the watering of your garden", "Set the timers for tomatoes, roses and lawn."),
    row("bread-first-loaf", "Bake your first sourdough loaf", "From a ripe starter to a crust that sings."),
    row("bees-first-year", "Keep bees through the first year", "Inspect hives, feed and treat colonies."),
    row("network-guest", "Set up a guest network", "Give visitors the internet without your printers."),
    row("network-names", "Give your devices names", "Find printers and cameras by name, not by number."),
    row("warranty", "Keep a register of warranties", "Never search for an invoice again."),
    row("washing-machine", "Descale the washing machine", "Remove lime with citric acid in four steps."),
    row("night-train", "Book a night train across the Alps", "Couchettes, bicycles and connections."),
)
"""A small catalogue; the tests that need a telling one add to it."""

FILLING = tuple(row(f"filling-{number}", f"Chapter {number}", "Nothing of interest.") for number in range(20))


# ---------------------------------------------------------------- scores

WORKED: list[tuple[str, str, str, int, str]] = [
    ("displayName", "API", "APIs", 10, "partial_match"),
    ("description", "blueprint", "Creating blueprint images", 40, "partial_match"),
    ("description", "documentation", "API documentation guide", 40, "partial_match"),
    ("displayName", "API", "REST APIs", 20, "partial_match"),
    ("displayName", "create a blueprint", "Create a blueprint", 0, "exact_match"),
    ("displayName", "create a blueprnt", "Create a blueprint", 210, "fuzzy_match"),
    ("displayName", "getting startd", "Getting started", 210, "fuzzy_match"),
    ("displayName", "Create RHEL", "Create RHEL images for my deployment", 40, "partial_match"),
    ("displayName", "Create RHEL", "Create RHEL images for deployment", 30, "partial_match"),
    ("displayName", "Create RHEL", "Create RHEL systems", 10, "partial_match"),
    (
        "displayName",
        "security scanning",
        "Advanced security scanning and vulnerability assessment",
        40,
        "partial_match",
    ),
    ("displayName", "API documentation", "Complete API documentation and examples", 30, "partial_match"),
    ("displayName", "getting started", "Getting started with OpenShift deployment", 30, "partial_match"),
    ("displayName", "blueprnt", "blueprint", 210, "fuzzy_match"),
    ("displayName", "secruity", "security", 220, "fuzzy_match"),
    ("displayName", "API docs", "APIs", 270, "fuzzy_match"),
    ("displayName", "API docs", "API catalog", 270, "fuzzy_match"),
    ("displayName", "API docs", "REST API", 270, "fuzzy_match"),
    ("displayName", "Find API docs", "APIs", 270, "fuzzy_match"),
    ("displayName", "blueprint images", "Creating blueprint images", 10, "partial_match"),
    ("displayName", "blueprint images", "Image blueprints", 220, "fuzzy_match"),
    ("displayName", "getting started", "Getting Started", 0, "exact_match"),
    ("displayName", "getting started", "Get started", 240, "fuzzy_match"),
    ("displayName", "getting started", "Start guide", 290, "fuzzy_match"),
    ("displayName", "Create RHAL images", "Create RHEL images for deployment", 230, "fuzzy_match"),
]


@pytest.mark.parametrize(("parameter", "query", "field", "score", "kind"), WORKED)
def test_a_field_scores_as_in_the_worked_examples(
    quickstarts: Quickstarts, parameter: str, query: str, field: str, score: int, kind: str
) -> None:
    fill(quickstarts, row("worked", **{"title" if parameter == "displayName" else "description": field}))
    answer: Any = quickstarts.search(**{parameter: query})
    assert [(each["score"], each["matchType"]) for each in answer["results"]] == [(score, kind)]


def test_an_exact_name_always_wins_and_one_found_nearly_has_its_own_weight(quickstarts: Quickstarts) -> None:
    fill(quickstarts, *GUIDES, row("insights-apis", "APIs"), row("other", "insights-apis and more"))
    answer: Any = quickstarts.search(name="INSIGHTS-apis", displayName="insights-apis")
    assert (answer["result"]["quickstart"]["name"], answer["result"]["score"]) == ("insights-apis", 0)
    assert answer["result"]["matchedField"] == "name"
    answer = quickstarts.search(name="bread-frist-loaf")
    assert (names(answer)[0], answer["result"]["score"]) == ("bread-first-loaf", 200 + 15 * 2)


def test_several_parameters_are_alternatives_in_ascending_order(quickstarts: Quickstarts) -> None:
    fill(
        quickstarts,
        row("rest-api-guide", "REST APIs"),
        row("api-docs", "Guide", "API documentation guide"),
        row("insights-apis", "APIs", "Explore the API catalog and documentation."),
    )
    answer: Any = quickstarts.search(displayName="API", description="documentation")
    assert [(each["name"], each["score"]) for each in answer["results"]] == [
        ("insights-apis", 10),
        ("rest-api-guide", 20),
        ("api-docs", 40),
    ]


def test_of_equal_scores_more_parameters_then_the_shorter_title_then_the_name_decide(quickstarts: Quickstarts) -> None:
    fill(
        quickstarts,
        row("z-both", "Kiln firing", "All about a kiln"),
        row("c-long", "Kiln decorating"),
        row("b-short", "Kiln repair"),
        row("a-short", "Kiln basics"),
    )
    assert names(quickstarts.search(displayName="kiln", description="kiln")) == [
        "z-both",
        "a-short",
        "b-short",
        "c-long",
    ]


def test_questions_typos_plurals_and_other_word_order_find_the_guide(quickstarts: Quickstarts) -> None:
    fill(quickstarts, *GUIDES, *FILLING)
    expected = {
        "descael the washing machnie": "washing-machine",
        "machine washing descale": "washing-machine",
        "How do I set up a guest network?": "network-guest",
        "please show me how to bake sourdough": "bread-first-loaf",
        "boiler errors": "boiler-errors",
        "watering gardens": "garden-watering",
        "night trains": "night-train",
        "book nigth trian": "night-train",
    }
    assert {query: names(quickstarts.search(displayName=query))[0] for query in expected} == expected


def test_a_question_that_only_the_whole_document_answers_is_a_fallback_match(quickstarts: Quickstarts) -> None:
    tasks = [{"title": "Winter", "description": "Wrap the colonies against woodpeckers."}]
    fill(quickstarts, *GUIDES, row("hives-winter", "Prepare for the cold", tasks=tasks))
    answer: Any = quickstarts.search(displayName="How do I protect colonies from woodpeckers, wrap them?")
    assert answer["results"] == []
    answer = quickstarts.search(displayName="wrapping against woodpeckers")
    best = answer["result"]
    assert (best["quickstart"]["name"], best["matchType"], best["matchedField"]) == (
        "hives-winter",
        "fallback_match",
        "document",
    )
    assert 700 <= best["score"] <= MOST_FALLBACK


# ---------------------------------------------------------------- never guess


@pytest.mark.parametrize("parameter", ["name", "displayName", "description"])
def test_what_nothing_answers_finds_nothing(quickstarts: Quickstarts, parameter: Any) -> None:
    fill(quickstarts, *GUIDES, *FILLING, row("notes", "Notifications from the platform"))
    for query in (
        *("zzxqwv", "blorptang frimbolt", "%", "_", "%%", "*", "'", "' OR 1=1 --", '" * NEAR', "NOT", "AND", "OR"),
        *("the", "chess openings for beginners", "train a puppy", "web form", "mortgage calculator names", "a", "?"),
        *("\\", "🍕", "medieval network", "bake a cake recipe today", "-- ;", "${x}", "__", "[]", "q", "12345"),
    ):
        assert names(quickstarts.search(**{parameter: query})) == [], query


def test_metacharacters_are_literal(quickstarts: Quickstarts) -> None:
    fill(
        quickstarts, row("percent", "Save 100% of it"), row("under", "Use snake_case"), row("plain", "Save 1000 of it")
    )
    assert names(quickstarts.search(displayName="100% of")) == ["percent"]
    assert names(quickstarts.search(displayName="snake_case")) == ["under"]
    assert names(quickstarts.search(displayName="snake%case' or ''='")) == ["under"]


def test_a_typo_budget_limits_what_one_word_and_the_whole_query_may_be_off(quickstarts: Quickstarts) -> None:
    fill(quickstarts, row("x", "Create a blueprint"))
    assert names(quickstarts.search(displayName="bleuprnit")) == ["x"]
    assert names(quickstarts.search(displayName="blxxxxint")) == []
    assert names(quickstarts.search(displayName="create a blueprnt", maxDistance=1)) == ["x"]
    assert names(quickstarts.search(displayName="craete a blueprnt", maxDistance=1)) == []
    assert names(quickstarts.search(displayName="create a blueprnt", maxDistance=0)) == []


# ---------------------------------------------------------------- the tool's answers


def test_the_answer_holds_both_forms_and_fits_its_schema(registry: Registry, quickstarts: Quickstarts) -> None:
    fill(quickstarts, *GUIDES)
    answer = registry.call("searchQuickstarts", {"displayName": "boiler", "maxDistance": "2", "limit": "1"})
    value = answer.value
    check_promise(registry, "searchQuickstarts", value)
    assert (value["tool"], value["searchParams"]) == ("searchQuickstarts", {"displayName": "boiler", "maxDistance": 2})
    assert value["count"] == len(value["results"]) == 1
    best = value["result"]
    assert best["displayName"] == value["results"][0]["displayName"] == "Service your boiler"
    assert best["quickstart"]["content"]["spec"]["displayName"] == "Service your boiler"
    assert best["quickstart"]["created_at"].endswith("Z") and best["quickstart"]["id"] == 1
    assert json.loads(answer.text) == value


@pytest.mark.parametrize("arguments", [{}, {"name": ""}, {"displayName": "  ", "limit": 5}])
def test_without_a_text_the_answer_is_a_sentence_not_an_error(registry: Registry, arguments: Json) -> None:
    answer = registry.call("searchQuickstarts", arguments)
    assert answer.text == "Error: At least one search parameter (name, displayName, or description) must be provided"
    assert not answer.is_error
    assert (answer.value["results"], answer.value["count"]) == ([], 0)


def test_nothing_found_is_said_in_the_contracts_words(registry: Registry) -> None:
    answer = registry.call("searchQuickstarts", {"displayName": "x"})
    assert answer.text == "No quickstarts found matching (displayName='x') with Levenshtein distance ≤7"
    answer = registry.call("searchQuickstarts", {"name": "a", "description": "b", "maxDistance": 3})
    assert answer.text == "No quickstarts found matching (name='a', description='b') with Levenshtein distance ≤3"


@pytest.mark.parametrize(
    ("limit", "count"), [(15, 15), ("20", 20), ("", 10), (None, 10), (25.0, 25), (99, 50), (0, 10), (-3, 10)]
)
def test_the_limit_is_read_leniently_and_kept_within_bounds(
    registry: Registry, quickstarts: Quickstarts, limit: Any, count: int
) -> None:
    fill(quickstarts, *(row(f"row-{number}", f"Kiln {number}") for number in range(60)))
    assert registry.call("searchQuickstarts", {"displayName": "kiln", "limit": limit}).value["count"] == count


@pytest.mark.parametrize("parameter", ["limit", "maxDistance"])
def test_a_number_that_is_none_is_refused_in_the_contracts_words(registry: Registry, parameter: str) -> None:
    with pytest.raises(InvalidInput, match=f"^invalid {parameter} value: invalid$"):
        registry.call("searchQuickstarts", {"name": "x", parameter: "invalid"})
    with pytest.raises(InvalidInput, match=f"^{parameter} must be a number or string, got: bool$"):
        registry.call("searchQuickstarts", {"name": "x", parameter: True})


def test_a_file_that_cannot_be_opened_is_told_in_the_contracts_words(tmp_path: Path) -> None:
    registry = Registry()
    registry.add_service(catalog_of(Database(tmp_path / "absent.localmcp", read_only=True)))
    answer = registry.call("searchQuickstarts", {"name": "x"})
    assert answer.text.startswith("Error: Database connection not available: ") and answer.is_error
    assert "absent.localmcp does not exist yet" in answer.text
    (tmp_path / "other.localmcp").write_bytes(b"SQLite format 3\0" + bytes(4000))
    registry.add_service(catalog_of(Database(tmp_path / "other.localmcp", read_only=True)))
    answer = registry.call("searchQuickstarts", {"name": "x"})
    assert answer.text.startswith("Error searching quickstarts: ") and answer.is_error


def test_without_levenshtein_only_substrings_match_and_a_warning_is_logged(
    database: Database,
    quickstarts: Quickstarts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(quickstarts, *GUIDES, row("percent", "Save 100% of it"), row("upper", "ÜBERBLICK der Heizung"))
    monkeypatch.setattr("localmcp.storage.connections.register_levenshtein", lambda _: False)
    database.close()
    with caplog.at_level(logging.WARNING):
        answer: Any = quickstarts.search(displayName="Washing machine")
    assert "levenshtein is not available" in caplog.text
    assert (answer["fallback"], answer["searchParams"]["maxDistance"]) == (True, 0)
    assert (names(answer), answer["result"]["matchType"]) == (["washing-machine"], "fallback_match")
    assert 700 <= answer["result"]["score"] <= MOST_FALLBACK
    assert names(quickstarts.search(displayName="wshing machine")) == []
    assert names(quickstarts.search(displayName="100% of")) == ["percent"]
    assert names(quickstarts.search(displayName="überblick")) == ["upper"]
    assert names(quickstarts.search(displayName="1000 of", description="%")) == []
    assert set(names(quickstarts.search(name="night", description="hives"))) == {"bees-first-year", "night-train"}


def test_a_tag_narrows_search_and_list(quickstarts: Quickstarts) -> None:
    tagged = {**row("kiln-a", "Kiln firing"), "tags": [{"kind": "room", "value": "cellar"}]}
    other = {**row("kiln-b", "Kiln repair"), "tags": [{"kind": "owner", "value": "cellar"}, "hot"]}
    fill(quickstarts, tagged, other, row("kiln-c", "Kiln basics"))
    assert names(quickstarts.search(displayName="kiln", tag="room:cellar")) == ["kiln-a"]
    assert set(names(quickstarts.search(displayName="kiln", tag="cellar"))) == {"kiln-a", "kiln-b"}
    assert names(quickstarts.search(displayName="kiln", tag="hot")) == ["kiln-b"]
    nowhere = quickstarts.search(displayName="kiln", tag="nowhere")
    assert names(nowhere) == [] and "with the tag 'nowhere'" in nowhere["message"]
    listed: Any = quickstarts.list_quickstarts(tag="cellar")
    assert [each["name"] for each in listed["quickstarts"]] == ["kiln-a", "kiln-b"]
    assert listed["tags"] == {"owner:cellar": 1, "room:cellar": 1, "tag:hot": 1}


# ---------------------------------------------------------------- import

DOCUMENT = """
apiVersion: console.openshift.io/v1
kind: ConsoleQuickStart
metadata:
  name: feed-the-starter
  tags: [{kind: room, value: kitchen}]
spec:
  displayName: Feed the starter
  description: Keep it alive.
  durationMinutes: 5
  introduction: Flour and [water]{{highlight tap}}.
  prerequisites: [A jar]
  tasks:
    - title: Mix
      description: Stir `1:1:1`{{copy}} by weight.
      review: {instructions: "Is it smooth?", failedTaskHelp: Stir again.}
    - title: Wait
      description: Until it has doubled.
  conclusion: You have fed it on 2024-05-01.
  nextQuickStart: [bread-first-loaf]
"""


def test_every_form_is_imported(quickstarts: Quickstarts, tmp_path: Path) -> None:
    (tmp_path / "one.yml").write_text(DOCUMENT, encoding="utf-8")
    (tmp_path / "two.yaml").write_text(
        DOCUMENT.replace("feed-the-starter", "first") + "---\n" + DOCUMENT.replace("feed-the-starter", "second"),
        encoding="utf-8",
    )
    (tmp_path / "rows.jsonl").write_text(
        "".join(
            json.dumps(each) + "\n"
            for each in (*GUIDES[:3], {**row("text"), "content": json.dumps(row("x")["content"])})
        ),
        encoding="utf-8",
    )
    (tmp_path / "list.json").write_text(json.dumps(GUIDES[3:5]), encoding="utf-8-sig")
    (tmp_path / "kubernetes.json").write_text(
        json.dumps({"kind": "List", "items": [yaml.safe_load(DOCUMENT.replace("feed-the-starter", "third"))]}),
        encoding="utf-8",
    )
    report: Any = quickstarts.import_quickstarts(str(tmp_path))
    assert (report["added"], report["skipped"]) == (10, [])
    assert quickstarts.import_quickstarts(str(tmp_path))["unchanged"] == 10


def test_the_metadata_file_beside_a_quick_start_gives_its_tags(quickstarts: Quickstarts, tmp_path: Path) -> None:
    (tmp_path / "feed.yml").write_text(DOCUMENT, encoding="utf-8")
    (tmp_path / "metadata.yml").write_text(
        "kind: QuickStarts\nname: feed-the-starter\ntags: [{kind: time, value: morning}]\n", encoding="utf-8"
    )
    report: Any = quickstarts.import_quickstarts(str(tmp_path))
    assert (report["added"], report["warnings"]) == (1, [])
    assert quickstarts.list_quickstarts()["quickstarts"][0]["tags"] == ["kitchen", "morning"]


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{inner}'] * 9)}]\n" for inner, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Nine levels of nine aliases: 400 bytes that stand for 400 million values."""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yml", "kind: QuickStarts\nspec: [unclosed", "not YAML"),
        ("a.yml", DOCUMENT + "---\nmetadata: {name: x\n", "not YAML"),
        ("a.json", '{"kind": "QuickStarts"', "not JSON"),
        ("a.jsonl", json.dumps(row("fine")) + '\n{"name": ', "line 2"),
        ("a.yml", "kind: Deployment\nspec: {}\n", "kind is 'Deployment'"),
        ("a.yml", "kind: QuickStarts\nspec: {displayName: x}\n", "no name"),
        ("a.yml", "just text", "mapping"),
        ("a.yml", "", "holds no quick start"),
        ("a.json", '{"name": "x", "content": {"kind": "QuickStarts", "spec": {"version": NaN}}}', "number"),
        ("a.yml", BOMB, "too large"),
        ("a.json", '{"spec": {"durationMinutes": ' + "9" * 5000 + "}}", "not JSON"),
        ("a.yml", "kind: QuickStarts\nspec: {durationMinutes: 0x" + "f" * 5000 + "}\n", "more than 1024 bits"),
        ("a.json", "[" * 100_000, "deep"),
        ("a.yml", "a: &a\n  b: *a\n", "deep"),
        ("a.yml", "kind: \udce9", "not text in UTF-8 (byte 7)"),
    ],
)  # fmt: skip
def test_a_broken_file_is_reported_and_left_out_whole(
    quickstarts: Quickstarts, tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    (tmp_path / "z-good.json").write_text(json.dumps(row("good", "Good")), encoding="utf-8")
    report: Any = quickstarts.import_quickstarts(str(tmp_path))
    assert report["added"] == 1
    assert [said in each["problem"] and each["where"].startswith(name) for each in report["skipped"]] == [True]
    assert [each["name"] for each in quickstarts.list_quickstarts()["quickstarts"]] == ["good"]


def test_every_departure_from_the_data_model_is_listed_and_nothing_is_lost(quickstarts: Quickstarts) -> None:
    spec = {"description": "x" * 300, "durationMinutes": 0, "introduction": 7, "tasks": [{"title": "T"}, "no"]}
    document = {"kind": "QuickStarts", "metadata": {"name": "odd"}, "spec": spec}
    report: Any = quickstarts.import_quickstarts(text=json.dumps(document), format="json")
    said = " | ".join(each["problem"] for each in report["warnings"])
    tasks = ("spec.tasks[0].description", "spec.tasks[1].title")
    for path in ("spec.displayName", "spec.description", "spec.durationMinutes", "spec.introduction", *tasks):
        assert path in said
    assert report["added"] == 1
    assert json.loads(quickstarts.export(format="json")["text"]) == [document]


def test_a_known_name_is_updated_and_keeps_its_id_and_a_removed_one_may_come_again(quickstarts: Quickstarts) -> None:
    fill(quickstarts, *GUIDES, row("kiln", "Kiln"))
    fill(quickstarts, row("kiln", "Kiln, second edition"))
    answer: Any = quickstarts.search(name="kiln")
    whole = answer["result"]["quickstart"]
    assert (whole["id"], answer["result"]["displayName"]) == (len(GUIDES) + 1, "Kiln, second edition")
    assert whole["updated_at"] >= whole["created_at"]
    assert names(quickstarts.search(displayName="second edition")) == ["kiln"]
    quickstarts.remove(["warranty"])
    assert names(quickstarts.search(name="warranty", displayName="register of warranties")) == []
    assert quickstarts.list_quickstarts()["total"] == len(GUIDES)
    fill(quickstarts, *GUIDES)
    assert names(quickstarts.search(name="warranty")) == ["warranty"]


def test_titles_are_trimmed_and_content_is_kept_as_it_came(quickstarts: Quickstarts) -> None:
    fill(quickstarts, row("kiln", "  The potter's kiln ", "\nFire it."))
    answer: Any = quickstarts.search(displayName="the potter's kiln")
    assert (answer["result"]["score"], answer["result"]["description"]) == (0, "Fire it.")
    assert answer["result"]["quickstart"]["content"]["spec"]["description"] == "\nFire it."


def test_broken_content_is_survived(database: Database, quickstarts: Quickstarts) -> None:
    fill(quickstarts, row("kiln", "Kiln"))
    with database.write() as connection:
        connection.execute("update quickstarts set content = '{broken'")
        connection.execute("update state set quickstarts = quickstarts + 1")
    answer: Any = quickstarts.search(name="kiln")
    assert (answer["result"]["displayName"], answer["result"]["quickstart"]["content"]) == ("", {})
    assert quickstarts.show("kiln")["markdown"].startswith("# kiln")


def test_an_assistant_hands_over_text_but_reads_no_files(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(DOCUMENT, encoding="utf-8")
    assistant = Scope(caller="stdio", trusted=False)
    with pytest.raises(AccessDenied):
        registry.call("importQuickstarts", {"path": str(tmp_path)}, assistant)
    assert registry.call("importQuickstarts", {"text": DOCUMENT}, assistant).value["added"] == 1
    with pytest.raises(InvalidInput):
        registry.call("importQuickstarts", {}, assistant)
    for absent in ("absent", "too long" * 1000):
        with pytest.raises(NotFound):
            registry.call("importQuickstarts", {"path": str(tmp_path / absent)})


# ---------------------------------------------------------------- reading and working through


def test_a_quick_start_is_shown_as_markdown(quickstarts: Quickstarts) -> None:
    quickstarts.import_quickstarts(text=DOCUMENT)
    markdown = quickstarts.show("Feed the starter")["markdown"]
    assert markdown.splitlines()[0] == "# Feed the starter"
    for part in (
        "- A jar",
        "Flour and **water**.",
        "## 1. Mix",
        "Stir `1:1:1` by weight.",
        "> **Check your work.** Is it smooth?",
        "> **If that failed.** Stir again.",
        "## 2. Wait",
        "You have fed it on 2024-05-01.",
        "- bread-first-loaf",
    ):
        assert part in markdown


@pytest.mark.parametrize("text", ["[" * 200_000, "{{copy" * 100_000, "[a]{{highlight " * 50_000])
def test_a_hostile_text_is_shown_at_once(quickstarts: Quickstarts, text: str) -> None:
    fill(quickstarts, row("hostile", "Hostile", introduction=text))
    started = time.process_time()
    assert text.strip() in quickstarts.show("hostile")["markdown"]
    assert time.process_time() - started < 5


def test_a_long_description_that_holds_the_query_everywhere_is_searched_at_once(quickstarts: Quickstarts) -> None:
    fill(quickstarts, row("long", "Long", "a car at a bar " * 10_000))
    started = time.process_time()
    assert quickstarts.search(description="car at")["results"][0]["name"] == "long"
    assert time.process_time() - started < 5


def test_an_unknown_name_is_answered_with_the_nearest(quickstarts: Quickstarts) -> None:
    fill(quickstarts, *GUIDES)
    with pytest.raises(NotFound, match="Did you mean 'night-train'"):
        quickstarts.show("nite-train")
    with pytest.raises(NotFound, match="listQuickstarts shows them"):
        quickstarts.show("xyz")
    assert quickstarts.show("Train night")["name"] == "night-train"


# ---------------------------------------------------------------- export

json_texts = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | json_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("form", ["yaml", "json", "jsonl"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extra=json_values, tag=st.text("abc é:", min_size=1, max_size=5))
def test_what_is_exported_is_imported_again_without_a_difference(
    tmp_path_factory: pytest.TempPathFactory, form: Any, extra: Any, tag: str
) -> None:
    folder = tmp_path_factory.mktemp("export")
    first, second = catalog_of(Database(folder / "a.localmcp")), catalog_of(Database(folder / "b.localmcp"))
    first.import_quickstarts(text=DOCUMENT)
    fill(first, {**row("odd", "Odd", extra=extra), "tags": [{"kind": "k", "value": tag}]}, *GUIDES[:2])
    exported = first.export(format=form)["text"]
    report: Any = second.import_quickstarts(text=exported, format=form)
    assert (report["added"], report["skipped"]) == (4, [])
    assert second.export(format="json") == first.export(format="json")
    assert second.import_quickstarts(text=exported, format=form)["unchanged"] == 4


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=40), title=st.text(max_size=40), distance=st.integers(0, 1000))
def test_any_unicode_is_survived_and_no_score_is_above_998(
    quickstarts: Quickstarts, query: str, title: str, distance: int
) -> None:
    fill(quickstarts, row("any", title, title[::-1]))
    answer: Any = quickstarts.search(name=query, displayName=query, description=query, maxDistance=distance)
    assert all(0 <= each["score"] <= 998 for each in answer["results"])
    if folded_text(title) and "\0" not in title and not any("\ud800" <= each <= "\udfff" for each in title):
        whole: Any = quickstarts.search(displayName=title)
        assume(whole["results"])
        assert whole["result"]["score"] == 0


# ---------------------------------------------------------------- the samples


def test_the_samples_follow_the_data_model_and_are_found(quickstarts: Quickstarts) -> None:
    report: Any = quickstarts.import_quickstarts(str(sample_directory() / "quickstarts"))
    assert report["added"] >= 20
    assert report["skipped"] == []
    assert [each for each in report["warnings"] if "tasks" not in each["problem"]] == []
    listed: Any = quickstarts.list_quickstarts(limit=1000)["quickstarts"]
    known = {each["name"] for each in listed}
    for each in listed:
        assert names(quickstarts.search(displayName=each["displayName"]))[0] == each["name"]
        content: Any = quickstarts.search(name=each["name"])["result"]["quickstart"]["content"]  # pyright: ignore
        assert set(content["spec"].get("nextQuickStart", [])) <= known


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such devices")
def test_a_device_is_left_out_of_what_is_imported(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "endless.yaml").symlink_to("/dev/zero")
    report = registry.call("importQuickstarts", {"path": str(tmp_path / "endless.yaml")}).value
    assert report["skipped"] == [{"where": "endless.yaml", "problem": "not a regular file"}]
