"""Warnings about a text for whoever reads it: hidden characters, and words that imitate instructions.

Nothing is blocked or removed: text from documents is data, and these are hints for whoever reads it.
"""

from __future__ import annotations

import re

_HIDDEN = re.compile(
    # Tag characters, variation selectors, bidirectional and other controls, what has no width, joiners beside
    # Latin letters, many soft hyphens.
    "[\U000e0000-\U000e007f\U000e0100-\U000e01ef\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\x00-\x08\x0e-\x1f\x7f-\x84"
    "\x86-\x9f\u200b\u2060-\u2064\u180e\ufeff]|[\ufe00-\ufe0f]{2}|(?<![^\x00-\u024f])[\u200c\u200d]"
    "|(?:\u00ad[^\u00ad]{0,40}){20}"
)
_PLAIN = re.compile("[\t-\r -~]*")

_POSING = (
    (
        "imitates instructions",
        ("ignor", "disregard", "forget", "overrid", "bypass", "vergiss", "instruction", "prompt", "you are now")
        + ("you must now", "you will now", "do not ", "ai ", "ais ", "llm", "language model", "assistant"),
        r"\b(?:ignor|disregard|forget|overrid|bypass|vergiss)\w*\b[^.\n]{0,40}?"
        r"\b(?:previous|prior|above|earlier|preceding|foregoing|all|your|system|precedenti|vorherigen)\b[^.\n]{0,40}?"
        r"\b(?:instruction|prompt|rule|direction|guideline|message|context|istruzion|anweisung)"
        r"|\bignora\w*\b[^.\n]{0,30}\bistruzioni\b"
        r"|\b(?:new|updated|real|actual|hidden) (?:system )?(?:instructions?|prompt)\s*:"
        r"|\b(?:reveal|print|repeat|output)\b[^.\n]{0,20}\byour (?:system )?(?:prompt|instructions)\b"
        r"|\byou (?:are|must|will) now\b[^.\n]{0,60}?\b(?:ai|assistant|model|mode|unrestricted|jailbroken|dan)\b"
        r"|\bdo not (?:tell|inform|mention|reveal)\b[^.\n]{0,40}\b(?:user|human|person)\b"
        r"|\b(?:ai|llm|language model|assistant)s?\b[^.\n]{0,40}\b(?:must|should|shall) (?:now )?"
        r"(?:call|run|execute|send|forward|reveal|output|reply|ignore)\b",
    ),
    (
        "imitates a role or tool call",
        ("<", "inst]", "system", "assistant", "human", "tool_call", "function_call"),
        r"</?(?:system|assistant|user|human|tool|tool_call|tool_use|tool_result|function_call|function_calls|"
        r"function_results|invoke|im_start|im_end)(?:\s[^<>\n]{0,80})?>"
        r"|<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)[^\n]{0,20}\|>"
        r"|\[/?inst\]|<</?sys>>"
        r"|^[ \t]{0,3}(?:#{1,6} *)?(?:system|assistant|human)(?: prompt| message)? *: *\S"
        r"|\"(?:tool_calls?|function_call)\" *:",
    ),
)
"""Name, words of which one must be in the text before the form is tried, which most texts lack, and the form."""


def signals(*texts: str) -> list[str]:
    """Return what stands out in the texts, each kind once; empty for ordinary ones. About 10 µs for a passage."""
    kinds: dict[str, None] = {}
    for text in (text[:200_000] for text in texts):
        if not _PLAIN.fullmatch(text) and _HIDDEN.search(text):
            kinds["hidden characters"] = None
        lowered = text.lower()
        for name, anchors, form in _POSING:
            # A loop, not any(): this runs 24 times for every hit of every search.
            for anchor in anchors:
                if anchor in lowered:
                    if re.search(form, lowered, re.MULTILINE):
                        kinds[name] = None
                    break
    return list(kinds)
