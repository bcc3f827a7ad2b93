"""PPO for many agents at once. The learner needs PyTorch (the extra `learn`), loaded when it is first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from fairlead.errors import MissingExtraError
from fairlead.learn.simppo.rollout import Rollout
from fairlead.learn.simppo.settings import MODERN, PAPER, Settings

if TYPE_CHECKING:
    from fairlead.learn.simppo.learner import Learner, Losses, Step, one_thread

__all__ = ["MODERN", "PAPER", "Learner", "Losses", "Rollout", "Settings", "Step", "one_thread"]

_LAZY = ("Learner", "Losses", "Step", "one_thread")

if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        """Load the learner when it is first used."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"{__name__}.learner"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "torch":
                raise
            raise MissingExtraError(name, "PyTorch", "learn") from error
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
