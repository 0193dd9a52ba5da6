"""The list of planted faults, by area."""

from planting import Fault

from faults import algorithms, bandits, discounts, environments, learning, meta, policies, releases, runtime, statistics

AREAS: dict[str, tuple[Fault, ...]] = {
    "learning": learning.FAULTS,
    "discounts": discounts.FAULTS,
    "environments": environments.FAULTS,
    "bandits": bandits.FAULTS,
    "statistics": statistics.FAULTS,
    "algorithms": algorithms.FAULTS,
    "meta": meta.FAULTS,
    "policies": policies.FAULTS,
    "releases": releases.FAULTS,
    "runtime": runtime.FAULTS,
}
