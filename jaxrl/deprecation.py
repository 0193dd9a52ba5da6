"""Deprecation of names of jaxrl and envs; the helper is in `envs.deprecation`, which imports nothing of jaxrl."""

from envs.deprecation import DeprecatedWarning as DeprecatedWarning
from envs.deprecation import removal as removal
from envs.deprecation import warn_deprecated as warn_deprecated

__all__ = ["DeprecatedWarning", "removal", "warn_deprecated"]
