"""The user's own `mcp.json`: which servers there are, checked and ready to start."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from localmcp.config import servers_file
from localmcp.errors import ConfigurationError
from localmcp.files import PRIVATE_FILE, expand_home, reason_of, write_atomically
from localmcp.hub.client_configuration import MCP_SERVERS, TABLES, read_document, servers_in
from localmcp.masking import keys_in_path, mask_arguments, mask_urls, names_secret
from localmcp.schemas import Json

START_SECONDS, CALL_SECONDS = 30.0, 60.0
MOST_SECONDS = 999.0
"""From 1000 on a time-out is read as milliseconds, which is what other clients write."""

_STARTING_KEYS = ("command", "args", "env", "envFile", "cwd", "url", "headers", "type")
_HTTP = ("http", "streamable-http", "streamable_http", "streamablehttp")
_VARIABLE = re.compile(r"\$\{(?:env:)?([^}:]+)(?::-([^}]*))?\}")
_QUESTION = re.compile(r"\$\{input:[^}]*\}")
_ASSIGNMENT = re.compile(
    r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.-]*)[ \t]*=[ \t]*"
    r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(.*?))[ \t]*(?:[ \t]#.*)?$""",
    re.MULTILINE,
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]+")
_MOST_NAMESPACE = 24


# ---------------------------------------------------------------- one server


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server as the file describes it; nothing is expanded yet."""

    name: str
    raw: Json
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    env_file: str = ""
    """A file of `NAME=VALUE` lines, read at the start; `env` wins."""
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    disabled: bool = False
    include: tuple[str, ...] = ()
    """Patterns of the server's own tool names; none = all."""
    exclude: tuple[str, ...] = ()
    start_seconds: float = START_SECONDS
    call_seconds: float = CALL_SECONDS
    namespace: str = ""
    description: str = ""
    """What it is for, as assistants are told instead of words from its tools' names."""
    oauth: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of servers with logins: `clientId`, `clientSecret`, `callbackPort` of a registered client."""
    problem: str = ""
    """Why it cannot be used; empty when it can."""

    @property
    def digest(self) -> str:
        """32 hex digits of the keys that decide which server answers, so not of tool filters or time-outs."""
        starting_fields = {key: self.raw[key] for key in _STARTING_KEYS if key in self.raw}
        return hashlib.sha256(json.dumps(starting_fields, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def where(self) -> str:
        """The program, or the URL without what may be secret in it."""
        return mask_urls(self.url) if self.url else self.command

    @property
    def shown_args(self) -> list[str]:
        """The program's arguments without what may be secret in them."""
        return mask_arguments(self.args)

    def offers(self, tool: str) -> bool:
        """Return whether the filters let this tool of the server through."""
        from fnmatch import fnmatchcase

        included = not self.include or any(fnmatchcase(tool, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(tool, pattern) for pattern in self.exclude)


def parse_entry(name: str, raw: Any) -> ServerEntry:
    """Return the entry; a mistake becomes its `problem`, so that it does not cost the other servers."""
    if not isinstance(raw, dict):
        return ServerEntry(name, {}, problem=f"must be an object, not {type(raw).__name__}")
    raw = cast(Json, raw)
    try:
        if not name.strip():
            raise ValueError("has no name")
        return _parse(name, raw)
    except ValueError as error:
        return ServerEntry(name, raw, problem=str(error), namespace=normalise_namespace(name))


def _parse(name: str, raw: Json) -> ServerEntry:
    command, url = _text(raw, "command"), _text(raw, "url")
    _check_kind(_text(raw, "type").lower(), command, url)
    filters = _table(raw, "tools")
    return ServerEntry(
        name,
        raw,
        command="" if url else command,
        args=_texts(raw, "args"),
        env=_named_texts(raw, "env"),
        env_file=_text(raw, "envFile"),
        cwd=_text(raw, "cwd"),
        url=url,
        headers=_named_texts(raw, "headers"),
        disabled=raw.get("disabled") is True or raw.get("enabled") is False,
        include=_texts(filters, "include"),
        exclude=_texts(filters, "exclude"),
        start_seconds=_seconds(raw, "startTimeout", START_SECONDS),
        call_seconds=_seconds(raw, "timeout", CALL_SECONDS),
        namespace=normalise_namespace(_text(raw, "namespace") or name),
        description=_text(raw, "description"),
        oauth=_oauth(raw),
    )


def _check_kind(kind: str, command: str, url: str) -> None:
    if kind == "sse":
        raise ValueError("the old SSE transport is not spoken; use the server's Streamable HTTP URL with type http")
    if kind not in ("", "stdio", *_HTTP):
        raise ValueError(f"type is '{kind}', but must be stdio or http")
    if kind == "stdio" and not command:
        raise ValueError("has no command")
    if kind in _HTTP and not url:
        raise ValueError("has no url")
    if not command and not url:
        raise ValueError("has neither a command nor a url")
    if command and url:
        raise ValueError("has both a command and a url; keep one")
    if url and not url.startswith(("http://", "https://", "${")):
        raise ValueError(f"url is '{mask_urls(url)}', but must begin with http:// or https://")


def _value(raw: Json, key: str, kind: type, words: str) -> Any:
    """Return the value of a key; an empty one where it is missing or null."""
    value = raw.get(key)
    if not isinstance(value, kind | None):
        raise ValueError(f"{key} must be {words}, not {type(value).__name__}")
    return kind() if value is None else value


def _text(raw: Json, key: str) -> str:
    return _value(raw, key, str, "text").strip()


def _texts(raw: Json, key: str) -> tuple[str, ...]:
    value = raw.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
        raise ValueError(f"{key} must be a list of texts")
    return tuple(cast("list[str]", value))


def _named_texts(raw: Json, key: str) -> dict[str, str]:
    table = _table(raw, key)
    for name, value in table.items():
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            # The value may be a secret and is not repeated.
            raise ValueError(f"{key}.{name} must be text, not {type(value).__name__}")
    return {name: str(value) for name, value in table.items()}


def _table(raw: Json, key: str) -> Json:
    return _value(raw, key, dict, "an object")


def _oauth(raw: Json) -> Json:
    table = _table(raw, "oauth")
    port = table.get("callbackPort") or 0
    if type(port) is not int or not 0 <= port <= 65535:
        raise ValueError(f"oauth.callbackPort is {port!r}, but must be the number of a port")
    return table


def _seconds(raw: Json, key: str, default: float) -> float:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"{key} is {value!r}, but must be a number of seconds above 0")
    return min(value / 1000 if value > MOST_SECONDS else float(value), MOST_SECONDS)


def normalise_namespace(name: str) -> str:
    """`My Server!` -> `My_Server`: letters, digits, `-`, single `_`, 1 to 24 characters."""
    plain = _NOT_IN_NAMES.sub("_", name).strip("_-")
    if not plain or len(plain) > _MOST_NAMESPACE:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        plain = f"{plain[: _MOST_NAMESPACE - 7]}_{digest}".strip("_")
    return plain


# ---------------------------------------------------------------- ready to start


SHORTEST_SECRET = 6


@dataclass(frozen=True, slots=True)
class Launch:
    """An entry with its variables filled in. Holds secrets: it is never logged or shown."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    url: str
    headers: Mapping[str, str]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no message may repeat, the longest first."""
        parts = urlsplit(self.url)
        values = {*self.env.values(), *self.headers.values()}
        values |= {header.partition(" ")[2] for header in self.headers.values()}
        named = [pair.partition("=")[::2] for pair in parts.query.split("&")]
        for argument, following in pairwise((*self.args, "")):
            name, assigned, value = argument.partition("=")
            if name.startswith("-"):
                named.append((name, value if assigned or following.startswith("-") else following))
        quoted = [value for name, value in named if names_secret(name)]
        quoted += [parts.username or "", parts.password or "", *keys_in_path(parts.path)]
        values |= {form for value in quoted for form in (value, unquote(value))}
        return tuple(sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True))


def prepare(entry: ServerEntry) -> Launch:
    """Fill in `${VAR}`, `${env:VAR}` and `${VAR:-default}` from the environment.

    Raises:
        ConfigurationError: a variable without a default is not set, an editor would ask for it, or the file of
            variables cannot be read; names its place.
    """
    filled = partial(_filled, entry.name)
    cwd, env_file = filled("cwd", entry.cwd), filled("envFile", entry.env_file)
    url = filled("url", entry.url)
    try:
        urlsplit(url)
    except ValueError as error:
        raise ConfigurationError(
            f"The url of the MCP server '{entry.name}' is no address: {error}.", hint=f"Correct it in {servers_file()}."
        ) from error
    env = _read_env_file(entry.name, servers_file().parent / expand_home(env_file)) if env_file else {}
    return Launch(
        command=os.path.expanduser(filled("command", entry.command)),
        args=tuple(filled("args", argument) for argument in entry.args),
        env=env | {name: filled(f"env.{name}", value) for name, value in entry.env.items()},
        cwd=os.path.expanduser(cwd) if cwd else None,
        url=url,
        headers={name: filled(f"headers.{name}", value) for name, value in entry.headers.items()},
    )


def _read_env_file(server: str, path: Path) -> dict[str, str]:
    """Return the variables of a file with lines as a shell has them: quotes, comments and `export` are understood."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The MCP server '{server}' takes its variables from {path}, which cannot be read: {reason_of(error)}.",
            hint=f"Correct envFile in {servers_file()}.",
        ) from error
    return {name: _unescaped(double) + single + plain for name, double, single, plain in _ASSIGNMENT.findall(text)}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1]), text)


def _filled(server: str, key: str, text: str) -> str:
    """Return the text with its variables filled in; one that an editor would ask for is refused."""
    if question := _QUESTION.search(text):
        raise ConfigurationError(
            f"The MCP server '{server}' needs {question[0]}, which only VS Code asks for ({key} in {servers_file()}).",
            hint="Write the value into the file, or ${NAME} for a variable that is set where localmcp is started.",
        )
    return _VARIABLE.sub(lambda match: _variable(server, key, match), text)


def _variable(server: str, key: str, match: re.Match[str]) -> str:
    name, default = match[1], match[2]
    if name == "userHome":
        return str(Path.home())
    value = os.environ.get(name) or default
    if value is None:
        raise ConfigurationError(
            f"The MCP server '{server}' needs the variable {name}, which is not set ({key} in {servers_file()}).",
            hint=f"Set {name} where localmcp is started, or write the value into the file.",
        )
    return value


def entry_of(command: Sequence[str]) -> Json:
    """Return the entry of an address, or of a command and its arguments; an empty one for no words.

    A command line that names a file from here runs here: assistants run elsewhere.
    """
    if not command:
        return {}
    if len(command) == 1 and command[0].startswith(("http://", "https://")):
        return {"type": "http", "url": command[0]}
    names = [word.rpartition("=")[2] for word in command]
    is_from_here = any(name and not os.path.isabs(name) and os.path.exists(name) for name in names)
    return {"command": command[0], "args": list(command[1:]), **({"cwd": os.getcwd()} if is_from_here else {})}


def read_entries() -> list[ServerEntry]:
    """Return the servers in the user's file, by name; none when there is no file.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    path = servers_file()
    if not path.exists():
        return []
    table = servers_in(read_document(path), path)
    return [parse_entry(name, table[name]) for name in sorted(table)]


def write_entries(changes: Mapping[str, Json | None]) -> Path:
    """Set these servers (None removes one), keep everything else in the file, and return the file.

    Raises:
        ConfigurationError: the file that is there cannot be read.
    """
    path = servers_file()
    document = read_document(path) if path.exists() else {}
    table = servers_in(document, path)
    for name, entry in changes.items():
        if entry is None:
            table.pop(name, None)
        else:
            table[name] = entry
    document = {key: value for key, value in document.items() if key not in TABLES}
    document[MCP_SERVERS] = table
    if path.exists():
        # Keys of other services are in it.
        path.chmod(PRIVATE_FILE)
    write_atomically(path, f"{json.dumps(document, ensure_ascii=False, indent=2)}\n")
    return path
