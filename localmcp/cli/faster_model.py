"""Before much is added: the fast form of the default model is offered, since nothing has been embedded yet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import click

from localmcp import config
from localmcp.cli import terminal
from localmcp.cli.session import Session
from localmcp.errors import InvalidInput

LARGE = 6_000_000
"""Bytes of text that take the default model about five minutes on two cores."""
BYTES_A_SECOND = {"default": 20_000, "fast": 66_000}
"""24 and 79 passages a second on two threads, about 830 bytes each; a longer estimate is better than a broken one."""
PACKED = frozenset((".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".html", ".htm", ".ipynb"))
PACKED_SHARE = 0.2
"""How much of such a file is text, about."""


def offer_fast_form(session: Session, paths: Iterable[str], options: Mapping[str, Any]) -> None:
    """Ask, or where nobody can answer hint, when the paths hold much text and the default model is to read it.

    Yes makes the fast form if it is not there, and sets it. Nothing is said to a person who chose a model.
    """
    if session.quiet or session.as_json or not _may_be_faster(session):
        return
    size = estimate_text(paths, options)
    if size < LARGE:
        return
    if _has_vectors(session):
        session.note(_told(size) + " Its fast form reads over three times as fast, and then all of the file is read")
        session.note("again: localmcp models add fast && localmcp config set model fast && localmcp reembed")
    elif sys.stdin.isatty() and sys.stderr.isatty():
        _ask(session, size)
    else:
        session.note(_told(size) + " Three times as fast: localmcp models add fast && localmcp config set model fast")


def _may_be_faster(session: Session) -> bool:
    """The default model, not chosen by the person, and a fast form that is there or can be made."""
    if session.settings.model != "default" or os.environ.get("LOCALMCP_MODEL") or "model" in config.read_config_file():
        return False
    from localmcp.embeddings import has_fast_form

    return has_fast_form(config.models_directory()) or find_spec("onnx") is not None


def estimate_text(paths: Iterable[str], options: Mapping[str, Any]) -> int:
    """Bytes of text in the paths, about; the counting ends where it is surely much."""
    total = 0
    for size in _sizes(paths, options):
        total += size
        if total > 20 * LARGE:
            break
    return total


def _sizes(paths: Iterable[str], options: Mapping[str, Any]) -> Iterable[int]:
    from pathlib import Path

    from localmcp.knowledge.walk import Found, WalkRules, stat_file, walk
    from localmcp.text.readers import why_skipped

    rules = WalkRules(bool(options.get("hidden")), tuple(options.get("patterns") or ()))
    for given in paths:
        path = os.path.realpath(os.path.expanduser(given))
        try:
            for each in walk(path, rules) if os.path.isdir(path) else (stat_file(path),):
                if isinstance(each, Found) and why_skipped(Path(each.path)) is None:
                    packed = os.path.splitext(each.path)[1].lower() in PACKED
                    yield int(each.size * (PACKED_SHARE if packed else 1))
        except InvalidInput:
            # Adding says what is wrong with the pattern.
            return


def _has_vectors(session: Session) -> bool:
    from localmcp.errors import LocalMCPError
    from localmcp.storage.database import Database, fetch_one

    path = session.settings.database
    if not path.exists():
        return False
    database = Database(path, read_only=True)
    try:
        with database.read() as connection:
            return fetch_one(connection, "select 1 from vectors limit 1") is not None
    except LocalMCPError:
        # Adding says what is wrong with the file.
        return True
    finally:
        database.close()


def _told(size: int) -> str:
    seconds = size / BYTES_A_SECOND["default"]
    return f"This is much text: about {terminal.duration(60 * round(seconds / 60))} with the default model."


def _ask(session: Session, size: int) -> None:
    faster = terminal.duration(60 * round(size / BYTES_A_SECOND["fast"] / 60))
    session.note(_told(size))
    session.note(f"Its fast form finds as well and takes about {faster}; it is made once, in seconds, on this machine.")
    if not click.confirm("Use it?", default=True, err=True):
        return
    from localmcp.embeddings import open_embedder

    open_embedder("fast", models_directory=config.models_directory(), download=True)
    config.write_setting("model", "fast")
    session.settings = replace(session.settings, model="fast")
