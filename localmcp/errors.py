"""Every error that localmcp raises on purpose.

Exit codes: 1 failure, 2 a value that cannot be used, 3 something needed is not there right now, 4 a setting or the file
itself does not fit this program.
"""

import re


class LocalMCPError(Exception):
    """Base of all deliberate errors: a sentence for the person, an exit code, and a next step."""

    exit_code = 1
    code = "failure"
    """A stable word for programs (`error.code` in JSON output): the name of a class below, unless it says another."""

    def __init_subclass__(cls) -> None:
        # A class of another module has the word of its base.
        if cls.__module__ == __name__ and "code" not in vars(cls):
            cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        """What the person can do next; shown on its own line."""

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        between = " " if self.message.endswith((".", "!", "?", ":")) else ". "
        return f"{self.message}{between}{self.hint}"


class InvalidInput(LocalMCPError):
    """A value that cannot be used."""

    exit_code = 2


class UnknownTool(InvalidInput):
    """No tool of that name is visible to the caller."""


class ToolNotFound(UnknownTool):
    """Raised by a provider of tools for another's name, and by a registry for an unknown one (S1-4)."""

    code = "unknown_tool"

    def __init__(self, name: str = "", *, hint: str | None = None) -> None:
        super().__init__(f"Tool not found: {name}" if name else "Tool not found", hint=hint)


class NotFound(LocalMCPError):
    """The thing named does not exist, or the caller may not see it."""


class UnreadableDocument(LocalMCPError):
    """A file that cannot be turned into text; the message says why."""


class ScannedDocument(UnreadableDocument):
    """Its pages are pictures: text recognition reads them later, or would if it were installed, or saw no text."""

    def __init__(self, message: str, pages: int = 0, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pages = pages
        """Those that wait; 0 when recognition has read them."""


class MissingExtra(UnreadableDocument):
    """The library that reads this format is an optional extra and is not installed."""

    exit_code = 3

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the optional extra '{extra}'.", hint=f"Install it with: pip install 'localmcp[{extra}]'"
        )


class AccessDenied(LocalMCPError):
    """The caller asked for something outside what it was given."""


class NeedsConfirmation(LocalMCPError):
    """An action that would remove much is stopped until the person confirms it."""


class Interrupted(LocalMCPError):
    """Work that was stopped: its caller no longer waits, or what it reads was removed meanwhile."""


class CallGivenUp(Interrupted):
    """A call of a program or connected server whose client no longer waits; it may have done its work already."""


class Unavailable(LocalMCPError):
    """Something needed is not there right now; trying again later can help."""

    exit_code = 3


class MissingCapability(Unavailable):
    """The client does not offer what the call needs, such as asking the person a question."""

    def __init__(self, message: str, *, capability: str = "elicitation") -> None:
        super().__init__(message)
        self.capability = capability
        """The name of what is missing in the client's capabilities."""


class FileUnavailable(Unavailable):
    """The database file cannot be opened, locked or written."""


class ModelUnavailable(Unavailable):
    """The embedding model, or the language model, cannot be loaded or reached."""


class ConfigurationError(LocalMCPError):
    """A setting, or the file itself, does not fit this program."""

    exit_code = 4
    code = "configuration"


class NotOurFile(ConfigurationError):
    """The file is not a localmcp database."""


class AlteredSchema(NotOurFile):
    """A localmcp database whose tables, views or triggers are not those we make; it is left untouched."""

    code = "not_our_file"


class FileTooNew(ConfigurationError):
    """The file was written by a newer localmcp; it is left untouched."""


class FileTooOld(ConfigurationError):
    """The file was written before the first release; it is left untouched."""


class ModelMismatch(ConfigurationError):
    """The vectors asked for belong to another model than the one at hand."""
