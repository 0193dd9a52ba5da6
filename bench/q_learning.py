"""DQN and PQN on CartPole compared with rejax, with the settings of rejax's own configuration, in one invocation.

    python bench/q_learning.py [--algorithms dqn pqn] [--seeds 1 8 64] [--repeats 3] [--share 1] [--rejax PYTHON]
        [--rejax012 PYTHON] [--no-peers] [--json FILE]

rejax 0.1.2 has the faster DQN: 0.1.3 sorts its buffer at every gradient step. DQN takes 100,000 steps, of which 5,000
fill the buffer with random actions, and 5 gradient steps on 100 transitions after every 10 steps; PQN takes 524,288.
Both run without duelling, because the duelling networks of the two libraries differ. The libraries clip gradients
differently: jaxrl clips their norm, rejax each component.

Each side compiles once in its own process; then they run alternately. Run time is measured over a whole call of jaxrl
and of rejax's compiled function. It includes an evaluation of 128 whole episodes per seed at the end: rejax takes 0.5 %
of its actions at random; jaxrl acts greedily in 64 episodes and as in training in the other 64. The compared returns
are rejax's and jaxrl's greedy ones. Each ratio is a ratio of medians, shown with the minimum and maximum of the ratios
within a turn. The exit status is 1 if jaxrl's DQN is less than 1.5 times as fast as rejax 0.1.2's, if its PQN is less
than 1.2 times as fast as rejax's, or if, with more than one seed, its return is below theirs by over three standard
errors of the difference over seeds.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import PEERS, ROOT, Side, add_peers, find_peer, require_same_device, whole
from bench.train import STANDARD_ERRORS, below, rejax_command

REJAX = ("rejax012", "rejax")


class Setting(NamedTuple):
    """Settings of one algorithm, those of rejax's configuration for CartPole.

    Attributes:
      fields: Fields of jaxrl's configuration.
      hparams: Hyper-parameters that differ from the defaults.
      env_steps: Number of environment steps, including those that fill the buffer.
      least: Smallest ratio of run times that meets the target, by peer.
    """

    fields: dict[str, Any]
    hparams: dict[str, Any]
    env_steps: int
    least: dict[str, float]


WARM_UP = 5_000
SETTINGS = {
    "dqn": Setting(
        {
            "num_envs": 10,
            "num_steps": 1,
            "num_updates": 5,
            "batch_size": 100,
            "buffer_size": 50_000,
            "warm_up": WARM_UP,
            "activation": "silu",
            "value_loss": "squared",
            "target_update": "soft",
        },
        # rejax moves the target by 2 % after every 5 gradient steps, and its exploration decays during the warm-up.
        {
            "lr": 1e-3,
            "adam_eps": 1e-8,
            "target_rate": 1 - 0.98**0.2,
            "epsilon_start": 0.905,
            "epsilon_anneal_env_steps": 45_000.0,
        },
        100_000,
        {"rejax012": 1.5},
    ),
    "pqn": Setting(
        {"num_envs": 16, "num_steps": 128, "num_epochs": 5, "num_minibatches": 16},
        {"lr": 3e-4, "adam_eps": 1e-8, "lam": 0.9, "epsilon_anneal_env_steps": 262_144.0},
        524_288,
        {"rejax012": 1.2, "rejax": 1.2},
    ),
}


def worker(name: str, num_seeds: int, env_steps: int) -> None:
    """Train by jaxrl; print a JSON line when compiled, and one for each line read."""
    import jax

    import envs
    from jaxrl.algorithms import registry
    from jaxrl.runtime.training import train

    setting, env = SETTINGS[name], envs.make("cartpole")
    config = type(registry.make(name, env).config)(**setting.fields)
    algo = registry.make(name, env, config)
    algo = algo._replace(hparams=dataclasses.replace(algo.hparams, **setting.hparams))
    options: Any = {"seeds": num_seeds, "evals": 1, "eval_episodes": 64, "progress": False}
    started = time.perf_counter()
    first = whole(train(algo, env_steps=algo.env_steps_per_iteration, **options)).metrics
    seconds = time.perf_counter() - started
    device = f"{jax.default_backend()} {jax.devices()[0].device_kind}"
    figures = {"compile_seconds": seconds - first.attrs["run_seconds"], "jax": jax.__version__, "device": device}
    print(json.dumps(figures), flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        metrics = whole(train(algo, env_steps=env_steps - setting.fields.get("warm_up", 0), **options)).metrics
        seconds = time.perf_counter() - started
        greedy = metrics["return"][:, -1]
        figures = {"run_seconds": seconds, "return": float(greedy.mean()), "deviation": float(greedy.std())}
        print(json.dumps(figures), flush=True)


def sides_of(name: str, num_seeds: int, env_steps: int, peers: dict[str, str]) -> dict[str, Side]:
    """The processes by name, ours first."""
    script = [sys.executable, str(ROOT / "bench/q_learning.py"), "--worker", name]
    ours = Side([*script, str(num_seeds), str(env_steps)])
    return {"ours": ours} | {
        peer: Side(rejax_command(python, num_seeds, env_steps, name.upper())) for peer, python in peers.items()
    }


def compare(report: Report, name: str, arguments: argparse.Namespace, peers: dict[str, str]) -> str:
    """Add the table of one algorithm; returns its summary."""
    setting = SETTINGS[name]
    env_steps = round(setting.env_steps * arguments.share)
    table = report.table(
        f"{name.upper()} on CartPole, {env_steps:,} env steps per seed; {arguments.repeats} alternating runs: median "
        "(least to most)",
        {"seeds": ",d", "side": "", "compile s": ".1f", "run s": ".2f", "return": ".1f", "times as long": ".2f"},
    )
    sentences = []
    for num_seeds in arguments.seeds:
        sides = sides_of(name, num_seeds, env_steps, peers)
        ours = sides["ours"]
        for _ in range(arguments.repeats):
            for side in sides.values():
                side.run()
        for side in sides.values():
            side.close()
        for peer, side in sides.items():
            seconds, compiling = side.figures("run_seconds"), side.compiled["compile_seconds"]
            if side is ours:
                table.add(num_seeds, "ours", compiling, seconds, side.median("return"), None)
                continue
            require_same_device(ours, side)
            library = PEERS[peer][1]
            longer = ratios(seconds, ours.figures("run_seconds"))
            table.add(num_seeds, library, compiling, seconds, side.median("return"), longer)
            median, least = statistics.median(longer), setting.least.get(peer, 0.0)
            what = f"At {num_seeds:,} seeds {name.upper()}"
            report.require(median >= least, f"{what} is {median:.2f} times as fast as {library}, under {least:g}.")
            errors = below(ours, side, num_seeds, "return")
            returns = f"{ours.median('return'):.0f} against {side.median('return'):.0f}"
            report.require(
                not errors > STANDARD_ERRORS,
                f"{what} returns {returns} of {library}, {errors:.1f} standard errors below.",
            )
            sentences.append(f"{spread(longer, '.2f')} times as fast as {library} at {num_seeds:,} (return {returns})")
        if not peers:
            sentences.append(f"{ours.median('run_seconds'):.2f} s at {num_seeds:,}")
    return f"{name.upper()} {', '.join(sentences)}"


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--algorithms", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="share of the env steps of rejax's configuration")
    add_peers(parser, *REJAX)
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        name, num_seeds, env_steps = arguments.worker
        worker(name, int(num_seeds), int(env_steps))
        return
    asked = () if arguments.no_peers else REJAX
    paths = {name: find_peer(parser, name, vars(arguments)[name]) for name in asked}
    peers = {name: path for name, path in paths.items() if path is not None}
    versions = " and ".join(PEERS[name][1] for name in peers)
    what = "DQN and PQN on CartPole with the settings of rejax's configuration, evaluated at the end"
    report = Report(parser, arguments, f"{what}; compared with {versions}" if peers else what)
    report.finish("; ".join(compare(report, name, arguments, peers) for name in arguments.algorithms))


if __name__ == "__main__":
    main()
