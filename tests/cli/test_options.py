"""The flags that are made from the options of a call."""

from types import SimpleNamespace

import pytest

from jaxrl.cli.options import run_flags, run_options
from jaxrl.runtime.options import BanditOptions, PlanOptions, RunOptions, SearchOptions, options_of

ELSEWHERE = {"on_chunk", "trackers", "progress"}  # no flag, --track, --no-progress


@pytest.mark.parametrize("takes", [RunOptions, BanditOptions, SearchOptions])
def test_every_option_has_a_flag(takes: type):
    names = [name for name, *_ in run_flags(takes)]
    assert set(names) == set(options_of(takes)) - ELSEWHERE | {"no_progress"}
    assert names[0] == "block" and names[-1] == "no_progress"


def test_a_command_says_it_in_its_own_words_and_adds_flags_of_its_own():
    own = ("mine", int, 3)
    fields = run_flags(PlanOptions, texts={"block": "Width."}, kinds={"shard": int}, after={"memory": [own]})
    assert [name for name, *_ in fields] == ["block", "devices", "memory", "mine", "precision", "shard"]
    assert fields[0][1].__metadata__[0].help == "Width." and fields[-1][1].__origin__ is int
    assert "devices" not in [name for name, *_ in run_flags(PlanOptions, without=("devices",))]


def test_flags_become_options():
    parsed = SimpleNamespace(block=3, devices=(), memory=None, precision="high", out="x", no_progress=True, other=1)
    assert run_options(SearchOptions, parsed) == {
        "block": 3,
        "devices": None,
        "memory": None,
        "precision": "high",
        "out": "x",
        "progress": False,
    }
    parsed.checkpoint_minutes = 0.0
    assert run_options(BanditOptions, parsed)["checkpoint_minutes"] is None
