"""A training step of a model as a program, traced from `dlc.nn`'s losses and `dlc.optim`'s optimisers around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from dlc import nn, optim
from dlc.arrays import TensorInfo
from dlc.calculus.gradients import value_and_grad
from dlc.compiler import Program
from dlc.derived import Loss, TrainStep
from dlc.dialects.dl.base import Array, Tensor, tensor_type
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.dialects.entry import entry_of
from dlc.dims import is_static
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.donation import donate
from dlc.frontend.trace import Trace, Tracer, tracing
from dlc.ir import FileLineColLoc, NameLoc, NoneAttr, SSAValue, StringAttr, UnknownLoc
from dlc.numpy import mean
from dlc.training.choosing import Names, listed
from dlc.training.entry import Entry

# What an optimiser decays where it is not said how much: PyTorch's.
_WEIGHT_DECAY = 0.01
LOSS, LEARNING_RATE = "loss", "learning_rate"
# What the loss compares the output with, as an input.
TARGETS: dict[Loss, str] = {"mse": "targets", "cross_entropy": "labels"}


def trained_output(names: Names, step: TrainStep) -> str:
    """The output that the loss is of. Raises DlcError where it has to be said."""
    if step.of is None and len(names.outputs) != 1:
        raise DlcError(f"{names.model}: of which output is the loss? It has {listed(names.outputs)}; say it in `of` (--of)")
    output = names.outputs[0] if step.of is None else step.of
    if step.loss == "cross_entropy" and output in names.logits:
        raise DlcError(
            f"{names.model}: '{output}' is a softmax, and cross_entropy takes what it is of: say '{names.logits[output]}' in "
            "`of` (--of)"
        )
    return output


def optimizer_of(step: TrainStep, learning_rate: Any) -> optim.Optimizer:
    """The optimiser that a step says."""
    match step.optimizer:
        case "sgd":
            return optim.sgd(learning_rate, momentum=step.momentum)
        case "adam":
            return optim.adam(learning_rate)
        case "adamw":
            decay = _WEIGHT_DECAY if step.weight_decay is None else step.weight_decay
            return optim.adamw(learning_rate, weight_decay=decay)


def step_of(program: Program, step: TrainStep, output: str) -> Program:
    """The program of a training step of a program whose weights are inputs.

    It takes the model's inputs, `labels` (integers, for cross_entropy) or `targets` (like the output, for mse),
    `learning_rate`, the weights, and the optimiser's state: `count`, `velocity:NAME` or `mean:NAME` and `square:NAME`. It
    gives `loss`, then the weights and the state after the step under the names that they are taken by. A call may leave out
    the learning rate, weights and state: it begins with the file's weights.

    Raises DTypeError or ShapeError for an output that the loss cannot be of, ModelError for names that the model has too, and
    ShapeError for sizes that are open where memory is donated.
    """
    info = next(info for info in program.outputs if info.name == output)
    trace = Trace()
    trace.weights = program.weights
    entry, weights, rate = Entry(trace.block), list(program.defaults), np.asarray(step.rate, np.float32)
    entry.take_inputs(program, defaults=False)
    entry.take(TARGETS[step.loss], _target_type(program.name, step.loss, info))
    entry.take(LEARNING_RATE, _type_of(rate), rate)
    entry.take_inputs(program, defaults=True)
    first = optimizer_of(step, step.rate).init(dict(program.defaults))
    state = {name: np.asarray(array) for name, array in _names_of(first).items()}
    for name, array in state.items():
        entry.take(name, _type_of(array), array)
    given = {name: Tracer(trace, value) for name, value in entry.arguments.items()}
    with tracing(trace):

        def loss_of(params: Mapping[str, Tracer]) -> Any:
            result = _run(program, trace, {**given, **params})[output]
            return _LOSSES[step.loss](result, given[TARGETS[step.loss]])

        params = {name: given[name] for name in weights}
        loss, gradient = value_and_grad(loss_of)(params)
        now = _like(first, [given[name] for name in state])
        updates, following = optimizer_of(step, given[LEARNING_RATE]).update(gradient, now, params)
        after = {**optim.apply_updates(params, updates), **_names_of(following)}
    entry.give([(LOSS, loss.value), *((name, after[name].value) for name in (*weights, *state))])
    for op in trace.block.walk():
        if isinstance(op.location, FileLineColLoc | UnknownLoc):
            # Whoever called dlc did not write this.
            op.location = NameLoc(StringAttr(f"{step.optimizer} step"), NoneAttr())
    made = entry.of(program)
    if step.donate:
        if open_ := [str(info) for info in made.inputs if not is_static(info.shape)]:
            raise ShapeError(f"{program.name}: donate needs sizes that are known; {open_[0]} has open ones: say them (--shape)")
        donate(made.module, [entry.inputs.index(name) for name in (*weights, *state)], program.name)
    return made


def _target_type(model: str, loss: Loss, output: TensorInfo) -> Tensor:
    """What the loss compares an output with. Raises DTypeError or ShapeError for an output that it cannot be of."""
    if not is_float(element_type(output.dtype)):
        raise DTypeError(f"{model}: {loss} of {output}, which is not of floats")
    if loss == "mse":
        return tensor_type(output.shape, element_type(output.dtype))
    if not output.shape:
        raise ShapeError(f"{model}: cross_entropy of {output}; expected logits, with a last axis of classes")
    return tensor_type(output.shape[:-1], element_type(np.dtype(np.int64)))


def _cross_entropy(logits: Tracer, labels: Tracer) -> Any:
    return mean(nn.softmax_cross_entropy(logits, labels))


_LOSSES: dict[Loss, Callable[[Tracer, Tracer], Any]] = {"mse": nn.mse, "cross_entropy": _cross_entropy}


def _run(program: Program, trace: Trace, inputs: Mapping[str, Tracer]) -> dict[str, Tracer]:
    """The outputs of a program, whose ops become part of what is traced."""
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


def _names_of(state: Any) -> dict[str, Any]:
    """The arrays of an optimiser's state: `count`, and for each weight `mean:NAME`."""
    named: dict[str, Any] = {}
    for field, value in state._asdict().items():
        if isinstance(value, dict):
            named |= {f"{field}:{name}": array for name, array in cast("dict[str, Any]", value).items()}
        elif value is not None:
            named[field] = value
    return named


def _like(state: Any, arrays: Sequence[Any]) -> Any:
    """A state of the same structure, of arrays in the order of their names."""
    left = iter(arrays)
    fields = {
        field: {name: next(left) for name in cast("dict[str, Any]", value)} if isinstance(value, dict) else next(left)
        for field, value in state._asdict().items()
        if value is not None
    }
    return state._replace(**fields)
