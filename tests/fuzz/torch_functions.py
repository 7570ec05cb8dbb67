"""Compile random functions of PyTorch tensors by `torch.compile` with symbolic sizes, and compare results and gradients.

Chains of views return aliases of their argument or of intermediate values, whose strides and offsets must be PyTorch's at every
size. Reductions have dims of either sign, mixed dtypes, empty tensors and operands of all layouts. Attention has masks that mask
whole rows: its gradients must be those of PyTorch, without NaN. Needs the `torch` package.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dlc.errors import UnsupportedError
from tests.fuzz.trials import Trial, TrialOutcome, compared, trial_outcomes
from tests.suites.torch_programs import start_torch

TIMEOUT_SECONDS = 240
_SIZES = (2, 3, 4, 5, 6, 8, 9)
_NUM_SHAPES = 3
_MAX_STEPS = 5

# Views and values of a tensor of rank 2 or 3; the steps that a tensor does not allow are not drawn.
STEPS: dict[str, Callable[[Any, int], Any]] = {
    "half": lambda x, k: x[:, x.shape[1] // 2 :],
    "first half": lambda x, k: x[: x.shape[0] // 2],
    "last": lambda x, k: x[x.shape[0] - k :],
    "negative": lambda x, k: x[-k:],
    "step": lambda x, k: x[:, ::k],
    "chunk": lambda x, k: x.chunk(2, -1)[-1],
    "split": lambda x, k: x.split(k, 0)[-1],
    "narrow": lambda x, k: x.narrow(0, k - 1, x.shape[0] - k),
    "select": lambda x, k: x[x.shape[0] - 1].unsqueeze(0),
    "transpose": lambda x, k: x.transpose(0, 1),
    "last transpose": lambda x, k: x.mT,
    "expand": lambda x, k: x.unsqueeze(1).expand(-1, k, *x.shape[1:])[:, 0],
    "broadcast": lambda x, k: x[:1].expand(x.shape[1], *x.shape[1:]),
    "view": lambda x, k: x.reshape(x.shape[1], -1),
    "view of the size": lambda x, k: x.view(-1, x.shape[-1]),
    "flatten": lambda x, k: x.flatten().unsqueeze(0),
    "unflatten": lambda x, k: x.unflatten(0, (1, -1)).squeeze(0),
    "diagonal": lambda x, k: x.diagonal().unsqueeze(-1),
    "unfold": lambda x, k: x.unfold(0, k, 1)[:, 0],
    "permute": lambda x, k: x.unsqueeze(0).permute(1, 2, 0)[..., 0] if x.ndim == 2 else x.permute(2, 0, 1),
    "movedim": lambda x, k: x.movedim(-1, 0),
    "times size": lambda x, k: x * x.shape[0],
    "twice": lambda x, k: x * 2,
    "sine": lambda x, k: x.sin(),
    "contiguous": lambda x, k: x.contiguous(),
    "flip": lambda x, k: x.flip(0),
    "roll": lambda x, k: x.roll(k, 0),
    "cumsum": lambda x, k: x.cumsum(0),
    "add": lambda x, k: x + x[:1],
    "pad": lambda x, k: import_module("torch").nn.functional.pad(x, (0, k)),
    "cat": lambda x, k: import_module("torch").cat([x, x[:k]]),
}


@dataclass(frozen=True)
class Function:
    """A function of tensors, and its arguments for several sizes."""

    name: str
    call: Callable[..., Any]
    arguments: Sequence[Sequence[Any]]


def _views(draw: random.Random, torch: Any) -> Function:
    """Return a chain of views, with up to three of its values as results."""
    shapes = [tuple(draw.choice(_SIZES) for _ in range(2)) for _ in range(_NUM_SHAPES)]
    arguments = [torch.randn(shape) for shape in shapes]
    steps: list[tuple[str, int, int]] = []
    values = [[x] for x in arguments]
    for _ in range(40):
        step = draw.choice(list(STEPS)), draw.randrange(len(values[0])), draw.randint(1, 2)
        try:
            results = [STEPS[step[0]](of[step[1]], step[2]) for of in values]
        except Exception:  # PyTorch raises errors of several types for a step that a shape does not allow.
            continue
        if all(0 < y.numel() < 500 and 2 <= y.ndim <= 3 for y in results):
            steps.append(step)
            for of, y in zip(values, results, strict=True):
                of.append(y)
        if len(steps) == _MAX_STEPS:
            break
    returned = sorted(draw.sample(range(1, len(steps) + 1), min(len(steps), draw.randint(1, 3))))

    def call(x: Any) -> Any:
        computed = [x]
        for name, operand, k in steps:
            computed.append(STEPS[name](computed[operand], k))
        return tuple(computed[k] for k in returned)

    return Function(f"{steps} of {shapes}, results {returned}", call, [(x,) for x in arguments])


def _attention(draw: random.Random, torch: Any) -> Function:
    """Return attention with a mask of which some rows are masked completely."""
    heads, depth, is_bool = draw.choice([1, 2]), draw.choice([4, 5]), draw.random() < 0.6
    attend = torch.nn.functional.scaled_dot_product_attention
    arguments: list[Any] = []
    for _ in range(_NUM_SHAPES):
        batch, queries, keys = (draw.choice(_SIZES) for _ in range(3))
        q, k, v = (torch.randn(batch, heads, n, depth) for n in (queries, keys, keys))
        mask = torch.rand(batch, 1, queries, keys) < draw.choice([0.1, 0.5, 0.9])
        mask[draw.randrange(batch)] = False
        mask[:, :, draw.randrange(queries)] = False
        arguments.append((q, k, v, mask if is_bool else torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)))
    return Function(f"attention, mask {'bool' if is_bool else 'float'}", lambda q, k, v, m: attend(q, k, v, m), arguments)


def _padded_layer(draw: random.Random, torch: Any) -> Function:
    """Return multi-head attention with padding, in training: samples are padded completely or on the left."""
    torch.manual_seed(draw.randrange(1000))
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    arguments: list[Any] = []
    for _ in range(_NUM_SHAPES):
        batch, length = (draw.choice(_SIZES) for _ in range(2))
        padding = torch.arange(length) < torch.randint(0, length + 1, (batch, 1))
        padding[0] = draw.random() < 0.5
        arguments.append((torch.randn(batch, length, 8), padding))

    def call(x: Any, padding: Any) -> Any:
        y = layer(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        return torch.where(padding.all(1)[:, None, None], 0.0, y)

    return Function("padded multi-head attention", call, arguments)


# Reductions with the arguments that they take: several dims or one, and a dtype.
_OF_DIMS = ("sum", "mean", "amax", "amin", "logsumexp", "var", "std", "count_nonzero")
_OF_ONE_DIM = ("prod", "any", "all", "cumsum", "cumprod", "argmax", "argmin", "softmax", "log_softmax")
_WITHOUT_KEEPDIM = ("cumsum", "cumprod", "softmax", "log_softmax", "count_nonzero")
_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT if x.ndim > 1 else x,
    "strided": lambda x: x.repeat_interleave(2, -1)[..., ::2] if x.ndim else x,
    "expanded": lambda x: x[:1].expand(x.shape) if x.ndim and x.shape[0] else x,
}


def _reduction(draw: random.Random, torch: Any) -> Function:
    """Return a reduction of the sum of two tensors of up to four axes that broadcast, of mixed dtypes and layouts."""
    rank, layout = draw.randint(0, 4), draw.choice(list(_LAYOUTS))
    dtypes = [getattr(torch, draw.choice(("float32", "float64", "int64", "int32", "uint8", "bool"))) for _ in range(2)]
    name = draw.choice((*_OF_DIMS, *_OF_ONE_DIM))
    dims = [k - rank * (draw.random() < 0.5) for k in range(rank)] or [0]
    dim = draw.choice(dims) if name in _OF_ONE_DIM else draw.sample(dims, draw.randint(1, len(dims)))
    settings = {} if name in _WITHOUT_KEEPDIM else {"keepdim": draw.random() < 0.5}
    ones = [draw.random() < 0.3 for _ in range(rank)]
    arguments: list[Any] = []
    for _ in range(_NUM_SHAPES):
        shape = [draw.choice((0, 1, *_SIZES[:4])) if draw.random() < 0.2 else draw.choice(_SIZES[:4]) for _ in range(rank)]
        other = [1 if one else size for one, size in zip(ones, shape, strict=True)]
        tensors = (torch.randint(0, 3, sizes).to(dtype) for sizes, dtype in zip((shape, other), dtypes, strict=True))
        arguments.append(tuple(map(_LAYOUTS[layout], tensors)))

    def call(x: Any, y: Any) -> Any:
        total = x + y
        return getattr(torch, name)(total, dim, **settings), total

    try:
        for x, y in arguments:
            call(x, y)
    except (RuntimeError, IndexError):  # PyTorch does not define it for these dtypes or an empty tensor.
        return _views(draw, torch)
    return Function(f"{name} along {dim} of {dtypes}, {layout}, {settings}", call, arguments)


KINDS = (_views, _views, _reduction, _reduction, _attention, _padded_layer)


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and the differences from PyTorch or None."""
    torch = import_module("torch")
    draw = random.Random(trial.seed)
    torch.manual_seed(trial.seed)
    function = draw.choice(KINDS)(draw, torch)
    torch._dynamo.reset()
    compiled = torch.compile(function.call, backend="dlc", options={"target": trial.target, "cache": False})
    has_gradients = draw.random() < 0.6
    try:
        failures = [
            f"{function.name}, {[tuple(x.shape) for x in arguments]}: {problem}"
            for arguments in function.arguments
            for problem in _differences(torch, compiled, function.call, arguments, has_gradients)
        ]
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, UnsupportedError):
            cause = getattr(cause, "inner_exception", None) or cause.__cause__ or cause.__context__
        return ("refused", None) if cause is not None else ("failed", f"{function.name}\n{traceback.format_exc()}")
    return compared(failures)


def _differences(torch: Any, compiled: Any, function: Any, arguments: Sequence[Any], has_gradients: bool) -> Iterator[str]:
    """Yield what differs between the results and gradients of two functions."""
    is_leaf = [has_gradients and x.is_floating_point() for x in arguments]
    copies = [[x.clone().requires_grad_() if leaf else x for x, leaf in zip(arguments, is_leaf, strict=True)] for _ in range(2)]
    results = [_tuple(f(*of)) for f, of in zip((compiled, function), copies, strict=True)]
    for k, (got, wanted) in enumerate(zip(*results, strict=True)):
        if problem := _difference(torch, got, wanted):
            yield f"result {k}: {problem}"
        if (got.stride(), got.storage_offset()) != (wanted.stride(), wanted.storage_offset()):
            yield f"result {k}: layout {got.stride(), got.storage_offset()}, {wanted.stride(), wanted.storage_offset()}"
    if not any(is_leaf):
        return
    gradients: list[Any] = []
    for of, ys in zip(copies, results, strict=True):
        total = sum((y * torch.arange(1, y.numel() + 1).view(y.shape).sin()).sum() for y in ys)
        leaves = [x for x, leaf in zip(of, is_leaf, strict=True) if leaf]
        gradients.append(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))
    for k, (got, wanted) in enumerate(zip(*gradients, strict=True)):
        if problem := _difference(torch, got, wanted):
            yield f"gradient {k}: {problem}"


def _tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def _difference(torch: Any, got: Any, wanted: Any) -> str | None:
    try:
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
    except AssertionError as error:
        return f"{error}\n{got}\nexpected {wanted}"
    return None


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("torch_functions", s, (target or "reference",)) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    start_torch()
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)
