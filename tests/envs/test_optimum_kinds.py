"""The three kinds of optimum: tasks of one decision, tasks with a memory, a reversal of preferences, and wrappers."""

import dataclasses
import importlib
import inspect
import itertools
import pkgutil
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs import base, discount_curves, wrappers
from envs.bandits.base import Bandit
from envs.base import OPTIMUM_KINDS
from envs.decision.delayed_choice import DelayedChoice
from envs.decision.preference_reversal import PreferenceReversal
from envs.memory.bandit import BanditEpisode
from envs.memory.battleship import Battleship
from envs.registry import ROWS
from envs.wrappers.asymmetric import SeenEnvironment
from envs.wrappers.time import TimeLimit
from envs.wrappers.wrapper import ParamsWrapper, Wrapper

HYPERBOLIC = 1 / (1 + 0.3 * np.arange(600))
NAMES = [name for name in (*ROWS, "gymnax/Catch-bsuite") if not name.startswith("bandit/")]


def kinds(env: Any, params: Any = None, discount: Any = None) -> list[Any]:
    return [env.optimum(params, discount, kind) for kind in OPTIMUM_KINDS]


@pytest.mark.slow_rows("pde/wave")
@pytest.mark.parametrize("name", NAMES)
def test_kinds_are_ordered_and_an_unknown_one_is_refused(name: str) -> None:
    env = envs.make(name)
    for discount in (None, 0.9, HYPERBOLIC):
        best, stationary, sophisticated = kinds(env, None, discount)
        if best is None:
            # Bounds of actions may be too close for one law of lq/ alone.
            assert (stationary is None and sophisticated is None) or name.startswith("lq/")
        else:  # no policy exceeds the best, up to the rounding of sums
            others = [each for each in (stationary, sophisticated) if each is not None]
            assert all(each <= best + 1e-9 * (1 + abs(best)) for each in others)
            assert discount is HYPERBOLIC or sophisticated == pytest.approx(best, rel=1e-9)
    with pytest.raises(ValueError, match=r"^kind must be one of precommitted, stationary, sophisticated, got 'best'$"):
        env.optimum(kind="best")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["pathworld", "delayed-choice", "random-dilemmas", "game/climbing"])
def test_all_kinds_are_equal_where_no_action_changes_a_later_choice(name: str) -> None:
    assert len(set(kinds(envs.make(name), None, HYPERBOLIC))) == 1


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("memory/")])
def test_the_stationary_optimum_of_a_task_with_a_memory_is_that_without_one(name: str) -> None:
    env = envs.make(name)
    assert env.optimum(discount=0.9, kind="stationary") == env.memoryless(discount=0.9)


def test_the_sophisticated_optimum_is_unknown_where_only_exponential_discounts_are_consistent() -> None:
    for env in (BanditEpisode(num_arms=2), Battleship(board_size=2, ships=(2,))):
        assert env.optimum(discount=0.9, kind="sophisticated") == env.optimum(discount=0.9)
        assert env.optimum(discount=HYPERBOLIC) is not None
        assert env.optimum(discount=HYPERBOLIC, kind="sophisticated") is None


def test_the_delayed_choice_is_worth_the_higher_reward_at_its_time() -> None:
    env: Any = DelayedChoice()
    params = env.default_params.replace(first_reward=0.5, num_steps=4)
    assert env.optimum() == 1.75 and env.optimum(params, 0.5) == 0.125
    assert env.optimum(params.replace(max_steps_in_episode=3)) == 0


@pytest.mark.parametrize("rewards", [(1.0, 1.75, 0.01), (1.0, 1.75, 0.9), (0.3, 1.75, 0.0), (1.0, 0.5, -0.1)])
@pytest.mark.parametrize("curve", [HYPERBOLIC, 0.95 ** np.arange(600)], ids=["hyperbolic", "exponential"])
def test_a_reversal_of_preferences_against_all_its_policies(rewards: Any, curve: np.ndarray) -> None:
    """Every pair of choices, valued at the start; the equilibrium by one-step deviations."""
    env: Any = PreferenceReversal()
    sooner, later, tax = rewards
    params = env.default_params.replace(
        sooner_reward=sooner, later_reward=later, tax=tax, sooner_step=6, later_step=13, max_steps_in_episode=14
    )

    def paid(first: int, second: int, start: int) -> float:  # from the view of one step
        taken = first == 0 or second == 0
        step, reward = (6, sooner - tax * (first == 1)) if taken else (13, later)
        return curve[step - start] * reward

    policies = list(itertools.product((0, 1), repeat=2))
    best = max(paid(first, second, 0) for first, second in policies)
    stable = [
        paid(first, second, 0)
        for first, second in policies
        if paid(1, second, 6) >= paid(1, 1 - second, 6) and paid(first, second, 0) >= paid(1 - first, second, 0)
    ]
    assert len(set(stable)) == 1
    np.testing.assert_allclose(kinds(env, params, curve), [best, best, stable[0]], rtol=1e-12)


def test_rewards_after_the_time_limit_are_not_attained() -> None:
    env: Any = PreferenceReversal()
    for limit, expected in ((200, [1.75, 1.75, 1.75]), (199, [1.0, 1.0, 1.0]), (99, [0.0, 0.0, 0.0])):
        assert kinds(env, env.default_params.replace(max_steps_in_episode=limit)) == expected


def test_kinds_differ_where_preferences_reverse() -> None:
    best, stationary, sophisticated = kinds(PreferenceReversal(), None, 1 / (1 + 0.01 * np.arange(200)))
    assert best == stationary == pytest.approx(1.75 / 2.99) and sophisticated == pytest.approx(1 / 1.99)


@pytest.mark.parametrize(
    ("curve", "exponential"),
    [
        (0.9 ** np.arange(30), True),
        (np.float32(0.99) ** np.arange(500, dtype=np.float32), True),
        (np.ones(1), True),
        (np.array([1.0, 0.0, 0.0]), True),
        (HYPERBOLIC, False),
        (np.array([1, 0.5, 0.2]), False),
    ],
)
def test_exponential_curves_are_recognised(curve: np.ndarray, exponential: bool) -> None:
    assert discount_curves.is_exponential(curve) is exponential


def total(obs: Any) -> Any:
    return obs.sum()


def doubled(reward: Any) -> Any:
    return 2 * reward


CHOICE, CLIMBING = envs.make("preference-reversal"), envs.make("game/climbing")
CURVE = 1 / (1 + 0.01 * np.arange(200))
# By class: an environment of it, and the kinds of the optimum that are those inside.
WRAPPED: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "TimeLimit": (lambda: wrappers.time_limit(CHOICE, 200), OPTIMUM_KINDS),
    "FlattenObservation": (lambda: wrappers.flatten_observation(CHOICE), OPTIMUM_KINDS),
    "AsymmetricObservation": (lambda: wrappers.asymmetric_observation(CHOICE, critic_sees=total), OPTIMUM_KINDS),
    "SeenEnvironment": (lambda: SeenEnvironment(CHOICE, actor_sees=total), ()),
    "TimeFeature": (lambda: wrappers.time_feature(CHOICE), OPTIMUM_KINDS),  # precommitted and stationary are equal
    "FrameStack": (lambda: wrappers.frame_stack(CHOICE, 2), OPTIMUM_KINDS),
    "DelayObservations": (lambda: wrappers.delay_observations(CHOICE, 1), ()),
    "TransformObservation": (lambda: wrappers.transform_observation(CHOICE, total), ()),
    "ObservationNoise": (lambda: wrappers.observation_noise(CHOICE, 0.1), ()),
    "Hide": (lambda: wrappers.hide(CHOICE, 0), ()),
    "Randomise": (lambda: wrappers.randomise(CHOICE, {"tax": jaxrl.Uniform(0.0, 0.1)}), ()),
    "ActionRepeat": (lambda: wrappers.action_repeat(CLIMBING, 2), ()),
    "StickyActions": (lambda: wrappers.sticky_actions(CLIMBING, 0.5), ()),
    "DelayActions": (lambda: wrappers.delay_actions(CLIMBING, 1), ()),
    "TransformReward": (lambda: wrappers.transform_reward(CLIMBING, doubled), ()),
    "DelayRewards": (lambda: wrappers.delay_rewards(CLIMBING, 2), ()),
    "BoundActions": (lambda: wrappers.bound_actions(envs.make("pendulum"), 1.0), ()),
    "DiscretiseActions": (lambda: wrappers.discretise_actions(envs.make("pendulum"), 3), ()),
    "Characters": (lambda: envs.make("cooperation/levers-characters"), ()),
}


def test_every_wrapper_is_listed() -> None:
    modules = [importlib.import_module(each.name) for each in pkgutil.walk_packages(envs.__path__, "envs.")]
    values = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    made = {value for value in values if issubclass(value, Wrapper) and value.__module__.startswith("envs.")}
    public = {kind.__name__ for kind in made - {Wrapper, ParamsWrapper} if not kind.__name__.startswith("_")}
    assert public == set(WRAPPED)


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_keep_the_optimum_or_have_none(name: str) -> None:
    make, kept = WRAPPED[name]
    env = make()
    assert type(env).__name__ == name
    expected = [env.inner.optimum(None, CURVE, kind) if kind in kept else None for kind in OPTIMUM_KINDS]
    assert kinds(env, None, CURVE) == expected and (not kept or None not in expected)
    with pytest.raises(ValueError, match=r"^kind must be one of"):
        env.optimum(kind="best")


@pytest.mark.parametrize(
    "wrap", [wrappers.time_feature, lambda env: wrappers.frame_stack(env, 2)], ids=["time", "frames"]
)
def test_wrappers_that_add_memory_have_no_known_stationary_optimum(wrap: Any) -> None:
    inner = envs.make("memory/t-maze")
    assert kinds(wrap(inner)) == [inner.optimum(), None, inner.optimum(kind="sophisticated")]


def test_kinds_that_differ_by_rounding_count_as_equal() -> None:
    """Of the queue all kinds are equal, but sums of their rewards have other orders."""
    inner = envs.make("queue")
    stationary = wrappers.time_feature(inner).optimum(discount=HYPERBOLIC, kind="stationary")
    assert stationary == pytest.approx(inner.optimum(discount=HYPERBOLIC), rel=1e-12)


def test_a_time_limit_changes_the_optimum_with_the_parameters() -> None:
    env = wrappers.time_limit(CLIMBING, 3)
    assert env.optimum() == 33
    assert env.optimum(env.default_params.replace(max_steps_in_episode=2), 0.5) == 11 * 1.5


def test_a_subclass_of_a_wrapper_has_no_optimum_unless_stated() -> None:
    @dataclasses.dataclass(frozen=True)
    class Halved(TimeLimit):
        def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
            obs, state, reward, terminated, info = super().step_env(key, state, action, params)
            return obs, state, reward / 2, terminated, info

    assert Halved(CLIMBING, 3).optimum() is None


def test_the_optimum_of_a_bandit_is_not_that_of_an_episode() -> None:
    assert isinstance(envs.make("bandit/bernoulli"), Bandit)
    assert wrappers.time_limit(envs.make("bandit/bernoulli"), 5).optimum() is None


def test_a_method_without_kinds_states_the_precommitted_optimum() -> None:
    @dataclasses.dataclass(frozen=True)
    class Earlier(DelayedChoice):
        def optimum(self, params: Any = None, discount: Any = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
            return 3.0

    assert [base.optimum_of(wrappers.time_limit(Earlier(), 200), None, 0.9, kind) for kind in OPTIMUM_KINDS] == [
        3.0,
        None,
        None,
    ]


def test_bounds_are_part_of_the_contract() -> None:
    assert envs.make("cartpole").bound() is None and base.Environment.bound.__doc__
    env = envs.make("memory/bandit")
    bound, best = env.bound(), env.optimum()
    assert bound is not None and (best is None or best < bound)


def test_wrappers_that_keep_the_optimum_keep_the_bound() -> None:
    """A shorter time limit has the bound of the inner task under it; other rewards have none."""
    env = envs.make("memory/concentration")
    shorter: Any = env.default_params.replace(max_steps_in_episode=20)
    for discount in (None, 0.9):
        assert wrappers.time_limit(env, 20).bound(None, discount) == env.bound(shorter, discount)
    assert env.bound() != env.bound(None, 0.9)
    assert wrappers.transform_reward(env, jnp.negative).bound() is None
