"""Crowds for PettingZoo: `as_pettingzoo(env)`, a `ParallelEnv` whose agents leave when they finish.

env = as_pettingzoo(envs.make("crowd/circle", num_agents=8))
obs, infos = env.reset(seed=0)
while env.agents:
    actions = {agent: env.action_space(agent).sample() for agent in env.agents}
    obs, rewards, terminations, truncations, infos = env.step(actions)
"""

from typing import Any

from envs import base
from envs.errors import MissingPackageError, UserValueError, installing
from envs.pytrees import Params

__all__ = ["as_pettingzoo"]


def as_pettingzoo(env: base.Environment, params: Params = None, render_mode: str | None = None) -> Any:
    """A crowd as PettingZoo's `ParallelEnv`.

    The agents of an episode are those that take part in it. One that finishes is terminated and leaves; the time
    limit truncates the remaining ones. Equal seeds give equal episodes, and a reset without a seed continues the
    random sequence of the last one. The key of seed `s` is `jax.random.key(s)`; seeds from 2**32 on are hashed, see
    `Parallel`.

    `infos[agent]["metrics"]` are the environment's metrics of the step, the same for every agent. Where actions are
    forbidden, `infos[agent]["action_mask"]` has the next allowed ones, after a reset and a step, as an int8 mask for
    `action_space(agent).sample(mask)`. Spaces are those of `envs.adapters.outgoing.gymnasium`.

    Args:
      env: Environment whose rewards have the shape `(agents,)`.
      params: Parameters of the environment; None for its defaults.
      render_mode: Kind of rendering: "rgb_array" for images by `render()`, or None.

    Returns:
      A `pettingzoo.ParallelEnv`; every step is one compiled call, for any number of agents.

    Raises:
      ImportError: PettingZoo is not installed.
      TypeError: `env` is not an environment, `params` belong to another one, or Gymnasium has no such space.
      ValueError: `env` has a single agent or breaks the contract, parameters are out of range, or `render_mode` is
        unknown.
    """
    try:
        from envs.adapters.outgoing.pettingzoo_parallel import MODES, Parallel
    except ImportError as error:
        raise MissingPackageError(f"as_pettingzoo needs an extra: {installing('pettingzoo')} ({error}).") from error
    if render_mode not in (None, *MODES):
        raise UserValueError(f"render_mode takes {', '.join(map(repr, MODES))} or None, got {render_mode!r}.")
    return Parallel(env, params, render_mode)
