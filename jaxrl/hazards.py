"""Beliefs about hazards, as discounts: the names of `jaxrl.discounts.hazards`."""

from jaxrl.discounts.hazards import *  # noqa: F403
from jaxrl.discounts.hazards import __all__ as __all__
