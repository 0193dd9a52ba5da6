"""PQN: its laws, its targets on rollouts against loops in float64, its schedules, and its errors."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_values import PROBES, values_after
from quick_jit import quick_jit

import envs
import jaxrl
from envs.wrappers import discretise_actions
from jaxrl.algorithms.registry import ROWS, default_space
from jaxrl.discounts.mixtures import head_sizes
from jaxrl.learning.rollout import rollout

SMALL: dict[str, Any] = dict(ROWS["pqn"].small)
VARIANTS: dict[str, dict[str, Any]] = {
    "joint heads": {"heads": "joint", "num_heads": 3, "value_loss": "huber", "dueling": True},
    "own heads of histograms": {"heads": "own", "num_heads": 3, "value_loss": "hl-gauss", "num_atoms": 7},
    "everything else": {"normalise_observation": True, "time_limits": "terminal", "layer_norm": False},
}


def small(env: Any = None, **fields: Any) -> Any:
    return jaxrl.pqn(envs.make("cartpole") if env is None else env, jaxrl.PQNConfig(**SMALL | fields))


@pytest.mark.slow
def test_the_laws_hold() -> None:
    jaxrl.check(small())


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_the_laws_hold_of_every_setting(name: str) -> None:
    jaxrl.check(small(**VARIANTS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("heads", ["single", "own"])
def test_the_laws_hold_of_a_crowd_that_shares_its_network(heads: str) -> None:
    jaxrl.check(small(agents.Crowd(num_agents=3, masked=True), heads=heads, num_minibatches=3))


@pytest.mark.slow
def test_the_laws_hold_of_discretised_actions() -> None:
    jaxrl.check(small(discretise_actions(envs.make("pendulum"), 3)))


@dataclasses.dataclass(frozen=True)
class Masked(type(envs.make("cartpole"))):
    """Cart-pole whose cart is pushed only towards the middle."""

    def action_mask(self, state: Any, params: Any) -> Any:
        right = state.x > 0
        return jnp.stack([right, ~right], axis=-1)


def one_iteration(algo: Any, hparams: Any) -> tuple[Any, Any, Any, Any]:
    """The policy and the steps of the first iteration, its state afterwards and its metrics."""
    params = algo.env.default_params.replace(gravity=30.0, max_steps_in_episode=12)  # falls, and time limits
    key = jax.random.key(3)
    state = algo.init(jax.random.key(0), hparams, params)
    policy = algo.policy(state, hparams)
    noise_key, env_key = jax.random.split(jax.random.split(key)[0])
    noise = algo.actor.noise(noise_key, (algo.config.num_steps, algo.config.num_envs))
    _, steps, _ = rollout(
        algo.env, params, algo.actor, policy, env_key, state.carry, noise, algo.config.reset_pool, with_next_mask=True
    )
    state, metrics = algo.step(key, jnp.int32(0), state, hparams, params)
    return policy, steps, state, metrics


def exact_targets(policy: Any, steps: Any, hparams: Any, values: Any, heads: str, terminal: bool) -> np.ndarray:
    """Targets `[T, N, K]` of a rollout by loops over steps and n-step returns, from values `[T, N, A, K]` after steps.

    Values at rate k are `sizes[k]` times the network's outputs.
    """
    rates, weights = np.asarray(hparams.discount.rates, np.float64), np.asarray(hparams.discount.weights, np.float64)
    sizes, shares = np.asarray(head_sizes(hparams.discount), np.float64), np.asarray(policy.acting.shares, np.float64)
    np.testing.assert_allclose(shares, weights * sizes, rtol=1e-5)
    num_steps, num_envs = steps.reward.shape
    done = steps.terminated | steps.truncated
    target = np.zeros((num_steps, num_envs, len(rates)))
    for t, i, k in itertools.product(range(num_steps), range(num_envs), range(len(rates))):
        end = next((j for j in range(t, num_steps) if done[j, i]), num_steps - 1)
        for last in range(t, end + 1):
            n = last - t + 1
            n_step = sum(rates[k] ** j * float(steps.reward[t + j, i]) for j in range(n)) / sizes[k]
            if not (done[last, i] if terminal else steps.terminated[last, i]):
                allowed = np.flatnonzero(steps.next_mask[last, i])
                judged = values[last, i, :, k] if heads == "own" else values[last, i] @ shares
                best = allowed[np.argmax(judged[allowed])]
                n_step += rates[k] ** n * values[last, i, best, k]
            lam = float(hparams.lam)
            target[t, i, k] += (lam ** (n - 1) if last == end else (1 - lam) * lam ** (n - 1)) * n_step
    return target


@pytest.mark.slow_rows("own heads, terminal")
@pytest.mark.parametrize(
    ("fields", "discount"),
    [({}, "0.9"), ({"heads": "own", "num_heads": 7, "time_limits": "terminal"}, "hyperbolic:0.1")],
    ids=["one rate, bootstrapping", "own heads, terminal"],
)
def test_an_iteration_obeys_masks_and_learns_the_targets_of_a_loop(fields: dict[str, Any], discount: str) -> None:
    sizes = {"num_envs": 4, "num_steps": 32, "num_epochs": 1, "num_minibatches": 1}
    algo = small(Masked(), **sizes, **fields)
    hparams = algo.prepare(dataclasses.replace(algo.hparams, lam=0.65, discount=discount))
    policy, steps, state, metrics = quick_jit(lambda: one_iteration(algo, hparams))()
    steps = jax.tree.map(np.asarray, steps)
    assert steps.terminated.any() and steps.truncated.any() and not steps.mask.all()
    assert np.take_along_axis(steps.mask, steps.raw_action[..., None], axis=-1).all()
    greedy = algo.actor.choose(None, algo.actor.scores(policy, (), steps.obs, None)[0], (), True, steps.mask)[0]
    np.testing.assert_array_equal(greedy, np.argmax(steps.mask, axis=-1))  # one action is allowed
    before, after = (heads_of(algo, policy, obs) for obs in (steps.obs, steps.next_obs))
    target = exact_targets(policy, steps, hparams, after, algo.config.heads, algo.config.time_limits == "terminal")
    taken = np.take_along_axis(before, steps.raw_action[..., None, None], axis=2)[:, :, 0]
    shares = np.asarray(policy.acting.shares, np.float64)
    error = target - taken
    # Sums of 32 rewards of 1, each after some roundings, in a mean over the samples.
    np.testing.assert_allclose(metrics["q_error"], np.abs(error @ shares).mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], (0.5 * error**2 @ shares).mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["q"], (taken @ shares).mean(), rtol=1e-4, atol=1e-6)
    assert np.any(vector(state.acting.params) != vector(policy.acting.params))


def heads_of(algo: Any, policy: Any, obs: Any) -> np.ndarray:
    """Values of every head `[T, N, A, K]`, by policies that each use a single head."""
    count = policy.acting.shares.shape[0]
    alone = [policy._replace(acting=policy.acting._replace(shares=row)) for row in jnp.eye(count)]
    return np.stack([algo.actor.scores(one, (), obs, None)[0]["q"] for one in alone], axis=-1).astype(np.float64)


def vector(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.slow
def test_epsilon_and_step_size_fall_over_environment_steps() -> None:
    algo = small(num_epochs=1)
    changes = {"epsilon_start": 0.9, "epsilon_end": 0.1, "epsilon_anneal_env_steps": 64.0, "lr": 1e-3, "lr_end": 0.0}
    hparams = algo.prepare(dataclasses.replace(algo.hparams, **changes), run_length=128)
    assert hparams.anneal_env_steps == 128
    params, key = algo.env.default_params, jax.random.key(0)
    state, step = jax.jit(algo.init)(key, hparams, params), jax.jit(algo.step)
    epsilon, lr = [], []
    for iteration in range(5):  # of 32 steps
        state, metrics = step(jax.random.fold_in(key, iteration), jnp.int32(iteration), state, hparams, params)
        epsilon.append(metrics["epsilon"])
        lr.append(metrics["learning_rate"])
    np.testing.assert_allclose(epsilon, [0.9, 0.5, 0.1, 0.1, 0.1], rtol=1e-6)
    np.testing.assert_allclose(lr, [1e-3, 7.5e-4, 5e-4, 2.5e-4, 0.0], rtol=1e-6)
    assert algo.stopped(hparams, 128) == "its step size fell to its least value within 128 env steps (lr_end=0)"


def test_an_agent_that_outlives_the_episode_has_a_value_at_its_end() -> None:
    """Without a time limit within the rollout, both treatments of time limits are the same."""

    def learned(time_limits: str) -> Any:
        algo = small(agents.Outlived(), num_epochs=1, time_limits=time_limits)
        hparams, params, key = algo.prepare(algo.hparams), algo.env.default_params, jax.random.key(0)
        state = quick_jit(algo.init)(key, hparams, params)
        return quick_jit(algo.step)(key, jnp.int32(0), state, hparams, params)

    jax.tree.map(np.testing.assert_array_equal, learned("terminal"), learned("bootstrap"))


@pytest.mark.slow
def test_a_crowd_learns_the_optimum_of_every_agent() -> None:
    """Agent i earns (i + 1) * action at each of i + 2 steps; the largest action is 2."""
    algo = small(agents.Crowd(num_agents=2), num_envs=8, num_epochs=4, hidden=(32,))
    fast = dataclasses.replace(
        algo.hparams, lr=3e-3, discount=0.9, lam=0.5, epsilon_end=0.2, epsilon_anneal_env_steps=5000.0
    )
    result = jaxrl.train(
        algo._replace(hparams=fast), seeds=2, env_steps=128 * 200, evals=1, eval_episodes=2, progress=False
    )
    np.testing.assert_allclose(result.values("return")[..., -1], np.mean([2 * (i + 1) * (i + 2) for i in range(2)]))


@pytest.mark.slow
@pytest.mark.parametrize(("fields", "discount"), [({}, "0.9"), ({"heads": "joint"}, "hyperbolic:0.1")])
@pytest.mark.parametrize(("name", "static"), PROBES, ids=lambda value: str(value))
def test_it_reaches_the_value_of_each_probe(name: str, static: dict[str, int], fields: Any, discount: str) -> None:
    env: Any = envs.make(f"probe/{name}", **static)
    q = values_learned(env, discount, **fields)
    exact = env.values(np.asarray(jaxrl.as_discount(discount).curve(100)), 1.0)
    np.testing.assert_allclose(q.max(-1), exact, rtol=0.02, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("time_limits", "exact"), [("bootstrap", [10.0, 10.0, 10.0]), ("terminal", [2.71, 1.9, 1.0])])
def test_a_time_limit_is_an_end_only_if_configured(time_limits: str, exact: list[float]) -> None:
    q = values_learned(envs.make("probe/only-truncates", steps=3), "0.9", time_limits=time_limits)
    np.testing.assert_allclose(q.max(-1), exact, rtol=0.02)


def values_learned(env: Any, discount: str, **fields: Any) -> np.ndarray:
    """The action values of a probe's observations after a short run."""
    algo = small(env, num_envs=8, hidden=(16,), num_epochs=4, **fields)
    hparams = dataclasses.replace(
        algo.hparams, lr=3e-3, discount=discount, epsilon_end=0.1, epsilon_anneal_env_steps=5000.0, lr_end=0.0
    )
    iterations = 600
    prepared = algo.prepare(hparams, run_length=iterations * algo.env_steps_per_iteration)
    return values_after(algo, prepared, iterations)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    (
        {"value_loss": "quantile"},
        "value_loss takes 'squared', 'huber' or 'hl-gauss', since a lambda-return is a number, got 'quantile'",
    ),
    ({"num_atoms": 7}, "num_atoms has no effect with value_loss='squared', got 7; leave it out"),
    ({"num_heads": 3}, "num_heads has no effect with heads='single', got 3"),
    ({"num_epochs": 0}, "num_epochs"),
    ({"shared_trunk": True}, "shared_trunk must be False in PQNConfig"),
]


@pytest.mark.parametrize(("fields", "sentence"), REFUSALS, ids=[sentence[:30] for _, sentence in REFUSALS])
def test_an_invalid_configuration_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        jaxrl.PQNConfig(**SMALL | fields)
    assert len(str(caught.value).splitlines()) == 1


def test_an_environment_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pqn takes an environment of discrete actions .*, got Box"):
        small(envs.make("pendulum"))
    with pytest.raises(ValueError, match=r"num_minibatches must divide the 32 samples of an iteration .*, got 3"):
        small(num_minibatches=3)
    with pytest.raises(ValueError, match=r"at most 2,147,483,647 samples of an iteration, .* got 2,147,483,648"):
        small(num_envs=2**16, num_steps=2**15)


@pytest.mark.parametrize(
    ("heads", "discount", "sentence"),
    [
        ("single", "hyperbolic:0.1", "heads='single' takes an exponential discount, which hyperbolic:k=0.1 is not"),
        ("joint", "fixed:10", "discount must be a mixture of exponentials.* and fixed:horizon=10 is not"),
    ],
)
def test_a_discount_without_a_mixture_is_refused(heads: str, discount: str, sentence: str) -> None:
    algo = small(heads=heads)
    with pytest.raises(ValueError, match=sentence):
        algo.prepare(dataclasses.replace(algo.hparams, discount=discount))


def test_a_search_has_a_default_space() -> None:
    assert set(default_space(small())) >= {"lr", "lam", "epsilon_end", "discount"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the 3 exponentials")  # enough of them for a comparison bit for bit
def test_it_resumes_bit_for_bit_and_exports_its_values(tmp_path: Path) -> None:
    algo = small(heads="joint", num_heads=3, normalise_observation=True)
    sweep = jaxrl.grid(algo.hparams, {"discount": ["0.9", "hyperbolic:0.1"]})
    run: dict[str, Any] = {"seeds": 2, "evals": 2, "eval_episodes": 2, "progress": False}
    whole = jaxrl.train(algo, sweep, env_steps=160, out=tmp_path / "whole", **run)
    often = jaxrl.train(algo, sweep, env_steps=160, out=tmp_path / "often", checkpoint_minutes=1e-9, **run)
    for name in map(str, whole.metrics.data_vars):
        np.testing.assert_array_equal(often.values(name), whole.values(name), err_msg=name)
    policy = whole.policy(seed=0, discount="0.9")
    jaxrl.export_policy(policy, tmp_path / "policy.stablehlo")
    obs = np.zeros((3, 4), np.float32)
    loaded = jaxrl.load_exported(tmp_path / "policy.stablehlo")
    np.testing.assert_array_equal(loaded(obs), policy(obs))
