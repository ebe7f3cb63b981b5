"""`localmcp models`: tried, used, and gone back from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from folders import write

from localmcp import config


def test_verify_tries_the_model_and_use_embeds_what_is_there_sets_the_model_and_goes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "config", "set", "model", "hash:64")[0] == 0
    assert run(capsys, "models", "verify")[1].startswith("hash works: 64 dimensions")
    file = str(tmp_path / "library.localmcp")
    write(tmp_path / "bees.md", "# Bees\n\nA hive has one queen.\n")
    assert run(capsys, "--db", file, "add", str(tmp_path / "bees.md"))[0] == 0
    code, out, _ = run(capsys, "--db", file, "--json", "models", "use", "hash:128")
    assert (code, json.loads(out)["collections"][0]["embedded"]) == (0, 1)
    assert config.load_settings().model == "hash:128"
    assert json.loads(run(capsys, "--db", file, "--json", "search", "queen")[1])["results"][0]["semanticScore"] > 0
    code, _, said = run(capsys, "--db", file, "models", "use", "hash:64")
    assert code == 0 and "hash" in said
    assert config.load_settings().model == "hash:64"
    code, _, said = run(capsys, "--db", file, "reembed")
    assert code == 0 and "made" not in said


def test_use_without_a_file_only_sets_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = run(capsys, "--db", str(tmp_path / "none.localmcp"), "models", "use", "hash:64")
    assert code == 0 and "hash:64" in said
    assert run(capsys, "--db", str(tmp_path / "none.localmcp"), "reembed")[0] == 3
    assert not (tmp_path / "none.localmcp").exists()
