"""What vectors of words would add to searches across languages with the model `multilingual`: a trial, not built.

    python tests/benchmarks/mixed_library.py --workdir DIR [--second]
    python tests/benchmarks/word_vectors.py --workdir DIR [--second]
    python tests/benchmarks/quality.py --workdir DIR --model multilingual FOLDER ...
    python tests/benchmarks/word_vectors.py --workdir DIR FOLDER ...

The facts of a letter with several subjects are not in its vector. The model's outputs for each word hold them, and a
word and its translation in context are near each other (words embedded alone are not: among the first three .26 instead
of .61, by words alone). Here each word of a file has the outputs of its first occurrence, as int8: those of all
occurrences are no better. For each content word of a question the nearest words are looked up, in whatever language; a
passage in another language gets the sum of the best similarities times the words' rarity in place of half a keyword
score. Printed: as it is, and with it. Among the first three, as it is and with it:

                                     one language    across
    mixed library, frozen questions  .91  .91        .45  .70
    its other questions              .93  .93        .47  .63
    second mixed library             .90  .92        .21  .42

In a file of 40,000 words it would cost about 7 ms a question (sign codes of words 2.4, a few hundred exact vectors,
240 queries of FTS5 3), 5 % of the time of embedding, and 16 MB beside 85 MB for 10,000 passages.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import mixed_library
import numpy as np
import quality

from localmcp.config import Settings, models_directory, packaged_data
from localmcp.embeddings.e5_model import E5Embedder
from localmcp.embeddings.embedder import unit_rows
from localmcp.embeddings.multilingual_model import HALF_LENGTH, multilingual_half, without_language
from localmcp.embeddings.native import native_calls
from localmcp.search.candidates import ARM_DEPTH, Found, SearchRequest
from localmcp.search.collections import find_model
from localmcp.search.fusion import Fused, semantic_score
from localmcp.search.vector import exact_cosines
from localmcp.wording.languages import detect_language
from localmcp.wording.normalize import fold, is_function_word, stem
from localmcp.workspace import Workspace

NEAREST = 30
"""Words of the file that may stand for a word of the question: their passages are 240 queries of FTS5 for eight words,
3 ms, with 100 of them 10 ms."""
LEAST = 50.0
"""The least keyword score of the best passage in another language; with 70 and more, questions in one language lose."""
POWER = 2
"""Of the share of the best sum: with 1, passages that hold a little of everything are lifted; 3 gains nothing."""
PASSAGES = """
    select chunks.id, groups.language, title, text from chunks
    join sources on sources.id = source_id join groups on groups.id = group_id
    where trashed_at is null and kind <> 'data' order by chunks.id * 7919 % 1000003
"""
"""The first occurrence of a word is in any of them."""
_WORD = re.compile(r"[^\W_]{2,}")

Order = Callable[[Workspace, str], list[int]]
"""Chunk ids, best first."""


class Outputs:
    """The multilingual model's outputs for each word of a text, without what tells the language."""

    def __init__(self) -> None:
        self.embedder = E5Embedder(models_directory(), threads=1, arithmetic="int8")
        self._passages = self.embedder._passage_encoder()
        self._pieces = self.embedder._tokens._opened[0]
        with np.load(packaged_data() / "multilingual_common.npz", allow_pickle=False) as stored:
            self._directions = np.concatenate([stored["directions"], stored["translations"]])

    def words(self, prefix: str, text: str) -> Iterator[tuple[str, np.ndarray]]:
        """Yield each word of a text with the mean output of its pieces."""
        ids = self.embedder._token_ids(prefix + text)
        encoder = self._passages if prefix.startswith("passage") else self.embedder._queries
        with native_calls:
            (hidden,) = encoder._session.run(None, {"embedded": encoder._weights.embed(ids)[None]})[0]
        rows = unit_rows(hidden)
        for word, numbers in self._spans(ids.tolist()):
            yield word, rows[numbers].mean(axis=0)

    def _spans(self, ids: list[int]) -> Iterator[tuple[str, list[int]]]:
        word, numbers = "", list[int]()
        for number, piece in [*enumerate(map(self._pieces.id_to_piece, ids[1:-1]), 1), (0, "\u2581")]:
            if (piece.startswith("\u2581") or not _WORD.search(piece + "xx")) and word:
                yield word, numbers
                word, numbers = "", []
            if letters := re.sub(r"\W", "", piece.replace("\u2581", "")):
                word, numbers = word + letters, [*numbers, number]

    def without_language(self, vectors: np.ndarray) -> np.ndarray:
        return unit_rows(vectors - (vectors @ self._directions.T) @ self._directions)


class WordTable:
    """The vectors of a file's words, and which passages hold them."""

    def __init__(self, workspace: Workspace, outputs: Outputs) -> None:
        self._outputs = outputs
        with workspace.database.read() as connection:
            passages = connection.execute(PASSAGES).fetchall()
        first: dict[str, np.ndarray] = {}
        self._stems: dict[int, set[str]] = {}
        start = time.process_time()
        self.languages: dict[int, str] = {}
        for chunk_id, language, title, text in passages:
            self._stems[chunk_id] = stems = set()
            self.languages[chunk_id] = language
            for word, vector in outputs.words("passage: ", f"{title}\n\n{text}"):
                if key := self._key(word, language):
                    first.setdefault(key, vector)
                    stems.add(key)
        print(f"{len(passages)} passages, {len(first)} words, {time.process_time() - start:.0f} s", flush=True)
        self._fill(first)

    @staticmethod
    def _key(word: str, language: str) -> str:
        is_content = len(word) > 1 and not is_function_word(fold(word), (language,))
        return stem(fold(word), language) if is_content else ""

    def _fill(self, first: dict[str, np.ndarray]) -> None:
        counts = Counter(key for stems in self._stems.values() for key in stems)
        numbers = {key: number for number, key in enumerate(first)}
        vectors = np.array([*first.values()])
        self._mean = vectors.mean(axis=0)
        self._vectors = np.rint(self._outputs.without_language(vectors - self._mean) * 300).clip(-127, 127) / 300
        self._idf = np.array([math.log(1 + len(self._stems) / counts[key]) for key in first], np.float32)
        held = {chunk_id: sorted(numbers[key] for key in stems) for chunk_id, stems in self._stems.items() if stems}
        self.ids = np.array([*held])
        self._flat = np.concatenate([*held.values()])
        self._starts = np.cumsum([0, *map(len, held.values())])[:-1]

    def learn_questions(self, questions: list[str]) -> None:
        """Learn what the outputs of all questions have in common; it would come with the model."""
        outputs = [vector for text in questions for _, vector in self._outputs.words("query: ", text)]
        self._question_mean = np.mean(outputs, axis=0)

    def shares(self, question: str) -> np.ndarray:
        """Return the share of the best score for each of `ids`."""
        language = (detect_language(question) or "english",)
        vectors = [
            vector
            for word, vector in self._outputs.words("query: ", question)
            if len(word) > 1 and not is_function_word(fold(word), language)
        ]
        if not vectors:
            return np.zeros(len(self.ids))
        near = self._outputs.without_language(np.array(vectors) - self._question_mean) @ self._vectors.T
        least = np.partition(near, -NEAREST, axis=1)[:, -NEAREST][:, None]
        near = np.where(near >= least, np.maximum(near, 0), 0) * self._idf
        scores = np.maximum.reduceat(near[:, self._flat], self._starts, axis=1).sum(axis=0)
        return scores / max(scores.max(), 1e-9)


def as_it_is(workspace: Workspace, question: str) -> list[int]:
    found = workspace.index.find(SearchRequest(question, limit=ARM_DEPTH))
    return [fused.id for fused in found.order(found.best_keyword)] if found else []


def with_words(table: WordTable, spent: list[float]) -> Order:
    def order(workspace: Workspace, question: str) -> list[int]:
        found = workspace.index.find(SearchRequest(question, limit=ARM_DEPTH))
        assert found
        start = time.process_time()
        shares = table.shares(question)
        spent.append(time.process_time() - start)
        first = table.ids[np.argsort(-shares)[:ARM_DEPTH]].tolist()
        new = [chunk_id for chunk_id in first if chunk_id not in found.arms.cosines]
        added = _add(workspace, table, found, question, new)
        by_id = dict(zip(table.ids.tolist(), shares.tolist(), strict=True))
        query, best = found.outcome.query, found.best_keyword
        ordered = [*found.order(best), *added]
        own = max((f.keyword for f in ordered if f.id not in found.arms.other_language), default=0.0) if query else 0.0
        full = max(own, LEAST)
        weighted = {f.id: _combined(f, found, full * by_id.get(f.id, 0.0) ** POWER) for f in ordered}
        return sorted(weighted, key=lambda chunk_id: (-weighted[chunk_id], chunk_id))

    return order


def _combined(fused: Fused, found: Found, keyword: float) -> float:
    weights = found.outcome.weights
    if fused.id not in found.arms.other_language or not found.arms.reads_all:
        return fused.combined
    return weights.semantic * fused.semantic + weights.keyword * max(fused.keyword, keyword)


def _add(workspace: Workspace, table: WordTable, found: Found, question: str, chunk_ids: list[int]) -> list[Fused]:
    """Return those of the passages that are in another language as candidates, with their cosines."""
    language, embedder = detect_language(question), workspace.index.embedder
    vector = without_language(embedder.embed_query(question, wait=60).astype("<f4"))
    is_english = language == "english"
    others = [chunk_id for chunk_id in chunk_ids if language and table.languages[chunk_id] != language]
    with workspace.database.read() as connection:
        model_id = find_model(connection, embedder.get().identity) or 0
        cosines = exact_cosines(connection, model_id, others, multilingual_half(vector) if is_english else vector)
    found.arms.other_language |= set(others)
    empty = Fused(0, 0.0, 0.0, 0.0, "semantic_only")
    return [
        replace(empty, id=chunk_id, semantic=semantic_score(cosine / HALF_LENGTH if is_english else cosine))
        for chunk_id, cosine in cosines.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", help="judged collections; none: the mixed library")
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--second", action="store_true", help="the second mixed library")
    parser.add_argument("--most", type=int, default=250, help="questions of a collection")
    options = parser.parse_args()
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(options.workdir / "state"))
    outputs = Outputs()
    if not options.folders:
        measure_library(options.workdir, options.second, outputs)
    for folder in options.folders:
        measure_collection(options.workdir, folder, options.most, outputs)


def measure_library(workdir: Path, second: bool, outputs: Outputs) -> None:
    file = mixed_library.SECOND if second else mixed_library.WRITTEN
    questions = mixed_library.parse(file.read_text(encoding="utf-8"))[1]
    database = workdir / ("second_multilingual.localmcp" if second else "multilingual.localmcp")
    frozen = set() if second else set(mixed_library.choose(questions))
    with Workspace(Settings(database=database, model="multilingual")) as workspace:
        with workspace.database.read() as connection:
            uris = "select chunks.id, uri from chunks join sources on sources.id = source_id"
            names = {chunk_id: Path(uri or "").stem for chunk_id, uri in connection.execute(uris)}
        for label, order in _orders(workspace, outputs, [question.text for question in questions]):
            ranks = dict[mixed_library.Question, int]()
            for question in questions:
                found = [*dict.fromkeys(names[chunk_id] for chunk_id in order(workspace, question.text))]
                ranks[question] = found.index(question.document) + 1 if question.document in found else 1000
            for kind in ("one language", "across"):
                for part, is_part in (("frozen", True), ("others", False)):
                    chosen = [rank for q, rank in ranks.items() if q.kind == kind and (q in frozen) == is_part]
                    if chosen:
                        mixed_library.show(f"{label}, {kind}, {part}", chosen)


def measure_collection(workdir: Path, folder: Path, most: int, outputs: Outputs) -> None:
    queries = {row["_id"]: row["text"] for row in quality.read_lines(folder / "queries.jsonl")}
    judged = {q: r for q, r in quality.read_judgements(folder / "qrels.tsv").items() if q in queries}
    asked = random.Random(3).sample(sorted(judged), min(most, len(judged)))
    with Workspace(Settings(database=workdir / f"{folder.name}.localmcp", model="multilingual")) as workspace:
        with workspace.database.read() as connection:
            sql = "select chunks.id, metadata ->> 'document' from chunks join sources on sources.id = source_id"
            names: dict[int, str] = dict(connection.execute(sql))
        for label, order in _orders(workspace, outputs, [queries[query] for query in asked]):
            rankings = {
                query: [*dict.fromkeys(names[chunk_id] for chunk_id in order(workspace, queries[query]))]
                for query in asked
            }
            score = statistics.fmean(quality.ndcg(rankings[query], judged[query]) for query in asked)
            three = statistics.fmean(not judged[query].isdisjoint(rankings[query][:3]) for query in asked)
            print(f"{folder.name}, {label}: nDCG@10 {score:.4f}, among three {three:.4f}", flush=True)


def _orders(workspace: Workspace, outputs: Outputs, questions: list[str]) -> Iterator[tuple[str, Order]]:
    yield "as it is", as_it_is
    table, spent = WordTable(workspace, outputs), list[float]()
    table.learn_questions(questions)
    yield "with words", with_words(table, spent)
    print(f"{1000 * statistics.median(spent):.1f} ms a question, its embedding included")


if __name__ == "__main__":
    main()
