"""A sentence in pieces: words, numbers, quotations, paths, ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import islice

from localmcp.wording.normalize import fold, stem, stop_words

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
                | (?<![\w.-])(?:[\w.-]+[\\/]){2,} [\w-]+ )
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
