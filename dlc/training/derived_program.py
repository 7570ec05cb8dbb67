"""Import an ONNX model and apply a model transform: a derivative, a training step, or parameters as inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.caching.model_cache import MLIR_SUFFIX, TFLITE_SUFFIX
from dlc.compiler import Program
from dlc.compiler.program import imported_program
from dlc.errors import DlcError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.onnx.graph import ModelFile, load
from dlc.frontend.problems import SpecializationRequiredError
from dlc.passes.transformations.expand_transformations import expand_for_evaluation
from dlc.shapes.dims import UndecidableError, is_static
from dlc.shapes.shape_specs import ShapeSpecs, TensorShape
from dlc.training.derivatives import build_derivative
from dlc.training.model_names import ModelNames
from dlc.training.model_transforms import DerivativeRequest, ModelTransform, ParameterizedModel, TrainStep
from dlc.training.training_step import build_training_step, trained_output


def derived_program(
    source: Path | bytes | ModelFile,
    transform: ModelTransform,
    input_shapes: ShapeSpecs | None = None,
    input_values: Mapping[str, NDArray[Any]] | None = None,
) -> Program:
    """Return the program of a derivative, of a training step, or of an ONNX model with parameters as inputs.

    Parameters, and the weights in `wrt`, become optional inputs that default to the values in the file. All other weights are
    constants.

    Raises the importer's errors, DlcError and DTypeError for names that do not exist or have no gradient, and UnsupportedError
    if the model needs `input_shapes` or `input_values`.
    """
    if isinstance(source, bytes) or (isinstance(source, Path) and source.suffix in (MLIR_SUFFIX, TFLITE_SUFFIX, ".dlc")):
        name = source if isinstance(source, Path) else "model"
        raise ModelError(f"{name}: derivatives, training steps and parameters need an ONNX model: they select weights by name")
    file = load(source)
    names = ModelNames.of(file)
    if isinstance(transform, ParameterizedModel):
        wrt_names, output_names, parameters = list[str](), tuple[str, ...](), names.parameters(transform.names)
    else:
        output_names, wrt_names = _select_targets(file, names, transform, input_values or {})
        parameters = [w.name for w in names.weights if w.name in wrt_names]
    inner_outputs = [name for name in output_names if name not in names.outputs]
    try:
        program = imported_program(
            file, file.stem, input_shapes or {}, input_values, extra_outputs=inner_outputs, parameters=parameters
        )
    except SpecializationRequiredError as error:
        if needed := [name for name in error.values if name in parameters]:
            consequence, option = (
                ("they cannot be inputs", "parameters")
                if isinstance(transform, ParameterizedModel)
                else ("they have no gradient", "wrt")
            )
            raise UnsupportedError(
                f"{file.name}: {', '.join(needed)}: the shapes or the control flow depend on their values, so {consequence}; "
                f"remove them from {option}\n{error}",
                error.problems,
            ) from error
        raise UnsupportedError(str(error), error.problems) from error
    match transform:
        case ParameterizedModel():
            derived = program
        case DerivativeRequest():
            derived = build_derivative(program, transform, wrt_names)
        case TrainStep():
            derived = build_training_step(program, transform, output_names[0])

    def reimport(sizes: Mapping[str, TensorShape]) -> Program:
        known_input_shapes = {info.name: sizes[info.name] for info in names.inputs if info.name in sizes}
        return derived_program(source, transform, {**(input_shapes or {}), **known_input_shapes}, input_values)

    return replace(_expand_transforms_if_dynamic(derived), reimport=reimport)


def _select_targets(
    file: ModelFile, names: ModelNames, transform: DerivativeRequest | TrainStep, values: Mapping[str, NDArray[Any]]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the outputs to differentiate, and the inputs and weights with respect to which they are differentiated."""
    output_names = transform.of if isinstance(transform, DerivativeRequest) else (trained_output(names, transform),)
    for name in output_names:
        names.require_output(name)
    wrt_names = [info.name for info in names.select(transform.wrt)]
    if fixed_names := [name for name in wrt_names if name in values]:
        raise DlcError(
            f"{file.name}: {', '.join(fixed_names)}: a constant has no gradient; remove it from wrt or from the values"
        )
    if isinstance(transform, TrainStep) and (input_names := [i.name for i in names.inputs if i.name in wrt_names]):
        raise DlcError(f"{file.name}: wrt: expected weights, got the input {', '.join(input_names)}")
    return output_names, wrt_names


def _expand_transforms_if_dynamic(program: Program) -> Program:
    """Expand the vjp, jvp and vmap ops of a dynamic-shape program, unless a rule needs static sizes.

    The program can then be compiled once for all sizes; otherwise it is expanded and compiled per specialization.
    """
    if all(is_static(info.shape) for info in program.inputs):
        return program
    try:
        return replace(program, module=expand_for_evaluation(program.module))
    except (UndecidableError, ShapeError):
        return program
