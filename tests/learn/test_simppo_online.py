"""Retraining beside the service, with the real program: it learns, it may die, and nobody waits for it."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from fairlead.engine import simulate
from fairlead.learn.simppo.online import learn
from fairlead.model import Configuration
from fairlead.policy.simppo import trainer as training
from fairlead.policy.simppo import watch
from fairlead.policy.simppo.checkpoint import Checkpoint, Description, Trained, write_checkpoint
from fairlead.policy.simppo.policy import Simppo
from fairlead.policy.simppo.reward import LESS_VCPUS
from fairlead.policy.simppo.trainer import Task, Trainer, read_task, read_weights, write_task, write_weights
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Deterministic

LONG_S = 60.0  # the machine may be busy
INPUTS, ACTIONS = 11, 7
torch.set_num_threads(1)  # as the program does: networks of this size are slower with more
TASK = Task(preset="modern", activation="tanh", is_shared=False, seed=0)


def networks(many, *, bias):
    """Agents whose chances are those of a bias, whatever they see; hidden layers are drawn."""
    rng = np.random.default_rng(0)
    arrays = {}
    for network, outputs in (("actor", ACTIONS), ("critic", 1)):
        widths = (INPUTS, 16, 16, outputs)
        for i in range(3):
            scale = 0.01 if i == 2 else 0.5
            arrays[f"{network}.{i}.weight"] = rng.normal(0, scale, (many, *widths[i : i + 2])).astype(np.float32)
            arrays[f"{network}.{i}.bias"] = np.zeros((many, widths[i + 1]), np.float32)
    for action, value in bias.items():
        arrays["actor.2.bias"][:, action] = value
    return arrays


def steps(many, length, *, good):
    """Steps of agents that choose at random, and are rewarded for one action."""
    rng = np.random.default_rng(1)
    actions = rng.integers(ACTIONS, size=(length, many))
    return {
        "observations": rng.random((length, many, INPUTS), np.float32),
        "actions": actions,
        "log_probs": np.full((length, many), np.log(1 / ACTIONS), np.float32),
        "values": np.zeros((length, many), np.float32),
        "rewards": (actions == good).astype(np.float32),
        "next_values": np.zeros((length, many), np.float32),
        "is_present": np.ones((length, many), np.bool_),
        "masks": np.ones((length, many, ACTIONS), np.bool_),
    }


def test_it_learns_what_was_rewarded_and_leaves_the_others_as_they_are():
    weights = networks(2, bias={})
    found = learn(TASK, weights, steps(2, 256, good=3), np.array([True, False]))
    last = found["actor.2.bias"]
    assert last[0].argmax() == 3
    assert all((found[name][1] == weights[name][1]).all() for name in weights)
    assert found.keys() == weights.keys()


def test_a_task_is_read_as_it_was_written(tmp_path):
    weights, kept = networks(2, bias={}), steps(2, 8, good=0)
    write_task(tmp_path / "task", TASK, weights, kept, np.array([True, False]))
    task, found, rows, only = read_task(tmp_path / "task")
    assert task == TASK
    assert only.tolist() == [True, False]
    assert all((found[name] == array).all() for name, array in weights.items())
    assert all((rows[name] == array).all() for name, array in kept.items())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda arrays: arrays.pop("critic.0.bias"),
        lambda arrays: arrays.update({"critic.0.bias": arrays["critic.0.bias"][:1]}),
        lambda arrays: arrays["critic.0.bias"].fill(np.nan),
        lambda arrays: arrays.update({"critic.0.bias": arrays["critic.0.bias"].astype(float)}),
    ],
    ids=["missing", "shape", "nan", "type"],
)
def test_what_was_learnt_is_taken_only_if_it_fits(tmp_path, spoil):
    weights, spoilt = networks(2, bias={}), networks(2, bias={})
    spoil(spoilt)
    write_weights(tmp_path / "learnt", weights)
    assert read_weights(tmp_path / "learnt", weights) is not None
    write_weights(tmp_path / "learnt", spoilt)
    assert read_weights(tmp_path / "learnt", weights) is None
    (tmp_path / "learnt").write_bytes(b"half a file")
    assert read_weights(tmp_path / "learnt", weights) is None
    assert read_weights(tmp_path / "nowhere", weights) is None


def ended(trainer):
    """What it gives in the end."""
    until = time.monotonic() + LONG_S
    while trainer.pid is not None and time.monotonic() < until:
        found = trainer.poll()
        if found is not None:
            return found
        time.sleep(0.02)
    return None


class TestTrainer:
    ONLY = np.ones(1, np.bool_)

    def start(self, trainer):
        trainer.start(TASK, networks(1, bias={}), steps(1, 8, good=0), self.ONLY)
        return Path(trainer._folder.name)

    def test_one_that_is_killed_is_a_failure_and_it_is_tried_again_later(self):
        trainer = Trainer()
        folder = self.start(trainer)
        os.kill(trainer.pid, signal.SIGKILL)
        assert ended(trainer) is None
        assert (trainer.failures, trainer.pid, trainer.is_free, folder.exists()) == (1, None, False, False)
        trainer._not_before = 0.0
        assert trainer.is_free

    def test_one_that_is_frozen_is_ended_when_its_time_is_up(self, monkeypatch):
        trainer = Trainer()
        self.start(trainer)
        pid = trainer.pid
        os.kill(pid, signal.SIGSTOP)
        assert trainer.poll() is None
        monkeypatch.setattr(training, "LIMIT_S", 0.0)
        assert ended(trainer) is None
        assert trainer.failures == 1
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    @pytest.mark.parametrize("program", [("false",), ("true",), ("/nowhere",)], ids=["fails", "gives-nothing", "none"])
    def test_another_program_is_a_failure(self, program, monkeypatch):
        monkeypatch.setattr(training, "PROGRAM", program)
        trainer = Trainer()
        trainer.start(TASK, networks(1, bias={}), steps(1, 8, good=0), self.ONLY)
        assert ended(trainer) is None
        assert trainer.failures == 1
        assert not trainer.is_free


# --- in a run --------------------------------------------------------------------------------------------------------


def world(duration_s):
    """One function of 0.4 vCPU-seconds, every half second; on half a vCPU it takes 0.8 s, where 0.5 s is the SLO."""
    sizes = tuple(Configuration(vcpus=vcpus) for vcpus in (0.25, 0.5, 1.0, 2.0))
    law = Table(tuple(Row(seconds=0.4 / c.vcpus, vcpus=c.vcpus) for c in sizes))
    own = declared(law, configurations=sizes, memory_gb=0.25)
    arrivals = [Deterministic(workflow="main", interval_s=0.5)]
    on = cluster(vcpus=64.0)
    return scenario(own, arrivals=arrivals, on=on, slo_s=0.5, duration_s=duration_s, control_period_s=10.0)


def spoiled(folder, bias):
    """An agent that had 0.85 per step when its training ended, and has been spoiled since."""
    description = Description(
        own="seven",
        others="global4",
        slots=0,
        is_workflow_aware=False,
        actions=ACTIONS,
        activation="tanh",
        is_shared=False,
        slo_weight=0.7,
        period_s=10.0,
        most_replicas=4,
        preset="modern",
        scenario="tests",
        seed=0,
        episodes=1,
        agents=(Trained(function="f", time_s=0.4, slo_s=0.5, reward=0.85, reward_deviation=0.01),),
    )
    write_checkpoint(Checkpoint(description=description, arrays=networks(1, bias=bias)), folder / "agent.safetensors")
    return str(folder / "agent.safetensors")


@dataclass
class Patient(Simppo):
    """Lets the program end before the next control period, which is simulated and takes no time."""

    def adjust(self, view):
        own = self._retraining
        until = time.monotonic() + LONG_S
        while own.trainer.pid is not None and own.trainer._process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        yield from super().adjust(view)
        self.rewards.append(self.notes().get("f", {"reward": np.nan})["reward"])


class Direct:
    """The same learning without a process, which takes seconds to begin."""

    pid, is_free, learnt = None, True, None

    def start(self, task, weights, steps, only):
        self.learnt = learn(task, weights, steps, only)

    def poll(self):
        found, self.learnt = self.learnt, None
        return found

    def close(self):
        pass


@pytest.mark.slow
def test_a_spoiled_agent_is_retrained_while_it_serves_and_its_reward_rises(tmp_path):
    checkpoint = spoiled(tmp_path, {LESS_VCPUS: 2.5})
    policy = Patient(checkpoint=checkpoint, retrain="process", episode_periods=5, retrain_steps=100)
    policy.rewards = []
    make = policy._make_agents

    def make_agents(*given):
        make(*given)
        policy._retraining.trainer = Direct()

    policy._make_agents = make_agents
    recording = simulate(world(15_000), "fifo", scaler=policy)
    assert recording.refusals == ()
    assert set(recording.requests["outcome"]) == {"completed"}
    assert policy._retraining.updates >= 5
    assert policy.notes()["f"]["is_agent"] == 1  # not the rule's merit
    assert np.mean(policy.rewards[-100:]) > np.mean(policy.rewards[5:105]) + 0.2


def test_the_program_gives_new_networks_to_an_agent_that_serves(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "WORSE_BY", 9.0)  # episodes of one period swing
    policy = Patient(
        checkpoint=spoiled(tmp_path, {LESS_VCPUS: 2.5}), retrain="process", episode_periods=1, retrain_steps=32
    )
    policy.rewards = []
    recording = simulate(world(600), "fifo", scaler=policy)
    found = policy._agents.arrays
    policy.close()
    assert policy._retraining.updates == 1
    assert policy._retraining.trainer.failures == 0
    assert not (found["actor.2.bias"] == networks(1, bias={LESS_VCPUS: 2.5})["actor.2.bias"]).all()
    assert set(recording.requests["outcome"]) == {"completed"}


def test_a_trainer_that_is_killed_every_time_leaves_the_service_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "FIRST_WAIT_S", 0.0)
    bias = {LESS_VCPUS: 9.0}
    policy = Patient(checkpoint=spoiled(tmp_path, bias), retrain="process", episode_periods=1, retrain_steps=8)
    policy.rewards = []
    adjust, killed = policy.adjust, []

    def murderous(view):
        trainer = policy._retraining.trainer
        if trainer.pid is not None:
            killed.append(trainer.pid)
            os.kill(trainer.pid, signal.SIGKILL)
        yield from adjust(view)

    policy.adjust = murderous
    recording = simulate(world(400), "fifo", scaler=policy)
    policy.close()
    assert len(killed) >= 2
    assert policy._retraining.trainer.failures == len(killed)
    assert policy._retraining.updates == 0
    assert set(recording.requests["outcome"]) == {"completed"}
    weights = policy._agents.arrays
    assert all((weights[name] == array).all() for name, array in networks(1, bias=bias).items())
