"""Point and interval estimates over seeds, for arrays from any source: the names of `jaxrl.results.statistics`."""

from jaxrl.results.statistics import *  # noqa: F403
from jaxrl.results.statistics import __all__ as __all__
