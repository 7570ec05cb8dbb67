"""Buffer donation: assign the memory of a donated argument to a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dlc.dialects.dl.programs.program import DONOR
from dlc.errors import ShapeError
from dlc.ir import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, func, i64


def donate(module: ModuleOp, donated: Sequence[int], function: str) -> None:
    """Pair each donated argument of the entry with the first unpaired result of its type, both in order.

    Raises ShapeError for an argument without a matching result.
    """
    (main,) = (op for op in module.ops if isinstance(op, func.FuncOp))
    assert main.arg_attrs is not None and main.res_attrs is not None
    names = [cast(StringAttr, named.data["dl.name"]).data for named in main.arg_attrs]
    results = list(main.function_type.outputs)
    attributes = [dict(named.data) for named in main.res_attrs]
    for argument in donated:
        donated_type = main.args[argument].type
        k = next((k for k, t in enumerate(results) if t == donated_type and DONOR not in attributes[k]), None)
        if k is None:
            raise ShapeError(
                f"{function}: the donated {names[argument]}, {donated_type}, cannot be reused: no result has its type; "
                f"the results are {', '.join(map(str, results))}; return its updated value, or do not donate it"
            )
        attributes[k][DONOR] = IntegerAttr(argument, i64)
    main.res_attrs = ArrayAttr(map(DictionaryAttr, attributes))
