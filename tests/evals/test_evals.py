"""Evaluation: measures as a known library computes them, questions from a file, `localmcp eval`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_line
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from library import Library
from made_once import made_once

from localmcp.config import Settings, sample_directory
from localmcp.errors import InvalidInput, NotFound
from localmcp.evals.evaluation import ndcg, paired_interval, read_questions, recall, reciprocal_rank
from localmcp.models import HashEmbedder
from localmcp.storage.database import Database
from localmcp.workspace import Workspace


def index_samples(folder: Path) -> None:
    with Workspace(Settings(database=folder / "samples.localmcp", model="hash")) as workspace:
        workspace.library.add_paths([sample_directory() / "documents"])


@pytest.fixture(scope="module")
def file(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample documents, indexed with word hashes."""
    made = made_once(run_folder / "evals", index_samples)
    return Path(shutil.copy(made / "samples.localmcp", tmp_path_factory.mktemp("evals")))


@pytest.fixture
def workspace(file: Path) -> Iterator[Workspace]:
    with Workspace(Settings(database=file, model="hash")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def with_word_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")


def run(capsys: pytest.CaptureFixture[str], file: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON on stdout, and stderr of `localmcp eval`."""
    code, out, err = command_line.run(capsys, "--db", str(file), "eval", "--json", *arguments)
    return code, json.loads(out) if out.strip() else {}, err


# ---------------------------------------------------------------- measures


@given(
    ranking=st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=20),
    grades=st.dictionaries(st.integers(0, 30), st.integers(1, 3), min_size=1, max_size=12),
)
def test_measures_are_those_of_trec_eval(ranking: list[int], grades: dict[int, int]) -> None:
    names = [f"d{number:02}" for number in ranking]
    relevant = {f"d{number:02}": grade for number, grade in grades.items()}
    # Linear gains, as trec_eval's ndcg_cut counts them.
    judge = pytrec_eval.RelevanceEvaluator({"q": relevant}, {"ndcg_cut.10", "recall.10", "recip_rank"})
    scored = {name: float(len(names) - rank) for rank, name in enumerate(names)}
    theirs = judge.evaluate({"q": scored})["q"]
    floats = {name: float(grade) for name, grade in relevant.items()}
    assert ndcg(names, floats) == pytest.approx(theirs["ndcg_cut_10"])
    assert recall(names, floats) == pytest.approx(theirs["recall_10"])
    assert reciprocal_rank(names, floats, depth=1000) == pytest.approx(theirs["recip_rank"])


def test_an_interval_tells_a_change_from_chance() -> None:
    first = [0.5, 0.6, 0.4, 0.7] * 20
    assert paired_interval(first, [each + 0.1 for each in first]) == pytest.approx((0.1, 0.1))
    low, high = paired_interval(first, [each + (0.2 if n % 2 else -0.2) for n, each in enumerate(first)])
    assert low < 0 < high


# ---------------------------------------------------------------- questions


def test_documents_are_named_by_title_or_by_the_end_of_their_path(workspace: Workspace, tmp_path: Path) -> None:
    with workspace.database.read() as connection:
        uuid, uri, title = connection.execute("select uuid, uri, title from sources where uri like '%.md'").fetchone()
    path = tmp_path / "queries.jsonl"
    sample = {"query": "d", "answers": [{"path": Path(uri).name, "contains": "as in sample_data/queries.jsonl"}]}
    lines = [
        {"query": "a", "relevant": [title]},
        {"query": "b", "relevant": {Path(uri).name: 3}},
        {"query": "c"},
        sample,
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    asked = read_questions(path, workspace.database, None)
    assert [grades for _, _, grades in asked] == [{uuid: 1.0}, {uuid: 3.0}, {}, {uuid: 1.0}]


def test_a_title_of_two_documents_is_refused_with_what_it_fits(
    database: Database, hash_embedder: HashEmbedder, tmp_path: Path
) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text('{"query": "dew\u2028point", "relevant": ["Dew point"]}', encoding="utf-8")
    library = Library(database, hash_embedder)
    library.put("Cold.", title="Dew point", uri="/notes/dew.md")
    library.put("Colder.", title="Dew point")
    expected = "line 1: 'Dew point' fits 2 documents: ........, /notes/dew.md"
    with pytest.raises(InvalidInput, match=expected):
        read_questions(path, database, None)
    library.put("Grey.", title="Fog", uri="/notes/fog.md")
    library.put("Grey.", title="Fog", uri="/notes/fog.md", collection="more")
    path.write_text('{"query": "fog", "relevant": ["fog.md"]}', encoding="utf-8")
    with pytest.raises(InvalidInput, match="'fog.md' fits 2 documents"):
        read_questions(path, database, None)
    assert len(read_questions(path, database, ("more",))) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: Invalid JSON"),
        ("[1]", "line 1: Input should be an object"),
        ('{"query": " "}', "query: String should match"),
        ('{"query": "a", "relevant": "x"}', "relevant: Input should be an object"),
        ('{"query": "a", "relevant": {"x": -1}}', "relevant: Input should be greater"),
        ('{"query": "a", "relevant": ["no such document"]}', "line 1: no document"),
        ("", "holds no question"),
    ],
)
def test_a_file_of_another_form_names_the_line(workspace: Workspace, tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises((InvalidInput, NotFound), match=message):
        read_questions(path, workspace.database, None)


# ---------------------------------------------------------------- the command


@pytest.fixture
def questions(tmp_path: Path) -> str:
    """The questions that come with the samples."""
    path = tmp_path / "questions.jsonl"
    lines = (sample_directory() / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:20]
    path.write_text("\n".join([*lines, '{"query": "how tall is the eiffel tower", "kind": "none"}']), encoding="utf-8")
    return str(path)


def test_the_command_measures_every_mode_by_kind_and_compares_two_runs_question_by_question(
    capsys: pytest.CaptureFixture[str], file: Path, questions: str, tmp_path: Path
) -> None:
    code, before, _ = run(capsys, file, questions)
    assert code == 0 and set(before["modes"]) == {"keyword", "semantic", "hybrid"}
    keyword = before["modes"]["keyword"]
    assert keyword["overall"]["ndcg"] > 0.3 and 0 < keyword["p50"] <= keyword["p95"]
    assert before["questions"]["none"] == 1 and 0 <= before["modes"]["hybrid"]["answered_anyway"] <= 1
    path = tmp_path / "before.json"
    path.write_text(json.dumps(before), encoding="utf-8")
    code, result, _ = run(capsys, file, questions, "--against", str(path))
    assert code == 0 and not result["regressed"]
    assert [(each["change"], each["interval"]) for each in result["compared"]] == [(0, [0, 0])] * 3
    hybrid = before["modes"]["hybrid"]
    hybrid["overall"]["ndcg"], hybrid["each"] = 2.0, [2.0] * len(hybrid["each"])
    path.write_text(json.dumps(before), encoding="utf-8")
    code, result, _ = run(capsys, file, questions, "--against", str(path))
    assert code == 1 and result["regressed"], "a loss ends with 1"
    assert "There is no file" in run(capsys, file, questions, "--against", "nothing.json")[2]
    assert "is not what" in run(capsys, file, questions, "--against", questions)[2]
