"""How long a large value takes from stage to stage: on one node, between two agents, and through the gateway.

Three processes of this machine stand for a node that holds values, a gateway that passes parts of them on, and a node
that reads. Beside them, in the same rounds: a copy in memory, and the same bytes over a bare TCP connection. Then the
belief of `engine.core.transfers` follows reads of random sizes, and what it expects is compared with what comes.

    python benchmarks/cluster/bench_values.py [--megabytes 8] [--rounds 60]
"""

import argparse
import asyncio
import multiprocessing as mp
import socket
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import uvloop

from fairlead.engine.core.transfers import Transfers
from fairlead.engine.live.links.address import Address, bound_address, listen_on, parse_address
from fairlead.engine.live.links.greeting import agent_credential
from fairlead.engine.live.links.hub import Hub
from fairlead.engine.live.links.reading import Reader
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import encode, reference
from fairlead.model import Cluster, Node

TOKEN = "a-token-of-this-benchmark"


def hold(folder: str, sizes: list[int], told: Connection) -> None:
    """A node with values of these sizes: serves them until its parent ends."""

    async def serve() -> None:
        store = Store.make(Path(folder))
        listening = listen_on(Address("127.0.0.1", 0), "--listen")
        store.home = f"@node@{bound_address(listening)}"
        Hub(TOKEN, None, print, store).open(listening)
        told.send((str(store.folder), str(store.spill), [store.put(encode(b"x" * size)) for size in sizes]))
        await asyncio.to_thread(told.recv)
        store.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def pass_on(folder: str, told: Connection) -> None:
    """A gateway, as far as it passes on what it reads from a node."""

    async def serve() -> None:
        store, reader = Store.make(Path(folder)), Reader(agent_credential(TOKEN), None)
        listening = listen_on(Address("127.0.0.1", 0), "--listen")

        def relay(read):  # type: ignore[no-untyped-def]
            return reader.part(parse_address(read.home.rpartition("@")[2]), read, "node")

        Hub(TOKEN, None, print, store, relay=relay).open(listening)
        told.send(str(bound_address(listening)))
        await asyncio.to_thread(told.recv)
        store.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def pour(told: Connection) -> None:
    """A bare connection over which bytes come when they are asked for."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        told.send(listening.getsockname()[1])
        connection, _ = listening.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while asked := connection.recv(8):
                connection.sendall(b"x" * int.from_bytes(asked, "little"))


def drink(connection: socket.socket, size: int) -> bytearray:
    """Reads this number of bytes over the bare connection."""
    data = bytearray(size)
    rest = memoryview(data)
    connection.sendall(size.to_bytes(8, "little"))
    while rest:
        rest = rest[connection.recv_into(rest) :]
    return data


def started(target, *arguments) -> Connection:  # type: ignore[no-untyped-def]
    """A process that has begun, and the pipe to it."""
    ours, theirs = mp.Pipe()
    mp.Process(target=target, args=(*arguments, theirs), daemon=True).start()
    return ours


def timed(call) -> float:  # type: ignore[no-untyped-def]
    """How long a call takes."""
    began = perf_counter()
    call()
    return perf_counter() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    size, rng = int(given.megabytes * 2**20), np.random.default_rng(0)
    sizes = [int(mb * 2**20) for mb in np.exp(rng.uniform(np.log(0.25), np.log(16), 2 * given.rounds))]
    with TemporaryDirectory() as folder:
        node, gateway, bare = (
            started(hold, f"{folder}/node", [size, *sizes]),
            started(pass_on, f"{folder}/gateway"),
            started(pour),
        )
        place, spill, values = node.recv()
        through = parse_address(gateway.recv())
        connection = socket.create_connection(("127.0.0.1", bare.recv()))
        wanted = reference(values[0])
        direct, reader = parse_address(wanted.address), Reader(agent_credential(TOKEN), None)
        beside = Store(Path(place), Path(spill), wanted.home)
        source = bytes(size)
        ways = {
            "copy in memory": lambda: bytearray(source),
            "bare TCP connection": lambda: drink(connection, size),
            "same node: mapped and decoded": lambda: beside.read(values[0]),
            "between two nodes": lambda: reader.fetch(direct, wanted.name, wanted.size, "node"),
            "through the gateway": lambda: reader.fetch(through, wanted.name, wanted.size, "node", wanted.home),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(given.rounds):
            for name, way in ways.items():
                times[name].append(timed(way))
        bare_s = median(times["bare TCP connection"])
        print(f"{given.megabytes:g} MiB, medians of {given.rounds} rounds; 10th and 90th percentile")
        for name, found in times.items():
            low, high = np.quantile(found, (0.1, 0.9))
            middle = median(found)
            print(
                f"{name:32} {middle * 1e3:8.2f} ms ({low * 1e3:.2f}, {high * 1e3:.2f})  {middle / bare_s:5.2f} x bare"
            )
        learn(reader, values[1:])
        for end in (node, gateway):
            end.send("end")


def learn(reader: Reader, values: list[str]) -> None:
    """The belief follows half of these reads, one by one, and expects the time of the others, one by one likewise."""
    nothing = SimpleNamespace(cluster=Cluster(nodes=(Node(name="n", kind="n", vcpus=1),)), profiles={})
    transfers = Transfers(nothing)  # type: ignore[arg-type]
    off: list[float] = []
    for place, value in enumerate(values):
        found = reference(value)
        mb = found.size / 2**20
        seconds = timed(lambda found=found: reader.fetch(parse_address(found.address), found.name, found.size, "node"))
        if place >= len(values) // 2:
            off.append(transfers.seconds(mb) / seconds - 1)
        shape = SimpleNamespace(copy_mb=0.0, name="f")
        transfers.learn(SimpleNamespace(transfer_mb=mb, shape=shape), seconds)  # type: ignore[arg-type]
    middle, high = np.quantile(np.abs(off), (0.5, 0.9))
    belief = f"{transfers.latency_s * 1e3:.2f} ms + {1 / transfers.s_per_mb if transfers.s_per_mb else 0:.0f} MiB/s"
    print(f"believed after {len(values)} reads of 0.25 to 16 MiB: {belief}")
    print(f"expected against measured, last {len(off)}: {middle:.0%} off (median), {high:.0%} at the 90th percentile;")
    print(f"  bias {median(off):+.0%}")


if __name__ == "__main__":
    main()
