"""The CPU: kernels to objects, programs to artifacts; dlc's own objects are LLVM's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from dlc.backends.base import CodeListing, KernelBackend, Parts
from dlc.backends.cpu.listings import asm_listing, llvm_listing
from dlc.backends.cpu.llvm import assembly, compile_listed, compile_text
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.emission.llvm.aliases import joined
from dlc.emission.llvm.kernel import KernelText, emit_kernel
from dlc.emission.llvm.traced import traced_text
from dlc.ir import Operation, func
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.code.loader import Code, linked
from dlc.runtime.cpu.kernel_object import KernelObject
from dlc.runtime.program.host_program import OpenKernel
from dlc.runtime.program.open_program import OpenProgram
from dlc.target import Target, require_host

Text = TypeVar("Text")


class ObjectBackend(KernelBackend[Text, KernelObject]):
    """Kernels as objects for a processor, whatever compiler makes them."""

    def here(self) -> ObjectBackend[Text]:
        require_host(self.target, f"target {self.target.name}")
        return self

    def compiling(self) -> ObjectBackend[Text]:
        return self

    def size(self, code: KernelObject) -> int:
        return code.size

    def assemble(self, parts: Parts[KernelObject]) -> Artifact:
        is_open = isinstance(parts.host, OpenProgram)
        kernels = tuple(
            replace(
                k,
                origins=parts.origins[k.name],
                results=parts.results[k.name],
                flops=parts.flops[k.name],
                open=k.open if is_open else None,
            )
            for k in parts.kernels
        )
        runtime, numerics = runtime_object(self.target.architecture), parts.options.numerics
        return Artifact(parts.name, self.target.of_code, parts.host, kernels, parts.weights, runtime, numerics)


@dataclass(frozen=True)
class Cpu(ObjectBackend[KernelText]):
    """A level of an architecture, or one with facts of its own: `Cpu(replace(CPU_LEVELS["cpu:avx2"], …))`."""

    level: Target

    takes_sizes = True
    forms = ("llvm", "asm")
    suffix = "ll"
    compiler = "llvm"

    @property
    def target(self) -> Target:
        return self.level

    def emit(self, kernel: func.FuncOp) -> KernelText:
        return emit_kernel(kernel, self.target)

    def compile_kernel(self, name: str, text: KernelText) -> KernelObject:
        (made,) = self.compile_kernels({name: text})
        return made

    def compile_kernels(self, texts: Mapping[str, KernelText]) -> list[KernelObject]:
        code = linked(compile_text(joined(text.text for text in texts.values()), self.target))
        return [_within(code, name, text) for name, text in texts.items()]

    def show(self, form: str, texts: Mapping[str, KernelText], headers: Mapping[str, str]) -> str:
        if form == "asm":
            return "\n".join(assembly(text.text, self.target) for text in texts.values())
        return joined(text.text for text in texts.values())

    def emit_traced(self, kernel: func.FuncOp, lines: Mapping[Operation, int]) -> KernelText:
        return traced_text(kernel, self.target, lines)

    def compile_listed(self, name: str, text: KernelText) -> tuple[KernelObject, list[CodeListing]]:
        object, assembly = compile_listed(text.text, self.target)
        return _within(linked(object), name, text), [llvm_listing(text.text), asm_listing(assembly)]


def _within(code: Code, name: str, text: KernelText) -> KernelObject:
    return KernelObject.within(code, name, text.grids, OpenKernel(text.sizes, text.bytes))
