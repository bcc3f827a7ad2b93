"""Executors under faults: what hangs is killed, what died is repeated, and others are served."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest
from kaas_devices import DEVICES, needs_pocl, run
from msgspec.structs import astuple

from fairlead.kaas import DeviceLostError, Literal, Request, Source, TimeLimitError
from fairlead.kaas.graph import VERSION, Argument, Buffer, Graph, Kernel
from fairlead.kaas.graphs import gemm_chain, scaling

ROOT = Path(__file__).resolve().parents[2]


def ask(example, tenant="t", **more):
    return Request(tenant=tenant, graph=example.graph, inputs=example.inputs, **more)


def one_kernel(name: str, opencl: str, reference: str | None = None, milliseconds: int = 0) -> Graph:
    """A graph of one kernel, which takes two numbers and writes `y`."""
    literals = tuple(Literal(type="int32", value=value) for value in (4, milliseconds))
    kernel = Kernel(
        name=name,
        source="k",
        reference=reference,
        grid=(1,),
        block=(1,),
        literals=literals,
        arguments=(Argument(buffer="y", access="write"),),
    )
    buffers = (Buffer(name="y", kind="output", shape=(4,)),)
    return Graph(version=VERSION, name=name, sources={"k": Source(opencl=opencl)}, buffers=buffers, kernels=(kernel,))


ENDLESS = one_kernel(
    "endless",
    "__kernel void endless(int n, int ms, __global volatile float *y) { while (y[0] < 1.0f) y[1] += 1.0f; }",
    "hold",
    10**7,
)
FATAL = one_kernel(
    "fatal", "__kernel void fatal(int n, int ms, __global float *y) { *(volatile __global int *)8 = n; }"
)


@pytest.mark.parametrize("device", DEVICES[:2])
def test_kernel_that_does_not_end_is_killed_and_the_others_are_served(desk, device):
    async def go():
        async with desk.executor(device) as executor:
            await executor.run(ask(scaling(), limit_s=120))  # so that its code is compiled
            endless = executor.run(Request(tenant="bad", graph=ENDLESS, limit_s=1.0))
            others = [executor.run(ask(scaling(), limit_s=120)) for _ in range(5)]
            hung, *answers = await asyncio.gather(endless, *others, return_exceptions=True)
            assert isinstance(hung, TimeLimitError)
            assert "endless did not run within 1 s" in str(hung)
            assert [answer.array("y")[3] for answer in answers] == [6.0] * 5
            assert executor.restarts == 1

    run(go())


@needs_pocl
def test_next_request_loads_and_the_status_is_told_while_a_kernel_runs(desk):
    """PoCL runs a kernel in the thread that launches it: the process's other thread must be free meanwhile."""

    async def go():
        chain = gemm_chain(size=16, depth=3)
        desk.put(chain)
        async with desk.executor("opencl:0") as executor:
            await executor.run(ask(chain, limit_s=120))
            await executor.forget("t")
            endless = asyncio.ensure_future(executor.run(Request(tenant="bad", graph=ENDLESS, limit_s=200)))
            following = asyncio.ensure_future(executor.run(ask(chain, limit_s=120)))
            while len((await executor.status()).residents) < 3:
                await asyncio.sleep(0)
            assert not endless.done()
            assert not following.done()
            await executor.close()
            return await asyncio.gather(endless, following, return_exceptions=True)

    assert all(isinstance(outcome, DeviceLostError) for outcome in run(go()))


@pytest.mark.parametrize("device", DEVICES[:2])
def test_requests_outlive_their_process(desk, device):
    async def go():
        async with desk.executor(device) as executor:
            await executor.run(ask(scaling(), limit_s=120))
            waiting = [asyncio.ensure_future(executor.run(ask(scaling(), limit_s=120))) for _ in range(20)]
            await asyncio.sleep(0)  # the first three are sent
            os.kill(executor.process_id, signal.SIGKILL)
            answers = await asyncio.gather(*waiting)
            assert [answer.array("y")[3] for answer in answers] == [6.0] * 20
            status = await executor.status()
            assert status.restarts == 1
            assert status.answered == 21

    run(go())


@needs_pocl
def test_request_that_kills_its_process_is_given_up_and_the_others_are_served(desk):
    async def go():
        async with desk.executor("opencl:0", attempts=2) as executor:
            await executor.run(ask(scaling(), limit_s=120))
            fatal = executor.run(Request(tenant="bad", graph=FATAL, limit_s=120))
            others = [executor.run(ask(scaling(), limit_s=120)) for _ in range(5)]
            dead, *answers = await asyncio.gather(fatal, *others, return_exceptions=True)
            assert isinstance(dead, DeviceLostError)
            assert "died 2 times while fatal was under way" in str(dead)
            assert [answer.array("y")[3] for answer in answers] == [6.0] * 5

    run(go())


def test_request_that_its_caller_gave_up_stands_in_nobodys_way(desk):
    async def go():
        async with desk.executor() as executor:
            hold = one_kernel("hold", "", "hold", 200)
            given_up = [asyncio.ensure_future(executor.run(Request(tenant="t", graph=hold))) for _ in range(50)]
            await asyncio.sleep(0)
            for each in given_up:
                each.cancel()
            return (await executor.run(ask(scaling()))).array("y")[3]

    assert run(go()) == 6


def test_parts_of_a_requests_time_are_all_of_it(desk):
    """Three runs of 50 ms each, asked for at once: the third has waited for two, and has run itself."""

    async def go():
        hold = one_kernel("hold", "", "hold", 50)
        async with desk.executor() as executor:
            began = perf_counter()
            running = [executor.run(Request(tenant="t", graph=hold)) for _ in range(3)]
            return await asyncio.gather(*running), perf_counter() - began

    answers, whole_s = run(go())
    parts = [astuple(answer.timings) for answer in answers]
    assert min(map(min, parts)) >= 0
    assert [sum(each) >= 0.05 * number for number, each in enumerate(parts, 1)] == [True] * 3
    assert max(map(sum, parts)) <= whole_s


def test_closing_fails_what_is_not_answered(desk):
    async def go():
        executor = desk.executor()
        await executor.start()
        hold = one_kernel("hold", "", "hold", 60_000)
        waiting = asyncio.ensure_future(executor.run(Request(tenant="t", graph=hold, limit_s=120)))
        await asyncio.sleep(0)
        await executor.close()
        with pytest.raises(DeviceLostError, match="was closed"):
            await waiting
        with pytest.raises(DeviceLostError, match="is closed"):
            await executor.run(ask(scaling()))

    run(go())


def test_process_ends_with_its_parent(desk):
    code = f"""
import asyncio, os, sys
from pathlib import Path
from fairlead.kaas import Executor, ExecutorSettings
async def go():
    values, cache = Path({str(desk.folder)!r}), Path({str(desk.cache)!r})
    executor = Executor(ExecutorSettings(device="numpy", values=values, cache=cache))
    await executor.start()
    print(executor.process_id, flush=True)
    os._exit(0)
asyncio.run(go())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    process = int(done.stdout)
    for _ in range(600):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        subprocess.run(["sleep", "0.1"], check=True)
    raise AssertionError("the process lives on")


@pytest.mark.parametrize("device", [DEVICES[0], DEVICES[1]])
def test_random_graphs_survive_kills_under_a_cap_that_forces_evictions(tmp_path, compiled, device):
    command = [sys.executable, str(ROOT / "benchmarks" / "kaas_stress.py"), "--device", device, "--requests", "150"]
    folders = ["--folder", str(tmp_path), "--cache", str(compiled), "--kill-every", "40"]
    done = subprocess.run([*command, *folders], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "150 answered, 0 wrong, 0 lost" in done.stdout


@pytest.mark.parametrize(
    "device", ["numpy", pytest.param("opencl:0", marks=[needs_pocl, pytest.mark.slow])], ids=["numpy", "opencl"]
)
def test_every_bad_graph_is_refused_and_another_tenant_is_served_beside_it(device):
    command = [sys.executable, str(ROOT / "benchmarks" / "kaas_bad_graphs.py"), "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"(\d+) bad graphs, \1 refused", done.stdout)
    assert counted is not None, done.stdout
    assert int(counted[1]) >= 50
