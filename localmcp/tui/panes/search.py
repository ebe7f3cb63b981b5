"""Search: passages as you type, the one you look at with its neighbours, and why it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import ContentSwitcher, Input, OptionList, Static
from textual.widgets.option_list import Option

from localmcp.humanize import counted
from localmcp.knowledge.query_line import parse_query_line
from localmcp.text.excerpt import Matcher
from localmcp.tui.explanation import explanation_of
from localmcp.tui.highlight import HitLines, citation_text, headings_of, marked, matcher_of
from localmcp.tui.keymap import bindings
from localmcp.tui.messages import QuestionChanged
from localmcp.tui.pane import Choices, Pane
from localmcp.tui.search_arguments import search_arguments
from localmcp.tui.welcome import Welcome

Json = dict[str, Any]

DEBOUNCE_SECONDS = 0.07
HITS = 20
"""Passages on a page; the next page comes when the last one is reached."""
MODES = ("hybrid", "keyword", "semantic")


@dataclass(frozen=True, slots=True)
class Asked:
    """What was searched for."""

    line: str
    mode: str


class SearchPane(Pane):
    """The first pane."""

    TITLE, KEY_GROUP = "Search", "search"
    ABOUT = (
        "Type a question, words, a code or a name; passages come as you type. Filters stand in the same line: "
        '`source:"Boiler manual"`, `collection:notes`, `tag:ops`, `path:~/docs`, `type:code`. '
        "Modes: hybrid looks for words and meaning, keyword for words alone, semantic for meaning alone."
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("search")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.mode = MODES[0]
        self.asked: Asked | None = None
        self.result: Json = {}
        self.hits: list[Json] = []
        self._typing: Timer | None = None
        self._matchers: dict[str, Matcher] = {}

    def compose(self) -> ComposeResult:
        with Horizontal(classes="row"):
            line = Input(placeholder="Search your documents", classes="framed", id="query")
            line.cursor_blink = False
            yield line
            yield Static(self.mode, classes="aside", id="mode")
        yield Static(classes="note", id="said")
        with ContentSwitcher(initial="found", classes="split", id="below"):
            yield Welcome(id="welcome")
            with Horizontal(id="found"):
                yield Choices(classes="framed left", id="results")
                with Vertical(classes="right"):
                    with VerticalScroll(classes="framed", id="preview", can_focus=True):
                        yield Static(id="passage")
                    yield Static(classes="framed", id="explain")

    def on_mount(self) -> None:
        self.query_one("#results").border_title = "Passages"
        self.query_one("#explain").border_title = "Why this passage"
        self.show_nothing_yet()

    # ------------------------------------------------------------ parts

    @property
    def line(self) -> Input:
        return self.query_one("#query", Input)

    @property
    def results(self) -> Choices:
        return self.query_one("#results", Choices)

    @property
    def hit(self) -> Json | None:
        """The passage that is highlighted."""
        option = self.results.highlighted_option
        return self.hits[int(option.id)] if option is not None and option.id else None

    # ------------------------------------------------------------ life

    def focus_first(self) -> None:
        if self.query_one("#below", ContentSwitcher).current == "welcome":
            self.query_one(Welcome).focus()
        else:
            self.line.focus()

    def focus_query(self) -> None:
        """Put the cursor into the line."""
        self.query_one("#below", ContentSwitcher).current = "found"
        self.line.focus()

    def type_query(self, text: str) -> None:
        """Search for `text`, as if it had been typed."""
        self.focus_query()
        self.line.value = text
        self.line.cursor_position = len(text)

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
        below = self.query_one("#below", ContentSwitcher)
        wanted = "welcome" if is_empty and not self.line.value.strip() and not self.session.job else "found"
        if below.current != wanted:
            below.current = wanted
            self.focus_first()
        if self.asked is None:
            self.show_nothing_yet()
        else:
            self.search_again()

    def model_changed(self) -> None:
        """The model is there: what was answered by words alone is asked again."""
        if self.asked is not None and self.mode != "keyword":
            self.search_again()

    # ------------------------------------------------------------ searching

    @on(Input.Changed, "#query")
    def typed(self) -> None:
        if self._typing:
            self._typing.stop()
        self.post_message(QuestionChanged())
        # The query that is running is of no use from the next key on.
        self.forget("search")
        self._typing = self.set_timer(DEBOUNCE_SECONDS, self.search_again)

    def search_again(self) -> None:
        """Ask for what stands in the line."""
        asked = Asked(self.line.value, self.mode)
        if not parse_query_line(asked.line).words:
            self.forget("search")
            self.asked = None
            self.show_nothing_yet()
            return
        same = asked == self.asked
        self.asked = asked
        self.forget("more")
        self.ask("search", lambda: self._search(asked), lambda result: self.show_result(result, keep=same))

    def _search(self, asked: Asked, cursor: str | None = None) -> Json:
        arguments = search_arguments(self.session, asked.line, asked.mode)
        return self.session.call("search", **arguments, limit=HITS, explain=True, cursor=cursor)

    def show_more(self) -> None:
        """Fetch the next page when the last passage is reached."""
        cursor, asked = self.result.get("nextCursor"), self.asked
        if cursor and asked:
            self.ask("more", lambda: self._search(asked, cursor), self._add_more)

    def _add_more(self, result: Json) -> None:
        first = len(self.hits)
        self.result = {**result, "explain": self.result["explain"]}
        self.hits += result["results"]
        self.results.add_options(self._option(number) for number in range(first, len(self.hits)))
        self._count()

    # ------------------------------------------------------------ showing

    def show_nothing_yet(self) -> None:
        """Before anything was typed."""
        self._take({"results": []})
        self.results.clear_options()
        self._count()
        self.say_nothing_is_here(True)
        self._say({})
        self._show_explanation()
        self.show_passage(
            Content.from_markup(
                "[b]Type to search[/b]\n\n"
                "[$foreground 65%]a question, words, a code or a name\n\n"
                'collection:notes   tag:ops   path:~/docs   source:"Boiler manual"\nnarrow it down in the same line[/]'
            )
        )

    def show_result(self, result: Json, *, keep: bool = False) -> None:
        """Show what was found; with `keep`, the passage stays highlighted to which the person has moved."""
        self.query_one("#below", ContentSwitcher).current = "found"
        before = self.hit["id"] if keep and self.hit and self.results.highlighted else None
        self._take(result)
        self._count()
        self._say(result)
        self.say_nothing_is_here(not self.hits)
        if not self.hits:
            self.results.clear_options()
            self._show_nothing_found()
            return
        self.results.set_options(self._option(number) for number in range(len(self.hits)))
        ids = [hit["id"] for hit in self.hits]
        self.results.highlighted = ids.index(before) if before in ids else 0

    def _take(self, result: Json) -> None:
        """Make this the answer. The keys at the bottom are only looked at again where others count: drawing them takes
        longer than drawing the passages."""
        had = bool(self.hits)
        self.result, self.hits, self._matchers = result, result["results"], {}
        if had != bool(self.hits):
            self.refresh_bindings()

    def _count(self) -> None:
        more = "+" if "nextCursor" in self.result else ""
        self.results.border_subtitle = f"{len(self.hits)}{more}" if self.hits else ""

    def _show_nothing_found(self) -> None:
        self._show_explanation()
        self.show_passage(
            Content.from_markup(
                "[b]Nothing fits[/b]\n\n[$foreground 65%]Fewer words, another mode [b]m[/b], no filters, or more "
                "documents: [b]2[/b] Library, or\n\n  localmcp add FOLDER[/]"
            )
        )

    def _say(self, result: Json) -> None:
        """Repaired words and what else the person should know, above the passages."""
        parts: list[Content] = []
        if repairs := result.get("repairs"):
            words = ", ".join(f"{each['replacement']} instead of {each['word']}" for each in repairs)
            parts.append(Content(f"Searched for {words}.  "))
            parts.append(
                Content.styled(f"Did you mean “{result['didYouMean']}”?  a takes it over  ", "$foreground 60%")
            )
        parts += [Content(f"{notice}  ") for notice in result.get("notices", ())]
        said, words = self.query_one("#said", Static), Content("").join(parts)
        if words != said.content:
            said.update(words)
        said.set_class(bool(parts), "-on")

    def _option(self, number: int) -> Option:
        """One hit in three lines: score and title, place, the line that fits best."""
        hit = self.hits[number]
        return Option(HitLines(number, hit, self._matcher(hit)), id=str(number))

    def _matcher(self, hit: Json) -> Matcher:
        """One for all passages of a language: it remembers the words that it has seen."""
        language = hit["explain"]["language"]
        if language not in self._matchers:
            self._matchers[language] = matcher_of(self.result, hit)
        return self._matchers[language]

    @on(OptionList.OptionHighlighted, "#results")
    def look_at(self, message: OptionList.OptionHighlighted) -> None:
        hit = self.hit
        if hit is None:
            return
        # The list is painted first: it is what one waits for.
        self.call_after_refresh(self._look_around, hit)
        if message.option_index == len(self.hits) - 1:
            self.show_more()

    def _look_around(self, hit: Json) -> None:
        """Show the passage among its neighbours, unless another is highlighted by now."""
        if hit is self.hit:
            self._show_explanation()
            self.ask("passage", lambda: self._around(hit), lambda around: self._show_around(hit, around))

    def _around(self, hit: Json) -> Json:
        return cast(Json, self.session.look(lambda workspace: workspace.knowledge.get_context(hit["chunkId"], 1)))

    def _show_around(self, hit: Json, around: Json) -> None:
        matcher = self._matcher(hit)
        parts = [
            marked(chunk["content"].strip("\n"), matcher) if chunk["isTarget"]
            else Content.styled(chunk["content"].strip("\n"), "$foreground 45%")
            for chunk in around["chunks"]
        ]  # fmt: skip
        citation = hit["citation"]
        self.show_passage(
            Content("\n\n").join(parts),
            f"{hit['sourceTitle']}{headings_of(hit)}",
            f"{hit['collection']} · passage {hit['chunkIndex'] + 1} of {hit['chunkTotal']} · "
            f"lines {citation['startLine']}–{citation['endLine']}",
        )
        # One line of what stands before it stays in sight.
        width = max(self.query_one("#passage").size.width, 20)
        earlier = sum(chunk["relativePosition"] < 0 for chunk in around["chunks"])
        before = sum(len(part.wrap(width)) + 1 for part in parts[:earlier])
        self.query_one("#preview").scroll_to(y=max(before - 2, 0), animate=False)

    def show_passage(self, text: Content, title: str = "", below: str = "") -> None:
        """Fill the preview."""
        preview = self.query_one("#preview")
        preview.border_title = Content(title or "Passage")
        preview.border_subtitle = Content(below)
        self.query_one("#passage", Static).update(text)
        preview.scroll_home(animate=False)

    def _show_explanation(self) -> None:
        if not self.query_one("#explain").has_class("-on"):
            return
        hit = self.hit
        lines = explanation_of(self.result, hit) if hit else Content("")
        self.query_one("#explain", Static).update(lines)

    # ------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is done to a passage is offered where there is one."""
        if action in ("read", "explain", "cite", "copy", "open"):
            return bool(self.hits)
        return super().check_action(action, parameters)

    def action_results(self) -> None:
        (self.results if self.hits else self.query_one("#preview")).focus()

    @on(Input.Submitted, "#query")
    def submitted(self) -> None:
        self.action_results()

    @on(OptionList.OptionSelected, "#results")
    def chosen(self) -> None:
        self.action_read()

    def action_read(self) -> None:
        """Read on around the passage, over the whole screen."""
        from localmcp.tui.reader import ReaderScreen

        if hit := self.hit:
            self.app.push_screen(ReaderScreen(hit["chunkId"], self._matcher(hit), hit["freshness"]))

    def action_explain(self) -> None:
        self.query_one("#explain").toggle_class("-on")
        self._show_explanation()
        if self.app.size.width < 100 and (hit := self.hit):
            from localmcp.tui.dialogs import TextScreen

            self.app.push_screen(TextScreen("Why this passage", explanation_of(self.result, hit)))

    def action_mode(self) -> None:
        self.mode = MODES[(MODES.index(self.mode) + 1) % len(MODES)]
        self.query_one("#mode", Static).update(self.mode)
        self.search_again()

    def on_click(self, event: events.Click) -> None:
        """The mouse changes the mode."""
        if event.widget is not None and event.widget.id == "mode":
            self.action_mode()

    def action_accept(self) -> None:
        """Take over the repaired spelling; filters stay."""
        if corrected := self.result.get("didYouMean"):
            line = parse_query_line(self.line.value)
            self.line.value = (
                self.line.value.replace(line.words, corrected) if line.words in self.line.value else corrected
            )
            self.line.cursor_position = len(self.line.value)

    def action_again(self) -> None:
        self.search_again()

    def action_cite(self) -> None:
        if hit := self.hit:
            self.app.copy_to_clipboard(citation_text(hit["sourceTitle"], hit["citation"]))
            self.app.notify("The citation is copied.")

    def action_copy(self) -> None:
        if hit := self.hit:
            self.app.copy_to_clipboard(hit["content"])
            self.app.notify(f"{counted(len(hit['content'].split()), 'word')} copied.")

    def action_open(self) -> None:
        from localmcp.tui.editor import open_in_editor

        if hit := self.hit:
            open_in_editor(self, hit["citation"], hit["freshness"])
