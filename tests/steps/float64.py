"""Parts of learning steps in float64 NumPy: networks, gradients by differences, Adam, and comparisons."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from reference.learned_optimiser import Corrected

from jaxrl.learning.optimisers import LEARNED

Array = np.ndarray
Tree = Any

SHARE = 0.9  # of the step size of `falling` after each step
STEP = 1e-6  # of central differences: their error, 1e-16 / STEP + STEP^2, is below 1e-9 for losses of the size of 1


def in_float64(tree: Tree) -> Tree:
    """Parameters of jaxrl as float64 arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def vector_of(tree: Tree) -> Array:
    """All numbers of a pytree, `[size]`."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def tree_of(vector: Array, like: Tree) -> Tree:
    """Pytree of the numbers of a vector, with the shapes of another."""
    leaves, treedef = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = zip(np.split(vector, ends), leaves, strict=True)
    return jax.tree.unflatten(treedef, [part.reshape(leaf.shape) for part, leaf in parts])


def gradient(loss: Callable[[Tree], float], params: Tree) -> Array:
    """Gradient of a loss by central differences, `[size]`."""
    vector = vector_of(params)
    slopes = np.zeros_like(vector)
    for i in range(len(vector)):
        move = np.zeros_like(vector)
        move[i] = STEP
        slopes[i] = (loss(tree_of(vector + move, params)) - loss(tree_of(vector - move, params))) / (2 * STEP)
    return slopes


def linear(step: float, end: Any, steps: Any) -> float:
    """Factor of a schedule after `step` of `steps` steps: on the line from 1 to `end`."""
    return 1.0 if step <= 0 else float(np.interp(step / float(steps), [0.0, 1.0], [1.0, float(end)]))


class Clipping:
    """Clipping by the global norm.

    Attributes:
      clipped: Whether each gradient so far was clipped.
    """

    def __init__(self, hparams: Any):
        self.most, self.clipped = float(hparams.max_grad_norm), []
        self.share = 0.0  # of the run that is over

    def clip(self, slopes: Array) -> Array:
        """Gradient `[size]` with a norm of at most `max_grad_norm`."""
        norm = np.sqrt(np.sum(slopes**2))
        self.clipped.append(bool(norm > self.most))
        return slopes * min(1.0, self.most / norm) if norm > 0 else slopes


class Adam(Clipping):
    """Adam after clipping by the global norm."""

    def __init__(self, hparams: Any):
        super().__init__(hparams)
        self.b1, self.b2, self.eps = (float(getattr(hparams, name)) for name in ("adam_b1", "adam_b2", "adam_eps"))
        self.first, self.second, self.count = np.float64(0.0), np.float64(0.0), 0

    def __call__(self, params: Tree, slopes: Array, lr: float) -> Tree:
        """Parameters after one step along a gradient `[size]`."""
        slopes = self.clip(slopes)
        self.first = self.b1 * self.first + (1 - self.b1) * slopes
        self.second = self.b2 * self.second + (1 - self.b2) * slopes**2
        self.count += 1
        mean, square = self.first / (1 - self.b1**self.count), self.second / (1 - self.b2**self.count)
        return tree_of(vector_of(params) - lr * mean / (np.sqrt(square) + self.eps), params)


class Learned(Clipping):
    """Adam after clipping by the global norm, whose steps a small network corrects."""

    def __init__(self, hparams: Any):
        super().__init__(hparams)
        numbers = (float(getattr(hparams, name)) for name in ("adam_b1", "adam_b2", "adam_eps"))
        self.corrected = Corrected(hparams.optimiser, *numbers)

    def __call__(self, params: Tree, slopes: Array, lr: float) -> Tree:
        """Parameters after one step along a gradient `[size]`."""
        vector = vector_of(params)
        return tree_of(vector - lr * self.corrected.steps(self.clip(slopes), vector, self.share), params)


class Falling(Clipping):
    """Gradient descent after clipping by the global norm, with steps that become shorter by `SHARE` each time."""

    def __init__(self, hparams: Any):
        super().__init__(hparams)
        self.count = 0

    def __call__(self, params: Tree, slopes: Array, lr: float) -> Tree:
        """Parameters after one step along a gradient `[size]`."""
        step = lr * SHARE**self.count * self.clip(slopes)
        self.count += 1
        return tree_of(vector_of(params) - step, params)


def falling(lr: Any) -> optax.GradientTransformation:
    """The optimiser of `Falling`."""
    return optax.sgd(lambda count: lr * SHARE**count)


def descent(algo: Any, hparams: Any) -> Any:
    """Optimiser of the gradients of an algorithm: Adam, the learned one, or the custom one."""
    kinds = {None: Adam, LEARNED: Learned}
    return kinds.get(algo.config.optimiser, Falling)(hparams)


def effective(algo: Any, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Hyper-parameters that have an effect."""
    return {name: value for name, value in numbers.items() if getattr(algo.hparams, name) is not None}


def with_larger_heads(learner: Tree) -> Tree:
    """Learner of jaxrl whose last layers after a memory have weights of about 1, instead of .01.

    Gradients reach the memory through them. Equal shapes get equal weights, such as those of a target network.
    """

    def leaf(path: Any, old: Any) -> Any:
        names = [getattr(key, "key", None) for key in path]
        if "head" not in names or names[-1] != "kernel":
            return old
        return jnp.asarray(np.random.default_rng(0).normal(size=old.shape), jnp.float32)

    return jax.tree_util.tree_map_with_path(leaf, learner)


def member(tree: Tree, i: int) -> Tree:
    """Parameters of one network of an ensemble."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def towards(tree: Tree, other: Tree, share: float) -> Tree:
    """Pytree moved by a share of the way to another."""
    return jax.tree.map(lambda one, two: one + share * (two - one), tree, other)


def dense(layer: Mapping[str, Array], x: Array) -> Array:
    """A linear layer."""
    return x @ layer["kernel"] + layer["bias"]


def perceptron(params: Mapping[str, Any], x: Array, name: str) -> Array:
    """Hidden layers `name_0`, `name_1`, ... with tanh, each with a layer norm where there is one."""
    i = 0
    while f"{name}_{i}" in params:
        x = dense(params[f"{name}_{i}"], x)
        if f"{name}_{i}_norm" in params:
            norm, centred = params[f"{name}_{i}_norm"], x - x.mean(axis=-1, keepdims=True)
            x = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6) * norm["scale"] + norm["bias"]
        x, i = np.tanh(x), i + 1
    return x


def encoded(params: Tree, x: Array, memory: Array | None = None) -> tuple[Mapping[str, Any], Array]:
    """Layers after the encoder of a network, and its features.

    Args:
      params: Parameters.
      x: Inputs, `[*B, n]`.
      memory: Memories before the inputs, `[*B, size]`; None for a network without a memory.
    """
    layers = params["params"]
    if memory is not None:
        layers, x = layers["head"], remembered(params, x, memory)
    return layers, perceptron(layers.get("encoder", {}), x, "trunk")


def remembered(params: Tree, x: Array, memory: Array) -> Array:
    """Memories of a network with a GRU after inputs, `[*B, size]`, which are the features of its last layers."""
    layers = params["params"]
    return gru(layers["cell"], perceptron(layers["encoder"], x, "trunk"), memory)


def gru(cell: Mapping[str, Array], x: Array, h: Array) -> Array:
    """r = sigmoid(W_r x + b_r + U_r h), z likewise, n = tanh(W_n x + b_n + r (U_n h + c)), (1 - z) n + z h.

    The columns of each matrix are those of r, of z and of n.
    """
    size = h.shape[-1]
    of_gates = [slice(i * size, (i + 1) * size) for i in range(3)]
    (w_r, u_r, b_r), (w_z, u_z, b_z), (w_n, u_n, b_n) = (
        (cell["input_kernel"][:, gate], cell["kernel"][:, gate], cell["bias"][gate]) for gate in of_gates
    )
    r = 1 / (1 + np.exp(-(x @ w_r + b_r + h @ u_r)))
    z = 1 / (1 + np.exp(-(x @ w_z + b_z + h @ u_z)))
    n = np.tanh(x @ w_n + b_n + r * (h @ u_n + cell["candidate_bias"]))
    return (1 - z) * n + z * h


def log_softmax(logits: Array, mask: Array | None = None) -> Array:
    """Log-probabilities, -inf where a mask forbids an action."""
    logits = logits if mask is None else np.where(mask, logits, -np.inf)
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.sum(np.exp(logits - top), axis=-1, keepdims=True))


def best(values: Array, mask: Array | None = None) -> Array:
    """Actions of the largest value among the allowed ones."""
    return np.argmax(values if mask is None else np.where(mask, values, -np.inf), axis=-1)


def weighted_mean(x: Array, weight: Array) -> float:
    """Mean weighted by `weight`, 0 where all weights are 0."""
    total = weight.sum()
    return float((x * weight).sum() / total) if total > 0 else 0.0


class Nodes:
    """Exponentials of a prepared discount: rates, weights, sizes and shares, `[K]`."""

    def __init__(self, discount: Any, curve: Callable[[Array], Array]):
        self.rates, self.weights = (np.asarray(leaf, np.float64) for leaf in (discount.rates, discount.weights))
        horizons = (self.rates[:, None] ** np.arange(discount.horizon)).sum(axis=1)
        self.sizes = horizons / (self.weights @ horizons)
        self.shares = self.weights * self.sizes
        delays = np.arange(discount.horizon + 1)
        fitted = (self.rates[:, None] ** delays * self.weights[:, None]).sum(axis=0)
        # Library reports a difference of more than 1e-3 by a warning, which fails a test.
        np.testing.assert_allclose(fitted, curve(delays), rtol=0, atol=1e-3)


class Statistics:
    """Mean and variance of all observations so far; without `kept`, observations stay as they are."""

    def __init__(self, kept: bool, clip: float | None):
        self.kept, self.clip, self.samples = kept, clip, np.zeros((0, 0))

    def add(self, obs: Array, active: Array) -> None:
        """Add the observations of active agents."""
        new = obs[active]
        self.samples = new if self.samples.size == 0 else np.concatenate([self.samples, new])

    def normalised(self, obs: Array) -> Array:
        """Normalised observations."""
        if not self.kept or self.clip is None:
            return obs
        mean, variance = (0.0, 1.0) if self.samples.size == 0 else (self.samples.mean(0), self.samples.var(0))
        return np.clip((obs - mean) / np.sqrt(variance + 1e-8), -self.clip, self.clip)


def assert_same(actual: Tree, expected: Tree, atol: float) -> None:
    """Check that two pytrees of numbers agree within `atol`."""
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=0, atol=atol), actual, expected)


def assert_steps(actual: Any, expected: Any, atol: float) -> None:
    """Check that transitions of jaxrl are the expected steps: flags exactly, numbers within `atol`."""
    for name, leaf in vars(expected).items():
        stored = getattr(actual, name)
        if isinstance(stored, tuple):  # masks of the parts of an action
            stored = np.concatenate(stored, axis=-1)
        if leaf is None:
            assert stored is None, name
        elif leaf.dtype.kind == "f":
            np.testing.assert_allclose(stored, leaf, rtol=0, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(stored, leaf, err_msg=name)
