"""Files of arrivals for `fairlead load`: instants alone, or JSON lines that say what is sent to which workflow."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from fairlead.cli.asking import Gateway
from fairlead.cli.calls import read_file, workflow_call, workflow_path
from fairlead.cli.errors import UsageError
from fairlead.client.bodies import JSON
from fairlead.load import Call, Listed, Target

MAX_BYTES = 256 * 2**20
_MOST_SHOWN = 10

Instant = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Arrival(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A line of a file: when, and what. What is missing is that of the command, or the workflow's example."""

    at_s: Instant
    workflow: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    deadline_ms: Annotated[float, msgspec.Meta(gt=0, le=1e12)] | None = None


@dataclass(frozen=True)
class Arrivals:
    """What a file says, in the order of time. `lines` is None where it has instants alone."""

    times: tuple[float, ...]
    lines: tuple[Arrival, ...] | None = None

    @property
    def listed(self) -> Listed:
        """The instants."""
        return Listed(self.times)


def read_arrivals(file: Path) -> Arrivals:
    """The arrivals of a file. Its first line that is not blank says which form all of them have."""
    lines = [
        (number, line.strip())
        for number, line in enumerate(read_file("--arrivals", file, MAX_BYTES).split(b"\n"), 1)
        if line.strip() and not line.lstrip().startswith(b"#")
    ]
    if not lines:
        raise UsageError(
            f'--arrivals {file}: holds no arrival; each line is a number of seconds, or JSON such as {{"at_s": 0.5}}.'
        )
    if not lines[0][1].startswith(b"{"):
        return Arrivals(tuple(_instant(file, number, line) for number, line in lines))
    found, faults = [], []
    for number, line in lines:
        try:
            found.append(_arrivals.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            faults.append(f"{file}, line {number}: {_said(error)}.")
    if faults:
        more = [f"and {len(faults) - _MOST_SHOWN} lines more"] if len(faults) > _MOST_SHOWN else []
        raise UsageError("\n".join(faults[:_MOST_SHOWN] + more))
    found.sort(key=lambda each: each.at_s)
    return Arrivals(tuple(each.at_s for each in found), tuple(found))


def timed_calls(
    gateway: Gateway, lines: tuple[Arrival, ...], workflow: str | None, deadline_s: float | None
) -> tuple[Call, ...]:
    """What each line sends. Its deadline is its own, that of the command, or the objective of its workflow."""
    names = dict.fromkeys(line.workflow or workflow for line in lines)
    known = {name: workflow_call(gateway, name, ()) for name in names}  # with their examples
    calls = []
    for line in lines:
        found = known[line.workflow or workflow]
        assert found.workflow is not None
        if isinstance(line.input, msgspec.UnsetType):
            path, body, kind = Target.of(found.url).path, found.bodies[0], found.content_type
        else:
            path, body, kind = workflow_path(found.workflow), b'{"input":%b}' % bytes(line.input), JSON
        own_s = None if line.deadline_ms is None else line.deadline_ms / 1e3
        due_s = own_s or deadline_s or found.objective_s
        headers = (("Content-Type", kind),)
        calls.append(Call(name=found.workflow, path=path, body=body, deadline_s=due_s, headers=headers))
    return tuple(calls)


_arrivals = msgspec.json.Decoder(Arrival)


def _instant(file: Path, number: int, line: bytes) -> float:
    text = line.partition(b"#")[0].strip().decode("utf-8", errors="replace")
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"{file}, line {number}: must be an instant in seconds; got {text[:40]!r}.") from error


def _said(error: Exception) -> str:
    return str(error).rstrip(".")
