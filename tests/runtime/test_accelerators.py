"""Absent accelerators: what is read in the texts of their programs, bounds, plans, and messages."""

import dataclasses
import importlib.util
import os
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chaotic_algorithm import PER_ITERATION, wandering

import envs
import jaxrl
from jaxrl.cli.main import main
from jaxrl.runtime.accelerators import absent_device as absent
from jaxrl.runtime.accelerators.bounds import Bound, bound_of, of_an_iteration
from jaxrl.runtime.accelerators.figures import Figures, figures
from jaxrl.runtime.accelerators.program_text import read_program
from jaxrl.runtime.accelerators.targets import KERNEL_SECONDS, TARGETS, named_target
from jaxrl.runtime.layout import compiler_options, plan_layout
from jaxrl.runtime.machine.memory import GIB, MIB
from jaxrl.runtime.plan.planner import Planner, Sizes
from jaxrl.runtime.training import points_of, training_call

# Shortened text of a compiler: a product, one by a library with its workspace, a fusion that reads one row of an array,
# one that replaces a row of another, and copies into the chip's own memory and out of it.
PROGRAM = """HloModule jit_f

%row (p.0: f32[64,8], p.1: s32[]) -> f32[1,8] {
  %p.0 = f32[64,8]{1,0} parameter(0)
  %p.1 = s32[] parameter(1)
  %b.0 = f32[64,8]{1,0} bitcast(%p.0)
  %zero = s32[] constant(0)
  %s.0 = f32[1,8]{1,0} dynamic-slice(%b.0, %p.1, %zero), dynamic_slice_sizes={1,8}
  ROOT %t.0 = f32[1,8]{1,0} tanh(%s.0)
}

%replaced (p.2: f32[64,8], p.3: f32[1,8], p.4: s32[]) -> f32[64,8] {
  %p.2 = f32[64,8]{1,0} parameter(0)
  %p.3 = f32[1,8]{1,0} parameter(1)
  %p.4 = s32[] parameter(2)
  %zero.1 = s32[] constant(0)
  ROOT %u.0 = f32[64,8]{1,0} dynamic-update-slice(%p.2, %p.3, %p.4, %zero.1)
}

ENTRY %main (a: f32[4,16,8], b: f32[4,8,2], c: f32[64,8], i: s32[]) -> f32[64,8] {
  %a = f32[4,16,8]{2,1,0:T(8,128)} parameter(0)
  %b = f32[4,8,2]{2,1,0} parameter(1)
  %c = f32[64,8]{1,0} parameter(2)
  %i = s32[] parameter(3)
  %d.0 = f32[4,16,2]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}
  %g.0 = (f32[4,16,2]{2,1,0}, s8[4096]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", \
backend_config={"dot_dimension_numbers":{"lhs_batch_dimensions":["0"]}}
  %r.0 = f32[1,8]{1,0} fusion(%c, %i), kind=kLoop, calls=%row
  %c.1 = (f32[64,8]{1,0:T(8,128)S(1)}, f32[64,8]{1,0}, u32[]{:S(2)}) copy-start(%c)
  %c.2 = f32[64,8]{1,0:T(8,128)S(1)} copy-done(%c.1)
  %c.3 = f32[64,8]{1,0} copy(%c.2)
  ROOT %w.0 = f32[64,8]{1,0} fusion(%c.3, %r.0, %i), kind=kLoop, calls=%replaced
}
"""
FACTORS = 4 * (4 * 16 * 8 + 4 * 8 * 2)
PRODUCT = FACTORS + 4 * (4 * 16 * 2)  # bytes of both factors and of the result
ROW, ARRAY, INDEX = 4 * 8, 4 * 64 * 8, 4


def test_kernels_traffic_and_operations_of_a_program_by_hand():
    work = figures(read_program(PROGRAM))
    assert work.kernels == 2 + 2 + 2
    read_a_row, replace_a_row = ROW + INDEX + ROW, ROW + INDEX + ROW
    copies = ARRAY + ARRAY  # from memory to the chip, and from there to memory
    assert work.bytes == 2 * PRODUCT + read_a_row + replace_a_row + copies
    assert work.operations == 2 * (2 * 4 * 16 * 2 * 8) + 8  # slices and copies compute nothing


def test_of_each_kernel_only_the_bytes_beyond_the_cache_must_come_from_memory():
    cache = 1000
    of_product, of_copy = FACTORS - cache, ARRAY - cache  # what is read, and what is written, may stay there
    assert figures(read_program(PROGRAM), cache=cache).uncached == 2 * of_product + 2 * of_copy


@pytest.mark.parametrize(
    ("labels", "window", "kernel", "products"),
    [
        ("bf_io->bf", "", (8, 2), 8),
        ("0bf_0io->0bf", ", window={size=4 stride=3 pad=3_3 lhs_dilate=4}", (4, 8, 2), 8),
        ("b01f_01io->b01f", ", window={size=3x3}", (3, 3, 8, 2), 72),
    ],
)
def test_convolutions_of_a_tpu_are_products_of_matrices_or_images(
    labels: str, window: str, kernel: tuple[int, ...], products: int
) -> None:
    shape = ",".join(map(str, kernel))
    text = f"""ENTRY %main (a: f32[5,8], b: f32[{shape}]) -> f32[5,2] {{
  %a = f32[5,8]{{1,0}} parameter(0)
  %b = f32[{shape}]{{1,0}} parameter(1)
  ROOT %c = f32[5,2]{{1,0}} convolution(%a, %b){window}, dim_labels={labels}
}}
"""
    assert figures(read_program(text)).operations == 2 * 5 * 2 * products


# A condition whose branches have few kernels with much work, and many with little; and a product of an array by itself.
BRANCHES = """HloModule jit_f

%few (x: f32[64,64]) -> f32[64,64] {
  %x = f32[64,64]{1,0} parameter(0)
  ROOT %d.0 = f32[64,64]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%many (x: f32[64,64]) -> f32[] {
  %x = f32[64,64]{1,0} parameter(0)
  %c.0 = f32[] constant(0)
  %a.0 = f32[] add(%c.0, %c.0)
  ROOT %a.1 = f32[] add(%a.0, %c.0)
}

ENTRY %main (x: f32[64,64], p: s32[]) -> f32[64,64] {
  %x = f32[64,64]{1,0} parameter(0)
  %p = s32[] parameter(1)
  ROOT %w = f32[64,64]{1,0} conditional(%p, %x, %x), branch_computations={%few, %many}
}
"""


def test_of_two_branches_the_least_of_each_figure_counts():
    work = figures(read_program(BRANCHES))
    assert work.kernels == 1 + 1  # the condition itself, and a kernel
    assert work.bytes == (4 + 4) + (4 + 4 + 4)  # the two sums
    assert work.operations == 2


def test_an_operand_that_is_taken_twice_is_read_once():
    entry = BRANCHES.replace("ENTRY %main", "%main").replace("%few (x", "ENTRY %few (x")
    assert figures(read_program(entry)).bytes == 2 * 4 * 64 * 64


def test_an_iteration_of_a_compiled_loop_has_the_operations_of_its_body():
    def advance(x: Any, weights: Any, first: Any, count: Any) -> Any:
        return jax.lax.fori_loop(first, first + count, lambda _, x: jnp.tanh(x @ weights), x)

    lowered = jax.jit(advance).lower(np.zeros((64, 32), np.float32), np.zeros((32, 32), np.float32), 0, 1)
    work = of_an_iteration(read_program(lowered.compile().as_text()))
    product = 2 * 64 * 32 * 32
    assert product <= work.operations <= product + 4 * 64 * 32  # tanh and what moves the result
    assert 1 <= work.kernels <= 4


# A loop of a TPU, whose trip count is not stated: a counter from FIRST to 16, one by one.
COUNTED = """%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %i.1 = s32[] copy(%i)
  %x = f32[8]{0} get-tuple-element(%t), index=1
  %one = s32[] constant(STEP)
  %i.2 = s32[] add(%i.1, %one)
  %s = f32[8]{0} sine(%x)
  ROOT %r = (s32[], f32[8]{0}) tuple(%i.2, %s)
}

%test (t: (s32[], f32[8])) -> pred[] {
  %t = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0, metadata={}
  %end = s32[] constant(16)
  ROOT %less = pred[] compare(%i, %end), direction=LT
}

ENTRY %main (x: f32[8]) -> (s32[], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %first = s32[] constant(FIRST)
  %c = s32[] copy(%first)
  %start = (s32[], f32[8]{0}) tuple(%c, %x)
  ROOT %w = (s32[], f32[8]{0}) while(%start), condition=%test, body=%body
}
"""


@pytest.mark.parametrize(
    ("changes", "trips"),
    [
        ({"FIRST": "0", "STEP": "1"}, 16),
        ({"FIRST": "4", "STEP": "1"}, 12),
        ({"FIRST": "0", "STEP": "2"}, None),
        ({"FIRST": "0", "STEP": "1", "direction=LT": "direction=NE"}, None),
        ({"FIRST": "0", "STEP": "1", "constant(16)": "parameter(1)"}, None),
    ],
)
def test_trips_of_a_loop_are_those_of_its_counter(changes: dict[str, str], trips: int | None):
    text = COUNTED
    for old, new in changes.items():
        text = text.replace(old, new)
    program = read_program(text)
    main = program.computations["main"]
    assert program.trips(main["w"], main) == trips
    assert figures(program).operations == (8 + 1) * (1 if trips is None else trips)


def test_a_text_without_an_entry_is_refused():
    with pytest.raises(ValueError, match="text must be the text of a compiled program"):
        read_program("HloModule jit_f")


def test_the_bound_is_the_larger_of_its_terms():
    target = TARGETS["t4"]
    work = Figures(kernels=100, bytes=5e9, uncached=32e7, operations=16.2e9)
    bound = Bound(target, work, iterations=10, blocks=3)
    assert bound.kernel_seconds == pytest.approx(30 * 100 * KERNEL_SECONDS)
    assert bound.traffic_seconds == pytest.approx(30 * 1e-3)
    assert bound.arithmetic_seconds == pytest.approx(30 * 2e-3)
    assert bound.seconds == bound.arithmetic_seconds
    lines = bound.lines()
    assert lines["kernels"] == "100 in each of 10 iterations of 3 blocks: about 0.0 s, as on an H100"
    assert "5 GB in each iteration, 320 MB of them beyond the cache" in lines["traffic"]
    assert "bound from the compiled program, not a measurement" in lines["time"]


def test_an_estimate_is_not_a_bound_and_a_tpu_has_none():
    slow = Figures(kernels=1e9)
    assert Bound(TARGETS["h100"], slow, 1, 1).seconds == 0
    bound = bound_of(PROGRAM, TARGETS["tpu-v5e"], iterations=1, blocks=1)
    assert bound.kernel_seconds == 0
    assert "about" not in bound.lines()["kernels"]
    assert "cache" not in bound.lines()["traffic"]


def test_a_loop_whose_length_the_data_decides_is_empty_in_a_bound():
    def advance(x: Any, first: Any, count: Any) -> Any:
        def iteration(_: Any, x: Any) -> Any:
            return jax.lax.while_loop(lambda x: jnp.sum(x) < 10, lambda x: jnp.sin(x @ x), x)

        return jax.lax.fori_loop(first, first + count, iteration, x)

    program = read_program(jax.jit(advance).lower(np.zeros((32, 32), np.float32), 0, 1).compile().as_text())
    assert of_an_iteration(program).operations >= 2 * 32**3
    assert of_an_iteration(program, inner=0).operations < 2 * 32**3


def planner_on(monkeypatch: pytest.MonkeyPatch, name: str, num_runs: int, memory: str | None = None) -> Planner:
    """Planner of a call on a device that stands for a target."""
    device: Any = SimpleNamespace(platform="gpu", device_kind="some GPU")
    device = type("Device", (), vars(device))()
    monkeypatch.setitem(absent._TARGETS, device, TARGETS[name])
    algo = wandering()
    points = points_of(algo, 4 * PER_ITERATION, 2, 2)
    call = training_call(algo, None, seeds=list(range(num_runs)), points=points, eval_episodes=2)
    layout = plan_layout(num_runs, 8, None)._replace(devices=(device,))
    return Planner.of(call, layout, memory)


SIZES = Sizes(100 * MIB, 0, 0, 0, 0, 0, advancing=GIB, evaluating=MIB, block=8)


def test_a_plan_for_a_target_takes_four_fifths_of_the_memory_that_jax_reserves(monkeypatch: pytest.MonkeyPatch):
    planner = planner_on(monkeypatch, "t4", 80)
    assert planner.limit is not None
    assert planner.limit == int(0.8 * int(0.75 * 15_360 * MIB))
    planned = planner.at(SIZES, 8, 1, process=0)
    assert planned.memory == 80 * 100 * MIB + GIB
    assert planned.most_runs == (planner.limit - GIB) // (8 * 100 * MIB) * 8 == 80
    assert "fits          up to 80 runs, whose blocks take turns" in str(planned)
    assert planner_on(monkeypatch, "t4", 80, "2GiB").limit == 2 * GIB
    assert planner_on(monkeypatch, "t4", 80, "90GiB").limit == int(0.75 * 15_360 * MIB)


def test_a_plan_shows_the_bound_in_place_of_the_memory_of_the_host(monkeypatch: pytest.MonkeyPatch):
    planned = planner_on(monkeypatch, "t4", 8).at(SIZES, 8, 1, process=0)
    assert "host memory" in str(planned)
    shown = str(dataclasses.replace(planned, bound=bound_of(PROGRAM, TARGETS["t4"], 1, 1)))
    assert "host memory" not in shown
    assert "arithmetic" in shown


def test_kernels_of_an_absent_gpu_are_not_tried_out(monkeypatch: pytest.MonkeyPatch):
    planner = planner_on(monkeypatch, "h100", 8)
    assert compiler_options(planner.layout.devices[0]) == {"xla_gpu_autotune_level": 0}
    assert absent.compiler_options_of(TARGETS["tpu-v6e"]) == {}


def test_a_target_must_be_known(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ValueError, match=r"target must be one of t4, .*, got 'H10'; did you mean 'h100'\?"):
        named_target("H10")
    with pytest.raises(ValueError, match=r"target must be one of t4, .*, got 5$"):
        named_target(5)
    with pytest.raises(ValueError, match="devices has no effect with target"):
        jaxrl.plan("ppo", "cartpole", target="t4", devices=["cpu:0"])
    assert main(["plan", "ppo", "cartpole", "--for", "v5e"]) == 2
    assert "--for must be one of t4" in capsys.readouterr().err
    assert main(["plan", "ppo", "cartpole", "--for", "t4", "--devices", "cpu:0"]) == 2
    assert "--devices has no effect with --for" in capsys.readouterr().err
    assert main(["train", "ppo", "cartpole", "--for", "t4"]) == 2
    assert "--for is an option of jaxrl plan" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "extra"), [("t4", "cuda12"), ("tpu-v5e", "tpu")])
def test_a_missing_compiler_is_one_sentence(target: str, extra: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    absent._device.cache_clear()
    with pytest.raises(ImportError, match=rf"a plan for {target} needs .*: pip install '\.\[{extra}\]'"):
        jaxrl.plan("ppo", "cartpole", target=target)


def test_several_compilations_have_no_target(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jaxrl.runtime.plan_call.absent_device", lambda target: jax.devices()[0])
    env = envs.make("cartpole")
    algos = [jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=count)) for count in (2, 4)]
    with pytest.raises(ValueError, match="target takes algorithms that share one compilation, got 2"):
        jaxrl.plan(algos, env_steps=1000, target="t4")


def test_the_environment_of_a_process_is_restored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "mine")
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    with absent._environment({"TPU_ACCELERATOR_TYPE": "v6e-4", "TPU_SKIP_MDS_QUERY": "1"}):
        assert os.environ["TPU_ACCELERATOR_TYPE"] == "v6e-4"
        assert os.environ["TPU_SKIP_MDS_QUERY"] == "1"
    assert os.environ["TPU_ACCELERATOR_TYPE"] == "mine"
    assert "TPU_SKIP_MDS_QUERY" not in os.environ
