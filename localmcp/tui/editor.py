"""Opening a file at a line in the person's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from textual.app import SuspendNotSupported
from textual.widget import Widget

from localmcp.errors import LocalMCPError, NotFound, Unavailable
from localmcp.schemas import Json
from localmcp.tui.session import Failed
from localmcp.visible_text import invisible

LINE_BEHIND = {"hx", "helix", "subl", "zed"}
"""Editors that take `FILE:12`."""
GO_TO = {"code", "codium", "code-insiders", "cursor", "windsurf"}
"""Editors that take `--goto FILE:12`."""
LINE_FIRST = {"vi", "vim", "nvim", "view", "nano", "emacs", "emacsclient", "micro", "kak", "joe"}
"""Editors that take `+12 FILE`."""
NOT_TEXT = {".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".zip"}


def editor_command(editor: str, path: str, line: int) -> list[str]:
    """Return the command line that opens `path` at `line`; an unknown editor gets the path alone."""
    words = shlex.split(editor, posix=os.name == "posix")
    name = Path(words[0]).stem.lower()
    if name in LINE_FIRST:
        return [*words, f"+{line}", path]
    if name in GO_TO:
        return [*words, "--goto", f"{path}:{line}"]
    return [*words, f"{path}:{line}" if name in LINE_BEHIND else path]


def open_in_editor(widget: Widget, citation: Json, freshness: str) -> None:
    """Suspend the TUI and start what VISUAL or EDITOR say; the error line shows why that fails."""
    named = (os.environ.get(name, "").strip() for name in ("VISUAL", "EDITOR"))
    editor = next(filter(None, named), "") or ("notepad" if sys.platform == "win32" else "vi")
    try:
        command = editor_command(editor, _openable(citation, freshness), citation["startLine"])
        with widget.app.suspend():
            subprocess.run(command, check=False)
    except LocalMCPError as error:
        widget.app.post_message(Failed(error))
    except (OSError, ValueError, SuspendNotSupported) as error:
        hint = "Set EDITOR to one that is installed."
        widget.app.post_message(Failed(Unavailable(f"The editor '{editor}' cannot be started: {error}", hint=hint)))


def real_path(shown: str) -> str:
    """Return the path of a file or folder that an answer shows, with signs for the control characters in its name."""
    return shown if os.path.exists(shown) else invisible(shown)


def _openable(citation: Json, freshness: str) -> str:
    """Return the path, if it is a text file of this machine.

    Raises:
        NotFound: says why it cannot be opened.
    """
    path = citation.get("path")
    if path is None:
        raise NotFound("This text came from no file.")
    if freshness == "unverifiable":
        raise NotFound(f"{path} is a path of another machine, or the file was not adopted.")
    path = real_path(path)
    if freshness == "missing" or not os.path.isfile(path):
        raise NotFound(f"{path} is no longer there.", hint="Refresh the Library.")
    if Path(path).suffix.lower() in NOT_TEXT:
        raise NotFound(f"{path} is not a text file; an editor cannot show it.")
    return path
