"""`dlc info`: describe a compiled model."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from dlc.arrays import TensorInfo
from dlc.cli.common import examples, json_option, reports_errors
from dlc.cli.console import out
from dlc.runtime.saving.description import FileDescription, describe_file


@click.command("info", epilog=examples("dlc info model.dlc"))
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@reports_errors
def info_command(model: Path, as_json: bool) -> None:
    """Describes a compiled model: signature, target, memory.

    Also lists the conditions on the sizes of its inputs.

    The file may be for another processor.
    """
    description = describe_file(model)
    if as_json:
        click.echo(json.dumps(_as_json(description), indent=2))
        return
    out.print(escape(f"{model}: {description.name} for {description.target}, numerics {description.numerics}"))
    out.print(
        f"  {description.file_bytes} bytes, of which {description.weight_bytes} are weights; format {description.version}"
    )
    if description.mesh is not None:
        out.print(f"  for each rank of the mesh {description.mesh}; inputs and outputs are shards")
    table = Table("", "name", "dtype and shape")
    for kind, infos in (("input", description.inputs), ("output", description.outputs)):
        for info in infos:
            table.add_row(kind, escape(info.name), escape(_type_of(info)))
    out.print(table)
    programs = Table("program", "inputs", "conditions on sizes", "kernels")
    for number, program in enumerate(description.programs):
        conditions = ", ".join(program.guards) or "none"
        programs.add_row(str(number), escape(", ".join(map(str, program.inputs))), escape(conditions), str(program.num_kernels))
    out.print(programs)


def _type_of(info: TensorInfo) -> str:
    return str(info).removeprefix(f"{info.name}: ")


def _as_json(description: FileDescription) -> dict[str, object]:
    fields = vars(description)
    sides = {side: {info.name: _type_of(info) for info in fields[side]} for side in ("inputs", "outputs")}
    programs = [{**vars(program), "inputs": list(map(str, program.inputs))} for program in description.programs]
    return {**fields, **sides, "programs": programs}
