"""Format-aware random mutations of files: protobuf messages, IR text, artifact headers."""

from __future__ import annotations

import copy
import json
import random
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message
from onnx import ModelProto

from dlc.runtime.saving.container import PREFIX

INTEGERS = (0, 1, -1, 2, 3, 7, 8, 64, 127, 128, 255, 256, 1000, 65536, 10**6, 10**9)
HUGE = (2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
STRINGS = (
    "",
    "x",
    "y",
    ".",
    "../secret",
    "/etc/passwd",
    "a\0b",
    "NaN",
    "-1",
    "0",
    "4",
    "99999999999999999999",
    "é" * 300,
    "main",
)
# Fields beyond this number are not mutated: they are mostly the elements of weights.
_MAX_SITES = 4000


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip bits, truncate, delete or repeat ranges, overwrite integers."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at, other = rng.randrange(len(changed) + 1), rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0 | 1 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                del changed[at:]
            case 3:
                del changed[at : at + rng.choice([1, 4, 100])]
            case 4:
                changed[at:at] = changed[other : other + rng.choice([1, 8, 200])]
            case _:
                changed[at : at + 8] = struct.pack("<q", rng.choice((*INTEGERS, *HUGE)))
    return bytes(changed)


# ONNX


def mutate_model(model: ModelProto, rng: random.Random) -> ModelProto:
    """Return a copy with some fields changed, removed, duplicated or swapped."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        sites = list(_fields(changed))[:_MAX_SITES]
        if not sites:
            return changed
        # Choose the kind of field first, since some kinds are rare: there are many more dimensions than opsets.
        kinds = sorted({_kind(*site) for site in sites})
        kind = rng.choice(kinds)
        message, field = rng.choice([site for site in sites if _kind(*site) == kind])
        names = [getattr(m, f.name) for m, f in sites if f.type == f.TYPE_STRING and not f.is_repeated]
        names += [name for m, f in sites if f.type == f.TYPE_STRING and f.is_repeated for name in getattr(m, f.name)]
        try:
            _change(message, field, rng, [*names, *STRINGS])
        except (ValueError, TypeError):
            continue  # protobuf rejects the value
    return changed


def _kind(message: Message, field: Any) -> str:
    return f"{type(message).__name__}.{field.name}"


def _fields(message: Message) -> Iterator[tuple[Message, Any]]:
    """Yield every field that is set, of this message and of nested ones."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from _fields(inner)


def _change(message: Any, field: Any, rng: random.Random, names: list[str]) -> None:
    value = getattr(message, field.name)
    if not field.is_repeated:
        if field.type == field.TYPE_MESSAGE or rng.random() < 0.1:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _other_value(field, value, rng, names))
        return
    at = rng.randrange(len(value))
    match rng.randrange(4):
        case 0:
            del value[at]
        case 1 if field.type == field.TYPE_MESSAGE:
            value.add().CopyFrom(value[at])
        case 1:
            value.append(value[at])
        case 2 if field.type == field.TYPE_MESSAGE:
            first, second = type(value[at])(), rng.randrange(len(value))
            first.CopyFrom(value[at])
            value[at].CopyFrom(value[second])
            value[second].CopyFrom(first)
        case _ if field.type != field.TYPE_MESSAGE:
            value[at] = _other_value(field, value[at], rng, names)
        case _:
            del value[at:]


def _other_value(field: Any, value: Any, rng: random.Random, names: list[str]) -> Any:
    """Return another value for a field."""
    match field.type:
        case field.TYPE_STRING:
            return rng.choice(names) if rng.random() < 0.8 else value + rng.choice(STRINGS)
        case field.TYPE_BYTES:
            return mutate_bytes(value, rng)
        case field.TYPE_FLOAT | field.TYPE_DOUBLE:
            return rng.choice(FLOATS)
        case field.TYPE_ENUM:
            return rng.choice(field.enum_type.values).number
        case field.TYPE_BOOL:
            return not value
        case _:
            return _other_integer(value, rng)


def _other_integer(value: int, rng: random.Random) -> int:
    neighbors = (value + 1, value - 1, -value, 2 * value)
    return rng.choice(rng.choice([neighbors, neighbors, INTEGERS, INTEGERS, HUGE]))


# IR text

_TOKEN = re.compile(r"-?\b\d+\b|[%@#]?[A-Za-z_][\w.]*|\S")


def mutate_text(text: str, rng: random.Random) -> str:
    """Replace tokens by others of their kind; move, repeat or delete lines; change characters."""
    for _ in range(rng.choice([1, 1, 2, 4])):
        lines = text.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        match rng.randrange(8):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                index = rng.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:index] + rng.choice('(){}<>[]%@#:,="0x-é\0 ') + lines[at][index + 1 :]
            case 4 if rng.random() < 0.2:
                del lines[at + 1 :]
            case _:
                lines[at] = _replace_token(lines[at], text, rng)
        text = "".join(lines) or " "
    return text


def _replace_token(line: str, text: str, rng: random.Random) -> str:
    tokens = list(_TOKEN.finditer(line))
    if not tokens:
        return line
    token = rng.choice(tokens)
    word = token.group()
    if re.fullmatch(r"-?\d+", word):
        new = str(_other_integer(int(word), rng))
    else:
        same = [w for w in _TOKEN.findall(text) if w[0] == word[0] or (w[0].isalpha() and word[0].isalpha())]
        new = rng.choice([*same, "tensor", "f64", "i1"])
    return line[: token.start()] + new + line[token.end() :]


# Artifacts


def header_of(data: bytes) -> dict[str, Any]:
    """Return the header of an artifact."""
    length = PREFIX.unpack_from(data)[3]
    return json.loads(data[PREFIX.size : PREFIX.size + length])


def replace_header(data: bytes, header: object) -> bytes:
    """Replace the header of an artifact, with a correct checksum."""
    magic, version, _, length, program = PREFIX.unpack_from(data)
    sections = data[-(-(PREFIX.size + length) // 4096) * 4096 :]
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    start = PREFIX.pack(magic, version, zlib.crc32(text), len(text), program) + text
    return start + bytes(-len(start) % 4096) + sections


def mutate_header(data: bytes, rng: random.Random) -> bytes:
    """Mutate the header of an artifact, with a correct checksum."""
    header = header_of(data)
    if rng.random() < 0.05:
        return replace_header(data, mutate_bytes(json.dumps(header).encode(), rng))
    for _ in range(rng.choice([1, 1, 2])):
        mutate_json(header, rng)
    return replace_header(data, header)


def mutate_json(value: Any, rng: random.Random) -> None:
    """Change one entry of a nested value, at any depth with equal probability."""
    locations: list[tuple[Any, Any]] = []

    def visit(inside: Any) -> None:
        for key in list(inside) if isinstance(inside, dict) else range(len(inside)):
            locations.append((inside, key))
            if isinstance(inside[key], dict | list):
                visit(inside[key])

    visit(value)
    inside, key = rng.choice(locations)
    old = inside[key]
    match rng.randrange(8):
        case 0:
            del inside[key]
        case 1 if isinstance(inside, list):
            inside.insert(key, old)
        case 2:
            inside[key] = rng.choice([None, True, {}, [], "x", 1.5, -1, [0], {"x": 1}])
        case 3:
            other, index = rng.choice(locations)
            inside[key] = copy.deepcopy(other[index])
        case _ if isinstance(old, int):
            inside[key] = _other_integer(old, rng)
        case _ if isinstance(old, str):
            inside[key] = rng.choice([*STRINGS, "float64", "int4", "dtype", "getattr", old + "x"])
        case _ if isinstance(old, list) and old:
            rng.shuffle(old)
        case _:
            inside[key] = rng.choice((*INTEGERS, *HUGE))
