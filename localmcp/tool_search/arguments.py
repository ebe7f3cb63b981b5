"""Arguments for a tool, taken out of a sentence by the tool's schema and its example phrases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from localmcp.tool_search.phrases import Phrase, PhraseMatch, Slot, fits, parse_phrase, takes_words, trim, written
from localmcp.tool_search.sentence_ranking import RankedTool, asks_for, is_telling
from localmcp.tools import Tool
from localmcp.wording.normalize import fold, stem, words
from localmcp.wording.sentences import Token

Json = dict[str, Any]

TRUSTED = 0.5
"""A phrase that is matched less fully does not tell where the arguments are."""

_CUES = frozenset("as called named titled title name under".split())
"""Words that precede a name."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Arguments, and the required parameters for which the sentence has none."""

    arguments: Json
    missing: tuple[str, ...]


def fill_arguments(sentence: str, tokens: Sequence[Token], ranked: RankedTool, arguments: Mapping[str, Any]) -> Filled:
    """Return the arguments of one call.

    In this order, each leaving its words to none of the next: what is given beside the sentence, the slots of the best
    phrase, then paths and ids, enum values, names after cue words, numbers, quotations, and the rest of the sentence
    for the main text.
    """
    filling = _Filling(sentence, tokens, ranked.tool)
    filling.arguments.update((name, value) for name, value in arguments.items() if name in filling.properties)
    if ranked.phrase and ranked.phrase.score >= TRUSTED:
        filling.take_slots(ranked.phrase)
    filling.take_paths_and_ids()
    filling.take_choices()
    filling.take_named()
    filling.take_numbers()
    filling.take_quotations()
    filling.take_rest()
    missing = [name for name in filling.required if name not in filling.arguments]
    return Filled(filling.arguments, tuple(missing))


def bare_parameter(tool: Tool) -> str | None:
    """Return the parameter that takes a whole sentence, if the tool has an example phrase that is one slot."""
    phrases = map(parse_phrase, tool.mark.examples)
    return next((_only_slot(phrase) for phrase in phrases if phrase.is_bare and len(phrase.items) == 1), None)


def _only_slot(phrase: Phrase) -> str | None:
    return next((item.parameter for item in phrase.items if isinstance(item, Slot)), None)


@dataclass(slots=True)
class _Filling:
    """Arguments in the making, and which tokens are used up."""

    sentence: str
    tokens: Sequence[Token]
    tool: Tool
    arguments: Json = field(default_factory=dict[str, Any])
    used: set[int] = field(default_factory=set[int])

    @property
    def properties(self) -> Mapping[str, Json]:
        return self.tool.input_schema.get("properties", {})

    @property
    def required(self) -> Sequence[str]:
        return self.tool.input_schema.get("required", ())

    def open(self, *, needed: bool = False) -> list[str]:
        """Return the parameters without an argument, required ones first."""
        optional = () if needed else (name for name in self.properties if name not in self.required)
        return [name for name in (*self.required, *optional) if name not in self.arguments]

    def unused(self, *kinds: str) -> list[int]:
        return [
            place
            for place, token in enumerate(self.tokens)
            if place not in self.used and (token.kind in kinds or not kinds)
        ]

    def put(self, name: str, value: Any, places: Iterable[int]) -> None:
        self.arguments[name] = [value] if self.properties[name].get("type") == "array" else value
        self.used.update(places)

    # ------------------------------------------------------------ what a phrase says

    def take_slots(self, match: PhraseMatch) -> None:
        self.used.update(match.literals)
        for name, value in match.phrase.constants.items():
            self.arguments.setdefault(name, constant(value, self.properties.get(name, {})))
        for name, run in match.captured.items():
            if name in self.properties and name not in self.arguments:
                self._take_slot(name, run, singular=match.is_singular(name))

    def _take_slot(self, name: str, run: range, *, singular: bool) -> None:
        schema = self.properties[name]
        if not takes_words(schema):
            self.put(name, typed(self.tokens[run[0]], schema), run)
            return
        kept = self._essential(run)
        asking = asks_for(self.properties, self.tokens[kept[0]])
        if asking and name not in asking:
            # The phrase says "the document X", and X is a path, for which there is another parameter.
            name = asking[0]
        self._put_words(name, kept, singular=singular)

    def _put_words(self, name: str, places: Sequence[int], *, singular: bool = False) -> None:
        kept = trim([self.tokens[place] for place in places], _title_stems(self.tool))
        if len(kept) == 1 or not _takes_only_an_id(name, self.properties[name]):
            self.put(name, written(self.sentence, kept, singular=singular), places)

    def _essential(self, run: range) -> Sequence[int]:
        """Of a run with one path or id, that one; of a few words about a quotation, the quotation."""
        values = [place for place in run if self.tokens[place].kind in ("path", "id")]
        if len(values) == 1:
            return values
        quoted = [place for place in run if self.tokens[place].kind == "quoted"]
        return quoted if len(quoted) == 1 and len(run) <= 5 else run

    # ------------------------------------------------------------ what the sentence itself shows

    def take_paths_and_ids(self) -> None:
        for place in self.unused("path", "id"):
            token = self.tokens[place]
            asking = [name for name in asks_for(self.properties, token) if name not in self.arguments]
            exact = [name for name in asking if name.lower().endswith(token.kind)]
            if asking:
                self.put((exact or asking)[0], token.text, [place])

    def take_choices(self) -> None:
        """Values of enumerations, anywhere; a flag whose name is said is set."""
        for name in self.open():
            schema = self.properties[name]
            for place in self.unused():
                token = self.tokens[place]
                if "enum" in schema and fits(token, schema):
                    self.put(name, typed(token, schema), [place])
                    break
                if schema.get("type") == "boolean" and token.stem in _name_stems(name):
                    self.put(name, True, [])
                    break

    def take_named(self) -> None:
        """`in the collection recipes`, `tagged storage`: what follows the name of an optional parameter."""
        for name in self.open():
            if not takes_words(self.properties[name]) or self.properties[name].get("type") == "array":
                continue
            cues = _name_stems(name) | (_CUES if name in ("title", "name") else frozenset[str]())
            for place in self.unused():
                after = place + 1
                is_cue = self.tokens[place].stem in cues and self._is_value(after)
                if (
                    is_cue
                    and after not in self.used
                    and not (name in self.required and len(self.open(needed=True)) < 2)
                ):
                    self.put(name, self.tokens[after].text, [place, after])
                    break

    def _is_value(self, place: int) -> bool:
        return place < len(self.tokens) and (self.tokens[place].kind != "word" or is_telling(self.tokens[place]))

    def take_numbers(self) -> None:
        """Required numbers in order; optional ones beside a word of their name or description: `5 results`."""
        for name in self.open():
            schema = self.properties[name]
            if (
                takes_words(schema)
                or "enum" in schema
                or not any(fits(self.tokens[p], schema) for p in self.unused("number"))
            ):
                continue
            near = _name_stems(name) | {stem(word, "english") for word in words(str(schema.get("description", "")))}
            for place in self.unused("number"):
                if name in self.required or self._stands_beside(place, near):
                    self.put(name, typed(self.tokens[place], schema), [place])
                    break

    def _stands_beside(self, place: int, stems: set[str]) -> bool:
        beside = [self.tokens[entry] for entry in (place - 1, place + 1) if 0 <= entry < len(self.tokens)]
        return any(is_telling(token) and token.stem in stems for token in beside)

    def take_quotations(self) -> None:
        wanting = [name for name in self.open(needed=True) if takes_words(self.properties[name])]
        main = self._main_text()
        names = wanting or ([main] if main else [])
        for name, place in zip(names, self.unused("quoted"), strict=False):
            self.put(name, self.tokens[place].text, [place])

    def take_rest(self) -> None:
        """The rest of the sentence, from its first to its last word that does not belong to the tool."""
        name = self._main_text()
        if name is None:
            return
        if not self.used and name not in self.required and not self._names_the_tool():
            # `getting started` is a title; nothing in it asks for anything.
            self.put(name, written(self.sentence, self.tokens), range(len(self.tokens)))
            return
        own = _tool_stems(self.tool)
        free = [
            place
            for place in self.unused()
            if self.tokens[place].kind != "word"
            or (is_telling(self.tokens[place]) and self.tokens[place].stem not in own)
        ]
        if not free:
            return
        run = range(free[0], free[-1] + 1)
        for place in run:
            if place in self.used:
                run = range(run.start, place) if place > run.start else range(place + 1, run.stop)
                break
        self._put_words(name, run)

    def _names_the_tool(self) -> bool:
        titles = _title_stems(self.tool) | {fold(self.tool.name)}
        return any(token.stem in titles or fold(token.text) in titles for token in self.tokens) or not self.tokens

    def _main_text(self) -> str | None:
        """Return the first required text without an argument, else the one that takes a whole sentence."""
        for name in self.open(needed=True):
            if takes_words(self.properties[name]):
                return name
        has_text = any(takes_words(self.properties[name]) for name in self.arguments if name in self.properties)
        return None if has_text or self.required else bare_parameter(self.tool)


def _takes_only_an_id(name: str, schema: Json) -> bool:
    """Return whether several words cannot be the argument: "cancel my subscription to the gym" names no job."""
    return name.endswith("Id") and not re.search(r"\b(title|name|path)\b", schema.get("description", ""), re.IGNORECASE)


def typed(token: Token, schema: Json) -> Any:
    """Return a token as the schema's type: a number, or the value of the enumeration that it names."""
    if "enum" in schema:
        return next(value for value in schema["enum"] if fits(token, {"enum": [value]}))
    number = float(_plain_number(token.text))
    return int(number) if number.is_integer() else number


def _plain_number(text: str) -> str:
    """`1,200.5` and `0,25` with a point alone; a comma before exactly three digits separates thousands."""
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", text):
        return text.replace(",", "")
    return (
        text.replace(",", ".", 1) if text.count(",") == 1 and "." not in text else re.sub(r"[.,](?=.*[.,])", "", text)
    )


def constant(text: str, schema: Json) -> Any:
    """Return the fixed value of a phrase in the schema's type."""
    match schema.get("type"):
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "boolean":
            return text == "true"
        case _:
            return text


def _name_stems(name: str) -> set[str]:
    return {stem(word, "english") for word in words(name)} - {"id", "is"}


def _title_stems(tool: Tool) -> set[str]:
    """Return the nouns of the title, also two of them written as one."""
    title_words = words(tool.mark.title)
    return {
        stem(word, "english") for word in (*title_words, *(first + second for first, second in pairwise(title_words)))
    }


def _tool_stems(tool: Tool) -> set[str]:
    """Return words that name the tool or ask for it, and so are no argument."""
    tool_text = " ".join([tool.name, tool.mark.title, *tool.mark.keywords])
    literals = " ".join(re.sub(r"\{[^}]*\}", " ", example).replace("|", " ") for example in tool.mark.examples)
    return {stem(fold(word), "english") for word in words(f"{tool_text} {literals}")}
