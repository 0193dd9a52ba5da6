"""Environments of `envs` in Gymnasium: single, vectorised, as pure functions, and by name.

    import gymnasium
    from envs.adapters.outgoing.gymnasium import as_gymnasium, as_gymnasium_vector, register

    env = as_gymnasium(envs.make("cartpole"), render_mode="rgb_array")
    many = as_gymnasium_vector(envs.make("cartpole"), num_envs=1024, autoreset_mode="SameStep")
    register()                                        # once, in every process that makes environments by name
    env = gymnasium.make("jaxrl/CartPole-v1")
    many = gymnasium.make_vec("jaxrl/Pathworld-v0", num_envs=16, hazard="exponential")

**Seeds.** `reset(seed=s)` creates the two keys `jax.random.split(jax.random.key(s))`. Reset number j since the seed,
from 0, is `env.reset_env(jax.random.fold_in(keys[0], j), params)`, and step number t is `env.step_env` with
`jax.random.fold_in(keys[1], t)`, in every mode. Environment i of many has the seed s + i and behaves like a single
environment with that seed; a rollout through an adapter equals a rollout of the environment itself. Seeds from 2**32 on
are hashed.

**Ends.** `truncated` is the environment's own time limit, `params.max_steps_in_episode`. The `max_episode_steps` of
`gymnasium.make` is a Gymnasium wrapper around it, which can only end episodes sooner; that of `make_vec` replaces
the limit. **Masks.** Where actions are forbidden, `info["action_mask"]` is the argument `mask` of
`action_space.sample`; for many environments it is `tuple(info["action_mask"])`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envs.errors import MissingPackageError
from envs.pytrees import Params
from envs.registry import ROWS

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

    from envs.adapters.outgoing.gymnasium_func import FunctionalEnv
    from envs.adapters.outgoing.gymnasium_single import SingleEnv
    from envs.adapters.outgoing.gymnasium_vector import VectorEnv

__all__ = ["as_func_env", "as_gymnasium", "as_gymnasium_vector", "ids", "make_vector", "register"]

NAMESPACE = "jaxrl"


def as_gymnasium(env: Any, params: Params = None, render_mode: str | None = None) -> SingleEnv:
    """An environment as a `gymnasium.Env`.

    Args:
      env: Environment with one agent.
      params: Parameters of the environment; None for its defaults.
      render_mode: Kind of rendering: "rgb_array" for images from `render()`; "human" for a window, which needs pygame.

    Returns:
      The environment, unwrapped. A step before a reset, or after the end of an episode, is an error.

    Raises:
      TypeError: `env` is not an environment, `params` belong to another one, or Gymnasium has no such space.
      ValueError: `env` has several agents, parameters are out of range, or the render mode is unknown.
      ImportError: Gymnasium is older than 1.1.
    """
    _need_gymnasium()
    from envs.adapters.outgoing.gymnasium_single import SingleEnv

    return SingleEnv(env, params, render_mode)


def as_gymnasium_vector(
    env: Any,
    num_envs: int,
    params: Params = None,
    *,
    autoreset_mode: str | AutoresetMode = "NextStep",
    device_arrays: bool = False,
    render_mode: str | None = None,
) -> VectorEnv:
    """Many copies of an environment as a `gymnasium.vector.VectorEnv`, all of them stepped by one compiled call.

    Args:
      env: Environment with one agent.
      num_envs: Number of environments.
      params: Parameters of all of them; None for the defaults. They are constants of the compiled programs.
      autoreset_mode: Treatment of episodes that end, as in Gymnasium. "NextStep": the next step resets,
        for any action, and has the reward 0. "SameStep": the step itself resets, and `info["final_obs"]` and
        `info["final_info"]` are those from the end of the episode. "Disabled": the caller resets, by
        `reset(options={"reset_mask": terminated | truncated})`.
      device_arrays: Whether to return JAX arrays without waiting for them. Actions are then not checked: an action out
        of range, and with "Disabled" a step past the end, raise no error, and `info["final_obs"]` is an array of all
        environments. Otherwise NumPy arrays, which are writable.
      render_mode: Kind of rendering: "rgb_array" for a tuple of images from `render()`.

    Raises:
      TypeError, ImportError: See `as_gymnasium`.
      ValueError: See `as_gymnasium`; also for an invalid number of environments or mode.
    """
    _need_gymnasium()
    from envs.adapters.outgoing.gymnasium_vector import VectorEnv

    return VectorEnv(env, num_envs, params, autoreset_mode, device_arrays, render_mode)


def as_func_env(env: Any, params: Params = None) -> FunctionalEnv:
    """An environment in Gymnasium's functional form, `gymnasium.experimental.functional.FuncEnv`.

    Args:
      env: Environment with one agent.
      params: Parameters of the environment; None for its defaults.

    Returns:
      Pure functions of explicit states and keys. The time limit, which is not part of that form, is
      `transition_info(...)["truncated"]`. Gymnasium's `FunctionalJaxEnv` accepts it. Its `FunctionalJaxVectorEnv` does
      not, because it resets by writing into states, which must be arrays; use `as_gymnasium_vector` for many
      environments.

    Raises:
      TypeError, ValueError, ImportError: See `as_gymnasium`.
    """
    _need_gymnasium()
    from envs.adapters.outgoing.gymnasium_func import FunctionalEnv

    return FunctionalEnv(env, params)


def ids() -> dict[str, str]:
    """The names in `envs.names()` by the ids that `register` gives them.

    An id is `jaxrl/` and the class, for instance `jaxrl/BernoulliBandit-v0` (for a wrapper followed by the inner class,
    `jaxrl/HideCartPole-v0`), or `jaxrl/` and Gymnasium's own id. Crowds and games, which have many agents, have none.
    """

    def class_of(name: str) -> str:
        row = ROWS[name]
        return row.class_name + (class_of(row.wraps) if row.wraps else "")

    return {
        f"{NAMESPACE}/{row.gymnasium_id or f'{class_of(name)}-v0'}": name
        for name, row in ROWS.items()
        if not name.startswith(("crowd/", "game/")) and not name.endswith("-self-play")  # which have several agents
    }


def register() -> tuple[str, ...]:
    """Register the environments of `envs` in Gymnasium under the ids in `ids()`; existing ids are left unchanged.

    `gymnasium.make` and `make_vec` then take the arguments of `as_gymnasium` and `as_gymnasium_vector`, and the
    static fields of the environment. Gymnasium 1 does not look for plugins, so call this once in every process.

    Returns:
      The ids.
    """
    from gymnasium.envs import registration

    for env_id, name in ids().items():
        if env_id not in registration.registry:
            registration.register(
                env_id,
                entry_point="envs.adapters.outgoing.gymnasium_single:MadeEnv",
                vector_entry_point="envs.adapters.outgoing.gymnasium:make_vector",
                order_enforce=False,
                kwargs={"name": name},
            )
    return tuple(ids())


def make_vector(
    name: str,
    num_envs: int,
    params: Params = None,
    autoreset_mode: str | AutoresetMode = "NextStep",
    device_arrays: bool = False,
    render_mode: str | None = None,
    max_episode_steps: int | None = None,
    **static: Any,
) -> VectorEnv:
    """The entry point of `gymnasium.make_vec`: `as_gymnasium_vector` by a name in `envs.names()`.

    Args:
      name, static: Arguments of `envs.make`.
      max_episode_steps: Time limit that replaces the one in `params`.
    """
    from envs.registry import make

    env = make(name, **static)
    if max_episode_steps is not None:
        params = (env.default_params if params is None else params).replace(max_steps_in_episode=max_episode_steps)
    return as_gymnasium_vector(
        env, num_envs, params, autoreset_mode=autoreset_mode, device_arrays=device_arrays, render_mode=render_mode
    )


def _need_gymnasium() -> None:
    try:
        from gymnasium.vector import AutoresetMode
    except ImportError:
        raise MissingPackageError(
            'This takes Gymnasium 1.1 or later, as gymnax does: pip install "gymnasium>=1.1".'
        ) from None
    del AutoresetMode
