"""Memory cells whose sequences are linear recurrences, parallel over time: LRU, S5 and the minimal gated unit.

Their interface is that of `learning.cells`. The recurrence of all three is `linear_recurrence`.
"""

import math
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxrl.learning.networks import ACTIVATIONS, orthogonal_gates
from jaxrl.pytrees import Memory, Params, PyTree, State

__all__ = ["LRU", "S5", "MinGRU", "linear_recurrence"]

Parts = tuple[jax.Array, ...]  # a real array, or real and imaginary parts


class LRU(nn.Module):
    """The linear recurrent unit, whose memory is complex: "real" and "imaginary", float32 `[size]` each.

    h' = lambda h + gamma B x, features = activation(Re(C h') + d x), where lambda = exp(-exp(nu) + i exp(theta)) lies
    inside the unit circle; gamma = sqrt(1 - |lambda|^2) keeps the memory at the scale of its input. A sequence is an
    associative scan, parallel over time. Initially |lambda|^2 is uniform over the ring and the
    phase over [0, max_phase]; B and C are orthogonal.

    Attributes:
      size: Number of complex numbers of the memory.
      activation: Name in `networks.ACTIVATIONS`.
      ring: Smallest and largest initial |lambda|.
      max_phase: Largest initial phase, in radians.

    Source: Orvieto et al. (2023), arXiv 2303.06349, with gamma a function of lambda instead of a parameter.
    """

    size: int
    activation: str = "tanh"
    ring: tuple[float, float] = (0.9, 0.999)
    max_phase: float = math.pi / 10

    def initial_memory(self) -> dict[str, jax.Array]:
        """Zeros."""
        return {"real": jnp.zeros(self.size), "imaginary": jnp.zeros(self.size)}

    @nn.compact
    def __call__(self, features: jax.Array, memory: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Features of the same shape, and the memory."""
        chex.assert_shape(features, (None,), custom_message="features")
        width = features.shape[0]
        weights = {
            "nu": self.param("nu", self._first_nu, (self.size,)),
            "theta": self.param("theta", self._first_theta, (self.size,)),
            "input_kernel": self.param("input_kernel", orthogonal_gates(2), (width, 2 * self.size)),
            "output_kernel": self.param("output_kernel", orthogonal_gates(1), (2 * self.size, width)),
            "skip": self.param("skip", nn.initializers.ones, (width,)),
        }
        decay = _decay(weights)
        real, imaginary = _plus(_times(decay, (memory["real"], memory["imaginary"])), _input(weights, features))
        return self._features(weights, (real, imaginary), features), {"real": real, "imaginary": imaginary}

    def unroll(self, params: Params, features: jax.Array, memory: Memory, reset: jax.Array) -> tuple[Any, Any]:
        """Features and memories after each step."""
        chex.assert_shape([features, reset], [(*reset.shape, None), (None,)], custom_message="features, reset")
        weights = params["params"]
        start = memory["real"], memory["imaginary"]
        real, imaginary = linear_recurrence(_decay(weights), _input(weights, features), start, reset)
        return self._features(weights, (real, imaginary), features), {"real": real, "imaginary": imaginary}

    def _features(self, weights: Params, memory: Parts, features: jax.Array) -> jax.Array:
        return ACTIVATIONS[self.activation](
            jnp.concatenate(memory, axis=-1) @ weights["output_kernel"] + weights["skip"] * features
        )

    def _first_nu(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        low, high = self.ring
        return jnp.log(-0.5 * jnp.log(jax.random.uniform(key, shape, minval=low**2, maxval=high**2)))

    def _first_theta(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jnp.log(self.max_phase * jax.random.uniform(key, shape, minval=1e-3))


def _decay(weights: Params) -> Parts:
    size, phase = jnp.exp(-jnp.exp(weights["nu"])), jnp.exp(weights["theta"])
    return size * jnp.cos(phase), size * jnp.sin(phase)


def _input(weights: Params, features: jax.Array) -> Parts:
    gamma = jnp.sqrt(-jnp.expm1(-2.0 * jnp.exp(weights["nu"])))
    real, imaginary = jnp.split(features @ weights["input_kernel"], 2, axis=-1)
    return gamma * real, gamma * imaginary


class S5(nn.Module):
    """The simplified state space layer, whose memory is complex: "real" and "imaginary", float32 `[size]` each.

    h' = exp(lambda delta) h + (exp(lambda delta) - 1) / lambda B x is the system dh/dt = lambda h + B x with an input
    that is constant during a step of length delta (zero-order hold); features = activation(2 Re(C h') + d x). lambda =
    -exp(log_rate) + i frequency, so that the memory never grows, and delta = exp(log_step) of each unit is learned. A
    sequence is an associative scan, parallel over time. Initially lambda of unit n is -1/2 + i pi n (S4D-Lin), which is
    a closed form, unlike the eigenvalues of HiPPO-N; log_step is uniform, and B and C are orthogonal.

    Attributes:
      size: Number of complex numbers of the memory, each of which stands for a pair of conjugate ones.
      activation: Name in `networks.ACTIVATIONS`.
      steps: Smallest and largest initial delta.

    Source: Smith, Warrington and Linderman (2023), arXiv 2208.04933, with the initial delta of their code; initial
    lambda: Gu et al. (2022), arXiv 2206.11893.
    """

    size: int
    activation: str = "tanh"
    steps: tuple[float, float] = (0.001, 0.1)

    def initial_memory(self) -> dict[str, jax.Array]:
        """Zeros."""
        return {"real": jnp.zeros(self.size), "imaginary": jnp.zeros(self.size)}

    @nn.compact
    def __call__(self, features: jax.Array, memory: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Features of the same shape, and the memory."""
        chex.assert_shape(features, (None,), custom_message="features")
        width = features.shape[0]
        weights = {
            "log_rate": self.param("log_rate", nn.initializers.constant(math.log(0.5)), (self.size,)),
            "frequency": self.param("frequency", lambda key, shape: jnp.pi * jnp.arange(*shape), (self.size,)),
            "log_step": self.param("log_step", self._first_log_step, (self.size,)),
            "input_kernel": self.param("input_kernel", orthogonal_gates(2), (width, 2 * self.size)),
            "output_kernel": self.param("output_kernel", orthogonal_gates(1), (2 * self.size, width)),
            "skip": self.param("skip", nn.initializers.ones, (width,)),
        }
        decay, inputs = self._held(weights, features)
        real, imaginary = _plus(_times(decay, (memory["real"], memory["imaginary"])), inputs)
        return self._features(weights, (real, imaginary), features), {"real": real, "imaginary": imaginary}

    def unroll(self, params: Params, features: jax.Array, memory: Memory, reset: jax.Array) -> tuple[Any, Any]:
        """Features and memories after each step."""
        chex.assert_shape([features, reset], [(*reset.shape, None), (None,)], custom_message="features, reset")
        weights = params["params"]
        start = memory["real"], memory["imaginary"]
        real, imaginary = linear_recurrence(*self._held(weights, features), start, reset)
        return self._features(weights, (real, imaginary), features), {"real": real, "imaginary": imaginary}

    def _held(self, weights: Params, features: jax.Array) -> tuple[Parts, Parts]:
        """Factors of the memory `[size]`, and inputs `[..., size]`, of steps with constant inputs."""
        rate, frequency, step = -jnp.exp(weights["log_rate"]), weights["frequency"], jnp.exp(weights["log_step"])
        size, phase = jnp.exp(rate * step), frequency * step
        decay = size * jnp.cos(phase), size * jnp.sin(phase)
        # exp(z) - 1 without the cancellation of its real part for small z.
        change = jnp.expm1(rate * step) * jnp.cos(phase) - 2.0 * jnp.sin(0.5 * phase) ** 2, decay[1]
        inverse = tuple(part / (rate * rate + frequency * frequency) for part in (rate, -frequency))
        real, imaginary = jnp.split(features @ weights["input_kernel"], 2, axis=-1)
        return decay, _times(_times(change, inverse), (real, imaginary))

    def _features(self, weights: Params, memory: Parts, features: jax.Array) -> jax.Array:
        return ACTIVATIONS[self.activation](
            2.0 * jnp.concatenate(memory, axis=-1) @ weights["output_kernel"] + weights["skip"] * features
        )

    def _first_log_step(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        low, high = map(math.log, self.steps)
        return jax.random.uniform(key, shape, minval=low, maxval=high)


class MinGRU(nn.Module):
    """The minimal gated recurrent unit; its features are its memory, "hidden", float32 `[size]`.

    h' = (1 - z) h + z (W x + b), z = sigmoid(W_z x + b_z): the gate and the candidate do not depend on h, so that a
    sequence is an associative scan, parallel over time. W and W_z are initially orthogonal, and the biases 0.

    Attributes:
      size: Size of the memory.

    Source: Feng et al. (2024), "Were RNNs all we needed?", arXiv 2410.01201, the form without logarithms.
    """

    size: int

    def initial_memory(self) -> dict[str, jax.Array]:
        """Zeros."""
        return {"hidden": jnp.zeros(self.size)}

    @nn.compact
    def __call__(self, features: jax.Array, memory: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Features after one step, and the memory."""
        chex.assert_shape(features, (None,), custom_message="features")
        weights = {
            "input_kernel": self.param("input_kernel", orthogonal_gates(2), (features.shape[0], 2 * self.size)),
            "bias": self.param("bias", nn.initializers.zeros, (2 * self.size,)),
        }
        kept, inputs = _gated(weights, features)
        hidden = kept * memory["hidden"] + inputs
        return hidden, {"hidden": hidden}

    def unroll(self, params: Params, features: jax.Array, memory: Memory, reset: jax.Array) -> tuple[Any, Any]:
        """Features and memories after each step."""
        chex.assert_shape([features, reset], [(*reset.shape, None), (None,)], custom_message="features, reset")
        kept, inputs = _gated(params["params"], features)
        (hidden,) = linear_recurrence((kept,), (inputs,), (memory["hidden"],), reset)
        return hidden, {"hidden": hidden}


def _gated(weights: Params, features: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Share of the memory that is kept, and what is added to it, `[..., size]` each."""
    gate, candidate = jnp.split(features @ weights["input_kernel"] + weights["bias"], 2, axis=-1)
    return nn.sigmoid(-gate), nn.sigmoid(gate) * candidate  # 1 - sigmoid(gate) without cancellation


def linear_recurrence(decay: Parts, inputs: Parts, start: Parts, reset: jax.Array) -> Parts:
    """h_t = decay_t h_{t-1} + inputs_t, with h_{t-1} = 0 if t is a reset, as an associative scan over time.

    Blocks of about sqrt(T) steps are computed in parallel and then joined in rounds, each of which doubles the number
    of blocks that a value sums up. Gradients are computed in the same way, from the values of h alone. Factors are
    multiplied and never divided by, so that small ones lose no accuracy.

    Args:
      decay: Factor of all steps `[N]`, or of each `[T, N]`. As of the other arguments and the result, one array if it
        is real, and otherwise real and imaginary part.
      inputs: Inputs `[T, N]`.
      start: State before the first step `[N]`.
      reset: Whether the state before a step is set to 0, bool `[T]`.

    Returns:
      Parts of h, `[T, N]`.

    Source: Hillis and Steele (1986), "Data parallel algorithms".
    """
    chex.assert_rank([*start, reset], 1, custom_message="start, reset")
    of_decay = (*reset.shape[: decay[0].ndim - 1], start[0].shape[0])
    chex.assert_shape([*decay], of_decay, custom_message="decay, start, reset")
    chex.assert_shape([*inputs], (reset.shape[0], start[0].shape[0]), custom_message="inputs, reset")
    return _recurrence(decay, inputs, start, reset)


@jax.custom_vjp
def _recurrence(decay: Parts, inputs: Parts, start: Parts, reset: jax.Array) -> Parts:
    first = tuple(leaf[0] for leaf in decay) if _varies(decay) else decay
    carried = _times(first, _kept(~reset[0], start))
    values = tuple(leaf.at[0].add(first) for leaf, first in zip(inputs, carried, strict=True))
    return _in_blocks(decay, values, ~reset)


def _forward(decay: Parts, inputs: Parts, start: Parts, reset: jax.Array) -> tuple[Parts, Any]:
    states = _recurrence(decay, inputs, start, reset)
    return states, (decay, start, reset, states)


def _backward(saved: PyTree, slope: Parts) -> tuple[Parts, Parts, Parts, None]:
    """The same recurrence backwards: the gradient of a step collects those of all later steps."""
    decay, start, reset, states = saved
    conjugate = _conjugate(decay)
    linked = ~jnp.roll(reset, -1)[::-1]  # each step to the next one; the link of the last step has no effect
    later = tuple(jnp.roll(leaf, -1, axis=0)[::-1] for leaf in conjugate) if _varies(decay) else conjugate
    of_inputs = tuple(leaf[::-1] for leaf in _in_blocks(later, tuple(leaf[::-1] for leaf in slope), linked))
    before = _kept(~reset[:, None], tuple(_shifted(leaf, 1, first) for leaf, first in zip(states, start, strict=True)))
    of_decay = _times(_conjugate(before), of_inputs)
    first = tuple(leaf[0] for leaf in conjugate) if _varies(decay) else conjugate
    of_start = _kept(~reset[0], _times(first, tuple(leaf[0] for leaf in of_inputs)))
    if not _varies(decay):
        of_decay = tuple(jnp.sum(leaf, axis=0) for leaf in of_decay)
    return of_decay, of_inputs, of_start, None


_recurrence.defvjp(_forward, _backward)


def _in_blocks(decay: Parts, values: Parts, linked: jax.Array) -> Parts:
    """Result of `_doubled`, by about sqrt(T) blocks in parallel, sequentially within each, then joined by doubling."""
    num_steps = linked.shape[0]
    length = math.isqrt(num_steps - 1) + 1
    count = -(-num_steps // length)

    def blocks(leaf: jax.Array) -> jax.Array:
        """Reshape `[T, ...]` to `[length, count, ...]`, with zeros at the end."""
        padded = jnp.pad(leaf, [(0, length * count - num_steps), *[(0, 0)] * (leaf.ndim - 1)])
        return padded.reshape(count, length, *leaf.shape[1:]).swapaxes(0, 1)

    def step(state: State, now: PyTree) -> tuple[Any, Any]:
        (value, power, joined), (inputs, linked, *own) = state, now
        factor = own[0] if own else decay
        value = _plus(_kept(linked[:, None], _times(factor, value)), inputs)
        state = value, _times(factor, power), joined & linked
        return state, state

    size = decay[0].shape[-1]
    nothing = tuple(jnp.zeros((count, size), leaf.dtype) for leaf in decay)
    power = jnp.ones((count, size) if _varies(decay) else size, decay[0].dtype)
    start = nothing, (power, *(jnp.zeros_like(power) for _ in decay[1:])), jnp.ones(count, bool)
    arguments = (values, linked, decay) if _varies(decay) else (values, linked)
    (ends, power, joined), within = jax.lax.scan(step, start, jax.tree.map(blocks, arguments))
    ends = _doubled(power, ends, joined)
    before = tuple(_shifted(leaf, 1, jnp.zeros_like(leaf[0]))[None] for leaf in ends)
    inside, powers, joined = within
    if not _varies(decay):
        powers = tuple(leaf[:, None] for leaf in powers)
    carried = _kept(joined[..., None], _times(powers, before))
    return tuple(leaf.swapaxes(0, 1).reshape(length * count, -1)[:num_steps] for leaf in _plus(inside, carried))


def _doubled(decay: Parts, values: Parts, linked: jax.Array) -> Parts:
    """Sum over the steps linked to t, each times the factors after it, `[T, N]`; `linked` joins a step to the last."""
    span = 1
    while span < linked.shape[0]:
        earlier = tuple(_shifted(leaf, span, jnp.zeros_like(leaf[0])) for leaf in values)
        values = _plus(values, _kept(linked[:, None], _times(decay, earlier)))
        linked = linked & _shifted(linked, span, jnp.zeros((), bool))
        before = tuple(_shifted(leaf, span, jnp.zeros_like(leaf[0])) for leaf in decay) if _varies(decay) else decay
        decay, span = _times(decay, before), 2 * span
    return values


def _varies(decay: Parts) -> bool:
    """Whether each step has a factor of its own."""
    return decay[0].ndim == 2


def _shifted(leaf: jax.Array, span: int, first: jax.Array) -> jax.Array:
    """Values `span` steps earlier, `first` before the first step."""
    return jnp.concatenate([jnp.broadcast_to(first, (span, *leaf.shape[1:])), leaf[:-span]])


def _times(a: PyTree, b: PyTree) -> Parts:
    if len(a) == 1:
        return (a[0] * b[0],)
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _plus(a: PyTree, b: PyTree) -> Parts:
    return tuple(one + other for one, other in zip(a, b, strict=True))


def _conjugate(a: Parts) -> Parts:
    return a if len(a) == 1 else (a[0], -a[1])


def _kept(flag: jax.Array, a: PyTree) -> Parts:
    return tuple(jnp.where(flag, leaf, 0.0) for leaf in a)
