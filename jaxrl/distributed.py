"""Processes that train together: their connection, and messages between them, as in `jaxrl.runtime.hosts.processes`."""

from jaxrl.runtime.hosts.processes import *  # noqa: F403
from jaxrl.runtime.hosts.processes import __all__ as __all__
