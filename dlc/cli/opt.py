"""`dlc opt`: any pass on any IR text; `dlc passes`: what passes there are."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TextIO

import click
from rich.table import Table

from dlc.cli.shared import out, reports_errors
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.program import KernelOp
from dlc.dialects.registry import make_context
from dlc.errors import ModelError
from dlc.instrument.manager import PassManager
from dlc.instrument.verify import illegal_ops, verify
from dlc.ir import ModuleOp, ParseError, TensorType, VerifyException, parse_module, print_module
from dlc.passes.base import Stage, kernels_of
from dlc.pipelines import HOST, PASSES, chosen, parse, stages_of
from dlc.target import REFERENCE, Target
from dlc.whole_files import write_whole_text

_STAGES = (*stages_of(REFERENCE), HOST)
_NAMES = [stage.name for stage in _STAGES]


@click.command("opt")
@click.argument("file", type=click.File("r"), default="-")
@click.option("-p", "--passes", "spec", default="", metavar="PASSES", help='Passes to run, such as "a,b{k=1}".')
@click.option("--target", metavar="FILE.py:NAME", help="A target of your own that PASSES go by.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write here, not to standard output.")
@click.option("--generic", is_flag=True, help="Print the generic form, which other MLIR tools read.")
@click.option("--locations/--no-locations", default=True, show_default=True, help="Print where ops come from.")
@click.option("--verify/--no-verify", "check", default=True, show_default=True, help="Verify before and after each pass.")
@reports_errors
def opt_command(
    file: TextIO, spec: str, target: str | None, output: Path | None, generic: bool, locations: bool, check: bool
) -> None:
    """Runs passes on the IR in FILE (standard input by default) and prints the result."""
    context = make_context()
    stages = chosen(parse(spec, _own_target(target)))
    try:
        module = parse_module(context, file.read(), file.name)
        if check:
            verify(module)
    except (ParseError, VerifyException) as error:
        raise ModelError(f"{file.name}: not valid IR: {str(error).strip()}") from error
    manager = PassManager(context, check=check)
    for stage in stages:
        wanted, at, before = _NAMES.index(stage.name), stages_at(module), print_module(module)
        if at and not at[0] <= wanted <= at[-1] + 1 and not (stage.name == HOST.name and at[-1] > 0):
            raise _of_another_stage(file.name, stage, at[-1])
        manager.run(module, (stage,))
        # What is written in loops from the beginning may be at any of some stages.
        if at and wanted < at[-1] and print_module(module) == before:
            raise _of_another_stage(file.name, stage, at[-1])
    text = print_module(module, generic=generic, locations=locations)
    if output is not None:
        write_whole_text(output, text)
    else:
        click.echo(text, nl=False)


def _of_another_stage(file: str, stage: Stage, at: int) -> ModelError:
    """Of passes that would find nothing to do, and say nothing."""
    wanted, first = _NAMES.index(stage.name), str(stage.passes[0]).partition("{")[0]
    if wanted > at:
        repair = f"run the passes in between first, or take stage-{_NAMES[wanted - 1]}.mlir of a dump"
    else:
        repair = "take an earlier file of a dump"
    return ModelError(f"{file}: {first} is of stage {stage.name}, but the module is at stage {_NAMES[at]}; {repair}")


def stages_at(module: ModuleOp) -> list[int]:
    """The numbers of the stages at whose ends there may be such a module; none if it is of no stage."""
    functions = list(kernels_of(module))
    if not functions and not any(isinstance(op, KernelOp) or op.name.startswith("host.") for op in module.walk()):
        return [0] if any(isinstance(op, DlOp) for op in module.walk()) else []
    on_tensors = any(isinstance(a.type, TensorType) for kernel in functions for a in kernel.args)
    among = range(1, len(_STAGES)) if not on_tensors else [_NAMES.index("linalg")]
    return [k for k in among if not any(illegal_ops(module, _STAGES[k]))]


def _own_target(target: str | None) -> Target | None:
    if target is None:
        return None
    # Passes themselves need no LLVM.
    from dlc.backends.registry import backend_of

    return backend_of(target).target


@click.command("passes")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
