"""NumPy's calling convention: its parameter names and positions, and parameters that a traced array has no use for.

    dlc.numpy.sum(a=x, axis=0, out=None)    # dlc.numpy.sum(x, 0)

A call that does not match the signature of a function of `dlc.numpy` is matched with that of NumPy's function. Parameters that
only NumPy has are accepted with their default value, and with the values of `_ACCEPTED_VALUES`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature, isroutine
from itertools import islice, takewhile
from types import ModuleType
from typing import Any

import numpy as np

from dlc.argument_validation.validate import CallConverter, format_value
from dlc.errors import UnsupportedError
from dlc.numpy.apply import refuse

# (positional arguments, keyword arguments)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

# Values with the same effect as the default: of the memory layout, subclasses of arrays, and memory that may be overwritten.
_ACCEPTED_VALUES: Mapping[str, Sequence[object]] = {
    "assume_unique": (False, True),
    "copy": (True, None),
    "initial": (None,),
    "keepdims": (False,),
    "optimize": (None, False, True, "greedy", "optimal"),
    "order": (None, "C", "K", "A"),
    "overwrite_input": (False, True),
    "sorted": (False, True),
    "subok": (False, True),
    "where": (True, None),
}


def numpy_converters(module: ModuleType, names: Iterable[str]) -> Mapping[str, CallConverter]:
    """Return the conversion of calls of the functions of these names that a module of NumPy has."""
    functions = {
        name: function for name in names if isroutine(function := getattr(module, name, None)) or isinstance(function, np.ufunc)
    }
    return {name: partial(convert_numpy_call, function) for name, function in functions.items()}


def convert_numpy_call(
    numpy_function: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments | None:
    """Return the arguments for `function` of a call that matches the signature of NumPy's function.

    None: the call matches neither signature, or it matches that of `function` already. Raises UnsupportedError for a value that
    a parameter which only NumPy has does not accept.
    """
    signature = inspect.signature(function)
    if _bind(signature, args, kwargs) is not None:
        return None
    numpy_parameters = parameters_of_numpy(numpy_function)
    bound = _bind(_merged_signature(signature, numpy_parameters), args, kwargs)
    if bound is None:
        return None
    names, given = positional_names(signature, numpy_parameters), bound.arguments
    count = max((k + 1 for k, name in enumerate(names) if name in given), default=0)
    positional = [given.get(name, signature.parameters[own].default) for name, own in islice(names.items(), count)]
    keywords = dict[str, Any]()
    for name, value in given.items():
        kind = bound.signature.parameters[name].kind
        if kind is Parameter.VAR_POSITIONAL:
            positional.extend(value)
        elif kind is Parameter.VAR_KEYWORD:
            keywords.update(value)
        elif name in signature.parameters and name not in names:
            keywords[name] = value
        elif name not in names:
            _require_accepted(function.__name__, numpy_parameters[name], value)
    return tuple(positional), keywords


def parameters_of_numpy(numpy_function: Callable[..., Any]) -> Mapping[str, Parameter]:
    """Return the parameters of a NumPy function; none for a function in C that the version of NumPy does not describe."""
    try:
        return inspect.signature(numpy_function).parameters
    except ValueError:
        return {}


def positional_names(signature: Signature, numpy_parameters: Mapping[str, Parameter]) -> Mapping[str, str]:
    """Return the positional-only parameter of `signature` for each leading parameter of NumPy's function."""
    own_names = [name for name, p in signature.parameters.items() if p.kind is Parameter.POSITIONAL_ONLY]
    leading = takewhile(lambda p: p.kind is not Parameter.VAR_POSITIONAL, numpy_parameters.values())
    return {p.name: name for p, name in zip(leading, own_names, strict=False)}


def is_accepted(parameter: Parameter, value: object) -> bool:
    """Return whether a parameter that only NumPy has accepts a value."""
    return value is parameter.default or any(
        value is accepted or (isinstance(value, str | int) and value == accepted)
        for accepted in (parameter.default, *_ACCEPTED_VALUES.get(parameter.name, ()))
    )


def _merged_signature(signature: Signature, numpy_parameters: Mapping[str, Parameter]) -> Signature:
    """Return NumPy's signature with the keywords that only `signature` has."""
    own = [
        p.replace(kind=Parameter.KEYWORD_ONLY)
        for p in signature.parameters.values()
        if p.name not in numpy_parameters and p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]
    parameters = list(numpy_parameters.values())
    position = len(parameters) - (bool(parameters) and parameters[-1].kind is Parameter.VAR_KEYWORD)
    return Signature([*parameters[:position], *own, *parameters[position:]])


def _bind(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments | None:
    try:
        return signature.bind(*args, **kwargs)
    except TypeError:
        return None


def _require_accepted(name: str, parameter: Parameter, value: object) -> None:
    if not is_accepted(parameter, value):
        default = "its default" if "no value" in repr(parameter.default) else repr(parameter.default)
        refuse(UnsupportedError(f"{name}: {parameter.name} = {format_value(value)}; dlc.numpy supports {default} only"))
