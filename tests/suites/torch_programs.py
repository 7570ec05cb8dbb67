"""Run functions of PyTorch tensors by `dlc.from_torch` and by `torch.compile`, and compare the results with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

import dlc
from dlc.frontend.complex_numbers import from_parts
from dlc.pytorch.complex_arrays import split_arrays
from tests.suites.comparison import check_equal
from tests.suites.suite import NotComparableError

_COMPILED_BY_DLC = "BackendCompilerFailed"


def start_torch() -> Any:
    """Import torch with one thread, with which it works in forked processes."""
    torch = import_module("torch")
    torch.set_num_threads(1)
    return torch


def check_exported(function: Callable[..., Any], inputs: Sequence[Any], target: str, dynamic_shapes: Any = None) -> None:
    """Export a function of tensors and numbers, compile it by `from_torch`, and compare its results and inputs.

    Raises NotComparableError if PyTorch cannot call or export it, AssertionError for other results, and what `from_torch` and
    the model raise.
    """
    torch = import_module("torch")
    module = _module(torch, function)
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    expected, is_random = _evaluate(torch, function, inputs)
    try:
        with torch.no_grad():
            exported = torch.export.export(module, _copies(torch, inputs), dynamic_shapes=dynamic_shapes)
    except Exception as error:
        raise NotComparableError(f"torch.export raises {type(error).__name__}") from error
    model = dlc.from_torch(exported, target=target, num_threads=1, cache=False)
    if is_random or any(info.name == "seed" for info in model.inputs):
        raise NotComparableError("returns random numbers")
    arrays = [array.copy() for array in split_arrays(_arrays(tensors))]
    parts = iter([*model(*arrays).values(), *arrays])

    def with_inputs(*inputs: Any) -> list[Any]:
        """Return the results, followed by the inputs, which the function may mutate."""
        results = _leaves(torch, function(*inputs))
        return [*results, *(value for value in inputs if isinstance(value, torch.Tensor))]

    expected, _ = _evaluate(torch, with_inputs, inputs)
    wanted = [_array(torch, result) for result in expected]
    got = [from_parts(next(parts), next(parts)) if array.dtype.kind == "c" else next(parts) for array in wanted]
    _check_results(torch, with_inputs, inputs, got, wanted)


def _arrays(tensors: Sequence[Any]) -> list[Any]:
    tensor_to_array = import_module("dlc.pytorch.fx_conversion").tensor_to_array
    return [tensor_to_array(tensor) for tensor in tensors]


def check_compiled(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    target: str,
    *,
    gradients: bool = False,
    dynamic: bool | None = None,
) -> str:
    """Compile a function of tensors and numbers by `torch.compile`, and compare its results, and gradients of float32 inputs.

    Errors are those of `check_exported`. Returns a remark if the function has no gradients.
    """
    torch = import_module("torch")
    expected, is_random = _evaluate(torch, function, inputs)
    gradients = gradients and _is_differentiable(torch, function, inputs)
    with_or_without_gradients = _with_gradients if gradients else _without_gradients
    evaluate = with_or_without_gradients(torch, function)
    if gradients:
        expected = evaluate(*_copies(torch, inputs))
        _require_dense(torch, expected)
    torch._dynamo.reset()
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True

    def compiled_by(backend: str, **settings: Any) -> Callable[..., list[Any]]:
        compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic, **settings)
        return with_or_without_gradients(torch, compiled)

    run = compiled_by("dlc", options={"target": target, "num_threads": 1, "cache": False})
    try:
        results = run(*_copies(torch, inputs))
    except Exception as error:
        cause = _cause(error)
        if isinstance(cause, dlc.UnsupportedError):
            raise cause from error
        if cause is None and type(error).__module__.startswith("torch._dynamo") and type(error).__name__ != _COMPILED_BY_DLC:
            raise NotComparableError(f"Dynamo raises {type(error).__name__}") from error
        torch._dynamo.reset()
        try:
            compiled_by("aot_eager")(*_copies(torch, inputs))
        except Exception as own_error:
            raise NotComparableError(f"PyTorch's AOTAutograd raises {type(own_error).__name__}") from error
        raise cause or error from None
    if is_random:
        raise NotComparableError("returns random numbers")
    wanted = [_array(torch, result) for result in expected]

    def check(results: Sequence[Any]) -> None:
        _check_results(torch, evaluate, inputs, [_array(torch, result) for result in results], wanted)

    try:
        check(results)
    except AssertionError:
        torch._dynamo.reset()
        captured = compiled_by("eager")(*_copies(torch, inputs))
        try:
            check(captured)
        except AssertionError as error:
            raise NotComparableError("PyTorch computes other results from the graph that Dynamo captures") from error
        raise
    return "with gradients" if gradients else ""


def _cause(error: BaseException) -> BaseException | None:
    """Return the DlcError that led to an error of PyTorch, or None."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, dlc.DlcError):
        cause = getattr(cause, "inner_exception", None) or cause.__cause__ or cause.__context__
    return cause


def _module(torch: Any, function: Callable[..., Any]) -> Any:
    if isinstance(function, torch.nn.Module):
        return function

    class Call(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return _leaves(torch, function(*tensors))

    return Call()


def _leaves(torch: Any, results: Any) -> list[Any]:
    """Return results as a list of tensors and numbers."""
    return [result for result in torch.utils._pytree.tree_leaves(results) if result is not None]


def _copies(torch: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in inputs)


def _evaluate(torch: Any, function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[list[Any], bool]:
    """Return PyTorch's results, and whether they depend on the seed."""

    def evaluate(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        with torch.no_grad():
            return _leaves(torch, function(*_copies(torch, inputs)))

    try:
        expected, other = evaluate(1), evaluate(2)
    except NotComparableError:
        raise
    except Exception as error:
        raise NotComparableError(f"PyTorch raises {type(error).__name__}") from error
    _require_dense(torch, expected)
    return expected, not all(_is_same(torch, *pair) for pair in zip(expected, other, strict=True))


def _require_dense(torch: Any, results: Sequence[Any]) -> None:
    if any(isinstance(result, torch.Tensor) and result.layout != torch.strided for result in results):
        raise NotComparableError("returns sparse tensors")


def _without_gradients(torch: Any, function: Callable[..., Any]) -> Callable[..., list[Any]]:
    def call(*inputs: Any) -> list[Any]:
        with torch.no_grad():
            return _leaves(torch, function(*inputs))

    return call


def _with_gradients(torch: Any, function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return a function that returns results and the gradients of a weighted sum of them with respect to the float inputs."""

    def call(*inputs: Any) -> list[Any]:
        sources = [x for x in inputs if _is_float(torch, x)]
        for source in sources:
            source.requires_grad_()
        results = _leaves(torch, function(*[x.clone() if x is not None and _is_float(torch, x) else x for x in inputs]))
        torch.manual_seed(3)
        weighted = [result * torch.rand_like(result) for result in results if _requires_gradient(torch, result)]
        total = sum(term.sum() for term in weighted)
        gradients = torch.autograd.grad(total, sources, allow_unused=True, materialize_grads=True)
        return [*results, *gradients]

    return call


def _is_differentiable(torch: Any, function: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    try:
        _with_gradients(torch, function)(*_copies(torch, inputs))
    except Exception:
        return False
    return True


def _is_float(torch: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _requires_gradient(torch: Any, result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.requires_grad


def _array(torch: Any, result: Any) -> Any:
    # A number of Python has double precision.
    tensor = (
        torch.as_tensor(result, dtype=torch.float64 if isinstance(result, float) else None)
        .detach()
        .resolve_conj()
        .resolve_neg()
    )
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _check_results(
    torch: Any, function: Callable[..., Any], inputs: Sequence[Any], got: Sequence[Any], wanted: Sequence[Any]
) -> None:
    assert len(got) == len(wanted), f"{len(got)} results, expected {len(wanted)}"
    try:
        _check_all(got, wanted, [0] * len(wanted))
    except AssertionError:
        # PyTorch's own error may exceed the tolerance: compare with its results in float64.
        exact = _evaluate_in_float64(torch, function, inputs)
        if len(exact) != len(wanted):
            raise
        _check_all(got, wanted, [np.nan_to_num(_error(*pair)) for pair in zip(wanted, exact, strict=True)])


def _check_all(got: Sequence[Any], wanted: Sequence[Any], uncertainties: Sequence[Any]) -> None:
    for k, (result, expected, uncertainty) in enumerate(zip(got, wanted, uncertainties, strict=True)):
        # `_array` returns bfloat16 as float32.
        got_array: Any = np.asarray(result)
        if got_array.dtype.name == "bfloat16":
            got_array = got_array.astype(np.float32)
        check_equal(got_array, expected, f"result {k}", uncertainty=uncertainty)


def _evaluate_in_float64(torch: Any, function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """Return the results for float32 inputs cast to float64; nothing if there are none or PyTorch raises an error."""
    if all(not isinstance(x, torch.Tensor) or x.dtype != torch.float32 for x in inputs):
        return []
    wide = [x.double() if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x for x in _copies(torch, inputs)]
    try:
        return [_array(torch, result) for result in _leaves(torch, function(*(_detached(torch, x) for x in wide)))]
    except Exception:
        return []


def _detached(torch: Any, value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _error(wanted: Any, exact: Any) -> Any:
    """Return twice the error of PyTorch's float results: a matrix function may have it in any element."""
    if wanted.dtype != np.float32 or wanted.shape != exact.shape:
        return np.zeros(wanted.shape)
    error = np.abs(wanted - exact)
    return 2 * (error if error.ndim < 2 else error.max(initial=0))


def _is_same(torch: Any, first: Any, second: Any) -> bool:
    if not isinstance(first, torch.Tensor):
        return bool(first == second)
    return first.shape == second.shape and torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))
