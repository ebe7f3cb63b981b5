"""What the panes File and Hub offer: commands, and a row for each backup, mounted file, setting and server."""

from __future__ import annotations

import os
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp.config import load_settings, settings_in_force
from localmcp.humanize import counted, size
from localmcp.tui.commands import Command, Entry
from localmcp.tui.evaluation_view import evaluation_page
from localmcp.tui.highlight import short
from localmcp.tui.session import Session

if TYPE_CHECKING:
    from localmcp.providers.mcp_servers.provider import McpServer
    from localmcp.workspace import Workspace

Json = dict[str, Any]

CLIENTS = ["claude-desktop", "claude-code", "cursor", "vscode", "windsurf", "zed", "gemini", "codex"]
CONNECT = Command(
    "Assistants", "Connect an assistant", "Its configuration is found, changed and tried out; a copy stays beside it.",
    ("connect", "{client}"), {"client": {"enum": CLIENTS, "default": CLIENTS[0], "title": "Assistant"}},
    preview=("--dry-run",),
)  # fmt: skip
_FILE = {"type": "string", "title": "File", "description": "Its path, such as ~/team.localmcp", "format": "path"}
_NAME = {"type": "string", "title": "Name"}
USE_MODEL = Command(
    "Models", "Use another model", "It reads everything in the file, then answers.", ("models", "use", "{model}"),
    {"model": {"type": "string", "title": "Model", "default": "multilingual", "description": "default, multilingual "
               "(knows about 100 languages), or another of the list above"}}, is_long=True,
    warning="Reading everything again can take long; the old vectors answer until it is done.",
)  # fmt: skip

FILE_COMMANDS = (
    Command("This file", "Size, contents, model", "What is in the file, in which languages, and what takes the space.",
            ("status",), shows=True),
    Command("This file", "Optimize", "Faster searches and a smaller file.", ("optimize",), is_long=True,
            warning="It rewrites indexes; searches go on meanwhile."),
    Command("This file", "Allow changes", "A file from another machine is read-only until it is adopted.",
            ("adopt", "{file}"), {"file": _FILE},
            warning="Its API keys, watched folders and jobs are dropped; documents, rules and quick starts stay."),
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
    Command("Evaluation", "Measure the search", "Questions are made from your passages; a table and a plot say how "
            "many are answered.", ("--json", "eval", "--per-kind", "{questions}", "--collection", "{collection}"),
            {"questions": {"type": "integer", "title": "Questions a kind", "default": 50, "minimum": 1},
             "collection?": {"type": "string", "title": "Only collection"}}, is_long=True, draw=evaluation_page),
    Command("Models", "Models on this machine", "The star marks the one in use.", ("models", "list"), shows=True),
    USE_MODEL,
)  # fmt: skip

HUB_COMMANDS = (
    Command("Assistants", "Assistants on this machine", "Which are there, and which are connected.", ("connect",),
            shows=True),
    CONNECT,
    Command("Assistants", "Disconnect an assistant", "localmcp is taken out of its configuration.",
            ("connect", "{client}", "--remove"), CONNECT.fields, preview=("--dry-run",)),
    Command("Servers", "Connect a server", "It is started once to read its tools; assistants find them by searching.",
            ("servers", "add", "{name}", "--", "{command}"),
            {"name": _NAME,
             "command": {"type": "string", "title": "Command", "description": "such as: uvx mcp-server-time"}},
            warning="It runs that command on this machine."),
    Command("Servers", "Import servers from assistants", "What they have configured comes into localmcp.",
            ("connect", "--import"), preview=("--dry-run",)),
    Command("Tools", "Where tools come from", "Your own commands, scripts and queries, and their problems.",
            ("tools", "providers"), shows=True),
)  # fmt: skip


# ---------------------------------------------------------------- the file


def backups_of(session: Session) -> list[Entry]:
    """Return the backups beside the file, the latest first."""
    path = session.path
    copies = sorted(path.parent.glob(f"{path.stem}-*-[0-9]*-[0-9]*{path.suffix}"), reverse=True)
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
    state = Content.styled(f"✗ {mount['problem']}", "$error") if mount.get("problem") else Content(holds)
    title = Content.assemble(("● ", "$success"), f"{name}  mounted")
    search = Content(f"Search only there:  collection:mount:{name}/*")
    about = Content("\n\n").join([Content(short(path)), state, search])
    unmount = Command("Packs", "Unmount it", "It is no longer searched.", ("unmount", name))
    check = Command("Packs", "Check it", "", ("verify", path), is_long=True)
    return Entry("Packs", name, title, about, (unmount, check))


def settings_of(session: Session) -> list[Entry]:
    """Return every setting with its value and its help."""
    return [_setting(setting) for setting in settings_in_force(load_settings(database=session.path))]


def _setting(setting: Json) -> Entry:
    name, value = str(setting["name"]), _plain(setting["value"])
    is_default = setting["from"] == "default"
    title = Content.assemble(f"{name}  ", (value, "$muted" if is_default else "bold $accent"))
    says = str(setting["says"])
    facts = {"value": value, "from": setting["from"], "default": _plain(setting["default"]), "variable": setting["env"]}
    lines = [Content.assemble((f"{fact:<10}", "$muted"), str(text)) for fact, text in facts.items()]
    about = Content("\n").join([Content(says), Content(""), *lines, Content("\nA change counts from the next start.")])
    schema = {"type": "string", "title": name, "description": says, "default": value}
    change = Command("Settings", f"Change {name}", says, ("config", "set", name, "{value}"), {"value": schema})
    reset = Command("Settings", "Back to its default", "", ("config", "unset", name))
    return Entry("Settings", name, title, about, (change,) if is_default else (change, reset))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)  # pyright: ignore[reportUnknownArgumentType]


# ---------------------------------------------------------------- the hub

MARKS = {"running": ("●", "$success"), "starting": ("◌", "$accent"), "failed": ("✗", "$error"),
         "unusable": ("✗", "$error"), "disabled": ("○", "$muted")}  # fmt: skip


def servers_of(session: Session) -> list[Entry]:
    """Return the MCP servers as they are now, with the end of their logs and what they have changed."""
    servers = session.workspace.mcp_servers
    servers.follow_file()
    return [_server(server, servers.log_end(server)) for server in servers.servers.values()]


def _server(server: McpServer, log: list[str]) -> Entry:
    name, state, tools = server.entry.name, server.condition, server.known_tools
    changes = [line for lines in server.changes().values() for line in lines]
    mark, style = MARKS.get(state, ("·", "$muted"))
    count = "tools not read yet" if tools is None else counted(tools, "tool")
    title = Content.assemble((f"{mark} ", style), (name, "bold"), f"  {state}, {count}",
                             ("  ✎ changed" if changes else "", "$warning"))  # fmt: skip
    parts = [Content(f"{server.entry.where} {' '.join(server.entry.args)}".strip()), Content(f"{state}, {count}")]
    parts += [Content.styled(f"✗ {problem.message} {problem.hint or ''}", "$warning") for problem in server.check()]
    parts += [difference_lines(changes)] if changes else []
    parts += [Content.styled("the end of its log", "$muted") + Content("\n" + "\n".join(log))] if log else []
    read = Command("Servers", "Read its tools again", "It is started.", work=lambda w: _read_again(w, name))
    remove = Command("Servers", "Remove it", "", ("servers", "remove", name), warning="Assistants lose its tools.")
    approve = Command("Servers", "Approve what it has changed", "", warning="\n".join(changes[:30]),
                      work=lambda w: _approve(w, name))  # fmt: skip
    commands = (approve, read, remove) if changes else (read, remove)
    return Entry("Servers", name, title, Content("\n\n").join(parts), commands)


def difference_lines(lines: list[str]) -> Content:
    """Draw a unified difference between what was approved and what is there now."""
    tones = {"+": "$success", "-": "$error", "@": "$muted"}
    return Content("\n").join(Content.styled(line, tones.get(line[:1], "")) for line in lines)


def _read_again(workspace: Workspace, name: str) -> str:
    outcome = workspace.mcp_servers.refresh([name])[name]
    if isinstance(outcome, Exception):
        raise outcome
    return f"{name} has {counted(outcome, 'tool')}."


def _approve(workspace: Workspace, name: str) -> str:
    workspace.mcp_servers.server(name).approve()
    return f"The tools of {name} are approved as they are now."
