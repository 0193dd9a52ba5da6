"""CartPole swing-up: swing a hanging pole up with a force on its cart, and balance it near the centre of the track."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base
from envs.arguments import check_positive
from envs.base import spaces
from envs.control.cartpole import CartPoleState, accelerations
from envs.control.trigonometry import sin_cos
from envs.pytrees import Number
from envs.threefry import unrolled

_AT_MARGIN = 0.1  # value of the reward's Gaussian g at its margin


@struct.dataclass
class CartPoleSwingUpParams(base.EnvParams):
    """Physical constants, and margins of the reward.

    Attributes:
      gravity: Gravitational acceleration, in m/s^2.
      masscart: Mass of the cart, in kg.
      masspole: Mass of the pole, in kg.
      length: Half the length of the pole, in m.
      force_mag: Force of the actions -1 and 1, in N.
      tau: Time of a step, in s.
      x_threshold: Distance of the cart from the centre beyond which the episode terminates, in m.
      x_margin: Distance of the cart from the centre at which g(x) in the reward is 0.1, in m.
      theta_dot_margin: Rate of the pole at which g(theta_dot) in the reward is 0.1, in rad/s.
      max_steps_in_episode: Time limit, in steps.
    """

    gravity: float = 9.81
    masscart: float = 1.0
    masspole: float = 0.1
    length: float = 0.5
    force_mag: float = 10.0
    tau: float = 0.01
    x_threshold: float = 1.8
    x_margin: float = 2.0
    theta_dot_margin: float = 5.0
    max_steps_in_episode: int = 1000


@dataclass(frozen=True)
class CartPoleSwingUp(base.Environment):
    """The pole hangs at first; a step is worth up to 1, upright, at rest, near the centre and without force.

    The reward is the product of (1 + cos theta) / 2, (1 + g(x)) / 2, (4 + 1 - u^2) / 5 and (1 + g(theta_dot)) / 2, with
    the action u in [-1, 1] and g a Gaussian that is 0.1 at its margin.

    Source: constants, reward and reset of the task "swingup" of cartpole in the DeepMind Control Suite, Tassa et al.
    (2018), which has walls at the ends of the track and a rounded pole with damped joints: here leaving the track
    terminates the episode, and the pole is a thin rod without friction.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "cartpole-swing-up"

    @property
    def default_params(self) -> CartPoleSwingUpParams:
        """The constants of the Control Suite."""
        return CartPoleSwingUpParams()

    def check_params(self, params: CartPoleSwingUpParams) -> None:
        """Reject masses, lengths, times and margins that are not above 0."""
        check_positive(params, "masscart", "masspole", "length", "tau", "x_threshold", "x_margin", "theta_dot_margin")

    def reset_env(self, key: jax.Array, params: CartPoleSwingUpParams) -> tuple[jax.Array, CartPoleState]:
        """The first observation `[5]` and state: hanging at the centre, each coordinate with a deviation of 0.01."""
        del params
        x, x_dot, theta, theta_dot = 0.01 * jax.random.normal(unrolled(key), (4,))
        state = CartPoleState(jnp.zeros((), jnp.int32), x, x_dot, math.pi + theta, theta_dot)
        return _observe(state), state

    def step_env(
        self, key: jax.Array, state: CartPoleState, action: jax.Array, params: CartPoleSwingUpParams
    ) -> tuple[jax.Array, CartPoleState, jax.Array, jax.Array, dict[Any, Any]]:
        """One semi-implicit Euler step under the force `action[0]`, clipped to [-1, 1], times `force_mag`."""
        del key
        push = jnp.clip(action[0], -1.0, 1.0)
        x_acc, theta_acc = accelerations(state.theta, state.theta_dot, push * params.force_mag, params)
        x_dot, theta_dot = state.x_dot + params.tau * x_acc, state.theta_dot + params.tau * theta_acc
        x, theta = state.x + params.tau * x_dot, state.theta + params.tau * theta_dot
        state = CartPoleState(state.time + 1, x, x_dot, theta, theta_dot)
        obs = _observe(state)
        upright = (1 + obs[1]) / 2
        centred = (1 + _closeness(x, params.x_margin)) / 2
        effortless = (5 - push * push) / 5
        slow = (1 + _closeness(theta_dot, params.theta_dot_margin)) / 2
        return obs, state, upright * centred * effortless * slow, jnp.abs(x) > params.x_threshold, {}

    def return_range(self, params: CartPoleSwingUpParams) -> tuple[Any, Any]:
        """From no reward to 1 in every step up to the time limit."""
        return 0.0, np.asarray(params.max_steps_in_episode, np.float64)

    def action_space(self, params: CartPoleSwingUpParams | None = None) -> spaces.Box:
        """The force as a share of `force_mag`, `[1]`."""
        del params
        return spaces.Box(-1.0, 1.0, (1,), jnp.float32)

    def observation_space(self, params: CartPoleSwingUpParams) -> spaces.Box:
        """x, cos theta, sin theta, x_dot, theta_dot."""
        high = jnp.array([jnp.inf, 1.0, 1.0, jnp.inf, jnp.inf], jnp.float32)
        return spaces.Box(-high, high, (5,), jnp.float32)


def _closeness(distance: jax.Array, margin: Number) -> jax.Array:
    """exp(-d^2 / 2), scaled to be 0.1 at the margin."""
    share = distance / margin
    return jnp.exp(math.log(_AT_MARGIN) * share * share)


def _observe(state: CartPoleState) -> jax.Array:
    sin, cos = sin_cos(state.theta)
    return jnp.stack([state.x, cos, sin, state.x_dot, state.theta_dot])
