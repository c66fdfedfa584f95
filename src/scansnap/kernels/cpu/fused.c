/* Many SGD steps of many runs, each run in cache from its first step to its last.
 *
 * The general engine (dynamics/yz.py) is batched over runs and walks through memory once per operation. Here one
 * run's Y, velocity and Z are copied into scratch that fits the second-level cache and all steps are done there.
 * Samples are grouped by class, so that every product is a small dense one over the class's own slots:
 *
 *     logits = F Y_n          (samples × slots) · (slots × columns)
 *     dY_n   = Fᵀ E           (slots × samples) · (samples × columns),   E = e_n − α, weighted
 *     dz_m  += rowsum(Y_n ∘ dY_n) − Σ_i f_i² (f_iᵀ g_i)
 *
 * The last line is Lemma 1 summed over a class: Σ_i diag(f_i) Y (e_n − α_i) is the row sum of Y ∘ dY_n, and
 * f_iᵀ g_i is Σ_j logit_j E_ij. It saves the third product, the backward pass through Y.
 *
 * Two more passes through memory are saved. E is never divided by its sum: that factor goes to F, which is much
 * smaller. And a row of Y that only one class has, a distinct token's, moves as soon as its gradient is there.
 *
 * Samples and slots go through in tiles of four, so that sums over a vector's lanes are made four at a time.
 * Columns are padded to whole vectors with multiplicity 0. L2 norm, no residual, one head, SGD with momentum.
 */
#include <stdlib.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#if defined(__AVX512F__) /* floats in a register; fused.py pads to the largest */
enum { W = 16 };
#elif defined(__AVX__)
enum { W = 8 };
#else
enum { W = 4 };
#endif
enum { TILE = 4, ACROSS = 3 }; /* samples or slots in a tile, and its width in vectors */

#include "vectors.h"

/* The larger of each pair; b where one of the two is NaN. Compilers do not see one instruction in a choice. */
#if defined(__AVX512F__)
INLINE vec larger(vec a, vec b) { return _mm512_max_ps(a, b); }
#elif defined(__AVX__)
INLINE vec larger(vec a, vec b) { return _mm256_max_ps(a, b); }
#else
INLINE vec larger(vec a, vec b) { return pick(a > b, a, b); }
#endif

INLINE four larger_four(four a, four b) {
    ifour mask = a > b;
    return (four)((mask & (ifour)a) | (~mask & (ifour)b));
}

INLINE four plus(four a, four b) { return a + b; }

/* The numbers at p up to the end of their array, and zeros. */
INLINE vec load_until(const float *p, const float *end) {
    if (end - p >= W) return load(p);
    vec v = {0};
    for (int i = 0; i < W; i++)
        if (i < end - p) v[i] = p[i];
    return v;
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (ifour){i, j, k, l})
#endif

/* Four vectors, each reduced over its lanes, side by side. */
#define REDUCTION(name, OP)                                                                                  \
    INLINE four name(const vec v[TILE]) {                                                                    \
        four part[TILE][W / 4];                                                                              \
        memcpy(part, v, sizeof part);                                                                        \
        for (int i = 0; i < TILE; i++)                                                                       \
            for (int n = W / 8; n; n /= 2)                                                                   \
                for (int h = 0; h < n; h++) part[i][h] = OP(part[i][h], part[i][h + n]);                     \
        four a = part[0][0], b = part[1][0], c = part[2][0], d = part[3][0];                                 \
        four ab = OP(SHUFFLE(a, b, 0, 4, 1, 5), SHUFFLE(a, b, 2, 6, 3, 7));                                  \
        four cd = OP(SHUFFLE(c, d, 0, 4, 1, 5), SHUFFLE(c, d, 2, 6, 3, 7));                                  \
        return OP(SHUFFLE(ab, cd, 0, 1, 4, 5), SHUFFLE(ab, cd, 2, 3, 6, 7));                                 \
    }
REDUCTION(sums, plus)
REDUCTION(maxima, larger_four)

/* e^x for x ≤ 0, to about 2 units in the last place; below −87 it stays at e^−87. NaN stays NaN. */
INLINE vec exp_vec(vec x) {
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, left in the low mantissa bits */
    x = larger(all(-87.0f), x);
    vec shifted = x * 1.44269504f + magic;
    vec n = shifted - magic;
#ifdef __FMA__
    vec r = x - n * 0.693147182f; /* not rounded before the difference; ln 2 is off by 2e-9 */
#else
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f; /* ln 2 in two parts; the first product is exact */
#endif
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return (vec)((ivec)p + ((ivec)shifted << 23)); /* the low bits of `shifted` are n: times 2^n */
}

/* One run's tables and scratch. */
typedef struct {
    float *y, *v;      /* (L, columns) table and velocity */
    float *z, *vz;     /* (Q, M) */
    float *f, *scaled; /* (B, S) with S padded to whole vectors: f, and f times minus the scale of E */
    float *e;          /* (B, columns) logits, then E but for its scale */
    float *weight;     /* (B,) of the samples in class order */
    float *behind;     /* (B,) fᵀg but for the scale of E */
    float *key;        /* (S,) e^{z − max} */
    float *row_dot;    /* (S,) */
    float *wrong;      /* (columns,) 0 at the class's target, else 1 */
    int64_t *order;    /* (B,) samples by class */
    int64_t *start;    /* (K + 1) */
    int64_t *shared;   /* (n_shared,) rows that not exactly one class has */
    uint8_t *own;      /* (L,) whether exactly one class has the row */
    int64_t n_shared;
} work;

/* What is the same for all runs; the names are those of dynamics/layout.py. */
typedef struct {
    int64_t n_classes, n_slots_max, n_rows, n_columns, n_queries, vocab_size, batch_size;
    const int64_t *n_slots, *slots, *slot_row, *class_query, *target;
    const float *inverse_multiplicity, *log_multiplicity; /* (columns,), padded */
} shape;

/* How Y moves in this step. */
typedef struct { float rate, keep; } pace;

INLINE int64_t whole_vectors(int64_t n) { return (n + W - 1) / W * W; }

/* Calls CALL(rows) with a compile-time constant. */
#define BY_ROWS(rows, CALL)      \
    switch (rows) {              \
        case 1: CALL(1); break;  \
        case 2: CALL(2); break;  \
        case 3: CALL(3); break;  \
        default: CALL(4); break; \
    }

/* f = k∘e^z / ‖k∘e^z‖ where the class's favourite key is not in the sample and squares would underflow. */
static void from_own_favourite(float *f, const float *count, const float *z_row, const int64_t *slot, int64_t n_slots) {
    float own = -1e38f, square = 0;
    for (int64_t s = 0; s < n_slots; s++)
        if (count[s] > 0 && z_row[slot[s]] > own) own = z_row[slot[s]];
    for (int64_t s = 0; s < n_slots; s++) {
        float x = z_row[slot[s]] - own;
        f[s] = count[s] > 0 ? count[s] * exp_vec(all(x < 0 ? x : 0))[0] : 0;
        square += f[s] * f[s];
    }
    for (int64_t s = 0; s < n_slots; s++) f[s] /= __builtin_sqrtf(square);
}

/* f = k∘e^z / ‖k∘e^z‖ for the samples of one class; the sum in c cancels in the norm. */
INLINE void attention(const work *w, const shape *k, int64_t n, int64_t n_samples, const int64_t *order,
                      const float *counts, int64_t f_stride) {
    const float *end = counts + k->batch_size * k->n_slots_max;
    int64_t n_slots = k->n_slots[n], padded = whole_vectors(n_slots);
    const float *z_row = w->z + k->class_query[n] * k->vocab_size;
    const int64_t *slot = k->slots + n * k->n_slots_max;
    float top = z_row[slot[0]];
    for (int64_t s = 1; s < n_slots; s++) top = z_row[slot[s]] > top ? z_row[slot[s]] : top;
    for (int64_t s = 0; s < padded; s++) w->key[s] = s < n_slots ? z_row[slot[s]] - top : 0;
    for (int64_t s = 0; s < padded; s += W) store(w->key + s, exp_vec(load(w->key + s)));
    for (int64_t s = n_slots; s < padded; s++) w->key[s] = 0; /* what follows a sample's counts are another's */
    for (int64_t i = 0; i < n_samples; i += TILE) {
        int rows = n_samples - i < TILE ? (int)(n_samples - i) : TILE;
        float *f = w->f + i * f_stride;
        vec square[TILE] = {0};
        for (int r = 0; r < rows; r++)
            for (int64_t s = 0; s < padded; s += W) {
                vec x = load_until(counts + order[i + r] * k->n_slots_max + s, end) * load(w->key + s);
                square[r] += x * x;
                store(f + r * f_stride + s, x);
            }
        four length = sums(square);
        for (int r = 0; r < rows; r++) {
            if (length[r] < 1e-24f) {
                from_own_favourite(f + r * f_stride, counts + order[i + r] * k->n_slots_max, z_row, slot, n_slots);
                continue;
            }
            float scale = 1 / __builtin_sqrtf(length[r]);
            for (int64_t s = 0; s < padded; s += W) store(f + r * f_stride + s, load(f + r * f_stride + s) * scale);
        }
    }
}

/* The loops over a tile are of one level and unrolled by request: only then do its accumulators stay in registers. */
#define UNROLL _Pragma("GCC unroll 4")

typedef struct { vec a, b, c; } strip; /* up to ACROSS vectors side by side; nv says how many count */

INLINE strip load_strip(int nv, const float *p) {
    strip s = {0};
    s.a = load(p);
    if (nv > 1) s.b = load(p + W);
    if (nv > 2) s.c = load(p + 2 * W);
    return s;
}

INLINE void store_strip(int nv, float *p, strip s) {
    store(p, s.a);
    if (nv > 1) store(p + W, s.b);
    if (nv > 2) store(p + 2 * W, s.c);
}

/* x + f y */
INLINE strip add_scaled(int nv, strip x, float f, strip y) {
    x.a += f * y.a;
    if (nv > 1) x.b += f * y.b;
    if (nv > 2) x.c += f * y.c;
    return x;
}

/* logits[.., j .. j + nv vectors] = Σ_s f[i, s] Y[row_s, j], and the largest so far of log multiplicity + logit */
INLINE void logits_tile(int mr, int nv, const float *f, int64_t f_stride, const float *y, const int64_t *row,
                        int64_t n_slots, float *e, int64_t columns, const float *log_multiplicity, vec top[TILE]) {
    strip acc[TILE] = {0}, log_m = load_strip(nv, log_multiplicity);
    for (int64_t s = 0; s < n_slots; s++) {
        strip y_s = load_strip(nv, y + row[s] * columns);
        UNROLL for (int i = 0; i < mr; i++) acc[i] = add_scaled(nv, acc[i], f[i * f_stride + s], y_s);
    }
    UNROLL for (int i = 0; i < mr; i++) {
        store_strip(nv, e + i * columns, acc[i]);
        top[i] = larger(acc[i].a + log_m.a, top[i]);
        if (nv > 1) top[i] = larger(acc[i].b + log_m.b, top[i]);
        if (nv > 2) top[i] = larger(acc[i].c + log_m.c, top[i]);
    }
}

/* Forward pass of mr samples from i on: logits, and E = weight (e_n − α) as minus its scale weight/Σp, which goes to
 * f, times p_j, and −Σ_{j≠n} p_j at the target.
 *
 * 1 − α_n is summed from the other outputs and fᵀg from differences of logits: both stay accurate when α_n is
 * nearly 1, and Σ_l dz_l = 0 then holds to rounding of dz itself. */
INLINE void sample_tile(int mr, const work *w, const shape *k, int64_t n, int64_t i, const float *weight,
                        int64_t f_stride) {
    int64_t n_slots = k->n_slots[n], columns = k->n_columns, target = k->target[n];
    const int64_t *row = k->slot_row + n * k->n_slots_max;
    const float *f = w->f + i * f_stride, *log_multiplicity = k->log_multiplicity;
    float *e = w->e + i * columns;
    vec top[TILE];
    for (int r = 0; r < TILE; r++) top[r] = all(-3e38f);
    for (int64_t j = 0; j < columns; j += ACROSS * W) {
#define CALL(nv) logits_tile(mr, nv, f, f_stride, w->y + j, row, n_slots, e + j, columns, log_multiplicity + j, top)
        switch ((columns - j) / W) {
            case 1: CALL(1); break;
            case 2: CALL(2); break;
            default: CALL(3); break;
        }
#undef CALL
    }
    four shift = maxima(top);
    float right[TILE];
    vec others[TILE] = {0}, behind[TILE] = {0};
    for (int r = 0; r < mr; r++) right[r] = e[r * columns + target];
    for (int64_t j = 0; j < columns; j += W)
        for (int r = 0; r < mr; r++) {
            vec logit = load(e + r * columns + j);
            vec p = exp_vec(logit + load(log_multiplicity + j) - shift[r]);
            others[r] += p * load(w->wrong + j);
            behind[r] += p * (right[r] - logit);
            store(e + r * columns + j, p);
        }
    four other = sums(others), back = sums(behind);
    for (int r = 0; r < mr; r++) {
        float scale = weight[r] / (other[r] + e[r * columns + target]);
        e[r * columns + target] = -other[r];
        w->behind[i + r] = back[r];
        for (int64_t s = 0; s < n_slots; s += W)
            store(w->scaled + (i + r) * f_stride + s, load(f + r * f_stride + s) * -scale);
    }
}

/* dY_n[s, j .. j + nv vectors] for mr slots; the velocity, and Y where the row is the class's own, move by it.
 * total[s] += Σ_j Y[row_s, j] dY_n[s, j] multiplicity_j, E being divided by the multiplicity only here. */
INLINE void gradient_tile(int mr, int nv, const float *scaled, int64_t f_stride, const float *e, int64_t n_samples,
                          float *y, float *v_table, const int64_t *row, const uint8_t *own,
                          const float *inverse_multiplicity, int64_t columns, pace by, vec total[TILE]) {
    strip acc[TILE] = {0}, inverse = load_strip(nv, inverse_multiplicity);
    for (int64_t i = 0; i < n_samples; i++) {
        strip e_i = load_strip(nv, e + i * columns);
        UNROLL for (int s = 0; s < mr; s++) acc[s] = add_scaled(nv, acc[s], scaled[i * f_stride + s], e_i);
    }
    UNROLL for (int s = 0; s < mr; s++) {
        float *y_row = y + row[s] * columns, *v_row = v_table + row[s] * columns;
        strip y_s = load_strip(nv, y_row), v_s = load_strip(nv, v_row), step = acc[s];
        total[s] += y_s.a * step.a;
        if (nv > 1) total[s] += y_s.b * step.b;
        if (nv > 2) total[s] += y_s.c * step.c;
        step.a *= inverse.a, step.b *= inverse.b, step.c *= inverse.c;
        if (own[row[s]]) {
            v_s = add_scaled(nv, step, by.keep, v_s);
            store_strip(nv, y_row, add_scaled(nv, y_s, by.rate, v_s));
        } else { /* the velocity was faded at the beginning of the step; Y moves at its end */
            v_s = add_scaled(nv, v_s, 1, step);
        }
        store_strip(nv, v_row, v_s);
    }
}

/* Backward pass of mr slots from s on, all columns. */
INLINE void slot_tile(int mr, const work *w, const shape *k, int64_t n, int64_t s, int64_t n_samples,
                      int64_t f_stride, pace by) {
    int64_t columns = k->n_columns;
    const int64_t *row = k->slot_row + n * k->n_slots_max + s;
    vec total[TILE] = {0};
    for (int64_t j = 0; j < columns; j += ACROSS * W) {
#define CALL(nv) gradient_tile(mr, nv, w->scaled + s, f_stride, w->e + j, n_samples, w->y + j, w->v + j, row, w->own, \
                               k->inverse_multiplicity + j, columns, by, total)
        switch ((columns - j) / W) {
            case 1: CALL(1); break;
            case 2: CALL(2); break;
            default: CALL(3); break;
        }
#undef CALL
    }
    four dot = sums(total);
    memcpy(w->row_dot + s, &dot, sizeof dot); /* there is room for a whole tile */
}

/* table += rate · velocity */
INLINE void move(float *table, const float *velocity, int64_t size, float rate) {
    for (int64_t i = 0; i < size; i++) table[i] += rate * velocity[i];
}

INLINE void fade(float *velocity, int64_t size, float keep) {
    for (int64_t i = 0; i < size; i++) velocity[i] *= keep;
}

INLINE void class_step(const work *w, const shape *k, int64_t n, int64_t begin, int64_t n_samples,
                       const float *counts, pace by) {
    int64_t n_slots = k->n_slots[n], columns = k->n_columns, f_stride = whole_vectors(k->n_slots_max);
    const int64_t *row = k->slot_row + n * k->n_slots_max, *slot = k->slots + n * k->n_slots_max;
    if (!n_samples) { /* its own rows coast */
        for (int64_t s = 0; s < n_slots; s++)
            if (w->own[row[s]]) {
                fade(w->v + row[s] * columns, columns, by.keep);
                move(w->y + row[s] * columns, w->v + row[s] * columns, columns, by.rate);
            }
        return;
    }
    attention(w, k, n, n_samples, w->order + begin, counts, f_stride);
    w->wrong[k->target[n]] = 0;
    for (int64_t i = 0; i < n_samples; i += TILE) {
#define CALL(mr) sample_tile(mr, w, k, n, i, w->weight + begin + i, f_stride)
        BY_ROWS(n_samples - i, CALL)
#undef CALL
    }
    w->wrong[k->target[n]] = 1;
    for (int64_t s = 0; s < n_slots; s += TILE) {
#define CALL(mr) slot_tile(mr, w, k, n, s, n_samples, f_stride, by)
        BY_ROWS(n_slots - s, CALL)
#undef CALL
    }
    for (int64_t s = 0; s < n_slots; s += W) {
        vec total = load(w->row_dot + s);
        for (int64_t i = 0; i < n_samples; i++)
            total += load(w->scaled + i * f_stride + s) * (load(w->f + i * f_stride + s) * w->behind[i]);
        store(w->row_dot + s, total);
    }
    float *vz = w->vz + k->class_query[n] * k->vocab_size;
    for (int64_t s = 0; s < n_slots; s++) vz[slot[s]] += w->row_dot[s];
}

/* Samples are read class by class, which no processor foresees. */
INLINE void fetch(const float *counts, int64_t size) {
    for (int64_t i = 0; i < size; i += 16) __builtin_prefetch(counts + i, 0, 2);
}

/* One update of a run by the samples of one mini-batch. */
INLINE void step(const work *w, const shape *k, const int64_t *cls, const float *counts, const float *weight,
                 pace y_by, pace z_by) {
    int64_t columns = k->n_columns, z_size = k->n_queries * k->vocab_size;
    memset(w->start, 0, (k->n_classes + 1) * sizeof *w->start); /* counting sort by class */
    for (int64_t b = 0; b < k->batch_size; b++) w->start[cls[b] + 1]++;
    for (int64_t n = 0; n < k->n_classes; n++) w->start[n + 1] += w->start[n];
    for (int64_t b = 0; b < k->batch_size; b++) {
        int64_t at = w->start[cls[b]]++;
        w->order[at] = b;
        w->weight[at] = weight[b];
    }
    fade(w->vz, z_size, z_by.keep);
    for (int64_t l = 0; l < w->n_shared; l++) fade(w->v + w->shared[l] * columns, columns, y_by.keep);
    int64_t begin = 0; /* after the loop above, start[n] is the end of class n */
    for (int64_t n = 0; n < k->n_classes; n++) {
        class_step(w, k, n, begin, w->start[n] - begin, counts, y_by);
        begin = w->start[n];
    }
    move(w->z, w->vz, z_size, z_by.rate);
    for (int64_t l = 0; l < w->n_shared; l++) {
        int64_t at = w->shared[l] * columns;
        move(w->y + at, w->v + at, columns, y_by.rate);
    }
}

INLINE void copy_in(float *to, const float *from, int64_t rows, int64_t columns, int64_t padded) {
    for (int64_t l = 0; l < rows; l++) {
        memcpy(to + l * padded, from + l * columns, columns * sizeof *to);
        memset(to + l * padded + columns, 0, (padded - columns) * sizeof *to);
    }
}

/* Copies back; returns 0 if any number is infinite or NaN. */
INLINE int copy_out(float *to, const float *from, int64_t rows, int64_t columns, int64_t padded) {
    int32_t bad = 0;
    for (int64_t l = 0; l < rows; l++)
        for (int64_t j = 0; j < columns; j++) {
            int32_t bits;
            memcpy(&bits, from + l * padded + j, sizeof bits);
            bad |= (bits & 0x7f800000) == 0x7f800000;
            to[l * columns + j] = from[l * padded + j];
        }
    return !bad;
}

/* Which rows exactly one class has. */
static void find_owners(work *w, const shape *k) {
    memset(w->own, 0, k->n_rows);
    for (int64_t n = 0; n < k->n_classes; n++)
        for (int64_t s = 0; s < k->n_slots[n]; s++) {
            uint8_t *classes = w->own + k->slot_row[n * k->n_slots_max + s];
            *classes += *classes < 2;
        }
    for (int64_t l = 0; l < k->n_rows; l++) {
        w->own[l] = w->own[l] == 1;
        if (!w->own[l]) w->shared[w->n_shared++] = l;
    }
}

/* Runs [first, last), n_steps updates each. Tables are (R, L, J) and (R, Q, M); data (G, N, B[, S]) by data stream
 * stream[r]; rates (N, R). finite[r] says whether the run's new tables may be used. Returns 0, or 1 without memory. */
int advance_runs(int64_t first, int64_t last, int64_t n_steps, const shape *k, int64_t columns,
                 const int64_t *stream, const int64_t *cls, const float *counts, const float *weight,
                 const float *rate_y, const float *rate_z, const float *momentum, int64_t n_runs,
                 const float *y, const float *v, const float *z, const float *vz,
                 float *new_y, float *new_v, float *new_z, float *new_vz, uint8_t *finite) {
    int64_t b_size = k->batch_size, y_size = k->n_rows * k->n_columns, z_size = k->n_queries * k->vocab_size;
    int64_t f_size = b_size * whole_vectors(k->n_slots_max), s_size = whole_vectors(k->n_slots_max) + TILE;
    int64_t sizes[] = {y_size, y_size, z_size, z_size, f_size, f_size, b_size * k->n_columns, b_size, b_size,
                       s_size, s_size, k->n_columns};
    enum { N_FLOATS = sizeof sizes / sizeof *sizes };
    int64_t total = 0;
    for (int i = 0; i < N_FLOATS; i++) total += sizes[i] = (sizes[i] + 15) / 16 * 16;
    float *floats = aligned_alloc(64, total * sizeof *floats), *part[N_FLOATS];
    int64_t *indices = malloc((b_size + k->n_classes + 1 + k->n_rows) * sizeof *indices);
    uint8_t *own = malloc(k->n_rows);
    int failed = !(floats && indices && own);
    if (!failed) {
        part[0] = floats;
        for (int i = 1; i < N_FLOATS; i++) part[i] = part[i - 1] + sizes[i - 1];
        work w = {part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7], part[8], part[9], part[10],
                  part[11], indices, indices + b_size, indices + b_size + k->n_classes + 1, own, 0};
        find_owners(&w, k);
        for (int64_t j = 0; j < k->n_columns; j++) w.wrong[j] = 1;
        for (int64_t r = first; r < last; r++) {
            int64_t y_at = r * k->n_rows * columns, z_at = r * z_size;
            copy_in(w.y, y + y_at, k->n_rows, columns, k->n_columns);
            copy_in(w.v, v + y_at, k->n_rows, columns, k->n_columns);
            copy_in(w.z, z + z_at, 1, z_size, z_size);
            copy_in(w.vz, vz + z_at, 1, z_size, z_size);
            for (int64_t t = 0; t < n_steps; t++) {
                int64_t batch = (stream[r] * n_steps + t) * b_size, data = b_size * k->n_slots_max;
                if (t + 1 < n_steps) fetch(counts + (batch + b_size) * k->n_slots_max, data);
                pace y_by = {rate_y[t * n_runs + r], momentum[r]}, z_by = {rate_z[t * n_runs + r], momentum[r]};
                step(&w, k, cls + batch, counts + batch * k->n_slots_max, weight + batch, y_by, z_by);
            }
            int good = copy_out(new_y + y_at, w.y, k->n_rows, columns, k->n_columns);
            good &= copy_out(new_v + y_at, w.v, k->n_rows, columns, k->n_columns);
            good &= copy_out(new_z + z_at, w.z, 1, z_size, z_size);
            good &= copy_out(new_vz + z_at, w.vz, 1, z_size, z_size);
            finite[r] = (uint8_t)good;
        }
    }
    free(floats);
    free(indices);
    free(own);
    return failed;
}
