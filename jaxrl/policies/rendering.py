"""Films of a policy, and pages and pictures of crowds."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from envs.arguments import class_names
from envs.crowd.crowd import Crowd
from envs.errors import MissingPackageError, UserTypeError, UserValueError, installing
from envs.files import replacing
from envs.settings import in_own_settings
from envs.wrappers.asymmetric import seen_like
from jaxrl.learning.rollout import agents_ended, step_once
from jaxrl.policies.crowds import params_in
from jaxrl.policies.playing import Player, check_fit, player_of, random_actions
from jaxrl.policies.rendering_crowd import EPISODES, write_episode
from jaxrl.pytrees import Action, EnvParams, State
from jaxrl.results.policy import TrainedPolicy

__all__ = ["render"]

_VISIBLE = 16  # loss of a colour's channel, of 255, beyond which a film takes another palette
VIDEO_HINT = f"an .mp4 needs imageio-ffmpeg: {installing('video')}, or write a .gif, which needs nothing more"


@in_own_settings
def render(
    env: Any,
    policy: Callable[..., Any] | None,
    path: str | Path,
    *,
    env_params: EnvParams = None,
    num_steps: int | None = None,
    seed: int = 0,
    fps: int = 30,
) -> Path:
    """Play a policy and write a film, or for a crowd a page that plays the episode or a picture of its paths.

    Args:
      env: Environment that can be drawn. The policy of a crowd may have been trained in another scenario or
        with another number of people, if it observes the same number of neighbours.
      policy: Function `policy(obs) -> action`, such as `result.policy(...)`, which then acts greedily;
        if the environment masks actions it is called as `policy(obs, mask=mask)`. None acts at random.
        For a page or a picture the function is traced.
      path: File to write; an existing file is replaced. `.mp4` or `.gif` is a film; for a crowd, `.html` is a page
        to play in a browser (`envs.crowd.player.page`) and `.png` shows all paths (`envs.crowd.rendering.paths`).
      env_params: Parameters of the environment; None for those with which a policy of `result.policy` was trained,
        as in `jaxrl.evaluate`, otherwise the defaults. In another crowd, the parameters of the scenario are those of
        that scenario, and all agents are present.
      num_steps: Number of steps to play, over several episodes if necessary; None plays one episode. A page or a
        picture shows the start of one episode.
      seed: Random seed of the episodes.
      fps: Frames per second of a film.

    Returns:
      The path.

    Raises:
      TypeError: `env` is not an environment, or `policy` is not a function (for example a whole result).
      ValueError: The environment cannot be drawn, the policy is of another environment, the suffix is unknown, a
        number is out of range, or the file cannot be written.
      ImportError: The file is an `.mp4` and imageio-ffmpeg is not installed.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    films = {".mp4": _write_mp4, ".gif": _write_gif}
    if suffix not in (*films, *EPISODES):
        raise UserValueError(
            f"path is {str(file)!r}; a film's name ends in {' or '.join(films)}, and for a crowd there is "
            f"{' or '.join(EPISODES)} as well."
        )
    for name, number in (("num_steps", 1 if num_steps is None else num_steps), ("fps", fps)):
        if number < 1:
            raise UserValueError(f"{name} is {number}; it takes a positive number.")
    if policy is not None and not callable(policy):
        raise UserTypeError(
            f"policy must be a function of observations, such as result.policy(seed=0), or None, "
            f"got {type(policy).__name__}."
        )
    if isinstance(policy, TrainedPolicy):
        env = seen_like(env, policy.algo.env)
    check_fit(env, policy.algo.env if isinstance(policy, TrainedPolicy) else None)
    if suffix in EPISODES and not isinstance(env, Crowd):
        raise UserValueError(
            f"path is {str(file)!r}, but {suffix} shows crowds only; a film of {env.name} ends in {' or '.join(films)}."
        )
    if env_params is None and isinstance(policy, TrainedPolicy):
        env_params = params_in(env, policy)
    params = env.default_params if env_params is None else env_params
    if not isinstance(params, type(env.default_params)):
        kind, got = class_names(type(env.default_params), params)
        raise UserTypeError(f"env_params must be {kind} of {env.name}, got {got}.")
    params = env.checked_params(params)
    player = None if policy is None else player_of(env, policy)
    if suffix in EPISODES:
        return write_episode(env, player, params, num_steps, seed, file)
    from envs.rendering import Scene

    scene = Scene(env, params)
    with replacing(file) as part:
        frames = (scene.frame(state) for state in _play(env, player, params, num_steps, seed))
        films[suffix](part, frames, scene.size, fps)
    return file


def _play(env: Any, player: Player | None, params: EnvParams, num_steps: int | None, seed: int) -> Iterable[Any]:
    """The states of the episodes, including the first and the last of each."""
    reset = jax.jit(env.reset_env)
    drawn = jax.jit(random_actions(env, params))

    @jax.jit
    def step(key: jax.Array, state: State, action: Action) -> tuple[Any, Any, jax.Array, jax.Array]:
        obs, state, reward, terminated, truncated, info = step_once(env, key, state, action, params)
        done = terminated | truncated
        return obs, state, done, agents_ended(reward, done, info)

    key, reset_key = jax.random.split(jax.random.key(seed))
    obs, state = reset(reset_key, params)
    yield jax.device_get(state)
    played, memory = 0, () if player is None else player.initial_memory()
    while num_steps is None or played < num_steps:
        key, act_key, step_key, reset_key = jax.random.split(key, 4)
        if player is None:
            action = drawn(act_key)
        else:
            action, memory = player.act(obs, env.action_mask(state, params), memory)
        obs, state, done, ended = step(step_key, state, action)
        memory = memory if player is None else player.remembered(memory, ended)
        yield jax.device_get(state)
        played += 1
        if done:
            if num_steps is None:
                return
            obs, state = reset(reset_key, params)


def _write_gif(file: Path, frames: Iterable[np.ndarray], size: tuple[int, int], fps: int) -> None:
    from PIL import Image

    del size
    pictures: list[Image.Image] = []
    palette, before, lost = None, None, 0
    for frame in frames:  # in the colours of an earlier frame while they suffice: a palette for each is slow
        picture = Image.fromarray(frame)
        shown = None if palette is None else picture.quantize(palette=palette, dither=Image.Dither.NONE)
        if shown is None or _largest_error(shown, frame) > lost + _VISIBLE:
            # With the colours of the former palette's frame, which may come back.
            palette = Image.fromarray(frame if before is None else np.concatenate([before, frame])).quantize()
            shown = picture.quantize(palette=palette, dither=Image.Dither.NONE)
            before, lost = frame, _largest_error(shown, frame)
        pictures.append(shown)
    # Durations in a GIF are in hundredths of a second.
    duration = max(1, round(100 / fps)) * 10
    pictures[0].save(file, format="GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)


def _largest_error(picture: Any, frame: np.ndarray) -> int:
    """The largest difference of a channel between a picture with a palette and its frame, of 255."""
    return int(np.max(np.abs(np.asarray(picture.convert("RGB"), np.int16) - frame)))


def _write_mp4(file: Path, frames: Iterable[np.ndarray], size: tuple[int, int], fps: int) -> None:
    try:
        from imageio_ffmpeg import get_ffmpeg_exe
    except ModuleNotFoundError:
        raise MissingPackageError(VIDEO_HINT) from None
    height, width = size
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    target = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-f", "mp4", str(file)]
    command = [get_ffmpeg_exe(), "-y", "-loglevel", "error", *source, *target]
    with tempfile.TemporaryFile() as errors:
        # Its own session, so that Ctrl-C ends this process first; and no fork, because JAX has threads.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, start_new_session=True) as encoder:
            assert encoder.stdin is not None
            for frame in frames:
                encoder.stdin.write(frame.data)
        if encoder.returncode:
            errors.seek(0)
            raise OSError(errors.read().decode(errors="replace").strip().splitlines()[-1])
