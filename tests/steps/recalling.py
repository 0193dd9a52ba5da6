"""Memories along sequences of steps, in NumPy and float64, one step at a time."""

from dataclasses import dataclass
from typing import Any

import float64
import numpy as np

Array = np.ndarray


@dataclass
class Sequences:
    """Steps of sequences as a network with a memory sees them; those after the burn-in are rows, in order of time.

    Attributes:
      inputs: Inputs of the network, `[L, W, *A, n]`.
      reset: Whether an episode of an agent began with a step, bool `[L, W, *A]`, False at the first steps.
      start: Memories before the first steps, 0 where an episode begins, `[W, *A, size]`.
      last: Rows of the last steps of the rows' windows, `[(L - burn_in) * W]`.
      burn_in: Number of first steps that are not learned from.
    """

    inputs: Array
    reset: Array
    start: Array
    last: Array
    burn_in: int = 0

    def before(self, params: Any, fixed: Any = None) -> Array:
        """Memories before the rows, `[rows, *A, size]`, 0 where an episode begins.

        Args:
          params: Parameters, along which a loss may be differentiated.
          fixed: Parameters of the burn-in, which is a constant of the loss; None for the same.
        """
        return self._along(params, fixed)[0]

    def after(self, params: Any) -> Array:
        """Memories after the windows of the rows, `[rows, *A, size]`, also after the end of an episode not reset."""
        return self._along(params, None)[1][self.last]

    def _along(self, params: Any, fixed: Any) -> tuple[Array, Array]:
        """Memories before and after each row."""
        memory, before, after = self.start, [], []
        assert not self.reset[0].any()
        for step, (inputs, reset) in enumerate(zip(self.inputs, self.reset, strict=True)):
            memory = np.where(reset[..., None], 0.0, memory)
            before.append(memory)
            burning = step < self.burn_in and fixed is not None
            memory = float64.remembered(fixed if burning else params, inputs, memory)
            after.append(memory)
        return np.concatenate(before[self.burn_in :]), np.concatenate(after[self.burn_in :])
