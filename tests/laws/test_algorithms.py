"""The laws that every algorithm must obey, and the values that it must reach."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_jit import quick_jit

import envs
import jaxrl
from jaxrl.algorithms.registry import ROWS, make
from jaxrl.learning.networks import MLPActorCritic
from jaxrl.runtime.loop import make_loop

SMALL = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_epochs=2, num_minibatches=2, hidden=(8,))
REMEMBERING: dict[str, Any] = {"memory": "gru", "memory_size": 8}
SEQUENCES: dict[str, Any] = {
    "num_updates": 2, "batch_size": 32, "buffer_size": 256, "prefill": 64, "sequence_length": 8, "hidden": (8,)
}  # fmt: skip
SEQUENCES |= REMEMBERING

ALGORITHMS = {
    "ppo, discrete": lambda: jaxrl.ppo(envs.make("cartpole"), SMALL),
    "ppo, continuous, everything normalised": lambda: jaxrl.ppo(
        envs.make("pendulum"),
        dataclasses.replace(
            SMALL,
            normalise_observation=True,
            normalise_reward=True,
            normalise_advantage="batch",
            shared_trunk=True,
            activation="relu",
        ),
    ),
    "ppo, gru": lambda: jaxrl.ppo(envs.make("cartpole"), dataclasses.replace(SMALL, **REMEMBERING)),
    "ppo, lstm, continuous, everything normalised": lambda: jaxrl.ppo(
        envs.make("pendulum"),
        dataclasses.replace(
            SMALL,
            **REMEMBERING | {"memory": "lstm"},
            normalise_observation=True,
            normalise_reward=True,
            normalise_advantage="batch",
            critic="mixture",
        ),
    ),
    "ppo, lru, recomputed": lambda: jaxrl.ppo(
        envs.make("cartpole"), dataclasses.replace(SMALL, **REMEMBERING | {"memory": "lru"}, burn_in=4)
    ),
    "ppo, levels": lambda: jaxrl.ppo(
        envs.make("cartpole"),
        dataclasses.replace(SMALL, num_steps=64, levels="positive-value-loss", num_levels=4, reset_pool=4),
    ),
    "ppo, gru, levels of two agents": lambda: jaxrl.ppo(
        envs.make("cooperation/foraging-self-play"),
        dataclasses.replace(
            SMALL, **REMEMBERING, num_envs=8, num_steps=128, levels="max-return", num_levels=4, critic="mixture"
        ),
    ),
    "ppo, gru, a crowd": lambda: jaxrl.ppo(
        envs.make("crowd/circle", num_agents=3), dataclasses.replace(SMALL, **REMEMBERING)
    ),
    "pqn, gru, joint heads": lambda: jaxrl.pqn(
        envs.make("cartpole"), jaxrl.PQNConfig(num_steps=8, hidden=(8,), heads="joint", num_heads=2, **REMEMBERING)
    ),
    "dqn, gru, prioritised": lambda: jaxrl.dqn(
        envs.make("cartpole"), jaxrl.DQNConfig(**SEQUENCES, replay="prioritised", n_step=2, burn_in=2)
    ),
    "sac, lstm, correlated noise": lambda: jaxrl.sac(
        envs.make("pendulum"), jaxrl.SACConfig(**{**SEQUENCES, "memory": "lstm"}, noise="ornstein-uhlenbeck")
    ),
    "sac, gru, discrete": lambda: jaxrl.sac(envs.make("cartpole"), jaxrl.SACConfig(**SEQUENCES)),
    "td3, lru, normalised": lambda: jaxrl.td3(
        envs.make("pendulum"), jaxrl.TD3Config(**{**SEQUENCES, "memory": "lru"}, normalise_observation=True)
    ),
    "ppo, a centralised critic, normalised": lambda: jaxrl.ppo(
        envs.make("game/climbing"),
        dataclasses.replace(SMALL, critic_sees="global", critic="mixture", normalise_observation=True),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_laws_hold(name: str) -> None:
    jaxrl.check(ALGORITHMS[name]())


@pytest.mark.parametrize("name", ROWS)
def test_metrics_and_hyper_parameters_differ_in_name(name: str) -> None:
    env = envs.make("pendulum" if name == "td3" else "cartpole")
    algo = make(name, env, dataclasses.replace(make(name, env).config, **ROWS[name].small))
    hparams, params, key = algo.prepare(algo.hparams), algo.env.default_params, jax.random.key(0)
    state = jax.eval_shape(algo.init, key, hparams, params)
    _, metrics = jax.eval_shape(algo.step, key, jnp.int32(0), state, hparams, params)
    assert not {field.name for field in dataclasses.fields(algo.hparams)} & metrics.keys()


def _broken(change: str) -> Any:
    algo = ALGORITHMS["ppo, discrete"]()

    def step(key: Any, iteration: Any, state: Any, hparams: Any, env_params: Any) -> Any:
        if change == "ignores lam":
            hparams = dataclasses.replace(hparams, lam=jnp.float32(0.5))
        state, metrics = algo.step(key, iteration, state, hparams, env_params)
        if change == "vector metric":
            metrics["returns"] = jnp.zeros(3)
        if change == "grows state":
            state = (state,)
        return state, metrics

    def choose(noise: Any, scores: Any, memory: Any, greedy: Any, mask: Any) -> Any:
        never = change == "never greedy" and noise is not None
        action, raw, memory = algo.actor.choose(noise, scores, memory, False if never else greedy, mask)
        return action, raw, ({"steps": jnp.zeros(2)} if change == "grows memory" else memory)

    return algo._replace(step=step, actor=algo.actor._replace(choose=choose))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("ignores lam", r"every hyper-parameter must change the result.*\.lam did not"),
        ("vector metric", "metrics must be float32 scalars, 'returns'"),
        ("grows state", "state with the structure"),
        ("never greedy", "a greedy action must not depend on the key"),
        ("grows memory", "actor must return a memory with the structure of its initial_memory"),
    ],
)
def test_a_broken_algorithm_gets_the_name_of_the_law(change: str, sentence: str) -> None:
    with pytest.raises(envs.ContractError, match=sentence):
        jaxrl.check(_broken(change))


def test_check_takes_algorithms_only() -> None:
    with pytest.raises(TypeError, match="algo takes an algorithm, such as"):
        jaxrl.check(envs.make("cartpole"))  # pyright: ignore[reportArgumentType]


PROBES: list[tuple[str, dict[str, int]]] = [
    ("constant-reward", {}),
    ("observation-dependent", {}),
    ("delayed-reward", {}),
    ("delayed-reward", {"delay": 5}),
    ("action-dependent", {}),
    ("action-and-observation-dependent", {}),
    ("only-terminates", {}),
    ("only-truncates", {}),
    ("only-truncates", {"steps": 3}),
]
DISCOUNTS = ["exp:gamma=0.9", "hyperbolic:k=0.1"]
LAM = 0.95


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize(("name", "static"), PROBES, ids=lambda value: str(value))
@pytest.mark.fast_rows("action-and-observation-dependent-{}-discrete")
def test_ppo_reaches_the_value_of_each_probe(name: str, static: dict[str, int], continuous: bool) -> None:
    env: Any = envs.make(f"probe/{name}", continuous=continuous, **static)
    algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=8, num_steps=32, hidden=(16,)))
    iterations, num_seeds = 300, 2
    base = dataclasses.replace(
        algo.hparams, lr=1e-2, lr_end=0.0, anneal_env_steps=float(iterations * 256), entropy_coef=0.0, lam=LAM
    )
    prepared = algo.prepare(jaxrl.grid(base, {"discount": DISCOUNTS}).hparams, len(DISCOUNTS))
    hparams = jax.tree.map(lambda leaf: np.repeat(leaf, num_seeds, axis=0), prepared)
    env_params = jax.tree.map(jnp.asarray, env.default_params)
    loop = make_loop(algo, eval_episodes=1)

    @quick_jit
    @jax.vmap
    def train(key: Any, hparams: Any) -> Any:
        return loop.advance(loop.init(key, hparams, env_params), key, hparams, env_params, 0, iterations).state.weights

    keys = jax.vmap(jax.random.key)(jnp.tile(jnp.arange(num_seeds), len(DISCOUNTS)))
    policies = train(keys, hparams)
    network = MLPActorCritic(1 if continuous else 2, (16,))
    observations = jnp.asarray(env.observations())

    def value(params: Any, obs: jax.Array) -> Any:
        return network.apply(params, obs)[1]

    values = jax.vmap(jax.vmap(value, in_axes=(None, 0)), in_axes=(0, None))(policies[0], observations)
    for i, discount in enumerate(DISCOUNTS):
        expected = env.values(np.asarray(jaxrl.as_discount(discount).curve(100)), LAM)
        for seed in range(num_seeds):
            np.testing.assert_allclose(values[i * num_seeds + seed], expected, rtol=0.01)


@pytest.mark.slow
def test_a_sweep_over_every_leaf_and_all_families_compiles_once() -> None:
    algo = ALGORITHMS["ppo, continuous, everything normalised"]()
    changes = {
        name: [float(value), 0.5 * float(value) if 0 < value < np.inf else 0.25]
        for name, value in vars(algo.hparams).items()
        if name != "discount" and value is not None
    }
    changes["anneal_env_steps"] = changes["entropy_decay_env_steps"] = [np.inf, 1e4]
    leaves = jaxrl.sample(
        algo.hparams,
        12,
        {name: jaxrl.Choice(values) for name, values in changes.items()}
        | {
            "discount": jaxrl.Choice(
                ["0.9", "quasi:0.9,0.99", "hyperbolic:0.1", "beta:0.98,0.5", "fixed:5", "table:1,0.5,0.2"]
            ),
            "env.gravity": jaxrl.Uniform(8.0, 12.0),
        },
    )
    compilations: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **kwargs: compilations.append(event) if "backend_compile" in event else None
    )
    counts = []
    for seeds in (1, 2):  # other numbers of runs at one layout reuse the programs
        compilations.clear()
        jaxrl.train(
            algo,
            leaves,
            seeds=seeds,
            env_steps=64,
            evals=1,
            eval_episodes=2,
            block=24,
            devices=jax.devices()[:1],
            progress=False,
        )
        counts.append(len(compilations))
    assert counts[0] >= 3
    assert counts[1] == 0
