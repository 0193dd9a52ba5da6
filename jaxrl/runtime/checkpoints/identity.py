"""Identity of a call, as `run.json` records it, and the comparison of two calls."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jax

from jaxrl.pytrees import PyTree
from jaxrl.results.dataset import ResultError
from jaxrl.results.description import config_of
from jaxrl.results.json_values import as_read
from jaxrl.runtime.call import Call
from jaxrl.runtime.checkpoints.identity_file import ASKED, shortened
from jaxrl.runtime.layout import Layout
from jaxrl.runtime.machine.processors import processor
from jaxrl.runtime.machine.xla_flags import DETERMINISTIC, flags_in_force

# Names that may differ between a run and its resumption: results are then no longer equal bit for bit.
SOFT = ("versions", "device_kind", "processor", "deterministic", "xla_flags", "jax_settings")
# Settings of JAX by which random numbers or results differ; the precision of matrix products is recorded by itself.
NUMERIC_SETTINGS = (
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_high_dynamic_range_gumbel",
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_allow_f16_reductions",
    "jax_softmax_custom_jvp",
    "jax_use_direct_linearize",
    "jax_disable_jit",
    "jax_disable_most_optimizations",
)
SETTINGS_FROM = "settings_from"  # origin of settings, which are compared themselves
GENERATION = "generation"  # shared by the checkpoints and `run.json` of one run alone


def identity_of(call: Call, layout: Layout, precision: str, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Identity of a call, which a checkpoint must have for the call to resume from it, as read back from JSON.

    Args:
      call: Call.
      layout: Layout of its runs.
      precision: Precision of matrix products.
      asked: Options of the first call, which need not agree.
    """
    config = config_of(call.description())
    identity = {name: value for name, value in config.items() if name not in ("attributes", "devices")}
    identity |= {name: value for name, value in call.attrs.items() if name not in identity}
    on_cpu = layout.devices[0].platform == "cpu"
    identity |= {
        "env_steps": call.env_steps,
        "points": call.points.tolist(),
        "block": layout.block,
        "precision": precision_in_force(precision),
        "device_kind": layout.devices[0].device_kind,
        "processor": processor() if on_cpu else None,  # every CPU is of the kind "cpu"
        "deterministic": _deterministic(),
        "xla_flags": [flag for flag in flags_in_force() if DETERMINISTIC not in flag],
        "jax_settings": {name: jax.config.values[name] for name in NUMERIC_SETTINGS if name in jax.config.values},
        ASKED: dict(asked or {}),
    }
    return as_read(identity)


def precision_in_force(precision: str) -> str:
    """Name of the precision of matrix products; for "default", the precision in JAX's configuration."""
    return jax.config.values["jax_default_matmul_precision"] or "default" if precision == "default" else precision


def _deterministic() -> bool:
    """Whether XLA is set to sum in the same order every time."""
    flags = [flag.partition("=") for flag in flags_in_force()]
    values = [value.lower() for name, _, value in flags if name == f"--{DETERMINISTIC}"]
    return bool(values) and values[-1] not in ("false", "0")


def compare(directory: Path, saved: Mapping[str, Any], identity: Mapping[str, Any], free: Collection[str]) -> None:
    """Refuse to resume a different call; it may be longer, and a warning names differences that may change rounding.

    Args:
      directory: Directory of the call.
      saved: Contents of its `run.json`.
      identity: Identity of the call that resumes it.
      free: Names that may differ in addition to the points.

    Raises:
      ResultError: The calls differ.
    """
    if (differing := resumption_difference(saved, identity, free)) is not None:
        raise ResultError(
            f"{directory} holds a checkpoint of another configuration: {differing}; choose another directory, "
            f"or start over with --force (force=True)."
        )
    for name in (name for name in SOFT if name in saved):
        if (differing := difference(saved[name], identity[name], name)) is not None:
            how = "on a different system, and may round differently"
            if name == "jax_settings":
                how = "under other settings of JAX, and has other numbers"
            warnings.warn(
                f"{directory} resumes {how}: {differing}",
                RuntimeWarning,
                stacklevel=7,
            )


def resumption_difference(
    saved: Mapping[str, Any], identity: Mapping[str, Any], free: Collection[str] = ()
) -> str | None:
    """First difference because of which a call cannot resume a run, None if it can; a run may become longer.

    Args:
      saved: Contents of `run.json` of the run.
      identity: Identity of the call.
      free: Names that may differ in addition to the points.
    """
    longer = ("run_length",) if identity["env_steps"] > saved["env_steps"] else ()  # schedules may be stretched
    differing = call_difference(saved, identity, (*free, *longer, "points", "env_steps"))
    if differing is None and saved["points"] != identity["points"] and identity["points"][-1] <= saved["points"][-1]:
        differing = difference({"points": saved["points"]}, {"points": identity["points"]})
    return differing


def call_difference(saved: Mapping[str, Any], identity: Mapping[str, Any], free: Collection[str] = ()) -> str | None:
    """First difference between the calls of two identities, None if they only differ in names that affect rounding.

    Args:
      saved: Contents of a `run.json`.
      identity: Identity of a call.
      free: Names that may differ in addition.
    """
    free = (*SOFT, *free, ASKED, GENERATION, SETTINGS_FROM)
    there, here = ({name: each[name] for name in each if name not in free} for each in (saved, identity))
    return difference(there, here)


def same_runs(begun: Mapping[str, Any], current: Mapping[str, Any], free: Collection[str] = ()) -> bool:
    """Whether a run directory holds the runs of a call, which can then resume from it.

    Args:
      begun: Contents of its `run.json`.
      current: Identity of the call.
      free: Names that may differ in addition to those that only affect rounding.
    """
    names = (begun.keys() & current.keys()).difference(SOFT, free)
    return bool(names) and all(begun[name] == current[name] for name in names)


def difference(saved: PyTree, current: PyTree, at: str = "") -> str | None:
    """First difference between two identities, such as `config.num_steps is 128 there and 64 here`."""
    if isinstance(saved, Mapping) and isinstance(current, Mapping):
        for name in [*current, *(name for name in saved if name not in current)]:
            path = f"{at}.{name}" if at else str(name)
            if name not in saved or name not in current:
                return f"{path} is {'set there only' if name in saved else 'set here only'}"
            if (differing := difference(saved[name], current[name], path)) is not None:
                return differing
        return None
    if saved == current:
        return None
    there, here = shortened(saved), shortened(current)
    if there == here and isinstance(saved, list) and isinstance(current, list) and len(saved) != len(current):
        there, here = f"{there} ({len(saved):,} of them)", f"{len(current):,}"
    return f"{at} is {there} there and {here} here"
