"""Every on-policy algorithm with every memory: the laws, a search, a run that is resumed, and its policy in a file."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from remembering import Repeat

import jaxrl
from jaxrl.algorithms.on_policy_config import OnPolicyConfig
from jaxrl.algorithms.registry import ROWS, builder_of
from jaxrl.learning.cells import CELLS
from jaxrl.policies.export import TOLERANCES
from jaxrl.runtime.laws.algorithm_laws import check

ON_POLICY = ("ppo", "reinforce", "a2c", "spo", "mdpo", "ppo_kl")
PAIRS = [(name, memory) for name in ON_POLICY for memory in CELLS]
FAST = ("a2c", "lru")  # its laws are tested in tests/laws, for PPO


def remembering(name: str, memory: str) -> jaxrl.Algorithm:
    """A small algorithm on a task whose episodes of 5 steps continue from one rollout to the next."""
    kind = type(builder_of(name)(Repeat()).config)
    return builder_of(name)(Repeat(), kind(**{**ROWS[name].small, "memory": memory, "memory_size": 4}))


def test_these_are_all_on_policy_algorithms() -> None:
    configs = {name: builder_of(name)(Repeat()).config for name in ROWS if name not in ("sac", "td3")}
    assert {name for name, config in configs.items() if isinstance(config, OnPolicyConfig)} == set(ON_POLICY)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "memory"), PAIRS)
def test_the_laws_hold(name: str, memory: str) -> None:
    algo = remembering(name, memory)
    if name == "ppo_kl":  # near the divergence of a first iteration, so that other targets change the coefficient
        algo = algo._replace(hparams=algo.hparams.replace(kl_target=7e-7))
    check(algo, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "memory"), PAIRS)
def test_it_is_searched(name: str, memory: str) -> None:
    algo = remembering(name, memory)
    options: Any = {"search": "random", "seeds": 1, "test_seeds": 1, "eval_episodes": 1, "progress": False}
    length = 4 * algo.env_steps_per_iteration  # an iteration of the largest trial of the default space
    study = jaxrl.search(algo, trials=2, env_steps=length, **options)
    assert study.incumbent is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "memory"), [pair if pair == FAST else pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS]
)
def test_it_resumes_bit_for_bit_and_acts_from_a_file(name: str, memory: str, tmp_path: Path) -> None:
    algo = remembering(name, memory)
    if name == "mdpo":  # otherwise its step size falls over the length of the run
        algo = algo._replace(hparams=algo.hparams.replace(step_size_end=1.0))
    length, options = 2 * algo.env_steps_per_iteration, {"seeds": 2, "eval_episodes": 1, "progress": False}
    whole = jaxrl.train(algo, env_steps=2 * length, evals=2, **options)
    jaxrl.train(algo, env_steps=length, evals=1, out=tmp_path / "run", **options)
    longer = jaxrl.resume(tmp_path / "run", env_steps=2 * length, algo=algo)
    for one, other in zip(jax.tree.leaves(whole.policies), jax.tree.leaves(longer.policies), strict=True):
        np.testing.assert_array_equal(one, other)

    policy = whole.policy(seed=1)
    exported = jaxrl.load_exported(jaxrl.export_policy(policy, tmp_path / "policy.safetensors"), algo)
    own, copied = policy.initial_memory(3), exported.initial_memory(3)
    for obs in np.eye(4, dtype=np.float32)[[[0, 1, 2], [3, 3, 0], [1, 2, 2]]]:
        (action, own), (same, copied) = policy(obs, memory=own), exported(obs, memory=copied)
        np.testing.assert_array_equal(same, action)
        own, copied = (
            each.remembered(kept, np.array([False, True, False])) for each, kept in ((policy, own), (exported, copied))
        )
        for kept, written in zip(jax.tree.leaves(own), copied.values(), strict=True):
            # three times the tolerance of the file, which may differ in each of three steps
            np.testing.assert_allclose(written, kept, rtol=0, atol=3 * TOLERANCES["safetensors"])
            assert np.any(written[0] != 0) and not np.any(written[1])
