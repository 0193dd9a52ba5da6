"""SAC, TD3 and DDPG: their laws, updates against float64, refusals, time limits, and values under any discount."""

import dataclasses
from pathlib import Path
from typing import Any

import agents
import jax
import jax.numpy as jnp
import linear_task
import numpy as np
import pytest
from linear_task import LinearTask
from quick_jit import quick_jit
from reference.actor_critic import ActorCritic, Adam, Batch, Perceptron, Truncated

import envs
import jaxrl
from envs import wrappers
from envs.base import spaces
from envs.threefry import unrolled
from jaxrl.algorithms.actor_critic import actor_critic
from jaxrl.algorithms.off_policy import off_policy
from jaxrl.algorithms.registry import ROWS, default_space
from jaxrl.cli.dataclass_options import hparam_leaves, split, values_class
from jaxrl.learning.action_heads import action_head
from jaxrl.learning.actor import memories
from jaxrl.learning.exploration import CORRELATION, persistent_actor, uniform_discrete_actor
from jaxrl.learning.replay import uniform_rows
from jaxrl.results.description import config_of
from jaxrl.runtime.accelerators.program_text import read_program
from jaxrl.runtime.loop import make_loop
from jaxrl.runtime.training import training_call

BUILDERS: dict[str, Any] = {"sac": (jaxrl.sac, jaxrl.SACConfig), "td3": (jaxrl.td3, jaxrl.TD3Config)}
DDPG: dict[str, Any] = {"policy_delay": 1, "target_smoothing": False, "num_critics": 1}


def small(name: str, env: Any = None, **fields: Any) -> Any:
    build, config = BUILDERS[name]
    return build(LinearTask() if env is None else env, config(**{**ROWS[name].small, **fields}))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "discrete"), [("sac", False), ("sac", True), ("td3", False)])
def test_the_laws_hold(name: str, discrete: bool) -> None:
    jaxrl.check(small(name, LinearTask(discrete=discrete), noise="ornstein-uhlenbeck"))


EVERYTHING: dict[str, Any] = {
    "heads": "joint",
    "num_heads": 3,
    "value_loss": "quantile",
    "num_atoms": 5,
    "replay": "prioritised",
    "normalise_observation": True,
    "time_limits": "terminal",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("sac", EVERYTHING | {"automatic_temperature": False}),
        ("td3", EVERYTHING | {"n_step": 3}),
        ("td3", DDPG | {"value_loss": "huber"}),
        ("td3", {"value_loss": "quantile", "num_atoms": 5, "dropped_atoms": 2, "network": "simba"}),
    ],
)
def test_the_laws_hold_of_every_setting(name: str, fields: dict[str, Any]) -> None:
    jaxrl.check(small(name, envs.make("pendulum"), **fields))


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_the_laws_hold_of_a_crowd(name: str) -> None:
    env = wrappers.bound_actions(envs.make("crowd/circle", num_agents=3), 3.0)
    jaxrl.check(small(name, env, pooling="max"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [{}, {"heads": "joint", "num_heads": 3, "value_loss": "quantile", "num_atoms": 5, "dropped_atoms": 1}],
)
def test_the_laws_hold_of_discrete_actions(fields: dict[str, Any]) -> None:
    jaxrl.check(small("sac", agents.Crowd(num_agents=3, masked=True), **fields))


@pytest.mark.slow
def test_updates_of_the_policy_stay_a_branch_among_runs() -> None:
    def program(algo: Any) -> str:
        hparams, params = algo.prepare(algo.hparams), algo.env.default_params
        keys = jax.random.split(jax.random.key(0), 3)
        states = jax.eval_shape(jax.vmap(algo.init, in_axes=(0, None, None)), keys, hparams, params)
        step = jax.vmap(algo.step, in_axes=(0, None, 0, None, None))
        return str(jax.make_jaxpr(step)(keys, jnp.int32(0), states, hparams, params))

    assert " cond[" in program(small("td3"))
    assert " cond[" not in program(small("td3", policy_delay=1))


# --- updates -------------------------------------------------------------------------------

UPDATES = 12
GAMMA = 0.9


def drawn(key: Any, state: Any, iteration: int, algo: Any) -> tuple[Batch, Any]:
    """The batch that a gradient step takes from the buffer after it, and the key that the step gets."""
    config = algo.config
    learn_key = jax.random.split(unrolled(key))[1]
    draw_key, key = jax.random.split(jax.random.split(learn_key, 1)[0])
    filled = (config.prefill + (iteration + 1) * config.steps_per_iteration) // config.num_envs
    rows = uniform_rows(draw_key, jnp.int32(filled), config.num_envs, config.batch_size)
    buffer = jax.tree.map(np.asarray, state.buffer)

    def of(leaf: np.ndarray) -> np.ndarray:
        return leaf[rows.slot, rows.env].astype(np.float64)

    ended = of(buffer.terminated)
    return Batch(of(buffer.obs), of(buffer.raw_action), of(buffer.reward), of(buffer.next_obs), ended), key


def stepped(algo: Any) -> Any:
    """The hyper-parameters, the first state, and the states and keys of some iterations of one update each."""
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    first, step = jax.jit(algo.init)(jax.random.key(1), hparams, params), jax.jit(algo.step)
    keys, states = jax.random.split(jax.random.key(2), UPDATES), [first]
    for i in range(UPDATES):
        states.append(step(keys[i], jnp.int32(i), states[-1], hparams, params)[0])
    return hparams, first, list(zip(keys, states[1:], strict=True))


def assert_close(learner: Any, reference: ActorCritic, update: int) -> None:
    """Parameters after an update against those in float64.

    Rounding of a gradient, below 1e-5 of sums of 64 numbers up to 10, moves Adam by lr / eps = 0.1 of it, and so the
    parameters by 1e-6 at each update; the moves themselves are up to 1e-3 each.
    """
    pairs = [(learner.policy, reference.policy)]
    for i, (critic, target) in enumerate(zip(reference.critics, reference.targets, strict=True)):
        pairs += [(learner.critics, critic, i), (learner.targets, target, i)]
    for pair in pairs:
        np.testing.assert_allclose(
            Perceptron.of(pair[0], *pair[2:]).vector, pair[1].vector, rtol=0, atol=1e-6 * (update + 1)
        )


FIELDS = {"num_updates": 1, "batch_size": 64, "prefill": 128, "buffer_size": 512, "hidden": (8, 8)}


@pytest.mark.slow
@pytest.mark.parametrize("fields", [DDPG, {}], ids=["ddpg", "td3"])
def test_td3_and_ddpg_agree_with_float64_update_by_update(fields: dict[str, Any]) -> None:
    algo = small("td3", LinearTask(edge=0.7), **FIELDS | fields)
    algo = algo._replace(hparams=dataclasses.replace(algo.hparams, discount=GAMMA, adam_eps=1e-2, target_rate=0.1))
    hparams, first, steps = stepped(algo)
    reference = ActorCritic(first.learner, hparams, algo.config.num_critics, GAMMA)
    begin, ends = reference.policy.vector, 0.0
    for update, (key, state) in enumerate(steps):
        batch, key = drawn(key, state, update, algo)
        ends += batch.ended.sum()
        noise, bound = np.zeros(batch.action.shape), 0.0
        if algo.config.target_smoothing:
            noise, bound = 0.2 * np.asarray(jax.random.normal(key, batch.action.shape), np.float64), 0.5
        reference.td3(batch, noise, bound, (update + 1) % algo.config.policy_delay == 0)
        assert_close(state.learner, reference, update)
        target = Perceptron.of(state.learner.target_policy).vector
        np.testing.assert_allclose(target, reference.target_policy.vector, rtol=0, atol=1e-6 * (update + 1))
    assert ends > 0 and np.max(np.abs(reference.policy.vector - begin)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "fixed"])
def test_sac_agrees_with_float64_update_by_update(automatic: bool) -> None:
    algo = small("sac", LinearTask(edge=0.7), automatic_temperature=automatic, **FIELDS)
    algo = algo._replace(
        hparams=dataclasses.replace(algo.hparams, discount=GAMMA, adam_eps=1e-2, target_rate=0.1, temperature=0.3)
    )
    hparams, first, steps = stepped(algo)
    reference, log_temperature = ActorCritic(first.learner, hparams, 2, GAMMA), np.log(0.3)
    adam, begin = Adam(float(hparams.temperature_lr or 0), 1e-2), reference.policy.vector
    for update, (key, state) in enumerate(steps):
        batch, key = drawn(key, state, update, algo)
        next_noise, noise = (
            np.asarray(jax.random.normal(each, batch.action.shape), np.float64) for each in jax.random.split(key)
        )
        log_prob = reference.sac(batch, noise, next_noise, float(np.exp(log_temperature)))
        assert_close(state.learner, reference, update)
        if automatic:
            log_temperature += adam.step(np.float64(-log_prob + 2.0))  # the target is -1 for each of two components
            np.testing.assert_allclose(state.learner.log_temperature, log_temperature, rtol=0, atol=1e-6 * (update + 1))
    assert np.max(np.abs(reference.policy.vector - begin)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("dropped", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_truncated_quantile_critics_agree_with_float64_update_by_update(dropped: int) -> None:
    fields = {"value_loss": "quantile", "num_atoms": 5, "dropped_atoms": dropped, "automatic_temperature": False}
    algo = small("sac", LinearTask(edge=0.7), **FIELDS | fields)
    changes = {"discount": GAMMA, "adam_eps": 1e-2, "target_rate": 0.1, "temperature": 0.3, "huber_delta": 0.5}
    algo = algo._replace(hparams=dataclasses.replace(algo.hparams, **changes))
    hparams, first, steps = stepped(algo)
    reference = Truncated(first.learner, hparams, 2, GAMMA, dropped)
    begin, ends = reference.policy.vector, 0.0
    for update, (key, state) in enumerate(steps):
        batch, key = drawn(key, state, update, algo)
        ends += batch.ended.sum()
        next_noise, noise = (
            np.asarray(jax.random.normal(each, batch.action.shape), np.float64) for each in jax.random.split(key)
        )
        reference.sac(batch, noise, next_noise, 0.3)
        assert_close(state.learner, reference, update)
    assert ends > 0 and np.max(np.abs(reference.policy.vector - begin)) > 1e-3


@dataclasses.dataclass(frozen=True)
class Masked(LinearTask):
    """The linear task with three actions, of which that to the right is forbidden at places above 0."""

    discrete: bool = True

    def action_space(self, params: Any = None) -> spaces.Discrete:
        del params
        return spaces.Discrete(3)

    def action_mask(self, state: Any, params: Any) -> Any:
        del params
        return jnp.arange(3) != jnp.where(state.place > 0, 1, 3)


@pytest.mark.slow
def test_discrete_sac_agrees_with_float64_update_by_update() -> None:
    algo = small("sac", Masked(edge=0.7), **FIELDS)
    changes = {"discount": GAMMA, "adam_eps": 1e-2, "target_rate": 0.1, "temperature": 0.3}
    algo = algo._replace(hparams=dataclasses.replace(algo.hparams, **changes))
    hparams, first, steps = stepped(algo)
    reference, log_temperature = ActorCritic(first.learner, hparams, 2, GAMMA), np.log(0.3)
    adam, begin = Adam(float(hparams.temperature_lr), 1e-2), reference.policy.vector
    for update, (key, state) in enumerate(steps):
        batch, _ = drawn(key, state, update, algo)
        batch.action = batch.action.astype(int)
        mask, next_mask = (np.arange(3) != np.where(obs[:, :1] > 0, 1, 3) for obs in (batch.obs, batch.next_obs))
        assert mask[np.arange(len(mask)), batch.action].all()
        entropy = reference.sac_discrete(batch, mask, next_mask, float(np.exp(log_temperature)))
        assert_close(state.learner, reference, update)
        log_temperature += adam.step(np.float64(entropy - 0.5 * np.mean(np.log(mask.sum(1)))))
        np.testing.assert_allclose(state.learner.log_temperature, log_temperature, rtol=0, atol=1e-6 * (update + 1))
    assert np.max(np.abs(reference.policy.vector - begin)) > 1e-3


@pytest.mark.slow
def test_discrete_sac_is_finite_where_probabilities_vanish() -> None:
    algo = small("sac", Masked(), **FIELDS)
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    state, step = jax.jit(algo.init)(jax.random.key(0), hparams, params), jax.jit(algo.step)
    for logit in (70.0, 1e4):  # probabilities of 1e-30, and below all numbers of float32
        policy = state.learner.policy
        out = policy["params"]["out"] | {"bias": jnp.float32([logit, 0.0, 0.0])}
        certain = {"params": policy["params"] | {"out": out}}
        before = state._replace(learner=state.learner._replace(policy=certain))
        after, metrics = step(jax.random.key(1), jnp.int32(0), before, hparams, params)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after.learner, metrics)))
        assert 0 <= metrics["entropy"] < 1e-25


# --- values --------------------------------------------------------------------------------


def learned(name: str, discount: Any, **fields: Any) -> tuple[np.ndarray, Any]:
    """Learned values of the transitions in the buffer of the linear task, the transitions, and the discount."""
    env = LinearTask(discrete=name in ("dqn", "discrete sac"))
    sizes = {"num_envs": 8, "prefill": 256, "buffer_size": 1024, "batch_size": 64, "num_updates": 4, "hidden": (32,)}
    if name == "dqn":
        algo = jaxrl.dqn(env, jaxrl.DQNConfig(**{**ROWS["dqn"].small, **sizes, **fields}))
        more: dict[str, Any] = {"epsilon_end": 0.2, "epsilon_anneal_env_steps": 1000.0}
    else:
        more = {"policy_lr": 3e-3, "target_rate": 0.02}
        more |= {"noise_std": 0.5, "target_noise": 0.0} if name == "td3" else {"temperature": 1e-4}
        fixed = {} if name == "td3" else {"automatic_temperature": False}
        algo = small(name.removeprefix("discrete "), env, **sizes, **fixed, **fields)
    prepared = algo.prepare(dataclasses.replace(algo.hparams, lr=3e-3, discount=discount, **more))
    params, loop = jax.tree.map(jnp.asarray, env.default_params), make_loop(algo, 1)

    @jax.jit
    def run(key: Any) -> Any:
        return loop.advance(loop.init(key, prepared, params), key, prepared, params, 0, 2000).state

    state = run(jax.random.key(0))
    steps = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), state.buffer)
    rows = np.arange(len(steps.reward))
    if name == "dqn":
        scores = algo.actor.scores(algo.policy(state, prepared), (), jnp.asarray(steps.obs), None)[0]
        return np.asarray(scores["q"])[rows, steps.raw_action], (steps, prepared.discount)
    inputs = steps.obs if env.discrete else np.concatenate([steps.raw_action, steps.obs], axis=1)
    outputs = np.mean([Perceptron.of(state.learner.critics, i)(inputs) for i in range(2)], axis=0)
    rates, weights = (np.asarray(leaf, np.float64) for leaf in (prepared.discount.rates, prepared.discount.weights))
    if env.discrete:
        outputs = outputs.reshape(len(rows), 2, len(rates))[rows, steps.raw_action]
    sums = (1 - rates**prepared.discount.horizon) / (1 - rates)
    return outputs @ (weights * sums / np.sum(weights * sums)), (steps, prepared.discount)


@pytest.mark.slow
@pytest.mark.parametrize("time_limits", ["bootstrap", "terminal"])
@pytest.mark.parametrize("name", ["sac", "discrete sac", "td3", "dqn"])
def test_a_time_limit_is_an_end_only_where_declared_terminal(name: str, time_limits: str) -> None:
    values, (steps, _) = learned(name, GAMMA, time_limits=time_limits)
    assert steps.truncated.mean() == pytest.approx(1 / 5, abs=0.01) and not steps.terminated.any()
    endless, ending = (linear_task.action_values(steps.obs, steps.next_obs[:, 0], GAMMA, limit) for limit in (None, 5))
    expected = endless if time_limits == "bootstrap" else ending
    # A share p of limits treated as ends lowers the value before a limit by g (p V + (1 - p) D), where V > 0 is the
    # endless value after it and D >= 0 the change there; all of them lower it by g V. So values change by at least p of
    # their distance. A share p that is bootstrapped instead of ended adds at least g p W, where W is the value after
    # the limit if all are ends: after five of the best steps, the place is at least 0.34, and W at least 0.29 V. A
    # bound of 5 % of the distance therefore shows one wrong limit in twenty, or one in six.
    apart, error = (np.sqrt(np.mean(each**2)) for each in (endless - ending, values - expected))
    assert apart > 4 and error < 0.05 * apart, (apart, error)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "discrete sac", "td3"])
def test_values_under_a_mixture_are_those_of_its_exponentials(name: str) -> None:
    values, (steps, discount) = learned(name, "hyperbolic:k=0.5", heads="joint", num_heads=3)
    by_rate = [linear_task.action_values(steps.obs, steps.next_obs[:, 0], float(rate)) for rate in discount.rates]
    expected = np.asarray(discount.weights) @ np.array(by_rate)
    assert np.sqrt(np.mean((values - expected) ** 2)) < 0.03 * np.sqrt(np.mean(expected**2))


# --- inputs of critics, and the prefill --------------------------------------------------------


def test_the_scale_of_observations_leaves_actions_unchanged() -> None:
    env = wrappers.bound_actions(envs.make("crowd/circle", num_agents=3), 3.0)
    configs = (jaxrl.TD3Config(hidden=(4,), own_scale=scale) for scale in (1.0, 8.0))
    plain, scaled = (actor_critic("td3", env, config, (3,)) for config in configs)
    rng = np.random.default_rng(0)
    shapes = plain.replay.obs_shape
    obs = jax.tree.map(lambda leaf: rng.uniform(size=(1, 3, *leaf.shape)).astype(np.float32), shapes)
    action = rng.normal(size=(1, 3, plain.head.num_outputs)).astype(np.float32)
    rows = ("neighbours", "neighbours_present")
    larger = {name: leaf if name in rows else 8 * leaf for name, leaf in obs.items()}
    params, values = quick_jit(plain.init)(jax.random.key(0))[1], quick_jit(plain.values)
    expected = values(params, larger, action)
    scaled_values = quick_jit(scaled.values)(params, obs, action)
    np.testing.assert_array_equal(scaled_values, expected)  # a power of two rounds nothing
    assert np.all(values(params, larger, 2 * action) != expected)


@pytest.mark.parametrize(("pool", "states"), [(1, 5), (2, 9)])
def test_the_pool_of_a_prefill_grows_with_its_length(pool: int, states: int) -> None:
    """Of 20 steps in place of the 4 of an iteration, in episodes of 2 steps."""
    algo = small("td3", reset_pool=pool, prefill=40)
    params = algo.env.default_params.replace(max_steps_in_episode=2)
    state = quick_jit(algo.init)(jax.random.key(0), algo.prepare(algo.hparams), params)
    places = np.asarray(state.buffer.obs)[2:20:2, :, 0]  # of the first steps of episodes after a reset
    assert [len(np.unique(places[:, env])) for env in range(2)] == [states, states]


@pytest.mark.parametrize("size", [40, 48])
def test_states_used_twice_in_the_prefill_are_counted_with_the_first_iteration(size: int) -> None:
    """Every step of two environments ends an episode, which the time limit does not state."""
    algo = small("td3", LinearTask(edge=0.0), prefill=40, buffer_size=size)
    params, hparams, key = algo.env.default_params, algo.prepare(algo.hparams), jax.random.key(0)
    replay = off_policy(algo.env, algo.config, ())

    def experience(iteration: jax.Array) -> Any:
        state = algo.init(key, hparams, params)
        return replay.collect(key, iteration, algo.actor, algo.policy(state, hparams), state, params).reused

    # The limit of 5 steps allows for 4 states in the 20 steps of an environment's prefill, and for 2 in 4 steps.
    reused = quick_jit(experience)
    assert [int(reused(jnp.int32(i))) for i in (0, 1)] == [2 * (20 - 4) + 2 * (4 - 2), 2 * (4 - 2)]


def test_flags_of_a_prefill_that_fills_the_buffer_are_counted_before_they_are_overwritten() -> None:
    algo = small("td3", prefill=40, buffer_size=40)
    params, hparams, key = algo.env.default_params, algo.prepare(algo.hparams), jax.random.key(0)
    replay = off_policy(algo.env, algo.config, ())

    def reused(ended: jax.Array) -> jax.Array:
        state = algo.init(key, hparams, params)
        flags = jnp.broadcast_to(ended, state.buffer.terminated.shape)
        state = state._replace(buffer=state.buffer._replace(terminated=flags, truncated=flags))
        return replay.collect(key, jnp.int32(0), algo.actor, algo.policy(state, hparams), state, params).reused

    count = quick_jit(reused)
    assert [int(count(jnp.bool_(ended))) for ended in (False, True)] == [0, 2 * (20 - 4)]


def test_an_iteration_copies_no_flags_of_the_whole_buffer() -> None:
    algo = small("td3", LinearTask(edge=0.0), prefill=40, buffer_size=4000)
    params, hparams, key = algo.env.default_params, algo.prepare(algo.hparams), jax.random.key(0)
    replay = off_policy(algo.env, algo.config, ())

    def collect(state: Any, iteration: jax.Array) -> Any:
        experience = replay.collect(key, iteration, algo.actor, algo.policy(state, hparams), state, params)
        return state._replace(carry=experience.carry, buffer=experience.buffer), experience.reused

    state = jax.eval_shape(algo.init, key, hparams, params)
    text = jax.jit(collect, donate_argnums=0).lower(state, jnp.int32(0)).compile().as_text()
    assert text is not None
    copies = [each for each in read_program(text).instructions() if each.opcode == "copy"]
    assert not [each.line for each in copies if each.size == 4000 and each.arrays[0].dtype == "pred"]


# --- refusals and the rest -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Unbounded(LinearTask):
    """The linear task with a bound that is infinite."""

    def action_space(self, params: Any = None) -> spaces.Box:
        del params
        return spaces.Box(-1.0, np.inf, (2,), jnp.float32)


@dataclasses.dataclass(frozen=True)
class Mixed(LinearTask):
    """The linear task with a discrete action and a number at a time."""

    def action_space(self, params: Any = None) -> spaces.Tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        del params
        return spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,), jnp.float32)])

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return super().step_env(key, state, jnp.concatenate([action[0][None], action[1]]), params)


@pytest.mark.parametrize(
    ("name", "env", "kind", "sentence"),
    [
        (
            "td3",
            LinearTask(discrete=True),
            TypeError,
            "takes an environment whose action space is a Box of floats, got .*; dqn, pqn, sac and ppo take discrete",
        ),
        (
            "td3",
            Unbounded(),
            ValueError,
            "takes an environment whose actions have finite bounds, got .* from -1 to inf",
        ),
        (
            "sac",
            Unbounded(),
            ValueError,
            "takes an environment whose actions have finite bounds, got .* from -1 to inf",
        ),
        (
            "sac",
            Mixed(),
            TypeError,
            r"takes an environment whose action space is of discrete actions \(.*\) or a Box of floats, got T",
        ),
    ],
)
def test_other_actions_are_refused(name: str, env: Any, kind: Any, sentence: str) -> None:
    with pytest.raises(kind, match=f"{name} {sentence}") as caught:
        small(name, env)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("sac", {"n_step": 2}, "n_step takes 1 where values contain the entropy of every step, got 2"),
        ("sac", {"num_atoms": 7}, "num_atoms has no effect with value_loss='squared', got 7; leave it out"),
        ("sac", {"dropped_atoms": 2}, "dropped_atoms has no effect with value_loss='squared', got 2; leave it out"),
        ("sac", {"dropped_atoms": -1, "value_loss": "quantile"}, "dropped_atoms"),
        (
            "td3",
            {"dropped_atoms": 25, "value_loss": "quantile"},
            "dropped_atoms takes less than num_atoms=25, got 25",
        ),
        ("sac", {"value_loss": "categorical"}, "value_loss must be one of squared, huber, quantile, got 'categorical'"),
        ("td3", {"num_heads": 3}, "num_heads has no effect with heads='single', got 3"),
        ("td3", {"network": "cnn"}, r"network 'cnn' takes observations \[height, .* got float32\[2\]"),
        ("td3", {"policy_delay": 0}, "policy_delay"),
        ("td3", {"heads": "own"}, "heads"),
    ],
)
def test_an_invalid_configuration_is_refused(name: str, fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        small(name, **fields)
    assert len(str(caught.value).splitlines()) == 1


def test_a_discount_without_heads_is_refused() -> None:
    algo = small("sac")
    sentence = r"takes an exponential discount, which hyperbolic:k=0\.1 is not; use heads='joint'$"
    with pytest.raises(ValueError, match=sentence):
        algo.prepare(dataclasses.replace(algo.hparams, discount="hyperbolic:0.1"))


def test_numbers_without_an_effect_are_refused() -> None:
    fixed = small("sac", automatic_temperature=False)
    assert fixed.hparams.target_entropy_fraction is None and fixed.hparams.noise_correlation is None
    with pytest.raises(ValueError, match="target_entropy_fraction has no effect"):
        fixed.prepare(dataclasses.replace(fixed.hparams, target_entropy_fraction=0.5))
    assert small("td3", **DDPG).hparams.target_noise is None


def test_the_prefill_of_correlated_discrete_actions_is_uniform_and_correlated() -> None:
    runs = 2_000

    def one_sided(policy: Any, memory: Any, obs: Any, mask: Any) -> Any:
        """Scores of a policy that prefers the second action by far, whatever it observes, at a correlation of 1."""
        del policy, mask
        logits = jnp.broadcast_to(jnp.arange(2.0) * 50, (*obs.shape, 2))
        return {"logits": logits, CORRELATION: jnp.ones(obs.shape)}, memory

    policy_actor = persistent_actor(lambda policy: (), one_sided, action_head(spaces.Discrete(2)))

    def actions(actor: Any) -> list[np.ndarray]:
        memory, rows = memories(actor.initial_memory(()), (runs,)), []
        for key in jax.random.split(jax.random.key(1), 3):
            scores, memory = actor.scores((), memory, jnp.zeros(runs), None)
            _, raw, memory = actor.choose(actor.noise(key, (runs,)), scores, memory, False, None)
            rows.append(np.asarray(raw))
        return rows

    assert all((row == 1).all() for row in actions(policy_actor))
    first, *later = actions(uniform_discrete_actor(policy_actor))
    np.testing.assert_allclose(first.mean(), 0.5, atol=5 * 0.5 / runs**0.5)  # five standard errors
    for row in later:
        np.testing.assert_array_equal(row, first)  # at a correlation of 1


@pytest.mark.parametrize(("discrete", "fraction"), [(False, 1.0), (True, 0.5)])
def test_the_default_target_entropy_depends_on_the_actions(discrete: bool, fraction: float) -> None:
    algo, built = small("sac", LinearTask(discrete=discrete)), jaxrl.SACHParams(lr=2e-3)
    assert algo.hparams.target_entropy_fraction == fraction
    assert algo.prepare(built).target_entropy_fraction == fraction
    sweep = jaxrl.grid(built, {"temperature": [0.5, 1.0]})
    np.testing.assert_array_equal(algo.prepare(sweep.hparams, 2).target_entropy_fraction, [fraction, fraction])
    call = training_call(algo, sweep, seeds=[0], points=np.array([1]), eval_episodes=1)
    assert config_of(call.description())["hparams"]["target_entropy_fraction"] == fraction
    fixed = small("sac", LinearTask(discrete=discrete), automatic_temperature=False)
    assert fixed.prepare(built).target_entropy_fraction is None
    defaults = hparam_leaves(fixed.hparams)
    assert split("hparams", values_class(fixed.hparams, defaults)(), defaults) == ({}, {})


@pytest.mark.parametrize("name", BUILDERS)
def test_a_search_has_a_default_space(name: str) -> None:
    assert set(default_space(small(name))) == {"lr", "policy_lr", "target_rate", "discount"}


@pytest.mark.fast_rows("td3")
@pytest.mark.parametrize("name", BUILDERS)
def test_a_warm_start_takes_the_policy_and_leaves_the_critics(name: str) -> None:
    algo = small(name, normalise_observation=True)
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    init = quick_jit(algo.init)
    of_other, state = (init(jax.random.key(seed), hparams, params) for seed in (0, 1))
    policy = algo.policy(of_other, hparams)
    assert algo.warm_start is not None
    warmed = algo.warm_start(state, policy)
    for actual, expected in (
        (algo.policy(warmed, hparams), policy),
        (warmed.learner.critics, state.learner.critics),
        (getattr(warmed.learner, "target_policy", policy.acting.params), policy.acting.params),
    ):
        jax.tree.map(np.testing.assert_array_equal, actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "environment", "fields"),
    [
        ("sac", "pendulum", {"noise": "ornstein-uhlenbeck"}),
        ("sac", "cartpole", {"noise": "ornstein-uhlenbeck"}),
        ("td3", "pendulum", {"heads": "joint", "num_heads": 3}),
    ],
)
def test_it_resumes_bit_for_bit_and_exports_its_policy(
    name: str, environment: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    algo = small(name, envs.make(environment), **fields)
    sweep = jaxrl.grid(algo.hparams, {"lr": [1e-3, 1e-2]})
    run: dict[str, Any] = {"seeds": 2, "evals": 2, "eval_episodes": 2, "progress": False}
    whole = jaxrl.train(algo, sweep, env_steps=160, out=tmp_path / "whole", **run)
    often = jaxrl.train(algo, sweep, env_steps=160, out=tmp_path / "often", checkpoint_minutes=1e-9, **run)
    for metric in map(str, whole.metrics.data_vars):
        np.testing.assert_array_equal(often.values(metric), whole.values(metric), err_msg=metric)
    policy = whole.policy(seed=0, lr=1e-3)
    jaxrl.export_policy(policy, tmp_path / "policy.stablehlo")
    jaxrl.render(algo.env, policy, tmp_path / "film.gif", num_steps=3)
