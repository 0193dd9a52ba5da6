"""DQN: its laws, its program under vmap, its schedules, and the errors that it raises."""

import dataclasses
from pathlib import Path
from typing import Any

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_values import PROBES, values_after
from program_equations import equations

import envs
import jaxrl
from jaxrl.algorithms.registry import ROWS, default_space
from jaxrl.learning.optimisers import adam
from jaxrl.learning.rollout import reset_all, rollout

SMALL: dict[str, Any] = dict(ROWS["dqn"].small)
EVERYTHING: dict[str, Any] = {
    "dueling": True,
    "n_step": 3,
    "replay": "prioritised",
    "target_update": "soft",
    "value_loss": "categorical",
    "num_atoms": 11,
    "normalise_observation": True,
    "time_limits": "terminal",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "joint heads of quantiles": {
        "heads": "joint",
        "value_loss": "quantile",
        "num_atoms": 5,
        "num_heads": 4,
        "double": False,
    },
    "own heads of histograms": {"heads": "own", "value_loss": "hl-gauss", "num_atoms": 7, "num_heads": 3},
    "munchausen": {"munchausen": True, "value_loss": "squared", "target_interval": 3},
    "everything": EVERYTHING,
}


def small(env: Any = None, **fields: Any) -> Any:
    return jaxrl.dqn(envs.make("cartpole") if env is None else env, jaxrl.DQNConfig(**SMALL | fields))


@pytest.mark.slow
def test_the_laws_hold() -> None:
    jaxrl.check(small())


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_the_laws_hold_of_every_setting(name: str) -> None:
    jaxrl.check(small(**VARIANTS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("heads", ["single", "own"])
def test_the_laws_hold_of_a_crowd_that_shares_its_network(heads: str) -> None:
    crowd = agents.Crowd(num_agents=3, masked=True)
    jaxrl.check(small(crowd, replay="prioritised", n_step=2, heads=heads))


def test_runs_of_a_block_write_by_one_slice_and_branch_together() -> None:
    runs, capacity = 3, 32  # no other array has these sizes
    algo = small(replay="prioritised", n_step=2)
    assert algo.config.capacity == capacity
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    keys = jax.random.split(jax.random.key(0), runs)
    states = jax.eval_shape(jax.vmap(algo.init, in_axes=(0, None, None)), keys, hparams, params)
    step = jax.vmap(algo.step, in_axes=(0, None, 0, None, None))
    program = jax.make_jaxpr(step)(keys, jnp.int32(0), states, hparams, params)
    operations = list(equations(program.jaxpr))

    def of_buffer(equation: Any) -> bool:
        return any(getattr(out.aval, "shape", ())[:2] == (runs, capacity) for out in equation.outvars)

    names = [equation.primitive.name for equation in operations if of_buffer(equation)]
    assert names.count("dynamic_update_slice") == len(jax.tree.leaves(states.buffer))
    assert not [name for name in names if name.startswith("scatter") or name == "select_n"]
    assert [equation for equation in operations if equation.primitive.name == "cond"]


def trained(algo: Any, iterations: int, **hparams: Any) -> list[Any]:
    """The states at the start and after each of some iterations."""
    prepared = algo.prepare(dataclasses.replace(algo.hparams, **hparams))
    params, key = algo.env.default_params, jax.random.key(0)
    states, step = [jax.jit(algo.init)(key, prepared, params)], jax.jit(algo.step)
    for iteration in range(iterations):
        states.append(step(jax.random.fold_in(key, iteration), jnp.int32(iteration), states[-1], prepared, params)[0])
    return states


def vector(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.slow
def test_targets_move_after_the_stated_number_of_gradient_steps() -> None:
    states = trained(small(num_updates=1, target_interval=3), 7)
    moved = [i for i in range(1, 8) if np.any(vector(states[i].learner.target) != vector(states[i - 1].learner.target))]
    assert moved == [3, 6]
    for i in moved:
        np.testing.assert_array_equal(vector(states[i].learner.target), vector(states[i].learner.acting.params))
    several = trained(small(num_updates=2, target_interval=3), 2)
    assert np.any(vector(several[2].learner.target) != vector(several[1].learner.target))
    assert np.any(vector(several[2].learner.target) != vector(several[2].learner.acting.params))  # a step went by


@pytest.mark.slow
def test_soft_targets_go_their_share_of_the_way() -> None:
    before, after = trained(small(num_updates=1, target_update="soft"), 1, target_rate=0.25)
    old, new = vector(before.learner.target), vector(after.learner.acting.params)
    np.testing.assert_allclose(vector(after.learner.target), old + 0.25 * (new - old), rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_epsilon_falls_over_environment_steps() -> None:
    states = trained(small(), 5, epsilon_start=0.9, epsilon_end=0.1, epsilon_anneal_env_steps=16.0)
    # Iteration i acts after 8 i steps.
    np.testing.assert_allclose(
        [state.learner.acting.epsilon for state in states[1:]], [0.9, 0.5, 0.1, 0.1, 0.1], rtol=1e-6
    )


@pytest.mark.slow
def test_the_buffer_keeps_the_last_observation_before_a_reset() -> None:
    env = envs.make("cartpole")
    states = trained(small(env, num_steps=8, buffer_size=256, prefill=128), 1, epsilon_start=1.0)
    buffer = jax.tree.map(np.asarray, states[1].buffer)
    ends = buffer.terminated[:63]
    assert ends.sum() > 2
    follows = np.all(buffer.next_obs[:63] == buffer.obs[1:64], axis=-1)
    np.testing.assert_array_equal(follows, ~ends)
    # A pole that has fallen: beyond 12 degrees, or 2.4 from the middle.
    fallen = (np.abs(buffer.next_obs[:63][ends][:, 2]) > 0.2) | (np.abs(buffer.next_obs[:63][ends][:, 0]) > 2.4)
    assert fallen.all()


@dataclasses.dataclass(frozen=True)
class Masked(type(envs.make("cartpole"))):
    """A cart-pole whose cart may not be pushed further to the side on which it is."""

    def action_mask(self, state: Any, params: Any) -> Any:
        right = state.x > 0
        return jnp.stack([right, ~right], axis=-1)


@pytest.mark.slow
def test_masks_hold_in_exploration_and_greedily() -> None:
    algo = small(Masked())
    state = trained(algo, 2)[-1]
    buffer = jax.tree.map(np.asarray, state.buffer)
    filled = 16 // 2 + 2 * 4
    taken = np.take_along_axis(buffer.mask, buffer.raw_action[..., None], axis=-1)[..., 0]
    assert taken[:filled].all() and not buffer.mask[:filled].all()
    np.testing.assert_array_equal(buffer.next_mask[..., 0][:filled], buffer.next_obs[..., 0][:filled] > 0)
    policy, params = algo.policy(state, algo.prepare(algo.hparams)), algo.env.default_params
    first = reset_all(algo.env, jax.random.key(0), params, 8)
    mask = jax.vmap(algo.env.action_mask, in_axes=(0, None))(first.state, params)
    scores, _ = algo.actor.scores(policy, (), first.obs, mask)
    assert set(scores) == {"q", "epsilon"} and scores["q"].shape == (8, 2)
    action, _, _ = algo.actor.choose(None, scores, (), True, mask)
    np.testing.assert_array_equal(action, np.asarray(mask)[:, 1])


@pytest.mark.slow
def test_a_policy_without_exploration_acts_by_its_values() -> None:
    algo = small()
    policy = algo.policy(trained(algo, 1)[-1], algo.prepare(algo.hparams))
    sure = policy._replace(acting=policy.acting._replace(epsilon=jnp.zeros(())))
    params = algo.env.default_params
    noise = algo.actor.noise(jax.random.key(1), (16, 4))
    first = reset_all(algo.env, jax.random.key(0), params, 4)
    _, steps, _ = rollout(algo.env, params, algo.actor, sure, jax.random.key(2), first, noise)
    scores, _ = algo.actor.scores(sure, (), steps.obs, None)
    np.testing.assert_array_equal(steps.raw_action, np.argmax(scores["q"], axis=-1))


@pytest.mark.slow
def test_a_crowd_learns_the_optimum_of_every_agent() -> None:
    """Agent i earns (i + 1) * action at each of i + 2 steps; the largest action is 2."""
    env = agents.Crowd(num_agents=2)
    fields = {"num_envs": 8, "prefill": 128, "buffer_size": 512, "batch_size": 64, "num_updates": 4}
    algo = small(env, **fields, target_interval=20, hidden=(32,))
    fast = dataclasses.replace(algo.hparams, lr=5e-3, discount=0.9, epsilon_end=0.2, epsilon_anneal_env_steps=2000.0)
    result = jaxrl.train(
        algo._replace(hparams=fast), seeds=2, env_steps=32 * 400, evals=1, eval_episodes=2, progress=False
    )
    np.testing.assert_allclose(result.values("return")[..., -1], np.mean([2 * (i + 1) * (i + 2) for i in range(2)]))


@pytest.mark.slow
@pytest.mark.parametrize(("fields", "discount"), [({}, "0.9"), ({"heads": "joint"}, "hyperbolic:0.1")])
@pytest.mark.parametrize(("name", "static"), PROBES, ids=lambda value: str(value))
def test_it_reaches_the_value_of_each_probe(name: str, static: dict[str, int], fields: Any, discount: str) -> None:
    env: Any = envs.make(f"probe/{name}", **static)
    q = values_learned(env, discount, **fields)
    expected = env.values(np.asarray(jaxrl.as_discount(discount).curve(100)), 1.0)
    np.testing.assert_allclose(q.max(-1), expected, rtol=0.02, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("time_limits", "expected"), [("bootstrap", [10.0, 10.0, 10.0]), ("terminal", [2.71, 1.9, 1.0])]
)
def test_a_time_limit_is_an_end_only_with_terminal(time_limits: str, expected: list[float]) -> None:
    q = values_learned(envs.make("probe/only-truncates", steps=3), "0.9", time_limits=time_limits)
    np.testing.assert_allclose(q.max(-1), expected, rtol=0.02)


def values_learned(env: Any, discount: str, **fields: Any) -> np.ndarray:
    """The action values of a probe's observations after a short run."""
    sizes = {"num_envs": 8, "prefill": 256, "buffer_size": 1024, "batch_size": 64, "num_updates": 4}
    algo = small(env, **sizes, hidden=(16,), target_interval=50, **fields)
    hparams = dataclasses.replace(
        algo.hparams, lr=3e-3, discount=discount, epsilon_end=0.1, epsilon_anneal_env_steps=1000.0
    )
    return values_after(algo, algo.prepare(hparams), 1000)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    (
        {"buffer_size": 8, "prefill": 8, "batch_size": 16},
        "buffer_size takes at least the 16 transitions of batch_size, got 8",
    ),
    (
        {"prefill": 1_001, "buffer_size": 1_001, "batch_size": 1_009},
        "buffer_size takes at least the 1009 transitions of batch_size, got 1001",
    ),
    ({"replay_storage": "both"}, "replay_storage must be one of auto, frames, transitions, got 'both'"),
    ({"num_atoms": 7}, "num_atoms has no effect with value_loss='huber', got 7; leave it out"),
    ({"num_heads": 3}, "num_heads has no effect with heads='single', got 3"),
    ({"target_update": "soft", "target_interval": 3}, "target_interval has no effect with target_update='soft'"),
    ({"munchausen": True, "n_step": 2}, "munchausen takes n_step=1, got 2"),
    ({"munchausen": True, "value_loss": "quantile"}, "munchausen takes value_loss 'squared', 'huber' or 'hl-gauss'"),
    ({"munchausen": True, "double": False}, "double has no effect with munchausen=True, got False; leave it out"),
    ({"value_loss": "cubic"}, "value_loss"),
    ({"shared_trunk": True}, "shared_trunk must be False in DQNConfig"),
    (
        {"memory": "gru", "batch_size": 9},
        r"batch_size takes a multiple of sequence_length=16 with a memory, got 9$",
    ),
    ({"memory": "gru", "sequence_length": 8, "burn_in": 8}, "burn_in takes less than sequence_length=8, got 8$"),
    (
        {"memory": "gru", "sequence_length": 4096},
        r"sequence_length takes at most the \d+ steps of each environment in the buffer .buffer_size / num_envs.,",
    ),
    (
        {"memory": "gru", "sequence_length": 8, "prefill": 8, "batch_size": 16, "buffer_size": 512},
        r"prefill takes at least the \d+ transitions of sequence_length \* num_envs with a memory, got 8$",
    ),
]


@pytest.mark.parametrize(("fields", "sentence"), REFUSALS, ids=[sentence[:30] for _, sentence in REFUSALS])
def test_an_invalid_configuration_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        jaxrl.DQNConfig(**SMALL | fields)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("kind", [jaxrl.DQNHParams, jaxrl.PPOHParams])
@pytest.mark.parametrize("name", ["adam_eps", "max_grad_norm"])
def test_the_least_numbers_of_the_optimiser_leave_a_gradient_of_zero_finite(kind: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must lie in \[1e-30, inf[)\]], got 0\.0$"):
        kind(**{name: 0.0})
    hparams, zeros = kind(**{name: 1e-30}), {"weights": jnp.zeros(3)}

    @jax.jit
    def updates(lr: Any) -> Any:
        optimiser = adam(hparams, lr)
        return optimiser.update(zeros, optimiser.init(zeros), zeros)[0]

    np.testing.assert_array_equal(updates(1.0)["weights"], np.zeros(3))


@pytest.mark.parametrize(("dueling", "layer_norm"), [(True, True), (True, False), (False, True)])
def test_hidden_layers_of_dueling_streams_are_normalised_on_request(dueling: bool, layer_norm: bool) -> None:
    algo = small(dueling=dueling, layer_norm=layer_norm)
    params = jax.eval_shape(algo.init, jax.random.key(0), algo.prepare(algo.hparams), algo.env.default_params)
    names = set(params.learner.target["params"])
    streams = {"advantage_hidden_norm", "value_hidden_norm"}
    assert names & streams == (streams if dueling and layer_norm else set())


def test_continuous_actions_are_refused() -> None:
    sentence = r"^dqn takes an environment of discrete actions .*, got Box.*; sac, td3 and ppo take bounded numbers"
    with pytest.raises(TypeError, match=sentence):
        small(envs.make("pendulum"))


@pytest.mark.parametrize(
    ("heads", "discount", "sentence"),
    [
        ("single", "hyperbolic:0.1", "heads='single' takes an exponential discount, which hyperbolic:k=0.1 is not"),
        ("joint", "fixed:10", "discount must be a mixture of exponentials.* and fixed:horizon=10 is not"),
        ("single", "table:1,0.5", "discount must be a mixture of exponentials.* and table:1,0.5 is not"),
    ],
)
def test_a_discount_without_a_mixture_is_refused(heads: str, discount: str, sentence: str) -> None:
    algo = small(heads=heads)
    with pytest.raises(ValueError, match=sentence):
        algo.prepare(dataclasses.replace(algo.hparams, discount=discount))


@pytest.mark.parametrize(
    ("num_heads", "discount", "error"),
    [(8, "hyperbolic:0.1", None), (8, "0.99", None), (3, "quasi:0.7,0.99", None), (3, "hyperbolic:0.1", "0.021")],
)
def test_a_curve_that_the_heads_miss_is_reported(
    num_heads: int, discount: str, error: str | None, recwarn: pytest.WarningsRecorder
) -> None:
    algo = small(heads="own", num_heads=num_heads)
    prepared = algo.prepare(dataclasses.replace(algo.hparams, discount=discount))
    algo.prepare(prepared)  # is not reported again
    sentence = (
        f"the 3 exponentials of the heads differ from hyperbolic:k=0.1 by up to {error}, at a delay of 10 of the 500 "
        "steps of an episode; more num_heads reduce the difference"
    )
    assert [str(warning.message) for warning in recwarn] == ([] if error is None else [sentence])


def test_the_setting_whose_curve_is_missed_most_is_named() -> None:
    algo = small(heads="joint", num_heads=4)
    sweep = jaxrl.grid(algo.hparams, {"discount": ["0.9", "hyperbolic:0.02", "hyperbolic:1"]})
    with pytest.warns(RuntimeWarning, match="differ from the discount of setting 2 by up to 0.011, at a delay of 2 of"):
        algo.prepare(sweep.hparams, len(sweep))


def test_a_traced_discount_of_more_exponentials_than_heads_is_refused() -> None:
    algo = small(heads="joint", num_heads=4)
    sentence = "num_heads=4 takes a traced discount of at most 4 exponentials, got one of 43; prepare it before tracing"
    with pytest.raises(ValueError, match=sentence):
        jax.eval_shape(lambda k: algo.prepare(dataclasses.replace(algo.hparams, discount=jaxrl.Hyperbolic(k))), 0.1)


def test_a_search_has_a_default_space() -> None:
    assert set(default_space(small())) >= {"lr", "epsilon_end", "discount"}


@pytest.mark.slow
def test_it_resumes_bit_for_bit_and_exports_its_values(tmp_path: Path) -> None:
    algo = small(heads="joint", num_heads=7, replay="prioritised")
    sweep = jaxrl.grid(algo.hparams, {"discount": ["0.9", "hyperbolic:0.1"]})
    run: dict[str, Any] = {"seeds": 2, "evals": 2, "eval_episodes": 2, "progress": False}
    whole = jaxrl.train(algo, sweep, env_steps=160, out=tmp_path / "whole", **run)
    often = jaxrl.train(algo, sweep, env_steps=160, out=tmp_path / "often", checkpoint_minutes=1e-9, **run)
    for name in map(str, whole.metrics.data_vars):
        np.testing.assert_array_equal(often.values(name), whole.values(name), err_msg=name)
    # Resumed from a checkpoint after the buffer has wrapped around: the rest needs its transitions and their
    # priorities.
    shorter: dict[str, Any] = run | {"evals": 1}
    jaxrl.train(algo, sweep, env_steps=80, out=tmp_path / "half", **shorter)
    rest = jaxrl.train(algo, sweep, env_steps=160, out=tmp_path / "half", resume=True, **run)
    jax.tree.map(np.testing.assert_array_equal, rest.policies, whole.policies)
    policy = whole.policy(seed=0, discount="0.9")
    jaxrl.export_policy(policy, tmp_path / "policy.stablehlo")
    obs = np.zeros((3, 4), np.float32)
    loaded = jaxrl.load_exported(tmp_path / "policy.stablehlo")
    np.testing.assert_array_equal(loaded(obs), policy(obs))
