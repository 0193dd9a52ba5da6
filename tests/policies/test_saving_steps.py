"""Collected steps in files: nothing is lost in netCDF, Parquet has a row for each step, Minari an episode for each."""

import sys
from pathlib import Path
from typing import Any

import agents
import numpy as np
import pandas
import pytest
import xarray
from untrained import SMALL, cartpole_result, policy_of

import envs
import jaxrl
from envs.errors import MissingPackageError, UserError
from jaxrl.policies import saving


@pytest.fixture(scope="module")
def episodes() -> xarray.Dataset:
    return jaxrl.collect(cartpole_result(), episodes=2, greedy=False)


@pytest.fixture(scope="module")
def stream() -> xarray.Dataset:
    policy = policy_of(jaxrl.ppo(envs.make("cartpole"), jaxrl.PPOConfig(**SMALL)))
    return jaxrl.collect(policy, steps=70, num_envs=2, greedy=False)


@pytest.fixture(scope="module")
def crowd() -> xarray.Dataset:
    policy = policy_of(jaxrl.ppo(agents.Crowd(2, masked=True), jaxrl.PPOConfig(**SMALL)))
    return jaxrl.collect(policy, episodes=2)


@pytest.mark.parametrize("name", ["episodes", "stream", "crowd"])
def test_netcdf_keeps_everything(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    data = request.getfixturevalue(name)
    file = jaxrl.save_steps(data, tmp_path / "new" / "steps.nc")
    with xarray.open_dataset(file, engine="h5netcdf") as again:
        xarray.testing.assert_identical(again.load(), data)


def test_tables_have_a_row_for_each_step(episodes: xarray.Dataset, tmp_path: Path) -> None:
    table = pandas.read_parquet(jaxrl.save_steps(episodes, tmp_path / "steps.parquet"))
    assert len(table) == int(episodes["length"].sum())
    at = {"lr": 1e-2, "seed": 5, "episode": 1}
    one, rows = episodes.sel(at), table[(table[list(at)] == pandas.Series(at)).all(axis=1)]
    length = int(one["length"])
    assert rows["step"].tolist() == list(range(length)) and rows["terminated"].tolist()[-1]
    for column, array in (("observation.2", one["observation"][:, 2]), ("probability.1", one["probability"][:, 1])):
        np.testing.assert_array_equal(rows[column], array[:length])
    np.testing.assert_array_equal(rows["reward"], one["reward"][:length])
    assert not table.isna().any(axis=None) and not any(column.startswith("final") for column in table)


def test_tables_of_several_agents_have_a_row_for_each(crowd: xarray.Dataset, tmp_path: Path) -> None:
    table = pandas.read_parquet(jaxrl.save_steps(crowd, tmp_path / "steps.parquet"))
    assert len(table) == 2 * 3 * 2  # episodes, steps and agents
    np.testing.assert_array_equal(
        table[["episode", "step", "agent"]].drop_duplicates(), table[["episode", "step", "agent"]]
    )
    np.testing.assert_array_equal(table["active"], crowd["active"].values.ravel())
    np.testing.assert_array_equal(table["terminated"], np.repeat(crowd["terminated"].values.ravel(), 2))


def test_streams_are_tables_too(stream: xarray.Dataset, tmp_path: Path) -> None:
    table = pandas.read_parquet(jaxrl.save_steps(stream, tmp_path / "steps.parquet"))
    assert len(table) == 2 * 70 and table["env"].tolist() == [0] * 70 + [1] * 70


def test_steps_that_cannot_be_written_are_refused(
    episodes: xarray.Dataset, crowd: xarray.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"the name of a file of steps ends in .nc or .parquet"):
        jaxrl.save_steps(episodes, tmp_path / "steps.csv")
    with pytest.raises(UserError, match=r"data takes the steps that jaxrl.collect returned"):
        jaxrl.save_steps(jaxrl.evaluate(cartpole_result(), episodes=1), tmp_path / "steps.nc")
    with monkeypatch.context() as patch:
        patch.setattr(saving, "_WIDEST", 6)
        with pytest.raises(UserError, match=r"has 4 numbers, too many for columns; write a .nc"):
            jaxrl.save_steps(episodes, tmp_path / "steps.parquet")
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingPackageError, match=r"a .parquet needs the extra: pip install '\.\[parquet\]'"):
            jaxrl.save_steps(episodes, tmp_path / "steps.parquet")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "minari", None)
        with pytest.raises(MissingPackageError, match=r"to_minari needs the extra: pip install '\.\[minari\]'"):
            jaxrl.to_minari(episodes, "cartpole/ppo-v0", envs.make("cartpole"))
    assert not list(tmp_path.iterdir())


class Module:
    """Minari's functions that `to_minari` calls, without files."""

    class EpisodeBuffer(dict[str, Any]):
        def __init__(self, **fields: Any) -> None:
            super().__init__(fields)

    @staticmethod
    def create_dataset_from_buffers(dataset_id: str, buffer: list[Any], **fields: Any) -> Any:
        if dataset_id == "taken-v0":
            raise ValueError("it exists")
        return dataset_id, buffer, fields


@pytest.fixture
def minari(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", Module)  # pyright: ignore[reportArgumentType]
    monkeypatch.setitem(sys.modules, "minari.data_collector", Module)  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("minari")
def test_each_episode_is_one_of_minari(episodes: xarray.Dataset, stream: xarray.Dataset) -> None:
    env = envs.make("cartpole")
    name, buffers, fields = jaxrl.to_minari(
        episodes.assign_coords(failed=episodes["failed"] | (episodes["seed"] == 3)), "ppo-v0", env
    )
    assert name == "ppo-v0" and len(buffers) == 2 * 1 * 2
    assert fields["description"] == "ppo on cartpole, collected by jaxrl" and fields["algorithm_name"] == "ppo"
    assert fields["jpeg_encoding"] is False and fields["action_space"].n == 2
    one, length = episodes.sel(lr=1e-2, seed=5).isel(episode=0), len(buffers[2]["rewards"])
    assert length == int(one["length"]) and buffers[2]["observations"].shape == (length + 1, 4)
    np.testing.assert_array_equal(buffers[2]["observations"][-1], one["final_observation"])
    np.testing.assert_array_equal(buffers[2]["actions"], one["action"][:length])
    assert buffers[2]["terminations"] == [False] * (length - 1) + [True] and not any(buffers[2]["truncations"])
    ended = stream["terminated"].values
    _, parts, _ = jaxrl.to_minari(stream, "ppo-v0", env)
    assert len(parts) == ended.sum() + (~ended[:, -1]).sum()
    assert sum(len(part["rewards"]) for part in parts) == 140
    assert not parts[-1]["terminations"][-1] and not parts[-1]["truncations"][-1]  # incomplete
    np.testing.assert_array_equal(parts[-1]["observations"][-1], stream["next_observation"][-1, -1])


@pytest.mark.usefixtures("minari")
def test_dictionaries_are_those_of_minari() -> None:
    env = envs.wrappers.time_feature(envs.wrappers.frame_stack(envs.make("cartpole"), 2))
    steps = jaxrl.collect(policy_of(jaxrl.ppo(env, jaxrl.PPOConfig(**SMALL))), episodes=1)
    _, (buffer,), fields = jaxrl.to_minari(steps, "ppo-v0", env)
    length = int(steps["length"][0])
    shapes = {name: part.shape for name, part in buffer["observations"].items()}
    assert shapes == {"observation": (length + 1, 2, 4), "remaining_time": (length + 1, 1)}
    assert set(fields["observation_space"].spaces) == set(shapes)
    np.testing.assert_array_equal(
        buffer["observations"]["remaining_time"][-1], steps["final_observation.remaining_time"][0]
    )


@pytest.mark.usefixtures("minari")
def test_steps_that_minari_cannot_store_are_refused(stream: xarray.Dataset, crowd: xarray.Dataset) -> None:
    with pytest.raises(UserError, match=r"data has 2 agents, but Minari's datasets have one"):
        jaxrl.to_minari(crowd, "crowd-v0", agents.Crowd(2, masked=True))
    with pytest.raises(UserError, match=r"data has other shapes of observation than env"):
        jaxrl.to_minari(stream, "ppo-v0", envs.make("pendulum"))
    with pytest.raises(UserError, match=r"env must be an environment"):
        jaxrl.to_minari(stream, "ppo-v0", "cartpole")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"dataset_id is 'taken-v0': it exists"):
        jaxrl.to_minari(stream, "taken-v0", envs.make("cartpole"))


def test_minari_loads_them(stream: xarray.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari", reason="the extra minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    jaxrl.to_minari(stream, "cartpole/ppo-v0", envs.make("cartpole"))
    again = minari.load_dataset("cartpole/ppo-v0")
    assert again.total_steps == 140
    rewards = np.concatenate([episode.rewards for episode in again.iterate_episodes()])
    np.testing.assert_array_equal(rewards, stream["reward"].values.ravel())
    assert again.spec.action_space.n == 2
