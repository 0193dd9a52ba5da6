"""Errors due to a user's arguments or machine, each one sentence; any other exception is a bug or another library's."""

__all__ = ["ExistsError", "MissingPackageError", "UserError", "UserTypeError", "UserValueError"]


class UserError(Exception):
    """The base of the classes below, by which the command line distinguishes messages for the user from bugs."""


class UserValueError(UserError, ValueError):
    """An argument of a valid type with an invalid value."""


class UserTypeError(UserError, TypeError):
    """An argument of an invalid type."""


class MissingPackageError(UserError, ImportError):
    """A package or an extra that is not installed, or another package of the same name."""


class ExistsError(UserError, FileExistsError):
    """A file or directory that exists already and must not be replaced."""
