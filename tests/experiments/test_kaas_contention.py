"""KaaS under finite device memory: that the table is the committed one, and the claims follow from it."""

import csv
import io
from importlib.resources import files

import pytest

from fairlead.experiments import committed_experiment, run_experiment
from fairlead.experiments.cases import read_settings
from fairlead.experiments.kaas_contention.clients import answers, run_clients, throughput_rps
from fairlead.experiments.kaas_contention.costs import cost_rows
from fairlead.workload import load_scenario

PACKAGE = "fairlead.experiments.kaas_contention"
SETTINGS = read_settings(PACKAGE)
GEMM = "complex GEMM"
MISSED = [
    "ResNet-50: factor by which exclusive actors fall from 4 to 5 clients",
    "ResNet-50: KaaS over contended actors, 16 clients",
    "ResNet-50: KaaS requests per second, 16 clients",
]


def expected():
    text = (files(PACKAGE) / "expected.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def committed(model, way, clients):
    (row,) = [r for r in expected() if (r["model"], r["way"], r["clients"]) == (model, way, str(clients))]
    return row


def missed(result):
    return [claim.claim for claim in result.claims if claim.verdict != "met"]


def test_claims_follow_from_the_committed_table():
    result = committed_experiment("kaas-contention")
    assert missed(result) == MISSED
    assert all(claim.note for claim in result.claims if claim.verdict != "met")


def test_what_returns_an_input_is_called_a_fit():
    kinds = {claim.claim: claim.kind for claim in committed_experiment("kaas-contention").claims}
    assert kinds["BERT: KaaS requests per second, 16 clients"] == "fit"
    assert kinds["complex GEMM: share of that left with 29 clients"] == "reproduction"


@pytest.mark.parametrize(
    ("model", "way", "clients"),
    [(GEMM, "KaaS", 32), (GEMM, "KaaS, Balance", 8), ("ResNet-50", "exclusive actors", 5), ("Jacobi", "KaaS", 1)],
)
def test_one_point_is_the_committed_one(model, way, clients):
    recording = run_clients(SETTINGS, model, way, clients, SETTINGS["seeds"][0])
    row = committed(model, way, clients)
    assert throughput_rps(recording) == pytest.approx(float(row["rps_by_seed"].split()[0]), abs=1e-3)
    assert answers(recording)[0] == int(row["least_answers"])
    if way.startswith("KaaS"):
        assert sum(device.evictions for device in recording.device_memory) == int(row["evictions"])


def test_seven_clients_of_the_gemm_fill_a_device():
    scenario = load_scenario("kaas-contention")
    device, function = scenario.cluster.nodes[0].devices[0], scenario.functions["client-1"]
    scratch_mb = 1024 * function.footprint_gb - function.constant_mb
    assert round(function.footprint_gb, 2) == 2.24
    assert 7 * function.constant_mb + scratch_mb <= 1024 * device.usable_gb < 8 * function.constant_mb
    assert SETTINGS["models"][GEMM]["buffers"] == {b.kind: b.size_mb for b in function.buffers}


def test_evictions_begin_with_the_client_that_no_longer_fits():
    evictions = {clients: int(committed(GEMM, "KaaS", clients)["evictions"]) for clients in (28, 29)}
    assert evictions[28] == 0 < evictions[29]


def test_costs_are_those_of_the_formulas():
    settings = SETTINGS["cost"] | {"utilisations": [0.01]}
    serverful, faas, kaas = cost_rows(settings, seeds=[0], duration_s=900)
    # The machine: 8 vCPUs and a GPU of 60 times the price, every hour, whatever is used of it.
    machine = 0.034 * (8 + 60)
    assert serverful["used_usd_per_hour"] + serverful["kept_usd_per_hour"] == pytest.approx(machine, abs=1e-4)
    # A container with one vCPU and the GPU, from the first request on: never idle for ten minutes.
    container = 0.034 * (1 + 60)
    assert faas["used_usd_per_hour"] + faas["kept_usd_per_hour"] == pytest.approx(container, rel=0.02)
    requests = kaas["requests"]
    host_s, kernel_s = 0.022, 0.00813 + 0.574 / 1024 / 8
    starts_usd = 0.034 / 3600 * (1.9 + 60 * (2.65 + 0.002 + 98 / 1024 / 8))
    used_usd = requests * 0.034 / 3600 * (host_s + 60 * kernel_s) + starts_usd
    assert kaas["used_usd_per_hour"] == pytest.approx(4 * used_usd, rel=0.02)  # a quarter of an hour


@pytest.mark.slow
def test_contention_gives_the_committed_table():
    result = run_experiment("kaas-contention")
    assert missed(result) == MISSED
    found, wanted = list(csv.DictReader(io.StringIO(result.to_csv()))), expected()
    assert len(found) == len(wanted)
    for row, want in zip(found, wanted, strict=True):
        for key in want:
            try:
                assert float(row[key]) == pytest.approx(float(want[key]), rel=1e-3, abs=2e-3), (key, row)
            except ValueError:
                assert row[key] == want[key]
    assert {figure.name for figure in result.figures} == {
        "contention-resnet-50",
        "contention-bert",
        "contention-complex-gemm",
        "contention-jacobi",
        "contention-cost",
    }
