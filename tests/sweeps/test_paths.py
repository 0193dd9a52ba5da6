"""Dotted paths into nested dataclasses."""

from typing import Any

import flax.struct
import numpy as np
import pytest

import jaxrl
from jaxrl.sweeps.paths import leaves, numbers, place, replaced


@flax.struct.dataclass
class Motor:
    torque: Any = 2.0
    limits: Any = (1.0, 3.0)


@flax.struct.dataclass
class Params:
    gravity: Any = 9.8
    motor: Any = Motor()
    discount: Any = jaxrl.Exponential(0.9)
    unset: Any = None
    name: str = flax.struct.field(pytree_node=False, default="cart")


def test_leaves_have_their_paths() -> None:
    assert [path for path, _ in leaves(Params())] == [
        "gravity",
        "motor.torque",
        "motor.limits.0",
        "motor.limits.1",
        "discount.gamma",
    ]


def test_numbers_do_not_descend_into_single_values() -> None:
    actual = numbers(Params())
    assert list(actual) == ["gravity", "motor.torque", "motor.limits", "discount", "unset"]
    assert actual["motor.limits"] == (1.0, 3.0) and isinstance(actual["discount"], jaxrl.Exponential)
    assert numbers(Params(gravity=np.ones(3)))["gravity"].shape == (3,)
    assert numbers(()) == {}


@pytest.mark.parametrize(
    ("path", "there", "inside", "known"),
    [
        ("motor", True, "motor.", ["motor.torque", "motor.limits"]),
        ("motor.torque", True, "motor.torque.", []),
        ("motor.tork", False, "motor.", ["motor.torque", "motor.limits"]),
        ("motor.torque.x", False, "motor.torque.", []),
        ("name", False, "", ["gravity", "motor", "discount", "unset"]),
    ],
)
def test_a_place_says_how_far_a_path_leads(path: str, there: bool, inside: str, known: list[str]) -> None:
    at = place(Params(), path)
    assert (at.there, at.inside, at.known) == (there, inside, known)


def test_values_of_one_part_are_replaced_at_once() -> None:
    @flax.struct.dataclass
    class Ends:
        low: float = 0.0
        high: float = 1.0

        def __post_init__(self) -> None:
            assert self.low < self.high

    @flax.struct.dataclass
    class Whole:
        ends: Ends = Ends()
        size: int = 1

    assert replaced(Whole(), {"ends.low": 5.0, "size": 2, "ends.high": 6.0}) == Whole(Ends(5.0, 6.0), 2)
