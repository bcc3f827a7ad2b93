"""Simulated faults: what must hold does, for hundreds of seeds; and faults planted on purpose are found."""

import subprocess
import sys
from dataclasses import replace

import pytest

from fairlead.testing.virtual import Traits, simulate_faults
from fairlead.testing.virtual.__main__ import main
from fairlead.testing.virtual.plans import Call, plan_of
from fairlead.testing.virtual.planted import HastyProvider, RashWriter, UnfencedProvider
from fairlead.testing.virtual.shrinking import shrink

SEEDS, PARTS = 200, 8
SLOW_SEEDS, SLOW_PARTS = 10_000, 20


@pytest.mark.parametrize("part", range(PARTS))
def test_every_invariant_holds(part):
    outcomes = [simulate_faults(seed) for seed in range(part, SEEDS, PARTS)]
    failed = [outcome for outcome in outcomes if outcome.violations]
    assert not failed, failed[0].report()
    assert sum(outcome.endings.get("completed", 0) for outcome in outcomes) > 100  # else nothing was put to the test
    assert sum(outcome.lives for outcome in outcomes) > 2 * len(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLOW_PARTS))
def test_every_invariant_holds_for_ten_thousand_seeds(part):
    for seed in range(SEEDS + part, SEEDS + SLOW_SEEDS, SLOW_PARTS):
        outcome = simulate_faults(seed)
        assert not outcome.violations, outcome.report()


def small_plan(dies_after):
    """Two clients, nothing that goes wrong but the first gateway's end."""
    plan = plan_of(0)
    calls = (
        Call(0.5, "chain", 3, is_async=True, deadline_s=None, leaves_s=None),
        Call(0.55, "fan", 7, is_async=True, deadline_s=None, leaves_s=None),
        Call(0.6, "chain", 4, is_async=False, deadline_s=None, leaves_s=None),
    )
    return replace(plan, traits=Traits(), scaler=None, calls=calls, faults=(), dies_after=dies_after)


def crash_at_steps(stride):
    """Let the first gateway crash at each of its steps, until it has served its clients; how many there were."""
    step, is_crashed = 0, True
    while is_crashed:
        outcome = simulate_faults(0, plan=small_plan(step))
        assert not outcome.violations, f"a crash at step {step}: {outcome.report()}"
        assert outcome.endings["completed"] + outcome.endings.get("connection lost", 0) == 3
        is_crashed = outcome.lives > 2  # the last crash of a simulation comes always
        step += stride
    return step


def test_a_gateway_may_crash_at_any_step():
    assert crash_at_steps(stride=5) > 100


@pytest.mark.slow
def test_a_gateway_may_crash_at_every_step():
    assert crash_at_steps(stride=1) > 100


@pytest.mark.parametrize(
    ("seed", "deploys"),
    [(134, False), (202, False), (265, False), (419, True), (532, True), (652, True), (801, True), (1274, True)]
    + [(seed, True) for seed in (3595, 4141, 5394, 5701, 5712, 6688, 7354)],
)
def test_what_a_seed_once_broke_stays_mended(seed, deploys):
    outcome = simulate_faults(seed, plan=plan_of(seed, deploys=deploys))
    assert not outcome.violations, outcome.report()


@pytest.mark.parametrize("seed", [548, 1244])
def test_clockwork_leaves_no_request_waiting_beside_an_idle_worker(seed):
    outcome = simulate_faults(seed, plan=replace(plan_of(seed), policy="clockwork"))
    assert not outcome.violations, outcome.report(40)


@pytest.mark.parametrize(
    ("planted", "what"),
    [
        ({"provider": UnfencedProvider}, "although its instance was given up"),
        ({"provider": HastyProvider}, "GB exist there"),
        ({"writer": RashWriter}, "was accepted, and is not known any more"),
    ],
    ids=["generations-unchecked", "capacity-freed-at-once", "acknowledged-before-commit"],
)
def test_a_planted_fault_is_found(planted, what):
    for seed in range(300):
        outcome = simulate_faults(seed, **planted)
        if any(what in violation for violation in outcome.violations):
            return
    pytest.fail(f"300 seeds have not shown that {what!r}.")


def test_a_seed_gives_the_same_run_again():
    assert simulate_faults(7).traces == simulate_faults(7).traces


def test_a_run_does_not_depend_on_the_process():
    code = "from fairlead.testing.virtual import simulate_faults; print([simulate_faults(s).digest for s in range(6)])"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, text=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_another_seed_gives_another_run():
    assert simulate_faults(7).digest != simulate_faults(8).digest


def test_a_plan_is_shrunk_to_what_matters():
    plan = plan_of(3)
    wanted = plan.calls[2]

    small = shrink(plan, lambda candidate: wanted in candidate.calls)
    assert small == replace(plan, calls=(wanted,), faults=())


def test_the_command_says_how_many_seeds_held(capsys):
    assert main(["--seeds", "3"]) == 0
    assert "3 seeds: 0 failed" in capsys.readouterr().out


def test_the_command_shows_the_smallest_plan_that_fails(capsys, monkeypatch):
    real = simulate_faults

    def planted(seed, **options):
        return real(seed, writer=RashWriter, **options)

    monkeypatch.setattr("fairlead.testing.virtual.__main__.simulate_faults", planted)
    assert main(["--seeds", "3", "--lines", "5"]) == 1
    out = capsys.readouterr().out
    assert "seed 0: " in out
    assert "the smallest plan that was found to fail" in out
    assert out.count("Call(") == 1
