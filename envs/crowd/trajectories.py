"""Episodes of crowds under learned policies, or under policies that read the state."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from envs.crowd.crowd import Crowd
from envs.crowd.params import CrowdParams
from envs.crowd.state import CrowdState, Goals, Obstacles, Traits
from envs.pytrees import Memory, PyTree

__all__ = ["Act", "Trajectory", "roll"]

# (key, observations, state) -> actions `[N, 2]`; with a memory, (key, observations, state, memory, ended) ->
# (actions, memory), where `ended`, bool `[N]`, marks the agents whose episode ended with the step before.
Act = Callable[..., Any]


@struct.dataclass
class Trajectory:
    """One episode of T decisions.

    Attributes:
      position, velocity: Positions and velocities, `[T + 1, N, 2]` m and m/s, from the start on.
      heading: Headings, `[T + 1, N]` rad.
      walking: Agents that take part and have not arrived, bool `[T + 1, N]`.
      box_centre: Centres of the boxes, `[T + 1, M, 2]` m.
      power: Power that each agent spent while walking, `[T, N]` J/(kg s); 0 for the others.
      reward: Rewards, `[T, N]`.
      interval: Length of one decision, `[]` s.
      present: Agents that take part, bool `[N]`.
      traits, goals, obstacles: State at the start.
      metrics: Metrics of the episode, scalars by name, as `Crowd.metric_rules` reduces them.
    """

    position: jax.Array
    velocity: jax.Array
    heading: jax.Array
    walking: jax.Array
    box_centre: jax.Array
    power: jax.Array
    reward: jax.Array
    interval: jax.Array
    present: jax.Array
    traits: Traits
    goals: Goals
    obstacles: Obstacles
    metrics: dict[str, jax.Array]


def roll(
    env: Crowd,
    act: Act,
    key: jax.Array,
    params: CrowdParams | None = None,
    num_steps: int | None = None,
    memory: Memory = None,
) -> Trajectory:
    """Play an episode; compiled once for each `env`, `act` and length, and usable under vmap over keys.

    Args:
      env: Crowd, static.
      act: Policy `(key, observations, state) -> actions`, static.
      key: Random key.
      params: Parameters, traced; None for the environment's own.
      num_steps: Number of decisions, T; None for the time limit of `params`, which must then be concrete.
      memory: Memory of `act` at the start, a pytree; None if it is called without memory.

    Returns:
      The trajectory.
    """
    params = env.default_params if params is None else params
    if num_steps is None:
        num_steps = int(params.max_steps_in_episode)
    return _roll(env, act, num_steps, key, params, memory)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _roll(env: Crowd, act: Act, num_steps: int, key: jax.Array, params: CrowdParams, memory: Memory) -> Trajectory:
    reset_key, step_key = jax.random.split(key)
    obs, first = env.reset_env(reset_key, params)

    def step(carry: PyTree, key: jax.Array) -> tuple[Any, Any]:
        obs, state, memory, ended = carry
        act_key, env_key = jax.random.split(key)
        if memory is None:
            action = act(act_key, obs, state)
        else:
            action, memory = act(act_key, obs, state, memory, ended)
        obs, after, reward, _, info = env.step_env(env_key, state, action, params)
        walked = after.totals["walked"] - state.totals["walked"]
        spent = after.totals["energy"] - state.totals["energy"]
        power = jnp.where(walked > 0, spent / jnp.where(walked > 0, walked, 1.0), 0.0)
        return (obs, after, memory, info["agent_terminated"]), (_seen(after), power, reward, info["metrics"])

    start = (obs, first, memory, jnp.zeros(env.num_agents, bool))
    _, (seen, power, reward, metrics) = jax.lax.scan(step, start, jax.random.split(step_key, num_steps))
    position, velocity, heading, walking, box_centre = jax.tree.map(
        lambda start, rest: jnp.concatenate([start[None], rest]), _seen(first), seen
    )
    reduced = {
        name: {"sum": jnp.sum, "mean": jnp.mean, "last": lambda values: values[-1]}[rule](metrics[name])
        for name, rule in env.metric_rules.items()
    }
    return Trajectory(
        position=position,
        velocity=velocity,
        heading=heading,
        walking=walking,
        box_centre=box_centre,
        power=power,
        reward=reward,
        interval=jnp.float32(params.dt) * env.substeps,
        present=first.present,
        traits=first.traits,
        goals=first.goals,
        obstacles=first.obstacles,
        metrics=reduced,
    )


def _seen(state: CrowdState) -> tuple[jax.Array, ...]:
    walkers = state.walkers
    return walkers.position, walkers.velocity, walkers.heading, state.walking, state.obstacles.box_centre
