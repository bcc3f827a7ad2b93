"""Any body gives the same answer however it is worked out.

Directly, from what it says; from its stages and sources, as a unit test does; and as a live run does, with the
controller's own bookkeeping of stages and the routes between them.
"""

from zlib import crc32

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.app import App, AppFunction, Manifest, each, fork, switch
from fairlead.app.compose import Chain, Each, Fork, Switch
from fairlead.app.scenario import scenario_of
from fairlead.engine.core.progress import RequestState, WorkflowPlan
from fairlead.engine.live.routes import Route
from fairlead.model import Request, workflow_faults

app = App("bodies")

# Every function gives a list, so that an each may follow any of them.
FUNCTIONS = [
    app.function(name="wrap")(lambda x: ["wrap", x]),
    app.function(name="pair", batch=4)(lambda xs: [[x, x] for x in xs]),
    app.function(name="none")(lambda x: []),
    app.function(name="model", setup=lambda: "m")(lambda model, x: [model, x, 0]),
]


def _chooser(labels):
    return lambda output: labels[crc32(repr(output).encode()) % len(labels)]


@st.composite
def bodies(draw, before="nothing", in_map=False, depth=2, must_begin=False):
    """A body that a workflow can do; `before` is what comes before it."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        kinds = ["function"]
        if depth and not (must_begin and not parts):
            kinds.append("fork")
            if before in ("nothing", "function") and not in_map:
                kinds.append("each")
            if before == "function":
                kinds.append("switch")
        before = draw(st.sampled_from(kinds))
        inner = {"in_map": in_map, "depth": depth - 1}
        match before:
            case "function":
                parts.append(draw(st.sampled_from(FUNCTIONS)))
            case "fork":  # its branches begin with a function: two switches could not share what is before them
                branch = bodies(before="fork", must_begin=True, **inner)
                parts.append(fork(*draw(st.lists(branch, min_size=2, max_size=3))))
            case "each":
                parts.append(each(draw(bodies(before="each", must_begin=True, depth=depth - 1, in_map=True))))
            case "switch":
                arm = st.none() | bodies(before="switch", must_begin=True, **inner)
                arms = draw(st.lists(arm, min_size=2, max_size=3).filter(any))
                labels = [f"arm{i}" for i in range(len(arms))]
                parts.append(switch(_chooser(labels), dict(zip(labels, arms, strict=True))))
    body = parts[0]
    for part in parts[1:]:
        body = body >> part
    return body


def directly(body, value):
    """What a body says, word for word."""
    match body:
        case AppFunction():
            return body([value])[0] if body.is_batched else body(value)
        case Chain(steps):
            for step in steps:
                value = directly(step, value)
            return value
        case Fork(branches):
            return [directly(branch, value) for branch in branches]
        case Each(repeated):
            return [directly(repeated, item) for item in value]
        case Switch():
            arm = body.arms[body.choose(value)]
            return value if arm is None else directly(arm, value)
    raise TypeError(body)


def live(workflow, value):
    """As a live run goes: which stage is ready is the core's business, what it is called with the route's."""
    manifest = Manifest(
        name="bodies",
        functions=tuple(f.spec for f in app.functions.values()),
        workflows=(workflow.spec,),
    )
    scenario = scenario_of(manifest)
    state = RequestState(
        Request(id=0, workflow=workflow.name, arrival=0.0, deadline=1.0),
        WorkflowPlan(scenario.workflows[workflow.name], scenario.functions),
    )
    route = Route(workflow.spec)
    packed = [_pack(item) for item in value] if workflow.spec.splits_input else _pack(value)
    outputs, items = {}, {}
    if workflow.spec.splits_input:
        items |= {stage.name: len(value) for stage in workflow.spec.stages if stage.map and not stage.after}
    ready = state.begin(len(value))
    while ready:
        plan, item = ready.pop()  # in any order: here, the last first
        stage = route.stages[plan.name]
        function = app.functions[stage.function]
        argument = _unpack(route.argument(stage.name, item, packed, outputs, items))
        output = function([argument])[0] if function.is_batched else function(argument)
        label = workflow.compiled.switches[stage.name].choose(output) if stage.chooses else None
        outputs[stage.name, item] = [_pack(each) for each in output] if stage.splits else _pack(output)
        if stage.splits:
            items |= {s.name: len(output) for s in workflow.spec.stages if s.map and s.after == (stage.name,)}
        if state.is_chain:  # as in the controller
            state.unresolved -= 1
            ready += plan.then
        else:
            ready += state.advance(plan, item, None if label is None else stage.arms[label], len(output))
    assert state.unresolved == 0
    return _unpack(route.answer(packed, outputs, items))


def _pack(value):
    return msgspec.msgpack.encode(value)


def _unpack(value):
    return msgspec.msgpack.decode(value) if isinstance(value, bytes) else [_unpack(part) for part in value]


@settings(max_examples=60, deadline=None)
@given(body=bodies(), value=st.lists(st.integers(0, 3), max_size=3))
def test_a_body_gives_the_same_answer_however_it_is_worked_out(body, value):
    workflow = App.workflow(_fresh(), "w", body)
    expected = directly(body, value)
    assert workflow(value) == expected
    assert live(workflow, value) == expected


@settings(max_examples=60, deadline=None)
@given(body=bodies())
def test_any_body_keeps_the_rules_of_the_model(body):
    spec = App.workflow(_fresh(), "w", body).spec
    stages = scenario_of(
        Manifest(name="bodies", functions=tuple(f.spec for f in FUNCTIONS), workflows=(spec,))
    ).workflows["w"]
    assert workflow_faults(stages.stages) == []
    seen = set()
    for stage in spec.stages:
        assert seen.issuperset(stage.after)
        seen.add(stage.name)


def _fresh():
    """The app, without the workflows of earlier examples."""
    app._workflows.clear()
    return app
