"""A language model that makes a rule of an instruction: it calls one of two functions, keep or refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from localmcp.errors import ModelUnavailable
from localmcp.language_models import LanguageModel, ToolCall
from localmcp.rules.learning import Generalized
from localmcp.rules.rulebook import CATEGORIES
from localmcp.tools import Json, Param, tool, tools_of

QUESTION = 'The developer said: "{}"{}\nIs that a rule for all later work, or meant for this moment only?'
_SAYS = "The language model answered with something that is no rule: {}."


class _Choices:
    """The two functions, as the model sees them; nobody calls them here."""

    @tool("keepRule", title="Keep a rule", read_only=False)
    def keep(
        self,
        rule: Annotated[str, Param("The instruction as a general rule: abstract, imperative, one sentence")],
        category: Annotated[str, Param(f"One of {', '.join(CATEGORIES)}")],
    ) -> Json:
        """Keep what the developer said as a rule, because it holds beyond the present case."""
        raise NotImplementedError  # pragma: no cover

    @tool("refuseInstruction", title="Refuse an instruction")
    def refuse(self, reason: Annotated[str, Param("Why, in a few words")]) -> Json:
        """Refuse to make a rule, because what the developer said is about one case only."""
        raise NotImplementedError  # pragma: no cover


class ModelGeneralizer:
    """Asks the language model that the person configured, if any."""

    def __init__(self, open_model: Callable[[], LanguageModel | None]) -> None:
        self._open_model = open_model

    def __call__(self, instruction: str, context: str) -> Generalized | None:
        """The rule, or why there is none; None when no language model is configured.

        Raises:
            ModelUnavailable: it cannot be reached, or does not call one of the two functions properly.
            ConfigurationError: the setting names no model.
        """
        model = self._open_model()
        if model is None:
            return None
        about = f" while working on: {context}" if context else ""
        reply = model.choose(QUESTION.format(instruction, about), tools_of(_Choices()))
        if reply.call is None:
            raise ModelUnavailable(_SAYS.format(repr(reply.text[:80])))
        return _read(reply.call)


def _read(call: ToolCall) -> Generalized:
    """The call as a decision; neither its name nor its arguments were checked."""
    rule, category, reason = (call.arguments.get(name) for name in ("rule", "category", "reason"))
    if call.name == "refuseInstruction" and isinstance(reason, str):
        return Generalized(None, reason)
    if call.name != "keepRule" or not isinstance(rule, str) or not rule.strip():
        raise ModelUnavailable(_SAYS.format(f"{call.name}({call.arguments!r})"[:120]))
    return Generalized(rule.strip(), "", category if isinstance(category, str) and category in CATEGORIES else "")
