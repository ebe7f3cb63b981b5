"""File: its size, checks, backups, packs and mounts."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

from textual.content import Content

from localmcp.humanize import command_line, counted, size
from localmcp.schemas import Json
from localmcp.tui.dialogs import PATH
from localmcp.tui.pane import Row
from localmcp.tui.session import Session
from localmcp.tui.tools import Command, CommandPane, Run, form_of, thing
from localmcp.tui.widgets import lines, short


def _status(run: Run) -> Json | str:
    if not run.session.exists:
        return "There is no file yet. Begin with: localmcp add FOLDER"
    settings = run.session.workspace.settings
    about = {"path": str(run.session.path), "readOnly": run.session.why_read_only(), "model": settings.model}
    return {**about, **run.session.read("get_stats")}


def _examine(run: Run) -> Content:
    """Run every check, and return the report: what is wrong comes first."""
    from localmcp.doctor import examination

    checks = run.session.look(examination.run_checks)
    problems = sum(check.status != "ok" for check in checks)
    parts = [Content.styled(counted(problems, "problem") if problems else "all well", "bold")]
    for check in sorted(checks, key=lambda check: check.status == "ok"):
        mark = {"ok": ("✓ ", "$success"), "warn": ("! ", "$warning"), "fail": ("✗ ", "$error")}[check.status]
        fix = (f"\n  $ {check.fix}" if check.fix else "", "$accent")
        parts.append(Content.assemble(mark, (f"{check.name}  ", "bold"), check.says, fix))
    return lines(*parts)


def _back_up(run: Run) -> Any:
    from localmcp.doctor.backups import back_up

    return back_up(run.session.workspace.database)


def _verify(path: str, _run: Run) -> Json | Content:
    from localmcp.packs.pack import verify

    report = verify(Path(path))
    if report.problems:
        return Content.styled("\n".join(f"✗ {problem}" for problem in report.problems), "$error")
    about = asdict(report.manifest) if report.manifest else {}
    return {"path": report.path, "sound": True, "counts": report.counts, "notes": report.notes, **about}


def _restore(path: str, run: Run) -> Any:
    from localmcp.doctor.backups import restore

    return restore(run.session.path, Path(path))


def backups_of(session: Session) -> list[Row]:
    """Return the backups beside the file, the latest first."""
    file, rows = session.path, list[Row]()
    for copy in sorted(file.parent.glob(f"{escape(file.stem)}-*-[0-9]*-[0-9]*{escape(file.suffix)}"), reverse=True):
        path, length = str(copy), size(copy.stat().st_size)
        when = f"{datetime.fromtimestamp(copy.stat().st_mtime):%Y-%m-%d %H:%M}"
        title, about = Content(f"{when}  {length}"), Content(f"{short(path)}\n\n{length}, made {when}")
        verify, restore = command_line("localmcp", "verify", path), command_line("localmcp", "restore", path)
        check = Command("Check it", "Reads every page and row.", partial(_verify, path), verify, is_long=True)
        warning = f"The file gets the content of {copy.name}; what is in it now is kept beside it."
        put_back = Command("Restore it", warning, partial(_restore, path), restore, warning=warning, is_long=True)
        rows.append(thing("Backups", path, title, about, check, put_back))
    return rows


def _pack(run: Run) -> str:
    from localmcp.packs.pack import PackOptions, write_pack

    collection, target = run.values.get("collection"), Path(run.values["file"]).expanduser().absolute()
    run.session.workspace.library.make_vectors(collection=collection, progress=run.tell)
    options = PackOptions((collection,) if collection else None, run.values.get("title", ""))
    counts = write_pack(run.session.workspace.database, target, options, lambda _step: run.tell(None)).counts
    holds = f"{counted(counts['sources'], 'document')}, {counted(counts['chunks'], 'passage')}"
    return f"Wrote {target} ({size(target.stat().st_size)}): {holds}"


def _mount(run: Run) -> str:
    entry = run.session.workspace.mounts.mount(Path(run.values["file"]))
    return f"{entry.path} is searched together with yours, as {entry.name}."


def _merge(run: Run) -> Any:
    workspace = run.session.workspace
    merging = workspace.merging(lambda tool, arguments: workspace.registry.call(tool, arguments, run.session.scope))
    return merging.run(Path(run.values["file"]), dry_run=run.dry_run, say=lambda _report: run.tell(None))


def _unmount(name: str, run: Run) -> str:
    return f"Unmounted {run.session.workspace.mounts.unmount(name).name}"


def mounts_of(session: Session) -> list[Row]:
    """Return the files that are searched together with this one."""
    rows: list[Row] = []
    for mount in session.workspace.mounts.described():
        name, path, problem = str(mount["name"]), str(mount["path"]), mount.get("problem")
        holds = f"{counted(mount.get('sources') or 0, 'document')}, {counted(mount.get('chunks') or 0, 'passage')}"
        state = Content.styled(f"✗ {problem}", "$error") if problem else Content(holds)
        mark = ("✗ ", "$error") if problem else ("● ", "$success")
        about = lines(short(path), "", state, "", f"Search only there:  collection:mount:{name}")
        shell = command_line("localmcp", "unmount", name)
        unmount = Command("Unmount it", "It is no longer searched.", partial(_unmount, name), shell)
        check = Command("Check it", "", partial(_verify, path), command_line("localmcp", "verify", path), is_long=True)
        title = Content.assemble(mark, f"{name}  {problem or 'mounted'}")
        rows.append(thing("Packs", name, title, about, unmount, check))
    return rows


COMMANDS = {
    "This file": (
        Command("Size, contents, model", "What is in the file, in which languages, and what takes the space.",
                _status, "localmcp status", shows=True),
    ),
    "Checks": (
        Command("Check the file and this machine", "The file, the model, the configuration; each problem with the "
                "command that repairs it.", _examine, "localmcp doctor", shows=True),
    ),
    "Backups": (
        Command("Make a backup", "A checked copy beside the file, named by the time.", _back_up, "localmcp backup",
                is_long=True),
    ),
    "Packs": (
        Command("Give a pack away", "One file with documents and vectors, without keys, log and your folders.", _pack,
                "localmcp pack FILE", form_of(
                    file={"title": "New file", "description": "Its path, such as ~/team.localmcp"},
                    title={"optional": True}, collection={"title": "Only collection", "optional": True},
                ), is_long=True),
        Command("Mount a pack", "It stays where it is, read-only, and is searched together with yours.", _mount,
                "localmcp mount FILE", form_of(file=PATH)),
        Command("Merge another file", "Its documents, quick starts and rules come into yours.", _merge,
                "localmcp merge FILE", form_of(file=PATH), has_preview=True, is_long=True),
    ),
}  # fmt: skip


class FilePane(CommandPane):
    LIST_TITLE = "File"
    COMMANDS = COMMANDS
    THINGS = {"Backups": backups_of, "Packs": mounts_of}
    HELP = """\
    What is done to the file as a whole: checks with what repairs it, backups, packs to give away, other files beside
    it. enter runs what is highlighted; what changes something is shown or asked first. y copies the command line that
    does the same.
    """
