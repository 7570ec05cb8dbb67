"""Validate the arguments of public functions against their annotations, and report mismatches at the user's line.

    dlc.numpy.linspace(0, 1, 2.5)
    DTypeError: step.py:12: dlc.numpy.linspace: num = 2.5; expected an integer

Arguments are checked only after a call has failed, so that successful calls pay nothing. If all arguments match the
signature, the original error is raised.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from reprlib import Repr
from types import FrameType
from typing import Any, TypeAlias, TypeVar, cast

from dlc.argument_validation.annotation_parser import ArgumentKind, parse_annotation
from dlc.errors import DlcError, DTypeError
from dlc.source_locations import find_user_line, format_line, is_user_frame

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class")
# (function, positional arguments, keyword arguments) → the arguments to call it with, or None
CallConverter: TypeAlias = (
    "Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]] | None]"
)
_REPR = Repr()
_REPR.maxother = _REPR.maxstring = 60


def validate_arguments(
    namespace: dict[str, Any], validate_first: Collection[str] = (), converters: Mapping[str, CallConverter] | None = None
) -> None:
    """Wrap the public functions of a module, those in its `__all__`, with argument validation.

    Functions in `validate_first` are validated before they run, since they only store their arguments for later. `converters`:
    the `convert_call` of functions, by name.
    """
    converters = converters or {}
    module = namespace["__name__"]
    functions = {name: namespace[name] for name in namespace["__all__"] if inspect.isfunction(namespace[name])}
    # Error messages use the name of the function, not an alias.
    names = {function: name for name, function in functions.items()} | {f: n for n, f in functions.items() if n == f.__name__}
    wrapped = {
        function: wrap_with_validation(f"{module}.{name}", function, name in validate_first, converters.get(name))
        for function, name in names.items()
    }
    for name, function in functions.items():
        wrapped[function].__module__, wrapped[function].__qualname__ = module, names[function]
        namespace[name] = wrapped[function]


def wrap_with_validation(
    name: str, function: Function, validate_first: bool = False, convert_call: CallConverter | None = None
) -> Function:
    """Return the function with argument validation: if the user's call fails, errors name the mismatched parameter.

    `validate_first` checks the arguments before the call, for functions that only store them for later. `convert_call` returns
    the arguments for a call in another calling convention, or None if the call is in none.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if validate_first and (mismatch := _find_mismatch(name, function, args, kwargs)) is not None:
            raise DTypeError(f"{_user_call_location() or ''}{mismatch}")
        try:
            try:
                return function(*args, **kwargs)
            except TypeError:
                if convert_call is None or (converted := convert_call(function, args, kwargs)) is None:
                    raise
            args, kwargs = converted
            return function(*args, **kwargs)
        except Exception as error:
            location = _user_call_location()
            if location is None:
                raise
            if (mismatch := _find_mismatch(name, function, args, kwargs, error)) is not None:
                raise DTypeError(f"{location}{mismatch}") from error
            is_internal_error = not validate_first and not any(callable(a) and not isinstance(a, type) for a in args)
            if is_internal_error and isinstance(error, DlcError) and function.__name__ not in str(error):
                # The error comes from a helper of this function and not from a user function: prefix the function's name.
                error.args = (f"{location}{name}: {str(error).removeprefix(location)}", *error.args[1:])
            raise

    return cast(Function, call)


def validate_methods(name: str) -> Callable[[type[Class]], type[Class]]:
    """Return a class decorator that wraps the constructor and the public methods with argument validation."""

    def decorate(cls: type[Class]) -> type[Class]:
        for method, function in dict(vars(cls)).items():
            if inspect.isfunction(function) and (method == "__init__" or method[0] != "_"):
                setattr(
                    cls,
                    method,
                    wrap_with_validation(name if method == "__init__" else f"{name}.{method}", function, validate_first=True),
                )
        return cls

    return decorate


def require_call_signature(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise DTypeError, at the user's line, unless a user function can be called with these arguments."""
    name, signature = getattr(function, "__name__", "function"), inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as unbound:
        line = find_user_line()
        location = "" if line is None else f"{format_line(*line)}: "
        raise DTypeError(f"{location}{name}: {unbound}; it is {_format_signature(name, signature)}") from None


def call_user_function(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a user function; raise DTypeError, at the user's line, if its signature does not accept the arguments."""
    try:
        return function(*args, **kwargs)
    except DlcError:
        raise
    except TypeError:
        require_call_signature(function, args, kwargs)
        raise


# The code object that all wrappers share.
_CALL = wrap_with_validation("", lambda: None).__code__


def _user_call_location() -> str | None:
    """Return the user's line, or None if another public function called the failed one, so that the user did not."""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not is_user_frame(frame):
        if frame.f_code is _CALL:
            return None
        frame = frame.f_back
    return "" if frame is None else f"{format_line(frame.f_code.co_filename, frame.f_lineno)}: "


def _find_mismatch(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception | None = None
) -> str | None:
    """Describe the first argument that does not match the function's signature; return None if all match."""
    if isinstance(error, DlcError) and f"{function.__name__}: " in str(error):
        # The function has reported the problem itself.
        return None
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as unbound:
        return f"{name}: {unbound}; it is {_format_signature(name, signature)}"
    names = inspect.unwrap(function).__globals__
    for parameter, value in bound.arguments.items():
        for label, item, annotation, scope in _annotated_arguments(signature.parameters[parameter], value, names):
            kind = parse_annotation(annotation, scope) if isinstance(annotation, str) else None
            if kind is not None and not kind.accepts(item):
                return f"{name}: {_describe_mismatch(label, item, kind)}"
    return None


def _annotated_arguments(
    parameter: inspect.Parameter, value: Any, names: dict[str, Any]
) -> Iterator[tuple[str, Any, object, dict[str, Any]]]:
    """Yield the label, value and annotation of the arguments of a parameter, and the names that the annotation uses."""
    annotation = parameter.annotation
    if parameter.kind is parameter.VAR_POSITIONAL:
        yield from ((f"{parameter.name}[{k}]", element, annotation, names) for k, element in enumerate(value))
    elif parameter.kind is parameter.VAR_KEYWORD and (match := re.fullmatch(r"Unpack\[(\w+)\]", str(annotation))):
        typed_dict = names[match[1]]
        fields = {field: getattr(a, "__forward_arg__", a) for field, a in typed_dict.__annotations__.items()}
        scope = vars(sys.modules[typed_dict.__module__])
        yield from ((keyword, item, fields.get(keyword), scope) for keyword, item in value.items())
    elif parameter.kind is parameter.VAR_KEYWORD:
        yield from ((keyword, item, annotation, names) for keyword, item in value.items())
    else:
        yield parameter.name, value, annotation, names


def _describe_mismatch(label: str, value: Any, kind: ArgumentKind) -> str:
    """Describe a value that its kind does not accept; for lists, the first element that is not accepted."""
    if kind.element is not None and isinstance(value, list | tuple):
        for k, element in enumerate(cast("list[Any]", value)):
            if not kind.element.accepts(element):
                return _describe_mismatch(f"{label}[{k}]", element, kind.element)
    return f"{label} = {format_value(value)}; expected {kind.singular}"


def without_validation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the wrapped function itself, for calls from inside dlc."""
    return cast(Any, function).__wrapped__ if getattr(function, "__code__", None) is _CALL else function


def format_value(value: Any) -> str:
    """Return a short text for an argument: dtype and shape of an array, else its repr."""
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
        return f"{value.dtype}{list(value.shape)}"
    large = isinstance(value, int) and value.bit_length() > 47
    return f"{_REPR.repr(value)} (of {value.bit_length()} bits)" if large else _REPR.repr(value)


def _format_signature(name: str, signature: inspect.Signature) -> str:
    """Return the signature as text, without annotations."""
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    text = text.replace("(self, ", "(").replace("(self)", "()")
    return name.rpartition(".")[2] + re.sub(r"<class '(?:numpy\.)?(\w+)'>", r"\1", text)
