"""The story of a request: every number of it can be checked by hand."""

import dataclasses
import json
from math import inf

import polars as pl
import pytest
from logged_runs import log_run

from fairlead.cli.explain import explain
from fairlead.cli.replay import choose_policies
from fairlead.engine import simulate
from fairlead.errors import ConfigError
from fairlead.model import Workflow
from fairlead.profile import Row, Table
from fairlead.replay import read_logged_run
from fairlead.report import write_run
from fairlead.report.explain import in_words
from fairlead.report.story import tell
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed

# One vCPU, so one at a time; 1 s each after a cold start of 0.5 s: the ends are 1.5, 2.5 and 3.5.
LINE = scenario({"f": declared(1.0, cold_start_s=0.5)}, arrivals=(0.0, 0.0, 0.25), slo_s=3, on=cluster(1, vcpus=1))


def story_of(folder, request):
    run = read_logged_run(folder)
    return tell(run.recording, request, run.head.scenario.profiles)


def test_a_request_that_waited_says_for_what(tmp_path):
    story = story_of(log_run(LINE, tmp_path / "run"), 2)
    assert (story.arrival, story.deadline, story.end, story.outcome) == (0.25, 3.25, 3.5, "completed")
    assert (story.open_before, story.more_urgent, story.running_before, story.waiting_before) == (2, 2, 1, 1)
    (stage,) = story.stages
    assert (stage.wait_s, stage.cold_s, stage.run_s, stage.busy_before) == (2.25, 0.0, 1.0, True)
    assert (stage.declared_s, stage.expected_s) == (1.0, 1.0)
    told = " ".join(in_words(story))
    assert "Request 2 of main, under fifo: answered after 3.25 s, too late." in told
    assert "2 other requests were open, 2 of them more urgent; 1 invocations were running and 1 were waiting" in told
    assert "f: waited 2.25 s while its instance was busy with another batch, ran 1.00 s where 1.00 s" in told
    assert "answered 250 ms after its deadline" in told


def test_a_request_that_waited_is_told_what_room_there_was():
    """One vCPU: `g` runs from 0 to 1 and stays warm, `f` runs from 1.5 to 2.5, and the next `g` comes at 2."""
    flows = {name: Workflow.chain(name, name) for name in ("f", "g")}
    arrivals = [Listed("g", (0.0, 2.0)), Listed("f", (1.5,))]
    functions = {name: declared(1.0, idle_holds="memory") for name in flows}
    there = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(1, vcpus=1))
    recording = simulate(there, "fifo")
    late = recording.requests.filter(recording.requests["arrival"] == 2.0)["request"][0]
    story = tell(recording, late)
    assert (story.stages[0].met.instances, story.stages[0].met.busy, story.stages[0].met.usable) == (1, 0, 0)
    wait = "Wait: when it became ready, the only instance was idle, but not where 1 vCPU was free; 100 % of all vCPUs"
    assert wait in " ".join(in_words(story))


def test_instances_that_are_starting_take_room_too():
    """Two vCPUs and two starts of 0.5 s; the third comes meanwhile."""
    flows = {name: Workflow.chain(name, name) for name in ("f", "g")}
    functions = {name: declared(1.0, cold_start_s=0.5) for name in flows}
    arrivals = [Listed("f", (0.0, 0.25)), Listed("g", (0.0,))]
    there = scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(1, vcpus=2))
    recording = simulate(there, "fifo")
    last = recording.requests.filter(recording.requests["arrival"] == 0.25)["request"][0]
    met = tell(recording, last).stages[0].met
    assert (met.instances, met.starting, met.vcpus_in_use) == (0, 1, 1.0)


def test_a_cold_start_is_told_with_its_cause(tmp_path):
    told = " ".join(in_words(story_of(log_run(LINE, tmp_path / "run"), 0)))
    assert "f: 500 ms until ready (its instance had to be started), ran 1.00 s" in told
    assert "In all: 500 ms cold starts, 1.00 s running; answered 1.50 s before its deadline" in told


def test_a_refusal_says_why_when_to_come_again_and_what_could_have_been(tmp_path):
    there = scenario({"f": declared(1.0)}, arrivals=(0.0, 0.0), slo_s=1.5, on=cluster(1, vcpus=1))
    story = story_of(log_run(there, tmp_path / "run", "dag-admission", slack=0.0), 1)
    assert (story.outcome, story.stages) == ("rejected", ())
    told = " ".join(in_words(story))
    assert "refused at arrival, at once." in told
    assert "Nothing of it was run." in told
    assert "Why: cannot promise 1.5 s" in told
    assert "It was told to try again in 500 ms." in told
    assert "What could have been promised: an answer within 2.00 s" in told


def test_a_promise_is_told_with_its_steps_and_whether_it_was_kept(tmp_path):
    there = scenario({"f": declared(1.0)}, arrivals=(0.0,), slo_s=1.5, on=cluster(1, vcpus=1))
    told = " ".join(in_words(story_of(log_run(there, tmp_path / "run", "dag-admission", slack=0.0), 0)))
    assert "dag-admission promised an answer by 1.000 s (1.00 s after it came): f@n0. It was kept." in told


def test_the_mates_of_a_batch_are_named(tmp_path):
    law = Table((Row(seconds=1.0), Row(seconds=1.5, batch=4)))
    there = scenario({"f": declared(law)}, arrivals=(0.0, 0.1, 0.1, 0.1), on=cluster(1, vcpus=1), slo_s=9)
    story = story_of(log_run(there, tmp_path / "run", "dag-admission"), 2)
    (stage,) = story.stages
    assert (stage.batch_size, stage.mates, stage.wait_s, stage.run_s) == (3, (1, 3), 0.9, 1.5)
    assert "in a batch of 3 with requests 1, 3." in " ".join(in_words(story))


def test_what_was_to_be_expected_follows_the_runs_before(tmp_path):
    there = scenario({"f": declared(1.0, bias=2.0)}, arrivals=(0.0, 5.0), on=cluster(1, vcpus=1))
    folder = log_run(there, tmp_path / "run")
    first, second = (story_of(folder, request).stages[0] for request in (0, 1))
    assert (first.declared_s, first.expected_s, first.run_s) == (1.0, 1.0, 2.0)
    assert (second.declared_s, second.expected_s, second.run_s) == (1.0, 2.0, 2.0)


def test_a_request_that_never_was_has_no_story(tmp_path):
    assert story_of(log_run(LINE, tmp_path / "run"), 17) is None


def test_a_simulated_run_is_explained_too(tmp_path, capsys):
    write_run(simulate(LINE, "fifo"), tmp_path / "run")
    explain("2", run=tmp_path / "run", json_to=None)
    told = capsys.readouterr().out
    assert told.startswith("Request 2 of main, under fifo: answered after 3.25 s, too late.")
    assert "to be expected" not in told  # a simulated run does not keep its profiles
    explain("2", run=tmp_path / "run", json_to="-")
    values = json.loads(capsys.readouterr().out)
    assert (values["request"], values["deadline"], values["budget_usd"]) == (2, 3.25, None)


def test_the_own_policy_keeps_its_parameters_and_others_do_not(tmp_path):
    run = read_logged_run(log_run(LINE, tmp_path / "run", "earliest-deadline", headroom=0.3))
    own, other = choose_policies(run, ["earliest-deadline", "fifo"], [])
    assert (own.parameters, other.parameters) == ({"headroom": 0.3}, {})
    (changed,) = choose_policies(run, [], ["policy.headroom=0.5"])
    assert changed.parameters == {"headroom": 0.5}
    with pytest.raises(ConfigError, match="no such parameter"):
        choose_policies(run, ["fifo"], ["policy.headroom=0.5"])


def test_no_deadline_is_told_as_none(tmp_path):
    there = scenario(1.0, arrivals=(0.0,))
    story = story_of(log_run(there, tmp_path / "run"), 0)
    assert story.deadline == inf
    assert "It came at 0.000 s. Nothing else was open." in " ".join(in_words(story))


def test_a_reason_does_not_control_the_terminal(tmp_path, capsys):
    run = simulate(LINE, "fifo")
    said = pl.lit("gone\x1b]0;title\x07 \u009b2J").alias("reason")
    write_run(dataclasses.replace(run, requests=run.requests.with_columns(said)), tmp_path / "run")
    explain("2", run=tmp_path / "run", json_to=None)
    told = capsys.readouterr().out
    assert "Why: gone\ufffd]0;title\ufffd \ufffd2J." in told
