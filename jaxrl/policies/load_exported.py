"""Exported policies, read back: StableHLO and ONNX without the algorithm, weights with it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np

from envs.errors import MissingPackageError, UserError, UserValueError
from jaxrl.algorithms import registry as algorithms
from jaxrl.algorithms.contract import Algorithm, policy_shapes
from jaxrl.algorithms.permission import Allow, NotAllowedError, modules_of
from jaxrl.policies.export_program import ACTION, MEMORY, NEXT_MEMORY, greedy_program, named
from jaxrl.results.checksums import CHECKSUM, check_seal, checksum_of_file, read_sealed
from jaxrl.results.dataset import UNKNOWN, ResultError
from jaxrl.results.plain import from_json

EXTRA = "pip install 'jaxrl[export]'"
SUFFIXES = {".stablehlo": "stablehlo", ".safetensors": "safetensors", ".onnx": "onnx"}
PROGRAM = "program"  # the checksum of a StableHLO file in the one beside it
KEY = "jaxrl"  # of what an artefact says of itself, in its metadata

Run = Callable[[list[np.ndarray]], list[Any]]

__all__ = [
    "KEY",
    "PROGRAM",
    "SUFFIXES",
    "ExportedPolicy",
    "format_of",
    "load_exported",
    "needs_extra",
    "open_exported",
    "spec_file",
]


class ExportedPolicy:
    """A greedy policy from a file: `policy(obs)` is an action, `policy.respond(obs)` also what it is chosen by.

    One that remembers takes and returns its memory:

        memory = policy.start()
        action, memory = policy(obs, memory=memory)
        memory = policy.remembered(memory, done)    # that of the start where an episode has ended

    Attributes:
      spec: What the file says of itself: inputs, outputs, spaces, normalisation, memory, origin.
    """

    def __init__(self, spec: Mapping[str, Any], run: Run):
        self.spec = dict(spec)
        self._run = run

    @property
    def remembers(self) -> bool:
        """Whether the policy has a memory, which every call takes and returns."""
        return MEMORY in self.spec

    def start(self, *axes: int) -> dict[str, np.ndarray]:
        """The memory at the start of an episode, by the names of its inputs.

        Args:
          *axes: Axes of the observations in front of those of one agent, the agents of a crowd among them.
        """
        dtypes = {port["name"]: port["dtype"] for port in self.spec["inputs"]}
        first = {name: np.asarray(value, dtypes[name]) for name, value in self.spec.get(MEMORY, {}).items()}
        return {name: np.broadcast_to(leaf, (*axes, *leaf.shape)) for name, leaf in first.items()}

    def remembered(self, memory: Mapping[str, Any], ended: Any) -> dict[str, np.ndarray]:
        """The memory to go on with: that of the start where an agent's episode has ended.

        Args:
          memory: Memory that the last call returned.
          ended: Whether the episode has ended, bool with the axes in front of those of the memory, or fewer of them.
        """
        after = {}
        for name, first in self.start().items():
            leaf = np.asarray(memory[name])
            over = np.asarray(ended)
            after[name] = np.where(over.reshape((*over.shape, *[1] * (leaf.ndim - over.ndim))), first, leaf)
        return after

    def __call__(self, obs: Any, mask: Any = None, memory: Mapping[str, Any] | None = None) -> Any:
        """The action for an observation or a batch of them, as `respond`; `(action, memory)` of one that remembers."""
        response = self.respond(obs, mask, memory)
        return (response[ACTION], response[MEMORY]) if self.remembers else response[ACTION]

    def respond(self, obs: Any, mask: Any = None, memory: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The action and the numbers that it is chosen by.

        Args:
          obs: Observation, or observations with further axes in front; of a crowd with any number of agents.
          mask: The environment's `action_mask`, with the same axes; None where it has none.
          memory: Memory of a policy that remembers, as `start` or the last call returned it.

        Returns:
          `{"action": ..., "logits": ...}`, or "mean" and "std" for continuous actions, and "memory" of a policy that
          remembers: NumPy arrays with the same axes.

        Raises:
          ValueError: The observation, the mask or the memory is not as `spec["inputs"]` says.
        """
        if self.remembers and memory is None:
            raise UserValueError(
                "memory is None, but this policy remembers; it takes policy.start() at the start of an episode and "
                "then what the last call returned: action, memory = policy(obs, memory=memory)."
            )
        remembered = [] if memory is None else sorted(memory.items(), key=lambda item: self._order(item[0]))
        given = [*named("obs", obs), *named("mask", mask), *remembered]
        wanted = self.spec["inputs"]
        if [name for name, _ in given] != [port["name"] for port in wanted]:
            takes = ", ".join(port["name"] for port in wanted)
            what = "obs and mask give" if memory is None else "obs, mask and memory give"
            raise UserValueError(f"{what} {', '.join(name for name, _ in given)}; this policy takes {takes}.")
        axes = np.ndim(given[0][1]) - len(wanted[0]["shape"]) + 1
        front = np.shape(given[0][1])[: max(axes, 0)]
        leaves, free = [], {}
        for (name, leaf), port in zip(given, wanted, strict=True):
            array, takes = np.asarray(leaf), port["shape"][1:]
            shape = array.shape[len(front) :]
            free |= {size: size for size in takes if isinstance(size, int)}  # and these have to be so
            fits = array.shape[: len(front)] == front and len(shape) == len(takes)
            if not fits or any(free.setdefault(size, at) != at for size, at in zip(takes, shape, strict=True)):
                whole = f"[{', '.join(map(str, takes))}]"
                raise UserValueError(
                    f"{name} has the shape {array.shape}; it takes {whole}, or that behind further axes."
                )
            leaves.append(array.astype(port["dtype"]).reshape(math.prod(front), *shape))
        outputs = [np.asarray(leaf) for leaf in self._run(leaves)]
        outputs = [leaf.reshape((*front, *leaf.shape[1:])) for leaf in outputs]
        by_name = {port["name"]: leaf for port, leaf in zip(self.spec["outputs"], outputs, strict=True)}
        parts = tuple(leaf for name, leaf in by_name.items() if name.startswith(f"{ACTION}."))
        numbers = {name: leaf for name, leaf in by_name.items() if name.partition(".")[0] not in (ACTION, NEXT_MEMORY)}
        after = {name: by_name[f"next_{name}"] for name in self.spec.get(MEMORY, {})}
        return {ACTION: parts or by_name[ACTION], **numbers, **({MEMORY: after} if after else {})}

    def _order(self, name: str) -> int:
        names = [port["name"] for port in self.spec["inputs"]]
        return names.index(name) if name in names else len(names)

    def __repr__(self) -> str:
        return f"ExportedPolicy({self.spec['format']}, {self.spec.get('algorithm') or self.spec.get('name')})"


def format_of(path: Path) -> str:
    """The format that a file's name tells.

    Raises:
      ValueError: it tells none.
    """
    if path.suffix not in SUFFIXES:
        raise UserValueError(f"path is {str(path)!r}; an exported policy's name ends in {', '.join(SUFFIXES)}.")
    return SUFFIXES[path.suffix]


def spec_file(path: Path) -> Path:
    """The file beside a StableHLO artefact that says what it takes."""
    return path.with_name(f"{path.name}.json")


def load_exported(
    path: str | Path, algo: Algorithm | None = None, *, allow: Allow = (), trust: bool = False
) -> ExportedPolicy:
    """Reads what `export_policy` or `jaxrl export` wrote.

    Args:
      path: the file, whose name ends in .stablehlo, .safetensors or .onnx.
      algo: the algorithm, for .safetensors whose network or environment is one's own.
      allow: Names of modules of the user's own that .safetensors may import, as in `load_result`.
      trust: Whether to read a file that does not have its checksum; older files have none.

    Raises:
      ValueError: the name says no format.
      ResultError: the file is missing or damaged, or its algorithm cannot be built here.
      ImportError: the extra is missing.
    """
    file, allow = Path(path), modules_of(allow)
    file_format = format_of(file)
    if not file.is_file():
        raise ResultError(f"{file} is not there; jaxrl export or export_policy writes one.")
    try:
        spec = _read_spec(file, file_format, trust)
        _check_ports(file, spec)
        return open_exported(file, spec, algo, allow)
    except (ImportError, ResultError):
        raise
    except UserError as error:
        raise ResultError(f"The algorithm of {file} cannot be built here: {str(error).rstrip('.')}.") from error
    except Exception as error:  # of whichever library reads the format
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ResultError(f"{file} is damaged or not a policy of jaxrl: {reason}.") from error


def open_exported(
    file: Path, spec: Mapping[str, Any], algo: Algorithm | None = None, allow: Allow = ()
) -> ExportedPolicy:
    """The policy of a file that is as `spec` says."""
    if spec["format"] == "stablehlo":
        return ExportedPolicy(spec, _stablehlo(file, spec))
    if spec["format"] == "onnx":
        return ExportedPolicy(spec, _onnx(file, spec))
    return ExportedPolicy(spec, _safetensors(file, spec, algo, allow))


def needs_extra(file_format: str, error: ImportError) -> ImportError:
    """The error to raise where what a format needs is not installed."""
    return MissingPackageError(f"format {file_format!r} needs the extra: {EXTRA} ({error})")


def _read_spec(file: Path, file_format: str, trust: bool) -> dict[str, Any]:
    if file_format == "stablehlo":
        beside = spec_file(file)
        if not beside.is_file():
            raise ResultError(
                f"{beside} is missing, which says what {file.name} takes; jax.export.deserialize reads it without."
            )
        spec = read_sealed(beside, trust=trust)
        if not trust and PROGRAM in spec and spec[PROGRAM] != checksum_of_file(file):
            raise ResultError(
                f"{file} is damaged, or of another policy than {beside}: it does not have the checksum that stands "
                f"there; trust=True goes on regardless."
            )
        return {name: value for name, value in spec.items() if name != PROGRAM}
    check_seal(file, file.read_bytes(), trust=trust)
    if file_format == "onnx":
        text = _session(file).get_modelmeta().custom_metadata_map[KEY]
    else:
        with _safe_open(file) as stream:
            text = stream.metadata()[KEY]
    spec = from_json(json.loads(text))
    spec.pop(CHECKSUM, None)
    return spec


def _check_ports(file: Path, spec: Mapping[str, Any]) -> None:
    """Refuses what tells its inputs and outputs otherwise than jaxrl writes them.

    Raises:
      ResultError: it does.
    """
    for side in ("inputs", "outputs"):
        ports = spec.get(side)
        if not isinstance(ports, list) or not ports or not all(isinstance(port, dict) for port in ports):
            raise ResultError(f"{file} is damaged: its {side} are not told as names with their types and shapes.")
        for port in ports:
            if not isinstance(port.get("name"), str) or not isinstance(port.get("shape"), list):
                raise ResultError(f"{file} is damaged: its {side} are not told as names with their types and shapes.")
            np.dtype(port.get("dtype"))


def _stablehlo(file: Path, spec: Mapping[str, Any]) -> Run:
    try:
        import flatbuffers  # noqa: F401 -- what jax.export reads with, and does not install
    except ImportError as error:
        raise needs_extra("stablehlo", error) from None
    exported = jax.export.deserialize(bytearray(file.read_bytes()))
    try:
        exported.mlir_module()
    except Exception as error:  # which would otherwise come with the first observation
        written = spec["versions"]["jax"]
        reason = str(error).strip().splitlines()[0]
        raise ResultError(
            f"{file}, written by JAX {written}, cannot be read by JAX {jax.__version__}: {reason}; "
            "an older JAX reads what a newer one wrote for some weeks only."
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
    options.log_severity_level = 3  # errors: it warns of every constant that it has folded away
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


def _safetensors(file: Path, spec: Mapping[str, Any], algo: Algorithm | None, allow: Allow) -> Run:
    with _safe_open(file) as stream:
        arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 -- it is no dictionary
    if algo is None:
        if spec["algorithm"] is None:
            raise ResultError(f"{file} does not say how to build its algorithm ({spec[UNKNOWN]}): pass algo=.")
        try:
            algo = algorithms.build(spec, allow)
        except NotAllowedError as error:
            raise ResultError(f"{file} holds weights of an algorithm that is not imported: {error}") from None
    shapes = policy_shapes(algo)
    wanted = named("", shapes)
    shapes_of = [{name: (leaf.shape, leaf.dtype) for name, leaf in some} for some in (wanted, arrays.items())]
    if shapes_of[0] != shapes_of[1]:
        raise ResultError(f"{file} does not fit the algorithm {algo.name}: it holds other parameters.")
    params = jax.tree.unflatten(jax.tree.structure(shapes), [arrays[name] for name, _ in wanted])
    program = greedy_program(algo, params)
    function = jax.jit(program.function)

    def run(leaves: list[np.ndarray]) -> list[Any]:
        with jax.default_matmul_precision("highest"):
            arguments = jax.tree.unflatten(jax.tree.structure(program.arguments), leaves)
            return jax.tree.leaves(function(*arguments))

    return run
