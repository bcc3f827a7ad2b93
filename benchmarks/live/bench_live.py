"""The same stages and the same load on a bare server, on Ray Serve and on Fairlead, one after the other in one run.

Capacity is what a closed loop of 32 users gets in this run; the points are shares of it. At the end each demand on the
live runtime is printed with its figure; the exit code is 1 if one is missed.

With `--baseline CHECKOUT`, Fairlead of this checkout is measured against that of another one instead, three times each
and interleaved; the exit code is 1 if a measure is worse by more than 5 %.
"""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # the load generator is this checkout's

import msgspec
from compare import SHARES as OVERLOADS
from compare import interleaved, ratio_table, ratios, versions
from gates import gates, shown_beside
from processes import StartError, adopt_orphans, serving
from rows import DEADLINE_S, QUICK, SHARES, Lengths, Row, measure
from systems import RAYS, STAGES, System, systems
from tables import capacity_table, gate_table, noop_table, overload_table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray-python", type=Path, help="Python of an environment with Ray Serve; without it, no Ray")
    parser.add_argument("--quick", action="store_true", help="short rows, for a look")
    parser.add_argument(
        "--repeat", type=int, metavar="N", help="runs, of which the median counts: 1, or 3 of --baseline"
    )
    parser.add_argument("--baseline", type=Path, metavar="CHECKOUT", help="compare with the Fairlead of that checkout")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this system; repeatable")
    parser.add_argument("--stage", action="append", choices=STAGES, help="only this stage; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # so that servers are ended then, too
    adopt_orphans()
    if options.baseline is not None:
        chosen, repeats, shares = versions(options.baseline), options.repeat or 3, OVERLOADS
    else:
        chosen, repeats, shares = choose(options.ray_python, options.only), options.repeat or 1, SHARES
    rows: list[Row] = []
    failures: list[str] = []
    lengths = QUICK if options.quick else Lengths()
    try:
        for number, system in interleaved(chosen, repeats):
            say(f"[{number + 1}/{repeats}] {system.label}")
            rows += run_system(system, options.stage or STAGES, lengths, failures, shares)
    except KeyboardInterrupt:
        failures.append("Interrupted.")
    compared = ratios(rows) if options.baseline is not None else []
    text = "\n".join([ratio_table(compared), *failures]) if options.baseline else report(rows, chosen, failures)
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(f"{text}\n", encoding="utf-8")
    if options.json is not None:
        options.json.write_text(json.dumps(msgspec.to_builtins(rows), indent=1) + "\n", encoding="utf-8")
    is_missed = any(gate.is_met is False for gate in gates(rows)) or any(one.verdict == "WORSE" for one in compared)
    return 1 if failures or is_missed else 0


def choose(ray_python: Path | None, only: list[str] | None) -> list[System]:
    known = systems(ray_python or Path("python"))
    unknown = set(only or ()) - {system.name for system in known}
    if unknown:
        sys.exit(f"--only {min(unknown)}: is none of {', '.join(system.name for system in known)}.")
    chosen = [system for system in known if not only or system.name in only]
    if ray_python is None:
        chosen = [system for system in chosen if system.name not in RAYS]
    elif not ray_python.exists():
        sys.exit(f"--ray-python {ray_python}: there is no such file; `make bench-live` makes that environment.")
    return chosen


def run_system(
    system: System,
    stages: Sequence[str],
    lengths: Lengths,
    failures: list[str],
    shares: Sequence[float],
    deadlines_s: Sequence[float] = (DEADLINE_S,),
    capacity_rps: float | None = None,
) -> list[Row]:
    """All rows of a system, each stage on a fresh server. One that does not start is a failure, not the end."""
    rows: list[Row] = []
    for stage in stages:
        command = system.commands.get(stage)
        if command is None:
            continue
        with tempfile.TemporaryDirectory(prefix="fl-bench-", ignore_cleanup_errors=True) as folder:
            state, log = Path(folder) / "state", Path(folder) / "server.log"
            try:
                with serving(command(state), log, system.environment) as url:
                    target = f"{url.rstrip('/')}{system.paths.get(stage, '/')}"
                    rows += measure(system.name, stage, target, lengths, tell, shares, deadlines_s, capacity_rps)
            except StartError as error:
                failures.append(str(error))
                say(str(error))
    return rows


def report(rows: list[Row], chosen: list[System], failures: list[str]) -> str:
    parts = [
        noop_table(rows, chosen),
        capacity_table(rows, chosen),
        overload_table(rows, chosen),
        gate_table(gates(rows)),
        "\n".join(f"- {line}" for line in (*shown_beside(rows), *(failure.splitlines()[0] for failure in failures))),
    ]
    return "\n\n".join(part for part in parts if part)


def tell(row: Row) -> None:
    result = row.result
    times = "no answer" if result.latency.p50_s is None else f"p50 {result.latency.p50_s * 1e3:.2f} ms"
    say(
        f"  {row.stage:8} {row.load:>6}: offered {result.offered_rps:8,.0f}/s, answered {result.answered_rps:8,.0f}/s, "
        f"in time {result.attainment or 0:6.1%}, {times}, probe {row.probe:.2f}"
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
