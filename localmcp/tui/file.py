"""File: its size, checks, backups, packs, mounts, models, settings, and how well it answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import datetime
from glob import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp.config import load_settings, setting_text, settings_in_force, write_setting
from localmcp.humanize import command_line, counted, size
from localmcp.schemas import Json
from localmcp.tui.commands import Command, CommandPane, Run, thing
from localmcp.tui.lists import Row
from localmcp.tui.passages import short
from localmcp.tui.session import Session, adopt_file

if TYPE_CHECKING:
    from localmcp.doctor.check import Check

_FILE: Json = {"type": "string", "title": "File", "description": "Its path, such as ~/team.localmcp"}
MARKS = {"ok": ("✓", "$success"), "warn": ("!", "$warning"), "fail": ("✗", "$error")}
SEARCHES = 100
"""Searches whose speed is told."""

# ---------------------------------------------------------------- this file


def _status(run: Run) -> Json | str:
    if not run.session.exists:
        return "There is no file yet. Begin with: localmcp add FOLDER"
    workspace = run.session.workspace
    facts = {"path": str(run.session.path), "bytes": workspace.database.size(), "readOnly": run.session.why_read_only()}
    return {**facts, "model": workspace.settings.model, **run.session.look(lambda w: w.knowledge.get_stats())}


def _optimize(run: Run) -> Any:
    from localmcp.doctor.rebuild import optimize

    return optimize(run.session.workspace.database, lambda _step: run.tell(None))


def _adopt(run: Run) -> str:
    return adopt_file(run.session, run.values["file"])


# ---------------------------------------------------------------- checks


def _examine(run: Run) -> Content:
    """Run every check, remember what was found, and return the report: what is wrong comes first."""
    from localmcp.doctor import examination

    report = run.session.look(examination.examine)
    run.session.findings = [check for check in report.checks if check.status != "ok"]
    wrong = counted(len(run.session.findings), "problem") if run.session.findings else "all well"
    checks = [_check(check) for check in sorted(report.checks, key=lambda check: check.status == "ok")]
    largest = [f"{name:<20} {size(number):>9}" for name, number in report.sizes]
    room = ["\nWhat takes room", *largest] if largest else []
    speeds = f"\n{speed_words(run.session.look(_last_searches))}"
    return Content("\n").join([Content.styled(wrong, "bold"), *checks, *map(Content, room), Content(speeds)])


def _last_searches(workspace: Any) -> list[float]:
    """Milliseconds of each."""
    return [call.milliseconds for call in workspace.activity.logs(tool="search", limit=SEARCHES).entries]


def _check(check: Check) -> Content:
    mark, style = MARKS[check.status]
    fix = Content.styled(f"\n  $ {check.fix}", "$accent") if check.fix else Content("")
    return Content.assemble((f"{mark} ", style), (f"{check.name}  ", "bold"), check.says) + fix


def speed_words(speeds: Sequence[float]) -> str:
    """Return the median and the slow end of searches, from their milliseconds."""
    if not speeds:
        return "No searches yet."
    ordered = sorted(speeds)
    middle, slow = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"The last {counted(len(speeds), 'search')}: half below {middle:.0f} ms, 95 % below {slow:.0f} ms"


def findings_of(session: Session) -> list[Row]:
    """Return what the last check found, with the commands that repair it."""
    rows: list[Row] = []
    for number, check in enumerate(session.findings):
        mark, style = MARKS[check.status]
        again = replace(CHECK, title="Check again", shell=check.fix, shows=False)
        title = Content.assemble((f"{mark} ", style), f"{check.name}  ", (check.says, "$muted"))
        rows.append(thing("Checks", f"{check.name} {number}", title, _check(check), again))
    return rows


# ---------------------------------------------------------------- backups


def _back_up(run: Run) -> Any:
    from localmcp.doctor.backups import back_up

    return back_up(run.session.workspace.database)


def _verify(run: Run) -> Json | Content:
    from localmcp.packs.verify import verify

    verification = verify(Path(run.values["file"]).absolute())
    if verification.problems:
        return Content.styled("\n".join(f"✗ {problem}" for problem in verification.problems), "$error")
    about = asdict(verification.manifest) if verification.manifest else {}
    return {
        "path": verification.path,
        "sound": True,
        "counts": verification.counts,
        "notes": verification.notes,
        **about,
    }


def _restore(run: Run) -> Any:
    from localmcp.doctor.backups import restore

    return restore(run.session.path, Path(run.values["file"]))


def _for_file(do: Callable[[Run], Any], path: str) -> Callable[[Run], Any]:
    """Return `do` for one file, instead of that of a form."""
    return lambda run: do(replace(run, values={"file": path}))


def backups_of(session: Session) -> list[Row]:
    """Return the backups beside the file, the latest first."""
    path = session.path
    copies = sorted(path.parent.glob(f"{escape(path.stem)}-*-[0-9]*-[0-9]*{escape(path.suffix)}"), reverse=True)
    return [_backup(str(copy), copy.stat().st_size, copy.stat().st_mtime) for copy in copies]


def _backup(path: str, length: int, modified: float) -> Row:
    when = f"{datetime.fromtimestamp(modified):%Y-%m-%d %H:%M}"
    title, about = Content(f"{when}  {size(length)}"), Content(f"{short(path)}\n\n{size(length)}, made {when}")
    verify, restore = command_line("localmcp", "verify", path), command_line("localmcp", "restore", path)
    check = Command("Check it", "Reads every page and row.", _for_file(_verify, path), verify, is_long=True)
    warning = f"The file gets the content of {os.path.basename(path)}; what is in it now is kept beside it."
    return thing("Backups", path, title, about, check, Command(
        "Restore it", warning, _for_file(_restore, path), restore, warning=warning, is_long=True,
    ))  # fmt: skip


# ---------------------------------------------------------------- packs


def _pack(run: Run) -> str:
    from localmcp.packs.pack import PackOptions, write_pack

    collection, target = run.values.get("collection"), Path(run.values["file"]).absolute()
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


def mounts_of(session: Session) -> list[Row]:
    """Return the files that are searched together with this one."""
    return [_mounted(mount) for mount in session.workspace.mounts.described()]


def _mounted(mount: Json) -> Row:
    name, path, problem = str(mount["name"]), str(mount["path"]), mount.get("problem")
    holds = f"{counted(mount.get('sources') or 0, 'document')}, {counted(mount.get('chunks') or 0, 'passage')}"
    state = Content.styled(f"✗ {problem}", "$error") if problem else Content(holds)
    title = Content.assemble(("✗ ", "$error") if problem else ("● ", "$success"), f"{name}  {problem or 'mounted'}")
    search = Content(f"Search only there:  collection:mount:{name}")
    about = Content("\n\n").join([Content(short(path)), state, search])
    unmount = Command("Unmount it", "It is no longer searched.",
                      lambda run: f"Unmounted {run.session.workspace.mounts.unmount(name).name}",
                      command_line("localmcp", "unmount", name))  # fmt: skip
    check = Command("Check it", "", _for_file(_verify, path), command_line("localmcp", "verify", path), is_long=True)
    return thing("Packs", name, title, about, unmount, check)


# ---------------------------------------------------------------- models and evaluation


def _models(run: Run) -> Json:
    from localmcp.models.choice import available_models

    return {"models": available_models(run.session.workspace.settings.model)}


def _use_model(run: Run) -> str:
    """Let another model read everything, then set it; the old vectors answer meanwhile."""
    from localmcp.doctor.settings import reembed_file
    from localmcp.models.choice import try_model
    from localmcp.workspace import Workspace

    spec = run.values["model"]
    # Only this workspace uses the other model; the open one keeps its own.
    with Workspace(replace(run.session.workspace.settings, model=spec)) as other:
        try_model(spec, other.embedder.get())
        if run.session.exists:
            reembed_file(other, None, lambda _: nullcontext(lambda _done, _total: run.tell(None)))
    path = write_setting("model", spec)
    return f"The model in use is {spec} ({path}). Restart what has localmcp open."


def _measure(run: Run) -> Json:
    from localmcp.evals.evaluation import evaluate, read_questions

    workspace, settings = run.session.workspace, run.session.workspace.settings
    questions = read_questions(Path(run.values["file"]), workspace.database, None)
    basis = {"model": settings.model, "semantic_weight": settings.semantic_weight, "adaptive": settings.adaptive_weight}
    asked = evaluate(workspace.index, workspace.embedder, questions, None, basis, lambda _done, _total: run.tell(None))
    means = {mode: result.overall for mode, result in asked.modes.items()}
    rows = [
        {"mode": mode, "nDCG@10": f"{m.ndcg:.3f}", "recall@10": f"{m.recall:.3f}", "MRR": f"{m.mrr:.3f}",
         "p50 ms": f"{asked.modes[mode].p50:.1f}", "p95 ms": f"{asked.modes[mode].p95:.1f}"}
        for mode, m in means.items()
    ]  # fmt: skip
    return {"questions": len(questions), "notices": asked.notices, "modes": rows}


def languages_of(session: Session) -> list[Row]:
    """Return the languages of the library, and what helps where the model does not know them."""
    if not session.exists:
        return []
    stats = session.workspace.knowledge.get_stats()
    total, notice = stats["totalChunks"], stats.get("languageNotice", "")
    counts = stats["languages"].items()
    shares = {name: f"{100 * count / total:.0f} %" if 200 * count >= total else "<1 %" for name, count in counts}
    large = (f"{name} {share}" for name, share in shares.items() if share[0] != "<")
    first = ", ".join(islice(large, 3))
    title = Content.assemble(f"Languages  {first}", ("  ✎ another model helps" if notice else "", "$warning"))
    lines = [f"{name:<14} {stats['languages'][name]:>9,}  {share:>5}" for name, share in shares.items()]
    about = Content.assemble(("Passages by language", "$muted"), "\n", "\n".join(lines), ("\n\n" + notice, "$warning"))
    return [thing("Models", "Languages", title, about, USE_MODEL)] if shares else []


# ---------------------------------------------------------------- settings


def settings_of(session: Session) -> list[Row]:
    """Return every setting with its value and its help."""
    return [_setting(setting) for setting in settings_in_force(load_settings(database=session.path))]


def _setting(setting: Json) -> Row:
    name = str(setting["name"])
    value, default = setting_text(setting["value"]), setting_text(setting["default"])
    is_default = setting["from"] == "default"
    title = Content.assemble(f"{name}  ", (value, "$muted" if is_default else "bold $accent"))
    says = str(setting["says"])
    facts = {"value": value, "from": setting["from"], "default": default, "variable": setting["env"]}
    lines = [Content.assemble((f"{fact:<10}", "$muted"), str(text)) for fact, text in facts.items()]
    about = Content("\n").join([Content(says), Content(""), *lines, Content("\nA change counts from the next start.")])
    schema = {"type": "string", "title": name, "description": says, "default": value}

    def set_value(run: Run) -> str:
        from localmcp.doctor.settings import change_setting

        return f"Written to {change_setting(name, run.values['value'])}"

    def unset(run: Run) -> str:
        return f"Removed from {write_setting(name, None)}"

    change = Command(f"Change {name}", says, set_value, f"localmcp config set {name} VALUE", {"value": schema})
    reset = Command("Back to its default", "", unset, f"localmcp config unset {name}")
    return thing("Settings", name, title, about, *((change,) if is_default else (change, reset)))


CHECK = Command("Check the file and this machine", "The file, the model, the configuration; each problem with the "
                "command that repairs it.", _examine, "localmcp doctor", shows=True)  # fmt: skip
USE_MODEL = Command(
    "Use another model", "It reads everything in the file, then answers.", _use_model, "localmcp models use MODEL",
    {"model": {"type": "string", "title": "Model", "default": "multilingual", "description": "default, multilingual "
               "(knows about 100 languages), or another of the list above"}}, is_long=True,
    warning="Reading everything again can take long; the old vectors answer until it is done.",
)  # fmt: skip
COMMANDS = {
    "This file": (
        Command("Size, contents, model", "What is in the file, in which languages, and what takes the space.",
                _status, "localmcp status", shows=True),
        Command("Optimize", "Faster searches and a smaller file.", _optimize, "localmcp optimize", is_long=True,
                warning="It rewrites indexes; searches go on meanwhile."),
        Command("Allow changes", "A file from another machine is read-only until it is adopted.", _adopt,
                "localmcp adopt FILE", {"file": _FILE}, warning="Its API keys and watched folders are dropped; "
                "documents, rules and quick starts stay."),
    ),
    "Checks": (CHECK,),
    "Backups": (
        Command("Make a backup", "A checked copy beside the file, named by the time.", _back_up, "localmcp backup",
                is_long=True),
        Command("Check a backup", "Reads every page and row of it.", _verify, "localmcp verify FILE", {"file": _FILE},
                is_long=True),
        Command("Restore a backup", "What is in the file now is kept beside it.", _restore, "localmcp restore FILE",
                {"file": _FILE}, warning="The file gets the content of the backup.", is_long=True),
    ),
    "Packs": (
        Command("Give a pack away", "One file with documents and vectors, without keys, log and your folders.", _pack,
                "localmcp pack FILE", {"file": {**_FILE, "title": "New file"}, "title?": {"type": "string", "title":
                "Title"}, "collection?": {"type": "string", "title": "Only collection"}}, is_long=True),
        Command("Check a pack", "Whether it is whole and holds what its manifest says.", _verify,
                "localmcp verify FILE", {"file": _FILE}, is_long=True),
        Command("Mount a pack", "It stays where it is, read-only, and is searched together with yours.", _mount,
                "localmcp mount FILE", {"file": _FILE}),
        Command("Merge another file", "Its documents, quick starts and rules come into yours.", _merge,
                "localmcp merge FILE", {"file": _FILE}, has_preview=True, is_long=True),
    ),
    "Evaluation": (
        Command("Measure the search", "Judged questions, one JSON object a line: query and relevant.", _measure,
                "localmcp eval FILE", {"file": _FILE}, is_long=True),
    ),
    "Models": (
        Command("Models on this machine", "The star marks the one in use.", _models, "localmcp models list",
                shows=True),
        USE_MODEL,
    ),
    "Settings": (),
}  # fmt: skip


class FilePane(CommandPane):
    TITLE, LIST_TITLE = "File", "File"
    COMMANDS = COMMANDS
    THINGS = {"Checks": findings_of, "Backups": backups_of, "Packs": mounts_of, "Models": languages_of,
              "Settings": settings_of}  # fmt: skip
    ABOUT = (
        "What is done to the file as a whole: checks with what repairs it, backups, packs to give away, other files "
        "beside it, models, settings, and an evaluation of the search. enter runs what is highlighted; what changes "
        "something is shown or asked first. y copies the command line that does the same."
    )
