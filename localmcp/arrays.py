"""numpy, imported when something of it is first used: it takes 80 ms, and a start does not need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    """Of sources or chunks, shape (n,)."""
    Vector = NDArray[np.float32]
    """Shape (dimension,)."""
    Vectors = NDArray[np.float32]
    """Shape (n, dimension)."""
else:

    class _Numpy:
        """numpy, imported when a name of it is first used."""

        def __getattr__(self, name: str) -> Any:
            """Return what the module calls so, and keep it: this is asked once for each name."""
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)
            return value

    np = _Numpy()
    NDArray = Ids = Vector = Vectors = Any
