"""Work of a workload by formula, which bench/roofline.py compares with the machine's ceilings.

All counts are lower bounds for the algorithm as it is written. Operations are additions, multiplications, divisions and
comparisons of float32; exponentials and roots count as transcendentals instead. Bytes are the reads and writes of
memory if all intermediate values stay in caches. Random words have 32 bits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxrl.algorithms.a2c import A2CConfig
from jaxrl.algorithms.on_policy_config import OnPolicyConfig
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.algorithms.sac import SACConfig
from jaxrl.learning.rollout import default_reset_pool

STEP_OPERATIONS = 38 + 34  # of CartPole: equations and limits, and sine and cosine together
EPISODE = 500  # time limit of CartPole, in steps
OBSERVATION, STATE = 16, 20  # bytes of CartPole's observation and state
RESET_WORDS = 4 + 2  # four coordinates and a key of two words
ADAM_OPERATIONS, AVERAGE_OPERATIONS = 14, 3
ANGLE_INPUTS, TORQUES = 3, 1  # of Pendulum
PAIR_OPERATIONS, PAIR_TRANSCENDENTALS = 54, 6
AGENT_OPERATIONS = 12
UCB_OPERATIONS, UPDATE_OPERATIONS = 8, 14
BETA_OPERATIONS, BETA_TRANSCENDENTALS, BETA_WORDS = 2 * 20 + 2, 2 * 4, 2 * 2


class Work(NamedTuple):
    """Work of one unit of a workload; the docstring of each function names the unit."""

    operations: float
    bytes: float
    words: float
    transcendentals: float

    def times(self, count: float) -> "Work":
        """The work of `count` units."""
        return Work(*(count * each for each in self))

    def plus(self, other: "Work") -> "Work":
        """The sum of this work and another."""
        return Work(*(a + b for a, b in zip(self, other, strict=True)))


def cartpole_rollout(num_envs: int, num_steps: int) -> Work:
    """A rollout of random actions, `bench.envs.ours`.

    72 operations per step, of which sine and cosine take 34. Bytes: the stored values of a step, which are two
    observations of 16, a reward of 4 and four flags; observation and state, 36, before and after the rollout. Words:
    half a word for an action of 16 bits, and 6 for each fresh state of the pool, which has one for every 8 steps.
    """
    steps = num_envs * num_steps
    kept = 2 * OBSERVATION + 4 + 4
    pool = num_envs * default_reset_pool(num_steps, EPISODE)
    return Work(
        operations=STEP_OPERATIONS * steps,
        bytes=kept * steps + 2 * num_envs * (OBSERVATION + STATE),
        words=steps / 2 + RESET_WORDS * pool,
        transcendentals=0,
    )


def advantages(num_steps: int, num_envs: int, num_nodes: int) -> Work:
    """Advantages and targets of a mixture of `num_nodes` exponentials, 1 for GAE.

    Per step 7 operations for each node and 3 more. Bytes: three numbers and two flags are read, two numbers written.
    """
    steps = num_steps * num_envs
    return Work(operations=(7 * num_nodes + 3) * steps, bytes=(3 * 4 + 2 + 2 * 4) * steps, words=0, transcendentals=0)


def layers(inputs: int, hidden: Sequence[int], outputs: int) -> np.ndarray:
    """Products of a multilayer perceptron `[layers, 2]`: inputs and outputs of each."""
    widths = [inputs, *hidden, outputs]
    return np.stack([widths[:-1], widths[1:]], axis=1)


def gradient(config: OnPolicyConfig, inputs: int, outputs: int) -> Work:
    """The gradient of the loss of separate actor and critic networks, for one sample.

    The products of the forward pass, by weights and by inputs: with P the sum of inputs times outputs over all layers
    and F that of the first layers, 6 P - 2 F operations, because the first layers' inputs need no gradient. One tanh
    for every hidden unit; its derivative needs none.
    """
    both = np.concatenate([layers(inputs, config.hidden, outputs), layers(inputs, config.hidden, 1)])
    products, first = both.prod(axis=1).sum(), 2 * inputs * config.hidden[0]
    return Work(6 * products - 2 * first, 0, 0, 2 * sum(config.hidden))


def ppo_iteration(config: PPOConfig) -> Work:
    """One iteration of one run of PPO on CartPole, with tanh and separate networks.

    The rollout, with a forward pass of the actor; a forward pass of the actor and two of the critic for values and
    log-probabilities; `gradient` for every sample of every epoch; 14 operations of Adam per parameter for every
    minibatch. Words: two for an action's noise, one per sample and epoch to shuffle, and those of the environments'
    fresh states. Bytes: parameters and Adam's two moments are read and written once, 24 for each parameter. The
    losses, softmaxes and advantages are excluded.
    """
    epochs = config.num_epochs
    words = epochs * config.num_envs * config.num_steps
    return _iteration(config, actor_passes=2, epochs=epochs, updates=epochs * config.num_minibatches, words=words)


def a2c_iteration(config: A2CConfig) -> Work:
    """One iteration of one run of A2C on CartPole, counted as `ppo_iteration`.

    One gradient step on all samples, without a shuffle, and without the log-probabilities of the policy that acted.
    """
    return _iteration(config, actor_passes=1, epochs=1, updates=1, words=0)


def _iteration(config: OnPolicyConfig, actor_passes: int, epochs: int, updates: int, words: int) -> Work:
    """A rollout, forward passes of the actor and two of the critic, gradients of all epochs, and Adam."""
    inputs, outputs = OBSERVATION // 4, 2
    samples = config.num_envs * config.num_steps
    actor, critic = (layers(inputs, config.hidden, width) for width in (outputs, 1))
    actor_products, critic_products = (2 * net.prod(axis=1).sum() for net in (actor, critic))
    parameters = sum(((net[:, 0] + 1) * net[:, 1]).sum() for net in (actor, critic))
    passes, units = actor_passes * actor_products + 2 * critic_products, (actor_passes + 2) * sum(config.hidden)
    forward = Work(passes, 0, 2, units).times(samples)
    rollout = cartpole_rollout(config.num_envs, config.num_steps)._replace(bytes=0)
    fresh = RESET_WORDS * config.num_envs * default_reset_pool(config.num_steps, EPISODE)
    learning = gradient(config, inputs, outputs).times(epochs * samples)
    adam = Work(ADAM_OPERATIONS * parameters * updates, 24 * parameters, words, parameters * updates)
    return rollout._replace(words=fresh).plus(forward).plus(learning).plus(adam)


def sac_iteration(config: SACConfig) -> Work:
    """The gradient steps of one iteration of one run of SAC on Pendulum.

    For every sample the policy and the target critics at the next observation; the gradient of the critics, counted as
    `gradient`; and the gradient of the policy through the critics, whose weights need none and whose first layers need
    that of the action alone. 14 operations of Adam per parameter of policy, critics and temperature, and 3 per
    parameter of a target network. Transcendentals: an exponential, a tanh and the two of its slope for each action
    drawn, and Adam's roots. Words: one for the place of a sample and one for each of two actions drawn. Bytes:
    parameters and Adam's two moments, and the target networks, are read and written once. The environments' steps and
    the losses are excluded.
    """
    policy, critic = layers(ANGLE_INPUTS, config.hidden, 2 * TORQUES), layers(ANGLE_INPUTS + TORQUES, config.hidden, 1)
    of_policy, of_critic = policy.prod(axis=1).sum(), critic.prod(axis=1).sum()
    first, first_of_action = policy[0].prod(), TORQUES * config.hidden[0]
    following = 2 * of_policy + config.num_critics * 2 * of_critic
    of_critics = config.num_critics * (6 * of_critic - 2 * (first + first_of_action))
    through_critics = 6 * of_policy - 2 * first + config.num_critics * (4 * of_critic - 2 * first)
    drawn = 2 * TORQUES
    samples = Work(following + of_critics + through_critics, 0, 1 + drawn, 4 * drawn).times(config.batch_size)
    averaged = config.num_critics * ((critic[:, 0] + 1) * critic[:, 1]).sum()
    learned = averaged + ((policy[:, 0] + 1) * policy[:, 1]).sum() + 1
    update = Work(ADAM_OPERATIONS * learned + AVERAGE_OPERATIONS * averaged, 0, 0, learned)
    return samples.plus(update).times(config.num_updates)._replace(bytes=24 * learned + 8 * averaged)


def crowd_agent_step(capacity: int, substeps: int) -> Work:
    """A substep of one agent by social forces alone, `bench.crowd.forces_only`.

    54 operations and 6 transcendentals (two roots, three exponentials, an arc tangent) for each slot of the neighbour
    list, and 12 operations to move. Bytes: the list, with an index and a flag per slot, and position and velocity are
    read and written once in `substeps`, after which the lists are rebuilt; rebuilding them is excluded.
    """
    per_list = 5 * capacity + 4 * 8
    return Work(
        operations=PAIR_OPERATIONS * capacity + AGENT_OPERATIONS,
        bytes=per_list / substeps,
        words=0,
        transcendentals=PAIR_TRANSCENDENTALS * capacity,
    )


def bandit_pull(policy: str, num_arms: int) -> Work:
    """A pull on Bernoulli arms.

    For each arm UCB1 takes 8 operations and a root, and Thompson sampling a Beta variate, made of two gamma variates of
    20 operations, 4 transcendentals and 2 words each (without rejections); both count pulls and rewards in 14
    operations, as tallies of two numbers. One word per pull is for the arm's reward. Bytes: none, because the arms'
    statistics of a block of runs stay in a cache.
    """
    if policy == "ucb1":
        return Work((UCB_OPERATIONS + UPDATE_OPERATIONS) * num_arms, 0, 1, num_arms + 1)
    operations = (BETA_OPERATIONS + UPDATE_OPERATIONS) * num_arms
    return Work(operations, 0, 1 + BETA_WORDS * num_arms, BETA_TRANSCENDENTALS * num_arms)
