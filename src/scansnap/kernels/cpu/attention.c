/* What is in rows of attention: a row is read once, and everything is taken from it while it is in the first-level
 * cache. The torch version is scansnap/probe/statistics/plain.py; a test holds them equal.
 *
 * The smallest set of keys with a given mass takes the largest weights. The weight of its last key is found by
 * bisection over the bits of a float, which for positive numbers are in the numbers' order, until the next key from
 * below is the one; of keys with just that weight only as many are taken as it needs. A sort of the row would cost some
 * thirty times as much.
 */
#include <math.h>
#include <stdlib.h>

enum { W = 16, PATTERNS = 3, OUT = 3 + PATTERNS };

#include "vectors.h"

typedef uint8_t bytes __attribute__((vector_size(W)));

INLINE double sum(vec v) {
    double total = 0;
    for (int i = 0; i < W; i++) total += v[i];
    return total;
}

/* ln x for normal x > 0, to about 2 units in the last place: ln of the mantissa around 1 by a polynomial (Cephes). */
INLINE vec log_vec(vec x) {
    ivec bits = (ivec)x - 0x3f3504f3; /* from √½ on, so that the mantissa is in [√½, √2) */
    vec e = __builtin_convertvector(bits >> 23, vec);
    vec m = (vec)((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
    vec p = m * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    vec square = m * m;
    vec y = p * m * square - e * 2.12194440e-4f - 0.5f * square;
    return y + m + e * 0.693359375f;
}

/* Weight on keys whose bits are at least `least`. */
INLINE float mass_from(const float *row, int64_t n, int32_t least) {
    vec a = {0}, b = {0}, c = {0}, d = {0};
    int64_t j = 0;
    for (; j + 4 * W <= n; j += 4 * W) {
        vec w = load(row + j), x = load(row + j + W), y = load(row + j + 2 * W), z = load(row + j + 3 * W);
        a += (vec)((ivec)w & ((ivec)w >= least));
        b += (vec)((ivec)x & ((ivec)x >= least));
        c += (vec)((ivec)y & ((ivec)y >= least));
        d += (vec)((ivec)z & ((ivec)z >= least));
    }
    for (; j < n; j += W) {
        vec w = load(row + j);
        a += (vec)((ivec)w & ((ivec)w >= least));
    }
    a = (a + b) + (c + d);
    return (float)sum(a);
}

INLINE int64_t n_from(const float *row, int64_t n, int32_t least) {
    ivec count = {0};
    for (int64_t j = 0; j < n; j += W) count -= (ivec)load(row + j) >= least;
    int64_t total = 0;
    for (int i = 0; i < W; i++) total += count[i];
    return total;
}

/* The least bits of a key that are at least `least`. */
INLINE int32_t next_from(const float *row, int64_t n, int32_t least) {
    ivec next = (ivec){0} + 0x7f800000;
    for (int64_t j = 0; j < n; j += W) {
        ivec x = (ivec)load(row + j), is_next = (x >= least) & (x < next);
        next = (x & is_next) | (next & ~is_next);
    }
    int32_t first = next[0];
    for (int i = 1; i < W; i++) first = next[i] < first ? next[i] : first;
    return first;
}

/* How many keys the smallest set with this share of the row's weight has. */
INLINE float n_needed(const float *row, int64_t n, float total, float largest, float share) {
    float mass = share * total;
    int32_t low = 0, high;
    memcpy(&high, &largest, sizeof high);
    high++;
    float least = 0.5f * (1.0f - share) * total / (float)n; /* keys below it cannot have what the set leaves out */
    if (least > 0) memcpy(&low, &least, sizeof low);
    for (int i = 1; high - low > 1; i++) {
        int32_t middle = low + (high - low) / 2;
        if (i % 4 == 0) { /* few keys are left in between */
            low = next_from(row, n, low);
            middle = low + 1;
            if (middle >= high) break;
        }
        if (mass_from(row, n, middle) >= mass) low = middle;
        else high = middle;
    }
    float last, above = mass_from(row, n, low + 1);
    memcpy(&last, &low, sizeof last);
    int64_t n_above = n_from(row, n, low + 1), n_equal = n_from(row, n, low) - n_above;
    float more = last > 0 ? ceilf((mass - above) / last) : 1.0f;
    more = more < (float)n_equal ? more : (float)n_equal;
    return (float)n_above + (more > 1.0f ? more : 1.0f);
}

/* Rows [first, last) of n_rows = B·H·Q rows of n_keys weights. pattern: (B, Q, S), a bit for each pattern a key is in, or
 * null. out: (rows, 6), entropy, largest weight, keys needed, weight on each pattern; not finite where a weight is not.
 * Returns 0, or 1 without memory. */
int attention_rows(int64_t first, int64_t last, int64_t n_heads, int64_t n_queries, int64_t n_keys, double share,
                   const float *p, const uint8_t *pattern, float *out) {
    int64_t n = (n_keys + W - 1) / W * W;
    float *row = aligned_alloc(64, (size_t)n * sizeof *row);
    uint8_t *own = calloc((size_t)n, 1);
    if (!row || !own) {
        free(row);
        free(own);
        return 1;
    }
    memset(row, 0, (size_t)n * sizeof *row);
    for (int64_t r = first; r < last; r++) {
        memcpy(row, p + r * n_keys, (size_t)n_keys * sizeof *row);
        vec entropy = {0}, total = {0}, top = {0};
        for (int64_t j = 0; j < n; j += W) {
            vec x = load(row + j);
            entropy -= x * log_vec(pick(x < 0x1p-126f, (vec){0} + 0x1p-126f, x));
            total += x;
            top = pick(x > top, x, top);
        }
        float largest = top[0];
        for (int i = 1; i < W; i++) largest = top[i] > largest ? top[i] : largest;
        float *found = out + r * OUT, weight = (float)sum(total);
        memset(found, 0, OUT * sizeof *found);
        found[0] = (float)sum(entropy);
        if (!isfinite(found[0]) || !isfinite(weight)) {
            found[0] = NAN;
            continue;
        }
        found[1] = largest;
        found[2] = n_needed(row, n, weight, largest, (float)share);
        if (!pattern) continue;
        int64_t b = r / (n_heads * n_queries), q = r % n_queries;
        memcpy(own, pattern + (b * n_queries + q) * n_keys, (size_t)n_keys);
        vec on[PATTERNS] = {{0}};
        for (int64_t j = 0; j < n; j += W) {
            bytes narrow;
            memcpy(&narrow, own + j, sizeof narrow);
            ivec member = __builtin_convertvector(narrow, ivec);
            ivec x = (ivec)load(row + j);
            for (int k = 0; k < PATTERNS; k++) on[k] += (vec)(x & ((member & (1 << k)) != 0));
        }
        for (int k = 0; k < PATTERNS; k++) found[3 + k] = (float)sum(on[k]);
    }
    free(row);
    free(own);
    return 0;
}
