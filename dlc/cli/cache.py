"""`dlc cache`: what was compiled before and is kept, and why a model is found there or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from dlc.backends.registry import backend_of
from dlc.caching.cache import Cache, Entry
from dlc.caching.model_cache import CachedFile, explain, reason_not_cached
from dlc.cli.given import Shapes, shape_option
from dlc.cli.shared import (
    fail,
    json_option,
    model_argument,
    numerics_option,
    out,
    precision_option,
    reports_errors,
    target_option,
    weights_options,
)
from dlc.options import Options

# How many inputs of a model are listed.
_MOST_INPUTS = 4


@click.group("cache", invoke_without_command=True)
@json_option
@click.pass_context
@reports_errors
def cache_command(context: click.Context, as_json: bool) -> None:
    """Lists what was compiled before and is kept.

    The last used comes first.
    """
    if context.invoked_subcommand is not None:
        return
    cache = Cache.standard()
    entries = cache.entries()
    if as_json:
        rows = [_row(e) for e in entries]
        state = {"folder": str(cache.folder) if cache.folder else None, "capacity": cache.capacity, "entries": rows}
        click.echo(json.dumps(state, indent=2))
        return
    folder = _folder(cache)
    out.print(
        f"{escape(str(folder))}: {_entries(len(entries))}, {_size(sum(e.bytes for e in entries))} of {_size(cache.capacity)}"
    )
    if entries:
        out.print(_table(entries))


@cache_command.command("clear")
@json_option
@reports_errors
def clear_command(as_json: bool) -> None:
    """Removes all that is kept."""
    cache = Cache.standard()
    folder = _folder(cache)
    removed, left = cache.clear(), cache.entries()
    count, size = len(removed), sum(e.bytes for e in removed)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "removed": count, "bytes": size, "left": len(left)}, indent=2))
    else:
        out.print(f"{escape(str(folder))}: {_entries(count)} removed, {_size(size)}")
    if left:
        fail(f"{folder}: {_entries(len(left))} left, which cannot be removed; is the folder writable?")


@cache_command.command("explain")
@model_argument
@target_option
@shape_option
@click.option("--pipeline", metavar="PASSES", help='The passes, such as "a,b{k=1}", if not the target\'s.')
@numerics_option
@precision_option
@weights_options
@json_option
@reports_errors
def explain_command(
    model: Path,
    target: str,
    shapes: Shapes,
    pipeline: str | None,
    numerics: str,
    precision: str,
    weights: str,
    group: int,
    as_json: bool,
) -> None:
    """Says whether a model is found in the cache, and if not why.

    That is what differs from what was compiled before.
    """
    options = Options.of(pipeline=pipeline, numerics=numerics, precision=precision, weights=weights, group=group)
    device = backend_of(target, options.device).compiling().target
    _folder(Cache.standard())
    if (reason := reason_not_cached(device, options, model)) is not None:
        fail(f"{model}: not looked for in the cache: {reason}")
    found = explain(CachedFile.look(model, shapes, device, options))
    if as_json:
        nearest = _row(found.nearest) if found.nearest is not None else None
        at_calls = [_row(e) for e in found.at_calls]
        state = {"hit": found.hit, "key": found.key.digest, "nearest": nearest, "reasons": found.reasons, "at_calls": at_calls}
        click.echo(json.dumps(state, indent=2))
        return
    out.print(escape("hit" if found.hit else f"miss: {'; '.join(found.reasons)}"))
    if found.nearest is not None:
        out.print(escape(f"{'entry' if found.hit else 'nearest'}: {_line(found.nearest)}, of {found.nearest.about['file']}"))
    for entry in found.at_calls:
        out.print(f"compiled when it was called with {escape(', '.join(_row(entry)['inputs']))}")


def _table(entries: Sequence[Entry]) -> Table:
    """What is kept, the last used first."""
    table = Table("model", "inputs")
    table.add_column("target", no_wrap=True)
    table.add_column("size", justify="right")
    table.add_column("used")
    table.add_column("hits", justify="right")
    now = time()
    for entry in entries:
        row = _row(entry)
        name, inputs = row["model"] or f"{entry.kind} {entry.key[:12]}", row["inputs"]
        more = [f"and {len(inputs) - _MOST_INPUTS} more"] if len(inputs) > _MOST_INPUTS else []
        listed, used = "\n".join([*inputs[:_MOST_INPUTS], *more]), _age(now - entry.used)
        table.add_row(*map(escape, (name, listed, row["target"], _size(entry.bytes), used, str(entry.hits))))
    return table


def _folder(cache: Cache) -> Path:
    if cache.folder is None:
        fail("there is no cache: DLC_CACHE=0, or no home for it; DLC_CACHE_DIR names a folder")
    return cache.folder


def _row(entry: Entry) -> dict[str, Any]:
    about = entry.about
    return {
        "kind": entry.kind,
        "key": entry.key,
        "model": about.get("model", ""),
        "inputs": about.get("inputs", []),
        "target": about.get("parts", {}).get("target", about.get("target", "")),
        "file": about.get("file"),
        "bytes": entry.bytes,
        "made": entry.made,
        "used": entry.used,
        "hits": entry.hits,
    }


def _line(entry: Entry) -> str:
    row = _row(entry)
    name = f"{entry.kind} {row['model'] or entry.key}"
    times = f"made {_time(entry.made)}, used {_time(entry.used)}"
    return f"{name} for {row['target']}: {_size(entry.bytes)}, {times}, {entry.hits} {'hit' if entry.hits == 1 else 'hits'}"


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _size(count: int) -> str:
    """`1.5 MB`."""
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}" if unit != "bytes" else f"{count} bytes"
        size /= 1000
    return f"{size:.1f} GB"


def _age(seconds: float) -> str:
    """`3 hours ago`."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "just now"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "minutes")
