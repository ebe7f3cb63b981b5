"""How much meaning counts: measured on the documents, used where they are found, told in every answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localmcp.arrays import np
from localmcp.config import Settings
from localmcp.errors import ModelUnavailable
from localmcp.index.fusion import Group, adapt_weights, weight_for
from localmcp.index.search import SearchRequest
from localmcp.models.embedder import Calibration
from localmcp.storage.database import fetch_all, fetch_column
from localmcp.workspace import Workspace

SUBJECTS = (
    "backup", "database", "garden", "bicycle", "kitchen", "mountain", "orchestra", "passport", "river", "satellite"
)  # fmt: skip


def article(number: int) -> str:
    """Over thirty words of prose about something of its own."""
    subject, other = SUBJECTS[number % 10], SUBJECTS[(number // 10) % 10]
    return (
        f"The {subject} number {number} stands beside the {other} and nobody who walks past knows why it was put "
        f"there. People of the town say that the {subject} was a present, and that the {other} came {number} years "
        f"later, when the money for it had been found after a long search."
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A file with 60 short texts, as ingest leaves it."""
    folder = tmp_path_factory.mktemp("articles")
    for number in range(60):
        (folder / f"{number}.txt").write_text(article(number), encoding="utf-8")
    with Workspace(Settings(database=tmp_path_factory.mktemp("file") / "kb.localmcp")) as opened:
        opened.library.add_paths([folder])
        yield opened


def test_a_search_uses_and_tells_the_weight_that_ingest_measured_once(workspace: Workspace) -> None:
    with workspace.database.read() as connection:
        rows = fetch_all(connection, "select language, measured_chunks, gap from groups where chunks > 0")
    [(language, measured, gap)] = rows
    assert (language, measured) == ("english", 60) and 0 < gap < 1
    assert adapt_weights(workspace.database, workspace.embedder.get()) == 0
    outcome = workspace.index.search(SearchRequest("why was the bicycle put beside the river"))
    assert outcome.semantic_weight == pytest.approx(min(max(0.6 + 2 * (gap - 0.125), 0.3), 0.91), abs=1e-4)
    for hit in outcome.hits:
        scores = hit.scores
        expected = outcome.semantic_weight * scores.semantic + (1 - outcome.semantic_weight) * scores.keyword
        assert scores.combined == pytest.approx(expected)


def test_switched_off_the_weight_is_that_of_the_settings(workspace: Workspace) -> None:
    settings = Settings(database=workspace.database.path, semantic_weight=0.55)
    with Workspace(settings) as fixed:
        assert fixed.index.search(SearchRequest("bicycle beside the river")).semantic_weight == 0.55


def test_a_question_about_something_else_is_marked_and_still_answered(workspace: Workspace) -> None:
    def asked(query: str) -> dict[str, Any]:
        return workspace.registry.call("search", {"query": query}).value

    assert "lowConfidence" not in asked("why was the bicycle put beside the river")
    elsewhere = asked("enzyme inhibitors in cardiac muscle proteins of mice")
    assert elsewhere.get("lowConfidence", elsewhere["count"] == 0) is True


def test_windows_are_embedded_at_once_and_a_damaged_vector_does_not_count(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each in a request of its own would take an endpoint half a minute, or reach its limit.
    monkeypatch.setattr(embedder := workspace.embedder.get(), "embed_query", None)
    first = "(select id & ~1099511627775 from vectors) | (select id from chunks order by digest limit 1)"
    with workspace.database.write() as connection:
        [before] = fetch_column(connection, "select gap from groups where gap > 0")
        vector = np.full(embedder.identity.dimension, np.nan, "<f4").tobytes()
        connection.execute(f"update vectors set embedding = ? where id = {first}", (vector,))
        connection.execute("update groups set measured_chunks = 0")
        connection.execute("update models set calibration = json_set(calibration, '$.factor', 2.0)")
    assert adapt_weights(workspace.database, embedder) == 1
    with workspace.database.read() as connection:
        assert fetch_column(connection, "select gap from groups where gap > 0") == [pytest.approx(before / 2, rel=0.2)]


def test_a_model_that_fails_while_it_is_measured_leaves_nothing_waiting_and_nothing_to_tell(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise ModelUnavailable("The service limits requests.")

    monkeypatch.setattr("localmcp.library.ingest.adapt_weights", fail)
    (tmp_path / "one.txt").write_text(article(99), encoding="utf-8")
    report = workspace.library.add_paths([tmp_path])
    assert (report.indexed, report.waiting, report.notices) == (1, 0, [])


@pytest.mark.parametrize(
    ("gap", "language", "calibration", "weight"),
    [
        (0.125, "english", Calibration(), 0.60),
        (0.175, "english", Calibration(), 0.70),
        (0.0875, "english", Calibration(factor=2.0), 0.70),
        (0.5, "english", Calibration(), 0.91),
        (0.0, "spanish", Calibration(), 0.35),
        (0.125, "italian", Calibration(), 0.45),
        (0.125, "italian", Calibration(reads_all=True), 0.60),
        (-0.1, "italian", Calibration(), 0.30),
    ],
)
def test_sharp_gaps_trust_the_model_and_foreign_languages_less(
    gap: float, language: str, calibration: Calibration, weight: float
) -> None:
    groups = [Group(1, 1, language, "prose", 100, gap)]
    assert weight_for(groups, 0.7, calibration, is_foreign=False) == pytest.approx(weight, abs=1e-4)


def test_few_passages_keep_the_weight_and_a_language_that_the_model_does_not_know_weighs_words_more(
    tmp_path: Path,
) -> None:
    question = "perché la bicicletta si trova accanto al fiume della città"
    with Workspace(Settings(database=tmp_path / "mixed.localmcp")) as mixed:
        mixed.library.add_text(article(1), "Article")
        assert mixed.index.search(SearchRequest(question)).semantic_weight == 0.7
        mixed.library.add_text("La stazione è vicina al mercato e la gente ci passa ogni mattina.", "Stazione")
        assert mixed.index.search(SearchRequest(question)).semantic_weight == 0.45
