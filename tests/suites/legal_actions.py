"""Returns of a preset on a game of Jumanji, and the illegal actions in 100,000 steps of each trained policy.

    python tests/suites/legal_actions.py jumanji/Game2048-v1 [--seeds 4] [--episodes 16]

The steps are those of sampled actions, as in training. Whether an action is legal is computed in NumPy from
observations by the rules of the game, without the mask that the policy has had.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import jaxrl
from jaxrl.presets.registry import find

# Changes of row and column by each action of Snake.
_MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])


def legal_in_2048(board: np.ndarray) -> np.ndarray:
    """The legal actions `[N, 4]`, up, right, down and left, of boards `[N, R, R]`: those that move a tile."""
    rows = np.stack([np.rot90(board, turns, axes=(1, 2)) for turns in range(4)], axis=1)
    gap = (rows[..., :-1] == 0) & (rows[..., 1:] != 0)  # a tile that moves left into an empty cell
    pair = (rows[..., :-1] != 0) & (rows[..., :-1] == rows[..., 1:])
    to_the_left = np.any(gap | pair, axis=(2, 3))
    # The upper row is the left column after one quarter turn counter-clockwise.
    return to_the_left[:, [1, 2, 3, 0]]


def legal_in_snake(grid: np.ndarray) -> np.ndarray:
    """The legal actions `[N, 4]` of grids `[N, R, C, 5]`: those to a cell without a part of the body but the tail."""
    planes = [np.pad(grid[..., i] > 0, ((0, 0), (1, 1), (1, 1)), constant_values=i == 0) for i in range(3)]
    body, head, tail = planes  # a wall counts as body
    blocked, (which, rows, columns) = body & ~tail, np.nonzero(head)
    return ~np.stack([blocked[which, rows + row, columns + column] for row, column in _MOVES], axis=1)


RULES: Mapping[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "jumanji/Game2048-v1": ("board", legal_in_2048),
    "jumanji/Snake-v1": ("grid", legal_in_snake),
}


def illegal_actions(policy: Any, game: str, *, steps: int = 100_000, num_envs: int = 100) -> tuple[int, int]:
    """Numbers of steps with an illegal action, and of steps in which none was legal, which are not counted as such.

    Args:
      policy: Policy of one run.
      game: Name of the environment.
      steps: Number of steps.
      num_envs: Number of environments.
    """
    entry, rule = RULES[game]
    data = jaxrl.collect(policy, steps=steps // num_envs, num_envs=num_envs, greedy=False)
    seen = f"observation.{entry}"
    boards = np.asarray(data[seen if seen in data else "observation"])  # of an actor that sees the entry alone
    legal = rule(boards.reshape(-1, *boards.shape[2:]))
    taken = np.take_along_axis(legal, np.asarray(data["action"]).reshape(-1, 1), axis=1)[:, 0]
    none = ~legal.any(axis=1)
    return int(np.sum(~taken & ~none)), int(np.sum(none))


def main() -> None:
    """Print the returns, and the numbers of illegal actions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", choices=[game for game in RULES if find("ppo", game)])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=16)
    arguments = parser.parse_args()
    preset, start = jaxrl.preset("ppo", arguments.game), time.time()
    result = jaxrl.train(
        preset.algo, seeds=arguments.seeds, env_steps=preset.env_steps, evals=1, eval_episodes=arguments.episodes
    )
    for name in ("return", "return_sampled"):
        print(name, np.round(np.asarray(result.values(name))[0, :, -1], 2).tolist())
    print(f"{(time.time() - start) / 60:.1f} minutes")
    for seed in range(arguments.seeds):
        illegal, none = illegal_actions(result.policy(seed=seed), arguments.game)
        print(f"seed {seed}: {illegal} illegal actions in 100,000 steps, {none} steps in which none was legal")


if __name__ == "__main__":
    main()
