"""The exceptions of dlc. Messages name the op, the location, the expected and the actual value, and the next step."""


class DlcError(Exception):
    """The base class of every error that dlc raises on purpose."""


class ModelError(DlcError):
    """The model file is malformed, truncated or malicious."""


class UnsupportedError(DlcError):
    """A feature that dlc does not support; `problems` lists every occurrence, one line each."""

    def __init__(self, message: str, problems: list[str] | None = None) -> None:
        super().__init__(message)
        self.problems = problems if problems is not None else [message]


class ShapeError(DlcError, ValueError):
    """Shapes do not fit an operation, an input of a model or an argument."""


class OutOfBoundsError(ShapeError, IndexError):
    """An index or an axis is out of bounds."""


class ArgumentError(DlcError, ValueError):
    """An argument is not one of the values that the function accepts."""


class DTypeError(DlcError, TypeError):
    """An operation, an input of a model or an argument does not accept this dtype or type."""


class OutOfRangeError(DTypeError, OverflowError):
    """A dtype does not represent a number."""


class CompileError(DlcError):
    """A bug in dlc; the message names the failing pass and the command that reproduces it."""


class AbsentError(DlcError, AttributeError):
    """A module or array of dlc does not have an attribute of this name."""


class AbsentPartError(DlcError, KeyError):
    """A result of a submitted call does not have a part of this name or index."""

    # KeyError quotes its message.
    __str__ = Exception.__str__


class DeviceError(DlcError):
    """A target or device does not exist or cannot run the program."""


class DeadlineError(DlcError, TimeoutError):
    """A submitted call did not start before its deadline; it did not run."""


class QueueFullError(DlcError):
    """A queue of submitted calls is full, and waiting for space is not possible."""


class MemoryLimitError(DlcError, MemoryError):
    """A call needs more memory for intermediate results than DLC_MEMORY_LIMIT allows; it did not run."""


class TooLargeError(DeviceError):
    """Some kernels exceed the resources of a device; `kernels` has the reason for each."""

    def __init__(self, kernels: dict[str, str]) -> None:
        super().__init__("\n".join(f"kernel {name}: {reason}" for name, reason in kernels.items()))
        self.kernels = kernels
