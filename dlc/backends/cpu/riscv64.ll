; The RISC-V part of the runtime; see x86_64.ll.

declare void @llvm.riscv.pause()
declare i64 @llvm.readsteadycounter()

define private i64 @futex() alwaysinline {
  ret i64 98
}

define private i64 @sched_setaffinity() alwaysinline {
  ret i64 122
}

define private i64 @sched_getaffinity() alwaysinline {
  ret i64 123
}

; A spin-wait hint; processors that do not implement it execute a no-op.
define private void @pause() "target-features"="+m,+a,+f,+d,+c,+zihintpause" {
  call void @llvm.riscv.pause()
  ret void
}

define private i64 @ticks() alwaysinline {
  %time = call i64 @llvm.readsteadycounter()
  ret i64 %time
}

; A timer of 4 to 25 MHz; its frequency cannot be read by programs.
define private i64 @patience() alwaysinline {
  ret i64 1000
}

; One bit at a time.
define private i64 @crc32c.bits(i64 %sum, i64 %bits) {
entry:
  br label %bit

bit:
  %i = phi i64 [ 0, %entry ], [ %next, %bit ]
  %register = phi i64 [ %sum, %entry ], [ %shorter, %bit ]
  %low = and i64 %register, 1
  %all = sub i64 0, %low
  %polynomial = and i64 %all, 2197175160
  %rest = lshr i64 %register, 1
  %shorter = xor i64 %rest, %polynomial
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %bits
  br i1 %more, label %bit, label %end

end:
  ret i64 %shorter
}

define private i64 @crc32c.word(i64 %sum, i64 %eight) alwaysinline {
  %added = xor i64 %sum, %eight
  %next = call i64 @crc32c.bits(i64 %added, i64 64)
  ret i64 %next
}

define private i64 @crc32c.byte(i64 %sum, i8 %one) alwaysinline {
  %wide = zext i8 %one to i64
  %added = xor i64 %sum, %wide
  %next = call i64 @crc32c.bits(i64 %added, i64 8)
  ret i64 %next
}
