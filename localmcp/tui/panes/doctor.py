"""Doctor: what was checked, the command that repairs what is wrong, sizes, and the speed of the last searches."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Protocol, cast

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Sparkline, Static

from localmcp.humanize import counted, size
from localmcp.tui.pane import FilterLine, Pane

if TYPE_CHECKING:
    from localmcp.tui.app import LocalMcpApp
    from localmcp.workspace import Workspace

MARKS = {"ok": ("✓", "$success"), "warn": ("!", "$warning"), "fail": ("✗", "$error")}
SEARCHES = 100
"""Searches whose speed is drawn."""
WIDEST_BAR = 24
HANGING, LEAST_SPACE = 18, 20
"""Cells before what a check says, and those that it gets at least."""


class Check(Protocol):
    """A check: its status is `ok`, `warn` or `fail`; `fix` is the command that repairs it, or empty."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def says(self) -> str: ...
    @property
    def fix(self) -> str: ...


class Examination(Protocol):
    """What the doctor reports: checks, and (table, bytes) with the largest first.

    The app gets the function that examines as a parameter: the doctor and the TUI do not import each other.
    """

    @property
    def checks(self) -> Sequence[Check]: ...
    @property
    def sizes(self) -> Sequence[tuple[str, int]]: ...


class DoctorPane(Pane):
    TITLE, KEY_GROUP = "Doctor", "doctor"
    ABOUT = "Checks of the file, the model and this machine, each with the command that repairs it. r checks again."

    report: Examination | None = None
    speeds: Sequence[float] = ()
    """Milliseconds of the last searches."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="framed", id="checks"):
            yield Static(Content.styled("◌ looking …", "$accent"), id="check-lines")
        with Vertical(classes="framed", id="speeds"):
            yield Sparkline([], id="speed-line")
            yield Static(id="speed-words")
        with VerticalScroll(classes="framed", id="sizes"):
            yield Static(id="size-lines")
        yield FilterLine("Only checks that hold…", id="doctor-filter")

    def on_mount(self) -> None:
        for name, title in (("checks", "Checks"), ("speeds", "The last searches"), ("sizes", "What takes room")):
            self.query_one(f"#{name}").border_title = title

    def focus_first(self) -> None:
        """The checks, which can be scrolled."""
        self.query_one("#checks").focus()

    def file_changed(self, counters: dict[str, int]) -> None:
        """Keep what is shown until the person asks again: checking takes a while."""

    def reload(self) -> None:
        if self.session.is_open:
            self.ask("examine", self._examine, self._show)

    def action_check(self) -> None:
        self.query_one("#check-lines", Static).update(Content.styled("◌ looking …", "$accent"))
        self.reload()

    def _examine(self) -> tuple[Examination, list[float]]:
        examine = cast("LocalMcpApp", self.app).examine
        return self.session.look(examine), self.session.look(_last_searches)

    def _show(self, looked: tuple[Examination, list[float]]) -> None:
        self.report, self.speeds = report, speeds = looked
        self._show_checks()
        wrong = sum(check.status != "ok" for check in report.checks)
        self.query_one("#checks").border_subtitle = counted(wrong, "problem") if wrong else "all well"
        line = self.query_one("#speed-line", Sparkline)
        line.data = speeds
        line.set_class(len(speeds) < 2, "hidden")
        self.query_one("#speed-words", Static).update(speed_words(speeds))
        largest = max((size_ for _, size_ in report.sizes), default=0)
        lines = [_size_line(name, bytes_, largest) for name, bytes_ in report.sizes]
        self.query_one("#size-lines", Static).update(Content("\n").join(lines))
        self.query_one("#sizes").set_class(not report.sizes, "hidden")

    def on_resize(self) -> None:
        """Break the lines anew."""
        if self.report is not None:
            self.call_after_refresh(self._show_checks)

    def apply_filter(self, words: str) -> None:
        self.words = words
        if self.report is not None:
            self._show_checks()

    def _show_checks(self) -> None:
        checks = self.report.checks if self.report else ()
        # What is wrong comes first: on a small screen the rest is below its edge.
        words = self.words.casefold()
        fitting = [check for check in checks if words in f"{check.name} {check.says} {check.fix}".casefold()]
        space = self.query_one("#check-lines").content_size.width - HANGING
        lines = [_check_line(check, space) for check in sorted(fitting, key=lambda check: check.status == "ok")]
        self.query_one("#check-lines", Static).update(Content("\n").join(lines))

    def action_copy(self) -> None:
        if (report := self.report) is not None:
            lines = [f"{check.status:<4} {check.name}: {check.says} {check.fix}".rstrip() for check in report.checks]
            lines += [f"{name}: {size(bytes_)}" for name, bytes_ in report.sizes]
            self.copy("\n".join([*lines, speed_words(self.speeds)]), "The report is copied.")


def _check_line(check: Check, space: int) -> Content:
    """Return a check; what does not fit into `space` cells goes on below its beginning, not below the mark."""
    mark, style = MARKS.get(check.status, ("·", ""))
    says = wrap(check.says, max(space, LEAST_SPACE), break_on_hyphens=False) or [""]
    fix = Content.assemble("\n" + " " * HANGING, ("$ " + check.fix, "$accent")) if check.fix else Content("")
    text = ("\n" + " " * HANGING).join(says)
    return Content.assemble((f"{mark} ", style), (f"{check.name:<15} ", "bold"), text) + fix


def _size_line(name: str, number: int, largest: int) -> Content:
    length = max(round(number / largest * WIDEST_BAR), 1) if largest else 0
    return Content.assemble(f"{name:<20} ", ("█" * length).ljust(WIDEST_BAR), f" {size(number):>9}")


def speed_words(speeds: Sequence[float]) -> str:
    """Return the median and the slow end of the last searches."""
    if not speeds:
        return "No searches yet."
    ordered = sorted(speeds)
    middle, slow = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"{counted(len(speeds), 'search')}: half below {middle:.0f} ms, 95 % below {slow:.0f} ms"


def _last_searches(workspace: Workspace) -> list[float]:
    """Milliseconds, the oldest first."""
    return [call.milliseconds for call in workspace.activity.logs(tool="search", limit=SEARCHES).entries][::-1]
