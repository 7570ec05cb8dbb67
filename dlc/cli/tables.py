"""Tables and summaries of compilations and models."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from dlc.cli.console import out
from dlc.instrument.report import Report
from dlc.runtime.models.model import Model

# Maximum number of listed optional inputs.
_MAX_LISTED_DEFAULTS = 8


def print_model(model: Model) -> None:
    """Print the inputs and outputs of a model."""
    required = [info for info in model.inputs if info.name not in model.defaults]
    for kind, infos in (("input", required), ("output", model.outputs)):
        for info in infos:
            out.print(f"{kind:7} {escape(str(info))}")
    if model.defaults:
        optional = [str(info) for info in model.inputs if info.name in model.defaults]
        omitted_note = f" and {len(optional) - _MAX_LISTED_DEFAULTS} more" if len(optional) > _MAX_LISTED_DEFAULTS else ""
        out.print(f"optional inputs: {escape(', '.join(optional[:_MAX_LISTED_DEFAULTS]))}{omitted_note}")


def print_phases(report: Report) -> None:
    """Print the seconds per phase."""
    table = Table("phase", "seconds", title="Time by phase")
    table.columns[1].justify = "right"
    for phase, seconds in report.phases.items():
        table.add_row(phase, f"{seconds:.3f}")
    table.add_row("total (wall time)", f"{report.seconds:.3f}", style="bold")
    out.print(table)


def print_passes(report: Report) -> None:
    """Print the seconds per pass, summed over the modules it ran on."""
    table = Table("stage", "pass", "runs", "seconds", title="Time by pass")
    for column in table.columns[2:]:
        column.justify = "right"
    rows: dict[tuple[str, str], tuple[int, float]] = {}
    for record in report.passes:
        runs, seconds = rows.get((record.stage, record.spec), (0, 0.0))
        rows[record.stage, record.spec] = runs + 1, seconds + record.seconds
    for (stage, spec), (runs, seconds) in rows.items():
        table.add_row(stage, escape(spec), str(runs), f"{seconds:.3f}")
    out.print(table)


def print_tuned(report: Report) -> None:
    """Print the kernels whose tile plans were measured."""
    table = Table("kernel", "plan", "default µs", "best µs", "speedup", title="Measured tile plans")
    for column in table.columns[1:]:
        column.justify = "right"
    for t in report.tuned:
        faster = f"{t.before / t.after:.2f} ×"
        table.add_row(escape(t.name), t.plan, f"{t.before * 1e6:.1f}", f"{t.after * 1e6:.1f}", faster)
    out.print(table)


def summary(report: Report, model: Model) -> dict[str, Any]:
    """Return a compilation as JSON values."""
    return {
        "model": model.name,
        "inputs": [str(info) for info in model.inputs],
        "outputs": [str(info) for info in model.outputs],
        "defaults": list(model.defaults),
        "values": list(model.values),
        "from_cache": report.from_cache,
        "specialization_reason": report.specialization_reason,
        "served": report.dynamic_domain,
        "seconds": report.seconds,
        "phases": report.phases,
        "kernels": [vars(kernel) for kernel in report.kernels],
        "tuned": [vars(tuned) for tuned in report.tuned],
    }
