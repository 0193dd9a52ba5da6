"""Absent accelerators: what is read in the texts of their programs, and bounds on the time that these take."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.runtime.accelerators.bounds import Bound, bound_of, of_an_iteration
from jaxrl.runtime.accelerators.figures import Figures, figures
from jaxrl.runtime.accelerators.program_text import read_program
from jaxrl.runtime.accelerators.targets import KERNEL_SECONDS, TARGETS

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
    assert lines["kernels"] == "100 in each of 10 iterations of 3 blocks: about 0.0 s, as on an H200"
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
