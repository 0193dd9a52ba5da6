"""Flags of XLA that a command requests."""

import os

import pytest

from jaxrl.runtime.machine.xla_flags import add_flags, asked_for, flags_in_force, refuse_unknown_flags


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("ppo cartpole --seeds 3", ""),
        ("ppo cartpole --deterministic", "--xla_gpu_deterministic_ops=true"),
        ("--xla-flags xla_a=1 xla_b=x=y --seeds 3", "--xla_a=1 --xla_b=x=y"),
        ("--xla-flags=xla_a=1 xla_b --out runs/x=2", "--xla_a=1 --xla_b"),
        ("--xla_flags xla_a --seeds 3 4", "--xla_a"),
        ("--xla-flags=--xla_a=1", "--xla_a=1"),
        ("--xla-flags xla_a=1 --xla-flags xla_a=2", "--xla_a=1 --xla_a=2"),
        (
            "--xla-flags xla_gpu_deterministic_ops=false --deterministic",
            "--xla_gpu_deterministic_ops=true --xla_gpu_deterministic_ops=false",
        ),
        ("--xla-flags", ""),
    ],
)
def test_flags_are_read_from_the_command_line(args: str, expected: str) -> None:
    assert asked_for(args.split()) == expected.split()


@pytest.mark.parametrize("word", ["xla_a=1 xla_b=2", "runs/x", "cpu_prefer_vector_width=256", "-xla_a", ""])
def test_a_value_that_is_not_a_flag_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"^--xla-flags takes words such as xla_cpu_prefer_vector_width=256, got '"):
        asked_for([f"--xla-flags={word}"])


def test_added_flags_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    add_flags([])
    assert "XLA_FLAGS" not in os.environ and flags_in_force() == []
    monkeypatch.setenv("XLA_FLAGS", " --xla_a=1 --xla_force_host_platform_device_count=2")
    add_flags(["--xla_a=2", "--xla_b"])
    assert os.environ["XLA_FLAGS"] == "--xla_a=1 --xla_force_host_platform_device_count=2 --xla_a=2 --xla_b"
    assert flags_in_force() == ["--xla_a=1", "--xla_a=2", "--xla_b"]


def test_nothing_is_added_to_the_name_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "flags.txt")
    add_flags([])
    with pytest.raises(ValueError, match=r"^XLA_FLAGS must hold flags where .* got a file, flags\.txt$"):
        add_flags(["--xla_a=1"])


@pytest.mark.parametrize(
    ("flags", "unknown"),
    [("--xla_no_such_flag=1", "--xla_no_such_flag=1"), ("--xla_cpu_enable_fast_math=false", None), ("", None)],
)
def test_flags_that_xla_does_not_know_are_refused(
    monkeypatch: pytest.MonkeyPatch, flags: str, unknown: str | None
) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    if unknown is None:
        refuse_unknown_flags()
        return
    with pytest.raises(ValueError, match=rf"^--xla-flags and XLA_FLAGS take flags of XLA, got the unknown {unknown}$"):
        refuse_unknown_flags()
