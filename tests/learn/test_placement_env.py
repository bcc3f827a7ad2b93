"""Placement environments: what they show, what they reward, and that they are the compiled engine."""

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engine.sim.compiled import CompiledRun, light
from fairlead.engine.sim.compiled.packing import _DECLARED
from fairlead.errors import UncoveredError
from fairlead.learn.environments import PlacementEnv, PlacementVectorEnv
from fairlead.learn.environments.placement import PlacementWorld
from fairlead.learn.environments.worlds import chain_scenario
from fairlead.model import SLO, Cluster, Function, Node, Stage, Workflow
from fairlead.policy.fifo import Fifo
from fairlead.profile import Constant, Exponential, LogNormal, Profile
from fairlead.workload import Deterministic, Poisson, Scenario
from fairlead.workload.chunks import Chunk

NODES, VCPUS = 3, 2.0


def small(rate_rps=4.0, slo_s=2.0, memory_gb=0.0, law=Constant(0.5), stages=("a", "b")):
    """A chain on three nodes of two vCPUs; a cold start takes a second. With memory, idle instances hold some."""
    return Scenario(
        name="small",
        cluster=Cluster(nodes=tuple(Node(name=f"n{i}", kind="n", vcpus=VCPUS, memory_gb=8.0) for i in range(NODES))),
        functions={
            name: Function(name=name, keep_alive_s=3.0, idle_holds="memory", memory_gb=memory_gb) for name in stages
        },
        profiles={name: Profile(law=law, cold_start_s=1.0) for name in stages},
        workflows={"w": Workflow.chain("w", *stages, slo=SLO(latency_s=slo_s))},
        arrivals=(Poisson("w", rate_rps),),
    )


def at(*times):
    """Arrivals of the only workflow, which draws nothing."""
    return Chunk(np.array(times, float), np.zeros(len(times), np.int32), np.zeros(0))


def warm_first(shown, nodes):
    """The emptiest of the nodes with a warm instance, else the emptiest: the rule of fifo, from what is shown."""
    free, warm = shown[:nodes], shown[nodes : 2 * nodes]
    return int(np.argmax(np.where(free > 0, free + 10 * (warm > 0), -1)))


# --- what is shown and rewarded, by hand


def test_observation_has_free_and_warm_shares_the_function_the_queue_and_the_time_left():
    env = PlacementEnv(small(), arrivals=at(0.0, 0.0, 10.0))
    shown, _ = env.reset(seed=0)
    # two wait (2 / 18), for no time, with all of their two seconds left
    assert shown == pytest.approx([1, 1, 1, 0, 0, 0, 1, 0, 2 / 18, 0, 1])
    shown, *_ = env.step(1)
    assert shown == pytest.approx([1, 0.5, 1, 0, 0, 0, 1, 0, 1 / 17, 0, 1])
    shown, *_ = env.step(1)  # both run cold, for 1.5 s; then stage b asks, a quarter of its SLO left
    assert shown == pytest.approx([1, 1, 1, 0, 0, 0, 0, 1, 2 / 18, 0, 0.25])
    for _ in range(3):
        shown, *_ = env.step(0)
    assert shown[NODES : 2 * NODES] == pytest.approx([0, 0, 0])  # what ran at 0 s has expired at 10 s


def test_a_warm_instance_is_shown_until_its_keep_alive_is_over():
    env = PlacementEnv(small(stages=("a",)), arrivals=at(0.0, 4.4, 8.5))
    env.reset(seed=0)
    shown, *_ = env.step(2)  # it ends at 1.5 s and is kept until 4.5 s
    assert shown[NODES : 2 * NODES] == pytest.approx([0, 0, 0.5])
    shown, *_ = env.step(0)  # this one ends at 5.9 s and is kept until 8.9 s
    assert shown[NODES : 2 * NODES] == pytest.approx([0.5, 0, 0])


def test_open_time_adds_up_to_all_latencies():
    env = PlacementEnv(small(), arrivals=at(0.0, 0.2, 0.9, 5.0))
    shown, _ = env.reset(seed=0)
    total, is_over = 0.0, False
    while not is_over:
        shown, reward, is_over, is_cut, _ = env.step(warm_first(shown, NODES))
        total += reward
        assert not is_cut
    _, completed, latency_s = env.world.pack.totals(0)
    assert completed == 4
    assert total == pytest.approx(-latency_s)


@pytest.mark.parametrize("memory_gb", [0.0, 0.5], ids=["light", "whole"])
def test_in_time_counts_requests_by_their_slo(memory_gb):
    # cold: 1 + 0.5 for each of two stages, 3 s in all; warm: 1 s. The SLO is 2 s.
    env = PlacementEnv(small(memory_gb=memory_gb), arrivals=at(0.0, 3.9), reward="in-time")
    env.reset(seed=0)
    rewards, is_over = [], False
    while not is_over:
        _, reward, is_over, _, _ = env.step(0)
        rewards.append(reward)
    assert rewards == [0.0, -1.0, 0.0, 1.0]


def test_what_does_not_fit_goes_to_the_emptiest_node_and_costs_the_penalty():
    env = PlacementEnv(small(), arrivals=at(0.0, 0.0, 0.0, 0.0), penalty=0.25)
    env.reset(seed=0)
    assert env.step(0)[1] == 0
    assert env.step(0)[1] == 0
    shown, reward, *_ = env.step(0)
    assert reward == -0.25
    assert shown[:NODES] == pytest.approx([0, 0.5, 1])
    assert env.step(0)[1] < -0.25  # and time passes


def test_mask_says_where_it_fits():
    env = PlacementEnv(small(), arrivals=at(0.0, 0.0, 0.0), mask=True)
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 1, 1]
    env.step(1)
    *_, info = env.step(1)
    assert info["action_mask"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("memory_gb", [0.0, 0.5], ids=["light", "whole"])
def test_too_many_open_requests_cut_the_episode_off_and_say_so(memory_gb):
    # six run at once, two may wait
    env = PlacementEnv(small(memory_gb=memory_gb), arrivals=at(*[0.1 * i for i in range(9)]), requests=8)
    env.reset(seed=0)
    for i in range(6):
        _, _, is_over, is_cut, info = env.step(i // 2)
        assert not is_over
        assert is_cut == info.get("out_of_room", False) == (i == 5)
    many = PlacementVectorEnv(2, small(rate_rps=400.0, memory_gb=memory_gb), requests=8)
    many.reset(seed=0)
    info = {}
    while "out_of_room" not in info:
        _, _, terminated, truncated, info = many.step(np.zeros(2, np.int64))
    assert (info["out_of_room"] == truncated).all()
    assert not terminated.any()


def test_observations_are_copies_unless_one_asks():
    for copy in (True, False):
        env = PlacementEnv(small(), copy=copy)
        first, _ = env.reset(seed=1)
        before = first.copy()
        env.step(0)
        assert np.array_equal(first, before) == copy


# --- the libraries' own checks


@pytest.mark.parametrize("memory_gb", [0.0, 0.5], ids=["light", "whole"])
def test_gymnasium_finds_nothing_wrong(memory_gb):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*env.spec.*")  # it is not made by name
        check_env(PlacementEnv(small(memory_gb=memory_gb)), skip_render_check=True)


def test_wrappers_for_vectors_work_on_the_vector_environment():
    env = gym.wrappers.vector.RecordEpisodeStatistics(PlacementVectorEnv(3, small(), steps=5))
    shown, _ = env.reset(seed=2)
    assert env.observation_space.contains(shown)
    lengths = []
    for _ in range(12):
        shown, rewards, terminated, truncated, info = env.step(env.action_space.sample())
        assert shown.shape == (3, 2 * NODES + 5)
        assert rewards.dtype == np.float64
        assert terminated.dtype == truncated.dtype == np.bool_
        if "episode" in info:
            lengths += info["episode"]["l"].tolist()
    assert lengths == [5] * 6


# --- the same, whichever way


def test_environment_i_of_many_is_the_single_one_with_the_seed_of_i():
    many = PlacementVectorEnv(4, steps=30)
    singles = [PlacementEnv(steps=30) for _ in range(4)]
    shown, _ = many.reset(seed=11)
    for i, env in enumerate(singles):
        assert np.array_equal(env.reset(seed=11 + i)[0], shown[i])
    rng = np.random.default_rng(0)
    is_over = np.zeros(4, bool)
    for _ in range(100):
        actions = rng.integers(0, 16, 4)
        shown, rewards, terminated, truncated, _ = many.step(actions)
        for i, env in enumerate(singles):
            if is_over[i]:
                assert np.array_equal(env.reset()[0], shown[i])
                assert rewards[i] == 0
            else:
                own, reward, *flags, _ = env.step(actions[i])
                assert np.array_equal(own, shown[i])
                assert (reward, flags) == (rewards[i], [terminated[i], truncated[i]])
        is_over = terminated | truncated


def test_a_reset_of_some_leaves_the_others_alone():
    env = PlacementVectorEnv(3, small())
    env.reset(seed=0)
    before, *_ = env.step(np.zeros(3, np.int64))
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(after[[0, 2]], before[[0, 2]])
    assert after[1][0] == 1
    with pytest.raises(ValueError, match="reset_mask must have 3 entries"):
        env.reset(options={"reset_mask": np.array([True])})


def test_a_seed_repeats_an_episode_whatever_was_decided_before():
    env = PlacementEnv(small(law=Exponential(0.5)))
    runs = []
    for action in (0, 2):
        env.reset(seed=5)
        for _ in range(40):
            env.step(action)
        shown, _ = env.reset()  # the second episode of the seed
        runs.append([shown, *(env.step(1)[0] for _ in range(20))])
    assert np.array_equal(*runs)


@st.composite
def worlds(draw):
    """Scenarios in which idle instances hold nothing: workflows that fork and join, nodes of two kinds."""
    names = [f"f{i}" for i in range(draw(st.integers(1, 4)))]
    laws = st.sampled_from([Constant(0.5), Constant(0.0), Exponential(0.3), LogNormal(median_s=0.2, sigma=1.0)])
    workflows = {}
    for w in range(draw(st.integers(1, 3))):
        stages = []
        for i in range(draw(st.integers(1, 5))):
            after = tuple(f"s{j}" for j in range(i) if draw(st.booleans()))
            stages.append(Stage(name=f"s{i}", function=draw(st.sampled_from(names)), after=after))
        workflows[f"w{w}"] = Workflow(name=f"w{w}", stages=tuple(stages), slo=SLO(latency_s=2.0))
    nodes = [
        Node(name=f"n{i}", kind=kind, vcpus=draw(st.sampled_from([1, 2, 4.5])), speed=1.0 if kind == "slow" else 2.0)
        for i, kind in enumerate(draw(st.lists(st.sampled_from(["slow", "fast"]), min_size=1, max_size=4)))
    ]
    return Scenario(
        name="random",
        cluster=Cluster(nodes=tuple(nodes)),
        functions={
            name: Function(name=name, keep_alive_s=draw(st.sampled_from([0.0, 0.5, 30.0])), idle_holds="memory")
            for name in names
        },
        profiles={
            name: Profile(
                law=draw(laws), cold_start_s=draw(st.sampled_from([0.0, 0.5])), noise=draw(st.sampled_from([0.0, 0.2]))
            )
            for name in names
        },
        workflows=workflows,
        arrivals=tuple(Poisson(name, draw(st.sampled_from([0.5, 2.0, 8.0]))) for name in workflows),
    )


@given(scenario=worlds(), seed=st.integers(0, 2**32), reward=st.sampled_from(["open-time", "in-time"]))
@settings(max_examples=40, deadline=None)
def test_light_environments_are_those_of_the_whole_core(scenario, seed, reward):
    settings_ = {"arrivals": None, "steps": 40, "reward": reward, "penalty": 0.5, "requests": 12}
    worlds_ = [PlacementWorld(1, scenario=scenario, **settings_, light=light) for light in (True, False)]
    assert [world.is_light for world in worlds_] == [True, False]
    rng = np.random.default_rng(seed)
    for world in worlds_:
        world.pack.seed(0, seed)
        world.program.reset_one(world.pack.address(0))
    for _ in range(100):
        lean, whole = worlds_
        assert np.array_equal(lean.pack.observations, whole.pack.observations)
        assert lean.pack.endings[0] == whole.pack.endings[0]
        action = int(rng.integers(-1, world.nodes + 1))
        for world in worlds_:
            if world.pack.endings[0]:
                world.program.reset_one(world.pack.address(0))
            else:
                world.program.step_one(world.pack.address(0), action)
        assert lean.pack.last_rewards[0] == pytest.approx(whole.pack.last_rewards[0], abs=1e-9)
        assert lean.pack.totals(0) == whole.pack.totals(0)


@pytest.mark.parametrize("light", [True, False], ids=["light", "whole"])
def test_with_the_rule_of_fifo_an_episode_is_the_compiled_run(light):
    scenario = chain_scenario(nodes=4)
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(1 / 45, 2000))
    arrivals = Chunk(times, np.zeros(2000, np.int32), rng.standard_exponential(8000))
    run = CompiledRun(scenario, Fifo(), arrivals=[arrivals], record="none")
    run.go()
    world = PlacementWorld(
        1,
        scenario=scenario,
        arrivals=arrivals,
        steps=10**6,
        reward="open-time",
        penalty=0.0,
        requests=512,
        light=light,
    )
    h, shown = world.pack.address(0), world.pack.observations[0]
    world.program.reset_one(h)
    while not world.pack.endings[0]:
        world.program.step_one(h, warm_first(shown, 4))
    totals = run.totals()
    cold_starts, completed, latency_s = world.pack.totals(0)
    assert (cold_starts, completed) == (totals.cold_starts, totals.completed)
    assert latency_s / completed == totals.latency_mean_s
    assert cold_starts > 50


def test_an_episode_changes_nothing_that_environments_share():
    world = PlacementWorld(
        2,
        scenario=small(memory_gb=0.5, law=Exponential(0.5)),
        arrivals=None,
        steps=300,
        reward="open-time",
        penalty=0.0,
        requests=64,
    )
    assert not world.is_light
    shared = {field: array.copy() for field, array in world.pack._shared.items()}
    assert set(shared) & _DECLARED
    world.pack.seed(0, 1)
    world.program.reset_one(world.pack.address(0))
    for i in range(300):
        world.program.step_one(world.pack.address(0), i % NODES)
    assert all(np.array_equal(array, world.pack._shared[field]) for field, array in shared.items())


# --- what is drawn


@pytest.mark.parametrize(
    ("law", "noise"),
    [(Exponential(0.5), 0.0), (LogNormal(median_s=0.5 / np.exp(0.125), sigma=0.5), 0.0), (Constant(0.5), 0.3)],
    ids=["exponential", "log-normal", "noise"],
)
def test_arrivals_and_their_luck_have_the_declared_means(law, noise):
    # Nobody waits and nothing is cold: two stages of 0.5 s each. 16 x 1,000 requests at 4 per second.
    scenario = Scenario(
        name="free",
        cluster=Cluster(nodes=(Node(name="n", kind="n", vcpus=200),)),
        functions={name: Function(name=name, idle_holds="memory") for name in "ab"},
        profiles={name: Profile(law=law, noise=noise) for name in "ab"},
        workflows={"w": Workflow.chain("w", "a", "b")},
        arrivals=(Poisson("w", 4.0),),
    )
    env = PlacementVectorEnv(16, scenario, steps=2000)
    env.reset(seed=0)
    for _ in range(1999):
        env.step(np.zeros(16, np.int64))
    completed, latency_s = np.array([env.world.pack.totals(i)[1:] for i in range(16)]).sum(axis=0)
    ended = env.world.pack.clocks[:, light.NOW].sum()
    assert latency_s / completed == pytest.approx(1.0, abs=5 * 0.71 / np.sqrt(completed))
    assert completed / ended == pytest.approx(4.0, abs=5 * np.sqrt(4.0 / ended))


# --- mistakes


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"steps": 0}, "steps must be at least 1; got 0."),
        ({"penalty": -1.0}, "penalty must be finite and not negative; got -1.0."),
        ({"reward": "fame"}, "reward must be 'open-time' or 'in-time'; got 'fame'."),
        ({"requests": 0}, "requests must be at least 1; got 0."),
    ],
)
def test_bad_settings_are_refused(settings_, message):
    with pytest.raises(ValueError, match=message):
        PlacementEnv(**settings_)


def test_only_poisson_arrivals_can_be_drawn():
    scenario = small()
    other = Scenario(**{**vars(scenario), "arrivals": (Deterministic("w", 1.0),)})
    with pytest.raises(UncoveredError, match="workflow w has Deterministic"):
        PlacementEnv(other)


def test_actions_of_the_wrong_number_are_refused():
    env = PlacementVectorEnv(3, small())
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions must have 3 entries"):
        env.step(np.zeros(2, np.int64))


def test_without_the_libraries_the_message_names_the_extra():
    code = (
        "import sys\n"
        "sys.modules['gymnasium'] = sys.modules['pettingzoo'] = None\n"
        "import fairlead.learn.environments as environments\n"
        "from fairlead.errors import MissingExtraError\n"
        "for name in environments.__all__:\n"
        "    try:\n"
        "        getattr(environments, name)\n"
        "    except MissingExtraError as error:\n"
        "        print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[0] == (
        "PlacementEnv needs Gymnasium. Install it with: pip install 'fairlead[learn]'."
    )
    assert len(ran.stdout.splitlines()) == 3


def test_importing_the_package_loads_neither_library():
    code = "import sys, fairlead, fairlead.learn; sys.exit('gymnasium' in sys.modules or 'pettingzoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
