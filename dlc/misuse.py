"""What is said of a call that a public function cannot mean: which parameter, what it takes, what it got, on which line.

    dlc.numpy.linspace(0, 1, 2.5)
    DTypeError: step.py:12: dlc.numpy.linspace: num = 2.5; expected a whole number

The question is asked of the function's own declaration, and of what computes only once a call has failed: what works costs
nothing, and an error of a call whose arguments are what the declaration says is no misuse, and stays as it is.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection
from reprlib import Repr
from types import FrameType
from typing import Any, TypeVar, cast

from dlc.argument_kinds import Kind, kind_of
from dlc.errors import DlcError, DTypeError
from dlc.user_lines import is_users, shown_line, user_line

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class")
_REPR = Repr()
_REPR.maxother = _REPR.maxstring = 60


def explain_misuse(namespace: dict[str, Any], keeping: Collection[str] = ()) -> None:
    """Makes the functions that a module is public for, those in its `__all__`, explain how they are misused.

    Those of the names `keeping` only keep their arguments for later.
    """
    module = namespace["__name__"]
    functions = {name: namespace[name] for name in namespace["__all__"] if inspect.isfunction(namespace[name])}
    # One that has several names is called by its own.
    names = {function: name for name, function in functions.items()} | {f: n for n, f in functions.items() if n == f.__name__}
    made = {function: explaining(f"{module}.{name}", function, name in keeping) for function, name in names.items()}
    for name, function in functions.items():
        made[function].__module__, made[function].__qualname__ = module, names[function]
        namespace[name] = made[function]


def explaining(name: str, function: Function, at_once: bool = False) -> Function:
    """The function, whose errors name the parameter that is misused if the user's own call misuses one.

    One that only keeps its arguments for later is asked `at_once`.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if at_once and (misuse := _misuse(name, function, args, kwargs)) is not None:
            raise DTypeError(f"{_calling_line() or ''}{misuse}")
        try:
            return function(*args, **kwargs)
        except Exception as error:
            place = _calling_line()
            if place is None:
                raise
            if (misuse := _misuse(name, function, args, kwargs, error)) is not None:
                raise DTypeError(f"{place}{misuse}") from error
            is_own = not at_once and not any(callable(a) and not isinstance(a, type) for a in args)
            if is_own and isinstance(error, DlcError) and function.__name__ not in str(error):
                # What is wrong is said of a step inside, which is none of a function that the user gave.
                error.args = (f"{place}{name}: {str(error).removeprefix(place)}", *error.args[1:])
            raise

    return cast(Function, call)


def explaining_methods(name: str) -> Callable[[type[Class]], type[Class]]:
    """A decorator for classes, whose constructor and public methods explain how they are misused."""

    def decorate(cls: type[Class]) -> type[Class]:
        for method, function in dict(vars(cls)).items():
            if inspect.isfunction(function) and (method == "__init__" or method[0] != "_"):
                setattr(cls, method, explaining(name if method == "__init__" else f"{name}.{method}", function, at_once=True))
        return cls

    return decorate


def require_bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises DTypeError, at the user's line, for arguments that a function of the user's does not take."""
    name, signature = getattr(function, "__name__", "function"), inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as unbound:
        line = user_line()
        place = "" if line is None else f"{shown_line(*line)}: "
        raise DTypeError(f"{place}{name}: {unbound}; it is {_declared(name, signature)}") from None


def applied(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function of the user's makes of these arguments; DTypeError, at the user's line, if it does not take them."""
    try:
        return function(*args, **kwargs)
    except DlcError:
        raise
    except TypeError:
        require_bound(function, args, kwargs)
        raise


# All of these functions have this code.
_CALL = explaining("", lambda: None).__code__


def _calling_line() -> str | None:
    """The user's line, if no public function lies between it and the one that failed: of what dlc calls it is sure itself."""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not is_users(frame):
        if frame.f_code is _CALL:
            return None
        frame = frame.f_back
    return "" if frame is None else f"{shown_line(frame.f_code.co_filename, frame.f_lineno)}: "


def _misuse(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception | None = None
) -> str | None:
    """What of these arguments does not fit the function's declaration."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as unbound:
        return f"{name}: {unbound}; it is {_declared(name, signature)}"
    if isinstance(error, DlcError) and f"{function.__name__}: " in str(error):
        # The function has said it itself.
        return None
    names = inspect.unwrap(function).__globals__
    for parameter, value in bound.arguments.items():
        declared = signature.parameters[parameter]
        kind = kind_of(declared.annotation, names) if isinstance(declared.annotation, str) else None
        if kind is None:
            continue
        labelled: list[tuple[str, Any]] = [(parameter, value)]
        if declared.kind is declared.VAR_POSITIONAL:
            labelled = [(f"{parameter}[{k}]", part) for k, part in enumerate(value)]
        if declared.kind is declared.VAR_KEYWORD:
            labelled = list(value.items())
        for label, each in labelled:
            if not kind.holds(each):
                return f"{name}: {_told(label, each, kind)}"
    return None


def _told(label: str, value: Any, kind: Kind) -> str:
    """What is wrong with a value that is none of a kind: of a list, with the first of its parts that is none."""
    if kind.part is not None and isinstance(value, list | tuple):
        for k, part in enumerate(cast("list[Any]", value)):
            if not kind.part.holds(part):
                return _told(f"{label}[{k}]", part, kind.part)
    return f"{label} = {_shown(value)}; expected {kind.one}"


def unexplained(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without explanations: what it is called by inside of dlc."""
    return cast(Any, function).__wrapped__ if getattr(function, "__code__", None) is _CALL else function


def _shown(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    large = isinstance(value, int) and value.bit_length() > 47
    return f"{_REPR.repr(value)} (of {value.bit_length()} bits)" if large else _REPR.repr(value)


def _declared(name: str, signature: inspect.Signature) -> str:
    """The signature without types."""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    text = text.replace("(self, ", "(").replace("(self)", "()")
    return name.rpartition(".")[2] + re.sub(r"<class '(?:numpy\.)?(\w+)'>", r"\1", text)
