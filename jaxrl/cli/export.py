"""`jaxrl export`: one policy of a run directory as a file for other software."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxrl.cli.chosen_policy import chosen_policy, named_run
from jaxrl.cli.parsing import Allow, KeptPolicy, RunDirectory, Setting, Trust, parse
from jaxrl.policies.export import PLATFORMS, check_exportable, check_format, export_policy
from jaxrl.policies.load_exported import load_exported
from jaxrl.results.loading import load_result

__all__ = ["run_export"]


@dataclass(frozen=True)
class Export:
    """Export the greedy policy of one run to a StableHLO, safetensors or ONNX file."""

    run: RunDirectory
    format: str | None = None
    """Format: stablehlo (for jax.export), safetensors (weights) or onnx; if None, the suffix of --out, or stablehlo."""
    out: Path | None = None
    """File to write, such as policy.onnx; policy.FORMAT in the run directory if None."""
    seed: int | None = None
    """Seed of the run to export; the first seed if None."""
    at: Setting = ()
    kept: KeptPolicy = "last"
    platforms: tuple[str, ...] = PLATFORMS
    """Platforms that a StableHLO file must run on."""
    allow: Allow = ()
    force: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Flag to overwrite an existing file."""
    trust: Trust = False


def run_export(args: Sequence[str]) -> int:
    """Write the file; print its path, the run, and its inputs and outputs.

    Args:
      args: Arguments after `jaxrl export`.

    Returns:
      Exit status, 0.
    """
    options = parse(Export, args, "jaxrl export")
    out = options.out or options.run / f"policy.{options.format or 'stablehlo'}"
    check_format(out, options.format)
    result = load_result(options.run, allow=options.allow, trust=options.trust)
    check_exportable(result)
    policy = chosen_policy(options.run, result, options.at, options.seed, options.kept)
    export_policy(policy, out, format=options.format, force=options.force, platforms=options.platforms)
    spec = load_exported(out, policy.algo).spec
    takes, gives = ("; ".join(map(_port, spec[side])) for side in ("inputs", "outputs"))
    print(f"Wrote {out}: {named_run(policy, options.kept)}.")
    print(f"takes {takes}")
    print(f"gives {gives}")
    return 0


def _port(port: Mapping[str, Any]) -> str:
    return f"{port['name']} {port['dtype']}[{', '.join(map(str, port['shape']))}]"
