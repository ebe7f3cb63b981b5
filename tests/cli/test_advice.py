"""Commands that messages name: each of them helps, and acts on the file that the person is using."""

from __future__ import annotations

import shlex
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


def test_the_status_says_what_was_left_out_and_which_command_tells_why(cli: Cli, notes: Path) -> None:
    write(notes / "broken.docx", "PK no archive")
    cli("add", str(notes))
    status = cli("status").out
    assert f"1 failed, 1 skipped; which, and why: localmcp why {notes}" in status
    assert "broken.docx" in cli("why", str(notes)).out


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


def test_advice_acts_on_the_file_that_was_named_by_db(cli: Cli, notes: Path, tmp_path: Path) -> None:
    other = str(tmp_path / "my notes.localmcp")
    named = f"localmcp --db '{other}'"
    assert f"{named} add FOLDER" in cli("--db", other, "status").err
    said = cli("--db", other, "add", str(notes), "--no-wait").err
    assert f"  {named} refresh" in said and f"with: {named} search" in said
    assert f"make them with: {named} refresh" in cli("--db", other, "status").out
    assert f"$ {named} refresh" in cli("--db", other, "doctor").out
    assert f"({named} trash list)" in cli("--db", other, "remove", str(notes), "--yes").err
    assert f"with: {named} sources" in cli("--db", other, "show", "nothing").err
    # Without --db, and where a file is named already or none is used, commands are as they were.
    assert "$ localmcp add FOLDER" in cli("doctor").out
    assert cli("--db", other, "search", "--nosuch").err.endswith("See: localmcp search --help\n")
    assert "See: localmcp models list" in cli("--db", other, "models", "use").err


def test_what_a_person_pastes_does_what_was_said(cli: Cli, notes: Path, tmp_path: Path) -> None:
    other = str(tmp_path / "other.localmcp")
    said = cli("--db", other, "add", str(notes), "--no-wait").err
    [command] = [line.strip() for line in said.splitlines() if line.endswith("refresh")]
    assert "missing vectors made" in cli(*shlex.split(command)[1:]).err
    assert cli("status").code == 3, "nothing was made where no --db points"
