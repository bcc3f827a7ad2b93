"""Runs of `dag-admission` in few words, and what came of each request."""

from math import inf

from fairlead.engine import simulate
from fairlead.model import SLO, Workflow
from fairlead.policy import make_policy


def run(world, *, seed=0, physics=None, **parameters):
    """One run; every action must have been carried out."""
    recording = simulate(world, make_policy("dag-admission", parameters), seed=seed, physics=physics)
    assert recording.refusals == ()
    return recording


def answers(recording):
    """The rows of the request table by id."""
    return list(recording.requests.sort("request").iter_rows(named=True))


def column(recording, name):
    """One column of the request table, by id."""
    return recording.requests.sort("request")[name].to_list()


def runs(recording, *columns):
    """Some columns of the invocation table, in order of start and request."""
    return recording.invocations.sort("start", "request", "stage", "item").select(columns).rows()


def chain(*functions, latency_s=inf, cost_usd=inf, name="main"):
    """A chain with both objectives."""
    return Workflow.chain(name, *functions, slo=SLO(latency_s=latency_s, cost_usd=cost_usd))
