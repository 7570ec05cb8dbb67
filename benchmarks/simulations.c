// The cases of benchmarks/simulations.py in C. REAL is float or double. A function takes its arrays, then its results.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SIN(x) (sizeof(REAL) == 4 ? sinf(x) : sin(x))
#define COS(x) (sizeof(REAL) == 4 ? cosf(x) : cos(x))
#define EXP(x) (sizeof(REAL) == 4 ? expf(x) : exp(x))
#define TANH(x) (sizeof(REAL) == 4 ? tanhf(x) : tanh(x))
#define SQRT(x) (sizeof(REAL) == 4 ? sqrtf(x) : sqrt(x))
#define ABS(x) (sizeof(REAL) == 4 ? fabsf(x) : fabs(x))
#define C(x) ((REAL)(x))

void gather_while(const int32_t *table, const int32_t *steps, int32_t *out) {
    int32_t position = 1;
    for (int32_t i = 0; i < *steps; i++)
        position = table[position];
    *out = position;
}

// The array and its derivative are carried together.
void scan_writes_carry(const REAL *x, const REAL *v, REAL *y, REAL *dy) {
    memcpy(y, x, 10000 * sizeof(REAL));
    memcpy(dy, v, 10000 * sizeof(REAL));
    for (long i = 1; i < 10000; i++) {
        dy[i] += COS(y[i - 1]) * 2 * dy[i - 1];
        y[i] += SIN(y[i - 1]) * 2;
    }
}

void fill_forward(const REAL *x, REAL *y) {
    memcpy(y, x, 10000 * sizeof(REAL));
    for (long i = 0; i < 9999; i++)
        y[i + 1] = y[i] * C(0.99) + C(0.1);
}

void stacked_scalars(const REAL *x, REAL *y) {
    REAL state = *x;
    for (long i = 0; i < 10000; i++)
        y[i] = state = C(3.7) * state * (1 - state);
}

void row_products(const REAL *x, const REAL *w, REAL *y) {
    memcpy(y, x, 1000 * 64 * sizeof(REAL));
    for (long t = 1; t < 1000; t++) {
        REAL sums[64] = {0};
        for (long k = 0; k < 64; k++)
            for (long j = 0; j < 64; j++)
                sums[j] += y[(t - 1) * 64 + k] * w[k * 64 + j];
        for (long j = 0; j < 64; j++)
            y[t * 64 + j] = TANH(sums[j]);
    }
}

void small_matrices(const REAL *frame, const REAL *rates, REAL *out) {
    REAL m[9];
    memcpy(m, frame, sizeof m);
    for (long t = 0; t < 2000; t++) {
        REAL next[9];
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) {
                REAL sum = 0;
                for (int k = 0; k < 3; k++)
                    sum += m[3 * i + k] * rates[9 * t + 3 * k + j];
                next[3 * i + j] = m[3 * i + j] + sum * C(0.01);
            }
        memcpy(m, next, sizeof m);
    }
    memcpy(out, m, sizeof m);
}

// Per axis, an inner element gets 2 (x[i] - x[i-1]) - 2 (x[i+1] - x[i]).
void differences_gradient(const REAL *restrict x, REAL *restrict y) {
    enum { N = 160 };
    for (long i = 0; i < N; i++)
        for (long j = 0; j < N; j++) {
            const REAL *c = x + (i * N + j) * N;
            REAL *out = y + (i * N + j) * N;
            const REAL *above = i ? c - N * N : c, *below = i < N - 1 ? c + N * N : c;
            const REAL *left = j ? c - N : c, *right = j < N - 1 ? c + N : c;
            for (long k = 0; k < N; k++)
                out[k] = 2 * ((c[k] - above[k]) - (below[k] - c[k]) + (c[k] - left[k]) - (right[k] - c[k]));
            out[0] -= 2 * (c[1] - c[0]);
            for (long k = 1; k < N - 1; k++)
                out[k] += 2 * ((c[k] - c[k - 1]) - (c[k + 1] - c[k]));
            out[N - 1] += 2 * (c[N - 1] - c[N - 2]);
        }
}

void n_body(const REAL *x0, const REAL *v0, const REAL *masses, REAL *x, REAL *v) {
    memcpy(x, x0, 24 * sizeof(REAL));
    memcpy(v, v0, 24 * sizeof(REAL));
    for (long t = 0; t < 1000; t++) {
        for (int i = 0; i < 8; i++) {
            REAL a[3] = {0};
            for (int j = 0; j < 8; j++) {
                REAL d[3], r2 = C(1e-2);
                for (int k = 0; k < 3; k++)
                    d[k] = x[3 * j + k] - x[3 * i + k];
                r2 += d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
                REAL weight = masses[j] / (r2 * SQRT(r2));
                for (int k = 0; k < 3; k++)
                    a[k] += d[k] * weight;
            }
            for (int k = 0; k < 3; k++)
                v[3 * i + k] += C(0.001) * a[k];
        }
        for (int i = 0; i < 24; i++)
            x[i] += C(0.001) * v[i];
    }
}

void hodgkin_huxley(const REAL *v0, const REAL *m0, const REAL *h0, const REAL *n0, REAL *v, REAL *m, REAL *h, REAL *n, REAL *trace) {
    enum { N = 100 };
    memcpy(v, v0, N * sizeof(REAL));
    memcpy(m, m0, N * sizeof(REAL));
    memcpy(h, h0, N * sizeof(REAL));
    memcpy(n, n0, N * sizeof(REAL));
    for (long t = 0; t < 2000; t++) {
        REAL next[N];
        for (int i = 0; i < N; i++) {
            REAL a_m = C(0.1) * (v[i] + 40) / (1 - EXP(-(v[i] + 40) / 10)), b_m = 4 * EXP(-(v[i] + 65) / 18);
            REAL a_h = C(0.07) * EXP(-(v[i] + 65) / 20), b_h = 1 / (1 + EXP(-(v[i] + 35) / 10));
            REAL a_n = C(0.01) * (v[i] + 55) / (1 - EXP(-(v[i] + 55) / 10)), b_n = C(0.125) * EXP(-(v[i] + 65) / 80);
            REAL n2 = n[i] * n[i], left = v[i ? i - 1 : 0], right = v[i < N - 1 ? i + 1 : N - 1];
            REAL current = 120 * m[i] * m[i] * m[i] * h[i] * (v[i] - 50) + 36 * n2 * n2 * (v[i] + 77) + C(0.3) * (v[i] + C(54.4));
            next[i] = v[i] + C(0.005) * (10 - current + 2 * (left - 2 * v[i] + right));
            m[i] += C(0.005) * (a_m * (1 - m[i]) - b_m * m[i]);
            h[i] += C(0.005) * (a_h * (1 - h[i]) - b_h * h[i]);
            n[i] += C(0.005) * (a_n * (1 - n[i]) - b_n * n[i]);
        }
        memcpy(v, next, sizeof next);
        trace[t] = v[0];
    }
}

// Lanes of 16 systems advance together, so that the compiler uses vectors.
void lorenz_ensemble(const REAL *x, const REAL *y, const REAL *z, REAL *rx, REAL *ry, REAL *rz) {
    enum { LANES = 16 };
    for (long first = 0; first < 10000; first += LANES) {
        REAL a[LANES], b[LANES], c[LANES];
        memcpy(a, x + first, sizeof a);
        memcpy(b, y + first, sizeof b);
        memcpy(c, z + first, sizeof c);
        for (int t = 0; t < 500; t++)
            for (int l = 0; l < LANES; l++) {
                REAL d0 = 10 * (b[l] - a[l]), d1 = a[l] * (28 - c[l]) - b[l], d2 = a[l] * b[l] - C(8.0 / 3) * c[l];
                REAL p = a[l] + C(0.005) * d0, q = b[l] + C(0.005) * d1, r = c[l] + C(0.005) * d2;
                a[l] += C(0.0025) * (d0 + 10 * (q - p));
                b[l] += C(0.0025) * (d1 + p * (28 - r) - q);
                c[l] += C(0.0025) * (d2 + p * q - C(8.0 / 3) * r);
            }
        memcpy(rx + first, a, sizeof a);
        memcpy(ry + first, b, sizeof b);
        memcpy(rz + first, c, sizeof c);
    }
}

void newton_ensemble(const REAL *mean_anomaly, const REAL *eccentricity, REAL *out) {
    for (long k = 0; k < 10000; k++) {
        REAL e = mean_anomaly[k], residual;
        for (int i = 0; i < 50; i++) {
            residual = e - eccentricity[k] * SIN(e) - mean_anomaly[k];
            if (!(ABS(residual) > C(1e-5)))
                break;
            e -= residual / (1 - eccentricity[k] * COS(e));
        }
        out[k] = e;
    }
}

void reaction_diffusion(const REAL *u0, const REAL *v0, REAL *u, REAL *v) {
    enum { N = 512, BYTES = N * N * sizeof(REAL) };
    REAL *restrict from_u = malloc(BYTES), *restrict from_v = malloc(BYTES);
    memcpy(u, u0, BYTES);
    memcpy(v, v0, BYTES);
    for (int t = 0; t < 20; t++) {
        memcpy(from_u, u, BYTES);
        memcpy(from_v, v, BYTES);
        for (long i = 0; i < N; i++) {
            long row = i * N, up = (i ? i - 1 : N - 1) * N, down = (i < N - 1 ? i + 1 : 0) * N;
#define CELL(j, left, right)                                                                                                  \
    {                                                                                                                         \
        REAL a = from_u[row + j], b = from_v[row + j], reaction = a * b * b;                                                  \
        REAL lu = from_u[up + j] + from_u[down + j] + from_u[row + left] + from_u[row + right] - 4 * a;                       \
        REAL lv = from_v[up + j] + from_v[down + j] + from_v[row + left] + from_v[row + right] - 4 * b;                       \
        u[row + j] = a + C(0.16) * lu - reaction + C(0.04) * (1 - a);                                                         \
        v[row + j] = b + C(0.08) * lv + reaction - C(0.1) * b;                                                                \
    }
            CELL(0, N - 1, 1)
#pragma GCC ivdep
            for (long j = 1; j < N - 1; j++)
                CELL(j, j - 1, j + 1)
            CELL(N - 1, N - 2, 0)
        }
    }
    free(from_u);
    free(from_v);
}

void kalman(const REAL *f, const REAL *h, const REAL *measurements, REAL *means) {
    REAL mean[4] = {0}, p[4][4] = {{0}};
    for (int i = 0; i < 4; i++)
        p[i][i] = 1;
    for (long t = 0; t < 1000; t++) {
        REAL x[4] = {0}, fp[4][4] = {{0}}, q[4][4] = {{0}}, hp[2][4] = {{0}}, s[2][2] = {{0}}, gain[4][2];
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 4; k++) {
                x[i] += f[4 * i + k] * mean[k];
                for (int j = 0; j < 4; j++)
                    fp[i][j] += f[4 * i + k] * p[k][j];
            }
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                for (int k = 0; k < 4; k++)
                    q[i][j] += fp[i][k] * f[4 * j + k];
                q[i][j] += i == j ? C(0.01) : 0;
            }
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 4; k++)
                for (int j = 0; j < 4; j++)
                    hp[i][j] += h[4 * i + k] * q[k][j];
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++) {
                for (int k = 0; k < 4; k++)
                    s[i][j] += hp[i][k] * h[4 * j + k];
                s[i][j] += i == j ? C(0.1) : 0;
            }
        REAL scale = 1 / (s[0][0] * s[1][1] - s[0][1] * s[1][0]);
        REAL inverse[2][2] = {{s[1][1] * scale, -s[0][1] * scale}, {-s[1][0] * scale, s[0][0] * scale}};
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 2; j++)
                gain[i][j] = hp[0][i] * inverse[0][j] + hp[1][i] * inverse[1][j];
        REAL innovation[2];
        for (int i = 0; i < 2; i++) {
            innovation[i] = measurements[2 * t + i];
            for (int k = 0; k < 4; k++)
                innovation[i] -= h[4 * i + k] * x[k];
        }
        for (int i = 0; i < 4; i++) {
            means[4 * t + i] = mean[i] = x[i] + gain[i][0] * innovation[0] + gain[i][1] * innovation[1];
            for (int j = 0; j < 4; j++)
                p[i][j] = q[i][j] - gain[i][0] * hp[0][j] - gain[i][1] * hp[1][j];
        }
    }
}

void particle_filter(const REAL *start, const REAL *observations, const REAL *noise, const REAL *offsets, REAL *means) {
    enum { N = 256 };
    REAL particles[N], moved[N], total[N], weights[N];
    memcpy(particles, start, sizeof particles);
    for (long t = 0; t < 200; t++) {
        REAL sum = 0, weighted = 0;
        for (int i = 0; i < N; i++) {
            moved[i] = C(0.9) * particles[i] + noise[t * N + i];
            REAL error = observations[t] - moved[i];
            weights[i] = EXP(-2 * error * error);
        }
        for (int i = 0; i < N; i++) {
            total[i] = sum += weights[i];
            weighted += weights[i] * moved[i];
        }
        means[t] = weighted / sum;
        for (int i = 0, j = 0; i < N; i++) {
            REAL position = (i + offsets[t]) * (sum / N);
            while (j < N - 1 && total[j] < position)
                j++;
            particles[i] = moved[j];
        }
    }
}

void scalar_leaves(const REAL *x, REAL *out) {
    REAL state[60], next[60], sum = 0;
    memcpy(state, x, sizeof state);
    for (int t = 0; t < 1000; t++) {
        for (int i = 0; i < 60; i++) {
            REAL y = state[i < 59 ? i + 1 : 0];
            next[i] = state[i] + C(0.01) * (y * y - state[i]);
        }
        memcpy(state, next, sizeof state);
    }
    for (int i = 0; i < 60; i++)
        sum += state[i];
    *out = sum;
}

void scalar_leaves_gradient(const REAL *x, REAL *out) {
    REAL(*states)[60] = malloc(1001 * sizeof *states), d[60], next[60];
    memcpy(states[0], x, sizeof *states);
    for (int t = 0; t < 1000; t++)
        for (int i = 0; i < 60; i++) {
            REAL y = states[t][i < 59 ? i + 1 : 0];
            states[t + 1][i] = states[t][i] + C(0.01) * (y * y - states[t][i]);
        }
    for (int i = 0; i < 60; i++)
        d[i] = 1;
    for (int t = 999; t >= 0; t--) {
        for (int i = 0; i < 60; i++)
            next[i] = C(0.99) * d[i] + C(0.02) * states[t][i] * d[i ? i - 1 : 59];
        memcpy(d, next, sizeof d);
    }
    memcpy(out, d, sizeof d);
    free(states);
}

void adaptive_ode(const REAL *x0, const REAL *v0, REAL *out) {
    REAL t = 0, h = C(0.01), x = *x0, v = *v0;
    for (int crossings = 0; crossings < 20;) {
        REAL a = v, b = 5 * (1 - x * x) * v - x, p = x + h * a, q = v + h * b, c = q, d = 5 * (1 - p * p) * q - p;
        REAL new_x = x + h / 2 * (a + c), new_v = v + h / 2 * (b + d), ac = ABS(a - c), bd = ABS(b - d);
        REAL error = (ac > bd ? ac : bd) * h / 2 / C(1e-4) + C(1e-6), factor = C(0.9) / SQRT(error);
        if (error < 1) {
            crossings += x * new_x < 0;
            x = new_x, v = new_v, t += h;
        }
        h *= factor < C(0.2) ? C(0.2) : factor > 5 ? 5 : factor;
    }
    *out = t;
}
