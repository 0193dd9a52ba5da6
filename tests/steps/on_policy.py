"""On-policy algorithms in float64: rollouts, advantages under any discount, and steps along a loss."""

import copy
from dataclasses import dataclass
from typing import Any

import float64
import jax
import numpy as np
from float64 import Nodes, Statistics, linear
from recorded_env import ACTIONS, RecordedEnv, Walk
from reference.advantages import finite_time, ugae

from jaxrl import Curve

Array = np.ndarray


@dataclass
class Rows:
    """Samples, `[rows, ...]`; `value` and `target` are `[rows, K]` with a mixture critic.

    Attributes:
      scores: Log-probabilities of all actions, or means and log standard deviations, when acting.
    """

    obs: Array
    action: Array
    mask: Array
    scores: Array
    log_prob: Array
    value: Array
    target: Array
    advantage: Array
    weight: Array

    def at(self, index: Array) -> "Rows":
        """Some of the samples."""
        return Rows(**{name: leaf[index] for name, leaf in vars(self).items()})


class OnPolicy:
    """An on-policy algorithm on `RecordedEnv`, whose `loss` a subclass defines.

    Attributes:
      weights: Parameters of the network, and log standard deviations or None.
      discount: Curve Gamma(0), Gamma(1), ... of the discount.
      complete: Number of samples with weight in each iteration so far.
    """

    def __init__(self, algo: Any, hparams: Any, weights: Any, key: jax.Array, curve: Any):
        self.env: RecordedEnv = algo.env
        self.config, self.hparams, self.weights = algo.config, hparams, float64.in_float64(weights)
        self.curve = curve(np.arange(self.config.num_steps + 1))
        self.nodes = Nodes(hparams.discount, curve) if self.config.critic == "mixture" else None
        self.walk = Walk(self.env, jax.random.split(jax.random.split(key)[1], self.config.num_envs))
        self.descent, self.env_steps = float64.descent(algo, hparams), 0
        clip = hparams.observation_clip
        self.statistics = Statistics(self.config.normalise_observation, clip)
        self.sums, self.totals = np.zeros((0,)), np.zeros((self.config.num_envs, *self.env.agents))
        self.complete: list[float] = []

    # --- the policy and the critic ---------------------------------------------------------------

    def scores(self, weights: Any, obs: Array, mask: Array) -> Array:
        """Log-probabilities `[*B, ACTIONS]`, or means and log standard deviations `[*B, 2, 2]`."""
        layers = weights[0]["params"]
        outputs = float64.dense(layers["actor_out"], float64.perceptron(layers, obs, "actor"))
        if self.env.discrete:
            return float64.log_softmax(outputs, mask)
        return np.stack([outputs, np.broadcast_to(weights[1], outputs.shape)], axis=-2)

    def values(self, weights: Any, obs: Array) -> Array:
        """Values `[*B]`, or u_k `[*B, K]` of a mixture critic."""
        layers = weights[0]["params"]
        outputs = float64.dense(layers["critic_out"], float64.perceptron(layers, obs, "critic"))
        return outputs[..., 0] if self.nodes is None else outputs

    def log_prob(self, scores: Array, action: Array) -> Array:
        """Logarithms of probabilities or densities of actions."""
        if self.env.discrete:
            return np.take_along_axis(scores, action[..., None], axis=-1)[..., 0]
        mean, log_std = scores[..., 0, :], scores[..., 1, :]
        density = np.exp(-(((action - mean) / np.exp(log_std)) ** 2) / 2) / np.sqrt(2 * np.pi) / np.exp(log_std)
        return np.sum(np.log(density), axis=-1)

    def entropy(self, scores: Array) -> Array:
        """Entropies of distributions of actions."""
        if self.env.discrete:
            return -np.sum(np.exp(scores) * np.where(np.isfinite(scores), scores, 0.0), axis=-1)
        return np.sum(np.log(np.sqrt(2 * np.pi * np.e) * np.exp(scores[..., 1, :])), axis=-1)

    def kl(self, scores: Array, others: Array) -> Array:
        """Exact divergences KL(scores || others)."""
        if self.env.discrete:
            with np.errstate(invalid="ignore"):
                difference = np.where(np.isfinite(scores), scores - others, 0.0)
            return np.sum(np.exp(scores) * difference, axis=-1)
        mean, log_std, other_mean, other_log_std = (each[..., i, :] for each in (scores, others) for i in (0, 1))
        spread = (np.exp(2 * log_std) + (mean - other_mean) ** 2) / (2 * np.exp(2 * other_log_std))
        return np.sum(other_log_std - log_std + spread - 0.5, axis=-1)

    # --- an iteration --------------------------------------------------------------------------------

    def step(self, key: jax.Array) -> None:
        """One iteration."""
        collect_key, learn_key = jax.random.split(key)
        rows = self._collect(collect_key)
        h = self.hparams
        fallen = min(self.env_steps / float(h.anneal_env_steps), 1.0)
        self.lr = self.annealed("lr")
        self.entropy_coef = self.value("entropy_coef") * 0.1 ** (self.env_steps / float(h.entropy_decay_env_steps))
        self.fallen = self.descent.share = fallen
        self.complete.append(rows.weight.sum())
        if self.config.normalise_advantage == "batch":
            rows.advantage = standardised(rows.advantage, rows.weight)
        self.learn(learn_key, rows)
        self.env_steps += self.config.num_envs * self.config.num_steps

    def value(self, name: str) -> float:
        """Value of a hyper-parameter, which may be a curve, in this iteration."""
        value = getattr(self.hparams, name)
        if not isinstance(value, Curve):
            return float(value)
        points = np.linspace(0, float(self.hparams.anneal_env_steps), len(value.values))
        return float(np.interp(self.env_steps, points, np.float64(value.values)))

    def annealed(self, name: str) -> float:
        """Value of a hyper-parameter with a schedule in this iteration."""
        h = self.hparams
        return self.value(name) * linear(self.env_steps, getattr(h, f"{name}_end"), h.anneal_env_steps)

    def _collect(self, key: jax.Array) -> Rows:
        config = self.config
        noise_key, env_key = jax.random.split(key)
        shape = (config.num_steps, config.num_envs, *self.env.agents)
        draw = jax.random.gumbel if self.env.discrete else jax.random.normal
        noise = np.asarray(draw(noise_key, (*shape, ACTIONS if self.env.discrete else 2)), np.float64)
        weights = self.weights

        def act(t: int, obs: Array, mask: Any) -> Array:
            scores = self.scores(weights, self.statistics.normalised(obs), mask)
            if self.env.discrete:
                return np.argmax(scores + noise[t], axis=-1)
            return scores[..., 0, :] + np.exp(scores[..., 1, :]) * noise[t]

        self.steps = steps = self.walk(env_key, config.num_steps, config.reset_pool, act)
        obs, next_obs = self.statistics.normalised(steps.obs), self.statistics.normalised(steps.next_obs)
        value, next_value = self.values(weights, obs), self.values(weights, next_obs)
        advantage, target = self._estimates(self._rewards(), value, next_value)
        self.statistics.add(steps.obs, steps.active)
        mask = np.ones((*shape, ACTIONS), bool) if steps.mask is None else steps.mask
        scores = self.scores(weights, obs, mask)
        log_prob = self.log_prob(scores, steps.raw_action)
        leaves = (obs, steps.raw_action, mask, scores, log_prob, value, target, advantage, self.weight())
        return Rows(*(leaf.reshape(-1, *leaf.shape[len(shape) :]) for leaf in leaves))

    def weight(self) -> Array:
        """Weights of the samples, `[T, N, *A]`."""
        return self.steps.active.astype(np.float64)

    def _rewards(self) -> Array:
        """Rewards, divided by the standard deviation of their discounted sums so far if configured."""
        steps, paid = self.steps, []
        if not self.config.normalise_reward:
            return steps.reward
        for reward, done in zip(steps.reward, steps.done, strict=True):
            self.totals = reward + self.curve[1] * self.totals
            paid.append(self.totals)
            self.totals = np.where(done, 0.0, self.totals)
        self.sums = np.concatenate([self.sums, np.array(paid)[steps.active]])
        clip = float(self.hparams.reward_clip)
        return np.clip(steps.reward / np.sqrt(self.sums.var() + 1e-8), -clip, clip)

    def _estimates(self, reward: Array, value: Array, next_value: Array) -> tuple[Array, Array]:
        """Advantages `[T, N, *A]` and targets like `value`, a column at a time."""
        ended, done = self.steps.ended(self.config.time_limits), self.steps.done
        lam = 1.0 if self.hparams.lam is None else self.value("lam")
        advantage, target = np.zeros_like(reward), np.zeros_like(value)
        for column in np.ndindex(reward.shape[1:]):
            at = (slice(None), *column)
            ends = ended[at], done[at]
            if self.nodes is None:
                advantage[at], target[at] = self._estimate(
                    self.curve, lam, reward[at], value[at], next_value[at], *ends
                )
                continue
            for k, (rate, weight, size) in enumerate(
                zip(self.nodes.rates, self.nodes.weights, self.nodes.sizes, strict=True)
            ):
                now, after = size * value[at][:, k], size * next_value[at][:, k]
                part, returns = self._estimate(rate ** np.arange(len(now) + 1), lam, reward[at], now, after, *ends)
                advantage[at] += weight * part
                target[at][:, k] = returns / size
        return advantage, target

    def _estimate(self, curve: Array, lam: float, reward: Array, value: Array, *after: Array) -> tuple[Array, Array]:
        """Advantages and targets of one column."""
        if self.config.lam_weights == "truncated":
            return ugae(curve, lam, reward, value, *after)
        target = finite_time(curve, lam, reward, *after)
        return target - value, target

    # --- learning ------------------------------------------------------------------------------------

    def learn(self, key: jax.Array, rows: Rows) -> None:
        """Learning from the samples of an iteration: epochs of minibatches."""
        for each in jax.random.split(key, self.config.num_epochs):
            for batch in self.minibatches(each, rows):
                self.descend(batch)

    def minibatches(self, key: jax.Array, rows: Rows) -> list[Rows]:
        """Every sample once, in the order of a key, with normalised advantages if configured."""
        order = np.asarray(jax.random.permutation(key, len(rows.weight)))
        batches = [rows.at(index) for index in np.split(order, self.config.num_minibatches)]
        if self.config.normalise_advantage == "minibatch":
            for batch in batches:
                batch.advantage = standardised(batch.advantage, batch.weight)
        return batches

    def descend(self, batch: Rows) -> None:
        """One step of the optimiser."""
        slopes = float64.gradient(lambda weights: self.total(weights, batch), self.weights)
        self.weights = self.descent(self.weights, slopes, self.lr)

    def total(self, weights: Any, batch: Rows) -> float:
        """Loss of policy and critic, less the entropy bonus."""
        scores = self.scores(weights, batch.obs, batch.mask)
        policy = self.policy_loss(scores, self.log_prob(scores, batch.action) - batch.log_prob, batch)
        entropy = float64.weighted_mean(self.entropy(scores), batch.weight)
        return policy + self.value_loss(weights, batch) - self.entropy_coef * entropy

    def value_loss(self, weights: Any, batch: Rows) -> float:
        """Weighted loss of the critic."""
        clip = float(getattr(self.hparams, "value_clip", np.inf))
        value = self.values(weights, batch.obs)
        kept = batch.value + np.clip(value - batch.value, -clip, clip)
        each = np.maximum((value - batch.target) ** 2, (kept - batch.target) ** 2) / 2
        each = each if self.nodes is None else each @ self.nodes.shares
        return float(self.hparams.value_coef) * float64.weighted_mean(each, batch.weight)

    def policy_loss(self, scores: Array, log_ratio: Array, batch: Rows) -> float:
        """Loss of the policy."""
        raise NotImplementedError

    def snapshot(self) -> tuple[Any, Any]:
        """Weights and optimiser, to go back to."""
        return self.weights, copy.copy(self.descent)

    def assert_same(self, state: Any, atol: float) -> None:
        """Check a state of jaxrl."""
        self.walk.assert_at(state.carry.state)
        float64.assert_same(state.weights, self.weights, atol)
        samples = self.statistics.samples
        if self.config.normalise_observation and samples.size:
            np.testing.assert_allclose(state.observations.mean, samples.mean(0), rtol=0, atol=atol)
            np.testing.assert_allclose(state.observations.variance, samples.var(0), rtol=0, atol=atol)
        if self.config.normalise_reward and self.sums.size:
            np.testing.assert_allclose(state.rewards[0].variance, self.sums.var(), rtol=0, atol=atol)
            np.testing.assert_allclose(state.rewards[1], self.totals, rtol=0, atol=atol)


def standardised(x: Array, weight: Array) -> Array:
    """Numbers less their weighted mean, divided by their weighted standard deviation."""
    mean = float64.weighted_mean(x, weight)
    return (x - mean) / np.sqrt(float64.weighted_mean((x - mean) ** 2, weight) + 1e-8)
