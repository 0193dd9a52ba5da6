"""Blocks over devices: what is planned, where runs go, and that it changes no bit."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

import envs
import jaxrl
from jaxrl import layout as module
from jaxrl.layout import Layout, compile_programs, in_place, over_runs, plan_layout, run_on_devices

DEVICES = jax.local_devices()
EPS = float(np.finfo(np.float32).eps)


def plan(num_runs: int, block: int | None, num_devices: int) -> Layout:
    return plan_layout(num_runs, block, DEVICES[:num_devices])


def test_two_devices_are_forced() -> None:
    assert len(DEVICES) == 2


@pytest.mark.parametrize(
    "num_runs, block, num_devices, expected",
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
    assert planned.slots_per_device == expected[0] * max(expected[1], 2)


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


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux tells which cores a process may use")
def test_the_default_is_every_device_and_every_core_that_may_be_used() -> None:
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert plan_layout(64, None, None).devices == tuple(DEVICES)
    finally:
        os.sched_setaffinity(0, cores)
    wanted = max(len(DEVICES), len(cores) // len(DEVICES) * len(DEVICES))
    assert plan_layout(64, 1, None).devices == (tuple(DEVICES) * len(cores))[:wanted]


@pytest.mark.parametrize("block", [0, -1, True, 2.0, "8"])
def test_a_block_that_is_no_width_is_refused(block: Any) -> None:
    with pytest.raises(ValueError, match=r"^block must be a whole number of at least 1, got "):
        plan_layout(4, block, None)


def test_no_device_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^devices must name at least one device, got none$"):
        plan_layout(4, None, [])


# --- spread and gather -------------------------------------------------------------------


@pytest.mark.parametrize("num_runs, block, num_devices", [(5, 2, 2), (5, None, 2), (3, 8, 1), (1, 4, 2), (4, 2, 2)])
def test_spread_and_gather(num_runs: int, block: int | None, num_devices: int) -> None:
    planned = plan(num_runs, block, num_devices)
    tree = {"a": np.arange(num_runs * 3, dtype=np.int32).reshape(num_runs, 3), "b": np.arange(num_runs) * 0.5}
    parts = planned.spread(tree)
    assert len(parts) == len(planned.devices)
    for first, (part, device) in enumerate(zip(parts, planned.devices, strict=True)):
        assert part["a"].shape == (planned.slots_per_device, 3) and part["a"].dtype == jnp.int32
        assert part["a"].devices() == part["b"].devices() == {device}
        slots = [slot % num_runs for slot in range(first * planned.runs_per_device, num_runs + 2 * planned.block)]
        for slot, a, b in zip(slots, part["a"].tolist(), part["b"].tolist(), strict=False):
            assert a == tree["a"][slot].tolist() and b == tree["b"][slot]
    gathered = planned.gather(parts)
    for name, leaf in tree.items():
        assert isinstance(gathered[name], np.ndarray)
        np.testing.assert_array_equal(gathered[name], leaf)


# --- over_runs ---------------------------------------------------------------------------

NUM_RUNS = 10


def one_run(x: jax.Array, weights: Any, num_steps: jax.Array, bias: jax.Array) -> dict[str, Any]:
    """Chaotic enough that a difference in one bit would be seen at the end."""

    def body(_: Any, x: jax.Array) -> jax.Array:
        return jnp.tanh(weights["w"] @ x + jnp.sin(3 * x) + bias)

    return {"x": jax.lax.fori_loop(0, num_steps, body, x), "norm": jnp.sum(x * x)}


def inputs() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_RUNS, 4)).astype(np.float32)
    return x, {"w": generator.normal(size=(NUM_RUNS, 4, 4)).astype(np.float32)}


def run_all(planned: Layout, runs: Any, num_steps: int = 20) -> dict[str, np.ndarray]:
    jitted = jax.jit(over_runs(one_run, planned.block, num_shared=2))
    parts = planned.spread(runs)
    shared = (np.int32(num_steps), np.float32(0.125), np.int32(planned.num_blocks))

    def lower(device: Any) -> Any:
        x, weights = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=SingleDeviceSharding(device)), parts[0]
        )
        return jitted.lower(x, weights, *shared)

    [executables] = compile_programs([lower], planned.devices)
    x, weights = zip(*parts, strict=True)
    everywhere = [[value] * len(planned.devices) for value in shared]
    out = run_on_devices(executables, x, weights, *everywhere)
    assert [leaf.devices() for leaf in (part["norm"] for part in out)] == [{device} for device in planned.devices]
    return planned.gather(out)


@pytest.fixture(scope="module")
def on_one_device() -> dict[str, np.ndarray]:
    return run_all(plan(NUM_RUNS, 3, 1), inputs())


def assert_same_bits(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name])


def test_over_runs_is_a_loop_over_them() -> None:
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


def test_a_device_with_a_single_block_rounds_as_one_with_several() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"))

    def start(seed: jax.Array) -> Any:
        # The random states that an environment begins with lie at the edge of the program, beside the loop over blocks.
        return algo.init(jax.random.key(seed), algo.hparams, algo.env.default_params)

    def run(num_runs: int) -> Any:
        planned = plan_layout(num_runs, 8, DEVICES[:1])
        part = planned.spread(np.arange(num_runs))[0]
        return planned.gather([jax.jit(over_runs(start, 8))(part, np.int32(planned.num_blocks))])

    for one, several in zip(jax.tree.leaves(run(8)), jax.tree.leaves(run(16)), strict=True):
        np.testing.assert_array_equal(one, several[:8])


def test_one_program_serves_every_trip_count_and_number_of_blocks() -> None:
    traced = []

    def counted(*arguments: Any) -> Any:
        traced.append(1)
        return over_runs(one_run, 5, num_shared=2)(*arguments)

    compiled = jax.jit(counted)
    x, weights = inputs()
    whole, none, half = (
        compiled(x, weights, jnp.int32(steps), jnp.float32(0.125), jnp.int32(blocks))["x"]
        for steps, blocks in ((3, 2), (0, 2), (3, 1))
    )
    np.testing.assert_array_equal(none, x)
    np.testing.assert_array_equal(half[:5], whole[:5])
    assert not np.any(half[5:]) and np.all(whole != x)
    assert len(traced) == 1


def test_in_place_is_over_runs_a_few_blocks_at_a_time(on_one_device: dict[str, np.ndarray]) -> None:
    def change(run: Any, weights: Any, num_steps: jax.Array, bias: jax.Array) -> Any:
        return one_run(run["x"], weights, num_steps, bias)

    x, weights = inputs()
    pad = [*range(NUM_RUNS), 0, 1]
    runs: Any = {"x": x[pad], "norm": np.zeros(12, np.float32)}
    compiled = jax.jit(in_place(change, 3, num_shared=2), donate_argnums=0)
    shared = (jax.tree.map(lambda leaf: leaf[pad], weights), np.int32(20), np.float32(0.125))
    for first, last in ((0, 1), (1, 3), (3, 3)):
        runs = compiled(runs, *shared, np.int32(first), np.int32(last))
    assert not np.any(runs["norm"][9:])
    np.testing.assert_array_equal(runs["x"][9:], x[[9, 0, 1]])
    runs = compiled(runs, *shared, np.int32(3), np.int32(4))
    assert_same_bits({name: leaf[:NUM_RUNS] for name, leaf in runs.items()}, on_one_device)


def test_a_device_that_stands_twice_compiles_once() -> None:
    lowered = []

    def lower(device: Any) -> Any:
        lowered.append(device)
        return jax.jit(jnp.sin).lower(jax.ShapeDtypeStruct((), jnp.float32))

    [executables] = compile_programs([lower], [DEVICES[0]] * 3)
    assert lowered == [DEVICES[0]]
    assert len(executables) == 3 and len(set(map(id, executables))) == 1


def test_programs_come_back_in_the_order_they_were_given() -> None:
    def adds(number: int) -> Any:
        def lower(device: Any) -> Any:
            shape = jax.ShapeDtypeStruct((), jnp.int32, sharding=SingleDeviceSharding(device))
            return jax.jit(lambda x: x + number).lower(shape)

        return lower

    programs = compile_programs([adds(10), adds(20)], DEVICES)
    for number, executables in zip((10, 20), programs, strict=True):
        given = [jax.device_put(jnp.int32(i), device) for i, device in enumerate(DEVICES)]
        assert [int(x) for x in run_on_devices(executables, given)] == [number, number + 1]
        assert [int(x) for x in run_on_devices(executables[:1], given[:1])] == [number]


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
    level, width = {"xla_backend_optimization_level": 2}, {"xla_cpu_prefer_vector_width": 512} if wide else {}
    assert module.compiler_options("cpu") == level | width
    assert module.compiler_options("gpu") == {}
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3")
    assert module.compiler_options("cpu") == width
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_prefer_vector_width=256")
    assert module.compiler_options("cpu") == level
