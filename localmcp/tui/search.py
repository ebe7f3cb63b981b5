"""Search: passages as you type, by document; the highlighted one with its neighbors, and why it was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.getters import query_one
from textual.widgets import ContentSwitcher, Input, OptionList, Static
from textual.widgets.option_list import Option

from localmcp.humanize import counted, headings_of
from localmcp.library.query_line import parse_query_line
from localmcp.readers.excerpt import Matcher
from localmcp.schemas import Json
from localmcp.tui.pane import Choices, Pane, TextLine
from localmcp.tui.passages import (
    FoldedRow,
    HitLines,
    HitRow,
    PassageView,
    QueryRow,
    Row,
    citation_text,
    explanation_of,
    matcher_of,
    query_rows,
    rows_of,
)
from localmcp.tui.search_line import (
    STATE,
    Asked,
    Choice,
    chips_of,
    choices_for,
    filter_rows,
    notices_of,
    run_search,
    with_filter,
)
from localmcp.tui.session import Draft
from localmcp.tui.welcome import Welcome
from localmcp.visible_text import visible

MOST_TO_FILL = 40
"""Passages that are fetched before anybody moves in the list."""
MODES = ("hybrid", "keyword", "semantic")


class SearchPane(Pane):
    TITLE, KEY_GROUP = "Search", "search"
    ABOUT = (
        "Type a question, words, a code or a name; passages come as you type, by document. Filters are words of the "
        'line, such as `source:"Boiler manual"`, `collection:notes`, `tag:ops`, `path:~/docs`, `type:code`; f sets '
        "them from a list. Modes: hybrid looks for words and meaning, keyword for words alone, semantic for meaning "
        "alone. up brings earlier searches back, s saves one."
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.mode = MODES[0]
        self.by_date = False
        self.state = ""
        self.asked: Asked | None = None
        self.draft: Draft | None = None
        self.result: Json = {}
        self.hits: list[Json] = []
        self.rows: list[Row] = []
        self.unfolded: set[str] = set()
        """Source ids whose passages are all shown."""
        self._similar_to: tuple[str, str] = ("", "")
        """A search line, and the passage that it represents."""
        self._earlier = -1
        self._matchers: dict[str, Matcher] = {}

    def compose(self) -> ComposeResult:
        with Horizontal(classes="row"):
            yield TextLine(placeholder="Search your documents", classes="framed", id="query")
            yield Static(self.mode, classes="aside", id="mode")
        yield Static(classes="note", id="chips")
        with ContentSwitcher(initial="found", classes="split", id="below"):
            yield Welcome(id="welcome")
            with Horizontal(id="found"):
                yield Choices(classes="framed left", id="results")
                yield PassageView(classes="right", id="passage-view")

    def on_mount(self) -> None:
        self.query_one("#results").border_title = "Passages"
        self.show_nothing_yet()

    line = query_one("#query", Input)
    results = query_one("#results", Choices)
    view = query_one(PassageView)
    below = query_one("#below", ContentSwitcher)

    @property
    def row(self) -> Row | None:
        """The row that is highlighted."""
        place = self.results.highlighted
        return self.rows[place] if place is not None and place < len(self.rows) else None

    @property
    def hit(self) -> Json | None:
        """The passage that is highlighted; of folded ones, the first."""
        return self._hit_of(self.row)

    def _hit_of(self, row: Row | None) -> Json | None:
        if isinstance(row, HitRow):
            return self.hits[row.number]
        return self.hits[row.numbers[0]] if isinstance(row, FoldedRow) else None

    # ------------------------------------------------------------ focus and reload

    def focus_first(self) -> None:
        if self.below.current == "welcome":
            self.query_one(Welcome).focus()
        else:
            self.line.focus()

    def focus_filter(self) -> None:
        self.below.current = "found"
        self.line.focus()

    def type_query(self, text: str) -> None:
        """Search for `text`, as if it had been typed."""
        self.focus_filter()
        self.line.value = visible(text)
        self.line.cursor_position = len(self.line.value)

    def reload(self) -> None:
        """Search again; an empty library shows how to fill it."""
        if not self.session.is_open:
            return
        self.ask("holdings", self._is_empty, self._show_holdings)

    def _is_empty(self) -> bool:
        if not self.session.exists:
            return True
        return not self.session.look(lambda workspace: workspace.knowledge.get_stats())["totalSources"]

    def _show_holdings(self, is_empty: bool) -> None:
        current = "welcome" if is_empty and not self.line.value.strip() and not self.session.job else "found"
        if self.below.current != current:
            self.below.current = current
            self.focus_first()
        if self.asked is None:
            self.show_nothing_yet()
        else:
            self.search_again()

    def model_changed(self) -> None:
        """Search again for what was answered by words alone, once the model is there."""
        if self.asked is not None and self.mode != "keyword":
            self.search_again()

    # ------------------------------------------------------------ searching

    @on(Input.Changed, "#query")
    def typed(self) -> None:
        self.ask_after_typing("search", self.search_again)

    def search_again(self) -> None:
        """Ask for what is in the line."""
        asked = Asked(self.line.value, self.mode, self.by_date, self.state)
        if not parse_query_line(asked.line).words:
            self.forget("search")
            self.asked = None
            self.show_nothing_yet()
            return
        same = asked == self.asked
        self.asked = asked
        self.forget("more")
        # A person on the third page stays there when the file changes.
        at_least = len(self.hits) if same else 0
        self.ask(
            "search", lambda: self._search(asked, None, at_least), lambda draft: self.show_result(draft, keep=same)
        )

    action_again = search_again

    def _search(self, asked: Asked, cursor: str | None = None, at_least: int = 0) -> Draft:
        passage = self._similar_to[1] if asked.line == self._similar_to[0] else ""
        return run_search(self.session, asked, similar_to=passage, cursor=cursor, at_least=at_least)

    def show_more(self) -> None:
        """Fetch the next page when the last passage is reached."""
        cursor, asked = self.result.get("nextCursor"), self.asked
        if cursor and asked:
            self.ask("more", lambda: self._search(asked, cursor), self._add_more)

    def _add_more(self, draft: Draft) -> None:
        page = draft.answer.value
        self.result = {**page, "explain": self.result["explain"]}
        self.hits += page["results"]
        self._show_rows(rows_of(self.hits, self.unfolded), keep=True)
        self._count()
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        """Fetch more passages where the folded passages of a few documents leave the list half empty."""
        if len(self.hits) < MOST_TO_FILL and self.results.virtual_size.height < self.results.size.height:
            self.show_more()

    # ------------------------------------------------------------ showing

    def show_nothing_yet(self) -> None:
        """Show saved searches and the recent ones, before anything was typed."""
        memory = self.session.memory
        self.draft = None
        self._take({"results": []})
        self._show_rows(query_rows(memory.saved, memory.recent))
        self._count()
        self.say_nothing_is_here(not self.rows)
        self.view.show_reasons(self.result, self.hit)
        self.view.show_markup(
            "[b]Type to search[/b]\n\n"
            "[$muted]a question, words, a code or a name\n\n"
            'collection:notes   tag:ops   path:~/docs   source:"Boiler manual"\nnarrow it down in the same line[/]'
        )

    def show_result(self, draft: Draft, *, keep: bool = False) -> None:
        """Show the answer; with `keep`, the passage that the person moved to stays highlighted."""
        self.below.current = "found"
        if not keep:
            self.unfolded = set()
        result = draft.answer.value
        moved = keep and bool(self.results.highlighted)
        row, before = self.row if moved else None, self.hit
        self.draft = draft
        self._take(result)
        self._count()
        self.say_nothing_is_here(not self.hits)
        rows = rows_of(self.hits, self.unfolded)
        self._show_rows(rows)
        if not self.hits:
            self._show_nothing_matched()
            return
        ids = [(type(row), (self._hit_of(row) or {})["id"]) for row in rows]
        same = (type(row), before["id"]) if row is not None and before is not None else None
        self.results.highlighted = ids.index(same) if same in ids else 0

    def _take(self, result: Json) -> None:
        """Make this the answer. The keys at the bottom are only drawn again when others work now: drawing them takes
        longer than drawing the passages."""
        had = bool(self.hits)
        self.result, self.hits, self._matchers = result, result["results"], {}
        if had != bool(self.hits):
            self.refresh_bindings()

    def _show_rows(self, rows: Sequence[Row], *, keep: bool = False) -> None:
        """Fill the list; with `keep`, the same row stays highlighted."""
        before = self.row.id if keep and self.row else None
        self.rows = list(rows)
        with self.prevent(OptionList.OptionHighlighted):
            if rows:
                self.results.set_options(map(self._option, rows))
            else:
                self.results.clear_options()
            if keep:
                self.results.keep_highlight(before)
        self._show_chips()

    def _show_chips(self) -> None:
        chips = self.query_one("#chips", Static)
        content = chips_of(self.line.value, self.state, self.by_date, self.mode, notices_of(self.result))
        if content != chips.content:
            chips.update(content)

    def _count(self) -> None:
        more = "+" if "nextCursor" in self.result else ""
        documents = len({hit["sourceId"] for hit in self.hits})
        counts = f"{len(self.hits)}{more} in {counted(documents, 'document')}" if self.hits else ""
        self.results.border_subtitle = counts
        self.results.border_title = "Passages" if self.hits or not self.rows else "Saved ★ and recent searches"

    def _show_nothing_matched(self) -> None:
        self.view.show_reasons(self.result, self.hit)
        self.view.show_markup(
            "[b]Nothing fits[/b]\n\n[$muted]Fewer words, another mode [b]m[/b], no filters [b]f[/b], or more "
            "documents: [b]2[/b] Library, or\n\n  localmcp add FOLDER[/]"
        )

    def _option(self, row: Row) -> Option:
        """Return a row of the list: of a document its title, place and best line."""
        if isinstance(row, QueryRow):
            mark = "★ " if row.is_saved else "  "
            return Option(Content.assemble((mark, "$accent"), row.line), id=row.id)
        if isinstance(row, FoldedRow):
            words = f"      ▸ {counted(len(row.numbers), 'more passage')} of this document"
            return Option(Content.styled(words, "$muted"), id=row.id)
        hit = self.hits[row.number]
        return Option(HitLines(row.rank, hit, self._matcher(hit), with_title=row.is_best), id=row.id)

    def _matcher(self, hit: Json) -> Matcher:
        """Return the matcher of a passage's language: it remembers the words that it has seen."""
        language = hit["explain"]["language"]
        if language not in self._matchers:
            self._matchers[language] = matcher_of(self.result, hit)
        return self._matchers[language]

    @on(OptionList.OptionHighlighted, "#results")
    def look_at(self, message: OptionList.OptionHighlighted) -> None:
        hit = self.hit
        if hit is None:
            return
        # The list is painted first: the person waits for it.
        self.call_after_refresh(self._look_around, hit)
        if message.option_index == len(self.rows) - 1:
            self.show_more()

    def _look_around(self, hit: Json) -> None:
        """Show the passage among its neighbors, unless another is highlighted by now."""
        if hit is self.hit:
            self.view.show_reasons(self.result, self.hit)
            show = self.view.show_hit
            self.ask("passage", lambda: self._around(hit), lambda around: show(hit, around, self._matcher(hit)))
            self._fill()

    def _around(self, hit: Json) -> Json:
        return cast(Json, self.session.look(lambda workspace: workspace.knowledge.get_context(hit["chunkId"], 1)))

    # ------------------------------------------------------------ actions on the search

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what is done to a passage only where there is one."""
        if action in ("read", "explain", "cite", "copy", "path", "open", "similar", "unfold", "sort"):
            return bool(self.hits)
        if action == "earlier":
            return self.screen.focused is self.line
        return super().check_action(action, parameters)

    def _use_result(self) -> None:
        """Log the answer as a call and remember the search: the person does something with it."""
        if self.draft is not None and self.asked is not None:
            self.session.keep(self.draft)
            self.session.memory.remember(self.asked.line)

    @on(Input.Submitted, "#query")
    def action_results(self) -> None:
        if self.rows:
            self.results.focus()
        else:
            self.view.focus_text()
        if self.rows and self.results.highlighted is None:
            self.results.highlighted = 0

    def action_earlier(self) -> None:
        """Bring an earlier search back into the line, one further with each key."""
        recent = self.session.memory.recent
        if not recent:
            return
        is_from_memory = self._earlier >= 0 and self.line.value == recent[self._earlier % len(recent)]
        self._earlier = self._earlier + 1 if is_from_memory else 0
        self.type_query(recent[self._earlier % len(recent)])

    def action_save(self) -> None:
        row = self.row
        line = row.line if isinstance(row, QueryRow) else self.line.value.strip()
        if line:
            is_saved = self.session.memory.toggle_saved(line)
            self.app.notify(f"{line} is {'saved' if is_saved else 'no longer saved'}.")
            if isinstance(row, QueryRow):
                self.show_nothing_yet()

    def action_filters(self) -> None:
        self.ask("filters", lambda: self.session.look(choices_for), self._open_filters)

    def _open_filters(self, choices: list[Choice]) -> None:
        from localmcp.tui.forms import ChoiceScreen, ask_screen

        parsed = parse_query_line(self.line.value)
        active = {(name, value) for name, values in parsed.filters.items() for value in values} | {(STATE, self.state)}
        rows = filter_rows(choices, active)
        screen = ChoiceScreen("Filter the search", [row for row, _ in rows], says="enter sets or clears")
        ask_screen(self, screen, lambda index: self._set_filter(rows[index][1]))

    def _set_filter(self, choice: Choice | None) -> None:
        if choice is not None and choice.name == STATE:
            self.state = choice.value
            self.search_again()
        elif choice is not None:
            self.type_query(with_filter(self.line.value, choice.name, choice.value or None))
        self._show_chips()

    def action_sort(self) -> None:
        self.by_date = not self.by_date
        self.search_again()

    def action_similar(self) -> None:
        """Search for passages that mean the same as this one."""
        if hit := self.hit:
            self._use_result()
            line = f"like {hit['sourceTitle']}{headings_of(hit)}"
            self._similar_to = (line, hit["content"])
            self.type_query(line)

    def action_mode(self) -> None:
        self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
        self.query_one("#mode", Static).update(self.mode)
        self.search_again()

    def on_click(self, event: events.Click) -> None:
        """The mouse changes the mode, and opens the filters."""
        if event.widget is not None and event.widget.id == "mode":
            self.action_mode()
        elif event.widget is not None and event.widget.id == "chips":
            self.action_filters()

    def action_accept(self) -> None:
        """Take over the corrected spelling; filters stay."""
        if corrected := self.result.get("didYouMean"):
            line = parse_query_line(self.line.value)
            self.line.value = (
                self.line.value.replace(line.words, corrected) if line.words in self.line.value else corrected
            )
            self.line.cursor_position = len(self.line.value)

    # ------------------------------------------------------------ actions on the passage

    @on(OptionList.OptionSelected, "#results")
    def chosen(self) -> None:
        """Enter: read the passage, unfold a document, run a search again."""
        row = self.row
        if isinstance(row, QueryRow):
            self.type_query(row.line)
        elif isinstance(row, FoldedRow):
            self.action_unfold(True)
        else:
            self.action_read()

    def action_unfold(self, opens: bool) -> None:
        """Show every passage of the document, or its best one alone."""
        hit = self.hit
        if hit is None or (hit["sourceId"] in self.unfolded) == opens:
            return
        self.unfolded ^= {hit["sourceId"]}
        self._show_rows(rows_of(self.hits, self.unfolded))
        best = next(index for index, row in enumerate(self.rows) if self._is_best_of(row, hit["sourceId"]))
        self.results.highlighted = best + 1 if opens and best + 1 < len(self.rows) else best

    def _is_best_of(self, row: Row, source_id: str) -> bool:
        return isinstance(row, HitRow) and row.is_best and self.hits[row.number]["sourceId"] == source_id

    def action_read(self) -> None:
        """Read the document from this passage on, over the whole screen."""
        from localmcp.tui.reader import ReaderScreen

        if hit := self.hit:
            self._use_result()
            same = [other for other in self.hits if other["sourceId"] == hit["sourceId"]]
            hits = [other["chunkId"] for other in sorted(same, key=lambda other: other["chunkIndex"])]
            self.app.push_screen(ReaderScreen(hit["chunkId"], self._matcher(hit), hit["freshness"], hits=hits))

    def action_explain(self) -> None:
        self.view.toggle_reasons()
        self.view.show_reasons(self.result, self.hit)
        if self.is_narrow and (hit := self.hit):
            from localmcp.tui.forms import TextScreen

            self.app.push_screen(TextScreen("Why this passage", explanation_of(self.result, hit)))

    def _copy(self, text: str, message: str) -> None:
        self._use_result()
        self.copy(text, message)

    def action_cite(self) -> None:
        if hit := self.hit:
            self._copy(citation_text(hit["sourceTitle"], hit["citation"]), "The citation is copied.")

    def action_copy(self) -> None:
        if hit := self.hit:
            self._copy(hit["content"], f"{counted(len(hit['content'].split()), 'word')} copied.")

    def action_path(self) -> None:
        if hit := self.hit:
            self._copy(hit["citation"].get("path") or hit["sourceTitle"], "The path is copied.")

    def action_open(self) -> None:
        from localmcp.tui.editor import open_in_editor

        if hit := self.hit:
            self._use_result()
            open_in_editor(self, hit["citation"], hit["freshness"])
