"""Centralised networks applied to all agents, against one application for each."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from jaxrl.learning.asymmetric import apply_centralised


class Both(nn.Module):
    """A network without parameters whose output tells the own observation, and whose value tells both."""

    def __call__(self, obs: Any, global_obs: Any = None) -> tuple[Any, Any]:
        return obs[:1], obs[1] + 100.0 * global_obs[0]


def test_each_agent_is_served_its_own_observation() -> None:
    num_steps, num_envs, num_agents = 2, 3, 4
    own = np.arange(num_steps * num_envs * num_agents * 2, dtype=np.float32)
    obs = jnp.asarray(own.reshape(num_steps, num_envs, num_agents, 2))
    whole = jnp.asarray(1000.0 + np.arange(num_steps * num_envs, dtype=np.float32).reshape(num_steps, num_envs, 1))
    outputs, values = apply_centralised(Both(), {}, obs, whole, 3, 1)
    np.testing.assert_array_equal(outputs, obs[..., :1])
    np.testing.assert_array_equal(values, obs[..., 1] + 100.0 * whole)
