"""Run threads of LLVM IR functions in every interleaving, with sequentially consistent memory.

It interprets the part of LLVM IR that `runtime.ll` uses. A thread can be interrupted before each access to shared memory: an
atomic instruction, or a call of an external function. Other loads and stores are of constants and of a thread's own memory. The
state of a thread is its position and live registers, so that the search visits every reachable state once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

_SIZES = {"i1": 1, "i8": 1, "i32": 4, "i64": 8, "ptr": 8}
_MASK = (1 << 64) - 1
_VALUE = re.compile(r"%[\w.]+")
# Threads have stacks of this size, from this address on.
_STACKS, _STACK_BYTES = 1 << 20, 1 << 12

# 64-bit words by address, except zeros.
Memory: TypeAlias = dict[int, int]
# An external function: (machine, thread, arguments) → the result, or None if the thread must wait.
External: TypeAlias = "Callable[[State, int, list[int]], int | None]"


def load(memory: Mapping[int, int], address: int, size: int) -> int:
    return (memory.get(address & ~7, 0) >> 8 * (address & 7)) & ((1 << 8 * size) - 1)


def store(memory: Memory, address: int, size: int, value: int) -> None:
    mask, shift = (1 << 8 * size) - 1, 8 * (address & 7)
    word = (memory.get(address & ~7, 0) & ~(mask << shift)) | (value & mask) << shift
    if word:
        memory[address & ~7] = word
    else:
        memory.pop(address & ~7, None)


@dataclass
class Function:
    """A function: its instructions in order, the position after each label, and the live registers at each position."""

    parameters: list[str]
    code: list[str] = field(default_factory=list[str])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    live: list[frozenset[str]] = field(default_factory=list[frozenset[str]])

    def label_at(self, position: int) -> str:
        return max((p, label) for label, p in self.labels.items() if p <= position)[1]

    def find_live_registers(self) -> None:
        """Compute the registers that are read at or after each position, by iteration to a fixed point."""
        self.live = [frozenset()] * (len(self.code) + 1)
        changed = True
        while changed:
            changed = False
            for k in reversed(range(len(self.code))):
                target, text = split_result(self.code[k])
                followers = [self.labels[name] for name in re.findall(r"label %([\w.]+)", text)]
                ends = text.startswith(("br", "ret", "switch"))
                after = frozenset[str]().union(*(self.live[p] for p in (followers if ends else [k + 1])))
                labels = {f"%{name}" for name in self.labels}
                live = (after - {target}) | {name for name in _VALUE.findall(text) if name not in labels or "label" not in text}
                if live != self.live[k]:
                    self.live[k], changed = live, True


@cache
def split_result(instruction: str) -> tuple[str, str]:
    target, found, text = instruction.partition(" = ")
    return (target, text) if found else ("", instruction)


class Program:
    """A module of LLVM IR text, with external functions by name."""

    def __init__(self, text: str, externals: Mapping[str, External]) -> None:
        self.externals, self.functions = externals, dict[str, Function]()
        text = re.sub(r";.*", "", text)
        self.types = {name: split_types(body) for name, body in re.findall(r"%(\w+) = type \{(.*?)\n\}", text, re.S)}
        for name, parameters, body in re.findall(r"define [^@]*@([\w.]+)\(([^)]*)\)[^{]*\{\n(.*?)\n\}", text, re.S):
            function = self.functions[name] = Function(_VALUE.findall(parameters))
            function.labels[""] = 0
            for line in re.sub(r"\[\n(.*?)\]", lambda m: m[0].replace("\n", " "), body, flags=re.S).splitlines():
                if label := re.fullmatch(r"([\w.]+):", line.strip()):
                    function.labels[label[1]] = len(function.code)
                elif line.strip():
                    function.code.append(line.strip())
            function.find_live_registers()
        names = [*self.functions, *externals]
        self.addresses = {f"@{name}": 16 * (k + 1) for k, name in enumerate(names)}
        self.names = {address: name[1:] for name, address in self.addresses.items()}

    @cache  # noqa: B019
    def layout(self, type: str) -> tuple[int, int]:
        """Return the size and alignment of a type in bytes."""
        if array := re.fullmatch(r"\[(\d+) x (.+)\]", type):
            size, alignment = self.layout(array[2])
            return int(array[1]) * size, alignment
        fields = self.fields(type)
        if fields is None:
            return _SIZES[type], _SIZES[type]
        return self.offset(type, len(fields)), max(self.layout(f)[1] for f in fields)

    def fields(self, type: str) -> list[str] | None:
        return self.types.get(type[1:]) if type[0] == "%" else split_types(type[1:-1]) if type[0] == "{" else None

    @cache  # noqa: B019
    def offset(self, type: str, index: int) -> int:
        """Return the offset of a field of a structure, or the size of the structure."""
        fields, offset = self.fields(type) or [], 0
        for k, item in enumerate([*fields, "i8"]):
            size, alignment = self.layout(item)
            offset = -(-offset // alignment) * alignment
            if k == index:
                break
            offset += size
        return offset


@cache
def split_types(text: str) -> list[str]:
    return [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", text) if part.strip()]


@cache
def callee_operand(call: str) -> str:
    """Return the name of a function, or the register of a pointer to it."""
    name = re.search(r"([%@][\w.]+)\(", call)
    assert name is not None, call
    return name[1]


@dataclass
class Frame:
    """A call of a function: its position, registers, and the end of its part of the stack."""

    function: str
    position: int
    registers: dict[str, int]
    stack: int


@dataclass
class State:
    """The memory, and the frames of each thread; `waits` has the address on whose futex a thread sleeps."""

    program: Program
    memory: Memory
    threads: list[list[Frame]] = field(default_factory=list[list[Frame]])
    waits: dict[int, int] = field(default_factory=dict[int, int])
    # The positions and registers of each thread, hashable.
    thread_keys: list[object] = field(default_factory=list[object])

    def copy_for(self, k: int) -> State:
        """Return a copy in which thread `k` can run."""
        threads = [*self.threads]
        threads[k] = [Frame(f.function, f.position, f.registers.copy(), f.stack) for f in threads[k]]
        return State(self.program, self.memory.copy(), threads, self.waits.copy(), [*self.thread_keys])

    def key(self) -> object:
        """Return what distinguishes the state from others."""
        return tuple(self.thread_keys), frozenset(self.memory.items()), frozenset(self.waits.items())

    def start(self, function: str, *arguments: int) -> None:
        """Start a thread."""
        parameters = self.program.functions[function].parameters
        stack = _STACKS + len(self.threads) * _STACK_BYTES
        self.thread_keys.append(())
        self.threads.append([Frame(function, 0, dict(zip(parameters, arguments, strict=True)), stack)])
        self._run_private(len(self.threads) - 1)

    def step(self, k: int) -> Iterator[State]:
        """Yield the states after the next shared access of a thread; none if it cannot run now."""
        if k in self.waits or not self.threads[k]:
            return
        for choice in (0, 1) if "@tired(" in self._instruction(k) else (0,):
            state = self.copy_for(k)
            if state._execute(k, choice):
                state._run_private(k)
                yield state

    def _instruction(self, k: int) -> str:
        frame = self.threads[k][-1]
        return self.program.functions[frame.function].code[frame.position]

    def _run_private(self, k: int) -> None:
        """Run a thread up to its next shared access."""
        while self.threads[k] and not self._is_shared(k):
            assert self._execute(k, 0)
        for frame in self.threads[k]:
            live = self.program.functions[frame.function].live[frame.position]
            frame.registers = {r: v for r, v in frame.registers.items() if r in live}
        self.thread_keys[k] = tuple([(f.function, f.position, frozenset(f.registers.items())) for f in self.threads[k]])

    def _is_shared(self, k: int) -> bool:
        text = self._instruction(k)
        if "atomic" in text or "cmpxchg" in text or "@tired(" in text:
            return True
        return split_result(text)[1].startswith("call ") and self._callee(self.threads[k][-1], text) in self.program.externals

    def _callee(self, frame: Frame, text: str) -> str:
        name = callee_operand(text)
        return name[1:] if name[0] == "@" else self.program.names[frame.registers[name]]

    def _execute(self, k: int, choice: int) -> bool:
        """Execute an instruction; return False if it must wait."""
        frame, thread = self.threads[k][-1], self.threads[k]
        target, text = split_result(self._instruction(k))
        operation = text.removeprefix("tail ").split(" ", 1)[0]
        if operation == "ret":
            thread.pop()
            if thread:
                caller = thread[-1]
                target, _ = split_result(self.program.functions[caller.function].code[caller.position])
                if target:
                    caller.registers[target] = self._operand(frame, text.split()[-1])
                caller.position += 1
        elif operation in ("br", "switch"):
            self._jump(frame, text)
        elif operation == "call":
            name = self._callee(frame, text)
            arguments = [
                self._operand(frame, a.split()[-1]) for a in split_types(text[text.rindex("(") + 1 : text.rindex(")")])
            ]
            if name in self.program.functions and name != "tired":
                parameters = self.program.functions[name].parameters
                thread.append(Frame(name, 0, dict(zip(parameters, arguments, strict=True)), frame.stack))
                return True
            result = choice if name == "tired" else self._call_external(name, k, arguments)
            if result is None:
                return False
            frame.position += 1
            if target:
                frame.registers[target] = result
        else:
            value = self._value(frame, operation, text)
            frame.position += 1
            if target:
                frame.registers[target] = value
        return True

    def _call_external(self, name: str, k: int, arguments: list[int]) -> int | None:
        if name.startswith(("llvm.umin.", "llvm.smin.")):
            return min(arguments, key=lambda v: _signed(v) if name.startswith("llvm.s") else v)
        if name == "llvm.smax.i64":
            return max(arguments, key=_signed)
        if name == "llvm.abs.i64":
            return min(arguments[0], -arguments[0] & _MASK)
        return self.program.externals[name](self, k, arguments)

    def _jump(self, frame: Frame, text: str) -> None:
        function = self.program.functions[frame.function]
        source, labels = function.label_at(frame.position), re.findall(r"label %([\w.]+)", text)
        if text.startswith("switch"):
            value = self._operand(frame, text.split()[2].rstrip(","))
            cases = {int(case): label for case, label in re.findall(r"i64 (\d+), label %([\w.]+)", text.split("[")[1])}
            label = cases.get(value, labels[0])
        else:
            label = labels[0] if len(labels) == 1 or self._operand(frame, text.split()[2].rstrip(",")) else labels[1]
        position, values = function.labels[label], dict[str, int]()
        while " = phi " in function.code[position]:
            phi, written = split_result(function.code[position])
            incoming = dict((b, a) for a, b in re.findall(r"\[ ([^,]+), %([\w.]+) \]", written))
            values[phi] = self._operand(frame, incoming[source])
            position += 1
        frame.registers.update(values)
        frame.position = position

    def _operand(self, frame: Frame, text: str) -> int:
        if text[0] == "%":
            return frame.registers[text]
        if text[0] == "@":
            return self.program.addresses[text]
        return {"null": 0, "true": 1, "false": 0, "void": 0}.get(text) if text.isalpha() else int(text) & _MASK  # pyright: ignore[reportReturnType]

    def _value(self, frame: Frame, operation: str, text: str) -> int:
        """Compute an instruction without effects on the control flow."""
        operands = split_types(text.split(" ", 1)[1])
        last = [part.split()[-1] for part in operands]

        def operand(index: int) -> int:
            return self._operand(frame, last[index])

        match operation:
            case "load":
                kind = operands[0].removeprefix("atomic ")
                pointer = next(part.split()[1] for part in operands[1:] if part.startswith("ptr "))
                return load(self.memory, self._operand(frame, pointer), self.program.layout(kind)[0])
            case "store":
                kind, value = operands[0].removeprefix("atomic ").split()
                store(self.memory, self._operand(frame, operands[1].split()[1]), _SIZES[kind], self._operand(frame, value))
                return 0
            case "cmpxchg":
                address, kind = self._operand(frame, operands[0].split()[1]), operands[1].split()[0]
                found, expected = load(self.memory, address, _SIZES[kind]), self._operand(frame, operands[1].split()[1])
                if found == expected & ((1 << 8 * _SIZES[kind]) - 1):
                    store(self.memory, address, _SIZES[kind], self._operand(frame, operands[2].split()[1]))
                    return found | 1 << 64
                return found
            case "extractvalue":
                return operand(0) >> 64 if last[1] == "1" else operand(0) & _MASK
            case "atomicrmw":
                function, _, pointer = operands[0].split()
                address, (kind, amount, _) = self._operand(frame, pointer), operands[1].split()
                before = load(self.memory, address, _SIZES[kind])
                change = self._operand(frame, amount)
                store(self.memory, address, _SIZES[kind], before + (change if function == "add" else -change))
                return before
            case "alloca":
                count = operand(1) if len(operands) > 1 and operands[1].startswith("i64") else 1
                address = frame.stack
                frame.stack += 8 * max(1, count * self.program.layout(operands[0])[0] // 8)
                return address
            case "getelementptr":
                return self._element(frame, operands)
            case "icmp":
                condition, kind, *_ = operands[0].split()
                bits = 8 * _SIZES[kind]
                a, b = (v & ((1 << bits) - 1) for v in (operand(0), operand(1)))
                if condition[0] == "s":
                    a, b = (v - (v >> bits - 1 << bits) for v in (a, b))
                return int({"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[condition[-2:]])
            case "select":
                return operand(1) if operand(0) else operand(2)
            case "trunc":
                return self._operand(frame, operands[0].split()[1]) & ((1 << 8 * _SIZES[operands[0].split()[-1]]) - 1)
            case "zext" | "ptrtoint":
                return self._operand(frame, operands[0].split()[1])
        kind, bits = operands[0].split()[0], 8 * _SIZES[operands[0].split()[0]]
        mask = 1 if kind == "i1" else (1 << bits) - 1
        a, b = operand(0) & mask, operand(1) & mask
        results: dict[str, Callable[[], int]] = {
            "add": lambda: a + b,
            "sub": lambda: a - b,
            "mul": lambda: a * b,
            "udiv": lambda: a // b,
            "urem": lambda: a % b,
            "and": lambda: a & b,
            "or": lambda: a | b,
            "xor": lambda: a ^ b,
            "shl": lambda: a << b,
            "lshr": lambda: a >> b,
        }
        return results[operation]() & mask

    def _element(self, frame: Frame, operands: list[str]) -> int:
        kind, base, *indices = operands
        address = self._operand(frame, base.split()[1])
        first, *inner = [_signed(self._operand(frame, index.split()[1])) for index in indices]
        address += first * self.program.layout(kind)[0]
        for index in inner:
            if array := re.fullmatch(r"\[\d+ x (.+)\]", kind):
                kind = array[1]
                address += index * self.program.layout(kind)[0]
            else:
                address += self.program.offset(kind, index)
                kind = (self.program.fields(kind) or [])[index]
        return address & _MASK


def _signed(value: int) -> int:
    return value - (value >> 63 << 64)


def explore(initial: State) -> int:
    """Visit all reachable states; return their number. Raises AssertionError for a deadlock."""
    seen, frontier = {initial.key()}, [initial]
    while frontier:
        state = frontier.pop()
        if not any(state.threads):
            continue
        following = [after for k in range(len(state.threads)) for after in state.step(k)]
        assert following, f"deadlock: {[[(f.function, f.position) for f in t] for t in state.threads]}, {state.waits}"
        for after in following:
            if (key := after.key()) not in seen:
                seen.add(key)
                frontier.append(after)
    return len(seen)
