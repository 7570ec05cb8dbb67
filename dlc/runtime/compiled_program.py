"""The union of the artifacts of all kinds of targets."""

from __future__ import annotations

from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.opencl.artifact import DeviceArtifact

# A compiled program for either kind of target.
CompiledProgram = Artifact | DeviceArtifact
