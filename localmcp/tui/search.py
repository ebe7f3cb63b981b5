"""Search: passages as you type, by document; the highlighted one as it is read, and why it was found."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from localmcp.config import sample_directory
from localmcp.errors import LocalMCPError
from localmcp.humanize import FILTERS, counted, explanation, headings_of, parse_query_line
from localmcp.schemas import Json
from localmcp.tui.session import Failed, Session
from localmcp.tui.widgets import DocumentKeys, Pane, Quiet, Row, bar, facts, lines, look_around, place_of, short
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.jobs import Report
    from localmcp.tools import CallRecord
    from localmcp.tui.session import OnProgress

HITS = 20
"""Passages at first; as many more come when the last one is reached."""
MOST_HITS = 100
MODES = ("hybrid", "keyword", "semantic")
FRESHNESS = {"fresh": "as it was read", "changed": "✎ changed since", "missing": "○ file is gone"}
FIRST_QUERIES = (
    ("boiler error E110", "a code"),
    ("bread came out flat and too acidic", "hardly a word in common with the answer"),
    ("certifcate expired lockers", "a misspelled word"),
    ("riscatto totale invalidita permanente", "another language"),
)
"""Queries for the samples, and what each shows."""
START = (
    "[b]Type to search[/b]\n\n[$muted]a question, words, a code or a name\n\n"
    'collection:notes   tag:ops   path:~/docs   source:"Boiler manual"\nnarrow it down in the same line[/]'
)
NOTHING_FITS = (
    "[b]Nothing fits[/b]\n\n[$muted]Fewer words, another mode [b]m[/b], no filters [b]f[/b], or more documents: "
    "[b]2[/b] Library, or\n\n  localmcp add FOLDER[/]"
)


Asked = tuple[str, str, bool, str]
"""A search: the line, its mode, whether it is sorted by date, and a passage to compare with instead of the words."""


@dataclass(frozen=True, slots=True)
class Found:
    """A search and what is shown of it."""

    asked: Asked | None = None
    """None before the first search."""
    result: Json = field(default_factory=dict[str, Any])
    """The tool's answer; empty if there is none."""
    remarks: str = ""
    """What to know of the answer; empty where nothing is unusual."""
    record: CallRecord | None = None
    """The call, until it is logged."""


def run_search(session: Session, asked: Asked, limit: int) -> Found:
    """Search as an assistant does, in a thread; raises NotFound if a filter names nothing."""
    line, mode, by_date, similar_to = asked
    words, filters = parse_query_line(line)
    tags, last = filters.pop("tag", None), {FILTERS[name]: values[-1] for name, values in filters.items()}
    # Until the model is loaded, words answer; the search is repeated then.
    mode = "keyword" if session.model_loading else "semantic" if similar_to else mode
    answer, record = session.draft(
        "search", lean=True, query=similar_to[:2000] or words, mode=mode, **last,
        metadata={"tags": tags} if tags else None, limit=limit, explain=True,
        sort="newest" if by_date else None, maxChars=1_000_000,
    )  # fmt: skip
    if by_date:
        # The tool puts those first that answer.
        hits: list[Json] = answer.value["results"]
        hits.sort(key=lambda hit: str(hit.get("date") or ""), reverse=True)
    # What to know of an answer is in the words that an assistant and the command line get, before its passages.
    usual = r"^\d[\d,]* documents?, [\d,]+ passages?\. ?|Confidence: good\. ?| ?Paths are below .*"
    remarks = " ".join(re.sub(usual, "", answer.text.partition("\n\n")[0]).split())
    return Found(asked, answer.value, remarks, record)


class SearchPane(Pane, DocumentKeys):
    PLACEHOLDER = "Search your documents"
    FOLLOWS_TOP = True
    NEED_ROW = ("read", "explain", "cite", "copy", "original", "edit", "similar")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "read", "Read"), Binding("x", "explain", "Why"),
        Binding("f,ctrl+f", "filters", "Filters"), Binding("l", "similar", "Like this"),
        Quiet("t", "toggle('by_date')", "By date"), Quiet("s,ctrl+s", "save", "Save the search"),
        Binding("y", "cite", "Cite"), Quiet("Y", "copy", "Copy text"), Binding("o", "original", "Open"),
        Quiet("e", "edit", "Edit"), Binding("m,ctrl+t", "mode", "Mode"), Quiet("a", "app.add_folder", "Add a folder"),
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
        self.found, self._limit = Found(), HITS
        self._similar: tuple[str, str] = ("", "")
        """A search line, and the passage that it represents."""

    def on_mount(self) -> None:
        self._show_start(False)

    @property
    def hit(self) -> Json | None:
        """The passage that is highlighted."""
        return self.chosen.record if self.chosen is not None and self.hits else None

    @property
    def hits(self) -> Sequence[Json]:
        """The passages of the answer."""
        return self.found.result.get("results", ())

    def focus_first(self) -> None:
        (self.list if self._is_first_run else self.line).focus()

    @property
    def _is_first_run(self) -> bool:
        return bool(self.rows) and callable(self.rows[0].record)

    def type_query(self, text: str) -> None:
        """Search for `text`, as if it had been typed."""
        self.line.focus()
        self.line.value = visible(text)
        self.line.cursor_position = len(self.line.value)

    # ------------------------------------------------------------ searching

    def reload(self) -> None:
        """Search for what is in the line; without words, show earlier searches, or how to fill an empty library."""
        if not self.session.is_open:
            return
        similar_to = self._similar[1] if self.text == self._similar[0] else ""
        asked = self.text, self.mode, self.by_date, similar_to
        if not parse_query_line(self.text)[0]:
            is_empty = lambda: not self.session.exists or not self.session.read("get_stats")["totalSources"]  # noqa: E731
            self.ask("rows", is_empty, self._show_start)
            return

        def show_refusal(error: LocalMCPError) -> None:
            self.found = Found(asked, remarks=str(error))
            self._show([])
            self.app.post_message(Failed(error))

        if asked != self.found.asked:
            self._limit = HITS
        self.ask("rows", partial(run_search, self.session, asked, self._limit), self.show_found, show_refusal)

    action_again = reload

    def _show_start(self, is_empty: bool) -> None:
        was_first_run, memory, rows = self._is_first_run, self.session.memory, list[Row]()
        self.found = Found()
        if is_empty and not self.session.job:
            steps = (
                ("samples", "Load the sample documents", "to look around; they go into a collection of their own"),
                ("app.add_folder", "Add a folder", "of documents, notes or code; it is kept up to date: key a"),
                (
                    "app.run_in_pane('tools', 'Connect an assistant')",
                    "Connect an assistant",
                    "its configuration is found, shown, and changed after a yes",
                ),
            )
            for action, title, why in steps:
                shown = Content.assemble("\n  ", (title, "bold"), "\n  ", (why, "$muted"))
                rows.append(Row(title, shown, Content(why), record=partial(self.run_action, action)))
            self._show(rows, "Nothing is indexed yet")
        else:
            for line in dict.fromkeys([*memory.saved, *memory.recent]):
                shown = Content.assemble(("★ " if line in memory.saved else "  ", "$accent"), line)
                rows.append(Row(f"query {line}", shown, Content.from_markup(START), record=line))
            self._show(rows[:30], "Saved ★ and recent searches" if rows else "")
        if self._is_first_run != was_first_run and self.display:
            self.focus_first()

    def show_found(self, found: Found) -> None:
        """Show the answer; of the same search, the passage that the person moved to stays highlighted."""
        self.found, was_hidden = found, self.has_class("-nothing")
        groups: dict[str, list[Json]] = {}
        for hit in self.hits:
            groups.setdefault(hit["sourceId"], []).append(hit)
        # By document, in the order of the first passage of each. A row has a column of padding at both ends.
        columns, rows = max(self.list.scrollable_content_region.width - 2, 30), list[Row]()
        for number, hits in enumerate(groups.values(), 1):
            for hit in hits:
                title = hit_title(number if hit is hits[0] else None, hit, Matcher(found.result, hit), columns)
                rows.append(Row(hit["chunkId"], title, record=hit))
        self._show(rows)
        if was_hidden:
            # The list has its width only now.
            self.on_resize()

    def _show(self, rows: Sequence[Row], title: str = "Passages") -> None:
        self.show_rows(rows)
        more, documents = "+" if "nextCursor" in self.found.result else "", {hit["sourceId"] for hit in self.hits}
        counts = f"{len(self.hits)}{more} in {counted(len(documents), 'document')}"
        self.list.border_title, self.list.border_subtitle = title, counts if self.hits else ""
        # The filters of the line, to be clicked: set ones highlighted, the others only without remarks.
        (_, filters), remarks = parse_query_line(self.line.value), self.found.remarks
        names = ("collection", "type", "since", "until", "tag", "path", "source")
        values = {name: ", ".join(filters.get(name, ())) for name in names}
        values |= {"order": "by date" if self.by_date else "", "mode": self.mode}
        parts = [
            Content.styled(f" {f'{name} {value}'.rstrip()} ", "bold $accent" if value else "$muted").stylize(
                Style.from_meta({"filter": name})
            )
            for name, value in values.items()
            if value or not remarks
        ]
        parts += [Content.styled(f" {remarks}", "$warning")] if remarks else []
        self.query_one("#chips", Static).update(Content("·").join(parts))

    def on_resize(self) -> None:
        """Fit the passages into the new width."""
        if self.hits:
            # What is found meanwhile counts.
            self.call_after_refresh(lambda: self.show_found(self.found))

    def nothing(self) -> str:
        if self.found.asked is None:
            return START
        return NOTHING_FITS if self.found.result else ""

    def model_changed(self) -> None:
        """Search again for what was answered by words alone, once the model is there."""
        if self.found.asked is not None and self.mode != "keyword":
            self.reload()

    # ------------------------------------------------------------ the highlighted passage

    def show_row(self, row: Row) -> None:
        """Show the passage; once the last is reached, look for more."""
        if self.hit is None:
            self.reader.show("", row.about)
            return
        # The list is painted first: the person waits for it.
        self.call_after_refresh(self._look_around, self.hit)
        if row is self.rows[-1] and "nextCursor" in self.found.result and self._limit < MOST_HITS:
            self._limit += HITS
            self.reload()

    def _look_around(self, hit: Json) -> None:
        """Show a passage as it is read and what comes after it, below the reasons if they are asked for."""
        if hit is not self.hit:
            # Another is highlighted by now.
            return
        # Another search may have begun when the passage comes.
        result = self.found.result

        def show(around: Json) -> None:
            from localmcp.tui.markdown import passages_content

            around["chunks"] = [chunk for chunk in around["chunks"] if chunk["relativePosition"] >= 0]
            span = hit.get("highlight", {"start": 0, "stop": 0})
            sentence, spans = hit["content"][span["start"] : span["stop"]], Matcher(result, hit).spans
            copies = ", ".join(map(short, hit.get("alsoIn", ())))
            file = {"file": FRESHNESS.get(hit["freshness"], "not a file of this machine")}
            why = [*facts({**explanation(result, hit), **file}), ""] if self.explains else []

            def draw(width: int) -> Content:
                text = passages_content(self, around, width, sentence, spans, self.text)
                return lines(*why, text, *([Content.styled(f"also in {copies}", "$secondary")] if copies else []))

            where = f"{hit['collection']} · passage {hit['chunkIndex'] + 1:,} of {hit['chunkTotal']:,}"
            below = f"{where} · {lines_of(hit['citation'])}"
            self.reader.show(f"{hit['sourceTitle']}{headings_of(hit)}", draw, below)

        self.look("passage", lambda workspace: look_around(workspace, hit["chunkId"], 1), show)

    # ------------------------------------------------------------ actions on the search

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what is done to a passage only where there is one."""
        return bool(self.hits) if action in self.NEED_ROW else super().check_action(action, parameters)

    def _use(self) -> Json | None:
        # The person does something with the highlighted passage: the answer counts as a call.
        if self.hit is not None and self.found.record is not None and self.found.asked is not None:
            self.session.keep(self.found.record)
            self.session.memory.remember(self.found.asked[0])
            self.found = replace(self.found, record=None)
        return self.hit

    def action_save(self) -> None:
        record = self.chosen.record if self.chosen is not None else None
        if line := record if isinstance(record, str) else self.text:
            is_saved = self.session.memory.remember(line, toggle=True)
            self.app.notify(f"{line} is {'saved' if is_saved else 'no longer saved'}.")
            if not self.text:
                self._show_start(False)

    def action_filters(self, only: str = "") -> None:
        """Choose a filter from a list, or type the value of one that has no list. A value that is set is cleared."""
        from localmcp.tui.dialogs import choose

        def read() -> dict[str, dict[str, str]]:
            """Return filter -> value -> note of what can be chosen in this file."""
            stats: Json = self.session.read("get_stats")
            filled = (row for row in stats["collections"] if row["sources"])
            collections = {row["name"]: counted(row["sources"], "document") for row in filled}
            for mount in stats.get("mounts", ()):
                collections |= {f"mount:{mount['name']}/{name}": "mounted" for name in mount["collections"]}
            kinds = dict.fromkeys(self.session.look(lambda workspace: workspace.inventory.formats()), "")
            spans = {7: "the last 7 days", 30: "the last 30 days", 365: "the last year"}
            days = {f"{date.today() - timedelta(number)}": words for number, words in spans.items()}
            choices = {"collection": collections, "type": kinds, "since": days}
            return {name: values for name, values in choices.items() if values}

        def propose(choices: dict[str, dict[str, str]]) -> None:
            line, rows = self.line.value, list[tuple[str, str] | Content | str]()
            (_, filters), outcomes = parse_query_line(line), list[str]()
            for name in choices if not only else {only} & set(choices):
                rows.append(name)
                outcomes.append(line)
                for value, note in choices[name].items():
                    is_set = value in filters.get(name, ())
                    mark = (" ✓ " if is_set else "   ", "$accent")
                    rows.append(Content.assemble(mark, value, (f"  {note}", "$muted")))
                    # The filter has this value alone, or none.
                    words = re.sub(rf'(?<!\S){name}:(?:"[^"]*"?|\S*)', " ", line, flags=re.IGNORECASE).split()
                    quoted = f'"{value}"' if re.search(r"\s", value) else value
                    outcomes.append(" ".join([*words, *([] if is_set else [f"{name}:{quoted}"])]))
            if not rows:
                self.type_query(f"{line} {only}:".strip())
                return
            choose(self, "Filter the search", rows, lambda index: self.type_query(outcomes[index]))

        self.ask("filters", read, propose)

    def action_similar(self) -> None:
        """Search for passages that mean the same as this one."""
        if hit := self._use():
            line = f"like {hit['sourceTitle']}{headings_of(hit)}"
            self._similar = (line, hit["content"])
            self.type_query(line)

    def action_mode(self) -> None:
        self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
        self.reload()

    async def on_click(self, event: events.Click) -> None:
        """The mouse sets the filter whose name it hits."""
        if name := event.style.meta.get("filter", ""):
            actions = {"mode": "mode", "order": "toggle('by_date')"}
            await self.run_action(actions.get(name, f"filters('{name}')"))

    # ------------------------------------------------------------ actions on the passage

    def action_open(self) -> None:
        """Enter: read the passage, run a search again, do a first step."""
        record = self.chosen.record if self.chosen is not None else None
        if callable(record):
            self.call_next(record)
        elif isinstance(record, str):
            self.type_query(record)
        else:
            self.action_read()

    def action_read(self) -> None:
        """Read the document from this passage on, over the whole screen."""
        from localmcp.tui.reader import ReaderScreen

        if hit := self._use():
            screen = ReaderScreen(hit["chunkId"], Matcher(self.found.result, hit), hit["freshness"])
            self.app.push_screen(screen)

    def action_explain(self) -> None:
        """Show why this passage was found, or no longer."""
        self.explains = not self.explains
        if hit := self.hit:
            self._look_around(hit)
        if self.explains and self.screen.has_class("-narrow"):
            super().action_read()

    def use_document(self, use: Callable[[Json], object]) -> None:
        if hit := self._use():
            use({"title": hit["sourceTitle"], "freshness": hit["freshness"], **hit["citation"]})

    def action_copy(self) -> None:
        if hit := self._use():
            self.copy(hit["content"], f"{counted(len(hit['content'].split()), 'word')} copied.")

    # ------------------------------------------------------------ the first run

    def action_samples(self) -> None:
        """Index the sample documents in the background; searching can begin at once."""
        from localmcp.tui.dialogs import choose

        def index_samples(tell: OnProgress) -> Report:
            folder = sample_directory() / "documents"
            library = self.session.workspace.library
            return library.add_paths([folder], collection="samples", remember=False, progress=tell)

        self.session.do("Samples", index_samples)
        above = Content("They are read in the background, and what is read can be searched at once:")
        rows = list(FIRST_QUERIES)
        choose(self, "Search the samples", rows, lambda index: self.type_query(rows[index][0]), above)


# ---------------------------------------------------------------- passages


class Matcher:
    """Recognizes the words of a query in a text of one language, as the keyword index does."""

    def __init__(self, result: Json, hit: Json) -> None:
        """The words are those of a search with `explain`, the language is that of one of its hits."""
        searched = [form for term in result["explain"]["terms"] for form in term["searchedAs"]]
        self._searched = {part for phrase in searched for part in phrase.split()}
        self._language = hit["explain"]["language"]
        self._stems_by_run: dict[str, set[str]] = {}

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return (start, stop) of each word that was searched for."""
        # Stemming takes time that the first paint has not.
        from localmcp.wording.normalize import stem, words

        spans: list[tuple[int, int]] = []
        for run in re.finditer(r"\w+", text):
            if run[0] not in self._stems_by_run:
                self._stems_by_run[run[0]] = {stem(word, self._language) for word in words(run[0])} & self._searched
            spans += [run.span()] if self._stems_by_run[run[0]] else []
        return spans


def hit_title(number: int | None, hit: Json, matcher: Matcher, columns: int) -> Content:
    """Return a hit in three lines: its number, score and title, its place, and the line that answers.

    Without a number it is a further hit of the document above it, in two lines.
    """
    heading, score = headings_of(hit).rpartition(" › ")[2], (bar(hit["relevance"]), "$accent")
    if number is None:
        shown = [Content.assemble("    ", score, " ", (heading or lines_of(hit["citation"]), "$muted"))]
    else:
        title = " ".join(hit["sourceTitle"].split())
        if heading and cell_len(title) + cell_len(heading) + 12 > columns:
            title = Content(title).truncate(max(columns - cell_len(heading) - 12, columns // 2), ellipsis=True).plain
        copies = f"  +{counted(len(hit['alsoIn']), 'place')}" if "alsoIn" in hit else ""
        fresh = f"  {FRESHNESS[hit['freshness']]}" if hit["freshness"] in ("changed", "missing") else ""
        origin = f"  {hit['origin']}, read-only" if "origin" in hit else ""
        place, space = place_of(hit["citation"]), columns - 4 - len(copies) - len(fresh) - len(origin)
        if cell_len(place) > space:
            # Both ends of a path say more than its beginning.
            ends = max(space - 1, 2)
            place = f"{place[: ends // 3]}…{place[ends // 3 - ends :]}"
        shown = [
            Content.assemble((f"{number:>3} ", "$muted"), score, " ", (title, "bold"),
                             (f" › {heading}" if heading else "", "$muted")),
            Content.assemble("    ", (place, "$secondary"), (copies, "$muted"), (fresh, "$warning"),
                             (origin, "$accent")),
        ]  # fmt: skip
    # From the sentence that answers on, or from a word that was searched for further on.
    columns -= 4
    start = hit.get("highlight", {}).get("start", 0)
    text = running_text(hit["content"][start:]) or running_text(hit["content"])
    spans = matcher.spans(text[: 10 * columns])
    if spans and spans[0][1] > columns:
        first = text.find(" ", max(spans[0][0] - columns // 3, 0), spans[0][0]) + 1 or spans[0][0]
        text = f"… {text[first:]}"
    answer = Content.styled(text[: 2 * columns], "$foreground")
    for start, stop in matcher.spans(answer.plain):
        answer = answer.stylize("bold $accent underline", start, stop)
    return Content("\n").join([*shown, Content("    ") + answer])


def lines_of(citation: Json) -> str:
    """Return `line 3`, or `lines 3–7`."""
    first, last = citation["startLine"], citation["endLine"]
    return f"line {first}" if first == last else f"lines {first}–{last}"


def running_text(text: str) -> str:
    """Return a passage as one paragraph without headings, rules, marks and addresses, if anything is left.

    Of a table, `| Flour | 400 g |` is `Flour · 400 g`.
    """
    from localmcp.wording.normalize import without_links

    shown = [line.strip() for line in text.splitlines() if line[:1] != "#" and line.strip("|:-= ")]
    for number, line in enumerate(shown):
        if line.endswith("|"):
            cells = (cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line))
            shown[number] = " · ".join(filter(None, cells))
    words = without_links(" ".join(line.removeprefix("- ") for line in shown))
    return " ".join(words.replace("**", "").split()) or " ".join(text.split())
