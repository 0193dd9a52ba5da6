"""Parameters drawn for every episode: the draws of each key, dynamics with them, critics that see them, and errors."""

import json
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
import jaxrl
from envs.wrappers import randomise
from jaxrl.algorithms import registry
from jaxrl.learning.rollout import reset_all, rollout

LENGTH = {"length": jaxrl.Uniform(0.25, 1.0)}
BOTH = {"length": jaxrl.LogUniform(0.25, 1.0), "masspole": jaxrl.Choice([0.05, 0.2])}


def together(key: jax.Array) -> dict[str, jax.Array]:
    """A longer pole is heavier."""
    length = jax.random.uniform(key, (), minval=0.25, maxval=1.0)
    return {"length": length, "masspole": 0.2 * length}


@pytest.mark.parametrize("parameters", [LENGTH, BOTH, together], ids=["one", "two", "correlated"])
def test_an_episode_has_the_parameters_that_its_key_draws(parameters: Any) -> None:
    plain = envs.make("cartpole")
    env = randomise(plain, parameters)
    usual = plain.default_params

    @jax.jit
    def one_step(key: jax.Array) -> Any:
        obs, state = env.reset_env(key, usual)
        return obs, state, env.step_env(key, state, jnp.int32(1), usual)

    for seed in range(5):
        key = jax.random.key(seed)
        obs, state, (next_obs, after, reward, _, info) = one_step(key)
        draw_key, reset_key = jax.random.split(key)
        if callable(parameters):
            values: dict[str, Any] = parameters(draw_key)  # pyright: ignore[reportAssignmentType]
            expected = {name: float(value) for name, value in values.items()}
        else:
            keys, expected = jax.random.split(draw_key, len(parameters)), {}
            for own, (name, each) in zip(keys, sorted(parameters.items()), strict=True):
                if isinstance(each, jaxrl.Choice):
                    expected[name] = each.values[int(jax.random.randint(own, (), 0, len(each.values)))]
                    continue
                share = float(jax.random.uniform(own))
                if isinstance(each, jaxrl.Uniform):
                    expected[name] = each.low + share * (each.high - each.low)
                else:
                    expected[name] = each.low * (each.high / each.low) ** share
        for drawn in (state.drawn, after.drawn, info["randomised"]):
            assert drawn.keys() == expected.keys()
            for name, value in expected.items():
                assert math.isclose(float(drawn[name]), value, rel_tol=1e-5)  # a few roundings of float32
        of_episode = usual.replace(**{name: state.drawn[name] for name in expected})
        native_obs, native = plain.reset_env(reset_key, of_episode)
        native_next, _, native_reward, *_ = plain.step_env(key, native, jnp.int32(1), of_episode)
        np.testing.assert_array_equal(obs, native_obs)
        np.testing.assert_allclose(next_obs, native_next, rtol=1e-6, atol=1e-7)
        assert reward == native_reward


def test_every_reset_draws_anew_and_an_episode_keeps_its_draw() -> None:
    env = randomise(envs.make("cartpole"), LENGTH)
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=8, num_steps=64, hidden=(4,), critic_sees="privileged"))
    params, hparams = env.default_params, algo.prepare(algo.hparams)

    @jax.jit
    def run(key: jax.Array) -> Any:
        policy = algo.policy(algo.init(key, hparams, params), hparams)
        noise = algo.actor.noise(key, (64, 8))
        carry = reset_all(env, key, params, 8)
        return rollout(env, params, algo.actor, policy, key, carry, noise, critic_sees=env.privileged)[1]

    steps = run(jax.random.key(0))
    drawn, done = np.asarray(steps.critic_obs["length"]), np.asarray(steps.terminated | steps.truncated)
    np.testing.assert_array_equal(drawn, np.asarray(steps.next_critic_obs["length"]))
    same = drawn[1:] == drawn[:-1]
    assert done.sum() > 10
    np.testing.assert_array_equal(same, ~done[:-1])
    assert np.all((drawn >= 0.25) & (drawn < 1.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("pendulum", "mass"),
        ("crowd/circle", "weights.progress"),
        ("memory/cartpole", "length"),
        ("gymnax/CartPole-v1", "length"),
    ],
)
def test_the_laws_hold(name: str, parameter: str) -> None:
    env = envs.make(name)
    value = float(operator.attrgetter(parameter)(env.default_params))
    envs.check(randomise(env, {parameter: jaxrl.Uniform(0.9 * value, 1.1 * value)}))


@pytest.mark.slow
def test_a_policy_is_evaluated_on_parameters_held_out() -> None:
    env = envs.make("cartpole")
    algo = jaxrl.ppo(randomise(env, LENGTH), jaxrl.PPOConfig(num_envs=4, num_steps=16, hidden=(4,)))
    result = jaxrl.train(algo, seeds=2, env_steps=64, evals=1, eval_episodes=2)
    table = jaxrl.evaluate(result, env, episodes=4, env_params={"length": [0.1, 2.0]})["return"].mean("episode")
    assert dict(table.sizes) == {"seed": 2, "eval.length": 2}


def test_nested_draws_are_all_reported() -> None:
    env = randomise(randomise(envs.make("cartpole"), LENGTH), {"masspole": jaxrl.Uniform(0.05, 0.2)})
    params, key = env.default_params, jax.random.key(0)
    state = env.reset_env(key, params)[1]
    info = env.step_env(key, state, jnp.int32(0), params)[-1]
    assert info["randomised"].keys() == {"length", "masspole"}


@pytest.mark.parametrize(("parameter", "space"), [("max_speed", "observation_space"), ("max_torque", "action_space")])
def test_parameters_that_change_a_space_are_refused(parameter: str, space: str) -> None:
    sentence = r"^randomise takes parameters that leave the spaces of pendulum as they are, got "
    sentence += rf"'{parameter}', which changes its {space}$"
    with pytest.raises(ValueError, match=sentence):
        randomise(envs.make("pendulum"), {parameter: jaxrl.Uniform(4.0, 5.0)})


def test_whole_numbers_take_whole_numbers() -> None:
    env = envs.make("memory/t-maze")
    with pytest.raises(ValueError, match=r"^length of randomise takes whole numbers, such as jaxrl\.Choice"):
        randomise(env, {"length": jaxrl.Uniform(3.0, 6.0)})
    envs.check(randomise(env, {"length": jaxrl.Choice([3, 5])}), num_steps=16)


def test_an_algorithm_is_described_with_its_distributions() -> None:
    env = randomise(envs.make("cartpole"), BOTH)
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=4, num_steps=16))
    assert registry.build(json.loads(json.dumps(registry.describe(algo)))).env == env
    with pytest.raises(ValueError, match=r"^its environment's parameters is an object, function$"):
        registry.describe(jaxrl.ppo(randomise(envs.make("cartpole"), together)))


ERRORS: dict[str, tuple[Any, str]] = {
    "words": (
        {"length": jaxrl.Choice(["short", "long"])},
        r"^Choice takes numbers where a program draws from it",
    ),
    "unknown": ({"lenght": jaxrl.Uniform(0.5, 1.0)}, r"^randomise takes parameters of cartpole, got 'lenght'; did you"),
    "a number": ({"length": 0.5}, r"^length of randomise takes a distribution with a method sample\(key\), such as"),
    "a range that leaves that of the parameter": (
        {"length": jaxrl.Uniform(0.0, 1.0)},
        r"^env\.length must be above 0 and finite, got 0\.0$",
    ),
    "a limit": ({"max_steps_in_episode": jaxrl.Choice([10, 20])}, r"^randomise takes parameters of cartpole, got 'max"),
    "an array": (
        lambda key: {"length": jnp.ones(2)},
        r"^length of randomise takes one number a draw, got shape \(2,\)$",
    ),
    "no names": (lambda key: jnp.ones(2), r"^the function of randomise returns values by name, got "),
    "nothing": ({}, r"^parameters of randomise takes at least one distribution, got none$"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_bad_distributions_are_refused_in_one_sentence(name: str) -> None:
    parameters, sentence = ERRORS[name]
    with pytest.raises((TypeError, ValueError), match=sentence):
        randomise(envs.make("cartpole"), parameters)


def test_a_value_that_would_have_no_effect_is_refused() -> None:
    env = randomise(envs.make("cartpole"), LENGTH)
    with pytest.raises(ValueError, match=r"^length of randomise\(cartpole\) is 0\.69\d+, which would change nothing"):
        env.check_params(env.default_params.replace(length=0.7))
    env.check_params(env.default_params.replace(gravity=5.0))
    both = randomise(envs.make("cartpole"), BOTH)
    both.check_params(jax.tree.map(jnp.float32, both.default_params))  # as a program has them


def test_equal_environments_share_a_compilation() -> None:
    plain = envs.make("cartpole")
    assert randomise(plain, LENGTH) == randomise(plain, dict(LENGTH))
    assert hash(randomise(plain, BOTH)) == hash(randomise(plain, dict(reversed(BOTH.items()))))
