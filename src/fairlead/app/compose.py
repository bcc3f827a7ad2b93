"""Bodies: what a workflow does, put together from functions.

`a >> b` is one after the other, `fork` side by side, `each` item by item, `switch` one of several. Every function
takes one argument: what came before. `b.using(image=a)` binds a further parameter to what an earlier stage gave.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Union

import msgspec

Label = str | bool | int
"""How an arm of a switch may be named in Python; in a manifest it is always a text."""

ITEMS = (1, 16)
"""How many items an `each` has at least and at most, if nothing is said; only the simulator and the planner ask."""


class Body:
    """Anything a workflow can be made of."""

    __slots__ = ()

    def __rshift__(self, then: object) -> "Chain":
        return Chain((*steps(self), *steps(body_of(then, "what comes after >>"))))

    def __rrshift__(self, before: object) -> "Chain":
        raise ValueError(_no_body(before, "what comes before >>"))


class Code(Body):
    """A body that is one call of a function. Its stage is named after the function unless told otherwise."""

    __slots__ = ()
    name: str


class RequestInput(msgspec.Struct, frozen=True):
    """What the request brought, for `using`."""


INPUT = RequestInput()
"""The input of the request: `answer.using(question=INPUT)`."""

Earlier = Union[Code, "Call", str, RequestInput]
"""What a parameter can be bound to: the function of an earlier stage, the name of that stage, or `INPUT`."""


class Call(Body, msgspec.Struct, frozen=True, eq=False):
    """A call of a function with more to say: a name of its own for the stage, parameters bound to earlier outputs."""

    code: Code
    stage: str | None = None
    using: Mapping[str, Earlier] = MappingProxyType({})


class Chain(Body, msgspec.Struct, frozen=True, eq=False):
    """One after the other; never holds another chain."""

    steps: tuple[Body, ...]


class Fork(Body, msgspec.Struct, frozen=True, eq=False):
    """Side by side, each on the same input; gives the list of what they gave, in this order."""

    branches: tuple[Body, ...]


class Each(Body, msgspec.Struct, frozen=True, eq=False):
    """For every item of the list before; gives the list of what came of them, in the same order."""

    body: Body
    items: tuple[int, int]


class Switch(Body, msgspec.Struct, frozen=True, eq=False):
    """One of the arms; an arm of None gives what came before. `shares` of the requests sum to 1."""

    chooser: Callable[[object], Label]
    arms: Mapping[str, Body | None]
    shares: Mapping[str, float]

    def choose(self, output: object) -> str:
        """The label of the arm to take after this output."""
        chosen = self.chooser(output)
        label = label_of(chosen)
        if label not in self.arms:
            raise ValueError(
                f"the chooser {name_of(self.chooser)} gave {chosen!r}; the arms are {', '.join(self.arms)}."
            )
        return label


def fork(*branches: Body) -> Fork:
    """Runs all of these side by side on the same input; what follows gets the list of their outputs, in this order."""
    if len(branches) < 2:
        raise ValueError(f"fork needs at least two branches; got {len(branches)}.")
    return Fork(tuple(body_of(branch, f"branch {i} of fork") for i, branch in enumerate(branches, 1)))


def each(body: Body, *, items: tuple[int, int] = ITEMS) -> Each:
    """Runs this for every item of the list before, all at once; what follows gets the list of the outputs, in order.

    `items` are the least and the greatest number to expect. Only the simulator and the planner ask; a live list may
    have any length.
    """
    is_pair = isinstance(items, tuple | list) and len(items) == 2 and all(type(each) is int for each in items)
    if not is_pair or not 1 <= items[0] <= items[1]:
        raise ValueError(f"items must be the least and the greatest number, such as (1, 16); got {items!r}.")
    return Each(body_of(body, "what each repeats"), (items[0], items[1]))


def switch(
    chooser: Callable[..., Label], arms: Mapping[Label, Body | None], *, weights: Mapping[Label, float] | None = None
) -> Switch:
    """Runs the arm whose label the chooser gives for the output before; an arm of None lets that output through.

    `weights` say how often each arm is taken, for the simulator and the planner; without them, all equally. The chooser
    runs in the instance of the function before, right after it.
    """
    if not callable(chooser) or isinstance(chooser, Body):
        raise ValueError(
            f"the chooser of a switch must be a plain function of one argument; got {name_of(chooser)}. "
            "A function of the app is a stage: put it before the switch with >>."
        )
    if not isinstance(arms, Mapping) or len(arms) < 2:
        raise ValueError(f"switch needs at least two arms, as {{label: body}}; got {arms!r}.")
    labelled: dict[str, Body | None] = {}
    for key, arm in arms.items():
        label = label_of(key)
        if label in labelled:
            raise ValueError(f"two arms of a switch have the label {label!r}.")
        labelled[label] = None if arm is None else body_of(arm, f"arm {label!r} of a switch")
    given = getattr(chooser, "labels", None)
    if given is not None and set(given) != set(labelled):
        raise ValueError(f"the chooser gives {', '.join(given)}, and the arms are {', '.join(labelled)}.")
    if not any(labelled.values()):
        raise ValueError("every arm of this switch is None; at least one must do something.")
    return Switch(chooser, labelled, _shares(labelled, weights))


def _shares(arms: Mapping[str, object], weights: Mapping[Label, float] | None) -> dict[str, float]:
    if weights is None:
        return dict.fromkeys(arms, 1 / len(arms))
    given = {label_of(key): weight for key, weight in weights.items()}
    if set(given) != set(arms):
        raise ValueError(f"weights must name the arms {', '.join(arms)}; got {', '.join(given) or 'none'}.")
    for label, weight in given.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
            raise ValueError(f"the weight of {label!r} must be a finite number, not negative; got {weight!r}.")
    total = sum(given.values())
    if total <= 0:
        raise ValueError("the weights of a switch sum to 0; at least one must be positive.")
    if abs(total - 1) < 1e-12:  # shares already: dividing would only change their last digits
        total = 1
    return {label: given[label] / total for label in arms}


def steps(body: Body) -> tuple[Body, ...]:
    """What a body does one after the other."""
    return body.steps if isinstance(body, Chain) else (body,)


def body_of(value: object, where: str) -> Body:
    """This value, which must be a body."""
    if not isinstance(value, Body):
        raise ValueError(_no_body(value, where))
    return value


def label_of(value: object) -> str:
    """The text of a label."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and value:
        return str(value)
    raise ValueError(f"a label of a switch must be a text, a whole number or a boolean; got {value!r}.")


def name_of(value: object) -> str:
    """What a value is called in a message."""
    return str(getattr(value, "__name__", None) or repr(value))


def _no_body(value: object, where: str) -> str:
    hint = f" Decorate {name_of(value)} with @app.function." if callable(value) else ""
    return f"{where} must be a function of the app, fork, each or switch; got {name_of(value)}.{hint}"
