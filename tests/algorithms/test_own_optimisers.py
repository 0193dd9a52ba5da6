"""Custom optimisers of every algorithm: errors, states, schedules of updates, sweeps, and runs that are loaded."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from linear_task import LinearTask
from quick_jit import quick_jit

import envs
import jaxrl
from jaxrl.algorithms import registry
from jaxrl.algorithms.registry import ROWS, config_class
from jaxrl.cli import main as cli
from jaxrl.importing import path_of
from jaxrl.learning.optimisers import adam, transformation
from jaxrl.results.dataset import ResultError

BUILDERS: dict[str, Any] = {name: getattr(jaxrl, name) for name in ROWS}
RUN: dict[str, Any] = {"evals": 2, "eval_episodes": 2, "progress": False}


def built(name: str, optimiser: Any, **fields: Any) -> Any:
    """A small algorithm on a short task, with a custom optimiser."""
    config = config_class(BUILDERS[name])(**{**ROWS[name].small, "optimiser": optimiser, **fields})
    return BUILDERS[name](LinearTask(discrete=name not in ("sac", "td3")), config)


def halving(lr: Any) -> optax.GradientTransformation:
    """Steps of half the length after each update."""
    return optax.sgd(lambda count: lr * 0.5**count)


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (0.1, TypeError, r"optimiser takes a function of the step size, such as lambda .*, got 0.1$"),
    (optax.sgd(0.1), TypeError, r"optimiser takes a function of the step size, .*, got a transformation; a function"),
    (
        "adamw",
        TypeError,
        r"optimiser takes a function of the step size, .*'optax:adamw'(, or 'learned')?, got 'adamw'$",
    ),
    ("optax:adamx", ValueError, r"The optimiser 'optax:adamx' cannot be found: optax has no function .*'adam'"),
    ("absent_module:sgd", ValueError, r"The optimiser .* cannot be found: there is no module 'absent_module' here$"),
    (lambda: optax.sgd(0.1), TypeError, r"optimiser must take \(lr\), but it takes \(\)$"),
    (lambda lr, decay: optax.adamw(lr), TypeError, r"optimiser must take \(lr\), but it takes \(lr, decay\)$"),
    (
        lambda lr: optax.adam(optax.warmup_cosine_decay_schedule(0.0, lr, 5, 10)),
        TypeError,
        r"optimiser must return .*, got TracerBoolConversionError: a schedule that computes with numbers alone is",
    ),
    (
        lambda lr: 2 * lr,
        TypeError,
        r"optimiser must return an optax.Gradient.*, got float32\[\]; a schedule is an argument of an optim",
    ),
    (lambda lr: None, TypeError, r"optimiser must return an optax.Gradient.*, got NoneType$"),
    (
        lambda lr: optax.cosine_decay_schedule(lr, 10),
        TypeError,
        r"optimiser must return an optax.Gradient.*, got function; a schedule is an argument of an optimiser of optax$",
    ),
    (
        lambda lr: optax.sgd(float(lr)),
        TypeError,
        r"optimiser must return a transformation for a traced step size, got ConcretizationTypeError: Abstract tracer",
    ),
    (
        lambda lr: optax.sgd(lr, momentun=0.9),  # type: ignore[call-arg]
        TypeError,
        r"optimiser must return a transformation .*, got TypeError: sgd\(\) got an unexpected keyword",
    ),
    (optax.polyak_sgd, TypeError, r"optimiser must return .* gradients and parameters alone, got .* takes 'value' as"),
]


@pytest.mark.parametrize(("optimiser", "kind", "sentence"), REFUSED)
def test_arguments_that_are_not_optimiser_factories_are_refused(
    optimiser: Any, kind: type[Exception], sentence: str
) -> None:
    for name in ("a2c", "dqn", "evolve"):
        with pytest.raises(kind, match=f"^{sentence}") as caught:
            built(name, optimiser)
        assert len(str(caught.value).splitlines()) == 1


def test_a_schedule_as_a_step_size_is_led_to_the_optimiser() -> None:
    with pytest.raises(TypeError, match=r"^lr takes a number, got a function, .*, and optimiser= of the configuration"):
        jaxrl.DQNHParams(lr=optax.cosine_decay_schedule(1e-3, 10))
    with pytest.raises(TypeError, match=r"^DQNConfig has no field 'optimizer'; did you mean 'optimiser'\?$"):
        jaxrl.DQNConfig(optimizer=optax.sgd)  # type: ignore[call-arg]


def test_a_strategy_without_an_optimiser_takes_none() -> None:
    with pytest.raises(ValueError, match=r"^optimiser has no effect with strategy='cma-es', which has none; leave it"):
        built("evolve", optax.sgd, strategy="cma-es")


def test_adam_as_a_custom_optimiser_is_the_default_bit_for_bit() -> None:
    """One operation at a time: compiled, those of a vector and those of small arrays may differ by a rounding."""
    algo = built("ppo", None)
    hparams = dataclasses.replace(algo.hparams, max_grad_norm=1.0)
    numbers = {name: jnp.float32(getattr(hparams, f"adam_{name}")) for name in ("b1", "b2", "eps")}
    custom = transformation(lambda lr: optax.adam(lr, **numbers), hparams, 0.01)
    default = adam(hparams.replace(**{f"adam_{name}": number for name, number in numbers.items()}), jnp.float32(0.01))
    params = {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)}
    states, generator = [custom.init(params), default.init(params)], np.random.default_rng(0)
    with jax.disable_jit():
        for scale in (0.1, 10.0, 1.0):  # gradients with norms below and above 1
            gradient = jax.tree.map(lambda leaf: jnp.float32(scale * generator.normal(size=leaf.shape)), params)  # noqa: B023
            (one, states[0]), (two, states[1]) = custom.update(gradient, states[0]), default.update(gradient, states[1])
            jax.tree.map(np.testing.assert_array_equal, one, two)


@pytest.mark.parametrize("name", [name for name in ROWS if name != "evolve"])
def test_the_state_of_every_algorithm_has_that_of_its_optimiser(name: str) -> None:
    algo = built(name, lambda lr: optax.sgd(lr, momentum=0.9))
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    state = jax.eval_shape(algo.init, jax.random.key(0), hparams, params)
    after, _ = jax.eval_shape(algo.step, jax.random.key(0), jnp.int32(0), state, hparams, params)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    states = [leaf for leaf in jax.tree.leaves(state, is_leaf=_is_trace) if _is_trace(leaf)]
    assert len(states) == (2 if name in ("sac", "td3") else 1)
    temperature = name == "sac"  # moved by Adam
    assert [getattr(algo.hparams, each) is not None for each in ("adam_b1", "adam_b2", "adam_eps")] == [temperature] * 3


def _is_trace(leaf: Any) -> bool:
    return isinstance(leaf, optax.TraceState)


def test_a_fixed_temperature_leaves_nothing_to_adam() -> None:
    assert built("sac", optax.sgd, automatic_temperature=False).hparams.adam_b1 is None
    with pytest.raises(ValueError, match=r"^adam_b1 has no effect on this environment and configuration, got 0.5;"):
        algo = built("dqn", optax.sgd)
        algo.prepare(dataclasses.replace(algo.hparams, adam_b1=0.5))


def test_a_schedule_of_an_evolution_strategy_counts_generations() -> None:
    moves = []
    for optimiser in (optax.sgd, halving):
        algo = built("evolve", optimiser)
        params = algo.env.default_params
        state, step = algo.init(jax.random.key(0), algo.hparams, params), quick_jit(algo.step)
        before = state.strategy.mean
        for i in range(2):
            state, _ = step(jax.random.key(i), jnp.int32(i), state, algo.hparams, params)
            moves.append(state.strategy.mean - before)
            before = state.strategy.mean
    whole, _, same, second = moves
    np.testing.assert_array_equal(whole, same)
    # The second generation is the same as well, and moves half as far.
    np.testing.assert_allclose(second, moves[1] / 2, rtol=1e-5)
    assert np.abs(second).max() > 1e-4


def test_runs_with_other_step_sizes_are_those_one_by_one() -> None:
    algo = built("a2c", halving)
    hparams, params = dataclasses.replace(algo.hparams, lr=jnp.array([0.1, 0.4])), algo.env.default_params
    axes = jax.tree.map(lambda leaf: 0 if np.ndim(leaf) else None, hparams)
    together = quick_jit(jax.vmap(algo.step, in_axes=(None, None, 0, axes, None)))
    alone, init, key = quick_jit(algo.step), quick_jit(algo.init), jax.random.key(0)
    singles = [dataclasses.replace(algo.hparams, lr=jnp.float32(lr)) for lr in (0.1, 0.4)]
    states = [init(key, each, params) for each in singles]
    several = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    start = states[0].weights
    for i in range(2):
        several, _ = together(key, jnp.int32(i), several, hparams, params)
        states = [alone(key, jnp.int32(i), state, each, params)[0] for state, each in zip(states, singles, strict=True)]
    for i, state in enumerate(states):
        for one, other in zip(jax.tree.leaves(several.weights), jax.tree.leaves(state.weights), strict=True):
            np.testing.assert_allclose(one[i], other, rtol=0, atol=1e-6)  # roundings of numbers of the size of 1
    moves = [max(jax.tree.leaves(jax.tree.map(lambda x, y: np.abs(x - y).max(), s.weights, start))) for s in states]
    assert moves[1] > 2 * moves[0] > 1e-3


@pytest.mark.slow
@pytest.mark.seconds_to_compile(60)
def test_a_sweep_over_the_step_size_is_its_runs_bit_for_bit() -> None:
    algo = built("a2c", halving)
    steps, rates = 3 * algo.env_steps_per_iteration, [0.1, 0.4]
    together = jaxrl.train(algo, jaxrl.grid(algo.hparams, {"lr": rates}), env_steps=steps, block=2, **RUN)
    for i, lr in enumerate(rates):
        alone = jaxrl.train(algo, dataclasses.replace(algo.hparams, lr=lr), env_steps=steps, block=2, **RUN)
        part, one = (jax.tree.leaves(result.policies.params) for result in (together, alone))
        for several, single in zip(part, one, strict=True):
            np.testing.assert_array_equal(np.ravel(several[i]), np.ravel(single))


FILE = """
import optax

def slow(lr):
    return optax.adamw(lambda count: lr / (1 + count))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module with the optimiser `slow`."""
    (tmp_path / "slow_steps.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return "slow_steps"


def test_a_function_of_a_module_is_described_by_its_path(module: str) -> None:
    assert path_of(optax.adamw) == "optax:adamw" and path_of(optax.contrib.muon) == "optax.contrib:muon"
    assert path_of(functools.partial(optax.sgd)) is None and path_of(lambda lr: lr) is None
    described = registry.describe(built("dqn", __import__(module).slow))
    assert described["config"]["optimiser"] == f"{module}:slow"
    assert json.loads(json.dumps(described)) == registry.describe(built("dqn", f"{module}:slow")) | {
        "config": json.loads(json.dumps(described["config"]))
    }
    with pytest.raises(ValueError, match=r"^the optimiser 'slow_steps:slow' is of the module 'slow_steps', which a"):
        registry.build(described, allow="linear_task")
    assert registry.build(described, allow=("linear_task", module)).config.optimiser == f"{module}:slow"
    known = registry.describe(built("dqn", optax.lion))
    assert registry.build(known, allow="linear_task").config.optimiser == "optax:lion"
    with pytest.raises(ValueError, match=r"^its optimiser is the user's own .*<lambda>, which has no path to import$"):
        registry.describe(built("dqn", lambda lr: optax.sgd(lr)))
    assert "optimiser=optax:lion" in repr(built("dqn", optax.lion).config)


@pytest.mark.slow
@pytest.mark.seconds_to_compile(60)
def test_a_resumed_run_is_the_whole_run_bit_for_bit(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    algo = BUILDERS["a2c"](envs.make("cartpole"), jaxrl.A2CConfig(hidden=(4,), optimiser=f"{module}:slow"))
    one = 2 * algo.env_steps_per_iteration
    jaxrl.train(algo, env_steps=one, out="run", **RUN)
    with pytest.raises(ResultError, match=r"the optimiser .* is of the module 'slow_steps'.*\(--allow slow_steps\)"):
        jaxrl.resume("run", env_steps=2 * one)
    assert cli.main(["resume", "run", "--allow", module, "--env-steps", str(2 * one), "--no-progress"]) == 0
    assert "Wrote run" in capsys.readouterr().out
    resumed, whole = jaxrl.load_result("run", allow=module), jaxrl.train(algo, env_steps=2 * one, **RUN)
    jax.tree.map(np.testing.assert_array_equal, resumed.policies, whole.policies)


COMMAND = ["train", "a2c", "cartpole", "--no-preset", "--config.hidden", "4", "--env-steps", "160", "--evals", "1"]
COMMAND += ["--eval-episodes", "1", "--no-progress", "--out", "run", "--config.optimiser"]


@pytest.mark.slow
@pytest.mark.seconds_to_compile(60)
def test_the_command_line_takes_a_path(module: str) -> None:
    assert cli.main([*COMMAND, f"{module}:slow"]) == 0
    assert json.loads(Path("run/config.json").read_text())["config"]["optimiser"] == f"{module}:slow"


def test_the_command_line_imports_the_path_of_an_optimiser(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*COMMAND, f"{module}:fast"]) == 2
    assert "The optimiser 'slow_steps:fast' cannot be found: slow_steps has no function" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--config.optimiser", "slow_steps:slow"], ["--space", "lr=0.1,0.2", "config.optimiser=slow_steps:slow"]]
)
def test_a_search_resumes_with_an_optimiser_where_its_module_is_allowed(
    words: list[str], module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run").mkdir()
    command = ["a2c", "cartpole", "--no-preset", "--config.hidden", "4", "--unknown", *words]
    Path("run/search.json").write_text(json.dumps({"command": command}))
    assert cli.main(["resume", "run"]) == 2
    assert f"the optimiser 'slow_steps:slow' is of the module '{module}'" in capsys.readouterr().err
    assert cli.main(["resume", "run", "--allow", module]) == 2  # the search begins, and refuses its options
    assert "unrecognized options: --unknown" in capsys.readouterr().err


def test_the_second_stage_of_a_belief_begins_with_a_new_optimiser() -> None:
    def counting(lr: Any) -> optax.GradientTransformation:
        """Count its updates from 5, and move nothing."""
        del lr
        return optax.GradientTransformation(
            lambda params: jnp.float32(5),
            lambda updates, state, params=None: (jax.tree.map(jnp.zeros_like, updates), state + 1),
        )

    fields = {**ROWS["ppo"].small, "memory": "gru", "memory_size": 4, "belief": "staged", "optimiser": counting}
    algo = BUILDERS["ppo"](envs.make("cooperation/levers"), jaxrl.PPOConfig(**fields))
    hparams = dataclasses.replace(algo.hparams, belief_env_steps=2 * algo.env_steps_per_iteration)
    params, counts = algo.env.default_params, []
    state, step = quick_jit(algo.init)(jax.random.key(0), hparams, params), quick_jit(algo.step)
    for i in range(4):
        state, _ = step(jax.random.key(i), jnp.int32(i), state, hparams, params)
        counts.append(float(state.optimiser[-1]))
    updates = algo.config.num_epochs * algo.config.num_minibatches
    assert counts == [5 + updates, 5 + 2 * updates, 5 + updates, 5 + 2 * updates]
