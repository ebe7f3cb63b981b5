"""The reference is made from the program and equals the stored copy; shells complete commands of every depth."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from reference_page import EXIT_CODES, PAGE, make_reference

from localmcp.cli.program import execute, modules, program
from localmcp.cli.session import Session
from localmcp.config import describe_settings

ROOT = Path(__file__).parents[2]


def test_the_stored_reference_is_what_the_program_says() -> None:
    stored = PAGE.read_text(encoding="utf-8")
    assert stored == make_reference(), "write it anew with: python tests/reference_page.py"


def commands(group: click.Group, path: str = "localmcp") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        each = group.get_command(context, name)
        assert each is not None
        yield f"{path} {name}", each
        if isinstance(each, click.Group):
            yield from commands(each, f"{path} {name}")


def test_nothing_is_left_out() -> None:
    text = make_reference()
    for path, each in commands(program):
        if each.hidden:
            continue
        assert f"`{path} " in text or f"`{path}`" in text
        for option in each.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.opts[-1] in text
    for setting in describe_settings():
        assert f"| `{setting['name']}` | `{setting['env']}` |" in text
    assert all(f"| {code} |" in text for code, _ in EXIT_CODES)


def test_the_reference_does_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = make_reference()
    monkeypatch.setenv("LOCALMCP_DATA_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    assert make_reference() == before
    assert str(Path.home()) not in before and str(tmp_path) not in before


def test_one_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(Session(), ["reference"]) == 0
    assert capsys.readouterr().out == make_reference()
    assert execute(Session(), ["reference", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == make_reference()


# ---------------------------------------------------------------- completion


def complete(shell: str, words: list[str], folder: Path) -> list[str]:
    """What the program answers to a shell that asks for completions of the last word."""
    environment = {**os.environ, "_LOCALMCP_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words)}
    environment["COMP_CWORD"] = words[-1] if shell == "fish" else str(len(words) - 1)
    run = subprocess.run(
        [sys.executable, "-m", "localmcp"], env={**environment, "PYTHONPATH": str(ROOT)}, cwd=folder,
        capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    lines = run.stdout.splitlines()
    return lines[1::3] if shell == "zsh" else [each.split(",", 1)[-1].split("\t")[0] for each in lines]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_groups_and_options_are_completed(shell: str, tmp_path: Path) -> None:
    assert set(modules()) <= set(complete(shell, ["localmcp", ""], tmp_path))
    assert {"import", "search", "add"} <= set(complete(shell, ["localmcp", "rules", ""], tmp_path))
    assert complete(shell, ["localmcp", "rules", "sear"], tmp_path) == ["search"]
    assert {"--mode", "--json"} <= set(complete(shell, ["localmcp", "search", "--"], tmp_path))
    assert complete(shell, ["localmcp", "search", "--mode", "sem"], tmp_path) == ["semantic"]
    assert list(tmp_path.iterdir()) == []


def test_bash_completes_with_the_script_it_is_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None or os.name == "nt":
        pytest.skip("there is no bash on this machine")
    assert execute(Session(), ["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    command = tmp_path / "localmcp"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m localmcp "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    typed = (
        'COMP_WORDS=(localmcp quickstarts sh); COMP_CWORD=2; _localmcp_completion localmcp sh; echo "${COMPREPLY[@]}"'
    )
    run = subprocess.run(
        [bash, "--norc", "-c", f'source "{script}"; {typed}'],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout.split() == ["show"]
