"""What `explain` says of the policy `fairlead`: why it promised, chose, refused and gave up. All figures are by hand.

Times are planned with a tenth more than the mean, in parts of 1/160 of the objective.
"""

import json
import re
from dataclasses import replace

import msgspec
import pytest
from logged_runs import log_run

from fairlead.cli.explain import explain
from fairlead.engine import simulate
from fairlead.model import SLO, Price, Workflow
from fairlead.profile import Row, Table
from fairlead.replay import check_exactly, read_logged_run
from fairlead.report import write_run
from fairlead.report.explain import in_words
from fairlead.report.story import tell
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Poisson

ONE = cluster(1, vcpus=1)
SIZES = declared(Table((Row(vcpus=1, seconds=1.0), Row(vcpus=4, seconds=0.4))))  # 1 and 1.6 vCPU-seconds
THREE = declared(Table((Row(vcpus=1, seconds=2.0), Row(vcpus=2, seconds=1.2), Row(vcpus=4, seconds=0.8))))
DOLLAR = Price(vcpu_usd_per_hour=3600)  # one USD per second of a vCPU: 2, 2.4 and 3.2
TEN = scenario(1.0, arrivals=[0.0] * 11, slo_s=10.0, on=ONE)  # ten seconds of one vCPU, and eleven requests of one each


def story_of(where, request=0):
    return tell(simulate(where, "fairlead"), request)


def told(where, request=0):
    return " ".join(in_words(story_of(where, request)))


def test_the_first_request_is_admitted_since_nothing_is_promised_yet():
    """1.1 s are 17.6 parts of 62.5 ms, so 18: 1.125 s."""
    words = told(TEN)
    assert "Admitted: it had 10.0 s, and its plan takes 1.12 s. Nothing that is due before it had been" in words
    assert "Plan: f with 1 vCPU on plain (1.00 s). Nothing was short, so these are the cheapest" in words
    assert "fairlead promised an answer by 1.125 s (1.12 s after it came). The answer came 125 ms earlier." in words
    assert "ran 1.00 s where 1.00 s was to be expected" in words
    assert "Configuration: as planned." in words


def test_a_later_one_is_told_how_much_was_promised_and_what_it_waited_for():
    """Of 10 vCPU-seconds four are promised before the fifth. It is started after the four, 2.875 s behind the plan."""
    words = told(TEN, 4)
    assert "All work promised so far and its own make 50.0 % of what may be promised until its" in words
    assert "(5 of 10 vCPU-seconds)" in words
    assert "Wait: when it became ready, the only instance was busy; 100 % of all vCPUs were in use;" in words
    assert "4 others were started before it." in words
    assert "The answer came 3.88 s later." in words
    assert "What went otherwise than planned: f took 5.00 s, of which it waited 4.00 s, where 1.12 s was" in words


def test_a_refusal_for_lack_of_capacity_has_the_figures_and_when_to_come_back():
    words = told(TEN, 10)
    assert "refused at arrival, at once." in words
    assert "in the 10 s until it is due: with it 110 % of what may be promised (11 of 10 vCPU-seconds)." in words
    assert "It was told to try again in 1.00 s." in words
    assert "Admitted" not in words


def test_a_refusal_for_the_share_of_a_workflow_has_the_rates():
    """60 per second of 0.05 s and of 0.2 s need 15 vCPUs of 4."""
    flows = {name: Workflow.chain(name, name, slo=SLO(latency_s=1.0)) for name in ("cheap", "costly")}
    arrivals = tuple(Poisson(name, 60.0) for name in flows)
    functions = {"cheap": 0.05, "costly": 0.2}
    where = scenario(functions, workflows=flows, arrivals=arrivals, duration_s=4.0, on=cluster(1, vcpus=4))
    recording = simulate(where, "fairlead")
    refused = [row for row in recording.requests.iter_rows(named=True) if "share" in (row["reason"] or "")]
    words = " ".join(in_words(tell(recording, refused[0]["request"])))
    rates = re.search(r"share of a cluster that cannot serve all requests: (\S+) of (\S+) requests per second", words)
    assert 0 < float(rates[1]) < float(rates[2])
    assert "It was told to try again in " in words


def test_a_request_that_cannot_be_in_time_is_told_so():
    words = told(scenario({"a": 1.0, "b": 3.0}, slo_s=3.5))
    assert "Why: it cannot be answered in time: it takes at least 4 s, and it is due in 3.5 s." in words
    assert "Nothing of it was run." in words


def test_a_drop_says_which_rule_and_what_had_gone_wrong():
    """The first stage takes 3 s instead of 1; it was planned with 1.1 s, which is 51 parts of 3.5 s / 160."""
    words = told(scenario({"a": declared(1.0, bias=3.0), "b": 1.0}, slo_s=3.5))
    assert "given up after 3.00 s, after it had been admitted." in words
    assert "fairlead promised an answer by 2.231 s (2.23 s after it came). It was not kept." in words
    assert "a: ran 3.00 s where 1.00 s was to be expected" in words
    assert "otherwise than planned: a took 3.00 s, where 1.12 s was planned; b was ready, but was not started." in words
    assert "Why: it can no longer be answered in time: from b on it takes at least 1 s, and 0.5 s are left." in words


def test_a_configuration_other_than_planned_is_told_with_the_time_that_was_left():
    """The first stage takes 2 s instead of 1. The second was to start after 59 parts of 3 s / 160, so 1.106 s."""
    words = told(scenario({"a": declared(1.0, bias=2.0), "b": SIZES}, slo_s=3.0))
    chosen = "Configuration: 4 vCPU instead of 1 vCPU as planned"
    assert f"{chosen}: it was the cheapest in time with 1.00 s left, 894 ms less than planned." in words


def within(latency_s, cost_usd):
    flow = Workflow.chain("main", "f", slo=SLO(latency_s=latency_s, cost_usd=cost_usd))
    return scenario({"f": THREE}, workflows={"main": flow}, on=cluster(1, vcpus=4, price=DOLLAR))


def test_a_plan_within_a_budget_says_so():
    words = told(within(1.6, 2.6))
    assert "for at most $2.60" in words
    assert "Plan: f with 2 vCPU on plain (1.20 s)." in words
    assert "the cheapest configurations that are in time and within the budget." in words


def test_a_budget_that_does_not_suffice_is_told_with_what_it_takes():
    words = told(within(1.0, 2.6))
    reason = "$0 of $2.6 are spent, which leaves $2.6 for f, and in time that costs at least $3.2."
    assert f"Why: it can no longer be answered within its budget: {reason}" in words
    assert "promised" not in words  # it was given up at once


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"slow": ("n1", 1.4)}, "n1 is used last, since its last runs took 1.4 times the expected time"),
        ({"pace": 1.3}, "although its last runs took 1.3 times the expected time"),
        ({"skipped": 2}, "2 more urgent ones of f were passed over, since this batch serves more in time."),
        ({"was_kept": True}, "some room is kept for requests of other workflows that cannot wait"),
        ({"busy": 0.25}, "n0 (25 % in use)"),
    ],
)
def test_what_else_mattered_for_a_start_is_told(changes, sentence):
    story = story_of(TEN)
    (stage,) = story.stages
    other = replace(stage, note=msgspec.structs.replace(stage.note, **changes))
    assert sentence in " ".join(in_words(replace(story, stages=(other,))))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"better": (THREE.profile.configurations[0], "plain")}, "had no idle instance with room, and a new one"),
        ({"is_rushed": True}, "none was safely in time, so a quick one was taken"),
        ({"prices": [3.0, 1.0]}, "since the plan, prices had changed, vCPUs from 1 to 3 times"),
    ],
)
def test_the_cause_of_another_configuration_is_told(changes, why):
    story = story_of(scenario({"a": declared(1.0, bias=2.0), "b": SIZES}, slo_s=3.0))
    *before, stage = story.stages
    other = replace(stage, note=msgspec.structs.replace(stage.note, **changes))
    assert why in " ".join(in_words(replace(story, stages=(*before, other))))


def test_a_cold_start_and_the_batch_are_told_with_the_node():
    law = Table((Row(seconds=1.0), Row(seconds=1.5, batch=4)))
    where = scenario({"f": declared(law, cold_start_s=0.5)}, arrivals=(0.0, 0.1, 0.1, 0.1), on=ONE, slo_s=9)
    assert "no idle instance could be used, and n0 (otherwise idle) had room for a new one" in told(where)
    words = told(where, 2)
    assert "in a batch of 3 with requests 1, 3." in words
    assert "n0 (otherwise idle) was the only one of kind plain with an idle instance" in words


def test_json_has_the_same_facts(tmp_path, capsys):
    there = scenario(1.0, arrivals=[0.0] * 10, slo_s=10.0, on=ONE)
    write_run(simulate(there, "fairlead"), tmp_path / "run")
    explain("4", run=tmp_path / "run", json_to="-")
    values = json.loads(capsys.readouterr().out)
    admitted, (stage,) = values["admitted"], values["stages"]
    assert (admitted["ahead"], admitted["need"], admitted["room"]) == ([4.0, 0.0], [1.0, 0.0], [10.0, 0.0])
    assert [step["stage"] for step in admitted["steps"]] == ["f"]
    assert (stage["met"]["busy"], stage["met"]["went_first"], stage["note"]["waiting"]) == (1, 4, 6)
    assert values["plan"] == "f: 1x 1 vCPU on plain, 1 s"
    assert values["delays"][0]["wait_s"] == 4.0


def test_a_live_run_is_explained_alike_and_replayed_exactly(tmp_path):
    run = read_logged_run(log_run(TEN, tmp_path / "run", "fairlead"))
    assert in_words(tell(run.recording, 4)) == in_words(story_of(TEN, 4))
    assert check_exactly(run) is None


def test_notes_of_another_version_are_left_out(tmp_path):
    recording = simulate(TEN, "fairlead")
    plans = recording.requests["plan"].str.replace_all(r'\["(admitted|started)"', '["other"')
    story = tell(replace(recording, requests=recording.requests.with_columns(plan=plans)), 4)
    assert (story.admitted, story.stages[0].note, story.plan) == (None, None, "f: 1x 1 vCPU on plain, 1 s")
    assert "fairlead promised an answer by 1.125 s (1.12 s after it came): f: 1x 1 vCPU on plain, 1 s." in " ".join(
        in_words(story)
    )
