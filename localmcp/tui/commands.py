"""Commands of the command line, run from the TUI: a form for what they need, a preview of what they change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from textual.content import Content

from localmcp.tui.dialogs import TextScreen, confirm
from localmcp.tui.form_screen import FormScreen
from localmcp.tui.pane import Asking
from localmcp.tui.session import Session
from localmcp.visible_text import visible

Json = dict[str, Any]
MOST_SECONDS = 3600
SHOWN_LINES = 16
"""Of a preview, in the question that follows it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line with `{names}` for what a form asks."""

    group: str
    title: str
    says: str
    words: tuple[str, ...]
    fields: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Name -> JSON Schema with `title`, the label; a name that ends with `?` may stay empty."""
    preview: tuple[str, ...] = ()
    """Added to the words to see what would change."""
    warning: str = ""
    """Asked before it runs; empty = it runs at once, unless there is a preview."""
    shows: bool = False
    """It only reads and is quick: its answer is shown as soon as it is highlighted."""

    def schema(self) -> Json:
        """The fields as a schema, for a form."""
        properties = {name.rstrip("?"): spec for name, spec in self.fields.items()}
        return {"type": "object", "properties": properties, "required": [n for n in self.fields if n[-1] != "?"]}

    def line(self, values: Mapping[str, Any]) -> list[str]:
        """The words with the values filled in; an option whose value is empty is left out with its name."""
        line: list[str] = []
        for word in self.words:
            if word.startswith("{") and (value := values.get(word.strip("{}"))) is not None:
                text = os.path.expanduser(str(value)) if "/" in str(value) else str(value)
                line += text.split() if word == "{command}" else [text]
            elif word.startswith("{"):
                if line and line[-1].startswith("--"):
                    line.pop()
            else:
                line.append(word)
        return line


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed."""

    text: str
    code: int


def run_command(session: Session, line: list[str]) -> Output:
    """Run `localmcp` with these words on the open file, without a terminal; for a thread that may wait."""
    settings = session.workspace.settings
    environment = {**os.environ, "NO_COLOR": "1", "LOCALMCP_DB": str(session.path), "LOCALMCP_MODEL": settings.model}
    process = subprocess.run(
        [sys.executable, "-m", "localmcp", *line], capture_output=True, stdin=subprocess.DEVNULL, text=True,
        encoding="utf-8", errors="replace", env=environment, timeout=MOST_SECONDS, check=False,
    )  # fmt: skip
    text = "\n".join(part.strip("\n") for part in (process.stdout, process.stderr) if part.strip())
    return Output(visible(text, newlines=True) or "Done.", process.returncode)


def shown(output: Output, line: list[str]) -> Content:
    """An answer below the command that gave it."""
    head = Content.styled(f"$ localmcp {' '.join(line)}", "$muted")
    text = Content.styled(output.text, "$error") if output.code else Content(output.text)
    return Content("\n\n").join([head, text])


def start(widget: Asking, command: Command, then: Callable[[list[str], Output], object] | None = None) -> None:
    """Ask for what a command needs, show what it would change, and run it after a yes."""

    def collected(values: Json | None) -> None:
        if values is None:
            return
        line = command.line(values)
        if command.preview:
            widget.app.notify("Looking at what would change …")
            preview = [*line, *command.preview]
            widget.ask("preview", lambda: run_command(widget.session, preview), lambda o: _propose(line, o))
        elif command.warning:
            confirm(widget, f"{command.title}?", command.warning, "Run", lambda: run(line))
        else:
            run(line)

    def _propose(line: list[str], output: Output) -> None:
        if output.code:
            widget.app.push_screen(TextScreen(command.title, shown(output, line)))
            return
        lines = output.text.splitlines()
        rest = f"\n… {len(lines) - SHOWN_LINES} more lines" if len(lines) > SHOWN_LINES else ""
        confirm(widget, f"{command.title}?", "\n".join(lines[:SHOWN_LINES]) + rest, "Do it", lambda: run(line))

    def run(line: list[str]) -> None:
        widget.app.notify(f"localmcp {' '.join(line)}", title="Running …")
        widget.ask("command", lambda: run_command(widget.session, line), lambda output: finish(line, output))

    def finish(line: list[str], output: Output) -> None:
        if then is not None:
            then(line, output)
        else:
            widget.app.push_screen(TextScreen(command.title, shown(output, line), copy=output.text))

    if command.fields:
        widget.app.push_screen(
            FormScreen(command.title, command.schema(), lambda values: values, verb="Run"), collected
        )
    else:
        collected({})


CLIENTS = ["claude-desktop", "claude-code", "cursor", "vscode", "windsurf", "zed", "gemini", "codex"]
CONNECT = Command(
    "Assistants", "Connect an assistant", "Its configuration is found, changed and tried out; a copy stays beside it.",
    ("connect", "{client}"), {"client": {"enum": CLIENTS, "default": CLIENTS[0], "title": "Assistant"}},
    preview=("--dry-run",),
)  # fmt: skip
_FILE = {"type": "string", "title": "File", "description": "Its path, such as ~/team.localmcp"}

FILE_COMMANDS = (
    Command("This file", "Size, contents, model", "What is in the file, and what takes the space.", ("status",),
            shows=True),
    Command("This file", "Optimize", "Faster searches and a smaller file.", ("optimize",),
            warning="It rewrites indexes; searches go on meanwhile."),
    Command("This file", "Allow changes", "A file from another machine is read-only until it is adopted.",
            ("adopt", "{file}"), {"file": _FILE},
            warning="Its API keys, watched folders and jobs are dropped; documents, rules and quick starts stay."),
    Command("Backups", "Make a backup", "A checked copy beside the file, named by the time.", ("backup",)),
    Command("Backups", "Check a backup", "Reads every page and row of it.", ("verify", "{file}"), {"file": _FILE}),
    Command("Backups", "Restore a backup", "What is in the file now is kept beside it.",
            ("restore", "{file}", "--yes"), {"file": _FILE}, warning="The file gets the content of the backup."),
    Command("Packs", "Give a pack away", "One file with documents and vectors, without keys, log and your folders.",
            ("pack", "{file}", "--title", "{title}", "--collection", "{collection}"),
            {"file": {**_FILE, "title": "New file"}, "title?": {"type": "string", "title": "Title"},
             "collection?": {"type": "string", "title": "Only collection"}}),
    Command("Packs", "Check a pack", "Whether it is whole and holds what its manifest says.", ("verify", "{file}"),
            {"file": _FILE}),
    Command("Packs", "Mounted packs", "Files that are searched together with yours.", ("mounts",), shows=True),
    Command("Packs", "Mount a pack", "It stays where it is, read-only.", ("mount", "{file}"), {"file": _FILE}),
    Command("Packs", "Unmount a pack", "It is no longer searched.", ("unmount", "{name}"),
            {"name": {"type": "string", "title": "Name"}}),
    Command("Packs", "Merge another file", "Its documents, quick starts and rules come into yours.",
            ("merge", "{file}"), {"file": _FILE}, preview=("--dry-run",)),
    Command("Models", "Models on this machine", "The star marks the one in use.", ("models", "list"), shows=True),
    Command("Models", "Use another model", "It reads everything in the file, then answers.",
            ("models", "use", "{model}"), {"model": {"type": "string", "title": "Model"}},
            warning="Reading everything again can take long; the old vectors stay until it is done."),
    Command("Settings", "Every setting", "Its value, where that comes from, and what it does.", ("config", "show"),
            shows=True),
    Command("Settings", "Change a setting", "Written to config.toml; it counts from the next start.",
            ("config", "set", "{name}", "{value}"),
            {"name": {"type": "string", "title": "Setting"}, "value": {"type": "string", "title": "Value"}}),
    Command("Evaluation", "Measure the search", "Questions are made from your passages; a table says how many are "
            "answered.", ("eval",)),
)  # fmt: skip

HUB_COMMANDS = (
    Command("Assistants", "Assistants on this machine", "Which are there, and which are connected.", ("connect",),
            shows=True),
    CONNECT,
    Command("Assistants", "Disconnect an assistant", "localmcp is taken out of its configuration.",
            ("connect", "{client}", "--remove"), CONNECT.fields, preview=("--dry-run",)),
    Command("Servers", "Connected servers", "Their state, and how many tools each has.", ("servers", "list"),
            shows=True),
    Command("Servers", "Connect a server", "It is started once to read its tools; assistants find them by searching.",
            ("servers", "add", "{name}", "--", "{command}"),
            {"name": {"type": "string", "title": "Name"},
             "command": {"type": "string", "title": "Command", "description": "such as: uvx mcp-server-time"}},
            warning="It runs that command on this machine."),
    Command("Servers", "Import servers from assistants", "What they have configured comes into localmcp.",
            ("connect", "--import"), preview=("--dry-run",)),
    Command("Servers", "Read their tools again", "Starts the servers; changed definitions are shown and approved.",
            ("servers", "refresh"), warning="It starts every server that is not disabled."),
    Command("Servers", "Remove a server", "It leaves mcp.json.", ("servers", "remove", "{name}"),
            {"name": {"type": "string", "title": "Name"}}, warning="Assistants no longer find its tools."),
    Command("Tools", "Where tools come from", "Your own commands, scripts and queries, and their problems.",
            ("tools", "providers"), shows=True),
)  # fmt: skip
"""What the panes File and Hub offer, in their order."""
