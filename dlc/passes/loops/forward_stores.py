"""`forward-stores`: store-to-load forwarding, and elimination of dead stores and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from dlc.dialects.workgroup import is_workgroup
from dlc.ir import (
    Block,
    Context,
    Operation,
    SSAValue,
    contains,
    erase_op,
    func,
    gpu,
    memref,
    scf,
    vector,
    walk_ops,
)
from dlc.passes.base import KernelPass
from dlc.passes.loops.iter_args import add_iter_args
from dlc.passes.types import viewed_buffer

# A memory location with its access shape: the buffer, the indices, the permutation map (None for a scalar), and the type of
# the value.
Key: TypeAlias = tuple[Any, ...]

_LOADS, _STORES = (vector.TransferReadOp, memref.LoadOp), (vector.TransferWriteOp, memref.StoreOp)


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


def _location(access: Operation) -> tuple[SSAValue, Key]:
    """Return the root of the buffer that an op loads from or stores to, and the location."""
    store = _store_key(access)
    key = cast(Key, _load_key(access)) if store is None else store[0]
    return viewed_buffer(key[0]), key


@dataclass(frozen=True)
class _StoredValue:
    """The location in a buffer that was stored last, its value, and the store if it is in the current block (else None)."""

    key: Key
    value: SSAValue
    store: Operation | None


# The last store to each buffer, by its root, in the order of the stores: earlier stores to other locations may alias.
_StoredValues: TypeAlias = dict[SSAValue, _StoredValue]


def _forward(block: Block, stored_values: _StoredValues) -> None:
    for op in list(block.ops):
        load, store = _load_key(op), _store_key(op)
        if load is not None:
            root = viewed_buffer(load[0])
            entry = stored_values.get(root)
            if entry is not None and entry.key == load:
                op.results[0].replace_all_uses_with(entry.value)
                erase_op(op)
            else:
                _mark_store_as_read(stored_values, root)
        elif store is not None:
            key, value = store
            root = viewed_buffer(key[0])
            overwritten = stored_values.pop(root, None)
            if overwritten is not None and overwritten.store is not None and overwritten.key == key:
                erase_op(overwritten.store)
            stored_values[root] = _StoredValue(key, value, op)
        elif isinstance(op, gpu.BarrierOp):
            _invalidate_shared(stored_values)
        elif op.regions:
            stored_roots = {_location(store)[0] for store in walk_ops(op, *_STORES)}
            surviving = {root: entry for root, entry in stored_values.items() if root not in stored_roots}
            if contains(op, gpu.BarrierOp):
                _invalidate_shared(surviving)
            carried: _StoredValues = {}
            if isinstance(op, scf.ForOp):
                locations = _single_locations(op, [r for r in stored_values if r in stored_roots and _is_private(r)])
                carried = {r: entry for r, entry in stored_values.items() if r in locations and locations[r] == entry.key}
                op = add_iter_args(op, [entry.value for entry in carried.values()]) if carried else op
            arguments = op.regions[0].block.args[-len(carried) :] if carried else ()
            for region in op.regions:
                for inner in region.blocks:
                    values_in_body = {r: _StoredValue(e.key, e.value, None) for r, e in surviving.items()}
                    for (root, entry), argument in zip(carried.items(), arguments, strict=True):
                        values_in_body[root] = _StoredValue(entry.key, argument, None)
                    _forward(inner, values_in_body)
                    if carried:
                        _yield_carried(inner, [values_in_body[root].value for root in carried])
            for root in {_location(load)[0] for load in walk_ops(op, *_LOADS)}:
                _mark_store_as_read(surviving, root)
            results = op.results[len(op.results) - len(carried) :]
            stored_values.clear()
            stored_values.update(surviving)
            for (root, entry), result in zip(carried.items(), results, strict=True):
                stored_values[root] = _StoredValue(entry.key, result, _store_after(op, root, result))


def _is_private(root: SSAValue) -> bool:
    return isinstance(root.owner, memref.AllocaOp) and not is_workgroup(root)


def _invalidate_shared(stored_values: _StoredValues) -> None:
    for root in [root for root in stored_values if not _is_private(root)]:
        del stored_values[root]


def _single_locations(loop: scf.ForOp, roots: Sequence[SSAValue]) -> dict[SSAValue, Key]:
    """Return those of the buffers that a loop accesses at a single location, in every iteration, and this location."""
    locations: dict[SSAValue, Key | None] = dict.fromkeys(roots)
    for op in walk_ops(loop, *_LOADS, *_STORES) if roots else ():
        root, key = _location(op)
        if root not in locations:
            continue
        parent = op.parent_op()
        while parent is not loop and isinstance(parent, scf.ForOp):
            parent = parent.parent_op()
        if parent is not loop or locations[root] not in (None, key):
            del locations[root]
        else:
            locations[root] = key
    return {root: key for root, key in locations.items() if key is not None}


def _yield_carried(body: Block, values: Sequence[SSAValue]) -> None:
    last = body.last_op
    assert last is not None
    last.operands = [*last.operands, *values]


def _store_after(loop: Operation, root: SSAValue, result: SSAValue) -> Operation:
    """Move the stores to a buffer, all to one location, after the loop, storing its final value."""
    stores = [op for op in walk_ops(loop, *_STORES) if _location(op)[0] is root]
    block, value = loop.parent, _store_key(stores[0])
    assert block is not None and value is not None
    # Every operand but the value is defined before the loop.
    last = stores[0].clone({value[1]: result})
    block.insert_op_after(last, loop)
    for op in stores:
        erase_op(op)
    return last


def _mark_store_as_read(stored_values: _StoredValues, root: SSAValue) -> None:
    """Mark the last store to a buffer as read, so that it is not erased."""
    entry = stored_values.get(root)
    if entry is not None and entry.store is not None:
        stored_values[root] = _StoredValue(entry.key, entry.value, None)


def _drop_unread_locals(kernel: func.FuncOp) -> None:
    for op in list(kernel.walk()):
        if isinstance(op, memref.AllocaOp):
            users = list(_users(op.memref))
            if all(isinstance(u, memref.SubviewOp | memref.ReinterpretCastOp) or _store_key(u) is not None for u in users):
                for user in reversed(users):
                    erase_op(user)
                erase_op(op)


def _users(buffer: SSAValue) -> Iterator[Operation]:
    """Yield the ops that use a buffer, directly and through views; a view before its users."""
    for use in list(buffer.uses):
        yield use.operation
        if isinstance(use.operation, memref.SubviewOp | memref.ReinterpretCastOp):
            yield from _users(use.operation.results[0])
