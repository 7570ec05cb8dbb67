"""Derivatives of functions with custom rules (custom_jvp, custom_vjp, linear_call), and of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.control import captured_values
from dlc.dialects.dl.programs.transformations import CustomDerivativeRule
from dlc.dialects.location_text import location_prefix
from dlc.errors import UnsupportedError
from dlc.ir import Block, SSAValue, erase_op
from dlc.passes.autodiff.bodies import (
    ForwardModeContext,
    ReverseModeContext,
    builder_at_end,
    clone_body,
    clone_body_without_prints,
    replace_and_erase,
    replace_yield,
    yielded_values,
)
from dlc.passes.autodiff.rules import is_differentiable
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term


def _floats(values: Sequence[SSAValue]) -> list[SSAValue]:
    return [v for v in values if is_differentiable(v)]


def _require_closed(op: CustomDerivativeRule, captures_differentiated: bool) -> None:
    """Raise UnsupportedError for a body that captures a differentiated value, since its custom rule ignores captured values."""
    if captures_differentiated:
        repair = "pass it as an argument"
        raise UnsupportedError(
            f"{location_prefix(op.location)}{op.name}: the function captures a differentiated value; {repair}"
        )


def _inline_body(build: DlBuilder, block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Move the ops of a body to the insertion point, with these arguments; return the values that it yields."""
    for parameter, argument in zip(block.args, arguments, strict=True):
        parameter.replace_all_uses_with(argument)
    last = block.last_op
    for inner in list(block.ops):
        if inner is not last:
            location = inner.location
            inner.detach()
            build.insert(inner).location = location
    values = list(yielded_values(block))
    block.erase(safe_erase=False)
    return values


def custom_jvp_forward(op: dl.CustomJvpOp, context: ForwardModeContext) -> None:
    """Inline the jvp rule, for the arguments and their tangents."""
    _require_closed(op, any(v in context.tangents for body in op.blocks for v in captured_values(body)))
    build, count = DlBuilder(op), len(op.results)
    tangents = [context.tangent(v, build) for v in _floats(op.arguments)]
    results = _inline_body(build, clone_body(op.blocks[1]), [*op.arguments, *tangents])
    replace_and_erase(op, results[:count])
    context.tangents |= zip(_floats(results[:count]), results[count:], strict=True)


def custom_jvp_reverse(op: dl.CustomJvpOp, context: ReverseModeContext) -> None:
    """Transpose the jvp rule."""
    _require_closed(op, any(v in context.active for body in op.blocks for v in captured_values(body)))
    rule, count = clone_body(op.blocks[1]), len(op.arguments)
    for parameter, argument in zip(list(rule.args[:count]), op.arguments, strict=True):
        parameter.replace_all_uses_with(argument)
        rule.erase_arg(parameter)
    differentiated: list[SSAValue] = []
    for parameter, argument in zip(list(rule.args), _floats(op.arguments), strict=True):
        if argument in context.active:
            differentiated.append(argument)
        else:
            parameter.replace_all_uses_with(zeros(context.build, argument).value)
            rule.erase_arg(parameter)
    tangents = list(yielded_values(rule))[len(op.results) :]
    last = rule.last_op
    assert last is not None
    erase_op(last)
    cotangents = {
        t: cotangent for t, r in zip(tangents, _floats(op.results), strict=True) if (cotangent := context.take(r)) is not None
    }
    context.transpose(rule, differentiated, cotangents)


def custom_vjp_forward(op: dl.CustomVjpOp, context: ForwardModeContext) -> None:
    """Raise UnsupportedError: a custom vjp has no forward mode."""
    repair = "define its rule with dlc.custom_jvp, which supports both modes"
    raise UnsupportedError(f"{location_prefix(op.location)}a function with a custom_vjp rule has no forward mode; {repair}")


def custom_vjp_reverse(op: dl.CustomVjpOp, context: ReverseModeContext) -> None:
    """Inline the forward rule in place of the function, and the backward rule for its residuals."""
    _require_closed(op, any(v in context.active for body in op.blocks for v in captured_values(body)))
    cotangents = [(context.take(r) or zeros(context.build, r)).value for r in _floats(op.results)]
    arguments, count = list(op.arguments), len(op.results)
    results = _inline_body(DlBuilder(op), clone_body(op.blocks[1]), arguments)
    argument_cotangents = _inline_body(context.build, clone_body(op.blocks[2]), [*results[count:], *cotangents])
    replace_and_erase(op, results[:count])
    for argument, cotangent in zip(_floats(arguments), argument_cotangents, strict=True):
        context.add(argument, Term(context.build, cotangent))


def linear_call_forward(op: dl.LinearCallOp, context: ForwardModeContext) -> None:
    """Apply the function to the tangents as well."""
    if any(v in context.tangents for v in op.arguments):
        build = DlBuilder(op)
        tangents = [context.tangent(v, build) for v in op.arguments]
        linear_call = build.insert(dl.LinearCallOp.of(tangents, *map(clone_body, op.blocks)))
        context.tangents |= zip(op.results, linear_call.results, strict=True)


def linear_call_reverse(op: dl.LinearCallOp, context: ReverseModeContext) -> None:
    """Apply the transpose to the cotangents, or transpose the body."""
    if context.active.isdisjoint(op.arguments):
        return
    cotangents = [context.take(r) or zeros(context.build, r) for r in op.results]
    bodies = [clone_body(block) for block in op.blocks]
    function, transpose = bodies[0], bodies[-1]
    if len(bodies) == 1:
        values = dict(zip(yielded_values(function), cotangents, strict=True))
        last = function.last_op
        assert last is not None
        erase_op(last)
        try:
            context.transpose(function, list(op.arguments), values)
        except UnsupportedError as error:
            hint = "reverse mode needs the solver of the transposed system (transpose_solve of dlc.lax.custom_linear_solve)"
            raise UnsupportedError(f"{error.args[0]}: a solver with a loop cannot be transposed op by op; {hint}") from error
        return
    linear_call = dl.LinearCallOp.of([cotangent.value for cotangent in cotangents], transpose, function)
    for argument, cotangent in zip(op.arguments, context.build.insert(linear_call).results, strict=True):
        context.add(argument, Term(context.build, cotangent))


def checkpoint_forward(op: dl.CheckpointOp, context: ForwardModeContext) -> None:
    """Inline the body with tangents: forward mode saves no residuals."""
    (body,) = [clone_body(block) for block in op.blocks]
    context.tangents |= {p: context.tangents[a] for p, a in zip(body.args, op.arguments, strict=True) if a in context.tangents}
    context.walk(body)
    replace_and_erase(op, _inline_body(DlBuilder(op), body, list(op.arguments)))


def checkpoint_reverse(op: dl.CheckpointOp, context: ReverseModeContext) -> None:
    """Recompute the function once the cotangents of its results are complete, and pull these back through it."""
    body, arguments = clone_body_without_prints(op.block), list(op.arguments)
    differentiated = [i for i, v in enumerate(arguments) if v in context.active]
    captures = [v for v in captured_values(op.block) if v in context.active]
    cotangents = {i: cotangent for i, r in enumerate(op.results) if (cotangent := context.take(r)) is not None}
    count = len(body.args)
    seeds: dict[int, SSAValue] = {
        i: body.insert_arg(cotangent.value.type, len(body.args)) for i, cotangent in cotangents.items()
    }
    wrt = [*(body.args[i] for i in differentiated), *captures]
    wrt_cotangents = context.pull_back_block(body, wrt, seeds)
    build = builder_at_end(body)
    replace_yield(
        body,
        [zeros(build, v).value if cotangent is None else cotangent for v, cotangent in zip(wrt, wrt_cotangents, strict=True)],
    )
    first_cotangent = next(iter(cotangents.values())).value
    ordered_arguments = [context.build(dl.AddDependencyOp, v, first_cotangent) for v in arguments]
    results = _inline_body(
        context.build, body, [*ordered_arguments[:count], *(cotangent.value for cotangent in cotangents.values())]
    )
    for value, cotangent in zip([*(arguments[i] for i in differentiated), *captures], results, strict=True):
        context.add(value, Term(context.build, cotangent))
