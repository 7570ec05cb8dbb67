"""What goes wrong with a program, in a process of its own: wrong numbers, an error, a crash of native code, no end."""

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
from dlc.debug.evaluation import evaluated
from dlc.dialects.dl.base import Array
from dlc.errors import DlcError
from dlc.instrument.compare import tolerance_of, worst
from dlc.instrument.evidence import save_program
from dlc.options import Options

# What is wrong with a program on inputs, in words that are equal for equal mistakes; empty if nothing is.
Outcome = Callable[[Program, Sequence[Array]], str]

NUMBERS = "wrong numbers"


def outcome_on(target: str | Backend, options: Options, tolerance: float | None = None, seconds: float = 60) -> Outcome:
    """What goes wrong when a program is compiled for a target and run."""

    def run(program: Program, arrays: Sequence[Array]) -> str:
        try:
            got = compile(program, target, options).run_unchecked(arrays)
            expected = evaluated(program, arrays)
        except DlcError as error:
            return _signature(error)
        allowed = tolerance if tolerance is not None else tolerance_of([*arrays, *expected])
        return NUMBERS if worst(got, expected)[1] > allowed else ""

    return lambda program, arrays: in_child(lambda: run(program, arrays), seconds)


def outcome_of_command(command: str, seconds: float = 60) -> Outcome:
    """What a shell command says of a program: it fails on the file `{}`, beside which the inputs lie, or ends with 0."""

    def run(program: Program, arrays: Sequence[Array]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "reduced.mlir"
            save_program(file, program.module, arrays, program.weights, program.remaining)
            try:
                line = command.replace("{}", quote(str(file)))
                failed = subprocess.run(line, shell=True, capture_output=True, check=False, timeout=seconds).returncode
            except subprocess.TimeoutExpired:
                failed = 1
        return "the command fails" if failed else ""

    return run


def _signature(error: Exception) -> str:
    """An error without what differs between programs: numbers, types, names and paths."""
    first = str(error).partition("\n")[0]
    words = re.sub(r"[@%/'\"][\w./-]*['\"]?|\d+|tensor<[^>]*>", "", first)
    return f"{type(error).__name__}: {words[:60]}"


def in_child(run: Callable[[], str], seconds: float) -> str:
    """What `run` gives in a forked process, or how that ended."""
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
    # What a crash leaves for a person to read is of no use here.
    tempfile.tempdir = scratch
    try:
        sink.send(run())
    except Exception as error:
        sink.send(_signature(error))
