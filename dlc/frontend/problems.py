"""What a model asks for that dlc does not support: found node by node, reported all at once."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dlc.arrays import TensorInfo
from dlc.dims import UndecidableError
from dlc.errors import DlcError, DTypeError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.emit import Value

WHAT_TO_DO = {
    "operator": "export the model with other operators, or write a converter (docs/extending.md)",
    "opset": "export for another opset, or convert the model with onnx.version_converter",
    "attribute": "export with a value that is supported",
    "dtype": "export with another dtype, or cast the operands to one; keep text processing outside the model",
    "input": "export without this input, or with a constant for it",
    "output": "export without this output",
    "value": "make it a constant of the model, or give the shapes of the inputs (--shape, input_shapes) or their values "
    "(--value, input_values)",
    "shape": "the node contradicts the shapes before it: mend the model, or give other shapes of its inputs",
}


@dataclass(frozen=True)
class Problem:
    """One unsupported thing: `place` names the node or tensor, `kind` is what about it.

    Kinds: those that `WHAT_TO_DO` has advice for. One that may be none for the shapes and values of a call is `at_call`;
    `inputs` are the inputs whose values would tell, where it hangs on values.
    """

    place: str
    kind: str
    message: str
    inputs: tuple[str, ...] = ()
    at_call: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.kind}: {self.message}"


class NodeProblem(Exception):
    """Raised where a node turns out to be unsupported; the importer notes it and goes on with the next node.

    `unknown` are the values that would have to be known.
    """

    def __init__(self, kind: str, message: str, unknown: Sequence[Value] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.unknown = unknown


class AlreadyNoted(Exception):
    """Raised where a node cannot be imported for want of what it holds, which the importer has noted."""


class OpenInputsError(UnsupportedError):
    """A model that can be imported only for a call: for the shapes of its inputs, and for the values of those in `values`.

    `values` are those that were found to be needed; with them given, more may be. `inputs` and `outputs` are as the file
    declares them.
    """

    def __init__(
        self, error: UnsupportedError, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], values: Sequence[str]
    ) -> None:
        super().__init__(str(error), error.problems)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.values = tuple(values)


def unsupported(model: str, problems: Sequence[Problem]) -> UnsupportedError:
    """The error that lists every problem, one line each."""
    count = "1 thing" if len(problems) == 1 else f"{len(problems)} things"
    lines = [str(p) for p in problems]
    advice = [f"{kind}: {text}" for kind, text in WHAT_TO_DO.items() if any(p.kind == kind for p in problems)]
    found = "\n  ".join([f"{model}: {count} in this model that dlc does not support:", *lines])
    return UnsupportedError("\n  ".join([f"{found}\nWhat to do:", *advice]), lines)


def contradictions(problems: Sequence[Problem]) -> str:
    """Problems of a model that contradicts itself, and nothing else."""
    return "\n".join(f"{p.place}: {p.message}" for p in problems)


@contextmanager
def as_problems(place: str, inputs: Sequence[Value | None]) -> Generator[None]:
    """What goes wrong when a converter is run, as what is wrong with the operator at `place`: NodeProblem or ModelError."""
    try:
        yield
    except UndecidableError as error:
        raise NodeProblem("value", f"{error}; give the model's input shapes") from error
    except UnsupportedError as error:
        raise NodeProblem("dtype", str(error)) from error
    except (ShapeError, DTypeError) as error:
        raise NodeProblem("dtype" if isinstance(error, DTypeError) else "shape", str(error)) from error
    except (IndexError, ValueError, ZeroDivisionError, OverflowError) as error:
        # A converter takes shapes apart as the operator defines them; other shapes do not come apart so.
        given = ", ".join("none" if v is None else str(v.type) for v in inputs)
        raise ModelError(f"{place}: its inputs ({given}) or attributes do not fit together: {error}") from error
    except MemoryError as error:
        raise ModelError(f"{place}: it takes more memory than there is to read it: {error}") from error


def refusal(
    model: str, problems: Sequence[Problem], inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], given: bool
) -> DlcError:
    """The error that says what is wrong with a model, all at once; `given`: whether a caller gave shapes of its inputs.

    It is an OpenInputsError where giving shapes or values of inputs may help.
    """
    if all(p.kind == "shape" for p in problems):
        # With the model's own shapes it is the model that contradicts itself.
        return (ShapeError if given else ModelError)(contradictions(problems))
    certain = [p for p in problems if not p.at_call]
    error = unsupported(model, certain or problems)
    asked = {name for p in problems for name in p.inputs}
    return error if certain else OpenInputsError(error, inputs, outputs, [i.name for i in inputs if i.name in asked])
