"""`dlc cache`: list and clear the cache of compiled models, and explain a cache hit or miss."""

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
from dlc.caching.cache import Cache, CacheEntry
from dlc.caching.model_cache import CachedFile, explain, reason_not_cached
from dlc.cli.common import examples, fail, json_option, model_argument, reports_errors, target_option
from dlc.cli.compile_options import NUMERIC_OPTIONS, compile_options
from dlc.cli.console import out
from dlc.cli.shape_options import Shapes, shape_option
from dlc.options import Options

# Maximum number of inputs of a model in the table.
_MAX_LISTED_INPUTS = 4


@click.group(
    "cache",
    invoke_without_command=True,
    epilog=examples("dlc cache", "dlc cache explain model.onnx", "dlc cache clear"),
)
@json_option
@click.pass_context
@reports_errors
def cache_command(context: click.Context, as_json: bool) -> None:
    """Lists, clears or explains the cache of compiled models.

    Without a subcommand it lists the entries, the most recently used first.
    """
    if context.invoked_subcommand is not None:
        return
    cache = Cache.standard()
    entries = cache.entries()
    if as_json:
        rows = [_row(e) for e in entries]
        summary = {"folder": str(cache.folder) if cache.folder else None, "capacity": cache.capacity, "entries": rows}
        click.echo(json.dumps(summary, indent=2))
        return
    folder = _require_folder(cache)
    out.print(
        f"{escape(str(folder))}: {_entry_count_text(len(entries))}, "
        f"{_size_text(sum(e.bytes for e in entries))} of {_size_text(cache.capacity)}"
    )
    if entries:
        out.print(_table(entries))


@cache_command.command("clear")
@json_option
@reports_errors
def clear_command(as_json: bool) -> None:
    """Removes all entries of the cache."""
    cache = Cache.standard()
    folder = _require_folder(cache)
    removed, remaining_entries = cache.clear(), cache.entries()
    count, size = len(removed), sum(e.bytes for e in removed)
    if as_json:
        click.echo(
            json.dumps({"folder": str(folder), "removed": count, "bytes": size, "left": len(remaining_entries)}, indent=2)
        )
    else:
        out.print(f"{escape(str(folder))}: {_entry_count_text(count)} removed, {_size_text(size)}")
    if remaining_entries:
        fail(f"{folder}: {_entry_count_text(len(remaining_entries))} could not be removed; is the folder writable?")


@cache_command.command("explain", epilog=examples("dlc cache explain model.onnx --target cpu:avx2"))
@model_argument
@target_option
@shape_option
@compile_options("pipeline", *NUMERIC_OPTIONS)
@json_option
@reports_errors
def explain_command(
    model: Path,
    target: str,
    shapes: Shapes,
    as_json: bool,
    compile_settings: dict[str, Any],
) -> None:
    """Explains a cache hit or miss, that is a recompilation.

    A miss lists what differs from the most similar entry: the file, shapes, options, target or version of dlc.
    """
    options = Options.of(**compile_settings)
    device = backend_of(target, options.device).for_compilation().target
    _require_folder(Cache.standard())
    if (reason := reason_not_cached(device, options, model)) is not None:
        fail(f"{model}: the cache is not used: {reason}")
    explanation = explain(CachedFile.identify(model, shapes, device, options))
    if as_json:
        nearest = _row(explanation.nearest) if explanation.nearest is not None else None
        call_entries = [_row(e) for e in explanation.call_entries]
        summary = {
            "hit": explanation.hit,
            "key": explanation.key.digest,
            "nearest": nearest,
            "reasons": explanation.reasons,
            "call_entries": call_entries,
        }
        click.echo(json.dumps(summary, indent=2))
        return
    out.print(escape("hit" if explanation.hit else f"miss: {'; '.join(explanation.reasons)}"))
    if explanation.nearest is not None:
        out.print(
            escape(
                f"{'entry' if explanation.hit else 'nearest'}: {_describe_entry(explanation.nearest)}, "
                f"of {explanation.nearest.metadata['file']}"
            )
        )
    for entry in explanation.call_entries:
        out.print(f"specialized at run time for {escape(', '.join(_row(entry)['inputs']))}")


def _table(entries: Sequence[CacheEntry]) -> Table:
    """Return the table of entries, the most recently used first."""
    table = Table("model", "inputs")
    table.add_column("target", no_wrap=True)
    table.add_column("size", justify="right")
    table.add_column("used")
    table.add_column("hits", justify="right")
    now = time()
    for entry in entries:
        row = _row(entry)
        name, inputs = row["model"] or f"{entry.kind} {entry.key[:12]}", row["inputs"]
        omission = [f"and {len(inputs) - _MAX_LISTED_INPUTS} more"] if len(inputs) > _MAX_LISTED_INPUTS else []
        listed, time_since_use = "\n".join([*inputs[:_MAX_LISTED_INPUTS], *omission]), _age(now - entry.used)
        table.add_row(*map(escape, (name, listed, row["target"], _size_text(entry.bytes), time_since_use, str(entry.hits))))
    return table


def _require_folder(cache: Cache) -> Path:
    if cache.folder is None:
        fail("the cache is off: DLC_CACHE=0 is set, or there is no home folder for it; set DLC_CACHE_DIR to a folder")
    return cache.folder


def _row(entry: CacheEntry) -> dict[str, Any]:
    metadata = entry.metadata
    return {
        "kind": entry.kind,
        "key": entry.key,
        "model": metadata.get("model", ""),
        "inputs": metadata.get("inputs", []),
        "target": metadata.get("fields", {}).get("target", metadata.get("target", "")),
        "file": metadata.get("file"),
        "bytes": entry.bytes,
        "made": entry.created,
        "used": entry.used,
        "hits": entry.hits,
    }


def _describe_entry(entry: CacheEntry) -> str:
    row = _row(entry)
    name = f"{entry.kind} {row['model'] or entry.key}"
    times = f"created {_time(entry.created)}, used {_time(entry.used)}"
    return (
        f"{name} for {row['target']}: {_size_text(entry.bytes)}, {times}, {entry.hits} {'hit' if entry.hits == 1 else 'hits'}"
    )


def _entry_count_text(num_entries: int) -> str:
    return "1 entry" if num_entries == 1 else f"{num_entries} entries"


def _size_text(num_bytes: int) -> str:
    """Return a size as text: `1.5 MB`."""
    size = float(num_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}" if unit != "bytes" else f"{num_bytes} bytes"
        size /= 1000
    return f"{size:.1f} GB"


def _age(seconds: float) -> str:
    """Return an age as text: `3 hours ago`."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "just now"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "minutes")
