"""All wrappers together: any two of them keep the contract and work with the rest of the library."""

import itertools
import operator
import re
from collections.abc import Callable
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from echo_environment import Echo
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
import jaxrl
from envs import base, probes, rendering, wrappers
from envs.checking import check_abstractly
from envs.wrappers.randomising import names_of
from jaxrl.sweeps.batching import batched_env_params

CARTPOLE = envs.make("cartpole")


def doubled(obs: Any) -> Any:
    return jax.tree.map(lambda leaf: 2 * leaf, obs)


def halved(reward: jax.Array) -> jax.Array:
    return reward / 2


def narrowed(env: base.Environment) -> base.Environment:
    """Without the first component."""
    space = env.observation_space(env.default_params)
    return wrappers.hide(env, next(iter(space.spaces)) if isinstance(space, base.spaces.Dict) else 0)


def varied(env: base.Environment) -> base.Environment:
    """With the usual value of each number among the parameters as its only choice."""
    names = [name for name in names_of(env.default_params) if not name.endswith("max_steps_in_episode")]
    values = {name: operator.attrgetter(name)(env.default_params) for name in names}
    return wrappers.randomise(env, {name: jaxrl.Choice([value]) for name, value in values.items()} or {"none": NONE})


NONE = jaxrl.Choice([0.0])
Wrap = Callable[[base.Environment], base.Environment]

WRAPPERS: dict[str, Wrap] = {
    "action_repeat": lambda env: wrappers.action_repeat(env, 3),
    "asymmetric_observation": lambda env: wrappers.asymmetric_observation(env, doubled, doubled),
    "bound_actions": lambda env: wrappers.bound_actions(env, 0.9),
    "delay_actions": lambda env: wrappers.delay_actions(env, 2),
    "delay_observations": lambda env: wrappers.delay_observations(env, 2),
    "delay_rewards": lambda env: wrappers.delay_rewards(env, 2),
    "discretise_actions": lambda env: wrappers.discretise_actions(env, 3),
    "flatten_observation": wrappers.flatten_observation,
    "frame_stack": lambda env: wrappers.frame_stack(env, 3),
    "hide": narrowed,
    "observation_noise": lambda env: wrappers.observation_noise(env, 0.1),
    "randomise": varied,
    "sticky_actions": lambda env: wrappers.sticky_actions(env, 0.25),
    "time_feature": wrappers.time_feature,
    "time_limit": lambda env: wrappers.time_limit(env, 12),
    "transform_observation": lambda env: wrappers.transform_observation(env, doubled),
    "transform_reward": lambda env: wrappers.transform_reward(env, halved),
}
ENVIRONMENTS: dict[str, base.Environment] = {
    "cartpole": CARTPOLE,
    "echo": Echo(),
    "echoes": Echo((2,)),
    "crowd": agents.Crowd(2),
    "crowd with masks": agents.Crowd(2, masked=True),
    "probe": probes.OnlyTerminates(steps=4),
    "number": envs.make("gymnax/FrozenLake-misc"),
}
OF_NUMBERS = {"bound_actions", "discretise_actions"}  # they take actions that are numbers
MORE_REFUSED = {"crowd with masks": {"action_repeat", "delay_actions"}, "number": {"observation_noise", "hide"}}


def wrapped(outer: str, inner: str, name: str) -> base.Environment | None:
    """An environment in two wrappers, or None if one raises an error, of one sentence with the accepted values."""
    env = ENVIRONMENTS[name]
    for wrapper in (inner, outer):
        try:
            env = WRAPPERS[wrapper](env)
        except ValueError as error:
            assert re.match(f"{wrapper} (takes an environment|must leave at least one component)", str(error)), error
            return None
    return env


def test_there_is_one_of_each() -> None:
    assert set(WRAPPERS) == {name for name in wrappers.__all__ if name.islower()}


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["once", "everywhere"])
@pytest.mark.slow
def test_any_two_keep_the_laws_of_types_and_shapes(everywhere: bool) -> None:
    """Every pair, around one environment or around all of them."""
    agents_of = {name: check_abstractly(env) for name, env in ENVIRONMENTS.items()}
    for (i, outer), (j, inner) in itertools.product(enumerate(WRAPPERS), repeat=2):
        turn = list(ENVIRONMENTS)[(i + j) % len(ENVIRONMENTS)]  # each wrapper is paired with all
        for name in ENVIRONMENTS if everywhere else [turn]:
            env = wrapped(outer, inner, name)
            if env is not None:
                assert check_abstractly(env) == agents_of[name]
            elif not outer == inner == "hide":  # neither of two numbers remains
                # masks, actions that are discrete already, whole numbers, a time that is shown already, no parameters
                assert {outer, inner} & ({"time_feature", "randomise"} | OF_NUMBERS | MORE_REFUSED.get(name, set()))


PAIRS = st.tuples(st.sampled_from(sorted(WRAPPERS)), st.sampled_from(sorted(WRAPPERS)))


@pytest.mark.slow
@settings(max_examples=3)
@given(PAIRS, st.sampled_from(["probe", "echo"]))
def test_any_two_keep_the_contract(pair: tuple[str, str], name: str) -> None:
    env = wrapped(*pair, name)
    if env is not None:
        envs.check(env, num_steps=16)


@pytest.mark.slow
@pytest.mark.parametrize("outer", sorted(WRAPPERS))
def test_every_pair_keeps_the_contract(outer: str) -> None:
    """Each pair around the next of the environments that both accept."""
    turn = itertools.cycle(ENVIRONMENTS)
    for inner in sorted(WRAPPERS):
        taken = (wrapped(outer, inner, name) for name in itertools.islice(turn, len(ENVIRONMENTS)))
        env = next((env for env in taken if env is not None), None)
        if env is None:
            assert outer == inner == "time_feature" or {outer, inner} <= OF_NUMBERS
        else:
            envs.check(env, num_steps=16)


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_equal_ones_are_equal_and_others_are_not(wrapper: str) -> None:
    name = "echo" if wrapper in OF_NUMBERS else "cartpole"
    env, twin = (WRAPPERS[wrapper](ENVIRONMENTS[name]) for _ in range(2))
    assert env == twin and hash(env) == hash(twin) and env != ENVIRONMENTS[name]
    assert env.name == f"{wrapper}({ENVIRONMENTS[name].name})"
    assert env.metric_rules == ENVIRONMENTS[name].metric_rules


@pytest.mark.parametrize("outer", sorted(set(WRAPPERS) - OF_NUMBERS))
def test_wrappers_are_drawn_as_their_inner_environment(outer: str) -> None:
    env = WRAPPERS[outer](wrappers.sticky_actions(CARTPOLE, 0.25))
    params = env.default_params
    state = env.reset_env(jax.random.key(0), params)[1]
    inner = state
    while not hasattr(inner, "theta"):
        inner = inner.inner
    beside = 265 if outer == "randomise" else 0  # the values of the episode are written at the left
    picture, alone = rendering.frame(env, state, params), rendering.frame(CARTPOLE, inner, CARTPOLE.default_params)
    np.testing.assert_array_equal(picture[:, beside:], alone[:, beside:])


def test_parameters_of_wrappers_are_swept_beside_those_of_the_inner_environment() -> None:
    algo = jaxrl.ppo(wrappers.sticky_actions(wrappers.observation_noise(CARTPOLE, 0.1), 0.25))
    sweep = jaxrl.grid(algo.hparams, {"env.probability": [0.0, 0.5], "env.inner.inner.gravity": [5.0, 9.8, 20.0]})
    params = batched_env_params(algo.env, None, sweep)
    np.testing.assert_array_equal(params.probability, np.array([0, 0, 0, 0.5, 0.5, 0.5], np.float32))
    np.testing.assert_array_equal(params.inner.inner.gravity, np.array([5, 9.8, 20] * 2, np.float32))
    with pytest.raises(ValueError, match=r"env\.gravity is not a parameter of sticky_actions\("):
        batched_env_params(algo.env, None, jaxrl.grid(algo.hparams, {"env.gravity": [1.0]}))


@pytest.mark.slow
def test_a_tower_of_wrappers_trains_and_loads(tmp_path: Any) -> None:
    env = wrappers.frame_stack(wrappers.sticky_actions(wrappers.action_repeat(CARTPOLE, 2), 0.25), 2)
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(8,)))
    sweep = jaxrl.grid(algo.hparams, {"env.probability": [0.0, 0.5]})
    result = jaxrl.train(
        algo, sweep, env_steps=16, seeds=2, evals=1, eval_episodes=2, progress=False, out=tmp_path / "x"
    )
    assert not result.failed
    again = jaxrl.load_result(tmp_path / "x")
    assert again.algo is not None and again.algo.env == env
    obs = jnp.ones((2, 4))
    at = {"env.probability": 0.5, "seed": 1}
    np.testing.assert_array_equal(again.policy(**at)(obs), result.policy(**at)(obs))
