"""A critic that sees more than the actor: what reaches which network, values in float64, and errors."""

import json
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beacon_task import LIMIT, Beacon
from reference.advantages import ugae

import envs
import jaxrl
from envs.base import spaces
from envs.choices import ChoiceShape, MultiDiscrete, choices_of
from envs.wrappers.asymmetric import SeenEnvironment, seen_like
from jaxrl.algorithms import registry
from jaxrl.algorithms.allowed_modules import NotAllowedError
from jaxrl.algorithms.contract import policy_shapes
from jaxrl.algorithms.off_policy import off_policy
from jaxrl.algorithms.on_policy import on_policy
from jaxrl.algorithms.on_policy_state import Learner
from jaxrl.cli import main as cli
from jaxrl.learning.actor import memories
from jaxrl.learning.asymmetric import Seen, seen_by
from jaxrl.learning.recurrent import step_over, unroll_over
from jaxrl.learning.rollout import episode_ends
from jaxrl.results.dataset import ResultError, metrics_dataset
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result
from jaxrl.sweeps.batching import batched_hparams

GAMMA, LAM = 0.9, 0.8
ON_POLICY: dict[str, Any] = {"num_envs": 4, "num_steps": 16, "num_minibatches": 2, "num_epochs": 1, "hidden": (6,)}
OFF_POLICY: dict[str, Any] = {
    "num_envs": 4, "num_steps": 4, "num_updates": 2, "batch_size": 32, "buffer_size": 64, "prefill": 32, "hidden": (6,),
}  # fmt: skip
GRU = {"memory": "gru", "memory_size": 4}
APART: dict[str, Any] = {"actor_sees": "state", "critic_sees": "privileged_state"}
JOINED: dict[str, Any] = {"actor_sees": "state", "critic_sees": "privileged"}
ALGORITHMS: dict[str, Any] = {
    "ppo": (jaxrl.ppo, jaxrl.PPOConfig(**ON_POLICY, **APART, normalise_observation=True)),
    "ppo, gru": (jaxrl.ppo, jaxrl.PPOConfig(**ON_POLICY, **JOINED, **GRU, burn_in=2)),
    "sac": (jaxrl.sac, jaxrl.SACConfig(**OFF_POLICY, **APART, normalise_observation=True)),
    "td3": (jaxrl.td3, jaxrl.TD3Config(**OFF_POLICY, **JOINED, n_step=2)),
}


def whole(obs: Any) -> Any:
    """The observation."""
    return obs


def own_part(obs: Any) -> Any:
    """An agent's own part."""
    return obs["own"]


def first_two(obs: Any) -> Any:
    """Part of an observation of numbers."""
    return obs[:2]


def named(value: Any) -> str:
    """Name of a row."""
    return value.__name__ if callable(value) else str(value)


def noisy(env: Any) -> Any:
    """Environment with noise on observations."""
    return envs.wrappers.observation_noise(env, 0.1)


def varied(env: Any) -> Any:
    """Environment with drawn parameters."""
    return envs.wrappers.randomise(env, {"length": jaxrl.Uniform(0.25, 1.0)})


UNNAMED: Any = lambda obs: obs[:1]  # noqa: E731


def one_iteration(algo: Any, scale: float) -> tuple[Any, Any]:
    """State after the first iteration, and its metrics, with privileged entries of a scale."""
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params.replace(scale=scale)

    @jax.jit
    def run(key: jax.Array, params: Any) -> Any:
        state = algo.init(key, hparams, params)
        return algo.step(jax.random.fold_in(key, 1), jnp.int32(0), state, hparams, params)

    return run(jax.random.key(3), jax.tree.map(jnp.float32, params))


@pytest.mark.slow_rows("ppo, gru", "sac", "td3")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_privileged_state_reaches_the_critic_and_changes_no_action(name: str) -> None:
    builder, config = ALGORITHMS[name]
    algo = builder(Beacon(), config)
    (state, metrics), (other, others) = one_iteration(algo, 1.0), one_iteration(algo, 3.0)
    # The actions of the first iteration are in the observations after it.
    np.testing.assert_array_equal(state.carry.obs, other.carry.obs)
    assert state.carry.obs.shape == (4, 2)
    assert float(metrics["value_loss"]) != float(others["value_loss"])
    policy = algo.policy(state, algo.prepare(algo.hparams))
    if config.normalise_observation:
        assert policy.observations.mean.shape == (2,)


@pytest.mark.parametrize("name", ["ppo", pytest.param("ppo, gru", marks=pytest.mark.slow)])
def test_gradients_of_values_reach_the_critic_and_those_of_outputs_do_not(name: str) -> None:
    config = ALGORITHMS[name][1]
    agent = on_policy(Beacon(), config, None, ())
    memory = agent.network.initial_memory() if agent.remembers else ()
    facts = jnp.ones(agent.critic_shape.shape)
    params = agent.network.init(jax.random.key(0), Seen(jnp.ones(2), facts), *([memory] if agent.remembers else []))

    def of(facts: Any) -> Any:
        return agent.network.apply(params, Seen(jnp.ones(2), facts), *([memory] if agent.remembers else []))

    assert np.all(np.asarray(jax.grad(lambda facts: of(facts)[1])(facts)) != 0)
    assert not np.any(np.asarray(jax.grad(lambda facts: jnp.sum(of(facts)[0]))(facts)))
    np.testing.assert_array_equal(of(facts)[0], of(None)[0])


def normalised(statistics: Any, obs: Any) -> np.ndarray:
    if statistics is None:
        return np.asarray(obs, np.float64)
    mean, variance = (np.asarray(part, np.float64) for part in (statistics.mean, statistics.variance))
    return np.clip((np.asarray(obs, np.float64) - mean) / np.sqrt(variance + 1e-8), -10, 10)


@pytest.mark.parametrize(("sees", "num_agents"), [(APART, 0), (JOINED, 2)], ids=["apart", "joined, of a crowd"])
def test_values_and_advantages_are_those_of_the_formulas(sees: dict[str, Any], num_agents: int) -> None:
    config = jaxrl.PPOConfig(**ON_POLICY, **sees, normalise_observation=num_agents == 0)
    env = Beacon(num_agents=num_agents)
    agent = on_policy(env, config, None, env.agents)
    hparams = agent.prepare(jaxrl.PPOHParams(discount=GAMMA, lam=LAM, entropy_coef=0.0))
    params = env.default_params

    @jax.jit
    def run(key: jax.Array) -> Any:
        state = agent.init(key, hparams, params)
        state = state._replace(weights=jax.tree.map(lambda leaf: 2 * leaf, state.weights))
        policy = agent.policy(state, hparams)
        rolled_out = agent.collect(key, policy, state, hparams, params)
        evaluation = agent.evaluate(policy, state, rolled_out, hparams)
        state, _ = agent.finish(state, agent_learner(state), rolled_out, evaluation, {}, hparams)
        policy = agent.policy(state, hparams)  # with statistics of the first rollout
        rolled_out = agent.collect(jax.random.fold_in(key, 1), policy, state, hparams, params)
        return policy, rolled_out.steps, agent.evaluate(policy, state, rolled_out, hparams).samples

    policy, steps, samples = run(jax.random.key(1))
    weights: Any = policy.params["params"]

    def value(obs: Any, facts: Any) -> np.ndarray:
        own, others = normalised(policy.observations, obs), normalised(policy.critic_observations, facts)
        seen = others if sees is APART else np.concatenate([own, others], axis=-1)
        hidden = seen @ np.asarray(weights["critic"]["trunk_0"]["kernel"], np.float64)
        features = np.tanh(hidden + np.asarray(weights["critic"]["trunk_0"]["bias"]))
        last = weights["critic_out"]
        return (features @ np.asarray(last["kernel"], np.float64) + np.asarray(last["bias"]))[..., 0]

    values, next_values = value(steps.obs, steps.critic_obs), value(steps.next_obs, steps.next_critic_obs)
    # Sums of at most six products of numbers below 10 and weights below 3, in float32.
    np.testing.assert_allclose(samples.value, values, rtol=0, atol=2e-5)
    done, ended = np.asarray(episode_ends(steps)), np.asarray(steps.agent_terminated)
    assert ended.any() and (done & ~ended).any()
    of_goal = steps.critic_obs[..., 0]
    np.testing.assert_array_equal(np.asarray(of_goal[1:])[~done[:-1]], np.asarray(of_goal[:-1])[~done[:-1]])
    for index in np.ndindex(done.shape[1:]):
        at = (slice(None), *index)
        curve = GAMMA ** np.arange(len(done) + 1)
        expected, _ = ugae(curve, LAM, steps.reward[at], values[at], next_values[at], ended[at], done[at])
        np.testing.assert_allclose(samples.advantage[at], expected, rtol=0, atol=2e-4)  # ten such errors


def agent_learner(state: Any) -> Any:
    """Learner of a state, unchanged."""
    return Learner(state.weights, state.optimiser)


def test_unrolling_is_stepping_with_the_facts_of_each_step() -> None:
    agent = on_policy(Beacon(), ALGORITHMS["ppo, gru"][1], None, ())
    obs, facts = jax.random.normal(jax.random.key(0), (5, 3, 2)), jax.random.normal(jax.random.key(1), (5, 3, 1))
    memory = memories(agent.network.initial_memory(), (3,))
    params = agent.network.init(jax.random.key(2), Seen(obs[0, 0], facts[0, 0]), agent.network.initial_memory())
    outputs, values, _ = unroll_over(agent.network, params, Seen(obs, facts), memory, jnp.zeros((5, 3), bool))
    for t in range(5):
        output, value, memory = step_over(agent.network, params, Seen(obs[t], facts[t]), memory, 1)
        np.testing.assert_allclose(outputs[t], output, rtol=0, atol=1e-6)
        np.testing.assert_allclose(values[t], value, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "td3"])
def test_a_critic_of_the_same_observation_is_the_usual_one(name: str) -> None:
    env = envs.make("pendulum")
    kind: Any = type(ALGORITHMS[name][1])
    usual, same = (
        ALGORITHMS[name][0](env, kind(**OFF_POLICY, critic_sees=sees, normalise_observation=True))
        for sees in ("own", whole)
    )
    assert same.env != env

    def learned(algo: Any) -> Any:
        hparams = algo.prepare(algo.hparams)

        @jax.jit
        def run(key: jax.Array) -> Any:
            state = algo.init(key, hparams, env.default_params)
            return algo.step(key, jnp.int32(0), state, hparams, env.default_params)[0].learner

        return run(jax.random.key(0))

    # Two steps of Adam of 1e-3 each, in programs that round differently.
    for one, other in zip(jax.tree.leaves(learned(usual)), jax.tree.leaves(learned(same)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_batch_has_the_facts_of_its_own_steps(n_step: int) -> None:
    config = jaxrl.TD3Config(**OFF_POLICY, **APART, n_step=n_step, replay="prioritised")
    replay = off_policy(Beacon(), config, (), config.critic_sees)
    algo = jaxrl.td3(Beacon(), config)
    hparams = algo.prepare(algo.hparams)
    params = Beacon().default_params

    @jax.jit
    def run(key: jax.Array) -> Any:
        state = algo.init(key, hparams, params)
        policy = algo.policy(state, hparams)
        experience = replay.collect(key, jnp.int32(0), algo.actor, policy, state, params)
        return replay.draw(key, experience, experience.priorities, hparams).batch

    batch = run(jax.random.key(0))
    steps = np.sum(np.asarray(batch.counts), axis=1)
    time, next_time = (np.rint(LIMIT * np.asarray(seen)[..., 1]) for seen in (batch.critic_obs, batch.next_critic_obs))
    np.testing.assert_array_equal(time, np.rint(LIMIT * np.asarray(batch.obs)[..., 0]))
    np.testing.assert_array_equal(next_time, time + steps)
    goal = np.asarray(batch.critic_obs)[..., 0]
    np.testing.assert_array_equal(goal, np.asarray(batch.next_critic_obs)[..., 0])
    # The first reward is the distance of the first action from the goal.
    action = np.asarray(batch.raw_action)[..., 0]
    np.testing.assert_allclose(batch.reward[:, 0], -np.abs(action - goal), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["td3", pytest.param("ppo", marks=pytest.mark.slow)])
def test_privileged_entries_go_to_the_critic_unless_all_is_asked_for(name: str) -> None:
    fields = ON_POLICY if name == "ppo" else OFF_POLICY
    builder, kind = ALGORITHMS[name][0], type(ALGORITHMS[name][1])
    sentence = "^on beacon the actor sees 'state' of the observations, and its critic 'privileged_state'; actor_sees"
    with pytest.warns(RuntimeWarning, match=sentence):
        algo = builder(Beacon(), kind(**fields))
    assert (algo.env.actor_sees, algo.env.critic_sees) == ("state", "privileged_state")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert builder(algo.env, algo.config).env is algo.env  # what another process builds
        assert registry.build(registry.describe(algo), allow=Beacon.__module__).env == algo.env
        everything = builder(Beacon(), kind(**fields, actor_sees="all"))
    assert everything.env == Beacon()


@pytest.mark.parametrize(
    ("actor_sees", "critic_sees", "view"),
    [
        ("state", "privileged_state", "apart"),
        (("state", "privileged_state"), None, "own"),
        (("privileged_state",), None, "own"),
        pytest.param(whole, None, "own", marks=pytest.mark.filterwarnings("ignore:on beacon the critic sees")),
    ],
    ids=named,
)
def test_by_default_a_critic_sees_no_less_than_an_actor_with_privileged_entries(
    actor_sees: Any, critic_sees: Any, view: str
) -> None:
    env, of_critic = seen_by(Beacon(), actor_sees, "auto")
    assert isinstance(env, SeenEnvironment)
    assert (env.critic_sees, of_critic) == (critic_sees, view)


def test_a_critic_beside_an_actor_with_a_function_is_named() -> None:
    sentence = (
        r"^on beacon the critic sees what the actor does, the result of whole, because .*; critic_sees="
        r"'privileged_state' shows it the entry 'privileged_state', as in .*, and critic_sees='own' is without this"
    )
    with pytest.warns(RuntimeWarning, match=sentence):
        env, _ = seen_by(Beacon(), whole, "auto")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert seen_by(env, whole, "auto") == seen_by(Beacon(), whole, "own") == (env, "own")
        assert seen_by(Beacon(), whole, "privileged_state")[1] == "apart"
        assert seen_by(envs.make("cartpole"), first_two, "auto")[1] == "own"


def test_a_saved_critic_of_privileged_entries_alone_needs_their_names(tmp_path: Path) -> None:
    both = ("state", "privileged_state")
    algo, default = (
        jaxrl.ppo(Beacon(), jaxrl.PPOConfig(**ON_POLICY, actor_sees=both, critic_sees=sees))
        for sees in ("privileged_state", "auto")
    )
    metrics = metrics_dataset({"return": np.zeros((1, 1, 1))}, seeds=[0], env_steps=[8])
    policies = jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], filled(algo))
    Result(metrics, policies, algo, batched_hparams(algo.hparams, None)).save(tmp_path / "run")
    sentence = r"does not fit .* in earlier versions critic_sees='auto' was .*: pass algo= with critic_sees= these"
    with pytest.raises(ResultError, match=sentence):
        jaxrl.load_result(tmp_path / "run", algo=default)
    policy = jaxrl.load_result(tmp_path / "run", algo=algo).policy()
    assert policy({"state": np.zeros(2), "privileged_state": np.zeros(2)}).shape == (1,)


@pytest.mark.parametrize("differs", ["width", "critic"])
def test_other_differences_of_a_saved_policy_have_no_remedy_of_the_critic(differs: str, tmp_path: Path) -> None:
    """A layer of another width, and another critic where no entry has "privileged" in its name."""
    if differs == "width":
        fields: dict[str, Any] = {**ON_POLICY, "actor_sees": ("state", "privileged_state")}
        algo, other = (jaxrl.ppo(Beacon(), jaxrl.PPOConfig(**{**fields, "hidden": (width,)})) for width in (6, 7))
    else:
        fields = {**ON_POLICY, "actor_sees": first_two}
        algo, other = (
            jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**fields, critic_sees=sees)) for sees in (whole, "auto")
        )
    metrics = metrics_dataset({"return": np.zeros((1, 1, 1))}, seeds=[0], env_steps=[8])
    policies = jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], filled(algo))
    Result(metrics, policies, algo, batched_hparams(algo.hparams, None)).save(tmp_path / "run")
    with pytest.raises(ResultError, match=r"does not fit the algorithm ppo on [^:]*: [^:;]*\.$"):
        jaxrl.load_result(tmp_path / "run", algo=other)


class Nested(Beacon):
    """The task with its observation inside of a dictionary."""

    def observation_space(self, params: Any) -> Any:
        return spaces.Dict({"robot": super().observation_space(params)})

    def _observe(self, state: Any, params: Any) -> Any:
        return {"robot": super()._observe(state, params)}


FLATTENED: dict[str, tuple[Any, str]] = {
    "inside of an entry": (Nested(), "robot.privileged_state"),
    "in a vector": (envs.wrappers.flatten_observation(Beacon()), "privileged_state"),
    "in a vector in a wrapper": (
        envs.wrappers.time_limit(envs.wrappers.flatten_observation(Nested()), 5),
        "robot.privileged_state",
    ),
}


@pytest.mark.parametrize("name", FLATTENED)
def test_privileged_entries_are_never_flattened_in_silence(name: str) -> None:
    env, entry = FLATTENED[name]
    with pytest.warns(
        RuntimeWarning, match=f"^the actor sees '{entry}' of the observations, because actor_sees='auto'"
    ):
        assert seen_by(env, "auto", "auto") == (env, "own")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert seen_by(env, "all", "auto") == (env, "own")
        for hiding in (
            envs.wrappers.asymmetric_observation(env, leaf_alone),
            envs.wrappers.flatten_observation(HIDDEN),
        ):
            assert seen_by(hiding, "auto", "auto")[0] == hiding
    if isinstance(env, Nested):
        with pytest.warns(RuntimeWarning, match=f"^the actor sees '{entry}'"):
            seen_by(env, ("robot",))


@pytest.mark.parametrize("env", [Nested(), Beacon()], ids=["inside of an entry", "hidden by a function"])
def test_an_algorithm_that_is_built_again_warns_no_more(env: Any) -> None:
    fields: dict[str, Any] = {} if isinstance(env, Nested) else {"actor_sees": whole}
    with pytest.warns(RuntimeWarning, match=r"the (actor|critic) sees"):
        algo = jaxrl.ppo(env, jaxrl.PPOConfig(**ON_POLICY, **fields))
    spec = registry.describe(algo)
    spec["config"]["num_envs"] = 8  # or what the first build has computed would be used
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry.build(spec, allow=("test_asymmetric", "beacon_task")).env == algo.env


def leaf_alone(obs: Any) -> Any:
    """The first leaf."""
    return jax.tree.leaves(obs)[0]


HIDDEN = envs.wrappers.asymmetric_observation(Beacon(), "state")


def test_an_algorithm_without_a_critic_hides_privileged_entries() -> None:
    sentence = (
        "^on beacon the actor sees 'state' of the observations, and nothing else; actor_sees of the configuration"
    )
    with pytest.warns(RuntimeWarning, match=sentence):
        algo = jaxrl.dqn(Beacon(discrete=True), jaxrl.DQNConfig(**{**OFF_POLICY, "num_updates": 1}))
    assert (algo.env.actor_sees, algo.env.critic_sees) == ("state", None)  # pyright: ignore[reportAttributeAccessIssue]


def test_a_global_observation_reaches_critics_off_the_policy() -> None:
    env = envs.wrappers.bound_actions(envs.make("crowd/circle", num_agents=3), 2.0)
    config = jaxrl.SACConfig(**OFF_POLICY, critic_sees="global")
    replay = off_policy(env, config, (3,), "global")
    assert set(replay.seen_shape) == {"own", "global", "neighbours", "neighbours_present"}

    @jax.jit
    @jax.vmap
    def begun(key: jax.Array) -> Any:
        obs, state = env.reset_env(key, env.default_params)
        return obs, env.global_observation(state, env.default_params)

    obs, facts = begun(jax.random.split(jax.random.key(0), 2))
    seen = replay._critic_input(obs, facts)
    for agent in range(3):
        np.testing.assert_array_equal(seen["neighbours"][:, agent], facts["agents"])
    np.testing.assert_array_equal(seen["own"]["own"], obs["own"])


@pytest.mark.slow
def test_policies_of_results_take_the_observation_of_the_actor_alone(tmp_path: Path) -> None:
    algo = jaxrl.sac(Beacon(), ALGORITHMS["sac"][1])
    result = jaxrl.train(algo, seeds=2, env_steps=32, evals=1, eval_episodes=2)
    policy = result.policy(seed=0)
    action = policy(jnp.zeros(2))
    assert action.shape == (1,)
    sentence = r"^obs must be the part that the actor sees \(.* 'state'\), float32\[2\], got .*'privileged_state'"
    with pytest.raises(ValueError, match=sentence):
        policy({"state": jnp.zeros(2), "privileged_state": jnp.zeros(2)})
    for suffix in ("safetensors", "stablehlo", "onnx"):
        file = jaxrl.export_policy(policy, tmp_path / f"policy.{suffix}")
        exported = jaxrl.load_exported(file, algo)
        assert [port["name"] for port in exported.spec["inputs"]] == ["obs"]
        np.testing.assert_allclose(exported(np.zeros(2, np.float32)), action, rtol=0, atol=1e-6)


def test_the_description_of_a_file_has_the_statistics_of_the_actor_alone(tmp_path: Path) -> None:
    algo = ALGORITHMS["ppo"][0](Beacon(), ALGORITHMS["ppo"][1])
    params = jax.tree.map(np.abs, filled(algo))
    file = jaxrl.export_policy(TrainedPolicy(algo, params, {}, 0), tmp_path / "policy.safetensors")
    assert list(jaxrl.load_exported(file, algo).spec["normalisation"]) == ["observations"]


SEES = ("auto", "all", "own", "privileged", "state", ("privileged_state",), whole)


@pytest.mark.filterwarnings("ignore:on beacon the (actor|critic) sees:RuntimeWarning")
@pytest.mark.parametrize("critic_sees", SEES, ids=named)
@pytest.mark.parametrize("actor_sees", ["auto", "all", "state", whole], ids=named)
def test_another_configuration_begins_with_the_whole_observation(actor_sees: Any, critic_sees: Any) -> None:
    def sees(env: Any, **fields: Any) -> Any:
        algo = jaxrl.ppo(env, jaxrl.PPOConfig(**ON_POLICY, **fields))
        agent = on_policy(algo.env, algo.config, None, ())
        return algo, (algo.env, agent.view, str(agent.obs_shape), str(agent.critic_shape))

    fresh = sees(Beacon(), actor_sees=actor_sees, critic_sees=critic_sees)
    base = sees(Beacon())[0]
    assert sees(base.env, actor_sees=actor_sees, critic_sees=critic_sees)[1] == fresh[1]
    assert registry.rebuilt(base, fresh[0].config).env == fresh[0].env


def test_an_environment_of_the_users_is_seen_as_in_training(tmp_path: Path) -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**ON_POLICY, actor_sees=hidden))
    policy = TrainedPolicy(algo, filled(algo), {}, 0)
    usual = jaxrl.evaluate(policy, episodes=3)
    given = jaxrl.evaluate(policy, envs.make("cartpole"), episodes=3)
    np.testing.assert_array_equal(usual["return"], given["return"])
    of_names = jaxrl.ppo(Beacon(), ALGORITHMS["ppo"][1])
    assert seen_like(Beacon(), of_names.env) == of_names.env
    assert seen_like(Beacon(num_agents=2), envs.make("cartpole")) == Beacon(num_agents=2)


def doubled(obs: Any) -> Any:
    """Observation of the same shape, with other numbers."""
    return 2 * obs


@pytest.mark.parametrize("wrapped", [lambda env: envs.wrappers.time_limit(env, 9), noisy, varied], ids=named)
def test_what_the_actor_sees_is_applied_once_inside_of_wrappers(wrapped: Any) -> None:
    seen, _ = seen_by(envs.make("cartpole"), doubled)
    assert seen_like(wrapped(seen), seen) == wrapped(seen)


def test_another_configuration_on_a_wrapped_environment_of_an_algorithm() -> None:
    cartpole = envs.make("cartpole")
    seen, _ = seen_by(cartpole, doubled)
    limited = envs.wrappers.time_limit(cartpole, 9)
    for actor_sees in (doubled, first_two, "all"):
        assert seen_by(envs.wrappers.time_limit(seen, 9), actor_sees) == seen_by(limited, actor_sees)
    assert seen_by(noisy(seen), "auto") == (noisy(seen), "own")
    sentence = (
        r"^actor_sees and critic_sees choose parts of the observations of \S*cartpole\S*, of which the actor sees a"
    )
    for sees in ((doubled, "own"), ("auto", first_two), ("all", "own"), ("auto", "all")):
        with pytest.raises(ValueError, match=sentence):
            seen_by(noisy(seen), *sees)


def hidden(obs: Any) -> Any:
    """Observation of the same shape, without any facts."""
    return jnp.zeros_like(obs)


def filled(algo: Any) -> Any:
    """Parameters such as training could produce."""
    draws = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: draws.normal(size=leaf.shape).astype(np.float32), policy_shapes(algo))


def test_parts_for_critics_pass_through_wrappers_with_their_choices() -> None:
    class Choosing(Beacon):
        """Whose privileged entry is a choice of three."""

        def observation_space(self, params: Any) -> Any:
            return spaces.Dict({**super().observation_space(params).spaces, "privileged_state": spaces.Discrete(3)})

        def _observe(self, state: Any, params: Any) -> Any:
            return super()._observe(state, params) | {"privileged_state": state.time % 3}

    env = envs.wrappers.asymmetric_observation(Choosing(), "state", "privileged_state")
    for outer in (env, envs.wrappers.frame_stack(env, 2), envs.wrappers.time_limit(env, 4)):
        agent = on_policy(outer, jaxrl.PPOConfig(**ON_POLICY), None, ())
        assert agent.view == "apart"
        assert isinstance(agent.critic_shape, ChoiceShape) and agent.critic_shape.columns == ((0, 3),)


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3), MultiDiscrete([3, 2]), spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)])],
    ids=lambda space: type(space).__name__,
)
def test_a_critic_of_everything_reads_choices_as_an_actor_does(space: Any) -> None:
    class Choosing(Beacon):
        """Whose observations are choices."""

        def observation_space(self, params: Any) -> Any:
            return space

        def _observe(self, state: Any, params: Any) -> Any:
            return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), space.sample(jax.random.key(0)))

    usual = on_policy(Choosing(), jaxrl.PPOConfig(**ON_POLICY), None, ())
    apart = on_policy(Choosing(), jaxrl.PPOConfig(**ON_POLICY, actor_sees=count, critic_sees="all"), None, ())
    assert apart.view == "apart"
    assert choices_of(apart.critic_shape) == choices_of(usual.obs_shape) != ()
    assert choices_of(apart.obs_shape) == ()


def count(obs: Any) -> Any:
    """The sum of the choices of each part, as numbers."""
    return jnp.stack([jnp.sum(leaf, dtype=jnp.float32) for leaf in jax.tree.leaves(obs)])


class Factless(Beacon):
    """The task without facts for critics but the entries of its observations."""

    def privileged(self, state: Any, params: Any) -> Any:
        return envs.Environment.privileged(self, state, params)


class Stated(Beacon):
    """The task with one entry, and a stated space of its privileged facts."""

    def observation_space(self, params: Any) -> Any:
        return super().observation_space(params).spaces["state"]

    def privileged_space(self, params: Any) -> Any:
        return spaces.Box(-jnp.inf, jnp.inf, (1,), jnp.float32)

    def _observe(self, state: Any, params: Any) -> Any:
        return super()._observe(state, params)["state"]


@pytest.mark.parametrize("wrapped", [lambda env: env, lambda env: envs.wrappers.time_limit(env, 4)], ids=["", "limit"])
def test_by_default_facts_of_a_stated_space_are_beside_the_input_of_the_actor(wrapped: Any) -> None:
    env = wrapped(Stated())
    default, named = (
        on_policy(env, jaxrl.PPOConfig(**ON_POLICY, critic_sees=sees), None, ()) for sees in ("auto", "privileged")
    )
    assert (default.view, str(default.critic_shape)) == (named.view, str(named.critic_shape))
    assert default.view == "joined"


ERRORS: dict[str, tuple[Any, str]] = {
    "a mistyped word": (
        lambda: jaxrl.sac(Beacon(), jaxrl.SACConfig(**{**OFF_POLICY, **JOINED, "critic_sees": "privilegd"})),
        r"^critic_sees takes 'auto', .*, got 'privilegd'; did you mean 'privileged' or 'privileged_state'\?$",
    ),
    "nothing left": (
        lambda: jaxrl.ppo(envs.wrappers.asymmetric_observation(Beacon(), ("privileged_state",)), jaxrl.PPOConfig()),
        r"^actor_sees='auto' hides entries with 'privileged' in their names, which are all of \S*, 'privileged_state'",
    ),
    "normalised rows for critics": (
        lambda: jaxrl.sac(
            envs.wrappers.bound_actions(envs.make("crowd/circle", num_agents=3), 2.0),
            jaxrl.SACConfig(**OFF_POLICY, actor_sees=own_part, critic_sees="all", normalise_observation=True),
        ),
        r"^normalise_observation would scale every slot of 'neighbours' differently; use own_scale",
    ),
    "unknown entry": (
        lambda: jaxrl.ppo(Beacon(), jaxrl.PPOConfig(actor_sees="states")),
        r"^actor_sees takes 'auto', 'all', or entries of the observations of beacon, 'state', 'privileged_state', got",
    ),
    "no dictionary": (
        lambda: jaxrl.sac(envs.make("pendulum"), jaxrl.SACConfig(critic_sees=("angle",))),
        r"^critic_sees takes .*, or a function of an observation on pendulum, whose observations have no names, got ",
    ),
    "nothing privileged": (
        lambda: jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(critic_sees="privileged")),
        r"^critic_sees='privileged' takes an environment with a method privileged\(state, params\), which cartpole "
        r"does not have; envs\.wrappers\.randomise\(env, \.\.\.\) adds one, which returns the drawn values$",
    ),
    "nothing privileged but an entry": (
        lambda: jaxrl.ppo(Factless(), jaxrl.PPOConfig(critic_sees="privileged", actor_sees="state")),
        r"^critic_sees='privileged' takes .*, which asymmetric_observation\(beacon\) does not have; "
        r"critic_sees='privileged_state' shows that entry of the observations$",
    ),
    "no critic": (
        lambda: jaxrl.DQNConfig(critic_sees="privileged_state"),  # pyright: ignore[reportCallIssue]
        r"^DQNConfig has no field 'critic_sees'; ppo, sac, td3 and other algorithms of an actor and a critic have it",
    ),
    "a number": (lambda: jaxrl.PPOConfig(critic_sees=3), r"^critic_sees takes 'auto', 'own', .*, got 3$"),  # pyright: ignore
    "a shared trunk": (
        lambda: jaxrl.ppo(Beacon(), jaxrl.PPOConfig(**APART, shared_trunk=True)),
        r"^shared_trunk has no effect where the critic sees more than the actor; leave it out$",
    ),
    "one agent": (
        lambda: jaxrl.sac(envs.make("pendulum"), jaxrl.SACConfig(critic_sees="global")),
        r"^critic_sees='global' takes an environment of several agents, got \S*pendulum\S* with one$",
    ),
    "a path": (
        lambda: jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(actor_sees="test_asymmetric:first")),
        r"^The function of an observation 'test_asymmetric:first' cannot be found: test_asymmetric has no function",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_bad_choices_are_refused_in_one_sentence(name: str) -> None:
    build, sentence = ERRORS[name]
    with pytest.raises((TypeError, ValueError), match=sentence):
        build()


def test_a_function_by_its_path_is_the_function() -> None:
    env = envs.make("cartpole")
    assert seen_by(env, "test_asymmetric:first_two") == seen_by(env, first_two)
    assert seen_by(env, "all", "all") == (env, "own")


@pytest.mark.parametrize("field", ["actor_sees", "critic_sees"])
def test_a_description_names_a_function_by_a_path_that_has_to_be_allowed(field: str) -> None:
    fields: dict[str, Any] = {**OFF_POLICY, field: first_two}
    algo = jaxrl.sac(envs.make("pendulum"), jaxrl.SACConfig(**fields))
    spec = json.loads(json.dumps(registry.describe(algo)))
    assert spec["environment"]["name"] == "pendulum"
    assert spec["config"][field] == "test_asymmetric:first_two"
    with pytest.raises(NotAllowedError, match=f"^the {field} 'test_asymmetric:first_two' is of the module 'test_asym"):
        registry.build(spec)
    again = registry.build(spec, allow="test_asymmetric")
    assert again.env == algo.env
    with pytest.raises(ValueError, match=f"^its {field} is the user's own .*, which has no path to import$"):
        config = jaxrl.SACConfig(**{**OFF_POLICY, field: UNNAMED})
        registry.describe(jaxrl.sac(envs.make("pendulum"), config))


def test_the_shell_takes_entries(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["train", "ppo", "cartpole", "--config.actor-sees", "position", "--env-steps", "64", "--out", str(tmp_path)]
    assert cli.main(words) == 2
    sentence = "actor_sees takes 'auto', 'all', or a function of an observation on cartpole, whose observations have no"
    assert sentence in capsys.readouterr().err
