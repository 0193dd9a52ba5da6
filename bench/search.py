"""A random search on Pendulum, without and with successive halving: compilations, env steps, time, test returns.

    python bench/search.py [--trials 256] [--env-steps 32768] [--seeds 2] [--test-seeds 16] [--json FILE]

Six hyper-parameters, two of them static: four programs. Both searches draw the same trials, as one
population each; halving comes second and finds the programs of the first. Each incumbent is then
trained anew on test seeds; returns are interquartile means with 95 % bootstrap intervals.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # as a script this file lies first on the path, where envs.py hides the package `envs`


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--env-steps", type=int, default=32_768)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--test-seeds", type=int, default=16)
    parser.add_argument("--json", type=Path, help="file to write every figure to")
    arguments = parser.parse_args()

    import envs
    import jaxrl
    from bench.machine import header, print_header
    from jaxrl import Choice, LogUniform, Uniform

    print_header()
    space = {
        "lr": LogUniform(1e-4, 1e-2),
        "discount.gamma": Uniform(0.9, 0.995),
        "lam": Uniform(0.8, 1.0),
        "clip_eps": Uniform(0.1, 0.4),
        "config.num_epochs": Choice([4, 10]),
        "config.num_minibatches": Choice([4, 8]),
    }
    config = jaxrl.PPOConfig(
        num_envs=8, num_steps=64, num_epochs=10, num_minibatches=8, normalise_observation=True, normalise_reward=True
    )
    algo = jaxrl.ppo(envs.make("pendulum"), config)
    algo = algo._replace(hparams=algo.hparams.replace(lr_end=0.0, entropy_coef=0.0))
    print(f"\n{arguments.trials} trials, {arguments.seeds} tuning seeds, {arguments.env_steps:,} env steps each\n")
    print(
        "| search | trials complete / stopped / failed | compilations | static groups | M env steps | seconds ", end=""
    )
    print("| tuning return | test return, incumbent | test return, default | test seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for name, halving in (("random", None), ("random, halving by 3", jaxrl.Halving(eta=3))):
        result = jaxrl.search(
            algo,
            space,
            trials=arguments.trials,
            env_steps=arguments.env_steps,
            search="random",
            seeds=arguments.seeds,
            test_seeds=arguments.test_seeds,
            population=arguments.trials,
            halving=halving,
            eval_episodes=16,
            progress=False,
        )
        counts = [sum(t.state == state for t in result.trials) for state in ("complete", "pruned", "failed")]
        best = result.incumbent
        assert best is not None
        incumbent, default = result.table().rows
        row = {
            "search": name,
            "trials": counts,
            "compilations": result.compilations,
            "static_groups": result.static_groups,
            "env_steps": result.env_steps,
            "seconds": result.seconds,
            "tuning_return": best.score,
            "incumbent": incumbent,
            "default": default,
            "test_seconds": result.test_seconds,
            "setting": best.setting,
        }
        rows.append(row)
        cells = [
            name,
            " / ".join(map(str, counts)),
            f"{result.compilations}",
            f"{result.static_groups}",
            f"{result.env_steps / 1e6:.2f}",
            f"{result.seconds:.0f}",
            f"{best.score:.0f}",
            f"{incumbent[1]:.0f} [{incumbent[2]:.0f}, {incumbent[3]:.0f}]",
            f"{default[1]:.0f} [{default[2]:.0f}, {default[3]:.0f}]",
            f"{result.test_seconds:.0f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)
    whole, halved = rows
    overlap = whole["incumbent"][2] <= halved["incumbent"][3] and halved["incumbent"][2] <= whole["incumbent"][3]
    print(
        f"\nHalving takes {halved['env_steps'] / whole['env_steps']:.2f} of the env steps; the intervals of the test "
        f"returns {'overlap' if overlap else 'do not overlap'}."
    )
    for row in rows:
        told = ", ".join(f"{path}={value:.4g}" for path, value in row["setting"].items())
        print(f"{row['search']}: {told}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"header": header(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
