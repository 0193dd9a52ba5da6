"""Hand-written policies with memory, for tasks with known answers that require a memory."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

import envs
from envs.base import Environment, EnvParams, EnvState, spaces
from envs.crowd import Crowd
from jaxrl.algorithms.contract import Algorithm
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.actor import Actor, choose_by, memories
from jaxrl.learning.rollout import Carry, Transition, reset_all, rollout

NUM_ENVS, NUM_STEPS = 3, 13  # of an iteration: episodes of 6 and 5 steps continue in the next iteration
SYMBOLS = 4


@flax.struct.dataclass
class RepeatParams(EnvParams):
    """Parameters of the task.

    Attributes:
      max_steps_in_episode: Time limit, int.
      last_step: Number of steps after which an episode terminates, int.
    """

    max_steps_in_episode: jax.Array | int = 5
    last_step: jax.Array | int = 5


@flax.struct.dataclass
class RepeatState(EnvState):
    """The task.

    Attributes:
      time: Number of steps taken, int32 `[]`.
      first: Symbol that the first observation shows, int32 `[]`.
      right: Number of right answers so far, int32 `[]`.
    """

    time: jax.Array
    first: jax.Array
    right: jax.Array


@dataclass(frozen=True)
class Repeat(Environment):
    """Each observation shows a random symbol; an answer pays 1 if it is the episode's first symbol, otherwise -1.

    Attributes:
      ends: Whether an episode of 5 steps is "terminated", or "truncated" by the time limit.
    """

    ends: Literal["terminated", "truncated"] = "terminated"

    @property
    def default_params(self) -> RepeatParams:
        return RepeatParams(100, 5) if self.ends == "terminated" else RepeatParams(5, 100)

    def optimum(self, params: Any = None, discount: Any = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The best return."""
        del params, discount
        return 5.0

    def reset_env(self, key: jax.Array, params: Any) -> tuple[jax.Array, RepeatState]:
        del params
        first = jax.random.randint(key, (), 0, SYMBOLS)
        return jax.nn.one_hot(first, SYMBOLS), RepeatState(jnp.int32(0), first, jnp.int32(0))

    def step_env(self, key: jax.Array, state: RepeatState, action: Any, params: RepeatParams) -> Any:
        is_right = action == state.first
        state = RepeatState(state.time + 1, state.first, state.right + is_right)
        obs = jax.nn.one_hot(jax.random.randint(key, (), 0, SYMBOLS), SYMBOLS)
        return obs, state, jnp.where(is_right, 1.0, -1.0), state.time >= params.last_step, {}

    def action_space(self, params: Any = None) -> spaces.Discrete:
        del params
        return spaces.Discrete(SYMBOLS)

    def observation_space(self, params: Any = None) -> spaces.Box:
        del params
        return spaces.Box(0.0, 1.0, (SYMBOLS,))


@flax.struct.dataclass
class HParams:
    """Hyper-parameters without effect on learning.

    Attributes:
      strength: Difference of the logits, so large that a sampled action is the greedy one.
    """

    strength: Any = 1e4


class Policy(NamedTuple):
    """Parameters of a policy that does not learn.

    Attributes:
      strength: As in the hyper-parameters, float32 `[]`.
    """

    strength: jax.Array


class State(NamedTuple):
    """State of one run: its environments, with the memories of their agents."""

    carry: Carry


def first_seen(env: Environment, logits: Callable[[jax.Array, jax.Array], jax.Array], reads: bool = True) -> Actor:
    """The actor whose memory is the first observation of the episode and the number of observations so far.

    Args:
      env: Environment with discrete actions and one array to observe.
      logits: Function `(first observation, observation) -> logits`.
      reads: Whether the actor uses its memory; otherwise it treats every observation as the first.
    """
    params = env.default_params
    size = env.observation_space(params).shape[0]

    def initial_memory(policy: Policy) -> Any:
        del policy
        return {"first": jnp.zeros(size), "seen": jnp.int32(0)}

    def scores(policy: Policy, memory: Any, obs: jax.Array, mask: Any) -> Any:
        del mask
        is_first = (memory["seen"] == 0)[..., None] | (not reads)
        first = jnp.where(is_first, obs, memory["first"])
        return {"logits": policy.strength * logits(first, obs)}, {"first": first, "seen": memory["seen"] + 1}

    head = action_head(env.action_space(params))
    choose = choose_by(head)

    def choose_and_keep(noise: Any, scores: Any, memory: Any, greedy: Any, mask: Any) -> Any:
        return *choose(noise, scores, greedy, mask), memory

    return Actor(initial_memory, scores, head.noise, choose_and_keep)


def by_hand(env: Environment, actor: Actor, builder: str | None = None) -> Algorithm:
    """An algorithm that plays rollouts and learns nothing; its metrics count the answers with rewards 1 and -1."""

    def init(key: jax.Array, hparams: Any, env_params: Any) -> State:
        start = memories(actor.initial_memory(policy(None, hparams)), ())
        return State(reset_all(env, key, env_params, NUM_ENVS, memory=start))

    def policy(state: Any, hparams: Any) -> Policy:
        del state
        return Policy(jnp.asarray(hparams.strength, jnp.float32))

    def step(
        key: jax.Array, iteration: jax.Array, state: State, hparams: Any, env_params: Any
    ) -> tuple[State, dict[str, jax.Array]]:
        carry, steps = played(env, actor, policy(state, hparams), key, state.carry, env_params)
        answers = {"right": jnp.sum(steps.reward > 0), "wrong": jnp.sum(steps.reward < 0)}
        return State(carry), jax.tree.map(jnp.float32, answers)

    return Algorithm(
        name="by-hand",
        env=env,
        config=None,
        hparams=HParams(),
        init=init,
        step=step,
        policy=policy,
        actor=actor,
        env_steps_per_iteration=NUM_ENVS * NUM_STEPS,
        metric_rules={"right": "sum", "wrong": "sum"},
        builder=builder,
    )


def played(
    env: Environment,
    actor: Actor,
    policy: Any,
    key: jax.Array,
    carry: Carry,
    env_params: Any,
    num_steps: int = 13,
    reset_pool: int | None = None,
) -> tuple[Carry, Transition]:
    """One rollout of environments with one agent each."""
    noise_key, env_key = jax.random.split(key)
    num_envs = jax.tree.leaves(carry.obs)[0].shape[0]
    noise = actor.noise(noise_key, (num_steps, num_envs))
    return rollout(env, env_params, actor, policy, env_key, carry, noise, reset_pool)[:2]


def echo(env: Repeat) -> Algorithm:
    """The policy that repeats the first symbol of the episode."""
    return by_hand(env, first_seen(env, lambda first, obs: first), "remembering:echo")


def forgetful(env: Repeat) -> Algorithm:
    """The same policy, which does not use its memory."""
    return by_hand(env, first_seen(env, lambda first, obs: first, reads=False), "remembering:forgetful")


def recall(env: Environment) -> Algorithm:
    """The policy that solves gymnax's MemoryChain: bits are shown first, and the number of the queried one last."""

    def logits(first: jax.Array, obs: jax.Array) -> jax.Array:
        bits, query = first[..., 2:], obs[..., 1].astype(jnp.int32)
        bit = jnp.take_along_axis(bits, query[..., None], axis=-1)
        return jnp.concatenate([-bit, bit], axis=-1)

    return by_hand(env, first_seen(env, logits), "remembering:recall")


def chain() -> Environment:
    """gymnax's MemoryChain with three bits, of which one is queried: an episode has 6 steps, and the optimum is 1."""
    return envs.make("gymnax/MemoryChain-bsuite", num_bits=3)


class Walking(NamedTuple):
    """Memory of an agent of a crowd.

    Attributes:
      heading: Direction of its goal in the first observation, float32 `[*B, 2]`.
      decisions: Number of its decisions, int32 `[*B]`.
    """

    heading: jax.Array
    decisions: jax.Array


def stop_after(env: Crowd, decisions: int = 3) -> Algorithm:
    """The crowd policy that walks in the direction of its first observation, and rests after some of its decisions."""

    def scores(policy: Policy, memory: Walking, obs: Any, mask: Any) -> Any:
        del mask
        is_first = (memory.decisions == 0)[..., None]
        heading = jnp.where(is_first, obs["own"][..., :2], memory.heading)
        going = (memory.decisions < decisions)[..., None]
        push = jnp.where(going, jnp.sign(heading) + 0.0 * policy.strength, 0.0)
        return {"mean": push}, Walking(heading, memory.decisions + 1)

    def choose(noise: Any, scores: Any, memory: Walking, greedy: Any, mask: Any) -> Any:
        del noise, greedy, mask
        return scores["mean"], scores["mean"], memory

    actor = Actor(
        lambda policy: Walking(jnp.zeros(2), jnp.int32(0)),
        scores,
        lambda key, shape: jax.random.normal(key, shape),
        choose,
    )
    algo = by_hand(env, actor)
    idle = lambda key, iteration, state, hparams, env_params: (state, {"idle": jnp.float32(0)})  # noqa: E731
    init = lambda key, hparams, env_params: jnp.zeros(())  # noqa: E731
    return algo._replace(step=idle, init=init, metric_rules={}, env_steps_per_iteration=1)


def correlated(env: Environment, kept: float = 0.9) -> Actor:
    """The actor with noise that accumulates in its memory: `choose` adds to it, and the end of an episode clears it."""

    def choose(noise: Any, scores: Any, memory: jax.Array, greedy: Any, mask: Any) -> Any:
        del mask
        if noise is not None:
            memory = jnp.where(greedy, memory, kept * memory + noise)
        action = jnp.where(scores["mean"] + memory > 0, 1, 0)
        return action, memory, memory

    def scores(policy: Any, memory: jax.Array, obs: jax.Array, mask: Any) -> Any:
        del mask, policy
        return {"mean": jnp.zeros(memory.shape)}, memory

    return Actor(lambda policy: jnp.float32(0), scores, jax.random.normal, choose)


def with_actor(algo: Algorithm, **members: Any) -> Algorithm:
    """The algorithm with other functions in its actor."""
    return algo._replace(actor=algo.actor._replace(**members))


def shorter(params: Any, steps: int) -> Any:
    """Parameters with another time limit."""
    return dataclasses.replace(params, max_steps_in_episode=steps)
