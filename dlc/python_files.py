"""Files of Python that users name: a target of their own, a function to explore."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from dlc.errors import DlcError


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
