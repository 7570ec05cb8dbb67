; Calls of a program that is one block of bytes in memory (program_image.py), for callers without Python.
;
; A call evaluates operations on its symbolic sizes, initializes the slots, and interprets the bytecode. It allocates no memory
; and has no state: the slots and the arena are in the memory that the caller passes, the results of operations on the stack.
; Structures, in memory order:
;
;   %Call       the layout of `dlc_call` in dlc.h
;   %Image      the beginning of the block; offsets are in bytes from there
;   tensor      {i64 name, dtype, element bytes, rank, dims, otherwise, over}: `otherwise` is the offset of the default array of
;               an input, 0 if there is none; `over` is the input that an output overwrites, -1 if there is none, -2 if the
;               output has a data-dependent size and is in the memory of the call, which then returns its address
;   operation   {i64 kind, a, b}; later operations refer to its result by its index (#a, #b)
;     0  a                         1  size `a` of the call                    2  #a + #b
;     3  #a * #b                   4  floor(#a / #b)                          5  max(#a, #b)
;     6  min(#a, #b)               7  #a tasks on #b bytes, encoded as in a record (record_table.py)
;     8  fails unless #a >= 0 or #b == 0, which happens only in invalid programs
;     9  fails unless #a >= 0: the sizes of the call are outside of the domain of the program; `b` is the requirement for messages
;   array       {i64 offset from the block, bytes, checksum}
;   slot init   {i64 slot, operation, address}: slots[slot] = #operation, plus the address of the arena if `address` is 1
;   readback    {i64 code, slot, offset, next, initial, first, count}: when bytecode stops with this code, the i64 at
;               slots[slot] + offset is the next data-dependent size. `count` operations from index `first` on, which refer to
;               each other by indices from there, check it; they follow the operations of all calls. Then these are evaluated
;               again, with `initial` for sizes not computed yet, and execution resumes `next` bytes from the first record. Data
;               in the arena stays valid: buffers whose size depends on the new size are placed after all others. If the memory
;               is too small now, the call must be repeated.
;
; The return codes of a call are those of dlc.h; negative ones are specific to the program.

%Call = type {
  ptr,         ;  0 addresses of inputs
  ptr,         ;  1 addresses of outputs; the call sets those of outputs in its memory
  ptr,         ;  2 symbolic sizes
  ptr,         ;  3 memory, aligned to 64 bytes; null: nothing is run
  i64,         ;  4 bytes of memory; negative: return only the block
  ptr,         ;  5 where to store the shapes of inputs and outputs, consecutively; null: nowhere
  ptr,         ;  6 a pool; null: none
  ptr,         ;  7 user callback that runs tasks; null: none
  ptr,         ;  8 the callback's `user` argument
  i64,         ;  9 result: required bytes of memory
  i64,         ; 10 result: the operation that failed
  ptr,         ; 11 result: the block
  ptr,         ; 12 selectors that choose one of several programs (program_selection.ll)
  i64,         ; 13 number of selectors
  ptr,         ; 14 result: the name of the input that no program matches
  ptr          ; 15 the calls of collectives, %Collective of runtime.ll; null: none
}

%Image = type {
  [16 x i8],   ;  0 code: jumps to dlc_call with this block
  [8 x i8],    ;  1 "dlcimage"
  [7 x i64],   ;  2 read only by the loader
  i64,         ;  3 number of slots
  i64,         ;  4 index of the operation that computes the byte size of the arena
  i64,         ;  5 number of inputs
  i64,         ;  6 number of outputs
  i64,         ;  7 offset of the tensors, inputs first
  i64,         ;  8 offset of the dims: indices of the operations that compute their sizes
  i64,         ;  9 number of dims
  i64,         ; 10 offset of the operations
  i64,         ; 11 number of operations
  i64,         ; 12 offset of the arrays, weights first
  i64,         ; 13 number of weights
  i64,         ; 14 offset of the slot inits
  i64,         ; 15 number of slot inits
  i64,         ; 16 offset of the bytecode
  i64,         ; 17 number of symbolic sizes
  i64,         ; 18 offset of the size readbacks
  i64,         ; 19 number of size readbacks
  i64          ; 20 slot of the address of the calls of collectives; 0: none
}

declare { i64, i1 } @llvm.sadd.with.overflow.i64(i64, i64)
declare { i64, i1 } @llvm.smul.with.overflow.i64(i64, i64)

; Evaluates one operation; returns its result, and the error code of the call or 0.
define private { i64, i64 } @operate(ptr %operation, ptr %values, ptr %sizes) {
entry:
  %a.at = getelementptr i64, ptr %operation, i64 1
  %b.at = getelementptr i64, ptr %operation, i64 2
  %kind = load i64, ptr %operation
  %a = load i64, ptr %a.at
  %b = load i64, ptr %b.at
  switch i64 %kind, label %two [
    i64 0, label %constant
    i64 1, label %size
    i64 9, label %fit
  ]

constant:
  br label %computed.one

size:
  %size.at = getelementptr i64, ptr %sizes, i64 %a
  %size.value = load i64, ptr %size.at
  br label %computed.one

fit:
  %checked.at = getelementptr i64, ptr %values, i64 %a
  %checked = load i64, ptr %checked.at
  %is.bad = icmp slt i64 %checked, 0
  br i1 %is.bad, label %bad.size, label %computed.one

two:
  %x.at = getelementptr i64, ptr %values, i64 %a
  %y.at = getelementptr i64, ptr %values, i64 %b
  %x = load i64, ptr %x.at
  %y = load i64, ptr %y.at
  switch i64 %kind, label %within [
    i64 2, label %add
    i64 3, label %multiply
    i64 4, label %divide
    i64 5, label %larger
    i64 6, label %smaller
    i64 7, label %tasks
  ]

add:
  %sum.pair = call { i64, i1 } @llvm.sadd.with.overflow.i64(i64 %x, i64 %y)
  %sum = extractvalue { i64, i1 } %sum.pair, 0
  %sum.lost = extractvalue { i64, i1 } %sum.pair, 1
  br i1 %sum.lost, label %bad.size, label %computed.one

multiply:
  %product.pair = call { i64, i1 } @llvm.smul.with.overflow.i64(i64 %x, i64 %y)
  %product = extractvalue { i64, i1 } %product.pair, 0
  %product.lost = extractvalue { i64, i1 } %product.pair, 1
  br i1 %product.lost, label %bad.size, label %computed.one

divide:
  ; Divisors are positive in every valid program; others could trap.
  %positive = icmp sgt i64 %y, 0
  br i1 %positive, label %quotient, label %bad.size

quotient:
  %toward.zero = sdiv i64 %x, %y
  %rest = srem i64 %x, %y
  %below = icmp slt i64 %rest, 0
  %one = zext i1 %below to i64
  %floor = sub i64 %toward.zero, %one
  br label %computed.one

larger:
  %max = call i64 @llvm.smax.i64(i64 %x, i64 %y)
  br label %computed.one

smaller:
  %min = call i64 @llvm.smin.i64(i64 %x, i64 %y)
  br label %computed.one

tasks:
  ; A launch on less than 32 KiB runs on one thread.
  %little = icmp slt i64 %y, 32768
  %minus = sub i64 0, %x
  %word = select i1 %little, i64 %minus, i64 %x
  %many = icmp ugt i64 %x, 2147483647
  br i1 %many, label %bad.size, label %computed.one

within:
  %negative = icmp slt i64 %x, 0
  %matters = icmp ne i64 %y, 0
  %outside = and i1 %negative, %matters
  br i1 %outside, label %damaged, label %computed.one

bad.size:
  ret { i64, i64 } { i64 0, i64 1 }

damaged:
  ret { i64, i64 } { i64 0, i64 3 }

computed.one:
  %number = phi i64 [ %a, %constant ], [ %size.value, %size ], [ 0, %fit ], [ %sum, %add ], [ %product, %multiply ], [ %floor, %quotient ], [ %max, %larger ], [ %min, %smaller ], [ %word, %tasks ], [ 0, %within ]
  %result = insertvalue { i64, i64 } { i64 0, i64 0 }, i64 %number, 0
  ret { i64, i64 } %result
}

; Evaluates `count` operations; returns 0, or an error code with the index of the operation that failed.
define private i64 @compute(ptr %operations, i64 %count, ptr %values, ptr %sizes, ptr %failed.at) {
entry:
  br label %check

check:
  %i = phi i64 [ 0, %entry ], [ %next, %computed ]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %end, label %one

one:
  %operation = getelementptr [3 x i64], ptr %operations, i64 %i
  %computed.one = call { i64, i64 } @operate(ptr %operation, ptr %values, ptr %sizes)
  %number = extractvalue { i64, i64 } %computed.one, 0
  %code = extractvalue { i64, i64 } %computed.one, 1
  %failed = icmp ne i64 %code, 0
  br i1 %failed, label %fail, label %computed

fail:
  store i64 %i, ptr %failed.at
  ret i64 %code

computed:
  %number.at = getelementptr i64, ptr %values, i64 %i
  store i64 %number, ptr %number.at
  %next = add i64 %i, 1
  br label %check

end:
  ret i64 0
}

; Checks the data-dependent size of a readback, which is in `sizes`; returns what @compute returns.
define private i64 @check_size(ptr %operations, ptr %readback, ptr %sizes, ptr %failed.at) {
entry:
  %first.at = getelementptr i64, ptr %readback, i64 5
  %count.at = getelementptr i64, ptr %readback, i64 6
  %first = load i64, ptr %first.at
  %count = load i64, ptr %count.at
  %checks = getelementptr [3 x i64], ptr %operations, i64 %first
  %values = alloca i64, i64 %count
  %code = call i64 @compute(ptr %checks, i64 %count, ptr %values, ptr %sizes, ptr %failed.at)
  %valid = icmp eq i64 %code, 0
  br i1 %valid, label %end, label %fail

fail:
  %failed = load i64, ptr %failed.at
  %index = add i64 %first, %failed
  store i64 %index, ptr %failed.at
  br label %end

end:
  ret i64 %code
}

; Initializes the slots that hold sizes and task counts, and those that hold addresses in the arena.
define private void @initialize_slots(ptr %inits, i64 %count, ptr %values, ptr %slots, ptr %arena) {
entry:
  %arena.address = ptrtoint ptr %arena to i64
  br label %check

check:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %end, label %one

one:
  %init.at = getelementptr [3 x i64], ptr %inits, i64 %i
  %number.where = getelementptr [3 x i64], ptr %inits, i64 %i, i64 1
  %address.at = getelementptr [3 x i64], ptr %inits, i64 %i, i64 2
  %slot = load i64, ptr %init.at
  %which = load i64, ptr %number.where
  %address = load i64, ptr %address.at
  %number.at = getelementptr i64, ptr %values, i64 %which
  %number = load i64, ptr %number.at
  %from.arena = icmp ne i64 %address, 0
  %from = select i1 %from.arena, i64 %arena.address, i64 0
  %final = add i64 %number, %from
  %slot.at = getelementptr i64, ptr %slots, i64 %slot
  store i64 %final, ptr %slot.at
  %next = add i64 %i, 1
  br label %check

end:
  ret void
}

; Initializes `count` slots with the addresses of inputs or outputs in `addresses`. A null address is replaced by the tensor's
; default array (`otherwise` bytes from `base`). An output that overwrites an input gets the address of that input from `inputs`.
define private void @initialize_address_slots(ptr %slots, ptr %addresses, ptr %tensor, i64 %count, ptr %base, ptr %inputs) {
entry:
  br label %check

check:
  %i = phi i64 [ 0, %entry ], [ %next, %store ]
  %over = icmp eq i64 %i, %count
  br i1 %over, label %end, label %find.address

find.address:
  %slot = getelementptr ptr, ptr %slots, i64 %i
  %address.at = getelementptr ptr, ptr %addresses, i64 %i
  %otherwise.at = getelementptr [7 x i64], ptr %tensor, i64 %i, i64 5
  %donor.at = getelementptr [7 x i64], ptr %tensor, i64 %i, i64 6
  %address = load ptr, ptr %address.at
  %otherwise = load i64, ptr %otherwise.at
  %donor = load i64, ptr %donor.at
  %default = getelementptr i8, ptr %base, i64 %otherwise
  %missing = icmp eq ptr %address, null
  %has.default = icmp ne i64 %otherwise, 0
  %defaulted = and i1 %missing, %has.default
  %own = select i1 %defaulted, ptr %default, ptr %address
  %is.aliased = icmp sge i64 %donor, 0
  br i1 %is.aliased, label %alias, label %store

alias:
  %donor.slot = getelementptr ptr, ptr %inputs, i64 %donor
  %aliased = load ptr, ptr %donor.slot
  br label %store

store:
  %final = phi ptr [ %own, %find.address ], [ %aliased, %alias ]
  store ptr %final, ptr %slot
  %next = add i64 %i, 1
  br label %check

end:
  ret void
}

; Calls the program at %image. Offsets of arrays are relative to %base, the original address of the block.
define i64 @dlc_call(ptr %call, ptr %image, ptr %base) {
entry:
  %sizes.at = getelementptr %Call, ptr %call, i64 0, i32 2
  %memory.at = getelementptr %Call, ptr %call, i64 0, i32 3
  %bytes.at = getelementptr %Call, ptr %call, i64 0, i32 4
  %shapes.at = getelementptr %Call, ptr %call, i64 0, i32 5
  %needed.at = getelementptr %Call, ptr %call, i64 0, i32 9
  %failed.at = getelementptr %Call, ptr %call, i64 0, i32 10
  %block.at = getelementptr %Call, ptr %call, i64 0, i32 11
  store ptr %image, ptr %block.at
  %call.sizes = load ptr, ptr %sizes.at
  %memory = load ptr, ptr %memory.at
  %bytes = load i64, ptr %bytes.at
  %shapes = load ptr, ptr %shapes.at
  %slot.count.at = getelementptr %Image, ptr %image, i64 0, i32 3
  %arena.operation.at = getelementptr %Image, ptr %image, i64 0, i32 4
  %operations.where.at = getelementptr %Image, ptr %image, i64 0, i32 10
  %operation.count.at = getelementptr %Image, ptr %image, i64 0, i32 11
  %slot.count = load i64, ptr %slot.count.at
  %arena.operation = load i64, ptr %arena.operation.at
  %operations.where = load i64, ptr %operations.where.at
  %operation.count = load i64, ptr %operation.count.at
  %operations = getelementptr i8, ptr %image, i64 %operations.where
  %values = alloca i64, i64 %operation.count
  ; If the caller provides a callback, only these two fields of the pool are read.
  %callers = alloca %Pool, align 128
  %symbol.count.at = getelementptr %Image, ptr %image, i64 0, i32 17
  %readbacks.where.at = getelementptr %Image, ptr %image, i64 0, i32 18
  %readback.count.at = getelementptr %Image, ptr %image, i64 0, i32 19
  %symbol.count = load i64, ptr %symbol.count.at
  %readbacks.where = load i64, ptr %readbacks.where.at
  %readback.count = load i64, ptr %readback.count.at
  %readbacks = getelementptr i8, ptr %image, i64 %readbacks.where
  %records.where.at = getelementptr %Image, ptr %image, i64 0, i32 16
  %records.where = load i64, ptr %records.where.at
  %records = getelementptr i8, ptr %image, i64 %records.where
  %size.count = add i64 %symbol.count, %readback.count
  %sizes = alloca i64, i64 %size.count
  %wants.block = icmp slt i64 %bytes, 0
  br i1 %wants.block, label %done.early, label %copy.size

copy.size:
  %t = phi i64 [ 0, %entry ], [ %t.next, %copy.one ]
  %all.copied = icmp eq i64 %t, %symbol.count
  br i1 %all.copied, label %reset, label %copy.one

copy.one:
  %size.argument.at = getelementptr i64, ptr %call.sizes, i64 %t
  %own.size.at = getelementptr i64, ptr %sizes, i64 %t
  %size.argument = load i64, ptr %size.argument.at
  store i64 %size.argument, ptr %own.size.at
  %t.next = add i64 %t, 1
  br label %copy.size

reset:
  ; The sizes from here on are not known yet.
  %known = phi i64 [ %symbol.count, %copy.size ], [ %known.count, %read ]
  %record = phi ptr [ %records, %copy.size ], [ %following, %read ]
  br label %reset.next

reset.next:
  %k = phi i64 [ %known, %reset ], [ %k.next, %reset.one ]
  %none = icmp eq i64 %k, %size.count
  br i1 %none, label %compute, label %reset.one

reset.one:
  %reset.at = getelementptr i64, ptr %sizes, i64 %k
  %reset.readback = sub i64 %k, %symbol.count
  %initial.at = getelementptr [7 x i64], ptr %readbacks, i64 %reset.readback, i64 4
  %initial = load i64, ptr %initial.at
  store i64 %initial, ptr %reset.at
  %k.next = add i64 %k, 1
  br label %reset.next

compute:
  %code = call i64 @compute(ptr %operations, i64 %operation.count, ptr %values, ptr %sizes, ptr %failed.at)
  %failed = icmp ne i64 %code, 0
  br i1 %failed, label %fail, label %measure

fail:
  ret i64 %code

measure:
  %slot.bytes = shl i64 %slot.count, 3
  %slot.more = add i64 %slot.bytes, 63
  %slot.room = and i64 %slot.more, -64
  %arena.bytes.at = getelementptr i64, ptr %values, i64 %arena.operation
  %arena.bytes = load i64, ptr %arena.bytes.at
  %no.arena = icmp ugt i64 %arena.bytes, 4611686018427387904
  br i1 %no.arena, label %damaged, label %add.up

damaged:
  store i64 %arena.operation, ptr %failed.at
  ret i64 3

add.up:
  %needed = add i64 %slot.room, %arena.bytes
  store i64 %needed, ptr %needed.at
  %shapeless = icmp eq ptr %shapes, null
  br i1 %shapeless, label %decide, label %describe

describe:
  %dims.where.at = getelementptr %Image, ptr %image, i64 0, i32 8
  %dim.count.at = getelementptr %Image, ptr %image, i64 0, i32 9
  %dims.where = load i64, ptr %dims.where.at
  %dim.count = load i64, ptr %dim.count.at
  %dims = getelementptr i8, ptr %image, i64 %dims.where
  br label %shape

shape:
  %d = phi i64 [ 0, %describe ], [ %d.next, %dim ]
  %shaped = icmp eq i64 %d, %dim.count
  br i1 %shaped, label %decide, label %dim

dim:
  %dim.at = getelementptr i64, ptr %dims, i64 %d
  %dim.operation = load i64, ptr %dim.at
  %dim.value.at = getelementptr i64, ptr %values, i64 %dim.operation
  %dim.value = load i64, ptr %dim.value.at
  %shape.at = getelementptr i64, ptr %shapes, i64 %d
  store i64 %dim.value, ptr %shape.at
  %d.next = add i64 %d, 1
  br label %shape

decide:
  %memory.missing = icmp eq ptr %memory, null
  br i1 %memory.missing, label %done.early, label %check.memory

done.early:
  ret i64 0

check.memory:
  %short = icmp ult i64 %bytes, %needed
  br i1 %short, label %too.small, label %init

too.small:
  ret i64 2

init:
  %arena = getelementptr i8, ptr %memory, i64 %slot.room
  %arena.slot = getelementptr ptr, ptr %memory, i64 1
  store ptr null, ptr %memory
  store ptr %arena, ptr %arena.slot
  %input.count.at = getelementptr %Image, ptr %image, i64 0, i32 5
  %output.count.at = getelementptr %Image, ptr %image, i64 0, i32 6
  %tensors.where.at = getelementptr %Image, ptr %image, i64 0, i32 7
  %outputs.at = getelementptr %Call, ptr %call, i64 0, i32 1
  %input.count = load i64, ptr %input.count.at
  %output.count = load i64, ptr %output.count.at
  %tensors.where = load i64, ptr %tensors.where.at
  %inputs = load ptr, ptr %call
  %outputs = load ptr, ptr %outputs.at
  %input.tensors = getelementptr i8, ptr %image, i64 %tensors.where
  %output.tensors = getelementptr [7 x i64], ptr %input.tensors, i64 %input.count
  %input.slots = getelementptr ptr, ptr %memory, i64 2
  %output.slots = getelementptr ptr, ptr %input.slots, i64 %input.count
  %weight.slots = getelementptr ptr, ptr %output.slots, i64 %output.count
  call void @initialize_address_slots(ptr %input.slots, ptr %inputs, ptr %input.tensors, i64 %input.count, ptr %base, ptr %input.slots)
  call void @initialize_address_slots(ptr %output.slots, ptr %outputs, ptr %output.tensors, i64 %output.count, ptr %base, ptr %input.slots)
  %weights.where.at = getelementptr %Image, ptr %image, i64 0, i32 12
  %weight.count.at = getelementptr %Image, ptr %image, i64 0, i32 13
  %weights.where = load i64, ptr %weights.where.at
  %weight.count = load i64, ptr %weight.count.at
  %weights = getelementptr i8, ptr %image, i64 %weights.where
  br label %next.weight

next.weight:
  %w = phi i64 [ 0, %init ], [ %w.next, %weight ]
  %all.weights = icmp eq i64 %w, %weight.count
  br i1 %all.weights, label %init.tables, label %weight

weight:
  %weight.at = getelementptr [3 x i64], ptr %weights, i64 %w
  %distance = load i64, ptr %weight.at
  %weight.address = getelementptr i8, ptr %base, i64 %distance
  %weight.slot = getelementptr ptr, ptr %weight.slots, i64 %w
  store ptr %weight.address, ptr %weight.slot
  %w.next = add i64 %w, 1
  br label %next.weight

init.tables:
  %inits.where.at = getelementptr %Image, ptr %image, i64 0, i32 14
  %init.count.at = getelementptr %Image, ptr %image, i64 0, i32 15
  %inits.where = load i64, ptr %inits.where.at
  %init.count = load i64, ptr %init.count.at
  %inits = getelementptr i8, ptr %image, i64 %inits.where
  call void @initialize_slots(ptr %inits, i64 %init.count, ptr %values, ptr %memory, ptr %arena)
  %collectives.slot.at = getelementptr %Image, ptr %image, i64 0, i32 20
  %collectives.slot = load i64, ptr %collectives.slot.at
  %no.collectives = icmp eq i64 %collectives.slot, 0
  br i1 %no.collectives, label %run, label %init.collectives

init.collectives:
  %collectives.at = getelementptr %Call, ptr %call, i64 0, i32 15
  %collectives = load ptr, ptr %collectives.at
  %collectives.table = getelementptr ptr, ptr %memory, i64 %collectives.slot
  store ptr %collectives, ptr %collectives.table
  br label %run

run:
  %pool.at = getelementptr %Call, ptr %call, i64 0, i32 6
  %parallel.at = getelementptr %Call, ptr %call, i64 0, i32 7
  %whose.at = getelementptr %Call, ptr %call, i64 0, i32 8
  %pool = load ptr, ptr %pool.at
  %parallel = load ptr, ptr %parallel.at
  %whose = load ptr, ptr %whose.at
  %callers.parallel.at = getelementptr %Pool, ptr %callers, i64 0, i32 16
  %callers.whose.at = getelementptr %Pool, ptr %callers, i64 0, i32 17
  store ptr %parallel, ptr %callers.parallel.at
  store ptr %whose, ptr %callers.whose.at
  %own = icmp eq ptr %parallel, null
  %used = select i1 %own, ptr %pool, ptr %callers
  %ended = call i64 @dlc_execute(ptr %record, i64 9223372036854775807, ptr %memory, ptr %used)
  br label %find.readback

find.readback:
  %q = phi i64 [ 0, %run ], [ %q.next, %another ]
  %no.readback = icmp eq i64 %q, %readback.count
  br i1 %no.readback, label %end, label %compare

compare:
  %readback = getelementptr [7 x i64], ptr %readbacks, i64 %q
  %readback.code = load i64, ptr %readback
  %is.it = icmp eq i64 %readback.code, %ended
  br i1 %is.it, label %read, label %another

another:
  %q.next = add i64 %q, 1
  br label %find.readback

read:
  %count.slot.at = getelementptr i64, ptr %readback, i64 1
  %count.offset.at = getelementptr i64, ptr %readback, i64 2
  %on.at = getelementptr i64, ptr %readback, i64 3
  %count.slot = load i64, ptr %count.slot.at
  %count.offset = load i64, ptr %count.offset.at
  %on = load i64, ptr %on.at
  %count.base.at = getelementptr ptr, ptr %memory, i64 %count.slot
  %count.base = load ptr, ptr %count.base.at
  %count.at = getelementptr i8, ptr %count.base, i64 %count.offset
  %count = load i64, ptr %count.at
  %following = getelementptr i8, ptr %records, i64 %on
  %size.index = add i64 %symbol.count, %q
  %known.count = add i64 %size.index, 1
  %size.known.at = getelementptr i64, ptr %sizes, i64 %size.index
  store i64 %count, ptr %size.known.at
  %checked = call i64 @check_size(ptr %operations, ptr %readback, ptr %sizes, ptr %failed.at)
  %valid = icmp eq i64 %checked, 0
  br i1 %valid, label %reset, label %rejected

rejected:
  ret i64 %checked

end:
  %whole = icmp eq i64 %ended, 0
  br i1 %whole, label %report, label %over

report:
  %o = phi i64 [ 0, %end ], [ %o.next, %output.done ]
  %all.reported = icmp eq i64 %o, %output.count
  br i1 %all.reported, label %over, label %report.one

report.one:
  %tensor.over.at = getelementptr [7 x i64], ptr %output.tensors, i64 %o, i64 6
  %tensor.over = load i64, ptr %tensor.over.at
  %is.in.memory = icmp eq i64 %tensor.over, -2
  br i1 %is.in.memory, label %report.address, label %output.done

report.address:
  %output.slot.at = getelementptr ptr, ptr %output.slots, i64 %o
  %output.address = load ptr, ptr %output.slot.at
  %output.address.at = getelementptr ptr, ptr %outputs, i64 %o
  store ptr %output.address, ptr %output.address.at
  br label %output.done

output.done:
  %o.next = add i64 %o, 1
  br label %report

over:
  ret i64 %ended
}
