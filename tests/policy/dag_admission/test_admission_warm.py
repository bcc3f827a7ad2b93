"""DagAdmission: which instances will be warm, who counts on them, and what is started ahead."""

import pytest
from admission_runs import answers, chain, column, run, runs

from fairlead.model import SLO, Configuration, Stage, Workflow
from fairlead.policy import Reject, Warm
from fairlead.policy.dag_admission.policy import DagAdmission
from fairlead.profile import Row, Table
from fairlead.testing import cluster, decisions, declared, scenario
from fairlead.workload import Deterministic, Listed

ONE = cluster(vcpus=1)


def test_the_second_request_counts_on_the_instance_of_the_first():
    # Cold start and run take 2 s and 1 s. The second waits for the first's instance: 3 + 1, not 3 + 3.
    world = scenario(declared(1.0, cold_start_s=2), arrivals=(0, 0.5), on=ONE, slo_s=4)
    recording = run(world, slack=0)
    assert column(recording, "promised") == [3, 4]
    assert runs(recording, "start", "end", "is_cold") == [(0, 3, True), (3, 4, False)]


def test_a_free_vcpu_is_used_only_if_a_cold_start_there_is_sooner():
    # At 0 the first starts cold until 3. At 2.5 the next would end at 5.5 on a new instance and at 4 on the first's.
    world = scenario(declared(1.0, cold_start_s=2), arrivals=(0, 0, 2.5), on=cluster(vcpus=2), slo_s=9)
    recording = run(world, slack=0)
    assert column(recording, "promised") == [3, 3, 4]
    assert recording.instances.height == 2


def test_an_idle_instance_is_used_until_it_expires():
    # It is idle from 3 on, and kept for 2 s.
    world = scenario(declared(1.0, cold_start_s=2, keep_alive_s=2), arrivals=(0, 4.9, 7.9), on=ONE, slo_s=9)
    recording = run(world, slack=0)
    assert column(recording, "promised") == pytest.approx([3, 5.9, 10.9])
    assert [row[0] for row in runs(recording, "is_cold")] == [True, False, True]


def test_with_a_keep_alive_of_zero_every_run_is_promised_a_cold_start():
    world = scenario(declared(1.0, cold_start_s=2, keep_alive_s=0), arrivals=(0, 0, 0), on=ONE, slo_s=9)
    assert column(run(world, slack=0), "promised") == [3, 6, 9]


def test_somebody_elses_cold_start_does_not_evict_an_instance_that_is_counted_on():
    # Memory holds two instances. a and b leave one each, b's being the least recently used. At 4 a request is promised
    # b's for 5.1, when its first stage has ended; at 4.05 one of c starts cold and must evict a's, not b's.
    functions = {
        "a": declared(0.1, cold_start_s=1, memory_gb=1, idle_holds="memory"),
        "b": declared(0.1, cold_start_s=1, memory_gb=1, idle_holds="memory"),
        "c": declared(0.1, cold_start_s=1, memory_gb=1, idle_holds="memory"),
        "first": declared(1.1),
    }
    flows = {
        "b": chain("b", latency_s=2, name="b"),
        "a": chain("a", latency_s=2, name="a"),
        "main": chain("first", "b", latency_s=1.2),
        "c": chain("c", latency_s=2, name="c"),
    }
    arrivals = (Listed("b", (0.0,)), Listed("a", (2.0,)), Listed("main", (4.0,)), Listed("c", (4.05,)))
    world = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=4, memory_gb=2))
    recording = run(world, slack=0)
    assert column(recording, "promised") == pytest.approx([1.1, 3.1, 5.2, 5.15])
    assert column(recording, "end") == pytest.approx([1.1, 3.1, 5.2, 5.15])
    gone = recording.instances.filter(recording.instances["stopped"] < 5)
    assert gone["function"].to_list() == ["a"]


def test_without_that_claim_the_least_recently_used_goes():
    functions = {name: declared(0.1, cold_start_s=1, memory_gb=1, idle_holds="memory") for name in "abc"}
    flows = {name: chain(name, latency_s=2, name=name) for name in "bac"}
    arrivals = (Listed("b", (0.0,)), Listed("a", (2.0,)), Listed("c", (4.05,)))
    world = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=4, memory_gb=2))
    recording = run(world, slack=0)
    gone = recording.instances.filter(recording.instances["stopped"] < 5)
    assert gone["function"].to_list() == ["b"]


def test_a_refusal_that_only_a_cold_start_caused_starts_the_instance():
    # 2 s of cold start and 1 s of run against an objective of 1.5 s: the first is refused, the next is served.
    world = scenario(declared(1.0, cold_start_s=2), arrivals=(0, 1, 2.5), on=ONE, slo_s=1.5)
    recording = run(world, slack=0)
    first, second, third = answers(recording)
    assert (first["outcome"], first["offer_latency_s"], first["retry_after_s"]) == ("rejected", 3, 1.5)
    assert (second["outcome"], second["offer_latency_s"]) == ("rejected", 2)
    assert (third["outcome"], third["end"]) == ("completed", 3.5)
    assert recording.instances["on_demand"].to_list() == [False]


def test_what_is_started_ahead_is_said_after_the_refusal():
    actions = decisions(DagAdmission(slack=0), 1.5, scenario=scenario(declared(1.0, cold_start_s=2), on=ONE))
    assert [type(a) for a in actions if isinstance(a, Reject | Warm)] == [Reject, Warm]
    assert actions[-1] == Warm("f", Configuration(vcpus=1), "n0")


def test_as_many_instances_are_started_ahead_as_the_refused_requests_would_have_used():
    # Runs of 1 s against an objective of 1.5 s. Had the instance of the first refusal been there, the second request
    # would have waited for it until 1 and ended at 2, in time; the third, at 0.6, would have ended at 3.
    tight = scenario(declared(1.0, cold_start_s=2), arrivals=(0, 0.5, 0.6), on=cluster(vcpus=4), slo_s=1.5)
    recording = run(tight, slack=0)
    assert column(recording, "outcome") == ["rejected"] * 3
    assert recording.instances["started"].to_list() == [0, 0.6]


def test_a_second_instance_is_started_where_one_is_too_busy_and_a_cold_start_too_long():
    # Two requests a second, 1 s each: two instances are needed. The third refusal, at 1, starts the second. The request
    # of 1.5 waits for the first instance until 2, that of 2 finds both taken until 3, and all later ones are in time.
    arrivals = tuple(0.5 * i for i in range(20))
    world = scenario(declared(1.0, cold_start_s=2), arrivals=arrivals, on=cluster(vcpus=4), slo_s=1.5)
    recording = run(world, slack=0)
    assert column(recording, "outcome") == ["rejected"] * 3 + ["completed", "rejected"] + ["completed"] * 15
    assert recording.instances["started"].to_list() == [0, 1]


def three_on_two_vcpus(idle_holds):
    """The case of an app that was served live: three functions, 2 vCPUs, an objective of 150 ms, 20 requests/s."""
    functions = {name: declared(0.005, cold_start_s=1, memory_gb=0.1, idle_holds=idle_holds) for name in "abc"}
    arrivals = (Deterministic("main", 0.05),)
    flows = {"main": chain(*"abc", latency_s=0.15)}
    return scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=2), duration_s=5.0)


def test_a_workflow_may_have_more_functions_than_its_node_has_vcpus():
    # Two instances start at the first request and take both vCPUs for 1 s; then the third, until 2. Idle, they keep
    # memory only: all three are warm at once.
    recording = run(three_on_two_vcpus("memory"))
    late = [row for row in answers(recording) if row["arrival"] > 2.1]
    assert len(late) > 50
    assert {row["outcome"] for row in late} == {"completed"}
    assert recording.instances.height == 3


def test_nothing_is_started_in_vain_where_the_instances_of_a_request_cannot_be_warm_together():
    # Idle, each keeps its vCPU: the third would evict the first.
    recording = run(three_on_two_vcpus("slice"))
    assert set(column(recording, "outcome")) == {"rejected"}
    assert recording.instances.height == 0


def test_an_idle_instance_is_waited_for_until_its_node_has_room():
    # f's instance is idle and keeps memory only, while g has the vCPU from 2 to 2.5: f is promised 2.6, not 3.6.
    functions = {"f": declared(0.1, cold_start_s=1, memory_gb=1, idle_holds="memory"), "g": declared(0.5)}
    flows = {"main": chain("f", latency_s=2), "other": chain("g", latency_s=2, name="other")}
    arrivals = (0.0, 2.1, Listed("other", (2.0,)))
    recording = run(scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=1, memory_gb=4)), slack=0)
    ends = {(row["workflow"], row["arrival"]): row["end"] for row in answers(recording)}
    assert ends == pytest.approx({("main", 0.0): 1.1, ("other", 2.0): 2.5, ("main", 2.1): 2.6})


def test_an_instance_that_keeps_no_vcpus_serves_runs_of_other_sizes():
    # The first request of `fast` needs two vCPUs, and has the instance that ran on one.
    sizes = Table((Row(vcpus=1, seconds=1), Row(vcpus=2, seconds=0.6)))
    functions = {"f": declared(sizes, cold_start_s=2, memory_gb=1, idle_holds="memory")}
    flows = {"slow": chain("f", latency_s=9, name="slow"), "fast": chain("f", latency_s=0.7, name="fast")}
    arrivals = (Listed("slow", (0.0,)), Listed("fast", (5.0,)))
    world = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=2, memory_gb=4))
    recording = run(world, slack=0, selection="cheapest")
    assert column(recording, "end") == pytest.approx([3, 5.6])
    assert recording.instances.height == 1


BRIEF = declared(0.5, cold_start_s=1.5, keep_alive_s=2)  # an instance is idle for 2 s at most


def test_a_run_has_the_last_used_instance_and_the_other_expires():
    # Instances are idle from 2 and from 2.5 on. The run at 3 has the second, so at 4 the first expires: of two requests
    # at 4.2 one is promised the warm instance, the other waits for it.
    world = scenario(BRIEF, arrivals=(0, 0.4, 3, 4.2, 4.2), on=cluster(vcpus=4), slo_s=2.1)
    recording = run(world, slack=0)
    assert column(recording, "promised") == pytest.approx([2, 2.4, 3.5, 4.7, 5.2])
    assert column(recording, "end") == pytest.approx([2, 2.4, 3.5, 4.7, 5.2])


def test_two_who_count_on_idle_instances_are_sure_of_them_whoever_has_which():
    # One instance is idle until 4, the other until 5.5. Somebody counts on one from 4.2 to 4.7. A run at 3.9 would have
    # the one that was used last, and leave the other, which expires: so it must wait until 4.7.
    functions = {"f": BRIEF, "long": declared(0.6), "short": declared(0.25)}
    flows = {
        "main": chain("f", latency_s=9),
        "first": chain("long", "f", latency_s=9, name="first"),
        "second": chain("short", "f", latency_s=9, name="second"),
    }
    arrivals = (0.0, 0.0, 3.0, Listed("first", (3.6,)), Listed("second", (3.65,)))
    recording = run(scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=8)), slack=0)
    assert column(recording, "promised") == pytest.approx([2, 2, 3.5, 4.7, 5.2])
    assert column(recording, "end") == pytest.approx([2, 2, 3.5, 4.7, 5.2])


def test_nobody_counts_on_an_instance_that_only_an_unsure_run_would_keep_warm():
    # An instance is idle from 2 on, until 4. `maybe` is booked on it for 3.8 but never runs. Had it run, who comes for
    # 4.4 would find it warm; so that one is promised a cold start.
    functions = {"f": BRIEF, "look": declared(0.8), "wait": declared(1.3)}
    stages = (Stage(name="look", function="look"), Stage(name="f", function="f", after=("look",), when=0.0))
    flows = {
        "main": chain("f", latency_s=9),
        "maybe": Workflow(name="maybe", stages=stages, slo=SLO(latency_s=9)),
        "late": chain("wait", "f", latency_s=9, name="late"),
    }
    arrivals = (0.0, Listed("maybe", (3.0,)), Listed("late", (3.1,)))
    recording = run(scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=8)), slack=0)
    assert column(recording, "promised") == pytest.approx([2, 4.3, 6.4])
    assert column(recording, "end") == pytest.approx([2, 3.8, 6.4])


def test_who_counts_on_an_instance_is_not_left_with_a_larger_one_that_must_go():
    # An idle instance has one vCPU, another two, and g has the fourth. A run on two vCPUs has the last used, resized;
    # the other keeps two vCPUs, more than there is beside it, so nobody may be promised that one.
    sizes = Table((Row(kind="plain", vcpus=1, seconds=1), Row(kind="plain", vcpus=2, seconds=0.6)))
    wait = declared(Table((Row(kind="aside", seconds=1),)))
    g = declared(Table((Row(kind="plain", seconds=2),)))
    functions = {"f": declared(sizes, cold_start_s=2), "g": g, "wait": wait}
    flows = {
        "slow": chain("f", latency_s=9, name="slow"),
        "fast": chain("f", latency_s=2.7, name="fast"),
        "late-fast": chain("wait", "f", latency_s=1.8, name="late-fast"),
        "late-slow": chain("wait", "f", latency_s=9, name="late-slow"),
        "g": chain("g", latency_s=9, name="g"),
    }
    arrivals = (
        Listed("slow", (0.0,)),
        Listed("fast", (0.0,)),
        Listed("late-fast", (4.0,)),
        Listed("late-slow", (4.1,)),
        Listed("g", (4.9,)),
    )
    on = cluster(1, vcpus=4, beside=cluster(1, vcpus=2, kind="aside"))
    recording = run(scenario(functions, workflows=flows, arrivals=arrivals, on=on), slack=0, selection="cheapest")
    for row in answers(recording):
        assert row["end"] == pytest.approx(row["promised"]), row


def test_what_is_started_ahead_may_evict_and_nobody_counts_on_what_was_evicted():
    # Memory holds two. a and b leave an idle instance each. c is refused at 4 and started in the place of a's, which
    # was used least recently: at 4.5 a is promised a cold start.
    functions = {name: declared(0.1, cold_start_s=1, memory_gb=1, idle_holds="memory") for name in "abc"}
    flows = {name: chain(name, latency_s=0.5 if name == "c" else 9, name=name) for name in "abc"}
    arrivals = (Listed("a", (0.0, 4.5)), Listed("b", (2.0,)), Listed("c", (4.0,)))
    world = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=4, memory_gb=2))
    recording = run(world, slack=0)
    assert column(recording, "promised") == pytest.approx([1.1, 3.1, None, 5.6])
    assert column(recording, "end") == pytest.approx([1.1, 3.1, 4, 5.6])


def test_an_instance_that_is_free_a_rounding_error_later_is_waited_for():
    # 2.1 + 0.2 is a little more than 2.3, when somebody else comes and everything is looked at.
    functions = {"f": declared(0.2, cold_start_s=1), "g": declared(0.1)}
    flows = {"main": chain("f", latency_s=2), "other": chain("g", latency_s=2, name="other")}
    arrivals = (0.0, 2.1, 2.15, Listed("other", (2.3,)))
    recording = run(scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=4)), slack=0)
    assert column(recording, "end") == pytest.approx([1.2, 2.3, 2.5, 2.4])
    assert recording.instances.filter(recording.instances["function"] == "f").height == 1
