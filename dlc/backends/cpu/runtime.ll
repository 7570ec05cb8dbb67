; The runtime of compiled programs: interprets bytecode (runtime/cpu/record_table.py) and runs launches on a thread pool.
;
; The object compiled from this text has no undefined symbols, so that it is loaded like a kernel: the two libc functions that it
; needs are passed as pointers when a pool is initialized.
;
; A record is one bytecode instruction. Structures, in memory order:
;
;   launch    {i64 task, i64 slot, i64 offset, i64 n} followed by n arguments {i64 slot, i64 offset}
;             `task` is the offset of the task's code from the record: bytecode is position-independent and read-only.
;             Runs task(arguments, 0 … tasks - 1) in any order and in parallel. The number of tasks is slots[slot] + offset,
;             computed like an argument. A negative value is minus the number of tasks: too little work to use other threads.
;   others    begin with an opcode from 0 to 7; `distance` is in 64-bit words from the start of the record
;     1  {i64 slot, i64 from, i64 offset}      slots[slot] = slots[from] + offset
;     2  {i64 slot, i64 distance}              slots[slot] -= 1; jump unless it is 0 now
;     3  {i64 slot, i64 offset, i64 distance}  jump if the byte at slots[slot] + offset is 0
;     5  {i64 slot, i64 from}                  slots[slot] += slots[from]
;     4  {i64 distance}                        jump
;     6  {i64 n, i64 threads, i64 distance, n distances}   run n sections of records, each of which ends with a stop, and jump.
;        Sections are independent: they run concurrently, each on one thread, unless the pool has more than `threads` threads
;     7  {i64 slot, i64 offset, i64 code, i64 slot, i64 offset, i64 slot, i64 offset}   call a function of MPI, which the
;        %Collective at slots[slot] + offset describes, with the addresses of an operand and a result. Stop with `code` if
;        slots[slot] or the function is null, or if the function fails: Python runs the collective or reports the error
;     0  {i64 code}                            stop: return this code; 0: the program ended; negative: Python continues
;   slots     the registers of the interpreter: addresses and sizes; the program defines their meaning
;   pool      see %Pool; all zero before dlc_pool_init
;
; Note [Claiming tasks]. The tasks of a launch, called a generation, are divided into contiguous shares, one per thread, at most 16.
; A thread claims blocks of tasks from the front of its own share, then from the back of other shares. Consecutive kernels mostly
; divide the same rows, so that a thread reads rows that it wrote: a line that another core has written can cost 40 ns.
;
; The word of a share contains the last generation with a claim, and the claimed blocks. If this generation is older than the
; current one, all blocks are unclaimed: a fork does not write to shares, and the word of a share stays in its owner's cache. A
; thread claims with one compare-and-swap, after it has read the task description. The swap succeeds only if tasks of the thread's
; generation were unclaimed. The caller writes the next description after all tasks have completed, so that the thread has read the
; right one. This argument requires that the share has tasks in the thread's generation, so the number of tasks is tagged with it.
;
; Note [Generations]. A share may be unused for long, so that its generation must not wrap: 48 bits suffice for eight years at a
; launch per microsecond. Threads sleep on the low half of the generation, which is also the tag of the number of tasks.
;
; Note [Joining]. The caller waits until all tasks are done, not until all threads have arrived: a thread that the system
; has not scheduled delays nobody.
;
; Note [Sharing a processor]. A scheduler may place a woken thread on the caller's processor and leave it there, so that the
; two alternate. The caller publishes its processor; a thread that runs on it removes that processor from its own
; affinity mask. The caller is never pinned.

; Everything that a fork writes shares a cache line with the generation: a thread receives it in one transfer. Fields are 128
; bytes apart because processors fetch cache lines in pairs.
%Pool = type {
  i64,         ;  0 generation: the number of launches so far
  ptr,         ;  1 task
  ptr,         ;  2 its arguments
  i64,         ;  3 low half of the generation << 32 | tasks of the generation
  i32,         ;  4 the caller's processor
  [11 x i64],
  i32,         ;  6 completed tasks
  i32,         ;  7 whether the caller sleeps until all are completed
  [15 x i64],
  i32,         ;  9 whether a caller uses the pool
  i32,         ; 10 sleeping threads
  [15 x i64],
  ptr,         ; 12 libc's syscall
  ptr,         ; 13 libc's sched_getcpu
  i64,         ; 14 threads, including the caller's
  [128 x i8],  ; 15 affinity mask of the threads, in the format of sched_getaffinity
  ptr,         ; 16 user callback that runs launches, parallel(user, task, arguments, tasks); null: the pool's threads do
  ptr,         ; 17 the callback's `user` argument
  i32,         ; 18 whether the threads should exit
  ptr,         ; 19 another pool with as many threads, for a caller that finds this one in use; null: none
  i32,         ; 20 the maximum number of threads that run tasks, including the caller's; others sleep until it changes
  i32,         ; 21 threads that have started, without the caller's
  [8 x i64],
  [16 x %Share] ; 23 shares of the tasks; thread k starts with share k modulo their number
}

%Share = type {
  i64,         ; 0 generation << 16 | blocks claimed at the back << 8 | blocks claimed at the front
  [15 x i64]
}

; A collective between ranks as a call of MPI (runtime/collectives/native_calls.py). The monitor of the job reads the state.
%Collective = type {
  ptr,         ;  0 the function; null: there is none for this collective
  ptr,         ;  1 the state of the process: {i64 group, i64 label, i64 error}; the group is 0 between collectives
  ptr,         ;  2 the group of ranks: {i64 its number in the state, i64 the number of its collectives so far}
  i64,         ;  3 the label, a number for messages
  i64,         ;  4 which argument is the address of the result; that of the operand is argument 0
  [12 x i64]   ;  5 arguments; a function takes as many of them as it has parameters
}

declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.abs.i64(i64, i1)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare i32 @llvm.vector.reduce.xor.v16i32(<16 x i32>)

; Returns the size of a pool in bytes; it must be aligned to 128 bytes.
define i64 @dlc_pool_bytes() {
  %end = getelementptr %Pool, ptr null, i64 1
  %bytes = ptrtoint ptr %end to i64
  ret i64 %bytes
}

; Initializes a pool in zeroed memory. The caller then starts `threads` - 1 threads at dlc_pool_worker, and may link the pool to
; the last one of a chain.
define void @dlc_pool_init(ptr %pool, i64 %threads, ptr %syscall, ptr %getcpu) {
  %syscall.at = getelementptr %Pool, ptr %pool, i64 0, i32 12
  %getcpu.at = getelementptr %Pool, ptr %pool, i64 0, i32 13
  %threads.at = getelementptr %Pool, ptr %pool, i64 0, i32 14
  %processors = getelementptr %Pool, ptr %pool, i64 0, i32 15
  store ptr %syscall, ptr %syscall.at
  store ptr %getcpu, ptr %getcpu.at
  store i64 %threads, ptr %threads.at
  %limit.at = getelementptr %Pool, ptr %pool, i64 0, i32 20
  %limit = trunc i64 %threads to i32
  store atomic i32 %limit, ptr %limit.at monotonic, align 4
  %getaffinity = call i64 @sched_getaffinity()
  %ignored = call i64 (i64, ...) %syscall(i64 %getaffinity, i64 0, i64 128, ptr %processors)
  ret void
}

; Appends a pool to a chain of pools: calls that find `last` in use try it.
define void @dlc_pool_link(ptr %last, ptr %pool) {
  %sibling.at = getelementptr %Pool, ptr %last, i64 0, i32 19
  store atomic ptr %pool, ptr %sibling.at release, align 8
  ret void
}

; Sets the maximum number of threads that run tasks. Threads above it finish the tasks that they have claimed.
define void @dlc_pool_limit(ptr %pool, i64 %threads) {
  %limit.at = getelementptr %Pool, ptr %pool, i64 0, i32 20
  %syscall.at = getelementptr %Pool, ptr %pool, i64 0, i32 12
  %syscall = load ptr, ptr %syscall.at
  %limit = trunc i64 %threads to i32
  store atomic i32 %limit, ptr %limit.at seq_cst, align 4
  %futex = call i64 @futex()
  %woken = call i64 (i64, ...) %syscall(i64 %futex, ptr %limit.at, i32 129, i32 2147483647) ; FUTEX_WAKE
  ret void
}

; Publishes the next generation, which has this number of tasks; returns it.
define private i64 @publish(ptr %pool, i64 %tasks) {
  %tasks.at = getelementptr %Pool, ptr %pool, i64 0, i32 3
  %old = load atomic i64, ptr %pool monotonic, align 8
  %generation = add i64 %old, 1
  %low.half = shl i64 %generation, 32
  %tagged = or i64 %low.half, %tasks
  store atomic i64 %tagged, ptr %tasks.at monotonic, align 8
  store atomic i64 %generation, ptr %pool seq_cst, align 8
  ret i64 %generation
}

; Stops the threads of an unused pool.
define void @dlc_pool_end(ptr %pool) {
  %ends.at = getelementptr %Pool, ptr %pool, i64 0, i32 18
  %syscall.at = getelementptr %Pool, ptr %pool, i64 0, i32 12
  %syscall = load ptr, ptr %syscall.at
  store atomic i32 1, ptr %ends.at monotonic, align 4
  ; Publish a generation without tasks, which wakes spinning threads and those that are about to sleep.
  %generation = call i64 @publish(ptr %pool, i64 0)
  %futex = call i64 @futex()
  %woken = call i64 (i64, ...) %syscall(i64 %futex, ptr %pool, i32 129, i32 2147483647) ; FUTEX_WAKE
  ; No thread has so large an index: those above the limit end as well.
  call void @dlc_pool_limit(ptr %pool, i64 4294967295)
  ret void
}

; The main function of a pool thread; returns when the pool is stopped.
define ptr @dlc_pool_worker(ptr %pool) {
entry:
  %sleepers.at = getelementptr %Pool, ptr %pool, i64 0, i32 10
  %syscall.at = getelementptr %Pool, ptr %pool, i64 0, i32 12
  %ends.at = getelementptr %Pool, ptr %pool, i64 0, i32 18
  %limit.at = getelementptr %Pool, ptr %pool, i64 0, i32 20
  %started.at = getelementptr %Pool, ptr %pool, i64 0, i32 21
  %syscall = load ptr, ptr %syscall.at
  %before = atomicrmw add ptr %started.at, i32 1 monotonic
  ; The caller's thread has the index 0.
  %index = add i32 %before, 1
  br label %idle

idle:
  ; The last generation whose tasks have all been claimed, as far as this thread knows.
  %last = phi i64 [ 0, %entry ], [ %last, %rest ], [ %last, %spin ], [ %last, %sleep ], [ %generation, %active ]
  %limit = load atomic i32, ptr %limit.at monotonic, align 4
  %excess = icmp uge i32 %index, %limit
  br i1 %excess, label %rest, label %ready

rest:
  %futex.limit = call i64 @futex()
  %limited = call i64 (i64, ...) %syscall(i64 %futex.limit, ptr %limit.at, i32 128, i32 %limit, ptr null) ; FUTEX_WAIT
  br label %idle

ready:
  %generation = load atomic i64, ptr %pool acquire, align 8
  %start = call i64 @ticks()
  %nothing = icmp eq i64 %generation, %last
  br i1 %nothing, label %free, label %active

free:
  %ends = load atomic i32, ptr %ends.at monotonic, align 4
  %over = icmp ne i32 %ends, 0
  br i1 %over, label %end, label %spin

spin:
  call void @pause()
  %observed = load atomic i64, ptr %pool acquire, align 8
  %changed = icmp ne i64 %observed, %generation
  br i1 %changed, label %idle, label %still

still:
  %tired = call i1 @tired(i64 %start)
  br i1 %tired, label %sleep, label %spin

sleep:
  ; Increment the count before the kernel compares the generation: a caller that missed this thread has changed it already.
  %sleepers = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  %seen = trunc i64 %generation to i32
  %futex = call i64 @futex()
  %ignored = call i64 (i64, ...) %syscall(i64 %futex, ptr %pool, i32 128, i32 %seen, ptr null) ; FUTEX_WAIT
  %fewer = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  br label %idle

active:
  call void @leave_callers_processor(ptr %pool)
  call void @work(ptr %pool, i64 %generation, i32 %index)
  br label %idle

end:
  ret ptr null
}

; Returns whether a thread that has been spinning since `start` should sleep.
define private i1 @tired(i64 %start) {
  %now = call i64 @ticks()
  %elapsed = sub i64 %now, %start
  %patience = call i64 @patience()
  %tired = icmp ugt i64 %elapsed, %patience
  ret i1 %tired
}

; Removes the caller's processor from this thread's affinity mask; see note [Sharing a processor].
define private void @leave_callers_processor(ptr %pool) {
entry:
  %mask = alloca [128 x i8], align 16
  %caller.at = getelementptr %Pool, ptr %pool, i64 0, i32 4
  %syscall.at = getelementptr %Pool, ptr %pool, i64 0, i32 12
  %getcpu.at = getelementptr %Pool, ptr %pool, i64 0, i32 13
  %processors = getelementptr %Pool, ptr %pool, i64 0, i32 15
  %getcpu = load ptr, ptr %getcpu.at
  %here = call i32 %getcpu()
  %caller = load atomic i32, ptr %caller.at monotonic, align 4
  %same = icmp eq i32 %here, %caller
  %known = icmp ult i32 %caller, 1024
  %shared = and i1 %same, %known
  br i1 %shared, label %exclude, label %end

exclude:
  %allowed = load i1024, ptr %processors, align 8
  store i1024 %allowed, ptr %mask, align 16
  %byte.index = lshr i32 %caller, 3
  %bit = and i32 %caller, 7
  %narrow = trunc i32 %bit to i8
  %one = shl i8 1, %narrow
  %keep = xor i8 %one, -1
  %byte.at = getelementptr i8, ptr %mask, i32 %byte.index
  %byte = load i8, ptr %byte.at
  %without = and i8 %byte, %keep
  store i8 %without, ptr %byte.at
  %others = load i1024, ptr %mask, align 16
  %none = icmp eq i1024 %others, 0
  br i1 %none, label %end, label %move

move:
  %syscall = load ptr, ptr %syscall.at
  %setaffinity = call i64 @sched_setaffinity()
  %ignored = call i64 (i64, ...) %syscall(i64 %setaffinity, i64 0, i64 128, ptr %mask)
  br label %end

end:
  ret void
}

; Claims and runs tasks of a generation, as the thread with this index, until none is left; see note [Claiming tasks].
define private void @work(ptr %pool, i64 %generation, i32 %thread) {
entry:
  %task.at = getelementptr %Pool, ptr %pool, i64 0, i32 1
  %arguments.at = getelementptr %Pool, ptr %pool, i64 0, i32 2
  %tasks.at = getelementptr %Pool, ptr %pool, i64 0, i32 3
  %done.at = getelementptr %Pool, ptr %pool, i64 0, i32 6
  %asleep.at = getelementptr %Pool, ptr %pool, i64 0, i32 7
  %syscall.at = getelementptr %Pool, ptr %pool, i64 0, i32 12
  %threads.at = getelementptr %Pool, ptr %pool, i64 0, i32 14
  %task = load atomic ptr, ptr %task.at monotonic, align 8
  %arguments = load atomic ptr, ptr %arguments.at monotonic, align 8
  %tagged = load atomic i64, ptr %tasks.at monotonic, align 8
  %threads = load i64, ptr %threads.at
  %tag = lshr i64 %tagged, 32
  %low.half = and i64 %generation, 4294967295
  %outdated = icmp ne i64 %tag, %low.half
  %tasks = and i64 %tagged, 4294967295
  %few = call i64 @llvm.umin.i64(i64 %tasks, i64 %threads)
  %shares = call i64 @llvm.umin.i64(i64 %few, i64 16)
  %none = icmp eq i64 %shares, 0
  %nothing = or i1 %outdated, %none
  br i1 %nothing, label %end, label %begin

begin:
  %index = zext i32 %thread to i64
  %own = urem i64 %index, %shares
  br label %share

share:
  %distance = phi i64 [ 0, %begin ], [ %farther, %next ]
  %share.done = phi i64 [ 0, %begin ], [ %finished, %next ]
  %sum = add i64 %own, %distance
  %number = urem i64 %sum, %shares
  %number.next = add i64 %number, 1
  %scaled.first = mul i64 %tasks, %number
  %scaled.stop = mul i64 %tasks, %number.next
  %share.first = udiv i64 %scaled.first, %shares
  %share.stop = udiv i64 %scaled.stop, %shares
  %size = sub i64 %share.stop, %share.first
  ; At most 128 blocks, so that their number fits into eight bits.
  %whole = lshr i64 %size, 7
  %block = add i64 %whole, 1
  %is.own = icmp eq i64 %distance, 0
  %claim = select i1 %is.own, i64 1, i64 256
  %word.at = getelementptr %Pool, ptr %pool, i64 0, i32 23, i64 %number
  br label %look

look:
  %finished = phi i64 [ %share.done, %share ], [ %more.done, %run ]
  %fresh = load atomic i64, ptr %word.at acquire, align 8
  br label %check

check:
  %word = phi i64 [ %fresh, %look ], [ %found, %take ]
  %word.generation = lshr i64 %word, 16
  %newer = icmp ugt i64 %word.generation, %generation
  br i1 %newer, label %finish, label %divide

divide:
  %claimed = icmp eq i64 %word.generation, %generation
  %unclaimed = shl i64 %generation, 16
  %current = select i1 %claimed, i64 %word, i64 %unclaimed
  %front.blocks = and i64 %current, 255
  %back.shifted = lshr i64 %current, 8
  %back.blocks = and i64 %back.shifted, 255
  %front = mul i64 %front.blocks, %block
  %back = mul i64 %back.blocks, %block
  %left.stop = sub i64 %size, %back
  %empty = icmp sge i64 %front, %left.stop
  br i1 %empty, label %next, label %take

take:
  %raised = add i64 %current, %claim
  %swap = cmpxchg ptr %word.at, i64 %word, i64 %raised acq_rel acquire
  %found = extractvalue { i64, i1 } %swap, 0
  %taken = extractvalue { i64, i1 } %swap, 1
  br i1 %taken, label %run, label %check

run:
  %front.end = add i64 %front, %block
  %back.begin = sub i64 %left.stop, %block
  %front.stop = call i64 @llvm.smin.i64(i64 %front.end, i64 %left.stop)
  %back.first = call i64 @llvm.smax.i64(i64 %back.begin, i64 %front)
  %from = select i1 %is.own, i64 %front, i64 %back.first
  %to = select i1 %is.own, i64 %front.stop, i64 %left.stop
  %first = add i64 %share.first, %from
  %stop = add i64 %share.first, %to
  call void @run_tasks(ptr %task, ptr %arguments, i64 %first, i64 %stop)
  %count = sub i64 %to, %from
  %more.done = add i64 %finished, %count
  br label %look

next:
  %farther = add i64 %distance, 1
  %last = icmp eq i64 %farther, %shares
  br i1 %last, label %finish, label %share

finish:
  ; The arguments may be freed as soon as all tasks are counted: the caller does not wait for this thread.
  %idle = icmp eq i64 %finished, 0
  br i1 %idle, label %end, label %report

report:
  %narrow = trunc i64 %finished to i32
  %before = atomicrmw add ptr %done.at, i32 %narrow seq_cst
  %done = add i32 %before, %narrow
  %all = trunc i64 %tasks to i32
  %complete = icmp eq i32 %done, %all
  br i1 %complete, label %notify, label %end

notify:
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %wanted = icmp ne i32 %asleep, 0
  br i1 %wanted, label %wake, label %end

wake:
  %syscall = load ptr, ptr %syscall.at
  %futex = call i64 @futex()
  %ignored = call i64 (i64, ...) %syscall(i64 %futex, ptr %done.at, i32 129, i32 1) ; FUTEX_WAKE
  br label %end

end:
  ret void
}

; Runs task(arguments, first … stop - 1); the range is not empty.
define private void @run_tasks(ptr %task, ptr %arguments, i64 %first, i64 %stop) {
entry:
  br label %loop

loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
  call void %task(ptr %arguments, i64 %i)
  %next = add i64 %i, 1
  %more = icmp ne i64 %next, %stop
  br i1 %more, label %loop, label %end

end:
  ret void
}

; Runs tasks on the pool, which this thread has acquired; see note [Joining].
define private void @fork_join(ptr %pool, ptr %task, ptr %arguments, i64 %tasks) {
entry:
  %task.at = getelementptr %Pool, ptr %pool, i64 0, i32 1
  %arguments.at = getelementptr %Pool, ptr %pool, i64 0, i32 2
  %caller.at = getelementptr %Pool, ptr %pool, i64 0, i32 4
  %done.at = getelementptr %Pool, ptr %pool, i64 0, i32 6
  %asleep.at = getelementptr %Pool, ptr %pool, i64 0, i32 7
  %sleepers.at = getelementptr %Pool, ptr %pool, i64 0, i32 10
  %syscall.at = getelementptr %Pool, ptr %pool, i64 0, i32 12
  %getcpu.at = getelementptr %Pool, ptr %pool, i64 0, i32 13
  %syscall = load ptr, ptr %syscall.at
  %getcpu = load ptr, ptr %getcpu.at
  %futex = call i64 @futex()
  %caller = call i32 %getcpu()
  %narrow = trunc i64 %tasks to i32
  store atomic ptr %task, ptr %task.at monotonic, align 8
  store atomic ptr %arguments, ptr %arguments.at monotonic, align 8
  store atomic i32 %caller, ptr %caller.at monotonic, align 4
  store atomic i32 0, ptr %done.at monotonic, align 4
  %generation = call i64 @publish(ptr %pool, i64 %tasks)
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %none = icmp eq i32 %sleepers, 0
  br i1 %none, label %help, label %wake

wake:
  %others = sub i32 %narrow, 1
  %useful = call i32 @llvm.umin.i32(i32 %sleepers, i32 %others)
  %woken = call i64 (i64, ...) %syscall(i64 %futex, ptr %pool, i32 129, i32 %useful) ; FUTEX_WAKE
  br label %help

help:
  call void @work(ptr %pool, i64 %generation, i32 0)
  %start = call i64 @ticks()
  br label %join

join:
  %done = load atomic i32, ptr %done.at acquire, align 4
  %all = icmp eq i32 %done, %narrow
  br i1 %all, label %end, label %spin

spin:
  call void @pause()
  %tired = call i1 @tired(i64 %start)
  br i1 %tired, label %sleep, label %join

sleep:
  ; Publish this before `done` is read again: the last thread to finish either sees the flag, or its count is seen here.
  store atomic i32 1, ptr %asleep.at seq_cst, align 4
  br label %wait

wait:
  %so.far = load atomic i32, ptr %done.at seq_cst, align 4
  %over = icmp eq i32 %so.far, %narrow
  br i1 %over, label %awake, label %block

block:
  %ignored = call i64 (i64, ...) %syscall(i64 %futex, ptr %done.at, i32 128, i32 %so.far, ptr null) ; FUTEX_WAIT
  br label %wait

awake:
  store atomic i32 0, ptr %asleep.at monotonic, align 4
  br label %end

end:
  ret void
}

; Runs one launch and returns the address of the next record. If other threads use all pools of the chain, this thread runs all
; tasks.
define private ptr @launch(ptr %record, ptr %slots, ptr %pool) {
entry:
  %counter.at = getelementptr i64, ptr %record, i64 1
  %more.at = getelementptr i64, ptr %record, i64 2
  %n.at = getelementptr i64, ptr %record, i64 3
  %first = getelementptr i64, ptr %record, i64 4
  %task.distance = load i64, ptr %record
  %task = getelementptr i8, ptr %record, i64 %task.distance
  %counter = load i64, ptr %counter.at
  %more = load i64, ptr %more.at
  %n = load i64, ptr %n.at
  %count.at = getelementptr i64, ptr %slots, i64 %counter
  %count = load i64, ptr %count.at
  %signed = add i64 %count, %more
  %small = icmp slt i64 %signed, 0
  %tasks = call i64 @llvm.abs.i64(i64 %signed, i1 false)
  %following = getelementptr { i64, i64 }, ptr %first, i64 %n
  %arguments = alloca ptr, i64 %n
  br label %resolve

resolve:
  %i = phi i64 [ 0, %entry ], [ %i.next, %argument ]
  %resolved = icmp eq i64 %i, %n
  br i1 %resolved, label %choose, label %argument

argument:
  %base.at = getelementptr { i64, i64 }, ptr %first, i64 %i, i32 0
  %offset.at = getelementptr { i64, i64 }, ptr %first, i64 %i, i32 1
  %argument.at = getelementptr ptr, ptr %arguments, i64 %i
  %base.index = load i64, ptr %base.at
  %offset = load i64, ptr %offset.at
  %slot = getelementptr ptr, ptr %slots, i64 %base.index
  %base = load ptr, ptr %slot
  %address = getelementptr i8, ptr %base, i64 %offset
  store ptr %address, ptr %argument.at
  %i.next = add i64 %i, 1
  br label %resolve

choose:
  %few = icmp ult i64 %tasks, 2
  %poolless = icmp eq ptr %pool, null
  %a = or i1 %small, %few
  %alone = or i1 %a, %poolless
  br i1 %alone, label %serial, label %claim

claim:
  %parallel.at = getelementptr %Pool, ptr %pool, i64 0, i32 16
  %stand.in = load ptr, ptr %parallel.at
  %own = icmp eq ptr %stand.in, null
  br i1 %own, label %enter, label %callers

callers:
  %whose.at = getelementptr %Pool, ptr %pool, i64 0, i32 17
  %whose = load ptr, ptr %whose.at
  call void %stand.in(ptr %whose, ptr %task, ptr %arguments, i64 %tasks)
  ret ptr %following

enter:
  %candidate = phi ptr [ %pool, %claim ], [ %sibling, %occupied ]
  %busy.at = getelementptr %Pool, ptr %candidate, i64 0, i32 9
  %claim.pair = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %claimed = extractvalue { i32, i1 } %claim.pair, 1
  br i1 %claimed, label %parallel, label %occupied

occupied:
  %sibling.at = getelementptr %Pool, ptr %candidate, i64 0, i32 19
  %sibling = load atomic ptr, ptr %sibling.at acquire, align 8
  %none = icmp eq ptr %sibling, null
  br i1 %none, label %serial, label %enter

parallel:
  call void @fork_join(ptr %candidate, ptr %task, ptr %arguments, i64 %tasks)
  store atomic i32 0, ptr %busy.at release, align 4
  ret ptr %following

serial:
  %empty = icmp eq i64 %tasks, 0
  br i1 %empty, label %end, label %run

run:
  call void @run_tasks(ptr %task, ptr %arguments, i64 0, i64 %tasks)
  br label %end

end:
  ret ptr %following
}

; The task of a section. Arguments: the record, the slots, and the pool for the launches of the section.
define private void @run_section(ptr %arguments, i64 %section) {
  %slots.at = getelementptr ptr, ptr %arguments, i64 1
  %pool.at = getelementptr ptr, ptr %arguments, i64 2
  %record = load ptr, ptr %arguments
  %slots = load ptr, ptr %slots.at
  %pool = load ptr, ptr %pool.at
  %index = add i64 %section, 4
  %distance.at = getelementptr i64, ptr %record, i64 %index
  %distance = load i64, ptr %distance.at
  %first = getelementptr i64, ptr %record, i64 %distance
  %ended = call i64 @dlc_execute(ptr %first, i64 9223372036854775807, ptr %slots, ptr %pool)
  ret void
}

; Runs the sections of a record: concurrently, or in order, with all threads for each launch.
define private void @run_sections(ptr %record, ptr %slots, ptr %pool) {
entry:
  %arguments = alloca [3 x ptr], align 8
  %slots.at = getelementptr ptr, ptr %arguments, i64 1
  %pool.at = getelementptr ptr, ptr %arguments, i64 2
  store ptr %record, ptr %arguments
  store ptr %slots, ptr %slots.at
  store ptr %pool, ptr %pool.at
  %count.at = getelementptr i64, ptr %record, i64 1
  %max.at = getelementptr i64, ptr %record, i64 2
  %count = load i64, ptr %count.at
  %max = load i64, ptr %max.at
  %poolless = icmp eq ptr %pool, null
  br i1 %poolless, label %sequence, label %callback

callback:
  %parallel.at = getelementptr %Pool, ptr %pool, i64 0, i32 16
  %stand.in = load ptr, ptr %parallel.at
  %own = icmp eq ptr %stand.in, null
  br i1 %own, label %compare, label %callers

callers:
  ; The number of the callback's threads is unknown.
  store ptr null, ptr %pool.at
  %whose.at = getelementptr %Pool, ptr %pool, i64 0, i32 17
  %whose = load ptr, ptr %whose.at
  call void %stand.in(ptr %whose, ptr @run_section, ptr %arguments, i64 %count)
  ret void

compare:
  %threads.at = getelementptr %Pool, ptr %pool, i64 0, i32 14
  %threads = load i64, ptr %threads.at
  %few = icmp ule i64 %threads, %max
  br i1 %few, label %enter, label %sequence

enter:
  %candidate = phi ptr [ %pool, %compare ], [ %sibling, %occupied ]
  %busy.at = getelementptr %Pool, ptr %candidate, i64 0, i32 9
  %claim.pair = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %claimed = extractvalue { i32, i1 } %claim.pair, 1
  br i1 %claimed, label %parallel, label %occupied

occupied:
  %sibling.at = getelementptr %Pool, ptr %candidate, i64 0, i32 19
  %sibling = load atomic ptr, ptr %sibling.at acquire, align 8
  %none = icmp eq ptr %sibling, null
  br i1 %none, label %sequence, label %enter

parallel:
  store ptr null, ptr %pool.at
  call void @fork_join(ptr %candidate, ptr @run_section, ptr %arguments, i64 %count)
  store atomic i32 0, ptr %busy.at release, align 4
  ret void

sequence:
  call void @run_tasks(ptr @run_section, ptr %arguments, i64 0, i64 %count)
  ret void
}

; Runs a collective, and records it in the state of the process; returns whether it completed.
define private i1 @run_collective(ptr %record, ptr %slots) {
entry:
  %table.index.at = getelementptr i64, ptr %record, i64 1
  %table.index = load i64, ptr %table.index.at
  %table.at = getelementptr ptr, ptr %slots, i64 %table.index
  %table = load ptr, ptr %table.at
  %no.table = icmp eq ptr %table, null
  br i1 %no.table, label %python, label %look

look:
  %offset.at = getelementptr i64, ptr %record, i64 2
  %offset = load i64, ptr %offset.at
  %collective = getelementptr i8, ptr %table, i64 %offset
  %function = load ptr, ptr %collective
  %no.function = icmp eq ptr %function, null
  br i1 %no.function, label %python, label %start

start:
  %state.at = getelementptr %Collective, ptr %collective, i64 0, i32 1
  %group.at = getelementptr %Collective, ptr %collective, i64 0, i32 2
  %label.at = getelementptr %Collective, ptr %collective, i64 0, i32 3
  %state = load ptr, ptr %state.at
  %group = load ptr, ptr %group.at
  %label = load i64, ptr %label.at
  %state.label.at = getelementptr i64, ptr %state, i64 1
  %state.error.at = getelementptr i64, ptr %state, i64 2
  %count.at = getelementptr i64, ptr %group, i64 1
  %before = load i64, ptr %count.at
  %count = add i64 %before, 1
  %number = load i64, ptr %group
  store i64 %count, ptr %count.at
  store i64 %label, ptr %state.label.at
  ; The monitor's thread reads the group first.
  store atomic i64 %number, ptr %state release, align 8
  %operand = call i64 @address_in(ptr %record, i64 4, ptr %slots)
  %result = call i64 @address_in(ptr %record, i64 6, ptr %slots)
  %where.at = getelementptr %Collective, ptr %collective, i64 0, i32 4
  %where = load i64, ptr %where.at
  %arguments.at = getelementptr %Collective, ptr %collective, i64 0, i32 5
  %arguments = load [12 x i64], ptr %arguments.at
  %is.1 = icmp eq i64 %where, 1
  %is.3 = icmp eq i64 %where, 3
  %is.5 = icmp eq i64 %where, 5
  %own.1 = extractvalue [12 x i64] %arguments, 1
  %own.3 = extractvalue [12 x i64] %arguments, 3
  %own.5 = extractvalue [12 x i64] %arguments, 5
  %a1 = select i1 %is.1, i64 %result, i64 %own.1
  %a2 = extractvalue [12 x i64] %arguments, 2
  %a3 = select i1 %is.3, i64 %result, i64 %own.3
  %a4 = extractvalue [12 x i64] %arguments, 4
  %a5 = select i1 %is.5, i64 %result, i64 %own.5
  %a6 = extractvalue [12 x i64] %arguments, 6
  %a7 = extractvalue [12 x i64] %arguments, 7
  %a8 = extractvalue [12 x i64] %arguments, 8
  %a9 = extractvalue [12 x i64] %arguments, 9
  %a10 = extractvalue [12 x i64] %arguments, 10
  %a11 = extractvalue [12 x i64] %arguments, 11
  ; A function ignores the arguments for which it has no parameters.
  %error = call i32 %function(i64 %operand, i64 %a1, i64 %a2, i64 %a3, i64 %a4, i64 %a5, i64 %a6, i64 %a7, i64 %a8, i64 %a9, i64 %a10, i64 %a11)
  %error.wide = sext i32 %error to i64
  store i64 %error.wide, ptr %state.error.at
  %completed = icmp eq i32 %error, 0
  br i1 %completed, label %end, label %python

end:
  store atomic i64 0, ptr %state release, align 8
  ret i1 true

python:
  ret i1 false
}

; Returns the address of the buffer reference at a word of a record.
define private i64 @address_in(ptr %record, i64 %word, ptr %slots) {
  %slot.at = getelementptr i64, ptr %record, i64 %word
  %offset.at = getelementptr i64, ptr %slot.at, i64 1
  %slot = load i64, ptr %slot.at
  %offset = load i64, ptr %offset.at
  %base.at = getelementptr i64, ptr %slots, i64 %slot
  %base = load i64, ptr %base.at
  %address = add i64 %base, %offset
  ret i64 %address
}

; A function for a %Collective: stores argument 2, the index of the rank along mesh axes, as the result.
define i32 @dlc_store_index(i64 %operand, ptr %result, i64 %index) {
  store i64 %index, ptr %result
  ret i32 0
}

; A function for a %Collective: completes or tests a nonblocking collective by a function of MPI.
define i32 @dlc_complete(i64 %operand, i64 %result, ptr %function, ptr %request, i64 %first, i64 %second) {
  %error = call i32 %function(ptr %request, i64 %first, i64 %second)
  ret i32 %error
}

; Interprets bytecode from %records on. Returns the code of the stop record that ends execution; or, after %limit launches and
; loop back-edges, the address of the next record. If `pool` is null, this thread runs everything.
define i64 @dlc_execute(ptr %records, i64 %limit, ptr %slots, ptr %pool) {
entry:
  br label %next

next:
  %record = phi ptr [ %records, %entry ], [ %after, %counted ], [ %move.next, %move ], [ %add.next, %add ], [ %unless.next, %unless ]
  %left = phi i64 [ %limit, %entry ], [ %rest, %counted ], [ %left, %move ], [ %left, %add ], [ %left, %unless ]
  %one.at = getelementptr i64, ptr %record, i64 1
  %two.at = getelementptr i64, ptr %record, i64 2
  %three.at = getelementptr i64, ptr %record, i64 3
  %kind = load i64, ptr %record
  %one = load i64, ptr %one.at
  switch i64 %kind, label %run [
    i64 0, label %stop
    i64 1, label %move
    i64 2, label %count
    i64 3, label %unless
    i64 4, label %jump
    i64 5, label %add
    i64 6, label %sections
    i64 7, label %collective
  ]

collective:
  %completed = call i1 @run_collective(ptr %record, ptr %slots)
  %collective.next = getelementptr i64, ptr %record, i64 8
  br i1 %completed, label %counted, label %fall.back

fall.back:
  %fall.back.code = load i64, ptr %three.at
  ret i64 %fall.back.code

sections:
  call void @run_sections(ptr %record, ptr %slots, ptr %pool)
  %section.end = load i64, ptr %three.at
  %sections.next = getelementptr i64, ptr %record, i64 %section.end
  br label %counted

run:
  %launched = call ptr @launch(ptr %record, ptr %slots, ptr %pool)
  br label %counted

move:
  %from = load i64, ptr %two.at
  %offset = load i64, ptr %three.at
  %from.at = getelementptr i64, ptr %slots, i64 %from
  %to.at = getelementptr i64, ptr %slots, i64 %one
  %held = load i64, ptr %from.at
  %moved = add i64 %held, %offset
  store i64 %moved, ptr %to.at
  %move.next = getelementptr i64, ptr %record, i64 4
  br label %next

add:
  %summand = load i64, ptr %two.at
  %summand.at = getelementptr i64, ptr %slots, i64 %summand
  %sum.at = getelementptr i64, ptr %slots, i64 %one
  %more = load i64, ptr %summand.at
  %so.far = load i64, ptr %sum.at
  %sum = add i64 %so.far, %more
  store i64 %sum, ptr %sum.at
  %add.next = getelementptr i64, ptr %record, i64 3
  br label %next

count:
  %count.distance = load i64, ptr %two.at
  %counter.at = getelementptr i64, ptr %slots, i64 %one
  %before = load i64, ptr %counter.at
  %fewer = sub i64 %before, 1
  store i64 %fewer, ptr %counter.at
  %done = icmp eq i64 %fewer, 0
  %count.by = select i1 %done, i64 3, i64 %count.distance
  %count.next = getelementptr i64, ptr %record, i64 %count.by
  br label %counted

unless:
  %unless.offset = load i64, ptr %two.at
  %unless.distance = load i64, ptr %three.at
  %condition.slot.at = getelementptr i64, ptr %slots, i64 %one
  %condition.address = load ptr, ptr %condition.slot.at
  %byte.at = getelementptr i8, ptr %condition.address, i64 %unless.offset
  %byte = load i8, ptr %byte.at
  %no = icmp eq i8 %byte, 0
  %unless.by = select i1 %no, i64 %unless.distance, i64 4
  %unless.next = getelementptr i64, ptr %record, i64 %unless.by
  br label %next

jump:
  %jump.next = getelementptr i64, ptr %record, i64 %one
  br label %counted

counted:
  %after = phi ptr [ %sections.next, %sections ], [ %collective.next, %collective ], [ %launched, %run ], [ %count.next, %count ], [ %jump.next, %jump ]
  %rest = sub i64 %left, 1
  %over = icmp eq i64 %rest, 0
  br i1 %over, label %pause, label %next

pause:
  %address = ptrtoint ptr %after to i64
  ret i64 %address

stop:
  ret i64 %one
}

; The task of a copy. Arguments: target, source, and the number of bytes as an address. Task i copies 64 KiB at 64 KiB · i.
; llvm.memcpy is not used: it becomes a call of memcpy, an undefined symbol.
define void @dlc_copy(ptr %arguments, i64 %task) {
entry:
  %source.at = getelementptr ptr, ptr %arguments, i64 1
  %bytes.at = getelementptr ptr, ptr %arguments, i64 2
  %target = load ptr, ptr %arguments
  %source = load ptr, ptr %source.at
  %bytes = load i64, ptr %bytes.at
  %start = shl i64 %task, 16
  %full = add i64 %start, 65536
  %last = icmp ult i64 %bytes, %full
  %stop = select i1 %last, i64 %bytes, i64 %full
  br label %check

check:
  %i = phi i64 [ %start, %entry ], [ %block.end, %block ], [ %byte.end, %byte ]
  %block.end = add i64 %i, 64
  %byte.end = add i64 %i, 1
  %from = getelementptr i8, ptr %source, i64 %i
  %to = getelementptr i8, ptr %target, i64 %i
  %whole = icmp ule i64 %block.end, %stop
  br i1 %whole, label %block, label %rest

block:
  %elements = load <64 x i8>, ptr %from, align 1
  store <64 x i8> %elements, ptr %to, align 1
  br label %check

rest:
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %byte, label %end

byte:
  %element = load i8, ptr %from
  store i8 %element, ptr %to
  br label %check

end:
  ret void
}

; Returns the CRC-32C (Castagnoli) of memory, continuing from %start, the checksum of the preceding bytes (0 if there are none).
;
; The instruction has a latency of three cycles, so that three blocks of 4096 bytes are processed at once; the next ones are
; prefetched (Zen 5: 30 instead of 10 GB/s). The CRC is linear: the state after a block is that of the previous one, advanced by
; 4096 zero bytes, plus that of the block alone.
define i32 @dlc_crc32c(ptr %memory, i64 %bytes, i32 %start) {
entry:
  %inverted = xor i32 %start, -1
  %initial = zext i32 %inverted to i64
  br label %blocks

blocks:
  %first = phi i64 [ 0, %entry ], [ %blocks.end, %join ]
  %before = phi i64 [ %initial, %entry ], [ %joined, %join ]
  %second = add i64 %first, 4096
  %third = add i64 %first, 8192
  %blocks.end = add i64 %first, 12288
  %enough = icmp ule i64 %blocks.end, %bytes
  br i1 %enough, label %words, label %check

words:
  %k = phi i64 [ 0, %blocks ], [ %k.next, %words ]
  %a = phi i64 [ %before, %blocks ], [ %a.next, %words ]
  %b = phi i64 [ 0, %blocks ], [ %b.next, %words ]
  %c = phi i64 [ 0, %blocks ], [ %c.next, %words ]
  %a.index = add i64 %first, %k
  %b.index = add i64 %second, %k
  %c.index = add i64 %third, %k
  %a.at = getelementptr i8, ptr %memory, i64 %a.index
  %b.at = getelementptr i8, ptr %memory, i64 %b.index
  %c.at = getelementptr i8, ptr %memory, i64 %c.index
  %a.following = getelementptr i8, ptr %a.at, i64 12288
  %b.following = getelementptr i8, ptr %b.at, i64 12288
  %c.following = getelementptr i8, ptr %c.at, i64 12288
  call void @llvm.prefetch.p0(ptr %a.following, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %b.following, i32 0, i32 3, i32 1)
  call void @llvm.prefetch.p0(ptr %c.following, i32 0, i32 3, i32 1)
  %a.word = load i64, ptr %a.at, align 1
  %b.word = load i64, ptr %b.at, align 1
  %c.word = load i64, ptr %c.at, align 1
  %a.next = call i64 @crc32c.word(i64 %a, i64 %a.word)
  %b.next = call i64 @crc32c.word(i64 %b, i64 %b.word)
  %c.next = call i64 @crc32c.word(i64 %c, i64 %c.word)
  %k.next = add i64 %k, 8
  %block.done = icmp eq i64 %k.next, 4096
  br i1 %block.done, label %join, label %words

join:
  %a.advanced = call i64 @crc32c.advance(i64 %a.next)
  %a.b = xor i64 %a.advanced, %b.next
  %a.b.advanced = call i64 @crc32c.advance(i64 %a.b)
  %joined = xor i64 %a.b.advanced, %c.next
  br label %blocks

check:
  %i = phi i64 [ %first, %blocks ], [ %word.end, %word ], [ %byte.end, %byte ]
  %sum = phi i64 [ %before, %blocks ], [ %by.word, %word ], [ %by.byte, %byte ]
  %word.end = add i64 %i, 8
  %byte.end = add i64 %i, 1
  %at = getelementptr i8, ptr %memory, i64 %i
  %whole = icmp ule i64 %word.end, %bytes
  br i1 %whole, label %word, label %rest

word:
  %eight = load i64, ptr %at, align 1
  %by.word = call i64 @crc32c.word(i64 %sum, i64 %eight)
  br label %check

rest:
  %more = icmp ult i64 %i, %bytes
  br i1 %more, label %byte, label %end

byte:
  %one = load i8, ptr %at
  %by.byte = call i64 @crc32c.byte(i64 %sum, i8 %one)
  br label %check

end:
  %last = trunc i64 %sum to i32
  %result = xor i32 %last, -1
  ret i32 %result
}

; Returns the CRC-32C state after 4096 more zero bytes. The CRC is linear: the result is the XOR of one constant per set bit of %sum.
define private i64 @crc32c.advance(i64 %sum) {
  %short = trunc i64 %sum to i32
  %one = insertelement <16 x i32> poison, i32 %short, i64 0
  %all = shufflevector <16 x i32> %one, <16 x i32> poison, <16 x i32> zeroinitializer
  %low.bits = and <16 x i32> %all, <
    i32 1, i32 2, i32 4, i32 8, i32 16, i32 32, i32 64, i32 128,
    i32 256, i32 512, i32 1024, i32 2048, i32 4096, i32 8192, i32 16384, i32 32768>
  %high.bits = and <16 x i32> %all, <
    i32 65536, i32 131072, i32 262144, i32 524288, i32 1048576, i32 2097152, i32 4194304, i32 8388608,
    i32 16777216, i32 33554432, i32 67108864, i32 134217728, i32 268435456, i32 536870912, i32 1073741824, i32 -2147483648>
  %low.set = icmp ne <16 x i32> %low.bits, zeroinitializer
  %high.set = icmp ne <16 x i32> %high.bits, zeroinitializer
  %low = select <16 x i1> %low.set, <16 x i32> <
    i32 -1029327266, i32 -2136532403, i32 77742699, i32 155485398, i32 310970796, i32 621941592, i32 1243883184, i32 -1807200928,
    i32 763161649, i32 1526323298, i32 -1242320700, i32 1846220665, i32 -602525966, i32 -1111479531, i32 2121015515, i32 -52936266>,
    <16 x i32> zeroinitializer
  %high = select <16 x i1> %high.set, <16 x i32> <
    i32 -61016675, i32 -44720693, i32 -12104345, i32 -77403073, i32 -215372145, i32 -474010641, i32 -1030610641, i32 -2134362961,
    i32 75243439, i32 150486878, i32 300973756, i32 601947512, i32 1203895024, i32 -1887177248, i32 451648817, i32 903297634>,
    <16 x i32> zeroinitializer
  %states = xor <16 x i32> %low, %high
  %advanced = call i32 @llvm.vector.reduce.xor.v16i32(<16 x i32> %states)
  %wide = zext i32 %advanced to i64
  ret i64 %wide
}
