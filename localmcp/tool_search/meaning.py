"""Compare requests with tools by meaning: vectors moved towards those of tools, and what people ask in general."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from localmcp.arrays import NDArray, np
from localmcp.models import Embedder
from localmcp.models.text_vectors import TextVectors
from localmcp.tool_search.query import ToolText
from localmcp.tool_search.verbs import read_lines

FILES = {"default": "request_adapter.npz", "multilingual": "request_adapter_multilingual.npz"}
"""By model; of the multilingual one, for requests in other languages than English."""
NEAREST, NEAREST_SAYINGS, SHARPNESS = 8, 20, 20.0
"""Pairs that are borrowed for a tool and for a request, and how much more the nearer ones count."""
AT_ONCE = 200
"""Tools that are compared with all capabilities in one step, which bounds the memory."""
EXPLAINED = 0.7
"""How much of a request's nearness to a tool is taken off its nearness to the query: what a tool does is no rival."""

CENTER, SPREAD = 0.0692, 0.0882
"""Mean and standard deviation of the default model's cosines between two general requests."""
EVERY = 4
"""That of every fourth request says enough."""
SAYING_SHARE, MOST_NEAR = 0.5, 25
"""How much sayings count in hubness, beside names, and how many of the requests in general it is the mean of."""


# ---------------------------------------------------------------- the adapter


@dataclass(frozen=True, slots=True)
class Adapter:
    """A map fitted to pairs of a request and the tool that serves it (`tests/benchmarks/discovery_fit.py`)."""

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
        return np.concatenate([self._borrow(tools[begin : begin + AT_ONCE]) for begin in range(0, len(tools), AT_ONCE)])

    def _borrow(self, tools: NDArray[np.float32]) -> NDArray[np.float32]:
        similar = tools @ self.capabilities.T
        nearest = np.argpartition(similar, -NEAREST, axis=1)[:, -NEAREST:]
        shares = np.exp(SHARPNESS * np.take_along_axis(similar, nearest, axis=1))
        shares /= shares.sum(axis=1, keepdims=True)
        return np.einsum("tn,tna->ta", shares, self.sayings[nearest])

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
    from localmcp.config import packaged_data

    names = ("down", "up", "axes", "sayings", "capabilities", "wording")
    for file in FILES.values():
        with np.load(packaged_data() / file, allow_pickle=False) as stored:
            if str(stored["fingerprint"]) == fingerprint:
                matrices = (stored[name].astype(np.float32) * stored[f"{name}_unit"] for name in names)
                return Adapter(*matrices)
    return None


# ---------------------------------------------------------------- requests in general


@cache
def general_requests() -> tuple[str, ...]:
    """Return short requests from all walks of life."""
    return tuple(read_lines("general_requests.txt"))


def request_vectors(embedder: Embedder, vectors: TextVectors) -> NDArray[np.float32]:
    """Return unit vectors (n, dimension) of the general requests: shipped for the default model, else embedded once."""
    fingerprint, shipped = _shipped()
    if embedder.identity.fingerprint == fingerprint:
        return shipped
    return vectors.rows(general_requests(), embedder)


@cache
def _shipped() -> tuple[str, NDArray[np.float32]]:
    """Return the fingerprint of the model, and its vectors.

    They are kept in even numbers of -126 to 126: a tenth smaller than in all whole numbers; cosines move by .002.
    """
    from localmcp.config import packaged_data

    with np.load(packaged_data() / "general_requests.npz", allow_pickle=False) as stored:
        rows = stored["vectors"].astype(np.float32)
        return str(stored["fingerprint"]), rows / np.linalg.norm(rows, axis=1, keepdims=True)


def out_of_scope_margin(to_query: NDArray[np.float32], to_tools: NDArray[np.float32]) -> float:
    """Return how much nearer the query is to a general request than that request is to what the tools do.

    Args:
        to_query: cosine of each request with the query, shape (requests,).
        to_tools: cosine of each request with the tool that is nearest to it, shape (requests,).
    """
    return float((to_query - EXPLAINED * to_tools).max())


def scale_of(requests: NDArray[np.float32]) -> tuple[float, float]:
    """Return (factor, offset) that bring a model's cosines to the default model's scale.

    The weights assume that scale. Models differ in how near they put two unrelated texts: e5 at 0.7, MiniLM at 0.1.
    """
    rows = requests[::EVERY]
    cosines = (rows @ rows.T)[np.triu_indices(len(rows), 1)]
    factor = min(2.0, max(0.5, SPREAD / max(float(cosines.std()), 1e-6)))
    return factor, CENTER - factor * float(cosines.mean())


# ---------------------------------------------------------------- vectors of tools


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
    requests: NDArray[np.float32]
    """What people ask of programs in general: unit rows (requests, dimension)."""
    requested: NDArray[np.float32]
    """Cosine of each of these with the tool that is nearest to it: (requests,)."""
    adapter: Adapter | None
    """None for a model that none was fitted to."""
    sayings: NDArray[np.float32]
    """What people say for such tools: rows (tools, axes), without columns where there is no adapter."""
    on_axes: NDArray[np.float32]
    """Mean of first and named on the adapter's axes: rows (tools, axes), without columns where there is no adapter."""
    hubness: NDArray[np.float32]
    """How near each tool is to the requests in general that are nearest to it: (tools,)."""
    factor: float
    offset: float
    """What brings the model's cosines to the default model's scale, see `meaning`."""

    def to_scale(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        return cosines * self.factor + self.offset


def vectors_of(tools: Sequence[ToolText], embedder: Embedder, text_vectors: TextVectors) -> ToolVectors:
    rows_by_text = text_vectors.of([text for tool in tools for text in (tool.named, *tool.texts)], embedder)
    first = np.stack([rows_by_text[tool.texts[0]] for tool in tools])
    named = np.stack([rows_by_text[tool.named] for tool in tools])
    texts = [[rows_by_text[text] for text in tool.texts[1:] or tool.texts] for tool in tools]
    begins = np.cumsum([0, *(len(text) for text in texts[:-1])])
    others = np.stack([row for text in texts for row in text])
    requests = request_vectors(embedder, text_vectors)
    requested = np.max([(requests @ rows.T).max(axis=1) for rows in (first, named, others)], axis=0)
    none = np.zeros((len(first), 0), np.float32)
    scale = scale_of(requests)
    unrelated = ToolVectors(first, named, others, begins, requests, requested, None, none, none, none, *scale)
    return relate(unrelated, shipped_adapter(embedder.identity.fingerprint))


def relate(vectors: ToolVectors, adapter: Adapter | None) -> ToolVectors:
    """Return the vectors with what an adapter adds to them: what is said for such tools, and their hubness."""
    requests, sayings, on_axes = vectors.requests[::EVERY], vectors.sayings, vectors.on_axes
    if adapter:
        on_axes = ((vectors.first + vectors.named) @ (adapter.axes * 0.5)).astype(np.float32)
        sayings = adapter.sayings_for(on_axes)
        near = adapter.adapt(requests) @ vectors.first.T + (requests @ adapter.axes) @ (sayings.T * SAYING_SHARE)
    else:
        near = vectors.to_scale(requests @ vectors.first.T) * (1 + SAYING_SHARE)
    hubness = np.partition(near, -MOST_NEAR, axis=0)[-MOST_NEAR:].mean(axis=0)
    return replace(vectors, adapter=adapter, sayings=sayings, on_axes=on_axes, hubness=hubness)
