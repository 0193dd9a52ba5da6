"""The optima of small decision problems: against all policies in slow Python, and against episodes of the tasks."""

import functools
import itertools
from collections.abc import Callable
from math import comb, exp, factorial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs import base
from envs.base import OPTIMUM_KINDS
from envs.decision import dynamic_programming
from envs.decision.inventory import Inventory
from envs.decision.kelly import Kelly
from envs.decision.queue import Queue
from envs.decision.replacement import Replacement
from envs.decision.river import River
from envs.decision.stopping import Stopping
from envs.rendering import Scene
from jaxrl.discounts.parsing import Hyperbolic, as_discount

Outcomes = list[tuple[float, float, Any]]  # probability, reward and next state; None where the episode ends
DISCOUNTS = {
    "undiscounted": None,
    "exponential": 0.8,
    "hyperbolic": Hyperbolic(k=0.8),
    "beta": as_discount("beta:mu=0.7,eta=1.5"),
}


def curve_of(discount: Any, steps: int) -> np.ndarray:
    if discount is None:
        return np.ones(steps)
    return (
        discount ** np.arange(steps)
        if isinstance(discount, float)
        else np.asarray(discount.curve(steps), float)[:steps]
    )


# --- the tasks once more, in plain Python ------------------------------------------------


class Model(NamedTuple):
    env: Any
    params: Any
    states: list[Any]
    start: Any
    actions: Callable[[Any], list[int]]
    outcomes: Callable[[Any, int], Outcomes]
    state_of: Callable[[Any], Any]  # the environment's state with the value of a state of the model


def river() -> Model:
    env: Any = River(num_positions=3)
    params = env.default_params.replace(
        advance=0.5, slip=0.1, bank_reward=0.2, source_reward=3.0, num_steps=4, max_steps_in_episode=9
    )

    def outcomes(position: int, action: int) -> Outcomes:
        if action == 0:
            return [(1.0, 0.2 if position == 0 else 0.0, max(position - 1, 0))]
        reward = 3.0 if position == 2 else 0.0
        moves = ((0.5, min(position + 1, 2)), (0.1, max(position - 1, 0)), (0.4, position))
        return [(chance, reward, after) for chance, after in moves]

    return Model(env, params, [0, 1, 2], 0, lambda _: [0, 1], outcomes, lambda at: {"position": at})


def replacement() -> Model:
    env: Any = Replacement(num_levels=3)
    params = env.default_params.replace(
        wear_probability=0.9, output=1.0, replacement_cost=0.8, failure_cost=0.9, num_steps=4, max_steps_in_episode=4
    )

    def outcomes(wear: int, action: int) -> Outcomes:
        if action == 1:
            return [(1.0, -0.8 if wear < 2 else -1.7, 0)]
        return [(0.9, 1 - wear / 2, wear + 1), (0.1, 1 - wear / 2, wear)]

    def actions(wear: int) -> list[int]:
        return [0, 1] if wear < 2 else [1]

    return Model(env, params, [0, 1, 2], 0, actions, outcomes, lambda wear: {"wear": wear})


def inventory(unmet: Any) -> Model:
    capacity, order_cost, shortage_cost = (2, 0.9, 2.0) if unmet == "lost" else (1, 0.7, 0.4)
    env: Any = Inventory(capacity=capacity, max_demand=2, unmet=unmet)
    params = env.default_params.replace(
        mean_demand=1.2,
        price=1.1,
        order_cost=order_cost,
        holding_cost=0.25,
        shortage_cost=shortage_cost,
        num_steps=3,
        max_steps_in_episode=5,
    )
    chances = [exp(-1.2) * 1.2**size / factorial(size) for size in range(3)]

    def outcomes(stock: int, order: int) -> Outcomes:
        possible = []
        for demand, chance in enumerate(chances):
            ready, reward = stock + order, -order_cost * order
            for _ in range(demand):  # one customer after another
                if ready > 0 or (unmet == "waits" and ready > -capacity):
                    ready, reward = ready - 1, reward + 1.1
                else:
                    reward -= shortage_cost  # lost
            if ready < 0:
                reward -= shortage_cost * -ready
            possible.append((chance / sum(chances), reward - 0.25 * max(ready, 0), ready))
        return possible

    least = 0 if unmet == "lost" else -capacity
    return Model(
        env,
        params,
        list(range(least, capacity + 1)),
        0,
        lambda stock: list(range(capacity - stock + 1)),
        outcomes,
        lambda stock: {"stock": stock},
    )


def queue() -> Model:
    env: Any = Queue(jobs=(2, 1))
    costs, rates = (1.0, 1.7), (0.75, 0.5)
    params = env.default_params.replace(
        costs=np.array(costs), rates=np.array(rates), num_steps=4, max_steps_in_episode=4
    )

    def outcomes(jobs: tuple[int, int], served: int) -> Outcomes:
        less = (jobs[0] - (served == 0), jobs[1] - (served == 1))
        possible = []
        for chance, after in ((rates[served], less), (1 - rates[served], jobs)):
            reward = -(after[0] * costs[0] + after[1] * costs[1])
            possible.append((chance, reward, after if after != (0, 0) else None))
        return possible

    states = [(first, second) for first in range(3) for second in range(2) if first + second > 0]

    def actions(jobs: tuple[int, int]) -> list[int]:
        return [index for index in (0, 1) if jobs[index]]

    return Model(env, params, states, (2, 1), actions, outcomes, lambda jobs: {"jobs": list(jobs)})


MODELS: dict[str, Callable[[], Model]] = {
    "river": river,
    "replacement": replacement,
    "inventory": functools.partial(inventory, "lost"),
    "inventory that waits": functools.partial(inventory, "waits"),
    "queue": queue,
}


class Best(NamedTuple):
    precommitted: float
    stationary: float
    sophisticated: list[float]


@functools.cache
def best_of_all(name: str, discount_name: str) -> Best:
    """The values of the best policies among all: no dynamic programming, but every policy by forward probabilities."""
    model, steps = MODELS[name](), 3 if name.startswith("inventory") else 4
    curve = curve_of(DISCOUNTS[discount_name], steps)
    free = [(time, state) for time in range(steps) for state in model.states]
    choices = [model.actions(state) for _, state in free]

    def rewards(policy: dict[Any, int], time: int, state: Any, first: int) -> list[float]:
        """The expected reward of each step from here on, of a first action and of a policy after it."""
        flow, means = {state: 1.0}, []
        for later in range(time, steps):
            mean, after = 0.0, dict.fromkeys(model.states, 0.0)
            for at, chance in flow.items():
                for part, reward, to in model.outcomes(at, first if later == time else policy[later, at]):
                    mean += chance * part * reward
                    if to is not None:
                        after[to] += chance * part
            means.append(mean)
            flow = {at: chance for at, chance in after.items() if chance}
        return means

    def worth(means: list[float]) -> float:
        return float(sum(weight * mean for weight, mean in zip(curve, means, strict=False)))

    best, same, stable = -np.inf, -np.inf, []
    for actions in itertools.product(*choices):
        policy = dict(zip(free, actions, strict=True))
        value = worth(rewards(policy, 0, model.start, policy[0, model.start]))
        best = max(best, value)
        if all(policy[time, state] == policy[0, state] for time, state in free):
            same = max(same, value)
        if all(
            worth(rewards(policy, time, state, policy[time, state]))
            >= max(worth(rewards(policy, time, state, other)) for other in model.actions(state)) - 1e-12
            for time, state in reversed(free)
        ):
            stable.append(value)
    return Best(best, same, stable)


@pytest.mark.parametrize("discount", DISCOUNTS)
@pytest.mark.parametrize("name", MODELS)
def test_the_optimum_is_that_of_all_policies(name: str, discount: str) -> None:
    model, best = MODELS[name](), best_of_all(name, discount)
    actual = {kind: model.env.optimum(model.params, DISCOUNTS[discount], kind) for kind in OPTIMUM_KINDS}
    assert actual["precommitted"] == pytest.approx(best.precommitted, abs=1e-6)  # curves of jaxrl are in float32
    assert actual["stationary"] == pytest.approx(best.stationary, abs=1e-6)
    assert np.ptp(best.sophisticated) < 1e-9
    assert actual["sophisticated"] == pytest.approx(best.sophisticated[0], abs=1e-6)


def test_the_kinds_differ_in_these_problems() -> None:
    """Otherwise the test above would not tell them apart."""
    for name in set(MODELS) - {"queue"}:
        best = best_of_all(name, "hyperbolic")
        assert best.precommitted > max(best.stationary, *best.sophisticated) + 0.01
        assert abs(best.stationary - best.sophisticated[0]) > 0.01


@pytest.mark.parametrize("name", MODELS)
def test_sophisticated_induction_is_precommitted_under_exponential_discounts(name: str) -> None:
    """The environments take the one for the other there, so that the induction itself is tested."""
    model = MODELS[name]()
    for gamma in (1.0, 0.9, 0.3, 0.0):
        problem, curve = model.env.problem(model.params), gamma ** np.arange(7)
        plans = (dynamic_programming.precommitted(problem, curve), dynamic_programming.sophisticated(problem, curve))
        assert plans[0].value == pytest.approx(plans[1].value, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", MODELS)
def test_steps_have_the_probabilities_and_rewards_of_the_model(name: str) -> None:
    """Each state and action: the frequencies of 20,000 steps within five standard errors."""
    model, draws = MODELS[name](), 20_000
    reset = model.env.reset_env(jax.random.key(0), model.params)[1]

    @jax.jit
    def step(keys: jax.Array, state: Any, action: jax.Array) -> Any:
        _, after, reward, terminated, _ = jax.vmap(model.env.step_env, (0, None, None, None))(
            keys, state, action, model.params
        )
        return after, reward, terminated

    allowed = jax.jit(model.env.action_mask)
    for number, state in enumerate(model.states):
        names = {field: jnp.asarray(value, jnp.int32) for field, value in model.state_of(state).items()}
        at = reset.replace(**names)
        mask = allowed(at, model.params)
        if mask is not None:
            assert np.flatnonzero(mask).tolist() == model.actions(state)
        for action in model.actions(state):
            keys = jax.random.split(jax.random.key(100 * number + action), draws)
            after, reward, terminated = step(keys, at, jnp.int32(action))
            values = np.stack([np.asarray(getattr(after, field)) for field in names], -1).reshape(draws, -1)
            outcomes = model.outcomes(state, action)
            for to in {outcome[2] for outcome in outcomes}:
                chance = sum(part for part, _, each in outcomes if each == to)
                hits = np.asarray(terminated)
                if to is not None:
                    hits = np.all(values == np.ravel(list(model.state_of(to).values())), axis=1)
                error = np.sqrt(max(chance * (1 - chance), 0) / draws)
                assert abs(np.mean(hits) - chance) <= 5 * error + 1e-9, (state, action, to)
            mean = sum(part * paid for part, paid, _ in outcomes)
            spread = np.sqrt(max(sum(part * paid**2 for part, paid, _ in outcomes) - mean**2, 0) / draws)
            assert abs(np.mean(np.asarray(reward, float)) - mean) <= 5 * spread + 1e-6, (state, action)


# --- episodes of the default tasks -------------------------------------------------------


def index_of(env: Any, state: Any) -> Any:
    """The index in the decision problem of a state of the environment."""
    if isinstance(env, Queue):
        size = [number + 1 for number in env.jobs]
        return sum(state.jobs[i] * int(np.prod(size[i + 1 :])) for i in range(len(size)))
    return getattr(state, {River: "position", Replacement: "wear", Inventory: "stock"}[type(env)])


@functools.partial(jax.jit, static_argnums=(0, 1))
def weighted_returns(env: Any, act: Any, key: jax.Array, plan: jax.Array, curve: jax.Array) -> jax.Array:
    """Weighted returns of 8,192 episodes, in which `act` chooses by the plan, the state and the time."""
    params = env.default_params

    def episode(key: jax.Array) -> jax.Array:
        first, key = jax.random.split(key)

        def step(carry: Any, weight: jax.Array) -> Any:
            state, alive, key = carry
            key, own = jax.random.split(key)
            action = act(env, state, plan)
            _, state, reward, terminated, _ = env.step_env(own, state, action, params)
            return (state, alive & ~terminated, key), jnp.where(alive, weight * reward, 0.0)

        carry = env.reset_env(first, params)[1], jnp.ones((), bool), key
        return jax.lax.scan(step, carry, curve)[1].sum()

    return jax.vmap(episode)(jax.random.split(key, 8192))


def by_table(env: Any, state: Any, plan: jax.Array) -> jax.Array:
    return plan[state.time, index_of(env, state)]


def by_threshold(env: Any, state: Any, plan: jax.Array) -> jax.Array:
    return (state.offer >= plan[state.time]).astype(jnp.int32)


def by_share(env: Any, state: Any, plan: jax.Array) -> jax.Array:
    return plan[state.time][None]


def check_mean(returns: Any, value: float) -> None:
    returns = np.asarray(returns, float)
    assert abs(returns.mean() - value) <= 5 * returns.std() / np.sqrt(len(returns)) + 1e-5 * abs(value)


@pytest.mark.parametrize("name", ["river", "replacement", "inventory", "queue"])
def test_episodes_under_a_plan_have_its_value(name: str) -> None:
    env: Any = envs.make(name)
    for discount in (None, Hyperbolic(k=0.3)):
        for kind in OPTIMUM_KINDS:
            plan = env.plan(None, discount, kind)
            curve = env.weights(None, discount)
            actions = jnp.asarray(plan.actions, jnp.int32)
            returns = weighted_returns(env, by_table, jax.random.key(1), actions, jnp.asarray(curve, jnp.float32))
            check_mean(returns, env.optimum(None, discount, kind))


# --- stopping ----------------------------------------------------------------------------


def test_the_undiscounted_value_of_offers_is_mosers() -> None:
    env: Any = Stopping()
    values = [0.5]
    for _ in range(19):
        values.append((1 + values[-1] ** 2) / 2)
    assert env.optimum() == pytest.approx(values[19], rel=1e-14)
    np.testing.assert_allclose(env.thresholds(), [*values[18::-1], 0.0], rtol=1e-14)
    params = env.default_params.replace(max_offer=3.0, max_steps_in_episode=2)
    assert env.optimum(params) == pytest.approx(3 * 0.625, rel=1e-14)


@pytest.mark.parametrize("discount", [0.7, Hyperbolic(k=0.8), as_discount("beta:mu=0.7,eta=1.5")], ids=str)
def test_thresholds_are_the_best_of_a_grid(discount: Any) -> None:
    """Three offers, valued by sums over 400 offers; an error of h in a threshold costs less than h squared."""
    env: Any = Stopping()
    h = 1 / 400
    params = env.default_params.replace(num_steps=3, max_steps_in_episode=3)
    offers, curve = (np.arange(400) + 0.5) * h, curve_of(discount, 3)

    def worth(weights: Any, thresholds: Any) -> float:
        reached, total = 1.0, 0.0
        for weight, threshold in zip(weights, thresholds, strict=True):
            accepted = offers >= threshold
            total, reached = total + weight * reached * np.mean(accepted * offers), reached * np.mean(~accepted)
        return total

    grid = np.arange(0, 401, 5) * h
    best = max(worth(curve, (first, second, 0)) for first in grid for second in grid)
    assert env.optimum(params, discount) == pytest.approx(best, abs=(5 * h) ** 2)
    assert env.optimum(params, discount) >= best - h**2
    same = max(worth(curve, (each, each, each)) for each in np.arange(401) * h)
    assert env.optimum(params, discount, "stationary") == pytest.approx(same, abs=2 * h**2)
    second = curve[1] * worth([1], [0])  # what a step is worth to the one before it
    first = worth(curve[1:], (second, 0))
    np.testing.assert_allclose(env.thresholds(params, discount, "sophisticated"), [first, second, 0], atol=h)
    assert env.optimum(params, discount, "sophisticated") == pytest.approx(worth(curve, (first, second, 0)), abs=2 * h)
    assert worth(curve, (first, second, 0)) <= best + (5 * h) ** 2


def test_a_sophisticated_step_values_later_ones_by_their_delay() -> None:
    env: Any = Stopping()
    curve = np.array([1.0, 0.5, 0.4, 0.35])
    params = env.default_params.replace(num_steps=4, max_steps_in_episode=4)
    second = curve[1] / 2  # the third of four offers
    first = curve[1] * (1 - second**2) / 2 + curve[2] * second / 2
    zeroth = curve[1] * (1 - first**2) / 2 + first * (curve[2] * (1 - second**2) / 2 + curve[3] * second / 2)
    np.testing.assert_allclose(env.thresholds(params, curve, "sophisticated"), [zeroth, first, second, 0], rtol=1e-12)


def test_threshold_policies_attain_the_optima_of_stopping() -> None:
    env: Any = Stopping()
    for kind in OPTIMUM_KINDS:
        curve = env.weights(None, Hyperbolic(k=0.3))
        plan = jnp.asarray(env.thresholds(None, Hyperbolic(k=0.3), kind), jnp.float32)
        returns = weighted_returns(env, by_threshold, jax.random.key(2), plan, jnp.asarray(curve, jnp.float32))
        check_mean(returns, env.optimum(None, Hyperbolic(k=0.3), kind))


# --- Kelly betting -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("win", "odds", "limit", "share"),
    [(0.6, 1.0, 0.9, 0.2), (0.3, 4.0, 0.9, 0.125), (0.4, 1, 0.9, 0), (0.95, 1, 0.5, 0.5)],
)
def test_the_best_share_has_the_highest_mean_of_all_outcomes(
    win: float, odds: float, limit: float, share: float
) -> None:
    """The mean over the numbers of bets won, on a grid of constant shares; the share is p - q / odds in its limits."""
    env: Any = Kelly()
    bets = 5
    params = env.default_params.replace(
        win_probability=win, odds=odds, max_share=limit, num_steps=bets, max_steps_in_episode=bets
    )

    def growth(share: float) -> float:
        chances = [comb(bets, won) * win**won * (1 - win) ** (bets - won) for won in range(bets + 1)]
        wealths = [(1 + odds * share) ** won * (1 - share) ** (bets - won) for won in range(bets + 1)]
        return sum(chance * np.log(wealth) for chance, wealth in zip(chances, wealths, strict=True))

    grid = np.linspace(0, limit, 1001)
    assert env.best_share(params) == pytest.approx(share, abs=1e-12)
    assert env.optimum(params) == pytest.approx(max(map(growth, grid)), abs=1e-5)
    assert env.optimum(params) >= max(map(growth, grid)) - 1e-12
    discount = Hyperbolic(k=0.8)
    for kind in OPTIMUM_KINDS:
        expected = curve_of(discount, bets).sum() * growth(share) / bets
        assert env.optimum(params, discount, kind) == pytest.approx(expected, abs=1e-6)


def test_bets_grow_at_the_known_rate() -> None:
    env: Any = Kelly()
    curve = env.weights(None, Hyperbolic(k=0.3))
    shares = jnp.full(40, env.best_share(), jnp.float32)
    returns = weighted_returns(env, by_share, jax.random.key(3), shares, jnp.asarray(curve, jnp.float32))
    check_mean(returns, env.optimum(None, Hyperbolic(k=0.3)))
    _, state = env.reset_env(jax.random.key(0), env.default_params)
    _, state, reward, _, _ = env.step_env(jax.random.key(0), state, jnp.float32([0.5]), env.default_params)
    assert float(state.log_wealth) == float(reward) and float(reward) in (
        np.float32(np.log(0.5)),
        np.float32(np.log(1.5)),
    )


# --- the structure of the policies -------------------------------------------------------


@pytest.mark.parametrize("unmet", ["lost", "waits"])
def test_orders_fill_up_to_a_base_stock(unmet: Any) -> None:
    env: Any = Inventory(capacity=8, max_demand=8, unmet=unmet)
    plan = env.plan(discount=Hyperbolic(k=0.3))
    assert plan is not None
    stock = np.arange(0 if unmet == "lost" else -8, 9)
    for orders in plan.actions:
        level = (stock + orders)[0]
        np.testing.assert_array_equal(orders, np.maximum(level - stock, 0))
    assert len({int((stock + orders)[0]) for orders in plan.actions}) > 1  # it falls towards the end


@pytest.mark.parametrize("costs", [(1.0, 2.0, 3.0), (3.0, 0.5, 1.0)])
def test_the_class_of_the_highest_product_is_served(costs: Any) -> None:
    env: Any = Queue()
    params = env.default_params.replace(costs=np.array(costs), rates=np.array([0.8, 0.55, 0.3]))
    rates = np.array([0.8, 0.55, 0.3])
    jobs = np.array(list(np.ndindex(4, 4, 4)))
    rule = np.argmax(np.where(jobs > 0, rates * costs, -1), axis=1)
    problem, curve = env.problem(params), env.weights(params, Hyperbolic(k=0.3))
    for kind in OPTIMUM_KINDS:
        assert env.optimum(params, Hyperbolic(k=0.3), kind) == pytest.approx(
            dynamic_programming.value(problem, curve, rule), rel=1e-12
        )


def test_a_machine_is_replaced_from_a_level_on() -> None:
    plan = Replacement().plan(kind="stationary")
    assert plan is not None
    replaces = plan.actions[0].tolist()
    level = replaces.index(1)
    assert 0 < level < 5
    problem, curve = Replacement().problem(), Replacement().weights()
    values = [dynamic_programming.value(problem, curve, (np.arange(6) >= each).astype(int)) for each in range(1, 6)]
    assert max(values) == values[level - 1] == pytest.approx(plan.value, rel=1e-12)


def test_a_stationary_policy_is_unknown_where_bounds_do_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_programming, "MOST_BOUNDS", 9)
    env: Any = Inventory()
    assert env.optimum(kind="stationary") is None and env.optimum() is not None


# --- pictures ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fishery", "inventory", "stopping", "replacement", "kelly", "queue", "river"])
def test_pictures_show_the_state(name: str) -> None:
    env: Any = envs.make(name)
    params, scene = env.default_params, Scene(env, env.default_params)
    state = env.reset_env(jax.random.key(0), params)[1]
    fields = {field: value for field, value in vars(state).items() if field != "time"}
    other = state.replace(**{field: 0.5 * value + 1 for field, value in fields.items()})
    first = scene.frame(state)
    assert first.shape == (320, 480, 3) and len(np.unique(first.reshape(-1, 3), axis=0)) > 4
    assert np.mean(first != scene.frame(other)) > 0.001
    np.testing.assert_array_equal(scene.frame(state), first)


# --- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: River(num_positions=1), "num_positions must be a whole number of at least 2, got 1"),
        (lambda: Inventory(capacity=0), "capacity must be a whole number of at least 1, got 0"),
        (lambda: Inventory(unmet="sold"), "unmet must be one of lost, waits, got 'sold'"),  # type: ignore[arg-type]
        (lambda: Queue(jobs=()), r"jobs takes a tuple of numbers of jobs, got \(\)"),
        (lambda: Queue(jobs=(2, 0)), "each number of jobs must be a whole number of at least 1, got 0"),
        (lambda: Stopping(shows_time="no"), "shows_time takes True or False, got 'no'"),  # type: ignore[arg-type]
        (lambda: _checked("river", advance=0.9, slip=0.2), "env.advance and env.slip must be at most 1 together"),
        (lambda: _checked("river", num_steps=0), "env.num_steps must be at least 1 and finite, got 0"),
        (lambda: _checked("stopping", max_offer=0.0), "env.max_offer must be above 0 and finite, got 0"),
        (lambda: _checked("kelly", max_share=1.0), r"env.max_share must lie in \(0, 1\), got 1"),
        (lambda: _checked("kelly", max_share=1 - 1e-9), r"env.max_share must lie in \(0, 1\), got 1"),
        (lambda: _checked("river", bank_reward=np.nan), r"env.bank_reward must lie in \(-inf, inf\), got nan"),
        (lambda: _checked("kelly", win_probability=1.5), r"env.win_probability must lie in \[0, 1\], got 1.5"),
        (lambda: _checked("inventory", mean_demand=0.0), "env.mean_demand must be above 0 and finite, got 0"),
        (lambda: _checked("replacement", wear_probability=2.0), r"env.wear_probability must lie in \[0, 1\], got 2"),
        (lambda: _checked("stopping", num_steps=2.5), r"env.num_steps must be a whole number, got 2\.5"),
        (
            lambda: _checked("fishery", max_steps_in_episode=np.array([3, 2.5])),
            r"env.max_steps_in_episode must be a whole number, got 2\.5",
        ),
        (
            lambda: _checked("queue", rates=np.ones(2)),
            r"env.rates must have a number for each of 3 classes, got \(2,\)",
        ),
    ],
)
def test_refusals(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


INVALID = {
    "river": {"advance": 1.5},
    "inventory": {"mean_demand": 0.0},
    "stopping": {"max_offer": -1.0},
    "replacement": {"wear_probability": 2.0},
    "kelly": {"win_probability": 1.5},
    "queue": {"rates": np.ones(2)},
    "fishery": {"growth_rate": 2.0},
    "lq/scalar": {"R": -np.eye(1)},
    "lq/chain-of-masses": {"R": -np.eye(2)},
    "pde/wave": {"wave_speed": -1.0},
    "pde/convection-diffusion-reaction": {"dt": -1.0},
    "memory/bandit": {"alpha": -1.0},
    "memory/t-maze": {"idle_cost": -1.0},
    "memory/chain": {"memory_length": 0},
    "memory/delayed-match": {"num_trials": 0},
    "delayed-choice": {"num_steps": 2.5},
    "pathworld": {"mean_hazard": -0.1},
    "preference-reversal": {"later_step": 98},
    "random-dilemmas": {"max_reward": -5.0},
}
INVALID_PAIRS = [
    *INVALID.items(),
    ("memory/bandit", {"num_pulls": 2.5}),
    ("memory/t-maze", {"length": -3}),
    ("memory/t-maze", {"length": 2.5}),
    ("memory/chain", {"memory_length": 2.5}),
    ("memory/delayed-match", {"delay": -1}),
    ("memory/delayed-match", {"delay": 2.5}),
    ("memory/delayed-match", {"num_trials": 1.5}),
    *((f"memory/{task}", {"max_steps_in_episode": 2}) for task in ("t-maze", "chain", "delayed-match")),
    ("delayed-choice", {"num_steps": 0}),
    ("delayed-choice", {"first_reward": np.inf}),
    ("delayed-choice", {"second_reward": jnp.float32(np.inf)}),
    ("preference-reversal", {"later_reward": jnp.float32(np.inf)}),
    ("preference-reversal", {"sooner_step": 2.5}),
    ("preference-reversal", {"sooner_step": 0}),
    ("preference-reversal", {"later_step": 150.5}),
    ("preference-reversal", {"tax": np.nan}),
    ("random-dilemmas", {"max_delay": 0}),
    ("random-dilemmas", {"max_delay": 2.5}),
    ("game/climbing", {"num_steps": 2.5}),
    ("cooperation/levers-self-play", {"num_steps": 2.5}),
]
WITH_A_LIMIT = [*INVALID, "game/climbing", "cooperation/levers-self-play", "memory/repeat-first", "memory/autoencode"]


@pytest.mark.parametrize(("name", "changes"), INVALID_PAIRS, ids=str)
def test_optima_and_policies_of_invalid_parameters_are_refused(name: str, changes: dict[str, Any]) -> None:
    env: Any = envs.make(name)
    params = env.default_params.replace(**changes)
    with pytest.raises(ValueError, match=r"^env\.") as stated:
        env.check_params(params)
    of_policy = [each for each in ("plan", "law", "thresholds", "best_share", "problem") if hasattr(env, each)]
    for method in ("optimum", *of_policy):
        with pytest.raises(ValueError, match=r"^env\.") as refused:
            getattr(env, method)(params)
        assert str(refused.value) == str(stated.value)
    for kind in OPTIMUM_KINDS:
        with pytest.raises(ValueError, match=r"^env\."):
            env.optimum(params, kind=kind)


@pytest.mark.parametrize("name", WITH_A_LIMIT)
def test_optima_under_limits_that_are_no_numbers_of_steps_are_refused(name: str) -> None:
    """int(7.5) is 7, but such an episode has 8 steps."""
    env: Any = envs.make(name)
    for limit, message in ((7.5, "a whole number, got 7.5"), (np.inf, "a whole number, got inf"), (0, "at least 1")):
        for kind in OPTIMUM_KINDS:
            with pytest.raises(ValueError, match=rf"^env\.max_steps_in_episode must be {message}"):
                env.optimum(env.default_params.replace(max_steps_in_episode=limit), kind=kind)


def test_trials_after_the_time_limit_count_as_0() -> None:
    env: Any = envs.make("memory/delayed-match")
    params = env.default_params.replace(max_steps_in_episode=35)  # tests are at the steps 11, 23, 35 and 47
    assert env.optimum(params, 0.9) == pytest.approx((0.9**11 + 0.9**23) / 4, rel=1e-12)


def test_numbers_of_steps_may_be_whole_floats() -> None:
    for name, changes in (
        ("delayed-choice", {"num_steps": 30.0}),
        ("preference-reversal", {"sooner_step": 30.0, "later_step": 40.0}),
        ("random-dilemmas", {"max_delay": 30.0}),
    ):
        env: Any = envs.make(name)
        whole = env.default_params.replace(**{field: int(value) for field, value in changes.items()})
        assert env.optimum(env.default_params.replace(**changes), 0.9) == env.optimum(whole, 0.9)


@pytest.mark.parametrize("name", ["fishery", "kelly", "stopping", "inventory", "lq/scalar", "pathworld"])
def test_curves_that_are_no_discounts_have_no_optimum(name: str) -> None:
    env, ones = envs.make(name), np.ones(200)
    for curve, message in (
        (0.99 * ones, r"^discount must start at Gamma\(0\) = 1, got a curve that starts at 0\.99\.$"),
        (np.nan * ones, r"starts at nan"),
        (np.where(np.arange(200) == 1, -0.5, 1), r"^discount must be finite and not negative, got -0\.5 at t = 1\.$"),
        (np.where(np.arange(200) == 1, np.inf, 1), r"^discount must be finite and not negative, got inf at t = 1\.$"),
    ):
        with pytest.raises(ValueError, match=message):
            env.optimum(discount=curve)


def _checked(name: str, **values: Any) -> None:
    env: base.Environment = envs.make(name)
    env.checked_params(env.default_params.replace(**values))
