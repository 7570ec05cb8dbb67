"""Unsupported features of a model: collected node by node and reported in one error."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dlc.arrays import TensorInfo
from dlc.errors import DlcError, DTypeError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.size_guards import imported_node
from dlc.shapes.dims import UndecidableError

ADVICE_BY_KIND = {
    "operator": "export the model with other operators, or write a converter (docs/extending.md)",
    "opset": "export for another opset, or convert the model with onnx.version_converter",
    "attribute": "export with a value that is supported",
    "dtype": "export with another dtype, or cast the operands to one; keep text processing outside the model",
    "input": "export without this input, or with a constant for it",
    "output": "export without this output",
    "value": "make it a constant of the model, or give the shapes of the inputs (--shape, input_shapes) or their values "
    "(--value, input_values)",
    "shape": "the node contradicts the shapes of its inputs: fix the model, or give other input shapes",
}


@dataclass(frozen=True)
class Problem:
    """One unsupported feature: `description` names the node or tensor, `kind` is a key of `ADVICE_BY_KIND`.

    `needs_specialization`: the problem may disappear for concrete input shapes and values; `inputs` are the inputs whose values
    it depends on.
    """

    description: str
    kind: str
    message: str
    inputs: tuple[str, ...] = ()
    needs_specialization: bool = False

    def __str__(self) -> str:
        return f"{self.description}: {self.kind}: {self.message}"


class NodeProblem(Exception):
    """Raised for an unsupported node; the importer records it and continues with the next node.

    `unknown` are the values that would have to be constant.
    """

    def __init__(self, kind: str, message: str, unknown: Sequence[ImportedValue] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.unknown = unknown


class AlreadyReported(Exception):
    """Raised for a node that cannot be imported because of problems inside it that are already recorded."""


class SpecializationRequiredError(UnsupportedError):
    """A model that can be imported only for concrete input shapes, and for concrete values of the inputs in `values`.

    `values` are the inputs found so far; specifying them may reveal more. `inputs` and `outputs` are as the file
    declares them.
    """

    def __init__(
        self, error: UnsupportedError, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], values: Sequence[str]
    ) -> None:
        super().__init__(str(error), error.problems)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.values = tuple(values)


def unsupported_error(model: str, problems: Sequence[Problem]) -> UnsupportedError:
    """Return the error that lists every problem, one line each."""
    count = "1 feature" if len(problems) == 1 else f"{len(problems)} features"
    lines = [str(p) for p in problems]
    advice = [f"{kind}: {text}" for kind, text in ADVICE_BY_KIND.items() if any(p.kind == kind for p in problems)]
    listing = "\n  ".join([f"{model}: {count} in this model that dlc does not support:", *lines])
    return UnsupportedError("\n  ".join([f"{listing}\nWhat to do:", *advice]), lines)


def join_messages(problems: Sequence[Problem]) -> str:
    """Return the messages of shape contradictions, one line each, without advice."""
    return "\n".join(f"{p.description}: {p.message}" for p in problems)


@contextmanager
def translate_errors(description: str, inputs: Sequence[ImportedValue | None]) -> Generator[None]:
    """Translate errors of a converter into a NodeProblem or ModelError for the operator `description`.

    Guards of comparisons in the `with` block name the operator.
    """
    token = imported_node.set(description)
    try:
        yield
    except UndecidableError as error:
        raise NodeProblem("value", f"{error}; give the model's input shapes") from error
    except UnsupportedError as error:
        raise NodeProblem("dtype", str(error)) from error
    except (ShapeError, DTypeError) as error:
        raise NodeProblem("dtype" if isinstance(error, DTypeError) else "shape", str(error)) from error
    except (IndexError, ValueError, ZeroDivisionError, OverflowError) as error:
        # Converters unpack shapes and attributes without checking each; invalid ones raise these errors.
        input_types = ", ".join("none" if v is None else str(v.type) for v in inputs)
        raise ModelError(f"{description}: its inputs ({input_types}) or attributes do not fit together: {error}") from error
    except MemoryError as error:
        raise ModelError(f"{description}: out of memory while importing it: {error}") from error
    finally:
        imported_node.reset(token)


def unsupported_model_error(
    model: str, problems: Sequence[Problem], inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], has_input_shapes: bool
) -> DlcError:
    """Return the error that reports all problems of a model; `has_input_shapes`: whether the caller specified shapes.

    It is a SpecializationRequiredError if specifying shapes or values of inputs may help.
    """
    if all(p.kind == "shape" for p in problems):
        # Without input shapes from the caller, the model contradicts itself.
        return (ShapeError if has_input_shapes else ModelError)(join_messages(problems))
    certain = [p for p in problems if not p.needs_specialization]
    error = unsupported_error(model, certain or problems)
    input_names = {name for p in problems for name in p.inputs}
    return (
        error
        if certain
        else SpecializationRequiredError(error, inputs, outputs, [i.name for i in inputs if i.name in input_names])
    )
