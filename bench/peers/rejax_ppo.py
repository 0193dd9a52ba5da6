"""PPO by rejax with PureJaxRL's CartPole settings, in a separate environment; one JSON line for each "run" it reads.

python bench/peers/rejax_ppo.py NUM_SEEDS ENV_STEPS
"""

import json
import sys
import time

import jax
from rejax import PPO  # pyright: ignore[reportMissingImports] -- installed in another environment

num_seeds, env_steps = int(sys.argv[1]), int(sys.argv[2])
algo = PPO.create(
    env="CartPole-v1",
    agent_kwargs={"activation": "tanh"},
    num_envs=4,
    num_steps=128,
    num_epochs=4,
    num_minibatches=4,
    learning_rate=2.5e-4,
    gamma=0.99,
    gae_lambda=0.95,
    clip_eps=0.2,
    ent_coef=0.01,
    vf_coef=0.5,
    max_grad_norm=0.5,
    total_timesteps=env_steps,
    eval_freq=env_steps,
    skip_initial_evaluation=True,
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
