"""Workflows: stages in order, branches, maps and joins; and what is wrong with those that are none."""

import pytest

from fairlead.model import SLO, Stage, Workflow, workflow_faults


def stage(name, *after, **more):
    return Stage(name=name, function="f", after=after, **more)


def workflow(*stages):
    return Workflow(name="w", stages=stages)


def test_chain_runs_one_after_the_other():
    chain = Workflow.chain("w", "a", "b", "c", slo=SLO(latency_s=2))
    assert [(s.name, s.after) for s in chain.stages] == [("a", ()), ("b", ("a",)), ("c", ("b",))]
    assert [s.function for s in chain.stages] == ["a", "b", "c"]
    assert chain.slo.latency_s == 2


def test_stages_are_put_in_order():
    assert [s.name for s in workflow(stage("c", "b"), stage("b", "a"), stage("a")).stages] == ["a", "b", "c"]


def test_order_of_declaration_is_kept_where_it_may():
    names = [s.name for s in workflow(stage("z"), stage("m", "z"), stage("b", "z"), stage("a", "m", "b")).stages]
    assert names == ["z", "m", "b", "a"]


def test_functions_are_listed_once():
    two = Workflow(name="w", stages=(Stage(name="a", function="g"), stage("b", "a"), stage("c", "b")))
    assert two.functions == ("g", "f")


def test_regions_run_from_map_to_join():
    found = workflow(
        stage("a"), stage("m", "a", map=(1, 4)), stage("b", "m", "a"), stage("j", "b", join=True), stage("z", "j")
    )
    assert dict(found.regions) == {"a": None, "m": "m", "b": "m", "j": None, "z": None}


@pytest.mark.parametrize(
    ("stages", "path", "complaint"),
    [
        ((), "", "at least one stage"),
        ((stage("a"), stage("a")), "a", "declared twice"),
        ((stage("a"), stage("b", "aa")), "b.after", "no stage 'aa'. Did you mean 'a'"),
        ((stage("a"), stage("b", "a", "a")), "b.after", "listed twice"),
        ((stage("a", "b"), stage("b", "a")), None, "cycle"),
        ((stage("a"), stage("b", "a", when=1.5)), "b.when", "in [0, 1]; got 1.5"),
        ((stage("a", when=0.5),), "a.when", "exactly one predecessor; got 0"),
        ((stage("a"), stage("b", "a", when=0.6), stage("c", "a", when=0.6)), "a", "sum to 1.2"),
        ((stage("a", map=(0, 3)),), "a.map", "at least 1 and in order; got 0 to 3"),
        ((stage("a", map=(3, 2)),), "a.map", "in order; got 3 to 2"),
        ((stage("a"), stage("b"), stage("m", "a", "b", map=(1, 2))), "m.map", "at most one predecessor"),
        ((stage("a"), stage("b", "a", join=True)), "b.join", "no map before"),
        ((stage("a"), stage("m", "a", map=(1, 2)), stage("n", "m", map=(1, 2))), "n.map", "inside the map of 'm'"),
        ((stage("a"), stage("m", "a", map=(1, 2)), stage("n", "a", map=(1, 3))), "n.map", "same number of items"),
        ((stage("m", map=(1, 2)), stage("n", map=(1, 2)), stage("b", "m", "n")), "b.after", "add 'join: true'"),
        ((stage("a"), stage("m", "a", map=(1, 2), join=True)), "m.join", "map and join at once"),
    ],
)
def test_faults_are_named_where_they_are(stages, path, complaint):
    (fault,) = workflow_faults(stages)
    assert path is None or fault.path == path
    assert complaint in fault.message
    with pytest.raises(ValueError, match=r"\w"):
        Workflow(name="w", stages=stages)


def test_all_faults_come_at_once():
    faults = workflow_faults((stage("a", "x", when=2.0), stage("b", "y")))
    assert [fault.path for fault in faults] == ["a.after", "a.when", "b.after"]
