"""Preference reversal: plan for the larger, later reward, then be tempted by the smaller, sooner one."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import struct

from envs import base, discount_curves
from envs.arguments import check_at_least, check_number, check_order, check_whole
from envs.base import spaces
from envs.pytrees import DiscountLike

SOONER, LATER = 0, 1


class PlanValues(NamedTuple):
    """The values of the plans of `PreferenceReversal` under a discount.

    Attributes:
      sooner: Value at the first step of committing to the smaller, sooner reward.
      later: Value at the first step of committing to the larger, later one and waiting for it.
      switching: Value at the first step of committing to the later one and switching on the way.
      switch: Value at the second choice of switching to the sooner reward, less the tax, paid at once.
      hold: Value at the second choice of waiting for the later reward.
    """

    sooner: float
    later: float
    switching: float
    switch: float
    hold: float

    @property
    def plans_later(self) -> bool:
        """Whether the plan made at the first step is the later reward."""
        return self.later > max(self.sooner, self.switching)

    @property
    def would_switch(self) -> bool:
        """Whether the second choice, made independently of the first, is to switch."""
        return self.switch > self.hold

    @property
    def reverses(self) -> bool:
        """Whether an agent that relies on its plans commits to the later reward and then switches."""
        return self.plans_later and self.would_switch

    @property
    def foreseeing_later(self) -> bool:
        """Whether an agent that foresees its second choice commits to the later reward in the first."""
        return (self.switching if self.would_switch else self.later) > self.sooner


@struct.dataclass
class PreferenceReversalState(base.EnvState):
    """The reward committed to, or taken: 0 for the sooner one (also before the choice), 1 for the later one."""

    time: jax.Array
    commitment: jax.Array


@struct.dataclass
class PreferenceReversalParams(base.EnvParams):
    """Parameters of a preference reversal.

    Attributes:
      sooner_reward: Reward of the sooner option.
      later_reward: Reward of the later option.
      tax: Cost of switching to the sooner option.
      sooner_step: Index of the step of the sooner reward, at which the second choice is made, at least 1.
      later_step: Index of the step of the later reward, at least `sooner_step`.
      max_steps_in_episode: Time limit, in steps; below `later_step` + 1 it ends an episode before the later reward.
    """

    sooner_reward: float = 1.0
    later_reward: float = 1.75
    tax: float = 0.01
    sooner_step: int = 99
    later_step: int = 199
    max_steps_in_episode: int = 200


@dataclass(frozen=True)
class PreferenceReversal(base.Environment):
    """Commit to 1 at step 99 or 1.75 at step 199; at step 99 it is possible to switch from the latter to 0.99 at once.

    The first action commits: 0 to the smaller, sooner reward, 1 to the larger, later one. At
    step `sooner_step` an agent committed to the later reward chooses again: 0 takes the sooner
    one less the tax, 1 waits. There is no choice at other steps: there `action_mask` allows only the action that was
    committed to. Every episode continues to step `later_step`, whatever the choices, so rollouts of 200 steps contain
    whole episodes and do not bootstrap.

    A hyperbolic agent with k = 0.01 prefers the later reward at first (.585 against .503) and
    switching at step 99 (.99 against .875); an exponential one never reverses its preference by more than
    the tax.

    Source: the decision tasks of Kwiatkowski et al. (2023), "UGAE: a novel approach to
    non-exponential discounting"; Ainslie (1975), "Specious reward".
    """

    @property
    def name(self) -> str:
        """The name that `envs.make` takes."""
        return "preference-reversal"

    @property
    def default_params(self) -> PreferenceReversalParams:
        """A reward of 1 at step 99, less 0.01 after a switch, or of 1.75 at step 199."""
        return PreferenceReversalParams()

    def check_params(self, params: PreferenceReversalParams) -> None:
        """Reject rewards that are not finite, steps that are not whole, and those not in their order after step 0."""
        for name in ("sooner_reward", "later_reward", "tax"):
            check_number(f"env.{name}", np.asarray(getattr(params, name)))
        check_at_least(params, sooner_step=1, later_step=1)
        check_whole(params, "sooner_step", "later_step")
        check_order(params, "sooner_step", "later_step")

    @property
    def metric_rules(self) -> dict[str, base.MetricRule]:
        """`chose_later`: 1 in an episode that committed to the later reward; `switched`: 1 if it then switched."""
        return {"chose_later": "sum", "switched": "sum"}

    def reset_env(self, key: jax.Array, params: PreferenceReversalParams) -> tuple[jax.Array, PreferenceReversalState]:
        """The first observation `[5]` and state."""
        del key
        zero = jnp.zeros((), jnp.int32)
        state = PreferenceReversalState(zero, zero)
        return _observe(state, params), state

    def step_env(
        self, key: jax.Array, state: PreferenceReversalState, action: jax.Array, params: PreferenceReversalParams
    ) -> tuple[jax.Array, PreferenceReversalState, jax.Array, jax.Array, dict[Any, Any]]:
        """Commit in the first step, choose again at `sooner_step`, wait elsewhere."""
        del key
        first, time = state.time == 0, state.time
        commitment = jnp.where(first, action, state.commitment).astype(jnp.int32)
        chooses_again = ~first & (time == params.sooner_step) & (commitment == LATER)
        switched = chooses_again & (action == SOONER)
        commitment = jnp.where(switched, SOONER, commitment)
        sooner = params.sooner_reward - jnp.where(switched, params.tax, 0.0)
        reward = jnp.where((time == params.sooner_step) & (commitment == SOONER), sooner, 0.0)
        reward = jnp.where((time == params.later_step) & (commitment == LATER), params.later_reward, reward)
        state = PreferenceReversalState(time + 1, commitment)
        info = {"metrics": {"chose_later": first & (commitment == LATER), "switched": switched}}
        return _observe(state, params), state, reward.astype(jnp.float32), time >= params.later_step, info

    def action_mask(self, state: PreferenceReversalState, params: PreferenceReversalParams) -> jax.Array:
        """Both actions at the two choices; elsewhere the action committed to."""
        first, second = _choices(state, params)
        return first | second | (jnp.arange(2) == state.commitment)

    def action_space(self, params: PreferenceReversalParams | None = None) -> spaces.Discrete:
        """0 for the sooner reward, 1 for the later one."""
        del params
        return spaces.Discrete(2)

    def observation_space(self, params: PreferenceReversalParams) -> spaces.Box:
        """The choice, the commitment and the steps left.

        Whether this is the first choice, or the second; the commitment (0, then -1 for the sooner, 1 for the later
        reward); and the steps left to each of the rewards, as shares of all.
        """
        del params
        return spaces.Box(-1.0, 1.0, (5,), jnp.float32)

    def values(self, curve: npt.ArrayLike, params: PreferenceReversalParams | None = None) -> PlanValues:
        """The values of the plans under a discount.

        Args:
          curve: Discount curve `[>= later_step + 1]`, Gamma(0) = 1, Gamma(1), ...
          params: Parameters, concrete; None for the defaults.
        """
        params = self.checked_params(params)
        taxed = params.sooner_reward - params.tax
        sooner_step, later_step = int(params.sooner_step), int(params.later_step)
        to_sooner, to_later, between = discount_curves.at(
            curve, [sooner_step, later_step, later_step - sooner_step]
        ).tolist()
        return PlanValues(
            sooner=params.sooner_reward * to_sooner,
            later=params.later_reward * to_later,
            switching=taxed * to_sooner,
            switch=taxed,
            hold=params.later_reward * between,
        )

    def optimum(
        self,
        params: PreferenceReversalParams | None = None,
        discount: DiscountLike = None,
        kind: base.OptimumKind = "precommitted",
    ) -> float:
        """The value of the best plan; the sophisticated one, of the best plan that the second choice carries out.

        The stationary one is that of the best plan, because the two choices are observed apart. Indifferent second
        choices wait. A reward after the time limit counts as 0. See `envs.Environment.optimum`.
        """
        base.check_optimum_kind(kind)
        params = self.checked_params(params)
        values = self.values(discount_curves.of(discount, int(params.later_step) + 1), params)
        limit = int(params.max_steps_in_episode)
        if limit <= int(params.later_step):
            values = values._replace(later=0.0, hold=0.0)
        if limit <= int(params.sooner_step):
            values = values._replace(sooner=0.0, switching=0.0, switch=0.0)
        if kind == "sophisticated":
            return float(max(values.sooner, values.switching if values.would_switch else values.later))
        return float(max(values.sooner, values.later, values.switching))


def _choices(state: PreferenceReversalState, params: PreferenceReversalParams) -> tuple[jax.Array, jax.Array]:
    first = state.time == 0
    return first, ~first & (state.time == params.sooner_step) & (state.commitment == LATER)


def _observe(state: PreferenceReversalState, params: PreferenceReversalParams) -> jax.Array:
    committed = jnp.where(state.time == 0, 0, 2 * state.commitment - 1)
    left = [jnp.maximum(step - state.time, 0) / params.later_step for step in (params.sooner_step, params.later_step)]
    numbers = (*_choices(state, params), committed, *left)
    return jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers])
