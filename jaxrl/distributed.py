"""Processes that train together: their connection, and messages between them."""

from jaxrl.runtime.hosts.processes import (
    LostProcessError,
    broadcast,
    broadcast_array,
    exchange,
    start,
)

__all__ = [
    "LostProcessError",
    "broadcast",
    "broadcast_array",
    "exchange",
    "start",
]
