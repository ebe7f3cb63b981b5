"""What people say, brought nearer to what tools are called: a small linear map of a request's vector."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILE = "request_adapter.npz"


def adapt(request: NDArray[np.float32], fingerprint: str) -> NDArray[np.float32]:
    """Return the unit vector (dimension,) that tools are compared with; requests of other models stay as they are.

    It is r + r A B, where A B has a low rank and was fitted by `tests/benchmarks/discovery_fit.py --adapter` to
    pairs of a request and the tool that serves it.
    """
    import numpy as np

    fitted_to, down, up = _shipped()
    if fingerprint != fitted_to:
        return request
    moved = request + (request @ down) @ up
    return (moved / np.linalg.norm(moved)).astype(np.float32)


@cache
def _shipped() -> tuple[str, NDArray[np.float32], NDArray[np.float32]]:
    """Fingerprint of the model, A (dimension, rank) and B (rank, dimension), which are kept as whole numbers."""
    import numpy as np

    from localmcp.config import packaged_data

    with np.load(packaged_data() / FILE, allow_pickle=False) as stored:
        down, up = (stored[name].astype(np.float32) * stored[f"{name}_unit"] for name in ("down", "up"))
        return str(stored["fingerprint"]), down, up
