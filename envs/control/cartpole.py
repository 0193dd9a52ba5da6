"""CartPole: keep a pole upright on a cart by pushing the cart left or right."""

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
from envs.control.trigonometry import sin_cos
from envs.pytrees import Params
from envs.threefry import unrolled


@struct.dataclass
class CartPoleState(base.EnvState):
    """Positions of cart and pole in metres and radians (0 is upright), and their rates per second."""

    time: jax.Array
    x: jax.Array
    x_dot: jax.Array
    theta: jax.Array
    theta_dot: jax.Array


@struct.dataclass
class CartPoleParams(base.EnvParams):
    """Physical constants.

    Attributes:
      gravity: Gravitational acceleration, in m/s^2.
      masscart: Mass of the cart, in kg.
      masspole: Mass of the pole, in kg.
      length: Half the length of the pole, in m.
      force_mag: Force of either action, in N.
      tau: Time of a step, in s.
      theta_threshold_radians: Angle of the pole beyond which the episode terminates, in rad.
      x_threshold: Distance of the cart from the centre beyond which the episode terminates, in m.
      max_steps_in_episode: Time limit, in steps.
    """

    gravity: float = 9.8
    masscart: float = 1.0
    masspole: float = 0.1
    length: float = 0.5
    force_mag: float = 10.0
    tau: float = 0.02
    theta_threshold_radians: float = 12 * 2 * math.pi / 360
    x_threshold: float = 2.4
    max_steps_in_episode: int = 500


@dataclass(frozen=True)
class CartPole(base.Environment):
    """CartPole-v1: reward 1 for every step, until the pole leans or the cart moves too far.

    Source: Barto, Sutton and Anderson (1983); dynamics with the corrections of Florian (2007),
    without friction, by one explicit Euler step, as in Gymnasium.
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "cartpole"

    @property
    def default_params(self) -> CartPoleParams:
        """The constants of CartPole-v1."""
        return CartPoleParams()

    def check_params(self, params: CartPoleParams) -> None:
        """Reject masses, lengths, times and limits that are not above 0."""
        check_positive(params, "masscart", "masspole", "length", "tau", "theta_threshold_radians", "x_threshold")

    def reset_env(self, key: jax.Array, params: CartPoleParams) -> tuple[jax.Array, CartPoleState]:
        """The first observation `[4]` and state: each coordinate uniform in [-0.05, 0.05]."""
        del params
        x, x_dot, theta, theta_dot = jax.random.uniform(unrolled(key), (4,), minval=-0.05, maxval=0.05)
        state = CartPoleState(jnp.zeros((), jnp.int32), x, x_dot, theta, theta_dot)
        return _observe(state), state

    def step_env(
        self, key: jax.Array, state: CartPoleState, action: jax.Array, params: CartPoleParams
    ) -> tuple[jax.Array, CartPoleState, jax.Array, jax.Array, dict[Any, Any]]:
        """One Euler step under a push to the left (action 0) or to the right (1)."""
        del key
        force = jnp.where(action == 1, params.force_mag, -params.force_mag)
        x_acc, theta_acc = accelerations(state.theta, state.theta_dot, force, params)
        state = CartPoleState(
            time=state.time + 1,
            x=state.x + params.tau * state.x_dot,
            x_dot=state.x_dot + params.tau * x_acc,
            theta=state.theta + params.tau * state.theta_dot,
            theta_dot=state.theta_dot + params.tau * theta_acc,
        )
        terminated = (jnp.abs(state.x) > params.x_threshold) | (jnp.abs(state.theta) > params.theta_threshold_radians)
        return _observe(state), state, jnp.ones((), jnp.float32), terminated, {}

    def return_range(self, params: CartPoleParams) -> tuple[Any, Any]:
        """From one step to the time limit, at 1 for each."""
        return 1.0, np.asarray(params.max_steps_in_episode, np.float64)

    def action_space(self, params: CartPoleParams | None = None) -> spaces.Discrete:
        """0 pushes to the left, 1 to the right."""
        del params
        return spaces.Discrete(2)

    def observation_space(self, params: CartPoleParams) -> spaces.Box:
        """x, x_dot, theta, theta_dot; the observation of a failing step is still inside."""
        high = jnp.array([2 * params.x_threshold, jnp.inf, 2 * params.theta_threshold_radians, jnp.inf], jnp.float32)
        return spaces.Box(-high, high, (4,), jnp.float32)


def accelerations(
    theta: jax.Array, theta_dot: jax.Array, force: jax.Array, params: Params
) -> tuple[jax.Array, jax.Array]:
    """Accelerations of the cart, in m/s^2, and of the pole, in rad/s^2, without friction.

    Args:
      theta, theta_dot: Angle of the pole from upright, in rad, and its rate, in rad/s.
      force: Force on the cart, in N.
      params: Parameters with `gravity`, `masscart`, `masspole` and `length`, half the length of the pole.

    Source: Florian (2007), "Correct equations for the dynamics of the cart-pole system".
    """
    total_mass = params.masscart + params.masspole
    polemass_length = params.masspole * params.length
    sin, cos = sin_cos(theta)
    push = (force + polemass_length * theta_dot * theta_dot * sin) / total_mass
    theta_acc = (params.gravity * sin - cos * push) / (
        params.length * (4 / 3 - params.masspole * cos * cos / total_mass)
    )
    return push - polemass_length * theta_acc * cos / total_mass, theta_acc


def _observe(state: CartPoleState) -> jax.Array:
    return jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot])
