"""The CPU backend: kernels become objects compiled by LLVM, programs become artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from dlc.backends.base import CodeListing, KernelBackend, ProgramParts
from dlc.backends.cpu.listings import asm_listing, llvm_listing
from dlc.backends.cpu.llvm import assembly, compile_text, compile_with_listing
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.emission.llvm.alias_scopes import join_kernels
from dlc.emission.llvm.debug_locations import emit_kernel_with_locations
from dlc.emission.llvm.kernel import LlvmKernel, emit_kernel
from dlc.ir import Operation, func
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.code.loader import MachineCode, link_object
from dlc.runtime.cpu.kernel_object import KernelObject
from dlc.runtime.program.host_program import KernelSignature
from dlc.target import Target, require_host

KernelTextT = TypeVar("KernelTextT")


class ObjectBackend(KernelBackend[KernelTextT, KernelObject]):
    """A backend whose kernels are object files for a processor, from any compiler."""

    def for_local_device(self) -> ObjectBackend[KernelTextT]:
        require_host(self.target, f"target {self.target.name}")
        return self

    def for_compilation(self) -> ObjectBackend[KernelTextT]:
        return self

    def size(self, code: KernelObject) -> int:
        return code.size

    def assemble(self, parts: ProgramParts[KernelObject]) -> Artifact:
        kernels = tuple(
            replace(k, origins=parts.origins[k.name], results=parts.results[k.name], flops=parts.flops[k.name])
            for k in parts.kernels
        )
        runtime, numerics = runtime_object(self.target.architecture), parts.options.numerics
        return Artifact(parts.name, self.target.without_costs, parts.host, kernels, parts.weights, runtime, numerics)


@dataclass(frozen=True)
class Cpu(ObjectBackend[LlvmKernel]):
    """A CPU target: a predefined level, or one with other properties, `Cpu(replace(CPU_LEVELS["cpu:avx2"], …))`."""

    level: Target

    accepts_symbolic_sizes = True
    listing_formats = ("llvm", "asm")
    suffix = "ll"
    compiler = "llvm"

    @property
    def target(self) -> Target:
        return self.level

    def emit(self, kernel: func.FuncOp) -> LlvmKernel:
        return emit_kernel(kernel, self.target)

    def compile_kernel(self, name: str, text: LlvmKernel) -> KernelObject:
        (compiled,) = self.compile_kernels({name: text})
        return compiled

    def compile_kernels(self, texts: Mapping[str, LlvmKernel]) -> list[KernelObject]:
        code = link_object(compile_text(join_kernels(text.text for text in texts.values()), self.target))
        return [_within(code, name, text) for name, text in texts.items()]

    def show(self, format: str, texts: Mapping[str, LlvmKernel], headers: Mapping[str, str]) -> str:
        if format == "asm":
            return "\n".join(assembly(text.text, self.target) for text in texts.values())
        return join_kernels(text.text for text in texts.values())

    def emit_with_locations(self, kernel: func.FuncOp, lines: Mapping[Operation, int]) -> LlvmKernel:
        return emit_kernel_with_locations(kernel, self.target, lines)

    def compile_with_listing(self, name: str, text: LlvmKernel) -> tuple[KernelObject, list[CodeListing]]:
        object, assembly = compile_with_listing(text.text, self.target)
        return _within(link_object(object), name, text), [llvm_listing(text.text), asm_listing(assembly)]


def _within(code: MachineCode, name: str, text: LlvmKernel) -> KernelObject:
    return KernelObject.within(code, name, text.grids, KernelSignature(text.sizes, text.bytes))
