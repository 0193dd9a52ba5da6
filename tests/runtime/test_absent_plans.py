"""Plans for absent accelerators: memory, the runs that fit, and messages."""

import dataclasses
import importlib.util
import os
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from chaotic_algorithm import PER_ITERATION, wandering

import envs
import jaxrl
from jaxrl.cli.main import main
from jaxrl.runtime.accelerators import absent_device as absent
from jaxrl.runtime.accelerators.bounds import Bound
from jaxrl.runtime.accelerators.figures import Figures
from jaxrl.runtime.accelerators.targets import TARGETS, named_target
from jaxrl.runtime.layout import compiler_options, plan_layout
from jaxrl.runtime.machine.memory import GIB, MIB
from jaxrl.runtime.plan.plan import Plan
from jaxrl.runtime.plan.planner import Planner, Sizes
from jaxrl.runtime.training import points_of, training_call


def planner_on(monkeypatch: pytest.MonkeyPatch, name: str, num_runs: int, memory: str | None = None) -> Planner:
    """Planner of a call on a device that stands for a target."""
    device: Any = SimpleNamespace(platform="gpu", device_kind="some GPU")
    device = type("Device", (), vars(device))()
    monkeypatch.setitem(absent._TARGETS, device, TARGETS[name])
    algo = wandering()
    points = points_of(algo, 4 * PER_ITERATION, 2, 2)
    call = training_call(algo, None, seeds=list(range(num_runs)), points=points, eval_episodes=2)
    layout = plan_layout(num_runs, 8, None)._replace(devices=(device,))
    return Planner.of(call, layout, memory)


SIZES = Sizes(100 * MIB, 0, 0, 0, 0, 0, advancing=GIB, evaluating=MIB, block=8)


def test_a_plan_for_a_target_takes_four_fifths_of_the_memory_that_jax_reserves(monkeypatch: pytest.MonkeyPatch):
    planner = planner_on(monkeypatch, "t4", 80)
    assert planner.limit is not None
    assert planner.limit == int(0.8 * int(0.75 * 15_360 * MIB))
    planned = planner.at(SIZES, 8, 1, process=0)
    assert planned.memory == 80 * 100 * MIB + GIB
    assert planned.most_runs == (planner.limit - GIB) // (8 * 100 * MIB) * 8 == 80
    assert "fits          up to 80 runs, whose blocks take turns" in str(planned)
    assert planner_on(monkeypatch, "t4", 80, "2GiB").limit == 2 * GIB
    assert planner_on(monkeypatch, "t4", 80, "90GiB").limit == int(0.75 * 15_360 * MIB)


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        # 9,216 MiB: an evaluation has 100 + 20 + 30 MiB a run and a smaller program than an iteration.
        (SIZES._replace(metrics=20 * MIB, kept=30 * MIB), 7),
        (SIZES._replace(kept=5 * MIB, evaluating=3 * GIB), 7),
        (SIZES._replace(state=90 * MIB, arguments=4 * MIB, kept=MIB, arrays=3 * MIB, evaluated_arrays=5 * MIB), 10),
        (SIZES._replace(advancing=7 * GIB, kept=MIB), 2),
        (SIZES._replace(advancing=10 * GIB), 0),
    ],
)
def test_the_runs_that_fit_are_those_of_the_largest_plan_in_one_part(
    sizes: Sizes, blocks: int, monkeypatch: pytest.MonkeyPatch
):
    block = 8

    def of(blocks: int) -> Plan:
        return planner_on(monkeypatch, "t4", block * blocks).at(sizes, block, 1, process=0)

    assert of(1).most_runs == block * blocks
    if blocks:
        assert of(blocks).fits and of(blocks).num_blocks == blocks
    assert not of(blocks + 1).fits
    assert planner_on(monkeypatch, "t4", block * (blocks + 1)).at(sizes, block, blocks + 1, process=0).fits == (
        blocks > 0
    )


def test_a_plan_of_several_devices_or_threads_counts_the_runs_of_one_device(monkeypatch: pytest.MonkeyPatch):
    planner = planner_on(monkeypatch, "t4", 32)
    device: Any = planner.layout.devices[0]
    twice = dataclasses.replace(planner, layout=planner.layout._replace(devices=(device, device)))
    # Two threads, each with a program of 1 GiB and blocks of 800 MiB.
    assert twice.at(SIZES, 8, 1, process=0).most_runs == (9 * 1024 - 2 * 1024) // 1600 * 2 * 8
    other: Any = type("Other", (), {"platform": "gpu", "device_kind": "some GPU"})()
    both = dataclasses.replace(planner, layout=planner.layout._replace(devices=(device, other)))
    assert "up to 80 runs on each device, whose blocks take turns" in str(both.at(SIZES, 8, 1, process=0))


def test_a_plan_shows_the_bound_in_place_of_the_memory_of_the_host(monkeypatch: pytest.MonkeyPatch):
    planned = planner_on(monkeypatch, "t4", 8).at(SIZES, 8, 1, process=0)
    assert "host memory" in str(planned)
    shown = str(dataclasses.replace(planned, bound=Bound(TARGETS["t4"], Figures(), 1, 1)))
    assert "host memory" not in shown
    assert "arithmetic" in shown


def test_kernels_of_an_absent_gpu_are_not_tried_out(monkeypatch: pytest.MonkeyPatch):
    planner = planner_on(monkeypatch, "h100", 8)
    assert compiler_options(planner.layout.devices[0]) == {"xla_gpu_autotune_level": 0}
    assert absent.compiler_options_of(TARGETS["tpu-v6e"]) == {}


def test_a_target_must_be_known(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ValueError, match=r"target must be one of t4, .*, got 'H10'; did you mean 'h100'\?"):
        named_target("H10")
    with pytest.raises(ValueError, match=r"target must be one of t4, .*, got 5$"):
        named_target(5)
    with pytest.raises(ValueError, match="devices has no effect with target"):
        jaxrl.plan("ppo", "cartpole", target="t4", devices=["cpu:0"])
    assert main(["plan", "ppo", "cartpole", "--for", "v5e"]) == 2
    assert "--for must be one of t4" in capsys.readouterr().err
    assert main(["plan", "ppo", "cartpole", "--for", "t4", "--devices", "cpu:0"]) == 2
    assert "--devices has no effect with --for" in capsys.readouterr().err
    assert main(["train", "ppo", "cartpole", "--for", "t4"]) == 2
    assert "--for is an option of jaxrl plan" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "extra"), [("t4", "cuda12"), ("tpu-v5e", "tpu")])
def test_a_missing_compiler_is_one_sentence(target: str, extra: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    absent._device.cache_clear()
    with pytest.raises(ImportError, match=rf"a plan for {target} needs .*: pip install '\.\[{extra}\]'"):
        jaxrl.plan("ppo", "cartpole", target=target)


def test_several_compilations_have_no_target(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jaxrl.runtime.plan_call.absent_device", lambda target: jax.devices()[0])
    env = envs.make("cartpole")
    algos = [jaxrl.ppo(env, jaxrl.PPOConfig(num_envs=count)) for count in (2, 4)]
    with pytest.raises(ValueError, match="target takes algorithms that share one compilation, got 2"):
        jaxrl.plan(algos, env_steps=1000, target="t4")


def test_the_environment_of_a_process_is_restored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "mine")
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    with absent._environment({"TPU_ACCELERATOR_TYPE": "v6e-4", "TPU_SKIP_MDS_QUERY": "1"}):
        assert os.environ["TPU_ACCELERATOR_TYPE"] == "v6e-4"
        assert os.environ["TPU_SKIP_MDS_QUERY"] == "1"
    assert os.environ["TPU_ACCELERATOR_TYPE"] == "mine"
    assert "TPU_SKIP_MDS_QUERY" not in os.environ
