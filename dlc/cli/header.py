"""`dlc header`: the header with which C and C++ open compiled models."""

from __future__ import annotations

from pathlib import Path

import click

from dlc.cli.shared import out, reports_errors
from dlc.deploy import HEADER
from dlc.files.whole_files import write_whole_text


@click.command("header")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it here instead, such as dlc.h.")
@reports_errors
def header_command(output: Path | None) -> None:
    """Prints dlc.h, which C programs run compiled models with.

    It is the one file that a C or C++ program needs to run what `dlc compile MODEL -o m.dlc` wrote.
    """
    if output is None:
        click.echo(HEADER.read_text("utf-8"), nl=False)
        return
    write_whole_text(output, HEADER.read_text("utf-8"))
    out.print(f"Saved as {output}; how it is used is said at its beginning.")
