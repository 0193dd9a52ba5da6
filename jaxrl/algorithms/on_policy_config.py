"""Configuration and hyper-parameters of on-policy algorithms, and the network that a configuration selects."""

import dataclasses
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import jax
from flax import struct

from envs.errors import UserValueError
from jaxrl.algorithms.rollout_config import INFINITE, SCALED_SLOTS, RolloutConfig, RolloutHParams
from jaxrl.checks import Range, check_choice, check_count
from jaxrl.discounts.parsing import Exponential
from jaxrl.learning.advantages import LAM_WEIGHTS, LamWeights
from jaxrl.learning.asymmetric import CRITIC_WORDS, Seen, Sees, View, check_sees
from jaxrl.learning.beliefs import Belief, BelievingHeads
from jaxrl.learning.composites import Curve
from jaxrl.learning.levels import SCORES
from jaxrl.learning.networks import Module, check_network
from jaxrl.learning.optimisers import LEARNED, LearnedOptimiser, tenth_share
from jaxrl.learning.recurrent import RecurrentActorCritic, check_recurrent, is_recurrent
from jaxrl.learning.relation import RelationActorCritic
from jaxrl.pytrees import Observation

__all__ = ["INFINITE", "OnPolicyConfig", "OnPolicyHParams", "choose_network"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(RolloutConfig):
    """Static configuration of rollouts, normalisation and the critic.

    Attributes:
      normalise_reward: Whether rewards are divided by the running standard deviation of their exponentially discounted
        sum, whose rate is Gamma(1) for every family of discounts.
      critic: Kind of critic: "single", one value, or "mixture", one value for each exponential of the discount.
      critic_heads: Number of exponentials of the mixture critic.
      critic_sees: Input of the critic: "own", the input of the actor; "global", also the global observation (MAPPO),
        which requires several agents and no memory; "privileged", also the values of the environment's method
        `privileged`; "all", whole observations; the name of an entry of observations, several names, or a function of
        an observation, or its path, for that part alone; or "auto", the first of these that there is: the privileged
        entries that `actor_sees` hides by "auto" or by names, alone; the part that
        `envs.wrappers.asymmetric_observation` keeps for critics, alone; "privileged", of an environment with a
        `privileged_space`; "own".
      lam_weights: Weights of the n-step estimators of the lambda-return near the end of an episode or of the rollout:
        "truncated", where the longest one also has the weights of all longer ones, or "finite-time", where the weights
        are scaled to a sum of 1, see `jaxrl.ugae`.
      burn_in: Number of steps, at most `num_steps`, at the end of the previous rollout, for recurrent policies. Every
        minibatch replays them, with the current parameters and without a gradient, to compute the memories at the start
        of the rollout. With 0, the memories are those of the policy that acted, and the first probability ratio is 1.
      levels: Choice of the levels of episodes. A level is the random key of a reset, and thus all that the environment
        draws from it. "draws": every episode has a new level. The others also replay levels, by the ranks of their
        scores, means over steps: "positive-value-loss", of the positive parts of advantages; "max-return", of the
        highest return on the level so far minus the value, which requires rewards that are not normalised. See
        `jaxrl.learning.levels`.
      num_levels: Number of levels that are kept to be played again, those with the highest scores.
      optimiser: Optimiser in place of Adam: a function of the step size that returns an optax.GradientTransformation,
        such as `optax.adamw` or `lambda lr: optax.sgd(lr, momentum=0.9)`, or its path, such as "optax:adamw"; "learned"
        for Adam with steps that a small network corrects, whose weights are the hyper-parameter `optimiser`, see
        `jaxrl.learning.optimisers`; None for Adam.
      optimiser_width: Number of hidden units of a learned optimiser.

    Bootstrapping from a single value restarts the discount at lag 0, which is exact only for an exponential discount.
    Each value of a mixture critic bootstraps from itself. The exponentials of the mixture are fitted over one rollout
    and deviate from the discount beyond it: under `hyperbolic:k=0.02` with 8 heads, their total weight is 2 % too small
    for rollouts of 16 steps, and 0.1 % for 128.

    The global observation is `Environment.global_observation`. Actors take their own observation in either case. A
    centralised critic shares no layers with the actor, and minibatches contain all agents of a step.
    """

    num_steps: int = 128
    normalise_reward: bool = False
    critic: Literal["single", "mixture"] = "single"
    critic_heads: int = 8
    critic_sees: Sees = "auto"
    lam_weights: LamWeights = "truncated"
    burn_in: int = 0
    levels: Literal["draws", "positive-value-loss", "max-return"] = "draws"
    num_levels: int = 256
    optimiser_width: int = 4
    takes_learned_optimiser: ClassVar[bool] = True

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        check_count("critic_heads", self.critic_heads)
        check_choice("critic", self.critic, ("single", "mixture"))
        self._refuse_without_effect("critic_heads", "critic='single'", self.critic == "mixture")
        object.__setattr__(self, "critic_sees", check_sees("critic_sees", self.critic_sees, CRITIC_WORDS))
        if self.critic_sees == "global":
            self._check_centralised()
        check_choice("lam_weights", self.lam_weights, LAM_WEIGHTS)
        check_choice("levels", self.levels, ("draws", *SCORES))
        check_count("num_levels", self.num_levels)
        self._refuse_without_effect("num_levels", "levels='draws'", self.levels != "draws")
        if self.levels == "max-return" and self.normalise_reward:
            raise UserValueError(
                "levels='max-return' takes normalise_reward=False, got True: returns of different iterations are "
                "compared, in which normalised rewards have different scales"
            )
        check_count("optimiser_width", self.optimiser_width)
        learned = self.optimiser == LEARNED
        self._refuse_without_effect("optimiser_width", "an optimiser that is not learned", learned)
        check_count("burn_in", self.burn_in, 0)
        if self.burn_in > self.num_steps:
            raise UserValueError(
                f"burn_in takes at most the num_steps={self.num_steps} of a rollout, got {self.burn_in}"
            )

    @property
    def effects(self) -> dict[str, bool]:
        """Whether a hyper-parameter has an effect, by name, for those that do not always have one."""
        replayed = dict.fromkeys(("level_replay", "level_temperature", "level_staleness"), self.levels != "draws")
        return super().effects | {"reward_clip": self.normalise_reward} | replayed

    @property
    def has_critic(self) -> bool:
        """Whether a critic learns."""
        return True

    def _check_centralised(self) -> None:
        """Reject networks that a centralised critic cannot have."""
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
class OnPolicyHParams(RolloutHParams):
    """Hyper-parameters, which may be swept without recompiling: every leaf is traced.

    Attributes:
      lr: Initial step size of the optimiser, Adam by default.
      lr_end: Final step size as a fraction of `lr`, reached linearly; 1 keeps it constant.
      anneal_env_steps: Number of environment steps over which `lr_end` and other final fractions are reached; infinity
        means the whole run.
      discount: Discount of rewards: a number (exponential), a string such as "beta:mu=0.98,eta=0.5", or a Discount.
      lam: Lambda of the advantage estimator, in [0, 1]; 1 is Monte Carlo, or with `lam_weights="finite-time"` the mean
        of all n-step estimators.
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
      level_replay: Probability that an episode plays a level of the buffer again rather than a new one, once the buffer
        is full; before, this is multiplied by the filled share of the buffer.
      level_temperature: Temperature of the ranks of levels, whose weights are `rank^(-1 / level_temperature)`.
      level_staleness: Share of the replay probabilities of levels that is proportional to the number of iterations
        since they were played; ranks of scores determine the rest.
      optimiser: Weights of a learned optimiser, a `jaxrl.learning.optimisers.LearnedOptimiser`; None for the weights
        with which it equals Adam, and for optimisers that are not learned.
      gamma: Not a field; use `discount`.

    `lr`, `lam` and `entropy_coef` also take a `jaxrl.Curve` over `anneal_env_steps`, in place of their other schedules.
    `log_std_init`, `observation_clip`, `reward_clip` and `level_...` are None in `Algorithm.hparams` where they have no
    effect.
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
    level_replay: Any = 0.8
    level_temperature: Any = 1.0
    level_staleness: Any = 0.3
    optimiser: Any = None
    gamma: dataclasses.InitVar[None] = None

    ranges = MappingProxyType(
        {
            **RolloutHParams.ranges,
            "value_coef": Range(0, INFINITE, "[)"),
            "reward_clip": Range(0, INFINITE),
            "entropy_decay_env_steps": Range(1, INFINITE),
            "lam": Range(0, 1),
            "entropy_coef": Range(-INFINITE, INFINITE, "()"),
            "log_std_init": Range(-20, 20),
            **dict.fromkeys(("level_replay", "level_staleness"), Range(0, 1)),
            "level_temperature": Range(1e-3, INFINITE),
        }
    )

    composites = MappingProxyType(
        {**dict.fromkeys(("lr", "lam", "entropy_coef"), Curve), "optimiser": LearnedOptimiser}
    )

    def __post_init__(self, gamma: None) -> None:
        super().__post_init__(gamma)
        self._refuse_second_schedule("entropy_coef", "entropy_decay_env_steps", INFINITE)

    def at(self, env_steps: jax.Array) -> Self:
        """Values after `env_steps` environment steps, `[]`, traced."""
        values = super().at(env_steps)
        share = tenth_share(env_steps, self.entropy_decay_env_steps)
        return dataclasses.replace(values, entropy_coef=values.entropy_coef * share)


def choose_network(
    config: Any,
    own: Module | None,
    obs: Observation,
    facts: Observation,
    view: View,
    num_outputs: int,
    num_values: int | None,
    belief: Belief | None = None,
) -> Module:
    """Network for observations of these shapes.

    Args:
      config: Configuration, an `OnPolicyConfig`.
      own: Custom network, None for the one that the configuration selects.
      obs: Shapes of one observation.
      facts: Shapes of what only the critic sees, None if it sees nothing more.
      view: Kind of the critic's input.
      num_outputs: Number of outputs of the actor.
      num_values: Number of values of the critic; None for one, without an axis.
      belief: Belief whose outputs follow those of the actor; None for none.

    Raises:
      TypeError, ValueError: The network, or a field of the configuration, does not fit the observations.
    """
    if own is not None:
        config.check_own_network()
        if view != "own":
            raise UserValueError(
                f"critic_sees={config.critic_sees!r} applies to jaxrl's own networks, got network= as well; leave one "
                "of them out"
            )
        network = own
    elif view == "global":
        network = config.centralised(obs, facts, num_outputs, num_values)
        _refuse_scaled_slots(config, network.actor, network.critic)
        return network
    elif view != "own":
        if belief is not None:
            raise UserValueError(
                f"belief={config.belief!r} takes critic_sees='own', got {config.critic_sees!r}, by which the critic "
                "sees more than the actor"
            )
        network, obs = config.asymmetric(obs, facts, view, num_outputs, num_values), Seen(obs, facts)
        encoder = network.encoder if isinstance(network, RecurrentActorCritic) else network.actor
        for each in (encoder, network.critic):
            _refuse_scaled_slots(config, each)
    else:
        network = config.actor_critic(obs, num_outputs, num_values)
        _refuse_scaled_slots(config, getattr(network, "encoder", network))
        if belief is not None:
            assert isinstance(network, RecurrentActorCritic)
            heads = BelievingHeads(network.heads, belief, config.belief != "auxiliary")
            network = RecurrentActorCritic(network.encoder, network.cell, heads)
            num_outputs += belief.num_outputs
    check = check_recurrent if is_recurrent(network) else check_network
    check(network, obs, num_outputs, num_values)
    return network


def _refuse_scaled_slots(config: Any, actor: Module, critic: Module | None = None) -> None:
    """Reject normalisation of observations whose rows a network treats alike."""
    if not config.normalise_observation:
        return
    if isinstance(actor, RelationActorCritic):
        raise UserValueError(SCALED_SLOTS)
    if isinstance(critic, RelationActorCritic):
        raise UserValueError(
            "normalise_observation would scale every slot of the global observation's 'agents' differently; "
            "use own_scale instead, or network='mlp'"
        )
