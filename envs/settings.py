"""Settings of JAX under which environments and programs are traced and called, regardless of those of the caller.

Arrays have 32 bits, types and ranks are promoted as in NumPy, arrays move freely between host and devices, and
infinities are numbers like others, which masks and bounds need. `jax_enable_x64`, `jax_numpy_dtype_promotion`,
`jax_numpy_rank_promotion`, `jax_transfer_guard` and `jax_debug_infs` therefore apply to the code around them alone.

Where a program begins, `own_settings` or `in_own_settings` is around it: in public functions that trace or compile, in
the methods of environments and policies that a user's program calls (`methods_in_own_settings`), and around functions
whose values are cached, which must not depend on the settings of the first call.

There too, an error of Python code that a program called back (`called_back`) replaces JAX's error, which only quotes
it.
"""

import contextlib
import functools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from envs.errors import UserValueError
from envs.pytrees import PyTree

Function = TypeVar("Function", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type)

_FREE = (None, "allow", "log", "log_explicit")
# Settings of JAX: values that are left as they are, and the context that replaces others.
_SETTINGS: dict[str, tuple[tuple[Any, ...], Callable[[], contextlib.AbstractContextManager[Any]]]] = {
    "jax_enable_x64": ((False,), lambda: jax.enable_x64(False)),
    "jax_numpy_dtype_promotion": (("standard",), lambda: jax.numpy_dtype_promotion("standard")),
    "jax_numpy_rank_promotion": (("allow",), lambda: jax.numpy_rank_promotion("allow")),
    "jax_debug_infs": ((False,), lambda: jax.debug_infs(False)),
    "jax_transfer_guard_host_to_device": (_FREE, lambda: jax.transfer_guard_host_to_device("allow")),
    "jax_transfer_guard_device_to_device": (_FREE, lambda: jax.transfer_guard_device_to_device("allow")),
    "jax_transfer_guard_device_to_host": (_FREE, lambda: jax.transfer_guard_device_to_host("allow")),
}

_CALLBACKS = "jax._src.callback"  # name of the logger that prints the traceback of an error in a callback
_raised: deque[Exception] = deque(maxlen=8)  # the latest errors in callbacks


def _replacing() -> list[Callable[[], contextlib.AbstractContextManager[Any]]]:
    """Contexts that replace the settings in force that differ; none in a usual process."""
    return [replace for name, (kept, replace) in _SETTINGS.items() if getattr(jax.config, name) not in kept]


@contextlib.contextmanager
def own_settings() -> Iterator[None]:
    """Context with the settings of this module, for the thread that enters it."""
    with contextlib.ExitStack() as stack, _errors_of_callbacks():
        for replace in _replacing():
            stack.enter_context(replace())
        yield


def require_compilation() -> None:
    """Reject calls of compiled programs while `jax_disable_jit` is on.

    Raises:
      ValueError: It is.
    """
    if jax.config.values["jax_disable_jit"]:
        raise UserValueError(
            "jax_disable_jit (the environment variable JAX_DISABLE_JIT) must be False, because runs are compiled, "
            "got True; methods of an environment can be called without compilation"
        )


def in_own_settings(function: Function) -> Function:
    """The function, called with the settings of this module; arrays of 64 bits among its arguments get 32 bits."""

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        if not _replacing():
            with _errors_of_callbacks():
                return function(*arguments, **named)
        with own_settings():
            arguments, named = _narrowed((arguments, named))
            return function(*arguments, **named)

    return cast(Function, called)


def methods_in_own_settings(*names: str) -> Callable[[Kind], Kind]:
    """Class decorator that puts `in_own_settings` around those of these methods that the class itself defines."""

    def decorated(kind: Kind) -> Kind:
        for name in names:
            if name in vars(kind):
                setattr(kind, name, in_own_settings(vars(kind)[name]))
        return kind

    return decorated


def called_back(function: Function) -> Function:
    """The function, as an argument of `jax.pure_callback`, whose errors are raised where the program began."""

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            _raised.append(error)
            raise

    return cast(Function, called)


@contextlib.contextmanager
def _errors_of_callbacks() -> Iterator[None]:
    """Raise the error of a callback itself, instead of JAX's error with its text."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # the latter from calls that skip Python
        text = str(error)
        quoted = [own for own in tuple(_raised) if own is not error and _as_quoted(own) in text]
        if not quoted:
            raise
        _raised.remove(quoted[-1])  # errors of other threads remain theirs
        raise quoted[-1] from None


def _as_quoted(error: Exception) -> str:
    return ": ".join(filter(None, (type(error).__name__, str(error))))


def _is_raised_again(record: logging.LogRecord) -> bool:
    return record.exc_info is not None and any(record.exc_info[1] is error for error in tuple(_raised))


logging.getLogger(_CALLBACKS).addFilter(lambda record: not _is_raised_again(record))


def _narrowed(tree: PyTree) -> Any:
    """A pytree whose arrays and tracers of 64 bits have 32 bits; NumPy's are converted by JAX."""
    return jax.tree.map(_canonical, tree)


def _canonical(leaf: PyTree) -> Any:
    wide = isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype)) if wide else leaf
