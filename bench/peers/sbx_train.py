"""SAC or TD3 by SBX (Stable-Baselines-Jax) on Pendulum, with the settings of bench/off_policy.py.

    python bench/peers/sbx_train.py ALGORITHM ENV_STEPS

Runs in a separate environment with sbx-rl but without jaxrl: one JSON line when ready, and one for each line that it
reads. Every new algorithm of SBX compiles its functions anew, so that its first COMPILING steps are not timed, and the
time of the others is extrapolated to all gradient steps. Evaluation is not timed.
"""

import json
import sys
import time

import jax
import numpy as np
from sbx import SAC, TD3  # pyright: ignore[reportMissingImports] -- installed in another environment
from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.evaluation import evaluate_policy  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.noise import NormalActionNoise  # pyright: ignore[reportMissingImports]

COMPILING = 600
LEARNING_STARTS = {"sac": 256, "td3": 500}
EQUAL = {
    "batch_size": 256,
    "buffer_size": 10_000,
    "train_freq": 1,
    "gradient_steps": 1,
    "tau": 0.02,
    "policy_kwargs": {"net_arch": [64, 64], "activation_fn": jax.nn.silu},
}


def make(name: str, seed: int) -> SAC | TD3:
    """The untrained algorithm."""
    env = make_vec_env("Pendulum-v1", n_envs=1, seed=seed)
    starts = {"learning_starts": LEARNING_STARTS[name]}
    if name == "sac":
        return SAC("MlpPolicy", env, learning_rate=1e-2, qf_learning_rate=1e-2, seed=seed, **starts, **EQUAL)
    noise = NormalActionNoise(np.zeros(1), np.full(1, 0.3))
    others = {"gamma": 0.98, "policy_delay": 2, "action_noise": noise}
    return TD3("MlpPolicy", env, learning_rate=1e-3, qf_learning_rate=1e-3, seed=seed, **others, **starts, **EQUAL)


def main() -> None:
    """Train once for each line of the standard input."""
    name, env_steps = sys.argv[1], int(sys.argv[2])
    if env_steps <= COMPILING:
        raise SystemExit(f"ENV_STEPS must be above {COMPILING}, got {env_steps}")
    share = (env_steps - LEARNING_STARTS[name]) / (env_steps - COMPILING)
    started = time.perf_counter()
    make(name, 0).learn(COMPILING)
    device = f"{jax.default_backend()} {jax.devices()[0].device_kind}"
    compiled = {"compile_seconds": time.perf_counter() - started, "jax": jax.__version__, "device": device}
    print(json.dumps(compiled), flush=True)
    for seed, _ in enumerate(sys.stdin):
        algo = make(name, seed)
        algo.learn(COMPILING)
        started = time.perf_counter()
        algo.learn(env_steps - COMPILING, reset_num_timesteps=False)
        seconds = share * (time.perf_counter() - started)
        env = make_vec_env("Pendulum-v1", n_envs=4, seed=1_000 + seed)
        mean = float(evaluate_policy(algo, env, n_eval_episodes=64, deterministic=True)[0])
        print(json.dumps({"run_seconds": seconds, "return": mean, "deviation": 0.0}), flush=True)


if __name__ == "__main__":
    main()
