"""Commands that messages name: each of them helps, and acts on the file that the person is using."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ran
from folders import write

from localmcp.config import state_directory

Cli = Callable[..., Ran]
ABSENT = "fastembed:BAAI/bge-small-en-v1.5"


def from_elsewhere(cli: Cli, notes: Path) -> None:
    """Fill a file of another machine, whose passages have no vectors."""
    assert cli("add", str(notes), "--no-wait").code == 0
    for known in (state_directory() / "files").iterdir():
        known.unlink()


def test_what_waits_for_another_model_names_the_command_that_sets_it(
    cli: Cli, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("add", str(notes / "garden.md"))
    cli("add", str(notes), "--no-wait")
    monkeypatch.setenv("LOCALMCP_MODEL", "default")
    ran = cli("refresh")
    assert "localmcp config set model hash:384 && localmcp refresh" in ran.err
    assert "Their meaning is read when localmcp runs" not in ran.err


def test_a_refresh_without_its_model_does_not_advise_a_refresh(
    cli: Cli, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", ABSENT)
    ran = cli("add", str(notes))
    assert f"localmcp models add {ABSENT}" in ran.err and "passages found by word only." in ran.err
    assert "localmcp refresh" not in ran.err


def test_a_run_that_did_not_wait_names_the_refresh_which_makes_the_vectors(cli: Cli, notes: Path) -> None:
    assert "now with:\n  localmcp refresh" in cli("add", str(notes), "--no-wait").err
    assert "missing vectors made" in cli("refresh").err


def test_a_read_only_file_names_no_command_that_would_change_it(cli: Cli, notes: Path) -> None:
    from_elsewhere(cli, notes)
    status, doctor = cli("status").out, cli("doctor").out
    assert "no vectors" in status and "found by word only" in doctor
    for text in (status, doctor):
        assert "localmcp adopt" in text and "refresh" not in text


def test_a_limit_is_raised_by_what_lets_the_file_in(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "notes" / "long.txt", "words and more words here. " * 160_000)
    monkeypatch.setenv("LOCALMCP_MAX_FILE_MB", "1")
    assert "set the variable LOCALMCP_MAX_FILE_MB to 5, then: localmcp refresh" in cli("add", "notes").err
    monkeypatch.delenv("LOCALMCP_MAX_FILE_MB")
    assert cli("config", "set", "max_file_mb", "1").code == 0
    assert "localmcp config set max_file_mb 5   then: localmcp refresh" in cli("refresh").err
    assert cli("config", "set", "max_file_mb", "5").code == 0
    assert "1 indexed" in cli("refresh", "--no-wait").err
