"""Reads the source of manual pages line by line as Markdown, so that the lines of a citation are those of the file."""

import re

from localmcp.readers.document import Document, iso_date, make_document
from localmcp.readers.encodings import HEAD, decode_text

_TITLE = re.compile(r"(?m)^\.(?:TH|Dt)[ \t]+(.+)")
_REQUEST = re.compile(r"[.'][ \t]*([^\s\\\"]*)[ \t]*(.*)")
_ARGUMENT = re.compile(r'"([^"]*)"?|(\S+)')
_HEADINGS = {"SH": "## ", "Sh": "## ", "SS": "### ", "Ss": "### "}
_LITERAL = {"nf": True, "EX": True, "Vb": True, "fi": False, "EE": False, "Ve": False}
_WITHOUT_WORDS = "PP LP P TP TQ HP RS RE PD IX TS TE Bl El Bd Ed Os Dd Sm LINKSTYLE".split()
_TOUCHING = ("BR", "RB", "BI", "IB", "IR", "RI")
_SIGNS = {
    **{"bu": "•", "em": "—", "en": "–", "hy": "-", "mi": "-", "aq": "'", "cq": "’", "oq": "‘", "lq": "“", "rq": "”"},
    **{"dq": '"', "ga": "`", "ha": "^", "ti": "~", "rs": "\\", "Aq": "'", "e": "\\", "\\": "\\", "t": "\t", "0": " "},
    **{"C`": '"', "C'": '"', 'L"': "“", 'R"': "”", "``": "“", "''": "”", "->": "→", "co": "©", "~": " "},
    **{sign: sign for sign in "- '`."},
}
_ESCAPE = re.compile(
    r"\\(?:\".*|[fmnFgkMVY](?:\(..|\[[^\]\n]*\]|.)|s[-+]?\d{1,2}|[hvwXZDlLboS]'[^'\n]*'|\*?(?:\((..)|\[([^\]\n]*)\])|\*?(.)|$)"
)


def looks_like_man_page(data: bytes) -> bool:
    """Return whether a file has the title of a manual page."""
    return re.search(rb"(?m)^\.(?:TH|Dt)[ \t]", data[:HEAD]) is not None


def read_man_page(data: bytes, name: str) -> Document:
    """Return a manual page: its headings, examples and words, without the requests to the typesetter."""
    text, metadata = decode_text(data)
    text = text.replace("\r\n", "\n")
    title = [*_arguments(title[1] if (title := _TITLE.search(text)) else name), "", "", ""]
    named = f"{title[0].lower() if title[0].isupper() else title[0]}({title[1]})"
    lines: list[str] = []
    heading, literal, defined = "", False, False
    for line in text.split("\n"):
        request = _REQUEST.fullmatch(line)
        macro, rest = (request[1], request[2]) if request else ("", line)
        # What a macro is defined as, and the other branch of a condition, are not printed.
        is_hidden, opens = defined, macro in ("de", "de1", "am", "ig") or (macro == "el" and "\\{" in rest)
        defined = opens or (defined and macro != "." and not rest.startswith("\\}"))
        literal, heading = _LITERAL.get(macro, literal), _HEADINGS.get(macro, heading)
        if macro in ("TH", "Dt"):
            words, heading = named, "# "
        elif request is None:
            words = _plain(line)
        elif macro.islower() or not macro.isalpha() or macro in (*_WITHOUT_WORDS, *_LITERAL):
            words = ""
        else:
            arguments = _arguments(rest)
            words = ("" if macro in _TOUCHING else " ").join(arguments[:1] if macro == "IP" else arguments)
        if words := "" if is_hidden else words:
            # What is indented is no heading in Markdown, nor the underline of one.
            is_indented = not heading and (literal or words.lstrip()[:1] == "#" or not words.strip("-= "))
            words, heading = heading + ("    " if is_indented else "") + words, ""
        lines.append(words)
    date = iso_date(title[2])
    return make_document(
        name, "\n".join(lines), "man page", title=named, metadata=metadata, date=date, date_from="front matter"
    )


def _arguments(argument_text: str) -> list[str]:
    return [_plain(match[1] or match[2] or "") for match in _ARGUMENT.finditer(re.sub(r'\\".*', "", argument_text))]


def _plain(text: str) -> str:
    """Return text with its escapes as the characters that they print."""
    return _ESCAPE.sub(lambda escape: _SIGNS.get(escape[1] or escape[2] or escape[3] or "", ""), text)
