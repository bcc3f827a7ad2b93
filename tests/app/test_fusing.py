"""`fuse=` and `compete=` of a workflow: which stages become one, what that one needs, and what is refused."""

import msgspec
import pytest

from fairlead.app import App, each, fork, switch
from fairlead.app.composed import composed, with_fused
from fairlead.app.dsl import write_workflow
from fairlead.app.fusion import fuse_manifest, unfused_manifest
from fairlead.app.manifest import Manifest, Output
from fairlead.app.scenario import scenario_of
from fairlead.app.serving import served_scenario
from fairlead.model import Configuration
from fairlead.profile import Host
from fairlead.profile.measured import ColdStart, Machine, MeasuredFunction, MeasuredProfiles, Point


def app_of(**specs):
    """An app with functions a to e, each of which adds its name to a text; `specs` has their arguments by name."""
    app = App("test")
    made = []
    for name in "abcde":
        options = specs.get(name, {})
        is_batched = "batch" in options
        code = (lambda xs, n=name: [x + n for x in xs]) if is_batched else (lambda x, n=name: x + n)
        made.append(app.function(name=name, **options)(code))
    return app, *made


def stages(workflow):
    return [(stage.name, stage.after) for stage in workflow.spec.stages]


def test_every_chain_is_fused_and_gives_the_same_answer():
    app, a, b, c, d, _ = app_of(b={"batch": 4})
    assert app.workflow("plain", a >> b >> c >> d)("-") == "-abcd"
    fused = app.workflow("fused", a >> b >> c >> d, fuse=True)
    assert fused("-") == "-abcd"
    assert stages(fused) == [("a+b+c+d", ())]
    assert fused.spec.answer == Output("a+b+c+d")
    assert app.functions["a+b+c+d"](["-", "+"]) == ["-abcd", "+abcd"]


@pytest.mark.parametrize("form", ["b+c", ["b+c"], [("b", "c")], ("b", "c")], ids=str)
def test_a_chain_can_be_written_in_several_ways(form):
    app, a, b, c, d, _ = app_of()
    assert stages(app.workflow("w", a >> b >> c >> d, fuse=form)) == [("a", ()), ("b+c", ("a",)), ("d", ("b+c",))]
    assert stages(app.workflow("v", a >> b >> c >> d, fuse=[(b, c)])) == [("a", ()), ("b+c", ("a",)), ("d", ("b+c",))]


def test_no_chain_goes_across_a_fork_an_each_or_a_switch():
    app, a, b, c, d, e = app_of()
    forked = app.workflow("fork", a >> b >> fork(c, d) >> e, fuse=True)
    assert stages(forked) == [("a+b", ()), ("c", ("a+b",)), ("d", ("a+b",)), ("e", ("c", "d"))]
    mapped = app.workflow("each", a >> b >> each(c >> d) >> e, fuse=True)
    assert [(s.name, s.after, s.map, s.join, s.splits) for s in mapped.spec.stages] == [
        ("a+b", (), None, False, True),
        ("c+d", ("a+b",), (1, 16), False, False),
        ("e", ("c+d",), None, True, False),
    ]
    chosen = app.workflow("switch", a >> b >> switch(lambda x: x == "ab", {True: c >> d, False: None}) >> e, fuse=True)
    first, arm, last = chosen.spec.stages
    assert (first.name, first.chooses, first.arms) == ("a+b", True, {"true": "c+d", "false": None})
    assert (arm.name, arm.after, arm.when, last.after) == ("c+d", ("a+b",), 0.5, ("c+d", "a+b"))
    assert (chosen(""), chosen("-")) == ("abcde", "-abe")


REFUSED = {
    "[(a, c)]": "fuse: a and c cannot be fused: c does not follow a.",
    "[(a, b), (b, c)]": "fuse: stage 'b' is in two chains.",
    "'a+x'": "fuse: there is no stage 'x'. Stages: a, b, c.",
    "'a'": "fuse: a chain has at least two stages; got a.",
    "7": "fuse: must be True, 'a+b', [(a, b)] or ['a+b', 'c+d']; got 7.",
    "[(d, a)]": "fuse: the workflow has no stage that calls 'd'; stages: a, b, c.",
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_cannot_be_fused_is_refused_with_the_reason(form):
    app, a, b, c, d, _ = app_of()
    with pytest.raises(ValueError, match="workflow 'w'") as caught:
        app.workflow("w", a >> b >> c, fuse=eval(form, {"a": a, "b": b, "c": c, "d": d}))
    assert str(caught.value) == f"workflow 'w': {REFUSED[form]}"
    assert list(app.workflows) == []


def test_boundaries_are_named_where_a_chain_would_cross_them():
    app, a, b, c, d, _ = app_of(c={"vcpus": 2})
    for body, chain, reason in (
        (a >> fork(b, d), "a+b", "d takes what a gives too"),
        (fork(a, b) >> d, "a+d", "d waits for b too"),
        (a >> each(b), "a+b", "b runs for each item of what a gives"),
        (a >> each(b) >> d, "b+d", "d waits for all items of an each"),
        (a >> switch(lambda x: "y", {"y": b, "n": d}), "a+b", "b is an arm of a switch"),
        (a >> c, "a+c", "they have no vcpus in common"),
    ):
        with pytest.raises(ValueError, match=f"cannot be fused: {reason}."):
            app.workflow("w", body, fuse=chain)


def test_a_fused_function_needs_what_its_parts_need():
    app, a, b, c, *_ = app_of(
        a={"vcpus": (1, 2), "memory_gb": 0.5, "retries": 2, "run_limit_s": 10, "start_limit_s": 5, "warm": 2},
        b={"vcpus": (2, 4), "memory_gb": 1, "retries": 1, "run_limit_s": 3, "start_limit_s": 7, "batch": (1, 2, 8)},
        c={"vcpus": 2, "batch": (2, 4, 8), "keep_alive_s": 900},
    )
    app.workflow("w", a >> b, fuse=True)
    spec = app.functions["a+b"].spec
    assert (spec.batch, spec.vcpus, spec.memory_gb, spec.retries) == ((1, 2, 8), (2.0,), 1.5, 1)
    assert spec.run_limit_s == 8 * 10 + 3  # a runs item by item
    assert (spec.start_limit_s, spec.warm, spec.parts) == (12.0, 2, ("a", "b"))
    app.workflow("v", b >> c, fuse=True)
    spec = app.functions["b+c"].spec
    assert (spec.batch, spec.memory_gb, spec.keep_alive_s) == ((2, 8), 0.0, 900)  # no limit, as c has none


def test_fusion_in_one_workflow_leaves_the_others_alone():
    app, a, b, c, *_ = app_of()
    app.workflow("one", a >> b >> c, fuse="a+b")
    before = app.workflow("two", b >> c).spec
    manifest = app.manifest()
    assert [spec.name for spec in manifest.functions] == ["b", "c", "d", "e", "a+b"]
    assert [spec.name for spec in manifest.parts] == ["a"]  # no workflow calls it by itself
    assert manifest.workflows[1] == before
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest) == manifest
    plain = unfused_manifest(manifest)
    assert sorted(spec.name for spec in plain.functions) == ["a", "b", "c", "d", "e"]
    assert [stage.name for stage in plain.workflows[0].stages] == ["a", "b", "c"]
    assert fuse_manifest(plain, {"one": [("a", "b")]}).workflows == manifest.workflows


def test_copies_of_a_stage_compete():
    app, a, b, c, *_ = app_of()
    workflow = app.workflow("w", a >> b >> c, compete={a: 3, "b+c": 2}, fuse="b+c")
    assert [(s.name, s.compete) for s in workflow.spec.stages] == [("a", 3), ("b+c", 2)]
    assert [stage.compete for stage in scenario_of(app.manifest()).workflows["w"].stages] == [3, 2]
    assert stages(app.workflow("v", a >> b >> c, compete={b: 2}, fuse=True)) == [
        ("a", ()),
        ("b", ("a",)),
        ("c", ("b",)),
    ]
    for wrong, reason in (({"x": 2}, "no stage 'x'"), ({"a": 17}, "from 1 to 16; got 17"), ([a], "number of copies")):
        with pytest.raises(ValueError, match=f"workflow 'bad': compete: .*{reason}"):
            app.workflow("bad", a >> b, compete=wrong)


def test_a_document_keeps_what_is_fused_and_what_competes():
    app, a, b, c, d, _ = app_of()
    written = app.workflow("w", a >> b >> c >> d, fuse=["a+b", "c+d"], compete={"c+d": 2}, slo="1s")
    other = app_of()[0]
    assert other.workflow_from(write_workflow(written)).spec == written.spec


def measured(seconds, cpu_s=None, batches=(1,), setup_s=0.1):
    points = tuple(Point(batch=batch, mean_s=seconds * batch, p50_s=seconds * batch, cpu_s=cpu_s) for batch in batches)
    cold = ColdStart(mean_s=0.3 + setup_s, p95_s=0.3 + setup_s, process_s=0.2, load_s=0.1, setup_s=setup_s)
    return MeasuredFunction(points=points, cold_start=cold, noise=0.1, output_mb=seconds)


def test_a_profile_is_composed_from_the_parts_with_one_hop():
    app, a, b, *_ = app_of(b={"batch": 2})
    app.workflow("w", a >> b, fuse=True)
    specs = [app.functions[name].spec for name in ("a", "b")]
    parts = [(specs[0], measured(0.011, 0.008)), (specs[1], measured(0.021, 0.02, (1, 2), setup_s=0.5))]
    found = composed(app.functions["a+b"].spec, parts, hop_s=0.001)
    # In a batch of two, a runs twice and b once on both; the hop to the instance comes once.
    assert [(p.batch, p.mean_s, p.cpu_s) for p in found.points] == [
        (1, pytest.approx(0.001 + 0.010 + 0.020), pytest.approx(0.028)),
        (2, pytest.approx(0.001 + 2 * 0.010 + 0.041), pytest.approx(0.036)),
    ]
    assert found.cold_start.mean_s == pytest.approx(0.2 + 0.1 + 0.1 + 0.5)  # one process, one load, both setups
    assert found.output_mb == 0.021


def test_a_measured_fused_function_is_not_composed():
    app, a, b, *_ = app_of()
    app.workflow("w", a >> b, fuse=True)
    manifest = app.manifest()
    own = {"a": measured(0.1), "b": measured(0.2), "c": measured(1), "d": measured(1), "e": measured(1)}
    profiles = MeasuredProfiles(app="test", machine=Machine(cpu="x", cores=1, limits=""), functions=own)
    one = Configuration()
    assert with_fused(profiles, manifest).profiles()["a+b"].law.mean_s(one, "n") == pytest.approx(0.3)
    known = msgspec.structs.replace(profiles, functions={**own, "a+b": measured(0.25)})
    assert with_fused(known, manifest) is known
    scenario = served_scenario(manifest, profiles, Host(cores=1, hop_s=0.05))
    assert scenario.profiles["a+b"].law.mean_s(one, "local") == pytest.approx(0.25)
    assert sorted(scenario.functions) == ["a+b", "c", "d", "e"]
