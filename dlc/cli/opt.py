"""`dlc opt`: run any pass on any IR text; `dlc passes`: list the passes."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TextIO

import click
from rich.table import Table

from dlc.cli.common import examples, json_option, reports_errors
from dlc.cli.console import out
from dlc.dialects.registry import make_context
from dlc.errors import ModelError
from dlc.files.atomic_writes import atomic_write_text
from dlc.instrument.manager import PassManager
from dlc.instrument.stage_matching import check_and_run
from dlc.instrument.verify import verify
from dlc.ir import ParseError, VerifyException, parse_module, print_module
from dlc.pipelines import HOST, PASSES, custom_stages, parse, stages_of
from dlc.target import REFERENCE, Target

# The fields of a pass record that --json prints.
_REPORTED_FIELDS = ("stage", "spec", "seconds", "ops_before", "ops_after")
_STAGES = (*stages_of(REFERENCE), HOST)


@click.command("opt", epilog=examples("dlc opt ir/stage-dl.mlir -p cse,dce"))
@click.argument("file", type=click.File("r"), default="-")
@click.option("-p", "--passes", "spec", default="", metavar="PASSES", help='Passes to run, such as "a,b{k=1}".')
@click.option("--target", metavar="FILE.py:NAME", help="A custom target that the passes are parsed for.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file instead.")
@click.option("--generic", is_flag=True, help="Print the generic form, which other MLIR tools read.")
@click.option("--locations/--no-locations", default=True, show_default=True, help="Print the source locations of ops.")
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
    """Runs passes on an IR module and prints the result.

    FILE is a dumped or handwritten module; by default standard input. --json prints the time and op counts of each pass,
    and the module unless -o writes it.
    """
    context = make_context()
    stages = custom_stages(parse(spec, _custom_target(target)))
    try:
        module = parse_module(context, file.read(), file.name)
        if check:
            verify(module)
    except (ParseError, VerifyException) as error:
        raise ModelError(f"{file.name} is not valid IR: {str(error).strip()}") from error
    except UnicodeDecodeError as error:
        repair = "`dlc run MODEL --dump-ir FOLDER` writes the modules of a model"
        raise ModelError(f"{file.name} is not valid IR: it is a binary file; {repair}") from error
    manager = PassManager(context, check=check)
    for stage in stages:
        check_and_run(manager, module, stage, _STAGES, file.name)
    text = print_module(module, generic=generic, locations=locations)
    if output is not None:
        atomic_write_text(output, text)
    if as_json:
        passes = [{f: getattr(r, f) for f in _REPORTED_FIELDS} for r in manager.records]
        click.echo(json.dumps({"passes": passes, "module": None if output is not None else text}, indent=2))
    elif output is None:
        click.echo(text, nl=False)


def _custom_target(target: str | None) -> Target | None:
    if target is None:
        return None
    # Imported here because passes do not need LLVM.
    from dlc.backends.registry import backend_of

    return backend_of(target).target


@click.command("passes", epilog=examples("dlc passes"))
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
    table = Table("stage", "pass", "options", "description")
    for row in rows:
        table.add_row(str(row["stage"]), str(row["name"]), ", ".join(row["options"]), str(row["summary"]))
    out.print(table)
