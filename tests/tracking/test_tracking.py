"""Trackers: each library reads back its tracker's files; no point is written twice or lost by an error."""

import csv
import errno
import json
import os
import struct
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import envs
import jaxrl
from envs.bandits.bernoulli import BernoulliBandit
from envs.errors import UserError
from jaxrl.cli import main as cli
from jaxrl.results.statistics import bootstrap_interval, iqm
from jaxrl.runtime.call import Call
from jaxrl.runtime.training import training_call
from jaxrl.tracking import trackers as tracking
from jaxrl.tracking.csv_sink import Table
from jaxrl.tracking.mlflow_sink import MLflow
from jaxrl.tracking.runs import RESAMPLES, Grouping, Points, RunTracker, Tracked, tracked
from jaxrl.tracking.tensorboard_sink import TensorBoard
from jaxrl.tracking.tracker import FollowedCall
from jaxrl.tracking.wandb_sink import WandB

CONFIG = jaxrl.PPOConfig(num_envs=2, num_steps=16, num_epochs=2, num_minibatches=2, hidden=(8,))
STEPS = (64, 128, 192)
MLFLOW_WARNINGS = (
    "ignore::sqlalchemy.exc.SADeprecationWarning",
    "ignore::FutureWarning:mlflow.*",
    "ignore::DeprecationWarning:mlflow.*",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def a_call(**changes: Any) -> Call:
    """Two settings with three seeds, for which nothing is computed."""
    algo = jaxrl.ppo(envs.make("cartpole"), CONFIG)
    sweep = jaxrl.grid(algo.hparams, {"discount": [0.98, "beta:mu=0.98,eta=0.5"]})
    arguments = {"seeds": [3, 4, 5], "points": np.array([2, 4, 6]), "eval_episodes": 3}
    return training_call(algo, sweep, **(arguments | changes))


def numbers(env_step: int) -> dict[str, np.ndarray]:
    """An evaluation with different numbers; the loss of the second setting's last seed is nan from step 128 on."""
    returns = env_step + np.arange(6, dtype=np.float32).reshape(2, 3)
    loss = returns / 7
    if env_step > 64:
        loss[1, 2] = np.nan
    return {"return": returns, "loss": loss, "pulls": np.zeros((2, 3, 4))}


def whole(call: Call, upto: int = 3, interrupted: int = 0) -> jaxrl.Result:
    every = [numbers(step) for step in STEPS[:upto]]
    values = {name: np.stack([metrics[name] for metrics in every], axis=2) for name in ("return", "loss")}
    return call.result(values, None, STEPS[:upto], {"interrupted": interrupted})


def follow(tracker: Any, call: Call, steps: tuple[int, ...] = STEPS, resumed: int | None = None, end: str = "") -> None:
    """The events of a whole call, or of one that stops."""
    tracker.start(call, resumed)
    for step in steps:
        tracker(step, numbers(step))
    tracker.finish(None if end == "error" else whole(call, STEPS.index(steps[-1]) + 1 if steps else 3, end == "signal"))


class Kept:
    """A sink in memory."""

    def __init__(self, last: int = -1) -> None:
        self.last, self.points, self.ends = last, [], []

    def open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
        self.tracked, self.resuming = tracked, resuming
        return np.full(len(tracked.runs), self.last)

    def write(self, points: Points) -> None:
        self.points.append(points)

    def close(self, ends: list[str]) -> None:
        self.ends = ends

    def curves(self, name: str) -> dict[str, list[tuple[int, float]]]:
        actual: dict[str, list[tuple[int, float]]] = {}
        for points in self.points:
            column = points.names.index(name)
            for i, values in zip(points.runs, points.values, strict=True):
                actual.setdefault(self.tracked.runs[i].name, []).append((points.env_step, values[column]))
        return actual


NAMES = [
    f"discount={discount}/seed={seed}" for discount in ("exp:gamma=0.98", "beta:mu=0.98,eta=0.5") for seed in (3, 4, 5)
]


def test_the_optimum_of_a_run_is_part_of_its_configuration():
    algo = jaxrl.ppo(envs.make("kelly"), CONFIG)
    sweep = jaxrl.grid(algo.hparams, {"discount": [0.9, 0.5]})
    call = training_call(algo, sweep, seeds=[0], points=np.array([2]), eval_episodes=1)
    growth = 0.6 * np.log1p(0.2) + 0.4 * np.log1p(-0.2)  # of the logarithm in a step, at the best share, 0.2
    for run, discount in zip(tracked(call, "setting").runs, (0.9, 0.5), strict=True):
        # The probability is float32, and so is the discount.
        assert run.config["optimum.return"] == pytest.approx(40 * growth, rel=2e-6)
        best = growth * (1 - discount**40) / (1 - discount)
        assert run.config["optimum.discounted_return"] == pytest.approx(best, rel=2e-6)
        assert "optimum.return" not in run.hparams
    assert not any(name.startswith(("optimum", "bound")) for name in tracked(a_call(), "seed").runs[0].config)


def test_a_bound_is_part_of_the_configuration_where_no_optimum_is_known():
    bounded = jaxrl.ppo(envs.make("memory/concentration"), CONFIG)
    call = training_call(bounded, None, seeds=[0], points=np.array([2]), eval_episodes=1)
    (run,) = tracked(call, "setting").runs
    assert run.config["bound.return"] == 1.0 > run.config["bound.discounted_return"]
    assert not any(name.startswith("optimum") for name in run.config)


def test_a_run_a_seed_has_its_name_its_hyper_parameters_and_its_configuration() -> None:
    runs = tracked(a_call(), "seed").runs
    assert [run.name for run in runs] == NAMES
    run = runs[5]
    assert run.seed == 5 and run.coordinates == {"discount": "beta:mu=0.98,eta=0.5"}
    assert run.hparams["lr"] == pytest.approx(jaxrl.PPOHParams().lr) and run.hparams["seed"] == 5
    expected = {"algorithm": "ppo", "environment": "cartpole", "config.num_envs": 2, "config.hidden": "[8]", "seed": 5}
    assert expected.items() <= run.config.items()
    assert run.config["env.gravity"] == pytest.approx(9.8) and run.config["version.jax"] == jax.__version__


def test_settings_alone_are_named_by_the_call_and_long_or_equal_names_by_their_number() -> None:
    algo = jaxrl.ppo(envs.make("cartpole"), CONFIG)
    rest = {"seeds": [0], "points": np.array([2]), "eval_episodes": 3}
    assert [run.name for run in tracked(training_call(algo, None, **rest), "setting").runs] == ["ppo-cartpole"]
    assert [run.name for run in tracked(training_call(algo, None, **rest), "seed").runs] == ["seed=0"]
    close = jaxrl.grid(algo.hparams, {"lr": [1e-3, 1e-3 * (1 + 1e-6 / 4)]})
    actual = [run.name for run in tracked(training_call(algo, close, **rest), "setting").runs]
    assert actual == ["setting=0,lr=0.001", "setting=1,lr=0.001"]
    curve = "table:" + ",".join(f"{0.9**t:.6f}" for t in range(40))
    long = jaxrl.grid(algo.hparams, {"discount": [0.9, curve]})
    actual = [run.name for run in tracked(training_call(algo, long, **rest), "setting").runs]
    assert actual == ["setting=0,discount=exp:gamma=0.9", "setting=1"]


def test_calls_are_distinguished_and_a_resumed_one_is_known() -> None:
    identity = tracked(a_call(), "seed").identity
    longer = a_call(points=np.array([2, 4, 6, 8]), begun={"env_steps": 192, "run_length": 192})
    assert tracked(longer, "seed").identity == identity
    assert tracked(a_call(seeds=[3, 4]), "seed").identity != identity
    assert tracked(a_call(), "setting").identity != identity


def test_each_seed_gets_its_points_and_a_failed_one_is_marked() -> None:
    sink = Kept()
    follow(RunTracker(sink, Grouping()), a_call())
    curves = sink.curves("return")
    assert list(curves) == NAMES
    for i, name in enumerate(NAMES):
        assert curves[name] == [(step, step + i) for step in STEPS]
    assert sink.ends == ["finished"] * 5 + ["failed"]
    assert "pulls" not in sink.points[0].names  # an array of each run


def test_a_setting_gets_its_estimate_and_interval_over_the_seeds_that_did_not_fail() -> None:
    sink = Kept()
    follow(RunTracker(sink, Grouping("setting", confidence=0.8)), a_call())
    first, second = ("discount=exp:gamma=0.98", "discount=beta:mu=0.98,eta=0.5")
    interval = bootstrap_interval(iqm, [128.0, 129.0, 130.0], confidence=0.8, num_resamples=RESAMPLES)
    actual = [sink.curves(name)[first][1] for name in ("return", "return/low", "return/high")]
    assert actual == [(128, float(end)) for end in interval]
    assert sink.curves("return")[second][2] == (192, 195.5) and sink.curves("loss")[second][2][1] == pytest.approx(
        195.5 / 7
    )
    assert [failed for _, failed in sink.curves("failed_seeds")[second]] == [0, 1, 1]
    assert sink.ends == ["finished", "finished"]
    alone = Kept()
    tracker = RunTracker(alone, Grouping("setting", "mean"))
    tracker.start(a_call(seeds=[3]), None)
    tracker(64, {"return": np.array([[1.0], [np.inf]])})
    assert alone.points[0].names == ("return", "failed_seeds")
    np.testing.assert_array_equal(alone.points[0].values, [[1, 0], [np.nan, 1]])


def in_waves(tracker: Any, call: Call) -> None:
    """Seeds 3 and 5 train first, then seed 4; the numbers of those that do not are nan."""
    tracker.start(call, None)
    for wave in ([0, 2], [1]):
        for step in STEPS:
            metrics = {name: np.full_like(values, np.nan) for name, values in numbers(step).items()}
            for name, values in numbers(step).items():
                metrics[name][:, wave] = values[:, wave]
            tracker(step, metrics)
    tracker.finish(whole(call))


@pytest.mark.parametrize("by", ["seed", "setting"])
def test_runs_that_are_not_in_the_wave_under_way_are_passed_over(by: str) -> None:
    together, apart = Kept(), Kept()
    follow(RunTracker(together, Grouping(by)), a_call())
    in_waves(RunTracker(apart, Grouping(by)), a_call())
    for name in ("return", "loss"):
        one, other = together.curves(name), apart.curves(name)
        assert one.keys() == other.keys()
        for run in one:
            np.testing.assert_array_equal(one[run], other[run])
    assert apart.ends == together.ends


def test_settings_whose_other_seeds_trained_before_are_filled_in_at_the_end() -> None:
    sink = Kept()
    call = a_call()
    tracker = RunTracker(sink, Grouping("setting"))
    tracker.start(call, 0)
    for step in STEPS:
        tracker(
            step,
            {
                name: np.where(np.arange(3) == 1, values, np.nan)
                for name, values in numbers(step).items()
                if name != "pulls"
            },
        )
    assert not sum(len(points.runs) for points in sink.points)
    tracker.finish(whole(call))
    assert [step for step, _ in sink.curves("return")["discount=exp:gamma=0.98"]] == list(STEPS)


def test_points_up_to_the_last_that_is_there_are_not_written_again() -> None:
    sink = Kept(last=128)
    follow(RunTracker(sink, Grouping()), a_call(), resumed=0)
    assert sink.resuming and [points.env_step for points in sink.points] == [192]


@pytest.mark.parametrize("end", ["signal", "error"])
def test_runs_that_had_not_come_to_their_end_are_marked_as_stopped(end: str) -> None:
    sink = Kept()
    follow(RunTracker(sink, Grouping()), a_call(), STEPS[:2], end=end)
    assert sink.ends == ["stopped"] * 6
    follow(RunTracker(sink, Grouping()), a_call(), end=end)
    assert sink.ends == ["finished"] * 5 + ["failed"]
    RunTracker(Kept(), Grouping()).finish(None)  # a run that never began, because another one failed to


# TensorBoard


def events(directory: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def scalars(directory: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events(directory).Scalars(tag)]


def session_end(directory: Path) -> int:
    from tensorboardX.proto import plugin_hparams_pb2

    content = events(directory).SummaryMetadata("_hparams_/session_end_info").plugin_data.content
    return vars(plugin_hparams_pb2)["HParamsPluginData"].FromString(content).session_end_info.status


def tensorboard_directory(root: Path, name: str) -> Path:
    return root / name.replace(":", "_")


def test_tensorboard_reads_a_run_a_seed(tmp_path: Path) -> None:
    from tensorboardX.proto import plugin_hparams_pb2

    follow(tracking.tensorboard(tmp_path), a_call())
    for i, name in enumerate(NAMES):
        assert scalars(tensorboard_directory(tmp_path, name), "return") == [(step, step + i) for step in STEPS]
    of_failed = scalars(tensorboard_directory(tmp_path, NAMES[5]), "loss")
    assert of_failed[0][1] == pytest.approx(69 / 7) and np.isnan([value for _, value in of_failed[1:]]).all()
    assert [session_end(tensorboard_directory(tmp_path, name)) for name in NAMES] == [1] * 5 + [2]  # success, failure
    accumulator = events(tensorboard_directory(tmp_path, NAMES[5]))
    content = accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    reported = vars(plugin_hparams_pb2)["HParamsPluginData"].FromString(content).session_start_info.hparams
    assert reported["discount"].string_value == "beta:mu=0.98,eta=0.5" and reported["seed"].number_value == 5
    accumulator = events(tensorboard_directory(tmp_path, NAMES[3]))  # the first of its setting
    text = accumulator.Tensors("configuration/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| config.num_envs | 2 |" in text


def test_tensorboard_draws_bands_of_settings(tmp_path: Path) -> None:
    follow(tracking.tensorboard(tmp_path, by="setting", statistic="mean"), a_call())
    directory = tmp_path / "discount=exp_gamma=0.98"
    values, low, high = (scalars(directory, f"return{end}") for end in ("", "/low", "/high"))
    assert values == [(step, step + 1.0) for step in STEPS]
    for (_, value), (_, least), (_, most) in zip(values, low, high, strict=True):
        # Percentile ends lie within the three seeds, 1 from the mean; Student's width of two degrees of freedom is
        # t(0.975) sqrt(3 / 2) / z(0.975) = 4.3027 * 1.2247 / 1.9600 = 2.6886 times as far.
        assert value - 2.69 <= least < value < most <= value + 2.69
    layout = events(directory).Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0]
    assert b"return/low" in layout


@pytest.mark.parametrize("cut", [0, 5])
def test_tensorboard_shows_evaluations_after_the_checkpoint_of_a_killed_call_once(tmp_path: Path, cut: int) -> None:
    directory = tensorboard_directory(tmp_path, NAMES[1])
    tracker = tracking.tensorboard(tmp_path)
    tracker.start(a_call(), None)
    for step in STEPS[:2]:
        tracker(step, {name: values + 1000 * (step == 128) for name, values in numbers(step).items()})
    (file,) = directory.iterdir()
    if cut:  # the process was killed while it wrote a record
        file.write_bytes(file.read_bytes()[:-cut])
    follow(tracking.tensorboard(tmp_path), a_call(), STEPS[1:], resumed=64)
    assert scalars(directory, "return") == [(step, step + 1) for step in STEPS]
    assert len(list(directory.iterdir())) == 2
    follow(tracking.tensorboard(tmp_path), a_call(), (), resumed=192)  # there was nothing left to do
    assert len(list(directory.iterdir())) == 2


def test_tensorboard_replaces_runs_only_on_request(tmp_path: Path) -> None:
    follow(tracking.tensorboard(tmp_path), a_call())
    with pytest.raises(FileExistsError, match=r"holds discount=exp:gamma=0.98/seed=3 already: choose another"):
        tracking.tensorboard(tmp_path).start(a_call(), None)
    follow(tracking.tensorboard(tmp_path, force=True), a_call(), STEPS[:1])
    assert scalars(tensorboard_directory(tmp_path, NAMES[0]), "return") == [(64, 64.0)]


# CSV


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_table_grows_and_continues_after_half_a_line(tmp_path: Path) -> None:
    import pandas

    path = tmp_path / "deep" / "progress.csv"
    tracker = tracking.csv(path)
    tracker.start(a_call(), None)
    tracker(64, numbers(64))
    assert len(rows(path)) == 6
    tracker(128, numbers(128))
    path.write_text(path.read_text()[:-9])  # killed amid the last line
    follow(tracking.csv(path), a_call(), STEPS[1:], resumed=64)
    frame = pandas.read_csv(path)
    assert len(frame) == 18 and not frame.duplicated(["run", "env_step"]).any()
    assert list(frame.columns) == ["run", "discount", "seed", "env_step", "return", "loss"]
    one = frame[(frame.discount == "beta:mu=0.98,eta=0.5") & (frame.seed == 5)]
    assert one["return"].tolist() == [69, 133, 197] and np.isnan(np.asarray(one["loss"])).tolist() == [
        False,
        True,
        True,
    ]
    with pytest.raises(FileExistsError, match="exists already: choose another file"):
        tracking.csv(path).start(a_call(), None)
    with pytest.raises(FileExistsError, match="with runs of another call"):
        tracking.csv(path).start(a_call(seeds=[7]), 0)
    follow(tracking.csv(path, by="setting", force=True), a_call(), STEPS[:1])
    assert [row["return"] for row in rows(path)] == ["65.0", "68.0"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("resumed", [None, 64])
def test_a_table_is_not_written_through_a_link(tmp_path: Path, force: bool, resumed: int | None) -> None:
    (tmp_path / "precious").write_text("precious")
    path = tmp_path / "progress.csv"
    path.symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=r"progress\.csv is a link, through which nothing is written"):
        tracking.csv(path, force=force).start(a_call(), resumed)
    path.unlink()
    tracker = tracking.csv(path)
    tracker.start(a_call(), None)
    path.symlink_to(tmp_path / "precious")  # while the call runs
    with pytest.raises(UserError, match=r"progress\.csv is a link"):
        tracker(64, numbers(64))
    assert (tmp_path / "precious").read_text() == "precious"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match=r"progress\.csv is neither a file nor a directory"):
        tracking.csv(path, force=force).start(a_call(), resumed)


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "run,env_step\nx,1\n", "run,env_step\n{name},one\n", "\xff\n"])
def test_another_table_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "progress.csv"
    name = tracked(a_call(), "seed").runs[0].name
    path.write_bytes(before := content.format(name=name).encode("latin-1"))
    with pytest.raises(FileExistsError, match="with runs of another call or with other content"):
        tracking.csv(path).start(a_call(), 0)
    assert path.read_bytes() == before


def test_trackers_of_a_run_directory_follow_none_of_its_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for kind, name in (("csv", "progress.csv"), ("tensorboard", "tensorboard"), ("mlflow", "mlflow.db")):
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(UserError, match=f"{name} is a link, through which nothing is written"):
            tracking.by_name(kind, tmp_path)


@pytest.mark.parametrize("kind", ["csv", "tensorboard", "wandb", "mlflow"])
def test_a_place_that_cannot_be_written_gets_one_sentence(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a file, as on a file system that is read-only: before anything is computed."""
    fake_mlflow(monkeypatch)
    (tmp_path / "file").write_text("precious")
    out = tmp_path / "file" / "run"
    sinks = {
        "csv": Table(out / "progress.csv", True),
        "tensorboard": TensorBoard(out, True),
        "wandb": WandB(out, "project", None, None, (), None),
        "mlflow": MLflow(f"sqlite:///{out}/mlflow.db", "experiment", {}),
    }
    with pytest.raises(UserError, match=r"^.*file/run.*(cannot be written|cannot store runs): .*Not a directory.*$"):
        RunTracker(sinks[kind], Grouping()).start(a_call(), None)


def test_weights_and_biases_start_and_write_nothing_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library itself would print tracebacks at its start, and lose points in silence later."""
    monkeypatch.setattr(os, "posix_fallocate", raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    sink = WandB(tmp_path, "project", None, None, (), None)
    sentence = f"^{tmp_path} cannot be written: No space left on device\\.$"
    with pytest.raises(UserError, match=sentence):
        RunTracker(sink, Grouping()).start(a_call(), None)
    with pytest.raises(UserError, match=sentence):
        sink.write(Points(64, np.array([0]), ("return",), np.array([[1.0]])))


@pytest.mark.parametrize("kind", ["csv", "tensorboard", "mlflow"])
def test_a_place_that_is_full_later_gets_one_sentence(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mlflow(monkeypatch)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    sinks = {
        "csv": Table(tmp_path / "progress.csv", True),
        "tensorboard": TensorBoard(tmp_path, True),
        "mlflow": MLflow(uri, "experiment", {}),
    }
    tracker = RunTracker(sinks[kind], Grouping())
    tracker.start(a_call(), None)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for module, name in ((os, "open"), (Path, "open")):
        monkeypatch.setattr(module, name, raising(full))
    sentence = (
        "cannot store runs: database is full" if kind == "mlflow" else "cannot be written: No space left on device"
    )
    with pytest.raises(UserError, match=sentence):
        tracker(64, numbers(64))


def raising(error: Exception) -> Any:
    def raises(*_: Any, **__: Any) -> Any:
        raise error

    return raises


def fake_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of MLflow, whose import takes seconds, in which runs can be begun but not written."""

    class StoreError(Exception):  # of a database: not one of MLflow's own
        pass

    client = SimpleNamespace(
        get_experiment_by_name=lambda name: SimpleNamespace(experiment_id="0"),
        create_run=lambda *_, **__: SimpleNamespace(info=SimpleNamespace(run_id="1")),
        log_batch=raising(StoreError("database is full\n[SQL: INSERT INTO metrics]")),
    )
    parts = {
        "mlflow": SimpleNamespace(MlflowClient=lambda tracking_uri: client),
        "mlflow.entities": SimpleNamespace(Metric=lambda *point: point, Param=lambda *pair: pair),
    }
    for name, module in parts.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_tensorboard_stays_in_its_directory(tmp_path: Path) -> None:
    call = a_call()
    names = ["lr=..", "..", "victim", "seed=0"]

    class Named(TensorBoard):
        def open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
            runs = [run._replace(name="/".join([*names, str(i)])) for i, run in enumerate(tracked.runs)]
            return super().open(tracked._replace(runs=runs), resuming)

    follow(RunTracker(Named(tmp_path / "board", False), Grouping()), call, STEPS[:1])
    assert not (tmp_path / "victim").exists() and (tmp_path / "board" / "lr=.." / "_" / "victim").is_dir()
    inside = tmp_path / "board" / "lr=.." / "_"
    inside.rename(tmp_path / "moved")
    inside.symlink_to(tmp_path / "moved")
    for resuming in (None, 64):
        with pytest.raises(UserError, match="_ is a link, through which nothing is written"):
            RunTracker(Named(tmp_path / "board", True), Grouping()).start(call, resuming)


def test_text_of_a_table_is_no_formula(tmp_path: Path) -> None:
    call = a_call()
    path = tmp_path / "progress.csv"
    formula = '=HYPERLINK("http://a.b","x")'

    class Named(Table):
        def open(self, tracked: Tracked, resuming: bool) -> np.ndarray:
            runs = [
                run._replace(name=f"={run.name}", coordinates={"@discount": formula, "level": "-1"})
                for run in tracked.runs
            ]
            return super().open(tracked._replace(runs=runs), resuming)

    follow(RunTracker(Named(path, False), Grouping()), call, STEPS[:1])
    follow(RunTracker(Named(path, False), Grouping()), call, STEPS[:2], resumed=64)  # finds its runs again
    assert len(rows(path)) == 12
    for row in rows(path):
        assert row["run"].startswith("'=") and row["'@discount"] == f"'{formula}" and row["level"] == "-1"


# Weights & Biases


def records(file: Path) -> Iterator[bytes]:
    """The records of an offline run: W&B's own header, then LevelDB's log format, blocks of 32 KiB."""
    data, record = file.read_bytes(), b""
    assert data[:4] == b":W&B"
    at = 7
    while at < len(data):
        if 32768 - at % 32768 < 7:  # the rest of a block that holds no header
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def offline_runs(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """The messages of every offline run in the library's own format, by its name, one entry a session."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # as at the end of the process: its files are whole then
    actual: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(directory.glob("wandb/offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns):
        run: dict[str, Any] = {"history": [], "exit": None}
        for data in records(file):
            record = vars(wandb_internal_pb2)["Record"].FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                run |= {"id": record.run.run_id, "project": record.run.project, "group": record.run.run_group}
                run |= {"tags": list(record.run.tags), "name": record.run.display_name}
                run["config"] = {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "history":
                pairs = [(item.key or "/".join(item.nested_key), item.value_json) for item in record.history.item]
                run["history"].append((record.history.step.num, {key: json.loads(text) for key, text in pairs}))
            elif kind == "exit":
                run["exit"] = record.exit.exit_code
        actual.setdefault(run["name"], []).append(run)
    return actual


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights & Biases and MLflow report nothing home."""
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_ERROR_REPORTING": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_wandb_reads_offline_runs_and_continues_with_their_ids(tmp_path: Path, no_network: None) -> None:
    def tracker() -> RunTracker:
        return tracking.wandb("cartpoles", group="first", tags=["a", "b"], mode="offline", directory=tmp_path)

    follow(tracker(), a_call(), STEPS[:2], end="error")
    actual = offline_runs(tmp_path)
    assert set(actual) == set(NAMES)
    (run,) = actual[NAMES[5]]
    assert (run["project"], run["group"], run["tags"]) == ("cartpoles", "first", ["a", "b"])
    assert run["config"]["discount"] == "beta:mu=0.98,eta=0.5" and run["config"]["config.num_envs"] == 2
    assert [step for step, _ in run["history"]] == [64, 128] and run["exit"] == 255
    assert run["history"][0][1]["return"] == 69 and run["history"][0][1]["env_step"] == 64
    assert np.isnan(float(run["history"][1][1]["loss"]))
    follow(tracker(), a_call(), resumed=0)  # killed before the first checkpoint: evaluations come again
    for name, (first, second) in offline_runs(tmp_path).items():
        assert first["id"] == second["id"]
        assert [step for step, _ in first["history"] + second["history"]] == list(STEPS)
        assert second["exit"] == (1 if name == NAMES[5] else 0)


# MLflow


def mlflow_runs(uri: str, experiment: str) -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    made = client.get_experiment_by_name(experiment)
    assert made is not None
    actual = client.search_runs([made.experiment_id], max_results=1000)
    curves = {}
    for run in actual:
        history = client.get_metric_history(run.info.run_id, "return")
        assert run.info.run_name not in curves
        curves[run.info.run_name] = (run, [(point.step, point.value) for point in history])
    return curves


@pytest.mark.slow
@pytest.mark.parametrize("store", ["mlflow.db", "mlruns"])
@pytest.mark.filterwarnings(*MLFLOW_WARNINGS)
def test_mlflow_reads_its_runs_and_continues_with_them(
    tmp_path: Path, no_network: None, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / store
    uri = f"sqlite:///{path}" if store.endswith(".db") else path.as_uri()

    def tracker() -> RunTracker:
        return tracking.mlflow(path, experiment="cartpoles", tags={"who": "me"})

    follow(tracker(), a_call(), STEPS[:2], end="error")
    actual = mlflow_runs(uri, "cartpoles")
    assert set(actual) == set(NAMES)
    run, curve = actual[NAMES[5]]
    assert curve == [(64, 69), (128, 133)] and run.info.status == "KILLED" and run.data.tags["who"] == "me"
    assert run.data.params["discount"] == "beta:mu=0.98,eta=0.5" and run.data.params["config.num_envs"] == "2"
    assert np.isnan(run.data.metrics["loss"])
    follow(tracker(), a_call(), resumed=0)
    actual = mlflow_runs(uri, "cartpoles")
    for i, name in enumerate(NAMES):
        run, curve = actual[name]
        assert curve == [(step, step + i) for step in STEPS]
        assert run.info.status == ("FAILED" if i == 5 else "FINISHED")


# With the driver


class Failing:
    """A tracker that fails at one of its calls."""

    def __init__(self, at: str):
        self.at = at

    def _do(self, name: str) -> None:
        if name == self.at:
            raise RuntimeError("no room left for points")

    def start(self, call: FollowedCall, resumed: int | None) -> None:
        self._do("start")

    def __call__(self, env_step: int, metrics: Mapping[str, np.ndarray]) -> None:
        if env_step >= 8:
            self._do("call")

    def finish(self, result: jaxrl.Result | None) -> None:
        self._do("finish")


@pytest.mark.slow_rows("call")
@pytest.mark.parametrize("at", ["call", "finish"])
def test_an_error_in_a_tracker_loses_neither_results_nor_the_other_trackers_points(tmp_path: Path, at: str) -> None:
    policy, env = jaxrl.bandits.ucb1(), BernoulliBandit(num_arms=2)
    arguments: dict[str, Any] = {"steps": 16, "runs": 3, "points": [4, 8, 16], "progress": False}
    sound = tracking.csv(tmp_path / "progress.csv")
    for trackers in ([sound, Failing(at)], [Failing(at), tracking.csv(tmp_path / "after.csv")]):
        with pytest.raises(RuntimeError, match="no room left for points"):
            jaxrl.run_bandit(policy, env, **arguments, trackers=trackers, out=tmp_path / "run", force=True)
        saved = jaxrl.load_result(tmp_path / "run")
        assert saved.metrics["env_step"].values.tolist() == ([4, 8] if at == "call" else [4, 8, 16])
    expected = [[4, 8] if at == "call" else [4, 8, 16], [4] if at == "call" else [4, 8, 16]]
    for name, steps in zip(("progress.csv", "after.csv"), expected, strict=True):
        assert sorted({int(row["env_step"]) for row in rows(tmp_path / name)}) == steps
    saved = jaxrl.load_result(tmp_path / "run")
    for row in rows(tmp_path / "after.csv"):
        regret = saved.metrics["regret"].sel(seed=int(row["seed"]), env_step=int(row["env_step"]))
        assert float(row["regret"]) == float(regret)


def test_bad_arguments_of_trackers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    bad: list[tuple[Any, str]] = [
        (lambda: tracking.tensorboard("runs/tb", by="seeds"), "by must be one of seed, setting, got 'seeds'"),
        (lambda: tracking.tensorboard("runs/tb", statistic="median"), "statistic must be one of iqm, mean, got"),
        (
            lambda: tracking.csv("a.csv", confidence=95),
            "confidence must be a number between 0 and 1, such as 0.95, got",
        ),
        (lambda: tracking.tensorboard(""), "directory must be a name, got ''"),
        (lambda: tracking.tensorboard(tmp_path / "file" / "tb"), "directory must be a directory, got .* is a file"),
        (lambda: tracking.csv(tmp_path), "path must be a file, such as runs/progress.csv, got the directory"),
        (lambda: tracking.wandb(""), "project must be a name, got ''"),
        (lambda: tracking.wandb("p", mode="off"), "mode must be one of None, online, offline, shared, disabled, got"),
        (lambda: tracking.mlflow(tmp_path, experiment=""), "experiment must be a name, got ''"),
    ]
    for make, sentence in bad:
        with pytest.raises(ValueError, match=sentence):
            make()
    with pytest.raises(TypeError, match="tags must be a sequence of strings, such as"):
        tracking.wandb("p", tags="baseline")
    extras = {"tensorboardX": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
    for module, extra in extras.items():
        monkeypatch.setitem(sys.modules, module, None)
        make = {"tensorboard": tracking.tensorboard, "wandb": tracking.wandb, "mlflow": tracking.mlflow}[extra]
        with pytest.raises(ImportError, match=rf"needs the extra: pip install '\.\[{extra}\]' in a clone"):
            make("runs/x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# The command line


def test_the_options_follow_a_call_and_are_remembered_for_its_resumption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    call = a_call()

    def train(*_: Any, trackers: Any, **__: Any) -> jaxrl.Result:
        used.append(trackers)
        (tmp_path / "run").mkdir()
        for tracker in trackers:
            follow(tracker, call, STEPS[:2], end="error")
        return whole(call, 2)

    def resume(path: Path, *, trackers: Any, **_: Any) -> jaxrl.Result:
        for tracker in trackers:
            follow(tracker, call, STEPS[1:], resumed=64)
        return whole(call)

    monkeypatch.setattr(jaxrl, "train", train)
    monkeypatch.setattr("jaxrl.runtime.resuming.resume", resume)
    out = str(tmp_path / "run")
    options = ["--track", "tensorboard", "csv", "--track-by", "setting", "--out", out]
    with warnings.catch_warnings(action="ignore"):
        assert cli.main(["train", "ppo", "cartpole", *options]) == 0
        assert cli.main(["resume", out]) == 0
    assert scalars(tmp_path / "run" / "tensorboard" / "discount=exp_gamma=0.98", "return") == [
        (step, step + 1.0) for step in STEPS
    ]
    assert [row["env_step"] for row in rows(tmp_path / "run" / "progress.csv")] == [
        "64",
        "64",
        "128",
        "128",
        "192",
        "192",
    ]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("--track csv", "--track takes --out as well"),
        (
            "--track csv csv --out x",
            "--track takes each of tensorboard, wandb, mlflow, csv at most once, but got csv csv",
        ),
        ("--track tb --out x", "there is no tracker 'tb' for --track; it takes tensorboard, wandb, mlflow, csv"),
        ("--track csv --track-by seeds --out x", "by must be one of seed, setting, got 'seeds'"),
    ],
)
@pytest.mark.parametrize("command", ["train ppo cartpole", "bandit --policies ucb1"])
def test_invalid_options_get_one_sentence(
    command: str, args: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command.split(), *args.split()]) == 2
    message = capsys.readouterr().err
    assert message.startswith("jaxrl: ") and sentence in message and message.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_damaged_choice_of_trackers_gets_one_sentence(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "tracking.json").write_text('{"track": ["csv"')
    assert cli.main(["resume", str(tmp_path)]) == 2
    assert "tracking.json is damaged (" in capsys.readouterr().err


@pytest.mark.slow
def test_bandits_are_followed_too(tmp_path: Path) -> None:
    out = tmp_path / "b"
    options = f"--policies ucb1,exp3 --steps 16 --runs 3 --points 2 --out {out} --track csv tensorboard --no-progress"
    assert cli.main(["bandit", *options.split()]) == 0
    for policy in ("ucb1", "exp3"):
        regrets = {(row["seed"], row["env_step"]): float(row["regret"]) for row in rows(out / policy / "progress.csv")}
        result = jaxrl.load_result(out / policy)
        for seed in range(3):
            expected = result.metrics["regret"].sel(seed=seed)
            actual = scalars(out / policy / "tensorboard" / f"seed={seed}", "regret")
            assert actual == [(int(step), float(expected.sel(env_step=step))) for step in expected["env_step"]]
            assert all(regrets[str(seed), str(step)] == value for step, value in actual)
