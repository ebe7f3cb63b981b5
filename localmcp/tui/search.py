"""Search: passages as you type, by document; the highlighted one as it is read, and why it was found."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.getters import query_one
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Static

from localmcp.errors import LocalMCPError
from localmcp.humanize import counted, headings_of
from localmcp.library.query_line import parse_query_line
from localmcp.schemas import Json
from localmcp.tui.pane import ListPane, Row
from localmcp.tui.passages import HitLines, citation_text, explanation_of, lines_of, look_around, matcher_of, short
from localmcp.tui.session import Failed, Session
from localmcp.tui.welcome import Welcome
from localmcp.tui.widgets import Choices, Quiet, Reader, lines
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.readers.excerpt import Matcher
    from localmcp.tools import CallRecord

HITS = 20
"""Passages on a page; the next page comes when the last one is reached."""
MOST_AT_ONCE = 100
MOST_SIMILAR_CHARACTERS = 2000
"""Of a passage that others are compared with."""
WHOLE = 1_000_000
"""Characters of the passages of an answer: the TUI shows them whole."""
TYPES = ("text", "docs", "code", "website")
SPANS = {7: "the last 7 days", 30: "the last 30 days", 365: "the last year"}
MODES = ("hybrid", "keyword", "semantic")
MOST_QUERIES = 30
"""Saved and recent searches that are listed."""
NEED_HIT = ("read", "explain", "cite", "copy", "edit", "similar", "unfold", "sort")
START = (
    "[b]Type to search[/b]\n\n[$muted]a question, words, a code or a name\n\n"
    'collection:notes   tag:ops   path:~/docs   source:"Boiler manual"\nnarrow it down in the same line[/]'
)
NOTHING_FITS = (
    "[b]Nothing fits[/b]\n\n[$muted]Fewer words, another mode [b]m[/b], no filters [b]f[/b], or more documents: "
    "[b]2[/b] Library, or\n\n  localmcp add FOLDER[/]"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A search as the person asks for it."""

    line: str
    mode: str
    by_date: bool = False
    similar_to: str = ""
    """A passage to compare with instead of the words."""


def run_search(session: Session, asked: Asked, *, cursor: str | None = None, limit: int = HITS) -> CallRecord:
    """Search, for a thread that may wait. The answer is what an assistant gets, with its explanation.

    Raises:
        NotFound: a filter names nothing.
    """
    parsed = parse_query_line(asked.line)
    tags = parsed.filters.get("tag")
    # Until the model is loaded, words answer; the search is repeated then.
    mode = "keyword" if session.model_loading else "semantic" if asked.similar_to else asked.mode
    return session.draft(
        "search", lean=True, query=asked.similar_to[:MOST_SIMILAR_CHARACTERS] or parsed.words, mode=mode,
        collection=parsed.last("collection"), partition=parsed.last("partition"), sourceType=parsed.last("type"),
        pathPrefix=parsed.last("path"), sourceId=parsed.last("source"), metadata={"tags": tags} if tags else None,
        since=parsed.last("since"), until=parsed.last("until"), limit=min(limit, MOST_AT_ONCE), explain=True,
        cursor=cursor, sort="newest" if asked.by_date else None, maxChars=WHOLE,
    )  # fmt: skip


def hits_of(draft: CallRecord, asked: Asked) -> list[Json]:
    """Return the passages of an answer; by date in their order, where the tool puts those first that answer."""
    hits: list[Json] = draft.answer.value["results"] if draft.answer is not None else []
    return sorted(hits, key=lambda hit: str(hit.get("date") or ""), reverse=True) if asked.by_date else hits


def remarks_of(draft: CallRecord) -> str:
    """Return what to know of an answer, in the words that an assistant and the command line get.

    Empty where nothing is unusual.
    """
    head = draft.answer.text.partition("\n\n")[0] if draft.answer is not None else ""
    head = re.sub(r"^\d[\d,]* documents?, [\d,]+ passages?\. ?|^Confidence: good\.| ?Paths are below .*", "", head)
    head = re.sub(r"^Confidence: good\. ?", "", head.strip())
    return " ".join(head.split())


@dataclass(frozen=True, slots=True)
class Choice:
    """A value of a filter that can be chosen; an empty one clears the filter."""

    name: str
    value: str
    note: str = ""


class SearchPane(ListPane):
    TITLE = "Search"
    PLACEHOLDER = "Search your documents"
    FOLLOWS_TOP = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Quiet("up", "earlier", "Earlier search"), Binding("space", "read", "Read"), Binding("x", "explain", "Why"),
        Binding("f,ctrl+f", "filters", "Filters"), Binding("l", "similar", "Like this"),
        Quiet("t", "sort", "By date"), Quiet("s,ctrl+s", "save", "Save the search"),
        Quiet("right", "unfold(True)", "More passages of the document"),
        Quiet("left", "unfold(False)", "Its best passage only"), Binding("y", "cite", "Cite"),
        Quiet("Y", "copy", "Copy text"), Binding("o", "edit", "Edit"),
        Binding("m,ctrl+t", "mode", "Mode"), Quiet("a", "accept", "Accept spelling"),
        Quiet("r", "again", "Search again"),
    ]  # fmt: skip
    HELP = """\
    Type a question, words, a code or a name; passages come as you type, by document. Filters are words of the line,
    such as `source:"Boiler manual"`, `collection:notes`, `tag:ops`, `path:~/docs`; f sets them from a list. Modes:
    hybrid looks for words and meaning, keyword for words alone, semantic for meaning alone.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.mode, self.by_date, self.explains = MODES[0], False, False
        self.asked: Asked | None = None
        """The search whose passages are shown; None before the first."""
        self.draft: CallRecord | None = None
        """Its call, until it is logged."""
        self.result: Json = {}
        self.hits: list[Json] = []
        self.remarks = ""
        self.unfolded: set[str] = set()
        """Source ids whose passages are all shown."""
        self._similar: tuple[str, str] = ("", "")
        """A search line, and the passage that it represents."""
        self._earlier = -1

    def compose_below(self) -> Iterable[Widget]:
        yield Static(classes="note", id="chips")
        with ContentSwitcher(initial="found", classes="split", id="below"):
            yield Welcome(id="welcome")
            with Horizontal(id="found"):
                yield Choices(classes="framed left", id="list")
                yield Reader(classes="framed right", id="reader")

    below = query_one("#below", ContentSwitcher)

    def on_mount(self) -> None:
        self.say_aside(self.mode)
        self._show_start(False)

    @property
    def hit(self) -> Json | None:
        """The passage that is highlighted; of folded ones, the first."""
        record: Any = self.chosen.record if self.chosen is not None else None
        return None if isinstance(record, str) else cast(Any, record[0]) if isinstance(record, tuple) else record

    # ------------------------------------------------------------ focus

    def focus_first(self) -> None:
        (self.query_one(Welcome) if self.below.current == "welcome" else self.line).focus()

    def focus_filter(self) -> None:
        self.below.current = "found"
        self.line.focus()

    def action_list(self) -> None:
        """Go to the passages, which may still come."""
        self.list.focus()

    def type_query(self, text: str) -> None:
        """Search for `text`, as if it had been typed."""
        self.focus_filter()
        self.line.value = visible(text)
        self.line.cursor_position = len(self.line.value)

    # ------------------------------------------------------------ searching

    def find(self, text: str) -> Sequence[Row]:
        raise NotImplementedError("The passages come from `run_search`.")

    def reload(self) -> None:
        """Search for what is in the line; without words, show earlier searches, or how to fill an empty library."""
        if not self.session.is_open:
            return
        similar_to = self._similar[1] if self.text == self._similar[0] else ""
        asked = Asked(self.text, self.mode, self.by_date, similar_to)
        self.forget("more")
        if not parse_query_line(asked.line).words:
            self.asked = None
            self.ask("rows", self._is_empty, self._show_start)
            return
        # A person on the third page stays there when the file changes.
        limit = max(len(self.hits), HITS) if asked == self.asked else HITS
        work = partial(run_search, self.session, asked, limit=limit)
        self.ask("rows", work, partial(self.show_result, asked), partial(self._show_refusal, asked))

    action_again = reload

    def _is_empty(self) -> bool:
        answer = self.session.draft("get_stats").answer if self.session.exists else None
        return answer is None or not answer.value["totalSources"]

    def _show_start(self, is_empty: bool) -> None:
        """Show saved searches and the recent ones, before anything was typed."""
        current = "welcome" if is_empty and not self.session.job else "found"
        if self.below.current != current:
            self.below.current = current
            self.focus_first()
        memory = self.session.memory
        queries = [*memory.saved, *(line for line in memory.recent if line not in memory.saved)][:MOST_QUERIES]
        rows = [_query_row(line, line in memory.saved) for line in queries]
        self.draft, self.result, self.hits, self.remarks = None, {}, [], ""
        self._show(rows)

    def show_result(self, asked: Asked, draft: CallRecord) -> None:
        """Show the answer; of the same search, the passage that the person moved to stays highlighted."""
        self.below.current = "found"
        if asked != self.asked:
            self.unfolded = set()
        self.asked, self.draft, self.remarks = asked, draft, remarks_of(draft)
        self.result, self.hits = draft.answer.value if draft.answer else {}, hits_of(draft, asked)
        self._show(self._hit_rows())

    def _show_refusal(self, asked: Asked, error: LocalMCPError) -> None:
        """Show why there is no answer, instead of passages that answered something else."""
        self.asked, self.draft, self.result, self.hits, self.remarks = asked, None, {}, [], str(error)
        self._show([])
        self.app.post_message(Failed(error))

    def _hit_rows(self) -> list[Row]:
        matchers = {hit["explain"]["language"]: matcher_of(self.result, hit) for hit in self.hits}
        return hit_rows(self.hits, self.unfolded, matchers)

    def _show(self, rows: list[Row]) -> None:
        self.show_rows(rows)
        more, documents = "+" if "nextCursor" in self.result else "", {hit["sourceId"] for hit in self.hits}
        counts = f"{len(self.hits)}{more} in {counted(len(documents), 'document')}"
        self.list.border_subtitle = counts if self.hits else ""
        self.list.border_title = "Passages" if self.hits or not rows else "Saved ★ and recent searches"
        self._show_chips()

    def _show_chips(self) -> None:
        self.query_one("#chips", Static).update(chips_of(self.line.value, self.by_date, self.mode, self.remarks))

    def nothing(self) -> str:
        if self.asked is None:
            return START
        return NOTHING_FITS if self.draft is not None else ""

    def model_changed(self) -> None:
        """Search again for what was answered by words alone, once the model is there."""
        if self.asked is not None and self.mode != "keyword":
            self.reload()

    def show_more(self) -> None:
        """Fetch the next page when the last passage is reached."""
        cursor, asked = self.result.get("nextCursor"), self.asked
        if cursor and asked:
            self.ask("more", partial(run_search, self.session, asked, cursor=cursor), partial(self._add_more, asked))

    def _add_more(self, asked: Asked, draft: CallRecord) -> None:
        page = draft.answer.value if draft.answer is not None else {}
        self.result = {**page, "explain": self.result["explain"]}
        self.hits += hits_of(draft, asked)
        self._show(self._hit_rows())

    # ------------------------------------------------------------ the highlighted passage

    def show_row(self, row: Row) -> None:
        hit = self.hit
        if hit is None:
            self.reader.show("", row.about)
            return
        # The list is painted first: the person waits for it.
        self.call_after_refresh(self._look_around, hit)
        if row is self.rows[-1]:
            self.show_more()

    def _look_around(self, hit: Json) -> None:
        """Show the passage, unless another is highlighted by now."""
        if hit is self.hit:
            work = partial(look_around, chunk_id=hit["chunkId"], window=1)
            self.ask("passage", lambda: self.session.look(work), partial(self._show_passage, hit))

    def _show_passage(self, hit: Json, around: Json) -> None:
        """Show a passage as it is read and what comes after it, below the reasons if they are asked for."""
        from localmcp.tui.markdown import passages_content

        around["chunks"] = [chunk for chunk in around["chunks"] if chunk["relativePosition"] >= 0]
        span = hit.get("highlight", {"start": 0, "stop": 0})
        sentence, spans = hit["content"][span["start"] : span["stop"]], matcher_of(self.result, hit).spans
        copies = ", ".join(map(short, hit.get("alsoIn", ())))
        why = [explanation_of(self.result, hit), Content("")] if self.explains else []

        def draw(width: int) -> Content:
            text = passages_content(self, around, sentence, spans, self.text, width)
            ends = [Content.styled(f"also in {copies}", "$secondary")] if copies else []
            return lines(*why, text, *ends)

        where = f"{hit['collection']} · passage {hit['chunkIndex'] + 1:,} of {hit['chunkTotal']:,}"
        below = f"{where} · {lines_of(hit['citation'])}"
        self.reader.show(f"{hit['sourceTitle']}{headings_of(hit)}", draw, below)

    # ------------------------------------------------------------ actions on the search

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what is done to a passage only where there is one."""
        if action in NEED_HIT:
            return bool(self.hits)
        return self.screen.focused is self.line if action == "earlier" else super().check_action(action, parameters)

    def _use_result(self) -> None:
        """Log the answer as a call and remember the search: the person does something with it."""
        if self.draft is not None and self.asked is not None:
            self.session.keep(self.draft)
            self.session.memory.remember(self.asked.line)
            self.draft = None

    def action_earlier(self) -> None:
        """Bring an earlier search back into the line, one further with each key."""
        if recent := self.session.memory.recent:
            is_from_memory = self._earlier >= 0 and self.line.value == recent[self._earlier % len(recent)]
            self._earlier = self._earlier + 1 if is_from_memory else 0
            self.type_query(recent[self._earlier % len(recent)])

    def action_save(self) -> None:
        record = self.chosen.record if self.chosen is not None else None
        if line := record if isinstance(record, str) else self.text:
            is_saved = self.session.memory.toggle_saved(line)
            self.app.notify(f"{line} is {'saved' if is_saved else 'no longer saved'}.")
            if not self.text:
                self._show_start(False)

    def action_filters(self) -> None:
        self.ask("filters", partial(choices_for, self.session), self._open_filters)

    def _open_filters(self, choices: list[Choice]) -> None:
        from localmcp.tui.dialogs import ChoiceScreen, ask_screen

        rows = filter_rows(choices, self.line.value)
        screen = ChoiceScreen("Filter the search", [row for row, _ in rows], says="enter sets or clears")
        ask_screen(self, screen, lambda index: self.type_query(with_filter(self.line.value, rows[index][1])))

    def action_sort(self) -> None:
        self.by_date = not self.by_date
        self.reload()

    def action_similar(self) -> None:
        """Search for passages that mean the same as this one."""
        if hit := self.hit:
            self._use_result()
            line = f"like {hit['sourceTitle']}{headings_of(hit)}"
            self._similar = (line, hit["content"])
            self.type_query(line)

    def action_mode(self) -> None:
        self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
        self.say_aside(self.mode)
        self.reload()

    def on_click(self, event: events.Click) -> None:
        """The mouse changes the mode, and opens the filters."""
        if event.widget is not None and event.widget.id == "aside":
            self.action_mode()
        elif event.widget is not None and event.widget.id == "chips":
            self.action_filters()

    def action_accept(self) -> None:
        """Take over the corrected spelling; filters stay."""
        if corrected := self.result.get("didYouMean"):
            self.type_query(self.line.value.replace(parse_query_line(self.line.value).words, corrected))

    # ------------------------------------------------------------ actions on the passage

    def action_open(self) -> None:
        """Enter: read the passage, unfold a document, run a search again."""
        record = self.chosen.record if self.chosen is not None else None
        if isinstance(record, str):
            self.type_query(record)
        elif isinstance(record, tuple):
            self.action_unfold(True)
        else:
            self.action_read()

    def action_unfold(self, opens: bool) -> None:
        """Show every passage of the document, or its best one alone."""
        if (hit := self.hit) and (hit["sourceId"] in self.unfolded) != opens:
            self.unfolded ^= {hit["sourceId"]}
            self._show(self._hit_rows())
            keys = [row.key for row in self.rows]
            best = next(other for other in self.hits if other["sourceId"] == hit["sourceId"])
            self.list.highlighted = keys.index(best["chunkId"]) + opens

    def action_read(self) -> None:
        """Read the document from this passage on, over the whole screen."""
        from localmcp.tui.reader import ReaderScreen

        if hit := self.hit:
            self._use_result()
            self.app.push_screen(ReaderScreen(hit["chunkId"], matcher_of(self.result, hit), hit["freshness"]))

    def action_explain(self) -> None:
        self.explains = not self.explains and not self.is_narrow
        if hit := self.hit:
            self._look_around(hit)
            if self.is_narrow:
                self.read_over("Why this passage", explanation_of(self.result, hit))

    def _copy_of_hit(self, text: str, message: str) -> None:
        self._use_result()
        self.copy(text, message)

    def action_cite(self) -> None:
        if hit := self.hit:
            self._copy_of_hit(citation_text(hit["sourceTitle"], hit["citation"]), "The citation is copied.")

    def action_copy(self) -> None:
        if hit := self.hit:
            self._copy_of_hit(hit["content"], f"{counted(len(hit['content'].split()), 'word')} copied.")

    def action_edit(self) -> None:
        from localmcp.tui.editor import open_in_editor

        if hit := self.hit:
            self._use_result()
            open_in_editor(self, hit["citation"], hit["freshness"])


# ---------------------------------------------------------------- the rows


def hit_rows(hits: Sequence[Json], unfolded: Collection[str], matchers: dict[str, Matcher]) -> list[Row]:
    """Return hits by document, in the order of the first hits; of `unfolded` documents (source ids) all of them.

    The record of a row is its hit; of folded ones, a tuple of them.
    """
    groups: dict[str, list[Json]] = {}
    for hit in hits:
        groups.setdefault(hit["sourceId"], []).append(hit)
    rows: list[Row] = []
    for rank, (source_id, (best, *others)) in enumerate(groups.items()):
        some = [best, *(others if source_id in unfolded else [])]
        for hit in some:
            visual = HitLines(rank, hit, matchers[hit["explain"]["language"]], with_title=hit is best)
            rows.append(Row(hit["chunkId"], visual, record=hit))
        if others and source_id not in unfolded:
            words = f"      ▸ {counted(len(others), 'more passage')} of this document"
            rows.append(Row(f"more {source_id}", Content.styled(words, "$muted"), record=tuple(others)))
    return rows


def _query_row(line: str, is_saved: bool) -> Row:
    title = Content.assemble(("★ " if is_saved else "  ", "$accent"), line)
    return Row(f"query {line}", title, Content.from_markup(START), record=line)


# ---------------------------------------------------------------- filters


def with_filter(line: str, choice: Choice) -> str:
    """Return a search line in which a filter has that value alone."""
    words = " ".join(re.sub(rf'(?<!\S){choice.name}:(?:"[^"]*"?|\S*)', " ", line, flags=re.IGNORECASE).split())
    shown = f'"{choice.value}"' if re.search(r"\s", choice.value) else choice.value
    return f"{words} {choice.name}:{shown}".strip() if shown else words


def chips_of(line: str, by_date: bool, mode: str, remarks: str) -> Content:
    """Return the filters of a line: set ones highlighted, the others only without remarks."""
    filters = parse_query_line(line).filters
    names = ("collection", "type", "since", "until", "tag", "path", "source")
    values = {name: ", ".join(filters.get(name, ())) for name in names}
    values |= {"order": "by date" if by_date else "", "mode": "" if mode == "hybrid" else mode}
    parts = [
        Content.styled(f" {name} {value} ", "bold $accent") if value else Content.styled(f" {name} ", "$muted")
        for name, value in values.items()
        if value or not remarks
    ]
    return Content("·").join([*parts, Content.styled(f" {remarks}", "$warning")] if remarks else parts)


def choices_for(session: Session) -> list[Choice]:
    """Return what can be chosen in this file; for a thread that may wait."""
    answer = session.draft("get_stats").answer
    stats: Json = answer.value if answer is not None else {}
    rows = [(row["name"], counted(row["sources"], "document")) for row in stats["collections"] if row["sources"]]
    rows += [
        (f"mount:{mount['name']}/{name}", "mounted")
        for mount in stats.get("mounts", ())
        for name in mount["collections"]
    ]
    choices = [Choice("collection", name, note) for name, note in rows]
    choices += [Choice("type", kind) for kind in TYPES]
    return choices + [Choice("since", f"{date.today() - timedelta(days)}", words) for days, words in SPANS.items()]


def filter_rows(choices: Sequence[Choice], line: str) -> list[tuple[Content | str, Choice]]:
    """Return the rows of a list of filters: headings, and values with what choosing one sets.

    Choosing a value that is set clears its filter.
    """
    filters = parse_query_line(line).filters
    rows: list[tuple[Content | str, Choice]] = []
    for number, choice in enumerate(choices):
        if number == 0 or choices[number - 1].name != choice.name:
            rows.append((choice.name, choice))
        is_set = choice.value in filters.get(choice.name, ())
        text = Content.assemble((" ✓ " if is_set else "   ", "$accent"), choice.value, (f"  {choice.note}", "$muted"))
        rows.append((text, Choice(choice.name, "") if is_set else choice))
    return rows
