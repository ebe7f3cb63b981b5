"""Arguments for a tool, taken out of a sentence by the tool's schema and its example phrases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from localmcp.schemas import lenient_value
from localmcp.tool_search.phrases import PhraseMatch, Slot, fits, parse_phrase, takes_words, trim, values_from, written
from localmcp.tool_search.sentence_ranking import RankedTool, asks_for, is_telling, phrases_of
from localmcp.tool_search.words import known_verbs
from localmcp.tools import Json, Tool
from localmcp.wording.normalize import fold, stem, words
from localmcp.wording.sentences import Token, function_words

TRUSTED = 0.5
"""A phrase that is matched less fully does not tell where the arguments are."""

_NO_VALUES = frozenset(
    """everything anything something nothing everyone another other one ones new next last now again already yet soon
    going all here there somewhere back instead whole entire whose many much any""".split()
)
"""Words besides function words that name nothing."""
_ID_NAME = re.compile(r"(?:Id|ID|_id|_ids|Ids|^ids?|^u?uid)$")
_FILE_NAME = re.compile(r"(?:^|_)(?:path|file)|Path$|File")


@dataclass(frozen=True, slots=True)
class Filled:
    """Arguments, and the required parameters for which the sentence has none."""

    arguments: Json
    missing: tuple[str, ...]


def fill_arguments(sentence: str, tokens: Sequence[Token], ranked: RankedTool, arguments: Mapping[str, Any]) -> Filled:
    """Return the arguments of one call.

    In this order, each leaving its words to none of the next: what is given beside the sentence, the slots of the best
    phrase, then paths and ids, enum values, names after cue words, numbers, quotations, and the rest of the sentence
    for the main text. Function words and the tool's own words are no values: what only they could fill stays open.
    """
    filling = _Filling(sentence, tokens, ranked.tool, _own_stems(ranked.tool))
    filling.arguments.update((name, value) for name, value in arguments.items() if name in filling.properties)
    if ranked.phrase and ranked.phrase.score >= TRUSTED:
        filling.take_slots(ranked.phrase)
    filling.take_paths_and_ids()
    filling.take_files_and_codes()
    filling.take_choices()
    filling.take_named()
    filling.take_numbers()
    filling.take_quotations()
    filling.take_rest()
    missing = [name for name in filling.required if name not in filling.arguments]
    return Filled(filling.arguments, tuple(missing))


def bare_parameter(tool: Tool) -> str | None:
    """Return the parameter that takes a whole sentence, if the tool has an example phrase that is one slot."""
    for phrase in map(parse_phrase, tool.mark.examples):
        if len(phrase.items) == 1 and isinstance(slot := phrase.items[0], Slot):
            return slot.parameter
    return None


@dataclass
class _Filling:
    """Arguments in the making, and which tokens are used up."""

    sentence: str
    tokens: Sequence[Token]
    tool: Tool
    own: frozenset[str]
    """Stems of words that name the tool or ask for it."""
    arguments: Json = field(default_factory=dict[str, Any])
    used: set[int] = field(default_factory=set[int])

    @property
    def properties(self) -> Mapping[str, Json]:
        return self.tool.input_schema.get("properties", {})

    @property
    def required(self) -> Sequence[str]:
        """Those of the schema; else, until there is any argument, the one that all phrases ask for."""
        return self.tool.input_schema.get("required") or (() if self.arguments else self._implied_parameters)

    @cached_property
    def _implied_parameters(self) -> Sequence[str]:
        """The parameter of the first example phrase, if all phrases of a tool that changes something ask for one."""
        asked = [
            [item.parameter for item in phrase.items if isinstance(item, Slot)] for phrase in phrases_of(self.tool)
        ]
        return asked[0][:1] if asked and all(asked) and not self.tool.mark.read_only else ()

    def open(self, *, needed: bool = False) -> list[str]:
        """Return the parameters without an argument, required ones first."""
        optional = () if needed else (name for name in self.properties if name not in self.required)
        return [name for name in (*self.required, *optional) if name not in self.arguments]

    def unused(self, *kinds: str) -> list[int]:
        return [
            position
            for position, token in enumerate(self.tokens)
            if position not in self.used and (token.kind in kinds or not kinds)
        ]

    def is_value(self, position: int) -> bool:
        """Return whether a token can be an argument: no function word, and none of the tool's own."""
        token = self.tokens[position]
        if token.kind != "word":
            return token.kind != "symbol"
        if len(token.text) == 1 and token.text.isupper() and token.text != "I":
            return True
        return is_telling(token) and fold(token.text) not in _NO_VALUES and token.stem not in self.own

    def put(self, name: str, value: Any, positions: Iterable[int]) -> None:
        is_item = self.properties[name].get("type") == "array" and not isinstance(value, list)
        self.arguments[name] = [value] if is_item else value
        self.used.update(positions)

    def put_values(self, name: str, positions: Sequence[int]) -> None:
        """Put a value that is no free text, or the list of all that there are in these places."""
        schema = self.properties[name]
        item = schema.get("items", schema)
        values = [typed(token, item) for position in positions if fits(token := self.tokens[position], item)]
        self.put(name, values if schema.get("type") == "array" else values[0], positions)

    # ------------------------------------------------------------ what a phrase says

    def take_slots(self, match: PhraseMatch) -> None:
        self.used.update(match.literals)
        for name, value in match.phrase.constants.items():
            self.arguments.setdefault(name, lenient_value(value, self.properties.get(name, {})))
        for name, run in match.captured.items():
            if name in self.properties and name not in self.arguments:
                self._take_slot(name, run, singular=match.is_singular(name))

    def _take_slot(self, name: str, run: range, *, singular: bool) -> None:
        schema = self.properties[name]
        if not takes_words(schema):
            self.put_values(name, run)
            return
        quoted = [position for position in run if self.tokens[position].kind == "quoted"]
        if schema.get("type") == "array" and len(quoted) > 1:
            self.put(name, [self.tokens[position].text for position in quoted], run)
            return
        essential = self._essential(run)
        if not any(map(self.is_value, essential)):
            return
        asking = asks_for(self.properties, self.tokens[essential[0]])
        if asking and name not in asking:
            # The phrase says "the document X", and X is a path, for which there is another parameter.
            name = asking[0]
        self._put_words(name, essential, singular=singular)

    def _put_words(self, name: str, positions: Sequence[int], *, singular: bool = False) -> None:
        if fits_shape := _shape_of(name, self.properties[name]):
            positions = [position for position in positions if fits_shape(self.tokens[position])]
        if positions:
            trimmed = trim([self.tokens[position] for position in positions])
            self.put(name, written(self.sentence, trimmed, singular=singular), positions)

    def _essential(self, run: range) -> Sequence[int]:
        """Return the one path or id of a run, or the one quotation of a short run or at its beginning."""
        values = [position for position in run if self.tokens[position].kind in ("path", "id")]
        if len(values) == 1:
            return values
        quoted = [position for position in run if self.tokens[position].kind == "quoted"]
        return quoted if len(quoted) == 1 and (len(run) <= 5 or quoted[0] == run[0]) else run

    # ------------------------------------------------------------ what the sentence itself shows

    def take_paths_and_ids(self) -> None:
        for position in self.unused("path", "id"):
            token = self.tokens[position]
            asking = [name for name in asks_for(self.properties, token) if name not in self.arguments]
            exact = [name for name in asking if name.lower().endswith(token.kind)]
            if asking:
                self.put((exact or asking)[0], token.text, [position])

    def take_files_and_codes(self) -> None:
        """Take required files (`report.docx`) and ids (`ENG-142`), first those beside the parameter's name."""
        for name in self.open(needed=True):
            fits_shape = _shape_of(name, self.properties[name]) if takes_words(self.properties[name]) else None
            positions = [position for position in self.unused() if fits_shape and fits_shape(self.tokens[position])]
            stems = _name_stems(name)
            beside = [position for position in positions if position and self.tokens[position - 1].stem in stems]
            if positions:
                position = min(beside or positions, key=lambda position: self.tokens[position].kind == "quoted")
                self.put(name, self.tokens[position].text, [position])

    def take_choices(self) -> None:
        """Take values of enumerations, anywhere; set a flag whose name is said."""
        for name in self.open():
            schema = self.properties[name]
            for position in self.unused():
                token = self.tokens[position]
                if "enum" in schema and fits(token, schema):
                    self.put(name, typed(token, schema), [position])
                    break
                if schema.get("type") == "boolean" and token.stem in _name_stems(name):
                    self.put(name, True, [])
                    break

    def take_named(self) -> None:
        """Take what follows the name of a parameter: `in the collection recipes`."""
        for name in self.open():
            if not takes_words(self.properties[name]) or self.properties[name].get("type") == "array":
                continue
            # The first word is what is to be done.
            for position in self.unused():
                following = position + 1
                is_said = position and self.tokens[position].stem in _name_stems(name)
                if is_said and following in self.unused() and self.is_value(following):
                    self._put_words(name, [following])
                    self.used.add(position)
                    break

    def take_numbers(self) -> None:
        """Take required numbers in order; optional ones beside a word of their name or description: `5 results`."""
        for name in self.open():
            schema = self.properties[name]
            if (
                takes_words(schema)
                or "enum" in schema
                or not any(fits(self.tokens[p], schema) for p in self.unused("number"))
            ):
                continue
            near = _name_stems(name) | {stem(word, "english") for word in words(str(schema.get("description", "")))}
            for position in self.unused("number"):
                if name in self.required or self._is_beside(position, near):
                    self.put_values(name, values_from(self.tokens, position, schema))
                    break

    def _is_beside(self, position: int, stems: set[str]) -> bool:
        beside = [self.tokens[entry] for entry in (position - 1, position + 1) if 0 <= entry < len(self.tokens)]
        return any(is_telling(token) and token.stem in stems for token in beside)

    def take_quotations(self) -> None:
        wanting = [name for name in self.open(needed=True) if takes_words(self.properties[name])]
        main = self._main_text()
        names = wanting or ([main] if main else [])
        for name, position in zip(names, self.unused("quoted"), strict=False):
            self.put(name, self.tokens[position].text, [position])

    def take_rest(self) -> None:
        """Take the rest of the sentence, from its first to its last word that does not belong to the tool."""
        name = self._main_text()
        if name is None:
            return
        if not self.used and name not in self.required and not self._names_the_tool():
            # `getting started` is a title; nothing in it asks for anything.
            self.put(name, written(self.sentence, self.tokens), range(len(self.tokens)))
            return
        free = [
            position
            for position in self.unused()
            if self.is_value(position) and (position or not self._begins_with_a_verb())
        ]
        if not free:
            return
        run = range(free[0], free[-1] + 1)
        for position in run:
            if position in self.used:
                run = range(run.start, position) if position > run.start else range(position + 1, run.stop)
                break
        self._put_words(name, run)

    def _begins_with_a_verb(self) -> bool:
        first, *others = self.tokens
        return first.kind == "word" and bool(others) and (others[0].is_function_word or first.stem in known_verbs())

    def _names_the_tool(self) -> bool:
        titles = _title_stems(self.tool) | {fold(self.tool.name)}
        return any(token.stem in titles or fold(token.text) in titles for token in self.tokens) or not self.tokens

    def _main_text(self) -> str | None:
        """Return the only required text without an argument, else the one that takes a whole sentence."""
        wanting = [name for name in self.open(needed=True) if takes_words(self.properties[name])]
        if wanting:
            return wanting[0] if len(wanting) == 1 else None
        has_text = any(takes_words(self.properties[name]) for name in self.arguments if name in self.properties)
        return None if has_text or self.required else bare_parameter(self.tool)


def _shape_of(name: str, schema: Json) -> Callable[[Token], bool] | None:
    """Return what a token must be if the parameter takes only ids, or only files; None if any words can be its value:
    "cancel my subscription to the gym" names no job."""
    if _ID_NAME.search(name) and not re.search(r"\b(title|name|path)\b", schema.get("description", ""), re.IGNORECASE):
        return _is_code
    return _is_file if _FILE_NAME.search(name) else None


def _is_code(token: Token) -> bool:
    """Return whether a token can be an id."""
    return token.kind not in ("word", "symbol") or bool(re.search(r"\d|_", token.text))


def _is_file(token: Token) -> bool:
    """Return whether a token is a path or has the ending of a file."""
    return token.kind in ("path", "quoted") or (
        token.kind == "word" and bool(re.search(r"\.[a-z]\w{1,4}$", token.text))
    )


def typed(token: Token, schema: Json) -> Any:
    """Return a token as the schema's type: a number, or the value of the enumeration that it names."""
    if "enum" in schema:
        return next(value for value in schema["enum"] if fits(token, {"enum": [value]}))
    number = float(_plain_number(token.text))
    return int(number) if number.is_integer() else number


def _plain_number(text: str) -> str:
    """Write `1,200.5` and `0,25` with a point alone; a comma before exactly three digits separates thousands."""
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", text):
        return text.replace(",", "")
    if text.count(",") == 1 and "." not in text:
        return text.replace(",", ".")
    return re.sub(r"[.,](?=.*[.,])", "", text)


def _name_stems(name: str) -> set[str]:
    return {stem(word, "english") for word in words(name)} - {"id", "is"}


def _title_stems(tool: Tool) -> set[str]:
    """Return the nouns of the title, also two of them written as one."""
    title_words = words(tool.mark.title)
    return {
        stem(word, "english") for word in (*title_words, *(first + second for first, second in pairwise(title_words)))
    }


def _own_stems(tool: Tool) -> frozenset[str]:
    """Return words that name the tool or ask for it, and so are no argument."""
    literals = " ".join(re.sub(r"\{[^}]*\}", " ", example).replace("|", " ") for example in tool.mark.examples)
    # A tool without phrases is described only by its description and its parameters.
    described = literals or " ".join([tool.description, *tool.input_schema.get("properties", {})])
    own_words = words(" ".join([tool.name, tool.mark.title, *tool.mark.keywords, described]))
    return frozenset(stem(fold(word), "english") for word in own_words if word not in function_words())
