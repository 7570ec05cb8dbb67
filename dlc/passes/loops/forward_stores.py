"""`forward-stores`: what was just stored is not loaded again, and buffers that nobody reads go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from dlc.ir import Block, BlockArgument, Context, Operation, SSAValue, func, memref, vector
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

    Two views of one buffer are taken to overlap, buffers with different roots not: arguments do not alias. A local buffer
    that is only written goes with its writes; a write is dropped when the same place is written again before any read.
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
        elif op.regions:
            written = {_root(k[0]) for k, _ in _stores_within(op)}
            kept = {k: v for k, v in known.items() if _root(k[0]) not in written}
            for region in op.regions:
                for inner in region.blocks:
                    _forward(inner, {k: _Known(v.value, None) for k, v in kept.items()})
            for root in {_root(k[0]) for k in _loads_within(op)}:
                _forget_stores(kept, root)
            known.clear()
            known.update(kept)


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
