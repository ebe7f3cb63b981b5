"""`rememberDeveloperInstruction`: what is said once becomes a rule, unless meant for the moment."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, cast

from typing_extensions import TypedDict

from localmcp.arrays import np
from localmcp.errors import InvalidInput, LocalMCPError, ModelUnavailable
from localmcp.models import Embedder
from localmcp.models.language_model import LanguageModel
from localmcp.rules.catalog import LONGEST_CONTEXT, LONGEST_RULE, RuleCatalog
from localmcp.rules.rulebook import CATEGORIES, RuleDraft
from localmcp.tools import Json, Param, hidden_change, tool, tools_of
from localmcp.wording.normalize import runs

log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True)
class Generalized:
    """A rule that an instruction represents; without one, the reason."""

    rule: str | None
    reason: str = ""
    category: str = ""


# ---------------------------------------------------------------- a language model, if one is configured


class _Choices:
    """The two functions that the model may call: it is shown their schemas, and what it answers is read, not run."""

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


def _ask(model: LanguageModel, instruction: str, context: str) -> Generalized:
    """Return what the language model makes of an instruction.

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
        return Generalized(None, reason)
    if called != "keepRule" or not isinstance(rule, str) or not rule.strip():
        said = f"{called}({arguments!r})" if called else repr(reply.text)
        raise ModelUnavailable(f"The language model answered with something that is no rule: {said[:120]}.")
    return Generalized(rule.strip(), "", category if category in CATEGORIES else "")


# ---------------------------------------------------------------- without one: patterns, and likeness to examples


_ALWAYS_ABROAD = (
    r"\b(?:siempre|nunca|jamás|(?:de ahora|a partir de ahora) en adelante|sempre|mai|d['’]ora in (?:poi|avanti)|immer"
    r"|nie|niemals|ab (?:jetzt|sofort)|künftig|toujours|jamais|désormais|à partir de maintenant|de agora em diante"
    r"|altijd|nooit|zawsze|nigdy|alltid|aldrig|всегда|никогда|впредь)\b"
    r"|总是|始终|永远|从不|以后|今后|必ず|常に|今後|決して|항상|절대|앞으로"
)
"""For other languages only what cannot be mistaken; the rest is left to the likeness by meaning."""
_GENERAL = (
    (2.0, _ALWAYS_ABROAD),
    (2.0, r"\b(?:always|never(?! ?mind)|every ?time|whenever|each time|from now on"
                                  r"|in (?:the )?future|as a rule|by default|in general|generally|going forward"
                                  r"|at all times|next time|any ?more|ever)\b"),
    (2.0, r"\b(?:you (?:keep|kept)|stop) \w+ing\b"),
    (1.5, r"^(?:when|while|before|after) \w+ing\b"
                                  r"|^when you (?!are\b|have\b|get\b|can\b|need\b|see\b)\w+"
                                  r"|^(?:when|if) (?:in doubt|unsure|(?:some|any)(?:thing|one)|an?)\b"
                                  r"|\bbefore you (?!go\b|continue\b|start\b|begin\b)\w+"),
    (1.0, r"\b(?:all|any|every|each|no)\s+(?:\w+\s+)?\w+"),
    (1.0, r"\b(?:must|should|shall|ought to|may not|need to be|has to be|have to be|prefer|avoid|"
                       r"don'?t|do not|convention|policy|standard|we (?:use|like|want|write|keep|put|call|name))\b"),
    (1.0, r"\b(?:instead of|rather than|over|not)\s+\w+"),
)  # fmt: skip
_MOMENTARY = (
    (3.0, "it is meant for this moment", r"\b(?:just (?:this )?once|this time|for now|right now|today|tonight|tomorrow"
                                         r"|for the moment|temporarily|quickly|just now|until i"
                                         r"|(?:not|this|that|it|ok(?:ay)?) now)\b|\byet[.!]*$"
                                         r"|^(?!.*\bn?ever\b).*\bagain\b"),
    (2.0, "it changes one thing that is there", r"^(?:please |now |can you |could you |go )*(?:move|rename|delete"
          r"|remove|fix|change|add|undo|revert|open|show|center|resize|rotate|update|replace|create|build|run|push|merge"
          r"|deploy|commit(?! messages?\b)|translate|explain(?! less\b| more\b)|find|look|check|start|stop(?! \w+ing\b)"
          r"|restart|install|implement)\b"
          r"(?!.*\b(?:always|never|every|each|before|after|whenever)\b)"),
    (2.0, "it is a question", r"[?？]\s*$"),
    (1.5, "it names one place", r"`[^`]+\.\w{1,5}`|#\d+\b"
                                r"|\b[\w/-]+\.(?:py|ts|tsx|js|css|html|go|rs|java|md|sql|toml|json|ya?ml)\b"),
)  # fmt: skip

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


def weigh(instruction: str, embedder: Embedder | None) -> tuple[float, str]:
    """Return how general an instruction is (above 0 = a rule), and why it is none."""
    momentary = [(points, reason) for points, reason, pattern in _MOMENTARY if re.search(pattern, instruction, re.I)]
    score = sum(points for points, pattern in _GENERAL if re.search(pattern, instruction, re.I))
    score -= sum(points for points, _ in momentary)
    if embedder:
        vectors = embedder.embed_passages([instruction, *_GENERAL_EXAMPLES, *_MOMENTARY_EXAMPLES])
        general, other = np.split(vectors[1:] @ vectors[0], [len(_GENERAL_EXAMPLES)])
        score += 4 * float(general.max() - other.max())
    return score, max(momentary, default=(0.0, "it is about one case only"))[1]


_OPENINGS = re.compile(
    r"^(?:(?:hey|ok|okay|please|also|and|but|so|remember|fyi|btw|yes|actually|as i said"
    r"|i(?: have|'ve)? (?:already )?(?:told you|said)(?: already| before)?)\b[,:!.]?\s+(?:that\s+)?"
    r"|(?:no|well|note|important)(?:[,:!.]+\s+|\s+that\s+)"
    r"|(?:from now on|in (?:the )?future|going forward|as a rule|in general|generally|by default|next time)\b,?\s+"
    r"|(?:can|could|would|will) you (?:please )?"
    r"|i(?:'d| would) (?:like|prefer|want) (?:it if )?you (?:to )?|i (?:want|need|expect) you to "
    r"|i(?:'d| would) rather you "
    r"|(?:you|we|one) (?:should|must|have to|need to|ought to|shall) |(?:make|be) sure (?:that )?(?:you |to )?"
    r"|(?:do )?remember to |don'?t forget to |try to |we are |let'?s )",
    re.IGNORECASE,
)
_REWRITES = (
    (re.compile(r"^(?:you|we|i|one)\s+(always|never)\s+", re.I), r"\1 "),
    (re.compile(r"^(?:you|we|one)\s+(?:should(?: not|n'?t)|must(?: not|n'?t)|may not|can(?:not|'?t)|shouldn'?t"
                r"|mustn'?t|do(?: not|n'?t))\s+", re.I), "do not "),
    (re.compile(r"^(?:we|i)\s+(use|like|prefer|want|write|keep|put|call|name|avoid|test|log|document|store)\b", re.I),
     r"\1"),
    (re.compile(r"^you (?:keep|kept) forgetting (?:to )?", re.I), ""),
    (re.compile(r"^you (?:keep|kept) (\w+ing)\b", re.I), r"stop \1"),
    (re.compile(r"^i (?:do not|don'?t) (?:like|want)(?: it when you)?\s+", re.I), "avoid "),
    (re.compile(r"^don'?t\b", re.I), "do not"),
    (re.compile(r"^not\s+", re.I), "do not "),
    (re.compile(r"(?<!\s)[,;]?\s+(?:please|thanks|thank you|ok(?:ay)?|from now on|in (?:the )?future|going forward)"
                r"[.!]*$", re.I), ""),
)  # fmt: skip


def normalize(instruction: str) -> str:
    """Return the rule in the imperative: "could you always write tests" -> "Always write tests."."""
    text = " ".join(instruction.split()).strip(" \"'“”")
    before = None
    while before != text:
        before = text
        for pattern, replacement in _REWRITES:
            text = pattern.sub(replacement, text)
        text = _OPENINGS.sub("", text, count=1).strip()
    text = re.sub(r"^like\b", "prefer", text, flags=re.I)
    text = text.rstrip("?!. ")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


# ---------------------------------------------------------------- the tool


def _failure(error: LocalMCPError) -> Json:
    return {"success": False, "stored": False, "message": str(error), "error": str(error)}


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
        on_error=_failure,
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
        generalized = self._generalize(instruction, context)
        if generalized.rule is None:
            return {"success": True, "stored": False, "message": f"No rule generated. Reason: {generalized.reason}"}
        category = generalized.category or self._catalog.nearest_category(f"{context}\n{generalized.rule}".strip())
        draft = RuleDraft(generalized.rule, category, context, instruction, "remembered", project=project or None)
        try:
            answer = self._catalog.add(draft, "count")
        except LocalMCPError as error:
            raise ModelUnavailable(f"Failed to create rule with embedding: {error.message}", hint=error.hint) from error
        rule: Any = answer.get("rule", {})
        instruction_id = self._catalog.latest_instruction(rule["id"])
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

    def _generalize(self, instruction: str, context: str) -> Generalized:
        """Return what the language model says, else what the patterns and the embedding model say."""
        try:
            if model := self._open_model():
                return _ask(model, instruction, context)
        except LocalMCPError as error:
            log.warning("the patterns decide on an instruction: %s", error)
        score, reason = weigh(instruction, self._catalog.model())
        rule = normalize(instruction)
        if score > 0 and len(runs(rule)) >= 2:
            return Generalized(rule)
        return Generalized(None, "it says too little" if score > 0 else reason)
