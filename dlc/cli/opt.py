"""`dlc opt`: any pass on any IR text; `dlc passes`: what passes there are."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TextIO

import click
from rich.table import Table

from dlc.cli.shared import json_option, out, reports_errors
from dlc.dialects.registry import make_context
from dlc.errors import ModelError
from dlc.files.whole_files import write_whole_text
from dlc.instrument.fitting import run_fitting
from dlc.instrument.manager import PassManager
from dlc.instrument.verify import verify
from dlc.ir import ParseError, VerifyException, parse_module, print_module
from dlc.pipelines import HOST, PASSES, chosen, parse, stages_of
from dlc.target import REFERENCE, Target

# What is told of a pass that has run.
_SHOWN = ("stage", "spec", "seconds", "ops_before", "ops_after")
_STAGES = (*stages_of(REFERENCE), HOST)


@click.command("opt")
@click.argument("file", type=click.File("r"), default="-")
@click.option("-p", "--passes", "spec", default="", metavar="PASSES", help='Passes to run, such as "a,b{k=1}".')
@click.option("--target", metavar="FILE.py:NAME", help="A target of your own that PASSES go by.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write here, not to standard output.")
@click.option("--generic", is_flag=True, help="Print the generic form, which other MLIR tools read.")
@click.option("--locations/--no-locations", default=True, show_default=True, help="Print where ops come from.")
@click.option("--verify/--no-verify", "check", default=True, show_default=True, help="Verify before and after each pass.")
@json_option
@reports_errors
def opt_command(
    file: TextIO,
    spec: str,
    target: str | None,
    output: Path | None,
    generic: bool,
    locations: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Runs passes on the text of a module, and prints the result.

    FILE is a module of a dump, or of one's own; by default standard input. --json says what each pass took and left, beside
    the text, if that is not written to a file.
    """
    context = make_context()
    stages = chosen(parse(spec, _own_target(target)))
    try:
        module = parse_module(context, file.read(), file.name)
        if check:
            verify(module)
    except (ParseError, VerifyException, UnicodeDecodeError) as error:
        raise ModelError(f"{file.name}: not valid IR: {str(error).strip()}") from error
    manager = PassManager(context, check=check)
    for stage in stages:
        run_fitting(manager, module, stage, _STAGES, file.name)
    text = print_module(module, generic=generic, locations=locations)
    if output is not None:
        write_whole_text(output, text)
    if as_json:
        passes = [{f: getattr(r, f) for f in _SHOWN} for r in manager.records]
        click.echo(json.dumps({"passes": passes, "module": None if output is not None else text}, indent=2))
    elif output is None:
        click.echo(text, nl=False)


def _own_target(target: str | None) -> Target | None:
    if target is None:
        return None
    # Passes themselves need no LLVM.
    from dlc.backends.registry import backend_of

    return backend_of(target).target


@click.command("passes")
@json_option
@reports_errors
def passes_command(as_json: bool) -> None:
    """Lists the passes by stage, with their options."""
    rows = [
        {
            "name": name,
            "stage": stage,
            "options": [f.name for f in fields(p) if f.name != "name"],
            "summary": (p.__doc__ or "").strip().partition("\n")[0],
        }
        for name, (stage, p) in PASSES.items()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table("stage", "pass", "options", "what it does")
    for row in rows:
        table.add_row(str(row["stage"]), str(row["name"]), ", ".join(row["options"]), str(row["summary"]))
    out.print(table)
