/* Runs a compiled function on all ranks of an MPI job:
 *
 *     dlc header -o dlc.h
 *     mpicc run_on_mesh.c -I. -pthread -o run_on_mesh
 *     mpiexec -n 2 ./run_on_mesh step.dlc
 *
 * step.dlc is what `f.save("step.dlc", …)` of a function f of dlc.jit(mesh=…) wrote. If ranks have constants of their own, pass
 * one file per rank. A library is linked instead: `f.save("step.so", …)`, and
 *
 *     mpicc -DSTEP=dlc_model_step run_on_mesh.c step.so -I. -pthread -o run_on_mesh
 *
 * Every rank fills its shards of the inputs, of f32, with ones and prints the sum of each of its outputs.
 */
#define DLC_IMPLEMENTATION
#include "dlc.h"
#include <mpi.h>

#ifdef STEP
int64_t STEP(dlc_call *);
#endif

enum { MAX_GROUPS = 64, MAX_TENSORS = 64 };

/* Returns the communicator of a group, which all its ranks create in their first collective. */
static MPI_Comm communicator(const dlc_group *group)
{
    static struct { const int32_t *ranks; MPI_Comm communicator; } known[MAX_GROUPS];
    int k = 0;
    for (; k < MAX_GROUPS && known[k].ranks; k++)
        if (known[k].ranks == group->ranks) return known[k].communicator;
    if (k == MAX_GROUPS) return MPI_COMM_NULL;
    MPI_Group all, some;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, group->count, group->ranks, &some);
    MPI_Comm_create_group(MPI_COMM_WORLD, some, 0, &known[k].communicator);
    known[k].ranks = group->ranks;
    return known[k].communicator;
}

static MPI_Datatype datatype(int32_t dtype)
{
    switch (dtype) {
    case DLC_FLOAT32: return MPI_FLOAT;
    case DLC_FLOAT64: return MPI_DOUBLE;
    case DLC_INT32: return MPI_INT32_T;
    case DLC_INT64: return MPI_INT64_T;
    case DLC_UINT32: return MPI_UINT32_T;
    case DLC_UINT64: return MPI_UINT64_T;
    case DLC_BOOL: case DLC_UINT8: return MPI_UINT8_T;
    case DLC_INT8: return MPI_INT8_T;
    default: return MPI_DATATYPE_NULL; /* MPI then reports an error */
    }
}

/* MPI's maximum and minimum may lose NaN: an application with large maxima of floats needs an operation of its own. */
static MPI_Op operation(int32_t combine) { return combine == DLC_SUM ? MPI_SUM : combine == DLC_MAX ? MPI_MAX : MPI_MIN; }

static int all_reduce(void *user, const dlc_group *group, const void *x, void *y, int64_t count, int32_t dtype, int32_t combine)
{
    (void)user;
    return MPI_Allreduce(x, y, (int)count, datatype(dtype), operation(combine), communicator(group));
}
static int reduce_scatter(void *user, const dlc_group *group, const void *x, void *y, int64_t count, int32_t dtype, int32_t combine)
{
    (void)user;
    return MPI_Reduce_scatter_block(x, y, (int)count, datatype(dtype), operation(combine), communicator(group));
}
static int all_gather(void *user, const dlc_group *group, const void *x, void *y, int64_t bytes)
{
    (void)user;
    return MPI_Allgather(x, (int)bytes, MPI_BYTE, y, (int)bytes, MPI_BYTE, communicator(group));
}
static int all_to_all(void *user, const dlc_group *group, const void *x, void *y, int64_t bytes)
{
    (void)user;
    return MPI_Alltoall(x, (int)bytes, MPI_BYTE, y, (int)bytes, MPI_BYTE, communicator(group));
}
static int permute(void *user, const dlc_group *group, const void *x, void *y, int64_t bytes, int32_t target, int32_t source)
{
    (void)user;
    return MPI_Sendrecv(x, (int)bytes, MPI_BYTE, target < 0 ? MPI_PROC_NULL : target, 0, y, (int)bytes, MPI_BYTE,
                        source < 0 ? MPI_PROC_NULL : source, 0, communicator(group), MPI_STATUS_IGNORE);
}

static void fail(int rank, const char *message)
{
    fprintf(stderr, "rank %d: %s\n", rank, message);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

int main(int argc, char **argv)
{
    char message[256];
    dlc_collectives collectives = {0, 0, NULL, all_reduce, reduce_scatter, all_gather, all_to_all, permute};
    dlc_options options = {0};
    dlc_model *model;
    dlc_context *context;
    const void *inputs[MAX_TENSORS];
    void *outputs[MAX_TENSORS];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &collectives.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &collectives.rank_count);
    int rank = collectives.rank;
    options.threads = 1, options.collectives = &collectives, options.message = message, options.message_bytes = sizeof message;
#ifdef STEP
    if (dlc_open_linked(STEP, &options, &model)) fail(rank, message);
#else
    if (argc < 2) fail(rank, "expected the path of a compiled function");
    if (dlc_open(argv[argc - 1 < collectives.rank_count ? 1 : 1 + rank], &options, &model)) fail(rank, message);
#endif
    if (dlc_count(model, 0) > MAX_TENSORS || dlc_count(model, 1) > MAX_TENSORS) fail(rank, "too many inputs or outputs");
    if (dlc_context_create(model, NULL, &context)) fail(rank, "out of memory");
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < dlc_count(model, side); i++) {
            dlc_tensor_info info;
            dlc_context_info(context, side, i, &info);
            float *shard = malloc((size_t)info.bytes + 4);
            for (int64_t k = 0; k < info.bytes / 4; k++) shard[k] = 1;
            if (side) outputs[i] = shard;
            else inputs[i] = shard;
        }
    if (dlc_run(context, inputs, outputs)) fail(rank, dlc_message(context));
    for (int i = 0; i < dlc_count(model, 1); i++) {
        dlc_tensor_info info;
        double sum = 0;
        dlc_context_info(context, 1, i, &info);
        for (int64_t k = 0; k < info.bytes / 4; k++) sum += ((const float *)outputs[i])[k];
        printf("rank %d: %s%s %g\n", rank, info.name, info.sharding, sum);
    }
    dlc_context_destroy(context);
    dlc_close(model);
    MPI_Finalize();
    return 0;
}
