"""RunLog: what a live run leaves on disk, also when it is killed, when the disk fills up, and when it runs for long."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from math import inf
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairlead
from fairlead.engine.core import events as ev
from fairlead.engine.live.eventlog import decode_instant, encode_instant
from fairlead.engine.live.records import RunHead, RunLog
from fairlead.errors import ConfigError
from fairlead.model import Bounds, Configuration, Device, Node, Refusal, Request
from fairlead.policy.base import Move, Resize, Retire, Scale, Warm
from fairlead.profile import Constant, Exponential, LogNormal, Profile, Row, ScalingLaw, Sum, Table, space
from fairlead.report import summarise
from fairlead.report.live import latest_run, read_live_run
from fairlead.runlog import Kind, Tail, prune_runs, read_frames, read_head, write_head
from fairlead.runlog.head import _SETTINGS, _HeadFile, _ProfileFile
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import DecisionTime, PolicyChoice, Scenario

WORLD = scenario({"f": declared(0.5, cold_start_s=0.1)}, slo_s=2)


def invocation(request: int, *, start: float, end: float, instance: int = 0, batch: int | None = None) -> tuple:
    """The row of one attempt of `f`, alone in its batch."""
    where = (request if batch is None else batch, 1, instance, "n0", -1, 1.0, 0.0)
    return (request, "main", "f", "f", 0, 1, *where, start, start, 0.0, 0.0, end, False, 0.25, "done")


def ended(request: int, *, arrival: float, end: float, outcome: str = "completed") -> tuple:
    """The row of a request with two seconds to its deadline."""
    return (request, "main", arrival, arrival + 2, inf, end, outcome, None, None, None, None, None, None, 0.25)


def arrived(request: int, at: float) -> ev.Arrived:
    return ev.Arrived(Request(request, "main", at, at + 2))


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("segment-*"))


def wait_for(claim, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.02)


def test_what_the_controller_wrote_is_what_a_report_reads(tmp_path):
    log = RunLog(tmp_path / "run", RunHead(app="shop", scenario=WORLD, seed=3))
    log.log(0.0, (arrived(0, 0.0), arrived(1, 0.0)))
    log.invocations.append(invocation(0, start=0.0, end=0.5))
    log.requests.append(ended(0, arrival=0.0, end=0.5))
    log.log(0.5, (ev.Finished(0, 0.5),))
    log.requests.append(ended(1, arrival=0.0, end=3.0))
    log.refused(Refusal(now=0.5, action="Start", reason="no room"))
    log.close(4.0, stale_events=2)
    recording = read_live_run(tmp_path / "run")
    assert (recording.engine, recording.scenario, recording.policy, recording.seed) == ("live", "shop", "fifo", 3)
    assert (recording.end_s, recording.stale_events) == (4.0, 2)
    assert [refusal.reason for refusal in recording.refusals] == ["no room"]
    summary = summarise(recording)
    assert (summary.requests, summary.completed, summary.slo_attainment) == (2, 2, 0.5)
    assert summary.latency_s.mean == pytest.approx(1.75)


def test_goodput_is_not_averaged_over_the_time_before_the_first_request(tmp_path):
    log = RunLog(tmp_path / "run", RunHead(app="shop", scenario=WORLD))
    for number in range(4):  # from 100 s on, one each second, answered in half a second
        at = 100.0 + number
        log.log(at, (arrived(number, at),))
        log.requests.append(ended(number, arrival=at, end=at + 0.5))
    log.close(500.0)
    assert summarise(read_live_run(tmp_path / "run")).goodput_rps == pytest.approx(4 / 3.5)


def test_a_run_that_still_goes_on_can_be_read(tmp_path):
    log = RunLog(tmp_path, RunHead(app="shop", scenario=WORLD))
    log.log(1.0, (arrived(0, 1.0), arrived(1, 1.0)))
    log.log(1.2, (ev.InstanceReady(7),))
    log.invocations.append(invocation(0, start=1.25, end=1.75, instance=7))
    log.requests.append(ended(0, arrival=1.0, end=1.75))
    log.flush()
    wait_for(lambda: sum(len(frame.entries) for frame in read_frames(tmp_path)) == 4)
    recording = read_live_run(tmp_path)
    log.close(2.0)
    assert recording.requests.select("request", "outcome", "end").rows() == [
        (0, "completed", 1.75),
        (1, "unfinished", None),
    ]
    ((id, ready, busy_s, stopped),) = recording.instances.select("instance", "ready", "busy_s", "stopped").rows()
    assert (id, ready, busy_s, stopped) == (7, 1.2, 0.5, None)


WRITER = """
import sys
from pathlib import Path
from time import sleep
from fairlead.engine.live.records import RunHead, RunLog
from fairlead.engine.core.events import Arrived, Finished
from fairlead.model import Request
from fairlead.testing import scenario
log = RunLog(Path(sys.argv[1]), RunHead(app="shop", scenario=scenario(1.0)), segment_bytes=200_000)
number = 0
while True:
    for _ in range(200):
        log.log(float(number), (Arrived(Request(number, "main", float(number), number + 2.0)),))
        log.requests.append((number, "main", float(number), number + 2.0, None, number + 0.5, "completed",
                             None, None, None, None, None, None, 0.0))
        number += 1
        log.trim()
    print(number, flush=True)
    sleep(0.002)
"""


def test_a_killed_writer_leaves_all_but_its_last_moments(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(fairlead.__file__).parents[1])}
    command = [sys.executable, "-c", WRITER, str(tmp_path / "run")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as writer:
        try:
            wait_for(lambda: len(segments(tmp_path / "run")) >= 3)
        finally:
            os.kill(writer.pid, signal.SIGKILL)
            told = writer.stdout.read().splitlines()
    tail = Tail()
    frames = list(read_frames(tmp_path / "run", tail))
    recording = read_live_run(tmp_path / "run")
    numbers = recording.requests["request"].to_list()
    assert tail.is_whole
    assert not any(frame.kind == Kind.END for frame in frames)
    assert sorted(numbers) == list(range(len(numbers)))  # none is missing in between
    assert 1000 < len(numbers) <= int(told[-1]) + 200 + 1
    assert recording.end_s == max(entry[0] for f in frames if f.kind == Kind.INSTANTS for entry in f.entries)


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 30])
def test_a_torn_end_costs_only_the_last_frame(tmp_path, cut):
    log = RunLog(tmp_path, RunHead(app="shop", scenario=WORLD))
    log.requests += [ended(i, arrival=float(i), end=i + 1.0) for i in range(3)]
    log.close(5.0)
    (segment,) = segments(tmp_path)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-cut])
    recording = read_live_run(tmp_path)
    assert recording.requests["request"].to_list() == ([0, 1, 2] if cut < 30 else [])
    tail = Tail()
    list(read_frames(tmp_path, tail))
    assert tail.damaged_bytes > 0 or cut == 30


def test_a_flipped_bit_ends_its_segment_and_is_counted(tmp_path):
    log = RunLog(tmp_path, RunHead(app="shop", scenario=WORLD), segment_bytes=1)
    log.requests.append(ended(0, arrival=0.0, end=1.0))
    log.log(0.0, (arrived(0, 0.0),))
    log.close(1.0)
    first, *others = segments(tmp_path)
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    tail = Tail()
    kinds = [frame.kind for frame in read_frames(tmp_path, tail)]
    assert kinds == [Kind.INSTANTS, Kind.END]
    assert (tail.damaged_bytes, len(others)) == (len(data), 2)


def test_the_oldest_segments_go_when_there_are_too_many(tmp_path):
    log = RunLog(tmp_path, RunHead(app="shop", scenario=WORLD), segment_bytes=4_000, keep_bytes=20_000)
    for i in range(3_000):
        log.requests.append(ended(i, arrival=float(i), end=i + 1.0))
    log.close(5.0)
    tail = Tail()
    last = [frame for frame in read_frames(tmp_path, tail) if frame.kind == Kind.REQUESTS][-1].entries[-1][0]
    assert sum(path.stat().st_size for path in segments(tmp_path)) <= 20_000 + 12_000  # and the frame that ends one
    assert (tail.is_whole, last) == (False, 2_999)
    assert 0 < read_live_run(tmp_path).requests.height < 3_000


def test_of_a_long_run_the_beginning_and_the_end_can_be_read_alone(tmp_path):
    log = RunLog(tmp_path, RunHead(app="shop", scenario=WORLD), segment_bytes=4_000)
    for i in range(3_000):
        log.requests.append(ended(i, arrival=float(i), end=i + 1.0))
    log.close(5.0)
    tail = Tail()
    frames = [frame for frame in read_frames(tmp_path, tail, newest_bytes=20_000) if frame.kind == Kind.REQUESTS]
    numbers = [entry[0] for frame in frames for entry in frame.entries]
    assert (numbers[0], numbers[-1], tail.is_whole) == (0, 2_999, False)
    assert 0 < len(numbers) < 1_000
    assert read_live_run(tmp_path, newest_bytes=20_000).requests.height == len(numbers)
    assert read_live_run(tmp_path, newest_bytes=1 << 30).requests.height == 3_000
    assert read_live_run(tmp_path, newest_bytes=1).requests.height > 0  # one segment at least


def test_a_full_disk_ends_the_records_and_is_said_once(tmp_path):
    said: list[str] = []
    log = RunLog(tmp_path / "run", RunHead(app="shop", scenario=WORLD), say=said.append)
    full = os.open("/dev/full", os.O_WRONLY)
    log._segments._file = full  # every write to it fails as on a full disk
    for i in range(1_000):
        log.requests.append(ended(i, arrival=0.0, end=1.0))
        log.trim()
    log.flush()
    wait_for(lambda: log.has_failed)
    log.requests.append(ended(1_000, arrival=0.0, end=1.0))
    log.close(1.0)
    assert len(said) == 1
    assert "No space left" in said[0]
    assert log.requests == []
    assert log.lost >= 1_000 - 96
    assert read_live_run(tmp_path / "run").requests.height == 0


def test_a_folder_that_cannot_be_made_does_not_stop_the_run(tmp_path):
    (tmp_path / "file").write_text("in the way")
    said: list[str] = []
    log = RunLog(tmp_path / "file" / "run", RunHead(app="shop", scenario=WORLD), say=said.append)
    log.requests.append(ended(0, arrival=0.0, end=1.0))
    log.close(1.0)
    assert (len(said), log.has_failed, log.lost) == (1, True, 1)


def test_rows_with_numbers_of_numpy_are_written(tmp_path):
    log = RunLog(tmp_path, RunHead(app="shop", scenario=WORLD))
    row = ended(np.int64(4), arrival=np.float64(0.5), end=np.float64(1.5))
    log.requests.append(row)
    log.close(1.0)
    assert read_live_run(tmp_path).requests["request"].to_list() == [4]


def test_closing_twice_is_harmless(tmp_path):
    log = RunLog(tmp_path, RunHead(app="shop", scenario=WORLD))
    log.close(1.0)
    log.close(2.0)
    assert read_live_run(tmp_path).end_s == 1.0


def test_the_files_are_for_their_owner_only(tmp_path):
    log = RunLog(tmp_path / "run", RunHead(app="shop", scenario=WORLD))
    log.requests.append(ended(0, arrival=0.0, end=1.0))
    log.close(1.0)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()} == {0o600}


LAWS = (
    Constant(0.5),
    Exponential(0.5),
    LogNormal(0.5, 1.5),
    Table((Row(seconds=0.1), Row(seconds=0.2, batch=2, kind="plain"))),
    ScalingLaw(t1_s=0.5, beta=0.7),
    Sum((Constant(0.1), ScalingLaw(t1_s=0.2))),
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_a_head_gives_the_scenario_back(tmp_path, law):
    profile = Profile(
        law=law,
        configurations=space(batch=(1, 2)),
        cold_start_s=0.1,
        cold_start_by_kind={"plain": 0.2},
        noise=0.1,
        bias=1.1,
        failure_rate=0.2,
        sensitivity=0.3,
        pressure=0.4,
    )
    made = scenario(
        1.0,
        on=cluster(2, vgpus=2),
        slo_s=1.5,
        policy=PolicyChoice(name="earliest-deadline", parameters={"headroom": 0.2}),
        scaler=PolicyChoice(name="some", parameters={"limit": inf}),
        control_period_s=3.0,
        decision=DecisionTime(fixed_s=0.01),
        on_loss="fail",
        max_attempts=2,
        retry_delay_s=0.5,
        provision_s=7.0,
        growth={"plain": Bounds(least=1, most=4, provision_s=2.0)},
    )
    made = msgspec.structs.replace(RunHead(app="a", scenario=made)).scenario
    object.__setattr__(made, "profiles", {"f": profile})
    write_head(RunHead(app="a", scenario=made, seed=9, generation=2, started_unix=1.5, manifest={"x": inf}), tmp_path)
    head = read_head(tmp_path)
    assert (head.app, head.seed, head.generation, head.started_unix, head.manifest) == ("a", 9, 2, 1.5, {"x": inf})
    for name in ("cluster", "functions", "profiles", "workflows", "policy", "scaler", "decision", "control_period_s"):
        assert getattr(head.scenario, name) == getattr(made, name), name
    for name in ("on_loss", "max_attempts", "retry_delay_s", "provision_s", "growth"):
        assert getattr(head.scenario, name) == getattr(made, name), name


def test_the_head_knows_every_field_of_a_profile_and_of_a_scenario():
    """One that is added later must be written too, or a replay would quietly go without it."""
    assert set(_ProfileFile.__struct_fields__) == set(Profile.__struct_fields__)
    elsewhere = {"name", "description", "arrivals", "duration_s", "warmup_s", "node_faults", "pressures", "sweep"}
    elsewhere.add("host")  # models the machine in a simulation; a live run is on the machine itself
    written = set(_SETTINGS) | set(_HeadFile.__struct_fields__)
    assert {field.name for field in fields(Scenario)} - elsewhere <= written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not the head of a live run"),
        ("[]", "format must be 1; got None"),
        ('{"format": 2}', "format must be 1; got 2"),
        ('{"format": 1}', "not the head of a live run"),
        ('{"format": {"float": "x"}}', "not the head of a live run"),
    ],
)
def test_what_is_no_head_is_refused_in_words(tmp_path, text, message):
    (tmp_path / "live.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_head(tmp_path)


def test_a_folder_without_a_run_says_how_to_get_one(tmp_path):
    with pytest.raises(ConfigError, match="fairlead serve"):
        read_live_run(tmp_path)


def test_rows_of_another_shape_are_refused_in_words(tmp_path):
    log = RunLog(tmp_path, RunHead(app="shop", scenario=WORLD))
    log.requests.append((1, 2, 3))
    log.close(1.0)
    with pytest.raises(ConfigError, match="rows of 3 columns where 14 are needed"):
        read_live_run(tmp_path)


def test_the_latest_run_of_a_state_folder_is_found(tmp_path):
    assert latest_run(tmp_path) is None
    for number in (1, 2, 10):
        RunLog(tmp_path / "shop" / "runs" / str(number), RunHead(app="shop", scenario=WORLD)).close(1.0)
        os.utime(tmp_path / "shop" / "runs" / str(number) / "live.json", (number, number))
    assert latest_run(tmp_path) == latest_run(tmp_path / "shop") == tmp_path / "shop" / "runs" / "10"


def test_old_runs_are_pruned_and_nothing_else(tmp_path):
    for number in (1, 2, 9, 10):
        RunLog(tmp_path / str(number), RunHead(app="shop", scenario=WORLD)).close(1.0)
    (tmp_path / "1" / "notes.txt").write_text("mine")
    (tmp_path / "mine").mkdir()
    assert prune_runs(tmp_path, keep=2) == [tmp_path / "2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "10", "9", "mine"]


TEXTS = st.text(max_size=5)
NUMBERS = st.floats(allow_nan=False)
WHOLE = st.integers(0, 2**40)
SIZES = st.builds(Configuration, batch=st.integers(1, 64), vcpus=st.sampled_from([0.5, 1.0]))
ACTIONS = st.one_of(
    st.builds(Warm, TEXTS, SIZES, TEXTS),
    st.builds(Retire, WHOLE),
    st.builds(Scale, TEXTS, WHOLE, st.none() | SIZES),
    st.builds(Resize, TEXTS, NUMBERS, NUMBERS),
    st.builds(Move, TEXTS, TEXTS),
)
OUTCOMES = st.builds(ev.Outcome, st.booleans(), st.none() | TEXTS, WHOLE, st.none() | TEXTS)
EVENTS = st.one_of(
    st.builds(ev.NodeLost, TEXTS),
    st.builds(ev.NodeJoined, st.builds(Node, name=TEXTS, kind=TEXTS, vcpus=st.sampled_from([1.0, 2.5]))),
    st.builds(ev.Pressure, TEXTS, NUMBERS),
    st.builds(ev.InstanceLost, WHOLE, TEXTS),
    st.builds(ev.InstanceReady, WHOLE),
    st.builds(ev.Finished, WHOLE, NUMBERS, NUMBERS, st.none() | st.lists(OUTCOMES, max_size=3).map(tuple)),
    st.builds(ev.Cancelled, WHOLE),
    st.builds(ev.Arrived, st.builds(Request, WHOLE, TEXTS, NUMBERS, NUMBERS, NUMBERS), WHOLE),
    st.builds(ev.Ordered, ACTIONS),
    st.builds(ev.InstanceGone, WHOLE),
    st.builds(ev.ResizeRefused, WHOLE, NUMBERS),
    st.builds(ev.NodeChanged, TEXTS, NUMBERS, NUMBERS, st.none() | st.just((Device(vgpus=7.0, sharing="mig"),))),
    st.builds(ev.InstanceAdopted, WHOLE, TEXTS, SIZES, TEXTS, st.integers(-1, 3)),
    st.builds(ev.Recalled, WHOLE, TEXTS, WHOLE, OUTCOMES),
    st.builds(ev.Tried, st.dictionaries(TEXTS, st.just((Row(seconds=0.5), Row(seconds=0.75, batch=2))), max_size=2)),
)


@settings(max_examples=60, deadline=None)
@given(now=NUMBERS, events=st.lists(EVENTS, max_size=4))
def test_every_event_comes_back_as_it_was(now, events):
    packed = msgspec.msgpack.encode(encode_instant(now, events))
    assert decode_instant(msgspec.msgpack.decode(packed)) == (now, events)


def test_every_kind_of_event_has_a_number():
    assert set(ev.RANK) == {type(event) for event in (ev.NodeLost("n"), *_one_of_each())}


def _one_of_each() -> list[ev.Event]:
    rest = [
        [7, 1, "main", 0.0, 1.0, 1.0, 1],
        [1, {"name": "n", "kind": "k", "vcpus": 1.0}],
        [2, "n", 0.5],
        [3, 1, "gone"],
        [4, 1],
        [5, 1, 0.5, 0.0, None],
        [6, 1],
        [8, "Retire", {"instance": 1}],
        [9, "n", [0.5, 1.0]],
        [10, 1, "too late"],
        [11, 1],
        [12, 1, 0.5],
        [13, "n", 0.5, 1.5, None],
        [14, 1, "f", {"vcpus": 1.0}, "n", -1],
        [15, "n", "close"],
        [16, 1, "s", 0, {"ok": True}],
        [17, {"f": [{"seconds": 0.5}]}],
        [18, 1, ["weights"]],
    ]
    return decode_instant([0.0, rest])[1]


@pytest.mark.parametrize("event", [[99], ["x"], [8, "Start", {}], [5, 1], [4, "one"]])
def test_an_event_of_another_version_is_refused(event):
    with pytest.raises(ValueError):  # noqa: PT011 - whose words are msgspec's
        decode_instant([0.0, [event]])
