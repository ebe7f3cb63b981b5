"""Copies of collections in Milvus: complete, gone on with after a kill, brought up to date, and copied back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import write
from milvus_servers import LiteServer, needs_lite, open_empty, shared_server

from localmcp.cli.program import execute
from localmcp.cli.session import Session
from localmcp.errors import ConfigurationError, InvalidInput, ModelMismatch, NotFound, Unavailable
from localmcp.index.collections import choose_collections
from localmcp.index.vector_queue import Lease, reembed
from localmcp.milvus.collection import Milvus, MilvusCollection
from localmcp.models import HashEmbedder
from localmcp.records import copies, remote_corpus
from localmcp.storage.database import fetch_all
from localmcp.tools import Scope
from localmcp.workspace import Workspace, open_workspace

pytestmark = needs_lite
ROOT = Path(__file__).parents[2]


@pytest.fixture
def milvus() -> Iterator[Milvus]:
    """The shared server, empty."""
    backend = open_empty(shared_server().uri)
    yield backend
    backend.close()


@pytest.fixture
def workspace(tmp_path: Path, milvus: Milvus) -> Iterator[Workspace]:
    """A file with three documents, and Milvus set."""
    docs = tmp_path / "docs"
    write(docs / "bees.md", "# Bees\n\nA hive has one queen.\n")
    write(docs / "roses.md", "# Roses\n\nPrune them in late winter.\n")
    write(docs / "soil.txt", "Clay holds water; sand lets it through.\n")
    with open_at(tmp_path / "a.localmcp", milvus.uri) as workspace:
        workspace.library.add_paths([docs], metadata={"topic": "garden"})
        yield workspace


def open_at(path: Path, address: str) -> Workspace:
    return open_workspace(path, model="hash", milvus_address=address)


def add_many(workspace: Workspace, count: int, collection: str = "many") -> None:
    for number in range(count):
        text = f"Text number {number} speaks of subject {number * 7 % 13}."
        workspace.library.add_text(text, title=f"Text {number}", collection=collection)


def live_chunks(workspace: Workspace, collection: str = "default") -> dict[int, str]:
    """Chunk id -> text of what a search may find."""
    sql = """
        select chunks.id, text from chunks join sources on sources.id = source_id
        join collections on collections.id = collection_id where trashed_at is null and collections.name = ?
    """
    with workspace.database.read() as connection:
        return dict(fetch_all(connection, sql, (collection,)))


def assert_same(workspace: Workspace, milvus: Milvus, collection: str = "default", name: str = "") -> None:
    """Milvus holds each chunk that the file finds, once, with its text and vector, and nothing else."""
    stored = milvus.open(name or collection)
    found = [row for batch in stored.rows() for row in batch]
    assert {row["id"]: row["text"] for row in found} == live_chunks(workspace, collection)
    assert len(found) == len({row["id"] for row in found}) == stored.count()
    with workspace.database.read() as connection:
        vectors = dict(fetch_all(connection, "select chunk_id, embedding from embeddings"))
    for row in found:
        assert np.allclose(row["vector"], np.frombuffer(vectors[row["id"]], dtype="<f4"), atol=1e-6)


# ---------------------------------------------------------------- push


def test_a_push_copies_everything_and_another_one_only_what_has_changed(
    workspace: Workspace, milvus: Milvus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    pushed = workspace.milvus_copies.push("default", progress=lambda done, total: seen.append((done, total)))
    chunks = live_chunks(workspace)
    assert pushed["vectors"] == pushed["sent"] == len(chunks) and seen[-1] == (len(chunks), len(chunks))
    assert_same(workspace, milvus)
    stored = milvus.open("default")
    assert (stored.model, stored.about["fingerprint"]) == ("hash", HashEmbedder().identity.fingerprint)
    [row] = stored.read([min(chunks)]).values()
    assert (row["metadata"]["topic"], row["language"]) == ("garden", "english") and row["path"].endswith(("md", "txt"))
    assert row["title"] in ("Bees", "Roses", "soil") and row["path"] == row["metadata"]["path"] and row["date"]
    assert workspace.milvus_copies.push("default")["sent"] == 0
    workspace.library.add_text("Wax is made by bees.", title="Wax")
    workspace.library.remove([str(tmp_path / "docs" / "bees.md")])
    assert workspace.milvus_copies.push("default")["sent"] == 2
    assert_same(workspace, milvus)
    monkeypatch.setattr(copies, "WORDS", b"other")
    assert workspace.milvus_copies.push("default")["sent"] == len(live_chunks(workspace))


def test_a_copy_that_somebody_damaged_is_put_right_by_the_next_push(workspace: Workspace, milvus: Milvus) -> None:
    workspace.milvus_copies.push("default")
    stored, ids = milvus.open("default"), sorted(live_chunks(workspace))
    [row] = stored.read(ids[:1]).values()
    row.pop("sparse", None)
    stored.delete(ids[1:2])
    stored.upsert([row | {"id": 999_999}])
    assert workspace.milvus_copies.push("default")["sent"] == 2 and not stored.read([999_999]), "one sent, one deleted"
    assert_same(workspace, milvus)
    row["origin"]["chunk"]["headings"] = [["Bees"], 1]
    stored.upsert([row])
    assert workspace.milvus_copies.pull("default", "back")["added"] == 3


def test_the_tools_push_and_pull_what_the_caller_may_see(workspace: Workspace) -> None:
    call = workspace.registry.call
    pushed = call("push_collection", {"collection": "default", "name": "garden"}).value
    assert (pushed["status"], pushed["result"]["name"]) == ("done", "garden")
    assert call("job_status", {"jobId": pushed["jobId"]}).value["result"] == pushed["result"]
    assert call("pull_collection", {"collection": "garden", "name": "again"}).value["result"]["added"] == 3
    add_many(workspace, 2, "secret")
    scope = Scope(caller="key", collections=frozenset({"default"}))
    for name in ("push_collection", "pull_collection"):
        with pytest.raises(NotFound):
            call(name, {"collection": "secret"}, scope)


def test_the_commands_push_and_pull(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    monkeypatch.setenv("MILVUS_ADDRESS", workspace.settings.milvus_address)
    file = str(workspace.database.path)
    assert execute(Session(), ["--db", file, "push", "default", "--as", "cli", "--json"]) == 0
    assert execute(Session(), ["--db", file, "pull", "cli", "--as", "back", "--json"]) == 0
    assert set(live_chunks(workspace, "back").values()) == set(live_chunks(workspace).values())


def test_a_server_killed_in_the_middle_of_a_push_costs_searches_a_sentence_and_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "BATCH", 10)
    server = LiteServer(tmp_path / "data")
    try:
        with open_at(tmp_path / "a.localmcp", server.uri) as workspace:

            def kill(done: int, _total: int) -> None:
                if done >= 20:
                    server.kill()

            def call(tool: str, **arguments: Any) -> Any:
                return workspace.registry.call(tool, arguments).value

            workspace.library.add_text("A hive has one queen.", title="Bees")
            workspace.milvus_copies.push("default", "team")
            workspace.mounts.mount(Path("milvus:team"))
            add_many(workspace, 50)
            assert "notices" not in call("search", query="queen of a hive")
            with pytest.raises(Unavailable, match="cannot be reached"):
                workspace.milvus_copies.push("many", progress=kill)
            answer = call("search", query="queen of a hive")
            assert answer["results"][0]["sourceTitle"] == "Bees"
            [notice] = answer["notices"]
            assert notice.startswith("team (mounted) was not searched: Milvus at") and "cannot be reached" in notice
            assert call("list_sources")["total"] == 51
            assert call("search", query="queen", collection="mount:team")["count"] == 0
            assert "cannot be reached" in workspace.mounts.described()[0]["problem"]
            server.start()
            monkeypatch.setattr("localmcp.milvus.mounted.REST_SECONDS", 0.0)
            assert "notices" not in call("search", query="queen of a hive")
            assert 0 < workspace.milvus_copies.push("many")["sent"] < 50
            assert workspace.milvus is not None
            assert_same(workspace, workspace.milvus, "many")
    finally:
        server.kill()


def test_what_cannot_be_pushed_is_told(workspace: Workspace, milvus: Milvus, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No collection 'nowhere'"):
        workspace.milvus_copies.push("nowhere")
    with workspace.database.write() as connection:
        connection.execute("insert into collections (name, created_at) values ('empty', '')")
    with pytest.raises(InvalidInput, match="no vectors yet"):
        workspace.milvus_copies.push("empty")
    workspace.milvus_copies.push("default")
    with open_at(tmp_path / "b.localmcp", milvus.uri) as other:
        other.library.add_text("Something.", title="T")
        with pytest.raises(InvalidInput, match="made by another localmcp file.*--as"):
            other.milvus_copies.push("default")
        assert other.milvus_copies.push("default", "default_of_b")["vectors"] == 1
        with pytest.raises(InvalidInput, match="cannot be a name in Milvus.*--as"):
            other.milvus_copies.push("default", "default of b")
    assert milvus.names() == ["default", "default_of_b"]
    with open_workspace(tmp_path / "c.localmcp", model="hash") as unset:
        unset.library.add_text("Something.", title="T")
        with pytest.raises(ConfigurationError, match="No Milvus is set.*milvus_address"):
            unset.milvus_copies.push("default")


def query(workspace: Workspace, sql: str) -> list[Any]:
    with workspace.database.read() as connection:
        return fetch_all(connection, sql)


def test_vectors_of_another_model_replace_the_copy(workspace: Workspace, milvus: Milvus) -> None:
    workspace.milvus_copies.push("default")
    with workspace.database.read() as connection:
        place = choose_collections(connection, ["default"])[0]
    reembed(workspace.database, place, HashEmbedder(128))
    workspace.milvus_copies.push("default")
    stored = milvus.open("default")
    assert stored.about["identity"]["dimension"] == 128 and stored.count() == len(live_chunks(workspace))


# ---------------------------------------------------------------- a corpus that is nowhere else


def test_files_are_added_to_milvus_alone_and_a_second_run_stores_only_what_changed(
    milvus: Milvus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"MODEL": "hash", "DB": str(tmp_path / "mine.localmcp")}.items():
        monkeypatch.setenv(f"LOCALMCP_{name}", value)
    monkeypatch.setenv("MILVUS_ADDRESS", milvus.uri)
    monkeypatch.setattr(remote_corpus, "HELD", 3)
    monkeypatch.setattr(remote_corpus, "BATCH", 5)
    docs = tmp_path / "docs"
    for number in range(12):
        write(docs / f"{number}.md", f"# Field {number}\n\nIn field {number} grows crop {number * 7 % 13}.\n")

    def add(*options: str, code: int = 0) -> dict[str, Any]:
        assert execute(Session(), ["add", "--to", "milvus://corpus", str(docs), "--json", *options]) == code
        captured = capsys.readouterr()
        return json.loads(captured.out or captured.err)

    assert execute(Session(), ["add", "--to", "milvus://../a", str(docs)]) == 2
    assert "cannot be a name in Milvus" in capsys.readouterr().err and not list(tmp_path.rglob("a-*"))

    def texts() -> dict[str, str]:
        return {row["path"]: row["text"] for batch in milvus.open("corpus").rows() for row in batch}

    # It is stopped in the middle, and again between storing and forgetting: the same command goes on.
    upsert, calls = MilvusCollection.upsert, list[int]()

    def fail(collection: MilvusCollection, rows: Sequence[Any]) -> None:
        calls.append(len(rows))
        upsert(collection, rows)
        if len(calls) == 2:
            raise Unavailable("away")

    monkeypatch.setattr(MilvusCollection, "upsert", fail)
    assert add(code=3)["error"]["message"] == "away"
    assert 0 < len(texts()) < 12
    added = add()
    assert (added["vectors"], len(texts())) == (12, 12) and calls[0] < 12
    again = add()
    assert (again["sent"], again["unchanged"]) == (0, 12)
    with open_workspace(added["ledger"], model="hash") as ledger, ledger.database.write() as connection:
        Lease("milvus").take(connection)
    assert "Another process adds to 'corpus'" in add(code=3)["error"]["message"]
    with open_workspace(added["ledger"], model="hash") as ledger, ledger.database.write() as connection:
        connection.execute("delete from leases")
    with open_workspace(added["ledger"], model="hash") as ledger:
        assert query(ledger, "select (select count(*) from chunks) + (select count(*) from vectors)") == [(0,)]
        assert len(query(ledger, "select path from ledger where status = 'indexed'")) == 12
    write(docs / "3.md", "# Field 3\n\nLies fallow.\n\n## Why\n\nIt was wet.\n")
    write(docs / "4.md", "")
    (docs / "5.md").unlink()
    changed = add()
    assert (changed["updated"], changed["missing"]) == (2, 1)
    assert "fallow" in texts()[str(docs / "3.md")] and {*texts()} == {str(docs / f"{n}.md") for n in range(12)} - {
        str(docs / "4.md"), str(docs / "5.md")
    }  # fmt: skip
    for number in range(6, 12):
        (docs / f"{number}.md").unlink()
    assert f"--db {added['ledger']} refresh --yes" in add(code=1)["error"]["hint"]
    assert execute(Session(), ["--db", added["ledger"], "refresh", "--yes", "--json"]) == 0
    capsys.readouterr()
    assert add()["vectors"] == len(texts()) == 4
    # It is searched as any collection there is.
    with open_at(tmp_path / "mine.localmcp", milvus.uri) as workspace:
        workspace.mounts.mount(Path("milvus:corpus"))
        hits = workspace.registry.call("search", {"query": "which field lies fallow"}).value["results"]
        assert hits[0]["sourceTitle"] == "Field 3"
    # What is added to the ledger while passages are sent is sent the next time.

    def add_beside(collection: MilvusCollection, rows: Sequence[Any]) -> None:
        upsert(collection, rows)
        with open_workspace(added["ledger"], model="hash") as ledger:
            ledger.library.add_text("It rained all day.", "Rain", collection="corpus")

    write(docs / "3.md", "# Field 3\n\nLies fallow again.\n")
    with monkeypatch.context() as patched:
        patched.setattr(MilvusCollection, "upsert", add_beside)
        assert add()["sent"] == 1
    assert (add()["sent"], add()["vectors"]) == (1, 5)
    milvus.drop("corpus")
    assert "no longer has the collection" in add(code=1)["error"]["message"]


# ---------------------------------------------------------------- pull


def test_a_pulled_collection_is_the_documents_it_was_made_of(
    workspace: Workspace, milvus: Milvus, tmp_path: Path
) -> None:
    workspace.library.add_text("# Wax\n\nMade by bees.", title="Wax", partition="2024-01", metadata={"year": 2024})
    workspace.milvus_copies.push("default")
    before = sorted(query(workspace, WHOLE))
    with open_at(tmp_path / "b.localmcp", milvus.uri) as other:
        pulled = other.milvus_copies.pull("default")
        assert (pulled["added"], pulled["unchanged"], pulled["read"]) == (4, 0, len(live_chunks(workspace)))
        assert sorted(query(other, WHOLE)) == before
        assert other.registry.call("search", {"query": "queen of a hive"}).value["results"][0]["sourceTitle"] == "Bees"
        again = other.milvus_copies.pull("default")
        assert (again["added"], again["updated"], again["unchanged"]) == (0, 0, 4)
        other.library.add_text("# Wax\n\nChanged here.", title="Wax", replace=True)
        assert other.milvus_copies.pull("default")["updated"] == 1
        assert len([row for row, _ in other.library.trashed() if row.uuid.startswith("trash:")]) == 2
        assert sorted(row[:2] for row in query(other, WHOLE)) == sorted(row[:2] for row in before)
        other.library.remove(["Wax"])
        assert other.milvus_copies.pull("default")["skipped"] == 1


WHOLE = """
    select sources.uuid, chunks.text, chunks.uuid, title, source_type, format, uri, sha256, metadata, position, start,
        stop, headings, digest, embedding, (select name from partitions where id = partition_id)
    from chunks join sources on sources.id = source_id join embeddings on chunk_id = chunks.id
    where trashed_at is null
"""


def test_vectors_of_two_models_are_not_mixed_by_a_pull(workspace: Workspace, milvus: Milvus, tmp_path: Path) -> None:
    workspace.milvus_copies.push("default")
    with open_at(tmp_path / "b.localmcp", milvus.uri) as other:
        other.library.add_text("Something.", title="T")
        with other.database.write() as connection:
            connection.execute("update models set fingerprint = 'other', name = 'other'")
        with pytest.raises(ModelMismatch, match="cannot be mixed"):
            other.milvus_copies.pull("default")
        with pytest.raises(NotFound, match="collection not found"):
            other.milvus_copies.pull("nowhere")
