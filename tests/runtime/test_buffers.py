"""Replay buffers and memory: buffers that do not fit raise errors before compilation, and plans include the others."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from pictures import Pictures

import envs
import jaxrl
from jaxrl.algorithms.registry import ROWS
from jaxrl.runtime.layout import plan_layout
from jaxrl.runtime.machine.memory import GIB, MIB, resident
from jaxrl.runtime.plan import planner as planner_module
from jaxrl.runtime.plan.buffers import SUGGESTED, check_buffer, description
from jaxrl.runtime.plan.planner import Planner
from jaxrl.runtime.programs import compilations
from jaxrl.runtime.training import points_of, training_call

PER_ITERATION = 8
BYTES = 4 * (4 + 4 + 1 + 1) + 4  # of a transition of CartPole: observations, action and reward, and four flags
SENTENCE = r"^buffer_size must be at most ([\d,]+) here, because one run .* does not fit .* GiB of memory, got [\d,]+$"


def dqn(buffer_size: int, **fields: Any) -> Any:
    every: dict[str, Any] = dict(ROWS["dqn"].small) | {"buffer_size": buffer_size} | fields
    return jaxrl.dqn(envs.make("cartpole"), jaxrl.DQNConfig(**every))


def images(buffer_size: int, **fields: Any) -> Any:
    """DQN on stacks of three images of six bytes."""
    every: dict[str, Any] = dict(ROWS["dqn"].small) | {"buffer_size": buffer_size} | fields
    return jaxrl.dqn(envs.wrappers.frame_stack(Pictures(), 3), jaxrl.DQNConfig(**every))


def planner(algo: Any, limit: int, checkpoints: bool = False) -> Planner:
    points = points_of(algo, PER_ITERATION, 1, 2)
    call = training_call(algo, None, seeds=[0, 1, 2], points=points, eval_episodes=2)
    return Planner(call, plan_layout(3, None, jax.devices()[:1]), limit, checkpoints)


def largest(algo: Any, memory: int, tmp_path: Path) -> int:
    """The buffer size that an error message names, for a call that compiles and writes nothing."""
    before = compilations()
    with pytest.raises(ValueError, match=SENTENCE) as caught:
        jaxrl.train(algo, seeds=2, env_steps=PER_ITERATION, memory=memory, out=tmp_path / "x", progress=False)
    assert compilations() == before and not (tmp_path / "x").exists()
    match = re.match(SENTENCE, str(caught.value))
    assert match is not None and len(str(caught.value).splitlines()) == 1
    return int(match[1].replace(",", ""))


def test_a_buffer_that_cannot_fit_is_refused_with_the_size_that_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "resident", lambda: 300 * MIB)
    monkeypatch.setattr(planner_module, "available", lambda: 64 * GIB)
    named = largest(dqn(2**32), GIB, tmp_path)
    assert named % PER_ITERATION == 0
    # A state, and the copies of it that a checkpoint takes, in what the process leaves; other arrays are below 1 MiB.
    room = GIB - 300 * MIB - planner_module.PROGRAMS - planner_module.ROOM_PER_THREAD - planner_module.WRITERS
    assert 0 <= room - named / SUGGESTED * BYTES * (1 + planner_module.CHECKPOINT_COPIES) < MIB
    one = planner(dqn(named), GIB, checkpoints=True)
    check_buffer(one.call, GIB, one._holds)
    prioritised = largest(dqn(2**32, replay="prioritised"), GIB, tmp_path)
    np.testing.assert_allclose(prioritised / named, BYTES / (BYTES + 4), rtol=1e-3)


def test_a_buffer_of_frames_that_cannot_fit_is_refused_with_the_size_that_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "resident", lambda: 300 * MIB)
    monkeypatch.setattr(planner_module, "available", lambda: 64 * GIB)
    once, twice = (largest(images(2**26, replay_storage=storage), GIB, tmp_path) for storage in ("auto", "transitions"))
    # Two stacks of 18 bytes; or a frame of 6, its number, and one of 6 for the 4 steps of a block; and 12 of the rest.
    np.testing.assert_allclose(once / twice, (2 * 18 + 12) / (6 + 1 + (6 + 4) / 4 + 12), rtol=2e-3)
    one = planner(images(once), GIB, checkpoints=True)
    check_buffer(one.call, GIB, one._holds)


def test_a_plan_describes_the_replay_buffer() -> None:
    def described(algo: Any) -> str | None:
        return description(planner(algo, GIB).call)

    assert described(dqn(1_000_000)) == "1,000,000 transitions of each run in 42 MiB, both observations of each"
    assert described(dqn(1_000_001)) == (
        "1,000,008 transitions of each run (buffer_size=1,000,001 rounded up) in 42 MiB, both observations of each"
    )
    stacks = images(1_000_000)
    assert described(stacks) == "1,000,000 transitions of each run in 21 MiB, each frame once"
    single = jaxrl.dqn(Pictures(), stacks.config)
    assert described(single) == "1,000,000 transitions of each run in 20 MiB, each observation once"
    fields = {"num_envs": 4, "num_steps": 4, "buffer_size": 65_536, "memory": "gru", "memory_size": 32}
    # A memory of 32 numbers of 4 bytes every 4 steps.
    assert (described(jaxrl.dqn(envs.make("cartpole"), jaxrl.DQNConfig(**fields))) or "").endswith(
        ", both observations of each, and memories of networks in 2 MiB"
    )
    assert described(jaxrl.ppo(envs.make("cartpole"))) is None


@pytest.mark.parametrize("progress", [True, False])
def test_a_buffer_that_is_rounded_up_is_shown(progress: bool, capsys: pytest.CaptureFixture[str]) -> None:
    for size, shown in ((1_001, True), (1_008, False)):
        with pytest.raises(ValueError, match="seeds"):  # before anything is compiled
            jaxrl.train(dqn(size), env_steps=PER_ITERATION, seeds=0, progress=progress)
        line = "buffer_size=1,001 becomes 1,008, a multiple of the 8 transitions of an iteration (num_envs * num_steps)"
        assert capsys.readouterr().err.splitlines() == [f"jaxrl: {line}"] * (shown and progress)
    algo = dqn(1_008, prefill=100)
    assert (algo.config.prefill, algo.config.num_prefilled) == (100, 104)
    with pytest.raises(ValueError, match="seeds"):
        jaxrl.train(algo, env_steps=PER_ITERATION, seeds=0, progress=progress)
    assert capsys.readouterr().err.startswith("jaxrl: prefill=100 becomes 104, a multiple") == progress


@pytest.mark.parametrize(("fields", "shown"), [({}, True), ({"network": "mlp"}, False), ({"network": "cnn"}, False)])
def test_images_that_the_default_network_flattens_are_mentioned(
    fields: dict[str, Any], shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="seeds"):
        jaxrl.train(images(1_008, **fields), env_steps=PER_ITERATION, seeds=0)
    line = "jaxrl: observations uint8[3, 3, 2, 1] look like images, which network='auto' reads as one vector; "
    assert capsys.readouterr().err.startswith(line) == shown


def test_memory_without_room_for_any_buffer_is_not_blamed_on_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "resident", lambda: 300 * MIB)
    one = planner(dqn(64), 256 * MIB)
    assert not one._holds(0)
    check_buffer(one.call, 256 * MIB, one._holds)


@pytest.mark.slow
def test_the_size_that_would_fit_does_and_is_planned(tmp_path: Path) -> None:
    memory = resident() + GIB
    named = largest(dqn(2**32), memory, tmp_path)
    options: dict[str, Any] = {"seeds": 2, "env_steps": PER_ITERATION, "measure": False, "checkpoints": True}
    planned = jaxrl.plan(dqn(named), devices=jax.devices()[:1], memory=memory, **options)
    assert planned.fits and planned.num_parts == 2  # one run at a time
    small = jaxrl.plan(dqn(64), devices=jax.devices()[:1], **options)
    per_run = planned.states / planned.num_slots - small.states / small.num_slots
    np.testing.assert_allclose(per_run, (named - 64) * BYTES, rtol=1e-3)
