"""`@dlc.jit`: compile a Python function for the shapes and dtypes that it is called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack, overload

import dlc.numpy
from dlc.backends.base import Backend
from dlc.distributed.placement import Placement
from dlc.errors import DTypeError, UnsupportedError
from dlc.just_in_time.call_arguments import ParameterKinds
from dlc.just_in_time.jit_function import JitFunction
from dlc.options import CompileOptions, Options
from dlc.runtime.collectives.mesh import Mesh

# Importing it defines the operators of traced arrays.
_operators = dlc.numpy


@overload
def jit(function: Callable[..., Any], /) -> JitFunction: ...
@overload
def jit(
    *,
    target: str | Backend = "cpu",
    static_argnames: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    donate_argnames: str | Sequence[str] = (),
    mesh: Mesh | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    auto: bool = False,
    memory_price: float = 0.0,
    **options: Unpack[CompileOptions],
) -> Callable[[Callable[..., Any]], JitFunction]: ...
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    target: str | Backend = "cpu",
    static_argnames: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    donate_argnames: str | Sequence[str] = (),
    mesh: Mesh | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    auto: bool = False,
    memory_price: float = 0.0,
    **options: Unpack[CompileOptions],
) -> Any:
    """Compile a function on arrays for `target` when it is called: `@dlc.jit` or `@dlc.jit(target=…, …)`.

    Args:
        static_argnames, static_argnums: Arguments, by name or position, that are static settings and not arrays; the function
            is specialized for each of their values.
        dynamic: Symbolic dimensions by argument and axis, with an optional range: `{"x": {0: "N:1..32"}}` compiles one
            dynamic-shape program where possible.
        donate_argnames: Arguments whose memory the caller gives up. Each of their arrays is overwritten by the first remaining
            result of the same shape and dtype (on CPUs; a read-only array is copied first). Raises ShapeError for an array
            without such a result.
        mesh: The ranks that run the function together (docs/distributed.md). They pass the same global arrays or
            `DistributedArray`s; results that are sharded are `DistributedArray`s.
        in_shardings, out_shardings: Trees of `dlc.P` for the arguments, a tuple with one entry per parameter, and for the
            result. A `P` or None applies to all arrays below it; None leaves them to the compiler.
        auto: Choose the shardings that annotations do not specify, to minimize the estimated time (docs/automatic_sharding.md).
            Needs scipy.
        memory_price: Seconds of estimated time that `auto` trades for each byte of arguments that a rank does not store.
        options: `num_threads`, `cache`, `numerics` and others: see `CompileOptions`. Only the first compilation writes
            `dump_ir`.

    Raises what tracing raises: ShapeError and DTypeError start with the user's line.
    """
    if mesh is None and (in_shardings is not None or out_shardings is not None):
        raise DTypeError('dlc.jit: in_shardings and out_shardings need a mesh: dlc.jit(mesh=dlc.make_mesh({"data": 2}))')
    if mesh is None and auto:
        raise DTypeError('dlc.jit: auto needs a mesh: dlc.jit(mesh=dlc.make_mesh({"data": 2}), auto=True)')
    if mesh is not None and dynamic:
        raise UnsupportedError("dlc.jit: dynamic dimensions on a mesh; functions on a mesh have static shapes")
    compile_options = Options.from_keywords("dlc.jit", options)

    def wrap(f: Callable[..., Any]) -> JitFunction:
        static = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
        donated = (donate_argnames,) if isinstance(donate_argnames, str) else donate_argnames
        static_positions = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
        placement = None if mesh is None else Placement(mesh, in_shardings, out_shardings, memory_price if auto else None)
        return JitFunction(
            ParameterKinds(f, static, static_positions, donated, dynamic or {}), target, compile_options, placement
        )

    return wrap if function is None else wrap(function)
