"""Levels against a slow float64 reference, a level that is played again, and training with a buffer of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_jit import quick_jit

import envs
import jaxrl
from envs import wrappers
from jaxrl.learning.levels import NEW, draw_levels, init_levels, replay_chances, scored

NUM_ENVS, POOL, NUM_STEPS, NUM_LEVELS = 3, 2, 12, 5
Words = tuple[int, ...]


def reference_chances(score: np.ndarray, age: np.ndarray, temperature: float, staleness: float) -> np.ndarray:
    """Chances by sorting in Python, in float64."""
    full = [index for index in range(len(score)) if np.isfinite(score[index])]
    best_first = sorted(full, key=lambda index: -score[index])
    weights = {index: float(rank) ** (-1.0 / temperature) for rank, index in enumerate(best_first, start=1)}
    chances = np.zeros(len(score))
    for index in full:
        chances[index] = (1 - staleness) * weights[index] / sum(weights.values())
        chances[index] += staleness * float(age[index]) / float(sum(age[full]))
    return chances


@pytest.mark.parametrize(("temperature", "staleness"), [(0.3, 0.1), (0.05, 0.0), (2.0, 0.7), (1.0, 1.0)])
@pytest.mark.parametrize("filled", [1, 6, 40])
def test_chances_are_those_of_ranks_and_ages(temperature: float, staleness: float, filled: int) -> None:
    draws = np.random.default_rng(filled)
    score = np.where(draws.permutation(40) < filled, draws.normal(size=40), -np.inf).astype(np.float32)
    age = draws.integers(1, 9, 40).astype(np.int32)
    chances = replay_chances(jnp.asarray(score), jnp.asarray(age), temperature, staleness)
    expected = reference_chances(score, age, temperature, staleness)
    np.testing.assert_allclose(chances, expected, rtol=1e-4, atol=1e-7)  # exponents of up to 20 log(40)
    assert abs(float(jnp.sum(chances)) - 1) < 1e-5


def test_chances_of_an_empty_buffer_are_0() -> None:
    chances = replay_chances(jnp.full(4, -jnp.inf), jnp.ones(4, jnp.int32), 0.3, 0.1)
    np.testing.assert_array_equal(chances, np.zeros(4))


class Reference:
    """A buffer as a dictionary of levels by their words, `[score, best, age]`, updated episode by episode."""

    def __init__(self, kind: str, first: list[Words]):
        self.kind, self.levels = kind, dict[Words, list[float]]()
        self.playing = [(words, True) for words in first]  # whether the level is new
        self.sums = [[0.0, 0, 0.0] for _ in first]
        self.rewards: list[dict[int, float]] = [{} for _ in first]  # of the agents that have taken part
        self.ended = self.replayed = 0

    def roll(self, pool: list[list[tuple[Words, bool]]], steps: dict[str, np.ndarray]) -> None:
        episodes: dict[tuple[Words, bool], list[Any]] = {}
        self.ended = self.replayed = 0
        known = set(self.levels)
        for env in range(NUM_ENVS):
            used = 0
            for t in range(NUM_STEPS):
                for agent in range(2):
                    if steps["active"][t, env, agent]:
                        value = steps["value"][t, env, agent]
                        gain = max(float(steps["advantage"][t, env, agent]), 0.0)
                        self.sums[env][0] += gain if self.kind == "positive-value-loss" else float(value)
                        self.sums[env][1] += 1
                    if steps["active"][t, env, agent] or agent in self.rewards[env]:
                        before = self.rewards[env].get(agent, 0.0)
                        self.rewards[env][agent] = before + float(steps["reward"][t, env, agent])
                self.sums[env][2] = sum(self.rewards[env].values()) / max(len(self.rewards[env]), 1)
                if steps["done"][t, env]:
                    episodes.setdefault(self.playing[env], []).append(self.sums[env])
                    self.ended += 1
                    self.replayed += self.playing[env][0] in known
                    self.playing[env], self.sums[env], self.rewards[env] = pool[env][used % POOL], [0.0, 0, 0.0], {}
                    used += 1
        self._update(episodes)

    def _update(self, episodes: dict[tuple[Words, bool], list[Any]]) -> None:
        for level in self.levels.values():
            level[2] += 1
        merged: dict[Words, list[Any]] = {}
        for (words, is_new), ended in episodes.items():
            if is_new or words in self.levels:
                merged.setdefault(words, []).extend(ended)
        candidates = {}
        for words, ended in merged.items():
            mean = sum(each[0] for each in ended) / max(sum(each[1] for each in ended), 1)
            best = max(each[2] for each in ended)
            if words in self.levels:
                best = max(best, self.levels[words][1])
            score = mean if self.kind == "positive-value-loss" else best - mean
            (self.levels if words in self.levels else candidates)[words] = [score, best, 1]
        ranked = sorted((self.levels | candidates).items(), key=lambda item: -item[1][0])
        self.levels = dict(ranked[:NUM_LEVELS])
        self.playing = [(words, is_new and words not in self.levels) for words, is_new in self.playing]


def as_words(keys: jax.Array) -> list[Words]:
    return [tuple(words) for words in np.asarray(jax.random.key_data(keys)).tolist()]


def random_steps(draws: np.random.Generator) -> dict[str, np.ndarray]:
    shape = NUM_STEPS, NUM_ENVS, 2
    steps = {name: draws.normal(size=shape).astype(np.float32) for name in ("advantage", "value", "reward")}
    active = draws.random(shape) < 0.8
    active[:, 0, 1] = False  # an empty place
    return steps | {"active": active, "done": draws.random(shape[:2]) < 0.1}


@pytest.mark.parametrize("kind", ["positive-value-loss", "max-return"])
def test_scores_and_buffer_are_those_of_a_dictionary(kind: Any) -> None:
    draws, first = np.random.default_rng(1), jax.random.split(jax.random.key(0), NUM_ENVS)
    levels, reference = init_levels(NUM_LEVELS, first, (2,)), Reference(kind, as_words(first))
    dropped, update = 0, quick_jit(lambda levels, drawn, *steps: scored(levels, drawn, kind, *steps))
    for turn in range(25):
        drawn = draw_levels(levels, jax.random.key(turn), POOL, 0.8, 1.0, 0.5)
        steps = random_steps(draws)
        names = ("done", "advantage", "value", "reward", "active")
        levels, replayed = update(levels, drawn, *(jnp.asarray(steps[name]) for name in names))
        new = np.asarray(drawn.places) == NEW
        keys = as_words(drawn.keys.reshape(-1))
        pool = [[(keys[env * POOL + i], bool(new[env, i])) for i in range(POOL)] for env in range(NUM_ENVS)]
        reference.roll(pool, steps)
        words = [tuple(each) for each in np.asarray(levels.words).tolist()]
        full = np.isfinite(np.asarray(levels.score))
        assert {each for each, there in zip(words, full, strict=True) if there} == set(reference.levels)
        for index in np.flatnonzero(full):
            score, best, age = reference.levels[words[index]]
            np.testing.assert_allclose([levels.score[index], levels.best[index]], [score, best], rtol=0, atol=1e-5)
            assert levels.age[index] == age
        assert as_words(levels.playing.words) == [level for level, _ in reference.playing]
        rewards = [sum(of_agents.values()) for of_agents in reference.rewards]
        np.testing.assert_allclose(levels.playing.gain, rewards, rtol=0, atol=1e-5)
        assert replayed == pytest.approx(reference.replayed / max(reference.ended, 1))
        dropped += sum(not is_new and level not in reference.levels for level, is_new in reference.playing)
    assert np.all(np.isfinite(levels.score)) and dropped > 0 and np.max(levels.age) > 2


def test_levels_are_drawn_with_their_chances() -> None:
    levels = init_levels(4, jax.random.split(jax.random.key(0), 50))
    words = jax.random.key_data(jax.random.split(jax.random.key(9), 4))
    score, age = jnp.array([0.5, -jnp.inf, 2.0, 1.0]), jnp.array([3, 1, 1, 2], jnp.int32)
    levels = levels._replace(words=words, score=score, age=age)
    drawn = draw_levels(levels, jax.random.key(3), 200, 0.8, 0.5, 0.3)
    places, keys = np.asarray(drawn.places), np.asarray(jax.random.key_data(drawn.keys))
    share = np.mean(places != NEW)
    assert abs(share - 0.8 * 0.75) < 5 * np.sqrt(0.24 / places.size)  # three of four places are filled
    frequency = np.bincount(places[places != NEW], minlength=4) / np.sum(places != NEW)
    expected = reference_chances(np.asarray(score), np.asarray(age), 0.5, 0.3)
    np.testing.assert_allclose(frequency, expected, rtol=0, atol=5 * 0.5 / np.sqrt(np.sum(places != NEW)))
    assert frequency[1] == 0
    np.testing.assert_array_equal(keys[places != NEW], np.asarray(words)[places[places != NEW]])
    fresh = keys[places == NEW]
    assert len(np.unique(fresh, axis=0)) == len(fresh)


VARIED = wrappers.randomise(envs.make("cartpole"), {"length": jaxrl.Uniform(0.25, 1.0)})
SMALL: dict[str, Any] = {"num_envs": 4, "num_steps": 32, "hidden": (8,)}


def agent(levels: str = "positive-value-loss", **fields: Any) -> jaxrl.Algorithm:
    chosen = {"levels": levels} if levels == "draws" else {"levels": levels, "num_levels": 8}
    return jaxrl.a2c(VARIED, jaxrl.A2CConfig(**SMALL, **chosen, **fields))


def after(algo: jaxrl.Algorithm, iterations: int) -> Any:
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    state, step = quick_jit(algo.init)(jax.random.key(5), hparams, params), quick_jit(algo.step)
    for iteration in range(iterations):
        key = jax.random.fold_in(jax.random.key(6), iteration)
        state, metrics = step(key, jnp.int32(iteration), state, hparams, params)
    return state, metrics


def test_an_episode_is_that_of_its_level() -> None:
    algo = agent()
    state, metrics = after(algo, 6)
    assert metrics["replayed_episodes"] > 0
    keys = jax.random.wrap_key_data(state.levels.playing.words)
    starts = jax.vmap(algo.env.reset_env, in_axes=(0, None))(keys, algo.env.default_params)[1]
    np.testing.assert_array_equal(state.carry.state.drawn["length"], starts.drawn["length"])
    assert len(np.unique(starts.drawn["length"])) > 1


@pytest.mark.slow
def test_places_without_people_take_no_part_in_levels() -> None:
    crowd = envs.make("crowd/circle", num_agents=3)
    algo = jaxrl.a2c(crowd, jaxrl.A2CConfig(num_envs=2, num_steps=4, hidden=(4,), levels="max-return", num_levels=4))
    hparams, params = algo.prepare(algo.hparams), crowd.default_params.replace(num_present=2)
    state = quick_jit(algo.init)(jax.random.key(0), hparams, params)
    assert not np.any(state.levels.playing.took_part)
    state, _ = quick_jit(algo.step)(jax.random.key(1), jnp.int32(0), state, hparams, params)
    np.testing.assert_array_equal(state.levels.playing.took_part, [[True, True, False]] * 2)


def test_without_replay_training_is_the_usual_one() -> None:
    algo = agent()
    never = algo._replace(hparams=algo.hparams.replace(level_replay=0.0))
    leaves = [jax.tree.leaves(after(each, 3)[0].weights) for each in (agent("draws"), never, algo)]
    for usual, same in zip(leaves[0], leaves[1], strict=True):
        np.testing.assert_array_equal(usual, same)
    assert any(np.any(usual != other) for usual, other in zip(leaves[0], leaves[2], strict=True))


@pytest.mark.slow
def test_training_resumes_bit_for_bit(tmp_path: Any) -> None:
    algo, options = agent("max-return"), {"seeds": 2, "eval_episodes": 1, "progress": False}
    whole = jaxrl.train(algo, env_steps=1024, evals=2, **options)
    jaxrl.train(algo, env_steps=512, evals=1, out=tmp_path / "run", **options)
    longer = jaxrl.resume(tmp_path / "run", env_steps=1024, algo=algo)
    for one, other in zip(jax.tree.leaves(whole.policies), jax.tree.leaves(longer.policies), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: agent("regret"), "levels must be one of draws, positive-value-loss, max-return, got 'regret'"),
        (
            lambda: jaxrl.PPOConfig(num_levels=8),
            "num_levels has no effect with levels='draws', got 8; leave it out",
        ),
        (lambda: jaxrl.PPOConfig(levels="max-return", num_levels=0), "num_levels must be"),
        (
            lambda: agent("max-return", normalise_reward=True),
            "levels='max-return' takes normalise_reward=False, got True",
        ),
        (
            lambda: jaxrl.ReinforceConfig(levels="max-return"),
            "levels takes 'draws' in REINFORCE, which learns from complete episodes alone, got 'max-return'",
        ),
        (lambda: jaxrl.PPOHParams(level_temperature=0.0), "level_temperature must lie in"),
        (lambda: jaxrl.PPOHParams(level_replay=1.5), r"level_replay must lie in \[0, 1\], got 1.5"),
    ],
)
def test_values_out_of_range_are_refused(build: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()


def test_a_buffer_is_of_one_device() -> None:
    assert agent().sharded is None and agent("draws").sharded is not None
