"""Blocks over devices: their plan, the placement of runs, and results equal bit for bit."""

import os
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from jaxrl.runtime import layout as module
from jaxrl.runtime.layout import Layout, compile_programs, over_blocks, plan_layout, run_on_devices

pytestmark = pytest.mark.two_devices
DEVICES = jax.local_devices()
EPS = float(np.finfo(np.float32).eps)


def plan(num_runs: int, block: int | None, num_devices: int) -> Layout:
    return plan_layout(num_runs, block, DEVICES[:num_devices])


def test_two_devices_are_forced() -> None:
    assert len(DEVICES) == 2


@pytest.mark.parametrize(
    ("num_runs", "block", "num_devices", "expected"),
    [
        # Expected: block, blocks of a device, devices that are used.
        (1, None, 1, (1, 1, 1)),
        (1, None, 2, (1, 1, 1)),
        (2, None, 2, (1, 1, 2)),
        (5, None, 2, (3, 1, 2)),
        (8, None, 1, (8, 1, 1)),
        (9, None, 1, (5, 2, 1)),
        (16, None, 2, (8, 1, 2)),
        (64, None, 2, (8, 4, 2)),
        (192, None, 2, (8, 12, 2)),
        (17, None, 1, (6, 3, 1)),
        (5, 2, 2, (2, 2, 2)),
        (5, 2, 1, (2, 3, 1)),
        (3, 8, 2, (8, 1, 1)),
        (64, 64, 2, (64, 1, 1)),
        (64, 1, 2, (1, 32, 2)),
    ],
)
def test_plans(num_runs: int, block: int | None, num_devices: int, expected: tuple[int, int, int]) -> None:
    planned = plan(num_runs, block, num_devices)
    assert planned[:3] == (num_runs, *expected[:2])
    assert planned.devices == tuple(DEVICES[: expected[2]])
    assert planned.runs_per_device == expected[0] * expected[1]


@pytest.mark.parametrize("num_devices", [1, 2])
def test_a_plan_holds_every_run_and_pads_little(num_devices: int) -> None:
    for num_runs in range(1, 100):
        planned = plan(num_runs, None, num_devices)
        num_slots = planned.runs_per_device * len(planned.devices)
        assert num_slots >= num_runs
        assert planned.block <= module.CPU_BLOCK
        # As few blocks as the widest allowed block needs, each device's evenly filled.
        per_device = -(-num_runs // num_devices)
        assert planned.num_blocks == -(-per_device // module.CPU_BLOCK)
        assert num_slots - num_runs < planned.num_blocks * num_devices + planned.block * (num_devices - 1)
        fixed = plan(num_runs, 7, num_devices)
        assert fixed.block == 7 and fixed.runs_per_device * len(fixed.devices) >= num_runs


def test_a_wide_block_on_a_cpu_is_whole_vectors() -> None:
    """Blocks of 1,021 bandits take twice as long as of 1,024: see bench/NOTES.md."""
    widths = {n: plan_layout(n, None, DEVICES[:1], cpu_block=1024)[1:3] for n in (16, 17, 100, 1024, 1025, 50_000)}
    assert widths == {16: (16, 1), 17: (32, 1), 100: (112, 1), 1024: (1024, 1), 1025: (528, 2), 50_000: (1024, 49)}
    assert plan_layout(50_000, 1021, DEVICES[:1], cpu_block=1024).block == 1021


def test_a_block_on_a_gpu_has_at_most_4096_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = types.SimpleNamespace(platform="gpu")
    monkeypatch.setattr(module, "default_devices", lambda: (gpu,))
    widths = {n: plan_layout(n, None, None)[1:3] for n in (1, 1000, 4096, 4097, 16_384)}
    assert widths == {1: (1, 1), 1000: (1000, 1), 4096: (4096, 1), 4097: (2049, 2), 16_384: (4096, 4)}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux tells which cores a process may use")
def test_the_default_is_every_device_and_every_core_that_may_be_used() -> None:
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert plan_layout(64, None, None).devices == tuple(DEVICES)
    finally:
        os.sched_setaffinity(0, cores)
    required = max(len(DEVICES), len(cores) // len(DEVICES) * len(DEVICES))
    assert plan_layout(64, 1, None).devices == (tuple(DEVICES) * len(cores))[:required]


@pytest.mark.parametrize("block", [0, -1, True, 2.0, "8"])
def test_a_block_that_is_no_width_is_refused(block: Any) -> None:
    with pytest.raises(ValueError, match=r"^block must be a whole number of at least 1, got "):
        plan_layout(4, block, None)


def test_no_device_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^devices must name at least one device, got none$"):
        plan_layout(4, None, [])


# --- spread and gather -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_runs", "block", "num_devices"), [(5, 2, 2), (5, None, 2), (3, 8, 1), (1, 4, 2), (4, 2, 2)]
)
def test_spread_and_gather(num_runs: int, block: int | None, num_devices: int) -> None:
    planned = plan(num_runs, block, num_devices)
    tree = {"a": np.arange(num_runs * 3, dtype=np.int32).reshape(num_runs, 3), "b": np.arange(num_runs) * 0.5}
    parts: Any = planned.spread(tree)
    assert len(parts) == len(planned.devices)
    for first, (part, device) in enumerate(zip(parts, planned.devices, strict=True)):
        assert len(part) == planned.num_blocks
        for i, runs in enumerate(part):
            assert runs["a"].shape == (planned.block, 3) and runs["a"].dtype == jnp.int32
            assert runs["a"].devices() == runs["b"].devices() == {device}
            for j, (a, b) in enumerate(zip(runs["a"].tolist(), runs["b"].tolist(), strict=True)):
                run = (first * planned.runs_per_device + i * planned.block + j) % num_runs
                assert a == tree["a"][run].tolist() and b == tree["b"][run]
    gathered = planned.gather(parts)
    for name, leaf in tree.items():
        assert isinstance(gathered[name], np.ndarray)
        np.testing.assert_array_equal(gathered[name], leaf)


# --- over_blocks -------------------------------------------------------------------------

NUM_RUNS = 10


def one_run(x: jax.Array, weights: Any, num_steps: jax.Array, bias: jax.Array) -> dict[str, Any]:
    """A run so chaotic that a difference in one bit would be visible at the end."""

    def body(_: Any, x: jax.Array) -> jax.Array:
        return jnp.tanh(weights["w"] @ x + jnp.sin(3 * x) + bias)

    return {"x": jax.lax.fori_loop(0, num_steps, body, x), "norm": jnp.sum(x * x)}


def inputs() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_RUNS, 4)).astype(np.float32)
    return x, {"w": generator.normal(size=(NUM_RUNS, 4, 4)).astype(np.float32)}


def run_all(planned: Layout, runs: Any, num_steps: int = 20) -> dict[str, np.ndarray]:
    jitted = jax.jit(jax.vmap(lambda run, *shared: one_run(*run, *shared), in_axes=(0, None, None)))
    parts = planned.spread(runs)
    shared = (np.int32(num_steps), np.float32(0.125))

    def lower(device: Any) -> Any:
        sharding = SingleDeviceSharding(device)
        block = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), parts[0][0])
        return jitted.lower(block, *shared)

    [executables] = compile_programs([lower], planned.devices)
    walks = [over_blocks(executable, num_shared=2) for executable in executables]
    out = run_on_devices(walks, parts, *([value] * len(planned.devices) for value in shared))
    assert [[block["norm"].devices() for block in part] for part in out] == [
        [{device}] * planned.num_blocks for device in planned.devices
    ]
    return planned.gather(out)


@pytest.fixture(scope="module")
def on_one_device() -> dict[str, np.ndarray]:
    return run_all(plan(NUM_RUNS, 3, 1), inputs())


def assert_same_bits(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name])


def test_every_run_is_worked_on() -> None:
    x, weights = inputs()
    out = run_all(plan(NUM_RUNS, 3, 1), (x, weights), num_steps=2)
    assert out["x"].shape == (NUM_RUNS, 4) and out["norm"].shape == (NUM_RUNS,)
    for i in range(NUM_RUNS):
        exact, w = x[i].astype(np.float64), weights["w"][i].astype(np.float64)
        for _ in range(2):
            exact = np.tanh(w @ exact + np.sin(3 * exact) + 0.125)
        # A step of some ten roundings of numbers below 16, which the next one stretches by less
        # than the 16 of |w| + 3.
        np.testing.assert_allclose(out["x"][i], exact, rtol=0, atol=16 * 160 * EPS)
        np.testing.assert_allclose(out["norm"][i], np.sum(x[i].astype(np.float64) ** 2), rtol=8 * EPS)


def test_devices_change_no_bit(on_one_device: dict[str, np.ndarray]) -> None:
    planned = plan(NUM_RUNS, 3, 2)
    assert len(planned.devices) == 2 and planned.num_blocks == 2
    assert_same_bits(run_all(planned, inputs()), on_one_device)


def test_two_threads_of_one_device_change_no_bit(on_one_device: dict[str, np.ndarray]) -> None:
    planned = plan_layout(NUM_RUNS, 3, [DEVICES[0]] * 2)
    assert planned.devices == (DEVICES[0], DEVICES[0])
    assert_same_bits(run_all(planned, inputs()), on_one_device)


def test_neighbours_and_order_change_no_bit(on_one_device: dict[str, np.ndarray]) -> None:
    order = np.random.default_rng(1).permutation(NUM_RUNS)
    shuffled = run_all(plan(NUM_RUNS, 3, 2), jax.tree.map(lambda leaf: leaf[order], inputs()))
    assert_same_bits(shuffled, jax.tree.map(lambda leaf: leaf[order], on_one_device))
    alone = run_all(plan(1, 3, 1), jax.tree.map(lambda leaf: leaf[[7]], inputs()))
    assert_same_bits(alone, jax.tree.map(lambda leaf: leaf[[7]], on_one_device))


@pytest.mark.parametrize("num_runs", [2, 3, 9])
def test_the_number_of_blocks_changes_no_bit(on_one_device: dict[str, np.ndarray], num_runs: int) -> None:
    fewer = run_all(plan(num_runs, 3, 1), jax.tree.map(lambda leaf: leaf[:num_runs], inputs()))
    assert_same_bits(fewer, jax.tree.map(lambda leaf: leaf[:num_runs], on_one_device))


def test_blocks_come_one_after_another_and_in_place_of_those_given() -> None:
    program = jax.jit(lambda block, step, bias: (block + step * bias, block[:1]), donate_argnums=0)
    blocks = [jnp.arange(4.0) + 10 * i for i in range(3)]
    steps = [jnp.float32(i) for i in range(3)]
    done = over_blocks(program, num_shared=1)(blocks, steps, np.float32(0.5))
    for i, (changed, first) in enumerate(done):
        np.testing.assert_array_equal(changed, np.arange(4) + 10 * i + 0.5 * i)
        assert first == 10 * i
    assert all(block.is_deleted() for block in blocks)
    with pytest.raises(ValueError, match="shorter"):
        over_blocks(program, num_shared=1)([jnp.zeros(4)], [], np.float32(0.5))


def test_a_device_that_stands_twice_compiles_once() -> None:
    lowered = []

    def lower(device: Any) -> Any:
        lowered.append(device)
        return jax.jit(jnp.sin).lower(jax.ShapeDtypeStruct((), jnp.float32))

    [executables] = compile_programs([lower], [DEVICES[0]] * 3)
    assert lowered == [DEVICES[0]]
    assert len(executables) == 3 and len(set(map(id, executables))) == 1


def test_programs_are_returned_in_the_order_of_the_arguments() -> None:
    def adds(number: int) -> Any:
        def lower(device: Any) -> Any:
            shape = jax.ShapeDtypeStruct((), jnp.int32, sharding=SingleDeviceSharding(device))
            return jax.jit(lambda x: x + number).lower(shape)

        return lower

    programs = compile_programs([adds(10), adds(20)], DEVICES)
    for number, executables in zip((10, 20), programs, strict=True):
        inputs = [jax.device_put(jnp.int32(i), device) for i, device in enumerate(DEVICES)]
        assert [int(x) for x in run_on_devices(executables, inputs)] == [number, number + 1]
        assert [int(x) for x in run_on_devices(executables[:1], inputs[:1])] == [number]


def test_a_run_that_is_nan_stays_alone(on_one_device: dict[str, np.ndarray]) -> None:
    planned = plan(NUM_RUNS, 3, 2)
    x, weights = inputs()
    x[4, 0] = np.nan
    out = run_all(planned, (x, weights))
    assert np.all(np.isnan(out["x"][4]))
    others = np.arange(NUM_RUNS) != 4
    np.testing.assert_array_equal(out["x"][others], on_one_device["x"][others])


@pytest.mark.parametrize("wide", [True, False])
def test_a_cpu_compiles_as_pays_there_unless_the_environment_says_otherwise(monkeypatch: Any, wide: bool) -> None:
    monkeypatch.setattr(module, "understands", {"avx512f": wide}.get)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    cpu, gpu = (type("Device", (), {"platform": platform})() for platform in ("cpu", "gpu"))
    level, width = {"xla_backend_optimization_level": 2}, {"xla_cpu_prefer_vector_width": 512} if wide else {}
    assert module.compiler_options(cpu) == level | width
    assert module.compiler_options(gpu) == {}
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3")
    assert module.compiler_options(cpu) == width
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_prefer_vector_width=256")
    assert module.compiler_options(cpu) == level
