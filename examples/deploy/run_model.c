/* Run a compiled model on zeros and print the latency of a call:
 *
 *     dlc compile model.onnx -o model.dlc && dlc header -o dlc.h
 *     cc -O2 -pthread -I. run_model.c -o run_model
 *     ./run_model model.dlc [CALLS [SIZE...]]        SIZE: the model's symbolic sizes, in its order
 */
#define DLC_IMPLEMENTATION
#include "dlc.h"
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    char message[256] = "";
    dlc_options options = {.message = message, .message_bytes = sizeof message};
    dlc_model *model;
    dlc_context *context;
    if (argc < 2) return fprintf(stderr, "usage: %s model.dlc [calls [size...]]\n", argv[0]), 2;
    double start = now(), best = 1e9;
    if (dlc_open(argv[1], &options, &model)) return fprintf(stderr, "%s\n", message), 1;
    printf("opened in %.1f ms\n", 1e3 * (now() - start));
    int64_t sizes[16] = {0};
    for (int k = 0; k < dlc_size_count(model) && k < 16 && k + 3 < argc; k++) sizes[k] = atoll(argv[k + 3]);
    if (dlc_context_create(model, NULL, &context)) return fprintf(stderr, "no memory\n"), 1;
    if (dlc_resize(context, sizes)) return fprintf(stderr, "%s\n", dlc_message(context)), 1;

    void *arrays[2][64] = {{0}};
    dlc_tensor_info info;
    for (int outputs = 0; outputs < 2; outputs++)
        for (int k = 0; k < dlc_count(model, outputs) && k < 64; k++) {
            dlc_context_info(context, outputs, k, &info);
            if (info.data_dependent) continue; /* dlc_run sets the address of such an output */
            arrays[outputs][k] = calloc((size_t)info.bytes + 1, 1);
            printf("%s %s: %lld bytes\n", outputs ? "output" : "input", info.name, (long long)info.bytes);
        }
    const void *const *inputs = (const void *const *)arrays[0];
    for (int k = 0, calls = argc > 2 ? atoi(argv[2]) : 20; k < calls; k++) {
        start = now();
        if (dlc_run(context, inputs, arrays[1])) return fprintf(stderr, "%s\n", dlc_message(context)), 1;
        if (now() - start < best) best = now() - start;
    }
    dlc_context_info(context, 1, 0, &info);
    printf("%.3f ms a call; %s begins with", 1e3 * best, info.name);
    for (int k = 0; info.dtype == DLC_FLOAT32 && k < 4 && 4 * k < info.bytes; k++) printf(" %g", ((float *)arrays[1][0])[k]);
    printf("\n");
    for (int k = 0; k < 128; k++)
        if (dlc_context_info(context, k / 64, k % 64, &info) || !info.data_dependent) free(arrays[k / 64][k % 64]);
    dlc_context_destroy(context);
    dlc_close(model);
    return 0;
}
