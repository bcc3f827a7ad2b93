"""The overhead of ESG's search: what the experiment draws, counts and claims."""

import csv
import io
from importlib.resources import files

import numpy as np
import pytest

from fairlead.experiments import committed_experiment, run_experiment
from fairlead.experiments.cases import read_settings
from fairlead.experiments.esg_overhead.profiles import draw_profiles

PACKAGE = "fairlead.experiments.esg_overhead"
SETTINGS = read_settings(PACKAGE)


def expected():
    text = (files(PACKAGE) / "expected.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def test_the_smallest_configuration_takes_the_execution_time():
    tables = draw_profiles(SETTINGS, [0.086, 1.047], np.random.default_rng(1))
    assert [table.shape for table in tables] == [(256, 2)] * 2
    for table, execution_s in zip(tables, [0.086, 1.047], strict=True):
        latency_s, cost_usd = table[0]  # batch 1, one vCPU, one vGPU
        assert latency_s == pytest.approx(execution_s)
        assert cost_usd == pytest.approx(execution_s * (9.44e-6 + 1.861e-4))


def test_more_resources_are_faster_and_larger_batches_are_slower_and_cheaper_per_job():
    (table,) = draw_profiles(SETTINGS, [1.0], np.random.default_rng(2))
    latency_s, cost_usd = table.T.reshape(2, 16, 4, 4)  # batch, vCPU, vGPU
    assert (np.diff(latency_s, axis=0) > 0).all()
    assert (np.diff(latency_s, axis=1) < 0).all()
    assert (np.diff(latency_s, axis=2) < 0).all()
    assert (np.diff(cost_usd, axis=0) < 0).all()


def test_the_same_draw_is_the_same_profile():
    one, other = (draw_profiles(SETTINGS, [1.0, 2.0], np.random.default_rng([3, 1])) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, other, strict=True))


def test_the_quick_run_counts_every_search_and_keeps_their_claims_beside_ours():
    seen = []
    result = run_experiment("esg-overhead", quick=True, progress=lambda done, what: seen.append(done))
    assert seen[-1] == 1.0
    rows = {(row["method"], row["slo"]): row for row in result.rows}
    assert len(rows) == 9
    assert all(rows[method, slo]["searches"] == 40 for method in ("dual-blade", "frontier") for slo in SETTINGS["slos"])
    assert all(rows["brute-force", slo]["steps_mean"] == 256**3 for slo in SETTINGS["slos"])
    # What does not depend on the machine: strict is cheaper to search, and frontier than dual-blade.
    for method in ("dual-blade", "frontier"):
        assert rows[method, "strict"]["steps_mean"] < rows[method, "relaxed"]["steps_mean"]
    assert all(rows["frontier", slo]["steps_p99"] < 2500 for slo in SETTINGS["slos"])
    assert [claim.paper for claim in result.claims] == ["< 10 ms"] * 2 + ["strict < relaxed"] * 2 + ["> 726 times"] * 2
    assert [figure.name for figure in result.figures] == ["esg-overhead-steps", "esg-overhead-time"]
    assert all(figure.svg.count('class="curve s') >= 6 for figure in result.figures)


@pytest.mark.slow
def test_the_full_run_gives_the_committed_steps():
    result = run_experiment("esg-overhead")
    assert {claim.claim for claim in result.claims} == {c.claim for c in committed_experiment("esg-overhead").claims}
    found = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert len(found) == len(expected())
    for row, want in zip(found, expected(), strict=True):
        for key, value in want.items():
            if key.startswith("time"):  # of another machine
                continue
            if key in ("method", "slo", "steps_mean_by_seed"):
                assert row[key] == value
            else:
                assert float(row[key]) == pytest.approx(float(value), rel=1e-3)
