"""What every test gets: directories of its own, and no settings from the machine it runs on."""

from __future__ import annotations

import compileall
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from folders import CountingEmbedder, write
from hypothesis import HealthCheck, settings
from kept_readers import KeptReaders
from remembered_vectors import RememberedVectors
from shared_models import share_models

import localmcp
from localmcp import api_keys as keyring
from localmcp.config import Settings
from localmcp.library import reading
from localmcp.library.ingest import Library
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.models.local_model import LocalModel
from localmcp.storage.database import Database

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell, which makes every child deaf to Ctrl-C; some tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Some machines forbid Python to keep what it compiled. A run starts hundreds of programs, and each would compile
# localmcp anew: a third of a second of the processor.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Screens of the TUI make many small objects: looking for garbage took a tenth of the run.
gc.set_threshold(100_000, 50, 100)

# A run fails for what the change did: the examples are the same every time, and a busy machine may be slow. Other
# examples: --hypothesis-profile=search.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Compile localmcp once, before the workers of a run each do it."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(str(Path(localmcp.__file__).parent), quiet=2)


def pytest_unconfigure() -> None:
    """Look for no garbage on the way out, which took four seconds."""
    gc.freeze()


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each test gets its directories; pytest's own way to number them looks at all that are there."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def own_directories(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State, configuration, data and cache below a temporary folder, which is returned."""
    for name in list(os.environ):
        if name.startswith(("LOCALMCP_", "MILVUS_", "SIMILARITY_")):
            monkeypatch.delenv(name)
    # Processes of tests that import onnxruntime before localmcp does must not report to its makers either.
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    home = Path(tempfile.mkdtemp(dir=homes))
    for name in ("STATE", "CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"LOCALMCP_{name}_DIR", str(home / name.lower()))
    return home


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files in this process instead of one of their own, which takes most of the time of a short test."""
    for module in ("doctor.examination", "packs.pack", "storage.adoption"):
        monkeypatch.setattr(f"localmcp.{module}.run_killable", lambda _path, work, *args: work(*args))


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all workers of this run share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session", autouse=True)
def quick_parts(run_folder: Path) -> Iterator[None]:
    """Save what would be most of the time of a run; programs that tests start have none of this.

    The real model reads each text once in a run, and each model is loaded once in a process, except in the tests of the
    models themselves. Keys are hashed at bcrypt's lowest cost: at the one that is shipped, each takes 60 ms. Libraries
    read files with one worker, which is kept, in the same order in every run: a second takes longer to start than a few
    files take to read.
    """
    vectors, readers = RememberedVectors(run_folder / "vectors.db"), KeptReaders()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalModel, "_query_vector", lambda model, text: vectors.query_vector(model, text))
        patch.setattr(LocalModel, "_passage_vector", lambda model, text: vectors.passage_vector(model, text))
        share_models(patch)
        patch.setattr(keyring, "BCRYPT_COST", 4)
        patch.setattr(reading, "WorkerPool", readers.pool)
        yield
    vectors.close()
    readers.close()
    # What was left open in a circle of objects is an error here, too.
    gc.collect()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database in a file that does not exist yet."""
    database = Database(tmp_path / "library.localmcp")
    yield database
    database.close()


@pytest.fixture
def hash_embedder() -> HashEmbedder:
    return HashEmbedder(64)


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def library(database: Database, embedder: CountingEmbedder) -> Library:
    return Library(database, LazyEmbedder(lambda: embedder), Settings())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this test's own, where clients look for their configuration."""
    for name in ("XDG_CONFIG_HOME", "APPDATA", "LOCALAPPDATA", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three documents and a file that is none."""
    folder = tmp_path / "docs"
    write(folder / "bees.md", "# Bees\n\nA hive has one queen.\n")
    write(folder / "garden" / "roses.md", "# Roses\n\nPrune them in late winter.\n")
    write(folder / "garden" / "soil.txt", "Clay holds water; sand lets it through.\n")
    (folder / "photo.gif").write_bytes(b"GIF89a" + bytes(100))
    return folder


@pytest.fixture
def tesseract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a program on the path that sees these words on any page: (block, paragraph and line; percent; word)."""
    programs = tmp_path / "programs"
    programs.mkdir()

    def install(*words: tuple[str, int, str]) -> None:
        rows = [f"5\t1\t{place}\t1\t0\t0\t9\t9\t{sure}\t{word}" for place, sure, word in words]
        (programs / "table").write_text("\n".join(["head", *rows]))

    program = programs / "tesseract"
    program.write_text(f'#!/bin/sh\n[ "$1" = --list-langs ] || cat "{programs}/table"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    install()
    return install
