"""`localmcp doctor`, `backup`, `restore`, `optimize`, `adopt`: a file to be trusted for years."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from localmcp.cli import render
from localmcp.cli.session import Session, command, pass_session
from localmcp.cli.values import YES, existing_file
from localmcp.doctor import backups, rebuild
from localmcp.doctor.check import Check
from localmcp.doctor.rebuild import Repaired, repair
from localmcp.errors import AlteredSchema, ConfigurationError, NotOurFile
from localmcp.files import is_filled
from localmcp.humanize import command_line, counted
from localmcp.schemas import Json
from localmcp.storage import adoption
from localmcp.storage.adoption import KeptPowers
from localmcp.storage.database import Database

MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@command()
@click.option("--fix", is_flag=True, help="Fix what is safe to fix; the file is copied first.")
@pass_session
def doctor(session: Session, fix: bool) -> int:
    """Check the file, the model, the configuration and this machine.

    Each problem names the command that fixes it. --fix makes indexes again from the documents, and deletes what belongs
    to nothing; the documents themselves are never touched. Ends with exit code 1 when something does not work.
    """
    repaired = None
    if fix and is_filled(session.settings.database):
        repaired = repair(session.workspace.database, session.remark)
    checks = _look(session)
    wrong = sum(check.status == "fail" for check in checks)
    result: Json = {
        "ok": wrong == 0,
        "failed": wrong,
        "warnings": sum(check.status == "warn" for check in checks),
        "checks": [asdict(check) for check in checks],
    }
    if repaired is not None:
        result["repaired"] = asdict(repaired)
    session.answer(result, lambda _: _show(session, checks, repaired))
    return int(wrong > 0)


def _look(session: Session) -> list[Check]:
    from localmcp.doctor.examination import check_configuration, run_checks

    try:
        settings = session.settings
    except ConfigurationError:
        return check_configuration()
    return run_checks(settings)


def _show(session: Session, checks: list[Check], repaired: Repaired | None) -> None:
    if repaired is not None:
        session.note("\n".join(f"fixed: {line}" for line in repaired.done) or "There was nothing to fix.")
    width = max(len(check.name) for check in checks)
    for check in checks:
        word, color = MARKS[check.status]
        render.echo(f"{render.styled(word.ljust(4), fg=color)}  {check.name.ljust(width)}  {check.says}")
        if check.fix and check.status != "ok":
            render.echo(f"{' ' * (width + 6)}  {render.dim('$')} {render.bold(check.fix)}")
    wrong = sum(check.status != "ok" for check in checks)
    session.note("All is well." if not wrong else f"{counted(wrong, 'thing')} to look at.")


_KEEP_FOLDERS = click.option(
    "--keep-watched-folders", "watched_folders", is_flag=True,
    help="Keep its watched folders, which refresh then reads on this machine.",
)  # fmt: skip
_KEEP_KEYS = click.option("--keep-keys", "keys", is_flag=True, help="Keep its API keys.")


@command()
@click.argument("target", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@pass_session
def backup(session: Session, target: Path | None) -> None:
    """Copy the file while it is in use, and check the copy.

    Without FILE it goes beside the file, named by the time. It holds everything, API keys and the log of calls too; a
    file to give away is made by `localmcp pack`.
    """
    made = backups.back_up(session.existing().database, target)
    session.answer(asdict(made), session.show)
    session.warn(*(f"It is complete, but as in the file: {problem}." for problem in made.problems))
    session.remark(f"Back again with: localmcp restore {command_line(made.path)}")


@command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--other", is_flag=True, help="The backup is of another file.")
@_KEEP_FOLDERS
@_KEEP_KEYS
@YES
@pass_session
def restore(session: Session, file: Path, other: bool, yes: bool, **keep: bool) -> None:
    """Bring back what a backup holds; what is in the file now is kept beside it.

    The backup is checked first. Programs that have the file open need not be stopped: they see the old content until
    the new one is complete. Any copy works, such as one that `localmcp backup` made. One from another
    machine loses its API keys and watched folders unless you keep them.
    """
    path = session.settings.database
    existing_file(file, hint=f"Backups are beside {path}, or where you put them.")
    _check_backup(file)
    if path.exists():
        session.confirm(f"Replace what is in {path}?", yes)
    restored = backups.restore(path, file, other=other, powers=KeptPowers(**keep))
    words = f"{path} holds what {file} holds.\n{restored.dropped.sentence()}".rstrip()
    session.answer(asdict(restored), lambda _: render.echo(words))
    if restored.previous:
        session.note(f"What was in it is kept in {restored.previous}")


def _check_backup(file: Path) -> None:
    """Look whether a file is one of ours, before anybody is asked.

    Raises:
        NotOurFile: it is not.
    """
    try:
        with closing(Database(file, read_only=True)) as backup, backup.read():
            return
    except AlteredSchema:
        return  # Its rows are copied, and nothing else.
    except NotOurFile as error:
        hint = "Name a backup. A document comes back from the trash with: localmcp trash restore ID"
        raise NotOurFile(error.message, hint=hint) from error


@command()
@pass_session
def optimize(session: Session) -> None:
    """Make searches faster and the file smaller: indexes are merged, empty pages given back.

    What belongs to nothing is deleted; the file is rewritten when a fifth of it is empty and the disk has space.
    Others may use the file meanwhile, and it may be stopped at any time.
    """
    done = rebuild.optimize(session.existing().database, session.remark)
    session.answer(asdict(done), session.show)


@command()
@click.argument("file", type=click.Path(path_type=Path))
@_KEEP_FOLDERS
@_KEEP_KEYS
@pass_session
def adopt(session: Session, file: Path, **keep: bool) -> None:
    """Allow changes to a file that comes from somewhere else.

    A file that another machine made can be searched at once, but stays read-only until it is adopted. Its documents,
    rules and quick starts are copied into a new file that takes its place; the one that was given is kept beside it.
    Its API keys and watched folders are dropped unless you keep them.
    """
    file = existing_file(file).absolute()
    dropped = adoption.adopt(file, KeptPowers(**keep))
    words = f"Adopted {file}\n{dropped.sentence()}".rstrip()
    session.answer({"adopted": str(file), "dropped": asdict(dropped)}, lambda _: render.echo(words))
