"""Builds what other people install from, a `.mcpb` bundle and `server.json`: `python .ci/bundle.py` in a clone.

The bundle holds the sources and its `pyproject.toml`; the host makes an environment for it with uv at the first start,
because compiled libraries cannot be carried for every platform in one file.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from localmcp.config import describe_settings
from localmcp.errors import ConfigurationError, InvalidInput
from localmcp.schemas import Json
from localmcp.version import __version__

MANIFEST_VERSION = "0.4"
"""The first version that knows the server type `uv`."""
SERVER_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
MOST_DESCRIPTION = 100
"""Characters that the registry takes."""
OWNER = "localmcp"
SHORT = "Your documents in one SQLite file, searched by meaning and by word. Offline."

FILES = ("pyproject.toml", "README.md", "LICENSE")
FOLDERS = ("localmcp", "sample_data")
PICTURES = "sample_data/pictures/"
"""Only the README on the web shows them."""
_UNWANTED = ("__pycache__", ".pyc", ".localmcp", "-wal", "-shm", ".DS_Store")
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that the same sources make the same bundle."""


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python .ci/bundle.py", description="Build the bundle and server.json.")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder to write to (dist)")
    parser.add_argument("--owner", default=OWNER, help="GitHub account under which the registry lists it")
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1], help="the clone")
    parser.add_argument("--url", help="where the bundle can be downloaded; puts it into server.json")
    options = parser.parse_args(arguments)
    for path in build(options.out, source=options.source, owner=options.owner, url=options.url):
        print(f"{path}  {path.stat().st_size:,} bytes")


def build(out: Path, *, source: Path, owner: str = OWNER, url: str | None = None) -> list[Path]:
    """Write `localmcp-VERSION.mcpb` and `server.json` into `out`, and return both.

    Raises:
        ConfigurationError: `source` is no clone of this project.
        InvalidInput: an owner that GitHub would not have.
    """
    if not owner.replace("-", "").isalnum() or not owner.isascii():
        raise InvalidInput(f"owner is {owner!r}, but must be letters, digits and hyphens.")
    if not all((source / name).exists() for name in (*FILES, *FOLDERS)):
        raise ConfigurationError(f"{source} is no clone of localmcp.", hint="Name one with --source.")
    out.mkdir(parents=True, exist_ok=True)
    bundle = out / f"localmcp-{__version__}.mcpb"
    bundle.write_bytes(pack(source))
    server = out / "server.json"
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    server.write_text(_json(describe_server(owner, url, digest)), encoding="utf-8")
    return [bundle, server]


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def pack(source: Path) -> bytes:
    """Return the bundle: a zip of the manifest and the sources, the same bytes for the same sources."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _put(archive, "manifest.json", _json(make_manifest(source)).encode())
        for name, path in bundled_files(source):
            _put(archive, name, path.read_bytes())
    return buffer.getvalue()


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    # The same on every system, so that the same sources make the same bundle.
    entry.create_system = 3
    archive.writestr(entry, data)


def bundled_files(source: Path) -> Iterator[tuple[str, Path]]:
    """Yield name in the bundle and file, by name, without what running and testing leaves behind."""
    yield from ((name, source / name) for name in FILES)
    for folder in FOLDERS:
        paths = {path.relative_to(source).as_posix(): path for path in (source / folder).rglob("*") if path.is_file()}
        for name in sorted(paths):
            left_by_work = any(part.endswith(_UNWANTED) for part in name.split("/"))
            if not left_by_work and not name.startswith(PICTURES):
                yield name, paths[name]


def make_manifest(source: Path) -> Json:
    """Return the bundle's manifest (MCPB specification, manifest version 0.4)."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "manifest_version": MANIFEST_VERSION,
        "name": project["name"],
        "display_name": "localmcp",
        "version": __version__,
        "description": SHORT,
        "long_description": project["description"],
        "author": {"name": "The localmcp developers"},
        "license": project["license"],
        "keywords": project["keywords"],
        "server": {
            "type": "uv",
            "entry_point": "localmcp/__main__.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "--no-dev", "-m", "localmcp", "serve"],
                "env": {
                    "PYTHONUTF8": "1",
                    "LOCALMCP_DB": "${user_config.database}",
                    "LOCALMCP_FOLDERS": "${user_config.folder}",
                },
            },
        },
        "tools": visible_tools(),
        "tools_generated": True,
        "compatibility": {
            "platforms": ["darwin", "win32", "linux"],
            "runtimes": {"python": project["requires-python"]},
        },
        "user_config": {
            "database": {
                "type": "string",
                "title": "File",
                "description": "The one SQLite file with your documents; empty = the usual place.",
                "required": False,
                "default": "",
            },
            # Without a default: a host leaves the placeholder as it is, and the settings read that as unset.
            "folder": {
                "type": "directory",
                "title": "Folder of documents",
                "description": "A folder that the assistant may add documents from.",
                "required": False,
            },
        },
    }


def visible_tools() -> list[Json]:
    """Return name and first sentence of the tools that a client lists."""
    from localmcp.config import Settings
    from localmcp.workspace import Workspace

    # Making a workspace opens no file.
    tools = Workspace(Settings()).registry.visible()
    return [{"name": tool.name, "description": _first_sentence(tool.description)} for tool in tools]


def _first_sentence(text: str) -> str:
    line = " ".join(text.split())
    stop = line.find(". ")
    return line if stop < 0 else line[: stop + 1]


def describe_server(owner: str, url: str | None, digest: str) -> Json:
    """`server.json` for the MCP registry: the package on PyPI, and the bundle where it can be downloaded."""
    packages: list[Json] = [
        {
            "registryType": "pypi",
            "identifier": "localmcp",
            "version": __version__,
            "runtimeHint": "uvx",
            "transport": {"type": "stdio"},
            "packageArguments": [{"type": "positional", "value": "serve"}],
            "environmentVariables": [_variable(setting) for setting in describe_settings()],
        }
    ]
    if url is not None:
        bundle = {"registryType": "mcpb", "identifier": url, "version": __version__, "fileSha256": digest}
        packages.append({**bundle, "transport": {"type": "stdio"}})
    return {
        "$schema": SERVER_SCHEMA,
        "name": f"io.github.{owner}/localmcp",
        "title": "localmcp",
        "description": SHORT[:MOST_DESCRIPTION],
        "version": __version__,
        "packages": packages,
    }


def _variable(setting: Json) -> Json:
    return {"name": setting["env"], "description": setting["says"], "isSecret": setting["secret"]}


if __name__ == "__main__":
    main()
