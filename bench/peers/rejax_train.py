"""Training on CartPole by rejax, in a separate environment; one JSON line for each "run" it reads.

python bench/peers/rejax_train.py ALGORITHM NUM_SEEDS ENV_STEPS

PPO has PureJaxRL's settings; DQN and PQN have those of rejax's own configuration, DQN without duelling, whose networks
differ between libraries.
"""

import json
import sys
import time

import jax
import rejax  # pyright: ignore[reportMissingImports] -- installed in another environment

SETTINGS = {
    "PPO": {
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
}

name, num_seeds, env_steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
algo = getattr(rejax, name).create(
    env="CartPole-v1",
    total_timesteps=env_steps,
    eval_freq=env_steps,
    skip_initial_evaluation=True,
    **SETTINGS[name],
)
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
