"""What clients of asynchronous requests saw, and a checker that decides whether it can be right.

Clients note every operation with the instants at which it began and ended, on the machine's monotonic clock. The rules:
nothing is lost, doubled or resurrected, and what has ended stays as it ended. Only operations of which one ended before
the other began are compared: what overlaps may have happened in either order.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["accept", "cancel", "get", "result"]
FINAL = ("completed", "failed", "rejected", "dropped", "cancelled")
UNKNOWN = "unknown"  # the connection broke: it may have happened or not
GONE = "gone"  # 404


@dataclass(frozen=True)
class Operation:
    """One operation of a client.

    Args:
        outcome: Of accept: "accepted", or why not. Of cancel: "cancelled", or why not. Of get and result: the state
            that was seen. `UNKNOWN` if no answer came.
        id: Of the request; None where none was learnt.
        value: The output that was seen.
        reason: Why it ended without one.
    """

    kind: Kind
    key: str
    began: float
    ended: float
    outcome: str
    id: str | None = None
    value: object = None
    reason: str | None = None


@dataclass(frozen=True)
class Execution:
    """One run of the function of a request: when it began."""

    key: str
    at: float


@dataclass
class History:
    """Operations in the order of their end; safe to add to from several threads."""

    operations: list[Operation] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)


@dataclass(frozen=True)
class Rules:
    """What depends on the app and the faults.

    Args:
        right: The right output by key.
        excuses: Parts of reasons for which a request may fail, such as three killed instances.
        excused_share: How many of all may.
        slack_s: How long after an acknowledged cancel a function may still begin: what an instance had received is run
            and discarded, and the instance may have been frozen.
    """

    right: Mapping[str, object]
    excuses: Collection[str] = ()
    excused_share: float = 0.02
    slack_s: float = 5.0


def check(operations: Iterable[Operation], executions: Iterable[Execution], rules: Rules) -> list[str]:
    """Every violation of the rules, in a line each; none if the history can be right.

    The history must contain, for every acknowledged request, a `get` that began after all faults were over.
    """
    found: list[str] = []
    by_key: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in sorted(operations, key=lambda one: one.ended):
        by_key[operation.key].append(operation)
    ran: defaultdict[str, list[float]] = defaultdict(list)
    for execution in executions:
        ran[execution.key].append(execution.at)
    owners: dict[str, str] = {}
    excused = 0
    for key, seen in by_key.items():
        ids = {one.id for one in seen if one.kind == "accept" and one.outcome == "accepted"}
        if len(ids) > 1:
            found.append(f"doubled: the idempotency key {key} got the ids {sorted(map(str, ids))}")
        for id in ids:
            if id is not None and owners.setdefault(id, key) != key:
                found.append(f"doubled: the id {id} stands for the keys {owners[id]} and {key}")
        if ids:
            found += _faults_of_one(key, seen, ran[key], rules)
            excused += _end(seen) == "failed" and _is_excused(seen, rules)
    found += [f"doubled: {key} was executed and never sent" for key in ran if key not in by_key]
    if excused > rules.excused_share * len(by_key):
        found.append(f"lost: {excused} of {len(by_key)} requests failed for a reason that may happen, but not so often")
    return found


def summary(operations: Iterable[Operation]) -> str:
    """How many of each operation had which outcome."""
    counts = Counter((one.kind, one.outcome) for one in operations)
    return ", ".join(f"{kind} {outcome}: {count:,}" for (kind, outcome), count in sorted(counts.items()))


def _faults_of_one(key: str, seen: list[Operation], ran: list[float], rules: Rules) -> list[str]:
    found: list[str] = []
    end = _end(seen)
    cancels = [one for one in seen if one.kind == "cancel"]
    acknowledged = min((one.ended for one in cancels if one.outcome == "cancelled"), default=None)
    # --- nothing lost
    if end is None or end not in FINAL:
        found.append(f"lost: {key} was accepted and is {end or 'never seen again'} at the end")
    elif end == "cancelled" and not cancels:
        found.append(f"lost: {key} is cancelled, and no client asked for it")
    elif end not in ("completed", "cancelled") and not _is_excused(seen, rules):
        reason = next((one.reason for one in reversed(seen) if one.reason), None)
        found.append(f"lost: {key} was accepted and {end}: {reason}")
    elif end == "completed" and not ran:
        found.append(f"lost: {key} is completed and was never executed")
    # --- nothing doubled
    values = [one.value for one in seen if one.kind == "result" and one.outcome == "completed"]
    found += [
        f"doubled: {key} gave {value!r} instead of {rules.right[key]!r}"
        for value in values
        if value != rules.right[key]
    ][:1]
    if end == "completed" and not values:
        found.append(f"lost: {key} is completed and its result cannot be read")
    # --- nothing resurrected
    if acknowledged is not None:
        for one in seen:
            if one.began > acknowledged and one.kind in ("get", "result") and one.outcome not in ("cancelled", UNKNOWN):
                found.append(f"resurrected: {key} was {one.outcome} after its cancel had been acknowledged")
                break
        late = [at for at in ran if at > acknowledged + rules.slack_s]
        if late:
            found.append(
                f"resurrected: {key} was executed {max(late) - acknowledged:.1f} s after its cancel was acknowledged"
            )
    # --- what has ended stays as it ended
    reads = [one for one in seen if one.kind in ("get", "result") and one.outcome != UNKNOWN]
    last: Operation | None = None  # the first read of a final state to end
    for one in reads:
        if last is not None and one.began > last.ended and one.outcome != last.outcome:
            found.append(f"went back: {key} was {last.outcome}, and later {one.outcome}")
            break
        if last is None and one.outcome in FINAL:
            last = one
    accepted = min(one.ended for one in seen if one.kind == "accept" and one.outcome == "accepted")
    if any(one.outcome == GONE and one.began > accepted for one in reads):
        found.append(f"lost: {key} was accepted, and later there was no such request")
    return found


def _end(seen: list[Operation]) -> str | None:
    """The state that the last read saw."""
    return next((one.outcome for one in reversed(seen) if one.kind == "get" and one.outcome != UNKNOWN), None)


def _is_excused(seen: list[Operation], rules: Rules) -> bool:
    reason = next((one.reason for one in reversed(seen) if one.reason), "")
    return any(part in reason for part in rules.excuses)
