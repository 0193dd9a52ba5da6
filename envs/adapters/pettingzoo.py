"""Crowds for PettingZoo: `as_pettingzoo(env)`, a `ParallelEnv` whose agents leave when they finish.

env = as_pettingzoo(envs.make("crowd/circle", num_agents=8))
obs, infos = env.reset(seed=0)
while env.agents:
    actions = {agent: env.action_space(agent).sample() for agent in env.agents}
    obs, rewards, terminations, truncations, infos = env.step(actions)
"""

from typing import Any

from envs import base
from envs.errors import MissingPackageError, UserValueError

__all__ = ["as_pettingzoo"]


def as_pettingzoo(env: base.Environment, params: Any = None, render_mode: str | None = None) -> Any:
    """A crowd as PettingZoo's `ParallelEnv`.

    The agents of an episode are those that take part in it. One that finishes is terminated and leaves; the time
    limit truncates those that are left. Equal seeds give equal episodes, and a reset without a seed goes on from the
    last one. The seed `s` is JAX's `jax.random.key(s)`, from 2**32 on hashed: see `Parallel`.

    `infos[agent]["metrics"]` are the environment's metrics of the step, the same for every agent. Where actions are
    forbidden, `infos[agent]["action_mask"]` has those that are allowed next, after a reset and a step, as int8 that
    `action_space(agent).sample(mask)` takes. Spaces are those of `envs.adapters.gymnasium`.

    Args:
      env: an environment whose rewards have the shape `(agents,)`.
      params: its parameters; None for its defaults.
      render_mode: "rgb_array" for pictures by `render()`, or None.

    Returns:
      A `pettingzoo.ParallelEnv`; every step is one compiled call, whatever the number of agents.

    Raises:
      ImportError: PettingZoo is missing.
      TypeError: `env` is no environment, `params` are another one's, or Gymnasium has no such space.
      ValueError: it has a single agent, or breaks the contract; parameters are out of range; there is no such
        `render_mode`.
    """
    try:
        from envs.adapters.pettingzoo_parallel import MODES, Parallel
    except ImportError as error:
        raise MissingPackageError(
            f'as_pettingzoo needs an extra: pip install "jaxrl[pettingzoo]" ({error}).'
        ) from error
    if render_mode not in (None, *MODES):
        raise UserValueError(f"render_mode takes {', '.join(map(repr, MODES))} or None, got {render_mode!r}.")
    return Parallel(env, params, render_mode)
