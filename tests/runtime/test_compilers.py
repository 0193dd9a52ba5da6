"""Plans for accelerators that are absent, by the compilers of the extras `cuda12` and `tpu`: `make accelerators`."""

import importlib.util
import os

import pytest

import envs
import jaxrl
from jaxrl.runtime.accelerators.targets import TARGETS
from jaxrl.runtime.machine.memory import MIB

PLUGINS = {"gpu": "jax_cuda12_plugin", "tpu": "libtpu"}
CONFIG = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(4,))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_compiles(target: str):
    platform = TARGETS[target].platform
    if importlib.util.find_spec(PLUGINS[platform]) is None or os.environ.get("JAX_PLATFORMS") != "cpu":
        pytest.skip(f"no compiler: {PLUGINS[platform]} is not installed")
    algo = jaxrl.ppo(envs.make("cartpole"), CONFIG)
    planned = jaxrl.plan(algo, seeds=32, env_steps=160, evals=1, target=target)
    assert planned.block == 32
    assert not planned.on_host
    assert planned.fits
    assert planned.most_runs is not None
    assert planned.most_runs % 32 == 0
    assert 0 < planned.states < planned.memory < 64 * MIB
    bound = planned.bound
    assert bound is not None
    assert bound.iterations * algo.env_steps_per_iteration == 160
    assert 20 < bound.iteration.kernels < 2000
    # Two forward passes, by actor and critic, of 16 observations in each of 32 runs, at least.
    assert bound.iteration.operations > 32 * 16 * 2 * 2 * (4 * 4 + 4 * 1)
    assert 0 < bound.seconds < 1
