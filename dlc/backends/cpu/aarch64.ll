; The AArch64 part of the runtime; see x86_64.ll.

declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.readsteadycounter()
declare i64 @llvm.read_register.i64(metadata)
declare i32 @llvm.aarch64.crc32cb(i32, i32)
declare i32 @llvm.aarch64.crc32cx(i32, i64)

define private i64 @futex() alwaysinline {
  ret i64 98
}

define private i64 @sched_setaffinity() alwaysinline {
  ret i64 122
}

define private i64 @sched_getaffinity() alwaysinline {
  ret i64 123
}

define private void @pause() alwaysinline {
  call void @llvm.aarch64.hint(i32 1) ; yield
  ret void
}

; A timer of 24 MHz to 1 GHz; its frequency can be read.
define private i64 @ticks() alwaysinline {
  %time = call i64 @llvm.readsteadycounter()
  ret i64 %time
}

; 122 µs: its frequency divided by 2¹³.
define private i64 @patience() alwaysinline {
  %frequency = call i64 @llvm.read_register.i64(metadata !{!"cntfrq_el0"})
  %patience = lshr i64 %frequency, 13
  ret i64 %patience
}

define private i64 @crc32c.word(i64 %sum, i64 %eight) alwaysinline {
  %short = trunc i64 %sum to i32
  %next = call i32 @llvm.aarch64.crc32cx(i32 %short, i64 %eight)
  %wide = zext i32 %next to i64
  ret i64 %wide
}

define private i64 @crc32c.byte(i64 %sum, i8 %one) alwaysinline {
  %short = trunc i64 %sum to i32
  %byte = zext i8 %one to i32
  %next = call i32 @llvm.aarch64.crc32cb(i32 %short, i32 %byte)
  %wide = zext i32 %next to i64
  ret i64 %wide
}
