"""The words before the options: an algorithm and an environment, or the help of an example."""

import pytest

from jaxrl.cli.parsing import CommandError
from jaxrl.cli.positional import algorithm_and_environment


def no_help(algorithm: str, environment: str, prog: str) -> None:
    raise AssertionError(f"help of {prog}: {algorithm} {environment}")


def test_the_first_two_words_are_the_algorithm_and_the_environment():
    assert algorithm_and_environment(["sac", "pendulum", "--help"], "train", no_help) == ("sac", "pendulum")


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
        algorithm_and_environment(args, "plan", no_help)


@pytest.mark.parametrize(("args", "example"), [(["-h"], "ppo cartpole"), (["td3", "--help"], "td3 pendulum")])
def test_the_help_without_an_environment_is_that_of_a_task_of_the_algorithm(
    args: list[str], example: str, capsys: pytest.CaptureFixture[str]
):
    shown = []

    def show_help(*help_of: str) -> None:
        shown.append(help_of)
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        algorithm_and_environment(args, "search", show_help)
    assert shown == [(*example.split(), "jaxrl search ALGORITHM ENVIRONMENT")]
    assert f"those of: jaxrl search {example}\n" in capsys.readouterr().out
