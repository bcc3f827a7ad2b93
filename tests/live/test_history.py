"""The history checker finds nothing wrong with a served app under faults, and finds what is wrong in bad histories."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from histories import GONE, UNKNOWN, Execution, Operation, Rules, check

COMMAND = Path(__file__).with_name("history.py")
RULES = Rules({"a": "A", "b": "B"}, excuses=("was killed",), slack_s=5.0)


def run(*options: str, timeout_s: float) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "FAIRLEAD_TOKEN"}
    command = [sys.executable, str(COMMAND), *options]  # a process of its own: it has disks of its own
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "nothing lost, doubled or resurrected" in done.stdout
    return done.stdout


def test_nothing_is_lost_doubled_or_resurrected_by_a_few_faults():
    names = ("kill an instance", "break the app file", "fill the shared memory", "fill the disk and kill the gateway")
    only = [part for name in names for part in ("--only", name)]
    run("--requests", "200", "--faults", "4", *only, timeout_s=300)


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_resurrected_in_ten_thousand_requests_with_every_fault(capsys):
    told = run("--requests", "10000", "--faults", "30", "--end-limit", "900", timeout_s=3_000)
    with capsys.disabled():
        print(f"\n{told}")  # noqa: T201


# --- histories by hand: each operation begins one second after the last one ended, and takes one -------------------


def history(*steps: tuple[str, str] | tuple[str, str, object]) -> list[Operation]:
    """Operations on the request "a" with the id "1": kind, outcome, and the id, value or reason if it has one."""
    found = []
    for number, (kind, outcome, *more) in enumerate(steps):
        id, value, reason = "1", None, None
        if kind == "accept":
            id = more[0] if more else ("1" if outcome == "accepted" else None)
        elif kind == "result" and outcome == "completed":
            value = more[0] if more else "A"
        elif more:
            reason = more[0]
        found.append(Operation(kind, "a", 2 * number, 2 * number + 1, outcome, id, value, reason))
    return found


ACCEPT = ("accept", "accepted")
RAN = [Execution("a", 1.5)]
DONE = (("get", "completed"), ("result", "completed"))


@pytest.mark.parametrize(
    ("steps", "ran"),
    [
        ((ACCEPT, ("get", "accepted"), *DONE), RAN),
        ((("accept", UNKNOWN), ACCEPT, ("accept", "accepted"), *DONE), RAN),
        ((ACCEPT, *DONE), RAN * 2),  # at least once: an instance was killed half-way
        ((ACCEPT, ("cancel", "cancelled"), ("get", "cancelled")), []),
        ((ACCEPT, ("cancel", "cancelled"), ("get", "cancelled")), RAN),  # had been handed to an instance
        ((ACCEPT, ("cancel", UNKNOWN), *DONE), RAN),
        ((ACCEPT, ("cancel", UNKNOWN), ("get", "cancelled")), []),
        ((ACCEPT, ("cancel", "refused (409)"), *DONE), RAN),
        ((ACCEPT, ("get", UNKNOWN), *DONE), RAN),
        ((("accept", "refused (507)"),), []),
    ],
)
def test_a_history_that_can_be_right_has_no_violation(steps, ran):
    assert check(history(*steps), ran, RULES) == []


@pytest.mark.parametrize(
    ("steps", "ran", "found"),
    [
        ((ACCEPT, ("get", "accepted")), [], "lost: a was accepted and is accepted at the end"),
        ((ACCEPT,), [], "lost: a was accepted and is never seen again"),
        ((ACCEPT, ("get", GONE)), [], "no such request"),
        ((ACCEPT, ("get", "failed", "No workflow named 'x'.")), [], "failed: No workflow named 'x'."),
        ((ACCEPT, ("get", "failed", "it was killed 3 times")), [], "1 of 1 requests failed"),
        ((ACCEPT, ("get", "cancelled")), [], "no client asked"),
        ((ACCEPT, *DONE), [], "never executed"),
        ((ACCEPT, ("get", "completed")), RAN, "result cannot be read"),
        ((ACCEPT, ("accept", "accepted", "2"), *DONE), RAN, "doubled: the idempotency key a"),
        ((ACCEPT, ("get", "completed"), ("result", "completed", "B")), RAN, "doubled: a gave 'B' instead of 'A'"),
        ((ACCEPT, *DONE, ("result", "completed", "C"), ("get", "completed")), RAN, "doubled: a gave 'C'"),
        ((ACCEPT, ("cancel", "cancelled"), *DONE), RAN, "resurrected: a was completed"),
        (
            (ACCEPT, ("cancel", "cancelled"), ("get", "accepted"), ("get", "cancelled")),
            [],
            "resurrected: a was accepted",
        ),
        ((ACCEPT, ("cancel", "cancelled"), ("get", "cancelled")), [Execution("a", 9.0)], "executed 6.0 s after"),
        (
            (ACCEPT, ("get", "completed"), ("get", "accepted"), *DONE),
            RAN,
            "went back: a was completed, and later accepted",
        ),
        ((ACCEPT, ("get", "completed"), ("cancel", UNKNOWN), ("get", "cancelled")), RAN, "later cancelled"),
        ((ACCEPT, *DONE), [*RAN, Execution("z", 1.0)], "z was executed and never sent"),
    ],
)
def test_a_history_that_cannot_be_right_is_found(steps, ran, found):
    assert any(found in line for line in check(history(*steps), ran, RULES)), check(history(*steps), ran, RULES)


def test_one_id_for_two_keys_is_found():
    other = [Operation(one.kind, "b", one.began, one.ended, one.outcome, one.id, "B") for one in history(ACCEPT, *DONE)]
    assert any("stands for the keys a and b" in line for line in check([*history(ACCEPT, *DONE), *other], RAN, RULES))


def test_reads_that_overlap_may_see_either_state():
    first, late = history(ACCEPT, ("get", "completed"))[1], Operation("get", "a", 2.5, 9.0, "accepted", "1")
    end = [Operation("get", "a", 10, 11, "completed", "1"), Operation("result", "a", 12, 13, "completed", "1", "A")]
    assert check([*history(ACCEPT), first, late, *end], RAN, RULES) == []
