"""Films of a policy at work, and pages and pictures of a crowd's."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from envs.base import Environment, spaces
from envs.crowd.crowd import Crowd
from envs.errors import MissingPackageError, UserTypeError, UserValueError
from envs.files import replacing
from jaxrl.learning.rollout import agents_ended, step_once
from jaxrl.policies.crowds import params_in
from jaxrl.policies.playing import Player, player_of
from jaxrl.policies.rendering_crowd import EPISODES, random_actions, write_episode
from jaxrl.results.policy import TrainedPolicy

__all__ = ["render"]

VIDEO_HINT = "an .mp4 needs imageio-ffmpeg: pip install 'jaxrl[video]', or write a .gif, which needs nothing more"


def render(
    env: Any,
    policy: Callable[..., Any] | None,
    path: str | Path,
    *,
    env_params: Any = None,
    num_steps: int | None = None,
    seed: int = 0,
    fps: int = 30,
) -> Path:
    """Plays a policy and writes what is seen: a film, or of a crowd a page that plays it or a picture of its paths.

    Args:
      env: an environment that can be drawn. A crowd's policy may be one that was trained in another scenario or
        with another number of people, as long as it observes as many neighbours.
      policy: `policy(obs) -> action`, such as `result.policy(...)`, which then acts greedily;
        where the environment masks actions it is called as `policy(obs, mask=mask)`. None acts at random.
        For a page or a picture it is traced.
      path: file to write; one that is there is replaced. `.mp4` or `.gif` is a film; of a crowd, `.html` is a page
        to play in a browser (`envs.rendering_player`) and `.png` shows all paths (`envs.rendering_crowd.paths`).
      env_params: the environment's parameters; None takes those that a policy of `result.policy`
        was trained with, and otherwise the default ones. In another crowd, what belongs to its scenario is the
        scenario's own, and everybody takes part.
      num_steps: steps to play, over as many episodes as begin; None plays one episode. A page or a picture shows
        the start of one episode.
      seed: of the episodes' random keys.
      fps: frames a second of a film.

    Returns:
      The path.

    Raises:
      TypeError: `env` is no environment, or `policy` no function, such as a whole result.
      ValueError: an environment without a drawing, a policy of another environment, another suffix, a
        number out of range, or a file that cannot be written.
      ImportError: an `.mp4` is asked for and imageio-ffmpeg is not installed.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    films = {".mp4": _write_mp4, ".gif": _write_gif}
    if suffix not in (*films, *EPISODES):
        raise UserValueError(
            f"path is {str(file)!r}; a film's name ends in {' or '.join(films)}, and of a crowd there is "
            f"{' or '.join(EPISODES)} as well."
        )
    for name, number in (("num_steps", 1 if num_steps is None else num_steps), ("fps", fps)):
        if number < 1:
            raise UserValueError(f"{name} is {number}; it takes a positive number.")
    _check_fit(env, policy)
    if suffix in EPISODES and not isinstance(env, Crowd):
        raise UserValueError(
            f"path is {str(file)!r}, but {suffix} shows crowds only; a film of {env.name} ends in {' or '.join(films)}."
        )
    if env_params is None and isinstance(policy, TrainedPolicy):
        env_params = params_in(env, policy)
    params = env.default_params if env_params is None else env_params
    if not isinstance(params, type(env.default_params)):
        kind = type(env.default_params).__name__
        raise UserTypeError(f"env_params must be {kind} of {env.name}, got {type(params).__name__}.")
    env.check_params(params)
    player = None if policy is None else player_of(env, policy)
    if suffix in EPISODES:
        return write_episode(env, player, params, num_steps, seed, file)
    return _write_film(env, player, params, num_steps, seed, fps, file, films[suffix])


def _write_film(
    env: Any,
    player: Player | None,
    params: Any,
    num_steps: int | None,
    seed: int,
    fps: int,
    file: Path,
    write: Callable,
) -> Path:
    from envs.rendering import Scene

    scene = Scene(env, params)
    with replacing(file) as part:
        frames = (scene.frame(state) for state in _play(env, player, params, num_steps, seed))
        write(part, frames, scene.size, fps)
    return file


def _check_fit(env: Any, policy: Any) -> None:
    """Refuse what cannot play, as far as it tells before it is called."""
    if not isinstance(env, Environment):
        raise UserTypeError(f"env must be an environment, such as envs.make('cartpole'), got {type(env).__name__}.")
    if policy is not None and not callable(policy):
        raise UserTypeError(
            f"policy must be a function of observations, such as result.policy(seed=0), or None, "
            f"got {type(policy).__name__}."
        )
    if not isinstance(policy, TrainedPolicy) or _interface(policy.algo.env) == _interface(env):
        return
    if isinstance(env, Crowd) and isinstance(policy.algo.env, Crowd):
        raise UserValueError(
            f"policy was trained to observe other things than {env.name} shows: perception, preset, dynamics and number"
            " of neighbours must be its own, as in jaxrl.policies.crowds.crowd_like(policy, scenario, num_agents)."
        )
    raise UserValueError(
        f"policy was trained on {policy.algo.env.name}, whose observations or actions are unlike those of "
        f"{env.name}; env takes the policy's own, policy.algo.env, or one like it."
    )


def _interface(env: Environment) -> Any:
    """What a policy must know of an environment: structure, shapes and types of observations, and its actions."""
    params, key = env.default_params, jax.random.key(0)
    space = env.action_space(params)
    obs, action = jax.eval_shape(env.reset_env, key, params)[0], jax.eval_shape(space.sample, key)
    if isinstance(env, Crowd):  # whose agents share the policy, however many they are
        obs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), obs)
    leaves, structure = jax.tree.flatten((obs, action))
    numbers = [part.n for part in getattr(space, "spaces", (space,)) if isinstance(part, spaces.Discrete)]
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves], numbers


def _play(env: Any, player: Player | None, params: Any, num_steps: int | None, seed: int) -> Iterable[Any]:
    """The states of the episodes, the first one and the last one of each included."""
    reset = jax.jit(env.reset_env)
    sample = jax.jit(random_actions(env, params) if isinstance(env, Crowd) else env.action_space(params).sample)

    @jax.jit
    def step(key: jax.Array, state: Any, action: Any) -> tuple[Any, Any, jax.Array, jax.Array]:
        obs, state, reward, terminated, truncated, info = step_once(env, key, state, action, params)
        done = terminated | truncated
        return obs, state, done, agents_ended(reward, done, info)

    key, reset_key = jax.random.split(jax.random.key(seed))
    obs, state = reset(reset_key, params)
    yield jax.device_get(state)
    played, memory = 0, () if player is None else player.start()
    while num_steps is None or played < num_steps:
        key, act_key, step_key, reset_key = jax.random.split(key, 4)
        if player is None:
            action = sample(act_key)
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
    for frame in frames:  # all in the colours of the first one: an adaptive palette for each is slow
        picture = Image.fromarray(frame)
        pictures.append(
            picture.quantize(palette=pictures[0], dither=Image.Dither.NONE) if pictures else picture.quantize()
        )
    # A GIF counts in hundredths of a second.
    duration = max(1, round(100 / fps)) * 10
    pictures[0].save(file, format="GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)


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
        # Its own session, so that Ctrl-C ends this process first; and no fork beside JAX's threads.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, start_new_session=True) as encoder:
            assert encoder.stdin is not None
            for frame in frames:
                encoder.stdin.write(frame.data)
        if encoder.returncode:
            errors.seek(0)
            raise OSError(errors.read().decode(errors="replace").strip().splitlines()[-1])
