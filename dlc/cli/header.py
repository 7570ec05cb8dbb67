"""`dlc header`: print the C header for running compiled models."""

from __future__ import annotations

from pathlib import Path

import click

from dlc.cli.common import examples, reports_errors
from dlc.cli.console import out
from dlc.deploy import HEADER
from dlc.files.atomic_writes import atomic_write_text


@click.command("header", epilog=examples("dlc header -o dlc.h"))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the header to this file instead.")
@reports_errors
def header_command(output: Path | None) -> None:
    """Prints dlc.h, the C header for running compiled models.

    It is the only file that a C or C++ program needs to run a model compiled with `dlc compile MODEL -o m.dlc`.
    """
    if output is None:
        click.echo(HEADER.read_text("utf-8"), nl=False)
        return
    atomic_write_text(output, HEADER.read_text("utf-8"))
    out.print(f"Saved as {output}; the comment at its top explains the usage.")
