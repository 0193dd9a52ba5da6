"""Several processes, on one machine or many, that compute together: connecting them, and exchanging values."""

from __future__ import annotations

import os
import pickle
import re
import socket
import threading
import time
from typing import Any

import jax
import numpy as np
from jax.typing import DTypeLike

from envs.errors import UserValueError
from jaxrl.checks import check_count
from jaxrl.runtime.hosts.lost_processes import LostProcessError, in_step

TIMEOUT = 60.0
HEARTBEAT = 30.0
_MARGIN = 10  # seconds that JAX waits beyond `timeout`

__all__ = ["LostProcessError", "broadcast", "broadcast_array", "exchange", "start"]


def start(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout: float = TIMEOUT,
    heartbeat: float = HEARTBEAT,
) -> None:
    """Connect the processes of a run; called before an environment is made, and before anything computes with JAX.

    Under SLURM and Open MPI and on TPU pods, JAX finds the arguments itself. When a process is lost afterwards,
    the others end: with a message and status 1 if a joint computation fails; otherwise JAX aborts them after
    `heartbeat` seconds without a heartbeat of the lost process.

    Args:
      coordinator: Address `host:port` at which process 0 listens and which all others can reach.
      num_processes: Number of processes of the run.
      process_id: Index of this process, from 0.
      timeout: Time in seconds to wait for the others.
      heartbeat: Time in seconds without a heartbeat after which a process counts as lost.

    Raises:
      ValueError: The arguments are not valid, JAX detects no cluster, or the coordinator cannot be reached
        or its port is in use. If the others do not connect in time, the process ends.
    """
    for name, seconds in (("timeout", timeout), ("heartbeat", heartbeat)):
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 1 <= seconds <= 86_400:
            raise UserValueError(f"{name} must be a number of seconds from 1 to 86,400, got {seconds!r}")
    arguments = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    missing = [name for name, value in arguments.items() if value is None]
    if 0 < len(missing) < len(arguments):
        raise UserValueError(
            f"coordinator, num_processes and process_id must be given together, but {missing[0]} is missing"
        )
    started = time.monotonic()
    if coordinator is not None and num_processes is not None and process_id is not None:
        check_count("num_processes", num_processes)
        if type(process_id) is not int or not 0 <= process_id < num_processes:
            raise UserValueError(
                f"process_id must be a whole number from 0 to {num_processes - 1}, one less than num_processes, "
                f"got {process_id!r}"
            )
        _check_address(coordinator, process_id, timeout)
    where = f" at {coordinator}" if coordinator else ""
    who = f"{num_processes} processes" if num_processes else "processes"
    sentence = f"the {who} of the run did not all connect{where} within {timeout:g} s"
    if num_processes:
        sentence += ": start each with the same coordinator and number, and a different process_id"
    left = max(timeout - (time.monotonic() - started), 1.0)
    giving_up = threading.Timer(left, _give_up, [sentence])  # JAX would abort the process with pages of text
    giving_up.daemon = True
    giving_up.start()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM, which ends a run after its chunk
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            cluster_detection_method=None if coordinator is None else "deactivate",
            initialization_timeout=round(left) + _MARGIN,
            heartbeat_timeout_seconds=int(heartbeat),
            shutdown_timeout_seconds=int(heartbeat),
        )
    except RuntimeError as error:
        if "must be called before" not in str(error):
            raise
        raise RuntimeError(
            "start must be called before an environment is made and before anything computes with JAX"
        ) from None
    except ValueError as error:
        raise UserValueError(
            f"no cluster is found here ({str(error).rstrip('.')}): outside of SLURM, TPU pods and Open MPI, name "
            f"coordinator, num_processes and process_id"
        ) from None
    finally:
        giving_up.cancel()


def exchange(*numbers: int) -> np.ndarray:
    """Gather numbers from every process, int32 `[num_processes, len(numbers)]`; all processes must call it.

    Raises:
      LostProcessError: A process is gone.
    """
    row = np.asarray(numbers, np.int32)
    if jax.process_count() == 1:
        return row[None]
    from jax.experimental import multihost_utils

    with in_step():
        return np.asarray(multihost_utils.process_allgather(row))


def broadcast_array(array: np.ndarray | None, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """Copy an array of process 0 to every process, bit for bit; all processes must call it.

    Args:
      array: Array in process 0; None elsewhere.
      shape, dtype: Shape and type of the array.
    """
    from jax.experimental import multihost_utils

    dtype = np.dtype(dtype)
    if not np.prod(shape, dtype=int):
        return np.zeros(shape, dtype)
    local = np.zeros(shape, dtype) if array is None else np.asarray(array, dtype)
    with in_step():
        words = multihost_utils.broadcast_one_to_all(np.frombuffer(local.tobytes(), np.uint8))
    return np.frombuffer(np.asarray(words).tobytes(), dtype).reshape(shape)


def broadcast(value: object) -> Any:
    """Copy a picklable value of process 0 to every process; all processes must call it."""
    if jax.process_count() == 1:
        return value
    packed = np.frombuffer(pickle.dumps(value), np.uint8) if jax.process_index() == 0 else None
    size = broadcast_array(None if packed is None else np.asarray([len(packed)]), (1,), np.int64)
    return pickle.loads(broadcast_array(packed, (int(size[0]),), np.uint8).tobytes())


def _give_up(sentence: str) -> None:
    """End the process from a thread, because the main thread is waiting inside JAX."""
    os.write(2, f"jaxrl: {sentence}\n".encode())
    os._exit(1)


def _check_address(coordinator: str, process_id: int, timeout: float) -> None:
    match = re.fullmatch(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\s]+)):(?P<port>\d{1,5})", str(coordinator))
    if match is None or not 0 < int(match["port"]) < 65_536:
        raise UserValueError(f"coordinator must be host:port, such as node1:12345, got {coordinator!r}")
    host, port = match["six"] or match["host"], int(match["port"])
    if process_id == 0:
        _check_free(coordinator, port)
        return
    deadline = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((host, port), timeout=max(deadline - time.monotonic(), 0.1)).close()
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                raise UserValueError(
                    f"coordinator {coordinator} cannot be reached within {timeout:g} s "
                    f"({error.strerror or error}): process 0 must be started there"
                ) from None
        time.sleep(0.2)


def _check_free(coordinator: str, port: int) -> None:
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError as error:
        raise UserValueError(
            f"coordinator {coordinator} cannot listen on its port ({error.strerror or error}): name another one"
        ) from None
