"""The words before the options: an algorithm and an environment, or the help of an example."""

import dataclasses
from collections.abc import Sequence

import pytest

from jaxrl.cli.parsing import CommandError
from jaxrl.cli.preset_choice import Start, parse_started

HEADING = "Options of {} on {}."


def options_class(start: Start, args: Sequence[str]) -> type:
    words = dataclasses.field(default=(start.environment, *args))
    return dataclasses.make_dataclass("Options", [("words", tuple[str, ...], words)])


def test_the_first_two_words_are_the_algorithm_and_the_environment():
    options, start = parse_started(["sac", "pendulum"], "train", HEADING, options_class)
    assert (start.name, start.environment, start.algo.name) == ("sac", "pendulum", "sac")
    assert options.words == ("pendulum",)
    options, _ = parse_started(["sac", "pendulum", "--words", "mine"], "train", HEADING, options_class)
    assert options.words == ("mine",)


@pytest.mark.parametrize(
    ("args", "example"),
    [
        ([], "ppo cartpole"),
        (["td3"], "td3 pendulum"),
        (["carpole"], "ppo cartpole"),
        (["c51", "-x", "y"], "ppo cartpole"),
    ],
)
def test_a_missing_word_gets_an_example(args: list[str], example: str):
    sentence = f"plan takes an algorithm and an environment first, such as: jaxrl plan {example}"
    with pytest.raises(CommandError, match=f"^{sentence}$"):
        parse_started(args, "plan", HEADING, options_class)


@pytest.mark.parametrize(("args", "example"), [(["-h"], "ppo cartpole"), (["td3", "--help"], "td3 pendulum")])
def test_the_help_without_an_environment_is_that_of_a_task_of_the_algorithm(
    args: list[str], example: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as end:
        parse_started(args, "search", HEADING, options_class)
    assert not end.value.code
    shown = capsys.readouterr().out
    assert f"those of: jaxrl search {example}\n" in shown and "usage: jaxrl search ALGORITHM ENVIRONMENT" in shown
    assert HEADING.format(*example.split()) in shown
