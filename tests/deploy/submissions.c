/* The program that test_submissions.py runs: MODE MODEL [MODEL]; models compute y = 2 x on x: f32[n]. Prints a message and returns
 * 1 if a result is wrong. */
#define DLC_IMPLEMENTATION
#include "dlc.h"
#include <dirent.h>

#ifndef ROUNDS
#define ROUNDS 200
#endif
enum { ELEMENTS = 4096, CONTEXTS = 8, CLIENTS = 4 };

static int failed(const char *text, int code)
{
    printf("%s: %s\n", text, dlc_error(code));
    exit(1);
}
#define CHECK(call) do { int code_ = (call); if (code_) failed(#call, code_); } while (0)
#define REQUIRE(condition) do { if (!(condition)) failed(#condition, 0); } while (0)

typedef struct {
    dlc_context *context;
    dlc_model *model;
    float x[ELEMENTS], y[ELEMENTS];
    const void *inputs[1];
    void *outputs[1];
    int ended, code, left; /* of the callback */
} call;

static void create(call *c, const dlc_model *model)
{
    memset(c, 0, sizeof *c);
    c->inputs[0] = c->x, c->outputs[0] = c->y;
    CHECK(dlc_context_create(model, NULL, &c->context));
}

static void fill(call *c, float value)
{
    for (int i = 0; i < ELEMENTS; i++) c->x[i] = value + (float)i, c->y[i] = -1;
}

static void check(const call *c)
{
    for (int i = 0; i < ELEMENTS; i++) REQUIRE(c->y[i] == 2 * c->x[i]);
}

static dlc_model *open_model(const char *path, int threads, int streams)
{
    dlc_model *model;
    dlc_options options;
    memset(&options, 0, sizeof options);
    options.threads = threads, options.streams = streams;
    CHECK(dlc_open(path, &options, &model));
    return model;
}

/* All calls of a model at once, repeatedly. */
static void results(dlc_model *model)
{
    static call calls[CONTEXTS];
    for (int k = 0; k < CONTEXTS; k++) create(calls + k, model);
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < CONTEXTS; k++) {
            fill(calls + k, (float)(round * CONTEXTS + k));
            /* The most distant deadline is none. */
            dlc_submission submission;
            memset(&submission, 0, sizeof submission);
            submission.deadline_ns = INT64_MAX;
            CHECK(dlc_submit(calls[k].context, calls[k].inputs, calls[k].outputs, k % 2 ? &submission : NULL));
        }
        for (int k = 0; k < CONTEXTS; k++) {
            CHECK(dlc_wait(calls[k].context, k % 3 ? -1 : INT64_MAX));
            check(calls + k);
        }
    }
    for (int k = 0; k < CONTEXTS; k++) dlc_context_destroy(calls[k].context);
}

/* A chain of calls, each of which reads the result of the previous one. */
static void chains(dlc_model *model)
{
    static call calls[CONTEXTS];
    for (int k = 0; k < CONTEXTS; k++) create(calls + k, model);
    for (int round = 0; round < ROUNDS; round++) {
        fill(calls, (float)round);
        for (int k = 0; k < CONTEXTS; k++) {
            dlc_submission submission;
            memset(&submission, 0, sizeof submission);
            submission.after = &calls[k ? k - 1 : 0].context, submission.after_count = k > 0;
            calls[k].inputs[0] = k ? calls[k - 1].y : calls[k].x;
            CHECK(dlc_submit(calls[k].context, calls[k].inputs, calls[k].outputs, &submission));
        }
        CHECK(dlc_wait(calls[CONTEXTS - 1].context, -1));
        for (int i = 0; i < ELEMENTS; i++) REQUIRE(calls[CONTEXTS - 1].y[i] == calls[0].x[i] * (1 << CONTEXTS));
    }
    for (int k = 0; k < CONTEXTS; k++) dlc_context_destroy(calls[k].context);
}

static void count(void *user, dlc_context *context, int code)
{
    call *c = (call *)user;
    REQUIRE(context == c->context && !code);
    check(c);
    if (c->left-- > 0) {
        dlc_submission submission;
        memset(&submission, 0, sizeof submission);
        submission.done = count, submission.user = c;
        fill(c, (float)c->left);
        CHECK(dlc_submit(context, c->inputs, c->outputs, &submission));
    } else __atomic_store_n(&c->ended, 1, __ATOMIC_RELEASE);
}

/* Callbacks that submit the next call of their context. */
static void callbacks(dlc_model *model)
{
    static call calls[CONTEXTS];
    for (int k = 0; k < CONTEXTS; k++) {
        create(calls + k, model);
        calls[k].left = ROUNDS;
    }
    for (int k = 0; k < CONTEXTS; k++) {
        dlc_submission submission;
        memset(&submission, 0, sizeof submission);
        submission.done = count, submission.user = calls + k;
        fill(calls + k, (float)k);
        CHECK(dlc_submit(calls[k].context, calls[k].inputs, calls[k].outputs, &submission));
    }
    for (int k = 0; k < CONTEXTS; k++) {
        CHECK(dlc_wait(calls[k].context, -1));
        REQUIRE(__atomic_load_n(&calls[k].ended, __ATOMIC_ACQUIRE) && calls[k].left == -1);
        dlc_context_destroy(calls[k].context);
    }
}

static void record(void *user, dlc_context *context, int code)
{
    call *c = (call *)user;
    (void)context;
    c->code = code;
    __atomic_add_fetch(&c->ended, 1, __ATOMIC_RELEASE);
}

static void *client(void *argument)
{
    dlc_model *model = (dlc_model *)argument;
    call *calls = (call *)calloc(CONTEXTS, sizeof *calls);
    unsigned seed = (unsigned)(uintptr_t)calls >> 4;
    for (int k = 0; k < CONTEXTS; k++) create(calls + k, model);
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < CONTEXTS; k++) {
            dlc_submission submission;
            memset(&submission, 0, sizeof submission);
            submission.priority = (int)(rand_r(&seed) % 3), submission.done = record, submission.user = calls + k;
            if (rand_r(&seed) % 4 == 0) submission.deadline_ns = 1 + rand_r(&seed) % 200000;
            if (k && rand_r(&seed) % 4 == 0) submission.after = &calls[k - 1].context, submission.after_count = 1;
            calls[k].ended = 0;
            fill(calls + k, (float)(round + k));
            CHECK(dlc_submit(calls[k].context, calls[k].inputs, calls[k].outputs, &submission));
            REQUIRE(dlc_submit(calls[k].context, calls[k].inputs, calls[k].outputs, NULL) != DLC_ARGUMENT);
            if (rand_r(&seed) % 5 == 0) dlc_cancel(calls[k].context);
        }
        for (int k = 0; k < CONTEXTS; k++) {
            int code = dlc_wait(calls[k].context, rand_r(&seed) % 2 ? -1 : 1000);
            if (code == DLC_BUSY) code = dlc_wait(calls[k].context, -1);
            REQUIRE(!code || code == DLC_CANCELLED || code == DLC_DEADLINE);
            if (!code) check(calls + k);
        }
    }
    /* Contexts are destroyed while their calls are queued. */
    for (int k = 0; k < CONTEXTS; k++) CHECK(dlc_submit(calls[k].context, calls[k].inputs, calls[k].outputs, NULL));
    for (int k = CONTEXTS; k--;) dlc_context_destroy(calls[k].context);
    free(calls);
    return NULL;
}

/* Several threads submit, cancel and wait at the same time, to two models. */
static void stress(dlc_model *model, dlc_model *other)
{
    pthread_t threads[CLIENTS];
    for (int k = 0; k < CLIENTS; k++) pthread_create(threads + k, NULL, client, k % 2 ? other : model);
    for (int k = 0; k < CLIENTS; k++) pthread_join(threads[k], NULL);
}

static int64_t nanoseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * (int64_t)1000000000 + time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Prints the median processor time of dlc_submit in nanoseconds. */
static void overhead(dlc_model *model)
{
    static call calls[CONTEXTS];
    static int64_t times[ROUNDS];
    for (int k = 0; k < CONTEXTS; k++) create(calls + k, model);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = nanoseconds();
        for (int k = 0; k < CONTEXTS; k++) dlc_submit(calls[k].context, calls[k].inputs, calls[k].outputs, NULL);
        times[round] = (nanoseconds() - start) / CONTEXTS;
        for (int k = 0; k < CONTEXTS; k++) CHECK(dlc_wait(calls[k].context, -1));
    }
    qsort(times, ROUNDS, sizeof *times, compare);
    printf("%lld\n", (long long)times[ROUNDS / 2]);
    for (int k = 0; k < CONTEXTS; k++) dlc_context_destroy(calls[k].context);
}

static int thread_count(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    int threads = 0;
    while (!threads && fgets(line, sizeof line, status))
        if (!strncmp(line, "Threads:", 8)) threads = atoi(line + 8);
    fclose(status);
    return threads;
}

static void close_model(void *user, dlc_context *context, int code)
{
    (void)context;
    call *c = (call *)user;
    REQUIRE(!code);
    check(c);
    dlc_context_destroy(c->context);
    dlc_close(c->model);
    __atomic_store_n(&c->ended, 1, __ATOMIC_RELEASE);
}

/* A callback that closes the last model, so that its own thread ends. */
static void closing(dlc_model *model)
{
    static call c;
    dlc_submission submission;
    memset(&submission, 0, sizeof submission);
    create(&c, model);
    fill(&c, 1);
    submission.done = close_model, submission.user = &c, c.model = model;
    CHECK(dlc_submit(c.context, c.inputs, c.outputs, &submission));
    while (!__atomic_load_n(&c.ended, __ATOMIC_ACQUIRE)) usleep(100);
    for (int k = 0; k < 10000 && thread_count() > 1 && !getenv("TOOL"); k++) usleep(1000);
}

/* Processors, huge pages and the memory limit of a model. */
static void placement(const char *path)
{
    dlc_options options;
    dlc_model *model;
    dlc_context *context;
    cpu_set_t mine, other;
    int32_t cpu = CPU_SETSIZE - 1, wrong = -1;
    sched_getaffinity(0, sizeof mine, &mine);
    while (!CPU_ISSET(cpu, &mine)) cpu--;
    memset(&options, 0, sizeof options);
    options.threads = 3, options.streams = 2, options.cpus = &cpu, options.cpu_count = 1, options.huge_pages = 1;
    CHECK(dlc_open(path, &options, &model));
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    int found = 0;
    while ((entry = readdir(tasks))) {
        int task = atoi(entry->d_name);
        if (task < 1 || task == getpid()) continue;
        sched_getaffinity(task, sizeof other, &other);
        REQUIRE(getenv("TOOL") || (CPU_COUNT(&other) == 1 && CPU_ISSET(cpu, &other)));
        found++;
    }
    closedir(tasks);
    REQUIRE(getenv("TOOL") || found == 4);
    results(model);
    sched_getaffinity(0, sizeof other, &other);
    REQUIRE(CPU_EQUAL(&mine, &other));
    dlc_close(model);
    options.threads = 0, options.memory_limit = 1;
    CHECK(dlc_open(path, &options, &model));
    REQUIRE(dlc_context_create(model, NULL, &context) == DLC_NO_MEMORY && !context);
    dlc_close(model);
    options.cpus = &wrong;
    REQUIRE(dlc_open(path, &options, &model) == DLC_ARGUMENT && !model);
}

int main(int argc, char **argv)
{
    int threads = argc > 4 ? atoi(argv[4]) : 1, streams = argc > 5 ? atoi(argv[5]) : 2;
    dlc_model *model = open_model(argv[2], threads, streams), *other = open_model(argv[3], 1, 1);
    if (!strcmp(argv[1], "results")) results(model);
    else if (!strcmp(argv[1], "chains")) chains(model);
    else if (!strcmp(argv[1], "callbacks")) callbacks(model);
    else if (!strcmp(argv[1], "stress")) stress(model, other);
    else if (!strcmp(argv[1], "closing")) closing(model), model = NULL;
    else if (!strcmp(argv[1], "placement")) dlc_close(model), dlc_close(other), placement(argv[2]), model = other = NULL;
    else overhead(model);
    dlc_close(model);
    dlc_close(other);
    /* No thread of the library is left. */
    REQUIRE(thread_count() == 1 || getenv("TOOL"));
    return 0;
}
