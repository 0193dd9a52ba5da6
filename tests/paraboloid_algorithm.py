"""An algorithm whose return is a known quadratic function of its hyper-parameters, and which compiles quickly."""

import dataclasses
from typing import Any

import echo_environment
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

import envs
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.actor import memoryless
from jaxrl.learning.optimisers import LearnedOptimiser, adam
from jaxrl.tuning.learned.theta import Theta

PER_ITERATION = 4
PEAK, CURVATURE = np.asarray([1.0, -0.5]), np.asarray([1.0, 4.0])
NAN_ABOVE = 3.0  # of x


@flax.struct.dataclass
class HParams:
    """Place, and the standard deviation of the noise of a run; `unused` has no effect but is not None."""

    x: Any = 0.0
    y: Any = 0.0
    noise: Any = 0.0
    unused: Any = 0.0


def height(place: np.ndarray) -> Any:
    """Return of a run without noise at places `[..., 2]`."""
    return -np.sum(CURVATURE * (place - PEAK) ** 2, axis=-1)


def paraboloid(noise: float = 0.0, steps: int = 1) -> Algorithm:
    """An algorithm that returns `height((x, y))` plus noise of its seed; NaN where x is above `NAN_ABOVE`.

    Args:
      noise: Standard deviation of the noise.
      steps: Number of steps of an episode, by which the return is multiplied.
    """

    def init(key: jax.Array, hparams: HParams, env_params: Any) -> jax.Array:
        return hparams.noise * jax.random.normal(key)

    def step(key: Any, iteration: Any, state: jax.Array, hparams: HParams, env_params: Any) -> Any:
        return state, {"noise": state}

    def policy(state: jax.Array, hparams: HParams) -> jax.Array:
        place = jnp.stack([hparams.x, hparams.y])
        value = state - jnp.sum(CURVATURE * (place - PEAK) ** 2)
        return jnp.where(hparams.x > NAN_ABOVE, jnp.nan, value)

    def scores(policy: jax.Array, obs: jax.Array, mask: Any) -> dict[str, jax.Array]:
        return {"mean": jnp.broadcast_to(policy / 2, (*obs.shape[:-1], 2))}

    def choose(noise: Any, scores: dict[str, jax.Array], greedy: Any, mask: Any) -> tuple[jax.Array, jax.Array]:
        return scores["mean"], scores["mean"]

    return Algorithm(
        name="paraboloid",
        env=envs.wrappers.time_limit(echo_environment.Echo(), steps),
        config=None,
        hparams=HParams(noise=noise),
        init=init,
        step=step,
        policy=policy,
        actor=memoryless(scores, lambda key, shape: jnp.zeros((*shape, 2)), choose),
        env_steps_per_iteration=PER_ITERATION,
    )


@flax.struct.dataclass
class DescentHParams:
    """Numbers of a descent, whose step size is too small for its length."""

    optimiser: Any = None
    lr: Any = 0.02
    max_grad_norm: Any = 10.0
    adam_b1: Any = 0.9
    adam_b2: Any = 0.999
    adam_eps: Any = 1e-5


def descent(iterations: int) -> Algorithm:
    """An algorithm that climbs the paraboloid by a learned optimiser, from a random place, and returns the height.

    Args:
      iterations: Number of iterations, each of `PER_ITERATION` updates, over which the share of the run rises to 1.
    """

    def rule(hparams: Any, iteration: Any) -> Any:
        return adam(hparams, hparams.lr, hparams.optimiser.at(jnp.float32(iteration) / iterations))

    def init(key: jax.Array, hparams: DescentHParams, env_params: Any) -> Any:
        place = jax.random.normal(key, (2,))
        return place, rule(hparams, 0).init(place)

    def step(key: Any, iteration: Any, state: Any, hparams: DescentHParams, env_params: Any) -> Any:
        now = rule(hparams, iteration)

        def update(state: Any, _: None) -> tuple[Any, None]:
            place, moments = state
            updates, moments = now.update(2 * CURVATURE * (place - PEAK), moments, place)
            return (place + updates, moments), None

        state, _ = jax.lax.scan(update, state, length=PER_ITERATION)
        return state, {"x": state[0][0]}

    def policy(state: Any, hparams: DescentHParams) -> jax.Array:
        return -jnp.sum(CURVATURE * (state[0] - PEAK) ** 2)

    start = DescentHParams(optimiser=LearnedOptimiser.initial(2))
    return paraboloid()._replace(name="descent", hparams=start, init=init, step=step, policy=policy)


def place_theta(x: float = 0.0, y: float = 0.0) -> Theta:
    """The place as theta."""
    initial = {"x": np.float32(x), "y": np.float32(y)}
    return Theta("place", initial, lambda theta, hparams: dataclasses.replace(hparams, x=theta["x"], y=theta["y"]))
