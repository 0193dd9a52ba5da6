"""Errors that a user's arguments or machine cause, each told in one sentence; anything else is a bug or another's."""

__all__ = ["ExistsError", "MissingPackageError", "UserError", "UserTypeError", "UserValueError"]


class UserError(Exception):
    """What the classes below have in common, by which the command line knows a sentence for the user from a bug."""


class UserValueError(UserError, ValueError):
    """An argument of the right type with a value that is not taken."""


class UserTypeError(UserError, TypeError):
    """An argument of a type that is not taken."""


class MissingPackageError(UserError, ImportError):
    """A package or an extra that is not installed, or another one of its name."""


class ExistsError(UserError, FileExistsError):
    """A file or directory that is there already, and that nothing allows to replace."""
