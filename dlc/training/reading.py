"""From a model's file to the program of what is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.caching.model_cache import DUMPED, TFLITE
from dlc.compiler import Program
from dlc.compiler.program import imported_program
from dlc.derived import Derivative, Derived, Parametrized, TrainStep
from dlc.dims import UndecidableError, is_static
from dlc.errors import DlcError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.onnx.graph import ModelFile, load
from dlc.frontend.problems import OpenInputsError
from dlc.given_shapes import GivenShapes
from dlc.passes.transformations.expand_transformations import expanded
from dlc.training.choosing import Names
from dlc.training.derivatives import derivative_of
from dlc.training.steps import step_of, trained_output


def derived_program(
    source: Path | bytes | ModelFile,
    derived: Derived,
    input_shapes: GivenShapes | None = None,
    input_values: Mapping[str, NDArray[Any]] | None = None,
) -> Program:
    """The program of a derivative, of a training step, or of the model itself with parameters, which is an ONNX model.

    Weights that it is with respect to, or that are parameters, are inputs, which a call may leave out: they are then what the
    file has. The others are constants, as in the model itself.

    Raises what the importer raises, DlcError and DTypeError for names that the model has not or that have no gradient, and
    UnsupportedError where the shapes or values of inputs have to be given first.
    """
    if isinstance(source, bytes) or (isinstance(source, Path) and source.suffix in (DUMPED, TFLITE, ".dlc")):
        name = source if isinstance(source, Path) else "model"
        raise ModelError(
            f"{name}: derivatives, training steps and models with parameters are made of ONNX models, whose weights have names"
        )
    file = load(source)
    names = Names.of(file)
    if isinstance(derived, Parametrized):
        chosen, of, parameters = list[str](), tuple[str, ...](), names.parameters(derived.names)
    else:
        of, chosen = _meant(file, names, derived, input_values or {})
        parameters = [w.name for w in names.weights if w.name in chosen]
    inner = [name for name in of if name not in names.outputs]
    try:
        program = imported_program(
            file, file.stem, input_shapes or {}, input_values, extra_outputs=inner, parameters=parameters
        )
    except OpenInputsError as error:
        if needed := [name for name in error.values if name in parameters]:
            lost, option = (
                ("they are no inputs", "parameters")
                if isinstance(derived, Parametrized)
                else ("there is no gradient with respect to them", "wrt")
            )
            raise UnsupportedError(
                f"{file.name}: {', '.join(needed)}: the model can only be compiled for values of these, so that {lost}; leave "
                f"them out of {option}\n{error}",
                error.problems,
            ) from error
        raise UnsupportedError(str(error), error.problems) from error
    match derived:
        case Parametrized():
            made = program
        case Derivative():
            made = derivative_of(program, derived, chosen)
        case TrainStep():
            made = step_of(program, derived, of[0])

    def read_for(known: Mapping[str, Sequence[int]]) -> Program:
        own = {info.name: known[info.name] for info in names.inputs if info.name in known}
        return derived_program(source, derived, {**(input_shapes or {}), **own}, input_values)

    return replace(_settled(made), read_for=read_for)


def _meant(
    file: ModelFile, names: Names, derived: Derivative | TrainStep, values: Mapping[str, NDArray[Any]]
) -> tuple[tuple[str, ...], list[str]]:
    """The outputs that are differentiated, and the inputs and weights that they are differentiated by."""
    of = derived.of if isinstance(derived, Derivative) else (trained_output(names, derived),)
    for name in of:
        names.require_output(name)
    chosen = [info.name for info in names.chosen(derived.wrt)]
    if fixed := [name for name in chosen if name in values]:
        raise DlcError(f"{file.name}: {', '.join(fixed)}: made a constant, which has no gradient; leave it out of wrt")
    if isinstance(derived, TrainStep) and (given := [i.name for i in names.inputs if i.name in chosen]):
        raise DlcError(f"{file.name}: wrt: {', '.join(given)} is an input; a training step changes weights")
    return of, chosen


def _settled(program: Program) -> Program:
    """A program whose sizes are open with plain ops in it, where the rules need to know none of them.

    Then it is compiled once for all sizes, as a model is; else for each set of them, and the rules apply to that.
    """
    if all(is_static(info.shape) for info in program.inputs):
        return program
    try:
        return replace(program, module=expanded(program.module))
    except (UndecidableError, ShapeError):
        return program
