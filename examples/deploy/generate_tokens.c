/* Generate tokens with a compiled language model: token ids in and out.
 *
 *     dlc compile model.gguf -o model.dlc && dlc header -o dlc.h
 *     cc -O2 -pthread -I. generate_tokens.c -o generate_tokens
 *     ./generate_tokens model.dlc 20 2 818 5279      20 tokens after a prompt of three
 *
 * The program for one token is called for each token of the prompt, too. Its caches are donated inputs: it writes them in place.
 */
#define DLC_IMPLEMENTATION
#include "dlc.h"

enum { MAX_ARRAYS = 1024 };

static void *inputs[MAX_ARRAYS], *outputs[MAX_ARRAYS];

/* Allocates zeros for each array; an output that overwrites an input has its memory. */
static int allocate(const dlc_context *context, const dlc_model *model)
{
    dlc_tensor_info info;
    for (int is_output = 0; is_output < 2; is_output++)
        for (int k = 0; k < dlc_count(model, is_output); k++) {
            if (k == MAX_ARRAYS || dlc_context_info(context, is_output, k, &info)) return 1;
            void **array = is_output ? &outputs[k] : &inputs[k];
            *array = is_output && info.aliased_input >= 0 ? inputs[info.aliased_input] : calloc((size_t)info.bytes + 1, 1);
            if (!*array) return 1;
        }
    return 0;
}

int main(int argc, char **argv)
{
    char message[256] = "";
    int64_t one_token[] = {1, 1};
    dlc_selector selectors[] = {{.name = "tokens", .shape = one_token, .rank = 2}};
    dlc_options options = {.message = message, .message_bytes = sizeof message, .selectors = selectors, .selector_count = 1};
    dlc_model *model;
    dlc_context *context;
    if (argc < 4) return fprintf(stderr, "usage: %s model.dlc COUNT TOKEN...\n", argv[0]), 2;
    if (dlc_open(argv[1], &options, &model)) return fprintf(stderr, "%s\n", message), 1;
    int tokens = dlc_find(model, 0, "tokens"), count = dlc_find(model, 0, "count"), position = dlc_find(model, 0, "position");
    int penalty = dlc_find(model, 0, "repetition_penalty"), top_p = dlc_find(model, 0, "top_p");
    if (tokens < 0 || count < 0 || position < 0 || penalty < 0 || top_p < 0)
        return fprintf(stderr, "%s: not a language model\n", argv[1]), 1;
    if (dlc_context_create(model, NULL, &context) || allocate(context, model)) return fprintf(stderr, "no memory\n"), 1;

    /* All settings are 0 but these: a temperature of 0 takes the most probable token. It is the first output. */
    *(int32_t *)inputs[count] = 1;
    *(float *)inputs[penalty] = 1;
    *(float *)inputs[top_p] = 1;
    int prompt = argc - 3, total = prompt + atoi(argv[2]) - 1;
    for (int k = 0; k < total; k++) {
        *(int32_t *)inputs[tokens] = k < prompt ? atoi(argv[k + 3]) : *(int32_t *)outputs[0];
        *(int64_t *)inputs[position] = k;
        if (dlc_run(context, (const void *const *)inputs, outputs)) return fprintf(stderr, "%s\n", dlc_message(context)), 1;
        if (k >= prompt - 1) printf("%d\n", *(int32_t *)outputs[0]), fflush(stdout);
    }
    dlc_context_destroy(context);
    dlc_close(model);
    return 0;
}
