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
from envs.wrappers.randomising import without_draws
from envs.wrappers.wrapper import params_for
from jaxrl.algorithms import registry
from jaxrl.algorithms.allowed_modules import NotAllowedError
from jaxrl.learning.rollout import reset_all, rollout
from jaxrl.policies.crowds import adapted

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
    params, usual = env.default_params, plain.default_params

    @jax.jit
    def one_step(key: jax.Array) -> Any:
        obs, state = env.reset_env(key, params)
        return obs, state, env.step_env(key, state, jnp.int32(1), params)

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


def test_every_reset_draws_and_an_episode_keeps_its_draw() -> None:
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
    held_out = jaxrl.evaluate(result, env, episodes=4, env_params={"length": [0.1, 2.0]})
    assert dict(held_out["return"].sizes) == {"seed": 2, "eval.length": 2, "episode": 4}
    usual = jaxrl.evaluate(result, env, episodes=4)  # of the training, inside the wrapper
    of_one_length = jaxrl.evaluate(result, env, episodes=4, env_params={"length": [0.5]})
    np.testing.assert_array_equal(usual["return"], of_one_length["return"].sel({"eval.length": 0.5}))


def noisy(env: Any) -> Any:
    return envs.wrappers.observation_noise(env, 0.1)


PLAIN = envs.make("cartpole")
ADAPTED: dict[str, tuple[Any, Any]] = {
    "in a varied world": (PLAIN, randomise(PLAIN, LENGTH)),
    "without draws": (randomise(PLAIN, LENGTH), PLAIN),
    "with other wrappers": (randomise(PLAIN, LENGTH), noisy(PLAIN)),
    "with more wrappers": (noisy(PLAIN), randomise(noisy(PLAIN), {"inner.length": LENGTH["length"]})),
    "with draws of something else": (randomise(PLAIN, LENGTH), randomise(PLAIN, BOTH)),
}


@pytest.mark.parametrize("name", ADAPTED)
def test_parameters_of_a_training_are_those_of_another_environment(name: str) -> None:
    trained, other = ADAPTED[name]

    def gravity_of(params: Any) -> float:
        while hasattr(params, "inner"):
            params = params.inner
        return float(params.gravity)

    params = params_for(trained, PLAIN, PLAIN.default_params.replace(gravity=12.0, max_steps_in_episode=50))
    assert gravity_of(params) == 12.0
    there = params_for(other, trained, params)
    assert jax.tree.structure(there) == jax.tree.structure(other.default_params)
    other.check_params(there)
    assert gravity_of(there) == 12.0
    assert int(there.max_steps_in_episode) == 50


OWN: dict[str, tuple[Any, Any]] = {
    "in a varied world": (noisy(PLAIN), randomise(noisy(PLAIN), {"inner.length": LENGTH["length"]})),
    "inside another wrapper": (noisy(PLAIN), envs.wrappers.sticky_actions(noisy(PLAIN), 0.1)),
    "without draws": (noisy(randomise(PLAIN, LENGTH)), noisy(PLAIN)),
    "with draws inside": (noisy(PLAIN), noisy(randomise(PLAIN, LENGTH))),
}


@pytest.mark.parametrize("name", OWN)
def test_parameters_of_wrappers_are_kept_in_another_environment(name: str) -> None:
    trained, other = OWN[name]
    there = params_for(other, trained, trained.default_params.replace(scale=0.5, max_steps_in_episode=50))
    assert jax.tree.structure(there) == jax.tree.structure(other.default_params)
    other.check_params(there)
    assert int(there.max_steps_in_episode) == 50
    assert float(getattr(there, "scale", None) or there.inner.scale) == 0.5
    swept = adapted(other, trained, trained.default_params.replace(scale=0.5), ["env.scale"])
    assert float(getattr(swept, "scale", None) or swept.inner.scale) == 0.5


def test_parameters_of_a_varied_crowd_are_those_of_a_larger_one() -> None:
    crowd, larger = (envs.make("crowd/circle", num_agents=count) for count in (4, 6))
    varied = randomise(crowd, {"max_speed": jaxrl.Uniform(1.0, 2.0)})
    params = adapted(larger, varied, varied.default_params)
    assert jax.tree.structure(params) == jax.tree.structure(larger.default_params)
    assert params.num_present == 6


def test_all_draws_are_taken_away() -> None:
    assert without_draws(PLAIN) is PLAIN
    assert without_draws(randomise(randomise(PLAIN, LENGTH), {"inner.masspole": jaxrl.Uniform(0.05, 0.2)})) == PLAIN
    assert without_draws(noisy(randomise(PLAIN, LENGTH))) == noisy(PLAIN)


def test_nested_draws_are_all_reported() -> None:
    env = randomise(randomise(envs.make("cartpole"), LENGTH), {"inner.masspole": jaxrl.Uniform(0.05, 0.2)})
    params, key = env.default_params, jax.random.key(0)
    state = env.reset_env(key, params)[1]
    info = env.step_env(key, state, jnp.int32(0), params)[-1]
    assert info["randomised"].keys() == {"length", "inner.masspole"}


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


def test_a_function_is_described_by_its_path_and_imported_where_that_is_allowed() -> None:
    config = jaxrl.PPOConfig(num_envs=4, num_steps=16)
    algo = jaxrl.ppo(randomise(envs.make("cartpole"), together), config)
    spec = json.loads(json.dumps(registry.describe(algo)))
    assert registry.modules_to_allow(algo) == [__name__]
    with pytest.raises(NotAllowedError, match=rf"^the environment's function '{__name__}:together' is of the module"):
        registry.build(spec)
    assert registry.build(spec, allow=__name__).env == algo.env
    without_path = jaxrl.ppo(randomise(envs.make("cartpole"), lambda key: together(key)), config)
    with pytest.raises(ValueError, match=r"^its environment's parameters is an object, function$"):
        registry.describe(without_path)


@pytest.mark.parametrize("path", ["unwanted:f", "unwanted", "unwanted:", "jaxrl.importing:imported", ""])
@pytest.mark.parametrize("where", ["environment", "inside an environment", "config", "inside config"])
def test_no_function_of_a_description_is_imported_without_permission(
    where: str, path: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unwanted.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    algo = jaxrl.ppo(randomise(envs.make("cartpole"), LENGTH), jaxrl.PPOConfig(num_envs=4, num_steps=16))
    spec = json.loads(json.dumps(registry.describe(algo)))
    function = {"function": path}
    static = spec["environment"]["static"]
    if where == "environment":
        static["parameters"] = function
    elif where == "inside an environment":
        static["parameters"][0][1] = function
    elif where == "config":
        spec["config"]["actor_sees"] = function
    else:
        spec["config"]["hidden"] = [function]
    with pytest.raises(NotAllowedError, match=r"^the environment's function"):
        registry.build(spec)
    for module in ("unwanted", "jaxrl.importing"):  # with permission, too, it is a function of a field alone
        if where != "environment" and path.startswith(module):
            with pytest.raises((TypeError, ValueError)):
                registry.build(spec, allow=module)


@pytest.mark.parametrize("parameters", [LENGTH, together], ids=["distributions", "function"])
def test_the_argument_of_train_puts_the_algorithm_on_a_randomised_environment(parameters: Any) -> None:
    plain = envs.make("cartpole")
    algo = jaxrl.ppo(plain, jaxrl.PPOConfig(num_envs=4, num_steps=16, hidden=(4,)))
    algo = algo._replace(hparams=algo.hparams.replace(lr=0.01), settings_from="preset of ppo on cartpole")
    moved = registry.randomised(algo, parameters)
    assert moved.env == randomise(plain, parameters)
    assert (moved.config, moved.hparams, moved.settings_from) == (algo.config, algo.hparams, algo.settings_from)


def test_an_algorithm_that_cannot_be_rebuilt_is_not_randomised() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(num_envs=4, num_steps=16))._replace(builder=None)
    with pytest.raises(ValueError, match=r"^randomise takes an algorithm that can be built anew, and the .*; build it"):
        jaxrl.train(algo, env_steps=64, randomise=LENGTH)


@pytest.mark.slow
def test_train_and_plan_take_distributions() -> None:
    plain, config = envs.make("cartpole"), jaxrl.PPOConfig(num_envs=4, num_steps=16, hidden=(4,))
    settings: dict[str, Any] = {"seeds": 2, "env_steps": 128, "evals": 1, "eval_episodes": 2, "progress": False}
    result = jaxrl.train(jaxrl.ppo(plain, config), randomise=LENGTH, **settings)
    same = jaxrl.train(jaxrl.ppo(randomise(plain, LENGTH), config), **settings)
    assert result.metrics.identical(same.metrics.assign_attrs(result.metrics.attrs))
    assert result.algo is not None
    assert result.algo.env == randomise(plain, LENGTH)
    params = plain.default_params.replace(gravity=12.0)
    heavier = jaxrl.train(jaxrl.ppo(plain, config), randomise=LENGTH, env_params=params, **settings)
    np.testing.assert_array_equal(heavier.env_params.inner.gravity, [12.0])
    assert np.any(heavier.values("return") != result.values("return"))
    with pytest.raises(ValueError, match=r"^randomise takes parameters of cartpole, got 'lenght'"):
        jaxrl.plan("ppo", "cartpole", randomise={"lenght": LENGTH["length"]}, measure=False)
    assert jaxrl.plan("ppo", "cartpole", seeds=2, randomise=LENGTH, env_params=params, measure=False).num_seeds == 2


ERRORS: dict[str, tuple[Any, str]] = {
    "words": (
        {"length": jaxrl.Choice(["short", "long"])},
        r"^Choice takes numbers where a program draws from it",
    ),
    "unknown": ({"lenght": jaxrl.Uniform(0.5, 1.0)}, r"^randomise takes parameters of cartpole, got 'lenght'; did you"),
    "a number": ({"length": 0.5}, r"^length of randomise takes a distribution with a method sample\(key\), such as"),
    "a range that leaves that of the parameter": (
        {"length": jaxrl.Uniform(0.0, 1.0)},
        r"^randomise takes values of length that cartpole accepts: env\.length must be above 0 and finite, got 0\.0$",
    ),
    "one value of a thousand": (
        {"length": jaxrl.Choice([0.5] * 999 + [-1.0])},
        r"^randomise takes values of length that cartpole accepts: env\.length must be above 0 and finite, got -1\.0$",
    ),
    "a limit": ({"max_steps_in_episode": jaxrl.Choice([10, 20])}, r"^randomise takes parameters of cartpole, got 'max"),
    "an array": (
        lambda key: {"length": jnp.ones(2)},
        r"^length of randomise takes one number a draw, got shape \(2,\)$",
    ),
    "no names": (lambda key: jnp.ones(2), r"^the function of randomise returns values by name, got "),
    "neither": (
        5,
        r"^randomise takes distributions by the names of parameters, .*, or a function of a random key, got 5$",
    ),
    "names alone": (["length"], r"^randomise takes distributions by the names of parameters, .*, got \['length'\]$"),
    "nothing": ({}, r"^parameters of randomise takes at least one distribution, got none$"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_bad_distributions_are_refused_in_one_sentence(name: str) -> None:
    parameters, sentence = ERRORS[name]
    with pytest.raises((TypeError, ValueError), match=sentence):
        randomise(envs.make("cartpole"), parameters)


def test_a_value_that_would_have_no_effect_is_refused() -> None:
    env = randomise(envs.make("cartpole"), LENGTH)
    params = env.default_params
    sentence = (
        r"^inner\.length of randomise\(cartpole\) must have its default value, 0\.5, because .*, got 0\.7; env\.inner"
    )
    with pytest.raises(ValueError, match=sentence):
        env.check_params(params.replace(inner=params.inner.replace(length=0.7)))
    env.check_params(params.replace(inner=params.inner.replace(gravity=5.0)))
    both = randomise(envs.make("cartpole"), BOTH)
    both.check_params(jax.tree.map(jnp.float32, both.default_params))  # as a program has them


@pytest.mark.parametrize(("name", "value"), [("width", -0.1), ("width", 1.5), ("widening_env_steps", -1.0)])
def test_a_width_outside_its_range_is_refused(name: str, value: float) -> None:
    env = randomise(envs.make("cartpole"), LENGTH)
    with pytest.raises(ValueError, match=rf"^env\.{name} must .*, got {value}$"):
        env.check_params(env.default_params.replace(**{name: value}))


def test_draws_widen_during_training() -> None:
    """Against the line between the usual value, 0.5, and the draw of the full width, at several numbers of steps."""
    env = randomise(envs.make("cartpole"), LENGTH)
    keys = jax.random.split(jax.random.key(0), 32)

    @jax.jit
    @jax.vmap
    def drawn(params: Any) -> jax.Array:
        return jax.vmap(lambda key: env.reset_env(key, params)[1].drawn["length"])(keys)

    env_steps = np.asarray([0, 250, 1_000, 5_000])
    cases = [(width, widening) for width in (0.0, 0.5, 1.0) for widening in (0.0, 1_000.0)]
    params = [
        env.params_at(env.default_params.replace(width=width, widening_env_steps=widening), np.float32(steps))
        for width, widening in cases
        for steps in env_steps
    ]
    computed = np.asarray(drawn(jax.tree.map(lambda *leaves: jnp.stack(list(map(jnp.float32, leaves))), *params)))
    computed = computed.reshape(len(cases), len(env_steps), len(keys))
    full = computed[cases.index((1.0, 0.0)), 0].astype(np.float64)
    assert full.std() > 0.1
    for (width, widening), of_case in zip(cases, computed, strict=True):
        for steps, lengths in zip(env_steps, of_case, strict=True):
            share = width * (min(steps / widening, 1.0) if widening else 1.0)
            np.testing.assert_allclose(lengths, 0.5 + share * (full - 0.5), rtol=4 * 2.0**-23)  # four roundings
    np.testing.assert_array_equal(computed[cases.index((1.0, 1_000.0)), -1], computed[cases.index((1.0, 0.0)), 0])


@pytest.mark.parametrize(
    "parameters",
    [{"length": jaxrl.Choice([5])}, {"length": jaxrl.Choice([5.0])}, lambda key: {"length": jnp.float32(5.0)}],
    ids=["whole", "a float", "a function"],
)
def test_whole_numbers_widen_in_whole_numbers(parameters: Any) -> None:
    env = randomise(envs.make("memory/t-maze"), parameters)
    usual = int(env.default_params.inner.length)
    reset = jax.jit(lambda params: env.reset_env(jax.random.key(0), params)[1].drawn["length"])
    for width in (0.0, 0.35, 1.0):  # 20, 14.75, 5
        length = reset(env.default_params.replace(width=width))
        assert length.dtype == jnp.int32
        assert length == round(usual + width * (5 - usual))


def test_a_default_without_a_bound_is_replaced_by_the_draw() -> None:
    env = randomise(envs.make("crowd/circle", num_agents=2), {"switch_env_steps": jaxrl.Uniform(1.0, 2.0)})
    assert np.isinf(env.default_params.inner.switch_env_steps)
    drawn = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)[1].drawn["switch_env_steps"]
    assert 1.0 <= float(drawn) < 2.0


@pytest.mark.slow
def test_widths_are_settings_of_one_program() -> None:
    env = randomise(envs.make("cartpole"), LENGTH)
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=4, num_steps=16, hidden=(4,)))
    sweep = jaxrl.grid(algo.hparams, {"env.width": [0.0, 1.0], "env.widening_env_steps": [0.0, 256.0]})
    result = jaxrl.train(algo, sweep, seeds=2, env_steps=256, evals=2, eval_episodes=2, progress=False)
    returns = result.metrics["return"]
    assert dict(returns.sizes) == {"env.width": 2, "env.widening_env_steps": 2, "seed": 2, "env_step": 2}
    nominal = returns.sel({"env.width": 0.0})
    np.testing.assert_array_equal(nominal[0], nominal[1])  # without width it does not matter how fast it grows
    assert np.any(returns.sel({"env.width": 1.0}) != nominal)


def test_equal_environments_share_a_compilation() -> None:
    plain = envs.make("cartpole")
    assert randomise(plain, LENGTH) == randomise(plain, dict(LENGTH))
    assert hash(randomise(plain, BOTH)) == hash(randomise(plain, dict(reversed(BOTH.items()))))
