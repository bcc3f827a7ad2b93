"""Environments over the compiled simulator: placement for one agent, scaling for many.

They need Gymnasium and PettingZoo (the extra `learn`). Where Gymnasium is installed, importing this package registers
`fairlead/Placement-v0`, `fairlead/Migration-v0` and `fairlead/Reference-v0` for `gymnasium.make`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fairlead.errors import MissingExtraError

if TYPE_CHECKING:
    from fairlead.learn.environments.placement import PlacementEnv, PlacementVectorEnv
    from fairlead.learn.environments.scaling import ScalingEnv

__all__ = ["PlacementEnv", "PlacementVectorEnv", "ScalingEnv"]

_HOMES = {
    "PlacementEnv": ("placement", "Gymnasium"),
    "PlacementVectorEnv": ("placement", "Gymnasium"),
    "ScalingEnv": ("scaling", "PettingZoo"),
}

if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        """Load an environment when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, needs = _HOMES[name]
        try:
            value = getattr(import_module(f"{__name__}.{module}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("gymnasium", "pettingzoo"):
                raise
            raise MissingExtraError(name, needs, "learn") from error
        globals()[name] = value
        return value


def _register() -> None:
    try:
        from fairlead.learn.environments.registration import register  # noqa: PLC0415 - needs an optional library
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "gymnasium":
            raise
        return  # using an environment says what is missing
    register()


_register()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
