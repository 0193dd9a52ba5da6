"""First use: short reprs, and error messages with suggestions."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chaotic_algorithm import wandering

import envs
import jaxrl
from envs.arguments import described
from envs.spelling import near
from jaxrl.bandits import POLICIES, policy
from jaxrl.cli.parsing import CommandError
from jaxrl.cli.train import asked
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.statistics import Interval
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.options import ResumeOptions, RunOptions, checked
from jaxrl.tuning.population import PopulationResult
from jaxrl.tuning.result import SearchResult
from jaxrl.tuning.shared_study import Outcome

ROOT = Path(__file__).parent.parent
# A newcomer's input, which a type checker would reject.
PPOConfig: Any = jaxrl.PPOConfig
PPOHParams: Any = jaxrl.PPOHParams


def result() -> jaxrl.Result:
    """Two learning rates and two discounts with seeds 3 and 4, of an algorithm that compiles quickly."""
    algo = wandering()
    sweep = jaxrl.grid(algo.hparams, {"lr": [0.1, 0.2], "discount": [0.9, "beta:0.98,0.5"]})
    return jaxrl.train(algo, sweep, seeds=[3, 4], env_steps=64, evals=2, eval_episodes=2, block=4, progress=False)


@pytest.fixture(scope="module")
def trained() -> jaxrl.Result:
    return result()


@pytest.mark.slow
def test_every_object_of_a_first_session_has_a_short_repr(trained: jaxrl.Result) -> None:
    trial = Outcome(0, "complete", {"lr": 0.1}, 12.5, [12.0, 13.0], 640)
    actual = SearchResult({"algorithm": "ppo"}, "study", [trial] * 30, 30, 0, 1.0, 1, 1, [7])
    places = np.zeros((2, 4), int)
    population = PopulationResult(trained, [[{}] * 4] * 2, np.ones((2, 4)), places, np.array([8, 16]), np.arange(4))
    output = jax.jit(jaxrl.make_train(wandering(), env_steps=32, evals=2, eval_episodes=2))(jax.random.key(0))
    objects: list[Any] = [
        trained,
        trained.algo,
        trained.hparams,
        trained.policy(lr=0.1, discount=0.9, seed=3),
        actual,
        population,
        output,
        Interval(*np.array([2.0, 1.0, 3.0])),
        Interval(np.ones(1000), np.ones(1000), np.ones(1000)),
        jaxrl.PPOConfig(),
        jaxrl.PPOHParams(),
        jaxrl.ppo(envs.make("cartpole")),
        jaxrl.preset("ppo", "cartpole"),
        jaxrl.plan(wandering(), seeds=2, env_steps=64, eval_episodes=2),
        wandering().prepare(jaxrl.grid(wandering().hparams, {"lr": [0.1, 0.2]}).hparams, 2).discount,
        jaxrl.grid(jaxrl.PPOHParams(), {"lr": [0.1, 0.2]}),
        jaxrl.as_discount("beta:0.98,0.5"),
        *map(policy, POLICIES),
    ]
    for each in objects:
        text = repr(each)
        assert len(text) <= 300 and "\n" not in text and "Array(" not in text, text
    assert repr(jaxrl.PPOConfig(num_envs=8)) == "PPOConfig(num_envs=8)"
    assert repr(jaxrl.PPOHParams(lr=1e-3, discount=0.9)) == "PPOHParams(lr=0.001, discount=Exponential(gamma=0.9))"
    without_effect = jaxrl.ppo(envs.make("cartpole")).hparams.replace(lr=1e-3)
    assert str(without_effect).startswith("PPOHParams(lr=0.001, lr_end=1.0, ") and "None" not in str(without_effect)
    assert repr(objects[7]) == "Interval(2 [1, 3])"
    assert repr(actual) == "SearchResult(study: 30 of 30 trials; incumbent: trial 0, 12.5; details: report())"
    assert repr(trained.table()) == str(trained.table())


@pytest.mark.slow
def test_sel_takes_the_coordinates_of_policy(trained: jaxrl.Result) -> None:
    chosen = trained.sel(discount=0.9, lr=0.2, seed=4)["return"]
    assert chosen.dims == ("env_step",)
    labels = {"lr": 0.2, "discount": "exp:gamma=0.9", "seed": 4}
    np.testing.assert_array_equal(chosen, trained.metrics["return"].sel(labels))
    assert trained.sel(discount=jaxrl.Exponential(0.9))["return"].dims == ("lr", "seed", "env_step")
    for coords, sentence in (
        ({"discount": 0.7}, r"^discount is '0.7'; this result has exp:gamma=0.9, beta:mu=0.98,eta=0.5\."),
        ({"gravity": 1}, r"^gravity is not a coordinate; this result has lr, discount, seed\."),
    ):
        with pytest.raises(ValueError, match=sentence):
            trained.sel(**coords)


@pytest.mark.slow
def test_sel_of_a_sample_takes_all_of_its_coordinates() -> None:
    algo = wandering()
    sweep = jaxrl.sample(algo.hparams, 3, {"lr": jaxrl.Uniform(0, 1), "discount": jaxrl.Choice([0.9, 0.8])})
    some = jaxrl.train(algo, sweep, seeds=2, env_steps=16, evals=1, eval_episodes=2, block=4, progress=False)
    setting = some.settings[1]
    chosen = some.sel(**setting)["return"]
    np.testing.assert_array_equal(chosen, some.metrics["return"].isel(setting=1))
    other = next(label for label in ("exp:gamma=0.9", "exp:gamma=0.8") if label != setting["discount"])
    if other in [each["discount"] for each in some.settings]:
        with pytest.raises(ValueError, match="no setting has all of"):
            some.sel(lr=setting["lr"], discount=other)


@pytest.mark.parametrize(
    ("word", "own"),
    [
        ("optimizer", "optimiser"),
        ("centralized_critic", "centralised_critic"),
        ("Normalization", "normalisation"),
        ("dueling", "dueling"),
        ("sweep", "search"),
        ("size", None),
        ("prize", None),
        ("hidden", None),
    ],
)
def test_american_spellings_and_names_of_other_libraries_are_known(word: str, own: str | None) -> None:
    known = ["optimiser", "centralised_critic", "normalisation", "dueling", "search", "num_envs"]
    assert near(word, known) == ("" if own is None else f"; did you mean {own!r}?")


def rows_of_names() -> list[tuple[str, str, Any]]:
    """Name in another library, name here, and class, of the rows of the page that state a class."""
    rows = []
    for line in (ROOT / "docs/how-to/migrate.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and (kind := re.fullmatch(r"`(\w+(?:Config|HParams))`|hyper-parameter", cells[3])):
            there = re.findall(r"`([a-z]\w*)[`=]", f"{cells[0]} {cells[1]}")
            own = re.match(r"`(\w+)[`=]", cells[2])
            assert own is not None, line
            rows += [(name, own[1], getattr(jaxrl, kind[1] or "PPOHParams")) for name in there]
    return rows


@pytest.mark.parametrize(("name", "own", "kind"), rows_of_names())
def test_errors_about_names_of_other_libraries_are_those_of_the_page(name: str, own: str, kind: Any) -> None:
    fields = [field.name for field in dataclasses.fields(kind)]
    assert own in fields
    if name == "gamma":  # of any class
        with pytest.raises(TypeError, match=r"^gamma is not a field: use discount="):
            kind(gamma=1)
    elif name != own and name not in fields:
        with pytest.raises(TypeError, match=rf"; did you mean '{own}'(, or \w+\(\w+=\.\.\.\))?\?$"):
            kind(**{name: 1})


def test_every_name_of_sb3_and_cleanrl_off_policy_is_on_the_page() -> None:
    listed = {name for name, _, _ in rows_of_names()}
    assert listed >= {
        *("learning_starts", "train_freq", "gradient_steps", "tau", "exploration_fraction", "target_update_interval"),
        *("ent_coef", "alpha", "learning_rate", "gamma", "autotune", "policy_frequency", "target_network_frequency"),
    }


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ("--hparams.tau 0.1", "--hparams.target-rate"),
        ("--tau=0.1", "--hparams.target-rate"),
        ("--hparams.learning-rate 1", "--hparams.lr"),
        ("--lr 1", "--hparams.lr"),
        ("--gamma 0.9", "--hparams.discount"),
        ("--config.gradient-steps 3", "--config.num-updates"),
        ("--hparams.ent-coef auto", "--config.automatic-temperature or --hparams.temperature"),
        ("--total-timesteps 10", "--env-steps"),
        ("--gpu", "--devices"),
    ],
)
def test_options_of_other_libraries_get_the_name_here(options: str, hint: str) -> None:
    with pytest.raises(CommandError, match=rf"^unrecognized options: .*; did you mean {hint}\? \(see jaxrl train"):
        asked(["sac", "pendulum", *options.split()], "train")


def test_widths_with_commas_get_the_spelling_with_spaces() -> None:
    sentence = (
        r"^--config.hidden takes values with spaces .*, such as --config.hidden 64 32, got 64,32 \(see jaxrl train"
    )
    with pytest.raises(CommandError, match=sentence):
        asked(["sac", "pendulum", "--config.hidden", "64,32"], "train")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PPOConfig(num_env=8), "^PPOConfig has no field 'num_env'; did you mean 'num_envs'"),
        (lambda: PPOConfig(8), "^PPOConfig takes its fields by name"),
        (lambda: PPOConfig(lr=1e-3), r"^PPOConfig has no field 'lr'; PPOHParams has it: PPOHParams\(lr="),
        (lambda: PPOConfig(gae_lambda=0.9), r"PPOHParams has it: PPOHParams\(lam="),
        (lambda: PPOHParams(num_envs=8), r"PPOConfig has it: PPOConfig\(num_envs="),
        (lambda: PPOHParams(ent_coef=0.1), "did you mean 'entropy_coef'"),
        (lambda: PPOConfig(normalize_reward=True), r"did you mean 'normalise_reward'\?$"),
        (lambda: PPOHParams(normalize_reward=True), r"PPOConfig has it: PPOConfig\(normalise_reward=...\)$"),
        (lambda: PPOHParams().replace(learning_rate=0.1), "did you mean 'lr'"),
        (lambda: PPOConfig(zebra=1), "^PPOConfig has no field 'zebra'; it has network, hidden"),
        (lambda: PPOConfig(gamma=0.9), "^gamma is not a field: use discount="),
    ],
)
def test_settings_say_which_field_was_meant(call: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"total_timesteps": 1}, "did you mean 'env_steps'"),
        ({"num_seeds": 1}, "did you mean 'seeds'"),
        ({"log_dir": "runs"}, "did you mean 'out'"),
    ],
)
def test_options_say_which_one_was_meant(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        checked(jaxrl.train, RunOptions, options)


def test_a_sweep_says_which_path_was_meant() -> None:
    with pytest.raises(ValueError, match="did you mean 'lam'"):
        jaxrl.grid(jaxrl.PPOHParams(), {"gae_lambda": [0.9, 0.95]})


def test_devices_are_a_list() -> None:
    with pytest.raises(TypeError, match=r"devices takes a list of devices, such as \['cpu:0'\], got 'cpu'"):
        plan_layout(4, None, "cpu")


@pytest.mark.slow
def test_trackers_may_be_named(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "seeds": 2,
        "env_steps": 64,
        "evals": 2,
        "eval_episodes": 2,
        "block": 4,
        "progress": False,
    }
    jaxrl.train(wandering(), **options, out=tmp_path / "run", trackers=["csv"])
    assert len((tmp_path / "run" / "progress.csv").read_text().splitlines()) == 1 + 2 * 2
    assert checked(jaxrl.resume, ResumeOptions, {"trackers": ["csv"]}).trackers == ["csv"]  # its directory is known
    with pytest.raises(ValueError, match="trackers takes names only with out"):
        jaxrl.train(wandering(), **options, trackers=["csv"])
    with pytest.raises(ValueError, match="there is no tracker 'tensorbord'; did you mean 'tensorboard'"):
        jaxrl.train(wandering(), **options, out=tmp_path / "other", trackers=["tensorbord"])


def test_arrays_are_described_by_type_and_shape() -> None:
    shapes = {"own": jax.ShapeDtypeStruct((4,), np.float32), "time": np.int32(0)}
    assert described(shapes) == "{'own': float32[4], 'time': int32[]}"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HalfCheetah-v4", "'brax/halfcheetah' or 'gymnasium/HalfCheetah-v4'"),
        ("hopper", "'brax/hopper'"),
        ("LunarLander-v2", "'gymnasium/LunarLander-v3'"),
        ("CartPole-v0", "'cartpole'"),
    ],
)
def test_ids_of_gymnasium_lead_to_the_task(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"There is no environment '{name}'; did you mean {meant}"):
        envs.make(name)


def old_step(key: Any, state: Any, hparams: Any, env_params: Any) -> Any:
    """A step as it was before it took the iteration."""


@pytest.mark.parametrize("use", [lambda algo: jaxrl.train(algo, env_steps=16), jaxrl.check], ids=["train", "check"])
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"step": old_step},
            r"^step of wander must take \(key, iteration, state, hparams, env_params\), but it takes "
            r"\(key, state, hparams, env_params\)$",
        ),
        ({"policy": None}, r"^policy of wander must be a function of \(state, hparams\), got None"),
        ({"actor": old_step}, r"^actor of wander must be a jaxrl\.learning\.actor\.Actor, got function"),
        ({"hparams": {"lr": 1}}, r"^hparams of wander must be a flax\.struct dataclass instance, got dict"),
        ({"env": "cartpole"}, r"^env of wander must be an environment, got str"),
        ({"env_steps_per_iteration": 0}, r"^env_steps_per_iteration must be a whole number of at least 1, got 0"),
        ({"step": lambda *_: 1.0}, r"^step must return a pair, the state and the metrics, got (1\.0|float32)"),
        (
            {"step": lambda key, iteration, state, hparams, env_params: (state[0], {})},
            r"^step must return a state like its argument:  was float32\[8, 8\] and became float32\[8\]",
        ),
    ],
)
def test_members_are_checked_alike(use: Any, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        use(wandering()._replace(**changes))


def test_a_name_is_not_an_algorithm() -> None:
    with pytest.raises(
        TypeError, match=r"algo takes an algorithm, such as jaxrl\.ppo\(envs\.make\('cartpole'\)\), or .*, got 'ppo'"
    ):
        jaxrl.train(cast(Any, "ppo"), env_steps=16)
    with pytest.raises(TypeError, match=r"^algo takes an algorithm, .* got 'ppo'$"):
        jaxrl.plan(cast(Any, "ppo"), env_steps=16)


OPTIONS: Any = {"evals": 2, "eval_episodes": 2, "block": 4}


@pytest.mark.slow_rows("None-48")
@pytest.mark.parametrize(("env_steps", "total"), [(None, 48), (32, 32)])
def test_two_names_train_as_their_preset(
    env_steps: Any, total: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = SimpleNamespace(algo=wandering(), env_steps=48)
    monkeypatch.setattr("jaxrl.presets.registry.find", lambda algorithm, environment: known)
    trained = jaxrl.train("wander", "plain", env_steps=env_steps, **OPTIONS)
    assert int(trained.metrics["env_step"][-1]) == total
    said = capsys.readouterr().err.splitlines()[0]
    assert said.startswith("jaxrl: wander on plain with the settings of its preset")
    assert ("and its 48 environment steps (env_steps=... changes them)" in said) == (env_steps is None)
    jaxrl.train("wander", "plain", env_steps=env_steps, **OPTIONS, progress=False)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((wandering(),), "^train takes env_steps, the number of environment steps .*, such as env_steps=500_000$"),
        (("ppo", "memory/delayed-match"), "such as env_steps=500_000$"),
        ((jaxrl.ppo(envs.make("cartpole")),), "such as env_steps=499_712 of the preset$"),
    ],
)
def test_a_missing_number_of_steps_is_reported_with_an_example(arguments: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        jaxrl.train(*arguments)


@pytest.mark.parametrize("function", ["search", "plan"])
def test_search_and_plan_take_steps_and_names_as_train_does(
    function: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = getattr(jaxrl, function)
    with pytest.raises(TypeError, match=f"^{function} takes env_steps, the number of .*, such as env_steps=500_000$"):
        call(wandering())
    known = SimpleNamespace(algo=wandering(), env_steps=48)
    monkeypatch.setattr("jaxrl.presets.registry.find", lambda algorithm, environment: known)
    with pytest.raises(ValueError, match=r"^seeds\b.* got 0$"):
        call("wander", "plain", seeds=0)
    shown = "jaxrl: wander on plain with the settings of its preset and its 48 environment steps"
    assert capsys.readouterr().err.startswith(shown) == (function == "search")


def test_names_that_do_not_exist_get_a_near_one() -> None:
    for names, meant in ((("pp", "cartpole"), "did you mean 'ppo'"), (("ppo", "cartpol"), "did you mean 'cartpole'")):
        with pytest.raises(ValueError, match=meant):
            jaxrl.train(*names)


@pytest.mark.slow
def test_checks_report_progress_and_how_many_laws_hold(capsys: pytest.CaptureFixture[str]) -> None:
    envs.check(envs.probes.ConstantReward(), num_steps=8)
    assert capsys.readouterr().err.endswith("envs.check(ConstantReward): ok: 11 laws\n")
    with pytest.raises(envs.ContractError):
        envs.check(cast(Any, envs.Environment()))
    assert "ok" not in capsys.readouterr().err
    envs.check(envs.probes.ConstantReward(), num_steps=8, progress=False)
    assert not capsys.readouterr().err


def test_another_envs_is_named_when_jaxrl_is_imported(tmp_path: Path) -> None:
    (tmp_path / "envs.py").write_text("")
    (tmp_path / "script.py").write_text("import envs, jaxrl\nenvs.make('cartpole')\n")
    root = str(Path(jaxrl.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert f"another 'envs', {tmp_path / 'envs.py'}, hides the one that comes with jaxrl" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"num_envs": 8},
            r"^ppo takes env, config, network, got num_envs; .*: ppo\(env, PPOConfig\(num_envs=\.\.\.\)\)$",
        ),
        ({"num_env": 8}, "^PPOConfig has no field 'num_env'; did you mean 'num_envs'"),
        ({"lr": 1e-3}, r"^PPOConfig has no field 'lr'; PPOHParams has it"),
        (
            {"hparams": 1},
            r"^ppo takes .*, got hparams; they are .* of the training: train\(algo, hparams, \.\.\.\)$",
        ),
        ({"network": {"hidden": (8,)}}, r"^network takes your own flax module, got \{'hidden': \(8,\)\}$"),
        (
            {"network": jaxrl.PPOHParams()},
            r"^network takes your own flax module, got PPOHParams; .* train\(algo, hparams, \.\.\.\)$",
        ),
        ({"network": "cnn"}, r"^network takes your own flax module, got 'cnn'; .* PPOConfig\(network='cnn'\)"),
    ],
)
def test_ppo_says_where_an_argument_belongs(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        jaxrl.ppo(envs.make("cartpole"), **arguments)


HPARAMS = jaxrl.PPOHParams()
POLICY: Any = TrainedPolicy(wandering(), jnp.zeros((8, 8)))
# A newcomer's calls, as above.
evaluate: Any = jaxrl.evaluate
grid: Any = jaxrl.grid
sample: Any = jaxrl.sample


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: jaxrl.train("ppo"), r"^algo takes .*, or its name .*, such as train\('ppo', 'cartpole'\), got 'ppo'$"),
        (lambda: evaluate(POLICY, "cartpole"), r"such as envs.make\('cartpole'\), got 'cartpole'\.$"),
        (lambda: evaluate("runs/ppo"), r"such as jaxrl.load_result\('runs/ppo'\), got 'runs/ppo'\.$"),
        (lambda: evaluate(POLICY, env_params={"env.pay": [1]}), "without 'env.', such as 'pay', got"),
        (
            lambda: jaxrl.train(wandering(), env_steps=8, env_params={"env.pay": 1.0}),
            r"got dict; env_params=env.default_params.replace\(pay=...\), or a sweep of 'env.pay'$",
        ),
        (
            lambda: grid(HPARAMS, lr=[1e-3]),
            r"'values'; the call is grid\(hparams, \{'lr': \[3e-4, 1e-3\]\}\)$",
        ),
        (lambda: sample(HPARAMS, 3, {}, lr=[1e-3]), r"argument 'lr'; the call is sample\(hparams, 100, \{'lr': "),
        (lambda: jaxrl.PPOConfig().replace(num_env=3), "^PPOConfig has no field 'num_env'; did you mean 'num_envs'"),
        (lambda: jaxrl.PPOConfig().replace(lr=1e-3), "^PPOConfig has no field 'lr'; PPOHParams has it: PPOHParams"),
        (
            lambda: jaxrl.DQNConfig(network=cast(Any, object())),
            r"; your own flax module .*config, network=module\)$",
        ),
        (lambda: POLICY.predict, r"'predict'; policy\(obs\) is an action, and policy\(obs, key, greedy=False"),
        (
            lambda: jaxrl.PPO,  # pyright: ignore[reportAttributeAccessIssue]
            "no attribute 'PPO'; did you mean ppo\\?$",
        ),
    ],
)
def test_common_first_mistakes_raise_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError), match=sentence):
        call()


def test_a_copy_of_a_configuration_is_checked() -> None:
    assert jaxrl.PPOConfig(num_envs=4).replace(num_steps=8) == jaxrl.PPOConfig(num_envs=4, num_steps=8)
    with pytest.raises(ValueError, match=r"^num_envs\b"):
        jaxrl.PPOConfig().replace(num_envs=0)
