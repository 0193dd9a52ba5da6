"""Training by rejax, in a separate environment; one JSON line for each "run" it reads.

python bench/peers/rejax_train.py ALGORITHM NUM_SEEDS ENV_STEPS

On CartPole, PPO has PureJaxRL's settings; DQN and PQN have those of rejax's own configuration, DQN without dueling,
whose networks differ between libraries. On Pendulum, SAC has those of rejax's own configuration; TD3, which does not
learn with its own, has others. TD3's noise is in units of the torque, from -2 to 2.

Both versions of rejax evaluate 128 whole episodes at the end: PPO with sampled actions, DQN and PQN with 0.5 % of
random ones, TD3 greedily. SAC, which would sample its actions, is made to evaluate greedily, too.
"""

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import rejax  # pyright: ignore[reportMissingImports] -- installed in another environment
from rejax.evaluate import evaluate  # pyright: ignore[reportMissingImports]

SETTINGS = {
    "PPO": {
        "env": "CartPole-v1",
        "agent_kwargs": {"activation": "tanh"},
        "num_envs": 4,
        "num_steps": 128,
        "num_epochs": 4,
        "num_minibatches": 4,
        "learning_rate": 2.5e-4,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_eps": 0.2,
        "ent_coef": 0.01,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
    },
    "DQN": {
        "env": "CartPole-v1",
        "agent_kwargs": {"activation": "swish"},
        "num_envs": 10,
        "buffer_size": 50_000,
        "fill_buffer": 5_000,
        "batch_size": 100,
        "num_epochs": 5,
        "learning_rate": 1e-3,
        "max_grad_norm": 10.0,
        "polyak": 0.98,
        "eps_start": 1.0,
        "eps_end": 0.05,
        "exploration_fraction": 0.5,
        "gamma": 0.99,
        "ddqn": True,
    },
    "PQN": {
        "env": "CartPole-v1",
        "num_envs": 16,
        "num_steps": 128,
        "num_minibatches": 16,
        "num_epochs": 5,
        "learning_rate": 3e-4,
        "max_grad_norm": 10.0,
        "eps_start": 1.0,
        "eps_end": 0.05,
        "exploration_fraction": 0.5,
        "gamma": 0.99,
        "td_lambda": 0.9,
    },
    "SAC": {
        "env": "Pendulum-v1",
        "agent_kwargs": {"activation": "swish"},
        "num_envs": 1,
        "buffer_size": 10_000,
        "fill_buffer": 256,
        "batch_size": 256,
        "num_epochs": 1,
        "learning_rate": 1e-2,
        "polyak": 0.98,
        "gamma": 0.99,
        "normalize_observations": True,
    },
    "TD3": {
        "env": "Pendulum-v1",
        "actor_kwargs": {"activation": "swish"},
        "critic_kwargs": {"activation": "swish"},
        "num_envs": 1,
        "buffer_size": 10_000,
        "fill_buffer": 500,
        "batch_size": 256,
        "num_epochs": 1,
        "learning_rate": 1e-3,
        "polyak": 0.98,
        "gamma": 0.98,
        "exploration_noise": 0.6,
        "target_noise": 0.4,
        "target_noise_clip": 1.0,
        "policy_delay": 2,
        "normalize_observations": True,
    },
}


def evaluate_sac(algo: Any, ts: Any, rng: jax.Array) -> Any:
    """The lengths and returns of 128 episodes with the mean of SAC's policy."""

    def action_of(actor: Any, obs: jax.Array) -> jax.Array:
        return actor.action_loc + jnp.tanh(actor.action_mean(actor.features(obs))) * actor.action_scale

    def act(obs: jax.Array, rng: jax.Array) -> jax.Array:
        del rng
        obs = algo.normalize_obs(ts.obs_rms_state, obs)[None]
        return jnp.squeeze(algo.actor.apply(ts.actor_ts.params, obs, method=action_of))

    return evaluate(act, rng, algo.env, algo.env_params, 128, algo.env_params.max_steps_in_episode)


name, num_seeds, env_steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
algo = getattr(rejax, name).create(
    total_timesteps=env_steps,
    eval_freq=env_steps,
    skip_initial_evaluation=True,
    **SETTINGS[name],
)
if name == "SAC":
    algo = algo.replace(eval_callback=evaluate_sac)
keys = jax.random.split(jax.random.key(0), num_seeds)
started = time.perf_counter()
program = jax.jit(jax.vmap(algo.train)).lower(keys).compile()
compile_seconds = time.perf_counter() - started
device = f"{jax.default_backend()} {jax.devices()[0].device_kind}"
print(json.dumps({"compile_seconds": compile_seconds, "jax": jax.__version__, "device": device}), flush=True)
for _ in sys.stdin:
    started = time.perf_counter()
    _, (_, returns) = jax.block_until_ready(program(keys))
    seconds = time.perf_counter() - started
    last = returns[:, -1].mean(axis=tuple(range(1, returns[:, -1].ndim)))  # one value per seed
    figures = {"run_seconds": seconds, "return": float(last.mean()), "deviation": float(last.std())}
    print(json.dumps(figures), flush=True)
