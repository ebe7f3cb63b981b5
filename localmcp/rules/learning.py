"""What is said once becomes a rule, unless it is meant for the moment: how that is told, and put in the imperative."""

from __future__ import annotations

import re

from localmcp.arrays import np
from localmcp.models import Embedder

_GENERAL = re.compile(
    r"\b(?:always|never(?! ?mind)|every ?time|whenever|from now on|in (?:the )?future|as a rule|by default|in general"
    r"|going forward|next time|any ?more|ever|(?:you (?:keep|kept)|stop) \w+ing"
    r"|siempre|nunca|sempre|mai|d['’]ora in (?:poi|avanti)|immer|nie|niemals|toujours|jamais|всегда|никогда)\b"
    r"|^(?:when|while|before|after|if)\b(?! you (?:are|have|get|can|need|see)\b)"
    r"|\bbefore you (?!go\b|start\b)|总是|始终|从不|以后|必ず|常に|今後",
    re.IGNORECASE,
)
"""What says that it holds beyond the present case; for other languages only what cannot be mistaken."""
_RULE_LIKE = re.compile(
    r"\b(?:all|any|every|each|no|must|should|shall|may not|prefer|avoid|don'?t|do not|convention|policy|standard"
    r"|instead of|rather than|over|not|we (?:use|like|want|write|keep|put|call|name))\b",
    re.IGNORECASE,
)
_MOMENTARY = (
    ("it is meant for this moment", r"\b(?:(?:just )?this (?:once|time)|for (?:now|the moment)|right now|today|tonight"
     r"|tomorrow|temporarily|until i|(?:not|this|that|it) now)\b|\byet[.!]*$|^(?!.*\bn?ever\b).*\bagain\b"),
    ("it changes one thing that is there", r"^(?:please |now |can you |could you |go )*(?:move|rename|delete|remove|fix"
     r"|change|add|undo|revert|open|show|update|replace|create|build|run|push|merge|deploy|commit(?! messages?\b)|find"
     r"|look|check|start|stop(?! \w+ing\b)|restart|install|implement)\b"
     r"(?!.*\b(?:always|never|every|each|before|after|whenever)\b)"),
    ("it is a question", r"[?？]\s*$"),
    ("it names one place", r"`[^`]+\.\w{1,5}`|#\d+\b"
     r"|\b[\w/-]+\.(?:py|ts|tsx|js|css|html|go|rs|java|md|sql|json|ya?ml)\b"),
)  # fmt: skip
"""Why an instruction is about one case only, and how that is said."""
_GENERAL_EXAMPLES = (
    "Write a test for every bug that is fixed",
    "Name functions with verbs",
    "Validate input before using it",
    "Use early returns instead of nested conditions",
    "Never commit secrets",
    "Document public functions",
    "We prefer composition over inheritance",
    "Errors should be logged with context",
)
_MOMENTARY_EXAMPLES = (
    "Move the button three pixels to the right",
    "Rename this variable to count",
    "Fix the typo in the title",
    "Run the tests again",
    "Delete the file we just made",
    "Make the header blue on this page",
    "Show me the last commit",
    "Change the price of the second item to five",
)
_REWRITES = (
    # `no abbreviations` is a rule, `no, use tabs` the answer to something.
    (re.compile(r"^(?:hey|okay|ok|please|also|and|but|so|remember|btw|actually|no|well|note|important|we are|let'?s"
     r"|i(?: have|'ve)? (?:already )?(?:told you|said)(?: already| before)?)\b[,:!.]*\s+(?:that\s+)?(?<!no )",
     re.I), ""),
    (re.compile(r"^(?:from now on|in (?:the )?future|going forward|as a rule|in general|generally|by default|next time"
     r"|(?:can|could|would|will) you(?: please)?|i(?:'d| would) (?:like|prefer|want) (?:it if )?you(?: to)?"
     r"|i (?:want|need|expect) you to|(?:you|we|one) (?:should|must|have to|need to|ought to|shall)(?! not|n'?t)"
     r"|(?:make|be) sure(?: that)?(?: you)?(?: to)?|(?:do )?remember to|don'?t forget to|try to"
     r"|you (?:keep|kept) forgetting(?: to)?)\b,?\s+", re.I), ""),
    (re.compile(r"^you (?:keep|kept) (\w+ing)\b", re.I), r"stop \1"),
    (re.compile(r"^(?:you|we|i|one)\s+(always|never|use|like|prefer|want|write|keep|put|call|name|avoid|test|log)\b",
     re.I), r"\1"),
    (re.compile(r"^(?:you|we|one)\s+(?:should|must|may|can|do)(?: ?not|n'?t)\s+", re.I), "do not "),
    (re.compile(r"^(?:don'?t|not)\s+", re.I), "do not "),
    (re.compile(r"[,;]?\s+(?:please|thanks|thank you|ok(?:ay)?|from now on|in (?:the )?future)[.!]*$", re.I), ""),
)  # fmt: skip
"""What turns an instruction into the imperative, as long as anything changes."""


def weigh(instruction: str, embedder: Embedder | None) -> tuple[float, str]:
    """Return how general an instruction is (above 0 = a rule), and why it is none."""
    momentary = [reason for reason, pattern in _MOMENTARY if re.search(pattern, instruction, re.I)]
    score = 2.0 * bool(_GENERAL.search(instruction)) + bool(_RULE_LIKE.search(instruction)) - 2.0 * len(momentary)
    if embedder:
        vectors = embedder.embed_passages([instruction, *_GENERAL_EXAMPLES, *_MOMENTARY_EXAMPLES])
        general, other = np.split(vectors[1:] @ vectors[0], [len(_GENERAL_EXAMPLES)])
        score += 4 * float(general.max() - other.max())
    return score, momentary[0] if momentary else "it is about one case only"


def normalize(instruction: str) -> str:
    """Return the rule in the imperative: "could you always write tests" -> "Always write tests."."""
    text = " ".join(instruction.split()).strip(" \"'“”")
    before = None
    while before != text:
        before = text
        for pattern, replacement in _REWRITES:
            text = pattern.sub(replacement, text)
    text = text.rstrip("?!. ")
    return f"{text[:1].upper()}{text[1:]}." if text else ""
