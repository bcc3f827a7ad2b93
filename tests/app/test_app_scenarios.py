"""The same app file for the simulator and the planner: what becomes of functions, nodes and workflows."""

import json
import os
from math import inf

import pytest
from typer.testing import CliRunner

from fairlead.app import App, each, switch
from fairlead.app.scenario import cluster_of, document_of, prior_s, profile_beside, scenario_of, workflow_of
from fairlead.cli import app as cli
from fairlead.engine import simulate
from fairlead.errors import ConfigError
from fairlead.model import Cluster, Configuration, Device, Node
from fairlead.planning.outline import outline
from fairlead.profile import Profile, Row, Table
from fairlead.report import summarise
from fairlead.workload import PolicyChoice, parse_scenario

APP = """
from fairlead import App

app = App("shop", policy="earliest-deadline")
app.node("box", vcpus=4, memory_gb=8)


@app.function(batch=4, vcpus=(1, 2))
def detect(xs):
    return xs


@app.function
def store(x):
    return x


app.workflow("w", detect >> store, slo="50ms")
"""


def _app(**settings):
    app = App("shop", **settings)
    return app, [app.function(name=name)(lambda x: [x]) for name in ("a", "b", "c", "d")]


def test_an_app_becomes_a_scenario():
    app, (a, b, *_) = _app(policy="earliest-deadline", parameters={"headroom": 0.2})
    f = app.function(name="f", batch=2, vcpus=(1, 2), retries=3, run_limit_s=2, memory_gb=0.5)(lambda xs: xs)
    app.node("fast", vcpus=2, memory_gb=4)
    app.node("slow", vcpus=1, speed=0.5)
    app.workflow("w", a >> each(f, items=(2, 6)) >> b, slo="800ms", cost_usd=0.01)
    scenario = scenario_of(app.manifest(), rate_rps=7, duration_s=20)

    assert scenario.policy == PolicyChoice(name="earliest-deadline", parameters={"headroom": 0.2})
    assert [(node.name, node.kind, node.vcpus, node.memory_gb, node.speed) for node in scenario.cluster.nodes] == [
        ("fast", "fast", 2.0, 4.0, 1.0),
        ("slow", "slow", 1.0, inf, 0.5),
    ]
    function = scenario.functions["f"]
    assert (function.memory_gb, function.retries, function.run_limit_s, function.start_limit_s) == (0.5, 3, 2.0, 60.0)
    assert function.idle_holds == "memory"
    assert scenario.profiles["f"].configurations == tuple(
        Configuration(batch=batch, vcpus=vcpus) for batch in (1, 2) for vcpus in (1.0, 2.0)
    )
    workflow = scenario.workflows["w"]
    assert (workflow.slo.latency_s, workflow.slo.cost_usd) == (0.8, 0.01)
    assert [(stage.name, stage.after, stage.map, stage.join) for stage in workflow.stages] == [
        ("a", (), None, False),
        ("f", ("a",), (2, 6), False),
        ("b", ("f",), None, True),
    ]
    assert (scenario.arrivals[0].rate_rps, scenario.duration_s) == (7, 20)


def test_what_nobody_measured_is_assumed():
    app, (a, *_) = _app()
    app.function(name="f", batch=8)(lambda xs: xs)
    app.workflow("w", a)
    profile = scenario_of(app.manifest()).profiles["f"]
    assert [profile.latency_s(Configuration(batch=n), "local") for n in (1, 2, 4, 8)] == [0.01, 0.012, 0.016, 0.024]
    assert prior_s(8) == 0.024
    assert profile.cold_start_s == 0.3
    assert scenario_of(app.manifest()).workflows["w"].slo.latency_s == inf


def test_without_nodes_this_machine_is_the_only_one():
    app, (a, *_) = _app()
    app.workflow("w", a)
    (node,) = cluster_of(app.manifest()).nodes
    assert (node.name, node.kind, node.vcpus) == ("local", "local", len(os.sched_getaffinity(0)))
    assert 0.1 < node.memory_gb < inf


def test_a_measured_profile_goes_before_the_prior():
    app, (a, *_) = _app()
    app.workflow("w", a)
    measured = Profile(law=Table((Row(seconds=0.2), Row(seconds=0.3, batch=2))), cold_start_s=1.0, noise=0.1)
    profile = scenario_of(app.manifest(), profiles={"a": measured}).profiles["a"]
    assert profile.configurations == (Configuration(),)  # the app has no batches of two
    assert (profile.latency_s(Configuration(), "local"), profile.cold_start_s) == (0.2, 1.0)
    other = Profile(law=Table((Row(seconds=0.2, vcpus=4),)))
    with pytest.raises(ConfigError, match=r"functions\.a: its profile says nothing of the configurations"):
        scenario_of(app.manifest(), profiles={"a": other})


def test_configurations_that_no_node_holds_are_left_out():
    app, (a, *_) = _app(nodes=())
    app.node("small", vcpus=2, memory_gb=2)
    app.function(name="wide", vcpus=(1, 2, 4), gpu=(0, 1))(lambda x: x)
    app.workflow("w", a)
    scenario = scenario_of(app.manifest())
    assert [(c.vcpus, c.vgpus) for c in scenario.profiles["wide"].configurations] == [(1, 0), (2, 0)]
    gpus = Cluster(nodes=(Node(name="gpu", kind="gpu", vcpus=8, devices=(Device(vgpus=1),)),))
    assert len(scenario_of(app.manifest(), cluster=gpus).profiles["wide"].configurations) == 6


def test_a_function_that_no_node_holds_is_refused_with_all_others():
    app, (a, *_) = _app()
    app.node("small", vcpus=2, memory_gb=2)
    app.function(name="wide", vcpus=4)(lambda x: x)
    app.function(name="large", memory_gb=3)(lambda x: x)
    app.function(name="model", gpu=1)(lambda x: x)
    app.workflow("w", a)
    with pytest.raises(ConfigError) as caught:
        scenario_of(app.manifest())
    faults = {fault.path: fault.message for fault in caught.value.faults}
    assert faults["functions.wide"] == (
        "no node can hold an instance of it: it needs at least 1x 4 vCPU; there is 2 vCPU and 2 GB."
    )
    assert faults["functions.large"].endswith("it needs at least 1x 1 vCPU and 3 GB; there is 2 vCPU and 2 GB.")
    assert faults["functions.model"].endswith(
        "there is 2 vCPU and 2 GB and no GPU. Serve it where there is one, or leave gpu= out."
    )


def test_a_gpu_share_that_no_gpu_has_is_refused_with_what_there_is():
    app = App("shares")
    one, three = (app.function(name=name, gpu=gpu)(lambda x: x) for name, gpu in (("one", 1), ("three", 3)))
    app.workflow("w", one >> three)
    gpus = (
        Device(vgpus=7, sharing="mig", partition=(2, 1, 1), is_fixed=True, serves="functions"),
        Device(vgpus=2, serves="functions"),
        Device(vgpus=7, serves="kernels"),
        Device(vgpus=7).lost(),
    )
    cluster = Cluster(nodes=(Node(name="n", kind="n", vcpus=4, devices=gpus),))
    with pytest.raises(ConfigError) as caught:
        scenario_of(app.manifest(), cluster=cluster)
    (fault,) = caught.value.faults
    assert fault.path == "functions.three"
    assert fault.message.endswith("and GPUs with MIG 2+1+1, 2 vGPUs. Choose a gpu= that one of them has.")


def test_what_becomes_of_lost_work_is_the_apps_to_say():
    for on_loss in ("retry", "fail"):
        app = App("careful", on_loss=on_loss)
        app.workflow("w", app.function(name="f")(lambda x: x))
        assert scenario_of(app.manifest()).on_loss == on_loss
    with pytest.raises(ValueError, match="on_loss must be 'retry' or 'fail'; got 'never'"):
        App("careless", on_loss="never")


def test_the_document_of_an_app_reads_as_its_scenario():
    app, (a, b, c, d) = _app(policy="earliest-deadline")
    app.node("fast", vcpus=2, memory_gb=4)
    app.node("slow", vcpus=1, speed=0.5)
    body = a >> each(b >> switch(len, {1: c, 0: None}, weights={1: 3, 0: 1}), items=(2, 6)) >> d
    app.workflow("w", body, slo="800ms")
    app.workflow("v", a)
    scenario = scenario_of(app.manifest())
    assert parse_scenario(document_of(scenario), "shop") == scenario


def test_the_simulator_runs_an_app():
    app, (a, b, c, d) = _app(policy="earliest-deadline")
    app.node("box", vcpus=4)
    workflow = app.workflow("w", a >> each(b) >> switch_after(c, d), slo="800ms")
    assert workflow_of(workflow.spec).functions == ("a", "b", "c", "d")
    summary = summarise(simulate(scenario_of(app.manifest(), rate_rps=2, duration_s=20)))
    assert summary.requests > 10
    assert summary.slo_attainment > 0.5


def switch_after(c, d):
    return c >> switch(len, {1: d, 0: None})


def test_profiles_are_found_beside_the_file(tmp_path):
    assert profile_beside(tmp_path / "app.py") == {}
    (tmp_path / "app.profile.json").write_text("not JSON")
    with pytest.raises(ConfigError, match=r"app\.profile\.json"):
        profile_beside(f"{tmp_path / 'app.py'}:app")


def _planned():
    """One function with a dear and a cheap way, and one that needs 20 ms."""
    app = App("plan")
    slow = app.function(name="slow", vcpus=(1, 4))(lambda x: x)
    fixed = app.function(name="fixed")(lambda x: x)
    app.workflow("w", slow >> fixed)
    profiles = {
        "slow": Profile(law=Table((Row(seconds=0.1), Row(seconds=0.04, vcpus=4)))),
        "fixed": Profile(law=Table((Row(seconds=0.02),))),
    }
    cluster = Cluster(nodes=(Node(name="n", kind="n", vcpus=8),))
    return scenario_of(app.manifest(), profiles=profiles, cluster=cluster)


@pytest.mark.parametrize(
    ("slo_s", "is_met", "vcpus", "latency_s"),
    [(0.2, True, 1, 0.12), (0.12, True, 1, 0.12), (0.1, True, 4, 0.06), (0.05, False, 4, 0.06), (None, True, 1, 0.12)],
    ids=["loose", "exactly", "tight", "impossible", "no-objective"],
)
def test_the_cheapest_configuration_that_is_fast_enough(slo_s, is_met, vcpus, latency_s):
    found = outline(_planned(), "w", slo_s=slo_s)
    assert (found.is_met, found.stages[0].configuration.vcpus) == (is_met, vcpus)
    assert found.latency_s == pytest.approx(latency_s)
    usd_per_s = 0.034 / 3600
    assert found.cost_usd == pytest.approx((0.1 if vcpus == 1 else 0.16) * usd_per_s + 0.02 * usd_per_s)


def test_the_cost_counts_items_chances_and_full_batches():
    app = App("plan")
    a = app.function(name="a")(lambda x: [x])
    b = app.function(name="b", batch=(2,))(lambda xs: xs)
    app.workflow("w", a >> each(b >> switch(len, {1: a, 0: None}, weights={1: 1, 0: 3}), items=(4, 8)))
    found = outline(scenario_of(app.manifest(), cluster=Cluster(nodes=(Node(name="n", kind="n", vcpus=8),))), "w")
    usd_per_s = 0.034 / 3600
    assert [way.runs for way in found.stages] == [1, 6, 1.5]
    expected = (0.01 * 1, 0.012 / 2 * 6, 0.01 * 1.5)
    assert [way.cost_usd for way in found.stages] == [pytest.approx(seconds * usd_per_s) for seconds in expected]


def _run(*arguments, code=0):
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == code, done.stderr + done.stdout
    return done


def test_an_app_file_is_simulated_and_planned_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    done = _run("simulate", "app.py", "--set", "arrivals.0.rate_rps=40", "--set", "duration_s=5", "--json", "-")
    requests = json.loads(done.stdout)["results"][0]["requests"]
    assert 100 < requests < 400  # 40 a second for 5 s
    plan = json.loads(_run("plan", "app.py:app", "--slo", "800ms", "--json").stdout)
    assert (plan["is_met"], plan["slo_s"]) == (True, 0.8)
    assert [(stage["stage"], stage["batch"], stage["vcpus"]) for stage in plan["stages"]] == [
        ("detect", 4, 1.0),
        ("store", 1, 1.0),
    ]
    assert plan["latency_s"] == pytest.approx(0.026)
    assert "Verdict (50 ms): can be met: the cheapest takes 26 ms" in _run("plan", "app.py").stdout
    refused = _run("plan", "app.py", "--slo", "15ms", code=1)
    assert "Verdict (15 ms): cannot: the fastest possible is 20 ms" in refused.stdout


def test_wrong_use_is_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP + "\napp.workflow('v', store)\n")
    assert "has several workflows; name one with --workflow: w, v" in _run("plan", "app.py", code=2).stderr
    assert "No workflow named 'x'" in _run("plan", "app.py", "-w", "x", code=2).stderr
    wrong = _run("plan", "app.py", "-w", "v", "--slo", "soon", code=2).stderr
    assert "--slo must be a positive duration" in wrong
    (tmp_path / "app.py").write_text("1 / 0\n")
    assert "app.py: line 1: ZeroDivisionError" in _run("simulate", "app.py", code=2).stderr
    assert "none.py: cannot be read" in _run("simulate", "none.py", code=2).stderr
