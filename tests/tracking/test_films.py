"""Films of evaluations while runs train, and the trackers that show them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from linear_task import LinearTask
from PIL import Image
from untrained import filled

import envs
import jaxrl
from jaxrl.cli.main import main
from jaxrl.policies import rendering
from jaxrl.policies.films import Films
from jaxrl.results.policy import TrainedPolicy
from jaxrl.runtime.programs import compilations

SMALL: dict[str, Any] = {"num_envs": 2, "num_steps": 8, "hidden": (4,)}
ENV = envs.make("cartpole")


class Shown:
    """A tracker that records the films of others."""

    def __init__(self) -> None:
        self.films: list[tuple[int, int, Path]] = []

    def start(self, call: Any, resumed: int | None) -> None:
        pass

    def __call__(self, env_step: int, metrics: Any) -> None:
        pass

    def film(self, env_step: int, setting: int, path: Path) -> None:
        assert path.is_file()
        self.films.append((env_step, setting, path))

    def finish(self, result: Any) -> None:
        pass


def train(trackers: list[Any], **options: Any) -> jaxrl.Result:
    algo = jaxrl.ppo(ENV, jaxrl.PPOConfig(**SMALL))
    settings = jaxrl.grid(algo.hparams, {"lr": [1e-3, 1e-2]})
    call: dict[str, Any] = {"seeds": 2, "env_steps": 80, "evals": 5, "eval_episodes": 1, "progress": False, **options}
    return jaxrl.train(algo, settings, trackers=trackers, **call)


@pytest.mark.slow
def test_every_second_evaluation_and_the_last_one_have_a_film_of_each_setting(tmp_path: Path) -> None:
    shown = Shown()
    result = train([jaxrl.films(tmp_path, every=2), shown], keep="best")
    expected = [(step, setting) for step in (32, 64, 80) for setting in (0, 1)]
    assert [(step, setting) for step, setting, _ in shown.films] == expected
    names = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.gif"))
    assert names == sorted(f"lr={lr}/env-step-{step}.gif" for lr in ("0.001", "0.01") for step in (32, 64, 80))
    # The last film is that of the last policy, by itself.
    alone = jaxrl.render(ENV, result.policy(seed=0, lr=1e-2), tmp_path / "alone.gif")
    assert alone.read_bytes() == (tmp_path / "lr=0.01" / "env-step-80.gif").read_bytes()
    without = train([])
    np.testing.assert_array_equal(without.values("return"), result.values("return"))


@pytest.mark.slow
def test_parts_and_the_bars_of_trackers_show_films(tmp_path: Path) -> None:
    shown = Shown()
    trackers = [Films(tmp_path / "films", every=5), shown, jaxrl.tracking.csv(tmp_path / "x.csv")]
    train(trackers, shard="1/2")  # of the second seed: its runs are the first of their settings there
    assert [(step, setting) for step, setting, _ in shown.films] == [(80, 0), (80, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["seed", "setting"])
def test_tensorboard_shows_the_film_among_its_images(by: str, tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = jaxrl.tracking.tensorboard(tmp_path / "tb", by=by)
    train([jaxrl.films(tmp_path / "films", every=5), board])
    place = tmp_path / "tb" / "lr=0.001" / ("seed=0" if by == "seed" else "")
    events = reader.EventAccumulator(str(place)).Reload()
    (image,) = events.Images("film")
    film = tmp_path / "films" / "lr=0.001" / "env-step-80.gif"
    assert image.step == 80 and image.encoded_image_string == film.read_bytes()
    with Image.open(film) as picture:
        assert (image.width, image.height) == picture.size and getattr(picture, "n_frames", 1) > 1


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::sqlalchemy.exc.SADeprecationWarning",
    "ignore::FutureWarning:mlflow.*",
    "ignore::DeprecationWarning:mlflow.*",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
def test_mlflow_stores_the_film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path / 'ml.db'}"
    train([jaxrl.films(tmp_path / "films", every=5), jaxrl.tracking.mlflow(tmp_path / "ml.db")])
    client = mlflow.MlflowClient(tracking_uri=uri)
    (experiment,) = [each for each in client.search_experiments() if each.name == "jaxrl"]
    runs = {run.info.run_name: run.info.run_id for run in client.search_runs([experiment.experiment_id])}
    (stored,) = client.list_artifacts(runs["lr=0.001/seed=0"], "films")
    assert stored.path == "films/env-step-80.gif"
    assert not client.list_artifacts(runs["lr=0.001/seed=1"], "films")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_weights_and_biases_stores_the_films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    tracker = jaxrl.tracking.wandb("test", mode="offline", directory=tmp_path)
    train([jaxrl.films(tmp_path / "films", every=5), tracker], seeds=1)
    stored = {file.read_bytes() for file in tmp_path.glob("wandb/offline-run-*/**/*.gif")}
    assert stored == {file.read_bytes() for file in (tmp_path / "films").rglob("*.gif")} and stored


@pytest.mark.slow
def test_the_shell_writes_films_and_resumes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, small = tmp_path / "x", ["--config.num-envs", "2", "--config.num-steps", "8", "--config.hidden", "4"]
    args = ["train", "ppo", "cartpole", "--no-preset", *small, "--eval-episodes", "1", "--no-progress"]
    assert main([*args, "--env-steps", "32", "--evals", "2", "--film-every", "1", "--out", str(out)]) == 0
    assert sorted(file.name for file in (out / "films").iterdir()) == ["env-step-16.gif", "env-step-32.gif"]
    assert json.loads((out / "tracking.json").read_text())["film_every"] == 1
    assert main(["resume", str(out), "--env-steps", "48", "--no-progress"]) == 0
    assert (out / "films" / "env-step-48.gif").is_file()
    capsys.readouterr()
    assert main([*args, "--env-steps", "32", "--film-every", "1"]) == 2
    assert "--film-every takes --out as well: films are written there" in capsys.readouterr().err
    assert main([*args, "--env-steps", "32", "--film-every", "-1", "--out", str(tmp_path / "y")]) == 2
    assert "--film-every takes a number of evaluations, 0 or more, but got -1" in capsys.readouterr().err


def test_a_film_shows_the_draws_of_its_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    varied = envs.wrappers.randomise(ENV, {"length": jaxrl.Uniform(0.25, 1.0)})
    algo, widths = jaxrl.ppo(varied, jaxrl.PPOConfig(**SMALL)), list[float]()

    def play(env: Any, player: Any, params: Any, num_steps: Any, seed: int) -> Any:
        widths.append(float(params.width))
        return iter([env.reset_env(jax.random.key(0), params)[1]])

    monkeypatch.setattr(rendering, "_play", play)
    params = varied.default_params.replace(widening_env_steps=64.0)
    described = SimpleNamespace(
        algo=algo, settings=[{}], seeds=[0], env_params=jax.tree.map(lambda leaf: np.asarray(leaf)[None], params)
    )
    films: Any = Films(tmp_path)
    films.check(SimpleNamespace(description=lambda: described, eval_steps=[16, 80]))
    first = np.zeros(1, np.int32), np.zeros(1, np.int32)
    for env_step in (16, 80):
        list(films.policies(env_step, first, lambda: filled(algo, 1, 1)))
    policy = TrainedPolicy(algo, filled(algo), env_params=params, env_steps=16, training_env_steps=48)
    jaxrl.render(varied, policy, tmp_path / "alone.gif")
    jaxrl.render(varied, policy, tmp_path / "alone.gif", env_params=params)
    assert widths == [0.25, 1.0, 0.75, 1.0]


def test_an_environment_is_checked_before_anything_is_compiled(tmp_path: Path) -> None:
    before = compilations()
    with pytest.raises(ValueError, match="draw"):
        jaxrl.train(
            jaxrl.ppo(LinearTask(), jaxrl.PPOConfig(**SMALL, activation="silu")),
            env_steps=16,
            progress=False,
            trackers=[jaxrl.films(tmp_path)],
        )
    assert compilations() == before and not list(tmp_path.rglob("*.gif"))
    with pytest.raises(ValueError, match=r"^directory takes a directory, .*, got 'film\.gif'; jaxrl\.render"):
        jaxrl.films("film.gif")
    with pytest.raises(ValueError, match="every must be a whole number of at least 1, got 0"):
        jaxrl.films(tmp_path, every=0)
