"""Dump the IR after every pass that changed it to a folder.

    ir/index.md              all passes: what they changed, ops before and after, time, file
    ir/07-form-kernels.mlir  the module after a pass
    ir/stage-fusion.mlir     the last module of a stage
    ir/kernels/conv.loops.mlir   one kernel at the end of a stage, below a comment with its layers
    ir/weights/              the weights store

`dlc compile FILE` or `dlc run FILE` resumes from any module file: its attribute `dlc.next` lists the remaining passes, and the
weights are in the same folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from dlc.dialects.dl.programs.program import KernelOp
from dlc.files.atomic_writes import write_text
from dlc.instrument.provenance import kernel_header, kernel_origins
from dlc.instrument.report import PassRecord
from dlc.ir import ModuleOp, StringAttr, print_module
from dlc.passes.base import Stage, kernels_of
from dlc.weights import WeightStore

NEXT = "dlc.next"
WEIGHTS = "weights"
_TITLE = "# IR after every pass\n"


def op_counts(module: ModuleOp) -> Counter[str]:
    """Count the ops of a module by name."""
    return Counter(op.name for op in module.walk())


def describe_change(before: Counter[str], after: Counter[str]) -> str:
    """Describe the op counts that differ: `-3 dl.batch_norm, +3 dl.mul`."""
    changes = [(after[n] - before[n], n) for n in sorted(before.keys() | after.keys()) if after[n] != before[n]]
    return ", ".join(f"{d:+d} {n}" for d, n in changes) or "attributes, types or order"


def module_text(module: ModuleOp, remaining: str) -> str:
    """Return the text of a module with the remaining passes as an attribute."""
    module.attributes[NEXT] = StringAttr(remaining)
    try:
        return print_module(module)
    finally:
        del module.attributes[NEXT]


def _header(stage: Stage, kernel: str, runs: Mapping[str, list[tuple[str, ...]]]) -> str:
    """Return the comment above a kernel at the end of a stage; `--replace-kernel` reads the line of the stage."""
    return kernel_header(kernel, runs.get(kernel, [])) + f"// stage: {stage.name}\n"


def _body(text: str) -> str:
    """Return a module's text without its first line, which contains the remaining passes."""
    return text.partition("\n")[2]


class DumpFolder:
    """Write modules to a folder as passes run; files of an earlier dump are replaced."""

    def __init__(self, folder: Path, weights: WeightStore | None = None) -> None:
        self.folder = folder
        self._count = 0
        self._text = ""
        self.started = False
        self._counts: Counter[str] = Counter()
        self._remove_earlier()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernels").mkdir(exist_ok=True)
        self._index = folder / "index.md"
        write_text(
            self._index,
            f"{_TITLE}\n`dlc run FILE` resumes from any of these files; the weights are in `{WEIGHTS}/`.\n\n"
            "| # | stage | pass | ops | what changed | ms |\n|---|---|---|---|---|---|\n",
        )
        if weights is not None:
            self.save_weights(weights)

    def start(self, module: ModuleOp, remaining: str) -> None:
        """Write the module before the first pass."""
        self.started = True
        self._text, self._counts, name = module_text(module, remaining), op_counts(module), "00-start.mlir"
        write_text(self.folder / name, self._text)
        self._row(f"| [00]({name}) | | | {self._counts.total()} | | |")

    def after_pass(self, module: ModuleOp, name: str, remaining: str) -> tuple[str, str]:
        """Write the module if the pass changed it; return a description of the change and the file name, or empty strings."""
        self._count += 1
        before, self._text = self._text, module_text(module, remaining)
        if _body(self._text) == _body(before):
            return "", ""
        counts = op_counts(module)
        change, file = describe_change(self._counts, counts), f"{self._count:02d}-{name}.mlir"
        self._counts = counts
        write_text(self.folder / file, self._text)
        return change, file

    def record(self, record: PassRecord) -> None:
        """Add a pass to the index."""
        link = f"[{self._count:02d}]({record.file})" if record.file else f"{self._count:02d}"
        ops = f"{record.ops_before} → {record.ops_after}" if record.ops_before != record.ops_after else f"{record.ops_after}"
        change = record.change or "nothing"
        self._row(f"| {link} | {record.stage} | `{record.spec}` | {ops} | {change} | {record.seconds * 1e3:.1f} |")

    def after_stage(self, module: ModuleOp, stage: Stage) -> None:
        """Write the module at the end of a stage, and each kernel separately if the stage concerns kernels."""
        file = f"stage-{stage.name}.mlir"
        write_text(self.folder / file, self._text)
        self._row(f"| [end]({file}) | {stage.name} | | | | |")
        if not stage.kernels:
            return
        runs = kernel_origins(module)
        for op in module.ops:
            if isinstance(op, KernelOp):
                self.kernel(op.symbol, f"{stage.name}.mlir", _header(stage, op.symbol, runs) + print_module(op))
        for kernel in kernels_of(module):
            name = kernel.sym_name.data
            self.kernel(name, f"{stage.name}.mlir", _header(stage, name, runs) + print_module(kernel))

    def kernel(self, name: str, suffix: str, text: str) -> None:
        """Write one kernel in a textual form."""
        write_text(self.folder / "kernels" / f"{name}.{suffix}", text)

    def save_weights(self, weights: WeightStore) -> None:
        """Write the arrays of the weights store that are not in the folder yet."""
        weights.save(self.folder / WEIGHTS)

    def _row(self, row: str) -> None:
        write_text(self._index, row + "\n", append=True)

    def _remove_earlier(self) -> None:
        # Delete files only in a folder that a dump created.
        index = self.folder / "index.md"
        if not index.is_file() or not index.read_bytes().startswith(_TITLE.encode()):
            return
        for pattern in ("*.mlir", "kernels/*.*", f"{WEIGHTS}/*.npy"):
            for path in self.folder.glob(pattern):
                path.unlink()
