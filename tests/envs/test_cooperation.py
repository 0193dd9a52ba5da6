"""Cooperative tasks: rules compared with plain Python, exact optima with a search over histories, populations."""

import dataclasses
import itertools
import tracemalloc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import partners as reference

import envs
import jaxrl
from envs.cooperation import bayes
from envs.cooperation.foraging import Foraging
from envs.cooperation.learned import learned
from envs.cooperation.levers import LeverGame, LeverParams
from envs.cooperation.partners import RULES, Behaviour, Partner, Scripted, behaviours
from envs.rendering import frame
from jaxrl.algorithms.registry import build, describe

NUM_LEVERS = 3


def population(*members: reference.Member) -> Behaviour:
    parts: Any = zip(*members, strict=True)
    rule, preference, rate = parts
    return Behaviour(np.asarray([RULES.index(each) for each in rule], np.int32), np.int32(preference), np.float32(rate))


def params_of(env: LeverGame, members: Behaviour, weights: Any = None, **changes: Any) -> LeverParams:
    weights = np.ones(len(members.rule), np.float32) if weights is None else np.float32(weights)
    changes.setdefault("max_steps_in_episode", changes.get("num_steps", 8))
    return dataclasses.replace(env.default_params, population=members, weights=weights, **changes)


def play(env: LeverGame, params: LeverParams, replies: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Levers of every member `[P, T]` against replies `[T]`, and the rewards."""

    def one(member: jax.Array, key: jax.Array) -> Any:
        weights = jax.nn.one_hot(member, len(params.weights))
        own = dataclasses.replace(params, weights=weights)
        _, state = env.reset_env(key, own)

        def step(state: Any, xs: Any) -> Any:
            _, state, reward, _, _ = env.step_env(xs[0], state, xs[1], own)
            return state, (state.game.last[1], reward)

        return jax.lax.scan(step, state, (jax.random.split(key, len(replies)), jnp.int32(replies)))[1]

    count = len(params.weights)
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(jnp.arange(count), keys))


@pytest.mark.slow
def test_rules_are_those_of_plain_python() -> None:
    env = LeverGame(num_levers=NUM_LEVERS)
    rules = RULES[:-1]
    params = params_of(env, behaviours(rules, NUM_LEVERS), num_steps=12)
    payoffs = [0.9, 1.0, 1.0]
    for seed in range(4):
        replies = np.random.default_rng(seed).integers(0, NUM_LEVERS + 1, 12)
        replies[4:7] = replies[4]  # a waiting partner joins here
        levers, rewards = play(env, params, replies)
        for row, (rule, preference) in enumerate(itertools.product(rules, range(NUM_LEVERS))):
            history: list[tuple[int, int]] = []
            for time, reply in enumerate(replies):
                lever = reference.pulled((rule, preference, 0.0), history, payoffs)
                assert levers[row, time] == lever, (rule, time)
                paid = payoffs[lever] if lever == reply < NUM_LEVERS else 0.0
                assert rewards[row, time] == np.float32(paid)
                history.append((int(reply), lever))


@pytest.mark.slow
def test_a_rate_is_the_frequency_of_random_levers() -> None:
    env = LeverGame(num_levers=NUM_LEVERS)
    count = 4000
    members = population(("prefer", 1, 0.3), ("random", 0, 0.0))
    members = jax.tree.map(lambda leaf: np.repeat(leaf, count, axis=0), members)
    levers, _ = play(env, params_of(env, members), np.zeros(4))
    for member, rows in ((("prefer", 1, 0.3), levers[:count]), (("random", 0, 0.0), levers[count:])):
        expected = reference.chances(member, [], [0.9, 1.0, 1.0])
        share = np.bincount(rows.ravel(), minlength=NUM_LEVERS + 1) / rows.size
        # Five standard errors of a share of 16,000 independent draws.
        np.testing.assert_allclose(share, expected, atol=5 * 0.5 / np.sqrt(rows.size))


@pytest.mark.parametrize(
    ("members", "weights"),
    [
        ((("prefer", 0, 0.0), ("alternate", 1, 0.0), ("win-stay", 1, 0.0)), (0.5, 0.3, 0.2)),
        ((("wait", 0, 0.0), ("copy", 0, 0.0), ("random", 0, 0.0)), (1, 1, 1)),
        ((("prefer", 0, 0.2), ("copy", 1, 0.4), ("greedy", 0, 0.1)), (2, 1, 1)),
    ],
)
def test_the_optimum_is_the_best_over_all_histories(members: Any, weights: Any) -> None:
    env = LeverGame(num_levers=2)
    params = params_of(env, population(*members), weights, num_steps=4, odd=0.7)
    # float32 parameters are what the environment uses.
    exact = [(rule, lever, float(np.float32(rate))) for rule, lever, rate in members]
    prior: Any = np.float64(np.float32(weights)) / np.sum(np.float64(np.float32(weights)))
    for gamma in (None, 0.8):
        curve: Any = np.ones(4) if gamma is None else gamma ** np.arange(4)
        best = reference.best_return(exact, prior, [float(np.float32(0.7)), 1.0], curve)
        # Posteriors are merged when they agree to 12 digits.
        assert env.optimum(params, gamma) == pytest.approx(best, rel=1e-10)


@pytest.mark.parametrize("gamma", [None, 0.8])
def test_where_members_are_revealed_the_optimum_is_the_mean_of_their_best_responses(gamma: float | None) -> None:
    env = LeverGame(num_levers=2, reveals=True)
    members = (("prefer", 1, 0.0), ("win-stay", 0, 0.25), ("copy", 1, 0.5), ("prefer", 0, 0.1))
    weights = (2, 1, 0, 1)
    params = params_of(env, population(*members), weights, num_steps=4, odd=0.7)
    curve: Any = np.ones(4) if gamma is None else gamma ** np.arange(4)
    payoffs = [float(np.float32(0.7)), 1.0]
    exact = [(rule, lever, float(np.float32(rate))) for rule, lever, rate in members]
    best = np.average([reference.best_return([member], [1.0], payoffs, curve) for member in exact], weights=weights)
    assert env.optimum(params, gamma) == pytest.approx(best, rel=1e-10)
    hidden: Any = LeverGame(num_levers=2).optimum(params, gamma)
    assert hidden < best - 0.1


def test_revealing_the_default_population_raises_the_optimum() -> None:
    short = {"num_steps": 4, "max_steps_in_episode": 4}
    env = LeverGame(reveals=True)
    params = dataclasses.replace(env.default_params, **short)
    # Best responses to prefer, alternate, copy and win-stay are paid in every step, with a quarter of the payoffs 0.9;
    # those to wait in the last two, to greedy in every one, and to random ones in a quarter of them.
    assert env.optimum(params) == pytest.approx((4 * 3.9 + 2 + 4 + 1) / 7, rel=1e-6)
    assert LeverGame().optimum(params) == pytest.approx(2.509, abs=5e-4)


def test_optima_of_known_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    env = LeverGame(num_levers=4)
    known = params_of(env, population(("prefer", 2, 0.0)))
    assert env.optimum(known) == pytest.approx(8)
    either = params_of(env, population(("prefer", 2, 0.0), ("prefer", 3, 0.0)), num_steps=5)
    assert env.optimum(either) == pytest.approx(4.5)  # the first pull is a guess
    rewards = bayes.best_rewards(either.population, np.ones(2), np.array([0.9, 1, 1, 1]), np.ones(5))
    np.testing.assert_allclose(rewards, [0.5, 1, 1, 1, 1])
    # A partner of weight 0 has no effect, and equal partners are merged.
    assert env.optimum(params_of(env, population(("prefer", 2, 0.0), ("copy", 1, 0.0)), (1, 0))) == pytest.approx(8)
    assert envs.make("cooperation/levers-self-play").optimum() == pytest.approx(8)
    many = params_of(env, behaviours(RULES, 4, 0.25))
    monkeypatch.setattr(bayes, "MAX_BELIEFS", 100)
    with pytest.raises(ValueError, match=r"at most 100 beliefs, got .*; take fewer steps, fewer partners, or "):
        env.optimum(many)


def test_too_many_beliefs_are_refused_before_their_arrays_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bayes, "MAX_BELIEFS", 5_000)
    members = population(("prefer", 0, 0.1), ("prefer", 1, 0.2))
    bayes.action_chances(members, np.ones(10))  # compiled before memory is measured
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="optimum takes at most 5000 beliefs, got 7260 after 3 steps"):
            bayes.best_rewards(members, np.ones(2), np.ones(10), np.ones(5))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The probabilities of actions take 9 MB; with a row for every belief, action and reply it was 57 MB.
    assert peak < 20e6


def test_a_population_changes_without_a_further_compilation() -> None:
    env = LeverGame(num_levers=NUM_LEVERS)
    traces = []

    def first(params: LeverParams) -> Any:
        traces.append(1)
        return env.reset_env(jax.random.key(0), params)[1].member

    jitted = jax.jit(first)
    params = params_of(env, behaviours(RULES, NUM_LEVERS))
    for row in (3, 20):
        other = jax.tree.map(lambda leaf: np.roll(leaf, 5), params.population)
        weights = np.float32(np.arange(21) == row)
        assert jitted(dataclasses.replace(params, population=other, weights=weights)) == row
    assert len(traces) == 1


def test_forms_and_names() -> None:
    inside, both = envs.make("cooperation/levers", num_levers=3), envs.make("cooperation/levers-self-play")
    assert inside.name == "cooperation/levers" and both.name == "cooperation/levers-self-play"
    for env in (inside, both):
        algo = jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=2, num_steps=4, num_minibatches=1))
        assert build(describe(algo)).env == env
    obs, state = both.reset(jax.random.key(0))
    _, state, reward, *_ = both.step(jax.random.key(0), state, jnp.int32([1, 1]))
    assert obs.shape == (2, 11) and np.array_equal(reward, [1, 1])
    _, _, reward, *_ = both.step(jax.random.key(0), state, jnp.int32([4, 4]))
    assert np.array_equal(reward, [0, 0])  # no lever
    assert both.behaviour_space() is None
    assert frame(both, state, both.default_params).shape == (240, 640, 3)


@dataclasses.dataclass(frozen=True)
class Stubborn(Partner):
    """A user-defined partner, which always pulls one lever."""

    def population(self, task: Any) -> Any:
        return np.arange(task.num_options, dtype=np.int32)

    def act(self, key: Any, task: Any, state: Any, obs: Any, member: Any, memory: Any, params: Any) -> Any:
        return member, memory

    def behaviour_space(self, task: Any) -> Any:
        return envs.spaces.Tuple((envs.spaces.Discrete(task.num_options),))

    def behaviour(self, member: Any) -> Any:
        return (member,)


@pytest.mark.slow
def test_a_partner_of_ones_own_is_a_small_class() -> None:
    env = LeverGame(num_levers=3, partner=Stubborn())
    envs.check(env, progress=False)
    assert env.optimum() is None
    levers, _ = play(env, env.default_params, np.zeros(3))
    np.testing.assert_array_equal(levers, [[0] * 3, [1] * 3, [2] * 3])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"population": behaviours((), 4), "weights": np.zeros(0)}, "must have at least one partner, got none"),
        (
            {"population": np.zeros(28)},
            r"must be that of Scripted in cooperation/levers, with the parts \.rule, \.preference, \.rate, got ndarray "
            "with the parts array$",
        ),
        ({"population": {"rule": np.zeros(28)}}, r"\.rate, got dict with the parts \['rule'\]$"),
        ({"population": ()}, r"\.rate, got tuple with the parts none$"),
        (
            {"population": behaviours(RULES, 3)},
            r"rule must have the shape \(28,\) for 28 weights, got \(21,",
        ),
        ({"population": behaviours(RULES, 4, 1.5)}, r"env\.population\.rate must lie in \[0, 1\], got 1.5"),
        (
            {"population": Behaviour(np.zeros(28), np.zeros(28, np.int32), np.zeros(28))},
            r"env\.population\.rule must be of an integer type, got float64",
        ),
        (
            {"population": Behaviour(np.zeros(28, np.int32), np.full(28, 1.5), np.zeros(28))},
            r"env\.population\.preference must be of an integer type, got float64",
        ),
        ({"weights": -np.ones(28)}, r"env\.weights must be at least 0 and finite"),
        ({"num_steps": 0}, r"env\.num_steps must be at least 1"),
    ],
)
def test_a_population_that_does_not_fit_is_refused(change: dict[str, Any], sentence: str) -> None:
    env = LeverGame()
    with pytest.raises(ValueError, match=sentence):
        env.check_params(dataclasses.replace(env.default_params, **change))


def test_networks_of_other_parts_are_refused_with_both_lists() -> None:
    def trained(params: Any) -> Any:
        return learned(lambda params: (), lambda key, params, memory, obs: (jnp.int32(0), memory), params)

    partner, _ = trained({"kernel": np.ones((2, 3))})
    _, population = trained({"bias": np.ones(2), "weight": np.ones((2, 3))})
    env = LeverGame(partner=partner)
    params = dataclasses.replace(env.default_params, population=population)
    sentence = (
        r"must be that of Learned in cooperation/levers, with the parts \['index'\], \['params'\]\['kernel'\], got "
        r"dict with the parts \['index'\], \['params'\]\['bias'\], \['params'\]\['weight'\]$"
    )
    with pytest.raises(ValueError, match=sentence):
        env.check_params(params)


def test_partners_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rules must be one of prefer, .*, got 'copycat'"):
        Scripted(("copycat",))
    with pytest.raises(ValueError, match="rules takes at least one rule"):
        Scripted(())
    with pytest.raises(ValueError, match="partner must be one of scripted, got 'script'"):
        LeverGame(partner="script")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"partner takes 'scripted', an .*Partner, or None for self-play, got 3"):
        LeverGame(partner=3)  # type: ignore[arg-type]
    env = envs.make("cooperation/levers-self-play")
    with pytest.raises(ValueError, match=r"env\.population has no effect in self-play"):
        env.check_params(dataclasses.replace(env.default_params, weights=np.ones(2)))


@pytest.mark.slow
def test_foraging_and_its_rules_are_those_of_plain_python() -> None:
    """The agent pursues a random kind, and stays at a fruit for a while; both agents are compared step by step."""
    env, length, patience = Foraging(size=5, num_kinds=3), 120, 3
    rules = RULES[:-1]
    members = behaviours(rules, 3)
    count = len(members.rule)
    params = dataclasses.replace(
        env.default_params,
        population=members,
        weights=np.ones(count, np.float32),
        patience=float(patience),
        fruit=2.0,
    )
    names = [(rule, preference, 0.0) for rule, preference in itertools.product(rules, range(3))]
    target = np.repeat(np.random.default_rng(0).integers(0, 3, length // 10), 10)

    def one(member: jax.Array, key: jax.Array) -> Any:
        own = dataclasses.replace(params, weights=jax.nn.one_hot(member, count))
        _, state = env.reset_env(key, own)

        def step(state: Any, xs: Any) -> Any:
            action = env.to_action(state.game, 0, xs[1], own)
            _, after, reward, terminated, _ = env.step_env(xs[0], state, action, own)
            return after, (state.game, after.game, reward, terminated)

        return jax.lax.scan(step, state, (jax.random.split(key, length), jnp.int32(target)))[1]

    runs = jax.jit(jax.vmap(one))(jnp.arange(count), jax.random.split(jax.random.key(0), count))
    before, after, rewards, terminated = jax.tree.map(np.asarray, runs)
    assert not terminated.any() and set(np.unique(rewards)) == {0.0, 2.0}
    for row, member in enumerate(names):
        partner = reference.Forager(member, 3, patience)
        for time in range(length):
            places, fruit = before.place[row, time], [tuple(cell) for cell in before.fruit[row, time]]
            moved = np.add(places[1], partner.move(tuple(places[1]), fruit))
            np.testing.assert_array_equal(after.place[row, time, 1], moved, str((member, time)))
            at = [fruit.index(tuple(place)) if tuple(place) in fruit else None for place in after.place[row, time]]
            eaten = at[0] is not None and at[0] == at[1]
            assert rewards[row, time] == (2.0 if eaten else 0.0)
            grown = [tuple(cell) for cell in after.fruit[row, time]]
            for kind in range(3):
                new = eaten and kind == at[0]
                assert (grown[kind] != fruit[kind]) == new
                assert not new or grown[kind] not in {*fruit, *map(tuple, after.place[row, time])}
            partner.see(at[1], at[0], eaten)
    eats = rewards.sum(axis=1) > 0
    assert eats[[names.index(("copy", 0, 0.0)), names.index(("wait", 0, 0.0))]].all()


@pytest.mark.slow
def test_foraging_stays_on_its_grid() -> None:
    env = envs.make("cooperation/foraging-self-play", size=3, num_kinds=1)
    obs, state = env.reset(jax.random.key(0))
    corners = {1: 0, 2: 2, 3: 0, 4: 2}
    for action, end in corners.items():
        for _ in range(3):
            obs, state, reward, *_ = env.step(jax.random.key(1), state, jnp.int32([action, 0]))
        assert int(state.place[0][0 if action < 3 else 1]) == end and reward.shape == (2,)
    assert obs.shape == (2, 16) and frame(env, state, env.default_params).shape == (400, 400, 3)
    assert env.optimum() is None
    with pytest.raises(ValueError, match="num_kinds must be a whole number from 1 to 2, as fruits and agents need"):
        Foraging(size=2, num_kinds=3)
    with pytest.raises(ValueError, match=r"env\.patience must be above 0"):
        env.check_params(dataclasses.replace(env.default_params, patience=0.0))
