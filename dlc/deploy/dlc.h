/* dlc.h: runs models that dlc compiled, in C or C++, without Python. One file, no library; Linux on
 * x86-64, AArch64 or RISC-V.
 *
 * In one source file, before anything else is included (compile with -pthread):
 *
 *     #define DLC_IMPLEMENTATION
 *     #include "dlc.h"
 *
 * and in others just #include "dlc.h". Then:
 *
 *     dlc_model *model;
 *     dlc_context *context;
 *     if (dlc_open("resnet50.dlc", NULL, &model)) ...        // what compile-model -o resnet50.dlc wrote
 *     if (dlc_context_create(model, NULL, &context)) ...     // memory for one call at a time
 *     const void *inputs[] = {image};                        // in the model's order, row-major, aligned to their elements
 *     void *outputs[] = {scores};
 *     if (dlc_run(context, inputs, outputs)) puts(dlc_message(context));
 *     dlc_context_destroy(context);
 *     dlc_close(model);
 *
 * A model is immutable: any number of threads may use it, each with a context of its own. dlc_run allocates no memory and uses
 * the current rounding mode; its arrays must not overlap, and its thread needs an 8 MiB stack, the default on Linux.
 * Models with the same number of threads share one thread pool, which is destroyed with the last of them. A call that finds
 * the pool in use runs on its own thread only; results do not depend on that. After a fork, the child process runs models on
 * the calling thread only until it opens a model itself. Files are mapped, so that processes share the weights; to replace a
 * file, rename another over it. A file contains machine code: open only what you would load as a library. The checks (sizes,
 * offsets, checksums) detect corruption, not malice.
 *
 * A model that is specialized for values or shapes is one program for each specialization in its file: `selectors` of
 * dlc_options choose which to open. Outputs of data-dependent size are stored in the memory of the context, which may grow in
 * dlc_run. A model that was compiled for a mesh of processes calls the functions of dlc_collectives.
 *
 * Not supported: models that are specialized for each set of data-dependent sizes, models with strings, sequences or
 * optionals as inputs or outputs (DLC_NO_PROGRAM; the message says which), and models for an OpenCL device (DLC_PROCESSOR);
 * run them from Python.
 */
#ifndef DLC_H
#define DLC_H

#if defined(DLC_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* Linux extensions of C and POSIX */
#endif
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Return codes; dlc_error describes them. */
enum {
    DLC_OK = 0,
    DLC_SIZE = 1,             /* the model does not support a size of the call */
    DLC_NO_MEMORY = 2,        /* out of memory, or the memory of the call is too small */
    DLC_DAMAGED = 3,          /* the file is corrupted */
    DLC_NOT_A_MODEL = 4,      /* the file was not written by dlc */
    DLC_VERSION = 5,          /* the file was written by another version of dlc */
    DLC_NO_PROGRAM = 6, /* none of the model's programs matches the selectors */
    DLC_PROCESSOR = 7,        /* a processor feature is missing, or the model is for another kind of device */
    DLC_ARGUMENT = 8,         /* an argument is missing or misaligned */
    DLC_SYSTEM = 9,           /* the operating system refused a file, memory or a thread */
    DLC_FAILED = 10,          /* the model executed a failure that its author specified */
    DLC_CANCELLED = 11,       /* the submitted call was cancelled */
    DLC_DEADLINE = 12,        /* the submitted call did not start before its deadline */
    DLC_BUSY = 13             /* a submitted call has not ended */
};

/* Element types, with the values of ONNX. A bool is a byte, 0 or 1; elements of less than 8 bits take one byte each. */
enum {
    DLC_FLOAT32 = 1, DLC_UINT8 = 2, DLC_INT8 = 3, DLC_UINT16 = 4, DLC_INT16 = 5, DLC_INT32 = 6, DLC_INT64 = 7, DLC_BOOL = 9,
    DLC_FLOAT16 = 10, DLC_FLOAT64 = 11, DLC_UINT32 = 12, DLC_UINT64 = 13, DLC_COMPLEX64 = 14, DLC_COMPLEX128 = 15,
    DLC_BFLOAT16 = 16, DLC_FLOAT8E4M3FN = 17, DLC_FLOAT8E4M3FNUZ = 18, DLC_FLOAT8E5M2 = 19, DLC_FLOAT8E5M2FNUZ = 20,
    DLC_UINT4 = 21, DLC_INT4 = 22, DLC_FLOAT4E2M1 = 23, DLC_FLOAT8E8M0 = 24, DLC_UINT2 = 25, DLC_INT2 = 26
};

/* The interface of a model that is linked into an application; it does not need the implementation in this file. */
#ifndef DLC_CALL
#define DLC_CALL
/* Selects one of several programs of a model: by the value of an input (which the programs then do not have as an input), or by
   the shape of an input. */
typedef struct dlc_selector {
    const char *name;
    const void *value;        /* or NULL */
    size_t bytes;             /* size of the value */
    const int64_t *shape;     /* or NULL */
    int32_t rank;
} dlc_selector;

typedef struct dlc_call {
    const void *const *inputs;
    void **outputs;           /* those of data-dependent size are set: they are in `memory` */
    const int64_t *sizes;     /* symbolic sizes in the model's order; NULL if there are none */
    void *memory;             /* aligned to 64; NULL: compute only `required_bytes` and `shapes` */
    int64_t bytes;            /* size of `memory`; negative: return only `program` */
    int64_t *shapes;          /* result: the shapes of inputs and outputs, consecutively; NULL: not returned */
    void *pool;               /* of dlc.h; NULL: the calling thread only */
    void (*parallel)(void *user, void (*task)(void *argument, int64_t), void *argument, int64_t tasks); /* or NULL */
    void *user;
    int64_t required_bytes;   /* result: size of `memory`; may grow when data-dependent sizes become known */
    int64_t failed_operation; /* result: the size operation that failed */
    const void *program;      /* result: address of the program */
    const dlc_selector *selectors; /* select one of several programs */
    int64_t selector_count;
    const char *unmatched_input; /* result: the name of an input that no program matches */
    const void *collectives;  /* of dlc.h; NULL: none */
} dlc_call;
#endif

typedef struct dlc_model dlc_model;
typedef struct dlc_context dlc_context;

/* Runs task(argument, 0), ..., task(argument, tasks - 1), in any order and concurrently, and returns when all are done. */
typedef void dlc_parallel(void *user, void (*task)(void *argument, int64_t), void *argument, int64_t tasks);

/* Collectives between the processes (ranks) of a mesh, for models that were compiled for one. Each rank opens the model with its
   own `rank` and runs it on its shards; all ranks make the same calls in the same order. A function moves data between the ranks
   of a group, which all call it; the result does not overlap the operand. It returns 0, or another value: then dlc_run returns
   DLC_FAILED, and its message has the label. Ranks are numbered row-major over the axes of the mesh, the last one innermost. */
typedef struct {
    const int32_t *ranks;     /* the ranks of the group, by position */
    int32_t count, position;  /* the number of ranks, and the position of this rank */
    const char *label;        /* the op, its source line and its array, for messages */
} dlc_group;

enum { DLC_SUM = 0, DLC_MAX = 1, DLC_MIN = 2 }; /* DLC_MAX and DLC_MIN propagate NaN */

typedef struct {
    int32_t rank, rank_count;
    void *user;               /* passed to these functions */
    /* result[i] = operand[i] of all ranks combined, for `count` elements of a type */
    int (*all_reduce)(void *user, const dlc_group *, const void *operand, void *result, int64_t count, int32_t dtype, int32_t combine);
    /* The same, of the part of the operand at the position of this rank: `count` elements of the result */
    int (*reduce_scatter)(void *user, const dlc_group *, const void *operand, void *result, int64_t count, int32_t dtype, int32_t combine);
    /* The operands of all ranks, `bytes` each, by position */
    int (*all_gather)(void *user, const dlc_group *, const void *operand, void *result, int64_t bytes);
    /* Part p of the operand is sent to position p; the received parts, `bytes` each, by the positions of their senders */
    int (*all_to_all)(void *user, const dlc_group *, const void *operand, void *result, int64_t bytes);
    /* The operand is sent to the position `target`, and received from `source`; -1: none */
    int (*permute)(void *user, const dlc_group *, const void *operand, void *result, int64_t bytes, int32_t target, int32_t source);
} dlc_collectives;

typedef struct {
    int32_t threads;          /* including the calling thread; 0: all usable processors within the cgroup quota */
    int32_t verify;           /* not 0: verify the checksums of the weights, which reads all of them */
    dlc_parallel *parallel;   /* custom thread pool; NULL: that of dlc */
    void *(*allocate)(void *user, size_t bytes, size_t alignment); /* both or neither */
    void (*release)(void *user, void *memory);
    void *user;               /* passed to these three callbacks */
    char *message;            /* buffer for the error message of dlc_open; or NULL */
    size_t message_bytes;
    const dlc_selector *selectors; /* select one of several programs */
    int32_t selector_count;
    int32_t streams;          /* the number of submitted calls that run at once, each with `threads` threads; 0: one */
    int32_t cpu_count;        /* the number of `cpus`, and by default of threads */
    const int32_t *cpus;      /* the processors on which the threads and submitted calls run; NULL: those of the process */
    int64_t memory_limit;     /* bytes of a context; a call that needs more returns DLC_NO_MEMORY before it starts; 0: none */
    const dlc_collectives *collectives; /* for a model on a mesh; must outlive the model */
    int32_t huge_pages;       /* not 0: dlc_open copies the file to huge pages, where the system has them, instead of mapping it */
} dlc_options;

typedef struct {
    const char *name;
    int32_t dtype, rank;
    const int64_t *shape;     /* -1 for sizes that are not known yet */
    int64_t bytes;            /* size of all elements; -1 if not known */
    int32_t element_bytes;
    int32_t optional;         /* input: has a default, so that it may be NULL */
    int32_t aliased_input;    /* output: the input whose memory it overwrites; else -1 */
    int32_t data_dependent;   /* output: has a data-dependent size. dlc_run sets outputs[i] to its address in the memory of the
                                 context, valid until the next dlc_run or dlc_resize; dlc_context_info returns its shape */
    const char *sharding;     /* on a mesh: the mesh axes over which each axis is split, such as ('data', None); the shape is that of
                                 a shard. Empty for an array that all ranks have; NULL without a mesh */
} dlc_tensor_info;

typedef struct {
    const char *name;
    int64_t low, high;        /* inclusive bounds */
} dlc_size_info;

/* All functions that return a code return DLC_ARGUMENT for an argument that must not be NULL. */

/* Opens a file; or the contents of a file in memory, aligned to 64 bytes, which must outlive the model; or a model that is
   linked into the application (dlc_model_NAME of NAME.h). `options` may be NULL; its strings need not outlive the call. */
int dlc_open(const char *path, const dlc_options *options, dlc_model **model);
int dlc_open_memory(const void *memory, size_t bytes, const dlc_options *options, dlc_model **model);
int dlc_open_linked(int64_t (*linked)(dlc_call *), const dlc_options *options, dlc_model **model);
void dlc_close(dlc_model *model); /* after its contexts are destroyed; NULL is allowed */

/* Returns the number of inputs (outputs = 0) or outputs (outputs = 1), describes one, and finds one by name (-1: none). */
int32_t dlc_count(const dlc_model *model, int outputs);
int dlc_info(const dlc_model *model, int outputs, int32_t i, dlc_tensor_info *info);
int32_t dlc_find(const dlc_model *model, int outputs, const char *name);
/* Returns the number of symbolic sizes, such as the batch size, and describes one. */
int32_t dlc_size_count(const dlc_model *model);
int dlc_size(const dlc_model *model, int32_t i, dlc_size_info *info);

/* Allocates memory for one call at a time with these sizes; NULL if there are none, or if dlc_resize sets them later. */
int dlc_context_create(const dlc_model *model, const int64_t *sizes, dlc_context **context);
/* Sets the sizes of the next calls; allocates only if they need more memory than any before. */
int dlc_resize(dlc_context *context, const int64_t *sizes);
/* Like dlc_info, with the sizes of the context; data-dependent sizes are those of the last call. */
int dlc_context_info(const dlc_context *context, int outputs, int32_t i, dlc_tensor_info *info);
int dlc_run(dlc_context *context, const void *const *inputs, void **outputs);
void dlc_context_destroy(dlc_context *context); /* NULL is allowed; cancels a submitted call, or waits for its end */

/* Asynchronous calls. dlc_submit queues a call of dlc_run and returns; arrays and `submission->user` must stay valid until the call
   has ended. Threads of the library run the calls of all models of the process: first those with the highest priority, then those
   of the model that has used the least processor time. They start with the first submission, and end when the last model that
   submitted calls is closed. A context has one call at a time: there are at most as many pending calls as contexts. */
typedef struct {
    int32_t priority;         /* calls with larger numbers start first */
    int32_t after_count;
    dlc_context *const *after; /* contexts whose submitted calls must end before this one starts, such as those that compute its
                                 inputs; it fails with the code of one that failed */
    int64_t deadline_ns;      /* nanoseconds from now: a call that has not started by then ends with DLC_DEADLINE; 0: none */
    /* Called when the call has ended, in a thread of the library or in the cancelling one; may submit or destroy the context
       and close its model, but not wait; queued calls may wait for it; or NULL. */
    void (*done)(void *user, dlc_context *context, int code);
    void *user;
} dlc_submission;
int dlc_submit(dlc_context *context, const void *const *inputs, void **outputs, const dlc_submission *submission /* or NULL */);
/* Waits until no call is submitted, at most for this time (negative: without limit), and returns the code of the last call;
   DLC_BUSY if the time is over. */
int dlc_wait(dlc_context *context, int64_t nanoseconds);
/* Cancels the submitted call unless it has started; returns DLC_OK if it will not run, else DLC_BUSY. */
int dlc_cancel(dlc_context *context);

const char *dlc_message(const dlc_context *context); /* message of the last failed call */
const char *dlc_error(int code);

#ifdef __cplusplus
}
#endif
#endif /* DLC_H */

#if defined(DLC_IMPLEMENTATION) && !defined(DLC_IMPLEMENTED)
#define DLC_IMPLEMENTED

#if !defined(__linux__)
#error "dlc.h: Linux only"
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The layout of programs and files; the same in program_image.py, container.py and call.ll of the compiler. */
enum { DLC__VERSION = 28, DLC__PAGE = 4096, DLC__ALIGNMENT = 64, DLC__MESSAGE = 512 };
enum { DLC__HUGE_PAGE_THRESHOLD = 4 << 20, DLC__HUGE_PAGE = 2 << 20 };
enum { DLC__CONSTANT = 0, DLC__SIZE_ARGUMENT = 1, DLC__CHECK_SIZE = 9, DLC__OPERATIONS = 10 };
enum { DLC__IN_CALL_MEMORY = -2 }; /* `over` of an output that is stored in the memory of the call */

typedef struct {
    unsigned char entry[16], magic[8];
    int64_t version, machine, bytes, checksum, name, features, code;
    int64_t slots, arena, inputs, outputs, tensors, dims, dim_count, operations, operation_count;
    int64_t arrays, weight_count, slot_inits, slot_init_count, records, symbol_count, size_readbacks, size_readback_count;
    int64_t collectives_slot, collectives, collective_count, collective_numbers, collective_number_count;
    int64_t mesh_axes, mesh_axis_count, shardings, sharding_count, rank;
    int64_t record_words, array_count, symbols, failures, failure_count, failure_values, failure_value_count, text;
    int64_t check_count, requirements, requirement_count, kernels, kernel_count, entries, entry_count, code_bytes;
    int64_t runtime_bytes, call, pool_bytes, pool_init, pool_worker, pool_link, pool_end, crc32c;
} dlc__image;
typedef struct { int64_t name, dtype, element_bytes, rank, dims, otherwise, over; } dlc__tensor;
typedef struct { int64_t kind, a, b; } dlc__operation;
typedef struct { int64_t distance, bytes, checksum; } dlc__array;
typedef struct { int64_t name, low, high; } dlc__symbol;
typedef struct { int64_t slot, number, address; } dlc__slot_init;
typedef struct { int64_t message, first, count; } dlc__failure;
typedef struct { int64_t slot, offset; } dlc__value_ref;
typedef struct { int64_t code, slot, offset, next, initial, first, count; } dlc__size_readback;
typedef struct { int64_t kind, combine, dtype, bytes, result_bytes, label, first, axis_count, pair_count; } dlc__collective;
typedef struct { int64_t name, size; } dlc__mesh_axis;
typedef struct { char magic[8]; uint32_t version, checksum; uint64_t header; int64_t program; } dlc__prefix;
typedef struct {
    unsigned char entry[16], magic[8];
    int64_t version, bytes, checksum, part_count, conditions, condition_count;
} dlc__program_list;
typedef struct { int64_t distance, checksum, first, count; } dlc__listed_program;
/* `kind` is DLC__SHAPE, DLC__VALUE, or DLC__RANGE: of a size of the shape, whose axis, smallest and largest value are the content. */
typedef struct { int64_t name, kind, where, count; } dlc__condition;
enum { DLC__SHAPE = 0, DLC__VALUE = 1, DLC__RANGE = 2 };

typedef int64_t dlc__call_function(dlc_call *, const dlc__image *, const char *);
typedef int64_t dlc__pool_bytes_function(void);
typedef void *dlc__worker(void *);
typedef void dlc__pool_link_function(void *, void *);
typedef void dlc__pool_end_function(void *);
typedef void dlc__pool_init_function(void *, int64_t, long (*)(long, ...), int (*)(void));
typedef uint32_t dlc__checksum_function(const void *, int64_t, uint32_t);

/* A collective of a model, and its call from compiled code: %Collective of runtime.ll. */
typedef struct {
    const dlc__collective *row;
    const dlc_collectives *functions;
    dlc_group group;
    int32_t target, source;   /* of a permutation */
    int32_t element_bytes;
} dlc__rank_collective;
typedef struct { uintptr_t function, state, group; int64_t label, result_index, arguments[12]; } dlc__collective_call;

struct dlc_model {
    const dlc__image *image;  /* executable */
    const char *base;         /* base address of array offsets */
    void *mapping, *copy;     /* of the file; of the program, if it was not in executable memory */
    size_t mapping_bytes, copy_bytes;
    dlc_options options;
    struct dlc__pool *pool;   /* NULL: none */
    cpu_set_t *cpus;          /* NULL: those of the process */
    int64_t *shapes;          /* -1 for symbolic sizes */
    struct dlc__queue *queue; /* of submitted calls */
    dlc__collective_call *collectives;
};

enum { DLC__IDLE, DLC__WAITING, DLC__QUEUED, DLC__RUNNING, DLC__REPORTING }; /* states of a submitted call */

struct dlc_context {
    const dlc_model *model;
    dlc_call call;
    int64_t memory_bytes, *sizes;
    char message[DLC__MESSAGE];
    /* The submitted call; guarded by dlc__executor_lock. */
    const void *executor;
    dlc_submission submission;
    const void *const *inputs;
    void **outputs;
    dlc_context *next;        /* in the list of queued or waiting calls */
    dlc_context **after;      /* calls that have not ended; in memory for `after_room` of them */
    int32_t after_count, after_room;
    int64_t deadline;         /* CLOCK_MONOTONIC in nanoseconds; INT64_MAX: none */
    int state, code;
    int *resubmitted;         /* set in a callback: where to record that it reused or destroyed the context */
    pthread_t reporter;       /* the thread of the callback */
    pthread_cond_t ended;
};

const char *dlc_error(int code)
{
    static const char *const texts[] = {
        "success", "the model does not support a size", "out of memory", "the file is damaged", "not a model that dlc compiled",
        "the file was written by another version of dlc than dlc.h", "no program matches the selectors",
        "the processor lacks a feature", "an argument is missing or misaligned", "the operating system refused",
        "the model failed", "the call was cancelled", "the call did not start before its deadline",
        "a submitted call has not ended",
    };
    return code >= 0 && code <= DLC_BUSY ? texts[code] : "unknown error code";
}

/* Stores the error message of opening a model and returns `code`. */
static int dlc__refuse(const dlc_options *options, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (options->message && options->message_bytes) vsnprintf(options->message, options->message_bytes, format, arguments);
    va_end(arguments);
    return code;
}

/* Stores the error message of a call and returns `code`. */
static int dlc__fail(dlc_context *context, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context->message, DLC__MESSAGE, format, arguments);
    va_end(arguments);
    return code;
}

static void *dlc__allocate(const dlc_options *options, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    if (options->allocate) return options->allocate(options->user, bytes, alignment);
    if (bytes >= DLC__HUGE_PAGE_THRESHOLD) alignment = DLC__HUGE_PAGE;
    if (posix_memalign(&memory, alignment, bytes ? bytes : 1)) return NULL;
    if (bytes >= DLC__HUGE_PAGE_THRESHOLD) madvise(memory, bytes, MADV_HUGEPAGE); /* best effort */
    return memory;
}

static void dlc__release(const dlc_options *options, void *memory)
{
    if (!memory) return;
    if (options->release) options->release(options->user, memory);
    else free(memory);
}

/* Access to and validation of programs */

static const void *dlc__at(const dlc__image *image, int64_t where) { return (const char *)image + where; }
#define DLC__FUNCTION(type, address) ((type *)(uintptr_t)(address))
static const char *dlc__text(const dlc__image *image, int64_t where)
{
    return (const char *)dlc__at(image, image->text + where);
}
static const dlc__tensor *dlc__tensors(const dlc__image *image) { return (const dlc__tensor *)dlc__at(image, image->tensors); }
static const dlc__operation *dlc__operations(const dlc__image *image)
{
    return (const dlc__operation *)dlc__at(image, image->operations);
}

static uint32_t dlc__crc32(uint32_t start, const unsigned char *data, size_t bytes)
{
    uint32_t table[256], sum = ~start;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    for (size_t i = 0; i < bytes; i++) sum = sum >> 8 ^ table[(sum ^ data[i]) & 255];
    return ~sum;
}

/* Returns whether `count` rows of `row` bytes at offset `where` are between the header and `end`. */
static int dlc__in_bounds(int64_t where, int64_t count, int64_t row, int64_t end)
{
    return where >= (int64_t)sizeof(dlc__image) && where % 8 == 0 && count >= 0 && where <= end && count <= (end - where) / row;
}

/* Returns whether a number is an element type; 0: one without a number of ONNX. */
static int dlc__is_dtype(int64_t dtype) { return dtype >= 0 && dtype <= DLC_INT2; }
static int dlc__is_text(const dlc__image *image, int64_t where) { return where >= 0 && where < image->code - image->text; }
static int dlc__is_code(const dlc__image *image, int64_t where)
{
    return where >= image->code && where < image->code + image->code_bytes;
}

/* Returns whether a record other than the first begins `distance` bytes after it. */
static int dlc__is_record(const dlc__image *image, int64_t distance)
{
    return distance >= 16 && distance % 8 == 0 && distance / 8 < image->record_words;
}

/* Returns whether the bytecode refers to valid slots, to tasks in the code, and to jump targets in itself. */
static int dlc__check_records(const dlc__image *image)
{
    const int64_t *words = (const int64_t *)dlc__at(image, image->records);
    int64_t n = image->record_words, slots = image->slots, i = 0;
    while (i < n) {
        const int64_t *r = words + i, left = n - i;
        int64_t length = 0, jump = 0;
#define DLC__SLOT(k) (left > (k) && r[k] >= 0 && r[k] < slots)
        switch (r[0]) {
        case 0: length = left > 1 ? 2 : 0; break;
        case 1: length = DLC__SLOT(1) && DLC__SLOT(2) && left > 3 ? 4 : 0; break;
        case 2: length = DLC__SLOT(1) && left > 2 ? 3 : 0; jump = length ? r[2] : 0; break;
        case 3: length = DLC__SLOT(1) && left > 3 ? 4 : 0; jump = length ? r[3] : 0; break;
        case 4: length = left > 1 ? 2 : 0; jump = length ? r[1] : 0; break;
        case 5: length = DLC__SLOT(1) && DLC__SLOT(2) ? 3 : 0; break;
        case 6:
            if (left < 5 || r[1] < 1 || r[1] > left - 4) return 0;
            length = 4 + r[1], jump = r[3];
            for (int64_t k = 4; k < length; k++)
                if (r[k] < length || r[k] >= jump) return 0;
            break;
        case 7:
            length = DLC__SLOT(1) && DLC__SLOT(4) && DLC__SLOT(6) && left > 7 && r[1] == image->collectives_slot ? 8 : 0;
            if (length && (r[2] < 0 || r[2] % (int64_t)sizeof(dlc__collective_call)
                           || r[2] / (int64_t)sizeof(dlc__collective_call) >= image->collective_count)) return 0;
            break;
        default:
            if (left < 4 || !DLC__SLOT(1) || r[3] < 0 || r[3] > (left - 4) / 2) return 0;
            if (r[0] < -image->bytes || r[0] > image->bytes || !dlc__is_code(image, image->records + 8 * i + r[0])) return 0;
            length = 4 + 2 * r[3];
            for (int64_t k = 4; k < length; k += 2)
                if (!DLC__SLOT(k)) return 0;
        }
#undef DLC__SLOT
        if (!length || jump < -i || jump >= left) return 0;
        i += length;
    }
    return n >= 2 && words[n - 2] == 0;
}

enum { DLC__ALL_REDUCE, DLC__REDUCE_SCATTER, DLC__ALL_GATHER, DLC__ALL_TO_ALL, DLC__PERMUTE, DLC__AXIS_INDEX, DLC__WAIT, DLC__PROGRESS };
enum { DLC__MAX_RANKS = 1 << 24, DLC__MAX_MESH_AXES = 64 };

/* Returns whether the tables of a mesh and of collectives are valid. */
static int dlc__check_mesh(const dlc__image *image)
{
    int64_t end = image->code, ranks = 1, n = image->collective_number_count;
    if (!dlc__in_bounds(image->collectives, image->collective_count, sizeof(dlc__collective), end)
        || !dlc__in_bounds(image->collective_numbers, n, 8, end)
        || !dlc__in_bounds(image->mesh_axes, image->mesh_axis_count, sizeof(dlc__mesh_axis), end)
        || !dlc__in_bounds(image->shardings, image->sharding_count, 8, end) || image->mesh_axis_count > DLC__MAX_MESH_AXES) return 0;
    if (image->sharding_count && image->sharding_count != image->inputs + image->outputs) return 0;
    if (image->collectives_slot < 0 || image->collectives_slot >= image->slots || !image->collectives_slot != !image->collective_count) return 0;
    const int64_t *shardings = (const int64_t *)dlc__at(image, image->shardings);
    for (int64_t i = 0; i < image->sharding_count; i++)
        if (!dlc__is_text(image, shardings[i])) return 0;
    const dlc__mesh_axis *axes = (const dlc__mesh_axis *)dlc__at(image, image->mesh_axes);
    for (int64_t i = 0; i < image->mesh_axis_count; i++) {
        if (!dlc__is_text(image, axes[i].name) || axes[i].size < 1 || axes[i].size > DLC__MAX_RANKS / ranks) return 0;
        ranks *= axes[i].size;
    }
    const int64_t *numbers = (const int64_t *)dlc__at(image, image->collective_numbers);
    const dlc__collective *c = (const dlc__collective *)dlc__at(image, image->collectives);
    for (int64_t i = 0; i < image->collective_count; i++, c++) {
        int64_t count = 1;
        if (c->kind < 0 || c->kind > DLC__PROGRESS || c->combine < DLC_SUM || c->combine > DLC_MIN
            || !dlc__is_dtype(c->dtype) || c->bytes < 0 || c->result_bytes < 0 || !dlc__is_text(image, c->label) || c->first < 0 || c->axis_count < 0 || c->pair_count < 0
            || c->first > n || c->axis_count > n - c->first || c->pair_count > (n - c->first - c->axis_count) / 2) return 0;
        for (int64_t k = 0; k < c->axis_count; k++) {
            int64_t axis = numbers[c->first + k];
            if (axis < 0 || axis >= image->mesh_axis_count) return 0;
            for (int64_t other = 0; other < k; other++)
                if (numbers[c->first + other] == axis) return 0;
            count *= axes[axis].size;
        }
        for (int64_t k = 0; k < 2 * c->pair_count; k++) {
            int64_t position = numbers[c->first + c->axis_count + k];
            if (position < 0 || position >= count) return 0;
        }
        if ((c->kind == DLC__ALL_REDUCE || c->kind == DLC__PERMUTE) && c->result_bytes != c->bytes) return 0;
        if (c->kind == DLC__REDUCE_SCATTER && (c->bytes % count || c->result_bytes != c->bytes / count)) return 0;
        if (c->kind == DLC__ALL_GATHER && (c->result_bytes % count || c->bytes != c->result_bytes / count)) return 0;
        if (c->kind == DLC__ALL_TO_ALL && (c->bytes % count || c->result_bytes != c->bytes)) return 0;
        if (c->kind == DLC__AXIS_INDEX && c->result_bytes != 8) return 0;
    }
    return 1;
}

/* Returns whether size operations are valid: they refer to earlier ones by indices from the first of them. */
static int dlc__check_operations(const dlc__image *image, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const dlc__operation *o = dlc__operations(image) + first + i;
        if (o->kind < 0 || o->kind >= DLC__OPERATIONS) return 0;
        if (o->kind == DLC__SIZE_ARGUMENT && (o->a < 0 || o->a >= image->symbol_count + image->size_readback_count)) return 0;
        if (o->kind > DLC__SIZE_ARGUMENT && (o->a < 0 || o->a >= i)) return 0;
        if (o->kind > DLC__SIZE_ARGUMENT && o->kind < DLC__CHECK_SIZE && (o->b < 0 || o->b >= i)) return 0;
        if (o->kind == DLC__CHECK_SIZE && (o->b < -1 || o->b >= image->requirement_count)) return 0;
    }
    return 1;
}

/* Returns whether a program is valid, with arrays at offsets between `first` and `last`. */
static int dlc__check_image(const dlc__image *image, int64_t first, int64_t last)
{
    int64_t end = image->code, n = image->operation_count, checks = image->check_count;
    dlc__image head;
    if (image->bytes < (int64_t)sizeof head || image->bytes > last) return 0;
    memcpy(&head, image, sizeof head);
    head.checksum = 0;
    uint32_t sum = dlc__crc32(0, (const unsigned char *)&head, sizeof head);
    sum = dlc__crc32(sum, (const unsigned char *)(image + 1), (size_t)image->bytes - sizeof head);
    if (sum != (uint64_t)image->checksum || end < (int64_t)sizeof head || end > image->bytes) return 0;
    if (image->code_bytes < 0 || image->code_bytes > image->bytes - end) return 0;
    if (image->text < (int64_t)sizeof head || image->text >= end || *dlc__text(image, end - image->text - 1)) return 0;
    if (image->inputs < 0 || image->outputs < 0 || image->inputs > end || image->outputs > end) return 0;
    int64_t tensors = image->inputs + image->outputs;
    if (!dlc__in_bounds(image->tensors, tensors, sizeof(dlc__tensor), end) || !dlc__in_bounds(image->dims, image->dim_count, 8, end)
        || n < 0 || n > 1 << 16 || checks < 0 || checks > 1 << 16
        || !dlc__in_bounds(image->operations, n + checks, sizeof(dlc__operation), end)
        || !dlc__in_bounds(image->arrays, image->array_count, sizeof(dlc__array), end)
        || !dlc__in_bounds(image->slot_inits, image->slot_init_count, sizeof(dlc__slot_init), end)
        || !dlc__in_bounds(image->records, image->record_words, 8, end)
        || !dlc__in_bounds(image->symbols, image->symbol_count, sizeof(dlc__symbol), end)
        || !dlc__in_bounds(image->requirements, image->requirement_count, sizeof(int64_t), end)
        || !dlc__in_bounds(image->failures, image->failure_count, sizeof(dlc__failure), end)
        || !dlc__in_bounds(image->failure_values, image->failure_value_count, sizeof(dlc__value_ref), end)
        || !dlc__in_bounds(image->size_readbacks, image->size_readback_count, sizeof(dlc__size_readback), end)) return 0;
    if (image->weight_count < 0 || image->weight_count > image->array_count) return 0;
    if (image->slots > 1 << 28 || image->slots < 2 + tensors + image->weight_count) return 0;
    const int64_t code[] = {image->call, image->pool_bytes, image->pool_init, image->pool_worker, image->pool_link, image->pool_end,
                            image->crc32c};
    for (size_t i = 0; i < sizeof code / sizeof *code; i++)
        if (!dlc__is_code(image, code[i])) return 0;
    if (image->runtime_bytes < 0 || image->runtime_bytes > image->code_bytes || image->arena < 0 || image->arena >= n) return 0;
    if (!dlc__is_text(image, image->name) || !dlc__is_text(image, image->features)) return 0;
    if (!dlc__check_operations(image, 0, n)) return 0;
    const int64_t *dims = (const int64_t *)dlc__at(image, image->dims);
    for (int64_t i = 0; i < image->dim_count; i++)
        if (dims[i] < 0 || dims[i] >= n) return 0;
    const dlc__array *arrays = (const dlc__array *)dlc__at(image, image->arrays);
    for (int64_t i = 0; i < image->array_count; i++)
        if (arrays[i].bytes < 0 || arrays[i].distance < first || arrays[i].distance > last
            || arrays[i].bytes > last - arrays[i].distance) return 0;
    for (int64_t i = 0; i < tensors; i++) {
        const dlc__tensor *t = dlc__tensors(image) + i;
        if (!dlc__is_text(image, t->name) || !dlc__is_dtype(t->dtype) || t->element_bytes < 1 || t->element_bytes > 64) return 0;
        if (t->dims < 0 || t->rank < 0 || t->rank > image->dim_count || t->dims > image->dim_count - t->rank) return 0;
        if (t->over < DLC__IN_CALL_MEMORY || t->over >= image->inputs || (t->over == DLC__IN_CALL_MEMORY && i < image->inputs)) return 0;
        int has_default_array = !t->otherwise;
        for (int64_t k = image->weight_count; k < image->array_count; k++) has_default_array |= arrays[k].distance == t->otherwise;
        if (!has_default_array) return 0;
    }
    const dlc__slot_init *slot_inits = (const dlc__slot_init *)dlc__at(image, image->slot_inits);
    for (int64_t i = 0; i < image->slot_init_count; i++)
        if (slot_inits[i].slot < 0 || slot_inits[i].slot >= image->slots || slot_inits[i].number < 0
            || slot_inits[i].number >= n) return 0;
    const dlc__symbol *symbols = (const dlc__symbol *)dlc__at(image, image->symbols);
    for (int64_t i = 0; i < image->symbol_count; i++)
        if (!dlc__is_text(image, symbols[i].name)) return 0;
    const dlc__failure *failures = (const dlc__failure *)dlc__at(image, image->failures);
    for (int64_t i = 0; i < image->failure_count; i++)
        if (!dlc__is_text(image, failures[i].message) || failures[i].first < 0 || failures[i].count < 0
            || failures[i].first > image->failure_value_count
            || failures[i].count > image->failure_value_count - failures[i].first) return 0;
    const dlc__value_ref *failure_values = (const dlc__value_ref *)dlc__at(image, image->failure_values);
    for (int64_t i = 0; i < image->failure_value_count; i++)
        if (failure_values[i].slot < 0 || failure_values[i].slot >= image->slots) return 0;
    const dlc__size_readback *size_readbacks = (const dlc__size_readback *)dlc__at(image, image->size_readbacks);
    for (int64_t i = 0; i < image->size_readback_count; i++)
        if (size_readbacks[i].slot < 0 || size_readbacks[i].slot >= image->slots
            || !dlc__is_record(image, size_readbacks[i].next)
            || size_readbacks[i].first < n || size_readbacks[i].first > n + checks
            || size_readbacks[i].count < 0 || size_readbacks[i].count > n + checks - size_readbacks[i].first
            || !dlc__check_operations(image, size_readbacks[i].first, size_readbacks[i].count)) return 0;
    const int64_t *requirements = (const int64_t *)dlc__at(image, image->requirements);
    for (int64_t i = 0; i < image->requirement_count; i++)
        if (!dlc__is_text(image, requirements[i])) return 0;
    return dlc__check_mesh(image) && dlc__check_records(image);
}

/* The processor: its ELF machine number and its features, as named by Linux. */

#if defined(__aarch64__)
enum { DLC__MACHINE = 183 };

static void dlc__features(char *text, size_t bytes)
{
    static const struct { const char *name; int type, bit; } known[] = {
        {"asimd", AT_HWCAP, 1}, {"crc32", AT_HWCAP, 7}, {"asimddp", AT_HWCAP, 20}, {"i8mm", AT_HWCAP2, 13},
    };
    size_t used = 0;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (getauxval((unsigned long)known[k].type) >> known[k].bit & 1 && used + 10 < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s ", known[k].name);
}
#elif defined(__riscv) && __riscv_xlen == 64
enum { DLC__MACHINE = 243 };

static void dlc__features(char *text, size_t bytes)
{
    for (int letter = 'a'; letter <= 'z' && bytes > 2; letter++)
        if (getauxval(AT_HWCAP) >> (letter - 'a') & 1) *text++ = (char)letter, *text++ = ' ', *text = 0, bytes -= 2;
}
#elif defined(__x86_64__)
enum { DLC__MACHINE = 62 };

static void dlc__features(char *text, size_t bytes)
{
    int file = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    for (ssize_t n = file < 0 ? 0 : 1; n > 0 && length < bytes - 1; length += n > 0 ? (size_t)n : 0)
        n = read(file, text + length, bytes - 1 - length);
    if (file >= 0) close(file);
    text[length] = 0;
    char *line = strstr(text, "\nflags"), *end;
    if (!line) line = text + length;
    if ((end = strchr(line + (*line == '\n'), '\n'))) *end = 0;
    line += strcspn(line, ":"), line += strspn(line, " :\t");
    memmove(text, line, strlen(line) + 1);
}
#else
#error "dlc.h: x86-64, AArch64 and RISC-V only"
#endif

/* Stores a feature that the processor lacks in `lacking`; returns 0 if there is none. */
static int dlc__missing_feature(const char *features, char *lacking, size_t bytes)
{
    char text[1 << 14] = "";
    dlc__features(text, sizeof text);
    for (; *text && *features; features += strspn(features, " ")) {
        size_t n = strcspn(features, " "), have = 0;
        for (const char *word = text; *word && !have; word += strcspn(word, " ")) {
            word += strspn(word, " ");
            have = strcspn(word, " ") == n && !strncmp(word, features, n);
        }
        snprintf(lacking, bytes, "%.*s", (int)n, features);
        if (!have) return 1;
        features += n;
    }
    return 0;
}

/* Returns the number of processors that the cgroup limit at `folder` allows, at most `max_cpus`. */
static long dlc__quota(const char *folder, long max_cpus)
{
    static const char *const names[][2] = {{"cpu.max", NULL}, {"cpu.cfs_quota_us", "cpu.cfs_period_us"}};
    for (int v = 0; v < 2; v++) {
        long long values[2] = {0, 0};
        int num_read = 0;
        for (int k = 0; k < 2 && names[v][k]; k++) {
            char path[1100];
            snprintf(path, sizeof path, "%s/%s", folder, names[v][k]);
            FILE *file = fopen(path, "re");
            if (!file) break;
            num_read += v ? fscanf(file, "%lld", &values[k]) : fscanf(file, "%lld %lld", &values[0], &values[1]);
            fclose(file);
        }
        if (num_read == 2 && values[0] > 0 && values[1] > 0) {
            long allowed = (long)(values[0] / values[1]);
            return allowed < 1 ? 1 : allowed < max_cpus ? allowed : max_cpus;
        }
    }
    return max_cpus;
}

/* Returns the number of processors in the thread's affinity mask within the quota of its cgroups; at least 1. */
static long dlc__usable_cpus(void)
{
    unsigned char mask[1024];
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask), max_cpus = 0;
    for (long i = 0; i < bytes; i++)
        for (int bit = 0; bit < 8; bit++) max_cpus += mask[i] >> bit & 1;
    char line[768], folder[1024];
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        /* The format is number:controllers:path; version 2 has no controllers. */
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        int version_2 = !controllers[1];
        if (!version_2 && !strstr(controllers, "cpu")) continue;
        /* In a container the path is often that of the host, with the group mounted at the root: check every ancestor. */
        for (;;) {
            snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", version_2 ? "" : "/cpu", strcmp(path, "/") ? path : "");
            max_cpus = dlc__quota(folder, max_cpus);
            char *slash = strrchr(path, '/');
            if (!slash) break;
            *slash = 0;
        }
    }
    if (file) fclose(file);
    return max_cpus < 1 ? 1 : max_cpus;
}

/* Thread pools: threads run a copy of the code, so that it outlives individual models, until their last model is closed. */

typedef struct dlc__pool {
    struct dlc__pool *next;
    int64_t models, threads;  /* models that use it; threads including the caller */
    cpu_set_t cpus;           /* empty: those of the process */
    int64_t started;          /* started threads */
    struct dlc__pool *sibling; /* the next pool of the chain: calls that find this one in use try it */
    size_t bytes, state_bytes;
    char *code;               /* of size `bytes` */
    void *state;
    dlc__pool_end_function *end;
    pthread_t *workers;
} dlc__pool;
static dlc__pool *dlc__pools;
static pthread_mutex_t dlc__pools_lock = PTHREAD_MUTEX_INITIALIZER;

/* Calls of all models that are submitted, and the threads that run them. */
typedef struct dlc__queue {
    struct dlc__queue *next;
    dlc_context *first;       /* queued calls by priority, then in the order of submission */
    int64_t threads, streams, running;
    double used, average;     /* virtual time, and the average processor time of a call, in nanoseconds */
} dlc__queue;
typedef struct {
    dlc__queue *queues;       /* of models that have submitted calls */
    dlc_context *waiting;     /* calls that wait for others */
    pthread_cond_t work;      /* signaled when a call can start */
    pthread_t *threads;
    int64_t thread_count, idle, capacity, max_capacity, capacity_time, occupied;
    double virtual_time;
    int ends;
    int detached;             /* the last model was closed in a callback, whose thread destroys the executor */
} dlc__executor;
static dlc__executor *dlc__shared_executor;
static pthread_mutex_t dlc__executor_lock = PTHREAD_MUTEX_INITIALIZER;

static void dlc__before_fork(void)
{
    pthread_mutex_lock(&dlc__executor_lock);
    pthread_mutex_lock(&dlc__pools_lock);
}
static void dlc__after_fork(void)
{
    pthread_mutex_unlock(&dlc__pools_lock);
    pthread_mutex_unlock(&dlc__executor_lock);
}
/* A forked child has none of its parent's threads; it drops the calls that they run. */
static void dlc__in_child(void)
{
    for (dlc__pool *pool = dlc__pools; pool; pool = pool->next)
        for (dlc__pool *link = pool; link; link = link->sibling) link->started = 0;
    dlc__pools = NULL, dlc__shared_executor = NULL;
    dlc__after_fork();
}
static void dlc__at_fork(void) { pthread_atfork(dlc__before_fork, dlc__after_fork, dlc__in_child); }

/* Maps pages: writable, or an executable copy of `code`. NULL if the system refuses. */
static void *dlc__map_pages(const void *code, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (!code) return memory;
    memcpy(memory, code, bytes);
    __builtin___clear_cache((char *)memory, (char *)memory + bytes);
    if (!mprotect(memory, bytes, PROT_READ | PROT_EXEC)) return memory;
    munmap(memory, bytes);
    return NULL;
}

/* Destroys a pool that no model uses, and the rest of its chain. */
static void dlc__destroy_pool(dlc__pool *pool)
{
    if (pool->sibling) dlc__destroy_pool(pool->sibling);
    if (pool->started) pool->end(pool->state);
    for (int64_t k = 0; k < pool->started; k++) pthread_join(pool->workers[k], NULL);
    if (pool->code) munmap(pool->code, pool->bytes);
    if (pool->state) munmap(pool->state, pool->state_bytes);
    free(pool);
}

/* Starts a thread that can run kernels; returns 0, or an error code of the system. */
static int dlc__start_thread(pthread_t *thread, dlc__worker *worker, void *argument)
{
    pthread_attr_t attributes;
    sigset_t blocked, before;
    /* Leave signals to the application's threads; faults are not blocked. */
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV), sigdelset(&blocked, SIGBUS), sigdelset(&blocked, SIGILL), sigdelset(&blocked, SIGFPE);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 8 << 20); /* kernels allocate tiles on the stack */
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    int code = pthread_create(thread, &attributes, worker, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return code;
}

static dlc__pool *dlc__start_threads(const dlc__image *image, int64_t threads)
{
    dlc__pool *pool = (dlc__pool *)calloc(1, sizeof *pool + (size_t)threads * sizeof *pool->workers);
    if (!pool) return NULL;
    pool->threads = threads, pool->workers = (pthread_t *)(void *)(pool + 1);
    pool->bytes = (size_t)image->runtime_bytes;
    pool->code = (char *)dlc__map_pages(dlc__at(image, image->code), pool->bytes);
    pool->state_bytes = (size_t)DLC__FUNCTION(dlc__pool_bytes_function, dlc__at(image, image->pool_bytes))();
    pool->state = dlc__map_pages(NULL, pool->state_bytes);
    if (!pool->code || !pool->state) return dlc__destroy_pool(pool), (dlc__pool *)NULL;
    DLC__FUNCTION(dlc__pool_init_function, pool->code + (image->pool_init - image->code))(pool->state, threads, syscall, sched_getcpu);
    dlc__worker *worker = DLC__FUNCTION(dlc__worker, pool->code + (image->pool_worker - image->code));
    pool->end = DLC__FUNCTION(dlc__pool_end_function, pool->code + (image->pool_end - image->code));
    while (pool->started < threads - 1 && !dlc__start_thread(pool->workers + pool->started, worker, pool->state))
        pool->started++;
    if (pool->started < threads - 1) return dlc__destroy_pool(pool), (dlc__pool *)NULL;
    return pool;
}

/* Restricts this thread to processors, unless NULL, and stores its previous ones. */
static void dlc__set_affinity(const cpu_set_t *cpus, cpu_set_t *previous)
{
    if (!cpus) return;
    if (previous) sched_getaffinity(0, sizeof *previous, previous);
    sched_setaffinity(0, sizeof *cpus, cpus);
}

static dlc__pool *dlc__start_pool(const dlc__image *image, int64_t threads, const cpu_set_t *cpus)
{
    cpu_set_t previous;
    /* The pool and its threads inherit the processors of this thread. */
    dlc__set_affinity(cpus, &previous);
    dlc__pool *pool = dlc__start_threads(image, threads);
    if (cpus) dlc__set_affinity(&previous, NULL);
    if (pool && cpus) pool->cpus = *cpus;
    return pool;
}

/* Returns the process's pool with this number of threads on these processors (NULL: those of the process), the first of a chain of at least `count`; NULL if the system fails. */
static dlc__pool *dlc__pool_of(const dlc__image *image, int64_t threads, const cpu_set_t *cpus, int64_t count)
{
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    if (cpus) wanted = *cpus;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const void *runtime = dlc__at(image, image->code);
    pthread_once(&once, dlc__at_fork);
    pthread_mutex_lock(&dlc__pools_lock);
    dlc__pool *pool = dlc__pools;
    while (pool && (pool->threads != threads || !CPU_EQUAL(&pool->cpus, &wanted) || pool->bytes != (size_t)image->runtime_bytes
                    || memcmp(pool->code, runtime, pool->bytes))) pool = pool->next;
    if (!pool && (pool = dlc__start_pool(image, threads, cpus))) pool->next = dlc__pools, dlc__pools = pool;
    dlc__pool *last = pool;
    while (last && --count) {
        if (!last->sibling && (last->sibling = dlc__start_pool(image, threads, cpus)))
            DLC__FUNCTION(dlc__pool_link_function, pool->code + (image->pool_link - image->code))(last->state, last->sibling->state);
        last = last->sibling;
    }
    if (pool) pool->models++;
    pthread_mutex_unlock(&dlc__pools_lock);
    return pool;
}

/* Releases the pool of a model that is closed. */
static void dlc__release_pool(dlc__pool *pool)
{
    pthread_mutex_lock(&dlc__pools_lock);
    int64_t models = --pool->models;
    dlc__pool **at = &dlc__pools;
    while (*at && *at != pool) at = &(*at)->next;
    if (!models && *at) *at = pool->next;
    pthread_mutex_unlock(&dlc__pools_lock);
    if (!models) dlc__destroy_pool(pool);
}

/* Models */

/* Returns whether a list of programs is valid. */
static int dlc__check_program_list(const dlc__program_list *list, int64_t first, int64_t last)
{
    dlc__program_list head;
    if (list->bytes < (int64_t)sizeof head || list->bytes > last || list->bytes % 8) return 0;
    memcpy(&head, list, sizeof head);
    head.checksum = 0;
    uint32_t sum = dlc__crc32(0, (const unsigned char *)&head, sizeof head);
    if (dlc__crc32(sum, (const unsigned char *)(list + 1), (size_t)list->bytes - sizeof head) != (uint64_t)list->checksum) return 0;
    int64_t end = list->bytes, rows = (int64_t)sizeof head, n = list->part_count, m = list->condition_count;
    if (n < 0 || n > (end - rows) / (int64_t)sizeof(dlc__listed_program) || list->conditions != rows + n * (int64_t)sizeof(dlc__listed_program)
        || m < 0 || m > (end - list->conditions) / (int64_t)sizeof(dlc__condition)) return 0;
    const dlc__listed_program *parts = (const dlc__listed_program *)(const void *)(list + 1);
    for (int64_t i = 0; i < n; i++)
        if (parts[i].distance < first || parts[i].distance >= 0 || parts[i].distance % DLC__PAGE || parts[i].first < 0
            || parts[i].count < 0 || parts[i].first > m || parts[i].count > m - parts[i].first) return 0;
    const dlc__condition *c = (const dlc__condition *)(const void *)(parts + n);
    for (int64_t i = 0; i < m; i++) {
        int64_t size = c[i].kind == DLC__VALUE ? 1 : 8;
        if (c[i].kind < DLC__SHAPE || c[i].kind > DLC__RANGE || (c[i].kind == DLC__RANGE && c[i].count != 3)) return 0;
        if (c[i].where < rows || c[i].where % 8 || c[i].where > end || c[i].count < 0 || c[i].count > (end - c[i].where) / size
            || c[i].name < rows || c[i].name >= end || !memchr((const char *)list + c[i].name, 0, (size_t)(end - c[i].name)))
            return 0;
    }
    return 1;
}

/* Returns whether the selectors satisfy a condition. */
static int dlc__condition_holds(const dlc_options *o, const dlc__program_list *list, const dlc__condition *c)
{
    const char *name = (const char *)list + c->name;
    const void *wanted = (const char *)list + c->where;
    for (int32_t k = 0; k < o->selector_count; k++) {
        const dlc_selector *g = o->selectors + k;
        if (!g->name || strcmp(g->name, name)) continue;
        if (c->kind == DLC__VALUE) return g->value && g->bytes == (size_t)c->count && !memcmp(g->value, wanted, g->bytes);
        if (c->kind == DLC__RANGE) {
            const int64_t *range = (const int64_t *)wanted;
            return !g->shape || (range[0] < g->rank && range[1] <= g->shape[range[0]] && g->shape[range[0]] <= range[2]);
        }
        return (g->shape || !g->rank) && g->rank == c->count && !(g->rank && memcmp(g->shape, wanted, (size_t)g->rank * 8));
    }
    /* The first program with ranges is opened without a selector of sizes. */
    return c->kind == DLC__RANGE;
}

/* Reports that no program matches: names the unsatisfied condition of the program that matches best. */
static int dlc__refuse_selection(const dlc_options *o, const dlc__program_list *list, const dlc__condition *all)
{
    const dlc__listed_program *part = (const dlc__listed_program *)(const void *)(list + 1);
    const dlc__condition *closest = NULL;
    int32_t held = -1, k, is_given = 0;
    for (int64_t i = 0; i < list->part_count; i++, part++) {
        for (k = 0; k < part->count && dlc__condition_holds(o, list, all + part->first + k);) k++;
        if (k > held) held = k, closest = all + part->first + k;
    }
    if (!closest) return dlc__refuse(o, DLC_NO_PROGRAM, "the model has no program");
    const char *name = (const char *)list + closest->name;
    for (k = 0; k < o->selector_count; k++) is_given |= o->selectors[k].name && !strcmp(o->selectors[k].name, name);
    return dlc__refuse(o, DLC_NO_PROGRAM, "%lld programs, by the %s of %s: %s", (long long)list->part_count,
                     closest->kind == DLC__VALUE ? "value" : "shape", name,
                     is_given ? "none matches `selectors` of dlc_options" : "set it in `selectors` of dlc_options");
}

/* Finds the program that matches the selectors, in nested lists: stores it and the bounds of its array offsets. */
static int dlc__select_program(const dlc_options *o, const dlc__image **image, int64_t *first, int64_t *last)
{
    if (o->selector_count > 0 && !o->selectors) return dlc__refuse(o, DLC_ARGUMENT, "selector_count is positive, but selectors is NULL");
    while (*last >= (int64_t)sizeof(dlc__program_list) && !memcmp((*image)->magic, "dlcparts", 8)) {
        const dlc__program_list *list = (const dlc__program_list *)(const void *)*image;
        const dlc__listed_program *part = (const dlc__listed_program *)(const void *)(list + 1);
        if (list->version != DLC__VERSION)
            return dlc__refuse(o, DLC_VERSION, "written in format %lld, this dlc.h reads %d", (long long)list->version, DLC__VERSION);
        if (!dlc__check_program_list(list, *first, *last))
            return dlc__refuse(o, DLC_DAMAGED, "damaged: copy or compile the model again");
        const dlc__condition *c = (const dlc__condition *)(const void *)(part + list->part_count);
        int64_t i = 0, k = 0;
        for (; i < list->part_count; i++, part++) {
            for (k = 0; k < part->count && dlc__condition_holds(o, list, c + part->first + k);) k++;
            if (k == part->count) break;
        }
        if (i == list->part_count) return dlc__refuse_selection(o, list, c);
        /* Each program precedes its list, so that the loop terminates. */
        *image = (const dlc__image *)(const void *)((const char *)list + part->distance);
        *first -= part->distance, *last -= part->distance;
    }
    return DLC_OK;
}

/* Collectives */

static int32_t dlc__element_bytes(int64_t dtype)
{
    switch (dtype) {
    case DLC_UINT16: case DLC_INT16: case DLC_FLOAT16: case DLC_BFLOAT16: return 2;
    case DLC_FLOAT32: case DLC_INT32: case DLC_UINT32: return 4;
    case DLC_FLOAT64: case DLC_INT64: case DLC_UINT64: case DLC_COMPLEX64: return 8;
    case DLC_COMPLEX128: return 16;
    default: return 1;
    }
}

/* Runs a collective for compiled code; returns 0, or the error of a function of dlc_collectives. */
static int dlc__run_collective(const void *operand, void *result, const dlc__rank_collective *c)
{
    const dlc__collective *row = c->row;
    const dlc_collectives *f = c->functions;
    const dlc_group *group = &c->group;
    int64_t position = group->position;
    switch (row->kind) {
    case DLC__ALL_REDUCE:
        return f->all_reduce(f->user, group, operand, result, row->bytes / c->element_bytes, (int32_t)row->dtype, (int32_t)row->combine);
    case DLC__REDUCE_SCATTER:
        return f->reduce_scatter(f->user, group, operand, result, row->result_bytes / c->element_bytes, (int32_t)row->dtype, (int32_t)row->combine);
    case DLC__ALL_GATHER: return f->all_gather(f->user, group, operand, result, row->bytes);
    case DLC__ALL_TO_ALL: return f->all_to_all(f->user, group, operand, result, row->bytes / group->count);
    case DLC__PERMUTE:
        if (c->source < 0) memset(result, 0, (size_t)row->bytes);
        return f->permute(f->user, group, operand, result, row->bytes, c->target, c->source);
    case DLC__AXIS_INDEX: memcpy(result, &position, 8); return 0;
    default: return 0; /* the functions return when a collective is complete */
    }
}

/* Returns whether no two pairs of a permutation have the same source or target. `ends` is scratch memory of `count` integers. */
static int dlc__is_permutation(const int64_t *pairs, int64_t pair_count, int32_t *ends, int32_t count)
{
    memset(ends, 0, (size_t)count * sizeof *ends);
    for (int64_t k = 0; k < 2 * pair_count; k++) {
        int32_t end = k % 2 ? 2 : 1;
        if (ends[pairs[k]] & end) return 0;
        ends[pairs[k]] |= end;
    }
    return 1;
}

/* Sets the ranks of a collective's group, the position of a rank among them, and its partners in a permutation. */
static void dlc__set_group(const dlc__image *image, dlc__rank_collective *c, int64_t rank, int32_t *ranks)
{
    const dlc__mesh_axis *axes = (const dlc__mesh_axis *)dlc__at(image, image->mesh_axes);
    const int64_t *numbers = (const int64_t *)dlc__at(image, image->collective_numbers) + c->row->first;
    for (int32_t p = 0; p < c->group.count; p++) {
        int64_t member = rank, rest = p;
        for (int64_t k = c->row->axis_count - 1; k >= 0; k--) {
            int64_t stride = 1, size = axes[numbers[k]].size;
            for (int64_t inner = numbers[k] + 1; inner < image->mesh_axis_count; inner++) stride *= axes[inner].size;
            member += (rest % size - rank / stride % size) * stride, rest /= size;
        }
        ranks[p] = (int32_t)member;
        if (member == rank) c->group.position = p;
    }
    c->group.ranks = ranks, c->target = c->source = -1;
    const int64_t *pairs = numbers + c->row->axis_count;
    for (int64_t k = 0; k < c->row->pair_count; k++) {
        if (pairs[2 * k] == c->group.position) c->target = (int32_t)pairs[2 * k + 1];
        if (pairs[2 * k + 1] == c->group.position) c->source = (int32_t)pairs[2 * k];
    }
}

/* Prepares the collectives of a model for the rank of this process. */
static int dlc__open_collectives(dlc_model *model)
{
    const dlc__image *image = model->image;
    const dlc_options *o = &model->options;
    const dlc_collectives *f = o->collectives;
    const dlc__mesh_axis *axes = (const dlc__mesh_axis *)dlc__at(image, image->mesh_axes);
    const dlc__collective *rows = (const dlc__collective *)dlc__at(image, image->collectives);
    const int64_t *numbers = (const int64_t *)dlc__at(image, image->collective_numbers);
    int64_t ranks = 1, members = 0, n = image->collective_count;
    char mesh[128] = "";
    for (int64_t i = 0, used = 0; i < image->mesh_axis_count && used < 96; i++)
        used += snprintf(mesh + used, sizeof mesh - (size_t)used, "%s%.32s=%lld", i ? "," : "", dlc__text(image, axes[i].name), (long long)axes[i].size);
    for (int64_t i = 0; i < image->mesh_axis_count; i++) ranks *= axes[i].size;
    if (ranks < 2 && !n) return DLC_OK;
    if (!f || !f->all_reduce || !f->reduce_scatter || !f->all_gather || !f->all_to_all || !f->permute)
        return dlc__refuse(o, DLC_ARGUMENT, "compiled for the mesh %s: set `collectives` of dlc_options, with all functions", mesh);
    if (f->rank_count != ranks || f->rank < 0 || f->rank >= ranks)
        return dlc__refuse(o, DLC_ARGUMENT, "rank %d of %d in `collectives`: the mesh %s has %lld ranks", (int)f->rank, (int)f->rank_count, mesh, (long long)ranks);
    if (image->rank >= 0 && image->rank != f->rank)
        return dlc__refuse(o, DLC_ARGUMENT, "the file has the constants of rank %lld: open the file that rank %d saved", (long long)image->rank, (int)f->rank);
    for (int64_t i = 0; i < n; i++) {
        int64_t count = 1;
        for (int64_t k = 0; k < rows[i].axis_count; k++) count *= axes[numbers[rows[i].first + k]].size;
        members += count;
    }
    size_t calls_bytes = (size_t)n * sizeof(dlc__collective_call), states_bytes = (size_t)n * sizeof(dlc__rank_collective);
    /* After the calls: the collectives, three unused words of state and two of a group, and the ranks of groups. */
    char *block = (char *)dlc__allocate(o, calls_bytes + states_bytes + 40 + (size_t)members * 4, 16);
    if (!block) return dlc__refuse(o, DLC_NO_MEMORY, "no memory");
    memset(block, 0, calls_bytes + states_bytes + 40);
    model->collectives = (dlc__collective_call *)(void *)block;
    dlc__rank_collective *states = (dlc__rank_collective *)(void *)(block + calls_bytes);
    char *words = block + calls_bytes + states_bytes;
    int32_t *group_ranks = (int32_t *)(void *)(words + 40);
    for (int64_t i = 0; i < n; i++) {
        dlc__rank_collective *c = states + i;
        c->row = rows + i, c->functions = f, c->element_bytes = dlc__element_bytes(rows[i].dtype), c->group.count = 1;
        c->group.label = dlc__text(image, rows[i].label);
        for (int64_t k = 0; k < rows[i].axis_count; k++) c->group.count *= (int32_t)axes[numbers[rows[i].first + k]].size;
        if (!dlc__is_permutation(numbers + rows[i].first + rows[i].axis_count, rows[i].pair_count, group_ranks, c->group.count))
            return dlc__refuse(o, DLC_DAMAGED, "damaged: copy or compile the model again");
        dlc__set_group(image, c, f->rank, group_ranks);
        group_ranks += c->group.count;
        dlc__collective_call *call = model->collectives + i;
        call->function = (uintptr_t)dlc__run_collective, call->state = (uintptr_t)words, call->group = (uintptr_t)(words + 24);
        call->result_index = 1, call->arguments[2] = (int64_t)(uintptr_t)c;
    }
    return DLC_OK;
}

/* Opens a program whose arrays are at offsets between `first` and `last` bytes. */
static int dlc__open(dlc_model *model, const dlc__image *image, int64_t first, int64_t last, int executable)
{
    dlc_options *o = &model->options;
    char lacking[64];
    int picked = dlc__select_program(o, &image, &first, &last);
    if (picked) return picked;
    if (last < (int64_t)sizeof *image || memcmp(image->magic, "dlcimage", 8))
        return dlc__refuse(o, DLC_NOT_A_MODEL, "not a model that dlc compiled");
    if (image->version != DLC__VERSION)
        return dlc__refuse(o, DLC_VERSION, "written in format %lld, this dlc.h reads %d: compile the "
                         "model again, or use the dlc.h of that dlc version", (long long)image->version, DLC__VERSION);
    if (image->machine != DLC__MACHINE)
        return dlc__refuse(o, DLC_PROCESSOR, "compiled for another kind of processor (machine %lld of ELF files, this is %d): "
                         "compile the model for this one, such as --target cpu:aarch64", (long long)image->machine, DLC__MACHINE);
    if (!dlc__check_image(image, first, last))
        return dlc__refuse(o, DLC_DAMAGED, "damaged: copy or compile the model again");
    if (dlc__missing_feature(dlc__text(image, image->features), lacking, sizeof lacking))
        return dlc__refuse(o, DLC_PROCESSOR, "compiled for a processor with %s, which this one lacks: "
                         "compile the model for target cpu:generic", lacking);
    model->base = (const char *)image;
    if (!executable) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uintptr_t start = (uintptr_t)image / page * page, end = (uintptr_t)image + (size_t)image->bytes;
        /* Execute the pages of the file, which all processes share; if the system does not allow that, a copy. */
        if (!model->mapping || mprotect((void *)start, end - start, PROT_READ | PROT_EXEC)) {
            model->copy_bytes = (size_t)image->bytes;
            if (!(model->copy = dlc__map_pages(image, model->copy_bytes)))
                return dlc__refuse(o, DLC_SYSTEM, "executable memory: %s", strerror(errno));
            image = (const dlc__image *)model->copy;
        }
    }
    model->image = image;
    const dlc__array *arrays = (const dlc__array *)dlc__at(image, image->arrays);
    dlc__checksum_function *sum = DLC__FUNCTION(dlc__checksum_function, dlc__at(image, image->crc32c));
    for (int64_t i = 0; o->verify && i < image->array_count; i++)
        if (sum(model->base + arrays[i].distance, arrays[i].bytes, 0) != (uint64_t)arrays[i].checksum)
            return dlc__refuse(o, DLC_DAMAGED, "damaged: checksum of weight %lld", (long long)i);
    model->shapes = (int64_t *)dlc__allocate(o, (size_t)image->dim_count * 8, 8);
    if (!model->shapes) return dlc__refuse(o, DLC_NO_MEMORY, "no memory");
    const int64_t *dims = (const int64_t *)dlc__at(image, image->dims);
    for (int64_t i = 0; i < image->dim_count; i++) {
        const dlc__operation *made = dlc__operations(image) + dims[i];
        model->shapes[i] = made->kind == DLC__CONSTANT ? made->a : -1;
    }
    if (o->cpu_count > 0) {
        cpu_set_t available;
        if (!o->cpus) return dlc__refuse(o, DLC_ARGUMENT, "cpu_count is positive, but cpus is NULL");
        if (!(model->cpus = (cpu_set_t *)dlc__allocate(o, sizeof *model->cpus, 16))) return dlc__refuse(o, DLC_NO_MEMORY, "no memory");
        CPU_ZERO(model->cpus);
        sched_getaffinity(0, sizeof available, &available);
        for (int32_t i = 0; i < o->cpu_count; i++) {
            if (o->cpus[i] < 0 || o->cpus[i] >= CPU_SETSIZE || !CPU_ISSET(o->cpus[i], &available))
                return dlc__refuse(o, DLC_ARGUMENT, "processor %d: the process may not use it", (int)o->cpus[i]);
            CPU_SET(o->cpus[i], model->cpus);
        }
    }
    int code = dlc__open_collectives(model);
    if (code) return code;
    int64_t threads = o->threads > 0 ? o->threads : o->parallel ? 1 : o->cpu_count > 0 ? CPU_COUNT(model->cpus) : dlc__usable_cpus();
    /* More than any system has. */
    if (!o->parallel && threads > 8192)
        return dlc__refuse(o, DLC_ARGUMENT, "%lld threads: the maximum is 8192", (long long)threads);
    if (!o->parallel && threads > 1 && !(model->pool = dlc__pool_of(image, threads, model->cpus, o->streams > 1 ? o->streams : 1)))
        return dlc__refuse(o, DLC_SYSTEM, "%lld threads: the system refuses to start them",
                         (long long)threads);
    o->threads = (int32_t)threads, o->message = NULL, o->selectors = NULL, o->cpus = NULL; /* the pointers are valid during this call only */
    return DLC_OK;
}

/* Allocates an empty model in `*result`. */
static int dlc__new_model(const dlc_options *options, dlc_model **result)
{
    dlc_options none;
    memset(&none, 0, sizeof none);
    if (!options) options = &none;
    if (options->message && options->message_bytes) options->message[0] = 0;
    if (!result) return dlc__refuse(options, DLC_ARGUMENT, "`model` is NULL");
    *result = NULL;
    if (!options->allocate != !options->release)
        return dlc__refuse(options, DLC_ARGUMENT, "set both `allocate` and `release`, or neither");
    dlc_model *model = (dlc_model *)dlc__allocate(options, sizeof *model, 16);
    if (!model) return dlc__refuse(options, DLC_NO_MEMORY, "no memory");
    memset(model, 0, sizeof *model);
    model->options = *options;
    *result = model;
    return DLC_OK;
}

static int dlc__finish_open(dlc_model *model, int code, dlc_model **result)
{
    if (code) dlc_close(model);
    *result = code ? NULL : model;
    return code;
}

/* Prefixes the error message with the file name. */
static void dlc__prefix_path(const dlc_options *options, const char *path)
{
    if (!options->message || !options->message_bytes) return;
    size_t used = strlen(options->message), name = strlen(path) + 2;
    if (used + name >= options->message_bytes) return;
    memmove(options->message + name, options->message, used + 1);
    memcpy(options->message, path, name - 2);
    memcpy(options->message + name - 2, ": ", 2);
}

/* Opens the contents of a file. */
static int dlc__open_content(dlc_model *model, const void *memory, size_t bytes)
{
    const dlc_options *o = &model->options;
    dlc__prefix prefix;
    if (bytes < sizeof prefix || memcmp(memory, "dlcmodel", 8))
        return dlc__refuse(o, DLC_NOT_A_MODEL, "not a model that dlc compiled");
    memcpy(&prefix, memory, sizeof prefix);
    if (prefix.version != DLC__VERSION)
        return dlc__refuse(o, DLC_VERSION, "written in format %u, this dlc.h reads %d: compile the model "
                         "again, or use the dlc.h of that dlc version", prefix.version, DLC__VERSION);
    if (prefix.program == -3)
        return dlc__refuse(o, DLC_PROCESSOR, "compiled for an OpenCL device, which requires Python: compile the model "
                         "for target cpu");
    if (prefix.program < 0 && prefix.program >= -2) {
        static const char *const reasons[] = {
            "specialized for data-dependent sizes, which requires Python",
            "has strings, sequences or optionals as inputs or outputs, which requires Python",
        };
        return dlc__refuse(o, DLC_NO_PROGRAM, "%s", reasons[-prefix.program - 1]);
    }
    size_t start = sizeof prefix + (size_t)prefix.header;
    if (prefix.header > bytes - sizeof prefix || start > SIZE_MAX - DLC__PAGE)
        return dlc__refuse(o, DLC_DAMAGED, "damaged: the header exceeds the file");
    start = (start + DLC__PAGE - 1) / DLC__PAGE * DLC__PAGE;
    if (start > bytes || (uint64_t)prefix.program > bytes - start || prefix.program % DLC__PAGE)
        return dlc__refuse(o, DLC_DAMAGED, "damaged: the program exceeds the file");
    size_t at = start + (size_t)prefix.program;
    return dlc__open(model, (const dlc__image *)((const char *)memory + at), -(int64_t)at, (int64_t)(bytes - at), 0);
}

/* Returns a copy of a file in huge pages, where the system has them; MAP_FAILED if it fails. */
static void *dlc__read_file(int file, size_t bytes)
{
    char *memory = (char *)dlc__map_pages(NULL, bytes);
    if (!memory) return MAP_FAILED;
    madvise(memory, bytes, MADV_HUGEPAGE); /* best effort */
    for (size_t done = 0; done < bytes;) {
        ssize_t count = pread(file, memory + done, bytes - done, (off_t)done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            if (!count) errno = EIO; /* the file was truncated */
            munmap(memory, bytes);
            return MAP_FAILED;
        }
        done += (size_t)count;
    }
    return memory;
}

int dlc_open(const char *path, const dlc_options *options, dlc_model **result)
{
    struct stat status;
    int code = dlc__new_model(options, result);
    if (code) return code;
    dlc_model *model = *result;
    dlc_options *o = &model->options;
    if (!path) return dlc__finish_open(model, dlc__refuse(o, DLC_ARGUMENT, "`path` is NULL"), result);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status)) code = dlc__refuse(o, DLC_SYSTEM, "%s", strerror(errno));
    else if (!S_ISREG(status.st_mode) || status.st_size < 1)
        code = dlc__refuse(o, DLC_NOT_A_MODEL, "not a model that dlc compiled");
    else {
        void *mapping = o->huge_pages ? dlc__read_file(file, (size_t)status.st_size)
                                      : mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (mapping == MAP_FAILED) code = dlc__refuse(o, DLC_SYSTEM, "%s", strerror(errno));
        else model->mapping = mapping, model->mapping_bytes = (size_t)status.st_size;
    }
    if (file >= 0) close(file);
    if (!code) code = dlc__open_content(model, model->mapping, model->mapping_bytes);
    if (code) dlc__prefix_path(o, path);
    return dlc__finish_open(model, code, result);
}

int dlc_open_memory(const void *memory, size_t bytes, const dlc_options *options, dlc_model **result)
{
    int code = dlc__new_model(options, result);
    if (code) return code;
    dlc_model *model = *result;
    const dlc_options *o = &model->options;
    if (!memory || (uintptr_t)memory % DLC__ALIGNMENT)
        return dlc__finish_open(model, dlc__refuse(o, DLC_ARGUMENT, "`memory` is not aligned to 64 bytes"), result);
    return dlc__finish_open(model, dlc__open_content(model, memory, bytes), result);
}

int dlc_open_linked(int64_t (*linked)(dlc_call *), const dlc_options *options, dlc_model **result)
{
    int code = dlc__new_model(options, result);
    if (code) return code;
    dlc_model *model = *result;
    if (!linked) return dlc__finish_open(model, dlc__refuse(&model->options, DLC_ARGUMENT, "`linked` is NULL"), result);
    /* The address of the function may be that of a PLT stub: let it return the address of the program. */
    dlc_call call;
    memset(&call, 0, sizeof call);
    call.bytes = -1;
    linked(&call);
    /* The bounds of the program's memory are unknown. */
    return dlc__finish_open(model, dlc__open(model, (const dlc__image *)call.program, INT64_MIN / 2, INT64_MAX / 2, 1), result);
}

static void dlc__leave_executor(dlc_model *model);

void dlc_close(dlc_model *model)
{
    if (!model) return;
    dlc_options options = model->options;
    dlc__leave_executor(model);
    if (model->pool) dlc__release_pool(model->pool);
    if (model->mapping) munmap(model->mapping, model->mapping_bytes);
    if (model->copy) munmap(model->copy, model->copy_bytes);
    dlc__release(&options, model->shapes);
    dlc__release(&options, model->cpus);
    dlc__release(&options, model->collectives);
    dlc__release(&options, model);
}

int32_t dlc_count(const dlc_model *model, int outputs)
{
    return model ? (int32_t)(outputs ? model->image->outputs : model->image->inputs) : 0;
}

/* Describes tensor `i`, given the shapes of all tensors. */
static int dlc__info(const dlc_model *model, const int64_t *shapes, int outputs, int32_t i, dlc_tensor_info *info)
{
    if (!info || i < 0 || i >= dlc_count(model, outputs)) return DLC_ARGUMENT;
    const dlc__tensor *t = dlc__tensors(model->image) + i + (outputs ? model->image->inputs : 0);
    info->name = dlc__text(model->image, t->name);
    info->dtype = (int32_t)t->dtype, info->rank = (int32_t)t->rank, info->element_bytes = (int32_t)t->element_bytes;
    info->shape = shapes + t->dims, info->optional = t->otherwise != 0, info->data_dependent = t->over == DLC__IN_CALL_MEMORY;
    info->aliased_input = info->data_dependent ? -1 : (int32_t)t->over;
    const int64_t *shardings = (const int64_t *)dlc__at(model->image, model->image->shardings);
    info->sharding = model->image->sharding_count ? dlc__text(model->image, shardings[t - dlc__tensors(model->image)]) : NULL;
    info->bytes = t->element_bytes;
    for (int64_t k = 0; k < t->rank; k++) {
        int64_t size = info->shape[k];
        if (size < 0 || (size && info->bytes > INT64_MAX / size)) return info->bytes = -1, DLC_OK;
        info->bytes *= size;
    }
    return DLC_OK;
}

int dlc_info(const dlc_model *model, int outputs, int32_t i, dlc_tensor_info *info)
{
    return model ? dlc__info(model, model->shapes, outputs, i, info) : DLC_ARGUMENT;
}

int32_t dlc_find(const dlc_model *model, int outputs, const char *name)
{
    if (!model || !name) return -1;
    const dlc__tensor *t = dlc__tensors(model->image) + (outputs ? model->image->inputs : 0);
    for (int32_t i = 0; i < dlc_count(model, outputs); i++)
        if (!strcmp(dlc__text(model->image, t[i].name), name)) return i;
    return -1;
}

int32_t dlc_size_count(const dlc_model *model) { return model ? (int32_t)model->image->symbol_count : 0; }

int dlc_size(const dlc_model *model, int32_t i, dlc_size_info *info)
{
    if (!info || i < 0 || i >= dlc_size_count(model)) return DLC_ARGUMENT;
    const dlc__symbol *symbol = (const dlc__symbol *)dlc__at(model->image, model->image->symbols) + i;
    info->name = dlc__text(model->image, symbol->name), info->low = symbol->low, info->high = symbol->high;
    return DLC_OK;
}

/* Contexts */

/* Reports failure `k` of the model; the values in its message replace its last {}. */
static int dlc__model_failure(dlc_context *c, int64_t k)
{
    const dlc__image *image = c->model->image;
    if (k >= image->failure_count) return dlc__fail(c, DLC_DAMAGED, "damaged: unknown failure");
    const dlc__failure *failure = (const dlc__failure *)dlc__at(image, image->failures) + k;
    const dlc__value_ref *failure_values = (const dlc__value_ref *)dlc__at(image, image->failure_values) + failure->first;
    const char *text = dlc__text(image, failure->message), *at;
    int64_t holes = 0, i = 0;
    size_t used = 0;
    for (at = text; (at = strstr(at, "{}")); at += 2) holes++;
    for (; *text && used + 24 < DLC__MESSAGE; text++) {
        if (strncmp(text, "{}", 2) || holes-- > failure->count) {
            c->message[used++] = *text;
            continue;
        }
        const char *slot = *((const char *const *)c->call.memory + failure_values[i].slot);
        int64_t number;
        memcpy(&number, slot + failure_values[i++].offset, sizeof number);
        used += (size_t)snprintf(c->message + used, 24, "%lld", (long long)number);
        text++;
    }
    c->message[used] = 0;
    return DLC_FAILED;
}

/* Reports the requirement that the sizes of the call violate, with the sizes. */
static int dlc__refuse_sizes(dlc_context *c)
{
    const dlc__image *image = c->model->image;
    const dlc__symbol *symbols = (const dlc__symbol *)dlc__at(image, image->symbols);
    const int64_t *requirements = (const int64_t *)dlc__at(image, image->requirements);
    int64_t failed = c->call.failed_operation, requirement = -1;
    if (dlc__operations(image)[failed].kind == DLC__CHECK_SIZE) requirement = dlc__operations(image)[failed].b;
    size_t used = (size_t)snprintf(c->message, DLC__MESSAGE, "%s",
                                   requirement < 0 ? dlc_error(DLC_SIZE) : dlc__text(image, requirements[requirement]));
    for (int64_t i = 0; i < image->symbol_count && used < DLC__MESSAGE; i++)
        used += (size_t)snprintf(c->message + used, DLC__MESSAGE - used, "%s%s = %lld", i ? ", " : "; got ",
                                 dlc__text(image, symbols[i].name), (long long)c->sizes[i]);
    return DLC_SIZE;
}

/* Calls the program and reports its error. */
static int dlc__call(dlc_context *c)
{
    const dlc__image *image = c->model->image;
    int64_t code = DLC__FUNCTION(dlc__call_function, dlc__at(image, image->call))(&c->call, image, c->model->base);
    if (code == DLC_OK) return DLC_OK;
    if (code < 0) return dlc__model_failure(c, -code - 1);
    if (code == DLC_SIZE) return dlc__refuse_sizes(c);
    return dlc__fail(c, (int)code, "%s", dlc_error((int)code));
}

/* Allocates the memory that the last call required. */
static int dlc__grow_memory(dlc_context *c)
{
    void *memory = c->call.memory;
    /* Grow by at least half, so that the memory does not grow in each call. */
    int64_t bytes = memory && c->call.required_bytes < c->memory_bytes / 2 * 3 ? c->memory_bytes / 2 * 3 : c->call.required_bytes;
    int64_t limit = c->model->options.memory_limit;
    if (limit > 0 && c->call.required_bytes > limit)
        return dlc__fail(c, DLC_NO_MEMORY, "the call needs %lld bytes, but memory_limit is %lld: use smaller sizes, or increase it",
                         (long long)c->call.required_bytes, (long long)limit);
    if (limit > 0 && bytes > limit) bytes = limit;
    dlc__release(&c->model->options, memory);
    c->call.memory = dlc__allocate(&c->model->options, (size_t)bytes, DLC__ALIGNMENT);
    c->call.bytes = c->memory_bytes = c->call.memory ? bytes : 0;
    return c->call.memory ? DLC_OK : dlc__fail(c, DLC_NO_MEMORY, "out of memory: %lld bytes", (long long)bytes);
}

int dlc_resize(dlc_context *c, const int64_t *sizes)
{
    if (!c) return DLC_ARGUMENT;
    int32_t count = dlc_size_count(c->model);
    if (count && !sizes) return dlc__fail(c, DLC_ARGUMENT, "the model has %d symbolic sizes, but `sizes` is NULL", count);
    for (int32_t i = 0; i < count; i++) c->sizes[i] = sizes[i];
    void *memory = c->call.memory;
    c->call.memory = NULL;
    int code = dlc__call(c);
    c->call.memory = memory;
    return code || (memory && c->call.required_bytes <= c->memory_bytes) ? code : dlc__grow_memory(c);
}

int dlc_context_create(const dlc_model *model, const int64_t *sizes, dlc_context **result)
{
    if (result) *result = NULL;
    if (!result || !model) return DLC_ARGUMENT;
    const dlc_options *o = &model->options;
    size_t shapes = (size_t)model->image->dim_count * 8;
    /* The shapes and sizes follow it. */
    dlc_context *c = (dlc_context *)dlc__allocate(o, sizeof *c + shapes + (size_t)model->image->symbol_count * 8, 16);
    if (!c) return DLC_NO_MEMORY;
    memset(c, 0, sizeof *c);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->ended, &clock);
    pthread_condattr_destroy(&clock);
    c->model = model;
    c->call.shapes = (int64_t *)(c + 1);
    c->call.sizes = c->sizes = c->call.shapes + model->image->dim_count;
    c->call.collectives = model->collectives;
    c->call.pool = model->pool ? model->pool->state : NULL, c->call.parallel = o->parallel, c->call.user = o->user;
    int code = sizes || !model->image->symbol_count ? dlc_resize(c, sizes) : DLC_OK;
    if (code) dlc_context_destroy(c);
    else *result = c;
    return code;
}

int dlc_context_info(const dlc_context *c, int outputs, int32_t i, dlc_tensor_info *info)
{
    return c ? dlc__info(c->model, c->call.shapes, outputs, i, info) : DLC_ARGUMENT;
}

/* Checks that pointers are not NULL, and aligned as the kernels require. */
static int dlc__check_arguments(dlc_context *c, int outputs, const void *const *buffers)
{
    dlc_tensor_info info;
    for (int32_t i = 0; i < dlc_count(c->model, outputs); i++) {
        dlc_context_info(c, outputs, i, &info);
        if (outputs && info.data_dependent && buffers) continue;
        if (outputs && info.aliased_input >= 0) {
            if (c->call.inputs[info.aliased_input]) continue;
            return dlc__fail(c, DLC_ARGUMENT, "output %s overwrites an input, which is missing", info.name);
        }
        if (!buffers || (!buffers[i] && info.bytes && !info.optional))
            return dlc__fail(c, DLC_ARGUMENT, "%s %s is missing", outputs ? "output" : "input", info.name);
        if ((uintptr_t)buffers[i] % (uintptr_t)info.element_bytes)
            return dlc__fail(c, DLC_ARGUMENT, "%s %s is not aligned to %d bytes",
                             outputs ? "output" : "input", info.name, (int)info.element_bytes);
    }
    return DLC_OK;
}

int dlc_run(dlc_context *c, const void *const *inputs, void **outputs)
{
    if (!c) return DLC_ARGUMENT;
    if (!c->call.memory) return dlc__fail(c, DLC_ARGUMENT, "the sizes are not set: call dlc_resize");
    c->call.inputs = inputs, c->call.outputs = outputs;
    int code = dlc__check_arguments(c, 0, inputs);
    if (!code) code = dlc__check_arguments(c, 1, (const void *const *)outputs);
    if (code) return code;
    /* Data-dependent sizes may require more memory than any call before; the call is repeated then. */
    while ((code = dlc__call(c)) == DLC_NO_MEMORY && c->call.required_bytes > c->memory_bytes)
        if ((code = dlc__grow_memory(c))) return code;
    return code;
}

/* Asynchronous calls: a state machine under dlc__executor_lock, which no thread holds while a call or a callback runs.
 *
 *     idle -> (waiting ->) queued -> running -> reporting -> idle      reporting: its callback runs
 *                  |          +---------------------^                  cancelled, past its deadline, or an earlier call failed
 *                  +--------------------------------|
 */

static int64_t dlc__now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * (int64_t)1000000000 + time.tv_nsec;
}

/* Returns the time after a duration; INT64_MAX if it is later. */
static int64_t dlc__time_after(int64_t nanoseconds)
{
    int64_t now = dlc__now();
    return nanoseconds > INT64_MAX - now ? INT64_MAX : now + nanoseconds;
}

/* Waits for a signal, at most until `time`. */
static void dlc__wait_until(pthread_cond_t *condition, int64_t time)
{
    struct timespec until;
    until.tv_sec = (time_t)(time / 1000000000), until.tv_nsec = (long)(time % 1000000000);
    if (time == INT64_MAX) pthread_cond_wait(condition, &dlc__executor_lock);
    else pthread_cond_timedwait(condition, &dlc__executor_lock, &until);
}

/* Removes a call from a list; returns whether it was there. */
static int dlc__unlink(dlc_context **list, dlc_context *c)
{
    while (*list && *list != c) list = &(*list)->next;
    if (!*list) return 0;
    *list = c->next;
    return 1;
}

static void *dlc__run_calls(void *executor);

/* Wakes or creates a thread that starts calls and watches deadlines. One thread more than processors
 * watches deadlines while calls occupy all processors. */
static void dlc__wake(dlc__executor *e)
{
    if (e->idle) pthread_cond_signal(&e->work);
    else if (e->thread_count <= e->max_capacity && !dlc__start_thread(e->threads + e->thread_count, dlc__run_calls, e))
        e->thread_count++;
}

static void dlc__enqueue(dlc__executor *e, dlc_context *c)
{
    dlc__queue *queue = c->model->queue;
    dlc_context **at = &queue->first;
    if (!queue->first && !queue->running && queue->used < e->virtual_time) queue->used = e->virtual_time;
    while (*at && (*at)->submission.priority >= c->submission.priority) at = &(*at)->next;
    c->state = DLC__QUEUED, c->next = *at, *at = c;
    if (e->occupied < e->capacity || c->deadline != INT64_MAX) dlc__wake(e);
}

/* Ends a call that is in no list: calls that wait for it continue, then its callback is called, without the lock. */
static void dlc__finish(dlc__executor *e, dlc_context *c, int code)
{
    int resubmitted = 0;
    c->code = code, c->state = DLC__REPORTING;
    for (dlc_context *w = e->waiting, *next; w; w = next) {
        next = w->next;
        int32_t count = w->after_count;
        for (int32_t i = 0; i < w->after_count;)
            if (w->after[i] == c) w->after[i] = w->after[--w->after_count];
            else i++;
        if (w->after_count == count) continue;
        if (code && !w->code) w->code = code;
        if (w->after_count) continue;
        dlc__unlink(&e->waiting, w);
        /* A call whose predecessor failed is queued too: a thread ends it, so that chains of failures need no recursion. */
        dlc__enqueue(e, w);
    }
    if (c->submission.done) {
        c->resubmitted = &resubmitted, c->reporter = pthread_self();
        pthread_mutex_unlock(&dlc__executor_lock);
        c->submission.done(c->submission.user, c, code);
        pthread_mutex_lock(&dlc__executor_lock);
    }
    if (resubmitted) return; /* the context may not exist any more */
    c->resubmitted = NULL, c->state = DLC__IDLE;
    pthread_cond_broadcast(&c->ended);
}

static int dlc__has_queued(const dlc__executor *e)
{
    for (const dlc__queue *q = e->queues; q; q = q->next)
        if (q->first) return 1;
    return 0;
}

/* Returns the next call that can start, removed from its queue; NULL: none. */
static dlc_context *dlc__take(dlc__executor *e)
{
    dlc__queue *best = NULL;
    for (dlc__queue *q = e->queues; q; q = q->next) {
        if (!q->first || q->running >= q->streams) continue;
        int32_t priority = q->first->submission.priority, other = best ? best->first->submission.priority : 0;
        int ahead = best ? (priority > other) - (priority < other) : 1;
        if (ahead > 0 || (!ahead && q->used < best->used)) best = q;
    }
    if (!best) return NULL;
    int64_t threads = best->threads < e->capacity ? best->threads : e->capacity;
    /* No call overtakes it: small calls must not starve large ones. */
    if (e->occupied && e->occupied + threads > e->capacity) return NULL;
    dlc_context *c = best->first;
    best->first = c->next, best->running++, e->occupied += threads;
    if (e->virtual_time < best->used) e->virtual_time = best->used;
    best->used += best->average; /* charged in advance, and corrected when the call ends */
    c->state = DLC__RUNNING;
    return c;
}

/* Ends a call whose deadline is over, without the lock during its callback; returns whether there was one. Sets `*first` to the
 * first deadline of the others. */
static int dlc__expire(dlc__executor *e, int64_t now, int64_t *first)
{
    *first = INT64_MAX;
    for (dlc__queue *q = e->queues; ; q = q->next) {
        for (dlc_context **list = q ? &q->first : &e->waiting, *c = *list; c; c = c->next) {
            if (c->deadline < *first) *first = c->deadline;
            if (c->deadline > now) continue;
            dlc__unlink(list, c);
            dlc__finish(e, c, DLC_DEADLINE);
            return 1;
        }
        if (!q) return 0;
    }
}

static void dlc__destroy_executor(dlc__executor *e)
{
    pthread_cond_destroy(&e->work);
    free(e->threads);
    free(e);
}

/* The main function of the threads that run calls. */
static void *dlc__run_calls(void *executor)
{
    dlc__executor *e = (dlc__executor *)executor;
    int64_t first;
    pthread_mutex_lock(&dlc__executor_lock);
    for (;;) {
        int64_t start = dlc__now();
        if (dlc__expire(e, start, &first)) continue;
        dlc_context *c = dlc__take(e);
        if (!c && e->ends) break;
        if (!c) {
            e->idle++;
            dlc__wait_until(&e->work, first);
            e->idle--;
            continue;
        }
        dlc__queue *queue = c->model->queue;
        int64_t threads = queue->threads < e->capacity ? queue->threads : e->capacity;
        int64_t capacity_time = e->capacity_time;
        int code = c->code;
        if (e->occupied < e->capacity && dlc__has_queued(e)) dlc__wake(e);
        pthread_mutex_unlock(&dlc__executor_lock);
        cpu_set_t previous;
        dlc__set_affinity(c->model->cpus, &previous);
        if (!code) code = dlc_run(c, c->inputs, c->outputs);
        if (c->model->cpus) dlc__set_affinity(&previous, NULL);
        int64_t end = dlc__now(), capacity = end - capacity_time > 1000000000 ? dlc__usable_cpus() : 0;
        pthread_mutex_lock(&dlc__executor_lock);
        double used = (double)(end - start) * (double)threads;
        e->occupied -= threads, queue->running--;
        queue->used += used - queue->average;
        queue->average = queue->average > 0 ? queue->average + (used - queue->average) / 4 : used;
        /* Arrays are allocated for the initial number of threads. */
        if (capacity) e->capacity = capacity < e->max_capacity ? capacity : e->max_capacity, e->capacity_time = end;
        dlc__finish(e, c, code);
    }
    pthread_mutex_unlock(&dlc__executor_lock);
    if (e->detached) dlc__destroy_executor(e);
    return NULL;
}

/* Returns whether a submitted call has not started. In a forked child, calls of the parent have ended. */
static int dlc__is_pending(dlc_context *c)
{
    if (c->state != DLC__IDLE && c->executor != dlc__shared_executor) c->state = DLC__IDLE, c->code = DLC_CANCELLED;
    return c->state == DLC__WAITING || c->state == DLC__QUEUED;
}

/* Returns the executor, after giving the model a queue in it; NULL if out of memory. */
static dlc__executor *dlc__join_executor(dlc_model *model)
{
    dlc__executor *e = dlc__shared_executor;
    if (!e) {
        pthread_condattr_t clock;
        int64_t capacity = dlc__usable_cpus();
        if (!(e = (dlc__executor *)calloc(1, sizeof *e))) return NULL;
        e->capacity = e->max_capacity = capacity, e->capacity_time = dlc__now();
        e->threads = (pthread_t *)calloc((size_t)capacity + 1, sizeof *e->threads);
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_cond_init(&e->work, &clock);
        pthread_condattr_destroy(&clock);
        if (!e->threads) return dlc__destroy_executor(e), (dlc__executor *)NULL;
        dlc__shared_executor = e;
    }
    dlc__queue *queue = e->queues;
    while (queue && queue != model->queue) queue = queue->next;
    if (queue) return e;
    /* In a forked child, the queue is that of the parent. */
    if (!model->queue) model->queue = (dlc__queue *)calloc(1, sizeof *model->queue);
    if (!(queue = model->queue)) return NULL;
    memset(queue, 0, sizeof *queue);
    queue->threads = model->options.threads, queue->streams = model->options.streams > 1 ? model->options.streams : 1;
    queue->used = e->virtual_time, queue->next = e->queues, e->queues = queue;
    return e;
}

/* Removes a model's queue, which is empty; the last one ends the threads. */
static void dlc__leave_executor(dlc_model *model)
{
    if (!model->queue) return;
    pthread_mutex_lock(&dlc__executor_lock);
    dlc__executor *e = dlc__shared_executor;
    dlc__queue **at = e ? &e->queues : NULL;
    while (at && *at && *at != model->queue) at = &(*at)->next;
    if (at && *at) *at = model->queue->next;
    int is_last = e && !e->queues;
    if (is_last) {
        e->ends = 1, dlc__shared_executor = NULL;
        pthread_cond_broadcast(&e->work);
    }
    pthread_mutex_unlock(&dlc__executor_lock);
    free(model->queue);
    if (!is_last) return;
    for (int64_t k = 0; k < e->thread_count; k++)
        /* In a callback, this is one of the threads: it cannot join itself, and destroys the executor after the callback. */
        if (pthread_equal(e->threads[k], pthread_self())) pthread_detach(e->threads[k]), is_last = 0;
        else pthread_join(e->threads[k], NULL);
    if (is_last) dlc__destroy_executor(e);
    else e->detached = 1;
}

/* Takes the context from its callback, if this is the thread that runs it. */
static int dlc__leave_callback(dlc_context *c)
{
    if (c->state != DLC__REPORTING || !c->resubmitted || !pthread_equal(c->reporter, pthread_self())) return 0;
    *c->resubmitted = 1, c->resubmitted = NULL, c->state = DLC__IDLE;
    pthread_cond_broadcast(&c->ended);
    return 1;
}

/* Prepares the end of a context: its callback is not called any more. Returns whether this is its callback. */
static int dlc__abandon(dlc_context *c)
{
    pthread_mutex_lock(&dlc__executor_lock);
    int is_callback = dlc__leave_callback(c);
    if (dlc__is_pending(c)) c->submission.done = NULL;
    pthread_mutex_unlock(&dlc__executor_lock);
    return is_callback;
}

int dlc_submit(dlc_context *c, const void *const *inputs, void **outputs, const dlc_submission *submission)
{
    static const dlc_submission none = {0, 0, NULL, 0, NULL, NULL};
    if (!c) return DLC_ARGUMENT;
    if (!submission) submission = &none;
    int32_t count = submission->after_count;
    if (count < 0 || (count && !submission->after)) return DLC_ARGUMENT;
    pthread_mutex_lock(&dlc__executor_lock);
    dlc__executor *e = dlc__join_executor((dlc_model *)(uintptr_t)c->model);
    int is_pending = dlc__is_pending(c), code = !e ? DLC_NO_MEMORY : is_pending ? DLC_BUSY : c->state == DLC__IDLE || dlc__leave_callback(c) ? DLC_OK : DLC_BUSY;
    if (!code && count > c->after_room) {
        dlc_context **after = (dlc_context **)realloc(c->after, (size_t)count * sizeof *after);
        if (after) c->after = after, c->after_room = count;
        else code = DLC_NO_MEMORY;
    }
    if (!code) {
        c->executor = e, c->submission = *submission, c->inputs = inputs, c->outputs = outputs, c->code = DLC_OK, c->after_count = 0;
        c->deadline = submission->deadline_ns > 0 ? dlc__time_after(submission->deadline_ns) : INT64_MAX;
        for (int32_t i = 0; i < count; i++) {
            dlc_context *a = submission->after[i];
            if (a->state != DLC__IDLE && a->state != DLC__REPORTING) c->after[c->after_count++] = a;
            else if (a->code && !c->code) c->code = a->code;
        }
        if (c->after_count) {
            c->state = DLC__WAITING, c->next = e->waiting, e->waiting = c;
            if (c->deadline != INT64_MAX) dlc__wake(e);
        } else dlc__enqueue(e, c);
        /* No thread: the call would wait forever. */
        if (!e->thread_count) {
            dlc__unlink(c->after_count ? &e->waiting : &c->model->queue->first, c);
            c->state = DLC__IDLE, code = DLC_SYSTEM;
        }
    }
    pthread_mutex_unlock(&dlc__executor_lock);
    return code;
}

int dlc_wait(dlc_context *c, int64_t nanoseconds)
{
    if (!c) return DLC_ARGUMENT;
    pthread_mutex_lock(&dlc__executor_lock);
    int64_t until = nanoseconds < 0 ? INT64_MAX : dlc__time_after(nanoseconds);
    dlc__is_pending(c);
    while (c->state != DLC__IDLE && (until == INT64_MAX || dlc__now() < until)) dlc__wait_until(&c->ended, until);
    int code = c->state == DLC__IDLE ? c->code : DLC_BUSY;
    pthread_mutex_unlock(&dlc__executor_lock);
    return code;
}

int dlc_cancel(dlc_context *c)
{
    if (!c) return DLC_ARGUMENT;
    pthread_mutex_lock(&dlc__executor_lock);
    dlc__executor *e = dlc__shared_executor;
    int code = DLC_BUSY;
    if (dlc__is_pending(c)) {
        dlc__unlink(c->state == DLC__WAITING ? &e->waiting : &c->model->queue->first, c);
        dlc__finish(e, c, DLC_CANCELLED);
        code = DLC_OK;
    }
    pthread_mutex_unlock(&dlc__executor_lock);
    return code;
}

void dlc_context_destroy(dlc_context *c)
{
    if (!c) return;
    const dlc_options *o = &c->model->options;
    if (!dlc__abandon(c)) dlc_cancel(c), dlc_wait(c, -1);
    pthread_cond_destroy(&c->ended);
    free(c->after);
    dlc__release(o, c->call.memory);
    dlc__release(o, c);
}

const char *dlc_message(const dlc_context *context) { return context ? context->message : "no context"; }

#ifdef __cplusplus
}
#endif
#endif /* DLC_IMPLEMENTATION */
