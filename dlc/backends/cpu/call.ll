; Calls of a program that lies in memory as one block of bytes (image.py), for whoever has no Python.
;
; A call computes what its sizes decide, sets up the slots, and executes the records. It allocates nothing and keeps nothing:
; slots and the arena are in the memory that it is given, numbers that sizes decide on the stack. Structures, in memory order:
;
;   %Call       what `dlc_call` of dlc.h is
;   %Image      the beginning of the block; fields that say where something is count in bytes from there
;   tensor      {i64 name, dtype, element bytes, rank, dims, otherwise, over}: `otherwise` is how far from the block the array
;               lies that an input is if none is given, 0 if there is none; `over` which input an output is written over, -1
;               if none, -2 if it lies in the call's memory, since data decides how large it is: then the call says where
;   operation   {i64 kind, a, b}, each of which makes one number, which later ones know by its place in the list
;     0  a                         1  the size `a` of the call                2  #a + #b
;     3  #a * #b                   4  #a / #b, rounded down                   5  the larger of #a and #b
;     6  the smaller               7  #a tasks on #b bytes as a record says it (table.py)
;     8  fails unless #a >= 0 or #b == 0, which only a damaged program does
;     9  fails unless #a >= 0: the sizes of the call are not those of the program; `b` is for the message
;   array       {i64 how far from the block it lies, bytes, checksum}
;   fill        {i64 slot, number, address}: slots[slot] = #number, which counts from the arena if `address` is 1
;   decision    {i64 code, slot, offset, on}: when records end with this code, the i64 at slots[slot] + offset is the next size
;               behind those of the call. What sizes decide is computed again, with 0 for those that are not decided yet, and
;               records go on `on` bytes from the first. What lies in the arena stays there: places of what is as large come
;               behind all others. The call begins again where the memory is too little then.
;
; The codes that a call ends with are those of dlc.h; below 0 they are the program's own.

%Call = type {
  ptr,         ;  0 addresses of inputs
  ptr,         ;  1 addresses of outputs; those that lie in the memory are set
  ptr,         ;  2 open sizes
  ptr,         ;  3 memory, at a multiple of 64; null: nothing is run
  i64,         ;  4 bytes of it; below 0 only the block is answered
  ptr,         ;  5 where the shapes of inputs and outputs go, one after the other; null: nowhere
  ptr,         ;  6 a pool; null: none
  ptr,         ;  7 who runs tasks in a pool's place; null: nobody
  ptr,         ;  8 whose that is
  i64,         ;  9 result: bytes of memory that it takes
  i64,         ; 10 result: the operation that failed
  ptr,         ; 11 result: the block
  ptr,         ; 12 what is given to pick one of several programs (picking.ll)
  i64,         ; 13 how much that is
  ptr          ; 14 result: the name of the input that none of them is for
}

%Image = type {
  [16 x i8],   ;  0 code: dlc_call with this block
  [8 x i8],    ;  1 "dlcimage"
  [7 x i64],   ;  2 what only who opens it reads
  i64,         ;  3 slots
  i64,         ;  4 number: bytes of the arena
  i64,         ;  5 inputs
  i64,         ;  6 outputs
  i64,         ;  7 where tensors are, inputs first
  i64,         ;  8 where the numbers are that are their sizes
  i64,         ;  9 how many these are
  i64,         ; 10 where operations are
  i64,         ; 11 how many
  i64,         ; 12 where arrays are, weights first
  i64,         ; 13 how many of these weights are
  i64,         ; 14 where fills are
  i64,         ; 15 how many
  i64,         ; 16 where records are
  i64,         ; 17 how many sizes a call gives
  i64,         ; 18 where decisions are
  i64          ; 19 how many
}

declare { i64, i1 } @llvm.sadd.with.overflow.i64(i64, i64)
declare { i64, i1 } @llvm.smul.with.overflow.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)

; One operation on numbers: what it makes, and the code that the call fails with, 0 if it does not.
define private { i64, i64 } @operate(ptr %operation, ptr %numbers, ptr %sizes) {
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
  br label %made

size:
  %size.at = getelementptr i64, ptr %sizes, i64 %a
  %given = load i64, ptr %size.at
  br label %made

fit:
  %fitting.at = getelementptr i64, ptr %numbers, i64 %a
  %fitting = load i64, ptr %fitting.at
  %misfit = icmp slt i64 %fitting, 0
  br i1 %misfit, label %unfit, label %made

two:
  %x.at = getelementptr i64, ptr %numbers, i64 %a
  %y.at = getelementptr i64, ptr %numbers, i64 %b
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
  br i1 %sum.lost, label %unfit, label %made

multiply:
  %product.pair = call { i64, i1 } @llvm.smul.with.overflow.i64(i64 %x, i64 %y)
  %product = extractvalue { i64, i1 } %product.pair, 0
  %product.lost = extractvalue { i64, i1 } %product.pair, 1
  br i1 %product.lost, label %unfit, label %made

divide:
  ; Divisors are positive in every program; the others have quotients that processors do not know.
  %positive = icmp sgt i64 %y, 0
  br i1 %positive, label %quotient, label %unfit

quotient:
  %toward.zero = sdiv i64 %x, %y
  %rest = srem i64 %x, %y
  %below = icmp slt i64 %rest, 0
  %one = zext i1 %below to i64
  %floor = sub i64 %toward.zero, %one
  br label %made

larger:
  %max = call i64 @llvm.smax.i64(i64 %x, i64 %y)
  br label %made

smaller:
  %min = call i64 @llvm.smin.i64(i64 %x, i64 %y)
  br label %made

tasks:
  ; A launch on less than 32 KiB is not shared.
  %little = icmp slt i64 %y, 32768
  %minus = sub i64 0, %x
  %word = select i1 %little, i64 %minus, i64 %x
  %many = icmp ugt i64 %x, 2147483647
  br i1 %many, label %unfit, label %made

within:
  %negative = icmp slt i64 %x, 0
  %matters = icmp ne i64 %y, 0
  %outside = and i1 %negative, %matters
  br i1 %outside, label %damaged, label %made

unfit:
  ret { i64, i64 } { i64 0, i64 1 }

damaged:
  ret { i64, i64 } { i64 0, i64 3 }

made:
  %number = phi i64 [ %a, %constant ], [ %given, %size ], [ 0, %fit ], [ %sum, %add ], [ %product, %multiply ], [ %floor, %quotient ], [ %max, %larger ], [ %min, %smaller ], [ %word, %tasks ], [ 0, %within ]
  %result = insertvalue { i64, i64 } { i64 0, i64 0 }, i64 %number, 0
  ret { i64, i64 } %result
}

; Makes all numbers of so many operations: 0, or the code that the call fails with, and which operation did.
define private i64 @compute(ptr %operations, i64 %count, ptr %numbers, ptr %sizes, ptr %failed.at) {
entry:
  br label %check

check:
  %i = phi i64 [ 0, %entry ], [ %next, %computed ]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %end, label %one

one:
  %operation = getelementptr [3 x i64], ptr %operations, i64 %i
  %made = call { i64, i64 } @operate(ptr %operation, ptr %numbers, ptr %sizes)
  %number = extractvalue { i64, i64 } %made, 0
  %code = extractvalue { i64, i64 } %made, 1
  %failed = icmp ne i64 %code, 0
  br i1 %failed, label %fail, label %computed

fail:
  store i64 %i, ptr %failed.at
  ret i64 %code

computed:
  %number.at = getelementptr i64, ptr %numbers, i64 %i
  store i64 %number, ptr %number.at
  %next = add i64 %i, 1
  br label %check

end:
  ret i64 0
}

; Sets the slots that hold numbers, and addresses in the arena.
define private void @fill(ptr %fills, i64 %count, ptr %numbers, ptr %slots, ptr %arena) {
entry:
  %arena.address = ptrtoint ptr %arena to i64
  br label %check

check:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %all = icmp eq i64 %i, %count
  br i1 %all, label %end, label %one

one:
  %fill.at = getelementptr [3 x i64], ptr %fills, i64 %i
  %number.where = getelementptr [3 x i64], ptr %fills, i64 %i, i64 1
  %address.at = getelementptr [3 x i64], ptr %fills, i64 %i, i64 2
  %slot = load i64, ptr %fill.at
  %which = load i64, ptr %number.where
  %address = load i64, ptr %address.at
  %number.at = getelementptr i64, ptr %numbers, i64 %which
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

; Sets `count` slots, from `slots` on, to what a call gives: for tensors from `tensor` on the addresses in `given`, or instead of
; null what lies `otherwise` from `base`; for an output that is written over an input, that input, which `inputs` has.
define private void @give(ptr %slots, ptr %given, ptr %tensor, i64 %count, ptr %base, ptr %inputs) {
entry:
  br label %check

check:
  %i = phi i64 [ 0, %entry ], [ %next, %give ]
  %over = icmp eq i64 %i, %count
  br i1 %over, label %end, label %look

look:
  %slot = getelementptr ptr, ptr %slots, i64 %i
  %given.at = getelementptr ptr, ptr %given, i64 %i
  %otherwise.at = getelementptr [7 x i64], ptr %tensor, i64 %i, i64 5
  %donor.at = getelementptr [7 x i64], ptr %tensor, i64 %i, i64 6
  %address = load ptr, ptr %given.at
  %otherwise = load i64, ptr %otherwise.at
  %donor = load i64, ptr %donor.at
  %default = getelementptr i8, ptr %base, i64 %otherwise
  %missing = icmp eq ptr %address, null
  %has.default = icmp ne i64 %otherwise, 0
  %defaulted = and i1 %missing, %has.default
  %own = select i1 %defaulted, ptr %default, ptr %address
  %donated = icmp sge i64 %donor, 0
  br i1 %donated, label %donation, label %give

donation:
  %donor.slot = getelementptr ptr, ptr %inputs, i64 %donor
  %lent = load ptr, ptr %donor.slot
  br label %give

give:
  %final = phi ptr [ %own, %look ], [ %lent, %donation ]
  store ptr %final, ptr %slot
  %next = add i64 %i, 1
  br label %check

end:
  ret void
}

; Makes a call of the program at %image; distances of arrays count from %base, which is the block where it was first.
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
  %given.sizes = load ptr, ptr %sizes.at
  %memory = load ptr, ptr %memory.at
  %bytes = load i64, ptr %bytes.at
  %shapes = load ptr, ptr %shapes.at
  %slot.count.at = getelementptr %Image, ptr %image, i64 0, i32 3
  %arena.number.at = getelementptr %Image, ptr %image, i64 0, i32 4
  %operations.where.at = getelementptr %Image, ptr %image, i64 0, i32 10
  %operation.count.at = getelementptr %Image, ptr %image, i64 0, i32 11
  %slot.count = load i64, ptr %slot.count.at
  %arena.number = load i64, ptr %arena.number.at
  %operations.where = load i64, ptr %operations.where.at
  %operation.count = load i64, ptr %operation.count.at
  %operations = getelementptr i8, ptr %image, i64 %operations.where
  %numbers = alloca i64, i64 %operation.count
  ; Of a pool that is the caller's, nothing else is read.
  %callers = alloca %Pool, align 128
  %given.count.at = getelementptr %Image, ptr %image, i64 0, i32 17
  %decisions.where.at = getelementptr %Image, ptr %image, i64 0, i32 18
  %decision.count.at = getelementptr %Image, ptr %image, i64 0, i32 19
  %given.count = load i64, ptr %given.count.at
  %decisions.where = load i64, ptr %decisions.where.at
  %decision.count = load i64, ptr %decision.count.at
  %decisions = getelementptr i8, ptr %image, i64 %decisions.where
  %records.where.at = getelementptr %Image, ptr %image, i64 0, i32 16
  %records.where = load i64, ptr %records.where.at
  %records = getelementptr i8, ptr %image, i64 %records.where
  %size.count = add i64 %given.count, %decision.count
  %sizes = alloca i64, i64 %size.count
  %introduction = icmp slt i64 %bytes, 0
  br i1 %introduction, label %answered, label %take

take:
  %t = phi i64 [ 0, %entry ], [ %t.next, %taken ]
  %took = icmp eq i64 %t, %given.count
  br i1 %took, label %forget, label %taken

taken:
  %taken.at = getelementptr i64, ptr %given.sizes, i64 %t
  %kept.at = getelementptr i64, ptr %sizes, i64 %t
  %taken.size = load i64, ptr %taken.at
  store i64 %taken.size, ptr %kept.at
  %t.next = add i64 %t, 1
  br label %take

forget:
  ; Sizes from here on are not decided yet.
  %known = phi i64 [ %given.count, %take ], [ %decided.count, %decided ]
  %record = phi ptr [ %records, %take ], [ %following, %decided ]
  br label %forget.one

forget.one:
  %k = phi i64 [ %known, %forget ], [ %k.next, %forgotten ]
  %none = icmp eq i64 %k, %size.count
  br i1 %none, label %compute, label %forgotten

forgotten:
  %forgotten.at = getelementptr i64, ptr %sizes, i64 %k
  store i64 0, ptr %forgotten.at
  %k.next = add i64 %k, 1
  br label %forget.one

compute:
  %code = call i64 @compute(ptr %operations, i64 %operation.count, ptr %numbers, ptr %sizes, ptr %failed.at)
  %failed = icmp ne i64 %code, 0
  br i1 %failed, label %fail, label %measure

fail:
  ret i64 %code

measure:
  %slot.bytes = shl i64 %slot.count, 3
  %slot.more = add i64 %slot.bytes, 63
  %slot.room = and i64 %slot.more, -64
  %arena.bytes.at = getelementptr i64, ptr %numbers, i64 %arena.number
  %arena.bytes = load i64, ptr %arena.bytes.at
  %no.arena = icmp ugt i64 %arena.bytes, 4611686018427387904
  br i1 %no.arena, label %damaged, label %add.up

damaged:
  store i64 %arena.number, ptr %failed.at
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
  %dim.number = load i64, ptr %dim.at
  %dim.value.at = getelementptr i64, ptr %numbers, i64 %dim.number
  %dim.value = load i64, ptr %dim.value.at
  %shape.at = getelementptr i64, ptr %shapes, i64 %d
  store i64 %dim.value, ptr %shape.at
  %d.next = add i64 %d, 1
  br label %shape

decide:
  %asked = icmp eq ptr %memory, null
  br i1 %asked, label %answered, label %weigh

answered:
  ret i64 0

weigh:
  %short = icmp ult i64 %bytes, %needed
  br i1 %short, label %no.room, label %fill

no.room:
  ret i64 2

fill:
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
  call void @give(ptr %input.slots, ptr %inputs, ptr %input.tensors, i64 %input.count, ptr %base, ptr %input.slots)
  call void @give(ptr %output.slots, ptr %outputs, ptr %output.tensors, i64 %output.count, ptr %base, ptr %input.slots)
  %weights.where.at = getelementptr %Image, ptr %image, i64 0, i32 12
  %weight.count.at = getelementptr %Image, ptr %image, i64 0, i32 13
  %weights.where = load i64, ptr %weights.where.at
  %weight.count = load i64, ptr %weight.count.at
  %weights = getelementptr i8, ptr %image, i64 %weights.where
  br label %weigh.in

weigh.in:
  %w = phi i64 [ 0, %fill ], [ %w.next, %weight ]
  %weighed = icmp eq i64 %w, %weight.count
  br i1 %weighed, label %filling, label %weight

weight:
  %weight.at = getelementptr [3 x i64], ptr %weights, i64 %w
  %distance = load i64, ptr %weight.at
  %weight.address = getelementptr i8, ptr %base, i64 %distance
  %weight.slot = getelementptr ptr, ptr %weight.slots, i64 %w
  store ptr %weight.address, ptr %weight.slot
  %w.next = add i64 %w, 1
  br label %weigh.in

filling:
  %fills.where.at = getelementptr %Image, ptr %image, i64 0, i32 14
  %fill.count.at = getelementptr %Image, ptr %image, i64 0, i32 15
  %fills.where = load i64, ptr %fills.where.at
  %fill.count = load i64, ptr %fill.count.at
  %fills = getelementptr i8, ptr %image, i64 %fills.where
  call void @fill(ptr %fills, i64 %fill.count, ptr %numbers, ptr %memory, ptr %arena)
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
  br label %look

look:
  %q = phi i64 [ 0, %run ], [ %q.next, %another ]
  %no.decision = icmp eq i64 %q, %decision.count
  br i1 %no.decision, label %end, label %compare

compare:
  %decision = getelementptr [4 x i64], ptr %decisions, i64 %q
  %decision.code = load i64, ptr %decision
  %is.it = icmp eq i64 %decision.code, %ended
  br i1 %is.it, label %read, label %another

another:
  %q.next = add i64 %q, 1
  br label %look

read:
  %count.slot.at = getelementptr i64, ptr %decision, i64 1
  %count.offset.at = getelementptr i64, ptr %decision, i64 2
  %on.at = getelementptr i64, ptr %decision, i64 3
  %count.slot = load i64, ptr %count.slot.at
  %count.offset = load i64, ptr %count.offset.at
  %on = load i64, ptr %on.at
  %count.base.at = getelementptr ptr, ptr %memory, i64 %count.slot
  %count.base = load ptr, ptr %count.base.at
  %count.at = getelementptr i8, ptr %count.base, i64 %count.offset
  %count = load i64, ptr %count.at
  %following = getelementptr i8, ptr %records, i64 %on
  %place = add i64 %given.count, %q
  %decided.count = add i64 %place, 1
  ; 2^40, and nothing below 0.
  %no.count = icmp ugt i64 %count, 1099511627776
  br i1 %no.count, label %miscounted, label %decided

miscounted:
  ret i64 3

decided:
  %decided.at = getelementptr i64, ptr %sizes, i64 %place
  store i64 %count, ptr %decided.at
  br label %forget

end:
  %whole = icmp eq i64 %ended, 0
  br i1 %whole, label %tell, label %over

tell:
  %o = phi i64 [ 0, %end ], [ %o.next, %told ]
  %all.told = icmp eq i64 %o, %output.count
  br i1 %all.told, label %over, label %tell.one

tell.one:
  %tensor.over.at = getelementptr [7 x i64], ptr %output.tensors, i64 %o, i64 6
  %tensor.over = load i64, ptr %tensor.over.at
  %is.kept = icmp eq i64 %tensor.over, -2
  br i1 %is.kept, label %say, label %told

say:
  %output.slot.at = getelementptr ptr, ptr %output.slots, i64 %o
  %output.address = load ptr, ptr %output.slot.at
  %output.said.at = getelementptr ptr, ptr %outputs, i64 %o
  store ptr %output.address, ptr %output.said.at
  br label %told

told:
  %o.next = add i64 %o, 1
  br label %tell

over:
  ret i64 %ended
}
