"""DDPG, TD3, SAC and TQC in float64 NumPy: perceptrons with gradients by hand, Adam, and one update each."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass
class Perceptron:
    """Linear layers with relu between them; `layers` has pairs of weights `[in, out]` and biases `[out]`."""

    layers: list[tuple[Array, Array]]
    inputs: list[Array] = field(default_factory=list)

    @staticmethod
    def of(params: Any, which: int | None = None) -> "Perceptron":
        """A perceptron from the parameters of an encoder with one more layer; of the critic `which` in an ensemble."""
        tree = dict(params["params"])
        encoder = tree.pop("encoder")
        (last,) = tree.values()
        parts = [*(encoder[name] for name in sorted(encoder)), last]
        row = slice(None) if which is None else which
        return Perceptron(
            [(np.asarray(p["kernel"], np.float64)[row], np.asarray(p["bias"], np.float64)[row]) for p in parts]
        )

    def copy(self) -> "Perceptron":
        return Perceptron([(w.copy(), b.copy()) for w, b in self.layers])

    @property
    def vector(self) -> Array:
        return np.concatenate([part.ravel() for layer in self.layers for part in layer])

    def __call__(self, x: Array) -> Array:
        self.inputs = []
        for i, (w, b) in enumerate(self.layers):
            self.inputs.append(x)
            x = x @ w + b
            if i + 1 < len(self.layers):
                x = np.maximum(x, 0.0)
        return x

    def backward(self, slope: Array) -> tuple[list[tuple[Array, Array]], Array]:
        """Gradients of the layers and of the input of the last call, from that of its output."""
        gradients = []
        for i in reversed(range(len(self.layers))):
            x, (w, _) = self.inputs[i], self.layers[i]
            gradients.append((x.T @ slope, slope.sum(0)))
            slope = slope @ w.T
            if i:
                slope = slope * (x > 0)
        return gradients[::-1], slope

    def towards(self, other: "Perceptron", share: float) -> None:
        pairs = zip(self.layers, other.layers, strict=True)
        self.layers = [(w + share * (new_w - w), b + share * (new_b - b)) for (w, b), (new_w, new_b) in pairs]


@dataclass
class Adam:
    """Adam on perceptrons, or on one number."""

    lr: float
    eps: float
    b1: float = 0.9
    b2: float = 0.999
    count: int = 0
    first: Any = 0.0
    second: Any = 0.0

    def step(self, gradient: Any) -> Any:
        self.count += 1
        self.first = self.b1 * self.first + (1 - self.b1) * gradient
        self.second = self.b2 * self.second + (1 - self.b2) * gradient**2
        mean = self.first / (1 - self.b1**self.count)
        return -self.lr * mean / (np.sqrt(self.second / (1 - self.b2**self.count)) + self.eps)

    def descend(self, network: Perceptron, gradients: list[tuple[Array, Array]]) -> None:
        change, at, layers = self.step(np.concatenate([g.ravel() for pair in gradients for g in pair])), 0, []
        for w, b in network.layers:
            moved = []
            for part in (w, b):
                moved.append(part + change[at : at + part.size].reshape(part.shape))
                at += part.size
            layers.append(tuple(moved))
        network.layers = layers


@dataclass
class Batch:
    """Transitions; `ended` is 1 where nothing follows."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    ended: Array


class ActorCritic:
    """Policy and critics of DDPG, TD3 and SAC, from the parameters of a learner of jaxrl."""

    def __init__(self, learner: Any, hparams: Any, num_critics: int, gamma: float):
        self.policy, self.gamma = Perceptron.of(learner.policy), gamma
        self.target_policy = self.policy.copy()
        self.critics = [Perceptron.of(learner.critics, i) for i in range(num_critics)]
        self.targets = [critic.copy() for critic in self.critics]
        self.rate = float(hparams.target_rate)
        self.of_policy = Adam(float(hparams.policy_lr), float(hparams.adam_eps))
        self.of_critics = [Adam(float(hparams.lr), float(hparams.adam_eps)) for _ in self.critics]

    def next_value(self, batch: Batch, action: Array) -> Array:
        inputs = np.concatenate([action, batch.next_obs], axis=1)
        return np.min([target(inputs)[:, 0] for target in self.targets], axis=0)

    def learn_values(self, batch: Batch, following: Array) -> None:
        goal = batch.reward + self.gamma * (1 - batch.ended) * following
        inputs = np.concatenate([batch.action, batch.obs], axis=1)
        for critic, adam in zip(self.critics, self.of_critics, strict=True):
            error = critic(inputs)[:, 0] - goal
            adam.descend(critic, critic.backward(error[:, None] / len(error))[0])

    def action_slopes(self, batch: Batch, action: Array) -> tuple[Array, Array]:
        """Values of all critics `[C, B]` and their gradients by the action `[C, B, n]`."""
        inputs = np.concatenate([action, batch.obs], axis=1)
        values, slopes = [], []
        for critic in self.critics:
            values.append(critic(inputs)[:, 0])
            slopes.append(critic.backward(np.ones((len(inputs), 1)))[1][:, : action.shape[1]])
        return np.array(values), np.array(slopes)

    def objective_slope(self, values: Array, slopes: Array) -> Array:
        """Gradient by the action of the lowest value, `[B, n]`."""
        return np.take_along_axis(slopes, np.argmin(values, axis=0)[None, :, None], axis=0)[0]

    def move_targets(self) -> None:
        for target, critic in zip(self.targets, self.critics, strict=True):
            target.towards(critic, self.rate)

    def td3(self, batch: Batch, noise: Array, bound: float, improve: bool) -> None:
        """One update of TD3, or of DDPG without noise and with one critic."""
        action = np.tanh(self.target_policy(batch.next_obs)) + np.clip(noise, -bound, bound)
        self.learn_values(batch, self.next_value(batch, np.clip(action, -1, 1)))
        if not improve:
            return
        action = np.tanh(self.policy(batch.obs))
        slope = -self.action_slopes(batch, action)[1][0] / len(action)
        self.of_policy.descend(self.policy, self.policy.backward(slope * (1 - action**2))[0])
        self.move_targets()
        self.target_policy.towards(self.policy, self.rate)

    def squashed(self, obs: Array, noise: Array) -> tuple[Array, Array, Array]:
        """Actions, their log-probabilities, and standard deviations before tanh."""
        mean, log_std = np.split(self.policy(obs), 2, axis=1)
        assert np.all((log_std > -20) & (log_std < 2))
        before = mean + np.exp(log_std) * noise
        log_cosh = np.logaddexp(before, -before) - np.log(2)
        log_prob = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) + 2 * log_cosh
        return np.tanh(before), log_prob.sum(1), np.exp(log_std)

    def sac(self, batch: Batch, noise: Array, next_noise: Array, temperature: float) -> float:
        """One update of SAC except for the temperature; returns the mean log-probability."""
        action, log_prob, _ = self.squashed(batch.next_obs, next_noise)
        self.learn_values(batch, (self.next_value(batch, action).T - temperature * log_prob).T)
        action, log_prob, std = self.squashed(batch.obs, noise)
        values, slopes = self.action_slopes(batch, action)
        slope = self.objective_slope(values, slopes)
        before = (2 * temperature * action - slope * (1 - action**2)) / len(action)
        of_log_std = before * std * noise - temperature / len(action)
        self.of_policy.descend(self.policy, self.policy.backward(np.concatenate([before, of_log_std], axis=1))[0])
        self.move_targets()
        return float(np.mean(log_prob))

    def probabilities(self, obs: Array, mask: Array) -> Array:
        logits = np.where(mask, self.policy(obs), -np.inf)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def sac_discrete(self, batch: Batch, mask: Array, next_mask: Array, temperature: float) -> float:
        """One update of SAC with discrete actions, except for the temperature; returns the mean entropy."""
        share = self.probabilities(batch.next_obs, next_mask)
        lowest = np.min([target(batch.next_obs) for target in self.targets], axis=0)
        log_share = np.log(np.where(share > 0, share, 1.0))
        goal = batch.reward + self.gamma * (1 - batch.ended) * (share * (lowest - temperature * log_share)).sum(1)
        rows = np.arange(len(goal))
        for critic, adam in zip(self.critics, self.of_critics, strict=True):
            outputs = critic(batch.obs)
            slope = np.zeros_like(outputs)
            slope[rows, batch.action] = (outputs[rows, batch.action] - goal) / len(goal)
            adam.descend(critic, critic.backward(slope)[0])
        q = np.min([critic(batch.obs) for critic in self.critics], axis=0)
        share = self.probabilities(batch.obs, mask)
        log_share = np.log(np.where(share > 0, share, 1.0))
        # The slope of a softmax: each share times the excess of its action's cost over the mean.
        cost = temperature * log_share - q
        slope = share * (cost - (share * cost).sum(1, keepdims=True)) / len(goal)
        self.of_policy.descend(self.policy, self.policy.backward(slope)[0])
        self.move_targets()
        return float(np.mean(-(share * log_share).sum(1)))


class Truncated(ActorCritic):
    """SAC whose critics learn quantiles, from targets without the highest ones of all critics (TQC)."""

    def __init__(self, learner: Any, hparams: Any, num_critics: int, gamma: float, dropped: int):
        super().__init__(learner, hparams, num_critics, gamma)
        self.dropped, self.delta = dropped, float(hparams.huber_delta)

    def next_value(self, batch: Batch, action: Array) -> Array:
        """The quantiles that are kept, `[B, num_critics * (M - dropped)]`, one transition at a time."""
        inputs, kept = np.concatenate([action, batch.next_obs], axis=1), []
        for row in zip(*(target(inputs) for target in self.targets), strict=True):
            ascending = sorted(quantile for quantiles in row for quantile in quantiles)
            kept.append(ascending[: len(ascending) - self.dropped * len(self.targets)])
        return np.array(kept)

    def learn_values(self, batch: Batch, following: Array) -> None:
        goal = batch.reward[:, None] + self.gamma * (1 - batch.ended)[:, None] * following
        inputs = np.concatenate([batch.action, batch.obs], axis=1)
        for critic, adam in zip(self.critics, self.of_critics, strict=True):
            quantiles = critic(inputs)
            slope, count = np.zeros_like(quantiles), quantiles.shape[1]
            for m in range(count):
                error = goal - quantiles[:, m, None]
                level = np.where(error < 0, 1 - (m + 0.5) / count, (m + 0.5) / count)
                slope[:, m] = -(level * np.clip(error / self.delta, -1, 1)).mean(1)
            adam.descend(critic, critic.backward(slope / len(goal))[0])

    def action_slopes(self, batch: Batch, action: Array) -> tuple[Array, Array]:
        inputs = np.concatenate([action, batch.obs], axis=1)
        values, slopes = [], []
        for critic in self.critics:
            quantiles = critic(inputs)
            values.append(quantiles.mean(1))
            slopes.append(critic.backward(np.full_like(quantiles, 1 / quantiles.shape[1]))[1][:, : action.shape[1]])
        return np.array(values), np.array(slopes)

    def objective_slope(self, values: Array, slopes: Array) -> Array:
        return slopes.mean(0)
