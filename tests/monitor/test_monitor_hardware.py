"""Counters of hardware: the kernel's interface as far as this machine has it, and PCM's table from a sample."""

import os
import sys
import textwrap
import time

import pytest

from fairlead.errors import FairleadError
from fairlead.monitor import Place, RefusedError, choose, local_place
from fairlead.monitor import perf as perf_module
from fairlead.monitor.pcm import Pcm, PcmTable, counters
from fairlead.monitor.perf import Perf, open_event, read_event
from fairlead.monitor.uncore import find_memory_events

SOFTWARE, TASK_CLOCK = 1, 1  # as the kernel numbers them: what it counts without a PMU, in nanoseconds

# Two sockets of one core each, as `pcm 0.5 -csv` prints it: what stands before the headings is talk.
GROUPS = (
    "System,System,System,System,System,Socket 0,Socket 0,Socket 0,Socket 1,Socket 1,Socket 1,"
    "Core0 (Socket 0),Core0 (Socket 0),Core0 (Socket 0),Core0 (Socket 0),"
    "Core1 (Socket 1),Core1 (Socket 1),Core1 (Socket 1),Core1 (Socket 1),"
)
COLUMNS = "Date,Time,EXEC,READ,WRITE,IPC,READ,WRITE,IPC,READ,WRITE,IPC,L3MISS,C0res%,C1res%,IPC,L3MISS,C0res%,C1res%,"
ROW = "2026-01-01,10:00:00.500,0.5,3,1,1.2,2,0.5,0.8,1,0.5,1.2,4,75,20,0.8,6,25,50,"


def pcm_row(groups=GROUPS):
    table = PcmTable()
    assert table.feed("Processor Counter Monitor") is None
    assert table.feed(groups) is None
    assert table.feed(COLUMNS) is None
    return table.feed(ROW)


def test_pcm_counters_are_those_of_the_nodes_own_cores_and_socket():
    found = counters(pcm_row(), [1], interval_s=0.5)
    assert found == {
        "ipc": 0.8,
        "memory_reads": 2.0,  # 1 GB in half a second, of socket 1
        "memory_writes": 1.0,
        "l3_misses": 12.0,
        "c0": 0.25,
        "c1": 0.5,
        "rest": 0.25,
    }


def test_pcm_counters_of_several_cores_are_means_of_shares_and_sums_of_counts():
    found = counters(pcm_row(), [0, 1], interval_s=0.5)
    assert found["ipc"] == pytest.approx(1.0)
    assert found["memory_reads"] == pytest.approx(6.0)
    assert found["l3_misses"] == pytest.approx(20.0)
    assert found["c0"] == pytest.approx(0.5)
    assert found["rest"] == pytest.approx(0.15)


def test_old_versions_of_pcm_write_a_group_once():
    seen, short = None, []
    for name in GROUPS.split(","):
        short.append("" if name == seen else name)
        seen = name
    assert pcm_row(",".join(short)) == pcm_row()


def test_columns_that_the_processor_does_not_have_are_unknown():
    table = PcmTable()
    table.feed("System,System,Core0 (Socket 0),Core0 (Socket 0),")
    table.feed("Date,Time,IPC,L3MISS,")
    found = counters(table.feed("2026-01-01,10:00:00,1.5,N/A,"), [0], interval_s=0.5)
    assert found["ipc"] == 1.5
    assert found["l3_misses"] is None
    assert found["rest"] is None


def fake_pcm(tmp_path, body):
    script = tmp_path / "pcm.py"
    script.write_text(textwrap.dedent(body))
    return [sys.executable, "-I", "-S", str(script)]


def test_pcm_is_run_and_ended(tmp_path):
    command = fake_pcm(
        tmp_path,
        f"""
        import time
        print({GROUPS!r}); print({COLUMNS!r})
        while True:
            print({ROW!r}, flush=True)
            time.sleep(0.05)
        """,
    )
    place = local_place([0])
    pcm = Pcm(command=command)
    pcm.open([place])
    pid = pcm._process.pid
    signals = pcm.sample(place)
    pcm.close()
    assert signals.ipc == 1.2
    assert signals.c0 == 0.75
    assert "busy" in signals.extras
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_pcm_that_refuses_the_processor_is_quoted(tmp_path):
    command = fake_pcm(tmp_path, "print('Only Intel processors are supported'); raise SystemExit(1)")
    with pytest.raises(RefusedError, match="it says: Only Intel processors are supported"):
        Pcm(command=command).open([local_place()])


def test_a_pcm_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RefusedError, match="apt-get install pcm"):
        Pcm().open([local_place()])


def test_the_kernels_interface_counts_what_it_has_everywhere():
    try:
        handle = open_event(SOFTWARE, TASK_CLOCK, cpu=-1, pid=0)
    except OSError as error:
        pytest.skip(f"perf_event_open: {error}")
    before, began = read_event(handle), time.thread_time()
    sum(range(3_000_000))
    counted_s, used_s = (read_event(handle) - before) / 1e9, time.thread_time() - began
    os.close(handle)
    assert counted_s == pytest.approx(used_s, rel=0.2)


def test_perf_opens_or_says_why_not_and_leaves_nothing_open():
    before = len(os.listdir("/proc/self/fd"))
    perf, place = Perf(), local_place()
    try:
        perf.open([place])
    except RefusedError as error:
        refused = str(error)
    else:
        time.sleep(0.1)
        assert perf.sample(place).ipc > 0
        refused = "perf_event_open"
        perf.close()
    assert "perf_event_open" in refused
    assert len(os.listdir("/proc/self/fd")) == before


def test_perf_whose_other_signals_are_refused_leaves_no_counter_open(monkeypatch, tmp_path):
    monkeypatch.setattr(perf_module, "open_event", lambda *args, **rest: os.open(os.devnull, os.O_RDONLY))
    monkeypatch.setattr(perf_module, "read_event", lambda handle: 0.0)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RefusedError, match="no such control group"):
        Perf().open([Place(name="n", cpus=(0,), cgroup=tmp_path / "gone")])
    assert len(os.listdir("/proc/self/fd")) == before


def test_perf_turns_counts_into_rates(monkeypatch):
    counts = {"cycles": 1000.0, "instructions": 1500.0, "cache_misses": 2e8, "reads": 300.0}
    perf, place = Perf(), local_place()
    monkeypatch.setattr(perf_module, "open_event", lambda *args, **rest: os.open(os.devnull, os.O_RDONLY))
    monkeypatch.setattr(perf_module, "read_event", lambda handle: 0.0)
    perf.open([place])
    perf._at_s[place.name] = time.monotonic() - 200.0  # so long that the time of this test does not count
    monkeypatch.setattr(perf, "_read", lambda name: counts)
    signals = perf.sample(place)
    perf.close()
    assert signals.ipc == pytest.approx(1.5)
    assert signals.l3_misses == pytest.approx(1.0, rel=0.05)
    assert signals.memory_reads == pytest.approx(1.5, rel=0.05)
    assert signals.memory_writes is None


def test_memory_controllers_are_those_of_the_nodes_own_socket(tmp_path):
    for socket in (0, 1):
        folder = tmp_path / "cpu" / f"cpu{socket}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket}\n")
    device = tmp_path / "devices" / "uncore_imc_0"
    for name, text in {
        "type": "12\n",
        "cpumask": "0,1\n",
        "format/event": "config:0-7\n",
        "format/umask": "config:8-15\n",
        "events/cas_count_read": "event=0x04,umask=0x03\n",
        "events/cas_count_read.scale": "6.103515625e-5\n",
        "events/cas_count_read.unit": "MiB\n",
        "events/cas_count_write": "event=0x04,odd=1\n",  # a term that this device does not explain
    }.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(text)
    (event,) = find_memory_events([1], tmp_path / "devices", tmp_path / "cpu")
    assert (event.kind, event.config, event.cpu, event.direction) == (12, 0x304, 1, "reads")
    assert event.gb_per_count == pytest.approx(64e-9)  # one line of the cache


def test_the_choice_says_why_the_better_ones_do_not_work():
    provider, refused = choose([local_place()], probe_every_s=None)
    provider.close()
    better = ("perf", "pcm", "fallback")[: ("perf", "pcm", "fallback").index(provider.name)]
    assert tuple(refused) == better
    assert all(refused.values())


def test_a_named_provider_is_not_replaced(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FairleadError, match=r"pcm: the pcm command is not installed.*Leave the provider out"):
        choose([local_place()], "pcm")
    with pytest.raises(ValueError, match="Did you mean 'perf'"):
        choose([local_place()], "pref")
