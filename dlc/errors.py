"""The errors that dlc raises: each says op, place, expected, got and the next step."""


class DlcError(Exception):
    """Base of every error that dlc raises on purpose."""


class ModelError(DlcError):
    """A model file that is malformed, truncated or hostile."""


class UnsupportedError(DlcError):
    """Something that dlc does not support yet; `problems` lists every finding, one line each."""

    def __init__(self, message: str, problems: list[str] | None = None) -> None:
        super().__init__(message)
        self.problems = problems if problems is not None else [message]


class ShapeError(DlcError, ValueError):
    """Shapes that do not fit an operation, a model's input or an argument."""


class DTypeError(DlcError, TypeError):
    """An element type that an operation, a model's input or an argument does not take."""


class CompileError(DlcError):
    """A bug of dlc itself; the message names the failing pass and the line that reproduces it."""


class AbsentError(DlcError, AttributeError):
    """A name that a module or an array of dlc does not have."""


class DeviceError(DlcError):
    """A target or device that is absent or cannot hold what it is asked to run."""


class TooLargeError(DeviceError):
    """Kernels that a device cannot hold, each with the reason."""

    def __init__(self, kernels: dict[str, str]) -> None:
        super().__init__("\n".join(f"kernel {name}: {reason}" for name, reason in kernels.items()))
        self.kernels = kernels
