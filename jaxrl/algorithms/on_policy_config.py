"""Common configuration and hyper-parameters of on-policy algorithms."""

import dataclasses
import math
from types import MappingProxyType
from typing import Any, Literal, Self

import jax
from flax import struct

from envs.errors import UserTypeError, UserValueError
from jaxrl.algorithms.arguments import check_hparams
from jaxrl.checks import Range, Settings, check_choice, check_count
from jaxrl.discounts.parsing import GAMMA_HINT, Exponential
from jaxrl.learning.network_config import NetworkConfig
from jaxrl.learning.optimisers import tenth_share

INFINITE = math.inf

__all__ = ["INFINITE", "OnPolicyConfig", "OnPolicyHParams"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(NetworkConfig):
    """Static configuration of rollouts, normalisation and the critic.

    Attributes:
      num_envs: Number of environments of one run.
      num_steps: Number of steps of each environment in one iteration.
      normalise_observation: Whether observations are normalised by their running mean and variance.
      normalise_reward: Whether rewards are divided by the running standard deviation of their exponentially discounted
        sum, at the rate Gamma(1) for any family of discounts.
      reset_pool: Number of fresh states for each environment and iteration; None allows for a
        reset every 8 steps.
      critic: Kind of critic: "single", one value, or "mixture", one value for each exponential of the discount.
      critic_heads: Number of exponentials of the mixture critic.
      critic_sees: Input of the critic: "own", an agent's own observation, or "global", the own and the global
        observation (MAPPO), which requires several agents and no memory.
      time_limits: Treatment of time limits: "bootstrap" from the value of the last observation, or "terminal", which
        treats the limit as a termination; then the observation should include the remaining time, see
        `envs.wrappers.time_feature`.
      burn_in: Number of steps at the end of the previous rollout, at most `num_steps`, from which every minibatch
        recomputes the memories at the start of a rollout with the current parameters and without a gradient; with 0,
        they are the memories of the policy that acted, and the first probability ratio is 1. For recurrent policies.
      gamma: Not a field; discounts are hyper-parameters.

    Bootstrapping from a single value restarts the discount at lag 0, which is exact only for an exponential discount.
    Each value of a mixture critic bootstraps from itself. The exponentials of the mixture are fitted over one rollout
    and deviate from the discount beyond it: under `hyperbolic:k=0.02` with 8 heads, their total weight is 2 % too small
    for rollouts of 16 steps, and 0.1 % for 128.

    The global observation is `Environment.global_observation`. Actors take their own observation in either case. A
    centralised critic shares no layers with the actor, and minibatches contain all agents of a step.
    """

    num_envs: int = 4
    num_steps: int = 128
    normalise_observation: bool = False
    normalise_reward: bool = False
    reset_pool: int | None = None
    critic: Literal["single", "mixture"] = "single"
    critic_heads: int = 8
    critic_sees: Literal["own", "global"] = "own"
    time_limits: Literal["bootstrap", "terminal"] = "bootstrap"
    burn_in: int = 0
    gamma: dataclasses.InitVar[None] = None

    def __post_init__(self, gamma: None) -> None:
        if gamma is not None:
            raise UserTypeError(f"{GAMMA_HINT}, among the hyper-parameters")
        super().__post_init__()
        for name in ("num_envs", "num_steps", "critic_heads"):
            check_count(name, getattr(self, name))
        if self.reset_pool is not None:
            check_count("reset_pool", self.reset_pool)
        check_choice("critic", self.critic, ("single", "mixture"))
        if self.critic == "single" and self.critic_heads != OnPolicyConfig.critic_heads:
            raise UserValueError(
                f"critic_heads has no effect with critic='single', got {self.critic_heads}; leave it out"
            )
        check_choice("critic_sees", self.critic_sees, ("own", "global"))
        if self.critic_sees == "global":
            self._check_centralised()
        check_count("burn_in", self.burn_in, 0)
        if self.burn_in > self.num_steps:
            raise UserValueError(
                f"burn_in takes at most the num_steps={self.num_steps} of a rollout, got {self.burn_in}"
            )
        check_choice("time_limits", self.time_limits, ("bootstrap", "terminal"))

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        return {"observation_clip": self.normalise_observation, "reward_clip": self.normalise_reward}

    def check_own_network(self) -> None:
        """Rejects `memory` and a centralised critic with a custom network.

        Raises:
          ValueError: `memory` is set, or `critic_sees` is "global".
        """
        super().check_own_network()
        if self.critic_sees == "global":
            raise UserValueError(
                "critic_sees='global' applies to jaxrl's own networks, got network= as well; leave one of them out"
            )

    def _check_centralised(self) -> None:
        """Rejects networks that a centralised critic cannot have."""
        if self.memory != "none":
            raise UserValueError(
                f"critic_sees='global' takes memory='none', got {self.memory!r}: a centralised critic has no memory, "
                "which the value of a policy with a memory depends on"
            )
        if self.network in ("cnn", "simba"):
            raise UserValueError(
                f"critic_sees='global' takes network='auto', 'mlp' or 'relation', got {self.network!r}"
            )
        if self.shared_trunk:
            raise UserValueError(
                "shared_trunk has no effect with critic_sees='global', whose actor and critic see different "
                "observations; leave it out"
            )


@struct.dataclass
class OnPolicyHParams(Settings):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      lr: Initial step size of Adam.
      lr_end: Final step size as a fraction of `lr`, reached linearly; 1 keeps it constant.
      anneal_env_steps: Number of environment steps over which the step size falls; infinity means the whole run.
      discount: Discount of rewards: a number (exponential), a string such as "beta:mu=0.98,eta=0.5", or a Discount.
      lam: Lambda of the advantage estimator, in [0, 1]; 1 is Monte Carlo.
      value_coef: Weight of the value loss.
      entropy_coef: Weight of the entropy bonus.
      entropy_decay_env_steps: Number of environment steps in which the entropy bonus falls to a tenth; infinity keeps
        it constant.
      max_grad_norm: Global norm to which gradients are clipped; infinity disables clipping.
      adam_b1: Decay rate of the first moment in Adam.
      adam_b2: Decay rate of the second moment in Adam.
      adam_eps: Constant in the denominator of Adam.
      log_std_init: Initial log standard deviation of continuous actions.
      observation_clip: Bound of normalised observations.
      reward_clip: Bound of normalised rewards.
      gamma: Not a field; use `discount`.

    `log_std_init`, `observation_clip` and `reward_clip` are None in `Algorithm.hparams` where they have no effect.
    """

    lr: Any = 2.5e-4
    lr_end: Any = 1.0
    anneal_env_steps: Any = INFINITE
    discount: Any = Exponential(0.99)
    lam: Any = 0.95
    value_coef: Any = 0.5
    entropy_coef: Any = 0.01
    entropy_decay_env_steps: Any = INFINITE
    max_grad_norm: Any = 0.5
    adam_b1: Any = 0.9
    adam_b2: Any = 0.999
    adam_eps: Any = 1e-5
    log_std_init: Any = 0.0
    observation_clip: Any = 10.0
    reward_clip: Any = 10.0
    gamma: dataclasses.InitVar[None] = None

    ranges = MappingProxyType(
        {
            **dict.fromkeys(("lr", "lr_end", "value_coef"), Range(0, INFINITE, "[)")),
            "adam_eps": Range(1e-30, INFINITE, "[)"),
            "max_grad_norm": Range(1e-30, INFINITE),
            **dict.fromkeys(("observation_clip", "reward_clip"), Range(0, INFINITE)),
            **dict.fromkeys(("adam_b1", "adam_b2"), Range(0, 1, "[)")),
            **dict.fromkeys(("anneal_env_steps", "entropy_decay_env_steps"), Range(1, INFINITE)),
            "lam": Range(0, 1),
            "entropy_coef": Range(-INFINITE, INFINITE, "()"),
            "log_std_init": Range(-20, 20),
        }
    )

    def __post_init__(self, gamma: None) -> None:
        check_hparams(self, gamma)

    @property
    def annealed_ends(self) -> dict[str, Any]:
        """Final fractions of annealed step sizes by field; 1 means no annealing, and 0 the end of learning."""
        return {"lr_end": self.lr_end}

    def at(self, env_steps: jax.Array) -> Self:
        """Values after `env_steps` environment steps, `[]`, traced; without the learning rate."""
        share = tenth_share(env_steps, self.entropy_decay_env_steps)
        return dataclasses.replace(self, entropy_coef=self.entropy_coef * share)
