"""The load generator against real servers: what it counts, from when, and what it does not hide."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from load_server import BODY, STALL_S
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.load import Call, Closed, Listed, Open, Picks, Plan, Target, run_load
from fairlead.load.clock import Alarm
from fairlead.load.connections import Pool
from fairlead.load.result import REFUSALS, summarise
from fairlead.load.samples import CLOSED, OPEN, TIMED_OUT, UNSENT, Samples

SERVER = Path(__file__).with_name("load_server.py")


@contextmanager
def started_server():
    with subprocess.Popen([sys.executable, "-S", str(SERVER)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server():
    with started_server() as url:
        yield url


@pytest.fixture
def stalling_server():
    """A server of the test's own: it stalls once in its life."""
    with started_server() as url:
        yield url


def even(rate_rps: float) -> Open:
    return Open(rate_rps=rate_rps, pattern="even")


def test_every_arrival_is_sent_and_counted(server):
    result = run_load(f"{server}/ok", Plan(arrivals=even(50), duration_s=1))
    assert (result.offered, result.answered, result.in_time, result.unsent) == (50, 50, 50, 0)
    assert (result.offered_rps, result.goodput_rps, result.attainment) == (50, 50, 1)
    assert result.refused == result.errors == {}
    assert 0 < result.latency.p50_s <= result.latency.p99_s <= result.latency.max_s


def test_one_plan_sends_several_calls_and_counts_each(server):
    calls = (
        Call(name="quick", path="/ok", body=b"1", deadline_s=20.0),
        Call(name="slow", path="/slow", body=b"1", deadline_s=0.001),
        Call(name="busy", path="/busy", body=b"1"),
    )
    result = run_load(server, Plan(arrivals=even(60), duration_s=0.5, calls=calls))
    assert (result.offered, result.answered, result.in_time) == (30, 20, 10)
    assert {name: (part.offered, part.answered, part.in_time) for name, part in result.by_call.items()} == {
        "quick": (10, 10, 10),
        "slow": (10, 10, 0),  # it takes 50 ms
        "busy": (10, 0, 0),
    }
    assert (result.deadline_s, result.by_call["quick"].deadline_s) == (None, 20.0)
    assert result.by_call["busy"].refused == {"429 too much is ahead": 10}


def test_each_call_brings_its_own_deadline(server):
    """`/deadline` answers only what has one of at most 20 s."""
    calls = (
        Call(name="with", path="/deadline", body=b"1", deadline_s=20.0),
        Call(name="without", path="/deadline", body=b"1"),
    )
    result = run_load(server, Plan(arrivals=even(20), duration_s=0.5, calls=calls))
    assert (result.by_call["with"].answered, result.by_call["without"].answered) == (5, 0)


def test_random_picks_are_even_and_a_longer_load_begins_like_a_shorter_one():
    picks, again = Picks(4, "random", seed=1), Picks(4, "random", seed=1)
    drawn = [picks(place) for place in range(8000)]
    assert [again(place) for place in (7999, 0, 17)] == [drawn[7999], drawn[0], drawn[17]]
    assert all(1800 < drawn.count(each) < 2200 for each in range(4))  # 2,000 each; six standard deviations are 232
    assert [Picks(3)(place) for place in range(5)] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"body": b"1"}, "those of each call"),
        ({"deadline_s": 1.0}, "those of each call"),
        ({"mix": "even"}, "mix must be one of turn, random"),
        ({"mix_seed": -1}, "mix_seed must not be negative"),
    ],
)
def test_a_plan_with_calls_says_what_is_wrong(fields, what):
    with pytest.raises(ValueError, match=what):
        Plan(arrivals=even(1), duration_s=1, calls=(Call(name="a", path="/a"),), **fields)


def test_a_call_needs_a_path():
    with pytest.raises(ValueError, match="must begin with /"):
        Call(name="a", path="http://else.where/")


def test_a_stall_is_seen_by_all_who_were_due_in_it(stalling_server):
    """Some 50 of 160 arrivals fall into half a second in which the server answers nobody."""
    open_loop = run_load(f"{stalling_server}/stall", Plan(arrivals=even(100), duration_s=1.6))
    assert open_loop.offered == 160
    assert open_loop.latency.max_s >= STALL_S * 0.9
    assert open_loop.latency.p95_s > STALL_S / 2


def test_a_closed_loop_hides_the_stall(stalling_server):
    closed = run_load(f"{stalling_server}/stall", Plan(arrivals=Closed(1), duration_s=60, max_requests=100))
    assert closed.latency.max_s >= STALL_S * 0.9
    assert closed.latency.p95_s < STALL_S / 2


def test_refusals_are_counted_by_status_and_reason(server):
    result = run_load(f"{server}/busy", Plan(arrivals=even(40), duration_s=0.5, deadline_s=10))
    assert result.refused == {"429 too much is ahead": 20}
    assert (result.answered, result.attainment, result.refused_in_time) == (0, 0, 1)
    assert result.latency.p50_s is None
    assert result.refusal_latency.p50_s > 0


def test_a_refusal_needs_no_reason(server):
    result = run_load(f"{server}/plain-busy", Plan(arrivals=even(40), duration_s=0.25))
    assert result.refused == {"503": 10}
    assert result.refused_in_time is None


def test_an_answer_after_the_deadline_is_no_goodput(server):
    result = run_load(f"{server}/slow", Plan(arrivals=even(40), duration_s=0.5, deadline_s=0.02))
    assert (result.answered, result.in_time, result.attainment, result.goodput_rps) == (20, 0, 0, 0)


def test_what_is_left_of_the_deadline_goes_along(server):
    result = run_load(f"{server}/deadline", Plan(arrivals=even(40), duration_s=0.5, deadline_s=20))
    assert result.answered == 20


def test_body_and_headers_arrive_as_given(server):
    plan = Plan(arrivals=even(20), duration_s=0.5, body=BODY, headers=(("Authorization", "Bearer abc"),))
    assert run_load(f"{server}/echo", plan).answered == 10


def test_a_header_that_is_given_replaces_the_one_sent_by_default():
    head = Target.of("http://127.0.0.1:8000/").head(BODY, [("content-type", "text/plain")]).decode().lower()
    assert [line for line in head.split("\r\n") if line.startswith("content-type")] == ["content-type: text/plain"]
    assert "accept: application/json" in head


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/broken", "500"),
        ("/drop", "connection closed"),
        ("/garbage", "no HTTP answer"),
        ("/hang", "no answer in time"),
    ],
)
def test_a_failure_is_named(server, path, error):
    timeout_s = 0.5 if path == "/hang" else 60
    result = run_load(f"{server}{path}", Plan(arrivals=even(20), duration_s=0.5, timeout_s=timeout_s))
    assert result.errors == {error: 10}
    assert (result.answered, result.attainment) == (0, 0)


def test_nobody_there_is_counted_not_raised():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        assert run_load(url, Plan(arrivals=even(20), duration_s=0.5)).errors == {"no connection": 10}


def test_a_server_that_closes_after_each_answer_is_asked_again(server):
    assert run_load(f"{server}/once", Plan(arrivals=even(100), duration_s=0.5)).answered == 50


def test_what_cannot_be_sent_is_missed_not_hidden(server):
    plan = Plan(arrivals=even(40), duration_s=0.5, max_in_flight=5, timeout_s=1)
    result = run_load(f"{server}/hang", plan)
    assert (result.offered, result.unsent, result.errors) == (20, 15, {"no answer in time": 5})


def test_the_warm_up_is_sent_but_not_counted(server):
    result = run_load(f"{server}/ok", Plan(arrivals=even(40), duration_s=1, warm_up_s=0.5))
    assert (result.offered, result.offered_rps) == (20, 40)


def test_users_wait_for_their_answers(server):
    """An answer takes 50 ms, so each of four users gets at most 20 a second."""
    result = run_load(f"{server}/slow", Plan(arrivals=Closed(4), duration_s=1))
    assert 1 <= result.answered <= 80
    assert result.users == 4
    assert result.latency.p50_s >= 0.049


def test_refused_users_do_not_storm(server):
    """After a refusal a user waits 10 ms: two of them send at most 100 in half a second, and one more each."""
    result = run_load(f"{server}/busy", Plan(arrivals=Closed(2), duration_s=0.5))
    assert 2 <= result.offered <= 102


def test_the_number_of_requests_is_bounded(server):
    listed = Listed(tuple(i / 100 for i in range(100)))
    assert run_load(f"{server}/ok", Plan(arrivals=listed, duration_s=1, max_requests=7)).offered == 7
    closed = run_load(f"{server}/ok", Plan(arrivals=Closed(2), duration_s=60, max_requests=7))
    assert closed.offered == 7


@pytest.mark.parametrize("has_kernel_timer", [True, False], ids=["kernel-timer", "loop-timer"])
def test_no_user_begins_before_the_start(server, has_kernel_timer, monkeypatch):
    """The time is nearly a whole millisecond when the start is set, so a loop's timer would ring 0.9 ms early."""
    if not has_kernel_timer:
        monkeypatch.setattr("fairlead.load.clock._open_timer", lambda: None)

    async def warm(pool, count):
        while monotonic() * 1000 % 1 < 0.9:
            pass

    begun = []

    def keep(url, plan, samples, start, **more):
        begun.extend(one - start for one in samples.scheduled)
        return summarise(url, plan, samples, start, **more)

    monkeypatch.setattr(Pool, "warm", warm)
    monkeypatch.setattr("fairlead.load.run.summarise", keep)
    for _ in range(5):  # beside a busy program a timer is late as often as early
        result = run_load(f"{server}/ok", Plan(arrivals=Closed(2), duration_s=60, max_requests=2))
        assert result.offered == result.answered == 2
        assert result.generator_cpu >= 0
    assert min(begun) >= 0


def test_a_generator_that_is_late_itself_says_so(server):
    """Its loop is blocked for 0.2 s of each 0.3 s."""
    result = run_load(f"{server}/ok", Plan(arrivals=even(50), duration_s=1), progress=lambda _: sleep(0.2))
    assert result.lag.max_s > 0.1
    assert result.is_generator_late
    assert result.latency.max_s >= result.lag.max_s  # from the scheduled arrival, not from the sending


def test_progress_is_told(server):
    seen = []
    run_load(f"{server}/ok", Plan(arrivals=even(20), duration_s=0.6), progress=seen.append)
    assert seen
    assert all(0 <= one.ended <= one.sent <= 12 for one in seen)
    assert [one.elapsed_s for one in seen] == sorted(one.elapsed_s for one in seen)


@pytest.mark.parametrize("has_kernel_timer", [True, False], ids=["kernel-timer", "loop-timer"])
def test_an_alarm_rings_at_its_instant(has_kernel_timer, monkeypatch):
    if not has_kernel_timer:
        monkeypatch.setattr("fairlead.load.clock._open_timer", lambda: None)

    async def run() -> list[float]:
        loop = asyncio.get_running_loop()
        rung: list[float] = []
        alarm = Alarm(loop, lambda: rung.append(monotonic() - instant))
        instant = monotonic() + 60
        alarm.set(instant)
        instant = monotonic() + 0.05
        alarm.set(instant)
        while not rung:
            await asyncio.sleep(0.01)
        alarm.close()
        return rung

    (late_s,) = asyncio.run(run())
    assert -0.002 <= late_s < 50  # the first, which would ring after 60 s, is forgotten


@given(st.lists(st.floats(0, 100), max_size=30), st.floats(0.1, 100))
@settings(max_examples=60, deadline=None)
def test_listed_instants_are_sorted_and_before_the_end(times, duration_s):
    instants = Listed(tuple(times)).instants(duration_s)
    assert instants == sorted(time for time in times if time < duration_s)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 10),
            st.floats(0, 2),
            st.sampled_from([200, 204, 404, 500, UNSENT, TIMED_OUT, CLOSED, *REFUSALS]),
        ),
        max_size=40,
    ),
    st.floats(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_every_arrival_after_the_warm_up_is_in_exactly_one_count(arrivals, warm_up_s):
    samples = Samples()
    for scheduled, latency_s, status in arrivals:
        samples.end(samples.begin(scheduled, scheduled), scheduled + latency_s, status)
    plan = Plan(arrivals=even(1), duration_s=10, warm_up_s=warm_up_s, deadline_s=1)
    result = summarise("http://127.0.0.1/", plan, samples, 0.0, cpu_share=0.0)
    counted = [one for one in arrivals if warm_up_s <= one[0] < 10]
    assert result.offered == len(counted)
    parts = result.answered + sum(result.refused.values()) + sum(result.errors.values()) + result.unsent
    assert parts == result.offered
    assert result.in_time == sum(status in (200, 204) and start + more - start <= 1 for start, more, status in counted)


def test_a_row_is_open_until_it_ends():
    samples = Samples()
    samples.begin(0.0, 0.0)
    assert samples.status[0] == OPEN


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Open(rate_rps=0), "rate_rps"),
        (lambda: Open(rate_rps=1, pattern="odd"), "pattern"),
        (lambda: Closed(0), "users"),
        (lambda: Listed((-1.0,)), "times"),
        (lambda: Plan(arrivals=Closed(1), duration_s=0), "duration_s"),
        (lambda: Plan(arrivals=Closed(1), duration_s=1, warm_up_s=1), "warm_up_s"),
        (lambda: Plan(arrivals=Closed(1), duration_s=1, deadline_s=-1), "deadline_s"),
        (lambda: Plan(arrivals=Closed(9), duration_s=1, max_in_flight=8), "max_in_flight"),
        (lambda: Plan(arrivals=even(1e6), duration_s=3600), "rate_rps x duration_s"),
        (lambda: Plan(arrivals=Closed(1), duration_s=1, headers=(("A", "b\r\nC: d"),)), "headers"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000, "/", True)),
        ("http://localhost/a b?c=d", ("localhost", 80, "/a%20b?c=d", True)),
        ("http://[::1]:9/x", ("::1", 9, "/x", True)),
        ("https://localhost", ("localhost", 443, "/", True)),
        ("http://10.0.0.1/", ("10.0.0.1", 80, "/", False)),
        ("http://127.0.0.1.example.com/", ("127.0.0.1.example.com", 80, "/", False)),
    ],
)
def test_a_url_is_taken_apart(url, expected):
    target = Target.of(url)
    assert (target.host, target.port, target.path, target.is_loopback) == expected


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:80",
        "ftp://127.0.0.1/",
        "http://",
        "http://a:b@127.0.0.1/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:0/",
        "http://[::1",
        "http://a b/",
        "http://" + 70 * "a" + ".example/",
        "http://\u2100/",
        "http://127.0.0.1/\udce9",
    ],
)
def test_a_url_that_cannot_be_asked_is_refused(url):
    with pytest.raises(ValueError, match="the URL"):
        Target.of(url)


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fairlead", "load", *arguments],
        env={key: value for key, value in os.environ.items() if key != "FAIRLEAD_TOKEN"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_command_prints_what_came_of_the_load(server):
    done = load(f"{server}/busy", "--rate", "40", "--arrivals", "even", "--duration", "500ms", "--body", "{}")
    assert done.returncode == 1  # nothing was answered
    assert "429 too much is ahead" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_command_takes_token_body_and_instants_from_files(server, tmp_path):
    (tmp_path / "token").write_text("abc\n")
    (tmp_path / "body.json").write_bytes(BODY)
    (tmp_path / "instants").write_text("# seconds\n0.1\n0.3  # late\n\n0.2\n")
    arguments = ["--arrivals", str(tmp_path / "instants"), "--body", f"@{tmp_path / 'body.json'}", "--json", "-", "-q"]
    for options, token in ((["--token-file", str(tmp_path / "token")], None), ([], "abc")):
        done = CliRunner().invoke(app, ["load", f"{server}/echo", *arguments, *options], env={"FAIRLEAD_TOKEN": token})
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["answered"] == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["http://192.0.2.1/", "--rate", "1"], "--allow-remote"),
        (["http://127.0.0.1:1/x"], "--rate N, --users N"),
        (["http://127.0.0.1:1/x", "--rate", "1", "--users", "2"], "got --rate and --users"),
        (["http://127.0.0.1:1/x", "--rate", "1", "--duration", "soon"], "--duration"),
        (["http://127.0.0.1:1/x", "--rate", "-3"], "--rate must be positive"),
        (["http://127.0.0.1:1/x", "--arrivals", "/no/such/file"], "cannot be read"),
        (["http://127.0.0.1:1/x", "--rate", "1", "--input", "1"], "--input"),
        (["ftp://127.0.0.1/", "--rate", "1"], "the URL"),
    ],
)
def test_wrong_use_is_said_in_a_sentence(arguments, says):
    done = CliRunner().invoke(app, ["load", *arguments])
    assert done.exit_code == 2
    assert says in done.output


def test_a_gateway_that_is_not_there_is_said_in_a_sentence():
    done = CliRunner().invoke(app, ["load", "http://127.0.0.1:1", "--rate", "1"])
    assert done.exit_code == 1
    assert "does not answer" in done.output
