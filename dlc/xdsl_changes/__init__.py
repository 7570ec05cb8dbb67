"""What is changed in xDSL 0.74, in place, since every tool that reads the IR knows its classes: what it lacks, and what a
compilation does a million times, made as quick as it can be, which means the same as before.
"""

from __future__ import annotations

from functools import cache

from dlc.xdsl_changes.arith import change_arith
from dlc.xdsl_changes.attributes import change_attributes
from dlc.xdsl_changes.classes import change_classes
from dlc.xdsl_changes.contents import change_contents
from dlc.xdsl_changes.copying import change_copying
from dlc.xdsl_changes.operations import change_operations
from dlc.xdsl_changes.parsing import change_parsing
from dlc.xdsl_changes.verification import change_verification
from dlc.xdsl_changes.walks import change_walks


def quicken() -> None:
    """Makes xDSL quicker; to be called once, before ops are defined elsewhere."""
    change_classes()
    change_attributes()
    change_verification()
    change_operations()
    change_copying()
    change_walks()
    change_contents()


@cache
def change_xdsl() -> None:
    """Puts all changes in place, once per process."""
    quicken()
    change_parsing()
    change_arith()
