"""Errors due to a user's arguments or machine, each one sentence; any other exception is a bug or another library's."""

from envs.terminal import printable

__all__ = ["ExistsError", "MissingPackageError", "UserError", "UserTypeError", "UserValueError", "installing"]


class UserError(Exception):
    """Base class of the errors below, by which the command line distinguishes messages for the user from bugs.

    The message is shown without characters that control a terminal, since it may quote what a file holds.
    """

    def __str__(self) -> str:
        return printable(super().__str__(), lines=True)


class UserValueError(UserError, ValueError):
    """Error for an argument of a valid type with an invalid value."""


class UserTypeError(UserError, TypeError):
    """Error for an argument of an invalid type."""


class MissingPackageError(UserError, ImportError):
    """Error for a package, an extra or a download that is missing, or for another package of the same name."""


class ExistsError(UserError, FileExistsError):
    """Error for a file or directory that exists already and must not be replaced."""


def installing(extra: str) -> str:
    """How to install an extra: from a clone, since a package of this name on an index is not of this project.

    Args:
      extra: Name of the extra in `pyproject.toml`.
    """
    return f"pip install '.[{extra}]' in a clone of jaxrl"
