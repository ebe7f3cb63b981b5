"""`rememberDeveloperInstruction`: what is said once becomes a rule, unless meant for the moment."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Annotated, Any, NotRequired, cast

from typing_extensions import TypedDict

from localmcp.arrays import np
from localmcp.errors import InvalidInput, LocalMCPError, ModelUnavailable
from localmcp.models import Embedder
from localmcp.models.language_model import LanguageModel
from localmcp.rules.catalog import LONGEST_CONTEXT, LONGEST_RULE, RuleCatalog
from localmcp.rules.rulebook import CATEGORIES, RuleDraft
from localmcp.storage.database import fetch_one
from localmcp.tools import Param, hidden_change, tool, tools_of
from localmcp.wording.normalize import runs

log = logging.getLogger(__name__)

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


class RememberAnswer(TypedDict):
    """Status of an instruction."""

    success: bool
    message: str
    stored: bool
    rule: NotRequired[str]
    category: NotRequired[str]
    ruleId: NotRequired[int]
    instructionId: NotRequired[int]
    counted: NotRequired[bool]
    """A rule said the same already, and the instruction was counted towards it."""
    error: NotRequired[str]


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


class _Choices:
    """The two functions that a language model may call: it is shown their schemas, and its answer is read, not run."""

    @tool("keepRule", title="Keep a rule", read_only=False)
    def keep(
        self,
        rule: Annotated[str, Param("The instruction as a general rule: abstract, imperative, one sentence")],
        category: Annotated[str, Param(f"One of {', '.join(CATEGORIES)}")],
    ) -> None:
        """Keep what the developer said as a rule, because it holds beyond the present case."""

    @tool("refuseInstruction", title="Refuse an instruction")
    def refuse(self, reason: Annotated[str, Param("Why, in a few words")]) -> None:
        """Refuse to make a rule, because what the developer said is about one case only."""


def _ask(model: LanguageModel, instruction: str, context: str) -> tuple[str, str, str]:
    """Return the rule that a language model makes of an instruction, its category, and why it makes none.

    Raises:
        ModelUnavailable: it cannot be reached, or does not call one of the two functions properly.
    """
    about = f" while working on: {context}" if context else ""
    question = "Is that a rule for all later work, or meant for this moment only?"
    reply = model.choose(f'The developer said: "{instruction}"{about}\n{question}', tools_of(_Choices()))
    # Neither the name of the called function nor its arguments were checked.
    called, arguments = (reply.call.name, reply.call.arguments) if reply.call else ("", {})
    rule, category, reason = (arguments.get(name) for name in ("rule", "category", "reason"))
    if called == "refuseInstruction" and isinstance(reason, str):
        return "", "", reason
    if called != "keepRule" or not isinstance(rule, str) or not rule.strip():
        said = f"{called}({arguments!r})" if called else repr(reply.text)
        raise ModelUnavailable(f"The language model answered with something that is no rule: {said[:120]}.")
    return rule.strip(), category if category in CATEGORIES else "", ""


class RuleLearner:
    """Listens to what the developer says."""

    def __init__(self, catalog: RuleCatalog, open_model: Callable[[], LanguageModel | None] = lambda: None) -> None:
        """`open_model` returns the language model that decides; without one, the patterns do."""
        self._catalog = catalog
        self._open_model = open_model

    @hidden_change(
        "rememberDeveloperInstruction",
        title="Remember an instruction",
        keywords=("remember", "learn", "rule", "instruction", "preference", "correction", "feedback"),
        examples=("remember to {instruction}", "from now on {instruction}", "remember that we {instruction}"),
        text=lambda answer: cast(RememberAnswer, answer)["message"],
        on_error=lambda error: {"success": False, "stored": False, "message": str(error), "error": str(error)},
    )
    def remember(
        self,
        instruction: Annotated[str, Param("What the developer said", max_length=LONGEST_RULE)],
        context: Annotated[str, Param("What was worked on, in words to find it by", max_length=LONGEST_CONTEXT)] = "",
        project: Annotated[str | None, Param("Holds in this project only")] = None,
    ) -> RememberAnswer:
        """Remember a general instruction or correction of the developer as a rule for later tasks. What is meant for
        the moment only is not stored, with the reason; what a rule says already is counted towards it."""
        instruction, context = instruction.strip(), context.strip()
        if not instruction:
            raise InvalidInput("Error: instruction cannot be empty")
        try:
            model = self._open_model()
            advice = _ask(model, instruction, context) if model else None
        except LocalMCPError as error:
            log.warning("the patterns decide on an instruction: %s", error)
            advice = None
        if advice:
            text, category, reason = advice
        else:
            category, text = "", normalize(instruction)
            score, reason = weigh(instruction, self._catalog.model())
            if score > 0 and len(runs(text)) < 2:
                score, reason = 0.0, "it says too little"
            text = text if score > 0 else ""
        if not text:
            return {"success": True, "stored": False, "message": f"No rule generated. Reason: {reason}"}
        category = category or self._catalog.nearest_category(f"{context}\n{text}".strip())
        draft = RuleDraft(text, category, context, instruction, "remembered", project=project or None)
        try:
            answer = self._catalog.add(draft, "count")
        except LocalMCPError as error:
            raise ModelUnavailable(f"Failed to create rule with embedding: {error.message}", hint=error.hint) from error
        rule: Any = answer.get("rule", {})
        with self._catalog.database.read() as connection:
            sql = "select max(id) from user_instructions where rule_id = ?"
            instruction_id: int = fetch_one(connection, sql, (rule["id"],))
        message = (
            f'Instruction processed successfully. Generated rule: "{rule["rule_text"]}" '
            f"(category: {rule['category']}). Rule ID: {rule['id']}, Instruction ID: {instruction_id}"
        )
        stored: RememberAnswer = {
            "success": True,
            "stored": True,
            "message": message,
            "rule": rule["rule_text"],
            "category": rule["category"],
            "ruleId": rule["id"],
            "instructionId": instruction_id,
        }
        return {**stored, "counted": True} if "similarity" in answer else stored
