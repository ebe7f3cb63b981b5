"""Make localmcp/data/multilingual_common.npz: what all texts have in common for the multilingual model, and languages.

    python tests/benchmarks/multilingual_common.py

Cosines of this model are all between .7 and .95, and a text is nearer to any text of its own language than to its
translation. So two things are taken off every vector: the mean of texts, and the 16 directions in which the means of
languages differ most. Half of the passages and questions are from the translated messages of the programs on this
machine, equally many of each language; the other half is English documentation and Python code. No collection that
searches are measured on is among them.
"""

from __future__ import annotations

import gettext
import inspect
import pkgutil
import random
from pathlib import Path

import numpy as np

from localmcp.embeddings.e5_model import E5Embedder

TARGET = Path(__file__).resolve().parents[2] / "localmcp" / "data" / "multilingual_common.npz"
PASSAGES_BY_LANGUAGE, CHARACTERS = 5, 700
DIRECTIONS = 16
FEWEST_MESSAGES = 600


def messages_by_language() -> dict[str, list[str]]:
    messages: dict[str, set[str]] = {}
    for path in sorted(Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo")):
        try:
            with path.open("rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        except (UnicodeDecodeError, IndexError, ValueError):
            # Old catalogs are not in UTF-8, or have another head.
            continue
        texts = {text.strip() for key, text in catalog.items() if isinstance(key, str) and key}
        messages.setdefault(path.parts[4], set()).update(text for text in texts if len(text) > 25)
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


def main() -> None:
    dice = random.Random(0)
    languages = messages_by_language()
    equally = [texts for texts in languages.values() for _ in range(PASSAGES_BY_LANGUAGE)]
    passages = [" ".join(dice.sample(texts, 12))[:CHARACTERS] for texts in equally]
    questions = [dice.choice(texts)[:80] for texts in equally]
    english = english_and_code(len(passages))
    english_questions = [text.strip().splitlines()[0][:80] for text in english if text.strip()]
    print(f"{len(languages)} languages, {len(passages)} and {len(english)} passages")
    embedder = E5Embedder(None, arithmetic="int8")
    embedder._common = None

    by_language = [embed_questions(embedder, questions), embedder.embed_passages(passages)]
    in_english = [embed_questions(embedder, english_questions), embedder.embed_passages(english)]
    query, passage = (
        (vectors.mean(axis=0) + other.mean(axis=0)) / 2 for vectors, other in zip(by_language, in_english, strict=True)
    )
    np.savez(TARGET, query=query, passage=passage, directions=language_directions(by_language, in_english))
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
