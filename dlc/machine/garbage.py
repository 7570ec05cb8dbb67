"""Python's collector of garbage, which looks for it less often while a program is compiled."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

# New objects until the collector looks at them; Python's default is 700.
_OBJECTS = 2_000_000
_lock = Lock()
_within = 0
_before = gc.get_threshold()


@contextmanager
def collected_rarely() -> Generator[None]:
    """Lets more garbage gather, for the whole process, until all threads that asked for it are done.

    IR is made of cycles and lives until its stage is over: the collector goes through it again and again, and through all
    that the process has besides, a tenth of the time of a compilation. What is there at the end is hardly ever garbage, since
    IR is taken apart: it becomes old without being looked at.
    """
    global _within, _before
    with _lock:
        if _within == 0:
            _before = gc.get_threshold()
            # 0 means never.
            if 0 < _before[0] < _OBJECTS:
                gc.set_threshold(_OBJECTS, *_before[1:])
        _within += 1
    try:
        yield
    finally:
        with _lock:
            _within -= 1
            if _within == 0 and gc.get_threshold() != _before:
                # What somebody has frozen would thaw.
                if gc.get_freeze_count() == 0:
                    gc.freeze()
                    gc.unfreeze()
                gc.set_threshold(*_before)
