"""PyTorch's OpInfo database, call by call: each ATen call of an operator's samples and their gradients is compared with its rule.

Rules compute with plain arrays here: nothing is traced or compiled, so that the samples of all operators take minutes. It is part
of the torch package and imports expecttest (`pip install expecttest`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from dlc import disable_jit
from dlc.argument_validation.validate import without_validation
from dlc.errors import DTypeError, UnsupportedError
from dlc.pytorch.rules import COMPLEX_RULES, RULES, creation
from tests.suites.comparison import check_equal
from tests.suites.suite import NotComparableError, Suite
from tests.suites.torch_opinfo import operator_names, samples_of
from tests.suites.torch_programs import start_torch

DTYPES = ("float32", "int64", "uint8", "bool")
# Operators whose later results are not unique, such as the indices of equal elements, or are those of PyTorch's own gradients.
_FIRST_RESULT_ONLY = ("sort", "topk", "kthvalue", "median", "nanmedian", "mode", "_embedding_bag", "_unique2")
# Factors are unique up to signs, PyTorch's polygamma is finite at poles, and the others depend on strides or on memory outside
# of their operand.
_SKIPPED = ("_linalg_svd", "_linalg_eigh", "polygamma", "as_strided", "_linalg_det", "_linalg_slogdet")
_TOLERANCES = {"float32": 1e-4, "complex64": 1e-4, "float64": 1e-9, "complex128": 1e-9}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtypes", default=",".join(DTYPES), help=f"comma-separated dtypes (default: {','.join(DTYPES)})")
    parser.add_argument(
        "--samples", type=int, default=5, help="samples of an operator and dtype, at equal distances (default: 5)"
    )


def suite(arguments: argparse.Namespace) -> Suite:
    dtypes, max_samples = arguments.dtypes.split(","), arguments.samples
    conditions = f"torch {start_torch().__version__}, {', '.join(dtypes)}, {max_samples} samples, calls of rules"
    return Suite(conditions, operator_names(dtypes), lambda name: _run(name, max_samples))


def _run(name: str, max_samples: int) -> str:
    torch = import_module("torch")
    function, samples = samples_of(name, max_samples, requires_grad=True)
    checks = _checking_mode(torch)
    for sample in samples:
        with checks:
            try:
                _call_with_gradients(torch, function, sample)
            except Exception as error:
                raise NotComparableError(f"PyTorch raises {type(error).__name__}") from error
    if isinstance(checks.problem, DTypeError):
        raise UnsupportedError(str(checks.problem)) from checks.problem
    if checks.problem is not None:
        raise checks.problem
    if not checks.count:
        raise NotComparableError("calls no operator with a rule")
    return ""


def _call_with_gradients(torch: Any, function: Any, sample: Any) -> None:
    leaves = torch.utils._pytree.tree_leaves
    results = [x for x in leaves(function(sample.input, *sample.args, **sample.kwargs)) if isinstance(x, torch.Tensor)]
    results = [x for x in results if x.requires_grad]
    inputs = leaves((sample.input, sample.args, sample.kwargs))
    inputs = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf]
    if results and inputs:
        torch.autograd.grad(results, inputs, [torch.randn_like(x) for x in results], allow_unused=True)


def _checking_mode(torch: Any) -> Any:
    """Return a dispatch mode that checks the calls of operators with a rule, counts them, and has the first error."""
    conversion = import_module("dlc.pytorch.fx_conversion")

    def array(tensor: Any) -> Any:
        return np.array(conversion.tensor_to_array(tensor.detach().resolve_conj().resolve_neg().contiguous()))

    def argument(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return array(value)
        return [argument(v) for v in value] if isinstance(value, list | tuple) else conversion.convert_argument(value)

    class Checks(torch.utils._python_dispatch.TorchDispatchMode):  # pyright: ignore[reportUntypedBaseClass]
        count, problem = 0, None

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name, kwargs = conversion.operator_name(operator), kwargs or {}
            tensors = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            is_checked = name in RULES and name not in creation.table.rules and name.partition(".")[0] not in _SKIPPED
            if not is_checked or any(x.layout != torch.strided for x in tensors):
                return operator(*args, **kwargs)
            operands = [argument(x) for x in args]
            settings = {k: argument(x) for k, x in kwargs.items() if k not in conversion.IGNORED_ARGUMENTS}
            result = operator(*args, **kwargs)
            self.count += 1
            results = [x for x in (result if isinstance(result, list | tuple) else [result])]
            exact = [array(x) if isinstance(x, torch.Tensor) else None for x in _in_float64(torch, operator, args, kwargs)]
            wanted = [array(x) if isinstance(x, torch.Tensor) else None for x in results]
            try:
                _check_call(name, operands, settings, wanted, exact)
            except Exception as error:
                self.problem = self.problem or error
            return result

    return Checks()


def _in_float64(torch: Any, operator: Any, args: Any, kwargs: Any) -> Sequence[Any]:
    """Return the results for floats cast to float64: the errors of PyTorch's own are tolerated. Nothing if it fails."""

    def wide(x: Any) -> Any:
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    try:
        result = operator(*torch.utils._pytree.tree_map(wide, args), **torch.utils._pytree.tree_map(wide, kwargs))
    except Exception:
        return []
    return result if isinstance(result, list | tuple) else [result]


def _rounding_error(operands: Sequence[Any], dtype: Any) -> float:
    """Return the error of some roundings of the largest finite operand; 0 for integers."""
    if dtype.kind not in "fc":
        return 0.0
    floats = [np.abs(x[np.isfinite(x)]) for x in operands if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
    return 8 * float(np.finfo(dtype).eps) * max((float(x.max(initial=0)) for x in floats), default=0.0)


def _check_call(
    name: str, operands: Sequence[Any], settings: Mapping[str, Any], wanted: Sequence[Any], exact: Sequence[Any]
) -> None:
    interpreter = import_module("dlc.pytorch.interpreter")
    has_complex = any(map(interpreter.has_complex, (*operands, *settings.values(), *wanted)))
    rule = (COMPLEX_RULES.get(name) if has_complex else None) or RULES[name]
    # A derivative of a few elements is evaluated in less time than it is compiled.
    with np.errstate(all="ignore"), disable_jit():
        results = without_validation(rule)(*operands, **settings)
        results = interpreter.convert_result(results, [x if x is None else x.dtype for x in wanted])
    results = list(results) if isinstance(results, list | tuple) else [results]
    assert len(results) == len(wanted), f"{name}: {len(results)} results, expected {len(wanted)}"
    count = 1 if name.partition(".")[0] in _FIRST_RESULT_ONLY else len(wanted)
    for k, (got, expected) in enumerate(zip(results[:count], wanted, strict=False)):
        if expected is None:
            continue
        # Sums cancel: rounding errors are relative to the operands.
        uncertainty = _rounding_error(operands, expected.dtype)
        if k < len(exact) and exact[k] is not None and exact[k].shape == expected.shape and expected.dtype.kind in "fc":
            with np.errstate(all="ignore"):
                uncertainty += 4 * np.nan_to_num(np.abs(expected - exact[k])).max(initial=0)
        # Images of integers are interpolated in fixed point along two axes.
        error = 2 * ("upsample" in name)
        tolerance = _TOLERANCES.get(expected.dtype.name)
        check_equal(
            np.asarray(got),
            expected,
            f"{name}, result {k}",
            tolerance=tolerance,
            uncertainty=uncertainty,
            max_integer_error=error,
        )
