"""Opening a file: at a line in the person's editor, or in the program that the system has for it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from textual.app import SuspendNotSupported
from textual.widget import Widget

from localmcp.errors import LocalMCPError, NotFound, Unavailable
from localmcp.schemas import Json
from localmcp.tui.session import Failed
from localmcp.visible_text import invisible

PLACES = {
    "+{line} {path}": "vi vim nvim view nano emacs emacsclient micro kak joe",
    "--goto {path}:{line}": "code codium code-insiders cursor windsurf",
    "{path}:{line}": "hx helix subl zed",
}
"""How editors are told a line -> their programs; any other gets the path alone."""
PROGRAMS = {
    *".appimage .bat .cmd .com .command .cpl .desktop .exe .hta .jar .js .jse .lnk .msi .ps1 .py .pyw .reg".split(),
    *".scr .scpt .sh .terminal .url .vb .vbe .vbs .webloc .wsf .wsh".split(),
}
"""Endings of files that some system runs, or that lead elsewhere, when they are opened."""


def open_in_editor(widget: Widget, citation: Json, freshness: str) -> None:
    """Suspend the TUI and start what VISUAL or EDITOR say; the error line shows why that fails."""
    named = (os.environ.get(name, "").strip() for name in ("VISUAL", "EDITOR"))
    editor = next(filter(None, named), "") or ("notepad" if sys.platform == "win32" else "vi")
    try:
        path = _existing(citation, freshness)
        if Path(path).suffix.lower() in (".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".zip"):
            raise NotFound(f"{path} is not a text file; an editor cannot show it.", hint="Press o to open it.")
        words = shlex.split(editor, posix=os.name == "posix")
        name = Path(words[0]).stem.lower()
        form = next((form for form, names in PLACES.items() if name in names.split()), "{path}")
        with widget.app.suspend():
            places = [part.format(path=path, line=citation["startLine"]) for part in form.split()]
            subprocess.run([*words, *places], check=False)
    except LocalMCPError as error:
        widget.app.post_message(Failed(error))
    except (OSError, ValueError, SuspendNotSupported) as error:
        hint = "Set EDITOR to one that is installed."
        widget.app.post_message(Failed(Unavailable(f"The editor '{editor}' cannot be started: {error}", hint=hint)))


def open_original(widget: Widget, citation: Json, freshness: str) -> None:
    """Open the file in the program that the system has for it, a PDF at its page where the viewer takes one."""
    try:
        path = _existing(citation, freshness)
        if Path(path).suffix.lower() in PROGRAMS:
            raise NotFound(f"{path} might run as a program when it is opened.", hint="Press e to see it in the editor.")
        if sys.platform == "win32":
            os.startfile(path)
        else:
            command, nothing = viewer_command(path, citation.get("startPage")), subprocess.DEVNULL
            subprocess.Popen(command, start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing)
        widget.app.notify(f"Opened {os.path.basename(path)}.")
    except LocalMCPError as error:
        widget.app.post_message(Failed(error))
    except (OSError, subprocess.SubprocessError) as error:
        failure = Unavailable(f"{citation.get('path')} cannot be opened: {error}", hint="The key e opens the editor.")
        widget.app.post_message(Failed(failure))


def viewer_command(path: str, page: int | None) -> list[str]:
    """Return the command line that opens a file; of a PDF at its page, if the viewer that is set for them takes one."""
    if sys.platform == "darwin":
        return ["open", path]
    if page is not None and path.lower().endswith(".pdf") and shutil.which("xdg-mime"):
        query = ["xdg-mime", "query", "default", "application/pdf"]
        default = subprocess.run(query, capture_output=True, text=True, check=False, timeout=5).stdout.lower()
        options = {"evince": "--page-index", "atril": "--page-index", "okular": "--page", "zathura": "--page"}
        for viewer, option in options.items():
            if viewer in default and shutil.which(viewer):
                return [viewer, f"{option}={page}", path]
    return ["xdg-open", path]


def real_path(shown: str) -> str:
    """Return the path of a file or folder that an answer shows, with signs for the control characters in its name."""
    return shown if os.path.exists(shown) else invisible(shown)


def _existing(citation: Json, freshness: str) -> str:
    """Return the path, if it is a file of this machine.

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
    return path
