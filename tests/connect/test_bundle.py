"""What other people install from: the `.mcpb` bundle and `server.json`, as the official tools want them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from localmcp import __version__
from localmcp.connect.configuration import ask_for_tools

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / ".ci"))

from bundle import main  # noqa: E402


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the one command writes."""
    out = tmp_path_factory.mktemp("bundle") / "dist"
    main(["--out", str(out), "--owner", "someone", "--url", "https://example.org/localmcp.mcpb"])
    return out


@pytest.fixture(scope="module")
def unpacked(dist: Path) -> Path:
    folder = dist.parent / "unpacked"
    with zipfile.ZipFile(dist / f"localmcp-{__version__}.mcpb") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def manifest(unpacked: Path) -> dict[str, Any]:
    return json.loads((unpacked / "manifest.json").read_text(encoding="utf-8"))


def test_one_command_writes_both(dist: Path) -> None:
    assert sorted(each.name for each in dist.iterdir()) == [f"localmcp-{__version__}.mcpb", "server.json"]
    # Most of it are the vectors that tools and rules are ranked by; a model or a library would be far larger.
    assert (dist / f"localmcp-{__version__}.mcpb").stat().st_size < 8_000_000


def test_the_server_file_is_as_the_registry_wants_it(dist: Path) -> None:
    """The rules of its schema of 2025-12-11 for the fields that our file has."""
    server = json.loads((dist / "server.json").read_text(encoding="utf-8"))
    assert set(server) <= {"$schema", "name", "title", "description", "version", "packages"}
    assert server["$schema"] == "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
    assert server["name"] == "io.github.someone/localmcp" and 0 < len(server["description"]) <= 100
    pypi, bundle = server["packages"]
    assert (pypi["registryType"], bundle["registryType"], pypi["runtimeHint"]) == ("pypi", "mcpb", "uvx")
    assert {server["version"], pypi["version"], bundle["version"]} == {__version__}
    assert pypi["transport"] == bundle["transport"] == {"type": "stdio"}
    assert all(word["type"] == "positional" and word["value"] for word in pypi["packageArguments"])
    packed = (dist / f"localmcp-{__version__}.mcpb").read_bytes()
    assert bundle["fileSha256"] == hashlib.sha256(packed).hexdigest()
    variables = pypi["environmentVariables"]
    assert all(set(each) <= {"name", "description", "isSecret"} and each["description"] for each in variables)
    secret = {each["name"] for each in variables if each["isSecret"]}
    assert {"LOCALMCP_MODEL_API_KEY", "MILVUS_PASSWORD"} <= secret and "LOCALMCP_DB" not in secret


def test_the_manifest_agrees_with_the_project(manifest: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (manifest["name"], manifest["version"]) == (project["name"], __version__)
    assert manifest["compatibility"]["runtimes"]["python"] == project["requires-python"]
    assert manifest["server"]["type"] == "uv" and manifest["manifest_version"] == "0.4"
    fields = manifest["user_config"]
    used = {value for value in manifest["server"]["mcp_config"]["env"].values() if value.startswith("${")}
    assert used == {f"${{user_config.{name}}}" for name in fields}


def test_the_bundle_holds_what_is_needed_and_nothing_of_this_machine(unpacked: Path) -> None:
    names = {each.relative_to(unpacked).as_posix() for each in unpacked.rglob("*") if each.is_file()}
    assert {"manifest.json", "pyproject.toml", "README.md", "LICENSE", "localmcp/data/LICENSE-model"} <= names
    assert "localmcp/data/tokenizer.json" in names and "sample_data/documents/welcome.md" in names
    assert not [each for each in names if "__pycache__" in each or each.endswith((".localmcp", ".pyc"))]
    machine = str(Path.home()).encode()
    texts = [unpacked / each for each in names if each.endswith((".json", ".toml", ".py"))]
    assert not [each for each in texts if machine != b"/" and machine in each.read_bytes()]


def test_what_was_unpacked_serves_the_tools_that_the_manifest_names(unpacked: Path, manifest: dict[str, Any]) -> None:
    """The host's own environment stands for the one that uv would make."""
    words = manifest["server"]["mcp_config"]["args"]
    own = {name: os.environ[name] for name in os.environ if name.startswith("LOCALMCP_")}
    entry = {
        "command": sys.executable,
        "args": words[words.index("-m") :],
        "env": {"PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1", **own},
    }
    assert ask_for_tools("localmcp", entry) == [each["name"] for each in manifest["tools"]]
