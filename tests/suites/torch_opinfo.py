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

import dlc
from tests.suites.comparison import check_equal
from tests.suites.suite import NotComparableError, Suite, call_in_child

DTYPES = ("float32", "float64", "int64", "bool")
_UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# Results that are not unique, such as the signs of singular vectors, are checked through what follows from them elsewhere.
_NOT_UNIQUE = {
    **dict.fromkeys(
        ("svd", "linalg.svd", "svd_lowrank", "pca_lowrank", "linalg.eig", "linalg.eigh", "qr", "linalg.qr", "geqrf"),
        "factors are unique up to signs",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="cpu", help="target of from_torch (default: cpu)")
    parser.add_argument("--dtypes", default="float32,int64", help="comma-separated dtypes (default: float32,int64)")
    parser.add_argument(
        "--samples", type=int, default=2, help="samples of an operator and dtype, at equal distances (default: 2)"
    )


def suite(arguments: argparse.Namespace) -> Suite:
    dtypes = arguments.dtypes.split(",")
    version, names = call_in_child(lambda: (import_module("torch").__version__, _names(dtypes)))
    conditions = (
        f"torch {version}, {arguments.dtypes.replace(',', ' and ')}, {arguments.samples} samples, target {arguments.target}"
    )
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
    torch.set_num_threads(1)
    operator, _, dtype = name.rpartition("/")
    info = _operators()[operator]
    if info.name in _UNINITIALIZED:
        raise NotComparableError("returns uninitialized memory")
    if info.name in _NOT_UNIQUE:
        raise NotComparableError(_NOT_UNIQUE[info.name])
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
            return [operator(x, *others, **keywords) for x, others, keywords in pytree.tree_unflatten(filled, structure)]

    def inputs() -> tuple[Any, ...]:
        return tuple(leaf.clone() for leaf in leaves if isinstance(leaf, torch.Tensor))

    def evaluate(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [result for result in pytree.tree_leaves(Calls()(*inputs())) if result is not None]

    expected = evaluate(1)
    if not all(_is_same(torch, *pair) for pair in zip(expected, evaluate(2), strict=True)):
        raise NotComparableError("returns random numbers")
    try:
        exported = torch.export.export(Calls(), inputs())
    except Exception as error:
        raise NotComparableError(f"torch.export raises {type(error).__name__}") from error
    model = dlc.from_torch(exported, target=target, num_threads=1, cache=False)
    for k, (result, wanted) in enumerate(zip(model(*inputs()).values(), expected, strict=True)):
        check_equal(result, torch.as_tensor(wanted).detach().resolve_conj().resolve_neg().numpy(), f"result {k}")


def _is_same(torch: Any, first: Any, second: Any) -> bool:
    if not isinstance(first, torch.Tensor):
        return bool(first == second)
    return torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))
