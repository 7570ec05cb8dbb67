"""`dlc completion`: shell completion of commands, options and files."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from dlc.cli.common import examples, fail, reports_errors
from dlc.cli.console import out

# The startup file of each shell, relative to the home folder.
_STARTUP_FILES = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}
_STARTUP_LINES = {
    "bash": 'eval "$(dlc completion bash)"',
    "zsh": 'eval "$(dlc completion zsh)"',
    "fish": "dlc completion fish | source",
}


@click.command("completion", epilog=examples('eval "$(dlc completion bash)"', "dlc completion bash --install"))
@click.argument("shell", type=click.Choice(list(_STARTUP_FILES)))
@click.option("--install", is_flag=True, help="Add the line that loads the script to the shell's startup file.")
@click.pass_context
@reports_errors
def completion_command(context: click.Context, shell: str, install: bool) -> None:
    """Prints the shell completion script for dlc.

    After evaluating it the shell completes commands, options, targets and files of dlc and compile-model.
    """
    if install:
        _install(shell)
        return
    for program in ("dlc", "compile-model"):
        complete = get_completion_class(shell)
        assert complete is not None, "click supports these shells"
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(complete(context.command, {}, program, variable).source())


def _install(shell: str) -> None:
    """Add the line that loads the completion to the startup file, once."""
    file, line = Path.home() / _STARTUP_FILES[shell], _STARTUP_LINES[shell]
    try:
        # Bytes, because the file need not be valid UTF-8.
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        if line.encode() not in (existing_line.rstrip() for existing_line in lines):
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as startup_file:
                startup_file.write((b"\n" if lines and not lines[-1].endswith(b"\n") else b"") + f"{line}\n".encode())
    except OSError as error:
        fail(f"{file}: {error.strerror}; add this line yourself: {line}")
    out.print(f"{file} contains the line: {line}", markup=False)
