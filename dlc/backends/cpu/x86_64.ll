; The x86-64 part of the runtime (runtime.ll). Each architecture defines these functions in a file of its own:
;
;   futex, sched_setaffinity, sched_getaffinity   numbers of these system calls
;   pause                                         spin-wait hint
;   ticks, patience                               current time, and how long a thread spins before it sleeps: 50 to 200 µs
;   crc32c.word, crc32c.byte                      the CRC-32C state after eight bytes, and after one

declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
declare i32 @llvm.x86.sse42.crc32.32.8(i32, i8)
declare i64 @llvm.x86.sse42.crc32.64.64(i64, i64)

define private i64 @futex() alwaysinline {
  ret i64 202
}

define private i64 @sched_setaffinity() alwaysinline {
  ret i64 203
}

define private i64 @sched_getaffinity() alwaysinline {
  ret i64 204
}

define private void @pause() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}

define private i64 @ticks() alwaysinline {
  %cycles = call i64 @llvm.readcyclecounter()
  ret i64 %cycles
}

; In ticks of a 1 to 4 GHz counter.
define private i64 @patience() alwaysinline {
  ret i64 200000
}

define private i64 @crc32c.word(i64 %sum, i64 %eight) alwaysinline {
  %next = call i64 @llvm.x86.sse42.crc32.64.64(i64 %sum, i64 %eight)
  ret i64 %next
}

define private i64 @crc32c.byte(i64 %sum, i8 %one) alwaysinline {
  %short = trunc i64 %sum to i32
  %next = call i32 @llvm.x86.sse42.crc32.32.8(i32 %short, i8 %one)
  %wide = zext i32 %next to i64
  ret i64 %wide
}
