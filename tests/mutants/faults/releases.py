"""Faults of what later releases promise to programs and to the choice of versions."""

from planting import Fault

FAULTS = (
    Fault(
        "deprecated-names-gone-a-release-early",
        "jaxrl/deprecation.py",
        "int(numbers[2]) + RELEASES",
        "int(numbers[2]) + RELEASES - 1",
        "tests/test_deprecation.py::test_it_works_in_two_releases",
    ),
    Fault(
        "deprecations-at-a-line-of-the-library",
        "jaxrl/deprecation.py",
        "level, frame = level + 1, frame.f_back",
        "frame = frame.f_back",
        "tests/test_deprecation.py::test_the_warning_is_at_the_line_of_the_user",
    ),
    Fault(
        "locked-versions-of-direct-requirements-alone",
        "requirements/versions.py",
        "        chosen |= more\n",
        "        chosen |= more\n        break\n",
        "tests/test_versions.py::test_the_part_that_requirements_need_is_taken",
    ),
)
