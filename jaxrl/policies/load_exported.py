"""Loading of exported policies: StableHLO and ONNX without the algorithm, weights with it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.export
import numpy as np

from envs.arguments import check_flag
from envs.errors import MissingPackageError, UserError, UserValueError, installing
from envs.settings import in_own_settings
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.allowed_modules import Allow, NotAllowedError, modules_of
from jaxrl.algorithms.contract import Algorithm, policy_shapes
from jaxrl.policies.export_program import greedy_program, named
from jaxrl.policies.exported_policy import ExportedPolicy, Run
from jaxrl.results.checksums import CHECKSUM, check_seal, checksum_of_file, read_sealed
from jaxrl.results.dataset import UNKNOWN, ResultError
from jaxrl.results.format import reason
from jaxrl.results.json_values import parsed
from jaxrl.results.policy import TrainedPolicy
from jaxrl.sweeps.paths import leaves

SUFFIXES = {".stablehlo": "stablehlo", ".safetensors": "safetensors", ".onnx": "onnx"}
PROGRAM = "program"  # key of the checksum of a StableHLO file in its JSON file
KEY = "jaxrl"  # key of the description in the metadata of an artefact

T = TypeVar("T")

__all__ = [
    "KEY",
    "PROGRAM",
    "SUFFIXES",
    "format_of",
    "load_exported",
    "load_weights",
    "needs_extra",
    "open_exported",
    "spec_file",
]


def format_of(path: Path) -> str:
    """The format of a file, from its suffix.

    Raises:
      ValueError: The suffix is not that of a format.
    """
    if path.suffix not in SUFFIXES:
        raise UserValueError(f"path is {str(path)!r}; an exported policy's name ends in {', '.join(SUFFIXES)}.")
    return SUFFIXES[path.suffix]


def spec_file(path: Path) -> Path:
    """The JSON file next to a StableHLO artefact, with its description."""
    return path.with_name(f"{path.name}.json")


@in_own_settings
def load_exported(
    path: str | Path, algo: Algorithm | None = None, *, allow: Allow = (), trust: bool = False
) -> ExportedPolicy:
    """Read a policy that `export_policy` or `jaxrl export` wrote.

    Args:
      path: File, whose name ends in .stablehlo, .safetensors or .onnx.
      algo: Algorithm, required for .safetensors files with a user-defined network or environment.
      allow: Names of user modules that a .safetensors file may import, as in `load_result`.
      trust: Whether to read a file that does not match its checksum; older files have none.

    Raises:
      ValueError: The suffix of the file is not that of a format.
      ResultError: The file is missing or damaged, or its algorithm cannot be built.
      ImportError: The extra `export` is not installed.
    """

    def opened(file: Path, spec: Mapping[str, Any], allow: Allow) -> ExportedPolicy:
        _check_ports(file, spec)
        return open_exported(file, spec, algo, allow)

    return _read(path, opened, allow, trust)


@in_own_settings
def load_weights(path: str | Path, *, allow: Allow = (), trust: bool = False) -> TrainedPolicy:
    """The trained policy of a safetensors file, which can also sample actions and be evaluated like one of a result.

    Args:
      path: File that `export_policy` wrote, whose name ends in .safetensors.
      allow: Names of user modules that the file may import, as in `load_result`.
      trust: Whether to read a file that does not match its checksum.

    Returns:
      The policy, with its setting, the parameters of the environment in its training and the length of that; files of
      earlier versions do not state the length, without which a curriculum does not advance.

    Raises:
      ResultError: The file is not one of safetensors, is missing or damaged, or its algorithm cannot be built.
      ImportError: The extra `export` is not installed.
    """

    def trained(file: Path, spec: Mapping[str, Any], allow: Allow) -> TrainedPolicy:
        algo, params = _weights(file, spec, None, allow)
        usual = algo.env.default_params
        recorded = [
            np.asarray(spec["env_params"][name], jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype))
            for name, leaf in leaves(usual)
        ]
        env_params = jax.tree.unflatten(jax.tree.structure(usual), recorded)
        steps = spec.get("env_steps"), spec.get("training_env_steps")  # older files have neither
        return TrainedPolicy(algo, params, spec.get("setting"), spec.get("seed"), env_params, *steps)

    if (file_format := format_of(Path(path))) != "safetensors":
        raise ResultError(f"path takes a .safetensors file, got {path}, of the format {file_format}")
    return _read(path, trained, allow, trust)


def _read(path: str | Path, build: Callable[[Path, Mapping[str, Any], Allow], T], allow: Allow, trust: bool) -> T:
    """The policy of a file, built from its description; any error is one sentence."""
    check_flag("trust", trust)
    file, allow = Path(path), modules_of(allow)
    file_format = format_of(file)
    if not file.is_file():
        raise ResultError(f"{file} does not exist; jaxrl export or export_policy writes one.")
    spec = None
    try:
        spec = _read_spec(file, file_format, trust)
        return build(file, spec, allow)
    except (ImportError, ResultError):
        raise
    except UserError as error:
        what = f"{file} is damaged" if spec is None else f"The algorithm of {file} cannot be built"
        raise ResultError(f"{what}: {str(error).rstrip('.')}.") from error
    except Exception as error:  # from any library that reads the format
        raise ResultError(f"{file} is damaged or not a policy of jaxrl: {reason(error)}.") from error


def open_exported(
    file: Path, spec: Mapping[str, Any], algo: Algorithm | None = None, allow: Allow = ()
) -> ExportedPolicy:
    """The policy of a file with the description `spec`."""
    if spec["format"] == "stablehlo":
        run = _stablehlo(file, spec)
    elif spec["format"] == "onnx":
        run = _onnx(file, spec)
    else:
        run = _safetensors(file, spec, algo, allow)
    return ExportedPolicy(spec, run, (_opened_again, file.suffix, file.read_bytes(), algo, allow))


def _opened_again(spec: Mapping[str, Any], suffix: str, contents: bytes, *others: Any) -> ExportedPolicy:
    """Policy of a file with these contents, for pickle."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / f"policy{suffix}"
        file.write_bytes(contents)
        return open_exported(file, spec, *others)


def needs_extra(file_format: str, error: ImportError) -> ImportError:
    """The error to raise if a library of a format is not installed."""
    return MissingPackageError(f"format {file_format!r} needs the extra: {installing('export')} ({error})")


def _read_spec(file: Path, file_format: str, trust: bool) -> dict[str, Any]:
    if file_format == "stablehlo":
        spec_path = spec_file(file)
        if not spec_path.is_file():
            raise ResultError(
                f"{spec_path}, which describes {file.name}, is missing; jax.export.deserialize reads files without it."
            )
        spec = read_sealed(spec_path, trust=trust)
        if not trust and PROGRAM in spec and spec[PROGRAM] != checksum_of_file(file):
            raise ResultError(
                f"{file} is damaged, or of another policy than {spec_path}: it does not match the checksum recorded "
                f"there; trust=True ignores this."
            )
        return {name: value for name, value in spec.items() if name != PROGRAM}
    check_seal(file, file.read_bytes(), trust=trust)
    if file_format == "onnx":
        text = _session(file).get_modelmeta().custom_metadata_map[KEY]
    else:
        with _safe_open(file) as stream:
            text = stream.metadata()[KEY]
    spec = parsed(text)
    spec.pop(CHECKSUM, None)
    return spec


def _check_ports(file: Path, spec: Mapping[str, Any]) -> None:
    """Reject files whose inputs and outputs are not described in jaxrl's format.

    Raises:
      ResultError: The description differs.
    """
    for side in ("inputs", "outputs"):
        ports = spec.get(side)
        if not isinstance(ports, list) or not ports or not all(isinstance(port, dict) for port in ports):
            raise ResultError(f"{file} is damaged: its {side} are not a list of names with types and shapes.")
        for port in ports:
            if not isinstance(port.get("name"), str) or not isinstance(port.get("shape"), list):
                raise ResultError(f"{file} is damaged: its {side} are not a list of names with types and shapes.")
            np.dtype(port.get("dtype"))


def _stablehlo(file: Path, spec: Mapping[str, Any]) -> Run:
    try:
        import flatbuffers  # noqa: F401 -- needed by jax.export to read, but not installed by it
    except ImportError as error:
        raise needs_extra("stablehlo", error) from None
    exported = jax.export.deserialize(bytearray(file.read_bytes()))
    try:
        exported.mlir_module()
    except Exception as error:  # raised here rather than at the first observation
        written = spec["versions"]["jax"]
        raise ResultError(
            f"{file}, written by JAX {written}, cannot be read by JAX {jax.__version__}: {reason(error)}; "
            "an older JAX can read files of a newer one for some weeks only."
        ) from None

    def run(leaves: list[np.ndarray]) -> list[Any]:
        arguments, _ = jax.tree.unflatten(exported.in_tree, leaves)
        return jax.tree.leaves(exported.call(*arguments))

    return run


def _session(file: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise needs_extra("onnx", error) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only: it warns of every folded constant
    return onnxruntime.InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])


def _onnx(file: Path, spec: Mapping[str, Any]) -> Run:
    session = _session(file)
    inputs, outputs = ([port["name"] for port in spec[side]] for side in ("inputs", "outputs"))
    return lambda leaves: list(session.run(outputs, dict(zip(inputs, leaves, strict=True))))


def _safe_open(file: Path) -> Any:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise needs_extra("safetensors", error) from None
    return safe_open(file, framework="numpy")


def _weights(file: Path, spec: Mapping[str, Any], algo: Algorithm | None, allow: Allow) -> tuple[Algorithm, Any]:
    """The algorithm and the policy of a safetensors file."""
    with _safe_open(file) as stream:
        arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 -- not a dictionary
    if algo is None:
        if spec["algorithm"] is None:
            raise ResultError(
                f"{file} does not describe how to build its algorithm ({spec[UNKNOWN]}): pass algo= in Python."
            )
        try:
            algo = algorithms.build(spec, allow)
        except NotAllowedError as error:
            raise ResultError(f"{file} holds weights of an algorithm that is not imported: {error}") from None
    shapes = policy_shapes(algo)
    expected = named("", shapes)
    shapes_of = [{name: (leaf.shape, leaf.dtype) for name, leaf in some} for some in (expected, arrays.items())]
    if shapes_of[0] != shapes_of[1]:
        raise ResultError(f"{file} does not fit the algorithm {algo.name}: it holds other parameters.")
    params = jax.tree.unflatten(jax.tree.structure(shapes), [arrays[name] for name, _ in expected])
    return algo, params


def _safetensors(file: Path, spec: Mapping[str, Any], algo: Algorithm | None, allow: Allow) -> Run:
    algo, params = _weights(file, spec, algo, allow)
    program = greedy_program(algo, params)
    function = jax.jit(program.function)

    def run(leaves: list[np.ndarray]) -> list[Any]:
        with jax.default_matmul_precision("highest"):
            arguments = jax.tree.unflatten(jax.tree.structure(program.arguments), leaves)
            return jax.tree.leaves(function(*arguments))

    return run
