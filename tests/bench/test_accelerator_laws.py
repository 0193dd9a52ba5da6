"""What laws of compiled programs count in their texts."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from bench import accelerator_cases as cases
from jaxrl.algorithms.off_policy import OffPolicyState
from jaxrl.learning.priorities import Priorities
from jaxrl.learning.sequence_replay import Memories
from jaxrl.runtime.accelerators.program_text import read_program

# Arrays of 2 runs and 8 slots: observations of 4 numbers, priorities and flags; and one of two rows.
PROGRAM = """ENTRY %main (obs: f32[2,8,4], priorities: f32[2,8], flags: pred[2,8], row: f32[2,1]) -> f32[2,8] {
  %obs = f32[2,8,4]{2,1,0} parameter(0)
  %priorities = f32[2,8]{1,0} parameter(1)
  %flags = pred[2,8]{1,0} parameter(2)
  %row = f32[2,1]{1,0} parameter(3)
  %c.0 = f32[2,1]{1,0} copy(%row)
  %c.1 = f32[2,8]{0,1} copy(%priorities)
  %c.2 = (f32[2,8,4]{2,1,0:S(1)}, f32[2,8,4]{2,1,0}, u32[]{:S(2)}) copy-start(%obs)
  %c.3 = f32[2,8,4]{2,1,0:S(1)} copy-done(%c.2)
  %c.4 = f32[2,8,8]{2,1,0} copy(%obs)
  ROOT %s.0 = f32[2,8]{1,0} select(%flags, %priorities, %c.1)
}
"""
SIZES = [2 * 8 * 4 * 4, 2 * 8 * 4, 2 * 8]


def test_copies_of_every_array_of_a_buffer_count_and_those_of_rows_do_not():
    program = read_program(PROGRAM)
    assert cases.whole_arrays(("copy", "copy-start"), program, SIZES) == 3
    assert cases.whole_arrays(("copy", "copy-start"), program, SIZES[:1]) == 2
    assert cases.whole_arrays(("select",), program, SIZES) == 1
    assert cases.whole_arrays(("copy",), program, []) == 0


def test_the_arrays_of_a_buffer_are_those_with_an_entry_for_each_slot():
    def array(*shape: int, dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct((2, *shape), dtype)  # of two runs

    buffer: Any = {"obs": array(8, 3, 4), "terminated": array(8, 3, dtype=bool)}
    priorities = Priorities(array(4, 6), array(4), array())
    memories = Memories(policy=array(8, 3, 5), critics=(), now=array(3, 5))
    learner, carry = array(1000), array(3, 9)
    state: Any = OffPolicyState(learner, None, carry, buffer, None)
    of_buffer = [2 * 8 * 3 * 4 * 4, 2 * 8 * 3]
    assert cases.sizes_of_buffer(SimpleNamespace(state=state)) == of_buffer
    more = state._replace(priorities=priorities, memories=memories)
    assert cases.sizes_of_buffer(SimpleNamespace(state=more)) == [*of_buffer, 2 * 24 * 4, 2 * 8 * 3 * 5 * 4]
    assert cases.sizes_of_buffer(SimpleNamespace(state=learner)) == []
