"""Milvus as a backend: what differs between servers is levelled, and every failure is told in time and in words."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from milvus_servers import (
    LiteServer,
    milvus_kinds,
    needs_lite,
    needs_real,
    open_empty,
    opened,
    real_server,
    shared_server,
)

from localmcp.config import Settings, load_settings
from localmcp.errors import (
    AccessDenied,
    ConfigurationError,
    InvalidInput,
    ModelMismatch,
    NotFound,
    Unavailable,
)
from localmcp.index.filters import Filters, evaluate, parse_condition
from localmcp.milvus.collection import (
    NO_KEEPALIVE_MS,
    Milvus,
    MilvusCollection,
    load_library,
    open_milvus,
    translate_error,
)
from localmcp.wording.normalize import index_text

DIMENSION = 16
ABOUT = {"identity": {"name": "a-model", "dimension": DIMENSION}, "fingerprint": "0123456789abcdef"}


def connect_program(uri: str) -> Any:
    """Another program: a client of pymilvus, without the pings for which Milvus Lite closes a connection."""
    return load_library().MilvusClient(uri, dedicated=True, grpc_options={"grpc.keepalive_time_ms": NO_KEEPALIVE_MS})


def row(number: int, vector: Any, text: str = "t", metadata: Any = None, partition: str = "_default") -> dict[str, Any]:
    """A passage as it is sent."""
    texts = dict.fromkeys(("title", "heading", "path", "date", "document", "chunk"), "")
    return {
        **texts, "id": number, "vector": vector.tolist(), "text": text, "language": "english", "position": 0,
        "words": index_text(text, "english"), "digest": number, "metadata": metadata or {}, "partition": partition,
        "origin": {},
    }  # fmt: skip


def filled(milvus: Milvus, *rows: dict[str, Any], name: str = "docs") -> MilvusCollection:
    collection = milvus.create(name, ABOUT)
    collection.upsert(rows)
    return collection


def nearest(collection: MilvusCollection, vectors: Any, limit: int, **options: Any) -> list[list[Any]]:
    """The ids that are nearest to each vector."""
    return [[*cosines] for cosines in collection.nearest(vectors, limit, Filters(**options))]


def unit_vectors(count: int, seed: int = 7) -> Any:
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(params=milvus_kinds)
def milvus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Milvus]:
    with opened(request.param, tmp_path) as milvus:
        yield milvus


# ---------------------------------------------------------------- searching, alike everywhere


def test_search_finds_what_comparing_everything_finds(milvus: Milvus) -> None:
    vectors, queries = unit_vectors(1500), unit_vectors(5, seed=8)
    collection = filled(milvus, *(row(number, vector) for number, vector in enumerate(vectors)))
    for query, cosines in zip(queries, collection.nearest(queries, 10, Filters()), strict=True):
        assert [*cosines] == np.argsort(-(vectors @ query), kind="stable")[:10].tolist()
        assert [*cosines.values()] == pytest.approx(np.sort(vectors @ query)[::-1][:10], abs=1e-5)


def test_milvus_finds_words_itself(milvus: Milvus) -> None:
    vectors, texts = unit_vectors(4), ["bees make honey", "wasps make what", "roses", "pruning roses in winter"]
    collection = filled(milvus, *(row(n, vectors[n], text) for n, text in enumerate(texts)))
    scores = collection.holding("what's 'a pruned' rose", 5, Filters())
    assert not collection.has_words or (scores[3] > scores[2] > 0 and {*scores} == {2, 3})
    for text, number in (("honey", 0), ("what's a vitamin", 1)):
        assert [*collection.holding(text, 1, Filters())] == [number] * collection.has_words


def test_a_passage_that_moves_to_another_partition_is_there_once(milvus: Milvus) -> None:
    [vector] = unit_vectors(1)
    collection = milvus.create("docs", ABOUT)
    for partition in ("2024-01", "_default", "für alle"):
        collection.upsert([row(1, vector, partition, partition=partition)])
        assert collection.count() == 1 and collection.partitions()[partition] == 1
        assert nearest(collection, vector[None, :], 5, partitions=(partition,)) == [[1]]
        assert collection.read([1])[1]["text"] == partition


def test_passages_come_back_whole_and_by_id(milvus: Milvus) -> None:
    vectors = unit_vectors(30)
    metadata = {"lang": "it", "year": 2020, "tags": ["a", "b"], "deep": {"x": None, "y": 1.5}, "ok": True}
    rows = [row(n, vectors[n], f"testo {n} à 日本", metadata, "part") for n in range(30)]
    collection = filled(milvus, *rows[::-1])
    found = [row for batch in collection.rows(7) for row in batch]
    assert [row["id"] for row in found] == list(range(30))
    assert (found[3]["text"], found[3]["metadata"]) == (rows[3]["text"], metadata)
    assert found[3]["partition"] == "part" and np.allclose(found[3]["vector"], vectors[3], atol=1e-6)
    assert {*collection.read([5, 999, 4])} == {4, 5}
    collection.delete([4, 999])
    assert {*collection.read([5, 999, 4])} == {5} and collection.count() == 29
    assert 4 not in nearest(collection, vectors[4:5], 30)[0]


METADATA = st.dictionaries(
    st.sampled_from(["x", "y"]),
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, 2, -1, 1.0, 1.5, 2**53 + 1, -2.5])
    | st.sampled_from(["", "a", "A", "ab", "a%", "a_b", "a%b", "à", "日本", 'q"\\', "1", "true", "a\nb"])
    | st.lists(st.sampled_from([1, 1.0, 2, True, "a", "1", None]), max_size=3)
    | st.dictionaries(st.just("y"), st.sampled_from([1, "a", True]), max_size=1),
    max_size=2,
)
VALUES = (
    st.booleans() | st.sampled_from([0, 1, 1.0, 1.5, -1, 2**53 + 1]) | st.sampled_from(["a", "", "a%", "1", "日本"])
)
FIELDS = st.sampled_from(["x", "y", "x.y", "nowhere"])
COMPARISONS = (
    st.fixed_dictionaries({"field": FIELDS, "eq": VALUES})
    | st.fixed_dictionaries({"field": FIELDS, "in": st.lists(VALUES, min_size=1, max_size=4)})
    | st.fixed_dictionaries({"field": FIELDS, "prefix": st.sampled_from(["a", "a%", "a_", "", "日", "q"])})
    | st.builds(
        lambda field, operator, value: {"field": field, operator: value},
        FIELDS,
        st.sampled_from(["gt", "gte", "lt", "lte"]),
        st.sampled_from([0, 1, 1.5, -1, "a", "", "日本", -(2**63)]),
    )
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: (
        st.fixed_dictionaries({"not": inner})
        | st.fixed_dictionaries({"and": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"or": st.lists(inner, min_size=1, max_size=3)})
    ),
    max_leaves=5,
)


@needs_lite
def test_conditions_mean_on_a_lite_server_what_they_mean_in_python() -> None:
    assert_conditions_agree(open_empty(shared_server().uri), 25)


@needs_real
def test_conditions_mean_on_a_real_server_what_they_mean_in_python() -> None:
    assert_conditions_agree(open_empty(real_server, timeout=60), 100)


def assert_conditions_agree(milvus: Milvus, examples: int) -> None:
    """One collection with many kinds of metadata; every condition must find those that `evaluate` finds."""
    held: list[dict[str, Any]] = []

    @settings(max_examples=80, database=None, derandomize=True)
    @given(METADATA)
    def collect(metadata: dict[str, Any]) -> None:
        held.append(metadata)

    collect()
    vectors = unit_vectors(len(held))
    rows = (row(i, vectors[i], metadata=metadata) for i, metadata in enumerate(held))
    collection = filled(milvus, *rows, name="conditions")

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(CONDITIONS)
    def agree(given_condition: dict[str, Any]) -> None:
        condition = parse_condition(given_condition)
        assert condition is not None
        [found] = nearest(collection, vectors[:1], len(held), condition=condition)
        expected = {i for i, metadata in enumerate(held) if evaluate(condition, metadata)}
        assert {*found} == expected, given_condition

    agree()


# ---------------------------------------------------------------- other people's collections


def test_a_collection_of_another_program_is_searched_and_read_but_not_changed(milvus: Milvus) -> None:
    client = connect_program(milvus.uri)
    vectors = unit_vectors(4)
    client.create_collection(
        "theirs", dimension=DIMENSION, metric_type="L2", id_type="string", max_length=40, primary_field_name="pk",
        vector_field_name="emb", consistency_level="Strong",
    )  # fmt: skip
    rows = [
        {"pk": f"k{i}", "emb": vectors[i].tolist(), "body": f"body {i}", "lang": ["it", "en"][i % 2]} for i in range(4)
    ]
    client.upsert("theirs", rows)
    client.close()
    collection = milvus.open("theirs")
    [cosines] = collection.nearest(vectors[2:3], 2, Filters())
    assert cosines.pop("k2") == pytest.approx(1.0) and 0 < [*cosines.values()][0] < 1
    stored = collection.read(["k2"])["k2"]
    assert (stored["text"], stored["metadata"]) == ("body 2", {"body": "body 2", "lang": "it"})
    [italian] = nearest(collection, vectors[1:2], 4, condition=parse_condition({"lang": "it"}))
    assert sorted(italian) == ["k0", "k2"]
    assert (collection.model, collection.is_ours, collection.count()) == ("", False, 4)
    with pytest.raises(InvalidInput, match="made by another program"):
        collection.delete([1])
    mapped = Milvus(milvus.uri, timeout=60, fields={"theirs": {"text": "lang", "vector": "emb"}})
    if not milvus.is_file:
        assert mapped.open("theirs").read(["k2"])["k2"]["text"] == "it"
        mapped.fields["theirs"]["vector"] = "nope"  # type: ignore[index]
        with pytest.raises(ConfigurationError, match="no field nope"):
            mapped.open("theirs")
        mapped.close()


def test_a_collection_that_was_released_is_loaded_again(milvus: Milvus) -> None:
    vectors = unit_vectors(3)
    collection = filled(milvus, *(row(i, vectors[i]) for i in range(3)))
    client = connect_program(milvus.uri)
    client.release_collection("docs")
    client.close()
    assert nearest(collection, vectors[1:2], 1) == [[1]]


# ---------------------------------------------------------------- what cannot be done


def test_every_misfit_is_told_with_its_meaning(milvus: Milvus) -> None:
    vectors = unit_vectors(2)
    collection = milvus.create("docs", ABOUT)
    with pytest.raises(NotFound, match="collection not found"):
        milvus.open("nowhere")
    with pytest.raises(NotFound, match=r"partition 'nope' not found.*_default"):
        collection.require_partition("nope")
    with pytest.raises(ModelMismatch, match=r"16 dimensions \(a-model\).*makes 8"):
        nearest(collection, vectors[:, :8], 3)
    milvus.drop("docs")
    with pytest.raises(NotFound, match="collection not found"):
        nearest(collection, vectors, 3)


def test_a_database_that_is_not_there_is_named_as_the_reason(milvus: Milvus) -> None:
    backend = Milvus(milvus.uri, database="nowhere", timeout=20)
    with pytest.raises(NotFound, match="no such database"):
        backend.names()
    backend.close()


@needs_lite
def test_a_silent_server_ends_the_call_at_its_time_out_and_says_what_to_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        backend = Milvus(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.5)
        with pytest.raises(Unavailable, match=r"did not answer within 0.5 s.*address and port"):
            backend.open("docs")
        backend.close()


@needs_lite
def test_a_server_that_falls_silent_later_ends_the_call_too_and_is_found_when_it_is_back(tmp_path: Path) -> None:
    if not hasattr(signal, "SIGSTOP"):
        pytest.skip("no SIGSTOP here")
    server = LiteServer(tmp_path / "data")
    backend, hasty = open_empty(server.uri), Milvus(server.uri, timeout=0.3)
    vectors = unit_vectors(2)
    try:
        collection = filled(backend, row(1, vectors[1]))
        slow = hasty.open("docs")
        os.kill(server.process.pid, signal.SIGSTOP)
        # Only when all of its threads are stopped: one of them could answer the first call.
        os.waitpid(server.process.pid, os.WUNTRACED)
        for call in (
            lambda: nearest(slow, vectors, 3),
            lambda: slow.upsert([row(2, vectors[0])]),
            lambda: list(slow.rows()),
        ):
            with pytest.raises(Unavailable, match=r"did not answer within (0.3|1.8) s"):
                call()
        os.kill(server.process.pid, signal.SIGCONT)
        assert nearest(collection, vectors[1:], 3) == [[1]]
        server.kill()
        with pytest.raises(Unavailable, match="cannot be reached"):
            nearest(collection, vectors, 3)
        server.start()
        assert nearest(collection, vectors[1:], 3) == [[1]]
    finally:
        server.kill()
        backend.close()
        hasty.close()


def test_refused_credentials_are_told_apart_from_a_server_that_is_not_there() -> None:
    class Refused(Exception):
        message = "auth check failure, please check username and password are correct"

    told = translate_error(Refused(), "http://h:1", 10)
    assert isinstance(told, AccessDenied) and "milvus_username" in str(told.hint)


@needs_lite
def test_a_collection_that_takes_long_to_load_is_told_apart_from_a_server_that_is_not_there() -> None:
    said = "[load_collection] Retry timeout: 10s, message=wait for loading collection timeout, collection: docs"
    told = translate_error(load_library().MilvusException(message=said), "http://h:1", 10)
    assert isinstance(told, Unavailable) and "still loading" in told.message


# ---------------------------------------------------------------- manners


def run_apart(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **variables}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder, env=environment
    )


def test_pymilvus_is_imported_at_the_first_call_and_not_before(tmp_path: Path) -> None:
    code = """
import sys
from localmcp.workspace import open_workspace
with open_workspace("a.localmcp", model="hash", milvus_address="http://127.0.0.1:1") as workspace:
    workspace.registry.call("add_document", {"text": "bees", "title": "Bees"})
    workspace.registry.call("search", {"query": "bees"})
    workspace.registry.call("get_stats")
print("pymilvus" in sys.modules, "grpc" in sys.modules)
"""
    assert run_apart(code, tmp_path).stdout.split() == ["False", "False"]


OTHER_PROCESS = """
import os, sys
from localmcp.errors import Unavailable
from localmcp.milvus.collection import Milvus

def ask(address):
    try:
        print(Milvus(address, timeout=9 if address.endswith(".db") else 1).names(), flush=True)
    except Unavailable as error:
        print(error, flush=True)

ask("http://127.0.0.1:1")
ask("https://127.0.0.1:1")
ask(sys.argv[1])
import dotenv
print(os.environ.get("LEAKED_FROM_ENV_FILE"), dotenv.load_dotenv.__module__, flush=True)
input()
ask(sys.argv[1])
"""


@needs_lite
def test_a_lite_file_is_free_for_other_processes_when_it_is_closed_and_none_loads_an_env_file_or_writes_to_stderr(
    tmp_path: Path,
) -> None:
    (tmp_path / ".env").write_text("LEAKED_FROM_ENV_FILE=1\n", encoding="utf-8")
    first = Milvus(str(tmp_path / "one.db"))
    first.create("docs", ABOUT)
    command = [sys.executable, "-c", OTHER_PROCESS, first.uri]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) as process:
        nobody, nobody_secure, taken, environment_line = (process.stdout.readline() for _ in range(4))  # type: ignore[union-attr]
        first.close()
        first.close()
        out, err = process.communicate("\n")
    assert "cannot be reached" in nobody and "cannot be reached" in nobody_secure
    assert "Only one process at a time" in taken and environment_line.split() == ["None", "dotenv.main"]
    assert (out.strip(), err) == ("['docs']", "")


def test_without_the_extra_the_message_says_how_to_install_it(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["pymilvus"] = None
from localmcp.errors import MissingExtra
from localmcp.milvus.collection import Milvus
try:
    Milvus("http://127.0.0.1:1").names()
except MissingExtra as error:
    print(error)
sys.modules["milvus_lite"] = None
try:
    Milvus("here.db").names()
except MissingExtra as error:
    print(error)
"""
    for line, extra in zip(run_apart(code, tmp_path).stdout.splitlines(), ("milvus", "milvus-lite"), strict=True):
        assert f"pip install 'localmcp[{extra}]'" in line


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("address", "uri"),
    [("localhost:19530", "http://localhost:19530"), ("https://a.b", "https://a.b"), ("tcp://a:1", "tcp://a:1")],
)
def test_an_address_may_be_written_with_or_without_its_scheme(address: str, uri: str) -> None:
    backend = open_milvus(Settings(milvus_address=address))
    assert backend is not None
    assert backend.uri == uri
    backend.close()


@pytest.mark.parametrize("address", ["ftp://a:1", "http://", "http://a:notaport", "http://me:secret@a:1", "http://a:0"])
def test_an_address_that_cannot_be_one_is_refused_without_showing_a_password(address: str) -> None:
    with pytest.raises(ConfigurationError, match="milvus_address") as caught:
        open_milvus(Settings(milvus_address=address))
    assert "secret" not in str(caught.value)


def test_settings_come_from_the_variables_of_the_original_and_secrets_are_never_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "ADDRESS": "https://h:1", "USERNAME": "me", "PASSWORD": "hush-hush", "DATABASE": "docs",
        "FIELDS": "theirs.text=body,theirs.vector=emb",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"MILVUS_{name}", value)
    loaded = load_settings()
    backend = open_milvus(loaded)
    assert backend is not None
    backend.close()
    assert (
        backend.uri == "https://h:1"
        and vars(backend).items() >= {"_token": "me:hush-hush", "_database": "docs"}.items()
    )
    assert backend.fields == {"theirs": {"text": "body", "vector": "emb"}}
    shown = subprocess.run(
        [sys.executable, "-m", "localmcp", "config", "show", "--json"], capture_output=True, text=True, check=True
    ).stdout
    for text in (repr(loaded), repr(backend), shown):
        assert "hush-hush" not in text
    values = {each["name"]: each["value"] for each in json.loads(shown)["settings"]}
    assert (values["milvus_username"], values["milvus_password"]) == ("me", "(set)")


# ---------------------------------------------------------------- names and sizes


def test_texts_and_metadata_are_cut_to_what_a_field_takes(milvus: Milvus) -> None:
    [vector] = unit_vectors(1)
    text = "日本" * 20_000
    collection = filled(milvus, row(1, vector, text, {"small": 1, "large": "x" * 70_000}))
    stored = collection.read([1])[1]
    assert stored["text"] == text[: len(stored["text"])] and len(stored["text"]) > 21_000
    assert stored["metadata"] == {"small": 1}
