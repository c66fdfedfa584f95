/* Adam in place: one pass over memory, where torch makes ten. */
#include <math.h>
#include <stdint.h>

/* Entries of a table with their ascent directions, rates and moments; rest1 and rest2 are 1 - beta^step. */
int adam(int64_t first, int64_t last, double beta1, double beta2, double rest1, double rest2, double eps,
         const float *d, const float *eta, float *restrict table, float *restrict mean, float *restrict square) {
    const float b1 = (float)beta1, a1 = (float)(1 - beta1), b2 = (float)beta2, a2 = (float)(1 - beta2);
    const float r1 = (float)rest1, r2 = (float)rest2, e = (float)eps;
    for (int64_t j = first; j < last; j++) {
        float m = mean[j] * b1 + a1 * d[j], s = square[j] * b2 + a2 * d[j] * d[j];
        mean[j] = m;
        square[j] = s;
        table[j] += m / (sqrtf(s / r2) + e) / r1 * eta[j];
    }
    return 0;
}
