"""The person's own tool manifests: one TOML file a tool, below `tools/` in the configuration directory.

Files are looked at again whenever tools are listed, searched or called, so that a change counts at once. A mistake in
one file keeps that tool away and no other. Only the configuration directory is read: nothing in a database, a
document or a working directory can add a tool.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from localmcp.files import Signature, signature_of
from localmcp.own_tools.fields import Fields, Problem, Source
from localmcp.own_tools.parameters import (
    Parameter,
    accept_arguments,
    input_schema,
    placeholders,
    read_parameters,
)
from localmcp.own_tools.switches import Switches
from localmcp.schemas import Json, did_you_mean
from localmcp.tools import Answer, Provider, Tool, ToolMark

log = logging.getLogger(__name__)

KINDS = ("command", "query", "http")
MOST_BYTES = 256_000
"""A larger file is no manifest."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

State = Literal["ready", "empty", "off", "failing"]


# ---------------------------------------------------------------- what a provider says of itself


@dataclass(frozen=True, slots=True)
class ProviderState:
    """How a provider is doing, for `localmcp tools providers`."""

    name: str
    state: State
    """`ready` offers tools, `empty` has nothing configured, `off` is switched off, `failing` offers less than it
    should."""
    tools: int
    where: str
    """Where it is configured."""
    says: str = ""
    """One sentence more, for people."""
    problems: tuple[Problem, ...] = ()

    def as_json(self) -> Json:
        return asdict(self)


@runtime_checkable
class Inspected(Protocol):
    """A provider that says how it is doing."""

    name: str

    def state(self) -> ProviderState:
        """Return how it is doing; nothing is started."""
        ...

    def check(self) -> list[Problem]:
        """Return every mistake in its configuration, and everything on this machine that would make a call fail."""
        ...


def opened_providers(providers: Iterable[Provider]) -> list[Provider]:
    """Return the providers, making those that are made only when something is configured for them."""
    return [getattr(provider, "opened", provider) for provider in providers]


def inspected_providers(providers: Iterable[Provider]) -> list[Inspected]:
    """Return the providers that say how they are doing."""
    return [provider for provider in opened_providers(providers) if isinstance(provider, Inspected)]


# ---------------------------------------------------------------- one manifest


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file that says what it is; the rest of its fields are read by the provider of its kind."""

    path: Path
    text: str
    table: Json
    kind: str
    name: str


class Common(NamedTuple):
    """What every kind of manifest says."""

    mark: ToolMark
    description: str
    parameters: dict[str, Parameter]
    path: Path


@dataclass(eq=False)
class ManifestTool(Tool):
    """A tool that a manifest describes; begins with the fields of `Common`."""

    mark: ToolMark
    description: str
    parameters: dict[str, Parameter]
    path: Path

    @property
    def input_schema(self) -> Json:
        return input_schema(self.parameters)

    def call(self, arguments: Json) -> Answer:
        return self.run(accept_arguments(self.name, self.parameters, arguments))

    @abstractmethod
    def run(self, arguments: Json) -> Answer:
        """Do it, with arguments that fit and defaults filled in.

        Raises:
            LocalMCPError: it could not be done; a program or server that answers "no" is an answer with `is_error`.
        """

    def check(self, source: Source) -> None:
        """Tell `source` what is wrong on this machine, such as a program that is missing."""


def read_common(fields: Fields, kinds: Iterable[str], *, dashes: bool = False, read_only: bool | None = None) -> Common:
    """Return what every kind of manifest says.

    Args:
        fields: of the whole file.
        kinds: the types of parameters that fit this kind.
        dashes: whether `allow_dash` means something for its parameters.
        read_only: what is certain for this kind, so that the manifest need not say it.
    """
    parameters = read_parameters(fields.table("parameters"), kinds, dashes=dashes)
    mark = _read_mark(fields, parameters, read_only)
    return Common(mark, fields.text("description", required=True), parameters, fields.source.path)


def _read_mark(fields: Fields, parameters: dict[str, Parameter], read_only: bool | None) -> ToolMark:
    """Return title, keywords, examples and annotations.

    The annotations default as MCP's do: not read-only, destructive, not idempotent, open world. A read-only tool is
    neither destructive nor unsafe to repeat.
    """
    name = fields.text("name", fields.source.path.stem)
    examples = fields.texts("examples")
    for phrase in examples:
        # A slot may carry more: {name:singular}, {name=value}.
        for slot in re.findall(r"\{(\w+)[^}]*\}", phrase):
            if slot not in parameters:
                fields.complain(f"The example '{phrase}' names '{slot}', which is no parameter.", "examples")
    safe = fields.flag("read_only", False) if read_only is None else read_only
    return ToolMark(
        name=name,
        title=fields.text("title", name.replace("_", " ").replace("-", " ").capitalize()),
        keywords=fields.texts("keywords"),
        examples=examples,
        visible=False,
        read_only=safe,
        destructive=fields.flag("destructive", not safe) and not safe,
        idempotent=fields.flag("idempotent", safe),
        open_world=fields.flag("open_world", read_only is None),
    )


def refuse_unknown_placeholders(
    fields: Fields, key: str, template: str, parameters: dict[str, Parameter], *, always: bool
) -> None:
    """Complain of a `{name}` that is no parameter, or (`always`) one that a call may leave out."""
    for name in placeholders(template):
        if name not in parameters:
            hint = did_you_mean(name, parameters, f"Describe it in [parameters.{name}].")
            fields.complain(f"{{{name}}} in {fields.named(key)} is not a parameter.", key, hint=hint)
        elif always and not parameters[name].always_there:
            fields.complain(
                f"{{{name}}} in {fields.named(key)} may be missing in a call.",
                key,
                hint=f"Make {name} required, or give it a default.",
            )


# ---------------------------------------------------------------- the folder


class ManifestFolder:
    """The manifests below one folder, as they are at this moment. Thread-safe."""

    def __init__(self, folder: Path, listeners: Sequence[Callable[[], None]] = (), *, seen_empty: bool = False) -> None:
        """
        Args:
            folder: need not exist.
            listeners: called after files came, went or changed, by the thread that lists the tools.
            seen_empty: clients have been told already that there are no tools, so the first ones are a change.
        """
        self.folder = folder
        self._listeners = listeners
        self._lock = threading.Lock()
        self._files: dict[str, tuple[Signature, Manifest | Problem]] | None = {} if seen_empty else None
        """What each file held when it was read; None before the first look."""
        self._chosen: dict[str, list[Manifest]] = {}
        self._problems: list[Problem] = []

    def manifests(self, kind: str) -> list[Manifest]:
        """Return the manifests of a kind, by path; of two with one name the first."""
        self._look()
        return self._chosen.get(kind, [])

    def problems(self) -> list[Problem]:
        """Return what is wrong with files that are no manifest of any kind, and names that two manifests have."""
        self._look()
        return self._problems

    def _look(self) -> None:
        """Read what has changed."""
        with self._lock:
            before, self._files = self._files, self._read_changed()
            changed = before != self._files
            if changed:
                self._choose([content for _, (_, content) in sorted(self._files.items())])
        if changed and before is not None:
            for listener in self._listeners:
                listener()

    def _read_changed(self) -> dict[str, tuple[Signature, Manifest | Problem]]:
        old = self._files or {}
        return {
            path: old[path] if path in old and old[path][0] == signature else (signature, _read_or_warn(path))
            for path, signature in _scan(str(self.folder))
        }

    def _choose(self, contents: list[Manifest | Problem]) -> None:
        names: dict[str, Manifest] = {}
        problems = [content for content in contents if isinstance(content, Problem)]
        for manifest in (content for content in contents if isinstance(content, Manifest)):
            if (earlier := names.setdefault(manifest.name, manifest)) is not manifest:
                message = f"The name '{manifest.name}' is taken by {earlier.path}."
                problems.append(Problem(str(manifest.path), None, message, "Give one of the two another name."))
        self._problems = problems
        self._chosen = {kind: [manifest for manifest in names.values() if manifest.kind == kind] for kind in KINDS}


def _scan(folder: str, depth: int = 3) -> Iterator[tuple[str, Signature]]:
    """Paths as text: with a thousand files, making and hashing `Path` costs several times what the look itself does."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        log.warning("%s cannot be read: %s", folder, error)
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _scan(entry.path, depth - 1)
        elif entry.name.endswith(".toml"):
            try:
                status = entry.stat()
            except OSError:
                continue  # Gone meanwhile, or a link to nothing.
            yield entry.path, signature_of(status)


def _read_or_warn(path: str) -> Manifest | Problem:
    content = read_manifest(Path(path))
    if isinstance(content, Problem):
        log.warning("%s", content)
    return content


def read_manifest(path: Path) -> Manifest | Problem:
    """Return the manifest in a file, or why there is none; the fields of its kind are not checked yet."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return Problem(str(path), None, f"It has more than {MOST_BYTES // 1000} kB, too much for a manifest.")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return Problem(str(path), None, "It is not UTF-8 text.")
    except OSError as error:
        return Problem(str(path), None, f"It cannot be read: {error.strerror}.")
    try:
        return _identify(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        line_match = re.search(r"line (\d+)", str(error))
        line = int(line_match[1]) if line_match else len(text.splitlines()) or None
        return Problem(str(path), line, f"Not TOML: {error}.")


def _identify(path: Path, text: str, table: Json) -> Manifest | Problem:
    source = Source(path, text)
    fields = Fields(source, table)
    kind = fields.choice("kind", KINDS, required=True)
    name = fields.text("name", path.stem)
    if not _NAME.fullmatch(name):
        fields.complain(f"'{name}' is no name for a tool: letters, digits, _ and -, at most 64.", "name")
    return source.problems[0] if source.problems else Manifest(path, text, table, kind, name)


# ---------------------------------------------------------------- the provider of one kind


class ManifestProvider(ABC):
    """The tools of one kind of manifest."""

    name: str
    kind: str

    def __init__(self, folder: ManifestFolder, switches: Switches) -> None:
        self.folder = folder
        self.switches = switches
        self._lock = threading.Lock()
        self._built_from: list[Manifest] = []
        self._tools: dict[str, ManifestTool] = {}
        self._problems: list[Problem] = []

    @abstractmethod
    def read(self, fields: Fields) -> ManifestTool:
        """Return the tool of a manifest; mistakes go to the fields' source, and then the tool is not offered."""

    def tools(self) -> Sequence[Tool]:
        return [] if self.switches.is_off(self.name) else self._offered(list(self._current().values()))

    def find(self, name: str) -> Tool | None:
        if self.switches.is_off(self.name):
            return None
        tool = self._current().get(name)
        return tool if tool and self._offered([tool]) else None

    def _offered(self, tools: list[ManifestTool]) -> list[ManifestTool]:
        """Return those that the caller may see."""
        return tools

    def _current(self) -> dict[str, ManifestTool]:
        manifests = self.folder.manifests(self.kind)
        with self._lock:
            if manifests != self._built_from:
                self._build(manifests)
            return self._tools

    def _build(self, manifests: list[Manifest]) -> None:
        tools: dict[str, ManifestTool] = {}
        problems: list[Problem] = []
        for manifest in manifests:
            source, tool = self._read_source(manifest)
            problems += source.problems
            if source.is_usable:
                tools[manifest.name] = tool
        for problem in problems:
            log.warning("%s", problem)
        self._tools, self._problems, self._built_from = tools, problems, manifests

    def _read_source(self, manifest: Manifest) -> tuple[Source, ManifestTool]:
        """Return a manifest's tool, and everything that is wrong with it."""
        source = Source(manifest.path, manifest.text)
        fields = Fields(source, manifest.table)
        fields.raw("kind")
        tool = self.read(fields)
        fields.refuse_others()
        return source, tool

    def state(self) -> ProviderState:
        where = str(self.folder.folder)
        if self.switches.is_off(self.name):
            return ProviderState(self.name, "off", 0, where, self.switches.why_off())
        tools = self._current()
        state: State = "failing" if self._problems else "ready" if tools else "empty"
        return ProviderState(self.name, state, len(tools), where, problems=tuple(self._problems))

    def check(self) -> list[Problem]:
        """Return what is wrong with the manifests of this kind, here and now."""
        return [problem for manifest in self.folder.manifests(self.kind) for problem in self.check_manifest(manifest)]

    def check_manifest(self, manifest: Manifest) -> list[Problem]:
        """Return what is wrong with one manifest, here and now."""
        source, tool = self._read_source(manifest)
        if source.is_usable:
            tool.check(source)
        if os.name == "posix" and manifest.path.stat().st_mode & stat.S_IWOTH:
            hint = f"Run: chmod o-w {manifest.path}"
            source.complain("Everybody on this machine may change this file.", hint=hint, level="warning")
        return source.problems
