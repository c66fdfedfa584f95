/* Classes and token counts of mini-batches: the CPU twin of scansnap/sampling/counts.py.
 *
 * Every number is a pure function of (seed, purpose, step, sample, slot, trial), and the arithmetic follows
 * the torch version operation by operation, so that both draw the same data; a test holds them equal.
 *
 * Sequences do not depend on each other, so a few go side by side in the lanes of a vector, of whatever steps and
 * seeds. Walks up a distribution function end at different lengths: a lane that is there waits for the others, which
 * is cheaper than a branch that nobody can foresee in every draw.
 */
#include <math.h>
#include <stdint.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

/* Constants of philox.py and counts.py; tests compare the outputs, so a difference cannot go unseen. */
enum { ROUNDS = 10, PURPOSE_CLASS = 1, PURPOSE_COUNT = 2 };
static const double INVERSION_LIMIT = 12.0;

#if defined(__AVX512F__) /* doubles in a register */
enum { LANES = 8 };
#elif defined(__AVX__)
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif
enum { RECIPROCALS = 128 };

typedef double reals __attribute__((vector_size(8 * LANES)));
typedef int64_t whole __attribute__((vector_size(8 * LANES)));
typedef uint64_t words __attribute__((vector_size(8 * LANES)));

#define INLINE static inline __attribute__((always_inline))

INLINE reals pick(whole mask, reals yes, reals no) { return (reals)((mask & (whole)yes) | (~mask & (whole)no)); }

INLINE int any(whole mask) { /* of lanes that are all ones or all zeros */
#if defined(__AVX512F__)
    return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX__)
    return _mm256_movemask_pd((__m256d)mask) != 0;
#else
    int64_t found = 0;
    for (int l = 0; l < LANES; l++) found |= mask[l];
    return found != 0;
#endif
}

/* The whole product of the low 32 bits. */
INLINE words times(words a, uint32_t b) {
#if defined(__AVX512F__)
    return (words)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__)
    return (words)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(__SSE2__) && !defined(__AVX__)
    return (words)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
    return (a & 0xFFFFFFFFu) * b;
#endif
}

/* Where a lane's numbers come from. */
typedef struct { words seed, step, sample; } places;

/* The largest integer up to x, |x| < 2^63. */
INLINE reals floor_of(reals x) {
    reals cut = __builtin_convertvector(__builtin_convertvector(x, whole), reals);
    return cut - pick(cut > x, (reals){0} + 1, (reals){0});
}

typedef struct { words a, b, c, d; } block; /* only the low 32 bits of each lane count */

INLINE block philox(words seed, words purpose, words step, words major, words minor) {
    words c0 = minor, c1 = major, c2 = step, c3 = purpose, k0 = seed, k1 = seed >> 32;
    for (int round = 0; round < ROUNDS; round++) {
        words p0 = times(c0, 0xD2511F53u), p1 = times(c2, 0xCD9E8D57u);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (block){c0, c1, c2, c3};
}

/* 53 random bits on [0, 1). */
INLINE reals unit(words high, words low) {
    words bits = (high & 0xFFFFFFFFu) << 21 | (low & 0xFFFFFFFFu) >> 11;
    return __builtin_convertvector((whole)bits, reals) * 0x1p-53;
}

INLINE block draw(const places *at, int64_t slot, int64_t trial) {
    return philox(at->seed, (words){0} + PURPOSE_COUNT, at->step, at->sample, (words){0} + (uint64_t)(slot << 8 | trial));
}

/* e^x for −700 < x ≤ 0, to a unit in the last place: e^{n ln 2 + r} with a series in r, |r| ≤ ln 2 / 2. */
INLINE reals exponential(reals x) {
    const double magic = 0x1.8p52; /* adding it rounds to an integer, left in the low mantissa bits */
    reals shifted = x * 1.4426950408889634 + magic, n = shifted - magic;
    reals r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33; /* the first product is exact */
    reals q = r * r; /* even and odd powers apart: two short chains instead of a long one */
    reals even = q * (1.0 / 479001600) + 1.0 / 3628800, odd = q * (1.0 / 6227020800) + 1.0 / 39916800;
    even = even * q + 1.0 / 40320, odd = odd * q + 1.0 / 362880;
    even = even * q + 1.0 / 720, odd = odd * q + 1.0 / 5040;
    even = even * q + 1.0 / 24, odd = odd * q + 1.0 / 120;
    even = even * q + 0.5, odd = odd * q + 1.0 / 6;
    reals p = 1 + (r + (even + odd * r) * q);
    return (reals)((whole)p + ((whole)shifted << 52));
}

/* ln x for x > 0, to two units in the last place: x = m 2^n with m between √½ and √2, and with s = (m − 1)/(m + 1)
 * ln m = 2 (s + s³/3 + s⁵/5 + …). */
INLINE reals logarithm(reals x) {
    whole n = ((whole)x - 0x3FE6A09E667F3BCD) >> 52; /* the bits of √½ */
    reals f = (reals)((whole)x - (n << 52)) - 1, s = f / (2 + f), q = s * s, w = q * q;
    reals odd = w * (2.0 / 19) + 2.0 / 15, even = w * (2.0 / 21) + 2.0 / 17;
    odd = odd * w + 2.0 / 11, even = even * w + 2.0 / 13;
    odd = odd * w + 2.0 / 7, even = even * w + 2.0 / 9;
    odd = odd * w + 2.0 / 3, even = even * w + 2.0 / 5;
    reals half = 0.5 * f * f, power = __builtin_convertvector(n, reals);
    reals tail = s * (half + q * (odd + q * even)) + power * 0x1.a39ef35793c76p-33; /* 2s = f − f²/2 + s f²/2 */
    return power * 0x1.62e42feep-1 + (f - (half - tail));
}

/* ln k! minus Stirling's formula at k + 1, for k ≥ 0. */
INLINE reals stirling(const double *table, reals k) {
    reals inverse = 1 / (k + 1), square = inverse * inverse;
    reals rest = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 * square) * square) * inverse;
    whole small = k < 10;
    if (any(small))
        for (int l = 0; l < LANES; l++)
            if (small[l]) rest[l] = table[(int)k[l]];
    return rest;
}

/* Walk up the distribution function until it passes u; lanes that are not ``wanted`` stay at 0. */
INLINE reals by_inversion(reals n, reals odds, reals log_rest, reals u, whole wanted, const double *reciprocal) {
    reals pmf = exponential(pick(wanted, n * log_rest, (reals){0})), k = {0};
    for (int i = 0;; i++) { /* lanes that still walk are all at k = i */
        wanted &= (u >= pmf) & (n > (double)i);
        if (!any(wanted)) return k;
        u -= pmf;
        k = pick(wanted, (reals){0} + (i + 1.0), k);
        /* a product with a table is faster than a quotient */
        pmf *= odds * (n - i) * (i + 1 < RECIPROCALS ? reciprocal[i + 1] : 1.0 / (i + 1));
    }
}

/* Hörmann's transformed rejection with squeeze (BTRS, 1993), for n p of at least 10 and p of at most 1/2; lanes that are
 * not ``wanted`` get anything. Every lane tries until it accepts: in most trials the squeeze decides, in the others the
 * ratio of the probabilities of k and of the mode. */
INLINE reals by_rejection(reals n, reals p, reals odds, const places *at, int64_t slot, whole wanted, const double *table) {
    n = pick(wanted, n, (reals){0} + 100), p = pick(wanted, p, (reals){0} + 0.5), odds = pick(wanted, odds, (reals){0} + 1);
    reals spread = n * p * (1 - p), k = {0};
    for (int l = 0; l < LANES; l++) spread[l] = __builtin_sqrt(spread[l]);
    reals b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * p;
    reals squeeze = 0.92 - 4.2 / b, mode = floor_of((n + 1) * p);
    block r = draw(at, slot, 1);
    for (int64_t trial = 2;; trial++) {
        block next = draw(at, slot, trial); /* most slots need it, and it does not wait for what follows */
        reals u = unit(r.a, r.b) - 0.5, v = unit(r.c, r.d), side = 0.5 - pick(u < 0, -u, u);
        reals x = (2 * a / side + b) * u + n * p + 0.5;
        whole inside = (x >= 0) & (x < n + 1), quick = (side >= 0.07) & (v <= squeeze), good = inside & quick;
        x = floor_of(pick(inside, x, mode));
        whole rest = wanted & inside & ~quick;
        if (any(rest)) { /* the logarithm of v over the ratio of probabilities, by Stirling's formula and what it leaves */
            reals area = side * side, scale = (2.83 * b + 5.1) * spread * v * area / ((a + b * area) * b);
            reals lead = (x + 0.5) * logarithm((x + 1) / (mode + 1)) +
                         (n - x + 0.5) * logarithm((n - x + 1) / (n - mode + 1)) +
                         (x - mode) * logarithm((mode + 1) / ((n - mode + 1) * odds)) + logarithm(scale);
            lead += stirling(table, x) + stirling(table, n - x) - stirling(table, mode) - stirling(table, n - mode);
            good |= rest & (lead <= 0);
        }
        k = pick(wanted & good, x, k);
        wanted &= ~good;
        if (!any(wanted)) return k;
        r = next;
    }
}

/* Number of edges at or below u. */
INLINE int64_t class_of(double u, const double *edges, int64_t n) {
    const double *at = edges;
    while (n > 1) {
        int64_t half = n / 2;
        at += at[half - 1] <= u ? half : 0;
        n -= half;
    }
    return at - edges + (*at <= u);
}

/* What a draw needs to know of a slot: the smaller of p and 1 − p, its odds and ln(1 − p), and whether it was turned. */
typedef struct { double p, odds, log_rest, flip; } chance;

/* PaddedLayout [first, last) of the n_seeds × n_steps grid. Counts are left alone when n_slots is 0. Returns 0. */
int sample_places(
    int64_t first, int64_t last, int64_t n_steps, int64_t batch_size, int64_t n_classes, int64_t n_slots,
    double length, const int64_t *seeds, const int64_t *steps, const double *class_edges, /* (K,) */
    const chance *chances,                                                                /* (K, S) */
    const double *stirling_table, int64_t *cls, float *counts) {
    double reciprocal[RECIPROCALS] = {1.0};
    for (int k = 1; k < RECIPROCALS; k++) reciprocal[k] = 1.0 / k;
    int64_t end = last * batch_size;
    for (int64_t start = first * batch_size; start < end; start += LANES) {
        places at;
        for (int l = 0; l < LANES; l++) {
            int64_t i = start + l < end ? start + l : end - 1; /* lanes too many repeat the last */
            int64_t p = i / batch_size;
            at.seed[l] = (uint64_t)seeds[p / n_steps];
            at.step[l] = (uint64_t)steps[p % n_steps];
            at.sample[l] = (uint64_t)(i % batch_size);
        }
        int lanes = end - start < LANES ? (int)(end - start) : LANES;
        block r = philox(at.seed, (words){0} + PURPOSE_CLASS, at.step, (words){0}, at.sample);
        reals u = unit(r.a, r.b);
        const chance *of[LANES];
        for (int l = 0; l < LANES; l++) {
            int64_t n = class_of(u[l], class_edges, n_classes);
            if (l < lanes) cls[start + l] = n;
            of[l] = chances + n * n_slots;
        }
        reals left = (reals){0} + length;
        for (int64_t s = 0; s < n_slots; s++) {
            reals p, odds, log_rest, flip;
            for (int l = 0; l < LANES; l++) {
                p[l] = of[l][s].p;
                odds[l] = of[l][s].odds;
                log_rest[l] = of[l][s].log_rest;
                flip[l] = of[l][s].flip;
            }
            whole few = left * p < INVERSION_LIMIT;
            reals k = {0};
            if (any(few)) {
                block r = draw(&at, s, 0);
                k = by_inversion(left, odds, log_rest, unit(r.a, r.b), few, reciprocal);
            }
            if (any(~few)) k = pick(few, k, by_rejection(left, p, odds, &at, s, ~few, stirling_table));
            k = pick(flip > 0, left - k, k);
            for (int l = 0; l < lanes; l++) counts[(start + l) * n_slots + s] = (float)k[l];
            left -= k;
        }
    }
    return 0;
}

/* Both uniforms of philox.py's function of that name at rows [first, last) of the (seed, step, major) grid, each with
 * all minor places: u and v are (n_seeds, n_steps, n_majors, n_minors). Returns 0. */
int uniforms_of_rows(int64_t first, int64_t last, int64_t purpose, int64_t n_steps, int64_t n_majors,
                     int64_t n_minors, const int64_t *seeds, const int64_t *steps, const int64_t *majors,
                     const int64_t *minors, double *u, double *v) {
    for (int64_t row = first; row < last; row++) {
        words seed = (words){0} + (uint64_t)seeds[row / n_majors / n_steps];
        words step = (words){0} + (uint64_t)steps[row / n_majors % n_steps];
        words major = (words){0} + (uint64_t)majors[row % n_majors];
        for (int64_t start = 0; start < n_minors; start += LANES) {
            int64_t lanes = n_minors - start < LANES ? n_minors - start : LANES;
            words minor = {0};
            for (int l = 0; l < lanes; l++) minor[l] = (uint64_t)minors[start + l];
            block r = philox(seed, (words){0} + (uint64_t)purpose, step, major, minor);
            reals us = unit(r.a, r.b), vs = unit(r.c, r.d);
            for (int l = 0; l < lanes; l++) {
                u[row * n_minors + start + l] = us[l];
                v[row * n_minors + start + l] = vs[l];
            }
        }
    }
    return 0;
}
