"""`jaxrl export`: one policy of a run directory as a file for elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxrl.cli.chosen_policy import chosen_policy, named_run
from jaxrl.cli.parsing import parse
from jaxrl.policies.export import PLATFORMS, check_exportable, check_format, export_policy
from jaxrl.policies.load_exported import load_exported
from jaxrl.results.loading import load_result

__all__ = ["run_export"]


@dataclass(frozen=True)
class Export:
    """Write the greedy policy of one run as a file that is used elsewhere: StableHLO, safetensors or ONNX."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory that `jaxrl train --out` wrote."""
    format: str | None = None
    """stablehlo, for jax.export; safetensors, the weights; onnx, by jax2onnx. What --out ends in, else stablehlo."""
    out: Path | None = None
    """File to write, such as policy.onnx; policy.FORMAT in the run directory where there is none."""
    seed: int | None = None
    """Whose policy; the first seed where there is none."""
    at: tuple[str, ...] = ()
    """Which setting of a sweep, such as `lr=1e-3 discount=beta:0.98,0.5`; needed where there are several."""
    platforms: tuple[str, ...] = PLATFORMS
    """That a StableHLO file runs on."""
    allow: tuple[str, ...] = ()
    """Modules of your own that may be imported where the run names them, such as my_algorithms."""
    force: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Overwrite a file that is there already."""
    trust: tyro.conf.FlagCreatePairsOff[bool] = False
    """Go on with files that do not have their checksums."""


def run_export(args: Sequence[str]) -> int:
    """Write the file; say where, of which run, and what it takes and gives.

    Args:
      args: what follows `jaxrl export`.

    Returns:
      The exit status, 0.
    """
    options = parse(Export, args, "jaxrl export")
    out = options.out or options.run / f"policy.{options.format or 'stablehlo'}"
    check_format(out, options.format)
    result = load_result(options.run, allow=options.allow, trust=options.trust)
    check_exportable(result)
    policy = chosen_policy(options.run, result, options.at, options.seed)
    export_policy(policy, out, format=options.format, force=options.force, platforms=options.platforms)
    spec = load_exported(out, policy.algo).spec
    takes, gives = ("; ".join(map(_port, spec[side])) for side in ("inputs", "outputs"))
    print(f"Wrote {out}: {named_run(policy)}.")
    print(f"takes {takes}")
    print(f"gives {gives}")
    return 0


def _port(port: Mapping[str, Any]) -> str:
    return f"{port['name']} {port['dtype']}[{', '.join(map(str, port['shape']))}]"
