"""PyTorch's OpInfo database: sample inputs of each operator, for several dtypes.

It is part of the torch package and imports expecttest (`pip install expecttest`). Each operator is compiled by `torch.compile`,
or exported by `torch.export`; the expected results, and gradients of float32 operands, are PyTorch's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from tests.suites.suite import NotComparableError, Suite
from tests.suites.torch_programs import check_compiled, check_exported, start_torch

DTYPES = ("float32", "float64", "int64", "bool")
# Operators, or their dtypes, whose results are not compared, with the reasons.
_NOT_COMPARED = {
    **dict.fromkeys(
        ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
        "returns uninitialized memory",
    ),
    **dict.fromkeys(
        ("svd", "linalg.svd", "svd_lowrank", "pca_lowrank", "linalg.eig", "linalg.eigh"),
        "factors are unique up to signs",
    ),
    "linalg.eigvals": "the order of eigenvalues is not defined",
    **dict.fromkeys(("kthvalue", "median", "nanmedian", "mode"), "the index of equal elements is not defined"),
    **dict.fromkeys(
        ("sort/bool", "argsort/bool", "sort/int64", "argsort/int64", "topk/int64"), "the order of equal elements is not defined"
    ),
    "polygamma/float64": "PyTorch's trigamma has errors of 4e-11",
    "special.polygamma/float64": "PyTorch's trigamma has errors of 4e-11",
    **dict.fromkeys(
        [f"special.bessel_{kind}/float64" for kind in ("j0", "j1", "y0", "y1")],
        "PyTorch's Bessel functions have errors of 4e-7",
    ),
    "unique_consecutive": "PyTorch infers a wrong rank for a negative dim",
    "chalf": "returns complex numbers of half precision",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="cpu", help="target of the compiler (default: cpu)")
    parser.add_argument("--export", action="store_true", help="compile by torch.export and from_torch, without gradients")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help=f"comma-separated dtypes (default: {','.join(DTYPES)})")
    parser.add_argument(
        "--samples", type=int, default=2, help="samples of an operator and dtype, at equal distances (default: 2)"
    )


def suite(arguments: argparse.Namespace) -> Suite:
    dtypes, max_samples, target = arguments.dtypes.split(","), arguments.samples, arguments.target
    check = check_exported if arguments.export else _check_compiled
    entry = "torch.export" if arguments.export else "torch.compile"
    conditions = f"torch {start_torch().__version__}, {entry}, {', '.join(dtypes)}, {max_samples} samples, target {target}"
    return Suite(conditions, operator_names(dtypes), lambda name: _run(name, check, target, max_samples))


@cache
def _operators() -> dict[str, Any]:
    """Return the OpInfo of each operator by name and variant."""
    database = import_module("torch.testing._internal.common_methods_invocations").op_db
    return {f"{info.name}.{info.variant_test_name}".rstrip("."): info for info in database}


def operator_names(dtypes: Sequence[str]) -> list[str]:
    """Return `operator/dtype` for each operator and those of the dtypes that it supports."""
    torch = import_module("torch")
    return [
        f"{name}/{dtype}"
        for name, info in _operators().items()
        for dtype in dtypes
        if getattr(torch, dtype) in info.supported_dtypes("cpu")
    ]


def samples_of(name: str, max_samples: int, *, requires_grad: bool = False) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return the operator of `operator/dtype`, and samples of its arguments.

    Raises NotComparableError for operators whose results are not defined.
    """
    torch = import_module("torch")
    operator, _, dtype = name.rpartition("/")
    info = _operators()[operator]
    for key in (info.name, f"{info.name}/{dtype}"):
        if key in _NOT_COMPARED:
            raise NotComparableError(_NOT_COMPARED[key])
    torch.manual_seed(0)
    has_gradients = requires_grad and getattr(torch, dtype).is_floating_point
    samples = list(info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=has_gradients))
    count = min(max_samples, len(samples))
    return info.op, [samples[k * len(samples) // count] for k in range(count)]


def _run(name: str, check: Callable[..., str | None], target: str, max_samples: int) -> str:
    return _check_samples(check, *samples_of(name, max_samples), target) or ""


def _check_compiled(function: Callable[..., Any], inputs: Sequence[Any], target: str) -> str:
    is_float32 = any(x.dtype == import_module("torch").float32 for x in inputs)
    return check_compiled(function, inputs, target, gradients=is_float32)


def _check_samples(check: Callable[..., str | None], operator: Any, samples: Sequence[Any], target: str) -> str | None:
    """Compile calls of an operator as one function of their tensors, and compare the results with PyTorch's."""
    torch = import_module("torch")
    pytree = torch.utils._pytree
    leaves, structure = pytree.tree_flatten([(sample.input, sample.args, sample.kwargs) for sample in samples])
    is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]

    def calls(*tensors: Any) -> Any:
        given = iter(tensors)
        filled = [next(given) if tensor else leaf for leaf, tensor in zip(leaves, is_tensor, strict=True)]
        return [operator(x, *others, **keywords) for x, others, keywords in pytree.tree_unflatten(filled, structure)]

    return check(calls, [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)], target)
