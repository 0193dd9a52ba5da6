"""Learners with a memory compared with the same learners without one, in one invocation.

    python bench/memory_learners.py [--learners dqn sac td3 pqn] [--memories gru lru] [--seeds 4] [--rounds 5]
        [--json FILE]

Each learner trains on one task with each memory and without one, with equal hidden layers, equal numbers of gradient
steps, and equal numbers of transitions in each: sequences of 16 steps, or single transitions. The memory has as many
units as a hidden layer. DQN, SAC and TD3 make one gradient step on 256 transitions for every environment step, so that
learning takes most of the time; the time of a gradient step is that of the whole training over their number. The
programs run alternately; compilation is not counted. The returns are those of the last evaluation. The trainings are
short: returns of tuned ones are on the page of the presets.

The exit status is 1 if a gradient step with a memory takes more than 2.5 times as long as one without, by the median
of the ratios.
"""

import dataclasses
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import numpy as np

import envs
import jaxrl
from bench.report import Report, benchmark_parser, ratios, spread
from jaxrl.algorithms.registry import make
from jaxrl.learning.cells import CELLS

MOST = 2.5
_REPLAY: dict[str, Any] = {
    "num_envs": 4, "num_steps": 4, "num_updates": 16, "batch_size": 256, "buffer_size": 16_384, "prefill": 1_024
}  # fmt: skip


class Setting(NamedTuple):
    """Task of a learner, and the fields of its configuration."""

    env: str
    fields: dict[str, Any]


SETTINGS = {
    "dqn": Setting("memory/cartpole", _REPLAY),
    "pqn": Setting("memory/cartpole", {"num_envs": 16, "num_steps": 32, "num_epochs": 4, "num_minibatches": 4}),
    "sac": Setting("memory/pendulum", _REPLAY),
    "td3": Setting("memory/pendulum", _REPLAY),
}


def main() -> None:
    """Print the times of gradient steps with and without a memory, and their ratios."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--learners", nargs="+", choices=tuple(SETTINGS), default=list(SETTINGS), help="algorithms")
    parser.add_argument("--memories", nargs="+", choices=tuple(CELLS), default=["gru", "lru"], help="memories")
    parser.add_argument("--seeds", type=int, default=4, help="runs of a program")
    parser.add_argument("--env-steps", type=int, default=1_024, help="environment steps; PQN takes 16 times as many")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each program")
    arguments = parser.parse_args()
    report = Report(parser, arguments, f"gradient steps with a memory, {arguments.seeds} seeds")
    columns = {"learner": "", "memory": "", "microseconds a gradient step": ",.0f", "least": ",.0f", "most": ",.0f"}
    table = report.table(f"Medians of {arguments.rounds}", columns | {"ratio": "", "return": ",.1f"})
    results = []
    for learner in arguments.learners:
        sides = {memory: Side(learner, memory, arguments) for memory in ("none", *arguments.memories)}
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(arguments.rounds):
            for name, side in sides.items():
                times[name].append(side.train())
        for name, side in sides.items():
            each = [1e6 * seconds / side.gradient_steps for seconds in times[name]]
            over = ratios(times[name], times["none"])
            table.add(learner, name, statistics.median(each), min(each), max(each), spread(over, ".2f"), side.returned)
            if name == "none":
                continue
            ratio = statistics.median(over)
            results.append(f"{learner} {name} {ratio:.2f}")
            sentence = (
                f"a gradient step of {learner} with {name} takes {ratio:.2f} times as long, at most {MOST} is asked"
            )
            report.require(ratio <= MOST, sentence)
    report.finish(f"time of a gradient step over that without a memory: {', '.join(results)}")


class Side:
    """One compiled program.

    Attributes:
      gradient_steps: Number of gradient steps of all runs of a training.
      returned: Mean return of the last evaluation of the last training.
    """

    def __init__(self, learner: str, memory: str, arguments: Any) -> None:
        setting = SETTINGS[learner]
        env, fields = envs.make(setting.env), dict(setting.fields)
        if memory != "none":
            fields |= {"memory": memory, "memory_size": 64}
        algo = make(learner, env, dataclasses.replace(make(learner, env).config, **fields))
        env_steps = arguments.env_steps * (16 if learner == "pqn" else 1)
        train = jaxrl.make_train(algo, env_steps=env_steps, evals=1, eval_episodes=2)
        keys = jax.random.split(jax.random.key(0), arguments.seeds)
        self._train, self._keys = jax.jit(jax.vmap(train)).lower(keys).compile(), keys
        iterations = -(-env_steps // algo.env_steps_per_iteration)
        steps = math.prod(fields.get(name, 1) for name in ("num_updates", "num_epochs", "num_minibatches"))
        self.gradient_steps = arguments.seeds * iterations * steps
        self.returned = float("nan")

    def train(self) -> float:
        """Seconds of a training of all runs."""
        began = time.perf_counter()
        out = jax.block_until_ready(self._train(self._keys))
        seconds = time.perf_counter() - began
        self.returned = float(np.mean(np.asarray(out.metrics["return"])[:, -1]))
        return seconds


if __name__ == "__main__":
    main()
