"""Copies of collections in Milvus: complete, resumed after any kill, followed by every change, and copied back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import write
from milvus_program import connect_program
from milvus_servers import LiteServer, needs_lite, open_backend, shared_server

from localmcp.cli.program import execute
from localmcp.cli.session import Session
from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError, ModelMismatch, NotFound, Unavailable
from localmcp.index.replicas import Replica, replica_of
from localmcp.index.vector_queue import FRONT, Lease
from localmcp.milvus.backend import MilvusBackend
from localmcp.models import HashEmbedder
from localmcp.records import outgoing, replication_tools
from localmcp.storage.database import fetch_all, fetch_one
from localmcp.tools import Scope, use_progress
from localmcp.workspace import Workspace, open_workspace

pytestmark = needs_lite
ROOT = Path(__file__).parents[2]


@pytest.fixture
def milvus() -> Iterator[MilvusBackend]:
    """The shared server, empty."""
    backend = open_backend(shared_server().uri)
    yield backend
    backend.close()


@pytest.fixture
def workspace(tmp_path: Path, milvus: MilvusBackend) -> Iterator[Workspace]:
    """A file with three documents, and Milvus set."""
    docs = tmp_path / "docs"
    write(docs / "bees.md", "# Bees\n\nA hive has one queen.\n")
    write(docs / "roses.md", "# Roses\n\nPrune them in late winter.\n")
    write(docs / "soil.txt", "Clay holds water; sand lets it through.\n")
    with open_at(tmp_path / "a.localmcp", milvus.server.uri) as workspace:
        workspace.library.add_paths([docs], metadata={"topic": "garden"})
        yield workspace


def open_at(path: Path, address: str, timeout: float = 30) -> Workspace:
    return open_workspace(path, model="hash", milvus_address=address, milvus_timeout=timeout)


def add_many(workspace: Workspace, count: int, collection: str = "many") -> None:
    for number in range(count):
        text = f"Text number {number} speaks of subject {number * 7 % 13}."
        workspace.library.add_text(text, title=f"Text {number}", collection=collection)


def copy_of(workspace: Workspace, name: str = "default") -> Replica:
    with workspace.database.read() as connection:
        found = replica_of(connection, fetch_one(connection, "select id from collections where name = ?", (name,)))
    assert found is not None
    return found


def live_chunks(workspace: Workspace, collection: str = "default") -> dict[int, str]:
    """Chunk id -> text of what a search may find."""
    sql = """
        select chunks.id, text from chunks join sources on sources.id = source_id
        join collections on collections.id = collection_id where trashed_at is null and collections.name = ?
    """
    with workspace.database.read() as connection:
        return dict(fetch_all(connection, sql, (collection,)))


def assert_same(workspace: Workspace, milvus: MilvusBackend, collection: str = "default", name: str = "") -> None:
    """Milvus holds each chunk that the file finds, once, with its text and vector, and nothing else."""
    found = [record for batch in milvus.records(name or collection) for record in batch]
    assert {each.id: each.text for each in found} == live_chunks(workspace, collection)
    assert len(found) == len({each.id for each in found}) == milvus.count(name or collection)
    with workspace.database.read() as connection:
        vectors = dict(fetch_all(connection, "select chunk_id, embedding from embeddings"))
    for record in found:
        assert np.allclose(record.vector, np.frombuffer(vectors[record.id], dtype="<f4"), atol=1e-6)


# ---------------------------------------------------------------- push


def test_a_push_copies_everything_and_searches_use_it(workspace: Workspace, milvus: MilvusBackend) -> None:
    seen: list[tuple[int, int]] = []
    copied = workspace.replication.push("default", progress=lambda done, total: seen.append((done, total)))
    chunks = live_chunks(workspace)
    assert (copied.total, copied.sent, copied.resumed) == (len(chunks), len(chunks), False)
    assert seen[-1] == (len(chunks), len(chunks))
    assert copy_of(workspace).ready
    assert_same(workspace, milvus)
    assert milvus.describe("default").model.endswith(HashEmbedder().identity.fingerprint)
    [record] = milvus.fetch("default", [min(chunks)]).values()
    assert record.metadata["topic"] == "garden" and record.metadata["path"].endswith((".md", ".txt"))


def test_pushing_again_checks_the_copy_and_sends_nothing(workspace: Workspace, milvus: MilvusBackend) -> None:
    workspace.replication.push("default")
    again = workspace.replication.push("default")
    assert (again.sent, again.resumed) == (0, True)
    assert_same(workspace, milvus)


def test_a_copy_that_somebody_damaged_is_put_right_by_the_next_push(
    workspace: Workspace, milvus: MilvusBackend
) -> None:
    workspace.replication.push("default")
    ids = sorted(live_chunks(workspace))
    [record] = milvus.fetch("default", ids[:1]).values()
    milvus.delete("default", ids[1:2])
    milvus.upsert("default", [type(record)(999_999, record.vector, "not ours")])
    again = workspace.replication.push("default")
    assert again.sent == 2, "one was sent, one deleted"
    assert milvus.fetch("default", [999_999]) == {}
    assert_same(workspace, milvus)


def test_other_vectors_under_the_same_ids_are_noticed(workspace: Workspace, milvus: MilvusBackend) -> None:
    workspace.replication.push("default")
    records = list(milvus.fetch("default", sorted(live_chunks(workspace))).values())
    milvus.upsert("default", [type(record)(record.id, -record.vector, record.text) for record in records])
    workspace.replication.push("default")
    pushed_again = milvus.fetch("default", [record.id for record in records])
    assert all(np.allclose(pushed_again[record.id].vector, record.vector, atol=1e-6) for record in records)
    assert_same(workspace, milvus)


def test_a_push_that_stops_anywhere_is_completed_by_the_next(
    workspace: Workspace, milvus: MilvusBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "BATCH", 10)
    add_many(workspace, 60)

    def stop(done: int, _total: int) -> None:
        if done >= 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workspace.replication.push("many", progress=stop)
    assert not copy_of(workspace, "many").ready
    # Changes to what was copied already, and to what was not.
    texts = {row["title"]: row["id"] for row in sources(workspace, "many")}
    workspace.library.remove([texts["Text 3"], texts["Text 55"]], collection="many")
    workspace.library.add_text("Something else.", title="Text 5", collection="many", replace=True)
    copied = workspace.replication.push("many")
    assert copied.resumed and copied.sent < 60
    assert_same(workspace, milvus, "many")


def sources(workspace: Workspace, collection: str) -> list[dict[str, Any]]:
    sql = """
        select uuid, title from sources join collections on collections.id = collection_id
        where collections.name = ? and trashed_at is null
    """
    with workspace.database.read() as connection:
        return [{"id": row[0], "title": row[1]} for row in fetch_all(connection, sql, (collection,))]


def test_a_server_killed_in_the_middle_of_a_push_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "BATCH", 10)
    server = LiteServer(tmp_path / "data")
    try:
        with open_at(tmp_path / "a.localmcp", server.uri) as workspace:
            add_many(workspace, 50)

            def kill(done: int, _total: int) -> None:
                if done >= 20:
                    server.kill()

            with pytest.raises(Unavailable, match="cannot be reached"):
                workspace.replication.push("many", progress=kill)
            server.start()
            copied = workspace.replication.push("many")
            assert copied.resumed
            backend = MilvusBackend(workspace.milvus.server) if workspace.milvus else None
            assert backend is not None
            assert_same(workspace, backend, "many")
            backend.close()
    finally:
        server.kill()


def test_a_program_killed_in_the_middle_of_a_push_is_taken_over_from(
    workspace: Workspace, milvus: MilvusBackend
) -> None:
    if os.name == "nt":
        pytest.skip("a killed sender is waited for on Windows")
    add_many(workspace, 60)
    code = f"""
import os, signal
from localmcp.records import outgoing
from localmcp.workspace import open_workspace

def kill(done, total):
    if done >= 30:
        os.kill(os.getpid(), signal.SIGKILL)

outgoing.BATCH = 10
workspace = open_workspace({str(workspace.database.path)!r}, model="hash", milvus_address={milvus.server.uri!r})
workspace.replication.push("many", progress=kill)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == -signal.SIGKILL
    assert copy_of(workspace, "many").copied > 0
    copied = workspace.replication.push("many")
    assert copied.resumed and copied.sent < 60
    assert_same(workspace, milvus, "many")


def test_while_another_process_sends_nobody_else_does(workspace: Workspace) -> None:
    workspace.replication.push("default")
    lease = Lease(FRONT, f"replica {copy_of(workspace).collection_id}")
    with workspace.database.write() as connection:
        assert lease.take(connection)
    workspace.library.add_text("A new one.", title="New")
    assert workspace.replication.follow() == 0
    assert copy_of(workspace).pending == 1
    with pytest.raises(Unavailable, match="Another process"):
        workspace.replication.push("default")
    with workspace.database.write() as connection:
        connection.execute("update leases set beat_at = '2000-01-01T00:00:00.000Z'")
    assert workspace.replication.follow() == 1


def test_what_cannot_be_pushed_is_told(workspace: Workspace, milvus: MilvusBackend, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No collection 'nowhere'"):
        workspace.replication.push("nowhere")
    with workspace.database.write() as connection:
        connection.execute("insert into collections (name, created_at) values ('empty', '')")
    with pytest.raises(InvalidInput, match="no vectors yet"):
        workspace.replication.push("empty")
    workspace.replication.push("default")
    with pytest.raises(InvalidInput, match="copied to Milvus as 'default'"):
        workspace.replication.push("default", "another")
    with open_at(tmp_path / "b.localmcp", milvus.server.uri) as other:
        other.library.add_text("Something.", title="T")
        with pytest.raises(InvalidInput, match="made by another localmcp file.*--as"):
            other.replication.push("default")
        assert other.replication.push("default", "default of b").total == 1
    assert milvus.collections() == ["default", "default of b"]
    with open_workspace(tmp_path / "c.localmcp", model="hash") as unset:
        unset.library.add_text("Something.", title="T")
        with pytest.raises(ConfigurationError, match="No Milvus is set.*milvus_address"):
            unset.replication.push("default")


# ---------------------------------------------------------------- following


def test_every_kind_of_change_follows(workspace: Workspace, milvus: MilvusBackend, tmp_path: Path) -> None:
    workspace.replication.push("default")
    docs = tmp_path / "docs"

    def follow() -> None:
        assert copy_of(workspace).pending > 0
        workspace.replication.follow()
        assert copy_of(workspace).pending == 0
        assert_same(workspace, milvus)

    workspace.library.add_text("Wax is made by bees.", title="Wax")
    follow()
    write(docs / "roses.md", "# Roses\n\nPrune them in early spring.\n\nWater them.\n")
    (docs / "soil.txt").unlink()
    workspace.library.refresh()
    follow()
    workspace.library.remove([str(docs / "bees.md")])
    follow()
    [(row, _)] = [each for each in workspace.library.trashed() if each[0].title == "Bees"]
    workspace.library.restore(row.uuid)
    follow()
    workspace.library.remove([str(docs / "bees.md")])
    workspace.library.empty_trash()
    follow()


def test_new_metadata_and_partitions_follow_although_the_text_stays(
    workspace: Workspace, milvus: MilvusBackend
) -> None:
    workspace.library.add_text("Wax is made by bees.", title="Wax", uri="wax:1", metadata={"year": 1})
    workspace.replication.push("default")
    [(source_id,)] = query(workspace, "select id from sources where title = 'Wax'")
    with workspace.database.write() as connection:
        from localmcp.index.replicas import note_source

        connection.execute("update sources set metadata = ? where id = ?", (json.dumps({"year": 2}), source_id))
        note_source(connection, source_id)
    workspace.replication.follow()
    [record] = [each for batch in milvus.records("default") for each in batch if "Wax" in each.text]
    assert record.metadata["year"] == 2


def query(workspace: Workspace, sql: str) -> list[Any]:
    with workspace.database.read() as connection:
        return fetch_all(connection, sql)


def test_a_search_right_after_a_change_finds_it(workspace: Workspace) -> None:
    workspace.replication.push("default")
    workspace.registry.call("add_document", {"text": "Marzipan is made of almonds.", "title": "Sweets"})
    answer = workspace.registry.call("retriever", {"collection_name": "default", "texts": ["marzipan almonds"]})
    assert "Marzipan" in answer.value["data"]["results"][0]["text"]
    assert copy_of(workspace).pending == 0


def test_changes_wait_while_the_server_is_away_and_status_says_so(tmp_path: Path) -> None:
    server = LiteServer(tmp_path / "data")
    try:
        workspace = open_at(tmp_path / "a.localmcp", server.uri, timeout=60)
        add_many(workspace, 3, "default")
        workspace.replication.push("default")
        server.kill()
        workspace.library.add_text("Marzipan is made of almonds.", title="Sweets")
        assert workspace.replication.follow() == 0
        [state] = workspace.registry.call("replication_status").value["copies"]
        assert state["pendingChanges"] == 1
        assert "cannot be reached" in state["problem"]
        # `search` answers from the file, and says so.
        found = workspace.registry.call("search", {"query": "marzipan almonds"}).value
        assert found["results"][0]["sourceTitle"] == "Sweets"
        assert any("Milvus" in notice for notice in found["notices"])
        workspace.close()
        server.start()
        with open_at(tmp_path / "a.localmcp", server.uri) as workspace:
            copied = workspace.replication.push("default")
            assert (copied.total, copied.replica.pending, copied.replica.problem) == (4, 0, None)
    finally:
        server.kill()


def test_what_a_command_changed_is_sent_before_it_ends(workspace: Workspace, milvus: MilvusBackend) -> None:
    workspace.replication.push("default")
    environment = {**os.environ, "LOCALMCP_MODEL": "hash", "MILVUS_ADDRESS": milvus.server.uri}
    command = [sys.executable, "-m", "localmcp", "--db", str(workspace.database.path), "add", "-", "--title", "Sweets"]
    subprocess.run(command, input=b"Marzipan is made of almonds.", cwd=ROOT, env=environment, check=True)
    assert_same(workspace, milvus)
    assert any("Marzipan" in text for text in live_chunks(workspace).values())


def test_vectors_of_another_model_replace_the_copy(workspace: Workspace, milvus: MilvusBackend) -> None:
    workspace.replication.push("default")
    embed_anew(workspace)
    assert not copy_of(workspace).ready
    workspace.replication.follow()
    replica = copy_of(workspace)
    assert replica.ready and replica.model.startswith("another#")
    assert milvus.describe("default").model == replica.model
    assert milvus.count("default") == len(live_chunks(workspace))


def embed_anew(workspace: Workspace) -> None:
    """The vectors of another model beside the old ones, and the switch."""
    with workspace.database.write() as connection:
        connection.execute("""
            insert into models (name, fingerprint, sha256, pooling, query_prefix, passage_prefix, dimension, max_tokens,
                created_at) select 'another', 'another', 'x', pooling, '', '', dimension, max_tokens, '' from models
        """)
        model_id = connection.last_insert_rowid()
        connection.execute(
            "insert into vectors select ? << 40 | chunk_id, embedding from embeddings where model_id = 1", (model_id,)
        )
        connection.execute("update collections set model_id = ? where name = 'default'", (model_id,))


# ---------------------------------------------------------------- stopping


def test_a_stopped_copy_stays_or_goes_and_the_file_answers_alone(workspace: Workspace, milvus: MilvusBackend) -> None:
    workspace.replication.push("default")
    workspace.replication.stop("default")
    assert workspace.replication.copies() == []
    assert milvus.collections() == ["default"]
    workspace.library.add_text("A new one.", title="New")
    assert query(workspace, "select count(*) from replica_changes") == [(0,)]
    assert workspace.replication.push("default").total == len(live_chunks(workspace))
    workspace.replication.stop("default", drop=True)
    assert milvus.collections() == []
    with pytest.raises(NotFound, match="no copy"):
        workspace.replication.stop("default")


def test_a_collection_of_others_under_the_same_name_is_not_dropped(workspace: Workspace, milvus: MilvusBackend) -> None:
    workspace.replication.push("default")
    milvus.drop("default")
    milvus.create("default", 8, "theirs#1")
    workspace.replication.stop("default", drop=True)
    assert milvus.collections() == ["default"]


# ---------------------------------------------------------------- pull


def test_a_pulled_collection_is_the_documents_it_was_made_of(
    workspace: Workspace, milvus: MilvusBackend, tmp_path: Path
) -> None:
    workspace.library.add_text("# Wax\n\nMade by bees.", title="Wax", partition="2024-01", metadata={"year": 2024})
    workspace.replication.push("default")
    before = sorted(query(workspace, WHOLE))
    with open_at(tmp_path / "b.localmcp", milvus.server.uri) as other:
        pulled = other.replication.pull("default")
        assert (pulled.added, pulled.unchanged, pulled.read) == (4, 0, len(live_chunks(workspace)))
        assert sorted(query(other, WHOLE)) == before
        assert other.registry.call("search", {"query": "queen of a hive"}).value["results"][0]["sourceTitle"] == "Bees"
        again = other.replication.pull("default")
        assert (again.added, again.updated, again.unchanged) == (0, 0, 4)
        other.library.add_text("# Wax\n\nChanged here.", title="Wax", replace=True)
        assert other.replication.pull("default").updated == 1
        assert sorted(row[:2] for row in query(other, WHOLE)) == sorted(row[:2] for row in before)
        other.library.remove(["Wax"])
        assert other.replication.pull("default").trashed == 1


WHOLE = """
    select sources.uuid, chunks.text, chunks.uuid, title, source_type, format, uri, sha256, metadata, position, start,
        stop, headings, digest, embedding, (select name from partitions where id = partition_id)
    from chunks join sources on sources.id = source_id join embeddings on chunk_id = chunks.id
    where trashed_at is null
"""


def test_a_collection_of_another_program_becomes_short_documents(milvus: MilvusBackend, tmp_path: Path) -> None:
    embedder = HashEmbedder()
    texts = ["Bees make honey.", "Roses need water.", ""]
    vectors = embedder.embed_passages([*texts[:2], "nothing"])
    client = connect_program(milvus.server.uri)
    client.create_collection("theirs", dimension=vectors.shape[1])
    rows = [{"id": i, "vector": (3 * vectors[i]).tolist(), "content": texts[i], "lang": "en"} for i in range(3)]
    client.upsert("theirs", rows)
    client.close()
    with open_at(tmp_path / "a.localmcp", milvus.server.uri) as workspace:
        with pytest.raises(ModelMismatch, match="does not say which model.*--assume-model"):
            workspace.replication.pull("theirs")
        pulled = workspace.replication.pull("theirs", "here", assume_model=True)
        assert (pulled.added, pulled.empty) == (2, 1)
        [hit] = workspace.registry.call("search", {"query": "honey bees", "collection": "here", "limit": 1}).value[
            "results"
        ]
        assert (hit["content"], hit["metadata"]["lang"]) == ("Bees make honey.", "en")
        assert workspace.replication.pull("theirs", "here", assume_model=True).unchanged == 2


def test_vectors_of_two_models_are_not_mixed_by_a_pull(
    workspace: Workspace, milvus: MilvusBackend, tmp_path: Path
) -> None:
    workspace.replication.push("default")
    with open_at(tmp_path / "b.localmcp", milvus.server.uri) as other:
        other.library.add_text("Something.", title="T")
        with other.database.write() as connection:
            connection.execute("update models set fingerprint = 'other', name = 'other'")
        with pytest.raises(ModelMismatch, match="cannot be mixed"):
            other.replication.pull("default")
        with pytest.raises(NotFound, match="collection not found"):
            other.replication.pull("nowhere")


# ---------------------------------------------------------------- tools and commands


def test_the_tools_do_what_the_commands_do(workspace: Workspace) -> None:
    call = workspace.registry.call
    pushed = call("push_collection", {"collection": "default", "name": "garden"}).value
    assert pushed["status"] == "done" and pushed["name"] == "garden"
    [state] = call("replication_status").value["copies"]
    assert (state["state"], state["searchesUseIt"], state["pendingChanges"]) == ("following", True, 0)
    assert call("pull_collection", {"collection": "garden", "name": "again"}).value["added"] == 3
    stopped = call("stop_replication", {"collection": "default", "drop": True}).value
    assert stopped == {"collection": "default", "name": "garden", "dropped": True}
    assert not workspace.registry.get("push_collection").mark.visible


def test_a_caller_pushes_and_pulls_only_what_it_may_see(workspace: Workspace) -> None:
    add_many(workspace, 2, "secret")
    workspace.replication.push("secret")
    scope = Scope(caller="key", collections=frozenset({"default"}))
    for name, arguments in {
        "push_collection": {"collection": "secret"},
        "pull_collection": {"collection": "secret", "name": "default"},
        "stop_replication": {"collection": "secret"},
    }.items():
        with pytest.raises(NotFound):
            workspace.registry.call(name, arguments, scope)
    assert workspace.registry.call("replication_status", {}, scope).value["copies"] == []


def test_a_caller_does_not_learn_of_a_copy_under_way_that_it_may_not_see(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication_tools, "WAIT_SECONDS", 0.1)
    add_many(workspace, 2, "secret")
    release = threading.Event()
    with use_progress(lambda *_: release.wait(30) and None):
        assert workspace.registry.call("push_collection", {"collection": "secret"}).value["status"] == "running"
    try:
        monkeypatch.setattr(replication_tools, "WAIT_SECONDS", 10)
        with pytest.raises(NotFound):
            scope = Scope(caller="key", collections=frozenset({"default"}))
            workspace.registry.call("push_collection", {"collection": "secret"}, scope)
    finally:
        release.set()


def test_the_commands_push_stop_and_pull(
    workspace: Workspace, milvus: MilvusBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    monkeypatch.setenv("MILVUS_ADDRESS", milvus.server.uri)

    def ran(*arguments: str, fails: bool = False) -> Any:
        session = Session()
        code = execute(session, ["--db", str(workspace.database.path), "--json", *arguments])
        session.close()
        printed = capsys.readouterr()
        assert (code != 0) == fails, printed.err
        return json.loads(printed.err if fails else printed.out)

    pushed = ran("push", "default", "--to", "milvus", "--as", "garden")
    assert (pushed["vectors"], pushed["name"]) == (len(live_chunks(workspace)), "garden")
    [copy] = ran("status")["copies"]
    assert (copy["name"], copy["searchesUseIt"]) == ("garden", True)
    assert ran("pull", "garden", "--as", "again")["added"] == 3
    failed = ran("push", "default", "--stop", "--drop", fails=True)
    assert failed["error"]["code"] == "needs_confirmation"
    assert ran("push", "default", "--stop", "--drop", "--yes")["dropped"] is True
    assert milvus.collections() == []


def test_a_read_only_file_of_an_older_version_has_no_copies(tmp_path: Path) -> None:
    import apsw

    connection = apsw.Connection(str(tmp_path / "old"))
    connection.execute("create table collections (id integer)")
    assert replica_of(connection, 1) is None
    connection.close()


def test_a_failing_server_is_left_alone_for_a_while_by_what_nobody_waits_for(tmp_path: Path) -> None:
    server = LiteServer(tmp_path / "data")
    try:
        with open_at(tmp_path / "a.localmcp", server.uri, timeout=60) as workspace:
            add_many(workspace, 2, "default")
            workspace.replication.push("default")
            server.kill()
            workspace.library.add_text("A new one.", title="New")
            workspace.replication.follow()
            tried = copy_of(workspace).tried_at
            workspace.replication.follow()
            assert copy_of(workspace).tried_at == tried
            with pytest.raises(LocalMCPError):
                workspace.replication.settle(copy_of(workspace).collection_id)
    finally:
        server.kill()


def test_a_range_of_dates_is_searched_in_the_file_because_milvus_knows_none(workspace: Workspace) -> None:
    for number in range(120):
        text = f"The ferry leaves the harbor at {number}."
        workspace.library.add_text(text, title=f"Old {number}", metadata={"date": "2020-01-01"})
    workspace.library.add_text("A ferry was painted.", title="New", metadata={"date": "2026-01-01"})
    workspace.replication.push("default")
    question = {
        "query": "the ferry leaves the harbor",
        "mode": "semantic",
        "since": "2025-12-01",
        "until": "2026-02-01",
    }
    assert [hit["sourceTitle"] for hit in workspace.registry.call("search", question).value["results"]] == ["New"]
