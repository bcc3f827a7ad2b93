"""From a body to stages: the graph that the controller runs, and where each stage's argument comes from.

What the graph of `model.workflow` cannot say is refused here, with what to do instead: its arms have one predecessor,
its maps at most one and none inside another.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from fairlead.app.compose import Body, Call, Chain, Code, Each, Earlier, Fork, RequestInput, Switch, name_of, steps
from fairlead.app.manifest import Collected, FirstOf, Input, Item, Listed, Output, Source, StageSpec
from fairlead.errors import suggestion

Before = Literal["nothing", "function", "fork", "each", "switch"]


class Compiled(msgspec.Struct, frozen=True):
    """The stages of a body in topological order, their code, and who chooses after them."""

    stages: tuple[StageSpec, ...]
    answer: Source
    splits_input: bool
    codes: Mapping[str, Code]
    switches: Mapping[str, Switch]


def compile_body(body: Body) -> Compiled:
    """The stages of a body. Raises `ValueError` if a workflow cannot do this."""
    compiler = _Compiler()
    end = compiler.add(body, _Place((), Input(), "nothing"))
    stages = tuple(compiler.finished(draft) for draft in compiler.drafts.values())
    return Compiled(
        stages=stages,
        answer=end.source,
        splits_input=None in compiler.splits,
        codes={name: draft.code for name, draft in compiler.drafts.items()},
        switches=compiler.switches,
    )


class _Place(msgspec.Struct, frozen=True):
    """A point between stages: after which ones, what flows there, and what came last.

    `done` has the stages that have run for certain when this point is reached, and whose output is one value here: not
    those inside an arm or an `each` that has ended.
    """

    ends: tuple[str, ...]
    source: Source
    before: Before
    done: tuple[str, ...] = ()
    is_in_map: bool = False
    leaves_map: bool = False  # whether some of `ends` run item by item, and what follows does not


class _Draft(msgspec.Struct, frozen=True):
    """A stage, before it is known what comes after it."""

    name: str
    code: Code
    place: _Place
    when: float | None
    items: tuple[int, int] | None
    using: Mapping[str, Input | Output]


class _Compiler:
    """What has been found so far, all by stage; `splits` has the numbers of items, and None for the input."""

    def __init__(self) -> None:
        self.drafts: dict[str, _Draft] = {}
        self.switches: dict[str, Switch] = {}
        self.arms: dict[str, dict[str, str | None]] = {}
        self.splits: dict[str | None, tuple[int, int]] = {}

    def add(self, body: Body, place: _Place, when: float | None = None, items: tuple[int, int] | None = None) -> _Place:
        """Add a body at a place; gives the place after it. `when` and `items` are for its first stage."""
        match body:
            case Code():
                return self._add_stage(Call(body), place, when, items)
            case Call():
                return self._add_stage(body, place, when, items)
            case Chain():
                for step in body.steps:
                    place = self.add(step, place, when, items)
                    when = items = None
                return place
            case Fork():
                return self._add_fork(body, place)
            case Each():
                return self._add_each(body, place)
            case Switch():
                return self._add_switch(body, place)
        raise TypeError(f"{body!r} is no body that this compiler knows.")

    def finished(self, draft: _Draft) -> StageSpec:
        """A stage with all there is to say of it."""
        source = Item(_plain(draft.place.source)) if draft.items else draft.place.source
        return StageSpec(
            name=draft.name,
            function=draft.code.name,
            source=source,
            after=draft.place.ends,
            when=draft.when,
            map=draft.items,
            join=draft.place.leaves_map,
            splits=draft.name in self.splits,
            chooses=draft.name in self.switches,
            arms=self.arms.get(draft.name, {}),
            using=draft.using,
        )

    def _add_stage(self, call: Call, place: _Place, when: float | None, items: tuple[int, int] | None) -> _Place:
        wanted = call.stage or call.code.name
        name, count = wanted, 1
        while name in self.drafts:
            count += 1
            name = f"{wanted}-{count}"
        using = {
            parameter: self._earlier(f"{name}.using({parameter}=...)", earlier, place)
            for parameter, earlier in call.using.items()
        }
        self.drafts[name] = _Draft(name, call.code, place, when, items, using)
        is_in_map = place.is_in_map or items is not None
        return _Place((name,), Output(name), "function", (*place.done, name), is_in_map=is_in_map)

    def _earlier(self, where: str, earlier: Earlier, place: _Place) -> Input | Output:
        """Where a bound parameter comes from: the input, or a stage that has run for certain at this place."""
        if isinstance(earlier, RequestInput):
            return Input()
        if isinstance(earlier, str):
            wanted, found = earlier, [name for name in place.done if name == earlier]
        else:
            code, stage = (earlier.code, earlier.stage) if isinstance(earlier, Call) else (earlier, None)
            wanted = stage or code.name
            found = [name for name in place.done if self.drafts[name].code is code and stage in (None, name)]
        if len(found) > 1:
            listed = ", ".join(map(repr, found))
            raise ValueError(f"{where}: several stages before it call {wanted!r}; name one of them: {listed}.")
        if not found:
            before = ", ".join(place.done) or "none"
            raise ValueError(
                f"{where}: {wanted!r} is not among the stages that have always run before it ({before}). A stage of "
                f"another branch, of an arm of a switch or of an each that has ended cannot be taken."
                f"{suggestion(wanted, place.done)}"
            )
        return Output(found[0])

    def _add_fork(self, body: Fork, place: _Place) -> _Place:
        after = [self.add(branch, place) for branch in body.branches]
        done = tuple(dict.fromkeys(name for each in after for name in each.done))
        return _meet(after, Listed(tuple(each.source for each in after)), "fork", done)

    def _add_each(self, body: Each, place: _Place) -> _Place:
        if place.is_in_map:
            raise ValueError("an each inside an each is not supported; let a function flatten the list in between.")
        if place.before not in ("nothing", "function"):
            aside = " Or do both in one: each(a >> b)." if place.before == "each" else ""
            raise ValueError(f"an each cannot follow {_a(place.before)} directly; put a function between them.{aside}")
        _check_begins(body.body, "what each repeats")
        split = place.ends[0] if place.ends else None
        if self.splits.setdefault(split, body.items) != body.items:
            over = "the input" if split is None else f"the output of {split!r}"
            raise ValueError(
                f"two each over {over} expect different numbers of items, {self.splits[split]} and {body.items}; "
                "it is one list, so give both the same."
            )
        after = self.add(body.body, place, items=body.items)
        return _Place(after.ends, Collected(after.source), "each", place.done, leaves_map=True)

    def _add_switch(self, body: Switch, place: _Place) -> _Place:
        if place.before == "nothing":
            raise ValueError(
                "a workflow cannot begin with a switch; put a function before it, for its output to choose."
            )
        if place.before != "function":
            raise ValueError(f"a switch cannot follow {_a(place.before)} directly; put a function between them.")
        (chooser,) = place.ends
        if chooser in self.switches:
            raise ValueError(
                f"two switches look at the output of {chooser!r}; put a function before the second, in its branch."
            )
        self.switches[chooser] = body
        arms = self.arms[chooser] = {}
        after = []
        for label, arm in body.arms.items():
            if arm is None:
                arms[label] = None
                continue
            _check_begins(arm, f"arm {label!r} of a switch")
            before = len(self.drafts)
            after.append(self.add(arm, place, when=body.shares[label]))
            arms[label] = list(self.drafts)[before]
        if None in arms.values():  # last: the stage that chooses has always run
            after.append(place)
        return _meet(after, FirstOf(tuple(each.source for each in after)), "switch", place.done)


def _meet(places: list[_Place], source: Source, before: Before, done: tuple[str, ...]) -> _Place:
    ends = tuple(dict.fromkeys(end for place in places for end in place.ends))
    return _Place(
        ends,
        source,
        before,
        done,
        is_in_map=any(place.is_in_map for place in places),
        leaves_map=any(place.leaves_map for place in places),
    )


def _check_begins(body: Body, what: str) -> None:
    first = steps(body)[0]
    if not isinstance(first, Code | Call):
        kind = type(first).__name__.lower()
        raise ValueError(f"{what} must begin with a function; this begins with {_a(kind)}. Put a function before it.")


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "each" else f"a {kind}"


def _plain(source: Source) -> Input | Output:
    assert isinstance(source, Input | Output), name_of(source)
    return source
