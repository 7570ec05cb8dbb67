"""Grouped matrix products: groups of rows, each multiplied by its own matrix, as in mixtures of experts."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax
from dlc.errors import UnsupportedError
from dlc.numpy.apply import convert, refuse
from dlc.pytorch.rules.rule_table import RuleTable

table = RuleTable()

# Maximum number of rows per block: enough to amortize loading the matrix.
_MAX_BLOCK_ROWS = 64


def _bounds(ends: Any) -> tuple[Any, Any]:
    """Return the starts and ends of consecutive groups."""
    limits: Any = convert(ends, np.int64)
    return dnp.concat([np.zeros(1, np.int64), limits[:-1]]), limits


class RowBlocks:
    """Rows [m, k] in groups that end at `ends` [groups], split into blocks of about the average number of rows of a group.

    A block belongs to one group, so that it is multiplied by one matrix; the last block of a group may extend beyond it. Rows
    after the last end belong to no group.
    """

    def __init__(self, rows: int, ends: Any) -> None:
        groups = int(ends.shape[0])
        self.block_rows = min(_MAX_BLOCK_ROWS, 1 << (max(rows // groups, 1).bit_length() - 1))
        self.starts, self.ends = _bounds(ends)
        per_group = dnp.floor_divide(dnp.add(dnp.subtract(self.ends, self.starts), self.block_rows - 1), self.block_rows)
        last = dnp.cumsum(per_group)
        self.first_block = dnp.subtract(last, per_group)
        # An upper bound of the number of blocks.
        self.num_blocks = min(rows, (rows + groups * (self.block_rows - 1)) // self.block_rows)
        block = np.arange(self.num_blocks)
        self.block_group = dnp.minimum(dnp.searchsorted(last, block, side="right"), groups - 1)
        step = dnp.multiply(dnp.subtract(block, dnp.take(self.first_block, self.block_group, axis=0)), self.block_rows)
        begins = dnp.add(dnp.take(self.starts, self.block_group, axis=0), step)
        self.row_indices = dnp.minimum(dnp.add(dnp.expand_dims(begins, 1), np.arange(self.block_rows)), rows - 1)
        # The position of each row in the blocks, and whether it belongs to a group.
        row = np.arange(rows)
        group = dnp.minimum(dnp.searchsorted(self.ends, row, side="right"), groups - 1)
        offset = dnp.subtract(row, dnp.take(self.starts, group, axis=0))
        slots = dnp.add(dnp.multiply(dnp.take(self.first_block, group, axis=0), self.block_rows), offset)
        self.slots = dnp.minimum(slots, self.num_blocks * self.block_rows - 1)
        self.is_in_group = dnp.less(row, self.ends[-1])


@table("transformers::grouped_mm_fallback")
def grouped_product(x: Any, weight: Any, offs: Any) -> Any:
    """Return the products of x [m, k]: rows up to offs[0] by weight[0] [k, n], rows up to offs[1] by weight[1], …"""
    blocks = RowBlocks(int(x.shape[0]), offs)
    rows = dnp.take(x, blocks.row_indices, axis=0)
    products = lax.map(lambda block: dnp.matmul(block[0], dnp.take(weight, block[1], axis=0)), (rows, blocks.block_group))
    y = dnp.take(dnp.reshape(products, (-1, weight.shape[-1])), blocks.slots, axis=0)
    return dnp.where(dnp.expand_dims(blocks.is_in_group, 1), y, convert(0, y.dtype))


@table("transformers::grouped_mm_fallback_backward")
def grouped_product_backward(x: Any, weight: Any, offs: Any, g: Any) -> Any:
    gx = grouped_product(g, dnp.swapaxes(weight, -1, -2), offs)
    row = np.arange(int(x.shape[0]))

    def gradient_of_group(limits: Any) -> Any:
        is_in_group = dnp.logical_and(dnp.greater_equal(row, limits[0]), dnp.less(row, limits[1]))
        return dnp.matmul(dnp.transpose(dnp.where(dnp.expand_dims(is_in_group, 1), x, convert(0, x.dtype))), g)

    return gx, lax.map(gradient_of_group, _bounds(offs))


@table("_grouped_mm")
def grouped_mm(x: Any, y: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if bias is not None or (offs is not None and (x.ndim, y.ndim) != (2, 3)):
        refuse(
            UnsupportedError(
                f"grouped_mm of {x.ndim} and {y.ndim} axes{', bias' if bias is not None else ''}; expected 2 and 3, no bias"
            )
        )
    product = dnp.matmul(x, y) if offs is None else grouped_product(x, y, offs)
    return product if out_dtype is None else convert(product, out_dtype)
