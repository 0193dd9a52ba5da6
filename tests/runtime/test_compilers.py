"""Plans for accelerators that are absent, by the compilers of the extras `cuda12` and `tpu`: `make accelerators`."""

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import jax
import pytest

import envs
import jaxrl
from envs.abstract_checking import check_abstractly
from envs.registry import ROWS
from jaxrl.runtime.accelerators.absent_device import absent_device, compiler_options_of
from jaxrl.runtime.accelerators.targets import TARGETS
from jaxrl.runtime.machine.memory import MIB

PLUGINS = {"gpu": "jax_cuda12_plugin", "tpu": "libtpu"}
CONFIG = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(4,))


def require_compiler(target: str) -> None:
    platform = TARGETS[target].platform
    if importlib.util.find_spec(PLUGINS[platform]) is None or os.environ.get("JAX_PLATFORMS") != "cpu":
        pytest.skip(f"no compiler: {PLUGINS[platform]} is not installed")


@pytest.fixture
def nothing_stored() -> Iterator[None]:
    """Settings under which no compiled program is stored, because a compiler without a device cannot load it again."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, 1e9)
    yield
    jax.config.update(name, before)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_stored")
@pytest.mark.parametrize("target", ["h100", "tpu-v5e"])
@pytest.mark.parametrize("name", ROWS)
def test_every_environment_compiles_for_a_gpu_and_a_tpu(name: str, target: str):
    require_compiler(target)
    env, num_envs = envs.make(name), 256
    params, agents = env.default_params, check_abstractly(env)
    sample = env.action_space(params).sample
    for _ in agents:
        sample = jax.vmap(sample)

    def episodes(keys: jax.Array) -> Any:
        def one(key: jax.Array) -> Any:
            reset_key, action_key, step_key = jax.random.split(key, 3)
            _, state = env.reset(reset_key, params)
            return env.step(step_key, state, sample(jax.random.split(action_key, agents)), params)

        return jax.vmap(one)(keys)

    sharding = jax.sharding.SingleDeviceSharding(absent_device(TARGETS[target]))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), num_envs))
    keys = jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=sharding)
    compiled = jax.jit(episodes).lower(keys).compile(compiler_options_of(TARGETS[target]))
    memory = compiled.memory_analysis()
    assert memory is not None and memory.output_size_in_bytes > num_envs


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_compiles(target: str):
    require_compiler(target)
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
