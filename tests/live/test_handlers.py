"""Every driver acts every effect out, and the controller knows every event and every action: none can be forgotten."""

import asyncio
from typing import get_args

from runtimes import served

from fairlead.engine.core import Controller
from fairlead.engine.core import effects as fx
from fairlead.engine.core import events as ev
from fairlead.engine.live import eventlog
from fairlead.engine.sim.driver import Simulation
from fairlead.engine.sim.stepped import Stepped
from fairlead.policy import base, make_policy
from fairlead.runlog.segments import EVENTS
from fairlead.testing import scenario
from fairlead.workload import PolicyChoice

EFFECTS = set(get_args(fx.Effect))

ECHO = """
    @app.function(warm=0)
    def echo(x): return x
    app.workflow("main", echo)
"""


def test_the_simulator_and_replays_in_it_act_every_effect_out():
    where = scenario(policy=PolicyChoice(name="fifo"))
    assert set(Simulation(where, ("fifo", make_policy("fifo")), (None, None), 0, None, ()).act) == EFFECTS
    assert set(Stepped(where)._run.act) == EFFECTS


def test_the_runtime_acts_every_effect_out(tmp_path):
    async def test():
        async with served(tmp_path, ECHO) as app:
            assert set(app.runtime._act) == EFFECTS

    asyncio.run(test())


def test_the_controller_applies_every_event_and_every_event_can_be_logged():
    kinds = set(get_args(ev.Event))
    it = Controller(scenario(), make_policy("fifo"))
    assert set(it._apply) == kinds
    assert set(ev.RANK) == kinds
    assert set(eventlog._ENCODE) == kinds
    assert set(EVENTS) == {kind.__name__ for kind in kinds}


def test_the_controller_carries_out_every_action_of_a_policy_and_every_order():
    it = Controller(scenario(), make_policy("fifo"))
    assert set(it.decisions._carry) == set(get_args(base.Action))
    orders = set(get_args(ev.Ordered.__annotations__["action"]))
    assert set(it.decisions._order) == orders
    assert set(eventlog._ACTIONS.values()) == orders
