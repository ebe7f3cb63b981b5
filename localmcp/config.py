"""Every path, environment variable and setting; an empty variable counts as unset.

A value comes from the command line, else the environment, else `config.toml`, else its default.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import platformdirs

from localmcp.errors import ConfigurationError
from localmcp.files import expand_home, write_atomically

log = logging.getLogger(__name__)

APP = "localmcp"
SUFFIX = ".localmcp"
"""The usual ending of a database file."""


def config_directory() -> Path:
    """Return where `config.toml` and the user's tool manifests live."""
    return _override("LOCALMCP_CONFIG_DIR") or platformdirs.user_config_path(APP, appauthor=False)


def state_directory() -> Path:
    """Return where this machine remembers mounts and the files it has adopted."""
    return _override("LOCALMCP_STATE_DIR") or platformdirs.user_state_path(APP, appauthor=False)


def cache_directory() -> Path:
    """Return where downloaded models and catalogs are kept; may be deleted at any time."""
    return _override("LOCALMCP_CACHE_DIR") or platformdirs.user_cache_path(APP, appauthor=False)


def models_directory() -> Path:
    """Return where models that the person downloaded are kept."""
    return cache_directory() / "models"


def config_file() -> Path:
    """Return the user's settings, TOML."""
    return config_directory() / "config.toml"


def servers_file() -> Path:
    """Return the user's other MCP servers, JSON with the table `mcpServers`."""
    return config_directory() / "mcp.json"


def default_database() -> Path:
    """Return the file that is opened when none is named."""
    directory = _override("LOCALMCP_DATA_DIR") or platformdirs.user_data_path(APP, appauthor=False)
    return directory / f"main{SUFFIX}"


def packaged_data() -> Path:
    """Return the folder of the data files that ship with the package."""
    return Path(str(files("localmcp"))) / "data"


def sample_directory() -> Path:
    """Return the sample documents, installed or of a checkout; raises ConfigurationError if they were removed."""
    package = Path(str(files("localmcp")))
    for place in (package / "sample_data", package.parent / "sample_data"):
        if (place / "documents").is_dir():
            return place
    raise ConfigurationError("The sample documents are not installed.", hint="Reinstall localmcp.")


def _override(variable: str) -> Path | None:
    value = read_variable(variable)
    return expand_home(value).absolute() if value else None


def read_variable(name: str) -> str | None:
    """Return the variable's value; an empty one, or a placeholder that a client left unfilled, counts as unset."""
    value = os.environ.get(name, "").strip()
    return None if not value or value.startswith("${") else value


def _setting(
    default: Any, says: str, *, env: str = "", choices: tuple[str, ...] = (), secret: bool = False,
    between: tuple[float, float] | None = None, items: tuple[str, str] | None = None,
) -> Any:  # fmt: skip
    # Its default, what it decides, its variable if that has another name, what is accepted.
    metadata = {"env": env, "says": says, "choices": choices, "between": between, "items": items, "secret": secret}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata, repr=not secret)


_HOSTS = (r"[a-z0-9._-]*|[0-9a-f.]*:[0-9a-f.]*:[0-9a-f.:]*", "names or addresses without a port, as desk.lan,10.0.0.2")
_ORIGINS = (r"([a-z][a-z0-9+.-]*://[^/\s@?#]+/?)?", "origins of web pages without a path, as https://desk.lan:8443")
_MILVUS_FIELDS = (r"([^,=]+\.(text|vector|metadata)=\w+)?", "COLLECTION.text=NAME, .vector= or .metadata=, with commas")
"""(pattern of one of the items between commas, what is accepted)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. Field names are the keys of `config.toml`."""

    database: Path = _setting(default_database, "The one SQLite file.", env="LOCALMCP_DB")
    model: str = _setting(
        "default",
        "Embedding model: default, multilingual, bge-small-en-v1.5, two of them as default+NAME, hash,"
        " fastembed:NAME, folder:PATH, ollama:NAME, openai:NAME, URL#NAME.",
    )
    model_api_key: str = _setting("", "Key for an embedding endpoint; never logged.", secret=True)
    language_model: str = _setting("", "Model that helps `ask`: ollama:MODEL, openai:MODEL or URL#MODEL; empty = none.")
    language_model_key: str = _setting("", "Key for the language model's endpoint; never logged.", secret=True)
    collection: str = _setting("default", "Where documents go when none is named.")
    semantic_weight: float | None = _setting(
        None,
        "Weight of meaning in hybrid search; words get the rest. Not set: 0.7 at first, then what was measured for each"
        " kind of text.",
        between=(0, 1),
    )
    rules_max_results: int = _setting(
        5, "Rules returned at most.", env="SIMILARITY_SEARCH_MAX_RESULTS", between=(1, 100)
    )
    rules_threshold: float = _setting(
        0.7,
        "Relevance from which a rule is returned; 0.7 = clearly relevant.",
        env="SIMILARITY_SEARCH_THRESHOLD",
        between=(-1, 1),
    )
    folders: tuple[Path, ...] = _setting((), "Folders an assistant may add files from, besides those you added.")
    max_file_mb: int = _setting(50, "Larger files are skipped.", between=(1, 2000))
    refresh_seconds: int = _setting(
        60, "How often an idle server looks at the added folders; 0 = never.", between=(0, 86400)
    )
    trash_days: int = _setting(30, "Days that removed documents are kept.", between=(0, 3650))
    milvus_address: str = _setting(
        "", "Milvus for collections that outgrow this machine: http(s)://HOST:PORT, or a Milvus Lite file.db."
    )
    milvus_username: str = _setting("", "User of the Milvus server.")
    milvus_password: str = _setting("", "Password of that user, or a token without one; never logged.", secret=True)
    milvus_database: str = _setting("", "Database on the server; empty = its default.")
    milvus_fields: str = _setting(
        "",
        "Fields of collections of other programs: docs.text=body,docs.vector=emb,docs.metadata=extra.",
        items=_MILVUS_FIELDS,
    )
    http_port: int = _setting(8080, "Port of `serve --http`.", between=(0, 65535))
    http_hosts: str = _setting("", "Further names of this machine that requests may use, with commas.", items=_HOSTS)
    http_origins: str = _setting(
        "", "Web pages, besides this machine's own, that may call: https://NAME, ...", items=_ORIGINS
    )
    show_all_tools: bool = _setting(False, "List the discoverable tools too.")
    theme: str = _setting("localmcp", "Colors of the TUI; `terminal` takes those of your terminal.")
    log_level: str = _setting("warning", "Messages on stderr.", choices=("debug", "info", "warning", "error"))
    log_calls: str = _setting(
        "all",
        "Calls kept in the file (localmcp log): with what was asked, secrets masked, at most 2 kB a call; only the"
        " names of the tools; or none.",
        choices=("all", "names", "none"),
    )


_FIELDS = {f.name: f for f in fields(Settings)}
_VARIABLES: dict[str, str] = {
    name: f.metadata["env"] or (name.upper() if name.startswith("milvus_") else f"LOCALMCP_{name.upper()}")
    for name, f in _FIELDS.items()
}
_REMOTE_MODEL = (
    "%s=%s names a model of OpenAI and is ignored: nothing leaves this machine unasked. "
    "To use it: localmcp config set model openai:%s. To end this message, unset the variable."
)


def describe_settings() -> list[dict[str, Any]]:
    """Return each setting: its `name`, `env`, `default`, what it `says`, whether it is `secret`, what is accepted."""
    defaults = Settings()
    return [
        {**f.metadata, "name": name, "env": _VARIABLES[name], "default": getattr(defaults, name)}
        for name, f in _FIELDS.items()
    ]


def shown_value(name: str, value: Any) -> Any:
    """Return a value as JSON; a secret, and the credentials of an address, are not shown."""
    if _FIELDS[name].metadata["secret"]:
        return "(set)" if value else ""
    return re.sub(r"(?<=://)[^/@]+(?=@)", "(hidden)", value) if isinstance(value, str) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [str(item) for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return "" if value is None else str(value) if isinstance(value, Path) else value


def origin_of(name: str) -> str:
    """Return where a value comes from, besides the command line: its variable, `config.toml`, or `default`."""
    variable, _ = _from_environment(name, says=False)
    return variable or ("config.toml" if name in read_config_file() else "default")


def _from_environment(name: str, *, says: bool = True) -> tuple[str, str]:
    variable = _VARIABLES[name]
    value = read_variable(variable)
    if value is None and name == "model":
        # S2-9: the original's variable chooses the model too, unless it holds the original's remote default.
        variable = "SIMILARITY_SEARCH_MODEL"
        value = read_variable(variable)
        if value == "text-embedding-3-small":
            if says:
                log.warning(_REMOTE_MODEL, variable, value, value)
            value = None
    return ("", "") if value is None else (variable, value)


def load_settings(**overrides: Any) -> Settings:
    """Return the settings in force; `overrides` are the command line's, None = not given. Raises as `parse_setting`."""
    where = str(config_file())
    values = {name: parse_setting(name, raw, where) for name, raw in read_config_file().items()}
    for name in _FIELDS:
        variable, raw = _from_environment(name)
        if variable:
            values[name] = parse_setting(name, raw, f"the variable {variable}")
    for name, raw in overrides.items():
        if raw is not None:
            values[name] = parse_setting(name, raw, "the command line")
    return replace(Settings(), **values)


def read_config_file() -> Mapping[str, Any]:
    """Return the table of `config.toml`, empty without one; raises ConfigurationError with the line of a mistake."""
    path = config_file()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}.", hint="Fix or remove the file.") from error


def setting_text(value: Any) -> str:
    """Return the value of a setting as a person writes it; "" for an empty list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str(value)  # pyright: ignore[reportUnknownArgumentType]


def write_setting(name: str, raw: str | None) -> Path:
    """Set a key of `config.toml`, or remove it for None, and keep its comments; raises as `parse_setting`."""
    import tomlkit
    from tomlkit import TOMLDocument

    path = config_file()
    # Reading it first refuses a broken file with its line.
    present = read_config_file()
    if raw is not None or name not in present:  # a wrong key that is in the file can be removed
        check_name(name)
    if raw is None and name not in present:
        return path
    document: TOMLDocument = tomlkit.parse(path.read_text(encoding="utf-8-sig")) if path.exists() else TOMLDocument()
    if raw is None:
        del document[name]
    else:
        document[name] = _plain(parse_setting(name, raw, "the command line"))
    write_atomically(path, tomlkit.dumps(document))
    return path


def check_name(name: str, where: str = "") -> None:
    """Raise ConfigurationError, which names the nearest, unless there is a setting of that name."""
    if name in _FIELDS:
        return
    import difflib

    near = difflib.get_close_matches(name, _FIELDS, 1)
    hint = f"Did you mean '{near[0]}'?" if near else f"Known settings: {', '.join(_FIELDS)}."
    if where == str(config_file()):
        hint += f"\nTo remove it: localmcp config unset {shlex.quote(name)}"
    raise ConfigurationError(f"Unknown setting '{name}'{f' in {where}' if where else ''}.", hint=hint)


def parse_setting(name: str, raw: Any, where: str) -> Any:
    """Return `raw` (text, or a TOML value) as the type of a setting; ConfigurationError says what is accepted."""
    check_name(name, where)
    spec = _FIELDS[name]
    choices, between, items = spec.metadata["choices"], spec.metadata["between"], spec.metadata["items"]
    try:
        value: Any = _parsed(str(spec.type), raw)
        if choices and value not in choices:
            raise ValueError(f"it must be one of {', '.join(choices)}")
        if between is not None and not between[0] <= value <= between[1]:
            raise ValueError(f"it must be between {between[0]} and {between[1]}")
        if items and not re.fullmatch(rf"\s*({items[0]})\s*(,\s*({items[0]})\s*)*", value, re.IGNORECASE):
            raise ValueError(f"it must be {items[1]}")
    except (TypeError, ValueError) as error:
        shown = "(hidden)" if spec.metadata["secret"] else repr(raw)
        raise ConfigurationError(f"{name} = {shown} in {where} cannot be used: {error}.") from error
    return value


_BOOLEANS = {**dict.fromkeys(("true", "1", "yes", "on"), True), **dict.fromkeys(("false", "0", "no", "off"), False)}
_NOUNS = {"str": "text", "Path": "a path", "bool": "true or false", "int": "a whole number"}


def _parsed(kind: str, raw: Any) -> Any:
    if kind == "tuple[Path, ...]":
        parts = [part for part in raw.split(os.pathsep) if part] if isinstance(raw, str) else raw
        return tuple(_parsed("Path", part) for part in parts)
    if kind.startswith(("int", "float")):
        with suppress(ValueError, OverflowError):
            number = int(raw) if kind == "int" else float(raw)
            if not isinstance(raw, bool) and (isinstance(raw, str) or number == raw):
                return number
    if kind == "Path" and isinstance(raw, str | Path) and str(raw):
        return expand_home(raw).absolute()
    if kind == "bool" and str(raw).lower() in _BOOLEANS:
        return _BOOLEANS[str(raw).lower()]
    if kind == "str" and isinstance(raw, str):
        return raw
    raise ValueError(f"it must be {_NOUNS.get(kind, 'a number')}")
