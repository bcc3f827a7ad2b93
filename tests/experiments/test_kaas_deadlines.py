"""Deadlines on workflows with kernels: promises under a cap that evicts, and what knowing of loads is worth."""

import pytest

from fairlead.experiments import committed_experiment
from fairlead.experiments.cases import read_settings
from fairlead.experiments.kaas_deadlines.run import figures, run_once

SETTINGS = {**read_settings("fairlead.experiments.kaas_deadlines"), "duration_s": 12, "warmup_s": 2}


@pytest.mark.parametrize("policy", ["fairlead", "dag-admission"])
def test_promises_are_kept_though_every_load_evicts(policy):
    knows, ignores = (figures(run_once(SETTINGS, policy, 60, 0, knows=known)) for known in (True, False))
    assert knows["evictions"] > 20
    assert knows["late"] == 0
    assert knows["broken"] < 0.06
    assert knows["broken"] < ignores["broken"] / 3
    assert knows["goodput_rps"] > ignores["goodput_rps"]


def test_everything_is_promised_where_memory_suffices():
    roomy = {**SETTINGS, "node": {**SETTINGS["node"], "device_memory_gb": 1.0}}
    found = figures(run_once(roomy, "dag-admission", 30, 0, knows=True))
    assert found["refused"] == 0
    assert found["evictions"] == 0


def test_claims_follow_from_the_committed_rows():
    claims = {claim.claim: claim.verdict for claim in committed_experiment("kaas-deadlines").claims}
    assert claims["fairlead: admitted requests that are late"] == "met"
    assert claims["dag-admission: admitted requests that are late, or dropped after they were admitted"] == "met"
