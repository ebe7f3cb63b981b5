"""Move vectors of requests towards those of tools: a linear map, and typical requests for similar tools."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from localmcp.arrays import NDArray, np

FILES = {"default": "request_adapter.npz", "multilingual": "request_adapter_multilingual.npz"}
"""By model; of the multilingual one, for requests in other languages than English."""
NEAREST, NEAREST_SAYINGS, SHARPNESS = 8, 20, 20.0
"""Pairs that are borrowed for a tool and for a request, and how much more the nearer ones count."""
AT_ONCE = 200
"""Tools that are compared with all capabilities in one step, which bounds the memory."""


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
