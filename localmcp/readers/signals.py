"""Warnings about a text for whoever reads it: hidden characters, and words that imitate instructions.

Nothing is blocked or removed: text from documents is data, and these are hints for whoever reads it.
"""

from __future__ import annotations

import re

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
_PLAIN = re.compile("[\t-\r -~]*")

_INSTRUCTIONS, _ROLE = "imitates instructions", "imitates a role or tool call"
_POSING = (
    (
        _INSTRUCTIONS,
        ("ignor", "disregard", "forget", "overrid", "bypass", "vergiss"),
        r"\b(?:ignor|disregard|forget|overrid|bypass|vergiss)\w*\b[^.\n]{0,40}?"
        r"\b(?:previous|prior|above|earlier|preceding|foregoing|all|your|system|precedenti|vorherigen)\b[^.\n]{0,40}?"
        r"\b(?:instruction|prompt|rule|direction|guideline|message|context|istruzion|anweisung)"
        r"|\bignora\w*\b[^.\n]{0,30}\bistruzioni\b",
    ),
    (
        _INSTRUCTIONS,
        ("instruction", "prompt"),
        r"\b(?:new|updated|real|actual|hidden) (?:system )?(?:instructions?|prompt)\s*:"
        r"|\b(?:reveal|print|repeat|output)\b[^.\n]{0,20}\byour (?:system )?(?:prompt|instructions)\b",
    ),
    (
        _INSTRUCTIONS,
        (
            "you are now",
            "you must now",
            "you will now",
            "do not tell",
            "do not inform",
            "do not mention",
            "do not reveal",
        ),
        r"\byou (?:are|must|will) now\b[^.\n]{0,60}?\b(?:ai|assistant|model|mode|unrestricted|jailbroken|dan)\b"
        r"|\bdo not (?:tell|inform|mention|reveal)\b[^.\n]{0,40}\b(?:user|human|person)\b",
    ),
    (
        _INSTRUCTIONS,
        ("ai ", "ais ", "llm", "language model", "assistant"),
        r"\b(?:ai|llm|language model|assistant)s?\b[^.\n]{0,40}\b(?:must|should|shall) (?:now )?"
        r"(?:call|run|execute|send|forward|reveal|output|reply|ignore)\b",
    ),
    (
        _ROLE,
        ("<", "inst]"),
        r"</?(?:system|assistant|user|human|tool|tool_call|tool_use|tool_result|function_call|function_calls|"
        r"function_results|invoke|im_start|im_end)(?:\s[^<>\n]{0,80})?>"
        r"|<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)[^\n]{0,20}\|>"
        r"|\[/?inst\]|<</?sys>>",
    ),
    (
        _ROLE,
        ("system", "assistant", "human", "tool_call", "function_call"),
        r"^[ \t]{0,3}(?:#{1,6} *)?(?:system|assistant|human)(?: prompt| message)? *: *\S"
        r"|\"(?:tool_calls?|function_call)\" *:",
    ),
)
"""Name, words of which one must be in the text before the form is tried, which most texts lack, and the form."""


def signals(*texts: str) -> list[str]:
    """Return what stands out in the texts, each kind once; empty for ordinary ones. About 10 µs for a passage."""
    found: dict[str, None] = {}
    for text in texts:
        text = text[:_LOOKED_AT]
        if not _PLAIN.fullmatch(text):
            found |= dict.fromkeys(name for name, pattern in _HIDDEN if pattern.search(text))
        lowered = text.lower()
        for name, anchors, form in _POSING:
            # A loop, not any(): this runs 40 times for every hit of every search.
            for anchor in anchors:
                if anchor in lowered:
                    if re.search(form, lowered, re.MULTILINE):
                        found[name] = None
                    break
    return list(found)
