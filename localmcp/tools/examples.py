"""Four small tools (S0-1, S0-2, S0-4), to try things with and to copy from.

A tool is a public method marked `@tool` or `@hidden_tool`. Its docstring is the description that a model reads, its
type hints are the schema, `Annotated[..., Param("…")]` says what a parameter means, a `Literal` is an enumeration, a
default makes a parameter optional. Registering is one line: `registry.add_service(Examples())`.
"""

from operator import itemgetter
from typing import Annotated, Any, Literal, get_args

from localmcp.errors import InvalidInput
from localmcp.tools import Param, hidden_tool

CountType = Literal["words", "characters", "lines"]
message_of = itemgetter("message")
"""Makes the text block, which an assistant reads, from the structured answer."""


def check_count_type(_name: str, value: Any) -> Any:
    """Refuse an unknown type in words of your choice; without this check the schema's enumeration answers."""
    if value not in get_args(CountType):
        raise InvalidInput(f"invalid count_type: {value}. Must be 'words', 'characters', or 'lines'")
    return value


class Examples:
    """Tools that need only their arguments. A service that needs the file takes a `Database` in its constructor."""

    @hidden_tool(
        "greetUser",
        title="Greet a user",
        keywords=("hello", "welcome", "say hi"),
        examples=("greet {name}", "say hello|hi to {name}", "send greetings to {name}"),
        text=message_of,
    )
    def greet_user(self, name: Annotated[str, Param("Name of the person to greet")]) -> dict[str, str]:
        """Greets users by their given name"""
        return {"message": f"Hello, {name}!"}

    @hidden_tool(
        "addNumbers",
        title="Add two numbers",
        keywords=("sum", "plus", "total", "arithmetic"),
        examples=("add {a} and {b}", "what is {a} plus {b}", "{a} + {b}", "sum of {a} and {b}"),
        text=message_of,
    )
    def add_numbers(
        self, a: Annotated[float, Param("First number")], b: Annotated[float, Param("Second number")]
    ) -> dict[str, str]:
        """Adds two numbers together"""
        return {"message": f"{a:.2f} + {b:.2f} = {a + b:.2f}"}

    @hidden_tool(
        "reverseString",
        title="Reverse a text",
        keywords=("backwards", "invert", "string"),
        examples=("reverse the text|word|string {text}", "spell|write {text} backwards"),
        text=message_of,
    )
    def reverse_string(self, text: Annotated[str, Param("Text to reverse")]) -> dict[str, str]:
        """Reverses a text, character by character"""
        return {"message": f"Reversed '{text}' to '{text[::-1]}'"}

    @hidden_tool(
        "analyzeText",
        title="Count words, characters or lines",
        keywords=("length", "how many", "statistics", "count"),
        examples=(
            "count the {count_type} in|of {text}",
            "how many {count_type} are in {text}",
            "how many {count_type} does {text} have",
        ),
        accepts={"count_type": check_count_type},
        text=message_of,
    )
    def analyze_text(
        self, text: Annotated[str, Param("Text to analyze")], count_type: Annotated[CountType, Param("What to count")]
    ) -> dict[str, str]:
        """Counts the words, characters or lines of a text"""
        count = {"words": len(text.split()), "characters": len(text), "lines": len(text.split("\n"))}[count_type]
        return {"message": f"Text analysis: {count} {count_type}"}
