"""Hundreds of command lines drawn from the options of each command: status 0, or 2 with one sentence."""

import contextlib
import re
import shutil
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torturing import FAMILIES, LEARNERS, drawn, learner, share

import envs
import jaxrl
from envs.errors import UserValueError
from jaxrl.algorithms import registry as algorithms
from jaxrl.cli import main as cli

LINES = 120  # of each command
SHORT = 16  # of `train` for all learners, which are carried out
SECONDS = 120  # that a line may take
GOES_ON = "this call goes on"

WORDS = (
    "0", "1", "2", "-1", "1e3", "0.5", "1e9", "1e400", "-0.0", "nan", "inf", "-inf", "1_000", "0x10", "१",
    "99999999999999999999", "", " ", "x", "true", "None", "[1]", "{}", "a=b", "lr=log:1e-4:1e-2", "lr=0.1,0.2",
    "lr=1", "=", "config.num_epochs=1,2", "0.98", "exp:gamma=0.9", "beta:0.9,0.5", "beta:", "hyperbolic:k=1e39",
    "fixed:horizon=1e39", "table:1,0.5", "quasi:0.9,0.99", "8GiB", "1KiB", "-8GiB", "gpu:0", "cpu:0", "cpu:9", "0/2",
    "2/2", "auto", "highest", "tanh", "relation", "cnn", "single", "num_agents=3", "num_agents=-1", "name=x",
    "return", "length", "return_sampled", "discount", "../x", "no/such", ".", "\udcff", "ü", "-", "--", "-x",
    "--help", "--nonsense", "x\n y", "x;y", "'", "os:system", "ucb1,thompson", "ucb1,ucb1", "bernoulli", "dueling",
    "restless", "random", "grid", "tpe", "keep", "stretch", "safetensors", "pickle", "corridor",
)  # fmt: skip
# Options that would connect, wait, or start other programs.
LEFT_OUT = (
    "--coordinator",
    "--num-processes",
    "--process-id",
    "--join-timeout",
    "--distributed",
    "--track",
    "--xla-flags",
)
ENVIRONMENTS = (
    "cartpole",
    "pendulum",
    "crowd/circle",
    "pathworld",
    "probe/only-truncates",
    "bandit/bernoulli",
    "cartpol",
)
OF_A_RUN = ("resume", "merge", "compare", "report", "plot", "evaluate", "render", "export")
SMALL = "--no-preset --env-steps 64 --evals 1 --eval-episodes 2 --seeds 2 --block 2 --no-progress"


class TooLongError(Exception):
    """Error for a command line that does not end."""


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """A block that has to end within some seconds."""

    def over(*_: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory, for the commands that take one."""
    out, algo = tmp_path_factory.mktemp("made") / "run", learner("ppo")
    jaxrl.train(algo, seeds=2, env_steps=64, evals=1, eval_episodes=2, block=2, progress=False, out=out)
    return out


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with relative names are temporary, and settings of a command line end with it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLA_FLAGS", "")


def ended(argv: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The exit status, output and errors of a command line; fails if they are not as they should be."""
    capfd.readouterr()
    try:
        with at_most(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("always")  # as in a shell
            status = cli.main(argv)
    except SystemExit as exit:  # the help
        status = 0 if exit.code is None else int(exit.code)
    except BaseException as error:
        raise AssertionError(f"{argv}: {type(error).__name__}: {error}") from error
    captured = capfd.readouterr()
    assert status in (0, 2), (argv, status, captured.err)
    assert "Traceback" not in captured.out + captured.err, (argv, captured.err)
    sentences = [line for line in captured.err.splitlines() if not line.startswith("jaxrl: warning: ")]
    if status == 2:
        assert len(sentences) == 1 and sentences[0].startswith("jaxrl: "), (argv, captured.err)
        assert "JAXRL_TRACEBACK" not in captured.err, (argv, captured.err)  # which only another's error asks for
    else:
        assert not sentences, (argv, captured.err)
    return status, captured.out, captured.err


def options_of(command: list[str], capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The options in the help of a command; a single one if the algorithm does not support the environment."""
    status, text, _ = ended([*command, "--help"], capfd)
    if status:
        return ["--seeds"]
    names = sorted(set(re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", text)))
    assert len(names) > 2
    return [name for name in names if not name.startswith(LEFT_OUT)]


def arguments(generator: np.random.Generator, options: list[str], most: int = 4) -> list[str]:
    """Some options with values, of which not all make sense."""
    words: list[str] = []
    for _ in range(generator.integers(most + 1)):
        option = str(generator.choice(options))
        values = [str(WORDS[i]) for i in generator.integers(len(WORDS), size=generator.choice([0, 1, 1, 1, 1, 2, 3]))]
        if len(values) == 1 and generator.random() < 0.3:
            words.append(f"{option}={values[0]}")
        else:
            words += [option.replace("-", "_") if generator.random() < 0.05 else option, *values]
    if words and generator.random() < 0.05:
        generator.shuffle(words)
    return words


def carried_out(*_: Any, **__: Any) -> Any:
    raise UserValueError(GOES_ON)


@pytest.mark.parametrize("command", ["train", "plan", "search"])
def test_lines_about_training(command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Commands about training, up to compilation."""
    for place in ("runtime.training.carry_out", "cli.plan.plan", "tuning.search.opened"):
        monkeypatch.setattr(f"jaxrl.{place}", carried_out)
    generator, reported = drawn("lines", command), []
    options: dict[tuple[str, str], list[str]] = {}
    for _ in range(LINES):
        algorithm, name = str(generator.choice(sorted(algorithms.ROWS))), str(generator.choice(ENVIRONMENTS))
        if (algorithm, name) not in options:
            options[algorithm, name] = options_of([command, algorithm, name], capfd)
        reported.append(ended([command, algorithm, name, *arguments(generator, options[algorithm, name])], capfd)[2])
    assert LINES // 20 < sum(GOES_ON in error for error in reported) < LINES


def test_lines_about_bandits(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("jaxrl.bandits.runner.carry_out", carried_out)
    generator, options = drawn("lines", "bandit"), options_of(["bandit"], capfd)
    for _ in range(LINES):
        ended(["bandit", *arguments(generator, options)], capfd)


@pytest.mark.parametrize("command", OF_A_RUN)
def test_lines_about_a_run(
    command: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for place in ("runtime.resuming.carry_out", "runtime.evaluate_again.evaluate_result", "policies.rendering.render"):
        monkeypatch.setattr(f"jaxrl.{place}", carried_out)
    generator, options = drawn("lines", command), options_of([command], capfd)
    for _ in range(LINES // 3):
        shutil.copytree(made, tmp_path / "run", dirs_exist_ok=True)
        run = str(generator.choice(["run", "run", "run", "no/such", "", "run/run.json", "\0"]))
        ended([command, run, *arguments(generator, options, 3)], capfd)


def test_lines_of_any_words(capfd: pytest.CaptureFixture[str]) -> None:
    generator = drawn("lines", "any")
    first = ["envs", "version", "trian", "", "--version", "-h", "help", "merge", "plot"]
    for _ in range(LINES):
        words = [str(WORDS[i]) for i in generator.integers(len(WORDS), size=generator.integers(4))]
        ended([str(generator.choice(first)), *words], capfd)


@pytest.mark.parametrize("name", list(LEARNERS))
def test_short_runs(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Valid command lines with values of a short run, up to their end."""
    algorithm, fields = LEARNERS[name]
    taken = type(learner(name).env)
    env = next(name for name, _ in FAMILIES["control"] if type(envs.make(name)) is taken)
    small = [
        f"--config.{field.replace('_', '-')}={value}" for field, value in fields.items() if not isinstance(value, tuple)
    ]
    options = [
        option for option in options_of(["train", algorithm, env], capfd) if option.startswith(("--hparams.", "--env."))
    ]
    assert len(options) > 2
    generator, statuses = drawn("runs", name), []
    values = ["0", "1", "0.5", "1e-3", "1e30", "-1", "2", "0.9", "1e-30", "7"]
    while statuses.count(0) < share(SHORT):
        words = [
            str(word)
            for option in generator.choice(options, 2, replace=False)
            for word in (option, *generator.choice(values, generator.integers(1, 3), replace=False))
        ]
        out = str(len(statuses))
        statuses.append(ended(["train", algorithm, env, *SMALL.split(), *small, *words, "--out", out], capfd)[0])
        if statuses[-1] == 0:
            assert ended(["plot", out, "--metric", "length"], capfd)[0] == 0
        assert len(statuses) < 100
