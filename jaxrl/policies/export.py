"""Export of greedy policies: StableHLO programs, safetensors weights, ONNX models."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from envs.arguments import check_flag
from envs.checking import check_abstractly
from envs.errors import ExistsError, UserError, UserTypeError, UserValueError
from envs.files import replacing
from envs.settings import in_own_settings
from envs.spelling import near
from jaxrl.learning.rollout import first_observation
from jaxrl.policies.export_program import (
    MEMORY,
    NEXT_MEMORY,
    Program,
    greedy_program,
    kind_of_memory,
    named,
    named_parameters,
    spec_of,
)
from jaxrl.policies.load_exported import KEY, PROGRAM, SUFFIXES, format_of, needs_extra, open_exported, spec_file
from jaxrl.pytrees import Policy, PyTree
from jaxrl.results.checksums import CHECKSUM, UNSEALED, checksum_of_file, sealed, sealed_json
from jaxrl.results.dataset import UNKNOWN, ResultError
from jaxrl.results.format import reason
from jaxrl.results.policy import TrainedPolicy
from jaxrl.results.result import Result

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
FORMATS = tuple(SUFFIXES.values())
# Tolerance of an exported policy relative to the largest number: float32 sums of some hundred terms
# in another order, and for ONNX other implementations of tanh and exp.
TOLERANCES = {"stablehlo": 1e-6, "safetensors": 1e-6, "onnx": 1e-5}
_NUM_CHECKED = 8

__all__ = ["FORMATS", "PLATFORMS", "check_exportable", "check_format", "export_policy"]


@in_own_settings
def export_policy(
    policy: TrainedPolicy | Result,
    path: str | Path,
    *,
    format: str | None = None,
    seed: int | None = None,
    at: Mapping[str, Any] | None = None,
    force: bool = False,
    platforms: Sequence[str] = PLATFORMS,
) -> Path:
    """Write the greedy policy, with its normalisation and the bounds of its actions, to a file, and verify the file.

    Every format takes any number of observations at a time, and any number of agents of a crowd; all matrix
    products have full float32 precision. The inputs and outputs (shapes, dtypes, spaces) and the origin of the
    policy are recorded in `PATH.json` next to a StableHLO file and in the metadata of the other formats.

    Args:
      policy: Policy of one run, or a result, from which `seed` and `at` choose the run.
      path: File to write; its name ends in .stablehlo, .safetensors or .onnx.
      format: Format "stablehlo", "safetensors" or "onnx"; None for the format of the file's suffix.
      seed: Seed of the run in a result, as in `Result.policy`; not for a policy.
      at: Coordinates of the run in a result, `{path: value}`, as in `Result.policy`; not for a policy.
      force: Whether to replace an existing file.
      platforms: Platforms that a StableHLO file must run on, from `PLATFORMS`.

    Returns:
      The file.

    Raises:
      TypeError: `policy` is neither a policy nor a result.
      ValueError: The format or a platform is unknown.
      ResultError: The result has no policy or several, the policy cannot be converted, or the
        converted policy does not agree with it (to 1e-6, ONNX to 1e-5).
      FileExistsError: The file exists and `force` is false.
      ImportError: The extra `export` is not installed.
    """
    check_flag("force", force)
    file = Path(path)
    file_format = check_format(file, format)
    for platform in platforms:
        if platform not in PLATFORMS:
            raise UserValueError(f"platforms takes {', '.join(PLATFORMS)}, got {platform!r}")
    if not platforms:
        raise UserValueError(f"platforms takes one or several of {', '.join(PLATFORMS)}, got none")
    chosen = _chosen(policy, seed, at)
    for existing in (file, spec_file(file)) if file_format == "stablehlo" else (file,):
        if existing.exists() and not force:
            raise ExistsError(f"{existing} exists already: choose another name, or --force (force=True).")
    write = _writer(file_format, tuple(platforms))
    with jax.default_matmul_precision("highest"):
        program = greedy_program(chosen.algo, chosen.params)
        spec = spec_of(chosen, program, file_format)
        if file_format == "stablehlo":
            spec["platforms"] = list(platforms)
        with replacing(file) as part:
            if file_format == "stablehlo":
                part.write_bytes(write(chosen, program, ""))
                spec[PROGRAM] = checksum_of_file(part)
            else:
                part.write_bytes(sealed(write(chosen, program, json.dumps(spec | {CHECKSUM: UNSEALED}))))
            _compare(chosen, program, part, spec)
            if file_format == "stablehlo":
                with replacing(spec_file(file)) as spec_part:
                    spec_part.write_bytes(sealed_json(spec))
    return file


def check_exportable(result: Result) -> None:
    """Raise an error for a result without policies that can be exported.

    Raises:
      ResultError: The algorithm of the result is unknown; the message states the reason.
    """
    if result.algo is None:
        reason = result.metrics.attrs.get(UNKNOWN, "the result was made without one")
        raise ResultError(f"The policy cannot be exported, because the result's algorithm is unknown: {reason}.")


def check_format(file: Path, named: str | None) -> str:
    """The format of a file to write.

    Args:
      file: File, whose suffix determines the format.
      named: Format named by the user, or None.

    Raises:
      ValueError: There is no such format, or the suffix of the file does not agree with it.
    """
    if named is not None and named not in FORMATS:
        hint = near(named, FORMATS) or f"; it takes {', '.join(FORMATS)}."
        raise UserValueError(f"format is {named!r}{hint}")
    told_by_name = format_of(file)
    if named not in (None, told_by_name):
        raise UserValueError(f"format is {named!r}, but the name of {file} ends in {file.suffix}; they must agree.")
    return told_by_name


def _chosen(policy: Policy, seed: int | None, at: Mapping[str, Any] | None) -> TrainedPolicy:
    if isinstance(policy, Result):
        check_exportable(policy)
        return policy.policy(seed=seed, **dict(at or {}))
    if not isinstance(policy, TrainedPolicy):
        raise UserTypeError(f"policy must be a Result or a policy from Result.policy, got {type(policy).__name__}")
    if seed is not None or at:
        raise UserValueError("seed and at choose the run of a Result; a policy is of one run already")
    return policy


def _writer(file_format: str, platforms: tuple[str, ...]) -> Callable[[TrainedPolicy, Program, str], bytes]:
    """The function that returns a file's bytes; its libraries are imported here, before anything is traced."""
    try:
        if file_format == "stablehlo":
            import flatbuffers  # noqa: F401 -- needed by jax.export to serialise, but not installed by it

            return lambda policy, program, spec: _stablehlo(program, platforms)
        if file_format == "safetensors":
            from safetensors.numpy import save

            return lambda policy, program, spec: _safetensors(save, policy, spec)
        import onnxruntime  # noqa: F401 -- the comparison needs it
        from jax2onnx import to_onnx
    except ImportError as error:
        raise needs_extra(file_format, error) from None
    return lambda policy, program, spec: _onnx(to_onnx, program, spec)


def _stablehlo(program: Program, platforms: tuple[str, ...]) -> bytes:
    try:
        exported = jax.export.export(jax.jit(program.function), platforms=platforms)(*program.arguments)
    except Exception as error:  # from any primitive of a user-defined network
        raise ResultError(f"The policy cannot be lowered for {', '.join(platforms)}: {reason(error)}.") from error
    return bytes(exported.serialize())


def _safetensors(save: Callable[..., bytes], policy: TrainedPolicy, spec: str) -> bytes:
    arrays = named_parameters(policy.params)
    try:
        return save(arrays, metadata={KEY: spec})
    except Exception as error:  # from a dtype that the format lacks
        raise ResultError(f"safetensors cannot store this policy ({reason(error)}); stablehlo takes any.") from error


def _onnx(to_onnx: Callable[..., Any], program: Program, spec: str) -> bytes:
    ports = json.loads(spec)
    for port in (*ports["inputs"], *ports["outputs"]):
        if jnp.dtype(port["dtype"]).isbuiltin != 1:
            raise ResultError(
                f"{port['name']} of the policy is {port['dtype']}, which ONNX Runtime cannot take from NumPy or return "
                "to it; stablehlo and safetensors take it."
            )
    # Traced here, because the converter replaces flax's layers by its own while it traces, and those have no vmap.
    closed = jax.make_jaxpr(program.function)(*program.arguments)
    flat = jax.extend.core.jaxpr_as_fun(closed)
    # In ONNX one value cannot be two outputs, nor both an input and an output.
    repeated, seen = [], {id(value) for value in closed.jaxpr.invars}
    for value in closed.jaxpr.outvars:
        repeated.append(id(value) in seen)
        seen.add(id(value))

    def distinct(*leaves: PyTree) -> list[Any]:
        outputs = flat(*leaves)
        return [jnp.copy(leaf) if again else leaf for leaf, again in zip(outputs, repeated, strict=True)]

    try:
        model = to_onnx(
            distinct,
            inputs=jax.tree.leaves(program.arguments),
            input_names=[port["name"] for port in ports["inputs"]],
            output_names=[port["name"] for port in ports["outputs"]],
            model_name="policy",
        )
    except Exception as error:  # from any primitive that the converter does not support
        raise ResultError(f"jax2onnx cannot convert this policy ({reason(error)}); stablehlo takes any.") from error
    model.metadata_props.add(key=KEY, value=spec)
    return model.SerializeToString()


def _compare(policy: TrainedPolicy, program: Program, file: Path, spec: Mapping[str, Any]) -> None:
    """Check that a file agrees with the policy on the first observations of some episodes.

    Raises:
      ResultError: They differ; the message states by how much.
    """
    env = policy.algo.env
    env_params = env.default_params if policy.env_params is None else policy.env_params
    keys = jax.random.split(jax.random.key(0), _NUM_CHECKED)
    first = jax.jit(jax.vmap(functools.partial(first_observation, env), in_axes=(0, None)))
    obs, mask = jax.tree.map(np.asarray, first(keys, env_params))
    with _of_the_format(spec["format"]):
        exported = open_exported(file, spec, policy.algo)
    function, agents = jax.jit(program.function), check_abstractly(env)
    memory, expected_memory = exported.initial_memory(_NUM_CHECKED, *agents), policy.initial_memory(_NUM_CHECKED)
    kind = kind_of_memory(policy.algo)
    for _ in range(2 if policy.remembers else 1):  # the second call uses the memory that the first returned
        arguments = {"obs": obs, "mask": mask, MEMORY: dict(named(kind, expected_memory))}
        expected = function(*(arguments[name] for name in program.names))
        acted = policy(obs, mask=mask, memory=expected_memory)
        expected["action"], expected_memory = acted if policy.remembers else (acted, ())
        with _of_the_format(spec["format"]):
            got = exported.respond(obs, mask, memory if policy.remembers else None)
        if policy.remembers:
            memory = got[MEMORY]
            del expected[NEXT_MEMORY]
            expected[MEMORY] = dict(named(f"{MEMORY}.{kind}".rstrip("."), expected_memory))
        difference = max(map(_difference, jax.tree.leaves(got), jax.tree.leaves(expected)))
        if not difference <= TOLERANCES[spec["format"]]:
            raise ResultError(
                f"The policy cannot be exported as {spec['format']}: the file differs from it by "
                f"{difference:.1e} of the largest number."
            )


@contextlib.contextmanager
def _of_the_format(file_format: str) -> Iterator[None]:
    """Turn errors of the library that runs a file into one sentence, such as of a dtype that it lacks."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # from any library that reads the format
        hint = "" if file_format == "stablehlo" else "; stablehlo takes any"
        raise ResultError(
            f"The policy cannot be exported as {file_format}: the file cannot be run ({reason(error)}){hint}."
        ) from error


def _difference(got: Any, expected: Any) -> float:
    """The largest difference between two arrays, relative to the largest number if that is above 1; 0 of empty ones."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return float(np.max(np.abs(got - expected), initial=0.0) / np.max(np.abs(expected), initial=1.0))
