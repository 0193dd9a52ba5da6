"""Gradient steps a second of DQN from frames and from whole transitions, of stacks of images, in one invocation.

    python bench/frames.py [--transitions 20000] [--batch 32] [--updates 64] [--rounds 5] [--size 84] [--frames 4]

The network is tiny (an average of 12 x 12 pixels, then 16 units), so that drawing a batch takes most of the time. The
two programs run alternately, on one run each; a ratio is of medians, with the least and most within a round.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

import jaxrl
from bench.report import ratios, spread
from envs import Environment, EnvParams, EnvState, spaces, wrappers


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
    """Averages of 12 x 12 pixels, and a hidden layer."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        """Two action values of a stack `[frames, height, width, 1]`."""
        coarse = nn.avg_pool(obs.astype(jnp.float32) / 255, (12, 12), (12, 12))
        return nn.Dense(2)(nn.relu(nn.Dense(16)(jnp.ravel(coarse))))


def main() -> None:
    """Measures and prints one line for each storage, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {
        "transitions": 20_000,
        "batch": 32,
        "updates": 64,
        "rounds": 5,
        "size": 84,
        "frames": 4,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    env = wrappers.frame_stack(Screen(asked.size), asked.frames)
    sides = {}
    for storage in ("frames", "transitions"):
        config = jaxrl.DQNConfig(
            num_envs=8,
            num_steps=4,
            buffer_size=asked.transitions,
            batch_size=asked.batch,
            num_updates=asked.updates,
            replay_storage=storage,
        )
        sides[storage] = _Side(jaxrl.dqn(env, config, network=Coarse()))
    rates: dict[str, list[float]] = {storage: [] for storage in sides}
    for _ in range(asked.rounds):
        for storage, side in sides.items():
            rates[storage].append(side.rate(asked.updates))
    for storage, side in sides.items():
        print(f"{storage}: {side.bytes / 2**20:,.0f} MiB, {spread(rates[storage], ',.0f')} gradient steps/s")
    print(f"frames over transitions: {spread(ratios(rates['frames'], rates['transitions']), '.2f')}")


class _Side:
    """One program with its state."""

    def __init__(self, algo: Any):
        self.hparams, self.params = algo.prepare(algo.hparams), algo.env.default_params
        self.state = jax.jit(algo.init)(jax.random.key(0), self.hparams, self.params)
        self.bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state.buffer))
        self.step, self.iteration = jax.jit(algo.step, donate_argnums=2), 0
        self.rate(1)

    def rate(self, updates: int, seconds: float = 2.0) -> float:
        """Gradient steps a second, over some seconds."""
        started, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - started < seconds:
            key = jax.random.key(self.iteration)
            self.state, metrics = self.step(key, jnp.int32(self.iteration), self.state, self.hparams, self.params)
            jax.block_until_ready(metrics)
            self.iteration, count = self.iteration + 1, count + updates
        return count / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
