"""A simulation on a machine: the gateway takes time, wake-ups do, and all share the cores."""

import time
from dataclasses import replace
from hashlib import sha256
from math import exp

import pytest
from msgspec import structs

from fairlead.engine import simulate
from fairlead.engine.sim.compiled import coverage
from fairlead.engine.sim.cores import Cores
from fairlead.engine.sim.hosted import HostedSimulation
from fairlead.errors import ConfigError
from fairlead.model import Buffer, Cluster, Configuration, Device, Node
from fairlead.policy.fifo import Fifo
from fairlead.profile import Host, Link
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import DecisionTime, Listed, load_scenario, parse_scenario

FREE = Host(cores=100)  # a machine that costs nothing


def seen(recording):
    """When each request was answered, after it was sent."""
    table = recording.requests.sort("request")
    return [pytest.approx(each) for each in (table["end"] - table["arrival"]).to_list()]


def on(host, *arrivals, seconds=1.0, vcpus=1, warm=1, **options):
    made = scenario(declared(seconds, **options), arrivals=list(arrivals), on=cluster(vcpus=vcpus))
    functions = {name: structs.replace(function, warm=warm) for name, function in made.functions.items()}
    return replace(made, functions=functions, host=host)


@pytest.mark.parametrize(
    ("policy", "digest"),
    [("fifo", "0b1f03f75e6587d9"), ("esg", "ef38460eeedba234")],
)
def test_without_a_host_records_are_what_they_were_to_the_byte(policy, digest):
    recording = simulate(load_scenario("quickstart", overrides={"duration_s": 3, "warmup_s": 0}), policy, seed=3)
    found = sha256()
    for table in (recording.requests, recording.invocations, recording.instances):
        found.update(table.write_csv().encode())
    assert found.hexdigest()[:16] == digest


def test_a_machine_that_costs_nothing_changes_no_latency():
    plain = simulate(replace(on(FREE, 0.0, 0.25, 5.0), host=None), Fifo())
    assert seen(simulate(on(FREE, 0.0, 0.25, 5.0), Fifo())) == seen(plain) == [1.0, 1.75, 1.0]


def test_a_request_takes_each_part_of_the_gateways_work():
    host = Host(cores=9, request_s=0.1, turn_s=0.01, send_s=0.02, end_s=0.03, answer_s=0.2, decision_s={"Fifo": 0.005})
    # Read, turn and decision, send; run; end, turn, answer. In the last turn nothing waits, so nothing is decided.
    assert seen(simulate(on(host, 0.0), Fifo())) == [0.1 + 0.015 + 0.02 + 1.0 + 0.03 + 0.01 + 0.2]


def test_what_comes_while_the_gateway_is_busy_is_handled_together():
    host = Host(cores=9, request_s=0.1, turn_s=1.0)
    recording = simulate(on(host, 0.0, 0.5, 0.6, vcpus=3), Fifo())
    starts = recording.invocations.sort("request")["start"].to_list()
    # the first is read at 0.1 and its turn lasts to 1.1; the others are read by 1.3, and decided in one turn
    assert starts == [pytest.approx(0.1), pytest.approx(1.3), pytest.approx(1.3)]


def test_wake_ups_of_gateway_and_instance_are_part_of_latency():
    assert seen(simulate(on(Host(cores=9, wake_s=(0.25,)), 0.0), Fifo())) == [0.25 + 0.25 + 1.0 + 0.25]


def test_the_way_to_an_instance_is_not_counted_twice():
    """Measured times have two wake-ups in them already."""
    assert seen(simulate(on(Host(cores=9, wake_s=(0.1,), hop_s=0.2), 0.0), Fifo())) == [0.1 + 0.1 + 0.8 + 0.1]


def test_batches_and_gateway_share_the_cores():
    """Two batches on one core take twice as long; those that mostly wait do not."""
    busy = simulate(on(Host(cores=1), 0.0, 0.0, vcpus=2), Fifo())
    assert seen(busy) == [2.0, 2.0]
    waiting = simulate(on(Host(cores=1, cpu_share={"f": 0.25}), 0.0, 0.0, vcpus=2), Fifo())
    assert seen(waiting) == [1.0, 1.0]


def test_a_run_with_two_threads_keeps_two_cores_busy():
    """Alone it has both cores. Two of them have one core each for two threads, so both take twice as long."""
    host = Host(cores=2, cores_used={"f": {"1": 2.0}})
    assert seen(simulate(on(host, 0.0), Fifo())) == [1.0]
    assert seen(simulate(on(host, 0.0, 0.0, vcpus=2), Fifo())) == [2.0, 2.0]


def test_cores_in_use_depend_on_vcpus():
    host = Host(cores=2, cpu_share={"f": 0.5}, cores_used={"f": {"2": 1.9}})
    assert [host.uses("f", vcpus) for vcpus in (1.0, 2.0)] == [0.5, 1.9]
    assert host.uses("g", 1.0) == 1.0


def test_a_run_may_lose_time_without_a_core():
    """Nothing else is slower for it: both runs lose 0.5 s, on one core they need half of the time."""
    host = Host(cores=1, cpu_share={"f": 0.5}, run_delay_s={"f": (0.5,)})
    assert seen(simulate(on(host, 0.0, 0.0, vcpus=2), Fifo())) == [1.5, 1.5]


class Sleeper(Fifo):
    """Sleeps before it decides, as a process does that another one keeps from a core."""

    def decide(self, view):
        time.sleep(0.3)
        yield from super().decide(view)


def test_a_pause_of_the_simulator_is_no_part_of_a_decision():
    made = on(FREE, 0.0)
    run = HostedSimulation(made, ("fifo", Sleeper()), (None, None), 0, None, [])
    run.run(None, {})
    assert run.decided
    assert all(took_s < 0.3 for _, took_s in run.decided)


def test_after_a_pause_the_gateway_is_slower():
    host = Host(cores=9, answer_s=0.1, cold_factor=2.0)
    assert seen(simulate(on(host, 0.0), Fifo())) == [1.0 + 0.3]


def test_a_gateway_at_work_is_no_slower_once_its_code_is_in_the_caches():
    host = Host(cores=9, request_s=0.1, turn_s=0.1, cold_factor=2.0, cold_after_s=0.25)
    # Reading takes 0.3 s after the pause. The turn begins when the gateway has been at work for more than 0.25 s.
    # The last turn follows a pause of 1 s.
    assert seen(simulate(on(host, 0.0), Fifo())) == [0.3 + 0.1 + 1.0 + 0.1 * (3 - 2 * exp(-4))]


def test_a_link_lengthens_the_way_to_an_instance_and_back():
    """Half of the gateway's extra CPU time is sending, half is taking in; measured times have the way in them."""
    host = Host(cores=9, hop_s=0.1, links={"n0": Link(way_s=0.2, cpu_s=0.06)})
    assert seen(simulate(on(host, 0.0), Fifo())) == [0.03 + 0.2 + (1.0 - 0.1 - 2 * 0.2) + 0.2 + 0.03]


def test_a_link_of_a_kind_is_that_of_its_nodes_unless_they_have_their_own():
    host = Host(cores=9, links={"cpu": Link(way_s=0.2), "own": Link(way_s=0.1)})
    asked = (("other", "cpu"), ("own", "cpu"), ("other", "gpu"))
    assert [host.link(node, kind).way_s for node, kind in asked] == [0.2, 0.1, 0.0]


def test_values_take_time_on_a_link():
    host = Host(cores=9, values_mb={"main": 3.0}, links={"n0": Link(mb_s=0.1)})
    assert seen(simulate(on(host, 0.0), Fifo())) == [1.0 + 0.3]


def test_a_machine_of_its_own_has_its_own_cores():
    """Two batches share the gateway's one core, and those of the other machine its two; nodes of one machine share."""
    near, far = Link(), Link(machine="far", cores=2)
    for links, expected in (({}, [2.0, 2.0]), ({"n0": near}, [2.0, 2.0]), ({"n0": far}, [1.0, 1.0])):
        assert seen(simulate(on(Host(cores=1, links=links), 0.0, 0.0, vcpus=2), Fifo())) == expected
    one = Link(machine="far", cores=1)
    split = replace(on(Host(cores=9, links={"plain": one}), 0.0, 0.0), cluster=cluster(2, vcpus=1))
    functions = {name: structs.replace(function, warm=2) for name, function in split.functions.items()}
    assert seen(simulate(replace(split, functions=functions), Fifo())) == [2.0, 2.0]


def test_the_speed_of_this_machine_is_not_that_of_another():
    links = {"n0": Link(machine="far", cores=1)}
    assert seen(simulate(on(Host(cores=1, slowness=2.0), 0.0), Fifo())) == [2.0]
    assert seen(simulate(on(Host(cores=1, slowness=2.0, links=links), 0.0), Fifo())) == [1.0]


def test_a_link_names_a_machine_and_its_cores_or_neither():
    for wrong in ({"cores": 2}, {"machine": "far"}, {"way_s": -1.0}):
        with pytest.raises(ValueError, match="must be"):
            Link(**wrong)


def test_the_load_generator_takes_its_part():
    assert seen(simulate(on(Host(cores=9, client_s=0.5), 0.0), Fifo())) == [1.5]


def test_functions_begin_with_their_warm_instances():
    assert seen(simulate(on(FREE, 0.0, cold_start_s=0.5, warm=0), Fifo())) == [1.5]
    assert seen(simulate(on(FREE, 0.0, cold_start_s=0.5), Fifo())) == [1.0]


def test_requests_beyond_those_that_may_be_open_are_refused():
    recording = simulate(on(Host(cores=9, max_open=1), 0.0, 0.25), Fifo())
    assert recording.requests.sort("request")["outcome"].to_list() == ["completed", "rejected"]


def test_the_same_seed_gives_the_same_records():
    host = Host(cores=2, turn_s=0.001, wake_s=(0.001, 0.01, 0.1))
    runs = [simulate(on(host, 0.0, 0.1, 0.2), Fifo(), seed=7) for _ in range(2)]
    assert runs[0].requests.equals(runs[1].requests)


def test_the_compiled_engine_does_not_cover_it():
    assert "gateway" in str(coverage(on(FREE, 0.0, warm=0), Fifo()))


def test_decision_time_is_not_counted_twice():
    with pytest.raises(ValueError, match="host cannot be combined with decision"):
        replace(on(FREE, 0.0), decision=DecisionTime(fixed_s=0.1))


def test_cores_share_evenly_and_forget_what_is_dropped():
    cores, ended = Cores(1), []
    cores.begin(0.0, 1, 1.0, 1.0, ended.append)
    cores.begin(0.0, 2, 2.0, 1.0, ended.append)
    assert cores.next_end() == 2.0
    for done in cores.advance(2.0):
        done(2.0)
    assert cores.next_end() == 3.0  # the second has one second left, and the core for itself
    cores.drop(2.5, 2)
    assert ended == [2.0]
    assert cores.is_idle


DOCUMENT = """
cluster: {nodes: [{name: a, vcpus: 2}]}
functions: {f: {latency: {table: [{seconds: 0.1}]}}}
workflows: {w: {stages: {s: {function: f}}, slo: {latency_s: 1}}}
arrivals: [{process: poisson, workflow: w, rate_rps: 1}]
"""


def test_a_scenario_file_has_a_host():
    host = "host: {cores: 2, turn_s: 1.0e-4, wake_s: [1.0e-5, 2.0e-5], decision_s: {fifo: 1.0e-5}}"
    found = parse_scenario(DOCUMENT + host, "x").host
    assert found == Host(cores=2, turn_s=1e-4, wake_s=(1e-5, 2e-5), decision_s={"fifo": 1e-5})
    assert parse_scenario(DOCUMENT, "x").host is None
    host = "host: {cores: 2, cores_used: {f: {'2': 1.9}}, run_delay_s: {f: [0, 0.1]}}"
    found = parse_scenario(DOCUMENT + host, "x").host
    assert found == Host(cores=2, cores_used={"f": {"2": 1.9}}, run_delay_s={"f": (0.0, 0.1)})
    links = "host: {cores: 2, links: {n0: {way_s: 1.0e-4, cpu_s: 2.0e-5, mb_s: 0.001, machine: far, cores: 4}, n1: {}}}"
    found = parse_scenario(DOCUMENT + links, "x").host
    assert found.links == {"n0": Link(way_s=1e-4, cpu_s=2e-5, mb_s=1e-3, machine="far", cores=4), "n1": Link()}


@pytest.mark.parametrize(
    ("host", "fault"),
    [
        ("{turn_s: 1}", "host.cores: is missing"),
        ("{cores: 2, links: {n0: {ways_s: 1}}}", "host.links.n0.ways_s: unknown key. Did you mean 'way_s'"),
        ("{cores: 2, links: {n0: {cores: 2}}}", "host.links.n0.cores: must be positive with a machine"),
        ("{cores: 2, turns_s: 1}", "host.turns_s: unknown key. Did you mean 'turn_s'"),
        ("{cores: 2, turn_s: -1}", "host.turn_s: must be finite and not negative"),
        ("{cores: 2, wake_s: [2, 1]}", "host.wake_s: must be sorted"),
        ("{cores: 2, cpu_share: {f: 2}}", "cpu_share.f must be in"),
        ("{cores: 2, cores_used: {f: {'2': -1}}}", "cores_used.f.2 must be finite and not negative"),
        ("{cores: 2, run_delay_s: {f: [2, 1]}}", "run_delay_s.f must be sorted"),
        ("{cores: 0}", "host.cores: must be at least 1"),
        ("{machine: nowhere.json}", "nowhere.json: cannot be read"),
    ],
)
def test_a_faulty_host_is_refused_by_name(host, fault):
    with pytest.raises(ConfigError, match=fault.replace(".", r"\.")):
        parse_scenario(f"{DOCUMENT}host: {host}", "x")


def test_a_run_takes_longer_by_what_was_seen_when_it_was_served():
    """1 s alone: half of it more, and 0.25 s whatever its size."""
    host = Host(cores=9, run_s={"f": 0.25}, run_share={"f": 0.5})
    assert seen(simulate(on(host, 0.0), Fifo())) == [1.0 * 1.5 + 0.25]


def test_a_slower_cpu_stretches_computing_and_not_waiting():
    """Of 1 s the function computes 0.4 s; the gateway reads for 0.1 s."""
    host = Host(cores=9, request_s=0.1, cpu_share={"f": 0.4}, slowness=2.0)
    assert seen(simulate(on(host, 0.0), Fifo())) == [0.2 + 0.6 + 0.8]


def test_speed_follows_the_probe():
    host = Host(cores=2, spin_s=0.001)
    assert host.now(0.001).slowness == 1.0
    assert host.now(0.002).slowness == pytest.approx(2**0.9)
    assert host.now(None) is host
    assert Host(cores=2).now(0.002).slowness == 1.0


def test_a_decision_takes_longer_the_more_waits():
    """Three come in turn. When the first ends, the second starts and the third waits: its answer leaves 0.1 s later."""
    host = Host(cores=9, decision_waiting_s={"Fifo": 0.1})
    recording = simulate(on(host, 0.0, 0.5, 0.5), Fifo())
    assert seen(recording)[0] == 1.1


def test_a_load_generator_sends_no_more_than_it_may_have_open():
    recording = simulate(on(Host(cores=9, max_sent=2), 0.0, 0.1, 0.2, 5.0), Fifo())
    outcomes = recording.requests.sort("request")["outcome"].to_list()
    assert outcomes == ["completed", "completed", "rejected", "completed"]


def kernels(host, *arrivals, seconds=1.0, devices=2, memory_mb=1024, weights_mb=512):
    """One kernel per arrival, given as (name, instant), on devices that load 1 GB per second."""
    names = list(dict.fromkeys(name for name, _ in arrivals))
    one = declared(
        seconds,
        configurations=(Configuration(vcpus=0, vgpus=1),),
        idle_holds="memory",
        buffers=(Buffer(name="weights", size_mb=weights_mb),),
    )
    gpu = Device(vgpus=1, memory_gb=memory_mb / 1024, load_gb_per_s=1)
    return replace(
        scenario(
            dict.fromkeys(names, one),
            workflows={name: (name,) for name in names},
            arrivals=[Listed(name, tuple(at for who, at in arrivals if who == name)) for name in names],
            on=Cluster(nodes=(Node(name="n", kind="n", vcpus=0, devices=(gpu,) * devices),)),
        ),
        host=host,
    )


def test_kernels_run_beside_a_gateway_without_the_wake_up_of_a_process():
    """Request and turn, 0.5 s of load, the turn that sends it; 1 s of run; and its end, a turn and the answer."""
    host = Host(cores=9, request_s=0.1, turn_s=0.01, send_s=0.02, end_s=0.03, answer_s=0.2, hop_s=0.5)
    loaded, there = seen(simulate(kernels(host, ("a", 0.0), ("a", 9.0)), Fifo()))
    assert there == pytest.approx(0.1 + 0.01 + 0.02 + 1.0 + 0.03 + 0.01 + 0.2)
    assert loaded == pytest.approx(there.expected + 0.5 + 0.01)


def test_devices_that_are_cores_share_them_and_those_of_gpus_do_not():
    arrivals = ("a", 0.0), ("a", 5.0), ("b", 0.0), ("b", 5.0)
    of_cores = seen(simulate(kernels(Host(cores=1), *arrivals), Fifo()))
    assert of_cores[2:] == [2.0, 2.0]
    assert of_cores[:2] == [3.0, 3.0]  # loads share the core too
    of_gpus = seen(simulate(kernels(Host(cores=1, cpu_share={"a": 0.0, "b": 0.0}), *arrivals), Fifo()))
    assert of_gpus == [1.5, 1.5, 1.0, 1.0]


def test_a_run_that_is_sent_while_others_wait_may_lose_more_time():
    host = Host(cores=9, run_delay_s={"a": (0.25,)}, run_delay_busy_s={"a": (0.5,)})
    made = kernels(host, ("a", 0.0), ("a", 5.0), ("a", 5.0), ("a", 5.0), devices=1)
    recording = simulate(made, Fifo())
    took = (recording.invocations["end"] - recording.invocations["start"] - recording.invocations["cold_s"]).to_list()
    assert took == [pytest.approx(each) for each in (1.25, 1.5, 1.5, 1.25)]  # the last of the three does not wait


def test_a_kernel_is_loaded_when_the_gateway_has_heard_that_another_one_has_left():
    """Room for one: the turn that stops `a`, the turn that hears of it, and the load."""
    host = Host(cores=9, turn_s=0.25)
    recording = simulate(kernels(host, ("a", 0.0), ("b", 5.0), devices=1, memory_mb=600), Fifo())
    a, b = recording.invocations.sort("start")["cold_s"].to_list()
    assert a == pytest.approx(0.25 + 0.5)
    assert b == pytest.approx(0.25 + 0.25 + 0.5, abs=1e-5)
