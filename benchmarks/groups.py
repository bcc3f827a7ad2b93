"""What `make bench` measures: the programs of each group, and the demands on their figures."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import workload_a as a
import workload_b as b
from c_programs import Library
from measure import Answer, Gate, Program, Row, Sample, UnavailableError, agreement, ratio, timed
from ours import OWN, Keeps, run_compiled, run_python

from fairlead.policy.fifo import Fifo

HERE = Path(__file__).parent
LAZY, EVENTS, SIMFAAS = "C, lazy expiry", "C, event per expiry", "simfaas 0.2.2"
PYTHON, ALL, NONE = "Fairlead Python engine", "Fairlead compiled, all records", "Fairlead compiled, no records"
TABLES = "Fairlead compiled, as tables"
INLINED, POINTER, HEAPQ, SIMPY = "C, placement inlined", "C, placement by pointer", "bare heapq", "SimPy 4.1"
NJIT, LINE, LOOP = "compiled + own njit placement", "compiled + Python one-liner", "compiled + Python loop"
LINE_HEAPQ = "bare heapq, the one-liner's rule"
FIRST = "fresh process to its first result"
_AS_TABLES = "the records as `simulate` gives them: three tables with names"
EXACT, ROUNDED = 1e-12, 1e-9  # SimPy's clock adds up delays, so that its instants differ in the last digits


@dataclass(frozen=True)
class Group:
    """Programs that are compared with each other."""

    title: str
    unit: str
    programs: tuple[Program, ...]
    gates: Callable[[list[Row]], list[Gate]]
    against: tuple[str, ...] = ()  # rows with which all others are compared in the table


def best(rows: list[Row], name: str) -> float | None:
    return next((row.best for row in rows if row.name == name), None)


# --- A ---------------------------------------------------------------------------------------------------------------


def workload_a(requests: int, peers: Path, folder: Path) -> Group:
    draws = a.Draws(requests)
    library = _lazily(lambda: Library("workload_a", a.CONSTANTS, folder))
    loss = Fifo(queue_limit=0)

    def c(name: str) -> Sample:
        program = library()
        return timed(lambda: program.call(name, draws.times, draws.factors), requests)

    def python() -> Sample:
        physics = a.Drawn(draws.scenario, draws)
        return timed(lambda: run_python(draws.scenario, loss, physics), requests)

    def compiled(keeps: Keeps) -> Sample:
        return timed(lambda: run_compiled(draws, loss, keeps), requests)

    programs = (
        Program(LAZY, partial(c, "a_lazy"), note="lazy: who has expired is seen at the next arrival, without an event"),
        Program(EVENTS, partial(c, "a_events")),
        Program(NONE, partial(compiled, "nothing")),
        Program(ALL, partial(compiled, "records")),
        Program(TABLES, partial(compiled, "tables"), note=_AS_TABLES),
        Program("bare heapq, lazy expiry", lambda: timed(lambda: a.run_lazy(draws), requests)),
        Program("bare heapq, event per expiry", lambda: timed(lambda: a.run_events(draws), requests)),
        Program(PYTHON, python, repeats=2, note="all records"),
        Program(
            SIMFAAS,
            lambda: _simfaas(peers, min(requests, 50_000)),
            note="draws its own numbers; a cold service is Exp(1.5 s), not 1 s + Exp(0.5 s)",
        ),
    )

    def gates(rows: list[Row]) -> list[Gate]:
        ours = best(rows, ALL)
        same = [row for row in rows if row.name != SIMFAAS]
        return [
            agreement("A: all but simfaas", same, digits=EXACT),
            Gate(name=f"A: {ALL}, over simfaas", figure=ratio(ours, best(rows, SIMFAAS)), limit=80),
        ]

    title = f"Workload A, {requests:,} invocations of one function with keep-alive"
    return Group(title, "invocations", programs, gates, (LAZY, SIMFAAS))


def _simfaas(peers: Path, requests: int) -> Sample:
    if not peers.exists():
        raise UnavailableError(f"no {peers}: `make bench` makes it, or `make {peers.parent.parent}/.ready`")
    settings = (requests, a.RATE_RPS, a.MEAN_S, a.COLD_S + a.MEAN_S, a.KEEP_ALIVE_S, a.INSTANCES)
    command = [str(peers), str(HERE / "peer_simfaas.py"), *map(str, settings)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise UnavailableError(f"simfaas failed: {ran.stderr.strip()[-300:]}")
    found = json.loads(ran.stdout)
    answer = Answer(cold_starts=found["cold_starts"], rejected=found["rejected"], latency_mean_s=None)
    return Sample(cpu_s=found["cpu_s"], count=found["requests"], answer=answer)


# --- B ---------------------------------------------------------------------------------------------------------------


def workload_b(requests: int, folder: Path) -> Group:
    draws = b.Draws(requests)
    count = requests * b.STAGES
    library = _lazily(lambda: Library("workload_b", b.constants(draws.nodes), folder))

    def c(name: str) -> Sample:
        program = library()
        return timed(lambda: program.call(name, draws.times, draws.factors), count)

    def bare(run: Callable[..., tuple[int, float]], *more: object) -> Sample:
        return timed(lambda: _answer(run(draws, *more)), count)

    def python() -> Sample:
        physics = b.Drawn(draws.scenario, draws)
        return timed(lambda: run_python(draws.scenario, Fifo(), physics), count)

    def compiled(keeps: Keeps) -> Sample:
        return timed(lambda: run_compiled(draws, Fifo(), keeps), count)

    own = {name: make() for name, make in OWN.items()}

    def with_own(name: str) -> Sample:
        return timed(lambda: run_compiled(draws, own[name], "nothing"), count)

    programs = (
        Program(INLINED, partial(c, "b_inlined")),
        Program(POINTER, partial(c, "b_pointer")),
        Program(NONE, partial(compiled, "nothing")),
        Program(ALL, partial(compiled, "records")),
        Program(TABLES, partial(compiled, "tables"), note=_AS_TABLES),
        Program(NJIT, partial(with_own, "njit"), note="no records"),
        Program(LINE, partial(with_own, "line"), note="no records; emptiest node, warm or not"),
        Program(LOOP, partial(with_own, "loop"), note="no records"),
        Program(HEAPQ, partial(bare, b.run_heapq)),
        Program(LINE_HEAPQ, partial(bare, b.run_heapq, b.pick_emptiest), repeats=1),
        Program(SIMPY, partial(bare, b.run_simpy), repeats=2),
        Program(PYTHON, python, repeats=2, note="all records"),
    )
    title = f"Workload B, {requests:,} workflows of {b.STAGES} stages on {draws.nodes} nodes"
    return Group(title, "stage invocations", programs, _gates_b, (INLINED, SIMPY))


def _gates_b(rows: list[Row]) -> list[Gate]:
    ours, bare = best(rows, ALL), best(rows, NONE)
    limit = max((rate for name in (INLINED, POINTER) if (rate := best(rows, name))), default=None)
    lines = [row for row in rows if row.name in (LINE, LINE_HEAPQ)]
    exact = [row for row in rows if row not in lines and row.name != SIMPY]
    simpy = [row for row in rows if row.name in (HEAPQ, SIMPY)]
    return [
        agreement("B: all with the same rule but SimPy", exact, digits=EXACT),
        agreement("B: SimPy and heapq", simpy, digits=ROUNDED),
        agreement("B: the one-liner and heapq with its rule", lines, digits=EXACT),
        Gate(name=f"B: {ALL}, stage invocations/s", figure=ours, limit=2e6),
        Gate(name=f"B: {ALL}, over the faster C program", figure=ratio(ours, limit), limit=0.25),
        Gate(name=f"B: {ALL}, over SimPy", figure=ratio(ours, best(rows, SIMPY)), limit=30),
        Gate(name="B: a Python one-line placement, stage invocations/s", figure=best(rows, LINE), limit=1e6),
        Gate(name="B: a Python loop over 16 nodes, stage invocations/s", figure=best(rows, LOOP), limit=0.3e6),
        Gate(name="B: time with all records over time without", figure=ratio(bare, ours), limit=1.1, is_least=False),
    ]


def _answer(found: tuple[int, float]) -> Answer:
    cold, latency_s = found
    return Answer(cold_starts=cold, latency_mean_s=latency_s)


# --- start-up --------------------------------------------------------------------------------------------------------

_SCRIPT = """
from fairlead import simulate
from fairlead.workload import load_scenario

recording = simulate(load_scenario("quickstart"), "fifo", engine="compiled")
assert recording.engine == "compiled"
"""


def start_up() -> Group:
    """CPU seconds of a whole process, from its start to its end, when an earlier one has filled the cache."""

    def fresh() -> Sample:
        before = getrusage(RUSAGE_CHILDREN)
        ran = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False)
        after = getrusage(RUSAGE_CHILDREN)
        if ran.returncode:
            raise RuntimeError(f"the compiled engine did not run: {ran.stderr}")
        return Sample(cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, count=1)

    def warm_fresh() -> Sample:
        fresh()
        return fresh()

    def gates(rows: list[Row]) -> list[Gate]:
        rate = best(rows, FIRST)
        name = "a warm process to its first result, CPU seconds"
        return [Gate(name=name, figure=1 / rate if rate else None, limit=1.5, is_least=False)]

    return Group("Start-up", "processes", (Program(FIRST, warm_fresh, note="quickstart, fifo"),), gates)


def _lazily(make: Callable[[], Library]) -> Callable[[], Library]:
    """Make it at the first use, so that a machine without a compiler only loses the rows that need one."""
    made: list[Library] = []

    def get() -> Library:
        if not made:
            made.append(make())
        return made[0]

    return get
