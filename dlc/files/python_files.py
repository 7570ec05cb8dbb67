"""Files of Python that users name: a target of their own, a function to explore."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from dlc.errors import DlcError

_DLC = Path(__file__).parents[1]


def executed(path: str) -> ModuleType:
    """The module that a file makes, run anew.

    Raises DlcError for a file that cannot be read, and for what running it raises.
    """
    spec = spec_from_file_location(f"run by dlc: {path}", path)
    if spec is None or spec.loader is None:
        raise DlcError(f"{path} is no Python file")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise DlcError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:
        raise DlcError(f"{path}: running it raises {type(error).__name__}: {error}") from error
    return module


def traced_to(error: Exception, module: ModuleType) -> tuple[int | None, bool]:
    """The last line of a user's module that an error went through, and whether it is dlc that raised it from there.

    What other packages raise is the doing of who called them.
    """
    frames = [frame for frame in extract_tb(error.__traceback__) if _is_of(frame.filename, module)]
    lines = [frame.lineno for frame in frames if frame.filename == module.__file__]
    last = frames[-1] if frames else None
    return lines[-1] if lines else None, last is not None and last.filename != module.__file__


def _is_of(file: str, module: ModuleType) -> bool:
    return file == module.__file__ or Path(file).is_relative_to(_DLC)
