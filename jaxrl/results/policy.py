"""A trained policy as a callable: its parameters together with the algorithm's actor."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.arguments import check_flag, described
from envs.base import Environment, agent_axes
from envs.errors import UserValueError
from envs.settings import methods_in_own_settings
from envs.wrappers.asymmetric import named_part
from jaxrl.algorithms.contract import Algorithm
from jaxrl.checks import random_key
from jaxrl.learning.action_probabilities import has_probabilities, probabilities
from jaxrl.learning.actor import Actor, Scores, memories
from jaxrl.learning.rollout import first_observation, remembered
from jaxrl.pytrees import EnvParams, Mask, Memory, Observation, Params
from jaxrl.results.observations import checked_observation

Q_VALUES = "q"  # entry of the scores
# Message of exported policies, too.
NO_MEMORY = (
    "memory is None, but this policy remembers; it takes policy.initial_memory() at the start of an episode and then "
    "the memory that the last call returned: action, memory = policy(obs, memory=memory)."
)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _act(
    actor: Actor,
    agents: tuple[int, ...],
    greedy: bool,
    key: jax.Array,
    params: Params,
    memory: Memory,
    obs: Observation,
    mask: Mask,
) -> tuple[Any, Any]:
    """The action for one observation, and the memory after it."""
    scores, memory = actor.scores(params, memory, obs, mask)
    noise = None if greedy else actor.noise(key, agents)
    action, _, memory = actor.choose(noise, scores, memory, greedy, mask)
    return action, memory


@partial(jax.jit, static_argnums=(0, 1, 2))
def _act_batch(
    actor: Actor,
    agents: tuple[int, ...],
    greedy: bool,
    keys: jax.Array,
    params: Params,
    memory: Memory,
    obs: Observation,
    mask: Mask,
) -> tuple[Any, Any]:
    def one(key: jax.Array, memory: Memory, obs: Observation, mask: Mask) -> tuple[Any, Any]:
        return _act(actor, agents, greedy, key, params, memory, obs, mask)

    return jax.vmap(one)(keys, memory, obs, mask)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _scored(
    env: Environment, actor: Actor, shares: bool, params: Params, memory: Memory, obs: Observation, mask: Mask
) -> Any:
    """Scores of actions, or probabilities of all actions."""
    scores, _ = actor.scores(params, memory, obs, mask)
    return probabilities(env, actor, scores, memory, mask) if shares else scores


@partial(jax.jit, static_argnums=0)
def _valued(value: Callable[..., Any], params: Params, memory: Memory, obs: Observation) -> Any:
    return value(params, memory, obs)


@methods_in_own_settings("__init__", "initial_memory", "remembered", "__call__", "scores", "probabilities", "values")
class TrainedPolicy:
    """The policy of one finished run: `policy(obs)` is an action.

    A policy with a memory takes and returns it, and the caller's loop keeps it:

        memory = policy.initial_memory()
        action, memory = policy(obs, memory=memory)
        memory = policy.remembered(memory, done)    # reset where an episode has ended

    Attributes:
      algo: Algorithm with which the policy was trained.
      params: Pytree of arrays that `algo.actor` takes: network parameters and normalisation statistics.
      setting: Coordinates of the run within the sweep, `{path: value}`.
      seed: Seed of the run, or None where the policy does not come from a result.
      env_params: Parameters of the environment in training; None for the defaults.
      env_steps: Number of environment steps before the policy, None where it is not known.
      training_env_steps: Number of environment steps of the whole training, which is longer than `env_steps` for the
        policy of a best evaluation; a curriculum of the environment is at this step where the policy is evaluated.
    """

    def __init__(
        self,
        algo: Algorithm,
        params: Params,
        setting: dict[str, Any] | None = None,
        seed: int | None = None,
        env_params: EnvParams = None,
        env_steps: int | None = None,
        training_env_steps: int | None = None,
    ) -> None:
        self.algo = algo
        self.params = params
        self.setting = dict(setting or {})
        self.seed = seed
        self.env_params = env_params
        self.env_steps = env_steps
        self.training_env_steps = env_steps if training_env_steps is None else training_env_steps

        env, usual = algo.env, algo.env.default_params
        first = partial(first_observation, env)
        self._obs_shape, self._mask_shape = jax.eval_shape(first, jax.random.key(0), usual)
        self._agents = agent_axes(env.observation_space(usual), self._obs_shape)
        self._memory_shape = jax.eval_shape(algo.actor.initial_memory, params)

    def __reduce__(self) -> tuple[Any, ...]:
        steps = self.env_steps, self.training_env_steps
        return TrainedPolicy, (self.algo, self.params, self.setting, self.seed, self.env_params, *steps)

    if not TYPE_CHECKING:  # or type checkers would take any attribute

        def __getattr__(self, name: str) -> Any:
            """Raise the error for an unknown attribute; for a name of other libraries, it states how to act."""
            habits = ("predict", "act", "get_action", "select_action", "sample_action", "apply")
            hint = "; policy(obs) is an action, and policy(obs, key, greedy=False) a sampled one" * (name in habits)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def remembers(self) -> bool:
        """Whether the policy has a memory, which every call takes and returns."""
        return bool(jax.tree.leaves(self._memory_shape))

    def initial_memory(self, *batch: int) -> Any:
        """The memory at the start of an episode, leaves `[*batch, *A, ...]`; `()` for a policy without a memory."""
        return memories(self.algo.actor.initial_memory(self.params), (*batch, *self._agents))

    def remembered(self, memory: Memory, ended: Any) -> Any:
        """The memory for the next step: reset to its initial value where an agent's episode has ended.

        Args:
          memory: Memory that the last call returned, leaves `[*batch, *A, ...]`.
          ended: Whether the agent's episode has ended, bool `[*batch, *A]`, or of the leading ones of
            these axes.

        Raises:
          ValueError: The memory is not of this policy, or the axes of `ended` do not match it.
        """
        if not self.remembers:
            self._checked_memory(memory, ())
            return memory
        first, own = jax.tree.leaves(memory), jax.tree.leaves(self._memory_shape)
        shape = np.shape(first[0])[: max(np.ndim(first[0]) - len(own[0].shape), 0)] if first else ()
        # The number of agents may differ from that of training, as for a crowd that walks elsewhere.
        fits = jax.tree.structure(memory) == jax.tree.structure(self._memory_shape) and len(shape) >= len(self._agents)
        if not fits or [np.shape(leaf) for leaf in first] != [(*shape, *leaf.shape) for leaf in own]:
            self._checked_memory(memory, shape[: max(len(shape) - len(self._agents), 0)])
        ended = jnp.asarray(ended)
        if ended.dtype != jnp.bool_ or ended.shape != shape[: ended.ndim]:
            raise UserValueError(
                f"ended must be bool{list(shape)} for this memory, or of its leading axes, got {described(ended)}"
            )
        ended = ended.reshape(*ended.shape, *[1] * (len(shape) - ended.ndim))
        return remembered(memory, self.algo.actor.initial_memory(self.params), jnp.broadcast_to(ended, shape))

    def __call__(
        self,
        obs: Observation,
        key: jax.Array | None = None,
        greedy: bool = True,
        mask: Mask = None,
        memory: Memory = None,
    ) -> Any:
        """The action for an observation, or for a batch of them.

        Args:
          obs: Observation of the environment, or observations with further leading axes; arrays or lists of numbers.
          key: Random key; needed where `greedy` is false.
          greedy: Whether to take the most likely action instead of a sampled one.
          mask: Action mask from `env.action_mask`, with the same leading axes; None if the environment has none.
          memory: Memory returned by `initial_memory` or by the last call; None for a policy without a memory.

        Returns:
          The action, with the same leading axes; `(action, memory)` for a policy with a memory.

        Raises:
          ValueError: The observation or the memory does not fit, the observation has a nan, or a key, a mask or the
            memory is missing.
        """
        check_flag("greedy", greedy)
        obs, batch, memory = self._checked(obs, memory)
        self._check_mask(mask, batch)
        if key is None:
            if not greedy:
                raise UserValueError("key is None, but a sampled action (greedy=False) takes a random key.")
            key = jax.random.key(0)
        key = random_key(key)
        static = (self.algo.actor, self._agents, bool(greedy))
        if not batch:
            action, memory = _act(*static, key, self.params, memory, obs, mask)
            return (action, memory) if self.remembers else action
        count = int(np.prod(batch))
        flat = jax.tree.map(lambda x: jnp.reshape(x, (count, *np.shape(x)[len(batch) :])), (memory, obs, mask))
        after = _act_batch(*static, jax.random.split(key, count), self.params, *flat)
        action, memory = jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), after)
        return (action, memory) if self.remembers else action

    def scores(self, obs: Observation, mask: Mask = None, memory: Memory = None) -> Scores:
        """The numbers by which the policy chooses its actions, `{name: [*batch, *A, ...]}`.

        They are `logits`; `mean` and `std` of continuous actions, before bounds; or the action values `q` with the
        probability `epsilon` of a random action. A call leaves the memory as it is.

        Args:
          obs: Observation of the environment, or observations with further leading axes; arrays or lists of numbers.
          mask: Action mask from `env.action_mask`, with the same leading axes; None if the environment has none. Scores
            of forbidden actions are not changed.
          memory: Memory returned by `initial_memory` or by the last call; None for a policy without a memory.

        Raises:
          ValueError: The observation or the memory does not fit, the observation has a nan, or a mask or the memory is
            missing.
        """
        return self._scored(False, obs, mask, memory)

    def q_values(self, obs: Observation, mask: Mask = None, memory: Memory = None) -> jax.Array:
        """The values of all actions under the run's discount, `[*batch, *A, num_actions]`.

        Args:
          obs, mask, memory: See `scores`.

        Raises:
          ValueError: The policy has no action values, as those of policy gradients; or as in `scores`.
        """
        scores = self.scores(obs, mask, memory)
        if Q_VALUES not in scores:
            raise UserValueError(
                f"q_values needs a policy that acts by action values, as those of dqn and pqn, got one of "
                f"{self.algo.name}, whose scores are {', '.join(scores)}."
            )
        return scores[Q_VALUES]

    def probabilities(self, obs: Observation, mask: Mask = None, memory: Memory = None) -> Any:
        """The probability of each action when actions are sampled (`greedy=False`), `[*batch, *A, num_actions]`.

        Args:
          obs, mask, memory: See `scores`; the probability of a forbidden action is 0.

        Returns:
          Array that sums to 1 over its last axis; for a `Tuple` of actions, an array for each part.

        Raises:
          ValueError: The actions are continuous, or the algorithm's actor has no `log_prob`; or as in `scores`.
        """
        if not has_probabilities(self.algo.env, self.algo.actor):
            space = self.algo.env.action_space(self.algo.env.default_params)
            raise UserValueError(
                f"probabilities needs a policy of discrete actions whose actor has log_prob, got one of "
                f"{self.algo.name} for {space!r}; policy.scores(obs) has the numbers by which it acts."
            )
        return self._scored(True, obs, mask, memory)

    def values(self, obs: Observation, memory: Memory = None) -> jax.Array:
        """The values of observations by the policy's own critic, `[*batch, *A]`.

        They are in units of the rewards that the algorithm learned from, which `normalise_reward` divides.

        Args:
          obs, memory: See `scores`.

        Raises:
          ValueError: The policy contains no critic, or one that takes more than observations; or as in `scores`.
        """
        if self.algo.value is None:
            raise UserValueError(
                f"values needs a policy with a critic of its observations, as those of ppo with critic='single' "
                f"and critic_sees='own', got one of {self.algo.name}."
            )
        obs, _, memory = self._checked(obs, memory)
        return _valued(self.algo.value, self.params, memory, obs)

    def __repr__(self) -> str:
        where = ", ".join([*(f"{path}={value}" for path, value in self.setting.items()), f"seed={self.seed}"])
        return f"TrainedPolicy({self.algo.name} on {type(self.algo.env).__name__}; {where})"

    def _scored(self, shares: bool, obs: Observation, mask: Mask, memory: Memory) -> Any:
        obs, batch, memory = self._checked(obs, memory)
        self._check_mask(mask, batch)
        return _scored(self.algo.env, self.algo.actor, shares, self.params, memory, obs, mask)

    def _checked(self, obs: Observation, memory: Memory) -> tuple[Any, tuple[int, ...], Any]:
        """The observation as arrays, its further leading axes and the memory; raises an error if one does not fit."""
        if memory is None and self.remembers:
            raise UserValueError(NO_MEMORY)
        part = getattr(self.algo.env, "actor_sees", None)
        like = "like the environment's" if part is None else f"the part that the actor sees ({named_part(part)})"
        obs, batch = checked_observation(obs, self._obs_shape, like)
        return obs, batch, self._checked_memory(memory, batch)

    def _check_mask(self, mask: Mask, batch: tuple[int, ...]) -> None:
        if mask is None and self._mask_shape is not None:
            raise UserValueError(
                f"mask is None, but {type(self.algo.env).__name__} forbids actions; "
                "it takes the result of env.action_mask(state, params)."
            )
        if mask is not None and jax.tree.structure(mask) != jax.tree.structure(self._mask_shape):
            raise UserValueError(
                f"mask is {described(mask)}; it takes the form of {described(self._mask_shape)}, which "
                "env.action_mask(state, params) returns."
            )
        for array, leaf in zip(jax.tree.leaves(mask), jax.tree.leaves(self._mask_shape), strict=False):
            if np.shape(array) != (*batch, *leaf.shape):
                raise UserValueError(f"mask has the shape {np.shape(array)}; it takes {(*batch, *leaf.shape)}.")

    def _checked_memory(self, memory: Memory, batch: tuple[int, ...]) -> Any:
        """The memory, `()` for a policy without one; raises an error if its shapes do not match."""
        if not self.remembers:
            if jax.tree.leaves(memory):
                raise UserValueError("memory has no effect on a policy without a memory; leave it out.")
            return self.initial_memory(*batch)
        got, takes = jax.tree.structure(memory), jax.tree.structure(self._memory_shape)
        shapes = [(*batch, *self._agents, *leaf.shape) for leaf in jax.tree.leaves(self._memory_shape)]
        if got != takes or [np.shape(leaf) for leaf in jax.tree.leaves(memory)] != shapes:
            raise UserValueError(
                f"memory has the shapes {[np.shape(leaf) for leaf in jax.tree.leaves(memory)]}; with these "
                f"observations it takes {shapes}, as policy.initial_memory({', '.join(map(str, batch))}) returns it."
            )
        return memory
