"""The sampler, its metrics, and the command."""

import json
import os
import time
from contextlib import ExitStack
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.cli.monitor import frame
from fairlead.cli.places import places_of
from fairlead.engine.live.limits import make_limiter
from fairlead.model import Node
from fairlead.monitor import COUNTERS, Place, Sampler, Signals, choose, local_place
from fairlead.monitor.metrics import text
from fairlead.monitor.signals import InstanceSignals


class Counting:
    """A provider whose samples are 1, 2, 3 and so on."""

    name = "fallback"

    def __init__(self, fails_at=None):
        self.count = 0
        self.is_closed = False
        self.fails_at = fails_at

    def open(self, places):
        pass

    def sample(self, place):
        self.count += 1
        if self.count == self.fails_at:
            raise OSError("the file is gone")
        return Signals(at_s=float(self.count), c0=float(self.count), extras={"busy": 0.5})

    def close(self):
        self.is_closed = True


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_the_last_samples_are_kept_and_averaged():
    provider, place = Counting(), Place(name="n", cpus=(0,))
    with Sampler(provider, [place], every_s=0.01, keep=3) as sampler:
        wait_for(lambda: provider.count >= 8)
    last = provider.count
    assert sampler.latest("n").c0 == last
    assert sampler.mean("n", 2).c0 == last - 0.5
    assert sampler.mean("n", 8).c0 == last - 1  # of the three that are kept
    assert provider.is_closed


def test_what_ends_the_thread_is_told_to_whoever_asks():
    with Sampler(Counting(fails_at=2), [Place(name="n", cpus=(0,))], every_s=0.01) as sampler:
        sampler._thread.join(60)
        with pytest.raises(OSError, match="the file is gone"):
            sampler.latest("n")


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"every_s": 0.0}, "every_s must be positive"), ({"keep": 0}, "keep must be at least 1")],
    ids=["no-time", "nothing-kept"],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampler(Counting(), [Place(name="n", cpus=(0,))], **settings)


def test_two_nodes_of_one_name_are_refused():
    with pytest.raises(ValueError, match="different names"):
        Sampler(Counting(), [Place(name="n", cpus=(0,))] * 2)


def test_a_busy_process_shows_on_this_machine():
    place = local_place([min(os.sched_getaffinity(0))])
    provider, _ = choose([place], "fallback", probe_every_s=None)
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, place.cpus)
    try:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            pass
    finally:
        os.sched_setaffinity(0, own)
    signals = provider.sample(place)
    assert signals.c0 > 0.5


def test_metrics_name_every_signal_that_is_known():
    provider = Counting()
    with Sampler(provider, [Place(name="n", cpus=(0,))], every_s=0.01) as sampler:
        wait_for(lambda: sampler.latest("n") is not None)
        found = text(sampler)
    assert 'fairlead_node_counter{counter="c0",node="n"}' in found
    assert 'fairlead_node_signal{node="n",signal="busy"} 0.5' in found
    assert 'fairlead_monitor_info{provider="fallback"} 1.0' in found
    assert 'counter="ipc"' not in found


def test_the_command_prints_one_sample_as_json():
    done = CliRunner().invoke(app, ["monitor", "--node", "local", "--json", "--every", "0.1"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(COUNTERS) <= set(found["nodes"]["local"])
    assert found["provider"] in ("perf", "pcm", "fallback")


@pytest.mark.skipif(make_limiter().kind == "affinity", reason="no control groups can be made here")
def test_local_is_this_machine_also_where_services_have_a_node_of_that_name():
    with ExitStack() as stack:
        for _ in range(2):
            limiter = make_limiter()
            limiter.open([Node(name="local", kind="local", vcpus=1)])
            stack.callback(limiter.close)
        assert places_of(["local"], None, None) == [local_place()]


def test_the_command_prints_a_table():
    done = CliRunner().invoke(app, ["monitor", "--node", "local", "--cpus", "0", "--once", "--no-probes"])
    assert done.exit_code == 0, done.output
    assert "signals by" in done.stdout
    assert "throttled" in done.stdout


class Full:
    """A sampler of nodes with long names, many CPUs and every signal."""

    provider = Counting()
    places = (Place(name="local", cpus=tuple(range(64))), Place(name="a-long-name", cpus=(0, 2, 4, 6, 8)))

    def mean(self, name):
        counters = dict(zip(COUNTERS, (1.234, 123.4, 45.67, 4321.0, 0.98, 0.01, 0.02), strict=True))
        return Signals(at_s=0.0, **counters, extras=dict.fromkeys(("psi_cpu", "wait_share", "throttled", "steal"), 0.5))

    def instances(self, name):
        return {"17-recogniser": InstanceSignals(at_s=0.0, cpu_s=1234.5, busy_cores=0.25, rss_bytes=250_000_000)}

    def overhead(self):
        return 0.01


@pytest.mark.parametrize("width", [80, 140])
def test_numbers_are_never_cut(width):
    console = Console(width=width, record=True, file=StringIO())
    console.print(frame(Full(), {}))
    lines = console.export_text().splitlines()
    assert " ".join(lines[4].split()[2:]) == "1.23 123 45.7 4321 0.98 0.01 0.02 0.50 0.50 0.50 0.50"
    assert " ".join(lines[-3].split()[2:]) == "1234 0.25 – – 250"
    assert "throttled steal" in lines[2]
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--node", "nowhere"], "No node named 'nowhere'"),
        (["--cpus", "0-"], "CPUs are written as 0-3,6"),
        (["--cpus", "9999"], "CPU 9999 cannot be used here"),
        (["--provider", "perv"], "Did you mean 'perf'"),
        (["--node", "local", "--cgroup", "/nowhere"], "is no control group"),
        (["--cgroup", "/nowhere"], "name it with one --node"),
        (["--every", "0"], "--every must be from 0.05"),
    ],
    ids=["node", "list", "cpu", "provider", "group", "no-node", "every"],
)
def test_wrong_use_is_said(args, message):
    done = CliRunner().invoke(app, ["monitor", *args])
    assert done.exit_code == 2
    assert message in done.output
