"""Run Python files of the user: a custom target, a function to explore."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from dlc.errors import DlcError

_DLC = Path(__file__).parents[1]


def run_python_file(path: str) -> ModuleType:
    """Execute a file as a new module and return it.

    Raises DlcError for a file that cannot be read, and for errors that it raises.
    """
    spec = spec_from_file_location(f"run by dlc: {path}", path)
    if spec is None or spec.loader is None:
        raise DlcError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise DlcError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:
        raise DlcError(f"{path}: it raised {type(error).__name__}: {error}") from error
    return module


def locate_error(error: Exception, module: ModuleType) -> tuple[int | None, bool]:
    """Return the last line of a user's module in an error's traceback, and whether dlc raised the error from there.

    Errors of other packages are attributed to their caller.
    """
    frames = [frame for frame in extract_tb(error.__traceback__) if _is_in(frame.filename, module)]
    lines = [frame.lineno for frame in frames if frame.filename == module.__file__]
    last = frames[-1] if frames else None
    return lines[-1] if lines else None, last is not None and last.filename != module.__file__


def _is_in(file: str, module: ModuleType) -> bool:
    return file == module.__file__ or Path(file).is_relative_to(_DLC)
