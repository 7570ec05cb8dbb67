"""The training step of a model as a program: losses of `dlc.nn` and optimizers of `dlc.optim`, traced around the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from dlc import nn, optim
from dlc.arrays import TensorInfo
from dlc.calculus.gradients import value_and_grad
from dlc.compiler import Program
from dlc.dialects.dl.base import Array, Tensor, tensor_type
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.dialects.entry import entry_of
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.donation import donate
from dlc.frontend.trace import Trace, Tracer, tracing
from dlc.ir import FileLineColLoc, NameLoc, NoneAttr, SSAValue, StringAttr, UnknownLoc
from dlc.numpy import mean
from dlc.shapes.dims import is_static
from dlc.training.entry import EntryBuilder
from dlc.training.model_names import ModelNames, format_names
from dlc.training.model_transforms import Loss, TrainStep

# The default weight decay of adamw, as in PyTorch.
_DEFAULT_WEIGHT_DECAY = 0.01
LOSS, LEARNING_RATE = "loss", "learning_rate"
# The name of the input that the loss compares the output with.
TARGETS: dict[Loss, str] = {"mse": "targets", "cross_entropy": "labels"}


def trained_output(names: ModelNames, step: TrainStep) -> str:
    """Return the output that the loss is computed from. Raises DlcError if it must be specified."""
    if step.of is None and len(names.outputs) != 1:
        raise DlcError(
            f"{names.model}: the model has several outputs: {format_names(names.outputs)}; select one with `of` (--of)"
        )
    output = names.outputs[0] if step.of is None else step.of
    if step.loss == "cross_entropy" and output in names.logits:
        raise DlcError(
            f"{names.model}: '{output}' is the output of a softmax, but cross_entropy takes logits; set `of` (--of) to "
            f"'{names.logits[output]}'"
        )
    return output


def make_optimizer(step: TrainStep, learning_rate: Any) -> optim.Optimizer:
    """Return the optimizer of a training step."""
    match step.optimizer:
        case "sgd":
            return optim.sgd(learning_rate, momentum=step.momentum)
        case "adam":
            return optim.adam(learning_rate)
        case "adamw":
            decay = _DEFAULT_WEIGHT_DECAY if step.weight_decay is None else step.weight_decay
            return optim.adamw(learning_rate, weight_decay=decay)


def build_training_step(program: Program, step: TrainStep, output: str) -> Program:
    """Return the program of a training step of a program whose weights are inputs.

    Inputs: those of the model, `labels` (integers, for cross_entropy) or `targets` (like the output, for mse), `learning_rate`,
    the weights, and the optimizer state: `count`, `velocity:NAME` or `mean:NAME` and `square:NAME`. Outputs: `loss`, then the
    updated weights and state under the names of their inputs. Learning rate, weights and state are optional inputs; the weights
    default to those of the file.

    Raises DTypeError or ShapeError for an output that does not suit the loss, ModelError for names that the model uses too, and
    ShapeError for donated inputs with symbolic dimensions.
    """
    info = next(info for info in program.outputs if info.name == output)
    trace = Trace()
    trace.weights = program.weights
    entry, weights, rate = EntryBuilder(trace.block), list(program.defaults), np.asarray(step.rate, np.float32)
    entry.add_inputs(program, defaults=False)
    entry.add_input(TARGETS[step.loss], _target_type(program.name, step.loss, info))
    entry.add_input(LEARNING_RATE, _type_of(rate), rate)
    entry.add_inputs(program, defaults=True)
    initial_state = make_optimizer(step, step.rate).init(dict(program.defaults))
    state = {name: np.asarray(array) for name, array in _flatten_state(initial_state).items()}
    for name, array in state.items():
        entry.add_input(name, _type_of(array), array)
    tracers = {name: Tracer(trace, value) for name, value in entry.arguments.items()}
    with tracing(trace):

        def loss_of(params: Mapping[str, Tracer]) -> Any:
            result = _inline_program(program, trace, {**tracers, **params})[output]
            return _LOSSES[step.loss](result, tracers[TARGETS[step.loss]])

        params = {name: tracers[name] for name in weights}
        loss, gradient = value_and_grad(loss_of)(params)
        current_state = _unflatten_state(initial_state, [tracers[name] for name in state])
        updates, new_state = make_optimizer(step, tracers[LEARNING_RATE]).update(gradient, current_state, params)
        updated = {**optim.apply_updates(params, updates), **_flatten_state(new_state)}
    entry.add_outputs([(LOSS, loss.value), *((name, updated[name].value) for name in (*weights, *state))])
    for op in trace.block.walk():
        if isinstance(op.location, FileLineColLoc | UnknownLoc):
            # The location would be in dlc or in the caller's code, neither of which is the origin of the op.
            op.location = NameLoc(StringAttr(f"{step.optimizer} step"), NoneAttr())
    step_program = entry.of(program)
    if step.donate:
        if dynamic := [str(info) for info in step_program.inputs if not is_static(info.shape)]:
            raise ShapeError(f"{program.name}: donate needs static shapes, got {dynamic[0]}; give them with --shape")
        donate(step_program.module, [entry.inputs.index(name) for name in (*weights, *state)], program.name)
    return step_program


def _target_type(model: str, loss: Loss, output: TensorInfo) -> Tensor:
    """Return the type of the loss target. Raises DTypeError or ShapeError for an output that does not suit the loss."""
    if not is_float(element_type(output.dtype)):
        raise DTypeError(f"{model}: {loss}: expected an output of a float dtype, got {output}")
    if loss == "mse":
        return tensor_type(output.shape, element_type(output.dtype))
    if not output.shape:
        raise ShapeError(f"{model}: cross_entropy: expected logits with classes along the last axis, got {output}")
    return tensor_type(output.shape[:-1], element_type(np.dtype(np.int64)))


def _cross_entropy(logits: Tracer, labels: Tracer) -> Any:
    return mean(nn.softmax_cross_entropy(logits, labels))


_LOSSES: dict[Loss, Callable[[Tracer, Tracer], Any]] = {"mse": nn.mse, "cross_entropy": _cross_entropy}


def _inline_program(program: Program, trace: Trace, inputs: Mapping[str, Tracer]) -> dict[str, Tracer]:
    """Inline a program into the trace and return its outputs."""
    main = entry_of(program.module)
    values: dict[SSAValue, SSAValue] = {
        argument: inputs[info.name].value for info, argument in zip(program.inputs, main.args, strict=True)
    }
    *ops, returned = main.body.block.ops
    for op in ops:
        trace.build.insert(op.clone(values))
    return {info.name: Tracer(trace, values[v]) for info, v in zip(program.outputs, returned.operands, strict=True)}


def _type_of(array: Array) -> Tensor:
    return tensor_type(array.shape, element_type(array.dtype))


def _flatten_state(state: Any) -> dict[str, Any]:
    """Return the arrays of an optimizer state by name: `count`, and for each weight `mean:NAME`."""
    flat_state: dict[str, Any] = {}
    for field, value in state._asdict().items():
        if isinstance(value, dict):
            flat_state |= {f"{field}:{name}": array for name, array in cast("dict[str, Any]", value).items()}
        elif value is not None:
            flat_state[field] = value
    return flat_state


def _unflatten_state(state: Any, arrays: Sequence[Any]) -> Any:
    """Return a state of the same structure, with arrays in the order of `_flatten_state`."""
    array_iterator = iter(arrays)
    fields = {
        field: {name: next(array_iterator) for name in cast("dict[str, Any]", value)}
        if isinstance(value, dict)
        else next(array_iterator)
        for field, value in state._asdict().items()
        if value is not None
    }
    return state._replace(**fields)
