"""Pages and pictures of one whole episode of a crowd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from envs.crowd.crowd import Crowd
from envs.crowd.params import CrowdParams
from envs.crowd.trajectories import Trajectory, roll
from envs.errors import UserValueError
from envs.files import replacing
from jaxrl.policies.playing import Player, random_actions
from jaxrl.pytrees import Memory, Observation, State


def write_episode(
    env: Crowd, player: Player | None, params: CrowdParams, num_steps: int | None, seed: int, file: Path
) -> Path:
    """Play the start of an episode and write it in the format of the file's suffix, one of `EPISODES`.

    Args:
      env: Environment, static.
      player: Player of the policy, traced; None acts at random.
      params: Parameters of the environment, concrete.
      num_steps: Number of decisions; None for all up to the time limit.
      seed: Random seed of the episode.
      file: File to write, with a suffix of `EPISODES`.

    Returns:
      The file.

    Raises:
      ValueError: There are more steps than an episode has, or the file cannot be written.
    """
    longest = int(params.max_steps_in_episode)
    if num_steps is not None and num_steps > longest:
        raise UserValueError(f"num_steps is {num_steps}; {file.suffix} shows one episode, of {longest} steps at most.")
    draw = random_actions(env, params)

    def act(key: jax.Array, obs: Observation, state: State, memory: Memory, ended: jax.Array) -> tuple[jax.Array, Any]:
        del state
        return (draw(key), memory) if player is None else player.act(obs, None, player.remembered(memory, ended))

    start = () if player is None else player.initial_memory()
    episode = roll(env, act, jax.random.key(seed), params, num_steps or longest, start)
    EPISODES[file.suffix.lower()](episode, file, env.name)
    return file


def _write_page(episode: Trajectory, file: Path, title: str) -> None:
    from envs.crowd.player.page import player

    player(episode, path=file, title=title)


def _write_paths(episode: Trajectory, file: Path, title: str) -> None:
    from envs.crowd.rendering import paths

    figure = paths(episode, title=title)
    with replacing(file) as part:
        figure.savefig(part, format="png")


EPISODES: dict[str, Callable[[Trajectory, Path, str], None]] = {".html": _write_page, ".png": _write_paths}
