"""Sweeps: the batched pytree, its coordinates, and errors."""

import dataclasses
import re
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import struct

import envs
import jaxrl
from jaxrl import PPOHParams, ppo
from jaxrl.discounts.parsing import BetaWeighted, Exponential, Hyperbolic, Tabulated, TruncatedDiscount, as_discount
from jaxrl.sweeps.batching import batched_hparams
from jaxrl.sweeps.sweep import Choice, LogUniform, Sweep, Uniform, grid, sample, swept


@struct.dataclass
class Inner:
    scale: Any = 2.0


@struct.dataclass
class HParams:
    lr: Any = 3e-4
    lam: Any = 0.95
    discount: Any = Exponential(0.99)
    inner: Any = Inner()
    name: str = struct.field(pytree_node=False, default="static")


DISCOUNTS = [0.98, "beta:.98,.5", Hyperbolic(k=0.0204)]
LABELS = ["exp:gamma=0.98", "beta:mu=0.98,eta=0.5", "hyperbolic:k=0.0204"]


def test_grid_is_row_major_over_its_paths():
    sweep = grid(HParams(), {"lr": [3e-4, 1e-3], "discount": DISCOUNTS, "env.gravity": [9.8, 10]})
    assert sweep.dims == ("lr", "discount", "env.gravity") and sweep.shape == (2, 3, 2) and len(sweep) == 12
    assert repr(sweep) == "Sweep of 12 settings: lr (2) x discount (3) x env.gravity (2)"
    np.testing.assert_array_equal(sweep.hparams.lr, np.asarray([3e-4] * 6 + [1e-3] * 6, np.float32))
    np.testing.assert_array_equal(sweep.env["gravity"], [9.8, 10] * 6)
    assert sweep.settings[7] == {"lr": 1e-3, "discount": LABELS[0], "env.gravity": 10}
    # As typed, so that a value can be looked up.
    for path, typed in {"lr": [3e-4, 1e-3], "discount": LABELS, "env.gravity": [9.8, 10]}.items():
        dims, values = sweep.coords[path]
        assert dims == (path,) and values.tolist() == typed


def test_curves_are_swept_like_numbers():
    curve = jaxrl.Curve([1e-3, 0.0])
    sweep = grid(PPOHParams(), {"lr": [curve, 3e-4, "curve:0.001, 0.0005"], "lam": [0.9, 0.95]})
    assert sweep.hparams.lr.values.shape == (6, 2) and sweep.hparams.lam.shape == (6,)
    np.testing.assert_array_equal(sweep.hparams.lr.values[2], np.full(2, np.float32(3e-4)))
    assert sweep.coords["lr"][1].tolist() == ["curve:0.001,0", "curve:0.0003,0.0003", "curve:0.001,0.0005"]
    assert sweep.index(lr=curve, lam=0.95) == 1 and sweep.index(lr="curve: 0.001,5e-4", lam=0.9) == 4
    assert sweep.subset([4]).hparams.lr == jaxrl.Curve._of([np.asarray([[1e-3, 5e-4]], np.float32)])
    again = swept(PPOHParams(), sweep.dims, sweep.coords)
    assert again.settings == sweep.settings and again.hparams.lr == sweep.hparams.lr
    drawn = sample(PPOHParams(), 3, {"lr": Choice([curve, 1e-2])})
    assert drawn.hparams.lr.values.shape == (3, 2)
    with pytest.raises(ValueError, match="'lr' takes curves with equal numbers of points in one sweep"):
        grid(PPOHParams(), {"lr": [curve, jaxrl.Curve([1, 2, 3])]})
    with pytest.raises(ValueError, match=r"lr_end takes 1 where lr is a curve with its own end, got 0.5"):
        grid(PPOHParams(), {"lr": [curve, 1e-3], "lr_end": [1.0, 0.5]})
    with pytest.raises(ValueError, match=r"'lr' has the value 'curve:0.001,0' twice"):
        grid(PPOHParams(), {"lr": [curve, curve]})


def test_every_leaf_is_float32_with_the_settings_in_front():
    sweep = grid(HParams(), {"lr": [3e-4, 1e-3], "discount": DISCOUNTS})
    assert isinstance(sweep.hparams, HParams) and sweep.hparams.name == "static"
    leaves = jax.tree.leaves(sweep.hparams)
    assert all(isinstance(leaf, np.ndarray) and leaf.dtype == np.float32 and leaf.shape == (6,) for leaf in leaves)
    np.testing.assert_array_equal(sweep.hparams.lam, np.full(6, np.float32(0.95)))
    for row, label in zip(sweep.hparams.discount.curve(50), LABELS * 2, strict=True):
        np.testing.assert_allclose(row, as_discount(label).curve(50), rtol=50 * 2**-22)


def test_a_discount_parameter_keeps_the_family():
    values = {"discount.mu": [0.9, 0.98], "discount.eta": [0, 0.5, 1]}
    sweep = grid(HParams(discount="beta:0.5,0.5"), values)
    assert isinstance(sweep.hparams.discount, BetaWeighted)
    np.testing.assert_array_equal(sweep.hparams.discount.mu, np.asarray([0.9] * 3 + [0.98] * 3, np.float32))
    np.testing.assert_array_equal(sweep.hparams.discount.eta, np.asarray([0, 0.5, 1] * 2, np.float32))
    nested = grid(HParams(discount=TruncatedDiscount(BetaWeighted(0.9, 0.5), 10)), {"discount.inner.mu": [0.8, 0.9]})
    np.testing.assert_array_equal(nested.hparams.discount.inner.mu, np.asarray([0.8, 0.9], np.float32))
    np.testing.assert_array_equal(nested.hparams.discount.horizon, np.asarray([10, 10], np.float32))


def test_a_base_may_hold_its_discount_as_a_number():
    assert isinstance(grid(HParams(discount=0.9), {"lr": [1e-3]}).hparams.discount, Exponential)
    np.testing.assert_array_equal(grid(HParams(discount=0.9), {"discount.gamma": [0.5]}).hparams.discount.gamma, [0.5])


def test_a_field_of_a_field_is_swept_by_its_path():
    sweep = grid(HParams(), {"inner.scale": np.asarray([1, 2, 3])})
    np.testing.assert_array_equal(sweep.hparams.inner.scale, np.asarray([1, 2, 3], np.float32))
    assert sweep.coords["inner.scale"][1].tolist() == [1, 2, 3]


def test_environment_values_keep_their_type():
    env = grid(HParams(), {"env.force": [1, 2], "env.gravity": [9.8, 10.0], "env.windy": [True, False]}).env
    assert env["force"].dtype.kind == "i" and env["gravity"].dtype.kind == "f" and env["windy"].dtype.kind == "b"


def test_index_finds_settings_by_any_form_of_a_discount():
    sweep = grid(HParams(), {"lr": [3e-4, 1e-3], "discount": DISCOUNTS, "lam": [0.9]})
    for i, setting in enumerate(sweep.settings):
        assert sweep.index(**setting) == i
    for typed in ("beta:0.98,0.5", BetaWeighted(0.98, 0.5), "beta:eta=.5,mu=.98"):
        assert sweep.index(lr=1e-3, discount=typed) == 4
    assert sweep.index(lr=np.float32(1e-3), discount=0.98) == 3
    assert grid(HParams(), {"env.gravity": [9.8, 10]}).index(**{"env.gravity": 10.0}) == 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"lr": 1.0, "discount": 0.98}, "lr is '1.0'; this sweep has 0.0003, 0.001."),
        ({"lr": 1e-3}, "3 settings have lr=0.001; choose discount of exp:gamma=0.98, beta:"),
        ({}, "has 6 settings; choose lr of 0.0003, 0.001; discount of"),
        ({"gamma": 0.9}, "gamma is not a coordinate; this sweep has the coordinates lr, discount."),
    ],
)
def test_index_lists_the_valid_names(values, sentence):
    sweep = grid(HParams(), {"lr": [3e-4, 1e-3], "discount": DISCOUNTS})
    with pytest.raises(ValueError, match=re.escape(sentence)):
        sweep.index(**values)


@pytest.mark.parametrize(
    ("values", "error", "sentence"),
    [
        ({}, ValueError, "grid takes at least one path"),
        ({"lrr": [1]}, ValueError, "There is no hyper-parameter 'lrr'; did you mean 'lr'?"),
        ({"gamma": [0.9]}, ValueError, "'gamma'; gamma is not a field: use discount=0.99"),
        ({"discount.mu": [0.9]}, ValueError, "no hyper-parameter 'discount.mu'; did you mean 'discount.gamma'?"),
        ({"inner.scle": [0.9]}, ValueError, "no hyper-parameter 'inner.scle'; did you mean 'inner.scale'?"),
        ({"lr.x": [1]}, ValueError, "There is no hyper-parameter 'lr.x'; 'lr' has no parts."),
        ({"name": [1]}, ValueError, "There is no hyper-parameter 'name'"),
        ({"inner": [1]}, ValueError, "'inner' has parts of its own; sweep inner.scale."),
        ({"discount": [0.9], "discount.gamma": [0.8]}, ValueError, "cannot be swept together"),
        ({"lr": []}, ValueError, "'lr' has no values."),
        ({"lr": [1e-3, 0.001]}, ValueError, "'lr' has the value 0.001 twice."),
        ({"lr": [0.1, np.float32(0.1)]}, ValueError, "'lr' has the value 0.1"),
        ({"discount": [0.9, "exp:0.9"]}, ValueError, "'discount' has the value 'exp:gamma=0.9' twice."),
        ({"lr": [float("nan")]}, ValueError, "'lr' has the value nan."),
        ({"env.gravity": [float("nan")]}, ValueError, "'env.gravity' has the value nan."),
        ({"lr": 1e-3}, TypeError, "'lr' takes a list of values, got 0.001."),
        ({"discount": "0.98"}, TypeError, "'discount' takes a list of values, got '0.98'."),
        ({"lr": ["fast"]}, TypeError, "'lr' takes numbers, got 'fast'."),
        ({"lr": [True]}, TypeError, "'lr' takes numbers, got True."),
        ({"lr": [None]}, TypeError, "'lr' takes numbers, got None."),
        ({"discount": [1.2]}, ValueError, "gamma must lie in [0, 1], got 1.2."),
        ({"discount": ["bta:1,1"]}, ValueError, "did you mean 'beta'"),
        ({"discount.gamma": [1.2]}, ValueError, "gamma must lie in [0, 1], got 1.2."),
    ],
)
def test_a_bad_grid_gets_one_sentence(values, error, sentence):
    with pytest.raises(error) as raised:
        grid(HParams(), values)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_static_setting_is_distinguished_from_a_hyper_parameter():
    for name, value in (("num_envs", 4), ("num_steps", 128), ("activation", "tanh")):
        with pytest.raises(ValueError, match=f"There is no hyper-parameter '{name}'; there are lr, lr_end, ") as raised:
            grid(PPOHParams(), {name: [value]})
        assert "a static setting of the algorithm's config takes an algorithm for each value" in str(raised.value)


def test_a_base_that_is_no_hyper_parameters_is_refused():
    for base, kind in ((ppo(envs.make("cartpole")), "Algorithm"), ({"lr": 1e-3}, "dict"), (HParams, "type")):
        sentence = f"base takes hyper-parameters, such as algo.hparams, got {kind}."
        with pytest.raises(TypeError, match=sentence):
            grid(base, {"lr": [1e-3]})
        with pytest.raises(TypeError, match=sentence):
            sample(base, 2, {"lr": Uniform(0, 1)})


def test_index_takes_equal_numbers_before_close_ones():
    sweep = grid(HParams(), {"env.seed": [2**24, 2**24 + 1]})
    assert [sweep.index(**{"env.seed": 2**24 + i}) for i in (0, 1)] == [0, 1]


def test_a_table_has_no_parameter_to_sweep():
    with pytest.raises(ValueError, match=r"There is no hyper-parameter 'discount.values'"):
        grid(HParams(discount=Tabulated([1, 0.5])), {"discount.values": [1, 2]})


def test_whole_numbers_beyond_float32_are_not_repeats():
    assert len(grid(HParams(), {"env.seed": [2**24, 2**24 + 1]})) == 2


DESIGN = {
    "lr": LogUniform(1e-4, 1e-2),
    "discount": Choice(DISCOUNTS),
    "lam": Uniform(0.9, 1.0),
    "env.gravity": Choice([9, 10]),
}


def test_sample_is_one_axis_of_settings_within_their_ranges():
    sweep = sample(HParams(), 200, DESIGN)
    assert isinstance(sweep, Sweep) and sweep.dims == ("setting",) and sweep.shape == (200,) and len(sweep) == 200
    assert repr(sweep) == "Sweep of 200 settings: sampled over lr, discount, lam, env.gravity"
    for dims, values in sweep.coords.values():
        assert dims == ("setting",) and values.shape == (200,)
    lr, lam = sweep.coords["lr"][1], sweep.coords["lam"][1]
    assert lr.min() >= 1e-4 and lr.max() <= 1e-2 and lam.min() >= 0.9 and lam.max() <= 1
    np.testing.assert_array_equal(sweep.hparams.lr, lr.astype(np.float32))
    # Half of a log-uniform is below the geometric mean: 100 +- 4 standard deviations of sqrt(200) / 2.
    assert 72 < np.sum(lr < 1e-3) < 128 and 72 < np.sum(lam < 0.95) < 128
    assert set(sweep.coords["discount"][1]) == set(LABELS)
    assert set(sweep.env["gravity"]) == {9, 10}
    assert [setting["lr"] for setting in sweep.settings] == lr.tolist()
    assert sweep.index(lr=sweep.settings[17]["lr"]) == 17


def test_sample_is_reproducible_and_each_path_has_its_own_stream():
    first = sample(HParams(), 20, DESIGN, seed=3)
    assert first.settings == sample(HParams(), 20, DESIGN, seed=3).settings
    assert first.settings != sample(HParams(), 20, DESIGN, seed=4).settings
    alone = sample(HParams(), 20, {"lam": DESIGN["lam"]}, seed=3)
    assert [setting["lam"] for setting in alone.settings] == [setting["lam"] for setting in first.settings]
    longer = sample(HParams(), 30, {"lam": DESIGN["lam"]}, seed=3)
    assert longer.settings[:20] == alone.settings


LEAVES = [
    (kind, field.name)
    for kind in (jaxrl.DQNHParams, PPOHParams, jaxrl.SACHParams, jaxrl.EvolveHParams)
    for field in dataclasses.fields(kind)
    if field.name not in ("drift", "optimiser")  # which take a Drift and a LearnedOptimiser
]


@pytest.mark.parametrize(("kind", "name"), LEAVES)
def test_a_schedule_in_place_of_a_number_gets_one_sentence(kind, name):
    schedule = optax.linear_schedule(1e-3, 0.0, 100)
    for make in (kind, kind().replace):
        with pytest.raises(TypeError, match=rf"^{name} takes a number, .*got a function, <function polynomial_sch"):
            make(**{name: schedule})


def test_a_schedule_that_has_a_name_is_named():
    with pytest.raises(TypeError, match=r"; lr_end anneals it, and optimiser= of the .* takes schedules of optax$"):
        PPOHParams(lr=optax.linear_schedule(1e-3, 0.0, 100))
    with pytest.raises(TypeError, match=r"^lr takes one number in hparams, got <function"):
        batched_hparams(HParams(), HParams(lr=optax.linear_schedule(1e-3, 0.0, 100)))


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: sample(HParams(), 0, DESIGN), ValueError, "n must be a whole number of at least 1, got 0"),
        (lambda: sample(HParams(), 2.5, DESIGN), ValueError, "n must be a whole number of at least 1, got 2.5"),  # pyright: ignore
        (lambda: sample(HParams(), 2, {}), ValueError, "sample takes at least one path"),
        (lambda: sample(HParams(), 2, DESIGN, seed=-1), ValueError, "seed must be a whole number of at least 0"),
        (lambda: sample(HParams(), 2, {"lr": [1, 2]}), TypeError, "'lr' takes a distribution such as Uniform(0, 1)"),  # pyright: ignore
        (lambda: sample(HParams(), 2, {"lrr": Uniform(0, 1)}), ValueError, "did you mean 'lr'?"),
        (lambda: sample(HParams(), 2, {"discount": Uniform(1, 2)}), ValueError, "gamma must lie in [0, 1]"),
        (lambda: Uniform(1, 0), ValueError, "Uniform takes low < high, got 1 and 0."),
        (lambda: Uniform(0, float("nan")), TypeError, "Uniform takes two finite numbers, got nan."),
        (lambda: LogUniform(0, 1), ValueError, "low must be above 0 for LogUniform, got 0."),
        (lambda: Choice([]), ValueError, "'Choice' has no values."),
        (lambda: Choice(3), TypeError, "'Choice' takes a list of values, got 3."),  # pyright: ignore
    ],
)
def test_a_bad_design_gets_one_sentence(make, error, sentence):
    with pytest.raises(error) as raised:
        make()
    assert sentence in str(raised.value)
