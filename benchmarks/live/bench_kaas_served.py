"""What `fairlead serve` adds to a warm kernel graph over HTTP, and how long a device waits between two runs.

    python benchmarks/live/bench_kaas_served.py [--rounds 20] [--clients 8] [--seconds 5] [--json FILE]

First the graphs one after another: the bare program of bench_kaas.py beside requests on one kept connection, in turns
of 20 calls in the same run; p50 of both. A request has its inputs as JSON, and so has its answer.

Then clients that each send the next request when the last is answered, so that runs always wait. The gap is the wall
time per run less the time that its kernels ran, as the executor bills it. It holds the loading of inputs, the download,
the channel, the gateway's turn, and, where there are no more cores than here, the work of gateway and clients.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import statistics
import sys
import tempfile
from pathlib import Path
from time import monotonic, perf_counter, sleep
from urllib.parse import urlsplit

os.environ.setdefault("POCL_DEVICES", "basic basic")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from bench_kaas import BLOCK, Direct
from processes import adopt_orphans, serving

from fairlead.kaas.graphs import Example, digits, jacobi, scaling

APP = Path(__file__).with_name("kernels_app.py")
GRAPHS = {"scaling": scaling, "digits": digits, "jacobi": lambda: jacobi(iterations=100)}
SATURATING = "jacobi"


def message(name: str, example: Example) -> bytes:
    """A request, as it is sent again and again."""
    inputs = {key: np.asarray(value).tolist() for key, value in example.inputs.items()}
    body = json.dumps({"input": next(iter(inputs.values())) if len(inputs) == 1 else inputs}).encode()
    head = f"POST /v1/workflows/{name} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def one_answer(data: bytes) -> int | None:
    """How many bytes the first answer of these has; None while it is not whole."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = re.search(rb"content-length: *(\d+)", data[:end].lower())
    whole = end + 4 + (int(length[1]) if length else 0)
    if len(data) < whole:
        return None
    if not data.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(data[:whole].decode(errors="replace"))
    return whole


def call(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    data = b""
    while (size := one_answer(data)) is None:
        data += connection.recv(1 << 16)
    return data[:size].partition(b"\r\n\r\n")[2]


def added(address: tuple[str, int], cache: Path, rounds: int) -> dict[str, dict[str, float]]:
    """For each graph, the bare program and the served one in turns."""
    results = {}
    for name, make in GRAPHS.items():
        example = make()
        direct, request = Direct(0, example, cache), message(name, example)
        bare: list[float] = []
        served: list[float] = []
        with socket.create_connection(address) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(BLOCK):
                direct.run()
                body = call(connection, request)
            answer = np.array(json.loads(body)["output"], np.float32)
            assert np.array_equal(np.ravel(answer), next(iter(direct.outputs.values())).view(np.float32)), name
            for _ in range(rounds):
                for _ in range(BLOCK):
                    began = perf_counter()
                    direct.run()
                    bare.append(perf_counter() - began)
                for _ in range(BLOCK):
                    began = perf_counter()
                    call(connection, request)
                    served.append(perf_counter() - began)
        p50 = {"bare_p50_ms": 1e3 * statistics.median(bare), "served_p50_ms": 1e3 * statistics.median(served)}
        results[name] = {**p50, "added_p50_ms": p50["served_p50_ms"] - p50["bare_p50_ms"]}
    return results


def counters(address: tuple[str, int]) -> tuple[float, float]:
    """Runs, and the seconds that kernels ran, of all devices."""
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
    sums = [
        sum(float(value) for value in re.findall(rf"^fairlead_device_{what}_total{{.*}} (\S+)$", text, re.MULTILINE))
        for what in ("runs", "seconds")
    ]
    return sums[0], sums[1]


async def saturate(address: tuple[str, int], request: bytes, clients: int, seconds: float) -> tuple[int, float]:
    """Answers, and the seconds that they took."""
    began = perf_counter()

    async def client() -> int:
        reader, writer = await asyncio.open_connection(*address)
        answered, data = 0, b""
        while perf_counter() < began + seconds:
            writer.write(request)
            while (size := one_answer(data)) is None:
                data += await reader.read(1 << 16)
            data, answered = data[size:], answered + 1
        writer.close()
        return answered

    return sum(await asyncio.gather(*(client() for _ in range(clients)))), perf_counter() - began


def gap(address: tuple[str, int], clients: int, seconds: float) -> dict[str, float]:
    """What lies between two runs on a device that always has work."""
    sleep(2.5)  # until what was done before is counted
    runs_before, busy_before = counters(address)
    request = message(SATURATING, GRAPHS[SATURATING]())
    answered, elapsed_s = asyncio.run(saturate(address, request, clients, seconds))
    until = monotonic() + 30
    while (counted := counters(address))[0] < runs_before + answered and monotonic() < until:
        sleep(0.2)
    runs, busy_s = counted[0] - runs_before, counted[1] - busy_before
    assert runs == answered, (runs, answered)
    return {
        "runs": runs,
        "per_run_ms": 1e3 * elapsed_s / runs,
        "kernels_ms": 1e3 * busy_s / runs,
        "gap_ms": 1e3 * (elapsed_s - busy_s) / runs,
        "busy_share": busy_s / elapsed_s,
    }


def main(options: argparse.Namespace) -> None:
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="fl-kaas-", ignore_cleanup_errors=True) as folder:
        state, log = Path(folder) / "state", Path(folder) / "server.log"
        command = [sys.executable, "-m", "fairlead", "serve", f"{APP}:app", "--port", "0", "--device", "opencl:0"]
        with serving([*command, "--state", str(state)], log, {}) as url:
            parts = urlsplit(url)
            assert parts.hostname is not None, url
            assert parts.port is not None, url
            address = (parts.hostname, parts.port)
            results = added(address, Path(folder) / "direct", options.rounds)
            results[f"{SATURATING}, {options.clients} clients"] = gap(address, options.clients, options.seconds)
    for name, result in results.items():
        print(f"{name:20}", "  ".join(f"{key} {value:9.3f}" for key, value in result.items()))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json")
    main(parser.parse_args())
