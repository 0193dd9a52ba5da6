"""Lower bounds of the regret of any policy in the mean over a prior."""

from __future__ import annotations

import numpy as np
import scipy.integrate
import scipy.special

from envs.errors import UserValueError

NEGLIGIBLE = 1e-20  # compared with 1

__all__ = ["lai"]


def lai(num_arms: int, alpha: float = 1.0, beta: float = 1.0) -> float:
    """Lower bound of the slope in (ln T)^2, for large T, of any mean regret over a prior of Bernoulli arms.

    The slope of Lai and Robbins on given instances has no mean over a prior, because arms come
    arbitrarily close to each other; such arms cost little within T pulls, which leaves this
    slope. Thompson sampling with the true prior attains it.

    Args:
      num_arms: Number of arms, K.
      alpha, beta: Parameters of the Beta prior of every mean, each above 0.

    Returns:
      K / 2 times the mean, over the best m of the K - 1 other arms, of m (1 - m) times the
      prior's density at m; (K - 1) / (2 K + 2) under the uniform prior.

    Raises:
      ValueError: There are fewer than two arms, or the prior is invalid.

    Source: Lai (1987), theorem 3.
    """
    if num_arms < 2:
        raise UserValueError(f"num_arms must be at least 2, got {num_arms}")
    if not (alpha > 0 and beta > 0):
        raise UserValueError(f"alpha and beta must be above 0, got {alpha} and {beta}")
    log_beta = scipy.special.betaln(alpha, beta)

    def cost(share: float) -> float:
        mean, rest = scipy.special.betaincinv(alpha, beta, share), scipy.special.betaincinv(beta, alpha, 1 - share)
        # The density at the mean, times mean (1 - mean): near the ends it is alpha share and beta (1 - share), up to
        # a relative error of the size of the mean or the rest, which may be too small for a float.
        if mean < NEGLIGIBLE:
            density = alpha * share
        elif rest < NEGLIGIBLE:
            density = beta * (1 - share)
        else:
            density = np.exp(alpha * np.log(mean) + beta * np.log(rest) - log_beta)
        return density * (num_arms - 1) * share ** (num_arms - 2)

    return num_arms / 2 * scipy.integrate.quad(cost, 0, 1, epsabs=0, limit=200)[0]
