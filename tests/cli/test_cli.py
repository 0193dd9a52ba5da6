"""The command line: one sentence for bad input, help texts that name every option, and one complete workflow."""

import dataclasses
import json
import operator
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import envs
import jaxrl
from jaxrl.cli import main as cli

ROOT = Path(__file__).parents[2]

MY_ENVIRONMENT = """
from dataclasses import dataclass

import jax.numpy as jnp
from envs import Environment, EnvParams, EnvState, spaces


@dataclass(frozen=True)
class Walk(Environment):
    @property
    def default_params(self):
        return EnvParams(max_steps_in_episode=8)

    def reset_env(self, key, params):
        return jnp.zeros(1), EnvState(time=jnp.zeros((), jnp.int32))

    def step_env(self, key, state, action, params):
        state = state.replace(time=state.time + 1)
        return jnp.zeros(1), state, jnp.float32(action), jnp.zeros((), bool), {}

    def action_space(self, params=None):
        return spaces.Discrete(2)

    def observation_space(self, params):
        return spaces.Box(-1.0, 1.0, (1,))


class NoEnvironment:
    pass
"""


def failed(capsys: pytest.CaptureFixture[str], *args: str, whose: str = "jaxrl") -> str:
    """The one sentence that the command fails with, which names a traceback where the error is not jaxrl's own."""
    assert cli.main(args) == 2
    message = capsys.readouterr().err
    assert message.startswith("jaxrl: ")
    assert message.count("\n") == 1
    assert message.endswith(" (JAXRL_TRACEBACK=1 shows where)\n") == (whose != "jaxrl")
    return message


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("trian", "no command 'trian'; did you mean 'train'"),
        ("train", "an algorithm and an environment first"),
        ("train ppo", "an algorithm and an environment first"),
        ("train --seeds 3 ppo cartpole", "an algorithm and an environment first"),
        ("train ppoo cartpole", "no algorithm 'ppoo'; did you mean 'ppo' or 'ppo_kl'?"),
        ("train ppo cartpol", "no environment 'cartpol'; did you mean 'cartpole'"),
        ("train ppo CartPole", "no environment 'CartPole'; did you mean 'cartpole'"),
        ("train ppo nowhere:Env", "no module 'nowhere'"),
        ("train ppo cartpole --seed 3", "there is no --seed: --seeds 7:8 trains seed 7 alone"),
        ("train ppo cartpole --seeds 1.5", "--seeds: '1.5' is not a whole number"),
        ("train ppo cartpole --seeds 7:x", "--seeds: 'x' is not a whole number"),
        ("train ppo cartpole --config.num-envs 4 8", "--config.num-envs takes one value, got 4 8"),
        ("train ppo cartpole --hparams.lrr 3", "did you mean --hparams.lr"),
        ("train ppo cartpole --hparams.gamma 0.9", "use --hparams.discount"),
        ("train ppo cartpole --hparams.gamma=0.9", "use --hparams.discount"),
        ("train ppo cartpole --env.gravitas 3", "did you mean --env.gravity"),
        ("train ppo cartpole --seeds 0", "seeds must be a whole number of at least 1, got 0"),
        ("train ppo cartpole --seeds 3 3", "seeds must be"),
        ("train ppo cartpole --seeds", "seeds must be"),
        ("train ppo cartpole --env-steps 0", "env_steps must be a whole number of at least 1, got 0"),
        ("train ppo cartpole --env-steps many", "--env-steps: 'many' is not a whole number"),
        ("train ppo cartpole --env-steps 1.5e0", "--env-steps: '1.5e0' is not a whole number"),
        ("train ppo cartpole --evals inf", "--evals: 'inf' is not a whole number"),
        ("train ppo cartpole --out=", "out, the directory to save in, is an empty string"),
        ("train ppo cartpole --config.num-minibatches 7", "num_minibatches must divide the 512 samples"),
        ("train ppo cartpole --config.activation sine", "activation must be one of tanh"),
        ("train ppo cartpole --hparams.lr fast", "--hparams.lr takes numbers, but got 'fast'"),
        ("train ppo cartpole --hparams.lr nan", "--hparams.lr takes numbers, but got nan"),
        ("train ppo cartpole --hparams.lr", "--hparams.lr takes at least one value"),
        ("train ppo cartpole --hparams.lam 1.5", "lam must lie in [0, 1], got 1.5"),
        ("train ppo cartpole --hparams.lam 0.5 1.5", "lam must lie in [0, 1]"),
        ("train ppo cartpole --hparams.discount 1.01", "gamma must"),
        ("train ppo cartpole --hparams.discount beta:0.9,-1", "eta must"),
        ("train ppo cartpole --hparams.discount nan", "gamma must"),
        ("train ppo cartpole --hparams.discount betta:0.9,1", "betta"),
        ("train ppo cartpole --hparams.discount 0.9 0.9", "0.9"),
        ("train ppo cartpole --hparams.log-std-init 1", "--hparams.log_std_init has no effect"),
        ("train ppo cartpole --env.max-steps-in-episode 2.5", "takes whole numbers, but got '2.5'"),
        ("train ppo cartpole --env.max-steps-in-episode 0", "env.max_steps_in_episode must be at least 1, got 0"),
        ("train ppo crowd/circle --static num_agents", "--static takes fields with values, such as num_agents=30, but"),
        ("train ppo crowd/circle --static num_agent=3", "no static field 'num_agent'; did you mean 'num_agents'"),
        ("train ppo crowd/circle --env.num-agents 3", "parameters (its static fields take --static NAME=VALUE)"),
        ("train ppo crowd/circle --static num_agents=0", "num_agents must be a whole number of at least 1, got 0"),
        ("train ppo crowd/circle --static frame=sideways", "frame must be one of absolute, relative, egocentric, got"),
        (
            "train ppo crowd/circle --static preset=2023 num_agents=200",
            "at most 82 in circle with a radius of up to 0.229",
        ),
        ("train ppo crowd/circle --env.num-present 3 40", "num_present must lie between 1 and num_agents, 12, got 40"),
        ("train ppo crowd/corridor --tuned carefull", "tuned is 'carefull'; did you mean 'careful'"),
        ("train ppo crowd/corridor --no-preset --tuned careful", "--tuned careful has no effect; leave out one"),
        ("search ppo cartpole --tuned careful", "tuned='careful' has settings of ppo on crowd/corridor and"),
        ("train ppo crowd/circle --tuned", "tuned"),
        ("train ppo crowd/circle --env.weights.gaol 3", "did you mean --env.weights.goal"),
        ("train ppo crowd/circle --env.weights.goal much", "--env.weights.goal takes numbers, but got 'much'"),
        ("train ppo cartpole --precision low", "precision must be one of default"),
        ("plot", "missing from jaxrl plot: RUN"),
        ("plot no/such/run", "no/such/run"),
        ("evaluate no/such/run", "no/such/run"),
        ("render no/such/run --at lr", "no/such/run"),
        ("envs brax ant", "unrecognized options: ant"),
    ],
)
def test_bad_input_gets_one_sentence(args: str, sentence: str, capsys: pytest.CaptureFixture[str]):
    assert sentence in failed(capsys, *args.split())


def test_a_result_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "config.json").write_text(json.dumps({"attributes": {}}))
    message = failed(capsys, "train", "ppo", "cartpole", "--out", str(tmp_path))
    assert str(tmp_path) in message
    assert "--force" in message
    assert (tmp_path / "config.json").read_text() == json.dumps({"attributes": {}})


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("")
    message = failed(capsys, "train", "ppo", "cartpole", "--out", str(tmp_path / "file" / "run"))
    assert f"{tmp_path / 'file' / 'run'} cannot be written" in message


def test_a_damaged_result_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("config.json", "metrics.nc", "metrics.csv", "policies.npz"):
        (tmp_path / name).write_bytes(b"not what it should be")
    assert str(tmp_path) in failed(capsys, "plot", str(tmp_path))


def test_a_value_that_is_not_an_environment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "walks_refused.py").write_text(MY_ENVIRONMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert "envs.Environment" in failed(capsys, "train", "ppo", "walks_refused:NoEnvironment")
    assert "'Walk'" in failed(capsys, "train", "ppo", "walks_refused:Wolk")


def test_the_traceback_can_be_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAXRL_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no command"):
        cli.main(["nothing"])


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ('{}["nothing"]', "KeyError: nothing"),
        ('raise ValueError("no such move.")', "ValueError: no such move"),
        ("jnp.zeros(3) + jnp.zeros(2)", "TypeError: add got incompatible shapes"),
    ],
)
def test_an_error_in_an_environment_says_how_to_see_where(
    mistake: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "walks_mistaken", raising=False)
    broken = MY_ENVIRONMENT.replace(
        "        state = state.replace", f"        {mistake}\n        state = state.replace"
    )
    (tmp_path / "walks_mistaken.py").write_text(broken)
    reported = failed(capsys, "train", "ppo", "walks_mistaken:Walk", "--no-progress", whose="another")
    assert reported.startswith(f"jaxrl: {message}")
    monkeypatch.setenv("JAXRL_TRACEBACK", "1")
    with pytest.raises((KeyError, ValueError, TypeError)):
        cli.main(["train", "ppo", "walks_mistaken:Walk", "--no-progress"])


def command(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> None:
    """Replace `jaxrl version` by `run`."""
    monkeypatch.setitem(cli._COMMANDS, "version", lambda args: run() and 0)


def raised(error: Exception) -> None:
    raise error


def test_every_refusal_of_jaxrl_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    import envs
    from envs import ContractError
    from envs.errors import ExistsError, MissingPackageError, UserTypeError

    class Unequal(type(envs.make("cartpole"))):
        __hash__ = object.__hash__

    with pytest.raises(ContractError):
        envs.check(Unequal(), progress=False)
    command(monkeypatch, lambda: envs.check(Unequal(), progress=False))
    failed(capsys, "version")
    for kind in (ExistsError, MissingPackageError, UserTypeError):
        command(monkeypatch, lambda kind=kind: raised(kind("this is\nnot taken.")))
        assert failed(capsys, "version") == "jaxrl: this is not taken.\n"


def test_an_error_of_no_class_of_ours_is_not_taken_for_a_refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    command(monkeypatch, lambda: raised(ValueError("this is a bug.")))
    assert failed(capsys, "version", whose="another").startswith("jaxrl: ValueError: this is a bug (JAXRL_")
    command(monkeypatch, lambda: raised(AttributeError("so is this")))
    with pytest.raises(AttributeError, match="so is this"):
        cli.main(["version"])


def test_another_envs_package_gets_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("jaxrl.require_own_envs", lambda: raised(ImportError("another 'envs' hides ours; rename it")))
    assert failed(capsys, "version") == "jaxrl: another 'envs' hides ours; rename it\n"


def test_a_mistake_of_jaxrl_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A bug in jaxrl's own code, such as a number in place of a text, is not an error by a `raise` statement."""
    from jaxrl.cli.parsing import _sentence

    command(monkeypatch, lambda: _sentence(3))  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        cli.main(["version"])
    command(monkeypatch, lambda: cli._usage(3))  # pyright: ignore[reportCallIssue]
    assert failed(capsys, "version", whose="another").startswith("jaxrl: TypeError: _usage() takes 0")


@pytest.mark.parametrize(("stop", "status"), [(KeyboardInterrupt(), 130), (KeyboardInterrupt(15), 143)])
def test_the_exit_status_shows_the_signal_that_ended_a_command(
    stop: KeyboardInterrupt, status: int, monkeypatch: pytest.MonkeyPatch
):
    def interrupted():
        raise stop

    command(monkeypatch, interrupted)
    assert cli.main(["version"]) == status


@pytest.mark.parametrize(
    ("attrs", "status"),
    [
        ({"interrupted": 0, "stopped_by_signal": 0}, 0),
        ({"interrupted": 1, "stopped_by_signal": 2}, 130),
        ({"interrupted": 1, "stopped_by_signal": 15}, 143),
        ({"interrupted": 0, "stopped_by_signal": 15}, 0),
    ],
)
def test_the_exit_status_shows_the_signal_that_ended_training(
    attrs: dict[str, int], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    import jaxrl

    metrics = xarray.Dataset(coords={"env_step": [512, 1024]}, attrs=attrs)
    monkeypatch.setattr(
        jaxrl, "train", lambda *args, **kwargs: SimpleNamespace(table=lambda: "", metrics=metrics, unsaved=False)
    )
    assert cli.main(["train", "ppo", "cartpole", "--env-steps", "4096"]) == status
    stopped = "Stopped at 1,024 of 4,096 environment steps."
    assert (stopped in capsys.readouterr().out) == bool(attrs["interrupted"])


def test_a_stopped_run_of_a_copy_names_the_module_to_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    import jaxrl
    import jaxrl.algorithms.a2c

    (tmp_path / "stopped_a2c.py").write_text(Path(str(jaxrl.algorithms.a2c.__file__)).read_text())
    monkeypatch.syspath_prepend(tmp_path)
    metrics = xarray.Dataset(coords={"env_step": [512]}, attrs={"interrupted": 1, "stopped_by_signal": 2})
    stopped = SimpleNamespace(table=lambda: "", metrics=metrics, unsaved=False)
    monkeypatch.setattr(jaxrl, "train", lambda *args, **kwargs: stopped)
    for algorithm, hint in (("stopped_a2c:a2c", " --allow stopped_a2c"), ("a2c", "")):
        assert cli.main(["train", algorithm, "cartpole", "--no-preset", "--out", str(tmp_path / "x")]) == 130
        assert f"; to resume: jaxrl resume {tmp_path / 'x'}{hint}\n" in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "number"), [("12_000", 12_000), ("1e4", 10_000), (str(2**53 + 1), 2**53 + 1)])
def test_whole_numbers_may_be_typed_as_others_count(typed: str, number: int, monkeypatch: pytest.MonkeyPatch):
    import jaxrl

    def train(*args: object, env_steps: int, **kwargs: object) -> SimpleNamespace:
        seen.append(env_steps)
        return SimpleNamespace(table=lambda: "", unsaved=False, metrics=SimpleNamespace(attrs={"interrupted": 0}))

    seen: list[int] = []
    monkeypatch.setattr(jaxrl, "train", train)
    assert cli.main(["train", "ppo", "cartpole", "--env-steps", typed, "--seeds", "1e2"]) == 0
    assert seen == [number]
    assert isinstance(seen[0], int)


def test_a_film_of_a_sweep_asks_which_setting(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    import jaxrl

    def policy(**chosen: object) -> SimpleNamespace:
        seen.append(chosen)
        return SimpleNamespace(algo=SimpleNamespace(env=None), setting={"lr": 0.001, "lam": 0.9}, seed=chosen["seed"])

    seen: list[dict[str, object]] = []
    settings = [{"lr": lr, "lam": 0.9} for lr in (1e-3, 2e-3)]
    result = SimpleNamespace(settings=settings, seeds=[3, 4], policy=policy)
    monkeypatch.setattr(jaxrl, "load_result", lambda run, allow, trust: result)
    monkeypatch.setattr(jaxrl, "render", lambda env, policy, path: path)
    message = failed(capsys, "render", "runs/x", "--seed", "4")
    assert "runs/x has 2 settings: choose one by --at NAME=VALUE, lr of 0.001, 0.002; lam of 0.9" in message
    assert cli.main(["render", "runs/x", "--at", "lr=1e-3"]) == 0
    assert capsys.readouterr().out == "Wrote episode.gif: lr 0.001, lam 0.9, seed 3.\n"
    del settings[1]
    assert cli.main(["render", "runs/x"]) == 0
    assert seen == [{"seed": 3, "kept": "last", "lr": "1e-3"}, {"seed": 3, "kept": "last"}]


def test_no_argument_prints_the_commands(capsys: pytest.CaptureFixture[str]):
    assert cli.main([]) == 0
    listed = capsys.readouterr().out
    for command in ("train", "plot", "evaluate", "render", "envs", "version"):
        assert f"\n  {command} " in listed


def test_the_help_of_train_names_every_field(capsys: pytest.CaptureFixture[str]):
    from dataclasses import fields

    import envs
    from jaxrl import PPOConfig, PPOHParams

    with pytest.raises(SystemExit) as end:
        cli.main(["train", "ppo", "cartpole", "--help"])
    assert not end.value.code
    shown = capsys.readouterr().out
    params = envs.make("cartpole").default_params
    for prefix, values in (("config", PPOConfig), ("hparams", PPOHParams), ("env", params)):
        for field in fields(values):
            assert f"--{prefix}.{field.name.replace('_', '-')}" in shown
    text = " ".join(shown.replace("│", " ").split())
    for said in (
        "Half width of the interval around 1",
        "norm to which gradients are clipped",
        "Widths of the hidden layers",
        "Discount of rewards: a number (exponential), or a string such as beta:mu=0.98,eta=0.5. (default",
    ):
        assert said in text  # of a field of PPO's own, and of those that it inherits
    assert "(default: exp:gamma=" in text


def test_a_preset_is_where_options_start(capsys: pytest.CaptureFixture[str]):
    from jaxrl import PPOHParams, preset

    tuned = preset("ppo", "pendulum")
    shown = {}
    for option in ("--help", "--no-preset --help"):
        with pytest.raises(SystemExit):
            cli.main(["train", "ppo", "Pendulum-v1", *option.split()])
        shown[option] = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert tuned.hparams["lr"] != PPOHParams().lr
    assert f"step size of the optimiser, Adam by default. (default: {tuned.hparams['lr']})" in shown["--help"]
    assert f"Number of environment steps of each run. (default: {tuned.env_steps})" in shown["--help"]
    assert f"step size of the optimiser, Adam by default. (default: {PPOHParams().lr})" in shown["--no-preset --help"]


@pytest.mark.parametrize(
    ("environment", "args", "text"),
    [
        ("pendulum", [], r"^Starting from the preset .* Each run takes 300,000 environment steps \(--env.*\)\.$"),
        ("pendulum", ["--env-steps=4e3"], r"^Starting from the preset of ppo on pendulum \(.* defaults\)\.$"),
        (
            "pendulum",
            ["--no-preset"],
            r"^Starting from the defaults of ppo\. Each run takes 500,000 environment steps \(",
        ),
        ("pendulum", ["--no-preset", "--env-steps", "9"], r"^Starting from the defaults of ppo\.$"),
        (
            "probe/constant-reward",
            ["--env-steps", "9"],
            r"defaults of ppo, which has no preset for probe/constant-reward\.$",
        ),
        ("crowd/corridor", ["--tuned", "careful"], r"^Starting from the tuned settings 'careful' of .* takes 60,000 "),
        ("crowd/choke", ["--tuned=careful"], r"^Starting from the tuned settings 'careful' of .* takes 240,000 "),
    ],
)
def test_the_origin_of_settings_and_a_default_number_of_steps_are_shown(
    environment: str, args: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from jaxrl.cli.train import asked

    algo = asked(["ppo", environment, *args], "train").algo
    shown = capsys.readouterr().out.strip()
    assert re.search(text, shown)
    assert re.findall("^Starting from the (defaults|.* of ppo on [a-z/]+)", shown) == [algo.settings_from]


def test_curves_are_typed_as_strings(capsys: pytest.CaptureFixture[str]) -> None:
    from jaxrl.cli.train import asked

    words = ["ppo", "cartpole", "--no-preset", "--hparams.lr"]
    curve = jaxrl.Curve([1e-3, 3e-4, 0.0])
    assert asked([*words, "curve:1e-3,3e-4,0"], "train").algo.hparams.lr == curve
    sweep = asked([*words, "curve:1e-3,3e-4,0", "1e-3"], "train").sweep
    assert sweep is not None and sweep.coords["lr"][1].tolist() == [str(curve), "curve:0.001,0.001,0.001"]
    assert "'x' is not a number" in failed(capsys, "train", *words, "curve:1e-3,x")
    assert "value_coef takes a number" in failed(capsys, "train", *words[:3], "--hparams.value-coef", "curve:1,2")


def test_values_of_a_preset_without_effect_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    from jaxrl.cli.train import asked

    asked_for = asked(["evolve", "cartpole", "--config.strategy", "cmaes", "--env-steps", "9"], "train")
    assert asked_for.algo.hparams.lr is None and asked_for.algo.hparams.std == 0.1
    assert "preset of evolve on cartpole without its lr, which has no effect here (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("algorithm", "environment", "left_out"),
    [
        ("dqn", "memory/chain", "memory_size and sequence_length"),
        ("sac", "memory/pendulum", "memory_size and memory_hidden"),
        ("ppo", "memory/chain", "memory_size"),
    ],
)
def test_without_its_memory_a_preset_has_no_fields_of_memories(
    algorithm: str, environment: str, left_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from jaxrl.cli.train import asked

    preset: Any = jaxrl.preset(algorithm, environment).config
    config: Any = asked([algorithm, environment, "--config.memory", "none"], "train").algo.config
    names = left_out.split(" and ")
    assert config.memory == "none"
    assert all(getattr(config, name) == type(config).__dataclass_fields__[name].default for name in names)
    have = "has" if len(names) == 1 else "have"
    assert f" without its {left_out}, which {have} no effect here (" in capsys.readouterr().out
    kept: Any = asked([algorithm, environment, "--config.memory", "lru"], "train").algo.config
    assert kept == dataclasses.replace(preset, memory="lru")
    assert "no effect" not in capsys.readouterr().out


def test_an_option_without_effect_is_refused_with_the_value_of_the_preset_too(capsys: pytest.CaptureFixture[str]):
    words = ["train", "dqn", "memory/chain", "--config.memory", "none", "--config.sequence-length"]
    for length in ("24", "32"):
        refused = f"sequence_length has no effect on networks without a memory, got {length}; leave it out"
        assert refused in failed(capsys, *words, length)


@pytest.mark.parametrize("command", ["train", "plot", "evaluate", "render", "submit", "envs", "version"])
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert not end.value.code
    assert f"usage: jaxrl {command}" in capsys.readouterr().out


def test_envs_lists_the_environments_of_a_library(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["envs", "xminigrid"]) == 0
    assert capsys.readouterr().out.splitlines() == list(envs.names("xminigrid"))
    assert cli.main(["envs", "xminigrd"]) == 2
    assert "library is 'xminigrd'; did you mean 'xminigrid'?" in capsys.readouterr().err


@pytest.mark.slow
def test_envs_lists_names_that_make_takes(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["envs"]) == 0
    table, note, libraries = capsys.readouterr().out.strip().split("\n\n")
    assert f"  xminigrid/...  xminigrid {metadata.version('xminigrid')}" in libraries.splitlines()
    assert "  functional/...  installed with jaxrl" in libraries.splitlines()
    header, *rows = table.splitlines()
    assert header.split() == ["name", "observation", "action", "limit", "optimum", "bar"]
    by_name = {row.split()[0]: row.split()[1:] for row in rows}
    assert list(by_name) == list(envs.names())
    assert by_name["cartpole"] == ["4", "numbers", "2", "choices", "500", "500", "475"]
    optima = {name: row[-2] for name, row in by_name.items()}
    assert [optima[name] for name in ("memory/repeat-first", "random-dilemmas", "gymnax/Catch-bsuite")] == [
        "1.01961",
        "3.33333",
        "1",
    ]
    unknown = ("pendulum", "memory/cartpole", "crowd/circle", "bandit/bernoulli", "gymnax/Breakout-MinAtar")
    assert {optima[name] for name in unknown} == {"-"} and "- where it is not known exactly" in note
    assert by_name["gymnax/MNISTBandit-bsuite"] == ["-"] * 5


def test_envs_lists_optima_under_a_discount(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    tasks = ("cartpole", "pendulum", "preference-reversal", "memory/t-maze", "memory/concentration", "lq/scalar")
    listed = (*tasks, "bandit/bernoulli")
    monkeypatch.setattr(envs, "names", lambda library=None: listed)
    assert cli.main(["envs", "--optimum"]) == 0
    table, note = capsys.readouterr().out.strip().split("\n\n")
    rows = {row.split()[0]: row.split()[1:] for row in table.splitlines()}
    assert rows.pop("name") == ["precommitted", "stationary", "sophisticated"] and "discounted by nothing" in note
    assert list(rows) == ["cartpole", "preference-reversal", "memory/t-maze", "memory/concentration", "lq/scalar"]
    assert rows["memory/concentration"] == ["<=", "1", "-", "-"] and "an upper bound where one is known" in note
    assert rows["cartpole"] == ["500"] * 3 and rows["memory/t-maze"] == ["1", "0.5", "1"]
    assert cli.main(["envs", "--optimum", "--discount", "hyperbolic:k=0.01"]) == 0
    table, note = capsys.readouterr().out.strip().split("\n\n")
    rows = {row.split()[0]: row.split()[1:] for row in table.splitlines()}
    assert rows["preference-reversal"] == ["0.585284", "0.585284", "0.502513"] and "hyperbolic:k=0.01" in note
    assert "cartpole" not in rows
    assert cli.main(["envs", "--discount", "0.9"]) == 2 and cli.main(["envs", "brax", "--optimum"]) == 2
    errors = capsys.readouterr().err
    assert "add --optimum" in errors and "not those of 'brax'" in errors


def test_optima_of_probes_are_mean_returns_of_their_best_actions():
    from envs.registry import ROWS

    for name in (name for name in ROWS if name.startswith("probe/")):
        env: Any = envs.make(name)
        params, best = env.default_params, env.best_actions()
        returns = []
        for key in jax.random.split(jax.random.key(0), 16):
            obs, state = env.reset_env(key, params)
            total, ended = 0.0, False
            while not ended:
                at = int(np.argmax((env.observations() == np.asarray(obs)).all(axis=1)))
                action = 0 if best is None else best[at]
                obs, state, reward, terminated, _ = env.step_env(key, state, jnp.int32(action), params)
                total, ended = total + float(reward), bool(terminated) or bool(env.is_truncated(state, params))
            returns.append(total)
        assert np.ptp(returns) == 0 or set(returns) in ({-1.0, 1.0}, {0.5, 1.0}), name
        assert ROWS[name].optimum == pytest.approx((np.min(returns) + np.max(returns)) / 2), name


def test_bars_are_those_of_the_results():
    from envs.registry import ROWS

    page = (Path(__file__).parents[2] / "docs" / "results" / "presets.md").read_text()
    reported = {at: float(bar) for bar, at in re.findall(r"(-?[\d,]+) \| [^|]* \| `jaxrl train ppo ([\w-]+) ", page)}
    assert reported == {name: row.bar for name, row in ROWS.items() if row.bar is not None}


@pytest.mark.parametrize(
    ("words", "seeds"), [("7", 7), ("7:8", (7,)), ("3:6 9", (3, 4, 5, 9)), ("4 2", (4, 2)), ("1e2", 100)]
)
def test_seeds_are_counted_or_named(words: str, seeds: Any):
    from jaxrl.cli.train import asked

    assert asked(["ppo", "cartpole", "--seeds", *words.split()], "train").options.seeds == seeds


@pytest.mark.parametrize("words", ["0:1e9", "3 0:1e7", f"0:{10**40}"])
def test_a_list_of_seeds_is_refused_before_listing(words: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["train", "ppo", "cartpole", "--seeds", *words.split()]) == 2
    assert f"takes at most 10,000,000 seeds, got {words.split()[-1]}" in capsys.readouterr().err


def test_every_option_of_training_has_a_text(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["train", "ppo", "cartpole", "--help"])
    help_text = capsys.readouterr().out
    assert "gamma {fixed}" not in help_text
    options = re.split(r"\n[│ ]+(?=--)", help_text)[1:]
    without = [text for text in options if re.match(r"[^\n]*\n[│ ]*\(default", text)]
    assert len(options) > 60 and not without


def test_every_parameter_of_an_environment_has_a_text():
    import envs
    from envs.registry import ROWS
    from jaxrl.cli.dataclass_options import field_texts, numbers_of

    for name in ROWS:
        params = envs.make(name).default_params
        for path in numbers_of(params):
            *parts, field = path.split(".")
            part = operator.attrgetter(".".join(parts))(params) if parts else params
            ours = type(part).__module__.startswith("envs.")  # gymnax describes no parameters
            assert field in field_texts(type(part)) or not ours, (name, path)


def test_version_names_versions_devices_and_precision(capsys: pytest.CaptureFixture[str]):
    import jax

    import jaxrl
    import jaxrl.version

    assert cli.main(["version"]) == 0
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert facts["jaxrl"] == jaxrl.__version__
    assert facts["jax"] == jax.__version__
    assert len(facts["devices"].split(", ")) == jax.device_count()
    assert "float32" in facts["precision"]
    assert facts["repository"] == (jaxrl.version.REPOSITORY or f"not published; this copy is in {ROOT}")


def jaxrl_command(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`jaxrl ...` in a separate process, as the installed command starts it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", "import sys; from jaxrl.cli.main import main; sys.exit(main())", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=300,
    )


def test_another_envs_is_reported_in_one_sentence(tmp_path: Path):
    (tmp_path / "envs.py").write_text("")
    done = jaxrl_command("train", "ppo", "cartpole", cwd=tmp_path)
    assert done.returncode == 2
    warned, sentence = done.stderr.splitlines()  # the first by `import jaxrl`
    assert "RuntimeWarning" in warned and sentence.startswith("jaxrl: ")
    assert str(tmp_path / "envs.py") in sentence


@pytest.mark.slow
def test_the_whole_way(tmp_path: Path):
    """Train a sweep in a user-defined environment, then plot and evaluate, without overwriting."""
    (tmp_path / "walks.py").write_text(MY_ENVIRONMENT)
    train = "train ppo walks:Walk --seeds 5 7 --env-steps 1024 --evals 2 --eval-episodes 4 --out runs/walk"
    sweep = "--hparams.discount 0.9 beta:0.98,0.5 --hparams.lr 1e-3 --env.max-steps-in-episode 6"
    done = jaxrl_command(*train.split(), *sweep.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "exp:gamma=0.9" in done.stdout
    assert "beta:mu=0.98,eta=0.5" in done.stdout
    config = json.loads((tmp_path / "runs" / "walk" / "config.json").read_text())
    assert config["seeds"] == [5, 7]
    assert config["hparams"]["lr"] == 1e-3
    assert config["sweep"]["coords"]["discount"]["values"] == ["exp:gamma=0.9", "beta:mu=0.98,eta=0.5"]

    done = jaxrl_command("plot", "runs/walk", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "walk" / "return.png").read_bytes().startswith(b"\x89PNG")

    evaluate = ["evaluate", "runs/walk", "--episodes", "3"]
    done = jaxrl_command(*evaluate, cwd=tmp_path)
    assert done.returncode == 2 and "--allow walks" in done.stderr  # no module is imported without permission
    done = jaxrl_command(*evaluate, "--allow", "walks", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # The swept episode length holds in the evaluation too.
    assert "6.0" in done.stdout.split("\nlength after")[1]

    done = jaxrl_command(*train.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert "holds a result already" in done.stderr


@pytest.mark.slow
def test_static_fields_and_parts_of_parameters_are_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = (
        "--static num_agents=3 --env.weights.goal 0 5 --env.scenario.noise 0.1 --config.num-steps 4 --env-steps 16"
    )
    sizes = "--config.num-minibatches 1 --config.num-epochs 1 --config.num-envs 1 --evals 1 --eval-episodes 1"
    limit = "--env.max-steps-in-episode 4 --no-progress --no-preset"
    words = f"train ppo crowd/circle {options} {sizes} {limit} --out {tmp_path / 'run'}".split()
    assert cli.main(words) == 0
    loaded = jaxrl.load_result(tmp_path / "run")
    assert loaded.algo is not None and loaded.algo.env == envs.make("crowd/circle", num_agents=3)
    assert loaded.metrics.sizes["env.weights.goal"] == 2
    assert "env.weights.goal" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [
        ["train", "ppo", "cartpole", "--xla-flags", "xla_no_such_flag=1"],
        ["plan", "ppo", "cartpole", "--xla-flags=xla_no_such_flag=1"],
        ["search", "ppo", "cartpole", "--xla_flags", "xla_no_such_flag=1"],
        ["bandit", "--xla-flags", "xla_cpu_enable_fast_math=false", "xla_no_such_flag=1", "--steps", "1"],
        ["resume", "x", "--xla-flags", "xla_no_such_flag=1"],
    ],
)
def test_flags_of_xla_are_set_before_the_backend_starts(tmp_path: Path, args: list[str]) -> None:
    """XLA ends a process with an unknown flag, which shows that the flag was in force."""
    begun = {"run_length": 1, "algorithm": "ppo", "config": {}, "environment": {"name": "cartpole", "static": {}}}
    begun |= {
        "block": 1,
        "env_steps": 1,
        "points": [1],
        "precision": "default",
        "seeds": [0],
        "sweep": {"dims": [], "coords": {}},
    }
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "run.json").write_text(json.dumps(begun))
    run = [sys.executable, "-m", "jaxrl.cli.main", *args]
    process = subprocess.run(run, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    sentence = "jaxrl: --xla-flags and XLA_FLAGS take flags of XLA, got the unknown --xla_no_such_flag=1\n"
    assert (process.returncode, process.stderr) == (2, sentence)


@pytest.mark.parametrize("command", ["train", "plan"])
def test_deterministic_is_a_flag_of_xla(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    assert cli.main([command, "ppo", "--deterministic"]) == 2  # on what?
    assert os.environ["XLA_FLAGS"] == "--xla_a=1 --xla_gpu_deterministic_ops=true"


def test_a_value_that_is_not_a_flag_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", "ppo", "cartpole", "--xla-flags", "xla_a=1 xla_b=2"]) == 2
    sentence = "jaxrl: --xla-flags takes words such as xla_cpu_prefer_vector_width=256, got 'xla_a=1 xla_b=2'\n"
    assert capsys.readouterr().err == sentence
    monkeypatch.setenv("XLA_FLAGS", "flags.txt")
    assert cli.main(["plan", "ppo", "cartpole", "--deterministic"]) == 2
    assert "XLA_FLAGS must hold flags where --xla-flags or --deterministic adds some, got a file, flags.txt" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_pipe_that_is_closed_ends_a_command_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "jaxrl.cli.main", "envs"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # before anything is printed
    error = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=120), error) == (141, b"")
