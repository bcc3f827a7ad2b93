"""A simulation of an app begins as `fairlead serve` does: what each assumes where nothing is said."""

from dataclasses import fields, replace
from inspect import signature

import pytest

from fairlead.app.describe import take_snapshot
from fairlead.app.serving import MAX_CONNECTIONS
from fairlead.cli.choices import choose_scenarios
from fairlead.cli.serve import serve
from fairlead.engine import simulate
from fairlead.engine.live.gateway.settings import Settings
from fairlead.engine.live.host import Host as LiveHost
from fairlead.engine.live.host import Options
from fairlead.engine.live.known import Source
from fairlead.profile.host import Host, MachineProfile
from fairlead.workload.arrivals import Listed

APP = """
from fairlead import App

app = App("shop", policy="earliest-deadline", parameters={"headroom": 0.2})
app.node("box", vcpus=4, memory_gb=8)


@app.function(batch=4, vcpus=(1, 2), warm=2, retries=1, keep_alive_s=30)
def detect(xs):
    return xs


@app.function
def store(x):
    return x


app.workflow("w", detect >> store, slo="50ms", compete={"store": 2}, fuse=False)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nothing-measured"))
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


def simulated(path, machine=None):
    ((_, scenario),) = choose_scenarios(str(path), [], None, [], machine)
    return scenario


def test_both_tell_the_controller_the_same(file, tmp_path):
    host = LiveHost(tmp_path / "state", Options(), lambda line: None)
    try:
        live = host._scenario(Source(file, take_snapshot(file)))
    finally:
        host._store.close()
    ours = simulated(file)
    names = {field.name for field in fields(live)} - {"host"}
    assert {name for name in names if getattr(ours, name) != getattr(live, name)} == set()


def test_defaults_of_serve_are_those_of_a_simulation(file):
    chosen = {name: parameter.default for name, parameter in signature(serve).parameters.items()}
    assert (chosen["policy"], chosen["scaler"], chosen["overcommit"], chosen["nodes"]) == (None, None, None, None)
    settings = Settings(state=file.parent)
    assert settings.max_connections == MAX_CONNECTIONS
    assert chosen["max_open"] == settings.max_open == Host(cores=1).max_open
    expected = min(settings.max_open, settings.max_connections)
    assert simulated(file).host.max_open == expected
    assert simulated(file, MachineProfile(host=Host(cores=2))).host.max_open == expected
    assert all(node.overcommit == 1 for node in simulated(file).cluster.nodes)


@pytest.mark.parametrize("is_measured", [False, True])
def test_the_first_request_meets_warm_instances(file, is_measured):
    machine = MachineProfile(host=Host(cores=4, request_s=0.001)) if is_measured else None
    run = replace(simulated(file, machine), arrivals=(Listed("w", (0.0,)),), duration_s=1.0)
    recording = simulate(run, "fifo")
    # Nothing was measured of the functions: each takes the 10 ms that are assumed, and no cold start of 300 ms.
    (latency_s,) = (recording.requests["end"] - recording.requests["arrival"]).to_list()
    assert latency_s == pytest.approx(0.020 + 0.001 * is_measured)
    assert recording.instances.filter(function="detect").height == 2


def test_dag_admission_promises_the_first_request_what_is_warm_and_starts_nothing_more(file):
    run = replace(simulated(file), arrivals=(Listed("w", (0.0,)),), duration_s=1.0)
    recording = simulate(run, "dag-admission")
    assert recording.requests["outcome"].to_list() == ["completed"]
    warm = {name: function.warm for name, function in run.functions.items()}
    assert dict(recording.instances.group_by("function").len().rows()) == warm
