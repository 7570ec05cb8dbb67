; Selection of the program of a call, for libraries of several programs that are called without dlc.h.
;
; A block lists the programs; its first instructions jump to dlc_select_program. A call runs the first program whose conditions
; it satisfies: an input has a certain value (bytes) or shape, according to the `selectors` of the call. Structures, in memory
; order:
;
;   part        {i64 offset of the program from the list, checksum, index of its first condition, number of conditions}
;   condition   {i64 offset of the input's name, kind, offset of the content, its length}; kinds: 0 a shape, 1 a value, 2 the axis,
;               smallest and largest value of a size, which holds if the shape is not selected

%Parts = type {
  [16 x i8],   ; 0 code: jumps to dlc_select_program with this block
  [8 x i8],    ; 1 "dlcparts"
  [3 x i64],   ; 2 read only by the loader
  i64,         ; 3 number of parts, which follow these fields
  i64,         ; 4 offset of the conditions
  i64          ; 5 number of conditions
}

; The layout of `dlc_selector` in dlc.h: name, value, bytes of the value, shape, rank. A selector without a name is ignored.
%Selector = type { ptr, ptr, i64, ptr, i32 }

; Returns whether two null-terminated strings are equal.
define private i1 @same.text(ptr %a, ptr %b) {
entry:
  br label %compare

compare:
  %i = phi i64 [ 0, %entry ], [ %next, %further ]
  %x.at = getelementptr i8, ptr %a, i64 %i
  %y.at = getelementptr i8, ptr %b, i64 %i
  %x = load i8, ptr %x.at
  %y = load i8, ptr %y.at
  %alike = icmp eq i8 %x, %y
  br i1 %alike, label %further, label %end

further:
  %next = add i64 %i, 1
  %ends = icmp eq i8 %x, 0
  br i1 %ends, label %end, label %compare

end:
  %same = phi i1 [ false, %compare ], [ true, %further ]
  ret i1 %same
}

; Returns whether %bytes bytes are equal.
define private i1 @same.bytes(ptr %a, ptr %b, i64 %bytes) {
entry:
  br label %check

check:
  %i = phi i64 [ 0, %entry ], [ %next, %compare ]
  %all = icmp eq i64 %i, %bytes
  br i1 %all, label %end, label %compare

compare:
  %x.at = getelementptr i8, ptr %a, i64 %i
  %y.at = getelementptr i8, ptr %b, i64 %i
  %x = load i8, ptr %x.at
  %y = load i8, ptr %y.at
  %next = add i64 %i, 1
  %alike = icmp eq i8 %x, %y
  br i1 %alike, label %check, label %end

end:
  %same = phi i1 [ true, %check ], [ false, %compare ]
  ret i1 %same
}

; Returns whether the selectors satisfy a condition of a list.
define private i1 @holds(ptr %list, ptr %condition, ptr %selectors, i64 %count) {
entry:
  %name.where = load i64, ptr %condition
  %kind.at = getelementptr i64, ptr %condition, i64 1
  %kind = load i64, ptr %kind.at
  %where.at = getelementptr i64, ptr %condition, i64 2
  %where = load i64, ptr %where.at
  %size.at = getelementptr i64, ptr %condition, i64 3
  %size = load i64, ptr %size.at
  %name = getelementptr i8, ptr %list, i64 %name.where
  %wanted = getelementptr i8, ptr %list, i64 %where
  %some = icmp sgt i64 %count, 0
  %listed = icmp ne ptr %selectors, null
  %looked.at = and i1 %some, %listed
  %of.range = icmp eq i64 %kind, 2
  br i1 %looked.at, label %look, label %absent

look:
  %k = phi i64 [ 0, %entry ], [ %next, %another ]
  %one = getelementptr %Selector, ptr %selectors, i64 %k
  %own.name = load ptr, ptr %one
  %nameless = icmp eq ptr %own.name, null
  br i1 %nameless, label %another, label %named

named:
  %is.it = call i1 @same.text(ptr %own.name, ptr %name)
  br i1 %is.it, label %found, label %another

another:
  %next = add i64 %k, 1
  %over = icmp eq i64 %next, %count
  br i1 %over, label %absent, label %look

absent:
  ret i1 %of.range

found:
  switch i64 %kind, label %shape [
    i64 1, label %value
    i64 2, label %range
  ]

range:
  %sizes.at = getelementptr %Selector, ptr %one, i64 0, i32 3
  %axes.at = getelementptr %Selector, ptr %one, i64 0, i32 4
  %sizes = load ptr, ptr %sizes.at
  %short.axes = load i32, ptr %axes.at
  %axes = sext i32 %short.axes to i64
  %sizeless = icmp eq ptr %sizes, null
  br i1 %sizeless, label %absent, label %ranked

ranked:
  %axis = load i64, ptr %wanted
  %has.axis = icmp slt i64 %axis, %axes
  br i1 %has.axis, label %bounded, label %no

bounded:
  %own.size.at = getelementptr i64, ptr %sizes, i64 %axis
  %low.at = getelementptr i64, ptr %wanted, i64 1
  %high.at = getelementptr i64, ptr %wanted, i64 2
  %own.size = load i64, ptr %own.size.at
  %low = load i64, ptr %low.at
  %high = load i64, ptr %high.at
  %above = icmp sle i64 %low, %own.size
  %below = icmp sle i64 %own.size, %high
  %inside = and i1 %above, %below
  ret i1 %inside

value:
  %value.at = getelementptr %Selector, ptr %one, i64 0, i32 1
  %bytes.at = getelementptr %Selector, ptr %one, i64 0, i32 2
  %own.value = load ptr, ptr %value.at
  %own.bytes = load i64, ptr %bytes.at
  %no.value = icmp eq ptr %own.value, null
  %value.counted = icmp eq i64 %own.bytes, %size
  br label %counted

shape:
  %shape.at = getelementptr %Selector, ptr %one, i64 0, i32 3
  %rank.at = getelementptr %Selector, ptr %one, i64 0, i32 4
  %own.shape = load ptr, ptr %shape.at
  %short.rank = load i32, ptr %rank.at
  %rank = sext i32 %short.rank to i64
  %shape.bytes = shl i64 %rank, 3
  %shapeless = icmp eq ptr %own.shape, null
  %sized = icmp ne i64 %rank, 0
  %no.shape = and i1 %shapeless, %sized
  %shape.counted = icmp eq i64 %rank, %size
  br label %counted

counted:
  %content = phi ptr [ %own.value, %value ], [ %own.shape, %shape ]
  %all.bytes = phi i64 [ %own.bytes, %value ], [ %shape.bytes, %shape ]
  %missing = phi i1 [ %no.value, %value ], [ %no.shape, %shape ]
  %as.many = phi i1 [ %value.counted, %value ], [ %shape.counted, %shape ]
  %there = xor i1 %missing, true
  %comparable = and i1 %there, %as.many
  br i1 %comparable, label %compare, label %no

compare:
  %same = call i1 @same.bytes(ptr %content, ptr %wanted, i64 %all.bytes)
  ret i1 %same

no:
  ret i1 false
}

; Calls the first program of %list that matches the selectors; %base is the list too, by the calling convention of blocks.
; If none matches, returns the input of the first unsatisfied condition, for the program that satisfies the most conditions.
define i64 @dlc_select_program(ptr %call, ptr %list, ptr %base) {
entry:
  %bytes.at = getelementptr %Call, ptr %call, i64 0, i32 4
  %bytes = load i64, ptr %bytes.at
  %introduction = icmp slt i64 %bytes, 0
  br i1 %introduction, label %introduce, label %begin

introduce:
  %block.at = getelementptr %Call, ptr %call, i64 0, i32 11
  store ptr %list, ptr %block.at
  ret i64 0

begin:
  %selectors.at = getelementptr %Call, ptr %call, i64 0, i32 12
  %selectors.count.at = getelementptr %Call, ptr %call, i64 0, i32 13
  %selectors = load ptr, ptr %selectors.at
  %selectors.count = load i64, ptr %selectors.count.at
  %count.at = getelementptr %Parts, ptr %list, i64 0, i32 3
  %conditions.where.at = getelementptr %Parts, ptr %list, i64 0, i32 4
  %count = load i64, ptr %count.at
  %conditions.where = load i64, ptr %conditions.where.at
  %parts = getelementptr %Parts, ptr %list, i64 1
  %conditions = getelementptr i8, ptr %list, i64 %conditions.where
  br label %try

try:
  %i = phi i64 [ 0, %begin ], [ %i.next, %unfit ]
  %most = phi i64 [ -1, %begin ], [ %most.now, %unfit ]
  %which = phi ptr [ null, %begin ], [ %which.now, %unfit ]
  %none = icmp eq i64 %i, %count
  br i1 %none, label %refuse, label %one

one:
  %part = getelementptr [4 x i64], ptr %parts, i64 %i
  %first.at = getelementptr i64, ptr %part, i64 2
  %own.count.at = getelementptr i64, ptr %part, i64 3
  %first = load i64, ptr %first.at
  %own.count = load i64, ptr %own.count.at
  br label %check

check:
  %k = phi i64 [ 0, %one ], [ %k.next, %held ]
  %all = icmp eq i64 %k, %own.count
  br i1 %all, label %go, label %ask

ask:
  %number = add i64 %first, %k
  %condition = getelementptr [4 x i64], ptr %conditions, i64 %number
  %holds = call i1 @holds(ptr %list, ptr %condition, ptr %selectors, i64 %selectors.count)
  br i1 %holds, label %held, label %unfit

held:
  %k.next = add i64 %k, 1
  br label %check

unfit:
  %more = icmp sgt i64 %k, %most
  %most.now = select i1 %more, i64 %k, i64 %most
  %which.now = select i1 %more, ptr %condition, ptr %which
  %i.next = add i64 %i, 1
  br label %try

refuse:
  %name.where = load i64, ptr %which
  %name = getelementptr i8, ptr %list, i64 %name.where
  %unfit.at = getelementptr %Call, ptr %call, i64 0, i32 14
  store ptr %name, ptr %unfit.at
  ret i64 6

go:
  ; A program block begins with the code that calls it.
  %distance = load i64, ptr %part
  %program = getelementptr i8, ptr %list, i64 %distance
  %code = tail call i64 %program(ptr %call)
  ret i64 %code
}
