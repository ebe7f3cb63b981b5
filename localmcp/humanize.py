"""Numbers, sizes, times and places in the words people use."""

import os
import re
from collections.abc import Collection
from datetime import datetime
from typing import Any, cast


def command_line(*words: object) -> str:
    """Return words as a person pastes them into a shell: `restore '/tmp/my notes.localmcp'`."""
    # Imported here: a start does without either.
    if os.name != "posix":
        import subprocess

        return subprocess.list2cmdline(str(word) for word in words)
    import shlex

    written: list[str] = []
    for text in map(str, words):
        if not text.isprintable():
            # In signs that the terminal shows, as `␊` for a line break, it would name nothing.
            # On Windows half a character may be in a name, elsewhere bytes that are no text.
            text = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", text)
            plain = text.encode(errors="surrogateescape").decode("latin-1")
            escaped = re.sub(r"[^ -~]|['\\]", lambda sign: f"\\x{ord(sign[0]):02x}", plain)
            written.append(f"$'{escaped}'")
        else:
            written.append(text if re.fullmatch(r"[\w@%+=:,./~-]+", text) else shlex.quote(text))
    return " ".join(written)


def counted(number: int, noun: str) -> str:
    """`1 document`, `1,204 documents`, `3 searches`."""
    plural = noun + ("es" if noun.endswith(("s", "ch", "x")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def cut_to(text: str, most: int) -> str:
    """Return a text in at most `most` characters, the last an ellipsis if it is longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


MOST_QUOTED = 200
"""Characters of a caller's own text that a message repeats."""


def quoted(text: str) -> str:
    """Return a text as a message repeats it to the one who sent it: long ones are cut."""
    return cut_to(text, MOST_QUOTED)


def choices(names: Collection[str]) -> str:
    """Return what there is to choose from: `There are: a, b.`, `There is: a.`, `There are none yet.`."""
    if not names:
        return "There are none yet."
    return f"There {'is' if len(names) == 1 else 'are'}: {', '.join(names)}."


def size(number: int) -> str:
    """Bytes in the unit people use: `812 kB`, `4.2 MB`."""
    if number < 1000:
        return f"{number} bytes"
    unit, value = "kB", number / 1000
    for larger in ("MB", "GB"):
        if value >= 1000:
            unit, value = larger, value / 1000
    return f"{value:.0f} {unit}" if value >= 100 or unit == "kB" else f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """Seconds as `0.4 s`, `42 s`, `3 min 20 s`, `1 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    return f"{minutes} min {seconds_left} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def local_time(moment: str) -> str:
    """Return a time of the file (UTC) as the clock here shows it, to the second: `2026-01-31 18:05:00`."""
    try:
        return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return moment


def short_path(path: str) -> str:
    """Return the path as a person would type it here: relative if it is below the working directory."""
    if "://" in path or "#" in path and os.path.normpath(path) != path:
        return path  # An address, or the name of a document in an archive, which would climb to a file beside it.
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):  # on another drive, or the working directory was removed
        return path
    return path if relative.startswith("..") else relative


def headings_of(hit: dict[str, Any]) -> str:
    """Return the headings above a passage, without the first where it is the title."""
    headings = hit["citation"].get("heading", "").split(" › ")
    return "".join(f" › {heading}" for heading in headings[headings[0] == hit["sourceTitle"] :] if heading)


def explanation(result: dict[str, Any], hit: dict[str, Any]) -> dict[str, str]:
    """Return the scores of a hit, the words that were searched for, and why others were not, each in a line or empty.

    `result`: the answer of a search with `explain`, `hit` one of its passages.
    """
    arms, query, score = hit["explain"], result["explain"], hit["combinedScore"]
    meaning, words = arms["semantic"], arms["keyword"]
    parts = [("meaning", meaning["weight"], meaning["score"]), ("words", words["weight"], words["score"])]
    parts += [(added["reason"], words["weight"], added["points"]) for added in words.get("added", ())]
    formula = " + ".join(f"{weight:.2g} × {points:.1f} {name}" for name, weight, points in parts)
    if abs(sum(weight * points for _, weight, points in parts) - score) >= 0.02:
        formula = f"by {'meaning' if meaning['score'] == score else 'words'} alone"
    ranks = [f"rank {arm['rank']}" if arm["rank"] else "not among its first" for arm in (meaning, words)]
    return {
        "score": f"{score:.1f} = {formula}",
        "meaning": f"{ranks[0]}   cosine {meaning['raw']:.3f}",
        "words": f"{ranks[1]}   bm25 {words['raw']:.2f}   matched: {', '.join(arms['matchedWords']) or 'none'}",
        "searched": " · ".join(f"{t['word']} in {counted(t['chunks'], 'passage')}" for t in query["terms"])
        or "no words",
        "left out": ", ".join(f"{dropped['word']} ({dropped['reason']})" for dropped in query["dropped"]),
        "repaired": ", ".join(f"{repair['word']} → {repair['replacement']}" for repair in result.get("repairs", ())),
        "notices": " ".join(result.get("notices", ())),
    }


def field_label(name: str) -> str:
    """Return the name of a field in words: `created at` for `createdAt`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name)
    return words if words.isupper() else words.lower()


def field_text(name: str, value: Any) -> str:
    """Return the value of a field in one line; empty for nothing and false.

    Times are those of the clock here, paths short, sizes in units, items of lists and objects joined.
    """
    if value is None or value is False or value == []:
        return ""
    if value is True:
        return "yes"
    if isinstance(value, int):
        # The number of a record is typed again as it is.
        groups = abs(value) > 9999 and not re.search("ids?$|found", name.lower())
        return size(value) if "bytes" in name.lower() else f"{value:,}" if groups else str(value)
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 999.5 else f"{value:{',' if abs(value) > 9999 else ''}.10g}"
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        # Keys inside may be data: of metadata, of the environment, names of partitions.
        return ", ".join(f"{key}: {text}" for key, item in items if (text := field_text(key, item)))
    if isinstance(value, list | tuple):
        return ", ".join(field_text(name, item) for item in cast("list[Any]", value))
    text = " ".join(str(value).split())
    if name in ("path", "file", "uri", "where"):
        return short_path(text)
    return local_time(text) if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", text) else text


def rows_of(value: Any) -> list[dict[str, Any]]:
    """Return the value of a field if it is a list of objects, which is a table; else an empty list."""
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    return rows if all(isinstance(row, dict) for row in rows) else []


FILTERS = {
    "source": "sourceId", "collection": "collection", "tag": "tag", "path": "pathPrefix", "type": "sourceType",
    "partition": "partition", "since": "since", "until": "until",
}  # fmt: skip
"""What a filter is called among the words of a search -> the parameter of the tool `search`."""
_FILTER = re.compile(rf'(?<!\S)({"|".join(FILTERS)}):(?:"([^"]*)"?|(\S*))', re.IGNORECASE)


def parse_query_line(text: str) -> tuple[str, dict[str, list[str]]]:
    """Return words, and filter -> its values, of a line such as `kafka lag tag:ops source:"Runbook 7"`.

    A filter without a value is left out; what looks like a filter but is none (`http://…`, `std::vector`) is words.
    """
    filters: dict[str, list[str]] = {}
    for name, quoted, plain in _FILTER.findall(text):
        if value := (quoted or plain).strip():
            filters.setdefault(name.lower(), []).append(value)
    return " ".join(_FILTER.sub(" ", text).split()), filters
