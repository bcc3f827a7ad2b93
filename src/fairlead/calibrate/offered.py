"""The load of an app: its examples, sent to its workflows, and the same arrivals as a simulation is given them."""

from collections.abc import Iterator
from urllib.parse import quote

import msgspec

from fairlead.app.manifest import Manifest
from fairlead.engine.core import events as ev
from fairlead.errors import ConfigError, Fault
from fairlead.load import Call, Closed, Plan
from fairlead.model import Request
from fairlead.workload import Scenario

MOST_OPEN = 1_900
"""Requests that such a load has open at once: below the connections that a gateway takes."""


def calls_of(manifest: Manifest, *, slo_scale: float = 1.0, deadline_s: float | None = None) -> tuple[Call, ...]:
    """One call per workflow, with its example as the input (null without one).

    Its deadline is the workflow's objective times `slo_scale`, or `deadline_s` where that is given.
    """
    return tuple(
        Call(
            name=spec.name,
            path=f"/v1/workflows/{quote(f'{manifest.name}.{spec.name}')}",
            body=_body(manifest.name, spec.name, spec.example),
            deadline_s=deadline_s or (None if spec.slo_s is None else spec.slo_s * slo_scale),
        )
        for spec in manifest.workflows
    )


def arrivals_of(plan: Plan) -> Iterator[tuple[float, str, float]]:
    """Every arrival of an open loop: its instant, the workflow, and the time to its deadline."""
    assert not isinstance(plan.arrivals, Closed)
    picks, budgets_s = plan.picks(), plan.budgets_s
    for place, at in enumerate(plan.arrivals.instants(plan.duration_s)):
        picked = picks(place)
        yield at, plan.calls[picked].name, budgets_s[picked]


def given_of(scenario: Scenario, plan: Plan) -> list[tuple[float, ev.Event]]:
    """The arrivals of a plan as events for `simulate`."""
    return [
        (at, ev.Arrived(Request(place, name, at, at + budget_s, scenario.workflows[name].slo.cost_usd), 1))
        for place, (at, name, budget_s) in enumerate(arrivals_of(plan))
    ]


def _body(app: str, workflow: str, example: bytes | None) -> bytes:
    try:
        return msgspec.json.encode({"input": None if example is None else msgspec.msgpack.decode(example)})
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(app, [Fault(f"workflows.{workflow}.example", f"cannot be sent as JSON: {error}")]) from error
