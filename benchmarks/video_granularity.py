"""What splitting costs: the video workflow in its four granularities, served one after the other on this machine.

Each version is served on a node of its own of `--vcpus`: with one, nothing runs side by side, as with one queue-worker
of the thesis; with more, only the split versions can use them. Every call asks for the same test clip; the first is not
counted. CPU times are those of a function's processes and of the gateway, per call; "more" is how much more of both
a version takes than the monolith. Others on the machine slow everything, so that latencies say little on a busy one,
where CPU times still do: versions take turns, and medians are of all turns.

    fairlead models pull
    python benchmarks/video_granularity.py [--frames 7 16] [--vcpus 1] [--repeat 3] [--json FILE]
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parent / "live"))
from processes import adopt_orphans, serving

from fairlead.video.clip import check_labels
from fairlead.video.versions import VERSIONS

APP = """
from fairlead.app import NodeSpec
from fairlead.video.versions import make_app
app = make_app({version}, name="video", nodes=[NodeSpec(name="one", vcpus={vcpus})], slo="300s")
"""
LIMIT_S = 300.0


@dataclass
class Figures:
    """Of one version and number of frames."""

    version: int
    frames: int
    latency_s: list[float] = field(default_factory=list)
    cpu_s: dict[str, list[float]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    @property
    def cpu(self) -> dict[str, float]:
        return {name: median(values) for name, values in self.cpu_s.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, nargs="+", default=[7, 16])
    parser.add_argument("--vcpus", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=3, help="turns of all versions")
    parser.add_argument("--calls", type=int, default=2, help="counted calls per turn and number of frames")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    adopt_orphans()
    found = {(v, n): Figures(v, n) for v in VERSIONS for n in options.frames}
    for turn in range(options.repeat):
        for version in VERSIONS:
            print(f"[{turn + 1}/{options.repeat}] version {version}", file=sys.stderr, flush=True)
            serve_and_call(version, options, found)
    show(list(found.values()), options)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found.values()], indent=1) + "\n", "utf-8")
    return 1 if any(each.differences for each in found.values()) else 0


def serve_and_call(version: int, options: argparse.Namespace, found: dict[tuple[int, int], Figures]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app = folder / "app.py"
        app.write_text(APP.format(version=version, vcpus=options.vcpus), encoding="utf-8")
        command = [sys.executable, "-m", "fairlead.cli", "serve", str(app), "--port", "0", "--state", f"{name}/state"]
        with serving(command, folder / "log", {"FAIRLEAD_STORE": (folder / "results").as_uri()}) as url:
            gateway = json.loads((folder / "state" / "gateway.json").read_bytes())["pid"]
            call(url, options.frames[0])  # not counted: what is used for the first time
            for frames in options.frames:
                for _ in range(options.calls):
                    before = cpu_times(url, gateway)
                    began = perf_counter()
                    answer = call(url, frames)
                    figures = found[version, frames]
                    figures.latency_s.append(perf_counter() - began)
                    figures.differences += check_labels(answer)
                    for function, seconds in cpu_times(url, gateway).items():
                        figures.cpu_s.setdefault(function, []).append(seconds - before.get(function, 0.0))


def call(url: str, frames: int) -> dict[str, object]:
    body = json.dumps({"input": {"frames": frames}}).encode()
    request = urllib.request.Request(f"{url}/v1/workflows/video", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.load(answer)["output"]


def cpu_times(url: str, gateway: int) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/v1/status", timeout=30) as answer:
        (app,) = json.load(answer)["apps"]
    fields = Path(f"/proc/{gateway}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return {function["name"]: function["cpu_s"] or 0.0 for function in app["functions"]} | {"gateway": own}


def show(rows: list[Figures], options: argparse.Namespace) -> None:
    counted = options.repeat * options.calls
    print(f"{options.vcpus:g} vCPU of {os.cpu_count()}, medians of {counted} calls, the 60 s test clip\n")
    print(f"{'frames':>6} {'version':>7} {'latency':>9} {'least':>8} {'CPU':>8} {'more':>5}  CPU by function")
    for frames in options.frames:
        monolith = next(row for row in rows if row.frames == frames and row.version == 4)
        for row in (each for each in rows if each.frames == frames):
            total = sum(row.cpu.values())
            parts = ", ".join(f"{name} {s:.2f} s ({s / total:.0%})" for name, s in row.cpu.items() if s >= 0.005)
            more = f"{total / sum(monolith.cpu.values()) - 1:+.0%}"
            times = f"{median(row.latency_s):7.2f} s {min(row.latency_s):6.2f} s {total:6.2f} s"
            print(f"{frames:6} {row.version:7} {times} {more:>5}  {parts}")
    wrong = sorted({line for row in rows for line in row.differences})
    print("\nEvery answer has the expected labels." if not wrong else "\n" + "\n".join(wrong))


if __name__ == "__main__":
    sys.exit(main())
