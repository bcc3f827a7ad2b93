"""Engines: one controller, driven by a simulated or a real clock."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.engine.sim import simulate

__all__ = ["simulate"]

if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        """Load the simulator when it is first asked for: the live runtime's processes start without it."""
        if name != "simulate":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from fairlead.engine.sim import simulate  # noqa: PLC0415 - on demand: see above

        return simulate
