"""`dlc completion`: the shell knows the commands, their options and files."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from dlc.cli.shared import fail, out, reports_errors

# What a shell reads when it starts.
_STARTS = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}
_LINE = {
    "bash": 'eval "$(dlc completion bash)"',
    "zsh": 'eval "$(dlc completion zsh)"',
    "fish": "dlc completion fish | source",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_STARTS)))
@click.option("--install", is_flag=True, help="Add the line that reads it to the file that the shell starts with.")
@click.pass_context
@reports_errors
def completion_command(context: click.Context, shell: str, install: bool) -> None:
    """Prints what a shell needs to complete dlc's commands.

    The shell reads it by eval "$(dlc completion bash)"; then it knows the options, targets and files of dlc and compile-model.
    """
    if install:
        _install(shell)
        return
    for program in ("dlc", "compile-model"):
        complete = get_completion_class(shell)
        assert complete is not None, "click knows these shells"
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(complete(context.command, {}, program, variable).source())


def _install(shell: str) -> None:
    """Adds the line that reads the completion, once."""
    file, line = Path.home() / _STARTS[shell], _LINE[shell]
    try:
        # Bytes: what a person's file holds need not be UTF-8.
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        if line.encode() not in (known.rstrip() for known in lines):
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as end:
                end.write((b"\n" if lines and not lines[-1].endswith(b"\n") else b"") + f"{line}\n".encode())
    except OSError as error:
        fail(f"{file}: {error.strerror}; add this line by hand: {line}")
    out.print(f"{file} has the line: {line}", markup=False)
