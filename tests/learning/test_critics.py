"""The mixture critic and the modes of time limits: estimates, values that PPO learns with them, and errors."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import advantages as reference

import envs
import jaxrl
from envs.probes import chain_values
from envs.wrappers import time_feature
from jaxrl.discounts.mixtures import head_sizes
from jaxrl.learning.advantages import mixture_ugae
from jaxrl.learning.critics import mixture_critic, single_critic
from jaxrl.learning.networks import MLPActorCritic
from jaxrl.runtime.loop import make_loop

TINY = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_epochs=2, num_minibatches=2, hidden=(8,))
MIXTURE = dataclasses.replace(TINY, critic="mixture", critic_heads=4)


# --- the estimate ------------------------------------------------------------------------


def rollout(seed: int, shape: tuple[int, ...], heads: int) -> tuple[Any, Any, Any, Any, Any]:
    generator = np.random.default_rng(seed)
    reward = generator.normal(size=shape).astype(np.float32)
    value, next_value = generator.normal(size=(2, *shape, heads)).astype(np.float32)
    terminated = generator.random(shape) < 0.05
    done = terminated | (generator.random(shape) < 0.05)
    return reward, value, next_value, terminated, done


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("heads", [1, 3])
def test_mixture_ugae_is_a_double_loop_for_every_head(lam: float, heads: int) -> None:
    rates, weights = np.array([[0.99, 0.5, 0.0], [0.6, 0.3, 0.1]], np.float32)[:, :heads]
    reward, value, next_value, terminated, done = rollout(0, (48, 2), heads)
    advantage, target = jax.jit(mixture_ugae)(rates, weights, lam, reward, value, next_value, terminated, done)
    for column in range(2):
        total = np.zeros(48)
        for k, rate in enumerate(rates.astype(np.float64)):
            row = (
                reward[:, column],
                value[:, column, k],
                next_value[:, column, k],
                terminated[:, column],
                done[:, column],
            )
            one, goal = reference.ugae(reference.curve("exp", 48, gamma=rate), float(np.float32(lam)), *row)
            np.testing.assert_allclose(target[:, column, k], goal, rtol=1e-5, atol=1e-5)
            total += float(weights[k]) * one
        np.testing.assert_allclose(advantage[:, column], total, rtol=1e-5, atol=1e-5)


def test_heads_of_one_rate_are_gae() -> None:
    reward, value, next_value, terminated, done = rollout(1, (32, 3), 1)
    twice, next_twice = (np.repeat(x, 2, axis=-1) for x in (value, next_value))
    mixed, _ = mixture_ugae([0.9, 0.9], [0.25, 0.75], 0.95, reward, twice, next_twice, terminated, done)
    plain, _ = jaxrl.gae(0.9, 0.95, reward, value[..., 0], next_value[..., 0], terminated, done)
    np.testing.assert_allclose(mixed, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"weights": [1.0]}, r"^rates and weights must both be \[K\], got the shapes \(2,\) and \(1,\)\.$"),
        ({"value": np.zeros((4, 3))}, r"^value must have reward's shape \(4, 2\), got \(4, 3\)\.$"),
        ({"lam": 1.5}, r"^lam must lie in \[0, 1\], got 1\.5\.$"),
        ({"done": np.zeros(4)}, r"^done must be bool, got float"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_arguments_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {
        "rates": [0.9, 0.5],
        "weights": [0.5, 0.5],
        "lam": 0.9,
        "reward": np.zeros(4),
        "value": np.zeros((4, 2)),
        "next_value": np.zeros((4, 2)),
        "terminated": np.zeros(4, bool),
        "done": np.zeros(4, bool),
    }
    with pytest.raises(ValueError, match=sentence):
        mixture_ugae(**(good | changes))


# --- the critic --------------------------------------------------------------------------


@pytest.mark.slow
def test_an_exponential_gives_the_mixture_critic_the_single_ones_estimates_and_loss() -> None:
    reward, value, next_value, terminated, done = rollout(2, (32, 3), 4)
    single, mixture = single_critic(), mixture_critic(4)
    plain, padded = single.prepare(0.9, 32, None), mixture.prepare(0.9, 32, None)
    used = int(np.argmax(padded.weights))
    advantage, target = mixture.estimate(padded, 0.95, reward, value, next_value, terminated, done)
    exact = single.estimate(plain, 0.95, reward, value[..., used], next_value[..., used], terminated, done)
    np.testing.assert_allclose(advantage, exact[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target[..., used], exact[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mixture.whole(padded, jnp.asarray(value)), value[..., used], rtol=1e-5)
    weight = np.asarray(done, np.float32) + 0.5
    old, goal = value + 0.3, value - 0.7
    for clip in (0.2, np.inf):
        loss = mixture.loss(padded, value, old, goal, weight, clip)
        expected = single.loss(plain, *(x[..., used] for x in (value, old, goal)), weight, clip)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_heads_have_the_size_of_their_horizons() -> None:
    discount = mixture_critic(4).prepare("hyperbolic:k=0.02", 64, None)
    horizons = [sum(float(rate) ** t for t in range(64)) for rate in discount.rates]
    exact = np.array(horizons) / np.dot(discount.weights, horizons)
    assert exact.max() > 2 * exact.min()
    # Sums of at most 64 powers of up to the 63rd degree, in float32.
    np.testing.assert_allclose(head_sizes(discount), exact, rtol=2 * 64 * float(np.finfo(np.float32).eps))


def test_the_loss_bounds_the_squared_error_of_the_whole_value() -> None:
    critic = mixture_critic(8)
    discount = critic.prepare("hyperbolic:k=0.02", 64, None)
    generator = np.random.default_rng(3)
    value, target = generator.normal(size=(2, 50, 8)).astype(np.float32)
    for row in range(50):
        of_row: list[Any] = [jnp.asarray(x[row : row + 1]) for x in (value, value, target)]
        bound = float(critic.loss(discount, *of_row, jnp.ones(1), np.inf))
        error = float(critic.whole(discount, of_row[0])[0] - critic.whole(discount, of_row[2])[0])
        assert 0.5 * error**2 <= bound * (1 + 1e-5)
    # With equal errors in these units the bound is attained.
    alike = critic.loss(discount, value + 0.5, value + 0.5, value, jnp.ones(50), np.inf)
    np.testing.assert_allclose(alike, 0.5 * 0.25, rtol=1e-5)


def test_values_are_clipped_head_by_head() -> None:
    critic = mixture_critic(2)
    discount = critic.prepare("quasi:beta=0.5,gamma=0.9", 16, None)
    old, target = jnp.zeros((1, 2)), jnp.asarray([[1.0, 1.0]])
    slope = jax.grad(lambda value: critic.loss(discount, value, old, target, jnp.ones(1), 0.2))
    inside, outside = slope(jnp.full((1, 2), 0.1)), slope(jnp.asarray([[0.1, 0.5]]))
    assert np.all(np.asarray(inside) < 0)
    np.testing.assert_array_equal(np.asarray(outside)[0, 1], 0.0)  # moved beyond its clip
    np.testing.assert_array_equal(outside[0, 0], inside[0, 0])  # the other one did not move


# --- PPO with it -------------------------------------------------------------------------


def values_of(env: Any, config: Any, discounts: list[str], lam: float, iterations: int = 300) -> np.ndarray:
    """`[discounts, states]`: the values to which training converges, of the states that a probe lists."""
    algo = jaxrl.ppo(env, config)
    base = dataclasses.replace(
        algo.hparams, lr=1e-2, lr_end=0.0, anneal_env_steps=float(iterations * 256), entropy_coef=0.0, lam=lam
    )
    hparams = algo.prepare(jaxrl.grid(base, {"discount": discounts}).hparams)
    loop, env_params = make_loop(algo, eval_episodes=1), jax.tree.map(jnp.asarray, env.default_params)
    mixture = config.critic == "mixture"
    critic = mixture_critic(config.critic_heads) if mixture else single_critic()
    network = MLPActorCritic(2, config.hidden, num_values=config.critic_heads if mixture else None)
    apply: Any = network.apply

    @jax.jit
    @jax.vmap
    def run(hparams: Any) -> Any:
        key = jax.random.key(0)
        last = loop.advance(loop.init(key, hparams, env_params), key, hparams, env_params, 0, iterations)
        params = last.state.weights[0]
        values = jax.vmap(apply, in_axes=(None, 0))(params, jnp.asarray(env.observations()))[1]
        return critic.whole(hparams.discount, values)

    return np.asarray(run(hparams))


PROBE = jaxrl.PPOConfig(num_envs=8, num_steps=32, hidden=(16,))
PROBE_MIXTURE = dataclasses.replace(PROBE, critic="mixture")


@pytest.mark.slow
def test_the_mixture_critic_reaches_the_discounted_sum_at_a_lam_at_which_one_critic_does_not() -> None:
    env: Any = envs.make("probe/delayed-reward", delay=5)
    discounts = ["hyperbolic:k=0.5", "beta:mu=0.8,eta=0.5", "quasi:beta=0.6,gamma=0.9"]
    curves = [np.asarray(jaxrl.as_discount(discount).curve(100)) for discount in discounts]
    true = np.asarray([env.values(curve, 1.0) for curve in curves])
    np.testing.assert_allclose(values_of(env, PROBE_MIXTURE, discounts, lam=0.5), true, rtol=0.02)
    settled = np.asarray([env.values(curve, 0.5) for curve in curves])
    # One critic is still moving by a few per cent where the chain begins, far from the tenth and more that it is off.
    np.testing.assert_allclose(values_of(env, PROBE, discounts, lam=0.5), settled, rtol=0.05)
    assert np.all(np.abs(settled[:, 0] / true[:, 0] - 1) > 0.1)


@pytest.mark.slow
def test_the_mixture_critic_sums_to_infinity_across_time_limits() -> None:
    env: Any = envs.make("probe/only-truncates", steps=3)
    quasi = "quasi:beta=0.5,gamma=0.9"
    # 1 + .5 (.9 + .81 + ...) in every state; one critic restarts the clock and with it the first step's drop.
    mixture = values_of(env, PROBE_MIXTURE, [quasi], lam=0.9)
    np.testing.assert_allclose(mixture, np.full((1, 3), 1 + 0.5 * 0.9 / 0.1), rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("time_limits", ["bootstrap", "terminal"])
def test_time_limits_bootstrap_or_are_ends(time_limits: Any) -> None:
    env: Any = envs.make("probe/only-truncates", steps=3)
    discounts = ["exp:gamma=0.9", "hyperbolic:k=0.5"]
    actual = values_of(env, dataclasses.replace(PROBE, time_limits=time_limits), discounts, lam=0.95)
    for row, discount in zip(actual, discounts, strict=True):
        curve = np.asarray(jaxrl.as_discount(discount).curve(100))
        expected = chain_values(np.ones(3), curve, 0.95, truncated=time_limits == "bootstrap")
        np.testing.assert_allclose(row, expected, rtol=0.01)


@pytest.mark.slow
def test_the_laws_hold_with_a_mixture_critic() -> None:
    jaxrl.check(jaxrl.ppo(envs.make("cartpole"), MIXTURE))


@pytest.mark.slow
def test_the_laws_hold_with_a_mixture_critic_that_takes_limits_for_ends_and_sees_the_time() -> None:
    normalised = dataclasses.replace(MIXTURE, normalise_observation=True, normalise_reward=True, shared_trunk=True)
    env = time_feature(envs.make("pendulum"))
    jaxrl.check(jaxrl.ppo(env, dataclasses.replace(normalised, time_limits="terminal")))


def trained(config: Any, discount: Any) -> jaxrl.Result:
    algo = jaxrl.ppo(envs.make("cartpole"), config)
    hparams = (
        algo.hparams.replace(discount=jaxrl.as_discount(discount)) if isinstance(discount, str) else discount(algo)
    )
    return jaxrl.train(algo, hparams, seeds=1, env_steps=3 * 32, evals=1, eval_episodes=2, progress=False)


@pytest.mark.slow
def test_every_field_of_the_critic_matters() -> None:
    kernels = [
        trained(config, "hyperbolic:k=0.1").policies.params["params"]["actor_0"]["kernel"]
        for config in (TINY, MIXTURE, dataclasses.replace(MIXTURE, critic_heads=2))
    ]
    assert not np.array_equal(kernels[0], kernels[1])
    assert not np.array_equal(kernels[1], kernels[2])


@pytest.mark.slow
def test_families_sweep_in_one_program_with_a_mixture_critic() -> None:
    discounts = ["0.9", "quasi:beta=0.9,gamma=0.99", "hyperbolic:k=0.1", "beta:mu=0.98,eta=0.5"]
    together = trained(MIXTURE, lambda algo: jaxrl.grid(algo.hparams, {"discount": discounts}))
    for row, discount in enumerate(discounts):
        alone = trained(MIXTURE, discount)
        for many, one in zip(jax.tree.leaves(together.policies), jax.tree.leaves(alone.policies), strict=True):
            # lr = 2.5e-4 moves a weight that much a minibatch, 12 of them; rounding of nodes moves it less.
            np.testing.assert_allclose(many[row], one[0], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_make_train_takes_prepared_settings_and_refuses_a_traced_curve() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), MIXTURE)
    program = jax.jit(jaxrl.make_train(algo, env_steps=32, evals=1, eval_episodes=2))
    hparams = algo.hparams.replace(discount=jaxrl.as_discount("beta:mu=0.98,eta=0.5"))
    returned = program(jax.random.key(0), algo.prepare(hparams)).metrics["return"]
    assert np.isfinite(returned).all()
    with pytest.raises(
        ValueError, match=r"prepare it before tracing, by algo\.prepare\(hparams\), or use more critic_heads"
    ):
        program(jax.random.key(0), hparams)


# --- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize("discount", ["fixed:horizon=10", "table:1,0.5", "truncated:horizon=9,inner=(exp:gamma=0.5)"])
def test_a_discount_that_is_no_mixture_is_named(discount: str) -> None:
    name = str(jaxrl.as_discount(discount)).replace("(", r"\(").replace(")", r"\)")
    sentence = rf"^critic='mixture' takes a discount that is a mixture of exponentials, which {name} is not; use"
    with pytest.raises(ValueError, match=sentence):
        trained(MIXTURE, discount)
    with pytest.raises(ValueError, match=r"which the discount of setting 1 is not"):
        trained(MIXTURE, lambda algo: jaxrl.grid(algo.hparams, {"discount": ["0.9", discount]}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"critic": "double"}, r"^critic must be one of single, mixture, got 'double'$"),
        ({"critic_heads": 0}, r"^critic_heads must be a whole number of at least 1, got 0$"),
        ({"critic_heads": 4}, r"^critic_heads has no effect with critic='single', got 4; leave it out$"),
        ({"time_limits": "ignore"}, r"^time_limits must be one of bootstrap, terminal, got 'ignore'$"),
    ],
)
def test_bad_configurations_get_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        jaxrl.PPOConfig(**changes)


class Own(nn.Module):
    """A linear actor and a critic of some values."""

    num_values: int | None

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = nn.Dense(self.num_values or 1)(obs)
        return nn.Dense(2)(obs), values if self.num_values else values[0]


@pytest.mark.slow
def test_a_network_of_ones_own_gives_a_value_for_each_head() -> None:
    env = envs.make("cartpole")
    algo = jaxrl.ppo(env, dataclasses.replace(MIXTURE, hidden=jaxrl.PPOConfig().hidden), Own(4))
    result = jaxrl.train(algo, env_steps=32, evals=1, eval_episodes=2, progress=False)
    assert np.isfinite(result.metrics["return"]).all()
    expected = (
        r"^network must return \(outputs \[2\], values \[4\], one for each head of the mixture critic\) for one obs"
    )
    for values, got in ((None, r"\(\)"), (3, r"\(3,\)")):
        with pytest.raises(ValueError, match=expected + rf".* got shapes \(2,\) and {got}$"):
            jaxrl.ppo(env, MIXTURE, Own(values))
    with pytest.raises(ValueError, match=r"value \[\]\) for one observation, got shapes \(2,\) and \(4,\)$"):
        jaxrl.ppo(env, TINY, Own(4))
