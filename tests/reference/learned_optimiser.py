"""Learned optimiser in float64, one parameter at a time."""

import math
from typing import Any

import numpy as np

from jaxrl.learning.optimisers import LearnedOptimiser


def random_optimiser(seed: int, width: int = 3) -> LearnedOptimiser:
    """A learned optimiser with weights of about 1."""
    random = np.random.default_rng(seed)
    shapes = ((LearnedOptimiser.num_inputs, width), (width,), (width, 2), (2,))
    return LearnedOptimiser(*(np.asarray(random.normal(size=shape), np.float32) for shape in shapes))


class Corrected:
    """Corrected steps of Adam.

    Args:
      weights: Weights of the learned optimiser.
      b1, b2, eps: Numbers of Adam.
    """

    def __init__(self, weights: Any, b1: float, b2: float, eps: float):
        self.weights, self.rates, self.b2, self.eps = weights, (b1, 0.5, 0.99, 0.999), b2, eps
        self.sums: list[Any] = [0.0] * 4
        self.square, self.count = 0.0, 0

    def steps(self, gradient: Any, params: Any, share: float) -> Any:
        """Steps `[n]`, to be subtracted after they are multiplied by the step size."""
        self.count += 1
        self.sums = [rate * sum_ + (1 - rate) * gradient for rate, sum_ in zip(self.rates, self.sums, strict=True)]
        means = [sum_ / (1 - rate**self.count) for rate, sum_ in zip(self.rates, self.sums, strict=True)]
        self.square = self.b2 * self.square + (1 - self.b2) * gradient**2
        sizes = np.sqrt(self.square / (1 - self.b2**self.count)) + self.eps
        typical, scale = math.sqrt(np.mean(sizes**2)), math.sqrt(np.mean(params**2))
        steps = np.zeros(len(params))
        for i, (slope, size, param) in enumerate(zip(gradient, sizes, params, strict=True)):
            momenta = [mean[i] / size for mean in means]
            relative = abs(slope) / size
            features = [
                soft(slope / self.eps),
                math.tanh(math.log(relative) / 2) if relative > 0 else -1.0,
                *map(soft, momenta),
                math.tanh(math.log(size / typical) / 2),
                soft(param / scale) if scale > 0 else 0.0,
                share,
            ]
            shift, stretch = network(self.weights, features)
            steps[i] = (momenta[0] - shift / 10) * math.exp(stretch)
        return steps


def soft(x: float) -> float:
    """Number within [-1, 1] with the sign of another."""
    return x / (1 + abs(x))


def network(weights: Any, features: list[float]) -> list[float]:
    """Outputs of the network for one parameter."""
    outputs = [float(offset) for offset in weights.offset]
    for unit in range(len(weights.bias)):
        total = float(weights.bias[unit])
        for feature, value in enumerate(features):
            total += value * float(weights.hidden[feature][unit])
        for k in range(2):
            outputs[k] += math.tanh(total) * float(weights.out[unit][k])
    return outputs
