"""Gradient steps a second of DQN from frames and from whole transitions, of stacks of images, in one invocation.

    python bench/frames.py [--transitions 20000] [--batch 32] [--updates 64] [--rounds 5] [--size 84] [--frames 4]
        [--json FILE]

The network is small (an average of 12 x 12 pixels, then 16 units), and the buffer is full. Both storages draw the same
transitions, and the same parameters are learned from them, which the script compares after two iterations. The two
programs run alternately, on one run each.
"""

import dataclasses
import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

import jaxrl
from bench.report import Report, benchmark_parser, ratios, spread
from envs import Environment, EnvParams, EnvState, spaces, wrappers

SECONDS = 2.0  # of one measurement


@struct.dataclass
class ScreenState(EnvState):
    """The state.

    Attributes:
      time: Number of steps, int32 `[]`.
      place: Row of the bright pixels, int32 `[]`.
    """

    place: Any


@struct.dataclass
class ScreenParams(EnvParams):
    """The parameters: the time limit."""

    max_steps_in_episode: int = 500


@dataclasses.dataclass(frozen=True)
class Screen(Environment):
    """A row of bright pixels that moves up or down a grey image.

    Attributes:
      size: Height and width of the image.
    """

    size: int = 84

    @property
    def default_params(self) -> ScreenParams:
        """A limit of 500 steps."""
        return ScreenParams()

    def reset_env(self, key: jax.Array, params: Any) -> tuple[jax.Array, ScreenState]:
        """A row anywhere."""
        start: Any = jnp.zeros((), jnp.int32)
        state = ScreenState(start, jax.random.randint(key, (), 0, self.size))
        return self._shown(state), state

    def step_env(self, key: jax.Array, state: ScreenState, action: jax.Array, params: Any) -> Any:
        """The row moves by one; the middle pays."""
        place = (state.place + 2 * action - 1) % self.size
        state = ScreenState(state.time + 1, place)
        ends = jax.random.bernoulli(key, 0.005)
        return self._shown(state), state, jnp.float32(place == self.size // 2), ends, {}

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Up and down."""
        return spaces.Discrete(2)

    def observation_space(self, params: Any) -> spaces.Box:
        """Grey pixels."""
        return spaces.Box(0, 255, (self.size, self.size, 1), jnp.uint8)

    def _shown(self, state: ScreenState) -> jax.Array:
        bright = jnp.arange(self.size)[:, None, None] == state.place
        return jnp.broadcast_to(jnp.where(bright, 255, 20).astype(jnp.uint8), (self.size, self.size, 1))


class Coarse(nn.Module):
    """Averages of squares of pixels, and a hidden layer.

    Attributes:
      width: Width of a square.
    """

    width: int

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        """Two action values of a stack `[frames, height, width, 1]`."""
        square = (self.width, self.width)
        coarse = nn.avg_pool(obs.astype(jnp.float32) / 255, square, square)
        return nn.Dense(2)(nn.relu(nn.Dense(16)(jnp.ravel(coarse))))


def main() -> None:
    """Print the gradient steps a second of each storage, and their ratio."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--transitions", type=int, default=20_000, help="transitions in the buffer")
    parser.add_argument("--batch", type=int, default=32, help="transitions of a gradient step")
    parser.add_argument("--updates", type=int, default=64, help="gradient steps of an iteration")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each storage")
    parser.add_argument("--size", type=int, default=84, help="height and width of the images")
    parser.add_argument("--frames", type=int, default=4, help="images of a stack")
    arguments = parser.parse_args()
    size, transitions = arguments.size, arguments.transitions
    stacks = f"{transitions:,} stacks of {arguments.frames} images of {size} x {size}"
    what = f"gradient steps of DQN with {arguments.batch} of {stacks}"
    report = Report(parser, arguments, what)
    env = wrappers.frame_stack(Screen(size), arguments.frames)
    sides = {storage: Side(env, storage, arguments) for storage in ("frames", "transitions")}
    learned = [jax.tree.map(np.asarray, side.state.learner) for side in sides.values()]
    if not all(jax.tree.leaves(jax.tree.map(np.array_equal, *learned))):
        raise SystemExit("the parameters learned from the two storages differ")
    rates: dict[str, list[float]] = {storage: [] for storage in sides}
    for _ in range(arguments.rounds):
        for storage, side in sides.items():
            rates[storage].append(side.rate(SECONDS))
    columns = {"storage": "", "buffer: MiB": ",.0f", "gradient steps a second": ",.0f", "least": ",.0f", "most": ",.0f"}
    table = report.table(f"Medians of {arguments.rounds}", columns)
    for storage, side in sides.items():
        each = rates[storage]
        table.add(storage, side.bytes / 2**20, statistics.median(each), min(each), max(each))
    report.finish(f"frames over transitions {spread(ratios(rates['frames'], rates['transitions']), '.2f')}")


class Side:
    """One program with its state, compiled and after two iterations.

    Attributes:
      state: State of the run.
      bytes: Bytes of its replay buffer.
    """

    def __init__(self, env: Environment, storage: Any, arguments: Any) -> None:
        config = jaxrl.DQNConfig(
            num_envs=8,
            num_steps=4,
            buffer_size=arguments.transitions,
            prefill=arguments.transitions,
            batch_size=arguments.batch,
            num_updates=arguments.updates,
            replay_storage=storage,
        )
        algo = jaxrl.dqn(env, config, network=Coarse(min(12, arguments.size)))
        self._hparams, self._params = algo.prepare(algo.hparams), algo.env.default_params
        self.state: Any = jax.jit(algo.init)(jax.random.key(0), self._hparams, self._params)
        self.bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state.buffer))
        self._step, self._iteration, self._updates = jax.jit(algo.step, donate_argnums=2), 0, arguments.updates
        for _ in range(2):
            self._advance()

    def rate(self, seconds: float) -> float:
        """Gradient steps a second, over some seconds."""
        began, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - began < seconds:
            self._advance()
            count += self._updates
        return count / (time.perf_counter() - began)

    def _advance(self) -> None:
        key, iteration = jax.random.key(self._iteration), jnp.int32(self._iteration)
        self.state, metrics = self._step(key, iteration, self.state, self._hparams, self._params)
        jax.block_until_ready(metrics)
        self._iteration += 1


if __name__ == "__main__":
    main()
