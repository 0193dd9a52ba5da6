"""A device that runs out of memory."""

from typing import Any

import jax

from jaxrl.runtime.layout import run_on_devices


def exhausted_at(number: int) -> Any:
    """A function that runs programs, and runs out of memory at call `number`."""
    calls = []

    def call(executables: Any, *arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == number:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")
        return run_on_devices(executables, *arguments)

    return call
