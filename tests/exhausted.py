"""A device that runs out of memory."""

from typing import Any

import jax

from jaxrl.runtime.layout import run_on_devices


def exhausted_at(number: int) -> Any:
    """Programs whose call of that number finds no memory."""
    calls = []

    def call(executables: Any, *arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == number:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")
        return run_on_devices(executables, *arguments)

    return call
