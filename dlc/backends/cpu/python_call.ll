; Calls of a program from Python entirely in machine code: a built-in function of kind METH_FASTCALL on arrays.
;
; It handles arrays that have exactly the types of the program's inputs. Otherwise, and while other threads use all states of the
; chain, it returns None and the caller falls back to the Python implementation. The object has no undefined symbols, so the state
; contains everything that it needs of Python and NumPy (direct_calls.py). Structures, in memory order:
;
;   %Array      a NumPy array: the fields that are part of the C ABI
;   %Type       the type of an input or result: {dtype, rank, sizes, constructor of a result; null: NumPy}
;   %State      the fields below; `None` and the types are Python objects, functions are pointers

%Array = type { i64, ptr, ptr, i32, ptr, ptr, ptr, ptr, i32 } ; count, type, data, rank, sizes, strides, base, dtype, flags
%Type = type { ptr, i64, ptr, ptr }
%State = type {
  i64,         ;  0 whether a thread uses the state
  i64,         ;  1 number of inputs
  i64,         ;  2 number of results
  ptr,         ;  3 a %Type for each input, then for each result
  ptr,         ;  4 bytecode
  i64,         ;  5 launches between checks for interrupts
  ptr,         ;  6 slots
  ptr,         ;  7 the first slot of an input address; those of results follow
  ptr,         ;  8 pointer to the address of a pool, which is -1 while there is none
  ptr,         ;  9 numpy.ndarray
  ptr,         ; 10 dlc.Array
  ptr,         ; 11 None
  ptr,         ; 12 a callable that continues the call in Python
  ptr,         ; 13 where the next record, or a stop code, is stored for it
  ptr,         ; 14 PyArray_NewFromDescr
  ptr,         ; 15 PyList_New
  ptr,         ; 16 PyList_SetItem
  ptr,         ; 17 PyObject_CallObject
  ptr,         ; 18 PyEval_SaveThread
  ptr,         ; 19 PyEval_RestoreThread
  ptr,         ; 20 Py_IncRef
  ptr,         ; 21 Py_DecRef
  ptr,         ; 22 the next state of the chain, for a thread that finds this one in use; null: none
  i64          ; 23 in the first state: whether a thread found all states in use
}

; Returns whether an object is an array of this type that kernels can read in place.
define private i1 @is_array_of(ptr %object, ptr %type, ptr %state) {
entry:
  %class.at = getelementptr %Array, ptr %object, i64 0, i32 1
  %plain.at = getelementptr %State, ptr %state, i64 0, i32 9
  %own.at = getelementptr %State, ptr %state, i64 0, i32 10
  %class = load ptr, ptr %class.at
  %plain = load ptr, ptr %plain.at
  %own = load ptr, ptr %own.at
  %is.plain = icmp eq ptr %class, %plain
  %is.own = icmp eq ptr %class, %own
  %is.array = or i1 %is.plain, %is.own
  br i1 %is.array, label %array, label %no

array:
  %rank.at = getelementptr %Array, ptr %object, i64 0, i32 3
  %sizes.at = getelementptr %Array, ptr %object, i64 0, i32 4
  %dtype.at = getelementptr %Array, ptr %object, i64 0, i32 7
  %flags.at = getelementptr %Array, ptr %object, i64 0, i32 8
  %rank.due.at = getelementptr %Type, ptr %type, i64 0, i32 1
  %sizes.due.at = getelementptr %Type, ptr %type, i64 0, i32 2
  %rank.narrow = load i32, ptr %rank.at
  %rank = zext i32 %rank.narrow to i64
  %sizes = load ptr, ptr %sizes.at
  %dtype = load ptr, ptr %dtype.at
  %flags = load i32, ptr %flags.at
  %dtype.due = load ptr, ptr %type
  %rank.due = load i64, ptr %rank.due.at
  %sizes.due = load ptr, ptr %sizes.due.at
  %same.dtype = icmp eq ptr %dtype, %dtype.due
  %same.rank = icmp eq i64 %rank, %rank.due
  %orderly = and i32 %flags, 257 ; NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
  %is.orderly = icmp eq i32 %orderly, 257
  %same.kind = and i1 %same.dtype, %same.rank
  %fits = and i1 %same.kind, %is.orderly
  br i1 %fits, label %axis, label %no

axis:
  %k = phi i64 [ 0, %array ], [ %k.next, %compare ]
  %over = icmp eq i64 %k, %rank
  br i1 %over, label %yes, label %compare

compare:
  %size.at = getelementptr i64, ptr %sizes, i64 %k
  %size.due.at = getelementptr i64, ptr %sizes.due, i64 %k
  %size = load i64, ptr %size.at
  %size.due = load i64, ptr %size.due.at
  %k.next = add i64 %k, 1
  %same.size = icmp eq i64 %size, %size.due
  br i1 %same.size, label %axis, label %no

yes:
  ret i1 true

no:
  ret i1 false
}

; Returns a new array for a result of this type; null with a Python exception on failure.
define private ptr @new_result(ptr %type, ptr %state) {
entry:
  %make.at = getelementptr %Type, ptr %type, i64 0, i32 3
  %make = load ptr, ptr %make.at
  %by.numpy = icmp eq ptr %make, null
  br i1 %by.numpy, label %plain, label %made

made:
  %call.at = getelementptr %State, ptr %state, i64 0, i32 17
  %call = load ptr, ptr %call.at
  %recycled = call ptr %call(ptr %make, ptr null)
  ret ptr %recycled

plain:
  %own.at = getelementptr %State, ptr %state, i64 0, i32 10
  %new.at = getelementptr %State, ptr %state, i64 0, i32 14
  %hold.at = getelementptr %State, ptr %state, i64 0, i32 20
  %rank.at = getelementptr %Type, ptr %type, i64 0, i32 1
  %sizes.at = getelementptr %Type, ptr %type, i64 0, i32 2
  %own = load ptr, ptr %own.at
  %new = load ptr, ptr %new.at
  %hold = load ptr, ptr %hold.at
  %dtype = load ptr, ptr %type
  %rank.wide = load i64, ptr %rank.at
  %rank = trunc i64 %rank.wide to i32
  %sizes = load ptr, ptr %sizes.at
  call void %hold(ptr %dtype) ; the array steals one reference
  %result = call ptr %new(ptr %own, ptr %dtype, i32 %rank, ptr %sizes, ptr null, ptr null, i32 0, ptr null)
  ret ptr %result
}

; Returns the results of a call in a list, None if it cannot handle the call, or null with a Python exception.
define ptr @dlc_call_from_python(ptr %self, ptr %arguments, i64 %count) {
entry:
  %head.at = getelementptr %Array, ptr %self, i64 0, i32 2
  %head = load ptr, ptr %head.at
  %inputs.at = getelementptr %State, ptr %head, i64 0, i32 1
  %outputs.at = getelementptr %State, ptr %head, i64 0, i32 2
  %types.at = getelementptr %State, ptr %head, i64 0, i32 3
  %pool.at.at = getelementptr %State, ptr %head, i64 0, i32 8
  %release.at = getelementptr %State, ptr %head, i64 0, i32 21
  %inputs = load i64, ptr %inputs.at
  %outputs = load i64, ptr %outputs.at
  %types = load ptr, ptr %types.at
  %pool.at = load ptr, ptr %pool.at.at
  %release = load ptr, ptr %release.at
  %same.count = icmp eq i64 %count, %inputs
  br i1 %same.count, label %next.input, label %declined

next.input:
  %i = phi i64 [ 0, %entry ], [ %i.next, %input ]
  %all.fit = icmp eq i64 %i, %inputs
  br i1 %all.fit, label %enter, label %input

input:
  %argument.at = getelementptr ptr, ptr %arguments, i64 %i
  %type.at = getelementptr %Type, ptr %types, i64 %i
  %argument = load ptr, ptr %argument.at
  %fits = call i1 @is_array_of(ptr %argument, ptr %type.at, ptr %head)
  %i.next = add i64 %i, 1
  br i1 %fits, label %next.input, label %declined

enter:
  %state = phi ptr [ %head, %next.input ], [ %other, %occupied ]
  %entering = cmpxchg ptr %state, i64 0, i64 1 acquire monotonic
  %entered = extractvalue { i64, i1 } %entering, 1
  br i1 %entered, label %begin, label %occupied

occupied:
  %other.at = getelementptr %State, ptr %state, i64 0, i32 22
  %other = load atomic ptr, ptr %other.at acquire, align 8
  %no.other = icmp eq ptr %other, null
  br i1 %no.other, label %busy, label %enter

busy:
  %busy.at = getelementptr %State, ptr %head, i64 0, i32 23
  store atomic i64 1, ptr %busy.at monotonic, align 8
  br label %declined

begin:
  %first.at = getelementptr %State, ptr %state, i64 0, i32 7
  %first = load ptr, ptr %first.at
  %pool.number = load i64, ptr %pool.at
  %has.pool = icmp ne i64 %pool.number, -1
  br i1 %has.pool, label %next.address, label %leave.declined

next.address:
  %j = phi i64 [ 0, %begin ], [ %j.next, %address ]
  %all.placed = icmp eq i64 %j, %inputs
  br i1 %all.placed, label %list, label %address

address:
  %array.at = getelementptr ptr, ptr %arguments, i64 %j
  %array = load ptr, ptr %array.at
  %data.at = getelementptr %Array, ptr %array, i64 0, i32 2
  %data = load ptr, ptr %data.at
  %slot.at = getelementptr ptr, ptr %first, i64 %j
  store ptr %data, ptr %slot.at
  %j.next = add i64 %j, 1
  br label %next.address

list:
  %new.list.at = getelementptr %State, ptr %state, i64 0, i32 15
  %new.list = load ptr, ptr %new.list.at
  %results = call ptr %new.list(i64 %outputs)
  %no.list = icmp eq ptr %results, null
  br i1 %no.list, label %leave.failed, label %next.result

next.result:
  %k = phi i64 [ 0, %list ], [ %k.next, %made ]
  %all.made = icmp eq i64 %k, %outputs
  br i1 %all.made, label %run, label %result

result:
  %type.index = add i64 %inputs, %k
  %result.type.at = getelementptr %Type, ptr %types, i64 %type.index
  %new = call ptr @new_result(ptr %result.type.at, ptr %state)
  %no.result = icmp eq ptr %new, null
  br i1 %no.result, label %discard, label %made

made:
  %set.at = getelementptr %State, ptr %state, i64 0, i32 16
  %set = load ptr, ptr %set.at
  %set.status = call i32 %set(ptr %results, i64 %k, ptr %new)
  %new.data.at = getelementptr %Array, ptr %new, i64 0, i32 2
  %new.data = load ptr, ptr %new.data.at
  %result.slot.at = getelementptr ptr, ptr %first, i64 %type.index
  store ptr %new.data, ptr %result.slot.at
  %k.next = add i64 %k, 1
  br label %next.result

run:
  %records.at = getelementptr %State, ptr %state, i64 0, i32 4
  %limit.at = getelementptr %State, ptr %state, i64 0, i32 5
  %slots.at = getelementptr %State, ptr %state, i64 0, i32 6
  %unlock.at = getelementptr %State, ptr %state, i64 0, i32 18
  %lock.at = getelementptr %State, ptr %state, i64 0, i32 19
  %records = load ptr, ptr %records.at
  %limit = load i64, ptr %limit.at
  %slots = load ptr, ptr %slots.at
  %unlock = load ptr, ptr %unlock.at
  %lock = load ptr, ptr %lock.at
  %pool = inttoptr i64 %pool.number to ptr
  %thread = call ptr %unlock()
  %left = call i64 @dlc_execute(ptr %records, i64 %limit, ptr %slots, ptr %pool)
  call void %lock(ptr %thread)
  %complete = icmp eq i64 %left, 0
  br i1 %complete, label %leave, label %rest

rest:
  %rest.callable.at = getelementptr %State, ptr %state, i64 0, i32 12
  %left.at.at = getelementptr %State, ptr %state, i64 0, i32 13
  %call.at = getelementptr %State, ptr %state, i64 0, i32 17
  %rest.callable = load ptr, ptr %rest.callable.at
  %left.at = load ptr, ptr %left.at.at
  %call = load ptr, ptr %call.at
  store i64 %left, ptr %left.at
  %answer = call ptr %call(ptr %rest.callable, ptr null)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %discard, label %finished

finished:
  call void %release(ptr %answer)
  br label %leave

discard:
  call void %release(ptr %results)
  br label %leave.failed

leave.failed:
  store atomic i64 0, ptr %state release, align 8
  ret ptr null

leave:
  store atomic i64 0, ptr %state release, align 8
  ret ptr %results

leave.declined:
  store atomic i64 0, ptr %state release, align 8
  br label %declined

declined:
  %none.at = getelementptr %State, ptr %head, i64 0, i32 11
  %hold.at = getelementptr %State, ptr %head, i64 0, i32 20
  %none = load ptr, ptr %none.at
  %hold = load ptr, ptr %hold.at
  call void %hold(ptr %none)
  ret ptr %none
}
