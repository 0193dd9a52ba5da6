"""Curricula of levels: starts of episodes that are played again, chosen by scores of what remains to be learned.

A level is the random key of a reset, from which an environment draws everything that distinguishes its episodes: walls,
starting positions, and the parameters of `envs.wrappers.randomise`. A buffer of levels is therefore one array of keys,
of any environment, and a level is played again by a reset with its key.
"""

from typing import Any, Literal, NamedTuple, get_args

import chex
import jax
import jax.numpy as jnp

from envs.loops import scan
from envs.threefry import rolled, unrolled
from jaxrl.learning.rollout import fresh_keys
from jaxrl.pytrees import Number, PyTree

Score = Literal["positive-value-loss", "max-return"]
SCORES: tuple[str, ...] = get_args(Score)
NEW = -1  # place of a level that is not in the buffer

__all__ = [
    "NEW",
    "SCORES",
    "Drawn",
    "Levels",
    "Playing",
    "draw_levels",
    "init_levels",
    "mean_score",
    "replay_chances",
    "scored",
]


class Playing(NamedTuple):
    """Level that each environment plays, and the sums over its episode in progress, `[num_envs]`.

    Attributes:
      words: Words of the level's key, uint32 `[num_envs, words]`.
      place: Place of the level in the buffer when it was drawn, or `NEW`, int32.
      total: Sum over steps and agents of positive advantages, or of values.
      count: Number of steps of agents.
      gain: Sum of the rewards of all agents, each from the agent's first active step on.
      took_part: Whether each agent has taken part, bool `[num_envs, *A]`; `()` for a single agent.
    """

    words: jax.Array
    place: jax.Array
    total: jax.Array
    count: jax.Array  # pyright: ignore[reportIncompatibleMethodOverride]
    gain: jax.Array
    took_part: Any = ()


class Levels(NamedTuple):
    """Buffer of levels of one run, `[num_levels]`, and the levels that are being played.

    Attributes:
      words: Words of the levels' keys, uint32 `[num_levels, words]`.
      score: Scores, float32; minus infinity where there is no level.
      best: Highest return of an episode on the level so far, float32.
      age: Number of iterations since an episode on the level has ended, int32, at least 1.
      playing: Levels that are being played.
    """

    words: jax.Array
    score: jax.Array
    best: jax.Array
    age: jax.Array
    playing: Playing


class Drawn(NamedTuple):
    """Levels for the resets of one rollout.

    Attributes:
      keys: Keys of resets, `[num_envs, pool]`.
      places: Places in the buffer of levels that are played again, or `NEW`, int32 `[num_envs, pool]`.
    """

    keys: jax.Array
    places: jax.Array


def init_levels(num_levels: int, keys: jax.Array, agents: tuple[int, ...] = ()) -> Levels:
    """Empty buffer, and the levels of the first episodes.

    Args:
      num_levels: Number of levels that the buffer holds, static.
      keys: Keys of the first resets, `[num_envs]`.
      agents: Axes of the agents of one environment, static; `()` for a single agent.
    """
    chex.assert_rank(keys, 1, custom_message="keys")
    words = jax.random.key_data(keys)
    num_envs, size = words.shape
    zeros = jnp.zeros(num_envs)
    took_part = jnp.zeros((num_envs, *agents), bool) if agents else ()
    playing = Playing(words, jnp.full(num_envs, NEW, jnp.int32), zeros, zeros, zeros, took_part)
    empty = jnp.full(num_levels, -jnp.inf)
    return Levels(jnp.zeros((num_levels, size), words.dtype), empty, empty, jnp.ones(num_levels, jnp.int32), playing)


def replay_chances(score: jax.Array, age: jax.Array, temperature: Number, staleness: jax.Array | float) -> jax.Array:
    """Chances of the levels to be played again, `[N]`, which sum to 1, or are 0 in an empty buffer.

    They are `(1 - staleness) rank^(-1 / temperature) / Z + staleness age / Z'`, with rank 1 for the highest score.

    Args:
      score: Scores, float32 `[N]`; minus infinity where there is no level. Equal ones have their order in the buffer.
      age: Number of iterations since each level was played, int32 `[N]`, at least 1.
      temperature: Temperature of the ranks, above 0, traced: the higher, the more alike are the chances.
      staleness: Share of the chances that is proportional to the age, in [0, 1], traced.

    Source: Jiang, Grefenstette and Rocktaeschel (2021), "Prioritized level replay".
    """
    chex.assert_equal_shape([score, age], custom_message="score, age")
    full = score > -jnp.inf
    rank = jnp.argsort(jnp.argsort(-score)) + 1
    by_score = jnp.where(full, jnp.exp(-jnp.log(rank.astype(jnp.float32)) / temperature), 0.0)
    by_age = jnp.where(full, age.astype(jnp.float32), 0.0)
    normalised = [each / jnp.maximum(jnp.sum(each), 1e-30) for each in (by_score, by_age)]
    return (1 - staleness) * normalised[0] + staleness * normalised[1]


def draw_levels(
    levels: Levels, key: jax.Array, pool_size: int, replay: Number, temperature: Number, staleness: jax.Array | float
) -> Drawn:
    """Levels for the resets of one rollout: some played again, and new ones.

    Args:
      levels: Levels before the rollout.
      key: Key of the rollout, whose fresh keys are the new levels: without replay, the rollout is the usual one.
      pool_size: Number of fresh states per environment.
      replay: Probability that a level is played again rather than a new one, with a full buffer, traced; before, it is
        this times the share of the buffer that is filled.
      temperature, staleness: See `replay_chances`.
    """
    chex.assert_equal_shape([levels.score, levels.age], custom_message="levels")
    shape = (len(levels.playing.place), pool_size)
    fresh = rolled(fresh_keys(key, shape))
    again_key, which_key = jax.random.split(jax.random.split(unrolled(key), 3)[2])  # the rollout takes the others
    filled = jnp.mean(levels.score > -jnp.inf)
    again = jax.random.uniform(again_key, shape) < replay * filled
    chances = replay_chances(levels.score, levels.age, temperature, staleness)
    places = jax.random.choice(rolled(which_key), len(chances), shape, p=chances).astype(jnp.int32)
    words = jnp.where(again[..., None], levels.words[places], jax.random.key_data(fresh))
    keys = jax.random.wrap_key_data(words, impl=jax.random.key_impl(fresh))
    return Drawn(keys, jnp.where(again, places, NEW))


def scored(
    levels: Levels,
    drawn: Drawn,
    score: Score,
    done: jax.Array,
    advantage: jax.Array,
    value: jax.Array,
    reward: jax.Array,
    active: jax.Array,
) -> tuple[Levels, jax.Array]:
    """Levels after a rollout: scores of the played ones, and new levels in place of those with lower scores.

    An episode counts, with all of its steps, in the rollout in which it ends. The score of a level is the mean over the
    steps, and agents, of all its episodes that end in the rollout: of `max(advantage, 0)`, or of the highest return of
    an episode on the level so far less the value. Returns are means over the agents that take part in the episode, each
    from its first active step on. An episode on a level that is no longer in the buffer has no effect.

    Args:
      levels: Levels before the rollout.
      drawn: Levels for its resets.
      score: Kind of the score, static: "positive-value-loss" or "max-return".
      done: Ends of episodes, bool `[T, num_envs]`.
      advantage, value, reward: Advantages, values and rewards, `[T, num_envs, *A]`.
      active: Whether each agent takes part, bool `[T, num_envs, *A]`.

    Returns:
      The levels, and the share of the episodes that ended whose level was played again, float32 `[]`.

    Source: Jiang et al. (2021), "Replay-guided adversarial environment design"; undiscounted returns.
    """
    chex.assert_equal_shape([advantage, value, reward, active], custom_message="advantage, value, reward, active")
    chex.assert_tree_shape_prefix(reward, done.shape, custom_message="reward, done")
    agents = tuple(range(2, reward.ndim))
    of_score = jnp.maximum(advantage, 0.0) if score == "positive-value-loss" else value
    steps = (
        done,
        jnp.sum(jnp.where(active, of_score, 0.0), agents),
        jnp.sum(active.astype(jnp.float32), agents),
        reward if agents else jnp.mean(reward, agents),
        active if agents else (),
    )
    words = jnp.concatenate([levels.playing.words[:, None], jax.random.key_data(drawn.keys)], 1)
    place = jnp.concatenate([levels.playing.place[:, None], drawn.places], 1)
    sums, place_in_play, in_progress = _sums_of_levels(levels.playing, steps, place.shape[1])

    words, place, sums = words.reshape(-1, words.shape[-1]), place.ravel(), jax.tree.map(jnp.ravel, sums)
    ended = sums.episodes > 0
    kept = (place != NEW) & jnp.all(levels.words[place] == words, axis=-1)
    levels = _updated(levels, jnp.where(ended & kept, place, len(levels.score)), sums, score)
    new = jnp.where(ended & (place == NEW), _score(score, sums.best, sums.total, sums.count), -jnp.inf)
    levels, place = _inserted(levels, words, place, new, sums.best)

    rows = jnp.arange(len(done[0])) * (drawn.places.shape[1] + 1) + place_in_play
    replayed = jnp.sum(jnp.where(kept, sums.episodes, 0.0)) / jnp.maximum(jnp.sum(sums.episodes), 1.0)
    return levels._replace(playing=Playing(words[rows], place[rows], *in_progress)), replayed


def mean_score(levels: Levels) -> jax.Array:
    """Mean score of the levels in the buffer, `[]`; 0 if it is empty."""
    chex.assert_rank(levels.score, 1, custom_message="levels")
    full = levels.score > -jnp.inf
    return jnp.sum(jnp.where(full, levels.score, 0.0)) / jnp.maximum(jnp.sum(full), 1)


class _Sums(NamedTuple):
    """Sums over the episodes on each level that ended in a rollout."""

    total: jax.Array
    count: jax.Array  # pyright: ignore[reportIncompatibleMethodOverride]
    episodes: jax.Array
    best: jax.Array


def _score(score: Score, best: jax.Array, total: jax.Array, count: jax.Array) -> jax.Array:
    mean = total / jnp.maximum(count, 1.0)
    return mean if score == "positive-value-loss" else best - mean


def _sums_of_levels(playing: Playing, steps: PyTree, num_slots: int) -> tuple[_Sums, jax.Array, Any]:
    """Sums over ended episodes `[num_envs, num_slots]`; the slot in play `[num_envs]`; and the sums in progress.

    Slot 0 of an environment is its level before the rollout, and the others are those of its resets, in the order of
    the pool, which begins again where it is used up.
    """
    shape = (len(playing.place), num_slots)
    slots = jnp.arange(num_slots)
    agents = tuple(range(1, steps[3].ndim - 1))
    start = _Sums(*[jnp.zeros(shape)] * 3, best=jnp.full(shape, -jnp.inf))

    def one_step(loop: PyTree, step: Any) -> tuple[Any, None]:
        sums, slot, (total, count, gain, took_part) = loop
        done, of_score, present, reward, active = step
        if agents:
            took_part = took_part | active
            reward = jnp.sum(jnp.where(took_part, reward, 0.0), agents)
        total, count, gain = total + of_score, count + present, gain + reward
        whole = gain / jnp.maximum(jnp.sum(took_part, agents), 1) if agents else gain
        here = done[:, None] & (slots == slot[:, None])
        sums = _Sums(
            jnp.where(here, sums.total + total[:, None], sums.total),
            jnp.where(here, sums.count + count[:, None], sums.count),
            sums.episodes + here,
            jnp.where(here, jnp.maximum(sums.best, whole[:, None]), sums.best),
        )
        slot = jnp.where(done, slot % (num_slots - 1) + 1, slot)
        in_progress = jax.tree.map(lambda leaf: jnp.where(done, 0.0, leaf), (total, count, gain))
        if agents:
            took_part = took_part & ~done.reshape(-1, *[1] * len(agents))
        return (sums, slot, (*in_progress, took_part)), None

    in_progress = playing.total, playing.count, playing.gain, playing.took_part
    first = (start, jnp.zeros(shape[0], jnp.int32), in_progress)
    return scan(one_step, first, steps)[0]


def _updated(levels: Levels, place: jax.Array, sums: _Sums, score: Score) -> Levels:
    """Levels after episodes at these places `[M]`, those beyond the buffer without effect."""
    zeros = jnp.zeros(levels.score.shape)
    total, count = (zeros.at[place].add(each, mode="drop") for each in (sums.total, sums.count))
    best = levels.best.at[place].max(sums.best, mode="drop")
    played = zeros.at[place].set(1.0, mode="drop") > 0
    return levels._replace(
        score=jnp.where(played, _score(score, best, total, count), levels.score),
        best=best,
        age=jnp.where(played, 1, levels.age + 1),
    )


def _inserted(
    levels: Levels, words: jax.Array, place: jax.Array, new: jax.Array, best: jax.Array
) -> tuple[Levels, jax.Array]:
    """Levels with the highest scores of both, and the places of the candidates `[M]` where they are now."""
    count = min(len(levels.score), len(new))
    scores, best_new = jax.lax.top_k(new, count)
    worst = jax.lax.top_k(-levels.score, count)[1]
    better = scores > levels.score[worst]

    def written(old: jax.Array, leaf: jax.Array) -> jax.Array:
        replace = better.reshape(count, *[1] * (old.ndim - 1))
        return old.at[worst].set(jnp.where(replace, leaf, old[worst]))

    levels = levels._replace(
        words=written(levels.words, words[best_new]),
        score=written(levels.score, scores),
        best=written(levels.best, best[best_new]),
        age=written(levels.age, jnp.ones(count, jnp.int32)),
    )
    return levels, place.at[best_new].set(jnp.where(better, worst, place[best_new]).astype(jnp.int32))
