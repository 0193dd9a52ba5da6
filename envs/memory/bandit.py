"""Bandit episode: arms whose chances are drawn anew in every episode, so that a policy learns within the episode."""

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_at_least, check_count, check_positive, check_whole
from envs.base import spaces
from envs.pytrees import DiscountLike

WORK = 2**26  # largest number of elementary steps of an exact value


@struct.dataclass
class BanditEpisodeState(base.EnvState):
    """The state of an episode.

    Attributes:
      time: Number of pulls, int32 `[]`.
      chances: Success probability of each arm, float32 `[K]`.
      arm: Arm pulled last, int32 `[]`; -1 before the first pull.
      success: Last reward, float32 `[]`; 0 before the first pull.
    """

    time: jax.Array
    chances: jax.Array
    arm: jax.Array
    success: jax.Array


@struct.dataclass
class BanditEpisodeParams(base.EnvParams):
    """The prior and the length.

    Attributes:
      alpha, beta: Parameters of the Beta prior of each arm's success probability, above 0; 1 and 1 is uniform.
      num_pulls: Number of pulls in an episode, int, at least 1; longer episodes require a longer time limit.
      max_steps_in_episode: Time limit.
    """

    alpha: float = 1.0
    beta: float = 1.0
    num_pulls: int = 20
    max_steps_in_episode: int = 20


@dataclass(frozen=True)
class BanditEpisode(base.Environment):
    """Arms that pay 1 or 0, with success probabilities from a Beta prior, drawn independently at every reset.

    An action is a pull. The observation `[K + 2]` has the arm pulled last, one-hot, its reward, and a flag that is 1
    before the first pull, where the others are 0. These observations are sufficient: a policy that remembers them
    knows how often each arm has paid. The best one is Bayesian: it explores while pulls remain, and then exploits.

    POPGym's multi-armed bandit differs: it has 10 arms and 200 pulls in its easy form, and rewards of 1 / 200 and
    -1 / 200; the arm pulled last is left to a wrapper, or the first observation is a random pull, by the version.

    Attributes:
      num_arms: Number of arms, K, at least 2.
      num_pulls: Default of the parameter.

    Source: after Duan et al. (2016), "RL^2: fast reinforcement learning via slow reinforcement learning", and Morad et
      al. (2023), "POPGym: benchmarking partially observable reinforcement learning".
    """

    num_arms: int = 2
    num_pulls: int = 20

    def __post_init__(self) -> None:
        check_count("num_arms", self.num_arms, 2)
        check_count("num_pulls", self.num_pulls)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "memory/bandit"

    @property
    def default_params(self) -> BanditEpisodeParams:
        """A uniform prior, the number of pulls, and a time limit sufficient for them."""
        return BanditEpisodeParams(num_pulls=self.num_pulls, max_steps_in_episode=self.num_pulls)

    def check_params(self, params: BanditEpisodeParams) -> None:
        """Reject an invalid prior, and a number of pulls that is below 1 or not whole."""
        check_positive(params, "alpha", "beta")
        check_at_least(params, num_pulls=1)
        check_whole(params, "num_pulls")

    def reset_env(self, key: jax.Array, params: BanditEpisodeParams) -> tuple[jax.Array, BanditEpisodeState]:
        """Draw the arms; the observation `[K + 2]` shows nothing of them."""
        chances = jax.random.beta(key, params.alpha, params.beta, (self.num_arms,), jnp.float32)
        state = BanditEpisodeState(jnp.zeros((), jnp.int32), chances, jnp.int32(-1), jnp.zeros(()))
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: BanditEpisodeState, action: jax.Array, params: BanditEpisodeParams
    ) -> tuple[jax.Array, BanditEpisodeState, jax.Array, jax.Array, dict[Any, Any]]:
        """Pull an arm."""
        action = jnp.asarray(action, jnp.int32)
        reward = (jax.random.uniform(key) < state.chances[action]).astype(jnp.float32)
        state = BanditEpisodeState(state.time + 1, state.chances, action, reward)
        return self._observe(state), state, reward, state.time >= params.num_pulls, {}

    def return_range(self, params: BanditEpisodeParams) -> tuple[Any, Any]:
        """From no success to a success at every pull."""
        return 0.0, np.minimum(params.num_pulls, params.max_steps_in_episode).astype(np.float64)

    def action_space(self, params: BanditEpisodeParams | None = None) -> spaces.Discrete:
        """An arm."""
        del params
        return spaces.Discrete(self.num_arms)

    def observation_space(self, params: BanditEpisodeParams) -> spaces.Box:
        """The arm pulled last, one-hot, its reward, and whether no arm has been pulled."""
        del params
        return spaces.Box(0.0, 1.0, (self.num_arms + 2,), jnp.float32)

    def optimum(
        self,
        params: BanditEpisodeParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float | None:
        """The best return, of the Bayesian policy, by dynamic programming over the successes and failures of each arm.

        After s successes and f failures an arm pays with probability (alpha + s) / (alpha + beta + s + f), and the
        counts are sufficient for the posterior; the table of the values after t pulls has (t + 1)^(2 K - 1) entries.
        None for more than 2^26 operations, which allow 90 pulls of 2 arms, 20 of 3 and 9 of 4; see `bound` then. The
        Gittins index would not be exact: its theorem requires an infinite horizon and a single discount factor.

        The stationary optimum is `memoryless`; the sophisticated one is None unless the discount is exponential. See
        `envs.Environment.optimum`.
        """
        if base.check_optimum_kind(kind) == "stationary":
            return self.memoryless(params, discount)
        alpha, beta, curve = self._setting(params, discount)
        if kind == "sophisticated" and not discount_curves.is_exponential(curve):
            return None
        if len(curve) ** (2 * self.num_arms) > WORK:
            return None
        axes = 2 * self.num_arms - 1  # the failures of the last arm are the remaining pulls
        values = np.zeros((len(curve) + 1,) * axes)
        for time in reversed(range(len(curve))):
            counts = list(np.indices((time + 1,) * axes, np.float64))
            counts.append(np.maximum(time - sum(counts), 0.0))  # a negative number belongs to no history
            of_arms = []
            for arm in range(self.num_arms):
                wins, losses = counts[2 * arm], counts[2 * arm + 1]
                chance = (alpha + wins) / (alpha + beta + wins + losses)
                after_win, after_loss = (_after(values, 2 * arm + lost) for lost in (0, 1))
                of_arms.append(chance * (curve[time] + after_win) + (1 - chance) * after_loss)
            values = np.max(of_arms, axis=0)
        return float(values.item())

    def memoryless(self, params: BanditEpisodeParams | None = None, discount: DiscountLike = None) -> float | None:
        """The best return of a function from observations to actions, by enumeration of all such functions.

        The last arm and reward are observed, so this is more than half of the pulls under a uniform prior: the best
        function repeats an arm that paid and leaves one that did not. Under given chances p the arm pulled is a Markov
        chain, so a return is a polynomial in p of degree at most the number of pulls T in each, and its mean over the
        prior is a Gauss-Jacobi sum of T // 2 + 1 nodes for each arm. All arms are alike: the first pull is of arm 0.

        A policy that draws its actions at random is no such function. Under a prior of alpha = beta it does not help to
        leave one of two arms after a failure with a probability q below 1: the excess of pull t over a random pull is
        E[(p1 - p2)^2 / (2 c) (1 - (1 - q c)^t)] with c = 2 - p1 - p2, which rises with q because c is symmetric around
        1. For other policies, and where alpha > beta, this is supported by a numerical search that found none better,
        and not proven. Where failures are more likely it can help: under Beta(1, 6) and 3 pulls, q = 0.96 earns 3e-5
        more than any function. The value is therefore None if alpha < beta, and also for more than 2^26 operations,
        such as those of 4 arms.

        Args:
          params, discount: See `optimum`.
        """
        from scipy.special import roots_jacobi

        alpha, beta, curve = self._setting(params, discount)
        arms, seen = self.num_arms, 2 * self.num_arms
        count = len(curve) // 2 + 1
        if alpha < beta or arms**seen * count**arms * len(curve) > WORK:
            return None
        nodes, weights = roots_jacobi(count, beta - 1, alpha - 1)
        chances = np.stack([axis.ravel() for axis in np.meshgrid(*[(1 + nodes) / 2] * arms, indexing="ij")])  # [K, N]
        weight = np.prod(np.meshgrid(*[weights / weights.sum()] * arms, indexing="ij"), axis=0).ravel()
        best = 0.0
        for choices in itertools.product(range(arms), repeat=seen):  # after a failure and a success of each arm
            pulled = np.zeros_like(chances)  # probability of pulling each arm, under each of the chances
            pulled[0] = 1.0
            earned = 0.0
            for worth in curve:
                earned += worth * float(weight @ np.sum(pulled * chances, axis=0))
                following = np.zeros_like(chances)
                for arm in range(arms):
                    following[choices[2 * arm]] += pulled[arm] * (1 - chances[arm])
                    following[choices[2 * arm + 1]] += pulled[arm] * chances[arm]
                pulled = following
            best = max(best, earned)
        return best

    def bound(self, params: BanditEpisodeParams | None = None, discount: DiscountLike = None) -> float:
        """A bound on the return of any policy, that of one that knows the best arm: E[max p] times the sum of Gamma.

        E[max p] is the integral of 1 - F(x)^K over [0, 1], with the distribution function F of the prior.

        Args:
          params, discount: See `optimum`.
        """
        from scipy.integrate import quad
        from scipy.special import betainc

        alpha, beta, curve = self._setting(params, discount)
        best = quad(lambda x: 1 - betainc(alpha, beta, x) ** self.num_arms, 0, 1, epsabs=1e-12)[0]
        return float(best * np.sum(curve))

    def _setting(self, params: BanditEpisodeParams | None, discount: DiscountLike) -> tuple[float, float, np.ndarray]:
        """The prior, and Gamma at each pull up to the time limit."""
        params = self.checked_params(params)
        steps = min(int(params.num_pulls), int(params.max_steps_in_episode))
        return float(params.alpha), float(params.beta), discount_curves.of(discount, steps)

    def _observe(self, state: BanditEpisodeState) -> jax.Array:
        arm = jnp.arange(self.num_arms) == state.arm
        return jnp.concatenate([arm, state.success[None], (state.time == 0)[None]]).astype(jnp.float32)


def _after(values: np.ndarray, axis: int) -> np.ndarray:
    """The values after one more of the counts, of which the last has no axis of its own."""
    kept = slice(values.shape[0] - 1)
    return values[tuple(slice(1, None) if each == axis else kept for each in range(values.ndim))]
