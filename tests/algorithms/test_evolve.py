"""Evolution: whole episodes against a loop, a strategy against NumPy, its laws, and where it refuses."""

import dataclasses
import sys
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.flatten_util import ravel_pytree

import envs
import jaxrl
from envs.base import Environment, EnvParams, EnvState, spaces
from jaxrl.algorithms.registry import ROWS
from jaxrl.algorithms.strategies import make_strategy, strategy_names
from jaxrl.learning.episodes import population_episodes
from jaxrl.learning.normalisation import init_statistics

pytest.importorskip("evosax", reason="the extra evolution")

EPS = float(np.finfo(np.float32).eps)
SMALL: dict[str, Any] = dict(ROWS["evolve"].small)


def small(env: Any = None, **fields: Any) -> Any:
    return jaxrl.evolve(envs.make("cartpole") if env is None else env, jaxrl.EvolveConfig(**SMALL | fields))


@struct.dataclass
class AimParams(EnvParams):
    max_steps_in_episode: int = 1


@dataclasses.dataclass(frozen=True)
class Aim(Environment):
    """One step, whose reward is minus the squared distance of the action to 0.3."""

    @property
    def name(self) -> str:
        return "aim"

    @property
    def default_params(self) -> AimParams:
        return AimParams()

    def reset_env(self, key: Any, params: Any) -> Any:
        del key, params
        return jnp.array([1.0, -0.5]), EnvState(time=jnp.int32(0))

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        del key, params
        reward = -jnp.sum(jnp.square(action - 0.3))
        state = state.replace(time=state.time + 1)
        return jnp.array([1.0, -0.5]), state, reward, jnp.bool_(True), {}

    def observation_space(self, params: Any) -> spaces.Box:
        del params
        return spaces.Box(-1.0, 1.0, (2,), jnp.float32)

    def action_space(self, params: Any = None) -> spaces.Box:
        del params
        return spaces.Box(-1.0, 1.0, (1,), jnp.float32)


@pytest.mark.parametrize("fields", [{}, {"memory": "gru", "memory_size": 4, "memory_hidden": (4,)}], ids=["", "gru"])
def test_actions_that_are_numbers_have_no_density(fields: dict[str, Any]) -> None:
    assert small(envs.make("pendulum"), **fields).actor.log_prob is None
    assert small(envs.make("cartpole"), **fields).actor.log_prob is not None


@pytest.mark.slow
def test_the_laws_hold() -> None:
    jaxrl.check(small())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "fields"),
    [
        # Returns of CartPole are counts: a rounding that turns one action changes the order of members by whole steps.
        ("pendulum", {"strategy": "simple-ga", "normalise_observation": True}),
        ("pendulum", {"strategy": "snes", "common_random_numbers": True, "num_episodes": 2}),
        ("pendulum", {"strategy": "cma-es", "hidden": ()}),
        ("cartpole", {"strategy": "pgpe", "memory": "gru", "memory_size": 4, "memory_hidden": (4,)}),
    ],
    ids=["genetic, normalised", "snes, common random numbers", "cma-es", "pgpe, gru"],
)
def test_the_laws_hold_of_other_settings(env: str, fields: dict[str, Any]) -> None:
    jaxrl.check(small(envs.make(env), **fields))


@pytest.mark.slow
def test_the_laws_hold_of_a_crowd_that_shares_its_network() -> None:
    jaxrl.check(small(agents.Crowd(num_agents=3, masked=True)))


def test_open_es_agrees_with_numpy_generation_by_generation() -> None:
    size, generations, std, lr = 32, 6, 0.05, 0.02
    algo = small(Aim(), population_size=size, hidden=())
    hparams = algo.prepare(dataclasses.replace(algo.hparams, std=std, lr=lr))
    key, params = jax.random.key(3), algo.env.default_params
    state = algo.init(key, hparams, params)
    step = jax.jit(algo.step)

    def flat(params: Any) -> np.ndarray:
        return np.asarray(ravel_pytree(params)[0], np.float64)

    mean = flat(algo.policy(state, hparams).params)
    # Leaves in alphabetical order: the bias, then the two weights.
    first, second, features = np.zeros(3), np.zeros(3), np.array([1.0, 1.0, -0.5])
    for generation in range(1, generations + 1):
        key, step_key = jax.random.split(key)
        half = np.asarray(jax.random.normal(jax.random.split(step_key, 3)[0], (size // 2, 3)), np.float64)
        noise = np.concatenate([half, -half])
        action = np.clip((mean + std * noise) @ features, -1, 1)
        cost = (action - 0.3) ** 2
        ranks = np.argsort(np.argsort(cost)) / (size - 1) - 0.5
        gradient = ranks @ noise / (size * std)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        corrected = first / (1 - 0.9**generation), second / (1 - 0.999**generation)
        mean = mean - lr * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
        state, metrics = step(step_key, jnp.int32(generation - 1), state, hparams, params)
        # Some ten roundings of numbers below 1 in each generation.
        allowed = 10 * generation * EPS
        np.testing.assert_allclose(flat(algo.policy(state, hparams).params), mean, rtol=0, atol=allowed)
        np.testing.assert_allclose(metrics["population_return"], -cost.mean(), rtol=0, atol=allowed)


@pytest.mark.slow
def test_episodes_of_a_population_are_those_of_a_loop_over_single_steps() -> None:
    discount = jaxrl.as_discount("hyperbolic:k=0.1")
    algo = small(normalise_observation=True)
    hparams = algo.prepare(dataclasses.replace(algo.hparams, discount=discount))
    env, params = algo.env, algo.env.default_params.replace(max_steps_in_episode=30)
    keys = jax.random.split(jax.random.key(1), (3, 2))
    policy = algo.policy(algo.init(jax.random.key(0), hparams, params), hparams)
    policies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, *leaf.shape)), policy)
    shift = jax.random.normal(jax.random.key(2), (3, 1, 1))
    moved = jax.tree.map(lambda leaf: leaf + shift.reshape(3, *[1] * (leaf.ndim - 1)), policies.params)
    policies = policies._replace(params=moved)
    before = init_statistics(jax.ShapeDtypeStruct((4,), jnp.float32))
    run = jax.jit(
        lambda: population_episodes(env, params, algo.actor, policies, keys, hparams.discount.next_weight, before)
    )
    episodes = run()
    curve, returns, lengths, seen = np.asarray(discount.curve(30), np.float64), np.zeros((3, 2)), [], []
    for i in range(3):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], policies)
        for j in range(2):
            first_key, step_key = jax.random.split(keys[i, j])
            obs, state = env.reset_env(first_key, params)
            for t in range(30):
                seen.append(np.asarray(obs, np.float64))
                scores, _ = algo.actor.scores(one, (), obs, None)
                action = algo.actor.choose(None, scores, (), True, None)[0]
                obs, state, reward, terminated, _ = env.step_env(jax.random.fold_in(step_key, t), state, action, params)
                returns[i, j] += curve[t] * float(reward)
                if terminated:
                    break
            lengths.append(t + 1)
    assert len(set(lengths)) > 1, "some episode ends before another"
    np.testing.assert_allclose(episodes.returns, returns.mean(1), rtol=30 * EPS)
    assert episodes.length == np.float32(np.mean(lengths))
    assert episodes.observations is not None
    assert episodes.observations.count == len(seen)
    tolerance = {"rtol": 0, "atol": 30 * EPS * np.abs(seen).max()}
    np.testing.assert_allclose(episodes.observations.mean, np.mean(seen, axis=0), **tolerance)


@pytest.mark.slow_rows("True")
@pytest.mark.parametrize("common", [True, False])
def test_common_random_numbers_give_equal_policies_equal_returns(common: bool) -> None:
    algo = small(envs.make("pendulum"), common_random_numbers=common)
    hparams = algo.prepare(dataclasses.replace(algo.hparams, std=1e-30))  # lost in rounding: all policies are equal
    params = algo.env.default_params.replace(max_steps_in_episode=5)
    key = jax.random.key(0)
    _, metrics = jax.jit(algo.step)(key, jnp.int32(0), algo.init(key, hparams, params), hparams, params)
    spread = float(metrics["population_return_max"] - metrics["population_return"])
    assert spread > 0.1 if not common else spread < 1e-4 * abs(float(metrics["population_return"]))


QUICK = ("open-es", "simple-ga", "snes")
STRATEGIES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in strategy_names()]


@pytest.mark.slow_rows("simple-ga")
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_warm_start_moves_the_strategy_to_the_policy(name: str) -> None:
    size = 6 if name == "lm-ma-es" else 16  # it takes at most two members for each of the three parameters
    algo = small(Aim(), strategy=name, population_size=size, hidden=())
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params

    @jax.jit
    def run(key: jax.Array) -> Any:
        state = algo.init(key, hparams, params)
        policy = algo.policy(state, hparams)
        # So that every action is cut to -1: a return of -(1 + 0.3)^2, unless the members are still near the start.
        policy = policy._replace(params=jax.tree.map(lambda leaf: jnp.full_like(leaf, -50.0), policy.params))
        assert algo.warm_start is not None
        state = algo.warm_start(state, policy)
        return policy, algo.policy(state, hparams), algo.step(key, jnp.int32(0), state, hparams, params)[1]

    expected, actual, metrics = run(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    np.testing.assert_allclose(metrics["population_return"], -1.69, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_maximises(name: str) -> None:
    size, generations = (16 if name == "lm-ma-es" else 32), 150  # at most two for each of the eight parameters
    start = {"matrix": jnp.zeros((3, 2)), "vector": jnp.zeros(2)}
    strategy = make_strategy(name, size, start)
    algo = small()
    hparams = dataclasses.replace(algo.hparams, lr=1.0 if strategy.natural else 0.05, std=0.3)

    def score(params: Any) -> jax.Array:
        return -jnp.sum((params["matrix"] - 1) ** 2) - jnp.sum((params["vector"] + 1) ** 2)

    def run(key: jax.Array) -> jax.Array:
        first = jax.tree.map(lambda leaf: 0.3 * jax.random.normal(key, (size, *leaf.shape)), start)
        evaluated = (first, jax.vmap(score)(first)) if strategy.evaluates_first else (None, None)
        state = strategy.init(key, start, *evaluated, hparams)

        def generation(state: Any, key: jax.Array) -> tuple[Any, None]:
            population, state = strategy.ask(key, state, hparams)
            return strategy.tell(key, population, jax.vmap(score)(population), state, hparams), None

        state, _ = jax.lax.scan(generation, state, jax.random.split(key, generations))
        return score(strategy.solution(state))

    assert score(start) == -8
    assert jax.jit(run)(jax.random.key(0)) > -4


@pytest.mark.slow
def test_a_recurrent_policy_beats_every_memoryless_one() -> None:
    env: Any = envs.make("memory/repeat-first")
    config = jaxrl.EvolveConfig(
        population_size=256, num_episodes=4, common_random_numbers=True, memory="gru", memory_size=8, hidden=()
    )
    algo = jaxrl.evolve(env, config)
    hparams = dataclasses.replace(algo.hparams, lr=0.05)
    result = jaxrl.train(algo, hparams, seeds=2, env_steps=10_000_000, evals=1, eval_episodes=128, progress=False)
    assert float(result.metrics["return"].isel(env_step=-1).min()) > env.memoryless()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"strategy": "open-se"}, r"There is no evolution strategy 'open-se'; did you mean 'open-es'\?"),
        ({"population_size": 7}, "population_size=7 does not fit the strategy 'open-es' of evosax: .*even"),
        ({"population_size": 1}, "population_size"),
        (
            {"strategy": "lm-ma-es", "hidden": (), "population_size": 64},
            "population_size=64 does not fit .* at most 20 mem",
        ),
        ({"num_episodes": 0}, "num_episodes"),
    ],
)
def test_bad_configurations_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        small(**fields)


def test_hyper_parameters_without_effect_are_refused() -> None:
    algo = small(strategy="snes")
    assert algo.hparams.std_decay is None
    with pytest.raises(ValueError, match="std_decay has no effect"):
        algo.prepare(dataclasses.replace(algo.hparams, std_decay=0.5))


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "evosax.algorithms", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[evolution\]' in a clone"):
        make_strategy("open-es", 8, {"w": jnp.zeros(2)})


def begun(name: str, size: int, std: float, std_decay: float) -> tuple[Any, Any, Any]:
    """A strategy on 12 parameters at 0, its hyper-parameters, and its state."""
    start = {"w": jnp.zeros((3, 4))}
    strategy = make_strategy(name, size, start)
    hparams = jaxrl.EvolveHParams(std=std, std_decay=std_decay, lr=0.0)
    evaluated = ({"w": jnp.zeros((size, 3, 4))}, jnp.zeros(size)) if strategy.evaluates_first else (None, None)
    return strategy, hparams, strategy.init(jax.random.key(0), start, *evaluated, hparams)


DISTRIBUTIONS = [
    "ars",
    "asebo",
    "cma-es",
    "discovered-es",
    "esmc",
    "guided-es",
    "hill-climbing",
    "iamalgam-full",
    "iamalgam-univariate",
    "learned-es",
    "ma-es",
    "open-es",
    "pgpe",
    "rm-es",
    "sep-cma-es",
    "simple-es",
    "simulated-annealing",
    "snes",
    "xnes",
]
DECAYING = [
    "ars",
    "asebo",
    "esmc",
    "guided-es",
    "hill-climbing",
    "iamalgam-full",
    "open-es",
    "simulated-annealing",
    "simple-ga",
]


@pytest.mark.fast_rows("open-es", "xnes", "guided-es", "iamalgam-univariate")
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_std_is_the_deviation_of_the_parameters(name: str) -> None:
    """Of the first population, over members and parameters; members may come in pairs, so that half of them count."""
    strategy, hparams, state = begun(name, 512, 0.3, 1.0)
    population = np.asarray(strategy.ask(jax.random.key(0), state, hparams)[0]["w"], np.float64)
    # A deviation from n normal numbers has the relative error 1 / sqrt(2 n); five of these for n of half the size.
    assert abs(np.sqrt(np.mean(population**2)) / 0.3 - 1) < 5 / np.sqrt(population.size)


@pytest.mark.fast_rows("open-es", "hill-climbing", "simple-ga")
@pytest.mark.parametrize("name", DECAYING)
def test_std_decays_from_the_second_generation_on(name: str) -> None:
    strategy, hparams, state = begun(name, 8, 0.1, 0.5)
    seen = []
    for t in range(3):
        population, state = strategy.ask(jax.random.key(t), state, hparams)
        seen.append(float(jnp.max(state.std)))
        state = strategy.tell(jax.random.key(t), population, jnp.arange(8.0), state, hparams)
    np.testing.assert_allclose(np.divide(seen, seen[0]), [1, 0.5, 0.25], rtol=1e-6)


def test_a_matrix_that_fits_no_memory_is_refused_before_compilation() -> None:
    for name in ("cma-es", "xnes"):
        with pytest.raises(ValueError, match=r"stores a matrix with a row .* each of the 67,586 parameters .* 18.3 GB"):
            make_strategy(name, 8, {"w": jnp.zeros(67_586)})
    make_strategy("sep-cma-es", 8, {"w": jnp.zeros(67_586)})


@pytest.mark.parametrize("name", ["open-es", "guided-es", "hill-climbing"])
def test_states_hold_no_nan_where_nothing_has_failed(name: str) -> None:
    strategy, hparams, first = begun(name, 8, 0.1, 1.0)
    population, asked = strategy.ask(jax.random.key(1), first, hparams)
    after = strategy.tell(jax.random.key(2), population, jnp.arange(8.0), asked, hparams)
    for state in (first, after):
        assert not any(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(state))
