"""What can be done, from its form to its answer, the base of the panes whose rows are commands; and the pane Tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from datetime import datetime
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.content import Content

from localmcp.connect import configuration
from localmcp.doctor.backups import back_up, restore
from localmcp.errors import LocalMCPError
from localmcp.hub.client_configuration import client_names
from localmcp.humanize import command_line, counted, field_label, field_text, rows_of, size
from localmcp.packs.pack import write_pack
from localmcp.schemas import Json, mapping_of
from localmcp.tools import Answer
from localmcp.tui.dialogs import PATH, FormScreen, ask_screen, choose, confirm
from localmcp.tui.session import Session
from localmcp.tui.widgets import Pane, Row, bar, facts, lines, short

if TYPE_CHECKING:
    from localmcp.hub.server import McpServer
    from localmcp.hub.servers import McpServers
    from localmcp.tools import Tool
    from localmcp.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command."""

    session: Session
    values: Json = field(default_factory=dict[str, Any])
    """The fields of its form."""
    dry_run: bool = False
    """Only what would change is wanted."""
    tell: Callable[[Any], None] = lambda _: None
    """Takes the progress; raises Interrupted when it is to stop."""


@dataclass(frozen=True, slots=True)
class Command:
    """Something that can be done."""

    title: str
    says: str
    do: Callable[[Run], Any]
    """Does it, in a thread; returns a text, a record, or the answer of a tool."""
    shell: str = ""
    """The command line that does the same."""
    form: Json | Callable[[Session], Json] | None = None
    """The JSON Schema of what it needs, or what reads it."""
    has_preview: bool = False
    """What would change is shown and asked before it runs."""
    warning: str = ""
    """Asked before it runs; empty = it runs at once, unless there is a preview."""
    shows: bool = False
    """It only reads and is quick: its answer is shown as soon as it is highlighted."""
    is_long: bool = False
    """It runs in the background, where it can be stopped."""


def form_of(**fields: Json) -> Json:
    """Return the schema of a form; a field is required unless its schema says `optional`."""
    properties = {name: {"type": "string", **spec} for name, spec in fields.items()}
    required = [name for name, spec in fields.items() if not spec.get("optional")]
    return {"type": "object", "properties": properties, "required": required}


def call_tool(name: str, run: Run, **fixed: Any) -> Json:
    """Call a tool with the fields of a form."""
    return run.session.call(name, **run.values, **fixed).value


def start(
    pane: Pane, command: Command, finish: Callable[[Any], object] | None, values: Mapping[str, Any] | None = None,
    failed: Callable[[LocalMCPError], object] | None = None,
) -> None:  # fmt: skip
    """Ask for what a command needs, show what it would change, run it after a yes, and hand its answer to `finish`.

    The app shows the report of a long command without `finish`. `values`: those of a thing that is changed. `failed`
    gets an error; without it, the form or the error line does.
    """
    session = pane.session
    # What needs no question is done while the form is open: the person can correct there what is wrong.
    at_once = not (command.warning or command.has_preview or command.is_long or failed)
    done: Callable[[Any], object] = finish or (lambda _: None)

    def show_form(schema: Json) -> None:
        def save(fields: Json) -> Any:
            return command.do(Run(session, fields)) if at_once else fields

        ask_screen(pane, FormScreen(command.title, schema, save, values), done if at_once else propose)

    def propose(fields: Json) -> None:
        run = Run(session, fields)
        ask = partial(confirm, pane, f"{command.title}?", yes="Run", then=partial(execute, run))
        if command.has_preview:
            preview = partial(command.do, replace(run, dry_run=True))
            pane.ask("preview", preview, lambda shown: ask(more=describe_answer(shown).plain))
        elif command.warning:
            ask(more=command.warning)
        else:
            execute(run)

    def execute(run: Run) -> None:
        if command.is_long:
            session.do(command.title, lambda tell: command.do(replace(run, tell=tell)), finish)
        else:
            pane.ask(command.title, partial(command.do, run), done, failed)

    if command.form is None:
        propose({})
    elif callable(command.form):
        pane.ask("form", partial(command.form, session), show_form)
    else:
        show_form(command.form)


# ---------------------------------------------------------------- answers


def describe_answer(value: Any) -> Content:
    """Return an answer as text: that of a tool as a model reads it, a record by its fields, in words."""
    if isinstance(value, LocalMCPError):
        return Content.styled(f"✗ {value}", "$error")
    if isinstance(value, Answer):
        value = value.text
    if isinstance(value, str):
        cut = len(value) - 100_000
        return Content(f"{value[:100_000]}\n… {cut:,} more characters; y copies all" if cut > 0 else value)
    if isinstance(value, Content):
        return value
    record = cast("Json", asdict(cast(Any, value)) if is_dataclass(value) else value)
    tables = {name: rows for name, part in record.items() if (rows := rows_of(part))}
    parts = facts({field_label(name): field_text(name, part) for name, part in record.items() if name not in tables})
    for name, rows in tables.items():
        # A text says itself what it is, a number does not.
        shown = [
            [f"{field_label(key)} {text}" if isinstance(part, int | float) else text
             for key, part in row.items() if (text := field_text(key, part))]
            for row in rows
        ]  # fmt: skip
        parts += [Content.styled(f"\n{field_label(name)}", "$muted"), *map(Content, map("  ".join, shown))]
    return lines(*parts)


# ---------------------------------------------------------------- the pane


def thing(group: str, name: str, title: Content, about: Content, *commands: Command) -> Row:
    """Return the row of a thing with what can be done with it."""
    return Row(f"{group}/{name}", Content("  ") + title, about, group, commands)


def row_of(group: str, command: Command) -> Row:
    """Return the row of a command."""
    title = Content(f"{command.title}{'' if command.shows else ' …'}")
    return thing(group, command.title, title, Content.styled(command.says, "$muted"), command)


class CommandPane(Pane):
    """The base of the panes Tools and File; the record of a row is its commands."""

    PLACEHOLDER = "What do you want to do?"
    NEEDS_FILE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "open", "Run"), Binding("y", "copy", "Copy")]
    COMMANDS: ClassVar[Mapping[str, Sequence[Command]]] = {}
    """Group -> commands, the first rows of the group."""
    THINGS: ClassVar[Mapping[str, Callable[[Session], list[Row]]]] = {}
    """Group -> function that reads its further rows."""

    answer: tuple[str, Any] = ("", None)
    """The last one, behind the key of its row."""

    def find(self, text: str) -> list[Row]:
        rows: list[Row] = []
        for group, commands in self.COMMANDS.items():
            rows += [row_of(group, command) for command in commands]
            read = self.THINGS.get(group)
            # A backup can be restored in a file that cannot be read.
            with suppress(LocalMCPError):
                rows += self.session.look(lambda _, read=read: read(self.session)) if read else []
        texts = (f"{row.group} {row.title} {row.about.plain}".casefold() for row in rows)
        return [row for row, shown in zip(rows, texts, strict=True) if all(w in shown for w in text.casefold().split())]

    def file_changed(self, counters: dict[str, int]) -> None:
        """Forget an answer that may be out of date."""
        if self.chosen is not None and self.chosen.record[0].shows:
            self.answer = "", None
        super().file_changed(counters)

    def show_row(self, row: Row) -> None:
        """Describe the highlighted row; fetch the answer of a command that only reads."""
        commands: Sequence[Command] = row.record
        keys = "enter runs it" if len(commands) == 1 else "enter: what can be done"
        answer = Content.styled("◌ looking …" if commands[0].shows else keys, "$muted")
        if row.key == self.answer[0]:
            answer = describe_answer(self.answer[1])
        self.reader.show(row.key.partition("/")[2], lines(row.about, "", answer))
        if commands[0].shows and row.key != self.answer[0] and self.session.is_open:
            # Going past a row fetches nothing.
            self.set_timer(0.25, partial(self._fetch, row))

    def _fetch(self, row: Row, *, again: bool = False) -> None:
        if self.chosen is not None and self.chosen.key == row.key and (again or row.key != self.answer[0]):
            keep = partial(self.keep, row)
            self.ask("show", partial(row.record[0].do, Run(self.session)), keep, keep)

    def keep(self, row: Row, answer: Any) -> None:
        """Show an answer beside its row."""
        self.answer = row.key, answer
        self.highlighted()
        # What it brought about may be rows of their own.
        self.reload()

    def action_open(self) -> None:
        """Run the command, or ask which."""
        row = self.chosen
        if row is None:
            return
        commands: Sequence[Command] = row.record
        if len(commands) > 1:
            above = row.about if self.screen.has_class("-narrow") else None
            options = [(command.title, command.says) for command in commands]
            title = row.key.partition("/")[2]
            choose(self, title, options, lambda number: self.run_command(row, commands[number]), above)
        elif not commands[0].shows:
            self.run_command(row, commands[0])
        else:
            self._fetch(row, again=True)
            self.uncover_reader()

    def run_command(self, row: Row, command: Command) -> None:
        """Run a command, and show its answer beside its row; an error of a tool is its answer."""

        def finish(answer: Any) -> None:
            self.keep(row, answer)
            self.uncover_reader()

        start(self, command, finish, failed=finish if row.group == "Tools" else None)

    def go_to(self, title: str) -> None:
        """List the command of that title alone, which shows it if it only reads; else do it."""
        rows = [row_of(group, command) for group, some in self.COMMANDS.items() for command in some]
        row = next(row for row in rows if row.record[0].title == title)
        self.line.value = title
        self.show_rows([row])
        if not row.record[0].shows:
            self.run_command(row, row.record[0])

    def action_copy(self) -> None:
        """Copy the answer of a tool as JSON, else the command line that does the same, else what is said of the row."""
        if row := self.chosen:
            (key, answer), shell = self.answer, row.record[0].shell
            if key == row.key and isinstance(answer, Answer):
                text = json.dumps(answer.value, ensure_ascii=False, indent=2, default=str)
                self.copy(text, "The answer is copied as JSON.")
            else:
                self.copy(shell or row.about.plain, "The command line is copied." if shell else "Copied.")


# ---------------------------------------------------------------- the tools

MARKS = {"running": ("●", "$success"), "starting": ("◌", "$accent"), "failed": ("✗", "$error"),
         "unusable": ("✗", "$error"), "disabled": ("○", "$muted")}  # fmt: skip
NAME = "localmcp"
"""What this file is called in the configuration of an assistant."""


def _assistants(_run: Run) -> Json | str:
    clients = list(map(configuration.describe_client, configuration.present_clients()))
    return {"clients": clients} if clients else "None was found on this machine."


def _connect(run: Run) -> Json:
    entry, carried, _ = configuration.make_entry(str(run.session.path))
    targets = configuration.find_targets(run.values["client"])
    changes = [configuration.plan_change(target, NAME, entry) for target in targets]
    tools = [] if run.dry_run else configuration.ask_for_tools(NAME, entry)
    files = configuration.write_changes(changes, dry_run=run.dry_run)
    command = command_line(entry["command"], *entry["args"])
    entries = [{"file": file["path"], "entry": file["action"]} for file in files]
    shown = {"files": entries, "command": command, "variables": carried}
    if run.dry_run:
        return shown
    copies = [file["backup"] for file in files if file["backup"]]
    return {**shown, "tools": tools, "copies": copies, "next": "Quit the assistant completely, and start it again."}


def _server(servers: McpServers, server: McpServer) -> Row:
    name, state, tools, log = server.entry.name, server.condition, server.known_tools, servers.log_end(server)

    def remove(_: Run) -> str:
        servers.remove([name])
        return f"Removed {name}."

    def read_again(_: Run) -> str:
        outcome = servers.refresh([name])[name]
        if isinstance(outcome, Exception):
            raise outcome
        return f"{name} has {counted(outcome, 'tool')}."

    def approve(_: Run) -> str:
        server.approve()
        return f"The tools of {name} are approved as they are now."

    changes = [line for lines in server.changes().values() for line in lines]
    tones = {"+": "$success", "-": "$error", "@": "$muted"}
    difference = [Content.styled(line, tones.get(line[:1], "")) for line in changes]
    mark, style = MARKS.get(state, ("·", "$muted"))
    count = "tools not read yet" if tools is None else counted(tools, "tool")
    title = Content.assemble((f"{mark} ", style), (name, "bold"), f"  {state}, {count}",
                             ("  ✎ changed" if changes else "", "$warning"))  # fmt: skip
    parts = [Content(f"{server.entry.where} {' '.join(server.entry.shown_args)}".strip()), Content(f"{state}, {count}")]
    parts += [Content.styled(f"✗ {problem}", "$warning")] if (problem := server.problem) else []
    parts += [lines(*difference)] if changes else []
    parts += [lines(Content.styled("the end of its log", "$muted"), *log)] if log else []
    shell = partial(command_line, "localmcp", "servers")
    read = Command("Read its tools again", "It is started.", read_again, shell("refresh", name))
    commands = [read, Command("Remove it", "", remove, shell("remove", name), warning="Assistants lose its tools.")]
    if changes:
        words = "\n".join(changes[:30])
        commands[:0] = [Command("Approve what it has changed", "", approve, shell("approve", name), warning=words)]
    return thing("Servers", name, title, Content("\n\n").join(parts), *commands)


def tool_schema(name: str, *without: str) -> Any:
    """Return what reads the form of a tool, without those of its arguments."""

    def read(session: Session) -> Json:
        schema = session.look(lambda workspace: workspace.registry.get(name).input_schema)
        properties = {key: spec for key, spec in mapping_of(schema.get("properties")).items() if key not in without}
        return {**schema, "properties": properties}

    return read


def _tool(tool: Tool, score: float | None = None) -> Row:
    mark = tool.mark
    sign = ("● ", "$success") if mark.visible else ("○ ", "$muted")
    scored = f"  {bar(score * 100)} {score:.2f}" if score is not None else ""
    title = Content.assemble(sign, (mark.name, "bold"), (scored, "$accent"), "\n  ", (mark.title, "$muted"))
    kind = "only reads" if mark.read_only else "may remove things" if mark.destructive else "changes things"
    nature = f"{kind} · {'shown to assistants' if mark.visible else 'found by searching'}"
    about = lines(
        Content.styled(mark.title, "bold"), " ".join(tool.description.split()), Content.styled(nature, "$muted")
    )
    warning = "This tool may take something away." if mark.destructive else ""

    def call(run: Run) -> Answer:
        """Call the tool as an assistant does: its text is what a language model reads."""
        return run.session.call(mark.name, lean=True, **run.values)

    command = Command(f"Run {mark.name}", "", call, form=tool_schema(mark.name), warning=warning)
    return Row(f"Tools/{mark.name}", title, about, "Tools", (command,))


TOOL_COMMANDS = {
    "Assistants": (
        Command("Assistants on this machine", "Which are there, and which are connected.", _assistants,
                "localmcp connect", shows=True),
        Command("Connect an assistant", "Its configuration is found, changed and tried out; a copy stays beside it.",
                _connect, "localmcp connect CLIENT", form_of(
                    client={"enum": client_names(), "default": "claude-desktop", "title": "Assistant"},
                ), has_preview=True),
    ),
    "Servers": (),
}  # fmt: skip


class ToolsPane(CommandPane):
    LIST_TITLE = "Tools"
    PLACEHOLDER = "What should the tool do?"
    COMMANDS = TOOL_COMMANDS
    THINGS = {
        "Servers": lambda session: [
            _server(session.workspace.mcp_servers, server) for server in session.workspace.mcp_servers.servers.values()
        ]
    }
    LOOKS_EVERY = 1.0
    HELP = """\
    Assistants and servers first: an assistant is connected here, after you saw what is written; servers, which
    `localmcp servers add` connects, are read again; what they have changed is beside them. Then every tool that an
    assistant may call: ● those it is shown, ○ those it finds by searching. Type what you want done and you see what
    the search gives it.
    """

    def find(self, text: str) -> list[Row]:
        if not text:

            def look(workspace: Workspace) -> list[Tool]:
                """Return every tool that is known, the visible ones first; looking starts no server."""
                theirs = [tool for server in workspace.mcp_servers.reachable() for tool in server.tools()]
                tools = [*workspace.registry.tools(for_listing=True), *workspace.own_tools.tools(), *theirs]
                return sorted(tools, key=lambda tool: (not tool.mark.visible, tool.name.lower()))

            return [*super().find(""), *map(_tool, self.session.look(look))]
        words = text.casefold().split()
        commands = [row for row in super().find(text) if all(word in str(row.title).casefold() for word in words)]
        tools = {tool.name: tool for tool in self.session.look(lambda w: w.registry.tools())}
        hits: list[Json] = self.session.read("tool_search", query=text, max_results=50)["tools"]
        return [*commands, *(_tool(tools[hit["name"]], hit["score"]) for hit in hits if hit["name"] in tools)]


# ---------------------------------------------------------------- file


def _status(run: Run) -> Json | str:
    if not run.session.exists:
        return "There is no file yet. Begin with: localmcp add FOLDER"
    settings = run.session.workspace.settings
    about = {"path": str(run.session.path), "readOnly": run.session.why_read_only(), "model": settings.model}
    return {**about, **run.session.read("get_stats")}


def _examine(run: Run) -> Content:
    from localmcp.doctor import examination

    checks = run.session.look(examination.run_checks)
    problems = sum(check.status != "ok" for check in checks)
    parts = [Content.styled(counted(problems, "problem") if problems else "all well", "bold")]
    for check in sorted(checks, key=lambda check: check.status == "ok"):
        mark = {"ok": ("✓ ", "$success"), "warn": ("! ", "$warning"), "fail": ("✗ ", "$error")}[check.status]
        fix = (f"\n  $ {check.fix}" if check.fix else "", "$accent")
        parts.append(Content.assemble(mark, (f"{check.name}  ", "bold"), check.says, fix))
    return lines(*parts)


def backups_of(session: Session) -> list[Row]:
    """Return the backups beside the file, the latest first."""
    file, rows = session.path, list[Row]()
    for copy in sorted(file.parent.glob(f"{escape(file.stem)}-*-[0-9]*-[0-9]*{escape(file.suffix)}"), reverse=True):
        path, length = str(copy), size(copy.stat().st_size)
        when = f"{datetime.fromtimestamp(copy.stat().st_mtime):%Y-%m-%d %H:%M}"
        title, about = Content(f"{when}  {length}"), Content(f"{short(path)}\n\n{length}, made {when}")
        shell = command_line("localmcp", "restore", path)

        def bring_back(run: Run, backup: Path = copy) -> Any:
            return restore(run.session.path, backup)

        warning = f"The file gets the content of {copy.name}; what is in it now is kept beside it."
        put_back = Command("Restore it", warning, bring_back, shell, warning=warning, is_long=True)
        rows.append(thing("Backups", path, title, about, put_back))
    return rows


def _pack(run: Run) -> str:
    collection, target = run.values.get("collection"), Path(run.values["file"]).expanduser().absolute()
    run.session.workspace.library.make_vectors(collection=collection, progress=run.tell)
    database, chosen = run.session.workspace.database, [collection] if collection else None
    title = run.values.get("title", "")
    counts = write_pack(database, target, chosen, title=title, say=lambda _step: run.tell(None)).counts
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
    rows: list[Row] = []
    for mount in session.workspace.mounts.described():
        name, problem = str(mount["name"]), mount.get("problem")
        mark = ("✗ ", "$error") if problem else ("● ", "$success")
        about = lines(describe_answer(mount), "", f"Search only there:  collection:mount:{name}")

        def unmount(run: Run, name: str = name) -> str:
            return f"Unmounted {run.session.workspace.mounts.unmount(name).name}"

        shell = command_line("localmcp", "unmount", name)
        command = Command("Unmount it", "", unmount, shell, warning="It is no longer searched.")
        title = Content.assemble(mark, f"{name}  {problem or 'mounted'}")
        rows.append(thing("Packs", name, title, about, command))
    return rows


FILE_COMMANDS = {
    "This file": (
        Command("Size, contents, model", "What is in the file, in which languages, and what takes the space.",
                _status, "localmcp status", shows=True),
    ),
    "Checks": (
        Command("Check the file and this machine", "The file, the model, the configuration; each problem with the "
                "command that repairs it.", _examine, "localmcp doctor", shows=True),
    ),
    "Backups": (
        Command("Make a backup", "A checked copy beside the file, named by the time.",
                lambda run: back_up(run.session.workspace.database), "localmcp backup", is_long=True),
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
    COMMANDS = FILE_COMMANDS
    THINGS = {"Backups": backups_of, "Packs": mounts_of}
    HELP = """\
    What is done to the file as a whole: checks with what repairs it, backups, packs to give away, other files beside
    it. enter runs what is highlighted; what changes something is shown or asked first. y copies the command line that
    does the same.
    """
