"""DQN, PQN, SAC and TD3 compared with rejax and SBX, with equal settings, in one invocation.

    python bench/off_policy.py [--algorithms dqn pqn sac td3] [--seeds 1 8 64] [--repeats 3] [--share 1]
        [--rejax PYTHON] [--rejax012 PYTHON] [--sbx PYTHON] [--no-peers] [--json FILE]

Both versions of rejax are measured, because 0.1.2 has the faster replay buffer: 0.1.3 sorts it at every gradient step.
DQN and PQN run on CartPole, SAC and TD3 on Pendulum, all with the settings of rejax's own configuration, except for
TD3, which does not learn with them. DQN takes 100,000 steps, of which 5,000 fill the buffer with random actions, and 5
gradient steps on 100 transitions after every 10 steps; PQN takes 524,288; SAC and TD3 take 10,000 and one gradient step
on 256 transitions after every step.

Differences that remain: DQN and PQN do not duel, because the dueling networks of the two libraries differ. jaxrl clips
the norm of their gradients, rejax each number. While SAC fills the buffer, with 256 transitions, rejax acts by its
policy and jaxrl at random. The policy of TD3 maximises the mean of both critics in rejax, the first one in jaxrl.
rejax treats time limits as terminations; jaxrl bootstraps.

SAC and TD3 are also compared with SBX (Stable-Baselines-Jax), at one seed, because it trains one, and another one in
each turn. Its environment is Gymnasium's, in NumPy; its run time contains neither evaluation nor compilation, and it
does not normalise observations. Its TD3 moves the targets at every gradient step, and its policy maximises the lowest
critic.

Each side compiles once in its own process; then they run alternately. Run time is that of a whole call of jaxrl and of
rejax's compiled function; both evaluate 128 whole episodes per seed at the end, within the run time: jaxrl 64 greedily
and 64 with the actions of training, rejax all of them greedily, with 0.5 % of random actions for DQN and PQN. Returns
of jaxrl are the greedy ones. Gradient steps a second are those of all seeds, over the whole run time. A ratio is of
medians, with the minimum and maximum of the ratios within a turn. The exit status is 1 if jaxrl's DQN, SAC or TD3 is
less than 1.5 times as fast as that of rejax 0.1.2, if its PQN is less than 1.2 times as fast as rejax's, if its SAC or
TD3 is slower than SBX's, or if, with more than one seed, its return is below theirs by over three standard errors of
the difference over seeds.
"""

import argparse
import dataclasses
import json
import math
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
RIVALS = (*REJAX, "sbx")
BY_SBX = ("sac", "td3")


class Setting(NamedTuple):
    """Settings of one algorithm, equal to those of bench/peers/rejax_train.py.

    Attributes:
      env: Name of the environment.
      fields: Fields of jaxrl's configuration.
      hparams: Hyper-parameters that differ from the defaults.
      env_steps: Number of environment steps, including those that fill the buffer.
      least: Smallest ratio of run times that meets the target, by peer.
    """

    env: str
    fields: dict[str, Any]
    hparams: dict[str, Any]
    env_steps: int
    least: dict[str, float]

    @property
    def prefill(self) -> int:
        """Number of environment steps that fill the buffer."""
        return self.fields.get("prefill", 0)

    def gradient_steps(self, env_steps: int) -> int:
        """Number of gradient steps in `env_steps` environment steps."""
        fields = self.fields
        iterations = (env_steps - self.prefill) // (fields["num_envs"] * fields["num_steps"])
        return iterations * math.prod(fields.get(name, 1) for name in ("num_updates", "num_epochs", "num_minibatches"))


# Of SAC and TD3 in one environment. Both libraries have two critics and two hidden layers of 64 units.
ONE_BY_ONE = {
    "num_envs": 1,
    "num_steps": 1,
    "num_updates": 1,
    "batch_size": 256,
    "buffer_size": 10_000,
    "activation": "silu",
}
SETTINGS = {
    "dqn": Setting(
        "cartpole",
        {
            "num_envs": 10,
            "num_steps": 1,
            "num_updates": 5,
            "batch_size": 100,
            "buffer_size": 50_000,
            "prefill": 5_000,
            "activation": "silu",
            "value_loss": "squared",
            "target_update": "soft",
        },
        # rejax moves the target by 2 % after every 5 gradient steps, and its exploration decays during the prefill.
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
        "cartpole",
        {"num_envs": 16, "num_steps": 128, "num_epochs": 5, "num_minibatches": 16},
        {"lr": 3e-4, "adam_eps": 1e-8, "lam": 0.9, "epsilon_anneal_env_steps": 262_144.0},
        524_288,
        {"rejax012": 1.2, "rejax": 1.2},
    ),
    "sac": Setting(
        "pendulum",
        ONE_BY_ONE | {"prefill": 256, "normalise_observation": True},
        {"lr": 1e-2, "policy_lr": 1e-2, "temperature_lr": 1e-2, "target_rate": 0.02},
        10_000,
        {"rejax012": 1.5, "sbx": 1.0},
    ),
    "td3": Setting(
        "pendulum",
        ONE_BY_ONE | {"prefill": 500, "normalise_observation": True, "policy_delay": 2},
        # rejax adds noise to torques, which are up to 2, and updates the target networks with the policy.
        {"discount": 0.98, "target_rate": 0.02, "noise_std": 0.3, "target_noise": 0.2, "target_noise_clip": 0.5},
        10_000,
        {"rejax012": 1.5, "sbx": 1.0},
    ),
}


def worker(name: str, num_seeds: int, env_steps: int) -> None:
    """Train by jaxrl; print a JSON line when compiled, and one for each line read."""
    import jax

    import envs
    from jaxrl.algorithms import registry
    from jaxrl.runtime.training import train

    setting = SETTINGS[name]
    env = envs.make(setting.env)
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
        metrics = whole(train(algo, env_steps=env_steps - setting.prefill, **options)).metrics
        seconds = time.perf_counter() - started
        greedy = metrics["return"][:, -1]
        figures = {"run_seconds": seconds, "return": float(greedy.mean()), "deviation": float(greedy.std())}
        print(json.dumps(figures), flush=True)


def sides_of(name: str, num_seeds: int, env_steps: int, peers: dict[str, str]) -> dict[str, Side]:
    """The processes by name, ours first."""
    script = [sys.executable, str(ROOT / "bench/off_policy.py"), "--worker", name]
    ours = Side([*script, str(num_seeds), str(env_steps)])
    commands = {
        peer: rejax_command(python, num_seeds, env_steps, name.upper())
        for peer, python in peers.items()
        if peer in REJAX
    }
    if "sbx" in peers and name in BY_SBX and num_seeds == 1:
        commands["sbx"] = [peers["sbx"], str(ROOT / "bench/peers/sbx_train.py"), name, str(env_steps)]
    return {"ours": ours} | {peer: Side(command) for peer, command in commands.items()}


def compare(report: Report, name: str, arguments: argparse.Namespace, peers: dict[str, str]) -> str:
    """Add the table of one algorithm; returns its summary."""
    setting = SETTINGS[name]
    env_steps = round(setting.env_steps * arguments.share)
    steps = setting.gradient_steps(env_steps)
    table = report.table(
        f"{name.upper()} on {setting.env}, {env_steps:,} env steps and {steps:,} gradient steps per seed; "
        f"{arguments.repeats} alternating runs: median (least to most)",
        {"seeds": ",d", "side": "", "compile s": ".1f", "run s": ".2f", "gradient steps/s": ",.0f", "return": ".1f"}
        | {"times as long": ".2f"},
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
            seconds, library = side.figures("run_seconds"), PEERS[peer][1] if peer in PEERS else "ours"
            longer = None if side is ours else ratios(seconds, ours.figures("run_seconds"))
            rates = [num_seeds * steps / one for one in seconds]
            compiling, returned = side.compiled["compile_seconds"], side.median("return")
            table.add(num_seeds, library, compiling, seconds, rates, returned, longer)
            if longer is None:
                continue
            require_same_device(ours, side)
            median, least = statistics.median(longer), setting.least.get(peer, 0.0)
            what = f"At {num_seeds:,} seeds {name.upper()}"
            report.require(median >= least, f"{what} is {median:.2f} times as fast as {library}, under {least:g}.")
            errors = below(ours, side, num_seeds, "return")
            returns = f"{ours.median('return'):.0f} against {returned:.0f}"
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
    parser.add_argument("--share", type=float, default=1.0, help="share of the env steps of the settings")
    add_peers(parser, *RIVALS)
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        name, num_seeds, env_steps = arguments.worker
        worker(name, int(num_seeds), int(env_steps))
        return
    asked = () if arguments.no_peers else RIVALS
    paths = {name: find_peer(parser, name, vars(arguments)[name]) for name in asked}
    peers = {name: path for name, path in paths.items() if path is not None}
    versions = ", ".join(PEERS[name][1] for name in peers)
    what = (
        f"{', '.join(f'{name.upper()} on {SETTINGS[name].env}' for name in arguments.algorithms)}, evaluated at the end"
    )
    report = Report(parser, arguments, f"{what}; compared with {versions}" if peers else what)
    report.finish("; ".join(compare(report, name, arguments, peers) for name in arguments.algorithms))


if __name__ == "__main__":
    main()
