"""Twenty tasks in the TUI, done by keys from an empty file: `python tests/benchmarks/tui_tasks.py` prints the table of
docs/tui.md with the number of keys of each; a text that is typed counts as one. A task whose end is not reached fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "tui")]

from folders import write  # noqa: E402
from tui_driver import RunningTui, open_tui  # noqa: E402

from localmcp.config import Settings  # noqa: E402
from localmcp.doctor.examination import run_checks  # noqa: E402
from localmcp.tools import Scope  # noqa: E402
from localmcp.tui.widgets import Pane  # noqa: E402

MOST_KEYS = 20


@dataclass(frozen=True)
class Task:
    """What a person wants, the keys that do it, and how one sees that it is done."""

    name: str
    keys: tuple[str, ...]
    """`+` types the rest."""
    done: Callable[[RunningTui], object]


def tasks(home: Path) -> list[Task]:
    notes, gift = home / "notes", home / "gift.localmcp"
    find = ("alt+7", "slash")

    def see(text: str) -> Callable[[RunningTui], object]:
        return lambda tui: text in tui.text()

    return [
        Task("Add a folder", ("a", f"+{notes}", "enter"), lambda t: t.app.stats.get("totalSources") == 5),
        Task("Find a sentence", ("+feed in autumn",), see("Feed the bees in autumn")),
        Task("See why it was found", ("+queen", "escape", "x"), see("cosine")),
        Task("Read a book to its end", ("+lamp", "enter", "enter", "G"), see("light(59)")),
        Task("Find words inside a book", ("+lamp", "enter", "enter", "slash", "+chapter 44", "enter"),
             see("The lamp of chapter 44")),
        Task("Only one collection", ("+bees", "escape", "f", "enter"), lambda t: "collection:" in t.pane.line.value),
        Task("The latest document first", ("+bees", "escape", "t"), see("order by date")),
        Task("More passages like this one", ("+queen", "escape", "l"), see("like Bees")),
        Task("Copy a citation", ("+queen", "escape", "y"), lambda t: "bees.md:" in t.app.clipboard),
        Task("Save a search and run it again", ("+queen", "ctrl+s", "ctrl+u", "down", "enter"),
             lambda t: t.pane.line.value == "queen" and t.pane.hits),
        Task("Give a pack away", (*find, "+give a pack", "enter", "enter", f"+{gift}", "ctrl+r"),
             lambda _: gift.exists()),
        Task("Search a pack beside the file", (*find, "+mount a", "enter", "enter", f"+{gift}", "ctrl+r"),
             see("gift")),
        Task("Make a backup", (*find, "+make a backup", "enter", "enter"), lambda _: list(home.glob("*backup*"))),
        Task("Remove a document, and undo it", ("alt+2", "slash", "+soil", "enter", "d", "y", "u"),
             lambda t: not t.app.session.workspace.library.trashed() and not t.pane.undoable),
        Task("See why a file was not read, and read it again", ("alt+2", "right", "down", "right", "down", "r"),
             see("could not be read")),
        Task("See what the assistant read", ("alt+6",), see("was given")),
        Task("Connect an assistant", ("alt+5", "down", "enter", "ctrl+r", "y"),
             lambda _: "localmcp" in (home / ".config/Claude/claude_desktop_config.json").read_text()),
        Task("Add a rule", ("alt+4", "a", "+Write short commit messages.", "ctrl+r"),
             see("Write short commit messages.")),
        Task("Run a tool", ("alt+5", "slash", "+get_stats", "enter", "enter", "ctrl+r"),
             lambda t: t.pane.answer[0] == "Tools/get_stats"),
        Task("Check the file", (*find, "+check the file", "enter"), see("integrity")),
    ]  # fmt: skip


async def do(tui: RunningTui, task: Task) -> None:
    """Do a task from the search line, which is empty; then go back there."""
    for key in task.keys:
        if key.startswith("+"):
            await tui.type(key[1:])
        else:
            await tui.press(key)
    await tui.until(lambda: task.done(tui), task.name)
    await tui.until(lambda: not tui.app.session.job, "the work to end")
    while len(tui.app.screen_stack) > 1:
        await tui.press("escape")
    tui.app.clear_notifications()
    for pane in tui.app.switcher.query(Pane):
        pane.line.clear()
    await tui.press("alt+1")
    tui.pane.mode, tui.pane.by_date = "hybrid", False
    tui.pane.type_query("")
    await tui.settle()


def prepare(home: Path) -> None:
    """What a person has before localmcp: notes, a book, a broken file, an assistant."""
    write(home / "notes" / "bees.md", "# Bees\n\nA hive has one queen. Feed the bees in autumn, before the frost.\n")
    write(home / "notes" / "roses.md", "# Roses\n\nPrune roses in late winter, when the bees are asleep.\n")
    write(home / "notes" / "soil.txt", "Clay holds water; sand lets it through.\n")
    write(home / "notes" / "todo.md", "# To do\n\nCall the beekeeper.\n")
    chapters = (f"# Chapter {n}\n\nThe lamp of chapter {n}. {'It burns. ' * 80}\n\nlight({n})\n" for n in range(60))
    write(home / "notes" / "lamps.md", "\n".join(chapters))
    (home / "notes" / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    write(home / ".config" / "Claude" / "claude_desktop_config.json", json.dumps({"mcpServers": {}}))


async def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        os.environ |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
        for name in ("STATE", "CONFIG", "CACHE"):
            os.environ[f"LOCALMCP_{name}_DIR"] = str(home / f".{name.lower()}")
        prepare(home)
        settings = Settings(database=home / "library.localmcp", model="hash", refresh_seconds=0)
        print("| task | keys | which |\n|---|---|---|")
        async with open_tui(settings.database, (140, 40), settings, examine=run_checks) as tui:
            # The first fills the file; naming tasks runs these alone after it.
            chosen = [t for n, t in enumerate(tasks(home)) if n == 0 or not sys.argv[1:] or t.name in sys.argv[1:]]
            for task in chosen:
                if "assistant read" in task.name:
                    tui.app.session.workspace.registry.call("search", {"query": "bees"}, Scope(caller="stdio"))
                await do(tui, task)
                assert len(task.keys) <= MOST_KEYS, task.name
                shown = " ".join("*text*" if key.startswith("+") else f"`{key}`" for key in task.keys)
                print(f"| {task.name} | {len(task.keys)} | {shown.replace('`slash`', '`/`')} |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
