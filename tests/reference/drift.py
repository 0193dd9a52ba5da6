"""Drift of PPO's objective in float64, one sample at a time."""

import math
from typing import Any

import numpy as np

from jaxrl.learning.drift import Drift


def random_drift(seed: int, width: int = 4) -> Drift:
    """A drift with weights of about 1."""
    random = np.random.default_rng(seed)
    shapes = ((Drift.num_inputs, width), (width,), (width,), ())
    return Drift(*(np.asarray(random.normal(size=shape), np.float32) for shape in shapes))


def clip_drift(log_ratio: float, advantage: float, eps: float) -> float:
    """Drift of PPO's clip: the part of the gain r A beyond the nearest ratio in [1 - eps, 1 + eps]."""
    ratio = math.exp(log_ratio)
    nearest = min(max(ratio, 1 - eps), 1 + eps)
    return max((ratio - nearest) * advantage, 0.0)


def learned_part(drift: Any, log_ratio: float, advantage: float) -> float:
    """Output of the network, times sqrt(1 + l^2) - 1."""
    wide, narrow, size = math.tanh(log_ratio), math.tanh(5 * log_ratio), math.tanh(advantage)
    features = [wide, narrow, size, narrow * size, abs(narrow) * size]
    net = float(drift.offset)
    for unit in range(len(drift.bias)):
        total = float(drift.bias[unit])
        for feature, value in enumerate(features):
            total += value * float(drift.hidden[feature][unit])
        net += math.tanh(total) * float(drift.out[unit])
    return (math.hypot(1.0, log_ratio) - 1) * net


def total_drift(drift: Any, log_ratio: float, advantage: float, eps: float) -> float:
    """Drift of the clip and of the network together, which is not negative."""
    return max(clip_drift(log_ratio, advantage, eps) + learned_part(drift, log_ratio, advantage), 0.0)


def policy_loss(drift: Any, log_ratio: Any, advantage: Any, weight: Any, eps: float) -> float:
    """Minus the mean of r A less the drift."""
    total = 0.0
    for each, gain, share in zip(log_ratio, advantage, weight, strict=True):
        total -= share * (math.exp(each) * gain - total_drift(drift, each, gain, eps))
    return total / float(np.sum(weight))
