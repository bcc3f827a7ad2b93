"""Loads numba's array functions without loading SciPy, which takes as long as the engine itself.

They only ask whether it is there, for `np.dot` and the like; compiled code that does use one of these loads it then.
To be imported before anything is compiled or loaded from disk.
"""

from importlib import import_module
from importlib.util import find_spec


def _load_without_scipy() -> None:
    linear_algebra = import_module("numba.np.linalg")
    ask = getattr(linear_algebra, "ensure_blas", None)
    if ask is None or find_spec("scipy") is None:  # then numba finds out by itself, and at once
        return
    linear_algebra.ensure_blas = lambda: None  # type: ignore[attr-defined]
    try:
        import_module("numba.np.arraymath")
    finally:
        linear_algebra.ensure_blas = ask  # type: ignore[attr-defined]


_load_without_scipy()
