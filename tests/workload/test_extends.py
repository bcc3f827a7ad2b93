"""Scenario files that extend others, and streams that several workflows share."""

import pytest

from fairlead.errors import ConfigError
from fairlead.workload import Share, load_scenario

BASE = """
cluster: {nodes: [{name: n, vcpus: 4}]}
functions: {f: {latency: {constant_s: 0.1}}}
workflows: {first: {stages: {f: []}, slo: {latency_s: 1}}, second: {stages: {f: []}}}
arrivals: [{workflow: first, process: poisson, rate_rps: 2}]
duration_s: 10
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path


def extend(folder, text, name="own.yaml"):
    (folder / name).write_text(text)
    return load_scenario(folder / name)


def test_own_settings_lie_over_the_base(folder):
    found = extend(folder, "extends: base.yaml\nduration_s: 20\nworkflows: {first: {slo: {latency_s: 3}}}\n")
    assert found.name == "own"
    assert found.duration_s == 20
    assert found.workflows["first"].slo.latency_s == 3
    assert [stage.name for stage in found.workflows["first"].stages] == ["f"]
    assert "second" in found.workflows


def test_lists_are_replaced_whole(folder):
    found = extend(folder, "extends: base.yaml\narrivals: [{workflow: second, process: poisson, rate_rps: 1}]\n")
    assert [each.workflow for each in found.arrivals] == ["second"]


def test_null_leaves_out_what_the_base_has(folder):
    assert list(extend(folder, "extends: base.yaml\nworkflows: {second: null}\n").workflows) == ["first"]


def test_a_chain_of_files_is_followed(folder):
    extend(folder, "extends: base.yaml\nduration_s: 20\n", "middle.yaml")
    assert extend(folder, "extends: middle.yaml\nwarmup_s: 1\n").duration_s == 20


def test_a_shipped_scenario_can_be_extended(folder):
    assert extend(folder, "extends: quickstart\nduration_s: 7\n").duration_s == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: own.yaml", "leads back or too far"),
        ("extends: 3", "extends must be a file or a shipped scenario's name; got 3"),
        ("extends: missing.yaml", "there is no such file"),
    ],
)
def test_what_cannot_be_extended_is_said(folder, text, message):
    with pytest.raises(ConfigError) as error:
        extend(folder, text + "\n")
    assert message in str(error.value).replace("extends: must", "extends must")


def test_several_workflows_share_one_stream(folder):
    found = extend(
        folder,
        "extends: base.yaml\narrivals: [{workflows: {first: 1, second: 3}, process: poisson, rate_rps: 8}]\n",
    )
    assert [(each.workflow, each.low, each.high) for each in found.arrivals if isinstance(each, Share)] == [
        ("first", 0.0, 0.25),
        ("second", 0.25, 1.0),
    ]
    assert [each.expected(10) for each in found.arrivals] == [20, 60]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{workflows: {third: 1}, process: poisson, rate_rps: 8}", "no workflow 'third'"),
        ("{workflows: {first: 0}, process: poisson, rate_rps: 8}", "must be positive"),
        ("{workflows: {}, process: poisson, rate_rps: 8}", "name at least one"),
        ("{workflow: first, workflows: {first: 1}, process: poisson, rate_rps: 8}", "must be left out"),
        ("{workflows: {first: 1, second: 1}, process: poisson, load: 0.5}", "defined for one workflow only"),
        ("{workflows: {first: 1, second: 1}, process: closed-loop, users: 2, think_s: 1}", "closed loop"),
    ],
)
def test_a_wrong_share_is_a_fault(folder, entry, message):
    with pytest.raises(ConfigError, match=message):
        extend(folder, f"extends: base.yaml\narrivals: [{entry}]\n")
