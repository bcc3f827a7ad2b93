"""From bodies to stages, by hand: the graph, where each argument comes from, and what is refused with which advice."""

import re
from itertools import count

import pytest

from fairlead.app import App, each, fork, switch
from fairlead.app.manifest import Collected, FirstOf, Input, Item, Listed, Output

app = App("bodies")


def _functions(*names):
    return [app.function(name=name)(lambda x, name=name: [name, x]) for name in names]


# The default argument above makes two parameters of which one is needed: still a function of one argument.
a, b, c, d = _functions("a", "b", "c", "d")


def size(output):
    return "big" if len(output) > 3 else "small"


_numbers = count()


@pytest.fixture
def compiled():
    return lambda body: app.workflow(f"w{next(_numbers)}", body).spec


def _graph(spec):
    return {stage.name: stage.after for stage in spec.stages}


def _sources(spec):
    return {stage.name: stage.source for stage in spec.stages}


def test_a_function_alone(compiled):
    spec = compiled(a)
    assert _graph(spec) == {"a": ()}
    assert _sources(spec) == {"a": Input()}
    assert spec.answer == Output("a")


def test_a_sequence(compiled):
    spec = compiled(a >> b >> c)
    assert _graph(spec) == {"a": (), "b": ("a",), "c": ("b",)}
    assert _sources(spec) == {"a": Input(), "b": Output("a"), "c": Output("b")}
    assert spec.answer == Output("c")


def test_a_sequence_of_sequences_is_a_sequence(compiled):
    assert compiled((a >> b) >> (c >> d)).stages == compiled(a >> b >> c >> d).stages


def test_a_function_that_is_used_again_gets_a_number(compiled):
    assert list(_graph(compiled(a >> b >> a >> a))) == ["a", "b", "a-2", "a-3"]


def test_a_fork_gives_everyone_the_same_and_lists_what_comes_back(compiled):
    spec = compiled(a >> fork(b, c >> b) >> d)
    assert _graph(spec) == {"a": (), "b": ("a",), "c": ("a",), "b-2": ("c",), "d": ("b", "b-2")}
    assert _sources(spec)["c"] == Output("a")
    assert _sources(spec)["d"] == Listed((Output("b"), Output("b-2")))


def test_a_fork_may_begin_and_end_a_workflow_and_hold_another(compiled):
    spec = compiled(fork(a, fork(b, c)))
    assert _graph(spec) == {"a": (), "b": (), "c": ()}
    assert spec.answer == Listed((Output("a"), Listed((Output("b"), Output("c")))))


def test_a_fork_after_a_fork(compiled):
    spec = compiled(fork(a, b) >> fork(c, d))
    assert _graph(spec) == {"a": (), "b": (), "c": ("a", "b"), "d": ("a", "b")}


def test_each_maps_and_what_follows_joins(compiled):
    spec = compiled(a >> each(b >> c, items=(4, 12)) >> d)
    stages = {stage.name: stage for stage in spec.stages}
    assert _graph(spec) == {"a": (), "b": ("a",), "c": ("b",), "d": ("c",)}
    assert _sources(spec) == {"a": Input(), "b": Item(Output("a")), "c": Output("b"), "d": Collected(Output("c"))}
    assert (stages["a"].splits, stages["b"].map, stages["d"].join) == (True, (4, 12), True)
    assert not spec.splits_input


def test_each_may_begin_and_end_a_workflow(compiled):
    spec = compiled(each(a))
    assert spec.splits_input
    assert spec.stages[0].source == Item(Input())
    assert (spec.stages[0].map, spec.stages[0].join) == ((1, 16), False)
    assert spec.answer == Collected(Output("a"))


def test_two_each_over_one_list_beside_a_plain_branch(compiled):
    spec = compiled(a >> fork(each(b), each(c), d) >> a)
    stages = {stage.name: stage for stage in spec.stages}
    assert stages["a-2"].after == ("b", "c", "d")
    assert stages["a-2"].join
    assert stages["a-2"].source == Listed((Collected(Output("b")), Collected(Output("c")), Output("d")))


def test_a_switch_takes_one_arm(compiled):
    spec = compiled(a >> switch(size, {"big": b >> c, "small": d}, weights={"big": 1, "small": 3}) >> b)
    stages = {stage.name: stage for stage in spec.stages}
    assert _graph(spec) == {"a": (), "b": ("a",), "c": ("b",), "d": ("a",), "b-2": ("c", "d")}
    assert (stages["b"].when, stages["c"].when, stages["d"].when, stages["b-2"].when) == (0.25, None, 0.75, None)
    assert (stages["a"].chooses, dict(stages["a"].arms)) == (True, {"big": "b", "small": "d"})
    assert stages["b-2"].source == FirstOf((Output("c"), Output("d")))


def test_an_arm_that_does_nothing_lets_the_value_through(compiled):
    spec = compiled(a >> switch(size, {"small": None, "big": b}))
    assert dict(spec.stages[0].arms) == {"small": None, "big": "b"}
    assert spec.stages[1].when == 0.5
    assert spec.answer == FirstOf((Output("b"), Output("a")))  # a has always run, so it comes last


def test_a_switch_inside_each_is_per_item(compiled):
    spec = compiled(a >> each(b >> switch(size, {"big": c, "small": None})) >> d)
    stages = {stage.name: stage for stage in spec.stages}
    assert stages["d"].after == ("c", "b")
    assert stages["d"].join
    assert stages["d"].source == Collected(FirstOf((Output("c"), Output("b"))))


def test_an_arm_may_end_with_each(compiled):
    spec = compiled(a >> switch(size, {"big": b >> each(c), "small": d}) >> b)
    last = spec.stages[-1]
    assert (last.after, last.join) == (("c", "d"), True)
    assert last.source == FirstOf((Collected(Output("c")), Output("d")))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda: switch(size, {"x": a, "y": b}), "a workflow cannot begin with a switch; put a function before it"),
        (lambda: fork(a, b) >> each(c), "an each cannot follow a fork directly; put a function between them."),
        (lambda: each(a) >> each(b), "put a function between them. Or do both in one: each(a >> b)."),
        (lambda: a >> switch(size, {"x": b, "y": None}) >> each(c), "an each cannot follow a switch directly"),
        (lambda: fork(a, b) >> switch(size, {"x": c, "y": d}), "a switch cannot follow a fork directly"),
        (lambda: each(a) >> switch(size, {"x": c, "y": d}), "a switch cannot follow an each directly"),
        (lambda: each(a >> each(b)), "an each inside an each is not supported"),
        (lambda: a >> each(b >> fork(c, each(d))), "an each inside an each is not supported"),
        (lambda: each(fork(a, b)), "what each repeats must begin with a function; this begins with a fork."),
        (lambda: a >> switch(size, {"x": fork(b, c), "y": d}), "arm 'x' of a switch must begin with a function"),
        (lambda: a >> switch(size, {"x": each(b), "y": d}), "arm 'x' of a switch must begin with a function"),
        (
            lambda: a >> fork(switch(size, {"x": b, "y": None}), switch(size, {"x": c, "y": None})),
            "two switches look at the output of 'a'; put a function before the second, in its branch.",
        ),
        (
            lambda: a >> fork(each(b, items=(1, 2)), each(c)),
            "two each over the output of 'a' expect different numbers of items, (1, 2) and (1, 16)",
        ),
        (lambda: size, "its body must be a function of the app, fork, each or switch; got size. Decorate size with"),
        (lambda: 3, "its body must be a function of the app, fork, each or switch; got 3."),
    ],
)
def test_what_a_workflow_cannot_do_is_refused_with_advice(body, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        app.workflow("refused", body())
    assert "refused" not in app.workflows


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (lambda: a >> size, "what comes after >> must be a function of the app, fork, each or switch; got size."),
        (lambda: size >> a, "what comes before >> must be a function of the app, fork, each or switch; got size."),
        (lambda: fork(a), "fork needs at least two branches; got 1."),
        (lambda: fork(a, [b]), "branch 2 of fork must be a function of the app"),
        (lambda: each(None), "what each repeats must be a function of the app"),
        (
            lambda: each(a, items=(0, 3)),
            "items must be the least and the greatest number, such as (1, 16); got (0, 3).",
        ),
        (lambda: each(a, items=5), "items must be the least and the greatest number, such as (1, 16); got 5."),
        (lambda: switch(a, {"x": b, "y": c}), "A function of the app is a stage: put it before the switch with >>."),
        (lambda: switch(size, {"x": b}), "switch needs at least two arms"),
        (lambda: switch(size, {"x": None, "y": None}), "every arm of this switch is None"),
        (lambda: switch(size, {True: a, "true": b}), "two arms of a switch have the label 'true'."),
        (lambda: switch(size, {None: a, "y": b}), "a label of a switch must be a text, a whole number or a boolean"),
        (lambda: switch(size, {"x": a, "y": b}, weights={"x": 1}), "weights must name the arms x, y; got x."),
        (
            lambda: switch(size, {"x": a, "y": b}, weights={"x": 0, "y": 0}),
            "the weights of a switch sum to 0; at least one must be positive.",
        ),
        (
            lambda: switch(size, {"x": a, "y": b}, weights={"x": -1, "y": 2}),
            "the weight of 'x' must be a finite number",
        ),
    ],
)
def test_what_cannot_be_composed_is_refused_at_once(compose, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        compose()


def test_labels_may_be_booleans_and_numbers():
    workflow = app.workflow("labels", a >> switch(lambda out: out[1] > 0, {True: b, False: None}))
    assert dict(workflow.spec.stages[0].arms) == {"true": "b", "false": None}
    stage = app.stage("labels/a")
    assert stage.choose(["a", 1]) == "true"
    assert stage.choose(["a", -1]) == "false"


def test_a_chooser_that_gives_no_label_says_so():
    app.workflow("astray", a >> switch(lambda out: "huge", {"big": b, "small": c}))
    with pytest.raises(ValueError, match=re.escape("gave 'huge'; the arms are big, small.")):
        app.stage("astray/a").choose([])


def test_a_workflow_is_called_like_a_function_in_a_unit_test():
    until = app.function(name="until", batch=4)(lambda xs: [list(range(x)) for x in xs])
    odd = app.workflow("odd", until >> each(a >> switch(lambda out: out[1] % 2, {1: b, 0: None})) >> c)
    assert odd(3) == ["c", [["a", 0], ["b", ["a", 1]], ["a", 2]]]
    assert odd(0) == ["c", []]
    with pytest.raises(ValueError, match="the output of 'c' must be a list, as each goes over it; got dict"):
        _over_a_dict()(0)


def _over_a_dict():
    other = App("other")
    c = other.function(name="c")(lambda x: {"n": x})
    return other.workflow("w", c >> each(c))


def test_a_batched_function_that_returns_the_wrong_number_says_so_in_a_unit_test():
    other = App("other")
    short = other.function(name="short", batch=2)(lambda xs: [])
    none = other.function(name="none", batch=2)(lambda xs: None)
    with pytest.raises(ValueError, match="the batched function 'short' got 1 arguments and returned 0 results"):
        other.workflow("short", short)(1)
    with pytest.raises(ValueError, match="the batched function 'none' must return a list; it returned NoneType"):
        other.workflow("none", none)(1)
