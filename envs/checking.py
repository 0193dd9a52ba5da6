"""The laws of the environment contract, tested on any environment by rollouts."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs import base
from envs.abstract_checking import ContractError, check_abstractly, fail, sample
from envs.arguments import check_flag
from envs.base import spaces
from envs.choices import in_space, parts_of
from envs.law_progress import Laws
from envs.pytrees import Action, Mask, Params, PyTree, State
from envs.settings import in_own_settings

__all__ = ["ContractError", "check", "check_abstractly"]

# Largest difference of the same transition between two compilations: a thousand float32 roundings of the leaf's size,
# more than a step of a few hundred operations needs.
TOLERANCE = 1000 * float(np.finfo(np.float32).eps)

# Magnitude at which unbounded actions are tested.
EXTREME = 1e6

_SHORT_LIMIT = 5
NUM_LAWS = 11


class Transitions(NamedTuple):
    """A rollout with automatic resets; every leaf `[T, ...]`. `stepped_*` come from `step_env` alone."""

    key: Any
    state: Any
    action: Any
    stepped: Any
    cut: Any
    mask: Any
    obs: Any
    next_state: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_observation: Any


@in_own_settings
def check(env: base.Environment, params: Params = None, *, num_steps: int = 64, progress: bool = True) -> None:
    """Test an environment on every law of the contract; takes a few seconds.

    The laws: it is hashable and equal to its copy; a reset and a step return the same shapes and strong
    types, with numbers of `params` traced; reward, flags, mask and info have the shapes that
    `Environment` promises; observations are inside their space; the same key gives the same
    trajectory; jit and eager, vmap and a loop agree; the time limit is given, truncates and never
    terminates; `final_observation` is the one before the reset; a mask always allows an action; nothing becomes NaN or
    infinite under extreme actions.

    Args:
      env: Environment.
      params: Parameters of the environment; None for its defaults.
      num_steps: Length of the rollouts.
      progress: Whether to show on standard error the law being tested and, at the end, the number of laws that hold.

    Raises:
      ContractError: A law does not hold. The message is one sentence that names it.
      TypeError: `env` is not an `envs.Environment`.
    """
    check_flag("progress", progress)
    of = f"envs.check({env.name if isinstance(env, base.Environment) else type(env).__name__})"
    with Laws(of, NUM_LAWS, progress) as law:
        _check_all(env, params, num_steps, law)


def _check_all(env: base.Environment, params: Params, num_steps: int, law: Laws) -> None:
    law("methods, hash, types and shapes")
    agents = check_abstractly(env, params)
    params = jax.tree.map(jnp.asarray, env.default_params if params is None else params)
    key = jax.random.key(0)
    space = env.action_space(params)
    law("actions lie in their space")
    actions = sample(space, key, (num_steps, *agents))
    _check_inside("action law: a sampled action", space, actions, agents)

    law("observations lie in their space")
    (first_obs, first_state), run = _roll(env, key, actions, params)
    first_obs_alone = jax.tree.map(lambda leaf: leaf[None], first_obs)
    _check_inside("observation law: a reset's observation", env.observation_space(params), first_obs_alone, agents)
    if (privileged := env.privileged_space(params)) is not None:
        facts = jax.vmap(env.privileged, (0, None))(run.state, params)
        _check_inside("privileged law: privileged(...)", privileged, facts, agents)
    law("step is step_env, limited and reset")
    _check_run(env, params, run, agents)
    law("the same key gives the same trajectory")
    _require_close("the same key must give the same trajectory", run, _roll(env, key, actions, params)[1], 0.0)
    law("vmap agrees with a loop")
    _require_close(
        "vmap must agree with a loop over step_env",
        _step_all(env, run.key, run.state, run.action, params),
        run.stepped,
    )
    law("jit agrees with eager")
    _check_eager(env, params, key, (first_obs, first_state), run)
    for high in (False, True):
        law(f"nothing ceases to be finite under the {'highest' if high else 'lowest'} actions")
        extreme = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (num_steps, *agents, *leaf.shape)), _extreme(space, high)
        )
        extreme_run = _roll(env, key, extreme, params)[1]
        _check_allowed(extreme_run)
        _check_finite(extreme_run, "the highest" if high else "the lowest")
    law("nothing ceases to be finite under random actions")
    _check_finite(run, "random")
    law("the time limit truncates, and never terminates")
    _check_time_limit(env, params, key, actions, run, agents)


def _check_inside(what: str, space: spaces.Space, value: PyTree, agents: tuple[int, ...]) -> None:
    """Check on the host that values `[T, *A, ...]` lie in a space (gymnax's own test does not read dictionaries)."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, dict) or set(value) != set(space.spaces):
            fail(f"{what} is not a dictionary with the keys {sorted(space.spaces)} of its space.")
        for name, part in space.spaces.items():
            _check_inside(f"{what} at {name!r}", part, value[name], agents)
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            fail(f"{what} is not a tuple of the {len(space.spaces)} parts of its space.")
        for index, part in enumerate(space.spaces):
            _check_inside(f"{what} at {index}", part, value[index], agents)
    elif isinstance(space, spaces.Discrete | spaces.Box):
        if value.shape[1:] != (*agents, *space.shape) or value.dtype != space.dtype:
            fail(f"{what} is {value.dtype}{list(value.shape[1:])}; its space is {space!r}.")
        low, high = (0, space.n - 1) if isinstance(space, spaces.Discrete) else (space.low, space.high)
        array = np.asarray(value)
        inside = (array >= np.asarray(low)) & (array <= np.asarray(high))
        if not np.all(inside):
            fail(f"{what} is {array[int(np.argwhere(~inside)[0][0])]}, outside its space {space!r}.")
    else:
        fail(f"{what} belongs to a {type(space).__name__}; spaces are Discrete, Box, Tuple and Dict.")


@functools.partial(jax.jit, static_argnums=0)
def _roll(env: base.Environment, key: jax.Array, actions: Action, params: Params) -> tuple[Any, Transitions]:
    reset_key, step_key = jax.random.split(key)
    first = env.reset(reset_key, params)

    def body(state: State, xs: tuple[Any, Any]) -> tuple[Any, Transitions]:
        key, action = xs
        mask = env.action_mask(state, params)
        action = _legal(env.action_space(params), action, mask)
        own_key = jax.random.split(key)[0]
        stepped = env.step_env(own_key, state, action, params)
        obs, next_state, reward, terminated, truncated, info = env.step(key, state, action, params)
        return next_state, Transitions(
            key=own_key,
            state=state,
            action=action,
            stepped=stepped,
            cut=env.is_truncated(stepped[1], params),
            mask=mask,
            obs=obs,
            next_state=next_state,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_observation=info["final_observation"],
        )

    count = jax.tree.leaves(actions)[0].shape[0]
    return first, jax.lax.scan(body, first[1], (jax.random.split(step_key, count), actions))[1]


@functools.partial(jax.jit, static_argnums=0)
def _step_all(env: base.Environment, key: jax.Array, state: State, action: Action, params: Params) -> Any:
    return jax.vmap(env.step_env, (0, 0, 0, None))(key, state, action, params)


def _legal(space: spaces.Space, action: Action, mask: Mask) -> Any:
    """The action, or the first allowed choice of each part where a mask forbids it."""
    if mask is None:
        return action
    legal = []
    for choice, allowed in zip(parts_of(space, action), jax.tree.leaves(mask), strict=True):
        fits = jnp.take_along_axis(allowed, choice[..., None], axis=-1)[..., 0]
        legal.append(jnp.where(fits, choice, jnp.argmax(allowed, axis=-1).astype(choice.dtype)))
    return in_space(space, legal)


def _extreme(space: Any, high: bool) -> Any:
    if isinstance(space, spaces.Tuple):
        return tuple(_extreme(part, high) for part in space.spaces)
    if isinstance(space, spaces.Dict):
        return {name: _extreme(part, high) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Discrete):
        return jnp.asarray(space.n - 1 if high else 0, space.dtype)
    bound = jnp.broadcast_to(jnp.asarray(space.high if high else space.low, space.dtype), space.shape)
    return jnp.clip(bound, -EXTREME, EXTREME).astype(space.dtype)


def _check_run(env: base.Environment, params: Params, run: Transitions, agents: tuple[int, ...]) -> None:
    obs, state, reward, terminated, _ = run.stepped
    _check_allowed(run)
    _check_inside("observation law: an observation", env.observation_space(params), run.final_observation, agents)
    _require_close("final_observation must be step_env's, from before the reset", run.final_observation, obs)
    _require_close("step's reward must be step_env's", run.reward, reward)
    _require_close("step's terminated must be step_env's", run.terminated, terminated)
    _require_close("step's truncated must be is_truncated(...)", run.truncated, run.cut)
    _require_close("state.time must grow by 1 in a step", state.time, run.state.time + 1)
    done = np.asarray(run.terminated) | np.asarray(run.truncated)
    _require_close(
        "state.time must be 0 after the end of an episode, and continue otherwise",
        run.next_state.time,
        np.where(done, 0, np.asarray(state.time)),
    )
    run_obs, obs = jax.tree.map(np.asarray, (run.obs, obs))
    going_on = np.flatnonzero(~done)
    _require_close(
        "the observation inside an episode must be step_env's",
        jax.tree.map(lambda leaf: leaf[going_on], run_obs),
        jax.tree.map(lambda leaf: leaf[going_on], obs),
    )


def _check_allowed(run: Transitions) -> None:
    for path, leaf in jax.tree.leaves_with_path(run.mask):
        stuck = np.argwhere(~np.any(np.asarray(leaf), axis=-1))
        if stuck.size:
            step, *agent = map(int, stuck[0])
            whose = f" for agent {agent}" if agent else ""
            fail(
                f"mask law: action_mask(...){jax.tree_util.keystr(path)} forbids every action{whose} after {step} "
                "steps; it must allow at least one in every state."
            )


def _check_eager(env: base.Environment, params: Params, key: jax.Array, first: PyTree, run: Transitions) -> None:
    _require_close("jit must agree with eager in reset_env", env.reset_env(jax.random.split(key)[0], params), first)
    key, state, action, stepped = jax.tree.map(lambda leaf: leaf[1], (run.key, run.state, run.action, run.stepped))
    _require_close("jit must agree with eager in step_env", env.step_env(key, state, action, params), stepped)


def _check_finite(run: Transitions, kind: str) -> None:
    obs, state, reward, _, info = run.stepped
    for what, tree in (("observation", obs), ("state", state), ("reward", reward), ("info", info)):
        # A state may be infinite from the start, such as the mass of a wall; NaN is not equal to itself.
        before = jax.tree.leaves(run.state) if what == "state" else [None] * len(jax.tree.leaves(tree))
        for (path, leaf), old in zip(jax.tree.leaves_with_path(tree), before, strict=True):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                continue
            bad = ~np.isfinite(np.asarray(leaf)) & (True if old is None else np.asarray(leaf) != np.asarray(old))
            if np.any(bad):
                step = int(np.argwhere(bad)[0][0])
                fail(
                    f"finite law: {what}{jax.tree_util.keystr(path)} is {np.asarray(leaf)[step]} after {step + 1} "
                    f"steps of {kind} actions."
                )


def _check_time_limit(
    env: base.Environment, params: Params, key: jax.Array, actions: Action, run: Transitions, agents: tuple[int, ...]
) -> None:
    """Check that a short limit sets `truncated` at once, and never `terminated`."""
    limit = jnp.asarray(_SHORT_LIMIT, jnp.asarray(params.max_steps_in_episode).dtype)
    short = _roll(env, key, actions, params.replace(max_steps_in_episode=limit))[1]
    time, cut = np.asarray(short.stepped[1].time), np.asarray(short.truncated)
    if not np.all(cut[time >= _SHORT_LIMIT]):
        fail(f"time law: with max_steps_in_episode={_SHORT_LIMIT} an episode continues past {_SHORT_LIMIT} steps.")
    _check_run(env, params.replace(max_steps_in_episode=limit), short, agents)
    until = min(_SHORT_LIMIT, len(cut))
    _require_close(
        f"terminated must not depend on the time limit (tried with {_SHORT_LIMIT})",
        np.asarray(short.terminated)[:until],
        np.asarray(run.terminated)[:until],
    )


def _require_close(law: str, a: PyTree, b: PyTree, tolerance: float = TOLERANCE) -> None:
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        x, y = _host(x), _host(y)
        if np.issubdtype(x.dtype, np.floating) and x.size:
            finite = np.concatenate([x[np.isfinite(x)].ravel(), np.ones(1, x.dtype)])
            close = np.isclose(x, y, rtol=0, atol=tolerance * float(np.abs(finite).max()), equal_nan=True)
        else:
            close = x == y
        if not np.all(close):
            where = tuple(int(i) for i in np.argwhere(~close)[0])
            fail(f"{law}, but at {jax.tree_util.keystr(path)}{list(where)} they are {x[where]} and {y[where]}.")


def _host(leaf: PyTree) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf)
