"""Report missing optional packages of a benchmark in one line; `--help` works without them."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def optional_imports(description: str | None) -> Generator[None]:
    """Guard imports: exit with a message if one fails, or print `description` if help was requested."""
    try:
        yield
    except ModuleNotFoundError as error:
        if {"-h", "--help"} & set(sys.argv[1:]):
            print(description, f"\n(Not installed here, and needed to run it: {error.name}.)")
            raise SystemExit from None
        raise SystemExit(f"{sys.argv[0]} needs {error.name}, which is not installed; see --help") from None
