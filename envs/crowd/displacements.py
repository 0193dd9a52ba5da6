"""Simulated paths compared with recorded ones: joint displacement errors and the collision rate.

Joint errors choose one sample for all people, rather than the best sample for each person, so they are small only if
people interact as in the recording.

Source: Weng et al. (2023), "Joint metrics matter: a better standard for trajectory forecasting".
"""

import jax
import jax.numpy as jnp
import numpy as np

from envs.errors import UserValueError

__all__ = ["collision_rate", "jade", "jfde"]


def jade(samples: jax.Array, recorded: jax.Array, present: jax.Array) -> jax.Array:
    """The joint average displacement error of the best of K samples.

    Args:
      samples: Simulated positions, `[K, T, N, 2]` m.
      recorded: Recorded positions, `[T, N, 2]` m.
      present: Times at which each person was recorded, bool `[T, N]`; others do not count.

    Returns:
      `[]` m: the distance from the recording, averaged over each person's times and then over people, of the sample
      with the least; nan if nobody is present.

    Raises:
      ValueError: The shapes do not match.
    """
    apart = _apart(samples, recorded, present)
    times = jnp.sum(present, axis=0)
    each = jnp.sum(jnp.where(present, apart, 0.0), axis=1) / jnp.maximum(times, 1)
    return jnp.min(_mean(each, times > 0))


def jfde(samples: jax.Array, recorded: jax.Array, present: jax.Array) -> jax.Array:
    """The joint final displacement error of the best of K samples.

    Args:
      samples: Simulated positions, `[K, T, N, 2]` m.
      recorded: Recorded positions, `[T, N, 2]` m.
      present: Times at which each person was recorded, bool `[T, N]`.

    Returns:
      `[]` m: the distance from the recording at each person's last time, averaged over people, of the sample with the
      least; nan if nobody is present.

    Raises:
      ValueError: The shapes do not match.
    """
    apart = _apart(samples, recorded, present)
    last = present.shape[0] - 1 - jnp.argmax(present[::-1], axis=0)
    each = jnp.take_along_axis(apart, last[None, None], axis=1)[:, 0]
    return jnp.min(_mean(each, jnp.any(present, axis=0)))


def collision_rate(position: jax.Array, present: jax.Array, distance: jax.Array | float) -> jax.Array:
    """The share of people who at some time are closer to another person than a distance.

    Args:
      position: Positions, `[*B, T, N, 2]` m.
      present: Times at which each person is present, bool `[*B, T, N]`; only present people collide.
      distance: Distance of centres in m, such as 0.4, two radii.

    Returns:
      `[*B]`, the share of the people who are present at any time; nan if nobody is.

    Raises:
      ValueError: The shapes do not match.
    """
    if [*np.shape(present), 2] != list(np.shape(position)) or np.ndim(present) < 2:
        raise UserValueError(
            "position and present must be [*B, T, N, 2] and [*B, T, N], of T times and N people, got "
            f"{list(np.shape(position))} and {list(np.shape(present))}"
        )
    others = ~jnp.eye(present.shape[-1], dtype=bool)

    def moment(collided: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        place, here = now
        apart = place[..., :, None, :] - place[..., None, :, :]
        near = jnp.sum(apart * apart, axis=-1) < jnp.square(distance)
        both = here[..., :, None] & here[..., None, :] & others
        return collided | jnp.any(near & both, axis=-1), None

    by_time = (jnp.moveaxis(position, -3, 0), jnp.moveaxis(present, -2, 0))
    collided, _ = jax.lax.scan(moment, jnp.zeros_like(by_time[1][0]), by_time)
    return _mean(collided.astype(jnp.float32), jnp.any(present, axis=-2))


def _apart(samples: jax.Array, recorded: jax.Array, present: jax.Array) -> jax.Array:
    """Distances `[K, T, N]` m."""
    of_samples, of_recorded, of_present = (list(np.shape(array)) for array in (samples, recorded, present))
    if len(of_samples) != 4 or of_samples[1:] != of_recorded or [*of_present, 2] != of_recorded:
        raise UserValueError(
            "samples, recorded and present must be [K, T, N, 2], [T, N, 2] and [T, N], of K samples, T times and N "
            f"people, got {of_samples}, {of_recorded} and {of_present}"
        )
    away = samples - recorded
    return jnp.sqrt(jnp.sum(away * away, axis=-1))


def _mean(values: jax.Array, counts: jax.Array) -> jax.Array:
    """The mean over the people who count, nan if there are none."""
    return jnp.sum(jnp.where(counts, values, 0.0), axis=-1) / jnp.sum(counts, axis=-1)
