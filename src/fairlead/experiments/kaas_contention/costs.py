"""What one user pays for a GPU that is mostly idle: serverful, as a function, as a kernel.

Three users send the same requests. Each row splits what is paid per hour into what the requests used (their cold starts
included) and what was merely kept for them:

* serverful: kept = the whole machine x the whole time - used;
* FaaS: used = (vCPU + GPU) x (run + cold start); kept = (vCPU + GPU) x the time that containers idle until they expire;
* KaaS: used = vCPU x (run + cold start) of the host part + GPU x (load + copies + run) of the kernel; kept = vCPU x the
  time that the host's containers idle. Device memory that holds buffers is not billed: others may take it.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from fairlead.engine import simulate
from fairlead.experiments.rows import by_seed
from fairlead.model import Recording
from fairlead.workload import Scenario, load_scenario

SERVERFUL, FAAS, KAAS = "serverful", "FaaS", "KaaS"
_WORKFLOWS = {SERVERFUL: "serverful", FAAS: "faas", KAAS: "kaas"}


def cost_rows(settings: Mapping[str, Any], seeds: Sequence[int], duration_s: float) -> Iterator[dict[str, object]]:
    """One row per utilisation and user: USD per hour used and kept (first seed), and USD per thousand requests."""
    for utilisation in settings["utilisations"]:
        for user, workflow in _WORKFLOWS.items():
            arrivals = [{"workflow": workflow, "process": "poisson", "rate_rps": utilisation / settings["task_s"]}]
            overrides = {"arrivals": arrivals, "duration_s": duration_s}
            scenario = load_scenario(settings["scenario"], overrides=overrides)
            bills = [_bill(scenario, user, seed) for seed in seeds]
            prices = [1000 * (bill.used_usd + bill.kept_usd) / max(1, bill.requests) for bill in bills]
            first = bills[0]
            yield {
                "utilisation": utilisation,
                "user": user,
                "requests": first.requests,
                "used_usd_per_hour": round(first.used_usd / first.hours, 5),
                "kept_usd_per_hour": round(first.kept_usd / first.hours, 5),
                "usd_per_1000_requests": round(fmean(prices), 4),
                "usd_per_1000_requests_by_seed": by_seed(prices),
            }


class _Bill(NamedTuple):
    requests: int
    used_usd: float
    kept_usd: float
    hours: float


def _bill(scenario: Scenario, user: str, seed: int) -> _Bill:
    recording = simulate(scenario, seed=seed)
    used_usd = float(recording.invocations["cost_usd"].sum())
    kept_usd = _kept_usd(recording, scenario, user, used_usd)
    return _Bill(recording.requests.height, used_usd, kept_usd, recording.end_s / 3600)


def _kept_usd(recording: Recording, scenario: Scenario, user: str, used_usd: float) -> float:
    price = scenario.cluster.price
    if user == SERVERFUL:
        node = scenario.cluster.nodes[0]
        machine = price.usd_per_s(node.vcpus, sum(device.vgpus for device in node.devices))
        return machine * recording.end_s - used_usd
    keeping = [name for name, function in scenario.functions.items() if function.idle_holds == "slice"]
    idle_s = (pl.col("stopped").fill_null(recording.end_s) - pl.col("ready") - pl.col("busy_s")).clip(lower_bound=0)
    held = recording.instances.filter(pl.col("function").is_in(keeping)).select(
        vcpu_s=idle_s * pl.col("vcpus"), vgpu_s=idle_s * pl.col("vgpus")
    )
    return price.usd_per_s(float(held["vcpu_s"].sum()), float(held["vgpu_s"].sum()))
