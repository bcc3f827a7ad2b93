"""Functions move between nodes without a loss, on virtual time."""

import asyncio
from contextlib import asynccontextmanager

from runtimes import until
from virtual_runtimes import run, served

from fairlead.model import Node
from fairlead.policy.base import Move

NODES = (Node(name="fast", kind="fast", vcpus=1, speed=0.8), Node(name="slow", kind="slow", vcpus=1, speed=0.2))
BURN = """
    @app.function()
    def burn(seconds):
        sleep(seconds)
        return seconds

    app.workflow("main", burn)
"""


@asynccontextmanager
async def placed(placement, *, replicas=1, period_s=0.4):
    """Serve the function where the placement says, once its policy has had its say."""
    given = {"placement": placement, "replicas": replicas}
    how = {"scaler": "static-placement", "given": given, "period_s": period_s}
    async with served(BURN, "least-loaded", nodes=NODES, overcommit=8, **how) as app:
        await until(lambda: app.runtime.controller.decisions.adjustments > 0 or period_s > 20)
        yield app


def are_on(app, node, number):
    """Whether the function has this number of ready instances, and all that exist are on this node."""
    instances = app.runtime.controller.pool.instances.values()
    is_settled = all(one.is_ready and not one.is_draining and one.node.name == node for one in instances)
    living = app.cluster.instances()
    return is_settled and [living[key].spec.node for key in app.keys("burn")] == [node] * number


def test_a_move_brings_every_replica_to_the_other_node_and_loses_no_request():
    async def test():
        async with placed("burn=fast", replicas=2) as app:
            await until(lambda: are_on(app, "fast", 2))
            before = app.keys("burn")
            flying = [asyncio.ensure_future(app.answer("main", 0.5)) for _ in range(6)]  # two run, four wait
            await asyncio.sleep(0.3)
            app.runtime.order(Move("burn", "slow"))
            await asyncio.sleep(0.1)
            assert before[0] in app.keys("burn")  # it ends with what it does
            assert await asyncio.gather(*flying) == [0.5] * 6
            await until(lambda: are_on(app, "slow", 2))
            assert not set(before) & set(app.keys("burn"))
            assert app.runtime.refused_actions == 0
            assert not app.log

    run(test)


def test_a_move_whose_new_replica_dies_is_tried_again_and_the_old_one_serves_meanwhile():
    async def test():
        async with placed("burn=fast") as app:
            await until(lambda: are_on(app, "fast", 1))
            (old,) = app.keys("burn")
            app.runtime.order(Move("burn", "slow"))
            await until(lambda: len(app.keys("burn")) == 2)
            (new,) = set(app.keys("burn")) - {old}
            app.kill(new)
            await until(lambda: new not in app.keys("burn"))
            assert old in app.keys("burn")
            assert await app.answer("main", 0.01) == 0.01
            await until(lambda: are_on(app, "slow", 1))

    run(test)


def test_an_operators_moves_in_a_row_end_where_the_last_one_says():
    async def test():
        async with placed("burn=fast", period_s=60) as app:
            assert "burn" in app.runtime.controller.replicas.sets
            app.runtime.move("burn", "slow")
            await until(lambda: are_on(app, "slow", 1))
            app.runtime.move("burn", "fast")
            app.runtime.move("burn", "slow")  # before the first has come about
            await until(lambda: are_on(app, "slow", 1))
            assert await app.answer("main", 0.01) == 0.01

    run(test)


def test_a_move_to_a_node_that_is_lost_on_the_way_leaves_the_old_one_serving():
    async def test():
        async with placed("burn=fast") as app:
            await until(lambda: are_on(app, "fast", 1))
            app.runtime.order(Move("burn", "slow"))
            await until(lambda: len(app.keys("burn")) == 2)
            app.cluster.lose("slow", 30.0)
            for _ in range(20):
                assert await app.answer("main", 0.1) == 0.1

    run(test)
