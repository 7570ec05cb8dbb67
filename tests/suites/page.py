"""The page docs/conformance.md, from the recorded results."""

from __future__ import annotations

from pathlib import Path

from tests.suites.record import Record, read_record, recorded_suites
from tests.suites.suite import OUTCOMES

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
_MAX_NAMES = 3
_TEXT = """\
<!-- Generated from tests/suites/gaps by `docs/generate.py`. -->
# Conformance

```
python -m tests.suites onnx-node [--target opencl] [--dynamic]
python -m tests.suites numpy [--traced]
python -m tests.suites array-api PATH
python -m tests.suites jax
python -m tests.suites torch-opinfo [--export]
python -m tests.suites torch-rules
python -m tests.suites torch-mlir PATH
python -m tests.suites stablehlo PATH
```

These commands run third-party test suites, which are not in the repository: ONNX's is part of the `onnx` package, JAX's and \
PyTorch's are part of their packages (install `absl-py` for the first and `expecttest` for the second), and PATH is a clone of \
[data-apis/array-api-tests](https://github.com/data-apis/array-api-tests), [llvm/torch-mlir](https://github.com/llvm/torch-mlir) \
or [openxla/stablehlo](https://github.com/openxla/stablehlo). `numpy` draws calls from the signatures of NumPy's functions.

| option | meaning |
|---|---|
| `--filter REGEX` | run the cases whose name contains a match |
| `--limit N` | run a sample of N evenly spaced cases |
| `--jobs N` | number of worker processes |
| `--journal FILE` | append the outcome of each case to FILE, and skip the cases that it has: an interrupted run continues |
| `--check` | fail if a result is not the recorded one |
| `--update-docs` | record the results, and write this page |

The exit status is 1 if any result is wrong or any case crashes.

## Results

| outcome | meaning |
|---|---|
| right | the results are the expected ones, within the tolerance of the suite's data type |
| refused | an `UnsupportedError` that names what is missing |
| wrong | other results |
| crashed | any other error, a signal, or no end after 120 s |
| excluded | not compared, for the reason given below |

"""


def conformance_page() -> str:
    """Return the text of the page."""
    records = {suite: read_record(suite) for suite in recorded_suites()}
    table = [f"| suite | conditions | cases | {' | '.join(OUTCOMES)} |", f"|---|---|---|{'---|' * len(OUTCOMES)}"]
    for suite, record in records.items():
        counts = " | ".join(f"{record.counts[outcome]:,}" for outcome in OUTCOMES)
        table.append(f"| `{suite}` | {record.conditions} | {_cases(record)} | {counts} |")
    sections = "\n\n".join(_gaps(suite, record) for suite, record in records.items() if record.gaps)
    return f"{_TEXT}{chr(10).join(table)}\n\n## Known gaps\n\n{sections}\n"


def _cases(record: Record) -> str:
    run = sum(record.counts.values())
    return f"{run:,}" if run == record.total else f"{run:,} of {record.total:,}"


def _gaps(suite: str, record: Record) -> str:
    """Return the section of a suite: one row for each outcome and reason."""
    lines = [f"### {suite}", "", f"All cases: [{suite}.txt](../tests/suites/gaps/{suite}.txt).", ""]
    lines += ["| outcome | reason | cases | examples |", "|---|---|---|---|"]
    for (outcome, reason), names in record.by_reason:
        examples = ", ".join(f"`{name}`" for name in names[:_MAX_NAMES])
        lines.append(f"| {outcome} | {_escaped(reason)} | {len(names):,} | {examples} |")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    for character in ("\\", "|", "*", "<", "_", "[", "`"):
        text = text.replace(character, f"\\{character}")
    return text
