"""Traces: what a viewer is given."""

import json

import pytest
from report_frames import invocation, recording, request, small

from fairlead.report import write_trace


def events(run, tmp_path, kind=None):
    trace = json.loads(write_trace(run, tmp_path / "trace.json").read_text())
    return [event for event in trace["traceEvents"] if kind in (None, event["ph"])]


def test_slices_are_in_order_and_last_no_negative_time(tmp_path):
    slices = events(small(), tmp_path, "X")
    assert [event["ts"] for event in slices] == sorted(event["ts"] for event in slices)
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in slices)


def test_slices_of_an_instance_do_not_overlap(tmp_path):
    ends = {}
    for event in events(small(), tmp_path, "X"):
        thread = event["pid"], event["tid"]
        assert event["ts"] >= ends.get(thread, 0)
        ends[thread] = event["ts"] + event["dur"]


def test_a_batch_is_a_cold_start_a_transfer_and_a_run(tmp_path):
    run = recording([request(7, 0.5, 4)], [invocation(7, 0.5, 1, 4, batch=3, cold_s=1, transfer_s=0.5, is_cold=True)])
    slices = events(run, tmp_path, "X")
    assert [(event["cat"], event["ts"], event["dur"]) for event in slices] == [
        ("cold start", 1e6, 1e6),
        ("transfer", 2e6, 0.5e6),
        ("run", 2.5e6, 1.5e6),
    ]
    assert slices[0]["args"] == {
        "request": 7,
        "workflow": "main",
        "batch": 3,
        "batch_size": 1,
        "wait_us": 0.5e6,
        "outcome": "done",
    }


def test_nodes_are_processes_and_instances_threads(tmp_path):
    names = {(event["name"], event["args"].get("name")) for event in events(small(), tmp_path, "M")}
    assert {("process_name", "n0"), ("process_name", "n1"), ("thread_name", "gpu0 detect #2")} <= names


def test_counters_follow_what_waits_and_what_is_busy(tmp_path):
    counters = events(small(), tmp_path, "C")
    waiting = [(e["ts"] / 1e6, e["args"]["invocations"]) for e in counters if e["name"] == "waiting invocations"]
    assert waiting[:4] == [(0.5, 1), (2.0, 0), (4.0, 1), (6.0, 2)]
    assert waiting[-1] == (8.0, 0)
    busy = [(e["ts"] / 1e6, e["args"]["vcpus"]) for e in counters if e["name"] == "busy vCPUs" and e["pid"] == 1]
    assert busy == [(1.0, 1), (2.0, 2), (3.0, 1), (4.0, 0), (7.0, 1), (8.0, 0)]


def test_every_counter_is_in_order(tmp_path):
    times = {}
    for event in events(small(), tmp_path, "C"):
        key = event["pid"], event["name"]
        assert event["ts"] > times.get(key, -1)
        times[key] = event["ts"]


def test_refused_requests_are_marked_with_the_reason(tmp_path):
    (mark,) = events(small(), tmp_path, "i")
    assert (mark["name"], mark["ts"], mark["args"]["reason"]) == ("rejected: main", 3e6, "too late")


@pytest.mark.parametrize("run", [recording(), small()], ids=["empty", "small"])
def test_equal_runs_give_equal_traces(run, tmp_path):
    first = write_trace(run, tmp_path / "a.json").read_bytes()
    assert write_trace(run, tmp_path / "b.json").read_bytes() == first
