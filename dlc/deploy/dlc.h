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
 *     const void *inputs[] = {image};                        // in the model's order, row after row, aligned as their elements
 *     void *outputs[] = {scores};
 *     if (dlc_run(context, inputs, outputs)) puts(dlc_message(context));
 *     dlc_context_destroy(context);
 *     dlc_close(model);
 *
 * A model does not change: any number of threads use it, each call with a context of its own. dlc_run allocates nothing and
 * keeps the processor's rounding mode; its arrays do not overlap, and its thread has the 8 MiB of stack that Linux gives.
 * Models that ask for the same number of threads share one pool of them, which ends with the last of these models; a call that
 * finds the pool in use runs on its own thread alone, and results do not depend on that. A child process after a fork runs models on the calling thread alone until
 * it opens one itself. A file is mapped: processes share its weights; put another in its place by renaming. It holds machine
 * code: open what you would load as a library. What is checked (sizes, places, checksums) finds damage, not malice.
 *
 * A model that is compiled for the values or shapes of a call is a program for each that its file holds: `given` of dlc_options
 * says which to open. Where data decides how large outputs are, dlc_run says where they are: in the context's memory, which may
 * grow for it. What is not here: models that are compiled for each set of sizes that data decides, or with text, sequences or
 * optionals around them (DLC_SEVERAL_PROGRAMS, the message says which), nor models for an OpenCL device (DLC_PROCESSOR); run
 * them from Python.
 */
#ifndef DLC_H
#define DLC_H

#if defined(DLC_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* what Linux has beside C's and POSIX's */
#endif
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return; dlc_error says it in words. */
enum {
    DLC_OK = 0,
    DLC_SIZE = 1,             /* a size of the call is none of the model's */
    DLC_NO_MEMORY = 2,        /* no memory, or too little was given */
    DLC_DAMAGED = 3,          /* the file is not whole */
    DLC_NOT_A_MODEL = 4,      /* the file is not one of dlc's */
    DLC_VERSION = 5,          /* the file is of another version of dlc than this header */
    DLC_SEVERAL_PROGRAMS = 6, /* the model is more than one program, and none is for what is given */
    DLC_PROCESSOR = 7,        /* the processor lacks a feature, or the model is for another kind of device */
    DLC_ARGUMENT = 8,         /* an argument is missing or misaligned */
    DLC_SYSTEM = 9,           /* the system refused a file, memory or a thread */
    DLC_FAILED = 10           /* the model took a branch that fails, as its author meant it */
};

/* Element types, as ONNX numbers them. A bool is a byte, 0 or 1; numbers of fewer bits have a byte each, too. */
enum {
    DLC_FLOAT32 = 1, DLC_UINT8 = 2, DLC_INT8 = 3, DLC_UINT16 = 4, DLC_INT16 = 5, DLC_INT32 = 6, DLC_INT64 = 7, DLC_BOOL = 9,
    DLC_FLOAT16 = 10, DLC_FLOAT64 = 11, DLC_UINT32 = 12, DLC_UINT64 = 13, DLC_COMPLEX64 = 14, DLC_COMPLEX128 = 15,
    DLC_BFLOAT16 = 16, DLC_FLOAT8E4M3FN = 17, DLC_FLOAT8E4M3FNUZ = 18, DLC_FLOAT8E5M2 = 19, DLC_FLOAT8E5M2FNUZ = 20,
    DLC_UINT4 = 21, DLC_INT4 = 22, DLC_FLOAT4E2M1 = 23, DLC_FLOAT8E8M0 = 24, DLC_UINT2 = 25, DLC_INT2 = 26
};

/* What a model that is linked to a program is called with, without this file's implementation. */
#ifndef DLC_CALL
#define DLC_CALL
/* What a model is given that is several programs: the value of an input, where there are programs for values (they then have
   no such input), or its shape, where there are programs for shapes. */
typedef struct dlc_given {
    const char *name;
    const void *value;        /* or NULL */
    size_t bytes;             /* of the value */
    const int64_t *shape;     /* or NULL */
    int32_t rank;
} dlc_given;

typedef struct dlc_call {
    const void *const *inputs;
    void **outputs;           /* those of sizes that data decides are set: they lie in the memory */
    const int64_t *sizes;     /* in the model's order; NULL if it has none */
    void *memory;             /* at a multiple of 64; NULL: nothing is run, `needed` and `shapes` are answered */
    int64_t bytes;            /* of it; below 0: only `program` is answered */
    int64_t *shapes;          /* where the shapes of inputs and outputs go, one after the other; NULL: nowhere */
    void *pool;               /* dlc.h's; NULL: the calling thread alone */
    void (*parallel)(void *user, void (*task)(void *argument, int64_t), void *argument, int64_t tasks); /* or NULL */
    void *user;
    int64_t needed;           /* result: bytes of memory that the call takes; more than answered before, if data decides so */
    int64_t failed;           /* result: which operation on sizes failed */
    const void *program;      /* result: where the program lies */
    const dlc_given *given;   /* of a model that is several programs: what picks one */
    int64_t given_count;
    const char *unfit;        /* result: the name of the input that no program is for */
} dlc_call;
#endif

typedef struct dlc_model dlc_model;
typedef struct dlc_context dlc_context;

/* Runs task(argument, 0), ..., task(argument, tasks - 1), in any order and at once, and returns when all are done. */
typedef void dlc_parallel(void *user, void (*task)(void *argument, int64_t), void *argument, int64_t tasks);

typedef struct {
    int32_t threads;          /* of a call, its own included; 0: all usable processors, within the control group's quota */
    int32_t verify;           /* not 0: check the weights too, which reads all of them */
    dlc_parallel *parallel;   /* your pool, instead of threads; NULL: dlc's */
    void *(*allocate)(void *user, size_t bytes, size_t alignment); /* NULL, or both */
    void (*release)(void *user, void *memory);
    void *user;               /* handed to these three */
    char *message;            /* where dlc_open says what was wrong; NULL: nowhere */
    size_t message_bytes;
    const dlc_given *given;   /* of a model that is several programs: what picks one */
    int32_t given_count;
} dlc_options;

typedef struct {
    const char *name;
    int32_t dtype, rank;
    const int64_t *shape;     /* -1 for what a call's sizes decide, if they are not known */
    int64_t bytes;            /* of all elements; -1 if not known */
    int32_t element_bytes;
    int32_t optional;         /* an input that may be NULL: it has a default */
    int32_t over;             /* of an output: the input that it is written over, which is then written; else -1 */
    int32_t decided;          /* of an output: data decides its size. dlc_run sets outputs[i] to where it is in the context's
                                 memory until the next dlc_run or dlc_resize, and dlc_context_info says what it is then */
} dlc_tensor_info;

typedef struct {
    const char *name;
    int64_t low, high;        /* both included */
} dlc_size_info;

/* What is NULL and may not be is DLC_ARGUMENT, of all functions that return a code. */

/* Opens a file; or what a file holds, at a multiple of 64 bytes, which must stay there; or a model that is linked to the
   program (dlc_model_NAME of NAME.h). `options` may be NULL; strings and memory in it need not outlive the call. */
int dlc_open(const char *path, const dlc_options *options, dlc_model **model);
int dlc_open_memory(const void *memory, size_t bytes, const dlc_options *options, dlc_model **model);
int dlc_open_linked(int64_t (*linked)(dlc_call *), const dlc_options *options, dlc_model **model);
void dlc_close(dlc_model *model); /* after its contexts; NULL is fine */

/* How many inputs (outputs = 0) or outputs (outputs = 1) there are, what one is, and which is called so (-1: none). */
int32_t dlc_count(const dlc_model *model, int outputs);
int dlc_info(const dlc_model *model, int outputs, int32_t i, dlc_tensor_info *info);
int32_t dlc_find(const dlc_model *model, int outputs, const char *name);
/* The sizes that a call gives, such as a batch: how many, and what one is. */
int32_t dlc_size_count(const dlc_model *model);
int dlc_size(const dlc_model *model, int32_t i, dlc_size_info *info);

/* Memory for one call at a time with these sizes, in order; NULL if there are none, or dlc_resize is to give them. */
int dlc_context_create(const dlc_model *model, const int64_t *sizes, dlc_context **context);
/* Other sizes for the next calls; allocates only if these need more memory than any before. */
int dlc_resize(dlc_context *context, const int64_t *sizes);
/* As dlc_info, for the sizes of the context: bytes and shapes are known; those that data decides are of the last call. */
int dlc_context_info(const dlc_context *context, int outputs, int32_t i, dlc_tensor_info *info);
int dlc_run(dlc_context *context, const void *const *inputs, void **outputs);
void dlc_context_destroy(dlc_context *context); /* NULL is fine */

const char *dlc_message(const dlc_context *context); /* what was wrong with the last call of it that failed */
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
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The layout of programs and files; the same in image.py, container.py and call.ll of the compiler. */
enum { DLC__VERSION = 17, DLC__PAGE = 4096, DLC__ALIGNMENT = 64, DLC__MESSAGE = 256 };
enum { DLC__LARGE = 4 << 20, DLC__HUGE_PAGE = 2 << 20 };
enum { DLC__CONSTANT = 0, DLC__SIZE_OF_CALL = 1, DLC__FIT = 9, DLC__OPERATIONS = 10 };
enum { DLC__KEPT = -2 }; /* what an output is `over` that lies in the memory of a call */

typedef struct {
    unsigned char entry[16], magic[8];
    int64_t version, machine, bytes, checksum, name, features, code;
    int64_t slots, arena, inputs, outputs, tensors, dims, dim_count, operations, operation_count;
    int64_t arrays, weight_count, fills, fill_count, records, symbol_count, decisions, decision_count;
    int64_t record_words, array_count, symbols, failures, failure_count, places, place_count, text;
    int64_t kernels, kernel_count, entries, entry_count, code_bytes;
    int64_t runtime_bytes, call, pool_bytes, pool_init, pool_worker, pool_end, checksum_of;
} dlc__image;
typedef struct { int64_t name, dtype, element_bytes, rank, dims, otherwise, over; } dlc__tensor;
typedef struct { int64_t kind, a, b; } dlc__operation;
typedef struct { int64_t distance, bytes, checksum; } dlc__array;
typedef struct { int64_t name, low, high; } dlc__symbol;
typedef struct { int64_t slot, number, address; } dlc__fill;
typedef struct { int64_t message, first, count; } dlc__failure;
typedef struct { int64_t slot, offset; } dlc__place;
typedef struct { int64_t code, slot, offset, on; } dlc__decision;
typedef struct { char magic[8]; uint32_t version, checksum; uint64_t header; int64_t program; } dlc__prefix;
typedef struct {
    unsigned char entry[16], magic[8];
    int64_t version, bytes, checksum, part_count, conditions, condition_count;
} dlc__parts;
typedef struct { int64_t distance, checksum, first, count; } dlc__part;
typedef struct { int64_t name, is_value, where, count; } dlc__condition;

typedef int64_t dlc__call_function(dlc_call *, const dlc__image *, const char *);
typedef int64_t dlc__pool_bytes_function(void);
typedef void *dlc__worker(void *);
typedef void dlc__pool_end_function(void *);
typedef void dlc__pool_init_function(void *, int64_t, long (*)(long, ...), int (*)(void));
typedef uint32_t dlc__checksum_function(const void *, int64_t, uint32_t);

struct dlc_model {
    const dlc__image *image;  /* executable */
    const char *base;         /* where arrays count from */
    void *mapping, *copy;     /* of the file, and of the program in memory that was not executable */
    size_t mapping_bytes, copy_bytes;
    dlc_options options;
    struct dlc__pool *pool;   /* NULL: none */
    int64_t *shapes;          /* -1 for open sizes */
};

struct dlc_context {
    const dlc_model *model;
    dlc_call call;
    int64_t memory_bytes, *sizes;
    char message[DLC__MESSAGE];
};

const char *dlc_error(int code)
{
    static const char *const texts[] = {
        "success", "a size is none of the model's", "no memory", "the file is damaged", "not a model that dlc compiled",
        "the file is of another version of dlc than dlc.h", "the model is more than one program",
        "the processor lacks a feature", "an argument is missing or misaligned", "the system refused", "the model failed",
    };
    return code >= 0 && code <= DLC_FAILED ? texts[code] : "no code of dlc";
}

/* Notes what is wrong with opening a model, and is `code`. */
static int dlc__refuse(const dlc_options *options, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (options->message && options->message_bytes) vsnprintf(options->message, options->message_bytes, format, arguments);
    va_end(arguments);
    return code;
}

/* Notes what is wrong with a call, and is `code`. */
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
    if (bytes >= DLC__LARGE) alignment = DLC__HUGE_PAGE;
    if (posix_memalign(&memory, alignment, bytes ? bytes : 1)) return NULL;
    if (bytes >= DLC__LARGE) madvise(memory, bytes, MADV_HUGEPAGE); /* or not, if the system has none */
    return memory;
}

static void dlc__release(const dlc_options *options, void *memory)
{
    if (!memory) return;
    if (options->release) options->release(options->user, memory);
    else free(memory);
}

/* Programs are read */

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

/* Whether `count` rows of so many bytes, from `where` on, are between the header and `end`. */
static int dlc__within(int64_t where, int64_t count, int64_t row, int64_t end)
{
    return where >= (int64_t)sizeof(dlc__image) && where % 8 == 0 && count >= 0 && where <= end && count <= (end - where) / row;
}

static int dlc__is_text(const dlc__image *image, int64_t where) { return where >= 0 && where < image->code - image->text; }
static int dlc__is_code(const dlc__image *image, int64_t where)
{
    return where >= image->code && where < image->code + image->code_bytes;
}

/* Whether a record that is not the first begins so many bytes from it: one that is behind an end. */
static int dlc__is_record(const dlc__image *image, int64_t on)
{
    return on >= 16 && on % 8 == 0 && on / 8 < image->record_words;
}

/* Whether records are on slots that there are, their tasks in the program's code, and their jumps among themselves. */
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

/* Whether a program is whole, with arrays between `first` and `last`, counted from it. */
static int dlc__check_image(const dlc__image *image, int64_t first, int64_t last)
{
    int64_t end = image->code, n = image->operation_count;
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
    if (!dlc__within(image->tensors, tensors, sizeof(dlc__tensor), end) || !dlc__within(image->dims, image->dim_count, 8, end)
        || !dlc__within(image->operations, n, sizeof(dlc__operation), end) || n > 1 << 16
        || !dlc__within(image->arrays, image->array_count, sizeof(dlc__array), end)
        || !dlc__within(image->fills, image->fill_count, sizeof(dlc__fill), end)
        || !dlc__within(image->records, image->record_words, 8, end)
        || !dlc__within(image->symbols, image->symbol_count, sizeof(dlc__symbol), end)
        || !dlc__within(image->failures, image->failure_count, sizeof(dlc__failure), end)
        || !dlc__within(image->places, image->place_count, sizeof(dlc__place), end)
        || !dlc__within(image->decisions, image->decision_count, sizeof(dlc__decision), end)) return 0;
    if (image->weight_count < 0 || image->weight_count > image->array_count) return 0;
    if (image->slots > 1 << 28 || image->slots < 2 + tensors + image->weight_count) return 0;
    const int64_t code[] = {image->call, image->pool_bytes, image->pool_init, image->pool_worker, image->pool_end,
                            image->checksum_of};
    for (size_t i = 0; i < sizeof code / sizeof *code; i++)
        if (!dlc__is_code(image, code[i])) return 0;
    if (image->runtime_bytes < 0 || image->runtime_bytes > image->code_bytes || image->arena < 0 || image->arena >= n) return 0;
    if (!dlc__is_text(image, image->name) || !dlc__is_text(image, image->features)) return 0;
    for (int64_t i = 0; i < n; i++) {
        const dlc__operation *o = dlc__operations(image) + i;
        if (o->kind < 0 || o->kind >= DLC__OPERATIONS) return 0;
        if (o->kind == DLC__SIZE_OF_CALL && (o->a < 0 || o->a >= image->symbol_count + image->decision_count)) return 0;
        if (o->kind > DLC__SIZE_OF_CALL && (o->a < 0 || o->a >= i)) return 0;
        if (o->kind > DLC__SIZE_OF_CALL && o->kind < DLC__FIT && (o->b < 0 || o->b >= i)) return 0;
        if (o->kind == DLC__FIT && (o->b < -1 || o->b >= image->symbol_count)) return 0;
    }
    const int64_t *dims = (const int64_t *)dlc__at(image, image->dims);
    for (int64_t i = 0; i < image->dim_count; i++)
        if (dims[i] < 0 || dims[i] >= n) return 0;
    const dlc__array *arrays = (const dlc__array *)dlc__at(image, image->arrays);
    for (int64_t i = 0; i < image->array_count; i++)
        if (arrays[i].bytes < 0 || arrays[i].distance < first || arrays[i].distance > last
            || arrays[i].bytes > last - arrays[i].distance) return 0;
    for (int64_t i = 0; i < tensors; i++) {
        const dlc__tensor *t = dlc__tensors(image) + i;
        if (!dlc__is_text(image, t->name) || t->element_bytes < 1 || t->element_bytes > 64) return 0;
        if (t->dims < 0 || t->rank < 0 || t->rank > image->dim_count || t->dims > image->dim_count - t->rank) return 0;
        if (t->over < DLC__KEPT || t->over >= image->inputs || (t->over == DLC__KEPT && i < image->inputs)) return 0;
        int found = !t->otherwise;
        for (int64_t k = image->weight_count; k < image->array_count; k++) found |= arrays[k].distance == t->otherwise;
        if (!found) return 0;
    }
    const dlc__fill *fills = (const dlc__fill *)dlc__at(image, image->fills);
    for (int64_t i = 0; i < image->fill_count; i++)
        if (fills[i].slot < 0 || fills[i].slot >= image->slots || fills[i].number < 0 || fills[i].number >= n) return 0;
    const dlc__symbol *symbols = (const dlc__symbol *)dlc__at(image, image->symbols);
    for (int64_t i = 0; i < image->symbol_count; i++)
        if (!dlc__is_text(image, symbols[i].name)) return 0;
    const dlc__failure *failures = (const dlc__failure *)dlc__at(image, image->failures);
    for (int64_t i = 0; i < image->failure_count; i++)
        if (!dlc__is_text(image, failures[i].message) || failures[i].first < 0 || failures[i].count < 0
            || failures[i].first > image->place_count || failures[i].count > image->place_count - failures[i].first) return 0;
    const dlc__place *places = (const dlc__place *)dlc__at(image, image->places);
    for (int64_t i = 0; i < image->place_count; i++)
        if (places[i].slot < 0 || places[i].slot >= image->slots) return 0;
    const dlc__decision *decisions = (const dlc__decision *)dlc__at(image, image->decisions);
    for (int64_t i = 0; i < image->decision_count; i++)
        if (decisions[i].slot < 0 || decisions[i].slot >= image->slots || !dlc__is_record(image, decisions[i].on)) return 0;
    return dlc__check_records(image);
}

/* The processor: what it is as ELF files number it, and which features it has, in Linux's words. */

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

/* A feature that the processor lacks, in `lacking`; 0 if there is none. */
static int dlc__lacks(const char *features, char *lacking, size_t bytes)
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

/* Processors that a control group's limit at `folder` allows; `most` if there is none. */
static long dlc__quota(const char *folder, long most)
{
    static const char *const names[][2] = {{"cpu.max", NULL}, {"cpu.cfs_quota_us", "cpu.cfs_period_us"}};
    for (int v = 0; v < 2; v++) {
        long long values[2] = {0, 0};
        int known = 0;
        for (int k = 0; k < 2 && names[v][k]; k++) {
            char path[1100];
            snprintf(path, sizeof path, "%s/%s", folder, names[v][k]);
            FILE *file = fopen(path, "re");
            if (!file) break;
            known += v ? fscanf(file, "%lld", &values[k]) : fscanf(file, "%lld %lld", &values[0], &values[1]);
            fclose(file);
        }
        if (known == 2 && values[0] > 0 && values[1] > 0) {
            long allowed = (long)(values[0] / values[1]);
            return allowed < 1 ? 1 : allowed < most ? allowed : most;
        }
    }
    return most;
}

/* The processors of the thread's affinity mask, within the quota of its control groups; at least 1. */
static long dlc__usable(void)
{
    unsigned char mask[1024];
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask), most = 0;
    for (long i = 0; i < bytes; i++)
        for (int bit = 0; bit < 8; bit++) most += mask[i] >> bit & 1;
    char line[768], folder[1024];
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        /* number:controllers:path; no controllers in version 2. */
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        int version_2 = !controllers[1];
        if (!version_2 && !strstr(controllers, "cpu")) continue;
        /* In a container the path is often the host's, while the group is mounted at the root: every ancestor counts. */
        for (;;) {
            snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", version_2 ? "" : "/cpu", strcmp(path, "/") ? path : "");
            most = dlc__quota(folder, most);
            char *slash = strrchr(path, '/');
            if (!slash) break;
            *slash = 0;
        }
    }
    if (file) fclose(file);
    return most < 1 ? 1 : most;
}

/* Pools: threads run a copy of their code, which no model takes with it, until the last model that has them is closed. */

typedef struct dlc__pool {
    struct dlc__pool *next;
    int64_t models, threads;  /* models that have it; threads that a call has, its own included */
    int64_t started;          /* threads that there are */
    size_t bytes, state_bytes;
    char *code;               /* so many bytes */
    void *state;
    dlc__pool_end_function *end;
    pthread_t *workers;
} dlc__pool;
static dlc__pool *dlc__pools;
static pthread_mutex_t dlc__pools_lock = PTHREAD_MUTEX_INITIALIZER;

static void dlc__before_fork(void) { pthread_mutex_lock(&dlc__pools_lock); }
static void dlc__after_fork(void) { pthread_mutex_unlock(&dlc__pools_lock); }
/* A child has none of its parent's threads. */
static void dlc__in_child(void)
{
    for (dlc__pool *pool = dlc__pools; pool; pool = pool->next) pool->started = 0;
    dlc__pools = NULL;
    pthread_mutex_unlock(&dlc__pools_lock);
}
static void dlc__at_fork(void) { pthread_atfork(dlc__before_fork, dlc__after_fork, dlc__in_child); }

/* Memory of the system's; executable if it is to be a copy of `code`. NULL if the system refuses. */
static void *dlc__mapped(const void *code, size_t bytes)
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

/* Ends a pool that no model has. */
static void dlc__end_pool(dlc__pool *pool)
{
    if (pool->started) pool->end(pool->state);
    for (int64_t k = 0; k < pool->started; k++) pthread_join(pool->workers[k], NULL);
    if (pool->code) munmap(pool->code, pool->bytes);
    if (pool->state) munmap(pool->state, pool->state_bytes);
    free(pool);
}

static dlc__pool *dlc__start_pool(const dlc__image *image, int64_t threads)
{
    dlc__pool *pool = (dlc__pool *)calloc(1, sizeof *pool + (size_t)threads * sizeof *pool->workers);
    pthread_attr_t attributes;
    sigset_t blocked, before;
    if (!pool) return NULL;
    pool->threads = threads, pool->workers = (pthread_t *)(void *)(pool + 1);
    pool->bytes = (size_t)image->runtime_bytes;
    pool->code = (char *)dlc__mapped(dlc__at(image, image->code), pool->bytes);
    pool->state_bytes = (size_t)DLC__FUNCTION(dlc__pool_bytes_function, dlc__at(image, image->pool_bytes))();
    pool->state = dlc__mapped(NULL, pool->state_bytes);
    if (!pool->code || !pool->state) return dlc__end_pool(pool), (dlc__pool *)NULL;
    DLC__FUNCTION(dlc__pool_init_function, pool->code + (image->pool_init - image->code))(pool->state, threads, syscall, sched_getcpu);
    dlc__worker *worker = DLC__FUNCTION(dlc__worker, pool->code + (image->pool_worker - image->code));
    pool->end = DLC__FUNCTION(dlc__pool_end_function, pool->code + (image->pool_end - image->code));
    /* Signals are for the program's own threads; faults are not blocked. */
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV), sigdelset(&blocked, SIGBUS), sigdelset(&blocked, SIGILL), sigdelset(&blocked, SIGFPE);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 8 << 20); /* kernels keep their tiles there */
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    while (pool->started < threads - 1 && !pthread_create(pool->workers + pool->started, &attributes, worker, pool->state))
        pool->started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (pool->started < threads - 1) return dlc__end_pool(pool), (dlc__pool *)NULL;
    return pool;
}

/* This process's pool of so many threads; NULL if the system refuses one. */
static dlc__pool *dlc__pool_of(const dlc__image *image, int64_t threads)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const void *runtime = dlc__at(image, image->code);
    pthread_once(&once, dlc__at_fork);
    pthread_mutex_lock(&dlc__pools_lock);
    dlc__pool *pool = dlc__pools;
    while (pool && (pool->threads != threads || pool->bytes != (size_t)image->runtime_bytes
                    || memcmp(pool->code, runtime, pool->bytes))) pool = pool->next;
    if (!pool && (pool = dlc__start_pool(image, threads))) pool->next = dlc__pools, dlc__pools = pool;
    if (pool) pool->models++;
    pthread_mutex_unlock(&dlc__pools_lock);
    return pool;
}

/* A model is closed that has the pool. */
static void dlc__leave_pool(dlc__pool *pool)
{
    pthread_mutex_lock(&dlc__pools_lock);
    int64_t models = --pool->models;
    dlc__pool **at = &dlc__pools;
    while (*at && *at != pool) at = &(*at)->next;
    if (!models && *at) *at = pool->next;
    pthread_mutex_unlock(&dlc__pools_lock);
    if (!models) dlc__end_pool(pool);
}

/* Models */

/* Whether a list of programs is whole. */
static int dlc__check_parts(const dlc__parts *list, int64_t first, int64_t last)
{
    dlc__parts head;
    if (list->bytes < (int64_t)sizeof head || list->bytes > last || list->bytes % 8) return 0;
    memcpy(&head, list, sizeof head);
    head.checksum = 0;
    uint32_t sum = dlc__crc32(0, (const unsigned char *)&head, sizeof head);
    if (dlc__crc32(sum, (const unsigned char *)(list + 1), (size_t)list->bytes - sizeof head) != (uint64_t)list->checksum) return 0;
    int64_t end = list->bytes, rows = (int64_t)sizeof head, n = list->part_count, m = list->condition_count;
    if (n < 0 || n > (end - rows) / (int64_t)sizeof(dlc__part) || list->conditions != rows + n * (int64_t)sizeof(dlc__part)
        || m < 0 || m > (end - list->conditions) / (int64_t)sizeof(dlc__condition)) return 0;
    const dlc__part *parts = (const dlc__part *)(const void *)(list + 1);
    for (int64_t i = 0; i < n; i++)
        if (parts[i].distance < first || parts[i].distance >= 0 || parts[i].distance % DLC__PAGE || parts[i].first < 0
            || parts[i].count < 0 || parts[i].first > m || parts[i].count > m - parts[i].first) return 0;
    const dlc__condition *c = (const dlc__condition *)(const void *)(parts + n);
    for (int64_t i = 0; i < m; i++) {
        int64_t size = c[i].is_value ? 1 : 8;
        if (c[i].where < rows || c[i].where % 8 || c[i].where > end || c[i].count < 0 || c[i].count > (end - c[i].where) / size
            || c[i].name < rows || c[i].name >= end || !memchr((const char *)list + c[i].name, 0, (size_t)(end - c[i].name)))
            return 0;
    }
    return 1;
}

/* Whether a condition holds of what is given. */
static int dlc__holds(const dlc_options *o, const dlc__parts *list, const dlc__condition *c)
{
    const char *name = (const char *)list + c->name;
    const void *wanted = (const char *)list + c->where;
    for (int32_t k = 0; k < o->given_count; k++) {
        const dlc_given *g = o->given + k;
        if (!g->name || strcmp(g->name, name)) continue;
        if (c->is_value) return g->value && g->bytes == (size_t)c->count && !memcmp(g->value, wanted, g->bytes);
        return (g->shape || !g->rank) && g->rank == c->count && !(g->rank && memcmp(g->shape, wanted, (size_t)g->rank * 8));
    }
    return 0;
}

/* Refuses to pick a program: says what of the call none is for, by the program of which most conditions hold. */
static int dlc__refuse_parts(const dlc_options *o, const dlc__parts *list, const dlc__condition *all)
{
    const dlc__part *part = (const dlc__part *)(const void *)(list + 1);
    const dlc__condition *unfit = NULL;
    int32_t held = -1, k, is_given = 0;
    for (int64_t i = 0; i < list->part_count; i++, part++) {
        for (k = 0; k < part->count && dlc__holds(o, list, all + part->first + k);) k++;
        if (k > held) held = k, unfit = all + part->first + k;
    }
    if (!unfit) return dlc__refuse(o, DLC_SEVERAL_PROGRAMS, "no program");
    const char *name = (const char *)list + unfit->name;
    for (k = 0; k < o->given_count; k++) is_given |= o->given[k].name && !strcmp(o->given[k].name, name);
    return dlc__refuse(o, DLC_SEVERAL_PROGRAMS, "%lld programs, by the %s of %s: %s", (long long)list->part_count,
                     unfit->is_value ? "value" : "shape", name,
                     is_given ? "none is for what `given` of dlc_options says" : "`given` of dlc_options is to say it");
}

/* Finds the program for what is given, in lists of them: its block in `*image`, with what its arrays lie between. */
static int dlc__pick(const dlc_options *o, const dlc__image **image, int64_t *first, int64_t *last)
{
    if (o->given_count > 0 && !o->given) return dlc__refuse(o, DLC_ARGUMENT, "given_count, and no given");
    while (*last >= (int64_t)sizeof(dlc__parts) && !memcmp((*image)->magic, "dlcparts", 8)) {
        const dlc__parts *list = (const dlc__parts *)(const void *)*image;
        const dlc__part *part = (const dlc__part *)(const void *)(list + 1);
        if (list->version != DLC__VERSION)
            return dlc__refuse(o, DLC_VERSION, "written in format %lld, this dlc.h reads %d", (long long)list->version, DLC__VERSION);
        if (!dlc__check_parts(list, *first, *last))
            return dlc__refuse(o, DLC_DAMAGED, "damaged: copy or compile the model again");
        const dlc__condition *c = (const dlc__condition *)(const void *)(part + list->part_count);
        int64_t i = 0, k = 0;
        for (; i < list->part_count; i++, part++) {
            for (k = 0; k < part->count && dlc__holds(o, list, c + part->first + k);) k++;
            if (k == part->count) break;
        }
        if (i == list->part_count) return dlc__refuse_parts(o, list, c);
        /* Each lies before its list, so that this ends. */
        *image = (const dlc__image *)(const void *)((const char *)list + part->distance);
        *first -= part->distance, *last -= part->distance;
    }
    return DLC_OK;
}

/* Makes a model of a program whose arrays are between `first` and `last` bytes from it. */
static int dlc__open(dlc_model *model, const dlc__image *image, int64_t first, int64_t last, int executable)
{
    dlc_options *o = &model->options;
    char lacking[64];
    int picked = dlc__pick(o, &image, &first, &last);
    if (picked) return picked;
    if (last < (int64_t)sizeof *image || memcmp(image->magic, "dlcimage", 8))
        return dlc__refuse(o, DLC_NOT_A_MODEL, "not a model that dlc compiled");
    if (image->version != DLC__VERSION)
        return dlc__refuse(o, DLC_VERSION, "written in format %lld, this dlc.h reads %d: compile the "
                         "model again, or take the dlc.h of that dlc", (long long)image->version, DLC__VERSION);
    if (image->machine != DLC__MACHINE)
        return dlc__refuse(o, DLC_PROCESSOR, "compiled for another kind of processor (machine %lld of ELF files, this is %d): "
                         "compile the model for this one, such as --target cpu:aarch64", (long long)image->machine, DLC__MACHINE);
    if (!dlc__check_image(image, first, last))
        return dlc__refuse(o, DLC_DAMAGED, "damaged: copy or compile the model again");
    if (dlc__lacks(dlc__text(image, image->features), lacking, sizeof lacking))
        return dlc__refuse(o, DLC_PROCESSOR, "compiled for a processor with %s, which this one lacks: "
                         "compile the model for target cpu:generic", lacking);
    model->base = (const char *)image;
    if (!executable) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uintptr_t start = (uintptr_t)image / page * page, end = (uintptr_t)image + (size_t)image->bytes;
        /* A file's pages, which all processes share; where the system does not allow that, a copy. */
        if (!model->mapping || mprotect((void *)start, end - start, PROT_READ | PROT_EXEC)) {
            model->copy_bytes = (size_t)image->bytes;
            if (!(model->copy = dlc__mapped(image, model->copy_bytes)))
                return dlc__refuse(o, DLC_SYSTEM, "executable memory: %s", strerror(errno));
            image = (const dlc__image *)model->copy;
        }
    }
    model->image = image;
    const dlc__array *arrays = (const dlc__array *)dlc__at(image, image->arrays);
    dlc__checksum_function *sum = DLC__FUNCTION(dlc__checksum_function, dlc__at(image, image->checksum_of));
    for (int64_t i = 0; o->verify && i < image->array_count; i++)
        if (sum(model->base + arrays[i].distance, arrays[i].bytes, 0) != (uint64_t)arrays[i].checksum)
            return dlc__refuse(o, DLC_DAMAGED, "damaged: weight %lld", (long long)i);
    model->shapes = (int64_t *)dlc__allocate(o, (size_t)image->dim_count * 8, 8);
    if (!model->shapes) return dlc__refuse(o, DLC_NO_MEMORY, "no memory");
    const int64_t *dims = (const int64_t *)dlc__at(image, image->dims);
    for (int64_t i = 0; i < image->dim_count; i++) {
        const dlc__operation *made = dlc__operations(image) + dims[i];
        model->shapes[i] = made->kind == DLC__CONSTANT ? made->a : -1;
    }
    int64_t threads = o->threads > 0 ? o->threads : o->parallel ? 1 : dlc__usable();
    /* No system has more processors. */
    if (!o->parallel && threads > 8192)
        return dlc__refuse(o, DLC_ARGUMENT, "%lld threads: there may be up to 8192", (long long)threads);
    if (!o->parallel && threads > 1 && !(model->pool = dlc__pool_of(image, threads)))
        return dlc__refuse(o, DLC_SYSTEM, "%lld threads: the system refuses to start them",
                         (long long)threads);
    o->message = NULL, o->given = NULL; /* the caller's, for this call only */
    return DLC_OK;
}

/* An empty model in `*result`, if it can be. */
static int dlc__new_model(const dlc_options *options, dlc_model **result)
{
    dlc_options none;
    memset(&none, 0, sizeof none);
    if (!options) options = &none;
    if (options->message && options->message_bytes) options->message[0] = 0;
    if (!result) return dlc__refuse(options, DLC_ARGUMENT, "no place for the model");
    *result = NULL;
    if (!options->allocate != !options->release)
        return dlc__refuse(options, DLC_ARGUMENT, "one of `allocate` and `release` alone: give both, or none");
    dlc_model *model = (dlc_model *)dlc__allocate(options, sizeof *model, 16);
    if (!model) return dlc__refuse(options, DLC_NO_MEMORY, "no memory");
    memset(model, 0, sizeof *model);
    model->options = *options;
    *result = model;
    return DLC_OK;
}

static int dlc__opened(dlc_model *model, int code, dlc_model **result)
{
    if (code) dlc_close(model);
    *result = code ? NULL : model;
    return code;
}

/* Puts the file's name before what was noted. */
static void dlc__name_file(const dlc_options *options, const char *path)
{
    if (!options->message || !options->message_bytes) return;
    size_t used = strlen(options->message), name = strlen(path) + 2;
    if (used + name >= options->message_bytes) return;
    memmove(options->message + name, options->message, used + 1);
    memcpy(options->message, path, name - 2);
    memcpy(options->message + name - 2, ": ", 2);
}

/* Opens what a file holds. */
static int dlc__open_content(dlc_model *model, const void *memory, size_t bytes)
{
    const dlc_options *o = &model->options;
    dlc__prefix prefix;
    if (bytes < sizeof prefix || memcmp(memory, "dlcmodel", 8))
        return dlc__refuse(o, DLC_NOT_A_MODEL, "not a model that dlc compiled");
    memcpy(&prefix, memory, sizeof prefix);
    if (prefix.version != DLC__VERSION)
        return dlc__refuse(o, DLC_VERSION, "written in format %u, this dlc.h reads %d: compile the model "
                         "again, or take the dlc.h of that dlc", prefix.version, DLC__VERSION);
    if (prefix.program == -3)
        return dlc__refuse(o, DLC_PROCESSOR, "its kernels are OpenCL C, for a device, which only Python runs: compile the model "
                         "for target cpu");
    if (prefix.program < 0 && prefix.program >= -2) {
        static const char *const reasons[] = {
            "it is several programs, for sizes that data decides, of which only Python knows the one to run",
            "it takes or returns text, sequences or optionals, which only Python makes tensors of",
        };
        return dlc__refuse(o, DLC_SEVERAL_PROGRAMS, "%s", reasons[-prefix.program - 1]);
    }
    size_t start = sizeof prefix + (size_t)prefix.header;
    if (prefix.header > bytes - sizeof prefix || start > SIZE_MAX - DLC__PAGE)
        return dlc__refuse(o, DLC_DAMAGED, "damaged: a header beyond the end of the file");
    start = (start + DLC__PAGE - 1) / DLC__PAGE * DLC__PAGE;
    if (start > bytes || (uint64_t)prefix.program > bytes - start || prefix.program % DLC__PAGE)
        return dlc__refuse(o, DLC_DAMAGED, "damaged: the program is beyond the end of the file");
    size_t at = start + (size_t)prefix.program;
    return dlc__open(model, (const dlc__image *)((const char *)memory + at), -(int64_t)at, (int64_t)(bytes - at), 0);
}

int dlc_open(const char *path, const dlc_options *options, dlc_model **result)
{
    struct stat status;
    int code = dlc__new_model(options, result);
    if (code) return code;
    dlc_model *model = *result;
    dlc_options *o = &model->options;
    if (!path) return dlc__opened(model, dlc__refuse(o, DLC_ARGUMENT, "no path"), result);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status)) code = dlc__refuse(o, DLC_SYSTEM, "%s", strerror(errno));
    else if (!S_ISREG(status.st_mode) || status.st_size < 1)
        code = dlc__refuse(o, DLC_NOT_A_MODEL, "not a model that dlc compiled");
    else {
        void *mapping = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (mapping == MAP_FAILED) code = dlc__refuse(o, DLC_SYSTEM, "%s", strerror(errno));
        else model->mapping = mapping, model->mapping_bytes = (size_t)status.st_size;
    }
    if (file >= 0) close(file);
    if (!code) code = dlc__open_content(model, model->mapping, model->mapping_bytes);
    if (code) dlc__name_file(o, path);
    return dlc__opened(model, code, result);
}

int dlc_open_memory(const void *memory, size_t bytes, const dlc_options *options, dlc_model **result)
{
    int code = dlc__new_model(options, result);
    if (code) return code;
    dlc_model *model = *result;
    const dlc_options *o = &model->options;
    if (!memory || (uintptr_t)memory % DLC__ALIGNMENT)
        return dlc__opened(model, dlc__refuse(o, DLC_ARGUMENT, "memory that begins at no multiple of 64"), result);
    return dlc__opened(model, dlc__open_content(model, memory, bytes), result);
}

int dlc_open_linked(int64_t (*linked)(dlc_call *), const dlc_options *options, dlc_model **result)
{
    int code = dlc__new_model(options, result);
    if (code) return code;
    dlc_model *model = *result;
    if (!linked) return dlc__opened(model, dlc__refuse(&model->options, DLC_ARGUMENT, "no function"), result);
    /* The function's address may be that of a stub in the program's own file. */
    dlc_call call;
    memset(&call, 0, sizeof call);
    call.bytes = -1;
    linked(&call);
    /* Nothing says where a program's memory begins and ends. */
    return dlc__opened(model, dlc__open(model, (const dlc__image *)call.program, INT64_MIN / 2, INT64_MAX / 2, 1), result);
}

void dlc_close(dlc_model *model)
{
    if (!model) return;
    dlc_options options = model->options;
    if (model->pool) dlc__leave_pool(model->pool);
    if (model->mapping) munmap(model->mapping, model->mapping_bytes);
    if (model->copy) munmap(model->copy, model->copy_bytes);
    dlc__release(&options, model->shapes);
    dlc__release(&options, model);
}

int32_t dlc_count(const dlc_model *model, int outputs)
{
    return model ? (int32_t)(outputs ? model->image->outputs : model->image->inputs) : 0;
}

/* What tensor `i` is with these shapes of all. */
static int dlc__info(const dlc_model *model, const int64_t *shapes, int outputs, int32_t i, dlc_tensor_info *info)
{
    if (!info || i < 0 || i >= dlc_count(model, outputs)) return DLC_ARGUMENT;
    const dlc__tensor *t = dlc__tensors(model->image) + i + (outputs ? model->image->inputs : 0);
    info->name = dlc__text(model->image, t->name);
    info->dtype = (int32_t)t->dtype, info->rank = (int32_t)t->rank, info->element_bytes = (int32_t)t->element_bytes;
    info->shape = shapes + t->dims, info->optional = t->otherwise != 0, info->decided = t->over == DLC__KEPT;
    info->over = info->decided ? -1 : (int32_t)t->over;
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

/* The model's own failure `k`, with the numbers in its message where its last {} are. */
static int dlc__failure_of(dlc_context *c, int64_t k)
{
    const dlc__image *image = c->model->image;
    if (k >= image->failure_count) return dlc__fail(c, DLC_DAMAGED, "damaged: an unknown failure");
    const dlc__failure *failure = (const dlc__failure *)dlc__at(image, image->failures) + k;
    const dlc__place *places = (const dlc__place *)dlc__at(image, image->places) + failure->first;
    const char *text = dlc__text(image, failure->message), *at;
    int64_t holes = 0, i = 0;
    size_t used = 0;
    for (at = text; (at = strstr(at, "{}")); at += 2) holes++;
    for (; *text && used + 24 < DLC__MESSAGE; text++) {
        if (strncmp(text, "{}", 2) || holes-- > failure->count) {
            c->message[used++] = *text;
            continue;
        }
        const char *slot = *((const char *const *)c->call.memory + places[i].slot);
        int64_t number;
        memcpy(&number, slot + places[i++].offset, sizeof number);
        used += (size_t)snprintf(c->message + used, 24, "%lld", (long long)number);
        text++;
    }
    c->message[used] = 0;
    return DLC_FAILED;
}

/* Calls the program; what it ends with in words. */
static int dlc__call(dlc_context *c)
{
    const dlc__image *image = c->model->image;
    int64_t code = DLC__FUNCTION(dlc__call_function, dlc__at(image, image->call))(&c->call, image, c->model->base);
    if (code == DLC_OK) return DLC_OK;
    if (code < 0) return dlc__failure_of(c, -code - 1);
    if (code == DLC_SIZE) {
        const dlc__operation *o = dlc__operations(image) + c->call.failed;
        dlc_size_info size;
        if (o->kind == DLC__FIT && o->b >= 0 && !dlc_size(c->model, (int32_t)o->b, &size))
            return dlc__fail(c, DLC_SIZE, "size %s is %lld, not in %lld..%lld", size.name,
                             (long long)c->sizes[o->b], (long long)size.low, (long long)size.high);
    }
    return dlc__fail(c, (int)code, "%s", dlc_error((int)code));
}

/* Memory for what the last call needed. */
static int dlc__make_room(dlc_context *c)
{
    void *memory = c->call.memory;
    /* One that grows is made larger than that, so that it does not grow in each call. */
    int64_t bytes = memory && c->call.needed < c->memory_bytes / 2 * 3 ? c->memory_bytes / 2 * 3 : c->call.needed;
    dlc__release(&c->model->options, memory);
    c->call.memory = dlc__allocate(&c->model->options, (size_t)bytes, DLC__ALIGNMENT);
    c->call.bytes = c->memory_bytes = c->call.memory ? bytes : 0;
    return c->call.memory ? DLC_OK : dlc__fail(c, DLC_NO_MEMORY, "no memory for %lld bytes", (long long)bytes);
}

int dlc_resize(dlc_context *c, const int64_t *sizes)
{
    if (!c) return DLC_ARGUMENT;
    int32_t count = dlc_size_count(c->model);
    if (count && !sizes) return dlc__fail(c, DLC_ARGUMENT, "the model has %d open sizes, none given", count);
    for (int32_t i = 0; i < count; i++) c->sizes[i] = sizes[i];
    void *memory = c->call.memory;
    c->call.memory = NULL;
    int code = dlc__call(c);
    c->call.memory = memory;
    return code || (memory && c->call.needed <= c->memory_bytes) ? code : dlc__make_room(c);
}

int dlc_context_create(const dlc_model *model, const int64_t *sizes, dlc_context **result)
{
    if (result) *result = NULL;
    if (!result || !model) return DLC_ARGUMENT;
    const dlc_options *o = &model->options;
    size_t shapes = (size_t)model->image->dim_count * 8;
    /* Sizes and shapes lie behind it. */
    dlc_context *c = (dlc_context *)dlc__allocate(o, sizeof *c + shapes + (size_t)model->image->symbol_count * 8, 16);
    if (!c) return DLC_NO_MEMORY;
    memset(c, 0, sizeof *c);
    c->model = model;
    c->call.shapes = (int64_t *)(c + 1);
    c->call.sizes = c->sizes = c->call.shapes + model->image->dim_count;
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

/* Whether pointers are there, and aligned as the kernels rely on. */
static int dlc__check_given(dlc_context *c, int outputs, const void *const *given)
{
    dlc_tensor_info info;
    for (int32_t i = 0; i < dlc_count(c->model, outputs); i++) {
        dlc_context_info(c, outputs, i, &info);
        if (outputs && info.decided && given) continue;
        if (outputs && info.over >= 0) {
            if (c->call.inputs[info.over]) continue;
            return dlc__fail(c, DLC_ARGUMENT, "output %s is written over an input, which is missing", info.name);
        }
        if (!given || (!given[i] && info.bytes && !info.optional))
            return dlc__fail(c, DLC_ARGUMENT, "%s %s is missing", outputs ? "output" : "input", info.name);
        if ((uintptr_t)given[i] % (uintptr_t)info.element_bytes)
            return dlc__fail(c, DLC_ARGUMENT, "%s %s is at no multiple of %d bytes",
                             outputs ? "output" : "input", info.name, (int)info.element_bytes);
    }
    return DLC_OK;
}

int dlc_run(dlc_context *c, const void *const *inputs, void **outputs)
{
    if (!c) return DLC_ARGUMENT;
    if (!c->call.memory) return dlc__fail(c, DLC_ARGUMENT, "no sizes yet: dlc_resize gives them");
    c->call.inputs = inputs, c->call.outputs = outputs;
    int code = dlc__check_given(c, 0, inputs);
    if (!code) code = dlc__check_given(c, 1, (const void *const *)outputs);
    if (code) return code;
    /* Where data decides sizes, it may take more memory than any call before; a call begins again then. */
    while ((code = dlc__call(c)) == DLC_NO_MEMORY && c->call.needed > c->memory_bytes)
        if ((code = dlc__make_room(c))) return code;
    return code;
}

void dlc_context_destroy(dlc_context *c)
{
    if (!c) return;
    const dlc_options *o = &c->model->options;
    dlc__release(o, c->call.memory);
    dlc__release(o, c);
}

const char *dlc_message(const dlc_context *context) { return context ? context->message : "no context"; }

#ifdef __cplusplus
}
#endif
#endif /* DLC_IMPLEMENTATION */
