"""Functions that say how they are differentiated."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import dl
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.programs.control import captured
from dlc.dialects.dl.programs.transformations import Custom
from dlc.dialects.places import place
from dlc.errors import UnsupportedError
from dlc.ir import Block, SSAValue
from dlc.passes.autodiff.bodies import ForwardWalk, ReverseWalk, at_end, copy_of, end, silent_copy_of, substitute, yielded
from dlc.passes.autodiff.rules import is_differentiable
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.autodiff.term import Term


def _floats(values: Sequence[SSAValue]) -> list[SSAValue]:
    return [v for v in values if is_differentiable(v)]


def _require_closed(op: Custom, moving: bool) -> None:
    """Raises UnsupportedError for a body that reads what is differentiated by from above: its rule knows nothing of that."""
    if moving:
        repair = "pass it as an argument"
        raise UnsupportedError(
            f"{place(op.location)}{op.name}: the function uses a value from around it that is differentiated; {repair}"
        )


def _put(b: Build, block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """Moves the ops of a body, for these arguments, to where the builder inserts: what it yields."""
    for parameter, argument in zip(block.args, arguments, strict=True):
        parameter.replace_all_uses_with(argument)
    last = block.last_op
    for inner in list(block.ops):
        if inner is not last:
            location = inner.location
            inner.detach()
            b.insert(inner).location = location
    values = list(yielded(block))
    block.erase(safe_erase=False)
    return values


def custom_jvp_forward(op: dl.CustomJvpOp, walk: ForwardWalk) -> None:
    """The rule, for the arguments and their tangents."""
    _require_closed(op, any(v in walk.tangents for body in op.blocks for v in captured(body)))
    b, count = Build(op), len(op.results)
    tangents = [walk.tangent(v, b) for v in _floats(op.arguments)]
    made = _put(b, copy_of(op.blocks[1]), [*op.arguments, *tangents])
    substitute(op, made[:count])
    walk.tangents |= zip(_floats(made[:count]), made[count:], strict=True)


def custom_jvp_reverse(op: dl.CustomJvpOp, walk: ReverseWalk) -> None:
    """The transpose of the rule."""
    _require_closed(op, any(v in walk.active for body in op.blocks for v in captured(body)))
    rule, count = copy_of(op.blocks[1]), len(op.arguments)
    for parameter, argument in zip(list(rule.args[:count]), op.arguments, strict=True):
        parameter.replace_all_uses_with(argument)
        rule.erase_arg(parameter)
    moving: list[SSAValue] = []
    for parameter, argument in zip(list(rule.args), _floats(op.arguments), strict=True):
        if argument in walk.active:
            moving.append(argument)
        else:
            parameter.replace_all_uses_with(zeros(walk.b, argument).value)
            rule.erase_arg(parameter)
    tangents = list(yielded(rule))[len(op.results) :]
    last = rule.last_op
    assert last is not None
    last.detach()
    last.erase()
    pulled = {t: ct for t, r in zip(tangents, _floats(op.results), strict=True) if (ct := walk.take(r)) is not None}
    walk.transpose(rule, moving, pulled)


def custom_vjp_forward(op: dl.CustomVjpOp, walk: ForwardWalk) -> None:
    """There is none."""
    repair = "give the function a rule by dlc.custom_jvp, which serves both modes"
    raise UnsupportedError(f"{place(op.location)}a function with a rule by custom_vjp has no forward mode; {repair}")


def custom_vjp_reverse(op: dl.CustomVjpOp, walk: ReverseWalk) -> None:
    """The forward rule in the place of the function, and the backward rule for what that keeps."""
    _require_closed(op, any(v in walk.active for body in op.blocks for v in captured(body)))
    cotangents = [(walk.take(r) or zeros(walk.b, r)).value for r in _floats(op.results)]
    arguments, count = list(op.arguments), len(op.results)
    made = _put(Build(op), copy_of(op.blocks[1]), arguments)
    pulled = _put(walk.b, copy_of(op.blocks[2]), [*made[count:], *cotangents])
    substitute(op, made[:count])
    for argument, ct in zip(_floats(arguments), pulled, strict=True):
        walk.add(argument, Term(walk.b, ct))


def checkpoint_forward(op: dl.CheckpointOp, walk: ForwardWalk) -> None:
    """Nothing is kept in forward mode: it is its body, tangents beside."""
    (body,) = [copy_of(block) for block in op.blocks]
    walk.tangents |= {p: walk.tangents[a] for p, a in zip(body.args, op.arguments, strict=True) if a in walk.tangents}
    walk.walk(body)
    substitute(op, _put(Build(op), body, list(op.arguments)))


def checkpoint_reverse(op: dl.CheckpointOp, walk: ReverseWalk) -> None:
    """The function once more, not before the cotangents of its results are there, and the cotangents of what it reads."""
    body, arguments = silent_copy_of(op.block), list(op.arguments)
    moving = [i for i, v in enumerate(arguments) if v in walk.active]
    read = [v for v in captured(op.block) if v in walk.active]
    cotangents = {i: ct for i, r in enumerate(op.results) if (ct := walk.take(r)) is not None}
    count = len(body.args)
    seeds: dict[int, SSAValue] = {i: body.insert_arg(ct.value.type, len(body.args)) for i, ct in cotangents.items()}
    wrt = [*(body.args[i] for i in moving), *read]
    pulled = walk.inside(body, wrt, seeds)
    b = at_end(body)
    end(body, [zeros(b, v).value if ct is None else ct for v, ct in zip(wrt, pulled, strict=True)])
    first = next(iter(cotangents.values())).value
    late = [walk.b(dl.AfterOp, v, first) for v in arguments]
    made = _put(walk.b, body, [*late[:count], *(ct.value for ct in cotangents.values())])
    for value, ct in zip([*(arguments[i] for i in moving), *read], made, strict=True):
        walk.add(value, Term(walk.b, ct))
