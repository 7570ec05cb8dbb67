"""Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dlc.numpy as dnp
from dlc.pytorch.rules.rule_table import RuleTable

table = RuleTable()

# `norm` by ATen's normalization: scale by 1, by 1/√n, by 1/n.
_FORWARD = (None, "ortho", "forward")
_INVERSE = ("forward", "ortho", None)


@table("_fft_r2c")
def real_to_complex(x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    transform = dnp.fft.rfftn if onesided else dnp.fft.fftn
    return transform(x, axes=tuple(dim), norm=_FORWARD[normalization])


@table("_fft_c2r")
def complex_to_real(x: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    sizes = [x.shape[axis] for axis in dim]
    return dnp.fft.irfftn(x, [*sizes[:-1], last_dim_size], tuple(dim), _INVERSE[normalization])


@table("_fft_c2c")
def complex_to_complex(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    if forward:
        return dnp.fft.fftn(x, axes=tuple(dim), norm=_FORWARD[normalization])
    return dnp.fft.ifftn(x, axes=tuple(dim), norm=_INVERSE[normalization])
