"""Repeated lever game: two agents are paid when they pull the same lever."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_at_least, check_count, check_whole
from envs.base import spaces
from envs.cooperation import bayes
from envs.cooperation.pairs import Pair, PairParams
from envs.cooperation.partners import Scripted, View
from envs.pytrees import DiscountLike


@struct.dataclass
class LeverState(base.EnvState):
    """The state of a game.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      last: Last lever of each agent, int32 `[2]`; -1 before the first, and the number of levers for none.
      before: Levers of each agent one step earlier, int32 `[2]`.
    """

    time: jax.Array
    last: jax.Array
    before: jax.Array


@struct.dataclass
class LeverParams(PairParams):
    """Payoffs, the length of the game, and the population of partners.

    Attributes:
      odd: Payoff of lever 0; that of the others is 1.
      num_steps: Number of steps of an episode, int, at least 1.
      max_steps_in_episode: Time limit.
    """

    odd: float = 0.9
    num_steps: int = 8
    max_steps_in_episode: int = 8


@dataclass(frozen=True, kw_only=True)
class LeverGame(Pair):
    """Both agents pull a lever, or none, at once, and are paid if it is the same.

    The game is repeated `num_steps` times. An agent observes its own last lever, the other agent's last lever, and the
    share of remaining steps. With a partner inside, the best lever depends on a behaviour that only the partner's past
    actions reveal, and some partners can be led, such as one that copies and one that repeats a lever that paid. The
    best expected return against any population of scripted partners is known exactly (`optimum`).

    Attributes:
      num_levers: Number of levers, at least 2; the action `num_levers` pulls none.
      partner: Population of partners, see `Pair`; None for self-play.

    Source: after the lever game of Hu et al. (2020), "'Other-play' for zero-shot coordination", here repeated and with
    scripted partners. Learning to infer a partner's behaviour from synthetic ones is the idea of Keurulainen et al.
    (2021), arXiv 2110.01266, whose environment is not known to us.
    """

    num_levers: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("num_levers", self.num_levers, 2)

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "cooperation/levers" if self.partner is not None else "cooperation/levers-self-play"

    @property
    def num_options(self) -> int:
        """The number of levers."""
        return self.num_levers

    @property
    def default_params(self) -> LeverParams:
        """Payoffs of 1 and 0.9, eight steps, and the partner's default population."""
        return LeverParams(**self.drawn_from())

    def check_params(self, params: LeverParams) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Reject a number of steps that is below 1 or not whole, and a population that does not fit."""
        super().check_params(params)
        check_at_least(params, num_steps=1)
        check_whole(params, "num_steps")

    def begin(self, key: jax.Array, params: LeverParams) -> LeverState:
        """The first state, before any lever has been pulled."""
        del key, params
        none = jnp.full(2, -1, jnp.int32)
        return LeverState(jnp.zeros((), jnp.int32), none, none)

    def play(
        self, key: jax.Array, game: LeverState, actions: jax.Array, params: LeverParams
    ) -> tuple[LeverState, jax.Array, jax.Array, dict[str, jax.Array]]:
        """Pay both agents if they pull the same lever."""
        del key
        paid = self._paid(actions)
        payoff = jnp.where(paid, self._payoffs(params)[jnp.minimum(actions[0], self.num_levers - 1)], 0.0)
        game = LeverState(game.time + 1, actions, game.last)
        return game, payoff.astype(jnp.float32), game.time >= params.num_steps, {"together": paid}

    def observe(self, game: LeverState, params: LeverParams) -> jax.Array:
        """Observations: an agent's own and the other's last lever, one-hot, and the share of remaining steps."""
        pulled = game.last[:, None] == jnp.arange(self.num_levers + 1)
        left = jnp.maximum(1 - game.time / params.num_steps, 0)
        return jnp.concatenate([pulled, pulled[::-1], jnp.full((2, 1), left)], axis=-1).astype(jnp.float32)

    def view(self, game: LeverState, agent: int, params: LeverParams) -> View:
        """Every step is a round; the value of a lever is its payoff."""
        other = jnp.stack([game.last[1 - agent], game.before[1 - agent]])
        return View(self._payoffs(params), other, jnp.ones((), bool), self._paid(game.last))

    def to_action(self, game: LeverState, agent: int, option: jax.Array, params: LeverParams) -> jax.Array:
        """Pull that lever."""
        del game, agent, params
        return option

    def action_space(self, params: LeverParams | None = None) -> spaces.Discrete:
        """A lever, or none."""
        del params
        return spaces.Discrete(self.num_levers + 1)

    def game_space(self) -> spaces.Box:
        """One agent's space: two levers, one-hot, all 0 before the first step, and the share of remaining steps."""
        return spaces.Box(0.0, 1.0, (2 * self.num_levers + 3,), jnp.float32)

    def optimum(
        self, params: LeverParams | None = None, discount: DiscountLike = None, kind: base.OptimumKind = "precommitted"
    ) -> float | None:
        """The best return against the population, or in self-play.

        It is the Bayes-optimal one by `bayes.best_return`; the mean of the best responses to the members of the
        population if they are revealed; or that of the best lever in self-play. None for partners that are not
        scripted. In self-play all kinds are equal, because no action changes a later reward; a scripted partner may
        remember, and there the stationary one is not known, nor the sophisticated one unless the discount is
        exponential. See `envs.Environment.optimum`.

        Raises:
          ValueError: Too many beliefs can be reached for an exact computation.
        """
        base.check_optimum_kind(kind)
        params = self.checked_params(params)
        steps = min(int(params.num_steps), int(params.max_steps_in_episode))
        curve = discount_curves.of(discount, steps)
        payoffs = np.asarray(self._payoffs(params), np.float64)
        if self.inside is None:
            return float(payoffs.max() * curve.sum())
        if type(self.inside) is not Scripted or kind == "stationary":
            return None
        if kind == "sophisticated" and not discount_curves.is_exponential(curve):
            return None
        weights = np.asarray(params.weights, np.float64)
        known = weights > 0
        members = jax.tree.map(lambda leaf: np.asarray(leaf)[known], params.population)
        if not self.reveals:
            return bayes.best_return(members, weights[known], payoffs, curve)
        each = [jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], members) for i in range(known.sum())]
        best = [bayes.best_return(member, np.ones(1), payoffs, curve) for member in each]
        return float(np.average(best, weights=weights[known]))

    def _payoffs(self, params: LeverParams) -> jax.Array:
        return jnp.where(jnp.arange(self.num_levers) == 0, params.odd, 1.0).astype(jnp.float32)

    def _paid(self, levers: jax.Array) -> jax.Array:
        return (levers[0] == levers[1]) & (levers[0] >= 0) & (levers[0] < self.num_levers)
