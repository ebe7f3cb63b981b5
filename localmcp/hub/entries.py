"""The user's own `mcp.json`: which servers there are, checked and ready to start."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from localmcp.config import servers_file
from localmcp.errors import ConfigurationError, InvalidInput, Unavailable
from localmcp.files import PRIVATE_FILE, write_atomically
from localmcp.hub.client_configuration import MCP_SERVERS, TABLES, is_localmcp, read_document, servers_in
from localmcp.humanize import choices, command_line
from localmcp.masking import MASK, TOKEN_IN_PATH, mask_arguments, mask_urls, names_secret
from localmcp.schemas import Json, did_you_mean

_HTTP = ("http", "streamable-http", "streamable_http", "streamablehttp")
_MOST_NAMESPACE = 24


class SessionLost(Unavailable):
    """A new connection can repeat the request, which the server has refused without reading it."""


class LoginNeeded(Unavailable):
    """The person has to sign in, for the first time or again."""

    def __init__(self, server: str) -> None:
        super().__init__(
            f"The MCP server '{server}' asks you to sign in (HTTP 401).",
            hint=f"Sign in with: {command_line('localmcp', 'servers', 'login', server)}",
        )


class _Part(BaseModel):
    # The values may be secrets, so no message repeats them.
    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True, hide_input_in_errors=True)


class ToolFilter(_Part):
    """Patterns of the server's own tool names."""

    include: list[str] = []
    """None = all."""
    exclude: list[str] = []


class OAuthClient(_Part):
    """A client that the person has registered with the service."""

    clientId: str = ""
    clientSecret: str = ""
    callbackPort: int = Field(default=0, ge=0, le=65535)


# From 1000 on a time-out is read as milliseconds, which is what other clients write.
Seconds = Annotated[
    float, Field(gt=0), AfterValidator(lambda value: min(value / 1000 if value > 999.0 else value, 999.0))
]


class ServerEntry(_Part):
    """One server as the file describes it; nothing is expanded yet. Fields are named as in the file."""

    name: str = Field(min_length=1)
    raw: Json
    namespace: str
    type: str = ""
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    disabled: bool = False
    enabled: bool = True
    tools: ToolFilter = ToolFilter()
    startTimeout: Seconds = 30.0
    timeout: Seconds = 60.0
    """Of one call."""
    description: str = ""
    """What it is for, as assistants are told instead of words from its tools' names."""
    oauth: OAuthClient = OAuthClient()
    problem: str = ""
    """Why it cannot be used; empty when it can."""

    @model_validator(mode="after")
    def _check_kind(self) -> ServerEntry:
        kind = self.type.lower()
        if kind == "sse":
            raise ValueError("the old SSE transport is not spoken; use the server's Streamable HTTP URL with type http")
        if kind not in ("", "stdio", *_HTTP):
            raise ValueError(f"type is '{kind}', but must be stdio or http")
        if not (self.url if kind in _HTTP else self.command if kind else self.command or self.url):
            raise ValueError(f"no {'url' if kind in _HTTP else 'command' if kind else 'command or url'} is given")
        if self.command and self.url:
            raise ValueError("both a command and a url are given; keep one")
        if self.url and not self.url.startswith(("http://", "https://", "${")):
            raise ValueError(f"url is '{mask_urls(self.url)}', but must begin with http:// or https://")
        if self.raw.get("envFile"):
            raise ValueError("envFile is not read; write its variables into env")
        return self

    @property
    def is_off(self) -> bool:
        """Whether the person has switched it off."""
        return self.disabled or not self.enabled

    @property
    def digest(self) -> str:
        """32 hex digits of the keys that decide which server answers, so not of tool filters or time-outs."""
        keys = ("command", "args", "env", "cwd", "url", "headers", "type")
        starting_fields = {key: self.raw[key] for key in keys if key in self.raw}
        return hashlib.sha256(json.dumps(starting_fields, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def approval(self) -> str:
        """The command with which the person accepts what it has changed."""
        return command_line("localmcp", "servers", "approve", self.name)

    @property
    def where(self) -> str:
        """The program, or the URL without what may be secret in it."""
        return mask_urls(self.url) if self.url else self.command

    @property
    def shown_args(self) -> list[str]:
        """The program's arguments without what may be secret in them."""
        return mask_arguments(self.args)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no message may repeat, the longest first; of an entry whose variables are filled in."""
        parts = urlsplit(self.url)
        values = {*self.env.values(), *self.headers.values()}
        values |= {header.partition(" ")[2] for header in self.headers.values()}
        query = [pair.partition("=")[::2] for pair in parts.query.split("&")]
        quoted = [value for name, value in query if names_secret(name)]
        for argument, shown in zip(self.args, mask_arguments(self.args, filled_in=True), strict=True):
            if shown.endswith(MASK):
                quoted.append(argument.removeprefix(shown.removesuffix(MASK)))
        quoted += [parts.username or "", parts.password or "", *TOKEN_IN_PATH.findall(parts.path)]
        values |= {form for value in quoted for form in (value, unquote(value))}
        return tuple(sorted((value for value in values if len(value) >= 6), key=len, reverse=True))

    def offers(self, tool: str) -> bool:
        """Return whether the filters let this tool of the server through."""
        included = not self.tools.include or any(fnmatchcase(tool, pattern) for pattern in self.tools.include)
        return included and not any(fnmatchcase(tool, pattern) for pattern in self.tools.exclude)


def parse_entry(name: str, raw: Any) -> ServerEntry:
    """Return the entry; a mistake becomes its `problem`, so that it does not cost the other servers."""
    if not isinstance(raw, dict):
        problem = f"it must be an object, not {type(raw).__name__}"
        return ServerEntry.model_construct(name=name, raw={}, namespace=normalize_namespace(name), problem=problem)
    raw = cast(Json, raw)
    own: Json = {"name": name, "raw": raw, "namespace": normalize_namespace(str(raw.get("namespace") or name))}
    try:
        fields = {key: value for key, value in raw.items() if value is not None and key != "problem"}
        return ServerEntry.model_validate({**fields, **own})
    except ValidationError as error:
        slip = error.errors(include_input=False, include_url=False)[0]
        place, message = ".".join(map(str, slip["loc"])), slip["msg"].removeprefix("Value error, ")
        return ServerEntry.model_construct(**own, problem=f"{place}: {message}" if place else message)


def normalize_namespace(name: str) -> str:
    """`My Server!` -> `My_Server`: letters, digits, `-`, single `_`, 1 to 24 characters."""
    plain = re.sub(r"[^A-Za-z0-9-]+", "_", name).strip("_-")
    if not plain or len(plain) > _MOST_NAMESPACE:
        plain = f"{plain[: _MOST_NAMESPACE - 7]}_{short_digest(name)}".strip("_")
    return plain


def short_digest(name: str) -> str:
    """Return six hex digits that tell names apart."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]


def entry_of(command: Sequence[str]) -> Json:
    """Return the entry of an address, or of a command and its arguments; an empty one for no words."""
    if not command:
        return {}
    if len(command) == 1 and "://" in command[0]:
        return {"type": "http", "url": command[0]}
    # A command line that names a file from here runs here: assistants run elsewhere.
    names = [word.rpartition("=")[2] for word in command]
    is_from_here = any(name and not os.path.isabs(name) and os.path.exists(name) for name in names)
    return {"command": command[0], "args": list(command[1:]), **({"cwd": os.getcwd()} if is_from_here else {})}


def prepare(entry: ServerEntry) -> ServerEntry:
    """Return the entry with `${VAR}`, `${env:VAR}` and `${VAR:-default}` filled in from the environment.

    It holds secrets, and is never logged or shown. Raises ConfigurationError, naming the place, for a variable without
    a default that is not set, or a bad url.
    """

    def filled(key: str, text: str) -> str:
        def value_of(match: re.Match[str]) -> str:
            name, default = match[1], match[2]
            value = str(Path.home()) if name == "userHome" else os.environ.get(name) or default
            if value is None:
                # So does `${input:token}`, for which only VS Code asks the person.
                place = f"{key} in {servers_file()}"
                raise ConfigurationError(
                    f"The MCP server '{entry.name}' needs the variable {name}, which is not set ({place}).",
                    hint="Set it where localmcp is started, or write the value into the file.",
                )
            return value

        return re.sub(r"\$\{(?:env:)?([^}]*?)(?::-([^}]*))?\}", value_of, text)

    values: Json = {
        "command": os.path.expanduser(filled("command", entry.command)),
        "args": [filled("args", argument) for argument in entry.args],
        "env": {name: filled(f"env.{name}", value) for name, value in entry.env.items()},
        "cwd": os.path.expanduser(filled("cwd", entry.cwd)),
        "url": filled("url", entry.url),
        "headers": {name: filled(f"headers.{name}", value) for name, value in entry.headers.items()},
    }
    try:
        urlsplit(values["url"])
    except ValueError as error:
        raise ConfigurationError(
            f"The url of the MCP server '{entry.name}' is no address: {error}.", hint=f"Correct it in {servers_file()}."
        ) from error
    return entry.model_copy(update=values)


def read_entries() -> list[ServerEntry]:
    """Return the servers in the user's file, by name, no two with one namespace; raises as `read_document`."""
    path = servers_file()
    if not path.exists():
        return []
    parsed = [parse_entry(name, raw) for name, raw in servers_in(read_document(path), path).items()]
    entries: dict[str, ServerEntry] = {}
    # Of several with one namespace, the one whose name it is keeps it, and the others get a digest.
    for entry in sorted(parsed, key=lambda entry: (entry.namespace != entry.name, entry.name)):
        namespace = entry.namespace
        if namespace in entries:
            namespace = f"{namespace[:17]}_{short_digest(entry.name)}"
        entries[namespace] = entry.model_copy(update={"namespace": namespace})
    return sorted(entries.values(), key=lambda entry: entry.name)


def write_entries(changes: Mapping[str, Json | None]) -> Path:
    """Set these servers (None removes one) in the user's file, and return the file; raises as `read_document`."""
    path = servers_file()
    document = read_document(path) if path.exists() else {}
    changed = {**servers_in(document, path), **changes}
    document = {key: value for key, value in document.items() if key not in TABLES}
    document[MCP_SERVERS] = {name: entry for name, entry in changed.items() if entry is not None}
    if path.exists():
        # Keys of other services are in it.
        path.chmod(PRIVATE_FILE)
    write_atomically(path, f"{json.dumps(document, ensure_ascii=False, indent=2)}\n")
    return path


def take_over(
    theirs: dict[Path, Json], names: Collection[str] = (), *, replace: bool = False, dry_run: bool = False
) -> Json:
    """Write servers of other files (file -> its servers) into the user's, and return what was done.

    Of servers with the same name, the first file's counts. Raises InvalidInput if `names` has a server that they do not
    have, ConfigurationError if the user's file cannot be read.
    """
    ours = {entry.name: entry.raw for entry in read_entries()}
    merged = {name: entry for table in reversed(theirs.values()) for name, entry in table.items()}
    for name in names:
        if name not in merged:
            raise InvalidInput(f"No server there is called '{name}'.", hint=did_you_mean(name, merged, choices(merged)))

    def plan(name: str, entry: Any, own: Any) -> tuple[str, str | None]:
        if problem := parse_entry(name, entry).problem:
            return "skipped", problem
        if is_localmcp(entry):
            return "skipped", "it is localmcp itself"
        if own is None or own == entry:
            return ("added", None) if own is None else ("unchanged", "it is here already")
        return ("replaced", "yours was another") if replace else ("kept", "yours is another; --replace takes theirs")

    planned = {name: plan(name, merged[name], ours.get(name)) for name in sorted(names or merged)}
    changes = {name: merged[name] for name, (action, _) in planned.items() if action in ("added", "replaced")}
    if changes and not dry_run:
        write_entries(changes)
    return {
        "from": [str(path) for path in theirs],
        "file": str(servers_file()),
        "dryRun": dry_run,
        "changed": len(changes),
        "servers": [{"name": name, "action": action, "why": why} for name, (action, why) in planned.items()],
    }
