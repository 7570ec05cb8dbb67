"""Run a program in a separate process and classify the failure: wrong results, an error, a crash of native code, a timeout."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from shlex import quote

from dlc.backends.base import Backend
from dlc.compiler import Program, compile
from dlc.debug.evaluation import evaluate_outputs
from dlc.dialects.dl.base import Array
from dlc.errors import DlcError
from dlc.instrument.compare import largest_deviation, tolerance_of
from dlc.instrument.reproducer import save_program
from dlc.options import Options

# A function that runs a program and returns a description of its failure, or "" if the program is correct.
# Failures of the same kind have the same description.
Outcome = Callable[[Program, Sequence[Array]], str]

WRONG_RESULTS = "wrong results"


def outcome_on(target: str | Backend, options: Options, tolerance: float | None = None, seconds: float = 60) -> Outcome:
    """Return the outcome function that compiles and runs a program for a target."""

    def run(program: Program, arrays: Sequence[Array]) -> str:
        try:
            results = compile(program, target, options).run_unchecked(arrays)
            expected = evaluate_outputs(program, arrays)
        except DlcError as error:
            return _stable_message(error)
        max_deviation = tolerance if tolerance is not None else tolerance_of([*arrays, *expected])
        return WRONG_RESULTS if largest_deviation(results, expected)[1] > max_deviation else ""

    return lambda program, arrays: in_child(lambda: run(program, arrays), seconds)


def outcome_of_command(command: str, seconds: float = 60) -> Outcome:
    """Return the outcome function that runs a shell command on the program file `{}`; status 0 is success.

    The inputs are stored next to the file.
    """

    def run(program: Program, arrays: Sequence[Array]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "reduced.mlir"
            save_program(file, program.module, arrays, program.weights, program.remaining_passes)
            try:
                shell_command = command.replace("{}", quote(str(file)))
                exit_status = subprocess.run(
                    shell_command, shell=True, capture_output=True, check=False, timeout=seconds
                ).returncode
            except subprocess.TimeoutExpired:
                exit_status = 1
        return "the command fails" if exit_status else ""

    return run


def _stable_message(error: Exception) -> str:
    """Return an error message without details that differ between programs: numbers, types, names and paths."""
    first_line = str(error).partition("\n")[0]
    stable_text = re.sub(r"[@%/'\"][\w./-]*['\"]?|\d+|tensor<[^>]*>", "", first_line)
    return f"{type(error).__name__}: {stable_text[:60]}"


def in_child(run: Callable[[], str], seconds: float) -> str:
    """Return the result of `run` in a forked process, or a description of how the process ended."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as temporary_folder:
        child = context.Process(target=_run_and_send, args=(run, sender, temporary_folder))
        child.start()
        sender.close()
        try:
            if not receiver.poll(seconds):
                return f"no result within {seconds:.0f} s"
            return receiver.recv()
        except EOFError:
            child.join()
            return f"the process ends with status {child.exitcode}"
        finally:
            child.kill()
            child.join()


def _run_and_send(run: Callable[[], str], sender: Connection, temporary_folder: str) -> None:
    # Discard the crash reports of the program.
    tempfile.tempdir = temporary_folder
    try:
        sender.send(run())
    except Exception as error:
        sender.send(_stable_message(error))
