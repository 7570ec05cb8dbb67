; Execution of programs with data-dependent sizes, in calls from Python (runtime/cpu/data_dependent_sizes.py). When a size has
; been computed, the operations that depend on it are evaluated again here. Python is involved only if memory is too small.
;
; Operations, slot inits and readbacks are those of call.ll. Structures, in memory order:
;
;   capacity    {i64 operation, bytes}: an output needs #operation bytes; `bytes` are allocated for it

%Sizing = type {
  ptr,         ;  0 operations
  i64,         ;  1 number of operations
  ptr,         ;  2 slot inits
  i64,         ;  3 number of slot inits
  ptr,         ;  4 size readbacks
  i64,         ;  5 number of size readbacks
  i64,         ;  6 number of size arguments
  i64,         ;  7 index of the operation that computes the byte size of the arena
  i64,         ;  8 number of outputs with data-dependent shapes
  ptr,         ;  9 bytecode
  ptr,         ; 10 the size arguments, then the data-dependent sizes; negative: outside of the domain
  ptr,         ; 11 the results of the operations in this call
  ptr,         ; 12 a capacity for each output with a data-dependent shape
  i64          ; 13 allocated bytes of the arena
}

; Like dlc_execute, but handles size readbacks. It returns the stop code of a readback that Python must handle: the memory is
; too small, or the size is outside of the domain of the program, and set to -1.
define i64 @dlc_execute_data_dependent(ptr %sizing, ptr %from, i64 %limit, ptr %slots, ptr %pool) {
entry:
  %readbacks.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 4
  %readback.count.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 5
  %records.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 9
  %readbacks = load ptr, ptr %readbacks.at
  %readback.count = load i64, ptr %readback.count.at
  %records = load ptr, ptr %records.at
  br label %run

run:
  %record = phi ptr [ %from, %entry ], [ %following, %on ]
  %ended = call i64 @dlc_execute(ptr %record, i64 %limit, ptr %slots, ptr %pool)
  br label %look

look:
  %k = phi i64 [ 0, %run ], [ %k.next, %another ]
  %none = icmp eq i64 %k, %readback.count
  br i1 %none, label %end, label %compare

compare:
  %readback = getelementptr [7 x i64], ptr %readbacks, i64 %k
  %code = load i64, ptr %readback
  %k.next = add i64 %k, 1
  %is.it = icmp eq i64 %code, %ended
  br i1 %is.it, label %apply, label %another

another:
  br label %look

apply:
  %applied = call i1 @apply_readback(ptr %sizing, ptr %readback, i64 %k, ptr %slots)
  br i1 %applied, label %on, label %end

on:
  %on.at = getelementptr i64, ptr %readback, i64 3
  %distance = load i64, ptr %on.at
  %following = getelementptr i8, ptr %records, i64 %distance
  br label %run

end:
  ret i64 %ended
}

; Updates the slots after a size has been computed; returns whether it succeeded.
define private i1 @apply_readback(ptr %sizing, ptr %readback, i64 %k, ptr %slots) {
entry:
  %failed = alloca i64
  %slot.at = getelementptr i64, ptr %readback, i64 1
  %offset.at = getelementptr i64, ptr %readback, i64 2
  %readbacks.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 4
  %symbol.count.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 6
  %sizes.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 10
  %slot = load i64, ptr %slot.at
  %offset = load i64, ptr %offset.at
  %operations = load ptr, ptr %sizing
  %readbacks = load ptr, ptr %readbacks.at
  %symbol.count = load i64, ptr %symbol.count.at
  %sizes = load ptr, ptr %sizes.at
  %base.at = getelementptr ptr, ptr %slots, i64 %slot
  %base = load ptr, ptr %base.at
  %count.at = getelementptr i8, ptr %base, i64 %offset
  %count = load i64, ptr %count.at
  %size.index = add i64 %symbol.count, %k
  %size.at = getelementptr i64, ptr %sizes, i64 %size.index
  %before = load i64, ptr %size.at
  store i64 %count, ptr %size.at
  %checked = call i64 @check_size(ptr %operations, ptr %readback, ptr %sizes, ptr %failed)
  %valid = icmp eq i64 %checked, 0
  br i1 %valid, label %known, label %forget.it

known:
  %is.known = icmp eq i64 %count, %before
  br i1 %is.known, label %yes, label %forget

forget:
  %readback.count.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 5
  %readback.count = load i64, ptr %readback.count.at
  %first = add i64 %k, 1
  br label %forget.one

forget.one:
  %later = phi i64 [ %first, %forget ], [ %later.next, %forgotten ]
  %all.forgotten = icmp eq i64 %later, %readback.count
  br i1 %all.forgotten, label %settle, label %forgotten

forgotten:
  %assumed.at = getelementptr [7 x i64], ptr %readbacks, i64 %later, i64 4
  %later.index = add i64 %symbol.count, %later
  %later.at = getelementptr i64, ptr %sizes, i64 %later.index
  %assumed = load i64, ptr %assumed.at
  store i64 %assumed, ptr %later.at
  %later.next = add i64 %later, 1
  br label %forget.one

settle:
  %operation.count.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 1
  %values.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 11
  %operation.count = load i64, ptr %operation.count.at
  %values = load ptr, ptr %values.at
  %code = call i64 @compute(ptr %operations, i64 %operation.count, ptr %values, ptr %sizes, ptr %failed)
  %computed = icmp eq i64 %code, 0
  br i1 %computed, label %room, label %forget.it

room:
  %arena.operation.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 7
  %result.count.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 8
  %rooms.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 12
  %arena.room.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 13
  %arena.operation = load i64, ptr %arena.operation.at
  %result.count = load i64, ptr %result.count.at
  %rooms = load ptr, ptr %rooms.at
  %arena.room = load i64, ptr %arena.room.at
  %arena.bytes.at = getelementptr i64, ptr %values, i64 %arena.operation
  %arena.bytes = load i64, ptr %arena.bytes.at
  %arena.fits = icmp ule i64 %arena.bytes, %arena.room
  br i1 %arena.fits, label %next.result, label %forget.it

next.result:
  %r = phi i64 [ 0, %room ], [ %r.next, %result ]
  %all.fit = icmp eq i64 %r, %result.count
  br i1 %all.fit, label %init, label %result

result:
  %number.at = getelementptr [2 x i64], ptr %rooms, i64 %r
  %room.at = getelementptr [2 x i64], ptr %rooms, i64 %r, i64 1
  %number = load i64, ptr %number.at
  %bytes.there = load i64, ptr %room.at
  %bytes.at = getelementptr i64, ptr %values, i64 %number
  %bytes = load i64, ptr %bytes.at
  %r.next = add i64 %r, 1
  %fits = icmp ule i64 %bytes, %bytes.there
  br i1 %fits, label %next.result, label %forget.it

init:
  %inits.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 2
  %init.count.at = getelementptr %Sizing, ptr %sizing, i64 0, i32 3
  %arena.at = getelementptr ptr, ptr %slots, i64 1
  %inits = load ptr, ptr %inits.at
  %init.count = load i64, ptr %init.count.at
  %arena = load ptr, ptr %arena.at
  call void @initialize_slots(ptr %inits, i64 %init.count, ptr %values, ptr %slots, ptr %arena)
  br label %yes

forget.it:
  store i64 -1, ptr %size.at
  ret i1 false

yes:
  ret i1 true
}
