// The kernels of benchmarks/kernels.py in C. Each function runs its outer loop with OpenMP.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PARALLEL _Pragma("omp parallel for schedule(static)")

void block_product(const float *x, const uint8_t *packed, const _Float16 *scales, float *y, long n, long blocks) {
    PARALLEL
    for (long i = 0; i < n; i++) {
        float total = 0;
        for (long b = 0; b < blocks; b++) {
            const uint8_t *p = packed + (i * blocks + b) * 16;
            const float *v = x + 32 * b;
            float sums[16];
            for (int l = 0; l < 16; l++)
                sums[l] = ((p[l] & 15) - 8) * v[l] + ((p[l] >> 4) - 8) * v[16 + l];
            float sum = 0;
            for (int l = 0; l < 16; l++)
                sum += sums[l];
            total += sum * (float)scales[i * blocks + b];
        }
        y[i] = total;
    }
}

void stencil(const float *restrict x, float *restrict y, long depth, long rows, long columns) {
    long line = columns + 2, plane = (rows + 2) * line;
    PARALLEL
    for (long i = 0; i < depth; i++)
        for (long j = 0; j < rows; j++) {
            const float *c = x + (i + 1) * plane + (j + 1) * line + 1;
            float *out = y + (i * rows + j) * columns;
            for (long k = 0; k < columns; k++)
                out[k] = -6 * c[k] + c[k - plane] + c[k + plane] + c[k - line] + c[k + line] + c[k - 1] + c[k + 1];
        }
}

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) < (b) ? (b) : (a))
#define SORT(a, b) { float low = MIN(a, b), high = MAX(a, b); a = low; b = high; }

// The network of 7 elements by N. Devillard, "Fast median search" (1998).
void sliding_median(const float *restrict x, float *restrict y, long rows, long columns) {
    long n = columns - 6;
    PARALLEL
    for (long row = 0; row < rows; row++)
        for (long j = 0; j < n; j++) {
            const float *p = x + row * columns + j;
            float a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5], g = p[6];
            SORT(a, f) SORT(a, d) SORT(b, g) SORT(c, e) SORT(a, b) SORT(d, f) SORT(c, g) SORT(c, d)
            SORT(d, g) SORT(e, f) SORT(b, e) SORT(b, d) SORT(d, e)
            y[row * n + j] = d;
        }
}

void segmented_sum(const float *restrict x, const int32_t *offsets, float *restrict y, long segments, long columns) {
    PARALLEL
    for (long s = 0; s < segments; s++) {
        float *out = y + s * columns;
        memset(out, 0, columns * sizeof(float));
        for (long row = offsets[s]; row < offsets[s + 1]; row++)
            for (long j = 0; j < columns; j++)
                out[j] += x[row * columns + j];
    }
}

void smith_waterman(const int8_t *a, const int8_t *b, const int32_t *costs, int32_t *best, long pairs, long m, long n) {
    int32_t match = costs[0], mismatch = costs[1], gap = costs[2];
    PARALLEL
    for (long p = 0; p < pairs; p++) {
        int8_t backward[n + 2 * m];
        int32_t buffer[3][m + 1], largest = 0;
        memset(buffer, 0, sizeof buffer);
        memset(backward, -2, sizeof backward);
        for (long j = 0; j < n; j++)
            backward[m + n - 1 - j] = b[p * n + j];
        for (long d = 0; d < m + n - 1; d++) {
            int32_t *restrict new = buffer[d % 3];
            const int32_t *restrict last = buffer[(d + 2) % 3], *restrict before = buffer[(d + 1) % 3];
            const int8_t *restrict query = a + p * m, *restrict other = backward + m + n - 1 - d;
            for (long i = 0; i < m; i++) {
                int32_t diagonal = before[i] + (query[i] == other[i] ? match : mismatch);
                int32_t gaps = MAX(last[i], last[i + 1]) + gap;
                int32_t score = MAX(MAX(diagonal, gaps), 0);
                new[i + 1] = score;
                largest = MAX(largest, score);
            }
        }
        best[p] = largest;
    }
}
