"""Compare requests with tools by meaning: vectors moved towards those of tools, and what people say for such tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from localmcp.arrays import NDArray, np
from localmcp.config import packaged_data
from localmcp.models import Embedder
from localmcp.models.embedder import DEFAULT_NAME
from localmcp.models.lazy import TextVectors
from localmcp.tool_search.words import ToolText, read_lines

FILES = ("request_adapter.npz", "request_adapter_multilingual.npz")
NEAREST, NEAREST_SAYINGS, SHARPNESS = 8, 20, 20.0
"""Pairs that are borrowed for a tool and for a request, and how much more the nearer ones count."""
AT_ONCE = 200
"""Tools that are compared with all capabilities in one step, which bounds the memory."""
CENTER, SPREAD = 0.0555, 0.0778
"""Mean and standard deviation of the default model's cosines between two everyday requests."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A map fitted to pairs of a request and the tool that serves it; without it seventh's hit@5 falls by .09."""

    down: NDArray[np.float32]
    up: NDArray[np.float32]
    """A (dimension, rank) and B (rank, dimension)."""
    axes: NDArray[np.float32]
    """(dimension, axes): the directions in which sayings and capabilities are kept."""
    sayings: NDArray[np.float32]
    """What people say: rows (pairs, axes)."""
    capabilities: NDArray[np.float32]
    """What the tool for it is called: rows (pairs, axes)."""
    wording: NDArray[np.float32]
    """(dimension + 1,): parts what people say from what tools are called; the last is the offset."""

    def freedom(self, request: NDArray[np.float32]) -> float:
        """Return how freely a request is worded: from 0, as tools are called (assistants do that), to 1."""
        return min(1.0, max(0.0, float(request @ self.wording[:-1] + self.wording[-1])))

    def adapt(self, requests: NDArray[np.float32], freedom: float = 1.0) -> NDArray[np.float32]:
        """Return the unit vectors (..., dimension) that tools are compared with: r + freedom * r A B."""
        moved = requests + freedom * ((requests @ self.down) @ self.up)
        return (moved / np.linalg.norm(moved, axis=-1, keepdims=True)).astype(np.float32)

    def sayings_for(self, tools: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what people say for tools such as these: rows (tools, axes), means of what is said for the nearest.

        `tools`: their vectors on the axes.

        Both sides of this comparison are worded as tools are, so it finds what a request cannot be compared with.
        """
        rows = [np.zeros((0, self.axes.shape[1]), np.float32)]
        for begin in range(0, len(tools), AT_ONCE):
            similar = tools[begin : begin + AT_ONCE] @ self.capabilities.T
            nearest = np.argpartition(similar, -NEAREST, axis=1)[:, -NEAREST:]
            shares = np.exp(SHARPNESS * np.take_along_axis(similar, nearest, axis=1))
            shares /= shares.sum(axis=1, keepdims=True)
            rows.append(np.einsum("tn,tna->ta", shares, self.sayings[nearest]))
        return np.concatenate(rows)

    def capability_for(self, request: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what tools for a request are called: shape (axes,), the mean over the nearest sayings.

        Both sides of this comparison are worded as people speak.
        """
        similar = self.sayings @ (request @ self.axes)
        nearest = np.argpartition(similar, -NEAREST_SAYINGS)[-NEAREST_SAYINGS:]
        shares = np.exp(SHARPNESS * similar[nearest])
        return (shares / shares.sum()) @ self.capabilities[nearest]


@cache
def shipped_adapter(fingerprint: str) -> Adapter | None:
    """Return the adapter that was fitted to a model, if one was; its matrices are kept as whole numbers."""
    names = ("down", "up", "axes", "sayings", "capabilities", "wording")
    for file in FILES:
        with np.load(packaged_data() / file, allow_pickle=False) as stored:
            if str(stored["fingerprint"]) == fingerprint:
                return Adapter(*(stored[name].astype(np.float32) * stored[f"{name}_unit"] for name in names))
    return None


@dataclass(frozen=True, slots=True)
class ToolVectors:
    """Vectors of the tools, by which meaning is compared."""

    first: NDArray[np.float32]
    """Server and name with the first sentence: unit rows (tools, dimension)."""
    named: NDArray[np.float32]
    """Name alone: unit rows (tools, dimension)."""
    others: NDArray[np.float32]
    """Description and examples of all tools: unit rows (texts, dimension)."""
    begins: NDArray[np.intp]
    """Where the rows of each tool begin in `others`."""
    adapter: Adapter | None
    """None for a model that none was fitted to."""
    sayings: NDArray[np.float32]
    """What people say for such tools: rows (tools, axes); without columns where there is no adapter."""
    on_axes: NDArray[np.float32]
    """Mean of first and named on the adapter's axes: rows (tools, axes); without columns where there is no adapter."""
    scale: tuple[float, float]
    """Factor and offset that bring the model's cosines to the default model's scale."""

    def compare(self, request: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
        """Return five columns (tools,) for the unit vector of a request, on the default model's scale.

        Its cosine with the tool's server, name and first sentence; with the nearer of its description and examples;
        with its name alone; with what people say for such tools; and of the tool with what tools for such requests
        are called. Without an adapter the last two are the first, and half of it.
        """
        freedom = self.adapter.freedom(request) if self.adapter else 1.0
        row = self.adapter.adapt(request, freedom) if self.adapter else request
        cosines = (self.first @ row, np.maximum.reduceat(self.others @ row, self.begins), self.named @ row)
        first, other, named = (cosine * self.scale[0] + self.scale[1] for cosine in cosines)
        if self.adapter is None:
            return first, other, named, first, first / 2
        said = freedom * (self.sayings @ (request @ self.adapter.axes))
        return first, other, named, said, freedom * (self.on_axes @ self.adapter.capability_for(request))


def vectors_of(tools: Sequence[ToolText], embedder: Embedder, text_vectors: TextVectors) -> ToolVectors:
    """Return the vectors of tools, of which there is at least one."""
    rows_by_text = text_vectors.of([text for tool in tools for text in (tool.named, *tool.texts)], embedder)
    first = np.stack([rows_by_text[tool.texts[0]] for tool in tools])
    named = np.stack([rows_by_text[tool.named] for tool in tools])
    texts = [tool.texts[1:] or tool.texts for tool in tools]
    begins = np.cumsum([0, *(len(text) for text in texts[:-1])])
    others = np.stack([rows_by_text[text] for tool_texts in texts for text in tool_texts])
    adapter = shipped_adapter(embedder.identity.fingerprint)
    sayings = on_axes = np.zeros((len(first), 0), np.float32)
    if adapter:
        on_axes = ((first + named) @ (adapter.axes * 0.5)).astype(np.float32)
        sayings = adapter.sayings_for(on_axes)
    is_default = embedder.identity.name == DEFAULT_NAME
    scale = (1.0, 0.0) if is_default else scale_of(embedder, text_vectors)
    return ToolVectors(first, named, others, begins, adapter, sayings, on_axes, scale)


def scale_of(embedder: Embedder, text_vectors: TextVectors) -> tuple[float, float]:
    """Return (factor, offset) that bring a model's cosines to the default model's scale, which the weights assume.

    Models differ in how near they put two unrelated texts: e5 at 0.7, MiniLM at 0.1.
    """
    rows = text_vectors.rows(read_lines("everyday_requests.txt")[::3], embedder)
    cosines = (rows @ rows.T)[np.triu_indices(len(rows), 1)]
    factor = min(2.0, max(0.5, SPREAD / max(float(cosines.std()), 1e-6)))
    return factor, CENTER - factor * float(cosines.mean())
