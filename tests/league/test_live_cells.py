"""What is sent in a cell, what is predicted of it, and what is counted."""

import os

import msgspec
import pytest

from fairlead.errors import ConfigError
from fairlead.league.live import LiveApp, predict_cell
from fairlead.league.live.cells import arrivals_of, plan_of
from fairlead.league.live.usage import Process, Snapshot

APP = """
import os
from fairlead import App

app = App("shop")
app.node("one", vcpus=1)


@app.function
def first(value):
    return value


@app.function
def second(value):
    return value


app.workflow("long", first >> second, slo="200ms", example={"n": 1})
app.workflow("short", first, slo=os.environ.get("SHOP_SLO", "15ms"))
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> LiveApp:
    file = tmp_path_factory.mktemp("shop") / "app.py"
    file.write_text(APP)
    return LiveApp(file.parent)


def test_an_app_is_known_by_its_folder(shop):
    assert (shop.name, shop.workflows, shop.measured) == ("shop", ("long", "short"), None)
    assert shop.slo_s == {"long": 0.2, "short": 0.015}
    assert [(call.path, call.body, call.deadline_s) for call in shop.calls(slo_scale=2.0)] == [
        ("/v1/workflows/shop.long", b'{"input":{"n":1}}', 0.4),
        ("/v1/workflows/shop.short", b'{"input":null}', 0.03),
    ]


def test_an_app_is_described_with_its_variables_and_they_are_gone_afterwards(shop):
    other = LiveApp(shop.path, env={"SHOP_SLO": "2s"})
    assert other.slo_s["short"] == 2.0
    assert "SHOP_SLO" not in os.environ


@pytest.mark.parametrize("path", ["nothing.py", "empty"])
def test_what_is_no_app_is_told(tmp_path, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError):
        LiveApp(tmp_path / path)


def test_arrivals_are_one_stream_split_among_the_workflows(shop):
    plan = plan_of(shop, 200.0, 8.0, 1, warm_up_s=2.0)
    arrivals = list(arrivals_of(plan))
    assert 1700 < len(arrivals) < 2300  # 2,000; six standard deviations are 268
    names = [name for _, name, _ in arrivals]
    assert abs(names.count("long") - names.count("short")) < 300
    assert {(name, budget) for _, name, budget in arrivals} == {("long", 0.2), ("short", 0.015)}
    assert list(arrivals_of(plan_of(shop, 200.0, 8.0, 1, warm_up_s=2.0))) == arrivals


def test_a_prediction_has_the_counted_arrivals_and_the_assumed_times(shop):
    """Runs are assumed to take 10 ms, of `short` half of its 15 ms; at 2 requests/s most find the node free."""
    found = predict_cell(shop, "fifo", 2.0, 100.0, 1, host=None, warm_up_s=10.0)
    arrivals = [name for at, name, _ in arrivals_of(plan_of(shop, 2.0, 100.0, 1, warm_up_s=10.0)) if at >= 10.0]
    assert found.requests == found.answers == len(arrivals)
    assert {name: part.requests for name, part in found.by_workflow.items()} == {
        name: arrivals.count(name) for name in ("long", "short")
    }
    assert (found.by_workflow["long"].p50_s, found.by_workflow["short"].p50_s) == (
        pytest.approx(0.0175),
        pytest.approx(0.0075),
    )
    assert found.in_time == sum(part.in_time for part in found.by_workflow.values())
    assert found.goodput_rps == pytest.approx(found.in_time / 100)
    assert found.cost_usd == pytest.approx(sum(part.cost_usd for part in found.by_workflow.values()))


def test_tighter_objectives_are_met_less_often(shop):
    """At 0.4 of 15 ms, a run of 7.5 ms is always late; the long workflow has time enough."""
    found = predict_cell(shop, "fifo", 2.0, 50.0, 1, host=None, slo_scale=0.4)
    assert found.by_workflow["short"].in_time == 0
    assert found.by_workflow["long"].share > 0.9


def test_cpu_time_is_told_apart_by_process():
    """The gateway (-2) is ours; instance -4 is a child of instance -3; -9 is another program."""
    tick = os.sysconf("SC_CLK_TCK")
    me = os.getpid()
    before = Snapshot(at=0.0, busy=0, processes={me: Process(0, 0, 0), -2: Process(me, 0, 0), -3: Process(-2, 0, 0)})
    after = msgspec.structs.replace(
        before,
        at=10.0,
        busy=20 * tick,
        processes={
            me: Process(0, tick, 0),
            -2: Process(me, 2 * tick, 3 * tick),  # an instance that ended took 3 s
            -3: Process(-2, 4 * tick, 0),
            -4: Process(-3, 5 * tick, 0),
            -9: Process(0, 5 * tick, 0),
        },
    )
    used = after.since(before, -2)
    assert (used.gateway_s, used.instances_s) == (2, 12)
    assert used.others == pytest.approx(min(1.0, 5 / 10 / os.cpu_count()))


def test_this_machine_can_be_read():
    assert os.getpid() in Snapshot.take().processes
