"""A tool and a request in words: what they are compared by, and the ladder of exact, first, inside and alike."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from typing import Any

from localmcp.config import packaged_data
from localmcp.schemas import list_of, mapping_of
from localmcp.tools import Json
from localmcp.wording.normalize import fold, stem, stop_words, words
from localmcp.wording.spelling import model_vocabulary

MOST_PARTS = 8


def read_lines(name: str) -> list[str]:
    """Return the lines of a file of words that is shipped, without comments."""
    text = (packaged_data() / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


# ---------------------------------------------------------------- the scoring ladder (requirements.md, section 4)


@dataclass(frozen=True, eq=False)
class ToolMetadata:
    """A tool, as far as it is known without calling it; it is found by the first three fields at least (S1-3)."""

    name: str
    description: str = ""
    keywords: tuple[str, ...] = ()
    title: str = ""
    examples: tuple[str, ...] = ()
    schema: Json = field(default_factory=dict[str, Any])

    @cached_property
    def lowered(self) -> ToolMetadata:
        """Name, description and keywords in lower case."""
        keywords = tuple(keyword.lower() for keyword in self.keywords)
        return ToolMetadata(self.name.lower(), self.description.lower(), keywords)

    @cached_property
    def weights(self) -> Mapping[str, float]:
        """Stem -> weight of the best place where the tool has the word."""
        namespace, _, local = self.name.rpartition("__")
        texts_of_parameters: list[str] = []
        waiting: list[tuple[Json, int]] = [(self.schema, 0)]
        while waiting:
            level, depth = waiting.pop()
            for name, spec in mapping_of(level.get("properties")).items() if depth <= 3 else ():
                parameter = mapping_of(spec)
                allowed = map(str, list_of(parameter.get("enum"))[:50])
                texts_of_parameters += [name, str(parameter.get("description", "")), *allowed]
                waiting += [(parameter, depth + 1), (mapping_of(parameter.get("items")), depth + 1)]
        weights: dict[str, float] = {}
        for text, weight in (
            (" ".join(texts_of_parameters), 0.4),
            (self.description, 0.6),
            (namespace, 0.7),
            (" ".join(self._spoken), 0.8),
            (" ".join((*self.keywords, self.title)), 0.9),
            (local, 1.0),
        ):
            weights.update(dict.fromkeys((stem(word, "english") for word in words(text)), weight))
        return weights

    @cached_property
    def verbs(self) -> frozenset[str]:
        """Stems of the verbs in the name and at the beginning of the description; those of looking if there is none."""
        first_words = (*words(self.name.rpartition("__")[2]), *words(self.description)[:1])
        return known_verbs() & {stem(word, "english") for word in first_words} or looking()

    @cached_property
    def named(self) -> str:
        """The name without the namespace, as words; it is embedded besides."""
        local = self.name.rpartition("__")[2]
        return " ".join(plain_words(local)) or local

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """What is embedded: server and name with the first sentence, the description, the examples."""
        in_full = " ".join((*words(self.name.rpartition("__")[0]), self.named))
        # The window of the default model is about 1,000 characters.
        shown = self.description[:600].strip()
        first = first_sentence(shown)
        texts = (f"{in_full}: {first}" if first else in_full, shown or self.named, *self._spoken)
        return tuple(dict.fromkeys(filter(None, texts)))

    @property
    def _spoken(self) -> list[str]:
        return [" ".join(spoken_example(example).split()) for example in self.examples[:8]]


def score_query(query: str, metadata: ToolMetadata) -> float:
    """Return how well a tool fits a query, 0..1; 1 = its name, or an empty query (requirements.md, section 4).

    Several words are scored one by one: all found, their average x 0.9; else the average over all words x the share
    of words found.
    """
    query = query.strip().lower()
    lowered = metadata.lowered
    if query in ("", lowered.name):
        return 1.0
    scores = [score_word(word, lowered) for word in query.split()]
    if len(scores) == 1:
        return scores[0]
    average = sum(scores) / len(scores)
    matched = sum(score > 0 for score in scores)
    return average * (0.9 if matched == len(scores) else matched / len(scores))


def score_word(word: str, metadata: ToolMetadata) -> float:
    """Return the highest rung that one word reaches, 0..0.9; likeness counts only where no rung is reached.

    Both are in lower case, and the word is not empty.
    """
    rungs = [0.85 if keyword == word else 0.7 for keyword in metadata.keywords if word in keyword]
    if word in metadata.name:
        rungs.append(0.9 if metadata.name.startswith(word) else 0.8)
    if word in metadata.description:
        whole_words = (part.strip(".,;:!?()[]{}\"'") for part in metadata.description.split())
        rungs.append(0.6 if word in whole_words else 0.5)
    if rungs:
        return max(rungs)
    from rapidfuzz.distance import Levenshtein

    weighted = [(0.7, metadata.name), *((0.6, keyword) for keyword in metadata.keywords)]
    likeness = ((weight, Levenshtein.normalized_similarity(word, text)) for weight, text in weighted)
    return max((weight * alike for weight, alike in likeness if alike > 0.6), default=0.0)


# ---------------------------------------------------------------- tools


def plain_words(text: str) -> list[str]:
    """Return the words of a text, without the whole identifiers that `words` puts before their parts."""
    runs_of_words = map(words, re.findall(r"[^\W_]+", text))
    return [word for run in runs_of_words for word in (run[1:] if run[:1] == ["".join(run[1:])] else run)]


def spoken_example(example: str) -> str:
    """Return an example phrase without its slots."""
    return re.sub(r"\{[^}]*\}", " ", example).replace("|", " ")


def first_sentence(description: str) -> str:
    """Return up to the first end of a sentence or a line."""
    return re.split(r"(?<=[.:;!?])\s|\n", description.strip(), maxsplit=1)[0]


# ---------------------------------------------------------------- requests


class Query:
    """The words of a request or of one of its parts, courtesies and values left out."""

    def __init__(self, text: str) -> None:
        spoken = [token.text for token in tokenize(text) if token.kind == "word"]
        self.words: dict[str, str] = {}
        """Stem -> the folded word, of those that can point to a tool."""
        for word in plain_words(" ".join(spoken)):
            if word not in function_words():
                self.words.setdefault(stem(word, "english"), word)
        self.verbs = self.opposites = frozenset[str]()
        """Stems of the verbs that a tool for it may have, and of those that do the opposite of what is asked for; empty
        where no verb is asked for, or in several parts."""
        if spoken and not parts_of(text):
            self.verbs = verbs_asked([fold(word) for word in spoken])
            self.opposites = _opposites().get(stem(fold(spoken[0]), "english"), frozenset()) - self.verbs


def parts_of(text: str) -> list[str]:
    """Return the sentences, clauses and entries of lists of a request, at least two words each; none where it is one
    part."""
    ends = (
        r"(?<=[.!?;:])\s+|,\s+|\s*\n[\s*•-]*|\s+[-–]\s+"
        r"|\s+(?=(?:and|but|so|then|because|before|since|while|when|if)\s)"
    )
    parts = [part.strip(" ,.;") for part in re.split(ends, text.strip())]
    several = [part for part in parts if " " in part][:MOST_PARTS]
    return several if len(several) > 1 else []


def telling(word: str) -> float:
    """Return how much a folded word says, 0..1: the words that are said most often mean little.

    From about the 100th English word on it tells something, from the 3,000th on all it can.
    """
    first_word = 1995
    rank = model_vocabulary().get(word, first_word + 3000) - first_word
    return min(1.0, math.log1p(max(1, rank) / 100) / math.log1p(30))


# ---------------------------------------------------------------- verbs


@cache
def known_verbs() -> frozenset[str]:
    """Return stems of every verb that a tool may have for what people say."""
    return frozenset[str]().union(*_verbs_for().values()) - {"*"}


@cache
def looking() -> frozenset[str]:
    """Return stems of the verbs of tools that only look."""
    return _verbs_for()["*"] - {"*"}


def verbs_asked(words: Sequence[str]) -> frozenset[str]:
    """Return stems of the verbs that a tool for this request may have; empty where it has none that is known to be one.

    `words`: of the request, folded, in order, courtesies left out.
    """
    if not words:
        return frozenset()
    question = """what whats which who whom whose where when how why is are am was were do does did has have had will
        there any can"""
    before_a_thing = """the a an my this that our your his her their me it him us them all every some these those any
        one two"""
    if words[0] in question.split() or words[0].endswith("'s"):
        return looking()
    first = stem(words[0], "english")
    # The second word of a verb ("turn the music down") is near.
    for other in words[1:6]:
        if (verbs := _verbs_for().get(f"{first}_{other}")) is not None:
            return verbs
    is_command = len(words) > 1 and words[1] in before_a_thing.split()
    return _verbs_for().get(first, frozenset((first,) if is_command else ()))


@cache
def _opposites() -> dict[str, frozenset[str]]:
    opposites: dict[str, frozenset[str]] = {}
    for line in read_lines("opposite_verbs.txt"):
        left, right = (frozenset(stem(verb, "english") for verb in side.split()) for side in line.split(":"))
        opposites |= dict.fromkeys(left, right) | dict.fromkeys(right, left)
    return opposites


@cache
def _verbs_for() -> dict[str, frozenset[str]]:
    # What is said, its first word as a stem -> verbs of the tools that may do it, as stems; `*`: that only look.
    verbs_by_phrase: dict[str, set[str]] = {}
    for line in read_lines("tool_verbs.txt"):
        written, _, done = line.partition(":")
        verbs = {stem(verb, "english") for verb in done.split() if verb != "*"}
        verbs |= verbs_by_phrase["*"] if "*" in done.split() else set()
        for phrase in written.split():
            first, *second = phrase.split("_", 1)
            first = stem(first, "english")
            verbs_by_phrase.setdefault("_".join((first, *second)), set()).update(verbs if second else {*verbs, first})
    return {phrase: frozenset(verbs) for phrase, verbs in verbs_by_phrase.items()}


# ---------------------------------------------------------------- a sentence in pieces

MOST_TOKENS = 40
"""A sentence is read this far; longer ones are texts, not requests."""


@dataclass(frozen=True, slots=True)
class Token:
    """One piece of a sentence that is matched or captured as a whole."""

    kind: str
    """word, number, quoted, path, id or symbol."""
    text: str
    """As written; without the quotation marks."""
    start: int
    stop: int
    """Where it is in the sentence, quotation marks included."""
    stem: str

    @property
    def is_function_word(self) -> bool:
        return self.kind == "word" and fold(self.text) in function_words()


_TOKEN = re.compile(
    r"""
      (?P<quoted> "[^"]+" | “[^”]+” | «[^»]+» | `[^`]+` | (?<!\w)'[^']+(?:'\w[^']*)*'(?!\w) | ‘[^’]+’(?!\w) )
    | (?P<id> \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b )
    | (?P<path> (?: [a-zA-Z]:[\\/] | \\\\ | ~[\\/] | \.{1,2}[\\/] | (?<![\w.])/(?=\w) | https?:// )
                [^\s"'?!,;]* [^\s"'?!,;.:] | (?<![\w.-])(?:[\w.-]+[\\/])+ (?: [\w-]+[.])+ [a-zA-Z]\w{0,4}\b
                | (?<![\w.-])(?:[\w.-]+[\\/]){2,} [\w-]+
                | (?<![\w.-])[\w-][\w.-]*\.(?:md|mdc|txt|rst|org|pdf|docx?|odt|rtf|xlsx?|ods|csv|tsv|pptx?|jsonl?|ya?ml
                    |html?|xml|eml|epub|zip|py)\b )
    | (?P<number> (?<![\w.])[-+]?\d+(?:[.,]\d+)*(?![\w-]) )
    | (?P<word> (?=[^\W_])(?=[\w-]*\d)(?=[\w-]*[^\W\d_])[^\W_]+(?:[-._][^\W_]+)+
                | (?!(?<=\d['’])s\b)[^\W_]+(?:[._'’][^\W_]+)* )
    | (?P<symbol> [+*/=%] )
    """,  # the s of "rule 12's weight" is no word
    re.VERBOSE,
)

_POLITE_START = r"""(?xi)^(?: (?: please | hey | hello,? \s there | ok | okay | kindly | just | so | well | now
          | (?:can|could|would|will) \s you (?:\s please)? | can \s i | may \s i
          | i(?:\s would|['’]d) \s (?:like|love) (?:\s you)? \s to | i \s (?:want|need|wish) (?:\s you)? \s to
          | i(?:\s would|['’]d) \s like | i \s (?:want|need) | i(?:\s am|['’]m) \s looking \s for | let(?:['’]?s|\s me)
        ) [\s,]+ )+"""
"""Compiled at its first use, as `_POLITE_END` is not: it takes 4 ms."""
_POLITE_END = re.compile(
    # Only the first of several spaces and commas begins a match: a long run of them takes linear time.
    r"(?<![\s,])(?:[\s,]+(?:please|thanks|thank you|for me|right now|if you can|would you|will you))+[\s.!?]*$",
    re.IGNORECASE,
)


def tokenize(sentence: str) -> list[Token]:
    """Return the pieces of a sentence in order, courtesies left out; at most `MOST_TOKENS`."""
    begin = match.end() if (match := re.search(_POLITE_START, sentence)) else 0
    end = match.start() if (match := _POLITE_END.search(sentence, begin)) else len(sentence)
    tokens: list[Token] = []
    for match in islice(_TOKEN.finditer(sentence, begin, end), MOST_TOKENS):
        kind = str(match.lastgroup)
        text = match[0].strip("\"'“”«»`‘’") if kind == "quoted" else match[0]
        stemmed = stem(fold(text), "english") if kind == "word" else fold(text)
        tokens.append(Token(kind, text, match.start(), match.end(), stemmed))
    return tokens


@cache
def function_words() -> frozenset[str]:
    """Return folded words that say nothing about what is wanted."""
    return stop_words("english") | frozenset("please me want need let us is are do does did i you it really".split())
