"""Search from end to end: one program per group, the same bits as training, no losses, unbiased numbers."""

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envs
import jaxrl
from jaxrl import Choice, Halving, LogUniform, SearchResult, Uniform
from jaxrl.algorithms.contract import Algorithm
from jaxrl.cli import main as cli
from jaxrl.cli.parsing import without_options
from jaxrl.results.dataset import ResultError
from jaxrl.runtime import programs
from jaxrl.runtime.runs import Runs
from jaxrl.runtime.training import training_call
from jaxrl.tuning.result import claim, command_recorded, read_command, write_search
from jaxrl.tuning.run_trials import wave_layout
from jaxrl.tuning.search import FIRST_TEST_SEED

pytestmark = pytest.mark.slow

SPACE = {
    "lr": LogUniform(1e-4, 1e-1),
    "discount": Choice([0.9, "hyperbolic:k=0.02"]),
    "env.length": Uniform(0.3, 0.7),
    "config.num_epochs": Choice([1, 2]),
    "config.num_steps": Choice([16, 32]),
}
ENV_STEPS = 256


@pytest.fixture(scope="module")
def algo() -> Algorithm:
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_epochs=2, num_minibatches=2, hidden=(8,))
    algo = jaxrl.ppo(envs.make("cartpole"), config)
    return algo._replace(hparams=algo.hparams.replace(lr_end=0.0))


def search(algo: Algorithm, **changes: Any) -> SearchResult:
    options: dict[str, Any] = {
        "trials": 11,
        "env_steps": ENV_STEPS,
        "search": "random",
        "seeds": 3,
        "test_seeds": 0,
        "population": 5,
        "eval_episodes": 4,
        "block": 4,
        "progress": False,
    }
    return jaxrl.search(algo, changes.pop("space", SPACE), **(options | changes))


@pytest.fixture(scope="module")
def first(algo: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> tuple[SearchResult, Path]:
    """A whole search, before anything else was compiled."""
    programs.forget()
    out = tmp_path_factory.mktemp("search") / "out"
    return search(algo, out=out, test_seeds=4), out


def train(algo: Algorithm, setting: dict[str, Any], seeds: Any, discounts: Any = None) -> np.ndarray:
    """The final returns of a trial's setting, trained separately, together with others with these discounts."""
    static = {path.removeprefix("config."): value for path, value in setting.items() if path.startswith("config.")}
    again = jaxrl.ppo(algo.env, dataclasses.replace(algo.config, **static))._replace(hparams=algo.hparams)
    values = {path: [value] for path, value in setting.items() if not path.startswith("config.")}
    values |= {} if discounts is None else {"discount": discounts}
    sweep = jaxrl.grid(again.hparams, values)
    row = 0 if discounts is None else discounts.index(setting["discount"])
    options = {"env_steps": ENV_STEPS, "evals": 1, "eval_episodes": 4, "block": 4, "progress": False}
    return jaxrl.train(again, sweep, seeds=seeds, **options).values("return")[row, :, -1]


def alone(algo: Algorithm, setting: dict[str, Any], env_steps: int) -> np.ndarray:
    """The returns of a trial's three runs after a part of their environment steps, without other trials."""
    config = dataclasses.replace(algo.config, num_epochs=setting["config.num_epochs"])
    again = jaxrl.ppo(algo.env, config)._replace(hparams=algo.hparams)
    sweep = jaxrl.grid(again.hparams, {"lr": [setting["lr"]]})
    points = np.asarray([env_steps // again.env_steps_per_iteration])
    call = training_call(
        again,
        sweep,
        seeds=[0, 1, 2],
        points=points,
        eval_episodes=4,
        begun={"env_steps": ENV_STEPS, "run_length": ENV_STEPS},
    )
    runs = Runs(call, call.arguments(), wave_layout(8, 4, None)._replace(num_runs=3))
    runs.advance(int(points[0]))
    return runs.evaluate()[0]["return"]


def test_every_static_group_is_compiled_once_for_all_population_sizes(
    first: tuple[SearchResult, Path], algo: Algorithm
):
    result, _ = first
    groups = {(trial.setting["config.num_epochs"], trial.setting["config.num_steps"]) for trial in result.trials}
    assert len(groups) > 2
    assert result.compilations == result.static_groups == len(groups)
    again = search(algo, trials=7, population=3, seed=1)
    met = {(trial.setting["config.num_epochs"], trial.setting["config.num_steps"]) for trial in again.trials}
    assert again.compilations == len(met - groups)


def test_a_trial_equals_a_training_run(first: tuple[SearchResult, Path], algo: Algorithm):
    result, _ = first
    assert [trial.number for trial in result.trials] == list(range(11))
    assert {trial.state for trial in result.trials} == {"complete"}
    kinds = ["exp:gamma=0.9", "hyperbolic:k=0.02"]
    for kind in kinds:
        trial = next(trial for trial in result.trials if trial.setting["discount"] == kind)
        assert len(set(trial.returns)) > 1
        expected = train(algo, trial.setting, 3, kinds)  # one rounding for both: that of the families together
        np.testing.assert_array_equal(expected, np.asarray(trial.returns, np.float32))
    for trial in result.trials:
        assert trial.score == pytest.approx(np.mean(trial.returns))
        steps = 2 * trial.setting["config.num_steps"]
        assert trial.env_steps == 3 * steps * -(-ENV_STEPS // steps)
    assert result.env_steps == sum(trial.env_steps for trial in result.trials)


def test_kinds_of_memory_are_searched() -> None:
    config = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_minibatches=2, hidden=(4,), memory="gru", memory_size=4)
    algo = jaxrl.ppo(envs.make("memory/chain"), config)
    result = search(algo, space={"config.memory": Choice(["gru", "lru"])}, trials=5, seeds=1)
    assert {trial.setting["config.memory"] for trial in result.trials} == {"gru", "lru"}
    assert result.static_groups == 2
    assert {trial.state for trial in result.trials} == {"complete"}
    assert result.incumbent is not None and result.incumbent.setting["config.memory"] in ("gru", "lru")


def test_trials_of_one_family_of_discounts_have_the_bits_of_training(algo: Algorithm):
    space = {name: SPACE[name] for name in ("lr", "env.length", "config.num_epochs")}
    result = search(algo, space=space, trials=6)
    for trial in result.trials[:3]:
        np.testing.assert_array_equal(train(algo, trial.setting, 3), np.asarray(trial.returns, np.float32))


def test_halving_ends_the_worse_trials_early_and_leaves_the_others_unchanged(algo: Algorithm):
    space = {name: SPACE[name] for name in ("lr", "config.num_epochs")}
    options: dict[str, Any] = {"space": space, "trials": 9, "population": 9}
    whole = search(algo, **options)
    halved = search(algo, **options, halving=Halving(eta=3, first_env_steps=64))
    assert [trial.setting for trial in halved.trials] == [trial.setting for trial in whole.trials]
    by_state = {state: [t for t in halved.trials if t.state == state] for state in ("complete", "pruned")}
    assert len(by_state["complete"]) == 1 and len(by_state["pruned"]) == 8
    (last,) = by_state["complete"]
    # Schedules are those of the whole run, and repacked runs compute the same bits.
    assert last.returns == whole.trials[last.number].returns
    assert sorted(trial.env_steps // 3 for trial in halved.trials) == [64] * 6 + [192] * 2 + [256]
    assert halved.env_steps == 3 * (6 * 64 + 2 * 192 + 256)
    assert halved.env_steps < whole.env_steps / 2
    # At each rung the best trials continue, by their returns when trained separately.
    left = {trial.number for trial in whole.trials}
    for rung in (64, 192):
        returns = {number: alone(algo, whole.trials[number].setting, rung) for number in left}
        scores = {number: float(values.mean()) for number, values in returns.items()}
        stopped = {trial.number: trial for trial in halved.trials if trial.env_steps == 3 * rung}
        left -= set(stopped)
        assert min(scores[number] for number in left) >= max(scores[number] for number in stopped)
        assert max(scores.values()) > min(scores.values())
        for number, trial in stopped.items():
            np.testing.assert_array_equal(returns[number], np.asarray(trial.returns, np.float32))
            assert trial.score == pytest.approx(scores[number])
    assert left == {last.number}
    assert halved.incumbent == last
    assert halved.compilations == 0


def test_the_incumbent_is_trained_again_on_unseen_seeds(first: tuple[SearchResult, Path], algo: Algorithm):
    result, out = first
    assert result.incumbent is not None and result.test is not None and result.default is not None
    assert result.incumbent.score == max(trial.score for trial in result.trials)
    assert result.test.seeds == result.test_seeds == list(range(FIRST_TEST_SEED, FIRST_TEST_SEED + 4))
    assert set(result.test_seeds).isdisjoint(result.identity["seeds"])
    np.testing.assert_array_equal(
        train(algo, result.incumbent.setting, result.test_seeds), result.test.values("return")[0, :, -1]
    )
    loaded, default = jaxrl.load_result(out / "incumbent"), jaxrl.load_result(out / "default")
    np.testing.assert_array_equal(loaded.values("return"), result.test.values("return"))
    assert loaded.algo is not None and loaded.algo.config.num_steps == result.incumbent.setting["config.num_steps"]
    assert loaded.settings[0]["lr"] == result.incumbent.setting["lr"]
    assert default.algo is not None and default.algo.config == algo.config
    report = result.report()
    for reported in (
        "which no trial used",
        "biased upwards as the best of",
        "tuning seeds (0 to 2)",
        "95% bootstrap interval",
        "default",
    ):
        assert reported in report
    frame = result.to_pandas()
    assert list(frame["trial"]) == list(range(11)) and list(frame.columns[3:8]) == list(SPACE)
    import pandas

    assert pandas.read_csv(out / "trials.csv")["score"].to_numpy() == pytest.approx(frame["score"].to_numpy())
    assert pandas.read_parquet(out / "trials.parquet")["config.num_steps"].tolist() == [
        trial.setting["config.num_steps"] for trial in result.trials
    ]
    saved = json.loads((out / "incumbent.json").read_text())
    assert saved["trial"] == result.incumbent.number and saved["setting"] == result.incumbent.setting


def test_a_finished_search_computes_nothing_and_a_longer_one_resumes(
    first: tuple[SearchResult, Path], algo: Algorithm, monkeypatch: pytest.MonkeyPatch
):
    result, out = first
    advance = Runs.advance

    def refuse(*_: Any) -> None:
        raise AssertionError("nothing is left to be done")

    monkeypatch.setattr(Runs, "advance", refuse)
    again = search(algo, out=out, test_seeds=4)
    assert again.trials == result.trials
    assert again.test is not None and result.test is not None
    np.testing.assert_array_equal(again.test.values("return"), result.test.values("return"))
    monkeypatch.setattr(Runs, "advance", advance)
    longer = search(algo, out=out, trials=13)
    assert longer.trials[:11] == result.trials and len(longer.trials) == 13
    with pytest.raises(ResultError, match="holds another search"):
        search(algo, out=out, seeds=2)
    with pytest.raises(ResultError, match="of another search: env_steps is"):
        search(algo, storage=f"sqlite:///{out / 'study.db'}", env_steps=512)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_outcomes_and_the_search_resumes(
    algo: Algorithm, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
):
    advance, calls = Runs.advance, []

    def stop(self: Any, count: int) -> None:
        advance(self, count)
        calls.append(count)
        if len(calls) == 12:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Runs, "advance", stop)
    stopped = search(algo, out=tmp_path / "out", test_seeds=2)
    assert stopped.stopped_by_signal == number
    assert 0 < len(stopped.trials) < 11 and stopped.test is None
    assert len((tmp_path / "out" / "trials.csv").read_text().splitlines()) == 1 + len(stopped.trials)
    rest = search(algo, out=tmp_path / "out")
    assert len(rest.trials) == 11
    kept = {trial.number: trial for trial in rest.trials}
    assert all(kept[trial.number] == trial for trial in stopped.trials)
    whole = search(algo)
    assert sorted(trial.returns for trial in rest.trials) == sorted(trial.returns for trial in whole.trials)


COMMAND = (
    "search ppo cartpole --no-preset --no-progress --config.hidden 8 --config.num-envs 2 --config.num-steps 16 "
    "--config.num-minibatches 2 --config.num-epochs 2 --space lr=log:1e-4:1e-2 config.num_epochs=1,2 --trials 4 "
    "--population 4 --seeds 2 --test-seeds 2 --env-steps 256 --eval-episodes 4 --block 4 --search random"
)


@pytest.mark.parametrize("chunk", [3, 9])  # of the incumbent's eight, and the first of the default setting's
def test_a_signal_while_training_on_test_seeds_is_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], chunk: int
):
    command = [*COMMAND.split(), "--out", str(tmp_path / "out")]
    advance, calls = Runs.advance, []

    def stop(self: Any, count: int) -> None:
        advance(self, count)
        if self.arguments[0][0] >= FIRST_TEST_SEED:
            calls.append(self.iteration)
            if len(calls) == chunk:
                os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Runs, "advance", stop)
        assert cli.main(command) == 128 + signal.SIGTERM
    printed = capsys.readouterr().out
    assert "4 of 4 trials" in printed and f"Stopped; to resume: jaxrl resume {tmp_path / 'out'}\n" in printed
    assert (
        "test seeds (" not in printed
        and not json.loads((tmp_path / "out" / "incumbent.json").read_text())["trained_on_test_seeds"]
    )
    assert cli.main(["resume", str(tmp_path / "out"), "--no-progress"] if chunk == 3 else command) == 0
    assert "Retrained on 2 test seeds" in capsys.readouterr().out


def test_failed_trials_are_recorded_as_failed(algo: Algorithm):
    space = {"lr": Choice([1e-3, 1e30]), "config.num_epochs": Choice([1, 2])}
    for halving in (None, Halving(eta=1.5, first_env_steps=64)):
        result = search(algo, space=space, search="grid", trials=None, seeds=2, halving=halving)
        assert {trial.setting["lr"]: trial.state for trial in result.trials}[1e30] == "failed"
        assert sum(trial.state == "failed" for trial in result.trials) == 2
        assert all(np.isfinite(trial.score) == (trial.state != "failed") for trial in result.trials)
        assert result.incumbent is not None and result.incumbent.setting["lr"] == 1e-3
        assert "2 failed (a metric that is not finite)" in result.report()


def test_a_search_is_resumed_by_its_own_command_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    identity = {"algorithm": "ppo"}
    with command_recorded(("my_own:ppo", "cartpole", "--trials", "4")):
        write_search(claim(tmp_path / "own", identity, "x"), "x", identity, [])
    write_search(tmp_path / "own", "x", identity, [])  # by a call in Python, which keeps the command
    assert read_command(tmp_path / "own") == ["my_own:ppo", "cartpole", "--trials", "4"]
    claim(tmp_path / "own", identity, "x")
    claim(tmp_path / "python", identity, "x")
    words = ["--out", "x", "--memory", "1GiB", "--space", "lr=0:1", "--no-progress", "--trials", "4", "--devices=cpu"]
    assert without_options(words, ("out", "memory", "no_progress", "devices")) == ["--space", "lr=0:1", "--trials", "4"]
    for arguments, sentence in (
        ([tmp_path / "own"], "'my_own:ppo' is of the module 'my_own', which a result imports only where you allow it"),
        ([tmp_path / "own", "--env-steps", "9"], "--env-steps has no effect on a search"),
        ([tmp_path / "python"], "holds a search that began in Python or with --storage: the same call of"),
    ):
        assert cli.main(["resume", *map(str, arguments)]) == 2
        assert sentence in capsys.readouterr().err


def test_a_recorded_command_names_no_other_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    elsewhere = "ppo cartpole --storage sqlite:///other.db --out other --trials 4 --xla-flags x=1 --memory 9GiB"
    with command_recorded(elsewhere.split()):
        claim(tmp_path / "own", {"algorithm": "ppo"}, "x")
    called: list[Any] = []
    monkeypatch.setattr("jaxrl.cli.search.run_search", lambda args: called.append(args) or 0)
    assert cli.main(["resume", str(tmp_path / "own"), "--memory", "1GiB", "--no-progress"]) == 0
    options = ["--memory", "1GiB", "--no-progress", "--out", str(tmp_path / "own")]
    assert called == [["ppo", "cartpole", "--trials", "4", *options]]


def test_the_command_line_searches(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    command = f"{COMMAND} --halving 2 --out {tmp_path / 'out'}"
    assert cli.main(command.split()) == 0
    printed = capsys.readouterr().out
    assert "Searching lr=log:0.0001:0.01 config.num_epochs=1,2" in printed
    assert "4 of 4 trials of ppo on cartpole" in printed and "test seeds" in printed
    assert (tmp_path / "out" / "incumbent" / "metrics.nc").exists()
