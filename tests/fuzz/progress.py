"""Progress of a run of many cases, on standard error."""

from __future__ import annotations

import sys
import time


class Progress:
    """A progress line, on a terminal or once a minute, and a summary at the end of a run."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done = 0
        self.failed = 0
        self.began = self.reported_at = time.monotonic()

    def line(self) -> str:
        seconds = time.monotonic() - self.began
        return f"{self.done} of {self.count}, {self.failed} failed, {seconds:.0f} s, {self.done / seconds:.1f} per second"

    def step(self, done: int) -> None:
        self.done += done
        if sys.stderr.isatty():
            print(f"\r{self.line()}  ", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self.reported_at > 60:
            self.reported_at = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def failure(self, text: object) -> None:
        self.failed += 1
        print(f"\n{text}", flush=True)
