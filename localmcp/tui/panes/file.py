"""File: its size, backups, packs, mounts, models, settings, and how well it answers."""

from __future__ import annotations

import os
from datetime import datetime
from glob import escape
from itertools import islice

from textual.content import Content

from localmcp.config import load_settings, setting_text, settings_in_force
from localmcp.humanize import counted, size
from localmcp.schemas import Json
from localmcp.tui.command_pane import CommandPane
from localmcp.tui.commands import Command, Entry
from localmcp.tui.highlight import short
from localmcp.tui.session import Session

_FILE = {"type": "string", "title": "File", "description": "Its path, such as ~/team.localmcp", "format": "path"}
USE_MODEL = Command(
    "Models", "Use another model", "It reads everything in the file, then answers.", ("models", "use", "{model}"),
    {"model": {"type": "string", "title": "Model", "default": "multilingual", "description": "default, multilingual "
               "(knows about 100 languages), or another of the list above"}}, is_long=True,
    warning="Reading everything again can take long; the old vectors answer until it is done.",
)  # fmt: skip

COMMANDS = (
    Command("This file", "Size, contents, model", "What is in the file, in which languages, and what takes the space.",
            ("status",), shows=True),
    Command("This file", "Optimize", "Faster searches and a smaller file.", ("optimize",), is_long=True,
            warning="It rewrites indexes; searches go on meanwhile."),
    Command("This file", "Allow changes", "A file from another machine is read-only until it is adopted.",
            ("adopt", "{file}"), {"file": _FILE},
            warning="Its API keys and watched folders are dropped; documents, rules and quick starts stay."),
    Command("Backups", "Make a backup", "A checked copy beside the file, named by the time.", ("backup",),
            is_long=True),
    Command("Backups", "Check a backup", "Reads every page and row of it.", ("verify", "{file}"), {"file": _FILE},
            is_long=True),
    Command("Backups", "Restore a backup", "What is in the file now is kept beside it.",
            ("restore", "{file}", "--yes"), {"file": _FILE}, warning="The file gets the content of the backup.",
            is_long=True),
    Command("Packs", "Give a pack away", "One file with documents and vectors, without keys, log and your folders.",
            ("pack", "{file}", "--title", "{title}", "--collection", "{collection}"),
            {"file": {**_FILE, "title": "New file"}, "title?": {"type": "string", "title": "Title"},
             "collection?": {"type": "string", "title": "Only collection"}}, is_long=True),
    Command("Packs", "Check a pack", "Whether it is whole and holds what its manifest says.", ("verify", "{file}"),
            {"file": _FILE}, is_long=True),
    Command("Packs", "Mount a pack", "It stays where it is, read-only, and is searched together with yours.",
            ("mount", "{file}"), {"file": _FILE}),
    Command("Packs", "Merge another file", "Its documents, quick starts and rules come into yours.",
            ("merge", "{file}"), {"file": _FILE}, preview=("--dry-run",), is_long=True),
    Command("Evaluation", "Measure the search", "Judged questions, one JSON object a line: query and relevant.",
            ("eval", "{file}"), {"file": _FILE}, is_long=True),
    Command("Models", "Models on this machine", "The star marks the one in use.", ("models", "list"), shows=True),
    USE_MODEL,
)  # fmt: skip


def backups_of(session: Session) -> list[Entry]:
    """Return the backups beside the file, the latest first."""
    path = session.path
    copies = sorted(path.parent.glob(f"{escape(path.stem)}-*-[0-9]*-[0-9]*{escape(path.suffix)}"), reverse=True)
    return [_backup(str(copy), copy.stat().st_size, copy.stat().st_mtime) for copy in copies]


def _backup(path: str, length: int, modified: float) -> Entry:
    when = f"{datetime.fromtimestamp(modified):%Y-%m-%d %H:%M}"
    title, about = Content(f"{when}  {size(length)}"), Content(f"{short(path)}\n\n{size(length)}, made {when}")
    check = Command("Backups", "Check it", "Reads every page and row.", ("verify", path), is_long=True)
    warning = f"The file gets the content of {os.path.basename(path)}; what is in it now is kept beside it."
    restore = Command("Backups", "Restore it", warning, ("restore", path, "--yes"), warning=warning, is_long=True)
    return Entry("Backups", path, title, about, (check, restore))


def languages_of(session: Session) -> list[Entry]:
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
    return [Entry("Models", "Languages", title, about, (USE_MODEL,))] if shares else []


def mounts_of(session: Session) -> list[Entry]:
    """Return the files that are searched together with this one."""
    return [_mount(mount) for mount in session.workspace.mounts.described()]


def _mount(mount: Json) -> Entry:
    name, path = str(mount["name"]), str(mount["path"])
    holds = f"{counted(mount.get('sources') or 0, 'document')}, {counted(mount.get('chunks') or 0, 'passage')}"
    problem = mount.get("problem")
    state = Content.styled(f"✗ {problem}", "$error") if problem else Content(holds)
    title = Content.assemble(("✗ ", "$error") if problem else ("● ", "$success"), f"{name}  {problem or 'mounted'}")
    search = Content(f"Search only there:  collection:mount:{name}")
    about = Content("\n\n").join([Content(short(path)), state, search])
    unmount = Command("Packs", "Unmount it", "It is no longer searched.", ("unmount", name))
    check = Command("Packs", "Check it", "", ("verify", path), is_long=True)
    return Entry("Packs", name, title, about, (unmount, check))


def settings_of(session: Session) -> list[Entry]:
    """Return every setting with its value and its help."""
    return [_setting(setting) for setting in settings_in_force(load_settings(database=session.path))]


def _setting(setting: Json) -> Entry:
    name = str(setting["name"])
    value, default = setting_text(setting["value"]), setting_text(setting["default"])
    is_default = setting["from"] == "default"
    title = Content.assemble(f"{name}  ", (value, "$muted" if is_default else "bold $accent"))
    says = str(setting["says"])
    facts = {"value": value, "from": setting["from"], "default": default, "variable": setting["env"]}
    lines = [Content.assemble((f"{fact:<10}", "$muted"), str(text)) for fact, text in facts.items()]
    about = Content("\n").join([Content(says), Content(""), *lines, Content("\nA change counts from the next start.")])
    schema = {"type": "string", "title": name, "description": says, "default": value}
    change = Command("Settings", f"Change {name}", says, ("config", "set", name, "{value}"), {"value": schema})
    reset = Command("Settings", "Back to its default", "", ("config", "unset", name))
    return Entry("Settings", name, title, about, (change,) if is_default else (change, reset))


class FilePane(CommandPane):
    TITLE, KEY_GROUP = "File", "commands"
    COMMANDS = COMMANDS
    THINGS = {"Models": languages_of, "Backups": backups_of, "Packs": mounts_of, "Settings": settings_of}
    ABOUT = (
        "What is done to the file as a whole: backups, packs to give away, other files beside it, models, settings, "
        "and an evaluation of the search. enter runs what is highlighted; what changes something is shown or asked "
        "first. y copies the command line that does the same."
    )
