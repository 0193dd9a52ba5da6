"""PPO by Stable-Baselines3 with PureJaxRL's CartPole settings, on a CPU; one JSON line for each "run" it reads.

    python bench/peers/sb3_ppo.py ENV_STEPS

Runs in a separate environment with stable-baselines3 but without jaxrl, with torch's default number of threads. A short
run comes first; evaluation is not timed.
"""

import json
import sys
import time

import stable_baselines3  # pyright: ignore[reportMissingImports] -- installed in another environment
import torch  # pyright: ignore[reportMissingImports]
from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.evaluation import evaluate_policy  # pyright: ignore[reportMissingImports]


def make(seed: int) -> PPO:
    """The untrained algorithm."""
    return PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=4, seed=seed),
        n_steps=128,
        n_epochs=4,
        batch_size=128,
        learning_rate=2.5e-4,
        gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh},
        device="cpu",
        seed=seed,
    )


def main() -> None:
    """Train once for each line of the standard input."""
    env_steps = int(sys.argv[1])
    make(0).learn(512)
    versions = {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__}
    print(json.dumps(versions | {"threads": torch.get_num_threads()}), flush=True)
    for seed, _ in enumerate(sys.stdin):
        algo = make(seed)
        started = time.perf_counter()
        algo.learn(env_steps)
        seconds = time.perf_counter() - started
        env = make_vec_env("CartPole-v1", n_envs=4, seed=1_000 + seed)
        mean = float(evaluate_policy(algo, env, n_eval_episodes=32, deterministic=False)[0])
        print(json.dumps({"run_seconds": seconds, "return": mean}), flush=True)


if __name__ == "__main__":
    main()
