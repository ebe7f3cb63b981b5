"""Make localmcp/data/multilingual_common.npz: what all texts have in common for the multilingual model, and languages.

    python tests/benchmarks/multilingual_common.py [--translations] [--words]

Cosines of this model are all between .7 and .95, and a text is nearer to any text of its own language than to its
translation. So two things are taken off every vector: the mean of texts, and the 16 directions in which the means of
languages differ most. Half of the passages and questions are from the translated messages of the programs on this
machine, equally many of each language; the other half is English documentation and Python code. No collection that
searches are measured on is among them.

Means of different texts differ in more than the language, so questions to a file in several languages lose further
directions: those in which the translations of one message differ, averaged over 250 messages. `--translations` makes
these alone: the others are in every vector that is stored.
"""

from __future__ import annotations

import argparse
import gettext
import inspect
import pkgutil
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from localmcp.config import models_directory
from localmcp.models.e5_model import E5Embedder
from localmcp.models.word_outputs import word_means

TARGET = Path(__file__).resolve().parents[2] / "localmcp" / "data" / "multilingual_common.npz"
PASSAGES_BY_LANGUAGE, CHARACTERS = 5, 700
DIRECTIONS = 16
FEWEST_MESSAGES = 600
TRANSLATED = "de es fr it pt_BR nl sv pl ru cs ja zh_CN tr uk hu da fi".split()
MESSAGES, FEWEST_TRANSLATIONS = 250, 15


def catalogs(language: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield language and translations by message of each program."""
    for path in sorted(Path("/usr/share/locale").glob(f"{language}/LC_MESSAGES/*.mo")):
        try:
            with path.open("rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        except (UnicodeDecodeError, IndexError, ValueError):
            # Old catalogs are not in UTF-8, or have another head.
            continue
        yield path.parts[4], {key: text for key, text in catalog.items() if isinstance(key, str)}


def messages_by_language() -> dict[str, list[str]]:
    messages: dict[str, set[str]] = {}
    for language, catalog in catalogs("*"):
        texts = {text.strip() for key, text in catalog.items() if key}
        messages.setdefault(language, set()).update(text for text in texts if len(text) > 25)
    return {language: sorted(texts) for language, texts in messages.items() if len(texts) >= FEWEST_MESSAGES}


def english_and_code(count: int) -> list[str]:
    texts: list[str] = []
    for module in pkgutil.iter_modules():
        if module.name in ("antigravity", "this", "idlelib") or not hasattr(module.module_finder, "path"):
            continue
        path = Path(module.module_finder.path, f"{module.name}.py")
        if path.is_file() and "lib/python" in str(path) and "site-packages" not in str(path):
            texts.append(inspect.cleandoc(path.read_text(encoding="utf-8", errors="replace")))
    return [text[start : start + CHARACTERS] for text in texts for start in range(0, len(text), 20_000)][:count]


def translations() -> dict[str, dict[str, str]]:
    """Return sentences of programs, by language and English message; most languages have each."""
    texts: dict[str, dict[str, str]] = {}
    for language in TRANSLATED:
        texts[language] = {
            message.strip(): text.strip()
            for _, catalog in catalogs(language)
            for message, text in catalog.items()
            if 70 < len(message) < 500 and message.count(" ") > 9 and text != message
        }
    counts = Counter(message for language in TRANSLATED for message in texts[language])
    everywhere = [message for message, count in counts.items() if count >= FEWEST_TRANSLATIONS]
    random.Random(1).shuffle(everywhere)
    return {
        language: {message: texts[language][message] for message in everywhere[:MESSAGES] if message in texts[language]}
        for language in TRANSLATED
    }


def translation_directions(embedder: E5Embedder) -> np.ndarray:
    """Return unit vectors of shape (languages, dimension), in which translations of the same texts differ."""
    differences = [
        (embedder.embed_passages([*texts.values()]) - embedder.embed_passages([*texts])).mean(axis=0)
        for texts in translations().values()
    ]
    english = np.zeros_like(differences[0])
    spread = np.array([*differences, english]) - np.mean([*differences, english], axis=0)
    return np.linalg.svd(spread, full_matrices=False)[2][: len(TRANSLATED)].astype(np.float32)


def add_translations() -> None:
    """Make the directions that questions lose; they are at right angles to those that every vector loses."""
    with np.load(TARGET) as stored:
        arrays = {name: stored[name] for name in stored.files}
    np.savez(TARGET, **{**arrays, "translations": translation_directions(E5Embedder(models_directory()))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--translations", action="store_true", help="keep what is taken off passages")
    parser.add_argument("--words", action="store_true", help="make only what is taken off words")
    options = parser.parse_args()
    if not (options.translations or options.words):
        make_common()
    if not options.words:
        add_translations()
    add_words()


def add_words() -> None:
    """Make the means of the outputs for words, from the texts of which the means of texts are made."""
    dice = random.Random(0)
    equally = [texts for texts in messages_by_language().values() for _ in range(PASSAGES_BY_LANGUAGE)]
    passages = [" ".join(dice.sample(texts, 12))[:CHARACTERS] for texts in equally]
    questions = [dice.choice(texts)[:80] for texts in equally]
    english = english_and_code(len(passages))
    english_questions = [text.strip().splitlines()[0][:80] for text in english if text.strip()]
    embedder = E5Embedder(models_directory())
    passage = (word_mean(embedder, "passage: ", passages) + word_mean(embedder, "passage: ", english)) / 2
    query = (word_mean(embedder, "query: ", questions) + word_mean(embedder, "query: ", english_questions)) / 2
    with np.load(TARGET) as stored:
        arrays = {name: stored[name] for name in stored.files}
    np.savez(TARGET, **{**arrays, "passage_word": passage, "query_word": query})


def word_mean(embedder: E5Embedder, prefix: str, texts: list[str]) -> np.ndarray:
    means = []
    for text in texts:
        ids = embedder._token_ids(prefix + text)
        outputs = embedder._query_outputs(ids) if prefix == "query: " else embedder._passage_outputs(ids, text)
        means.append(word_means(*embedder._without_prefix(ids, outputs))[1])
    return np.concatenate(means).mean(axis=0)


def make_common() -> None:
    """Make what every vector loses."""
    dice = random.Random(0)
    languages = messages_by_language()
    equally = [texts for texts in languages.values() for _ in range(PASSAGES_BY_LANGUAGE)]
    passages = [" ".join(dice.sample(texts, 12))[:CHARACTERS] for texts in equally]
    questions = [dice.choice(texts)[:80] for texts in equally]
    english = english_and_code(len(passages))
    english_questions = [text.strip().splitlines()[0][:80] for text in english if text.strip()]
    print(f"{len(languages)} languages, {len(passages)} and {len(english)} passages")
    embedder = E5Embedder(models_directory())
    embedder._common = None

    by_language = [embed_questions(embedder, questions), embedder.embed_passages(passages)]
    in_english = [embed_questions(embedder, english_questions), embedder.embed_passages(english)]
    query, passage = (
        (vectors.mean(axis=0) + other.mean(axis=0)) / 2 for vectors, other in zip(by_language, in_english, strict=True)
    )
    directions = language_directions(by_language, in_english)
    none = np.zeros((0, directions.shape[1]), np.float32)
    np.savez(TARGET, query=query, passage=passage, directions=directions, translations=none)
    print(TARGET, np.linalg.norm([query, passage], axis=1))


def embed_questions(embedder: E5Embedder, texts: list[str]) -> np.ndarray:
    return np.array([embedder.embed_query(text) for text in texts if text.strip()])


def language_directions(by_language: list[np.ndarray], in_english: list[np.ndarray]) -> np.ndarray:
    """Return unit vectors of shape (DIRECTIONS, dimension), most telling first."""
    spread: list[np.ndarray] = []
    for vectors, english in zip(by_language, in_english, strict=True):
        means = vectors.reshape(-1, PASSAGES_BY_LANGUAGE, vectors.shape[1]).mean(axis=1)
        means = np.vstack([means, english.mean(axis=0)])
        spread.append(means - means.mean(axis=0))
    return np.linalg.svd(np.vstack(spread), full_matrices=False)[2][:DIRECTIONS]


if __name__ == "__main__":
    main()
