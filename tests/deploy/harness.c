/* What test_header.py runs: MODE MODEL..., with inputs in files and outputs to one; errors in words, status 1. */
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

/* The caller's pool: one thread, from the last task to the first. */
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

/* What NAME=FILE says of an input's value, or NAME:N,N of its shape. */
static dlc_given given_by(char *text)
{
    static int64_t shapes[8][4];
    static int used;
    dlc_given given = {0};
    char *at = text + strcspn(text, "=:"), kind = *at;
    *at++ = 0;
    given.name = text;
    if (kind == '=') given.value = content(at, &given.bytes);
    else for (given.shape = shapes[used]; *at; at += *at == ',') shapes[used][given.rank++] = strtoll(at, &at, 10);
    used += kind == ':';
    return given;
}

/* run|memory|pool MODEL THREADS OUTPUT INPUT... [-- SIZE...] [-- GIVEN...]; an input called - is left out. */
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
    void *memory = strcmp(argv[1], "memory") ? NULL : content(argv[2], &bytes);
    dlc_given given[8];
    int last = argc;
    for (int dashes = 0, i = 5; i < argc; i++) {
        if (dashes == 2) given[options.given_count++] = given_by(argv[i]);
        dashes += !strcmp(argv[i], "--");
        if (dashes == 2 && last == argc) last = i;
    }
    options.given = given;
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
        outputs[k] = info.over >= 0 ? (void *)inputs[info.over] : info.decided ? NULL : malloc((size_t)info.bytes + 1);
    }
    if (dlc_run(context, inputs, outputs)) return failed(dlc_message(context));
    for (k = 0; k < dlc_count(model, 1); k++) {
        dlc_context_info(context, 1, k, &info);
        fwrite(outputs[k], 1, (size_t)info.bytes, file);
        if (info.over < 0 && !info.decided) free(outputs[k]);
    }
    fclose(file);
    dlc_context_destroy(context);
    dlc_close(model);
    free(memory);
    for (k = 0; k < 8; k++) free((void *)inputs[k]);
    for (k = 0; k < options.given_count; k++) free((void *)given[k].value);
    return 0;
}

/* flip MODEL FROM STEP: every step-th byte that may be another one, and below 0 how many bytes may be all there are. */
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

/* mutate MODEL COUNT SEED: opens programs, or lists of them, whose fields and tables say something else, with the right
   checksum. */
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
    dlc__parts *list = (dlc__parts *)(void *)image;
    const dlc__image *right = (const dlc__image *)(const void *)(memory + at);
    int is_list = !memcmp(right->magic, "dlcparts", 8);
    int64_t head = is_list ? (int64_t)sizeof *list : (int64_t)sizeof *image;
    int64_t tables = is_list ? ((const dlc__parts *)(const void *)right)->bytes : right->code;
    dlc_given given[] = {{"by", zero, 8, NULL, 0}, {"more", zero, 8, NULL, 0}, {"x", NULL, 0, zero, 2}};
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
        /* Where else code is taken to begin, it is not for this to say what it does. */
        if (!is_list) image->call = right->call;
        image->version = DLC__VERSION, *sum = 0;
        *sum = dlc__crc32(0, (const unsigned char *)image, (size_t)*own);
        options.threads = 1, options.allocate = counted, options.release = released;
        options.given = given, options.given_count = 3;
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

/* arguments MODEL: how many functions do not say of an argument that it is missing. */
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

/* threads MODEL MODEL CALLS: eight threads call two models; wrong results, pages and allocations that came to stay. */
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
    /* Of each round, those of contexts: themselves and their memory. */
    long taken = (long)(allocations - counted_before) / 2;
    printf("%ld wrong, %ld pages, %ld allocations\n", (long)wrong, resident() - pages, taken);
    return 0;
}

/* fork MODEL THREADS OUTPUT: a child uses a model of its parent's, and opens one; 0 if both compute the same, and end. */
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
    return dlc__pools ? 5 : 0; /* it ended with the last model */
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
