"""Reduce the frequency of Python's garbage collector during compilation."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

# A collection runs after this many new objects; Python's default is 700.
_COLLECTION_THRESHOLD_OBJECTS = 2_000_000
_lock = Lock()
_active_count = 0
_default_threshold = gc.get_threshold()


@contextmanager
def infrequent_collection() -> Generator[None]:
    """Raise the garbage collector's threshold of the process until no thread is in this context.

    During a stage the collector would repeatedly traverse the IR and all other objects of the process, which takes a tenth of
    the compile time. Objects that remain at the end are rarely garbage, since IR is dismantled explicitly: they are moved to
    the oldest generation without a traversal.
    """
    global _active_count, _default_threshold
    with _lock:
        if _active_count == 0:
            _default_threshold = gc.get_threshold()
            # A threshold of 0 disables collection.
            if 0 < _default_threshold[0] < _COLLECTION_THRESHOLD_OBJECTS:
                gc.set_threshold(_COLLECTION_THRESHOLD_OBJECTS, *_default_threshold[1:])
        _active_count += 1
    try:
        yield
    finally:
        with _lock:
            _active_count -= 1
            if _active_count == 0 and gc.get_threshold() != _default_threshold:
                # Unfreezing would also unfreeze objects that the application has frozen.
                if gc.get_freeze_count() == 0:
                    gc.freeze()
                    gc.unfreeze()
                gc.set_threshold(*_default_threshold)
