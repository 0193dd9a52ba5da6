"""A random search on Pendulum, without and with successive halving: compilations, env steps, time, test returns.

    python bench/search.py [--trials 256] [--env-steps 32768] [--seeds 2] [--test-seeds 16] [--json FILE]

Six hyper-parameters, two of them static, give four programs. Both searches draw the same trials, as one
population each; halving comes second and reuses the programs of the first. Each incumbent is then
retrained on test seeds; returns are interquartile means with 95 % bootstrap intervals.
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--env-steps", type=int, default=32_768)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--test-seeds", type=int, default=16)
    arguments = parser.parse_args()

    import envs
    import jaxrl
    from jaxrl import Choice, LogUniform, Uniform

    what = (
        f"{arguments.trials} random trials of six hyper-parameters (two static) on Pendulum, {arguments.seeds} tuning "
    )
    what += f"seeds, without / with halving by 3; interquartile mean on {arguments.test_seeds} test seeds"
    report = Report(parser, arguments, what)
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
    columns = {"search": "", "complete": "", "stopped": "", "failed": "", "compilations": "", "static groups": ""}
    columns |= {"M env steps": ".2f", "seconds": ".0f", "tuning return": ".0f"}
    columns |= {
        f"test return, {policy}{end}": ".0f" for policy in ("incumbent", "default") for end in ("", ", from", ", to")
    }
    table = report.table(
        f"{arguments.trials} trials, {arguments.seeds} tuning seeds, {arguments.env_steps:,} env steps each",
        columns | {"test seconds": ".0f"},
    )
    results = []
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
        incumbent, default = (row[1:4] for row in result.table().rows)
        cells = (*counts, result.compilations, result.static_groups, result.env_steps / 1e6, result.seconds, best.score)
        table.add(name, *cells, *incumbent, *default, result.test_seconds)
        setting = ", ".join(f"{path}={value:.4g}" for path, value in best.setting.items())
        report.note(f"{name}: {setting}")
        results.append((result, incumbent, default))
    (whole, first, default), (halved, second, _) = results
    overlap = first[1] <= second[2] and second[1] <= first[2]
    report.note(
        f"Halving takes {halved.env_steps / whole.env_steps:.2f} of the env steps; the intervals of the test "
        f"returns {'overlap' if overlap else 'do not overlap'}."
    )
    report.finish(
        f"{whole.env_steps / 1e6:.1f} / {halved.env_steps / 1e6:.1f} M env steps, {whole.seconds:.0f} / "
        f"{halved.seconds:.0f} s, {whole.compilations} compilations for {whole.static_groups} static groups; "
        f"{first[0]:.0f} [{first[1]:.0f}, {first[2]:.0f}] / {second[0]:.0f} [{second[1]:.0f}, {second[2]:.0f}] on test "
        f"seeds, the default {default[0]:.0f}"
    )


if __name__ == "__main__":
    main()
