"""Another model: new vectors beside the old ones, the switch, the way back, and what a failure leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from consistency import disagreements
from folders import CountingEmbedder, column, many_sections, write

from localmcp.errors import ModelUnavailable
from localmcp.index import vector_queue
from localmcp.index.collections import Collection, choose_collections
from localmcp.index.search import SearchRequest
from localmcp.index.vector_queue import clean, reembed
from localmcp.models import HashEmbedder
from localmcp.storage.database import Database, fetch_one
from localmcp.workspace import Workspace, open_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """Three documents with hash:64 vectors; afterwards everything in the file must agree."""
    write(tmp_path / "docs" / "bees.md", "# Bees\n\nA hive has one queen.\n")
    write(tmp_path / "docs" / "many.md", many_sections(30))
    write(tmp_path / "docs" / "soil.txt", "Clay holds water; sand lets it through.\n")
    with open_workspace(tmp_path / "library.localmcp", model="hash:64") as workspace:
        workspace.library.add_paths([tmp_path / "docs"])
        yield workspace
        assert disagreements(workspace.database) == []


def default_collection(database: Database) -> Collection:
    with database.read() as connection:
        return choose_collections(connection, ["default"])[0]


def model_of(database: Database) -> int:
    """The dimension of the model whose vectors answer."""
    with database.read() as connection:
        sql = "select dimension from models join collections on model_id = models.id where collections.name = 'default'"
        return fetch_one(connection, sql)


def hits(path: Path, model: str, query: str) -> list[str]:
    with open_workspace(path, model=model) as workspace:
        found = workspace.index.search(SearchRequest(query, mode="semantic"))
    return [each.passage.title for each in found.hits]


def test_the_new_vectors_answer_after_a_reembed_as_if_the_file_had_been_made_with_them(
    workspace: Workspace, tmp_path: Path
) -> None:
    done = reembed(workspace.database, default_collection(workspace.database), HashEmbedder(128))
    assert (done.switched, done.embedded) == (True, len(chunks(workspace.database)))
    with open_workspace(tmp_path / "other.localmcp", model="hash:128") as other:
        other.library.add_paths([tmp_path / "docs"])
        assert vectors(other.database, 128) == vectors(workspace.database, 128)
    assert disagreements(workspace.database) == []
    assert hits(workspace.database.path, "hash:128", "queen of the hive")[0] == "Bees"


def chunks(database: Database) -> list[str]:
    return column(database, "select text from chunks order by id")


def vectors(database: Database, dimension: int) -> list[Any]:
    sql = """
        select embedding from embeddings join chunks on chunks.id = chunk_id join sources on sources.id = source_id
        where length(embedding) = {} order by uri, position
    """
    return column(database, sql.format(4 * dimension))


def test_the_old_vectors_answer_until_all_new_ones_are_there(workspace: Workspace) -> None:
    database, seen = workspace.database, list[tuple[int, int]]()

    class Watched(HashEmbedder):
        def embed_passages(self, texts: Any) -> Any:
            seen.append((model_of(database), len(hits(database.path, "hash:64", "queen"))))
            return super().embed_passages(texts)

    reembed(database, default_collection(database), Watched(128))
    assert seen and all(dimension == 64 and found for dimension, found in seen)
    assert model_of(database) == 128


def test_passages_that_come_during_the_run_are_caught_up_with(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The addition waits for this run, which does not go on meanwhile.
    monkeypatch.setattr(vector_queue.Lease.__init__, "__defaults__", (vector_queue.LEASE, 0.5))

    class Slow(HashEmbedder):
        added = False

        def embed_passages(self, texts: Any) -> Any:
            if not self.added:
                self.added = True
                workspace.library.add_text("A lantern by the river.", "Lantern")
            return super().embed_passages(texts)

    done = reembed(workspace.database, default_collection(workspace.database), Slow(128))
    assert done.switched
    assert len(vectors(workspace.database, 128)) == len(chunks(workspace.database))


def test_the_way_back_is_the_same_and_finds_its_vectors_until_they_are_cleaned_away(workspace: Workspace) -> None:
    database, back = workspace.database, CountingEmbedder(64)
    before = vectors(database, 64)
    reembed(database, default_collection(database), HashEmbedder(128))
    done = reembed(database, default_collection(database), back)
    assert (model_of(database), done.switched, back.embedded, vectors(database, 64)) == (64, True, [], before)
    assert hits(database.path, "hash:64", "queen of the hive")[0] == "Bees"
    assert clean(database, default_collection(database)) == len(before)
    assert vectors(database, 128) == []
    assert column(database, "select dimension from models") == [64]


def test_a_document_that_is_removed_and_restored_across_the_switch_keeps_its_place(workspace: Workspace) -> None:
    database = workspace.database
    [uuid] = column(database, "select uuid from sources where title = 'Bees'")
    workspace.library.remove([uuid])
    reembed(database, default_collection(database), HashEmbedder(128))
    with open_workspace(database.path, model="hash:128") as later:
        later.library.restore(uuid)
        assert later.library.refresh().vectors_added == 1
    assert hits(database.path, "hash:128", "queen of the hive")[0] == "Bees"


def test_a_model_that_fails_leaves_the_old_vectors_answering_and_the_next_run_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_BATCH", "LEAST_BATCH", "MOST_BATCH"):
        monkeypatch.setattr(vector_queue, name, 10)

    class Failing(HashEmbedder):
        def embed_passages(self, texts: Any) -> Any:
            if len(vectors(workspace.database, 128)) >= 20:
                raise ModelUnavailable("The endpoint is gone.")
            return super().embed_passages(texts)

    with pytest.raises(ModelUnavailable):
        reembed(workspace.database, default_collection(workspace.database), Failing(128))
    assert model_of(workspace.database) == 64 and disagreements(workspace.database) == []
    embedder = CountingEmbedder(128)
    done = reembed(workspace.database, default_collection(workspace.database), embedder)
    assert done.switched and len(embedder.embedded) == len(chunks(workspace.database)) - 20


def test_a_collection_without_vectors_is_bound_and_found_as_it_goes(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "plain.localmcp", model=f"folder:{tmp_path}/none") as workspace:
        workspace.library.add_text("A hive has one queen.", "Bees")
        done = reembed(workspace.database, default_collection(workspace.database), HashEmbedder(64))
        assert (done.before, done.embedded, done.switched) == (None, 1, False)
        assert model_of(workspace.database) == 64
        assert disagreements(workspace.database) == []


# ---------------------------------------------------------------- the command


def test_the_command_tells_which_setting_counts_more_and_the_way_back_and_rules_are_read_too(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash:64")
    workspace.registry.call("addRule", {"rule_text": "Write tests first.", "category": "testing"})
    path = str(workspace.database.path)
    code, _, said = run(capsys, "--db", path, "models", "use", "hash:128")
    assert code == 0
    assert "The model in use is hash:128" in said and "LOCALMCP_MODEL is set" in said and "1 rule read" in said
    assert run(capsys, "--db", path, "models", "use", "hash:64")[0] == 0
    assert model_of(workspace.database) == 64
    code, out, _ = run(capsys, "--db", path, "--json", "reembed", "--clean")
    assert code == 0 and '"removed"' in out
