"""General requests to programs: a query that is nearer to these than to any tool has no tool."""

from __future__ import annotations

from functools import cache

from localmcp.arrays import NDArray, np
from localmcp.models import Embedder
from localmcp.models.text_vectors import TextVectors
from localmcp.tool_search.synonyms import read_lines

EXPLAINED = 0.7
"""How much of a request's nearness to a tool is taken off its nearness to the query: what a tool does is no rival."""

CENTER, SPREAD = 0.0692, 0.0882
"""Mean and standard deviation of the default model's cosines between two general requests."""
EVERY = 4
"""That of every fourth request says enough."""


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
