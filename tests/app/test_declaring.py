"""Declaring functions, nodes and workflows: what is understood, what can still be called, what is refused."""

import re

import msgspec
import pytest

from fairlead.app import App, Manifest, each, fork
from fairlead.errors import UnknownNameError


@pytest.fixture
def app():
    return App("shop")


def double(x):
    return 2 * x


def test_a_decorated_function_is_still_called_like_one(app):
    @app.function
    def add_one(x):
        """Adds one."""
        return x + 1

    assert add_one(3) == 4
    assert (add_one.name, add_one.__name__, add_one.__doc__) == ("add_one", "add_one", "Adds one.")
    assert app.functions == {"add_one": add_one}


def test_a_batched_function_takes_and_returns_lists(app):
    @app.function(batch=8)
    def squares(xs):
        return [x * x for x in xs]

    assert squares.is_batched
    assert squares([1, 2, 3]) == [1, 4, 9]


def test_setup_runs_once_and_its_result_comes_first(app):
    calls = []

    def load():
        calls.append("load")
        return 100

    @app.function(setup=load, batch=(1, 4))
    def shift(model, xs):
        return [model + x for x in xs]

    assert calls == []  # declaring costs nothing
    assert shift([1, 2]) == [101, 102]
    assert shift([3]) == [103]
    assert calls == ["load"]


def test_a_setup_that_gives_none_runs_once_too(app):
    calls = []
    watched = app.function(setup=lambda: calls.append(1), name="watched")(lambda model, x: (model, x))
    watched.prepare()
    assert watched(5) == (None, 5)
    assert calls == [1]


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (1, (1,)),
        (8, (1, 2, 4, 8)),
        (6, (1, 2, 4, 6)),
        ((8,), (8,)),
        ((4, 1, 2), (1, 2, 4)),
        (range(1, 5), (1, 2, 3, 4)),
    ],
)
def test_batch_sizes(app, given, sizes):
    assert app.function(batch=given)(double).spec.batch == sizes


def test_a_function_of_single_batches_can_still_take_lists(app):
    assert app.function(batched=True)(double).is_batched
    assert not app.function(name="plain")(double).is_batched


def test_everything_declared_is_in_the_specification(app):
    spec = app.function(
        batch=2,
        vcpus=(2, 1),
        gpu=0.5,
        memory_gb=1.5,
        retries=2,
        run_limit_s="800ms",
        start_limit_s="1m",
        keep_alive_s=30,
        warm=0,
        name="all-of-it",
    )(double).spec
    assert spec.name == "all-of-it"
    assert (spec.batch, spec.vcpus, spec.vgpus, spec.memory_gb) == ((1, 2), (1.0, 2.0), (0.5,), 1.5)
    assert (spec.retries, spec.warm, spec.has_setup, spec.is_batched) == (2, 0, False, True)
    assert (spec.run_limit_s, spec.start_limit_s, spec.keep_alive_s) == (0.8, 60.0, 30.0)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("800ms", 0.8), ("2s", 2), ("1m", 60), ("1.5h", 5400), ("250us", 0.00025), (0.8, 0.8), (3, 3), (" 5 s ", 5)],
)
def test_durations(app, given, seconds):
    f = app.function(double)
    assert app.workflow("w", f, slo=given).spec.slo_s == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 0}, "batch must be a whole number of at least 1, or several such as (1, 2, 4, 8); got 0."),
        ({"batch": True}, "batch must be a whole number"),
        ({"batch": (1, 1)}, "batch names a value twice: (1, 1)."),
        ({"batch": ()}, "batch must name at least one value; got ()."),
        ({"batch": "8"}, "batch must be a whole number"),
        ({"batch": 4, "batched": False}, "a batch above 1 needs a function that takes a list"),
        ({"batch": range(1, 102), "vcpus": range(1, 102)}, "10,201 configurations; 10,000 are the most"),
        ({"vcpus": 0}, "vcpus must be a number above 0, or several; got 0."),
        ({"vcpus": float("nan")}, "vcpus must be a number above 0"),
        ({"gpu": -1}, "gpu must be a number at least 0, or several; got -1."),
        ({"memory_gb": "2"}, "memory_gb must be a number at least 0"),
        ({"memory_gb": (1, 2)}, "memory_gb must be one number; got (1, 2)."),
        ({"retries": -1}, "retries must be a whole number of at least 0; got -1."),
        ({"warm": 1.5}, "warm must be a whole number of at least 0; got 1.5."),
        ({"run_limit_s": "soon"}, "run_limit_s must be a positive duration, such as 0.8 (seconds), '800ms'"),
        ({"run_limit_s": 0}, "or None; got 0."),
        ({"keep_alive_s": None}, "keep_alive_s must be a positive duration"),
        ({"name": "a/b"}, "the name of a function must be up to 63 letters"),
        ({"name": "x" * 64}, "the name of a function must be up to 63 letters"),
        ({"setup": 3}, "setup of function 'double' must be a function without arguments; got 3."),
        ({"setup": lambda x: x}, "setup of function 'double' must take no argument; it has (x)."),
        ({"setup": lambda: 1}, "function 'double' must take the result of setup, then one argument; it is double(x)."),
    ],
)
def test_a_wrong_setting_is_refused_by_name(app, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        app.function(**settings)(double)
    assert app.functions == {}


def test_code_that_cannot_be_a_function_is_refused(app):
    async def later(x):
        return x

    def stream(x):
        yield x

    with pytest.raises(ValueError, match="function 'later' is async; declare it with plain def"):
        app.function(later)
    with pytest.raises(ValueError, match="function 'stream' yields; it must return its output"):
        app.function(stream)
    with pytest.raises(ValueError, match="the name of a function must be"):
        app.function(lambda x: x)  # it has no name
    with pytest.raises(ValueError, match=re.escape("function 'pair' must take one argument; it is pair(a, b, /).")):
        app.function(name="pair")(_named_pair())


def _named_pair():
    def pair(a, b, /):
        return a, b

    return pair


def test_two_of_one_name_are_refused(app):
    f = app.function(double)
    with pytest.raises(ValueError, match="the app 'shop' has two functions named 'double'"):
        app.function(double)
    app.workflow("w", f)
    with pytest.raises(ValueError, match="the app 'shop' has two workflows named 'w'"):
        app.workflow("w", f)
    app.node("fast", vcpus=1)
    with pytest.raises(ValueError, match="the app 'shop' has two nodes named 'fast'"):
        app.node("fast", vcpus=1)


def test_a_function_of_another_app_is_refused(app):
    other = App("other").function(double)
    with pytest.raises(ValueError, match="workflow 'w': function 'double' is not of the app 'shop'"):
        app.workflow("w", other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slo": "fast"}, "slo must be a positive duration"),
        ({"slo": float("inf")}, "slo must be a positive duration"),
        ({"cost_usd": 0}, "cost_usd must be a positive number, or None; got 0."),
        ({"example": object()}, "workflow 'w': the example must be made of plain values"),
        ({"name": "a.b"}, "the name of a workflow must be"),
    ],
)
def test_a_wrong_setting_of_a_workflow_is_refused(app, settings, message):
    f = app.function(double)
    name = settings.pop("name", "w")
    with pytest.raises(ValueError, match=message):
        app.workflow(name, f, **settings)
    assert app.workflows == {}


def test_nodes(app):
    app.node("slow", vcpus=2, speed=0.5, memory_gb=4)
    app.workflow("w", app.function(double))
    (node,) = app.manifest().nodes
    assert (node.name, node.vcpus, node.speed, node.memory_gb) == ("slow", 2.0, 0.5, 4.0)
    assert App("again", nodes=[node]).node("fast", vcpus=1).memory_gb is None
    with pytest.raises(ValueError, match="vcpus of node 'none' must be a number above 0"):
        app.node("none", vcpus=0)


def test_a_manifest_goes_through_json_unchanged(app):
    app.node("fast", vcpus=1)
    f = app.function(batch=4, run_limit_s="2s")(double)
    app.workflow("w", f >> each(f) >> fork(f, f), slo="1s", example={"image": b"\x00\xff", "at": 3})
    manifest = app.manifest()
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest) == manifest
    assert msgspec.msgpack.decode(manifest.workflows[0].example) == {"image": b"\x00\xff", "at": 3}


def test_an_app_needs_a_workflow_and_plain_parameters():
    app = App("shop", parameters={"headroom": 0.1})
    f = app.function(double)
    with pytest.raises(ValueError, match="the app 'shop' has no workflow; declare one"):
        app.manifest()
    app.workflow("w", f)
    assert app.manifest().parameters == {"headroom": 0.1}
    app.parameters["odd"] = object()
    with pytest.raises(ValueError, match="the parameters of the app 'shop' must be plain values"):
        app.manifest()


def test_what_an_instance_asks_for(app):
    f = app.function(double)
    app.workflow("w", f >> f)
    stage = app.stage("w/double-2")
    assert stage.function is f
    assert not stage.splits
    assert stage.choose(3) is None
    with pytest.raises(UnknownNameError, match="No workflow named 'v'"):
        app.stage("v/double")
    with pytest.raises(UnknownNameError, match="No stage of workflow 'w' named 'double-3'"):
        app.stage("w/double-3")
