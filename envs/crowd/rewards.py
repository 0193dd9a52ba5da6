"""The rewards of walkers: one function for each term, and their sum with weights that may be swept.

Terms have the papers' names and signs: costs are negative, so their weights are positive, except for `time` and
`collision`, which count and have negative weights. All are 0 for an agent that did not walk in the decision.

Source: the first five terms, Kwiatkowski et al. (2023), "Understanding reinforcement learned crowds"; the others,
Kwiatkowski et al. (2023), "Reward function design for crowd simulation via reinforcement learning".
"""

import dataclasses
from collections.abc import Callable
from types import MappingProxyType

import jax
import jax.numpy as jnp
from flax import struct

from envs.crowd import energy
from envs.crowd.state import Traits

__all__ = ["TERMS", "Outcome", "Weights", "reward"]

Number = jax.Array | float


@struct.dataclass
class Weights:
    """The weight of each term and the exponents in some of them: all traced, all 0 by default.

    Attributes:
      progress: Weight per metre by which the distance to the goal decreased.
      speed: Weight c_v of |speed - v*| ** speed_exponent, in m/s, per decision.
      time: Weight c_t per decision; negative.
      goal: Weight c_g, paid once, when the goal is reached.
      collision: Weight c_c per contact and substep; negative.
      bmr, drag, dynamics: Weights of the parts of the energy: resting, moving, moving with accelerations.
      potential: Weight of 2 sqrt(e_s e_w) per metre by which the distance to the goal decreased.
      diff_potential: Weight of the same for the velocity towards the goal.
      s_matching: Weight of |speed - v*| ** matching_exponent, per second.
      speeding: Weight of the same where the speed is above v*, per second.
      v_matching: Weight of e_w |velocity - v* towards the goal|^2, per second.
      exp_v_matching: Weight of exp(sigma |velocity - v* towards the goal|), per second.
      final, avg_final: Weights of the estimated energy for the rest of the way, at the time limit: at the preferred
        speed, or at the average speed so far.
      speed_exponent: Exponent c_e, at least 1.
      matching_exponent: Exponent p, at least 1.
      sigma: Scale in exp_v_matching, s/m.
    """

    progress: Number = 0.0
    speed: Number = 0.0
    time: Number = 0.0
    goal: Number = 0.0
    collision: Number = 0.0
    bmr: Number = 0.0
    drag: Number = 0.0
    dynamics: Number = 0.0
    potential: Number = 0.0
    diff_potential: Number = 0.0
    s_matching: Number = 0.0
    speeding: Number = 0.0
    v_matching: Number = 0.0
    exp_v_matching: Number = 0.0
    final: Number = 0.0
    avg_final: Number = 0.0
    speed_exponent: Number = 1.0
    matching_exponent: Number = 2.0
    sigma: Number = 0.85


@struct.dataclass
class Outcome:
    """The results of one decision that rewards depend on.

    Attributes:
      walking: Agents on the way at the beginning of the decision, bool `[N]`.
      arrived: Agents that reached the goal in it, bool `[N]`.
      duration: Time that each agent walked, `[N]` s.
      velocity: Mean velocity over that time, `[N, 2]` m/s.
      mean_square: Mean of the squared speed, `[N]` m^2/s^2.
      previous_velocity: `velocity` of the previous decision, `[N, 2]` m/s.
      towards: Unit vector to the goal's centre at the beginning, `[N, 2]`.
      before, after: Distance to the goal's centre at the beginning and at the end, `[N]` m.
      start_distance: The same distance at the start of the episode, `[N]` m.
      touches: Number of contacts, summed over substeps, `[N]`.
      at_limit: Whether the time limit is reached with this decision, bool `[]`.
      elapsed: Time since the start of the episode, `[]` s, or since each agent's entry, `[N]` s, at the end of the
        decision.
      interval: Length of a whole decision, `[]` s.
      traits: Traits of the agents.
    """

    walking: jax.Array
    arrived: jax.Array
    duration: jax.Array
    velocity: jax.Array
    mean_square: jax.Array
    previous_velocity: jax.Array
    towards: jax.Array
    before: jax.Array
    after: jax.Array
    start_distance: jax.Array
    touches: jax.Array
    at_limit: jax.Array
    elapsed: jax.Array
    interval: jax.Array
    traits: Traits


def progress(step: Outcome, weights: Weights) -> jax.Array:
    """d_{t-1} - d_t in m; the sum over an episode telescopes."""
    del weights
    return step.before - step.after


def speed(step: Outcome, weights: Weights) -> jax.Array:
    """-| |v| - v* | ** c_e, per decision."""
    return -_raised(jnp.abs(_excess(step)), weights.speed_exponent)


def time(step: Outcome, weights: Weights) -> jax.Array:
    """1 per decision."""
    del weights
    return jnp.ones_like(step.before)


def goal(step: Outcome, weights: Weights) -> jax.Array:
    """1, once."""
    del weights
    return step.arrived.astype(jnp.float32)


def collision(step: Outcome, weights: Weights) -> jax.Array:
    """The contacts, counted at every substep."""
    del weights
    return step.touches


def bmr(step: Outcome, weights: Weights) -> jax.Array:
    """-e_s dt, the basal metabolic rate."""
    del weights
    return -step.traits.resting * step.duration


def drag(step: Outcome, weights: Weights) -> jax.Array:
    """-e_w |v|^2 dt."""
    del weights
    return -step.traits.walking * step.mean_square * step.duration


def dynamics(step: Outcome, weights: Weights) -> jax.Array:
    """-|v . a + e_w v . v_previous| dt."""
    del weights
    spent = energy.dynamic_power(step.velocity, step.previous_velocity, step.traits, step.interval)
    return -(spent - step.traits.resting) * step.duration


def potential(step: Outcome, weights: Weights) -> jax.Array:
    """2 sqrt(e_s e_w) (d_{t-1} - d_t): the scale at which walking at v* beats any other speed at once."""
    return energy.optimum(progress(step, weights), step.traits)


def diff_potential(step: Outcome, weights: Weights) -> jax.Array:
    """2 sqrt(e_s e_w) (v . g) dt, g the unit vector to the goal."""
    del weights
    return energy.optimum(jnp.sum(step.velocity * step.towards, axis=-1), step.traits) * step.duration


def s_matching(step: Outcome, weights: Weights) -> jax.Array:
    """-| |v| - v* | ** p dt."""
    return -_raised(jnp.abs(_excess(step)), weights.matching_exponent) * step.duration


def speeding(step: Outcome, weights: Weights) -> jax.Array:
    """-max(|v| - v*, 0) ** p dt."""
    return -_raised(jnp.maximum(_excess(step), 0.0), weights.matching_exponent) * step.duration


def v_matching(step: Outcome, weights: Weights) -> jax.Array:
    """-e_w |v - v* g|^2 dt, the mean over the decision: bmr + drag + diff_potential."""
    del weights
    miss = _miss(step)
    variance = jnp.maximum(step.mean_square - jnp.sum(step.velocity * step.velocity, axis=-1), 0.0)
    return -step.traits.walking * (jnp.sum(miss * miss, axis=-1) + variance) * step.duration


def exp_v_matching(step: Outcome, weights: Weights) -> jax.Array:
    """-exp(sigma |v - v* g|) dt. Source: after Xu and Karamouzas (2021)."""
    return -jnp.exp(weights.sigma * _length(_miss(step))) * step.duration


def final(step: Outcome, weights: Weights) -> jax.Array:
    """-2 sqrt(e_s e_w) d at the time limit, for an agent that has not arrived."""
    del weights
    return jnp.where(step.at_limit & ~step.arrived, -energy.optimum(step.after, step.traits), 0.0)


def avg_final(step: Outcome, weights: Weights) -> jax.Array:
    """-(e_s + e_w v^2) d / v at the time limit, v the average speed so far, for an agent that has not arrived."""
    del weights
    rest = energy.average_remaining(step.after, step.start_distance, step.elapsed, step.traits)
    return jnp.where(step.at_limit & ~step.arrived, -rest, 0.0)


Term = Callable[[Outcome, Weights], jax.Array]

# Every term by the name of its weight.
TERMS: MappingProxyType[str, Term] = MappingProxyType(
    {
        "progress": progress,
        "speed": speed,
        "time": time,
        "goal": goal,
        "collision": collision,
        "bmr": bmr,
        "drag": drag,
        "dynamics": dynamics,
        "potential": potential,
        "diff_potential": diff_potential,
        "s_matching": s_matching,
        "speeding": speeding,
        "v_matching": v_matching,
        "exp_v_matching": exp_v_matching,
        "final": final,
        "avg_final": avg_final,
    }
)


def reward(weights: Weights, step: Outcome) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The reward of one decision.

    Args:
      weights: Weights, traced.
      step: Result of the decision.

    Returns:
      `[N]`, the sum over terms; and each term's share in it, weighted, `[N]` by name.
    """
    named = {field.name: getattr(weights, field.name) for field in dataclasses.fields(weights)}
    shares = {
        name: jnp.where(step.walking, jnp.float32(named[name]) * term(step, weights), 0.0)
        for name, term in TERMS.items()
    }
    return sum(shares.values(), jnp.zeros_like(step.before)), shares


def _excess(step: Outcome) -> jax.Array:
    return _length(step.velocity) - step.traits.preferred_speed


def _miss(step: Outcome) -> jax.Array:
    return step.velocity - step.traits.preferred_speed[:, None] * step.towards


def _length(vector: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(vector * vector, axis=-1))


def _raised(base: jax.Array, exponent: Number) -> jax.Array:
    """`base ** exponent` for a base of at least 0; 0 where the base is 0, for any exponent."""
    return jnp.where(base > 0, jnp.exp(exponent * jnp.log(jnp.where(base > 0, base, 1.0))), 0.0)
