/* The program that test_header.py runs: MODE MODEL...; inputs and outputs are files; an error is a message and status 1. */
#define DLC_IMPLEMENTATION
#include "dlc.h"
#include <sys/wait.h>

static int64_t allocations;

static void *counted(void *user, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return posix_memalign(&memory, alignment < 16 ? 16 : alignment, bytes + 1) ? NULL : memory;
}

static void released(void *user, void *memory)
{
    (void)user;
    free(memory);
}

/* A custom thread pool: one thread, which runs the tasks in reverse order. */
static void backwards(void *user, void (*task)(void *, int64_t), void *argument, int64_t tasks)
{
    (void)user;
    while (tasks--) task(argument, tasks);
}

static void *content(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    void *memory = counted(NULL, *bytes + 64, 64);
    if (fread(memory, 1, *bytes, file) != *bytes) memory = NULL;
    fclose(file);
    return memory;
}

static int failed(const char *what)
{
    printf("%s\n", what);
    return 1;
}

/* Parses a selector: NAME=FILE for the value of an input, or NAME:N,N for its shape. */
static dlc_selector parse_selector(char *text)
{
    static int64_t shapes[8][4];
    static int used;
    dlc_selector selector = {0};
    char *at = text + strcspn(text, "=:"), kind = *at;
    *at++ = 0;
    selector.name = text;
    if (kind == '=') selector.value = content(at, &selector.bytes);
    else for (selector.shape = shapes[used]; *at; at += *at == ',') shapes[used][selector.rank++] = strtoll(at, &at, 10);
    used += kind == ':';
    return selector;
}

/* Collectives of a rank that never communicates. */
static int combine_nothing(void *user, const dlc_group *group, const void *x, void *y, int64_t count, int32_t dtype, int32_t combine)
{
    (void)user, (void)group, (void)x, (void)y, (void)count, (void)dtype, (void)combine;
    return 1;
}

static int move_nothing(void *user, const dlc_group *group, const void *x, void *y, int64_t bytes)
{
    (void)user, (void)group, (void)x, (void)y, (void)bytes;
    return 1;
}

static int permute_nothing(void *user, const dlc_group *group, const void *x, void *y, int64_t bytes, int32_t target, int32_t source)
{
    (void)user, (void)group, (void)x, (void)y, (void)bytes, (void)target, (void)source;
    return 1;
}

static const dlc_collectives unconnected = {3, 4, NULL, combine_nothing, combine_nothing, move_nothing, move_nothing, permute_nothing};

/* run|memory|pool MODEL THREADS OUTPUT INPUT... [-- SIZE...] [-- SELECTOR...]; the input - is omitted. */
static int run(int argc, char **argv)
{
    char message[256] = "";
    dlc_options options = {0};
    dlc_model *model;
    dlc_context *context;
    int64_t sizes[8] = {0};
    const void *inputs[8] = {NULL};
    void *outputs[64] = {NULL};
    size_t bytes = 0;
    options.threads = atoi(argv[3]), options.message = message, options.message_bytes = sizeof message, options.verify = 1;
    if (!strcmp(argv[1], "pool")) options.parallel = backwards;
    if (!strcmp(argv[1], "rank")) options.collectives = &unconnected;
    void *memory = strcmp(argv[1], "memory") ? NULL : content(argv[2], &bytes);
    dlc_selector selectors[8];
    int last = argc;
    for (int dashes = 0, i = 5; i < argc; i++) {
        if (dashes == 2) selectors[options.selector_count++] = parse_selector(argv[i]);
        dashes += !strcmp(argv[i], "--");
        if (dashes == 2 && last == argc) last = i;
    }
    options.selectors = selectors;
    int code = memory ? dlc_open_memory(memory, bytes, &options, &model) : dlc_open(argv[2], &options, &model);
    if (code) return failed(message);
    int a = 5, k;
    for (k = 0; a < argc && strcmp(argv[a], "--"); k++, a++) inputs[k] = content(argv[a], &bytes);
    for (k = 0, a++; a < last; k++, a++) sizes[k] = atoll(argv[a]);
    if (dlc_context_create(model, NULL, &context)) return 1;
    if (dlc_resize(context, sizes)) return failed(dlc_message(context));
    FILE *file = fopen(argv[4], "wb");
    dlc_tensor_info info;
    for (k = 0; k < dlc_count(model, 1); k++) {
        dlc_context_info(context, 1, k, &info);
        outputs[k] = info.aliased_input >= 0 ? (void *)inputs[info.aliased_input] : info.data_dependent ? NULL : malloc((size_t)info.bytes + 1);
    }
    if (dlc_run(context, inputs, outputs)) return failed(dlc_message(context));
    for (k = 0; k < dlc_count(model, 1); k++) {
        dlc_context_info(context, 1, k, &info);
        fwrite(outputs[k], 1, (size_t)info.bytes, file);
        if (info.aliased_input < 0 && !info.data_dependent) free(outputs[k]);
    }
    fclose(file);
    dlc_context_destroy(context);
    dlc_close(model);
    free(memory);
    for (k = 0; k < 8; k++) free((void *)inputs[k]);
    for (k = 0; k < options.selector_count; k++) free((void *)selectors[k].value);
    return 0;
}

/* flip MODEL FROM STEP: flips a bit in every STEP-th byte, and truncates the file; prints the changes that are not detected. */
static int flip(char **argv)
{
    size_t bytes, at;
    unsigned char *memory = (unsigned char *)content(argv[2], &bytes);
    dlc_options options = {0};
    dlc_model *model;
    options.threads = 1, options.verify = 1;
    for (at = (size_t)atoll(argv[3]); at < bytes; at += (size_t)atoll(argv[4])) {
        memory[at] ^= (unsigned char)(1 << at % 8);
        if (!dlc_open_memory(memory, bytes, &options, &model)) printf("%zu\n", at), dlc_close(model);
        memory[at] ^= (unsigned char)(1 << at % 8);
    }
    for (at = 0; at < bytes; at += (size_t)atoll(argv[4]) + 1)
        if (!dlc_open_memory(memory, at, &options, &model)) printf("-%zu\n", at), dlc_close(model);
    return dlc_open_memory(memory, bytes, &options, &model);
}

/* mutate MODEL COUNT SEED: opens programs, or lists of them, with modified fields and tables and valid checksums. */
static int mutate(char **argv)
{
    static const int64_t values[] = {0, 1, -1, 2, 7, 8, 64, 1000, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, 1LL << 40, -4096};
    static const int64_t zero[8];
    size_t bytes;
    int64_t opened = 0, sizes[8] = {3, 5, 1, 1, 1, 1, 1, 1};
    uint64_t state = (uint64_t)atoll(argv[4]);
    char *memory = (char *)content(argv[2], &bytes), *copy = (char *)counted(NULL, bytes, 64);
    dlc__prefix prefix;
    memcpy(&prefix, memory, sizeof prefix);
    size_t at = (sizeof prefix + (size_t)prefix.header + DLC__PAGE - 1) / DLC__PAGE * DLC__PAGE + (size_t)prefix.program;
    dlc__image *image = (dlc__image *)(void *)(copy + at);
    dlc__program_list *list = (dlc__program_list *)(void *)image;
    const dlc__image *right = (const dlc__image *)(const void *)(memory + at);
    int is_list = !memcmp(right->magic, "dlcparts", 8);
    int64_t head = is_list ? (int64_t)sizeof *list : (int64_t)sizeof *image;
    int64_t tables = is_list ? ((const dlc__program_list *)(const void *)right)->bytes : right->code;
    dlc_selector selectors[] = {{"by", zero, 8, NULL, 0}, {"more", zero, 8, NULL, 0}, {"x", NULL, 0, zero, 2}};
    for (int64_t k = 0; k < atoll(argv[3]); k++) {
        dlc_options options = {0};
        dlc_model *model;
        dlc_context *context;
        memcpy(copy, memory, bytes);
        for (int change = 0; change < 1 + k % 2; change++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            size_t word = 3 + (state >> 33) % ((size_t)(change ? head : tables) / 8 - 3);
            int64_t *field = (int64_t *)image + word, kind = (int64_t)(state >> 20 & 31);
            *field = kind < 14 ? values[kind] : (int64_t)((uint64_t)*field + (uint64_t)kind - 22);
        }
        int64_t *own = is_list ? &list->bytes : &image->bytes, *sum = is_list ? &list->checksum : &image->checksum;
        if (*own < 0 || *own > (int64_t)(bytes - at)) continue;
        /* Do not execute code at a modified entry point. */
        if (!is_list) image->call = right->call;
        image->version = DLC__VERSION, *sum = 0;
        *sum = dlc__crc32(0, (const unsigned char *)image, (size_t)*own);
        options.threads = 1, options.allocate = counted, options.release = released;
        options.selectors = selectors, options.selector_count = 3, options.collectives = &unconnected;
        if (dlc_open_memory(copy, bytes, &options, &model)) continue;
        opened++;
        if (!dlc_context_create(model, sizes, &context)) {
            dlc_tensor_info info;
            for (int32_t i = 0; i < dlc_count(model, 0); i++) dlc_context_info(context, 0, i, &info);
            dlc_context_destroy(context);
        }
        dlc_close(model);
    }
    free(memory);
    free(copy);
    printf("%lld\n", (long long)opened);
    return 0;
}

/* arguments MODEL: counts functions that do not report a missing argument. */
static int arguments(char **argv)
{
    dlc_options half = {0}, many = {0};
    dlc_model *model, *none;
    dlc_context *context, *other;
    dlc_tensor_info info;
    dlc_size_info size;
    int others = 0;
    half.release = released, many.threads = 8193;
    if (dlc_open(argv[2], NULL, &model) || dlc_context_create(model, NULL, &context)) return 2;
    const int codes[] = {
        dlc_open(NULL, NULL, &none), dlc_open(argv[2], NULL, NULL), dlc_open(argv[2], &half, &none),
        dlc_open(argv[2], &many, &none), dlc_open_memory(NULL, 0, NULL, &none), dlc_open_memory(argv, 8, NULL, NULL),
        dlc_open_linked(NULL, NULL, &none),
        dlc_info(NULL, 0, 0, &info), dlc_info(model, 0, 0, NULL), dlc_info(model, 1, -1, &info), dlc_size(NULL, 0, &size),
        dlc_context_create(NULL, NULL, &other), dlc_context_create(model, NULL, NULL), dlc_resize(NULL, NULL),
        dlc_context_info(NULL, 0, 0, &info), dlc_context_info(context, 0, 99, &info), dlc_run(NULL, NULL, NULL),
        dlc_run(context, NULL, NULL),
    };
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) others += codes[k] != DLC_ARGUMENT;
    others += dlc_count(NULL, 0) != 0 || dlc_size_count(NULL) != 0 || dlc_find(NULL, 0, "x") != -1 || dlc_find(model, 0, NULL) != -1;
    dlc_context_destroy(context);
    dlc_close(model);
    printf("%d\n", others);
    return 0;
}

static const dlc_model *models[2];
static float given[20000], wanted[2][20000];
static int calls;

static void *caller(void *which)
{
    dlc_context *contexts[2];
    float *results = (float *)malloc(sizeof wanted[0]);
    const void *inputs[] = {given, NULL};
    void *outputs[] = {results};
    intptr_t wrong = 0;
    for (int m = 0; m < 2; m++)
        if (dlc_context_create(models[m], NULL, &contexts[m])) return (void *)1;
    for (int k = 0; k < calls; k++) {
        int m = (k + (int)(intptr_t)which) % 2;
        dlc_tensor_info info;
        dlc_context_info(contexts[m], 1, 0, &info);
        wrong += dlc_run(contexts[m], inputs, outputs) != 0 || memcmp(results, wanted[m], (size_t)info.bytes) != 0;
    }
    for (int m = 0; m < 2; m++) dlc_context_destroy(contexts[m]);
    free(results);
    return (void *)wrong;
}

static long resident(void)
{
    long pages = 0, all;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return pages;
}

/* threads MODEL MODEL CALLS: eight threads call two models; prints wrong results, and leaked pages and allocations. */
static int threads(char **argv)
{
    dlc_options options = {0};
    intptr_t wrong = 0;
    long pages = 0;
    int64_t counted_before = 0;
    options.threads = 2, options.allocate = counted, options.release = released;
    for (size_t k = 0; k < sizeof given / sizeof *given; k++) given[k] = (float)(k % 17) - 8;
    for (int m = 0; m < 2; m++) {
        dlc_context *context;
        const void *inputs[] = {given, NULL};
        void *outputs[] = {wanted[m]};
        if (dlc_open(argv[2 + m], &options, (dlc_model **)&models[m])) return 1;
        if (dlc_context_create(models[m], NULL, &context)) return 1;
        if (dlc_run(context, inputs, outputs)) return failed(dlc_message(context));
        dlc_context_destroy(context);
    }
    for (int round = 0; round < 3; round++) {
        pthread_t all[8];
        calls = atoi(argv[4]) / 8;
        for (intptr_t k = 0; k < 8; k++) pthread_create(&all[k], NULL, caller, (void *)k);
        for (int k = 0; k < 8; k++) {
            void *result;
            pthread_join(all[k], &result);
            wrong += (intptr_t)result;
        }
        if (round == 0) pages = resident(), counted_before = allocations;
    }
    /* The expected allocations per round: contexts and their memory. */
    long taken = (long)(allocations - counted_before) / 2;
    printf("%ld wrong, %ld pages, %ld allocations\n", (long)wrong, resident() - pages, taken);
    return 0;
}

/* fork MODEL THREADS OUTPUT: a child process uses a model of its parent and opens one; 0 if both succeed and exit. */
static int forked(char **argv)
{
    dlc_options options = {0};
    dlc_model *model, *again;
    dlc_context *context, *own;
    const void *inputs[] = {given, NULL};
    void *outputs[] = {wanted[0]}, *others[] = {wanted[1]};
    options.threads = atoi(argv[3]);
    if (dlc_open(argv[2], &options, &model) || dlc_context_create(model, NULL, &context)) return 2;
    if (dlc_run(context, inputs, outputs)) return 3;
    pid_t child = fork();
    if (!child) {
        int status = dlc_run(context, inputs, others) || memcmp(wanted[0], wanted[1], sizeof wanted[0]);
        status |= dlc_open(argv[2], &options, &again) || dlc_context_create(again, NULL, &own) || again->pool == model->pool;
        for (int k = 0; k < 100 && !status; k++) {
            wanted[1][0]++;
            status = dlc_run(own, inputs, others) || memcmp(wanted[0], wanted[1], sizeof wanted[0]);
        }
        dlc_context_destroy(own);
        dlc_context_destroy(context);
        dlc_close(again);
        dlc_close(model);
        _exit(status);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status || dlc_run(context, inputs, outputs)) return 4;
    dlc_context_destroy(context);
    dlc_close(model);
    return dlc__pools ? 5 : 0; /* destroyed with the last model */
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "arguments")) return arguments(argv);
    if (argc > 4 && !strcmp(argv[1], "flip")) return flip(argv);
    if (argc > 4 && !strcmp(argv[1], "fork")) return forked(argv);
    if (argc > 4 && !strcmp(argv[1], "mutate")) return mutate(argv);
    if (argc > 4 && !strcmp(argv[1], "threads")) return threads(argv);
    return argc > 4 ? run(argc, argv) : 2;
}
