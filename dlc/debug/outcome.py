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

# Describes the failure of a program on inputs; equal failures have equal descriptions; empty if the program is correct.
Outcome = Callable[[Program, Sequence[Array]], str]

WRONG_RESULTS = "wrong results"


def outcome_on(target: str | Backend, options: Options, tolerance: float | None = None, seconds: float = 60) -> Outcome:
    """Return the outcome function that compiles and runs a program for a target."""

    def run(program: Program, arrays: Sequence[Array]) -> str:
        try:
            got = compile(program, target, options).run_unchecked(arrays)
            expected = evaluate_outputs(program, arrays)
        except DlcError as error:
            return _signature(error)
        allowed = tolerance if tolerance is not None else tolerance_of([*arrays, *expected])
        return WRONG_RESULTS if largest_deviation(got, expected)[1] > allowed else ""

    return lambda program, arrays: in_child(lambda: run(program, arrays), seconds)


def outcome_of_command(command: str, seconds: float = 60) -> Outcome:
    """Return the outcome function that runs a shell command on the program file `{}`; status 0 is success.

    The inputs are stored next to the file.
    """

    def run(program: Program, arrays: Sequence[Array]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "reduced.mlir"
            save_program(file, program.module, arrays, program.weights, program.remaining)
            try:
                line = command.replace("{}", quote(str(file)))
                exit_status = subprocess.run(line, shell=True, capture_output=True, check=False, timeout=seconds).returncode
            except subprocess.TimeoutExpired:
                exit_status = 1
        return "the command fails" if exit_status else ""

    return run


def _signature(error: Exception) -> str:
    """Return an error message without details that differ between programs: numbers, types, names and paths."""
    first = str(error).partition("\n")[0]
    words = re.sub(r"[@%/'\"][\w./-]*['\"]?|\d+|tensor<[^>]*>", "", first)
    return f"{type(error).__name__}: {words[:60]}"


def in_child(run: Callable[[], str], seconds: float) -> str:
    """Return the result of `run` in a forked process, or how the process ended."""
    context = multiprocessing.get_context("fork")
    results, sink = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as scratch:
        child = context.Process(target=_child, args=(run, sink, scratch))
        child.start()
        sink.close()
        try:
            if not results.poll(seconds):
                return f"no result within {seconds:.0f} s"
            return results.recv()
        except EOFError:
            child.join()
            return f"the process ends with status {child.exitcode}"
        finally:
            child.kill()
            child.join()


def _child(run: Callable[[], str], sink: Connection, scratch: str) -> None:
    # Discard the crash reports of the program.
    tempfile.tempdir = scratch
    try:
        sink.send(run())
    except Exception as error:
        sink.send(_signature(error))
