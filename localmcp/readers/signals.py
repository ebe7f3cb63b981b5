"""Warnings about a text for whoever reads it: hidden characters, and words that imitate instructions.

Nothing is blocked or removed: text from documents is data, and these are hints for whoever reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MANY_SOFT_HYPHENS = 20
_LOOKED_AT = 200_000
"""Characters of a text that are looked at."""

_HIDDEN = (
    ("hidden: tag characters", re.compile("[\U000e0000-\U000e007f]")),
    (
        "hidden: zero-width characters",
        re.compile("[\u200b\u2060-\u2064\u180e\ufeff]|(?<![^\x00-\u024f])[\u200c\u200d]"),
    ),
    ("hidden: bidirectional controls", re.compile("[\u202a-\u202e\u2066-\u2069]")),
    ("hidden: variation selectors", re.compile("[\U000e0100-\U000e01ef]|[\ufe00-\ufe0f]{2}")),
    ("hidden: soft hyphens", re.compile(rf"(?:\u00ad[^\u00ad]{{0,40}}){{{MANY_SOFT_HYPHENS}}}")),
    ("hidden: control characters", re.compile("[\x00-\x08\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufff9-\ufffb]")),
)
_INFO_MARK = re.compile(r"(?m)^\x1f$|(?<=\ufffd)\x08(?=[\[\]])|\x7f(?=\d)")
"""What an Info manual has before each node, around the kind of a menu, and in its table of nodes. NUL is U+FFFD."""
_PLAIN = re.compile("[\t-\r -~]*")

_INSTRUCTIONS, _ROLE = "imitates instructions", "imitates a role or tool call"
_SUBJECTS = ("instruction", "prompt", "rule", "direction", "guideline", "message", "context", "istruzion", "anweisung")


class _Pose:
    """A form of words. One of each group of anchors must be in the text, which most texts lack, before it is tried."""

    def __init__(self, name: str, pattern: str, *anchors: tuple[str, ...]) -> None:
        self.name = name
        self._pattern = re.compile(pattern, re.MULTILINE)
        self._anchors = anchors

    def is_in(self, lowered: str) -> bool:
        return all(_has_one_of(group, lowered) for group in self._anchors) and bool(self._pattern.search(lowered))


_POSING = (
    _Pose(
        _INSTRUCTIONS,
        r"\b(?:ignor|disregard|forget|overrid|bypass|vergiss)\w*\b[^.\n]{0,40}?"
        r"\b(?:previous|prior|above|earlier|preceding|foregoing|all|your|system|precedenti|vorherigen)\b[^.\n]{0,40}?"
        rf"\b(?:{'|'.join(_SUBJECTS)})"
        r"|\bignora\w*\b[^.\n]{0,30}\bistruzioni\b",
        ("ignor", "disregard", "forget", "overrid", "bypass", "vergiss"),
        _SUBJECTS,
    ),
    _Pose(
        _INSTRUCTIONS,
        r"\b(?:new|updated|real|actual|hidden) (?:system )?(?:instructions?|prompt)\s*:"
        r"|\b(?:reveal|print|repeat|output)\b[^.\n]{0,20}\byour (?:system )?(?:prompt|instructions)\b",
        ("instruction", "prompt"),
    ),
    _Pose(
        _INSTRUCTIONS,
        r"\byou (?:are|must|will) now\b[^.\n]{0,60}?\b(?:ai|assistant|model|mode|unrestricted|jailbroken|dan)\b",
        ("you are now", "you must now", "you will now"),
    ),
    _Pose(
        _INSTRUCTIONS,
        r"\bdo not (?:tell|inform|mention|reveal)\b[^.\n]{0,40}\b(?:user|human|person)\b",
        ("do not tell", "do not inform", "do not mention", "do not reveal"),
    ),
    _Pose(
        _INSTRUCTIONS,
        r"\b(?:ai|llm|language model|assistant)s?\b[^.\n]{0,40}\b(?:must|should|shall) (?:now )?"
        r"(?:call|run|execute|send|forward|reveal|output|reply|ignore)\b",
        ("must ", "should ", "shall "),
        ("ai ", "ais ", "llm", "language model", "assistant"),
    ),
    _Pose(
        _ROLE,
        r"</?(?:system|assistant|user|human|tool|tool_call|tool_use|tool_result|function_call|function_calls|"
        r"function_results|invoke|im_start|im_end)(?:\s[^<>\n]{0,80})?>"
        r"|<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)[^\n]{0,20}\|>"
        r"|\[/?inst\]|<</?sys>>",
        ("<", "[inst]", "[/inst]"),
        ("system", "assistant", "user", "human", "tool", "function_", "invoke", "im_", "endof", "eot", "inst]", "<<"),
    ),
    _Pose(
        _ROLE,
        r"^[ \t]{0,3}(?:#{1,6} *)?(?:system|assistant|human)(?: prompt| message)? *: *\S"
        r"|\"(?:tool_calls?|function_call)\" *:",
        ("system", "assistant", "human", "tool_call", "function_call"),
        (":",),
    ),
)


def signals(*texts: str) -> list[str]:
    """Return what stands out in the texts, each kind once; empty for ordinary ones. About 10 µs for a passage."""
    return list(dict.fromkeys(_signals_in(texts)))


def _signals_in(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        text = text[:_LOOKED_AT]
        if not _PLAIN.fullmatch(text):
            shown = _INFO_MARK.sub("", text) if "\x1f" in text or "\x7f" in text or "\x08" in text else text
            yield from (name for name, pattern in _HIDDEN if pattern.search(shown))
        lowered = text.lower()
        yield from (pose.name for pose in _POSING if pose.is_in(lowered))


def _has_one_of(anchors: Iterable[str], lowered: str) -> bool:
    # A loop, not any(): this runs 40 times for every hit of every search.
    for anchor in anchors:
        if anchor in lowered:
            return True
    return False
