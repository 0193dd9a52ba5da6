"""Training one run on the devices of several processes: process 0 drives it, the others follow its orders."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import jax

from envs.errors import ExistsError, UserTypeError, UserValueError
from jaxrl.learning.shards import EnvShards
from jaxrl.pytrees import State
from jaxrl.results.dataset import ResultError
from jaxrl.results.result import Result
from jaxrl.runtime.call import Call
from jaxrl.runtime.checkpoints.identity import difference, identity_of, precision_in_force
from jaxrl.runtime.checkpoints.store import Checkpoints
from jaxrl.runtime.drive.driver import drive
from jaxrl.runtime.drive.observers import watched
from jaxrl.runtime.drive.progress import StopRequest
from jaxrl.runtime.env_sharding.sharded_runs import AXIS, ShardedRun
from jaxrl.runtime.hosts.lost_processes import abandon
from jaxrl.runtime.hosts.processes import LostProcessError, broadcast, exchange
from jaxrl.runtime.layout import Layout, local_device
from jaxrl.runtime.options import Options

SHARDED = "sharded_environments"  # attribute that marks such a run


class _Order(IntEnum):
    """Orders of process 0 to all processes."""

    BEGIN = 0
    PUT = 1
    ADVANCE = 2
    EVALUATE = 3
    STATES = 4
    END = 5


# Errors of process 0 that the others raise unchanged.
_USER_ERRORS = (ExistsError, ResultError, UserTypeError, UserValueError)
_ERRORS = (*_USER_ERRORS, KeyboardInterrupt, FileExistsError, TypeError, ValueError)


def run_sharded(call: Call, options: Options, begun: Mapping[str, Any] | None, stop: StopRequest) -> Result:
    """Execute a call of one run, whose environments are distributed over all devices of all processes.

    Process 0 alone writes files, shows progress and notifies trackers; a signal to any process stops all of
    them after the current chunk.

    Args:
      call: Call of one run.
      options: Options of the execution, the same in every process; `devices` requires a single process.
      begun: Contents of `run.json` in `options.out` of the call to resume; None starts from scratch.
      stop: Stop request that a signal to this process sets.

    Returns:
      Result, in every process.

    Raises:
      ValueError: The call has several runs, the algorithm does not support it, or environments or minibatches do
        not divide among the devices; raised before anything is compiled.
      LostProcessError: Another process is gone.
    """
    devices = options.devices
    if devices is not None and jax.process_count() > 1:
        raise UserValueError("devices cannot be chosen where several processes share the environments; leave it out")
    devices = tuple(jax.devices() if devices is None else map(local_device, devices))
    if call.num_runs > 1:
        raise UserValueError(f"shard_environments takes one setting and one seed at a time, got {call.num_runs} runs")
    if call.algo.sharded is None:
        raise UserValueError(
            f"shard_environments takes an algorithm that has `sharded`, which {call.algo.name} does not have"
        )
    call.algo.sharded(EnvShards(AXIS, len(devices)))
    call = dataclasses.replace(call, attrs={**call.attrs, SHARDED: 1})
    layout = Layout(1, 1, 1, devices)
    if jax.process_index() > 0:
        return _follow(call, layout, options, stop)
    try:
        identity = {} if options.out is None else identity_of(call, layout, options.precision)
        directory = None if options.out is None else Path(options.out)
        checkpoints = Checkpoints(
            directory, identity, begun=begun, minutes=options.checkpoint_minutes, trust=options.trust
        )
        with watched(call, options, checkpoints, stop) as watch:
            watch.bar.phase("compiling")
            started = time.perf_counter()
            runs = _Leader(call, layout, options.precision, stop)
            seconds = time.perf_counter() - started
            attrs = {"precision": precision_in_force(options.precision), "compile_seconds": seconds}
            result = drive(call, call.whole, runs, checkpoints, watch, attrs)
            watch.followers.finish(result)
        _give_order(_Order.END)
        broadcast((None, (result.metrics, result.policies)))
    except LostProcessError:
        raise
    except BaseException as error:
        if jax.process_count() > 1:
            _send_error(error)
        raise
    return result


def _send_error(error: BaseException) -> None:
    """End the other processes with the same error, unless they are gone."""
    kind = next((kind for kind in _ERRORS if isinstance(error, kind)), None)
    message = (kind, error.args[:1]) if kind is not None else (RuntimeError, (f"process 0 ended: {error!r}",))
    try:
        _give_order(_Order.END)
        broadcast(message)
    except LostProcessError:
        abandon()


def _give_order(order: _Order, argument: int = 0, stop: StopRequest | None = None) -> int:
    """Send an order to every process; return the number of a signal that one of them received, or 0."""
    signal = stop.signal or 0 if stop is not None else 0
    return int(exchange(order, argument, signal)[:, 2].max())


class _Leader:
    """Sharded run with the interface of `DrivenRuns`: the other processes repeat each operation."""

    def __init__(self, call: Call, layout: Layout, precision: str, stop: StopRequest) -> None:
        self._stop, self.layout = stop, layout
        self._order(_Order.BEGIN)
        broadcast(identity_of(call, layout, precision))
        self._run = ShardedRun(call, layout.devices, precision)

    @property
    def iteration(self) -> int:
        return self._run.iteration

    @property
    def shapes(self) -> tuple[Any, dict[str, jax.ShapeDtypeStruct]]:
        return self._run.shapes

    def start(self) -> None:
        """Do nothing: the run starts with the first order that needs it, in all processes."""

    def advance(self, count: int) -> None:
        self._order(_Order.ADVANCE, count)
        self._run.advance(count)

    def evaluate(self) -> tuple[dict[str, Any], Any]:
        self._order(_Order.EVALUATE)
        return self._run.evaluate()

    def states(self) -> Any:
        self._order(_Order.STATES)
        return self._run.states()

    def kept(self) -> Any:
        return self._run.kept()

    def again(self) -> Any:
        raise NotImplementedError("a run over all devices keeps only its last policy")

    def put(self, states: State, iteration: int) -> None:
        self._order(_Order.PUT, iteration)
        self._run.put(states, iteration)

    def _order(self, order: _Order, argument: int = 0) -> None:
        signal = _give_order(order, argument, self._stop)
        if signal and not self._stop:
            self._stop.signal = signal


def _follow(call: Call, layout: Layout, options: Options, stop: StopRequest) -> Result:
    try:
        _obey(call, layout, options, stop)
        kind, outcome = broadcast(None)
    except BaseException:
        abandon()  # so that the others do not wait for this process
        raise
    if kind is not None:
        raise kind(*outcome)
    metrics, policies = outcome
    return Result(metrics, policies, call.algo, call.hparams, call.env_params)


def _obey(call: Call, layout: Layout, options: Options, stop: StopRequest) -> None:
    run: Any = None
    while True:
        order, argument, _ = exchange(0, 0, stop.signal or 0)[0].tolist()
        if order == _Order.BEGIN:
            first, local = broadcast(None), identity_of(call, layout, options.precision)
            # Hosts of one call may differ in processors, and flags contain local paths.
            differing = difference(first, local | {name: first[name] for name in ("processor", "xla_flags")})
            if differing is not None:
                process = f"process {jax.process_index()}"
                raise UserValueError(f"{process} runs a different call than process 0: {differing}")
            run = ShardedRun(call, layout.devices, options.precision)
        elif order == _Order.PUT:
            run.put(None, argument)
        elif order == _Order.ADVANCE:
            run.advance(argument)
        elif order == _Order.EVALUATE:
            run.evaluate()
        elif order == _Order.STATES:
            run.states()
        else:
            return
