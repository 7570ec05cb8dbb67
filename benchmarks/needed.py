"""What a benchmark imports beside dlc and its dependencies: where it is missing, one line says so, and help is shown."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def needed(description: str | None) -> Generator[None]:
    """Around imports; `description` is what is shown as help where one fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        if {"-h", "--help"} & set(sys.argv[1:]):
            print(description, f"\n(Not installed here, and needed to run it: {error.name}.)")
            raise SystemExit from None
        raise SystemExit(f"{sys.argv[0]} needs {error.name}, which is not installed; --help says more") from None
