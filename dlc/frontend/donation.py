"""Which result takes the memory of which argument that a caller gives away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dlc.dialects.dl.programs.program import DONOR
from dlc.errors import ShapeError
from dlc.ir import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, func, i64


def donate(module: ModuleOp, donated: Sequence[int], function: str) -> None:
    """Pairs each donated argument of the entry with the first result of its type that is left, both in their order.

    Raises ShapeError for an argument that finds none.
    """
    (main,) = (op for op in module.ops if isinstance(op, func.FuncOp))
    assert main.arg_attrs is not None and main.res_attrs is not None
    names = [cast(StringAttr, named.data["dl.name"]).data for named in main.arg_attrs]
    results = list(main.function_type.outputs)
    attributes = [dict(named.data) for named in main.res_attrs]
    for argument in donated:
        wanted = main.args[argument].type
        k = next((k for k, t in enumerate(results) if t == wanted and DONOR not in attributes[k]), None)
        if k is None:
            raise ShapeError(
                f"{function}: the donated {names[argument]}, {wanted}, finds no result of its type to lie in its memory; "
                f"the results are {', '.join(map(str, results))}; return what replaces it, or do not donate it"
            )
        attributes[k][DONOR] = IntegerAttr(argument, i64)
    main.res_attrs = ArrayAttr(map(DictionaryAttr, attributes))
