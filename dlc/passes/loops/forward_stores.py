"""`forward-stores`: store-to-load forwarding, and elimination of dead stores and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dlc.dialects.workgroup import is_workgroup
from dlc.ir import Block, BlockArgument, Context, Operation, SSAValue, func, gpu, memref, scf, vector
from dlc.passes.base import KernelPass
from dlc.passes.loops.iter_args import add_iter_args

# A memory location with its access shape: the buffer, the indices, the permutation map (None for a scalar), and the type of
# the value.
Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class ForwardStoresPass(KernelPass):
    """Replace a load by the value last stored to the same location, and erase dead stores.

        vector.transfer_write %a, %t[%c0, %c0];  %b = vector.transfer_read %t[%c0, %c0];  … %b …
      →
        … %a …

    A loop that accesses one location of a local buffer carries its value as an iter_arg:

        scf.for %k … { %a = vector.transfer_read %t[%c0]; …; vector.transfer_write %b, %t[%c0] }
      →
        %r = scf.for %k … iter_args(%a = …) { …; scf.yield %b };  vector.transfer_write %r, %t[%c0]

    Views of the same buffer may alias, buffers with different roots do not: arguments do not alias. A local buffer that is
    never read is erased with its stores; a store is erased if the same location is stored again before any read. After a
    barrier any buffer may have changed, except those private to a work-item.
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
    """Return the location that an op stores to, and the value."""
    match op:
        case vector.TransferWriteOp():
            return (op.source, *op.indices, op.permutation_map, op.vector.type), op.vector
        case memref.StoreOp():
            return (op.memref, *op.indices, None, op.value.type), op.value
        case _:
            return None


@dataclass(frozen=True)
class _StoredValue:
    """A value in memory, and the store that wrote it if it is in the current block (else None)."""

    value: SSAValue
    store: Operation | None


def _forward(block: Block, stored_values: dict[Key, _StoredValue]) -> None:
    for op in list(block.ops):
        load, store = _load_key(op), _store_key(op)
        if load is not None:
            if load in stored_values:
                op.results[0].replace_all_uses_with(stored_values[load].value)
                op.detach()
                op.erase()
            else:
                _mark_stores_as_read(stored_values, _root(load[0]))
        elif store is not None:
            key, value = store
            overwritten = stored_values.get(key)
            if overwritten is not None and overwritten.store is not None:
                overwritten.store.detach()
                overwritten.store.erase()
            root = _root(key[0])
            for other in [k for k in stored_values if _root(k[0]) is root]:
                del stored_values[other]
            stored_values[key] = _StoredValue(value, op)
        elif isinstance(op, gpu.BarrierOp):
            _invalidate_shared(stored_values)
        elif op.regions:
            stored_roots = {_root(k[0]) for k, _ in _stores_within(op)}
            surviving = {k: v for k, v in stored_values.items() if _root(k[0]) not in stored_roots}
            if any(isinstance(inner, gpu.BarrierOp) for inner in op.walk()):
                _invalidate_shared(surviving)
            carried: dict[Key, _StoredValue] = {}
            if isinstance(op, scf.ForOp):
                carried = {k: v for k, v in stored_values.items() if _root(k[0]) in stored_roots and _is_carried(op, k)}
                op = add_iter_args(op, [entry.value for entry in carried.values()]) if carried else op
            arguments = op.regions[0].block.args[-len(carried) :] if carried else ()
            for region in op.regions:
                for inner in region.blocks:
                    values_in_body = {k: _StoredValue(v.value, None) for k, v in surviving.items()}
                    values_in_body |= {k: _StoredValue(a, None) for k, a in zip(carried, arguments, strict=True)}
                    _forward(inner, values_in_body)
                    if carried:
                        _yield_carried(inner, [values_in_body[k].value for k in carried])
            for root in {_root(k[0]) for k in _loads_within(op)}:
                _mark_stores_as_read(surviving, root)
            results = op.results[len(op.results) - len(carried) :]
            stores = _stores_after(op, list(carried), results)
            stored_values.clear()
            stored_values.update(surviving)
            stored_values.update({k: _StoredValue(r, s) for k, r, s in zip(carried, results, stores, strict=True)})


def _is_private(root: SSAValue) -> bool:
    return isinstance(root.owner, memref.AllocaOp) and not is_workgroup(root)


def _invalidate_shared(stored_values: dict[Key, _StoredValue]) -> None:
    for key in [k for k in stored_values if not _is_private(_root(k[0]))]:
        del stored_values[key]


def _is_carried(loop: scf.ForOp, key: Key) -> bool:
    """Return whether a loop accesses a private buffer at a single location, in every iteration."""
    root = _root(key[0])
    if not _is_private(root):
        return False
    for op in loop.walk():
        store = _store_key(op)
        accessed = _load_key(op) if store is None else store[0]
        if accessed is None or _root(accessed[0]) is not root:
            continue
        parent = op.parent_op()
        while parent is not loop and isinstance(parent, scf.ForOp):
            parent = parent.parent_op()
        if accessed != key or parent is not loop:
            return False
    return True


def _yield_carried(body: Block, values: Sequence[SSAValue]) -> None:
    last = body.last_op
    assert last is not None
    last.operands = [*last.operands, *values]


def _stores_after(loop: Operation, keys: Sequence[Key], results: Sequence[SSAValue]) -> list[Operation]:
    """Move the stores to these locations after the loop, storing its final values."""
    final_stores: list[Operation] = []
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
        final_stores.append(last)
    return final_stores


def _mark_stores_as_read(stored_values: dict[Key, _StoredValue], root: SSAValue) -> None:
    """Mark stores to a buffer as read, so that they are not erased."""
    for key, entry in stored_values.items():
        if entry.store is not None and _root(key[0]) is root:
            stored_values[key] = _StoredValue(entry.value, None)


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
    """Yield the ops that use a buffer, directly and through views; a view before its users."""
    for use in list(buffer.uses):
        yield use.operation
        if isinstance(use.operation, memref.SubviewOp | memref.ReinterpretCastOp):
            yield from _users(use.operation.results[0])
