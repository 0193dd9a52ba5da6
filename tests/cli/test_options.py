"""The flags that are made from the options of a call, and the settings that options start from."""

import re
import warnings
from types import SimpleNamespace

import pytest

from jaxrl.cli.options import run_flags, run_options
from jaxrl.cli.parsing import option_words, parse
from jaxrl.cli.preset_choice import start_of
from jaxrl.cli.train import options_class
from jaxrl.runtime.options import BanditOptions, PlanOptions, RunOptions, SearchOptions, options_of

ELSEWHERE = {"on_chunk", "trackers", "progress"}  # no flag, --track, --no-progress


@pytest.mark.parametrize("takes", [RunOptions, BanditOptions, SearchOptions])
def test_every_option_has_a_flag(takes: type):
    names = [name for name, *_ in run_flags(takes)]
    assert set(names) == set(options_of(takes)) - ELSEWHERE | {"no_progress"}
    assert names[0] == "block" and names[-1] == "no_progress"


def test_a_command_has_texts_and_flags_of_its_own():
    own = ("mine", int, 3)
    fields = run_flags(PlanOptions, texts={"block": "Width."}, kinds={"shard": int}, after={"memory": [own]})
    assert [name for name, *_ in fields] == ["block", "devices", "memory", "mine", "precision", "keep", "shard"]
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


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("ppo cartpole --seeds 3", None),
        ("--static a=1 b=2 --seeds 3", ["a=1", "b=2"]),
        ("--static=a=1 b=2", ["a=1", "b=2"]),
        ("--static", []),
        ("--static a=1 --static b=-2", ["b=-2"]),
        ("--statics a=1", None),
    ],
)
def test_words_of_an_option_are_those_of_its_last_occurrence(args: str, words: list[str] | None) -> None:
    assert option_words(args.split(), "static") == words


def test_options_are_found_in_both_spellings() -> None:
    assert option_words(["--no_preset"], "no_preset") == option_words(["--no-preset"], "no_preset") == []


def test_a_field_of_other_algorithms_is_refused_as_in_python() -> None:
    with pytest.raises(TypeError, match=r"^DQNConfig has no field 'critic_sees'; ppo, sac, td3 and"):
        start_of("dqn", "cartpole", ["--config.critic-sees", "all"])


@pytest.mark.parametrize("field", ["actor_sees", "critic_sees"])
@pytest.mark.parametrize("further", [[], ["--randomise", "scale=0.5:2"]], ids=["", "randomise"])
def test_what_the_actor_sees_is_said_once_of_the_options(field: str, further: list[str]) -> None:
    """With "all" nothing is hidden from the actor; with a critic's part it is, by default."""
    value = {"actor_sees": "all", "critic_sees": "privileged_state"}[field]
    args = [f"--config.{field.replace('_', '-')}", value, *further]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = start_of("td3", "beacon_task:Beacon", args)
        assert not caught
        options = parse(options_class(start, args), args, "jaxrl train")
        algo, _ = start.configured(options, args)
    texts = [str(each.message) for each in caught if "sees" in str(each.message)]
    assert len(texts) == (field == "critic_sees")
    assert getattr(algo.config, field) == value
    assert all(
        re.match("on .*beacon.* the actor sees 'state' of the observations, and its critic", text) for text in texts
    )
