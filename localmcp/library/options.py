"""The options with which files are added; those not given are inherited from an earlier `add` of the same folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import unicode_path
from localmcp.index.collections import Collection
from localmcp.library.ledger import Kind, Root
from localmcp.library.walk import NOT_UNICODE, below
from localmcp.schemas import without_surrogates

SourceType = Literal["text", "website", "docs", "qa", "notion"]
SOURCE_TYPES: tuple[SourceType, ...] = get_args(SourceType)
LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True)
class Options:
    """Options of files; None, {} and () are inherited from an earlier `add` of the same folder."""

    title: str | None = None
    source_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    include_hidden: bool = False
    patterns: tuple[str, ...] = ()


def check_options(
    title: str | None = None,
    source_type: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    include_hidden: bool = False,
    patterns: Sequence[str] = (),
) -> Options:
    """Return the options, as they can be stored.

    Raises:
        InvalidInput: an unknown source type, or metadata that is not JSON.
    """
    if source_type is not None and source_type not in SOURCE_TYPES:
        raise InvalidInput(f"source type {source_type!r} is unknown; use one of {', '.join(SOURCE_TYPES)}.")
    line = " ".join(without_surrogates(title or "").split())[:LONGEST_TITLE]
    return Options(line or None, source_type, _json(metadata or {}), include_hidden, tuple(patterns))


def _json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    try:
        text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata cannot be stored as JSON: {error}.") from error
    return json.loads(without_surrogates(text))


def find_targets(paths: Iterable[str | os.PathLike[str]], options: Options) -> dict[str, Kind | None]:
    """Return resolved path -> kind; None for one that does not exist, or whose name the file cannot hold.

    Raises:
        NotFound: none exists.
        InvalidInput: an empty path, a title for a folder, or nothing but names that are not Unicode.
    """
    targets: dict[str, Kind | None] = {}
    for name in paths:
        if not os.fspath(name):
            raise InvalidInput("path is empty; name a file or a folder ('.' is the current one).")
        real = os.path.realpath(os.path.expanduser(name))
        kind = "folder" if os.path.isdir(real) else "file" if os.path.lexists(real) else None
        if kind == "folder" and options.title:
            raise InvalidInput(f"title: {real} is a folder; only a single file can be given a title.")
        path = unicode_path(real)
        targets[path] = kind if path == real else None
    if not any(targets.values()):
        if unnamed := [path for path in targets if why_absent(path) == NOT_UNICODE]:
            raise InvalidInput(f"{', '.join(unnamed)}: {NOT_UNICODE}.", hint="Rename it, and add it again.")
        raise NotFound(f"There is no file or folder {', '.join(targets) or 'named'}.")
    return targets


def why_absent(path: str) -> str:
    """Return why a target has no kind."""
    return NOT_UNICODE if "\ufffd" in path else "no such file or folder"


def owner_of(path: str, roots: Sequence[Root]) -> Root | None:
    """Return the innermost root at or above a path."""
    above = [root for root in roots if below(path, root.path)]
    return max(above, key=lambda root: len(root.path), default=None)


def make_root(
    path: str, kind: Kind, collection: Collection, options: Options, partition_id: int | None, owner: Root | None
) -> Root:
    """Return the root for a path that is added; options not given are inherited from the root at or above it."""
    inherited = owner or Root(path, kind)
    return Root(
        path,
        kind,
        collection.id,
        partition_id if partition_id is not None else inherited.partition_id,
        options.title or (inherited.title if inherited.path == path else None),
        options.source_type or inherited.source_type,
        {**inherited.metadata, **options.metadata},
        options.include_hidden or inherited.include_hidden,
        options.patterns or inherited.patterns,
        inherited.readers,
        inherited.walked_at,
        unknown_options=inherited.unknown_options,
    )


def values_of(root: Root) -> tuple[Any, ...]:
    """Return what is stored with every source of a root."""
    return (root.partition_id, root.title, root.source_type, root.metadata)
