"""Serialization of host-program instructions. Input is untrusted and validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, cast

from dlc.arrays import named_dtype
from dlc.errors import UnsupportedError
from dlc.runtime.program.host_program import (
    Branch,
    BufferRef,
    CarriedSlot,
    Fail,
    HostArray,
    Instruction,
    KernelSignature,
    Launch,
    Loop,
    LoopSlot,
    Parallel,
    PrintArrays,
    PythonCall,
    SetSize,
    While,
)
from dlc.runtime.python_ops.foreign_functions import FOREIGN_CALL, label_of
from dlc.runtime.python_ops.registry import PYTHON_OPS, OpSetting
from dlc.runtime.saving.header.values import count, distance, ref, size_from_json, size_to_json, text

# The reader is recursive: limit the nesting depth, so that a file cannot overflow Python's stack.
_MAX_NESTING_DEPTH = 64


def to_json(instructions: Sequence[Instruction]) -> list[Any]:
    """Serialize instructions: launches as lists, other instructions as objects."""
    return [_instruction_to_json(instruction) for instruction in instructions]


def _instruction_to_json(instruction: Instruction) -> Any:
    match instruction:
        case Launch(kernel=kernel, arguments=arguments, size_values=size_values):
            return [kernel, arguments, list(map(size_to_json, size_values))]
        case Loop(count=count, carried=carried, elements=elements, body=body):
            element_fields = [[e.slot, [e.first[0], size_to_json(e.first[1])], size_to_json(e.step)] for e in elements]
            return {
                "loop": size_to_json(count),
                "carried": _carried(carried),
                "elements": element_fields,
                "body": to_json(body),
            }
        case While(begin=begin, again=again, carried=carried, body=body):
            return {"while": begin, "again": again, "carried": _carried(carried), "body": to_json(body)}
        case Branch(condition=condition, then=then, otherwise=otherwise):
            return {"if": condition, "then": to_json(then), "else": to_json(otherwise)}
        case Parallel(sections=sections, max_threads=max_threads):
            return {"parallel": list(map(to_json, sections)), "max_threads": max_threads}
        case Fail(message=message, values=values):
            return {"fail": message, "values": values}
        case SetSize(symbol=symbol, ref=ref):
            return {"set_size": symbol, "at": ref}
        case PrintArrays(format_parts=format_parts, values=values):
            return {"print": format_parts, "values": _arrays(values)}
        case PythonCall(
            op=op,
            settings=settings,
            where=where,
            arguments=arguments,
            results=results,
            data_dependent_sizes=data_dependent_sizes,
        ):
            if op == FOREIGN_CALL:
                function = label_of(str(settings["function"]))
                problem = f"{where}: a file cannot contain the function of {function}"
                raise UnsupportedError(f"{problem}; write it with dlc.numpy or as a dlc.kernel, or save the parts around it")
            arrays = {
                "arguments": _arrays(arguments),
                "results": _arrays(results),
                "data_dependent_sizes": data_dependent_sizes,
            }
            return {"python_call": op, "settings": settings, "where": where, **arrays}


def _arrays(arrays: Sequence[HostArray]) -> list[Any]:
    return [[array.ref, list(map(size_to_json, array.shape)), array.dtype.name] for array in arrays]


def _carried(carried: Sequence[CarriedSlot]) -> list[Any]:
    return [[c.slot, c.first, c.following] for c in carried]


def from_json(written: Any, kernels: Mapping[str, KernelSignature]) -> tuple[Instruction, ...]:
    """Read the instructions of a program with these kernels.

    Raises ModelError, ValueError, TypeError or KeyError for invalid input.
    """
    return _InstructionReader(kernels).block(written, 0)


class _InstructionReader:
    def __init__(self, kernels: Mapping[str, KernelSignature]) -> None:
        self.kernels = kernels

    def block(self, written: Any, depth: int) -> tuple[Instruction, ...]:
        if depth > _MAX_NESTING_DEPTH:
            raise ValueError(f"bodies are nested more than {_MAX_NESTING_DEPTH} deep")
        return tuple(self.instruction(instruction, depth + 1) for instruction in written)

    def instruction(self, written: Any, depth: int) -> Instruction:
        if isinstance(written, list):
            return self.launch(*cast("list[Any]", written))
        if "loop" in written:
            elements = tuple(self.element(*element) for element in written["elements"])
            return Loop(size_from_json(written["loop"]), _read_carried(written), elements, self.block(written["body"], depth))
        if "while" in written:
            begin, again = ref(written["while"]), ref(written["again"])
            return While(begin, again, _read_carried(written), self.block(written["body"], depth))
        if "if" in written:
            then, otherwise = (self.block(written[key], depth) for key in ("then", "else"))
            return Branch(ref(written["if"]), then, otherwise)
        if "parallel" in written:
            sections = tuple(tuple(self.launch(*launch) for launch in section) for section in written["parallel"])
            return Parallel(sections, count(written["max_threads"]))
        if "set_size" in written:
            return SetSize(text(written["set_size"]), ref(written["at"]))
        if "print" in written:
            return self.print_arrays(written)
        if "python_call" in written:
            return self.python_call(written)
        return Fail(text(written["fail"]), _read_message_values(written))

    def launch(self, kernel: Any, arguments: Any, size_values: Any) -> Launch:
        if kernel is not None:
            text(kernel)
        return Launch.of(kernel, tuple(map(ref, arguments)), tuple(map(size_from_json, size_values)), self.kernels)

    def element(self, slot: Any, first: Any, step: Any) -> LoopSlot:
        first_slot, offset = first
        step = distance(step) if type(step) is int else size_from_json(step)
        return LoopSlot(count(slot), (count(first_slot), size_from_json(offset)), step)

    def print_arrays(self, written: Any) -> PrintArrays:
        """Read a PrintArrays; raise ValueError or TypeError unless there is a format for each array."""
        values = tuple(self.array(*array) for array in written["values"])
        format_parts = tuple(map(text, written["print"]))
        if len(format_parts) != 2 * len(values) + 1:
            raise ValueError(f"got {len(format_parts)} format parts for {len(values)} arrays; expected {2 * len(values) + 1}")
        return PrintArrays(format_parts, values)

    def python_call(self, written: Any) -> PythonCall:
        """Read a PythonCall; raise ValueError, TypeError or KeyError unless it is a valid call of an existing op."""
        op, settings = text(written["python_call"]), dict(written["settings"])
        arguments, results = (tuple(self.array(*array) for array in written[key]) for key in ("arguments", "results"))
        require_call(op, arguments, settings)
        data_dependent_sizes = tuple(map(text, written["data_dependent_sizes"]))
        return PythonCall(op, settings, text(written["where"]), arguments, results, data_dependent_sizes)

    def array(self, reference: Any, shape: Any, dtype: Any) -> HostArray:
        return HostArray(ref(reference), tuple(map(size_from_json, shape)), named_dtype(dtype))


def _read_carried(written: Any) -> tuple[CarriedSlot, ...]:
    return tuple(CarriedSlot(count(slot), ref(first), ref(following)) for slot, first, following in written["carried"])


def _read_message_values(written: Any) -> tuple[BufferRef, ...]:
    """Read the references to a message's values; raise ValueError if the message has fewer fields."""
    values = tuple(map(ref, written["values"]))
    if written["fail"].count("{}") < len(values):
        raise ValueError(f"{written['fail']!r} does not have {len(values)} fields")
    return values


def require_call(op: str, arguments: Sequence[HostArray], settings: Mapping[str, OpSetting]) -> None:
    """Raise ValueError or TypeError unless `op` is in PYTHON_OPS and accepts these arguments and settings."""
    if op not in PYTHON_OPS:
        raise ValueError(f"{op!r} is not an op that is implemented in Python")
    setting_names = {name for name, p in signature(PYTHON_OPS[op]).parameters.items() if p.kind is Parameter.KEYWORD_ONLY}
    setting_types = (int, bool, str, type(None))
    if not setting_names.issuperset(settings) or not all(type(value) in setting_types for value in settings.values()):
        raise ValueError(f"{op} does not accept the settings {settings}")
    signature(PYTHON_OPS[op]).bind(*arguments, **settings)
    if "to" in settings:
        named_dtype(settings["to"])
