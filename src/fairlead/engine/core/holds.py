"""What operators have fixed: functions whose number or node of replicas a policy may not change.

An operator's `Scale` or `Move` holds its function until the operator gives it back with `Scale(function, None)`. What
a policy wants of a held function meanwhile is refused and remembered: it takes effect when the function is given back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fairlead.policy import base

if TYPE_CHECKING:
    from fairlead.engine.core.scaling import Replicas

HELD = "held by an operator"
"""Why a policy's action on a held function is refused."""

Scaling = base.Scale | base.Resize | base.Move


class Holds:
    """The functions that operators hold, each with what takes effect once it is given back."""

    __slots__ = ("_carry", "_replicas", "_wanted")

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._carry: dict[type, Callable[..., str | None]] = {
            base.Scale: replicas.scale,
            base.Resize: replicas.resize,
            base.Move: replicas.move,
        }
        self._wanted: dict[str, dict[type, Scaling]] = {}  # by function: the last action of each kind, oldest first

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, function: str) -> bool:
        return function in self._wanted

    def at_zero(self) -> list[str]:
        """The functions that are held at no instance at all."""
        sets = self._replicas.sets
        return [function for function in self._wanted if function in sets and sets[function].target == 0]

    def order(self, action: Scaling) -> str | None:
        """Carry out an operator's order and hold its function, or give the function back; the reason if refused."""
        if isinstance(action, base.Scale) and action.instances is None:
            return self._give_back(action.function)
        before = self._as_it_is(action.function)
        refusal = self._carry[type(action)](action)
        if refusal is None:
            self._wanted.setdefault(action.function, before)
        return refusal

    def remember(self, action: Scaling) -> None:
        """Note what a policy wants of a held function."""
        wanted = self._wanted[action.function]
        if isinstance(action, base.Scale) and action.instances is None:
            wanted.clear()
        else:
            wanted.pop(type(action), None)
            wanted[type(action)] = action

    def _as_it_is(self, function: str) -> dict[type, Scaling]:
        """The actions that bring a function back to what it is now; none if the dispatcher starts its instances."""
        found = self._replicas.sets.get(function)
        if found is None or found.is_ending:
            return {}
        wanted: dict[type, Scaling] = {base.Scale: base.Scale(function, found.target, found.configuration)}
        if found.node is not None:
            wanted[base.Move] = base.Move(function, found.node)
        return wanted

    def _give_back(self, function: str) -> str | None:
        wanted = self._wanted.pop(function, None)
        if wanted is None:
            return f"{function} is not {HELD}"
        if not wanted:  # no policy scales it: the dispatcher starts instances again
            return self._replicas.scale(base.Scale(function, None))
        self._replicas.unpin(function)
        # The node first, so that what is missing starts there.
        actions = sorted(wanted.values(), key=lambda action: not isinstance(action, base.Move))
        refusals = (self._carry[type(action)](action) for action in actions)
        return "; ".join(refusal for refusal in refusals if refusal is not None) or None
