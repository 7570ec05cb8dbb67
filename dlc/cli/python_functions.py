"""Functions of Python files, named FILE.py:FUNCTION on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from itertools import takewhile
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from dlc.errors import AbsentError, DlcError, DTypeError, ModelError
from dlc.files.python_files import locate_error, run_python_file

if TYPE_CHECKING:
    from dlc.just_in_time.jit_function import JitFunction
    from dlc.just_in_time.lowered import Lowered

# Arguments of these kinds are passed by position, because derivatives refer to arguments by position.
_POSITIONAL_KINDS = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD


@dataclass(frozen=True)
class FileFunction:
    """A function of a Python file, and its parameters."""

    file: str
    name: str
    module: ModuleType
    function: JitFunction
    parameters: Mapping[str, Parameter]

    def bind(self, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments of a call. Raises UsageError for missing and unknown arguments."""
        self._require_parameters(arguments)
        names = list(takewhile(arguments.__contains__, (p for p, k in self.parameters.items() if k.kind in _POSITIONAL_KINDS)))
        return [arguments[name] for name in names], {name: v for name, v in arguments.items() if name not in names}

    def lower(self, positional: Sequence[Any], keywords: Mapping[str, Any], dtype_advice: str) -> Lowered:
        """Trace the function for arguments.

        Raises ModelError with the line for an exception of the function, and DTypeError with advice for a dtype.
        """
        try:
            return self.function.lower(*positional, **keywords)
        except Exception as error:
            is_absent = isinstance(error, AbsentError)
            if isinstance(error, DTypeError) and dtype_advice:
                raise DTypeError(f"{error}; {dtype_advice}") from error
            if isinstance(error, DlcError) and not is_absent:
                raise
            line, is_dlc_fault = locate_error(error, self.module)
            if line is not None and (is_absent or not is_dlc_fault):
                message = str(error) if is_absent else f"{type(error).__name__}: {error}"
                raise ModelError(f"{self.file}:{line}: {message}") from error
            if line is not None:
                error.add_note(f"raised at {self.file}:{line}")
            raise

    def _require_parameters(self, arguments: Mapping[str, Any]) -> None:
        if not any(k.kind is k.VAR_KEYWORD for k in self.parameters.values()):
            unknown = [argument for argument in arguments if argument not in self.parameters]
            if unknown:
                raise click.UsageError(
                    f"{self.name} has no parameter {', '.join(unknown)}; "
                    f"its parameters are {', '.join(self.parameters) or 'none'}"
                )
        missing = [p for p, k in self.parameters.items() if k.default is k.empty and p not in arguments]
        if missing:
            raise click.UsageError(f"{self.name} needs the argument {', '.join(missing)}: add --shape {missing[0]}=SIZE,…")


def read_function(file: str, name: str) -> FileFunction:
    """Run a Python file and return one of its functions. Raises ModelError if there is none of that name."""
    # Imported here because only functions need the JIT compiler.
    from dlc.just_in_time.decorator import jit
    from dlc.just_in_time.jit_function import JitFunction

    module = run_python_file(file)
    attribute = getattr(module, name, None)
    if not callable(attribute):
        raise ModelError(f"{file}: no function is named {name}")
    function = attribute if isinstance(attribute, JitFunction) else jit(attribute)
    return FileFunction(file, name, module, function, signature(attribute).parameters)
