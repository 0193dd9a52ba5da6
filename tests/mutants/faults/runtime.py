"""Faults of plans."""

from planting import Fault

PLANS = "tests/runtime/test_absent_plans.py"
FAULTS = (
    Fault(
        "policies-kept-in-every-iteration",
        "jaxrl/runtime/plan/planner.py",
        "(sizes.advancing, of_block)",
        "(sizes.advancing, evaluated)",
        f"{PLANS}::test_the_runs_that_fit_are_those_of_the_largest_plan_in_one_part",
    ),
)
