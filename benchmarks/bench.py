"""How fast the simulator is, beside C, SimPy and simfaas, in one run on one core: `make bench`.

Rates are per second of CPU time, the best of several repetitions in which the programs take turns. Programs of a group
read the same random numbers and have to find the same. Ends with each demand, met or missed; the exit code is 1 if one
is missed. What a machine cannot measure (no C compiler, no simfaas) is said, and is no miss.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import bench_event_loop
import bench_fleet
from bench_environments import environments
from groups import Group, start_up, workload_a, workload_b
from measure import Row, in_turn, pin
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from showing import cells, gate_json, gates_markdown, markdown, row_json, show, show_gates

NAMES = ("a", "b", "start", "environments", "fleet")
ALONE = ("python",)  # the growth of the Python engine: only where asked for
ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes and one repetition, for a look")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions in turn (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to a file")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables for the documentation")
    parser.add_argument(
        "--only", choices=NAMES + ALONE, action="append", help="one group (may be repeated); python: how its cost grows"
    )
    parser.add_argument(
        "--peers-python", type=Path, default=ROOT / ".venv-peers/bin/python", help="a Python that has simfaas"
    )
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    core = pin()
    console = Console(width=120)
    console.print(f"{platform.machine()}, Python {platform.python_version()}, core {core}", highlight=False)
    chosen = options.only or NAMES
    code, gates, written, pages = 0, [], {}, []
    with TemporaryDirectory() as folder:
        for name, make in _groups(options, Path(folder)).items():
            if name in chosen:
                group = make()
                rows = measure(group, 1 if options.quick else options.repeats, console)
                show(console, group, rows)
                gates += group.gates(rows)
                written[name] = [row_json(row) for row in rows]
                pages.append(markdown(f"{group.title}, {group.unit} per CPU second", *cells(group, rows)))
    if "fleet" in chosen:
        fleet = bench_fleet.measure(console, quick=options.quick)
        written["fleet"] = [row_json(row) for row in fleet.rows]
        gates += fleet.gates
        pages.append(fleet.page)
    show_gates(console, gates)
    if "python" in chosen:
        code = bench_event_loop.main(["--quick"] if options.quick else [])
    if options.json:
        document = {"python": platform.python_version(), "groups": written, "gates": [gate_json(g) for g in gates]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text("\n".join([*pages, gates_markdown(gates)]))
    return code or int(any(gate.is_met is False for gate in gates))


def _groups(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[], Group]]:
    quick = options.quick
    return {
        "a": lambda: workload_a(50_000 if quick else 1_000_000, options.peers_python, folder),
        "b": lambda: workload_b(10_000 if quick else 250_000, folder),
        "start": start_up,
        "environments": lambda: environments(20_000 if quick else 200_000),
    }


def measure(group: Group, repeats: int, console: Console) -> list[Row]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(group.title)
        return in_turn(group.programs, repeats, lambda name: progress.update(bar, description=f"{group.title}: {name}"))


if __name__ == "__main__":
    sys.exit(main())
