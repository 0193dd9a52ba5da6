"""Episodes of trained policies with every member of a population of partners, step by step, and figures of them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.learning.beliefs import BELIEF, Belief

if TYPE_CHECKING:
    import matplotlib.figure

    from envs.cooperation.pairs import Pair
    from jaxrl.learning.actor import Actor
    from jaxrl.results.result import Result

NUM_BINS = 10

__all__ = ["Played", "cross_play_figure", "curves_figure", "of_good_runs", "play", "reliability"]


class Played(NamedTuple):
    """Episodes of every policy with every partner.

    Attributes:
      reward: Rewards, mean over episodes, float `[S, P, T]`: policies, partners, steps.
      right: Whether the most probable value of each discrete part of the behaviour is the true one, bool
        `[S, P, E, T, K]`; None without a belief.
      confidence: Probability of that value, `[S, P, E, T, K]`; None without a belief.
      error: Squared differences of the numbers of the behaviour from their means, `[S, P, E, T, N]`; None without a
        belief.
    """

    reward: np.ndarray
    right: np.ndarray | None
    confidence: np.ndarray | None
    error: np.ndarray | None


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 6, 7))
def _play(
    task: Pair,
    actor: Actor,
    belief: Belief | None,
    policies: Any,
    params: Any,
    key: jax.Array,
    episodes: int,
    steps: int,
) -> Any:
    def one(policy: Any, member: jax.Array, key: jax.Array) -> Any:
        alone = params.replace(weights=jnp.arange(len(params.weights)) == member)
        reset_key, key = jax.random.split(key)
        obs, state = task.reset_env(reset_key, alone)

        def step(carry: Any, key: jax.Array) -> Any:
            obs, state, memory = carry
            scores, memory = actor.scores(policy, memory, obs, None)
            action, _, memory = actor.choose(None, scores, memory, True, None)
            obs, state, reward, _, info = task.step_env(key, state, action, alone)
            seen = () if belief is None else _judged(belief, scores[BELIEF], info["behaviour"])
            return (obs, state, memory), (reward, seen)

        start = obs, state, jax.tree.map(jnp.asarray, actor.initial_memory(policy))
        return jax.lax.scan(step, start, jax.random.split(key, steps))[1]

    members = jnp.arange(len(params.weights))
    num_policies = len(jax.tree.leaves(policies)[0])
    keys = jax.random.split(key, (num_policies, len(members), episodes))
    function = jax.vmap(jax.vmap(jax.vmap(one, (None, None, 0)), (None, 0, 0)), (0, None, 0))
    reward, seen = function(policies, members, keys)
    return jnp.mean(reward, axis=2), seen


def _judged(belief: Belief, outputs: jax.Array, behaviour: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Whether the likeliest value of each discrete part is true, its probability `[K]`, and errors of numbers `[N]`."""
    right, confidence, error = [jnp.zeros(0, bool)], [jnp.zeros(0)], [jnp.zeros(0)]
    parts = zip(belief.split(outputs), behaviour, belief.discrete, belief.sizes, strict=True)
    for part, value, discrete, size in parts:
        if discrete:
            right.append(jnp.atleast_1d(jnp.argmax(part) == value))
            confidence.append(jnp.atleast_1d(jnp.max(jax.nn.softmax(part))))
        else:
            error.append((part[:size] - value) ** 2)  # the means come first
    return jnp.concatenate(right), jnp.concatenate(confidence), jnp.concatenate(error)


def play(
    task: Pair, actor: Actor, policies: Any, params: Any, episodes: int, steps: int, belief: Belief | None = None
) -> Played:
    """Episodes of greedy policies with every member of the population, each pair with random numbers of its own.

    Args:
      task: Task with a partner inside.
      actor: Actor of the policies.
      policies: Policies, leaves `[S, ...]`.
      params: Parameters of the task, whose weights have no effect.
      episodes: Number of episodes of each pair.
      steps: Number of steps of an episode, T.
      belief: Belief among the scores; None for none.
    """
    params = jax.tree.map(jnp.asarray, params)
    reward, seen = _play(task, actor, belief, policies, params, jax.random.key(0), episodes, steps)
    right, confidence, error = (None, None, None) if belief is None else map(np.asarray, seen)
    return Played(np.asarray(reward, np.float64), right, confidence, error)


def of_good_runs(result: Result, values: np.ndarray) -> np.ndarray:
    """Values of runs `[S, ...]`, nan for those that failed, whose policies still act."""
    failed = result.failed_runs()[0]
    return np.where(failed.reshape(-1, *[1] * (values.ndim - 1)), np.nan, values)


def reliability(right: np.ndarray, confidence: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Calibration of probabilities in bins of equal width.

    Args:
      right: Whether each most probable value was true, of any shape.
      confidence: Probability of each, of the same shape.

    Returns:
      Mean confidence and share of true values of each bin `[10]`, nan for an empty bin, and the expected calibration
      error: their absolute differences weighted by the sizes of the bins.
    """
    where = np.minimum((confidence.ravel() * NUM_BINS).astype(int), NUM_BINS - 1)
    counts = np.bincount(where, minlength=NUM_BINS).astype(np.float64)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(where, confidence.ravel(), NUM_BINS) / counts
        share = np.bincount(where, right.ravel(), NUM_BINS) / counts
    return mean, share, float(np.nansum(counts * np.abs(mean - share)) / counts.sum())


def curves_figure(
    regrets: dict[str, np.ndarray], accuracies: dict[str, np.ndarray], bins: dict[str, tuple[np.ndarray, np.ndarray]]
) -> matplotlib.figure.Figure:
    """Regret by step, accuracy of beliefs by step, and their reliability.

    Args:
      regrets: Regret of each method `[T]`.
      accuracies: Accuracy of each belief `[T]`.
      bins: Mean confidence and share of true values of each method's belief.
    """
    from matplotlib.figure import Figure

    from jaxrl import plotting

    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    by_step, by_belief, diagonal = figure.subplots(1, 3)
    for ax, lines, label in ((by_step, regrets, "regret of a step"), (by_belief, accuracies, "accuracy of the belief")):
        for index, (name, values) in enumerate(lines.items()):
            colour = plotting.COLOURS[index % len(plotting.COLOURS)]
            style = ("-", "--")[index // len(plotting.COLOURS) % 2]
            ax.plot(np.arange(1, len(values) + 1), values, color=colour, linestyle=style, label=name)
        ax.set_xlabel("step of the episode")
        ax.set_ylabel(label)
        ax.legend(frameon=False, fontsize=7)
    for index, (name, (mean, share)) in enumerate(bins.items()):
        diagonal.plot(mean, share, "o-", color=plotting.COLOURS[index % len(plotting.COLOURS)], label=name)
    diagonal.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=0.8)
    diagonal.set_xlabel("confidence")
    diagonal.set_ylabel("share of true values")
    diagonal.legend(frameon=False, fontsize=7)
    return figure


def cross_play_figure(returns: np.ndarray, best: float) -> matplotlib.figure.Figure:
    """The return of every agent trained in self-play with every other, as a matrix.

    Args:
      returns: Returns `[S, S]`, agents by partners.
      best: Best return.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(4.4, 3.6), layout="constrained")
    ax = figure.subplots()
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    image = ax.imshow(returns, vmin=0.0, vmax=best, cmap="viridis")
    ax.set_xlabel("seed of the partner")
    ax.set_ylabel("seed of the agent")
    figure.colorbar(image, label="return")
    return figure
