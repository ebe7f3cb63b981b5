"""Codes of vectors, by which a search narrows its candidates: two bits a dimension.

The first half of a code holds the signs. A bit of the second half is set where a number is positive and large, or
neither: what a code promises of a number is `sign + SECOND * second`, both +1 or -1, which is 1 - SECOND for a small
positive number and 1 + SECOND for a large one. `LARGE` and `SECOND` are those of the best quantizer of two bits for
normal numbers (Max, "Quantizing for minimum distortion", 1960): it leaves .12 of their variance, signs alone .36.
"""

from __future__ import annotations

from localmcp.arrays import NDArray, Vectors, np

LARGE = 0.9816
"""How many times the root of the mean square a number has to be to count as large."""
SECOND = 0.5387


def code_words(dimension: int) -> int:
    """Return how many words of 64 bits hold one bit of each dimension: half a code."""
    return (dimension + 63) // 64


def pack_codes(vectors: Vectors) -> NDArray[np.uint64]:
    """Return the codes of vectors of unit length, the shape (n, 2 * words), for vectors (n, dimension)."""
    count, dimension = vectors.shape
    positive = vectors > 0
    bits = np.zeros((count, 2, 64 * code_words(dimension)), dtype=bool)
    bits[:, 0, :dimension] = positive
    bits[:, 1, :dimension] = positive == (np.abs(vectors) > LARGE / dimension**0.5)
    return np.packbits(bits, axis=2, bitorder="little").view(np.uint64).reshape(count, 2 * code_words(dimension))


def pack_signs(vectors: Vectors) -> NDArray[np.uint64]:
    """Return the first halves of their codes, (n, words): bits as `vec_quantize_binary` of sqlite-vec orders them."""
    return pack_codes(vectors)[:, : code_words(vectors.shape[1])]
