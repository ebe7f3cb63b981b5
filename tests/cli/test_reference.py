"""The reference is made from the program and equals the stored copy; shells complete commands of every depth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from reference_page import PAGE, make_reference

from localmcp.cli.program import MODULES, execute
from localmcp.cli.session import Session

ROOT = Path(__file__).parents[2]


def test_the_stored_reference_is_what_the_program_says() -> None:
    stored = PAGE.read_text(encoding="utf-8")
    assert stored == make_reference(), "write it anew with: python tests/reference_page.py"


def test_one_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(Session(), ["reference"]) == 0
    assert capsys.readouterr().out == make_reference()
    assert execute(Session(), ["reference", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == make_reference()


def complete(words: list[str], folder: Path) -> list[str]:
    """What the program answers to bash, which asks for completions of the last word."""
    environment = {**os.environ, "_LOCALMCP_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words)}
    environment |= {"COMP_CWORD": str(len(words) - 1), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-m", "localmcp"], env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    return [line.partition(",")[2] for line in run.stdout.splitlines()]


def test_commands_groups_and_options_are_completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(MODULES) <= set(complete(["localmcp", ""], tmp_path))
    assert complete(["localmcp", "rules", "sear"], tmp_path) == ["search"]
    assert complete(["localmcp", "search", "--mode", "sem"], tmp_path) == ["semantic"]
    assert list(tmp_path.iterdir()) == []
    assert execute(Session(), ["completion", "bash"]) == 0
    assert "_LOCALMCP_COMPLETE=bash_complete" in capsys.readouterr().out
