"""Parts that SAC and TD3 share in float64: critics of actions, their targets, and their gradient step."""

from typing import Any

import float64
import jax
import numpy as np
from float64 import Nodes
from replaying import Batch, Replay
from sequence_replaying import SequenceReplay

Array = np.ndarray


class Critics:
    """Critics of an off-policy actor-critic, with the replay buffer that they learn from."""

    def __init__(self, algo: Any, hparams: Any, learner: Any, curve: Any, reset_key: jax.Array):
        self.env, self.config, self.hparams, self.discrete = algo.env, algo.config, hparams, algo.env.discrete
        self.nodes = Nodes(hparams.discount, curve)
        kind = Replay if self.config.memory == "none" else SequenceReplay
        self.replay = kind(algo, hparams, self.nodes, reset_key)
        self.policy = float64.in_float64(learner.policy)
        self.critics = self.targets = float64.in_float64(learner.critics)
        self.of_policy, self.of_critics = (float64.descent(algo, hparams) for _ in range(2))
        self.env_steps = 0

    def values(self, critics: Any, obs: Array, action: Array | None = None, memory: Array | None = None) -> Array:
        """Values u_k of each critic, `[C, *B, K]`, or of every choice, `[C, *B, sum(sizes), K]`: the means of atoms."""
        return np.mean(self.atoms(critics, obs, action, memory), axis=-1)

    def atoms(self, critics: Any, obs: Array, action: Array | None = None, memory: Array | None = None) -> Array:
        """Atoms of the values u_k, `[C, *B, K, M]` or `[C, *B, sum(sizes), K, M]`; M is 1 without quantiles.

        Args:
          critics: Parameters.
          obs: What critics see of observations, `[*B, n]`.
          action: Actions, `[*B, 2]`; None for all choices.
          memory: Memories of the critics before the observations, `[C, *B, size]`; None without a memory.
        """
        inputs, results = obs if action is None else np.concatenate([action, obs], axis=-1), []
        for i in range(self.config.num_critics):
            before = None if memory is None else memory[i]
            layers, features = float64.encoded(float64.member(critics, i), inputs, before)
            outputs = float64.dense(layers["advantage_out" if action is None else "out"], features)
            sizes = (*([sum(self.env.sizes)] if action is None else []), len(self.nodes.shares), -1)
            results.append(outputs.reshape(*obs.shape[:-1], *sizes))
        return np.array(results)

    def lowest(self, atoms: Array) -> Array:
        """Atoms of the critic whose value under the discount is lowest, without the first axis."""
        which = np.argmin(np.mean(atoms, axis=-1) @ self.nodes.shares, axis=0)
        return np.take_along_axis(atoms, which[None, ..., None, None], axis=0)[0]

    def outputs(self, policy: Any, obs: Array, memory: Array | None = None) -> Array:
        """Outputs of a policy for observations and the memories before them."""
        layers, features = float64.encoded(policy, obs, memory)
        return float64.dense(layers["out"], features)

    def learn_values(self, batch: Batch, following: Array) -> None:
        """One gradient step of all critics towards the rewards and the atoms `[B, *A, K, M]` that follow."""
        goal, shares = batch.sums[..., None] + batch.going_on[..., None] * following, self.nodes.shares

        def errors(critics: Any) -> Array:
            """Errors of the atoms of each part of an action by each critic, `[D, C, B, *A, K, M, M of the goal]`."""
            memory = batch.before_critics(critics, self.critics)
            if not self.discrete:
                return self._errors(self.atoms(critics, batch.seen, batch.action, memory)[None], goal)
            values = self.values(critics, batch.seen, memory=memory)
            taken = np.array([self.env.taken(of_critic, batch.action) for of_critic in values]).swapaxes(0, 1)
            return self._errors(taken[..., None], goal)

        def loss(critics: Any) -> float:
            each = np.mean(self._losses(errors(critics)), axis=0)
            return float(np.sum(each @ shares * batch.weight) / max(batch.active.sum(), 1))

        before = np.mean(errors(self.critics), axis=(-2, -1))
        self.replay.learned(batch, np.mean(np.abs(before @ shares), axis=(0, 1)))
        self.critics = self.of_critics(self.critics, float64.gradient(loss, self.critics), self.annealed("lr"))

    @staticmethod
    def _errors(atoms: Array, goal: Array) -> Array:
        return atoms[..., :, None] - goal[..., None, :]

    def _losses(self, error: Array) -> Array:
        """Losses `[..., K]` of the errors of all pairs of an atom and an atom of the goal, `[..., K, M, M]`."""
        if self.config.value_loss == "squared":
            return error[..., 0, 0] ** 2 / 2
        delta, count = float(self.hparams.huber_delta), error.shape[-2]
        size = np.abs(error)
        huber = np.where(size > delta, delta * (size - delta / 2), error**2 / 2) / delta
        levels = ((np.arange(count) + 0.5) / count)[:, None]
        return np.sum(np.mean(np.where(error > 0, 1 - levels, levels) * huber, axis=-1), axis=-1)

    def annealed(self, name: str, end: str = "lr_end") -> float:
        """Value of a hyper-parameter with a schedule in this iteration."""
        h = self.hparams
        return float(getattr(h, name)) * float64.linear(self.env_steps, getattr(h, end), h.anneal_env_steps)

    def move_targets(self) -> None:
        """Move the target networks of the critics."""
        self.targets = float64.towards(self.targets, self.critics, float(self.hparams.target_rate))

    def assert_same(self, state: Any, atol: float) -> None:
        """Check a state of jaxrl."""
        self.replay.assert_same(state, atol)
        float64.assert_same(state.learner.critics, self.critics, atol)
        float64.assert_same(state.learner.targets, self.targets, atol)
        float64.assert_same(state.learner.policy, self.policy, atol)
