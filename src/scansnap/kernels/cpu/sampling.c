/* Classes and token counts of mini-batches, one sequence at a time: the CPU twin of scansnap/sampling.py.
 *
 * Every number is a pure function of (seed, purpose, step, sample, slot, trial), and the arithmetic follows
 * the torch version operation by operation, so that both draw the same data; a test holds them equal.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* Constants of philox.py and sampling.py; tests compare the outputs, so a difference cannot go unseen. */
enum { ROUNDS = 10, PURPOSE_CLASS = 1, PURPOSE_COUNT = 2 };
static const double INVERSION_LIMIT = 12.0;

typedef struct { double u, v; } pair;

typedef struct { uint64_t seed, step, sample; } place;

static inline double unit(uint64_t high, uint64_t low) {
    return (double)(high << 21 | low >> 11) * 0x1p-53;
}

static inline pair uniforms(uint64_t seed, uint64_t purpose, uint64_t step, uint64_t major, uint64_t minor) {
    uint64_t c0 = minor, c1 = major, c2 = step, c3 = purpose;
    uint64_t k0 = seed & 0xFFFFFFFFu, k1 = seed >> 32;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = c0 * 0xD2511F53u, p1 = c2 * 0xCD9E8D57u;
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1 & 0xFFFFFFFFu;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0 & 0xFFFFFFFFu;
        k0 = (k0 + 0x9E3779B9u) & 0xFFFFFFFFu;
        k1 = (k1 + 0xBB67AE85u) & 0xFFFFFFFFu;
    }
    return (pair){unit(c0, c1), unit(c2, c3)};
}

static inline pair draw(const place *at, int64_t slot, int64_t trial) {
    return uniforms(at->seed, PURPOSE_COUNT, at->step, at->sample, (uint64_t)(slot << 8 | trial));
}

/* ln k! minus Stirling's formula at k + 1. */
static double stirling(const double *table, double k) {
    if (k < 10) return table[(int)k];
    double i = k + 1;
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / (i * i)) / (i * i)) / i;
}

/* Walk up the distribution function until it passes u. */
static double by_inversion(double n, double p, double log_rest, double u, const double *reciprocal) {
    double odds = p / (1 - p), pmf = exp(n * log_rest), k = 0;
    while (u >= pmf && k < n) {
        u -= pmf;
        k += 1;
        /* a product with a table is faster than a quotient */
        pmf *= odds * (n - k + 1) * (k < 128 ? reciprocal[(int)k] : 1 / k);
    }
    return k;
}

/* Hörmann's transformed rejection with squeeze (BTRS, 1993), for n p of at least 10 and p of at most 1/2. */
static double by_rejection(double n, double p, const place *at, int64_t slot, const double *table) {
    double odds = p / (1 - p), spread = sqrt(n * p * (1 - p));
    double b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * p;
    double mode = floor((n + 1) * p);
    double peak = (mode + 0.5) * log((mode + 1) / (odds * (n - mode + 1))) + stirling(table, mode) +
                  stirling(table, n - mode);
    double scale = (2.83 + 5.1 / b) * spread;
    for (int64_t trial = 1;; trial++) {
        pair r = draw(at, slot, trial);
        double u = r.u - 0.5, us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + n * p + 0.5);
        if (!(k >= 0 && k <= n)) continue;
        if (us >= 0.07 && r.v <= 0.92 - 4.2 / b) return k;
        double bound = peak + (n + 1) * log((n - mode + 1) / (n - k + 1)) +
                       (k + 0.5) * log(odds * (n - k + 1) / (k + 1)) - stirling(table, k) - stirling(table, n - k);
        if (log(r.v * scale / (a / (us * us) + b)) <= bound) return k;
    }
}

/* Places [first, last) of the n_seeds × n_steps grid. Counts are left alone when n_slots is 0. Returns 0, or 1
 * without memory. */
int sample_places(
    int64_t first, int64_t last, int64_t n_steps, int64_t batch_size, int64_t n_classes, int64_t n_slots,
    double length, const int64_t *seeds, const int64_t *steps, const double *class_edges, /* (K,) */
    const double *conditional, const double *log_rest,                                    /* (K, S) */
    const double *stirling_table, int64_t *cls, float *counts) {
    double reciprocal[128] = {1.0};
    for (int k = 1; k < 128; k++) reciprocal[k] = 1.0 / k;
    double *first_u = malloc((n_slots + 1) * sizeof *first_u);
    if (!first_u) return 1;
    for (int64_t p = first; p < last; p++) {
        place at = {(uint64_t)seeds[p / n_steps], (uint64_t)steps[p % n_steps], 0};
        for (int64_t b = 0; b < batch_size; b++) {
            double u = uniforms(at.seed, PURPOSE_CLASS, at.step, 0, (uint64_t)b).u;
            int64_t low = 0, high = n_classes; /* number of edges at or below u */
            while (low < high) {
                int64_t middle = (low + high) / 2;
                if (class_edges[middle] <= u) low = middle + 1;
                else high = middle;
            }
            cls[p * batch_size + b] = low;
            at.sample = (uint64_t)b;
            for (int64_t s = 0; s < n_slots; s++) /* apart from the chain below, so that it vectorises */
                first_u[s] = draw(&at, s, 0).u;
            double left = length;
            float *k_row = counts + (p * batch_size + b) * n_slots;
            for (int64_t s = 0; s < n_slots; s++) {
                double q = conditional[low * n_slots + s];
                int flip = q > 0.5;
                if (flip) q = 1 - q;
                double k = left * q < INVERSION_LIMIT
                               ? by_inversion(left, q, log_rest[low * n_slots + s], first_u[s], reciprocal)
                               : by_rejection(left, q, &at, s, stirling_table);
                if (flip) k = left - k;
                k_row[s] = (float)k;
                left -= k;
            }
        }
    }
    free(first_u);
    return 0;
}
