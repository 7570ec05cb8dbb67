"""PyTorch's OpInfo database: sample inputs of each operator, for several dtypes.

It is part of the torch package and imports expecttest (`pip install expecttest`). Operators are exported by `torch.export`; the
expected results are PyTorch's. Complex dtypes are left out, because a compiled module has no complex inputs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

import dlc
from tests.suites.comparison import check_equal
from tests.suites.suite import NotComparableError, Suite

DTYPES = ("float32", "float64", "int64", "bool")
# Operators whose results are not compared, with the reasons.
_NOT_COMPARED = {
    **dict.fromkeys(
        ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
        "returns uninitialized memory",
    ),
    **dict.fromkeys(
        ("svd", "linalg.svd", "svd_lowrank", "pca_lowrank", "linalg.eig", "linalg.eigh", "qr", "linalg.qr", "geqrf"),
        "factors are unique up to signs",
    ),
    **dict.fromkeys(("kthvalue", "median", "nanmedian", "mode"), "the index of equal elements is not defined"),
    "chalf": "returns complex numbers of half precision",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="cpu", help="target of from_torch (default: cpu)")
    parser.add_argument("--dtypes", default="float32,int64", help="comma-separated dtypes (default: float32,int64)")
    parser.add_argument(
        "--samples", type=int, default=2, help="samples of an operator and dtype, at equal distances (default: 2)"
    )


def suite(arguments: argparse.Namespace) -> Suite:
    dtypes = arguments.dtypes.split(",")
    torch = import_module("torch")
    # PyTorch with one thread works in forked processes.
    torch.set_num_threads(1)
    names = _names(dtypes)
    conditions = f"torch {torch.__version__}, {arguments.dtypes.replace(',', ' and ')}, {arguments.samples} samples, target {arguments.target}"
    return Suite(conditions, names, lambda name: _run(name, arguments.target, arguments.samples))


@cache
def _operators() -> dict[str, Any]:
    """Return the OpInfo of each operator by name and variant."""
    database = import_module("torch.testing._internal.common_methods_invocations").op_db
    return {f"{info.name}.{info.variant_test_name}".rstrip("."): info for info in database}


def _names(dtypes: Sequence[str]) -> list[str]:
    torch = import_module("torch")
    return [
        f"{name}/{dtype}"
        for name, info in _operators().items()
        for dtype in dtypes
        if getattr(torch, dtype) in info.supported_dtypes("cpu")
    ]


def _run(name: str, target: str, max_samples: int) -> str:
    torch = import_module("torch")
    operator, _, dtype = name.rpartition("/")
    info = _operators()[operator]
    if info.name in _NOT_COMPARED:
        raise NotComparableError(_NOT_COMPARED[info.name])
    torch.manual_seed(0)
    samples = list(info.sample_inputs("cpu", getattr(torch, dtype)))
    count = min(max_samples, len(samples))
    _run_samples(torch, info.op, [samples[k * len(samples) // count] for k in range(count)], target)
    return ""


def _run_samples(torch: Any, operator: Any, samples: Sequence[Any], target: str) -> None:
    """Compile calls of an operator as one module, and compare the results with PyTorch's."""
    pytree = torch.utils._pytree
    leaves, structure = pytree.tree_flatten([(sample.input, sample.args, sample.kwargs) for sample in samples])
    is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]

    class Calls(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            given = iter(tensors)
            filled = [next(given) if tensor else leaf for leaf, tensor in zip(leaves, is_tensor, strict=True)]
            calls = pytree.tree_unflatten(filled, structure)
            results = pytree.tree_leaves([operator(x, *others, **keywords) for x, others, keywords in calls])
            return [_real(torch, result) for result in results if result is not None]

    def inputs() -> tuple[Any, ...]:
        return tuple(leaf.clone() for leaf in leaves if isinstance(leaf, torch.Tensor))

    def evaluate(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return Calls()(*inputs())

    try:
        expected = evaluate(1)
        is_random = not all(_is_same(torch, *pair) for pair in zip(expected, evaluate(2), strict=True))
        exported = torch.export.export(Calls(), inputs())
    except Exception as error:
        raise NotComparableError(f"PyTorch or torch.export raises {type(error).__name__}") from error
    model = dlc.from_torch(exported, target=target, num_threads=1, cache=False)
    if is_random or any(info.name == "seed" for info in model.inputs):
        raise NotComparableError("returns random numbers")
    got, wanted = list(model(*inputs()).values()), [torch.as_tensor(result).detach().numpy() for result in expected]
    try:
        _check_all(got, wanted, [0] * len(wanted))
    except AssertionError:
        # PyTorch's own error may exceed the tolerance: compare with its results in float64.
        exact = _evaluate_in_float64(torch, Calls(), inputs())
        if not exact:
            raise
        _check_all(got, wanted, [np.nan_to_num(_error(*pair)) for pair in zip(wanted, exact, strict=True)])


def _check_all(got: Sequence[Any], wanted: Sequence[Any], uncertainties: Sequence[Any]) -> None:
    for k, (result, expected, uncertainty) in enumerate(zip(got, wanted, uncertainties, strict=True)):
        check_equal(result, expected, f"result {k}", uncertainty=uncertainty)


def _evaluate_in_float64(torch: Any, calls: Any, inputs: Sequence[Any]) -> list[Any]:
    """Return the results for float32 inputs cast to float64; nothing if there are none or PyTorch raises an error."""
    if all(tensor.dtype != torch.float32 for tensor in inputs):
        return []
    try:
        results = calls(*(tensor.double() if tensor.dtype == torch.float32 else tensor for tensor in inputs))
    except Exception:
        return []
    return [torch.as_tensor(result).detach().numpy() for result in results]


def _error(wanted: Any, exact: Any) -> Any:
    """Return twice the error of PyTorch's float results: a matrix function may have it in any element."""
    if wanted.dtype != np.float32:
        return np.zeros(wanted.shape)
    error = np.abs(wanted - exact)
    return 2 * (error if error.ndim < 2 else error.max(initial=0))


def _real(torch: Any, result: Any) -> Any:
    """Return a complex result as real and imaginary parts: compiled modules have no complex results."""
    return torch.view_as_real(result.resolve_conj()) if isinstance(result, torch.Tensor) and result.is_complex() else result


def _is_same(torch: Any, first: Any, second: Any) -> bool:
    if not isinstance(first, torch.Tensor):
        return bool(first == second)
    return torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))
