"""The first run: nothing is indexed yet, and three keys lead to a first search."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localmcp.config import sample_directory
from localmcp.tui.session import session_of
from localmcp.tui.widgets import Choices

if TYPE_CHECKING:
    from localmcp.library.report import Report
    from localmcp.tui.session import OnProgress

SAMPLES = "samples"
"""The collection of the sample documents."""
FIRST_QUERIES = (
    ("boiler error E110", "a code"),
    ("bread came out flat and too acidic", "hardly a word in common with the answer"),
    ("certifcate expired lockers", "a misspelled word"),
    ("riscatto totale invalidita permanente", "another language"),
)
"""Queries for the samples, and what each shows."""
CHOICES = (
    ("d", "samples", "Load the sample documents", "to look around; they go into a collection of their own"),
    ("a", "app.add_folder", "Add a folder", "of documents, notes or code; it is kept up to date from then on"),
    ("m", "app.connect", "Connect an assistant", "its configuration is found, shown, and changed after a yes"),
)
"""Key, action, title and reason."""


class Welcome(Choices):
    """The first steps in an empty library."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding(key, action, title) for key, action, title, _ in CHOICES]

    def on_mount(self) -> None:
        self.add_class("framed")
        self.border_title = "Nothing is indexed yet"
        self.border_subtitle = "from a shell: localmcp add FOLDER"
        for key, action, title, why in CHOICES:
            text = Content.assemble("\n", (f"  {key}  ", "bold $accent"), (title, "bold"), "\n     ", (why, "$muted"))
            self.add_option(Option(text, id=action.replace(".", "-")))

    async def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        """Enter and the mouse do what the letter does."""
        message.stop()
        await self.run_action(CHOICES[message.option_index][1])

    def action_samples(self) -> None:
        """Index the samples in the background; searching can begin at once."""
        from localmcp.tui.dialogs import ChoiceScreen, ask_screen

        session = session_of(self)

        def index_samples(on_progress: OnProgress) -> Report:
            library, folder = session.workspace.library, sample_directory() / "documents"
            return library.add_paths([folder], collection=SAMPLES, remember=False, progress=on_progress)

        async def search(index: int) -> None:
            await self.run_action(f"app.search_for({FIRST_QUERIES[index][0]!r})")

        session.do("Samples", index_samples)
        rows = [Content.assemble((f" {query}  ", "bold"), (why, "$muted")) for query, why in FIRST_QUERIES]
        above = Content("They are read in the background, and what is read can be searched at once:\n")
        screen = ChoiceScreen("Search the samples", rows, above, "enter searches")
        ask_screen(self, screen, lambda index: self.call_later(search, index))
