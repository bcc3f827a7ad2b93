"""Every learning environment refuses a step without an episode and an action that is none, and never crashes."""

import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
from gymnasium.error import ResetNeeded
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import SubprocVecEnv

from fairlead.learn.darly.agnostic import AnyScheduling
from fairlead.learn.darly.schedules import Phase
from fairlead.learn.darly.scheduling import Scheduling, deployment
from fairlead.learn.environments import PlacementEnv, PlacementVectorEnv, ScalingEnv
from fairlead.learn.environments.migration import MigrationEnv
from fairlead.learn.environments.reference import ReferenceEnv, ReferenceEnvs
from fairlead.learn.environments.registration import register
from fairlead.learn.environments.tenancy import Apart, Tenancy
from fairlead.learn.environments.worlds import alone, chain_scenario, tenants_scenario
from fairlead.model import Function
from fairlead.workload import Scenario

LIGHT = chain_scenario(nodes=2)
WHOLE = Scenario(
    **{
        **vars(LIGHT),
        "functions": {
            name: Function(name=name, keep_alive_s=30.0, idle_holds="memory", memory_gb=0.5) for name in LIGHT.functions
        },
    }
)
PHASES = (Phase(steps=2, slo_s=35.0, pressures={}),)


def migration():
    return MigrationEnv(Scheduling(deployment(), "custom", lambda rng: PHASES))


def scaling(**settings):
    return ScalingEnv(tenants_scenario(2), **settings)


SINGLES = {
    "placement": lambda: PlacementEnv(LIGHT, steps=2),
    "placement-whole": lambda: PlacementEnv(WHOLE, steps=2),
    "reference": lambda: ReferenceEnv(steps=2),
    "migration": migration,
}


@pytest.fixture(params=SINGLES)
def single(request):
    return SINGLES[request.param]()


# --- a step needs an episode


def test_a_step_before_the_first_reset_is_an_error_and_not_a_crash():
    """In a process of its own: compiled code that runs on arrays without an episode ends the process."""
    code = (
        "import numpy as np\n"
        "from gymnasium.error import ResetNeeded\n"
        "from fairlead.learn.environments import PlacementEnv, PlacementVectorEnv, ScalingEnv\n"
        "cases = (PlacementEnv(), 0), (PlacementVectorEnv(2), np.zeros(2, np.int64)), (ScalingEnv(), {})\n"
        "for env, action in cases:\n"
        "    try:\n"
        "        env.step(action)\n"
        "    except ResetNeeded as error:\n"
        "        print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["no episode has begun: call reset() before step()."] * 3


def test_a_step_needs_a_reset_first(single):
    with pytest.raises(ResetNeeded, match=r"no episode has begun: call reset\(\) before step\(\)\."):
        single.step(0)


def test_a_step_after_the_last_one_needs_a_reset(single):
    single.reset(seed=1)
    steps = 1
    while not any(single.step(0)[2:4]):
        steps += 1
    assert steps == 2
    for _ in range(2):
        with pytest.raises(ResetNeeded, match="the episode is over"):
            single.step(0)
    single.reset()
    single.step(0)


@pytest.mark.parametrize("scenario", [LIGHT, WHOLE], ids=["light", "whole"])
def test_a_vector_steps_only_when_each_environment_has_begun(scenario):
    env = PlacementVectorEnv(2, scenario)
    env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ResetNeeded, match="no episode has begun"):
        env.step(np.zeros(2, np.int64))
    env.reset(options={"reset_mask": np.array([False, True])})
    env.step(np.zeros(2, np.int64))


def test_many_agents_need_an_episode_too():
    env = scaling(periods=1)
    first = env.possible_agents[0]
    for use in (lambda: env.step({}), lambda: env.join(first)):
        with pytest.raises(ResetNeeded, match="no episode has begun"):
            use()
    env.reset(seed=1)
    env.step({})
    for use in (lambda: env.step({}), lambda: env.step({first: 1}), lambda: env.join(first)):
        with pytest.raises(ResetNeeded, match="the episode is over"):
            use()
    env.reset()
    env.step({first: 1})


def test_worlds_without_a_library_in_front_need_an_episode_too():
    tenancy = Tenancy(tenants_scenario(2), periods=1)
    apart = Apart([Tenancy(alone(tenants_scenario(2), name), periods=1) for name in tenants_scenario(2).functions])
    for world in (tenancy, apart):
        with pytest.raises(ResetNeeded, match="no episode has begun"):
            world.step(np.zeros(2, np.int64))
        world.reset()
        world.step(np.zeros(2, np.int64))
        with pytest.raises(ResetNeeded, match="the episode is over"):
            world.step(np.zeros(2, np.int64))
    with pytest.raises(ResetNeeded, match="no episode has begun"):
        ReferenceEnvs(2).step(np.zeros(2, np.int64))


# --- an action is a whole number within bounds

WRONG = {
    "below": -1,
    "above": 999,
    "huge": 2**70,
    "float": 1.0,
    "nan": float("nan"),
    "numpy-float": np.float32(1),
    "text": "1",
    "nothing": None,
    "boolean": True,
    "two": np.array([0, 1]),
    "none-of-them": np.array([], np.int64),
    "matrix": np.array([[1]]),
    "float-array": np.array(1.0),
    "array-above": np.array(999),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_no_action_is_refused_with_the_range(single, wrong):
    single.reset(seed=1)
    most = single.action_space.n - 1
    with pytest.raises(ValueError, match=f"action must be a whole number from 0 to {most}; got "):
        single.step(wrong)
    single.step(0)  # the episode goes on


@pytest.mark.parametrize(
    "one", [1, np.int64(1), np.int32(1), np.uint8(1), np.array(1), np.array([1]), np.array([1], np.int32)], ids=repr
)
def test_every_kind_of_whole_number_is_the_same_action(single, one):
    single.reset(seed=1)
    expected = single.step(1)
    single.reset(seed=1)
    got = single.step(one)
    assert np.array_equal(got[0], expected[0])
    assert got[1:4] == expected[1:4]


MANY_WRONG = {
    "below": [0, -1],
    "above": [0, 999],
    "huge": [0, 2**70],
    "unsigned": np.array([0, 2**64 - 1], np.uint64),
    "float": [0.0, 1.0],
    "nan": [0, float("nan")],
    "text": ["0", "1"],
    "booleans": [True, False],
    "ragged": [[0], [0, 1]],
    "too-few": [0],
    "too-many": [0, 0, 0],
    "none": None,
    "number": 1,
    "matrix": [[0, 0]],
}


@pytest.mark.parametrize("wrong", MANY_WRONG.values(), ids=MANY_WRONG)
def test_what_are_no_actions_is_refused_for_all_and_nothing_happens(wrong):
    vector, tenancy, reference = PlacementVectorEnv(2, LIGHT), Tenancy(tenants_scenario(2)), ReferenceEnvs(2)
    for env in (vector, tenancy, reference):
        env.reset()
        with pytest.raises(ValueError, match="actions must "):
            env.step(wrong)
        env.step(np.zeros(2, np.int32))


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_no_action_of_an_agent_is_refused_with_its_name(wrong):
    env = scaling()
    env.reset(seed=1)
    name = env.agents[1]
    with pytest.raises(ValueError, match=f"{name}: action must be a whole number from 0 to 6; got "):
        env.step({name: wrong})
    env.step({name: np.array(1)})


def test_an_agent_that_does_not_exist_is_refused():
    env = scaling()
    env.reset(seed=1)
    with pytest.raises(ValueError, match="no function is called 'nothing'"):
        env.step({"nothing": 0})


def test_agents_that_move_groups_take_no_action_from_the_end_of_the_list():
    world = AnyScheduling(deployment(), PHASES)
    for wrong in (-1, len(world.acts), 1.0):
        with pytest.raises(ValueError, match="action must be a whole number from 0 to"):
            world.step(wrong)


# --- by name, in other processes, and with the library that most people learn with


@pytest.mark.parametrize("name", ["Placement", "Reference", "Migration"])
def test_environments_are_made_by_name(name):
    env = gym.make(f"fairlead/{name}-v0")
    env.reset(seed=1)
    env.step(env.action_space.sample())
    assert gym.make(f"fairlead.learn.environments:fairlead/{name}-v0").spec.id == f"fairlead/{name}-v0"


def test_settings_are_passed_on_by_name():
    env = gym.make("fairlead/Placement-v0", scenario=LIGHT, steps=3, mask=True)
    assert env.action_space.n == 2
    assert env.reset(seed=1)[1]["action_mask"].tolist() == [1, 1]


def test_vectors_are_made_by_name():
    envs = gym.make_vec("fairlead/Placement-v0", num_envs=3, scenario=LIGHT)
    assert isinstance(envs.unwrapped, PlacementVectorEnv)
    assert envs.reset(seed=1)[0].shape[0] == 3
    envs.step(np.zeros(3, np.int64))


def test_a_second_registration_changes_nothing_and_warns_of_nothing(recwarn):
    register()
    assert not recwarn.list


TRAVELLING = {
    **dict(list(SINGLES.items())[:3]),
    "vector": lambda: PlacementVectorEnv(2, LIGHT),
    "scaling": scaling,
}


@pytest.mark.parametrize("make", TRAVELLING.values(), ids=TRAVELLING)
def test_an_environment_travels_by_what_it_was_made_of(make):
    env = make()
    env.reset(seed=3)
    copy = pickle.loads(pickle.dumps(env))
    action = {} if isinstance(env, ScalingEnv) else np.zeros(2, np.int64) if hasattr(env, "num_envs") else 0
    with pytest.raises(ResetNeeded):
        copy.step(action)
    first, again = env.reset(seed=3)[0], copy.reset(seed=3)[0]
    if isinstance(env, ScalingEnv):
        first, again = env.state(), copy.state()
    assert np.array_equal(first, again)


class TestStableBaselines3:
    """The loop of its documentation, its own check, and its vectors."""

    def test_it_finds_nothing_wrong(self, single):
        check_env(single)

    @pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
    def test_what_it_predicts_can_be_stepped(self, algorithm):
        env = PlacementEnv(LIGHT, steps=20)
        settings = {"n_steps": 16, "batch_size": 16} if algorithm == "PPO" else {"learning_starts": 4}
        model = getattr(stable_baselines3, algorithm)("MlpPolicy", env, device="cpu", seed=0, **settings)
        model.learn(32)
        shown, _ = env.reset(seed=1)
        is_over = False
        while not is_over:
            action, _ = model.predict(shown)
            assert action.shape == ()
            shown, _, is_over, is_cut, _ = env.step(action)
            is_over = is_over or is_cut

    def test_it_steps_copies_in_other_processes(self):
        env = PlacementEnv(LIGHT, steps=5)
        envs = SubprocVecEnv([lambda: env, lambda: env], start_method="fork")
        try:
            assert envs.reset().shape == (2, *env.observation_space.shape)
            for _ in range(6):
                shown, *_ = envs.step([0, 1])
            assert shown.shape == (2, *env.observation_space.shape)
        finally:
            envs.close()
