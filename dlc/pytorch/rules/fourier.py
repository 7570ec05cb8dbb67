"""Complex numbers, which graphs have between their inputs and outputs, and Fourier transforms.

`of_complex` has what operators are that others' rules know for real numbers alone; those of `BY_PARTS` are the same of real and
of imaginary parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import dlc.numpy as dnp
from dlc.frontend.complex_numbers import is_complex, of_parts, parts_of
from dlc.pytorch.rules import shaping
from dlc.pytorch.rules.table import Rule, Table, promoted_floats

table, of_complex = Table(), Table()

# What each way divides by: nothing, the root of the number of elements, that number.
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


@table("view_as_real view_as_real_copy")
def view_as_real(x: Any) -> Any:
    return dnp.stack(parts_of(x), -1)


@table("view_as_complex view_as_complex_copy")
def view_as_complex(x: Any) -> Any:
    return of_parts(x[..., 0], x[..., 1])


@table("complex")
def complex_(real: Any, imag: Any) -> Any:
    return of_parts(*promoted_floats(real, imag))


@table("polar")
def polar(size: Any, angle: Any) -> Any:
    return of_parts(dnp.multiply(size, dnp.cos(angle)), dnp.multiply(size, dnp.sin(angle)))


@table("real")
def real(x: Any) -> Any:
    return parts_of(x)[0] if is_complex(x) else x


@table("imag")
def imag(x: Any) -> Any:
    return parts_of(x)[1]


@table("angle")
def angle(x: Any) -> Any:
    return dnp.angle(x)


@table("_conj _conj_physical conj_physical")
def conj(x: Any) -> Any:
    return dnp.conj(x)


@table("resolve_conj resolve_neg")
def resolved(x: Any) -> Any:
    return x


BY_PARTS = (
    *("view", "_unsafe_view", "reshape", "permute", "transpose.int", "t", "unsqueeze", "squeeze.dim", "squeeze.dims", "expand"),
    *("slice.Tensor", "select.int", "index_select", "flip", "roll", "repeat", "clone", "alias", "detach"),
    *("split_with_sizes", "split.Tensor", "unbind.int", "flatten.using_ints", "unfold"),
    *("neg", "sum", "sum.dim_IntList", "mean", "mean.dim", "cumsum"),
)


def by_parts(rule: Rule) -> Rule:
    """The rule of an operator of complex numbers that is `rule` of each of their parts."""

    def part(argument: Any, number: int) -> Any:
        if isinstance(argument, list | tuple):
            return [part(a, number) for a in cast("Sequence[Any]", argument)]
        return parts_of(argument)[number] if is_complex(argument) else argument

    def of_both(*args: Any, **kwargs: Any) -> Any:
        real, imag = (rule(*part(args, k), **kwargs) for k in range(2))
        return [*map(of_parts, cast("Any", real), imag)] if isinstance(real, list | tuple) else of_parts(real, imag)

    return of_both


@of_complex("cat")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    return dnp.concat(tensors, axis=dim)


@of_complex("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return dnp.stack(tensors, axis=dim)


@of_complex("constant_pad_nd")
def constant_pad(x: Any, pad: Sequence[int], value: float = 0) -> Any:
    real, imag = parts_of(x)
    return of_parts(shaping.constant_pad(real, pad, value), shaping.constant_pad(imag, pad))


@of_complex("abs")
def size(x: Any) -> Any:
    return dnp.abs(x)


@of_complex("add.Tensor add.Scalar")
def add(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x + (y if alpha == 1 else y * alpha)


@of_complex("sub.Tensor sub.Scalar")
def sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x - (y if alpha == 1 else y * alpha)


@of_complex("mul.Tensor mul.Scalar")
def mul(x: Any, y: Any) -> Any:
    return x * y


@of_complex("div.Tensor div.Scalar")
def div(x: Any, y: Any) -> Any:
    return x / y


@of_complex("pow.Tensor_Scalar")
def power(x: Any, exponent: Any) -> Any:
    return x**exponent
