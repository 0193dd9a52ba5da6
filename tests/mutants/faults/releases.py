"""Faults of what later releases promise to programs and to the choice of versions."""

from planting import Fault

FAULTS = (
    Fault(
        "deprecated-names-gone-a-release-early",
        "envs/deprecation.py",
        "minor + RELEASES",
        "minor + RELEASES - 1",
        "tests/test_deprecation.py::test_it_works_in_two_releases",
    ),
    Fault(
        "deprecations-at-a-line-of-the-library",
        "envs/deprecation.py",
        "level, frame = level + 1, frame.f_back",
        "frame = frame.f_back",
        "tests/test_deprecation.py::test_the_warning_is_at_the_line_of_the_user",
    ),
    Fault(
        "settings-of-an-earlier-release-lost",
        "jaxrl/results/description.py",
        "added = names if _of_earlier_release(config) else [",
        "added = [",
        "tests/results/test_first_release.py::test_a_parameter_that_a_later_release_added_has_its_default",
    ),
    Fault(
        "locked-versions-of-direct-requirements-alone",
        "requirements/versions.py",
        "        chosen |= more\n",
        "        chosen |= more\n        break\n",
        "tests/test_versions.py::test_the_part_that_requirements_need_is_taken",
    ),
)
