"""Action values that an algorithm learns on a probe, and the probes whose values are known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.runtime.loop import make_loop

PROBES: list[tuple[str, dict[str, int]]] = [
    ("constant-reward", {}),
    ("observation-dependent", {}),
    ("delayed-reward", {"delay": 5}),
    ("action-and-observation-dependent", {}),
    ("only-terminates", {}),
]


def values_after(algo: Any, prepared: Any, iterations: int) -> np.ndarray:
    """The action values of all observations of a probe, after training with prepared hyper-parameters."""
    params, loop = jax.tree.map(jnp.asarray, algo.env.default_params), make_loop(algo, 1)

    @jax.jit
    def run(key: Any) -> Any:
        return loop.advance(loop.init(key, prepared, params), key, prepared, params, 0, iterations).state

    policy = algo.policy(run(jax.random.key(0)), prepared)
    return np.asarray(algo.actor.scores(policy, (), jnp.asarray(algo.env.observations()), None)[0]["q"])
