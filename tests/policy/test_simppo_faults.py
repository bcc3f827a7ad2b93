"""Agents that fail: who loses its function to the rule and for how long, what the rule does; nobody starves."""

import os
import signal
import time
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simppo_worlds import ACTIONS, agents, saved, world

from fairlead.engine import simulate
from fairlead.policy.kit.measuring import Measures
from fairlead.policy.simppo import hosts as hosting
from fairlead.policy.simppo.agents import NO_ANSWER, Networks
from fairlead.policy.simppo.frames import LARGEST_BYTES, Answer, Inbox, framed
from fairlead.policy.simppo.guard import Fault, Guard, Recall, faults_of
from fairlead.policy.simppo.hosts import Hosts
from fairlead.policy.simppo.policy import Simppo
from fairlead.policy.simppo.reward import IN, MORE_MEMORY, MORE_VCPUS, NOTHING, OUT
from fairlead.policy.simppo.rule import Need, relief, staffed
from fairlead.policy.simppo.rungs import Rungs, Size
from fairlead.testing import check_accounts

OWN = Rungs(vcpus=(0.5, 1.0, 2.0), least_gb=0.25, least=1, most=20)
LONG_S = 60.0  # the machine may be busy


def flags(*given):
    return np.array(given, np.bool_)


class TestGuard:
    def test_a_fault_costs_the_function_at_once_and_three_good_periods_bring_it_back(self):
        guard = Guard(1, recover_periods=3)
        goods = [True, False, True, True, False, True, True, True, True]
        found = [bool(guard.judge(flags(good))[0]) for good in goods]
        assert found == [True, False, False, False, False, False, False, True, True]
        assert guard.faults == 2

    def test_a_fault_of_one_is_none_of_the_others(self):
        assert Guard(3, recover_periods=1).judge(flags(True, False, True)).tolist() == [True, False, True]


class TestFaults:
    ALL, NONE = np.ones((4, 7), np.bool_), np.ones(4, np.bool_)

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [(0, Fault.NONE), (6, Fault.NONE), (7, Fault.ILLEGAL), (-2, Fault.ILLEGAL), (NO_ANSWER, Fault.SILENT)],
    )
    def test_an_answer_has_to_be_an_action(self, answer, expected):
        found = faults_of(np.array([answer, 0, 0, 0]), self.ALL, self.NONE, self.NONE)
        assert found.tolist() == [expected, 0, 0, 0]

    def test_an_action_out_of_bounds_is_illegal(self):
        allowed = self.ALL.copy()
        allowed[1, OUT] = False
        found = faults_of(np.array([OUT, OUT, IN, 0]), allowed, self.NONE, self.NONE)
        assert found.tolist() == [0, Fault.ILLEGAL, 0, 0]

    def test_who_was_not_measured_has_a_fault_and_the_others_have_none(self):
        is_measured = flags(True, False, True, True)
        found = faults_of(np.zeros(4, int), self.ALL, is_measured, self.NONE)
        assert found.tolist() == [0, Fault.UNMEASURED, 0, 0]

    @pytest.mark.parametrize(
        ("is_known", "is_blind"),
        [
            ((True, True, True, True), (False, False, False, False)),
            ((True, True, False, True), (False, False, False, False)),  # two of three others, or all three
            ((True, True, False, False), (True, True, False, False)),  # one of three; the unknown know two
            ((False, False, False, False), (True, True, True, True)),
        ],
    )
    def test_blind_is_who_knows_of_fewer_than_half_of_the_others(self, is_known, is_blind):
        found = faults_of(np.zeros(4, int), self.ALL, self.NONE, flags(*is_known))
        assert (found == Fault.BLIND).tolist() == list(is_blind)

    def test_one_alone_is_never_blind(self):
        one = np.ones(1, np.bool_)
        assert faults_of(np.zeros(1, int), self.ALL[:1], one, flags(False)).tolist() == [0]


def measured(*arrived):
    """Measures of which only the arrivals differ."""
    return Measures(**{f.name: np.array(arrived, float) for f in fields(Measures)})


class TestRecall:
    def test_the_last_measure_stands_in_until_it_is_too_old(self):
        recall, nan = Recall(2, stale_periods=2), np.nan
        found = [recall.fill(measured(*row)) for row in [(1, 5), (2, nan), (3, nan), (4, nan), (5, 9)]]
        assert [f.arrived.tolist() for f, _, _ in found] == [[1, 5], [2, 5], [3, 5], [4, 0], [5, 9]]
        assert [m.tolist() for _, m, _ in found] == [[True, True], *[[True, False]] * 3, [True, True]]
        assert [bool(k[1]) for _, _, k in found] == [True, True, True, False, True]

    def test_what_was_never_measured_is_not_known(self):
        filled, is_measured, is_known = Recall(1, stale_periods=5).fill(measured(np.inf))
        assert (filled.arrived[0], bool(is_measured[0]), bool(is_known[0])) == (0, False, False)


def need(**changes):
    """One request per second of 0.4 s each, all in time."""
    calm = Need(rate_rps=1.0, time_s=0.4, slo_s=1.0, p99_s=0.5, oldest_s=0.0, is_starved=False)
    return replace(calm, **changes)


class TestRule:
    @pytest.mark.parametrize(
        ("changes", "replicas", "expected"),
        [
            ({"rate_rps": 10.0}, 1, 6),  # 4 + 2
            ({"rate_rps": 10.0}, 20, 19),  # one at a time
            ({"rate_rps": 0.0}, 1, 1),  # never none
            ({"rate_rps": 0.0}, 3, 2),
            ({"rate_rps": 0.0, "oldest_s": 0.1}, 3, 3),  # something waits
            ({"rate_rps": 0.0, "p99_s": 1.1}, 3, 3),  # late
            ({"rate_rps": 0.0, "oldest_s": 1.1}, 3, 4),  # a queue older than the SLO
            ({"rate_rps": 1000.0}, 3, 20),
            ({"oldest_s": 9.0}, 20, 20),
        ],
        ids=["staffed", "in-slowly", "least", "one-less", "waits", "late", "queue", "most", "queue-at-most"],
    )
    def test_replicas(self, changes, replicas, expected):
        size = Size(replicas=replicas, rung=1, memory_gb=0.25)
        assert staffed(OWN, size, need(**changes)) == replace(size, replicas=expected)

    @pytest.mark.parametrize(
        ("rung", "changes", "expected"),
        [
            (0, {"time_s": 1.5}, (1, 1.0)),
            (2, {"time_s": 1.5}, (2, 1.0)),
            (1, {"is_starved": True}, (0, 0.25)),
            (0, {"is_starved": True}, (0, 0.25)),
        ],
        ids=["too-slow", "no-more", "smaller-to-find-room", "no-less"],
    )
    def test_rung_and_memory(self, rung, changes, expected):
        found = staffed(OWN, Size(replicas=1, rung=rung, memory_gb=1.0), need(**changes))
        assert (found.rung, found.memory_gb) == expected

    @settings(max_examples=60, deadline=None)
    @given(st.integers(1, 20), st.floats(0, 100), st.floats(0, 5), st.floats(0, 5), st.booleans())
    def test_never_none_and_never_fewer_under_load(self, replicas, rate_rps, p99_s, oldest_s, is_starved):
        size = Size(replicas=replicas, rung=1, memory_gb=0.25)
        asked = need(rate_rps=rate_rps, p99_s=p99_s, oldest_s=oldest_s, is_starved=is_starved)
        found = staffed(OWN, size, asked)
        assert 1 <= found.replicas <= 20
        assert found.replicas >= size.replicas - 1
        if oldest_s > 0 or p99_s > 1.0:
            assert found.replicas >= size.replicas


def sizes(*pairs):
    return [Size(replicas=replicas, rung=rung, memory_gb=0.25) for replicas, rung in pairs]


def test_who_has_most_gives_a_replica_for_each_that_starves():
    own = sizes((1, 1), (3, 1), (5, 0), (1, 1))
    held = np.array([0.0, 3.0, 2.5, 1.0])
    assert relief([OWN] * 4, own, held, flags(True, False, False, False)) == {1: sizes((2, 1))[0]}


def test_who_has_one_replica_gives_a_rung_and_who_has_the_least_gives_nothing():
    own = sizes((1, 1), (1, 2), (1, 0))
    held = np.array([0.0, 2.0, 0.5])
    assert relief([OWN] * 3, own, held, flags(True, False, False)) == {1: sizes((1, 1))[0]}
    assert relief([OWN] * 3, sizes((1, 1), (1, 0), (1, 0)), held, flags(True, False, False)) == {}


# --- in a run --------------------------------------------------------------------------------------------------------


class Scripted:
    """Agents that say what is written, and then nothing."""

    def __init__(self, answers):
        self._answers = iter(answers)

    def choose(self, seen, allowed):
        return np.array(next(self._answers, (NO_ANSWER,) * len(seen)))

    def close(self):
        pass


@dataclass
class Troubled(Simppo):
    """Simppo with such agents, some measures lost, and its decisions noted."""

    def trouble(self, answers, lost=()):
        self.answers, self.lost, self.wanted, self.living, self.by_agent = answers, iter(lost), [], [], []
        return self

    def _make_agents(self, trained, numbers, rng):
        super()._make_agents(trained, numbers, rng)
        if self.answers is not None:
            self._agents = Scripted(self.answers)

    def _measure(self, view):
        measures = super()._measure(view)
        gone = np.array(next(self.lost, (False,) * len(measures.arrived)))
        return Measures(**{f.name: np.where(gone, np.nan, getattr(measures, f.name)) for f in fields(Measures)})

    def adjust(self, view):
        self.living.append([len([i for i in view.instances(n) if not i.is_draining]) for n in self._functions])
        yield from super().adjust(view)
        self.wanted.append([view.scaled(n).instances for n in self._functions])
        self.by_agent.append([bool(own["is_agent"]) for own in self.notes().values()])


def run(policy, where, **given):
    recording = simulate(where, "fifo", scaler=policy, **given)
    check_accounts(recording)
    assert recording.refusals == ()
    return recording


def is_all_done(recording):
    return set(recording.requests["outcome"]) == {"completed"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("agents"))


def test_a_silent_agent_loses_its_function_and_gets_it_back(checkpoint):
    # From the second control period on agents are asked; that of b is silent in the fourth.
    answers = [(0,) * 4, (0,) * 4, (0, NO_ANSWER, 0, 0), *[(0,) * 4] * 6]
    policy = Troubled(checkpoint=checkpoint, recover_periods=3).trouble(answers)
    run(policy, world(duration_s=100))
    by_agent = policy.by_agent[1:9]
    assert [row[1] for row in by_agent] == [True, True, False, False, False, True, True, True]
    assert all(row[0] and row[2] and row[3] for row in by_agent)


def test_a_lost_measure_is_one_functions_fault_and_many_are_everybodys(checkpoint):
    # b is not measured in the third period: b's agent is out. From the fifth on only a is measured: what was known
    # of the others is good for two periods, so a's agent is out from the seventh on.
    lost = [(0, 0, 0, 0), (0, 0, 0, 0), (0, 1, 0, 0), (0, 0, 0, 0), *[(0, 1, 1, 1)] * 4]
    policy = Troubled(checkpoint=checkpoint, stale_periods=2, recover_periods=1).trouble([(0,) * 4] * 20, lost)
    run(policy, world(duration_s=100))
    assert [row[0] for row in policy.by_agent[1:9]] == [True, True, True, True, True, False, False, True]
    assert [row[1] for row in policy.by_agent[1:9]] == [True, False, True, False, False, False, False, True]


def test_networks_that_give_no_number_are_silent():
    trained = agents(always=OUT)
    trained.arrays["actor.2.bias"][1] = np.nan
    trained.arrays["actor.1.bias"][2] = np.float32(3e38)
    trained.arrays["actor.2.weight"][2] = np.float32(3e38)
    found = Networks(trained, np.arange(4), None).choose(np.ones((4, 11), np.float32), np.ones((4, ACTIONS), np.bool_))
    assert found.tolist() == [OUT, NO_ANSWER, NO_ANSWER, OUT]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(-2, 8)] * 4), max_size=14),
    st.lists(st.tuples(*[st.booleans()] * 4), max_size=14),
    st.sampled_from([(16.0, 64.0), (4.0, 2.0), (2.0, 1.5)]),
)
def test_whatever_fails_every_function_keeps_a_replica_and_no_action_is_refused(checkpoint, answers, lost, room):
    policy = Troubled(checkpoint=checkpoint, recover_periods=1).trouble(answers, lost)
    where = world(duration_s=150, rate_rps=0.5, vcpus=room[0], memory_gb=room[1])
    recording = run(policy, where)
    assert all(least >= 1 for row in policy.wanted for least in row)
    assert is_all_done(recording)


@pytest.mark.parametrize("action", [OUT, MORE_VCPUS, MORE_MEMORY], ids=["out", "up", "memory"])
def test_greedy_agents_leave_nobody_without(tmp_path, action):
    # Four vCPUs and two GB for four functions, whose agents want ever more.
    policy = Troubled(checkpoint=saved(tmp_path, agents(always=action))).trouble(None)
    run(policy, world(duration_s=200, vcpus=4.0, memory_gb=2.0))
    assert all(all(row) for row in policy.living[1:])


def test_a_function_that_found_no_room_is_given_some(tmp_path):
    # Two vCPUs: at one each, two functions find none at first. The others go down to half a vCPU, and so do they.
    policy = Troubled(checkpoint=saved(tmp_path, agents(always=NOTHING))).trouble(None)
    recording = run(policy, world(duration_s=100, vcpus=2.0, rate_rps=0.2))
    assert policy.living[1] == [1, 1, 0, 0]
    assert all(all(row) for row in policy.living[4:])
    assert is_all_done(recording)


# --- agents in processes of their own ---------------------------------------------------------------------------------

SEEN, ALLOWED = np.ones((4, 11), np.float32), np.ones((4, ACTIONS), np.bool_)


@pytest.fixture
def two(tmp_path):
    """Four agents in two processes: a and c, b and d."""
    made = Hosts(saved(tmp_path), np.arange(4), 2, answer_s=LONG_S)
    assert made.wait(LONG_S)
    yield made
    made.close()


def until(condition):
    """Wait for it, but not for ever."""
    end = time.monotonic() + LONG_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class TestHosts:
    def test_they_answer_as_the_same_agents_do_in_one_process(self, two):
        seen = np.random.default_rng(3).random((4, 11), np.float32)
        assert (
            two.choose(seen, ALLOWED).tolist() == Networks(agents(), np.arange(4), None).choose(seen, ALLOWED).tolist()
        )

    def test_a_killed_process_is_silent_and_comes_back(self, two, monkeypatch):
        monkeypatch.setattr(hosting, "FIRST_WAIT_S", 0.0)
        before = two.choose(SEEN, ALLOWED)
        killed = two.processes[1]
        os.kill(killed, signal.SIGKILL)
        assert until(lambda: two.choose(SEEN, ALLOWED)[1] == NO_ANSWER)
        found = two.choose(SEEN, ALLOWED)
        assert found[[0, 2]].tolist() == before[[0, 2]].tolist()
        assert until(lambda: two.choose(SEEN, ALLOWED).tolist() == before.tolist())
        assert two.processes[1] != killed

    def test_a_frozen_process_holds_up_nobody_and_its_late_answers_are_thrown_away(self, two):
        before = two.choose(SEEN, ALLOWED)
        two._answer_s = 0.2
        os.kill(two.processes[0], signal.SIGSTOP)
        began = time.monotonic()
        found = [two.choose(SEEN, ALLOWED) for _ in range(3)]
        assert time.monotonic() - began < LONG_S / 2  # without a deadline it would never end
        assert all(row[[0, 2]].tolist() == [NO_ANSWER] * 2 for row in found)
        os.kill(two.processes[0], signal.SIGCONT)
        two._answer_s = LONG_S
        only_in = ALLOWED.copy()
        only_in[:, :IN], only_in[:, IN + 1 :] = False, False
        assert two.choose(SEEN, only_in).tolist() == [IN] * 4  # the answers to three other questions came first
        assert two.choose(SEEN, ALLOWED).tolist() == before.tolist()

    def test_one_frozen_for_long_is_replaced(self, two, monkeypatch):
        monkeypatch.setattr(hosting, "PATIENCE", 2)
        before = two.choose(SEEN, ALLOWED)
        frozen, two._answer_s = two.processes[0], 0.05
        two._hosts[0]._wait_s = 0.0
        os.kill(frozen, signal.SIGSTOP)
        assert until(lambda: two.choose(SEEN, ALLOWED)[1] == before[1] and two.processes[0] != frozen)
        assert is_gone(frozen)
        two._answer_s = LONG_S
        assert until(lambda: two.choose(SEEN, ALLOWED).tolist() == before.tolist())

    def test_they_end_with_the_scaler(self, tmp_path):
        made = Hosts(saved(tmp_path), np.arange(4), 2, answer_s=LONG_S)
        processes = made.processes
        del made
        assert until(lambda: all(is_gone(pid) for pid in processes))

    def test_a_process_ends_when_its_input_does(self, two):
        (process,) = [host._process for host in two._hosts[:1]]
        process.stdin.close()
        assert process.wait(LONG_S) == 0

    def test_a_program_that_talks_nonsense_is_silent(self, tmp_path, monkeypatch):
        monkeypatch.setattr(hosting, "PROGRAM", ("sh", "-c", "echo nonsense; cat > /dev/null"))
        made = Hosts(saved(tmp_path), np.arange(4), 1, answer_s=0.05)
        assert not made.wait(LONG_S)
        assert made.choose(SEEN, ALLOWED).tolist() == [NO_ANSWER] * 4
        made.close()


class TestFrames:
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.integers(-5, 9), max_size=5), st.integers(1, 7))
    def test_messages_survive_being_cut_into_pieces(self, actions, size):
        inbox, sent = Inbox(), b"".join(framed(Answer(period=i, actions=tuple(actions))) for i in range(3))
        pieces = [sent[i : i + size] for i in range(0, len(sent), size)]
        assert sum(len(inbox.add(piece)) for piece in pieces) == 3

    def test_a_frame_that_would_be_too_large_is_refused(self):
        with pytest.raises(ValueError, match="at most"):
            Inbox().add((LARGEST_BYTES + 1).to_bytes(4, "little"))


def test_agents_killed_and_frozen_in_a_run_leave_every_function_with_replicas(tmp_path, monkeypatch):
    # Two control periods after the sixth, one of the processes is dead and the other frozen: nobody decides.
    monkeypatch.setattr(hosting, "FIRST_WAIT_S", LONG_S)  # however slow this machine is, it is not back by itself
    where = world(duration_s=1200, rate_rps=1.0)
    policy = Troubled(checkpoint=saved(tmp_path), hosts=2, answer_s=LONG_S, recover_periods=2).trouble(None)
    adjust, periods = policy.adjust, []

    def disturbed(view):
        periods.append(view.now)
        processes = policy._agents.processes
        if len(periods) == 6:
            os.kill(processes[0], signal.SIGKILL)
            os.kill(processes[1], signal.SIGSTOP)
            policy._agents._answer_s = 0.05
        if len(periods) == 12:
            os.kill(processes[1], signal.SIGCONT)
            policy._agents._answer_s = LONG_S
            policy._agents._hosts[0]._not_before = 0.0  # now it may start
        if len(periods) == 13:
            assert policy._agents.wait(LONG_S)  # a simulated control period takes no time; a process does
        yield from adjust(view)

    policy.adjust = disturbed
    recording = run(policy, where)
    policy.close()
    assert all(policy.by_agent[4])
    assert not any(any(row) for row in policy.by_agent[6:11])
    assert all(policy.by_agent[-1])
    assert all(least >= 1 for row in policy.wanted for least in row)
    assert all(all(row) for row in policy.living[1:])
    assert is_all_done(recording)
