"""Models without a network: in one file, checked before anything is written, tried, and offered when it matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from folders import write

from localmcp import config
from localmcp.errors import UnreadableDocument
from localmcp.models.model_archive import unpack_archive, write_archive

FAKE = "models--qdrant--bge-small-en-v1.5-onnx-q"
SPEC = "fastembed:BAAI/bge-small-en-v1.5"


@pytest.fixture
def models(own_directories: Path) -> Path:
    """A folder of models with one that was fetched; its weights are only bytes, which no test loads."""
    folder = config.models_directory() / FAKE
    blob = write(folder / "blobs" / "abc", "weights")
    snapshot = folder / "snapshots" / "1234"
    snapshot.mkdir(parents=True)
    try:
        (snapshot / "model.onnx").symlink_to(os.path.relpath(blob, snapshot))
    except OSError:
        write(snapshot / "model.onnx", "weights")
    write(snapshot / "tokenizer.json", "{}")
    write(folder / "refs" / "main", "1234")
    return config.models_directory()


# ---------------------------------------------------------------- out and in


def test_a_model_travels_in_one_file_with_links_as_files(models: Path, tmp_path: Path) -> None:
    archive = write_archive(SPEC, tmp_path / "bge.zip", models)
    assert set(archive.files) == {"snapshots/1234/model.onnx", "snapshots/1234/tokenizer.json", "refs/main"}
    unpack_archive(tmp_path / "bge.zip", tmp_path / "other")
    there = tmp_path / "other" / archive.folder
    assert (there / "snapshots" / "1234" / "model.onnx").read_text() == "weights"
    assert not (there / "snapshots" / "1234" / "model.onnx").is_symlink()
    assert [each.name for each in (tmp_path / "other").iterdir()] == [archive.folder]


def test_a_model_whose_files_have_no_time_travels_too(models: Path, tmp_path: Path) -> None:
    for path in models.rglob("*.json"):
        os.utime(path, (0, 0))
    archive = write_archive(SPEC, tmp_path / "bge.zip", models)
    assert unpack_archive(tmp_path / "bge.zip", tmp_path / "other") == archive


def test_a_compressed_archive_that_is_damaged_is_said_to_be(models: Path, tmp_path: Path) -> None:
    write_archive(SPEC, tmp_path / "bge.zip", models)
    with zipfile.ZipFile(tmp_path / "bge.zip") as whole, zipfile.ZipFile(tmp_path / "b.zip", "w", 8) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    data = bytearray((tmp_path / "b.zip").read_bytes())
    start = data.index(b"model.onnx", data.index(b"PK\x03\x04", 4)) + len("model.onnx")
    data[start : start + 4] = b"\xff" * 4
    (tmp_path / "b.zip").write_bytes(data)
    with pytest.raises(UnreadableDocument, match="is damaged"):
        unpack_archive(tmp_path / "b.zip", tmp_path / "other")


def test_models_that_have_no_files_to_give_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for spec, why in (("default", "comes with localmcp"), ("hash", "no files"), ("ollama:x", "not on this machine")):
        code, _, said = run(capsys, "models", "export", spec, str(tmp_path / "x.zip"))
        assert code == 2 and why in said
    code, _, said = run(capsys, "models", "export", SPEC, str(tmp_path / "x.zip"))
    assert code == 3 and f"localmcp models add {SPEC}" in said
    assert not list(tmp_path.glob("*.zip*"))


def test_verify_tries_the_model_in_use(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash:64")
    code, out, _ = run(capsys, "models", "verify")
    assert code == 0 and out.startswith("hash works: 64 dimensions")


def test_use_embeds_what_is_there_sets_the_model_and_goes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(capsys, "config", "set", "model", "hash:64")[0] == 0
    file = str(tmp_path / "library.localmcp")
    write(tmp_path / "bees.md", "# Bees\n\nA hive has one queen.\n")
    assert run(capsys, "--db", file, "add", str(tmp_path / "bees.md"))[0] == 0
    code, out, _ = run(capsys, "--db", file, "--json", "models", "use", "hash:128")
    assert (code, json.loads(out)["collections"][0]["embedded"]) == (0, 1)
    assert config.load_settings().model == "hash:128"
    hits = json.loads(run(capsys, "--db", file, "--json", "search", "queen")[1])["results"]
    assert hits[0]["semanticScore"] > 0
    code, _, said = run(capsys, "--db", file, "models", "use", "--rollback")
    assert code == 0 and "hash" in said
    assert config.load_settings().model == "hash:64"
    assert run(capsys, "--db", file, "models", "use")[0] == 2


def test_use_goes_on_in_the_background_and_sets_the_model_when_it_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "config", "set", "model", "hash:64")[0] == 0
    file = str(tmp_path / "library.localmcp")
    write(tmp_path / "bees.md", "# Bees\n\nA hive has one queen.\n")
    assert run(capsys, "--db", file, "add", str(tmp_path / "bees.md"))[0] == 0
    command = [sys.executable, "-m", "localmcp", "--db", file, "--json", "models", "use", "hash:128", "--no-wait"]
    started = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert Path(json.loads(started.stdout)["log"]).exists()
    deadline = time.monotonic() + 300
    while config.load_settings().model != "hash:128" and time.monotonic() < deadline:
        time.sleep(0.05)
    hits = json.loads(run(capsys, "--db", file, "--json", "search", "queen")[1])["results"]
    assert config.load_settings().model == "hash:128" and hits[0]["semanticScore"] > 0


def test_use_without_a_file_only_sets_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = run(capsys, "--db", str(tmp_path / "none.localmcp"), "models", "use", "hash:64")
    assert code == 0 and "hash:64" in said
    assert not (tmp_path / "none.localmcp").exists()


# ---------------------------------------------------------------- parcels from anybody


def tampered(models: Path, tmp_path: Path, change: Any) -> Path:
    """An archive whose description and files were changed by hand."""
    write_archive(SPEC, tmp_path / "good.zip", models)
    with zipfile.ZipFile(tmp_path / "good.zip") as archive:
        files = {each: archive.read(each) for each in archive.namelist()}
    said = json.loads(files.pop("parcel.json"))
    change(said, files)
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("parcel.json", json.dumps(said))
        for name, data in files.items():
            archive.writestr(name, data)
    return tmp_path / "bad.zip"


def rename(name: str) -> Any:
    def change(said: dict[str, Any], files: dict[str, bytes]) -> None:
        said["files"][name] = said["files"].pop("refs/main")
        files[name] = files.pop("refs/main")

    return change


@pytest.mark.parametrize(
    "change",
    [
        rename("../../evil"),
        rename("/etc/evil"),
        rename("C:/evil"),
        rename("a/../../evil"),
        rename("a\\..\\evil"),
        lambda said, files: said.update(folder="../evil"),
        lambda said, files: said.update(folder="elsewhere"),
        lambda said, files: said.update(spec="folder:/etc"),
        lambda said, files: said.update(form="other"),
        lambda said, files: said.update(files=[]),
        lambda said, files: files.update(spare=b"x"),
        lambda said, files: files.update({"refs/main": b"5678"}),
        lambda said, files: files.pop("refs/main"),
    ],
)
def test_a_parcel_that_is_not_what_it_says_writes_nothing(change: Any, models: Path, tmp_path: Path) -> None:
    bad = tampered(models, tmp_path, change)
    target = tmp_path / "in" / "models"
    with pytest.raises(UnreadableDocument):
        unpack_archive(bad, target)
    assert list(target.iterdir()) == []
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04garbage", b"text"])
def test_what_is_no_zip_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(UnreadableDocument):
        unpack_archive(tmp_path / "x.zip", tmp_path / "models")


def test_a_damaged_parcel_leaves_the_model_that_is_there(models: Path, tmp_path: Path) -> None:
    write_archive(SPEC, tmp_path / "good.zip", models)
    data = bytearray((tmp_path / "good.zip").read_bytes())
    at = data.index(b"weights")
    data[at : at + 7] = b"strange"
    (tmp_path / "bad.zip").write_bytes(data)
    with pytest.raises(UnreadableDocument, match="damaged"):
        unpack_archive(tmp_path / "bad.zip", models)
    assert (models / FAKE / "blobs" / "abc").read_text() == "weights"
