"""`forward-stores`: what was just stored is not loaded again, and buffers that nobody reads go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dlc.dialects.workgroup import is_workgroup
from dlc.ir import Block, BlockArgument, Context, Operation, SSAValue, func, gpu, memref, scf, vector
from dlc.passes.base import KernelPass

# A place in memory with the shape of what is there: the buffer, the indices, the permutation map (None for a scalar) and
# the type of the value.
Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class ForwardStoresPass(KernelPass):
    """Replaces a load by the value that was last stored to exactly that place, and drops stores that are never read.

        vector.transfer_write %a, %t[%c0, %c0];  %b = vector.transfer_read %t[%c0, %c0];  … %b …
      →
        … %a …

    A loop carries what it would leave at one place of a local buffer for its next iteration:

        scf.for %k … { %a = vector.transfer_read %t[%c0]; …; vector.transfer_write %b, %t[%c0] }
      →
        %r = scf.for %k … iter_args(%a = …) { …; scf.yield %b };  vector.transfer_write %r, %t[%c0]

    Two views of one buffer are taken to overlap, buffers with different roots not: arguments do not alias. A local buffer
    that is only written goes with its writes; a write is dropped when the same place is written again before any read.
    Behind a barrier any buffer may have changed but those that an item has for itself.
    """

    name = "forward-stores"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        _forward(kernel.body.block, {})
        _drop_unread_locals(kernel)


def _root(buffer: SSAValue) -> SSAValue:
    while not isinstance(buffer, BlockArgument) and isinstance(buffer.owner, memref.SubviewOp | memref.ReinterpretCastOp):
        buffer = buffer.owner.source
    return buffer


def _load_key(op: Operation) -> Key | None:
    match op:
        case vector.TransferReadOp():
            return (op.source, *op.indices, op.permutation_map, op.result.type)
        case memref.LoadOp():
            return (op.memref, *op.indices, None, op.res.type)
        case _:
            return None


def _store_key(op: Operation) -> tuple[Key, SSAValue] | None:
    """The place that an op stores to, and the value."""
    match op:
        case vector.TransferWriteOp():
            return (op.source, *op.indices, op.permutation_map, op.vector.type), op.vector
        case memref.StoreOp():
            return (op.memref, *op.indices, None, op.value.type), op.value
        case _:
            return None


@dataclass(frozen=True)
class _Known:
    """A value in memory, and the store in the current block that put it there (None if it stands in an outer block)."""

    value: SSAValue
    store: Operation | None


def _forward(block: Block, known: dict[Key, _Known]) -> None:
    for op in list(block.ops):
        load, store = _load_key(op), _store_key(op)
        if load is not None:
            if load in known:
                op.results[0].replace_all_uses_with(known[load].value)
                op.detach()
                op.erase()
            else:
                _forget_stores(known, _root(load[0]))
        elif store is not None:
            key, value = store
            overwritten = known.get(key)
            if overwritten is not None and overwritten.store is not None:
                overwritten.store.detach()
                overwritten.store.erase()
            root = _root(key[0])
            for other in [k for k in known if _root(k[0]) is root]:
                del known[other]
            known[key] = _Known(value, op)
        elif isinstance(op, gpu.BarrierOp):
            _forget_shared(known)
        elif op.regions:
            written = {_root(k[0]) for k, _ in _stores_within(op)}
            kept = {k: v for k, v in known.items() if _root(k[0]) not in written}
            if any(isinstance(inner, gpu.BarrierOp) for inner in op.walk()):
                _forget_shared(kept)
            carried: dict[Key, _Known] = {}
            if isinstance(op, scf.ForOp):
                carried = {k: v for k, v in known.items() if _root(k[0]) in written and _is_carried(op, k)}
                op = _with_carried(op, carried) if carried else op
            arguments = op.regions[0].block.args[-len(carried) :] if carried else ()
            for region in op.regions:
                for inner in region.blocks:
                    inside = {k: _Known(v.value, None) for k, v in kept.items()}
                    inside |= {k: _Known(a, None) for k, a in zip(carried, arguments, strict=True)}
                    _forward(inner, inside)
                    if carried:
                        _yield_carried(inner, [inside[k].value for k in carried])
            for root in {_root(k[0]) for k in _loads_within(op)}:
                _forget_stores(kept, root)
            results = op.results[len(op.results) - len(carried) :]
            stores = _stores_after(op, list(carried), results)
            known.clear()
            known.update(kept)
            known.update({k: _Known(r, s) for k, r, s in zip(carried, results, stores, strict=True)})


def _is_private(root: SSAValue) -> bool:
    return isinstance(root.owner, memref.AllocaOp) and not is_workgroup(root)


def _forget_shared(known: dict[Key, _Known]) -> None:
    for key in [k for k in known if not _is_private(_root(k[0]))]:
        del known[key]


def _is_carried(loop: scf.ForOp, key: Key) -> bool:
    """Whether a loop touches a private buffer at one place only, and in each iteration."""
    root = _root(key[0])
    if not _is_private(root):
        return False
    for op in loop.walk():
        store = _store_key(op)
        touched = _load_key(op) if store is None else store[0]
        if touched is None or _root(touched[0]) is not root:
            continue
        parent = op.parent_op()
        while parent is not loop and isinstance(parent, scf.ForOp):
            parent = parent.parent_op()
        if touched != key or parent is not loop:
            return False
    return True


def _with_carried(loop: scf.ForOp, carried: dict[Key, _Known]) -> scf.ForOp:
    """The loop with more values that it carries, which its body does not yield yet."""
    values = [entry.value for entry in carried.values()]
    body = loop.detach_region(loop.body)
    for value in values:
        body.block.insert_arg(value.type, len(body.block.args)).name_hint = value.name_hint
    types = [*(r.type for r in loop.results), *(v.type for v in values)]
    new = scf.ForOp.create(
        operands=[*loop.operands, *values],
        result_types=types,
        properties=loop.properties,
        attributes=loop.attributes,
        regions=[body],
    )
    new.location = loop.location
    block = loop.parent
    assert block is not None
    block.insert_op_before(new, loop)
    for old, result in zip(loop.results, new.results, strict=False):
        old.replace_all_uses_with(result)
    loop.detach()
    loop.erase()
    return new


def _yield_carried(body: Block, values: Sequence[SSAValue]) -> None:
    last = body.last_op
    assert last is not None
    last.operands = [*last.operands, *values]


def _stores_after(loop: Operation, keys: Sequence[Key], results: Sequence[SSAValue]) -> list[Operation]:
    """Moves the stores to these places behind the loop, of what it has carried to its end."""
    moved: list[Operation] = []
    for key, result in zip(keys, results, strict=True):
        stores = [op for op in loop.walk() if (s := _store_key(op)) is not None and s[0] == key]
        block = loop.parent
        assert block is not None
        value = _store_key(stores[0])
        assert value is not None
        # Every operand but the value is defined before the loop.
        last = stores[0].clone({value[1]: result})
        block.insert_op_after(last, loop)
        for op in stores:
            op.detach()
            op.erase()
        moved.append(last)
    return moved


def _forget_stores(known: dict[Key, _Known], root: SSAValue) -> None:
    """The buffer is read: stores to it must stay."""
    for key, entry in known.items():
        if entry.store is not None and _root(key[0]) is root:
            known[key] = _Known(entry.value, None)


def _stores_within(op: Operation) -> Iterator[tuple[Key, SSAValue]]:
    return (s for inner in op.walk() if (s := _store_key(inner)) is not None)


def _loads_within(op: Operation) -> Iterator[Key]:
    return (k for inner in op.walk() if (k := _load_key(inner)) is not None)


def _drop_unread_locals(kernel: func.FuncOp) -> None:
    for op in list(kernel.walk()):
        if isinstance(op, memref.AllocaOp):
            users = list(_users(op.memref))
            if all(isinstance(u, memref.SubviewOp | memref.ReinterpretCastOp) or _store_key(u) is not None for u in users):
                for user in reversed(users):
                    user.detach()
                    user.erase()
                op.detach()
                op.erase()


def _users(buffer: SSAValue) -> Iterator[Operation]:
    """The ops that use a buffer, directly and through views; a view before its users."""
    for use in list(buffer.uses):
        yield use.operation
        if isinstance(use.operation, memref.SubviewOp | memref.ReinterpretCastOp):
            yield from _users(use.operation.results[0])
