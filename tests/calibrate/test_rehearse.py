"""What a rehearsal makes of a simulation: steps of its fit, and the arms and items that were seen."""

import time
from dataclasses import replace

import polars as pl
import pytest
from msgspec import structs

from fairlead.app.describe import describe
from fairlead.calibrate.agree import _corrected, _delays_s, _has_settled, _line, _simulated, _wanted, fit_rehearsal
from fairlead.calibrate.offered import calls_of
from fairlead.calibrate.rehearse import Rehearsal, Rehearsed, Runs, _seen, plan_of
from fairlead.calibrate.speed import SpeedProbe, mean_of
from fairlead.errors import ConfigError
from fairlead.load import Call, Closed, Open
from fairlead.profile import Host
from fairlead.profile.laws import Row, Table
from fairlead.profile.measured import Machine as MeasuredMachine
from fairlead.profile.measured import MeasuredFunction, MeasuredProfiles, Point, Served, parse_measured, write_measured
from fairlead.testing import cluster, declared, scenario


def load(run_s, gateway_cpu_s=1.0, rate_rps=10.0, refused=0, in_time=1.0, policy="fairlead"):
    return Rehearsed(
        policy=policy,
        rate_rps=rate_rps,
        gateway_cpu_s=gateway_cpu_s,
        runs=(Runs("f", 1.0, 100, 1.0, run_s),),
        in_time=in_time,
        refused=refused,
    )


START = Served(capacity_rps=10.0, rates_rps=(2.5, 15.0), cold_factor=1.0)


def made(host=None):
    one = scenario(declared(0.010), arrivals=[], on=cluster(vcpus=2))
    functions = {name: structs.replace(function, warm=1) for name, function in one.functions.items()}
    return replace(one, functions=functions, host=host or Host(cores=2, request_s=1e-4, answer_s=1e-4))


def test_one_step_makes_good_four_fifths_of_a_difference():
    found = _corrected(made(), START, [load(0.013)] * 3, [load(0.012)] * 3)
    assert found.run_s["f"] + found.run_share["f"] * 0.010 == pytest.approx(0.8 * 0.001)


def test_sizes_tell_a_fixed_time_from_one_that_grows():
    """Runs of 10 and 20 ms take 3 and 4 ms longer: 2 ms, and a tenth. Without a second size nothing grows."""
    fixed_s, share = _line([(0.010, 0.003, 100.0), (0.020, 0.004, 100.0)])
    assert (fixed_s, share) == (pytest.approx(0.002), pytest.approx(0.1))
    assert _line([(0.010, 0.003, 100.0), (0.011, 0.005, 300.0)]) == (pytest.approx(0.0045), 0.0)
    assert _line([(0.0, 0.001, 100.0), (0.0, 0.002, 100.0)]) == (pytest.approx(0.0015), 0.0)  # nothing but the way
    fixed_s, share = _line([(0.010, 0.001, 100.0), (0.020, 0.006, 100.0)])  # no fixed time is negative
    assert (fixed_s, share) == (0.0, pytest.approx((0.01 * 0.001 + 0.02 * 0.006) / (0.01**2 + 0.02**2)))


def test_runs_are_compared_with_those_on_as_many_vcpus():
    """On two vCPUs the function takes 4 ms alone and 1 ms longer live; the simulated runs on one vCPU do not matter."""
    table = Table((Row(seconds=0.010, vcpus=1.0), Row(seconds=0.004, vcpus=2.0)))
    one = made()
    both = replace(
        one, profiles={"f": structs.replace(one.profiles["f"], law=table, configurations=table.configurations())}
    )
    real = structs.replace(load(0.0), runs=(Runs("f", 2.0, 100, 1.0, 0.005),))
    simulated = structs.replace(load(0.0), runs=(Runs("f", 1.0, 100, 1.0, 0.011), Runs("f", 2.0, 100, 1.0, 0.004)))
    assert list(_wanted(both, START, "f", [real], [simulated])) == [(pytest.approx(0.004), pytest.approx(0.0008), 100)]


def test_runs_are_spread_as_they_were_at_the_lightest_load():
    """Half of the real runs took 1 ms longer than usual at 10/s. What runs took at 20/s does not count."""
    real = [load(0.013), structs.replace(load(0.013, rate_rps=20.0), runs=(Runs("f", 1.0, 9, 1.0, 0.013, (0.0, 1.0)),))]
    real[0] = structs.replace(real[0], runs=(Runs("f", 1.0, 100, 1.0, 0.013, (0.0, 0.001)),))
    simulated = [structs.replace(each, runs=(Runs("f", 1.0, 100, 1.0, 0.013, (0.0, 0.0)),)) for each in real]
    assert _delays_s(START, real, simulated) == {"f": (0.0, pytest.approx(0.0008))}


def test_a_fit_has_settled_when_a_step_changes_little():
    """Runs take 10 ms: 0.1 ms is a hundredth of that."""
    real = [load(0.010)]
    little, much = (structs.replace(START, run_s={"f": seconds}) for seconds in (0.00009, 0.00011))
    assert _has_settled(made(), START, little, real)
    assert not _has_settled(made(), START, much, real)
    assert not _has_settled(made(), START, structs.replace(START, gateway=1.02), real)


def test_a_part_of_a_load_stands_for_the_whole():
    """At 2,000/s two of five seconds are simulated, and what the gateway used is that of all five."""
    calls = (Call(name=next(iter(made().workflows)), path="/", deadline_s=1.0),)
    empty = Rehearsal(calls=calls, capacity_rps=100.0, loads=(), arms={}, items={})
    host = Host(cores=2, request_s=1e-5, answer_s=1e-5)
    part, whole = (
        _simulated(made(host), host, empty, load(0.0, rate_rps=2_000.0), "fairlead", is_whole=is_whole)[0]
        for is_whole in (False, True)
    )
    assert part.gateway_cpu_s == pytest.approx(whole.gateway_cpu_s, rel=0.1)
    assert sum(runs.count for runs in part.runs) < 0.5 * sum(runs.count for runs in whole.runs)


def test_patient_users_send_their_deadline_along():
    """Or an app whose objective is short would refuse most of them, and its capacity would be that of refusing."""
    calls = (Call(name="w", path="/", deadline_s=60.0),)
    assert plan_of(calls, Closed(4), 3.0).sends_deadline
    assert not plan_of(calls, Open(rate_rps=4.0), 3.0).sends_deadline


def test_a_jam_in_the_simulation_is_not_taken_for_the_time_of_a_run():
    """The simulated run takes 1 s instead of 13 ms: no more than 0.3 of the real one is taken off."""
    found = _corrected(made(), START, [load(0.013)] * 3, [load(1.0)] * 3)
    assert found.run_s["f"] + found.run_share["f"] * 0.010 == pytest.approx(-0.8 * 0.3 * 0.013)


def test_the_gateway_follows_the_high_load_and_its_pauses_the_light_one():
    real = [load(0.01, 1.1), load(0.01, 2.0), load(0.01, 2.0)]
    found = _corrected(made(), START, real, [load(0.01, 1.0), load(0.01, 2.0), load(0.01, 2.0)])
    assert found.gateway == pytest.approx(1.0)
    assert found.cold_factor == pytest.approx(2 * (1 + 0.8 * 0.1) - 1)


def test_a_fit_finds_what_a_simulated_machine_takes_longer():
    """Loads of which a simulation says how long they take are rehearsed: the fit finds its way back to them."""
    truth = Host(cores=2, request_s=1e-4, answer_s=1e-4, run_s={"f": 0.004})
    workflow = next(iter(made().workflows))
    calls = (Call(name=workflow, path="/", deadline_s=1.0),)
    empty = Rehearsal(calls=calls, capacity_rps=100.0, loads=(), arms={}, items={})
    wanted = (("fairlead", 20.0), ("fairlead", 60.0), ("fairlead", 120.0), ("fifo", 20.0))
    loads = tuple(_simulated(made(), truth, empty, load(0.0, rate_rps=rate), policy)[0] for policy, rate in wanted)
    rehearsed = structs.replace(empty, loads=loads)
    found = fit_rehearsal(made(), rehearsed)
    again = found.host(made().host)
    assert again.run_s["f"] + again.run_share["f"] * 0.010 == pytest.approx(0.004, rel=0.1)
    assert max(abs(each) for each in found.off) < 0.02


def test_what_was_served_is_kept_in_the_profile_of_an_app(tmp_path):
    served = structs.replace(START, run_s={"f": 0.001}, arms={"main": {"b": 0.25}}, decision_s={"fifo": (1e-5, 1e-8)})
    profiles = MeasuredProfiles(
        app="a",
        machine=MeasuredMachine(cpu="some", cores=2, limits="affinity"),
        functions={"f": MeasuredFunction(points=(Point(mean_s=0.01),))},
        served=served,
    )
    write_measured(profiles, tmp_path / "a.json")
    content = (tmp_path / "a.json").read_bytes()
    assert parse_measured(content, "a.json").served == served
    with pytest.raises(ConfigError, match="served"):
        parse_measured(content.replace(b'"capacity_rps"', b'"capacity"'), "a.json")


def test_a_machine_as_it_serves_an_app():
    host = structs.replace(START, gateway=2.0, refusal_s=0.5, arms={"w": {"b": 0.0}}).host(Host(cores=2, turn_s=0.1))
    assert (host.turn_s, host.refusal_s, host.cold_factor, host.arms) == (0.2, 0.5, 1.0, {"w": {"b": 0.0}})


def test_the_slowest_twentieth_does_not_count():
    assert mean_of([1.0] * 19 + [100.0]) == 1.0
    assert mean_of([3.0]) == 3.0


def test_a_probe_tells_how_long_its_computation_takes():
    with SpeedProbe() as probe:
        time.sleep(0.5)
    assert probe.spin_s is not None
    assert 0 < probe.spin_s < 1


def test_items_are_counted_by_gateway_as_each_numbers_its_requests_from_the_start(tmp_path):
    """Two gateways served one request of three items each."""
    file = tmp_path / "mapped.py"
    file.write_text(
        "from fairlead.app import App, each\napp = App('mapped')\n\n\n@app.function\ndef cut(x):\n    return [x]\n\n\n"
        "@app.function\ndef look(x):\n    return x\n\n\napp.workflow('w', cut >> each(look, items=(1, 9)), slo='1s')\n"
    )
    manifest = describe(file)
    stages = {stage.function: stage.name for stage in manifest.workflows[0].stages}
    rows = [{"workflow": "w", "stage": stages[name], "request": 0, "end": 1.0} for name in ("cut", *["look"] * 3)]
    assert _seen([pl.DataFrame(rows)] * 2, manifest) == ({}, {"w": {stages["look"]: 3}})


def test_each_workflow_of_an_app_is_called_with_its_example(tmp_path):
    file = tmp_path / "two.py"
    file.write_text(
        "from fairlead import App\napp = App('two')\n\n\n@app.function\ndef f(x):\n    return x\n\n\n"
        "app.workflow('a', f, slo='1s', example=[1])\napp.workflow('b', f, slo='2s')\n"
    )
    first, second = calls_of(describe(file), slo_scale=0.5)
    assert (first.path, first.body, first.deadline_s) == ("/v1/workflows/two.a", b'{"input":[1]}', 0.5)
    assert (second.body, second.deadline_s) == (b'{"input":null}', 1.0)
