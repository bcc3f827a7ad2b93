"""Three agents as processes, one app, faults under load: nothing accepted is lost, and capacity is corrected."""

import time

import pytest
from agent_processes import SILENCE_S, Load, answered_twice, cluster, kill_gateway
from serving import is_alive, wait_for

SLACK_S = 3.0  # on a machine that does much else; `benchmarks/live/bench_faults.py` shows the figures of a quiet one


def test_nodes_that_are_killed_frozen_or_cut_off_are_lost_and_no_request_is(tmp_path):
    with cluster(tmp_path) as made:
        load = Load(made, rate=4, async_rate=8)
        with load.running():
            time.sleep(1.0)
            victim = made.agents["a"]
            orphans = victim.instances
            victim.kill()
            assert made.wait_for_loss("a", 20) < SILENCE_S + SLACK_S
            wait_for(lambda: not any(map(is_alive, orphans)))  # they end with their agent
            frozen = made.freeze_while_busy()
            assert made.wait_for_loss(frozen.name, 20) < SILENCE_S + SLACK_S
            assert made.served.wait_for_end(made.lingering[0])["state"] == "completed"  # on the other node
            frozen.thaw()
            wait_for(lambda: made.late_answers > 0)  # the frozen one answers too, and is not heard
            wait_for(lambda: frozen.name in made.nodes, why=lambda: frozen.log)
            made.agents["c"].proxy.cut()
            assert made.wait_for_loss("c", 20) < SILENCE_S + SLACK_S
            made.agents["c"].proxy.mend()
            wait_for(lambda: made.nodes == {"b", "c"}, why=lambda: made.agents["c"].log)
            assert made.served.call("work", "last").status == 200
        load.accepted += made.lingering
        ends = load.ends()
        assert len(load.accepted) > 10
        assert [id for id in load.accepted if ends.get(id) != "completed"] == []
        made.served.stop()
        assert answered_twice(tmp_path / "state", load.accepted) == []


def test_a_killed_gateway_finds_its_instances_again(tmp_path):
    with cluster(tmp_path, ("a",)) as made:
        load = Load(made, rate=0, async_rate=8)
        with load.running():
            time.sleep(1.0)
            restart = kill_gateway(made)
            assert restart.answered_by in restart.before  # adopted, not started again
            assert set(restart.before) <= set(restart.after)
            time.sleep(0.5)
        ends = load.ends()
        assert [id for id in load.accepted if ends.get(id) != "completed"] == []
        assert restart.first_answer_s < 30  # a start of Python takes seconds where others use the CPU
        made.served.stop()
        assert answered_twice(tmp_path / "state", load.accepted) == []


@pytest.mark.slow
def test_faults_again_and_again(tmp_path):
    with cluster(tmp_path) as made:
        load = Load(made, rate=10, async_rate=15)
        with load.running():
            for _ in range(3):
                for name in ("a", "b", "c"):
                    agent = made.agents[name]
                    agent.freeze()
                    made.wait_for_loss(name, 30)
                    agent.thaw()
                    wait_for(lambda name=name: name in made.nodes)
                    agent.proxy.cut()
                    made.wait_for_loss(name, 30)
                    agent.proxy.mend()
                    wait_for(lambda name=name: name in made.nodes)
                    agent.kill()
                    made.wait_for_loss(name, 30)
                    agent.start()
                    wait_for(lambda name=name: name in made.nodes)
                kill_gateway(made)
        ends = load.ends()
        assert [id for id in load.accepted if ends.get(id) != "completed"] == []
        made.served.stop()
        assert answered_twice(tmp_path / "state", load.accepted) == []
