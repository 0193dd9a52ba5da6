"""The classical Runge-Kutta method."""

from collections.abc import Callable

import jax


def integrate(rates: Callable[[jax.Array], jax.Array], state: jax.Array, dt: float | jax.Array) -> jax.Array:
    """The state after one Runge-Kutta step of fourth order.

    Args:
      rates: Function of the state that returns its derivative by time.
      state: State, an array.
      dt: Time of the step, traced.
    """
    rate_1 = rates(state)
    rate_2 = rates(state + dt / 2 * rate_1)
    rate_3 = rates(state + dt / 2 * rate_2)
    rate_4 = rates(state + dt * rate_3)
    return state + dt / 6 * (rate_1 + 2 * (rate_2 + rate_3) + rate_4)
