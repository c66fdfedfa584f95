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
 * Columns are padded to whole vectors with multiplicity 0. L2 norm, no residual, one head, SGD with momentum.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { W = 16, TILE = 4 }; /* floats in a vector; samples or slots in a register tile */

typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t ivec __attribute__((vector_size(4 * W)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vec v) { memcpy(p, &v, sizeof v); }

INLINE vec all(float x) { return x - (vec){0}; }

INLINE vec pick(ivec mask, vec yes, vec no) { return (vec)((mask & (ivec)yes) | (~mask & (ivec)no)); }

/* Both halves of a vector, by way of memory that the compiler turns into register moves. */
typedef float half __attribute__((vector_size(2 * W)));
typedef float quarter __attribute__((vector_size(W)));

INLINE float sum(vec v) {
    half h[2];
    quarter q[2];
    memcpy(h, &v, sizeof v);
    h[0] += h[1];
    memcpy(q, h, sizeof q);
    q[0] += q[1];
    return (q[0][0] + q[0][1]) + (q[0][2] + q[0][3]);
}

INLINE vec larger(vec a, vec b) { /* written out, so that it becomes one instruction */
    vec r;
    for (int i = 0; i < W; i++) r[i] = a[i] > b[i] ? a[i] : b[i];
    return r;
}

INLINE float largest(vec v) {
    float part[W];
    memcpy(part, &v, sizeof v);
    for (int n = W / 2; n; n /= 2)
        for (int i = 0; i < n; i++) part[i] = part[i] > part[i + n] ? part[i] : part[i + n];
    return part[0];
}

/* e^x for x ≤ 0, to about 2 units in the last place; below −87 it stays at e^−87. NaN stays NaN. */
INLINE vec exp_vec(vec x) {
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, left in the low mantissa bits */
    x = pick(x < -87.0f, all(-87.0f), x);
    vec shifted = x * 1.44269504f + magic;
    vec n = shifted - magic;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f; /* ln 2 in two parts; the first product is exact */
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
    float *y, *v;   /* (L, columns) table and velocity */
    float *z, *vz;  /* (Q, M) */
    float *f;       /* (B, S) with S padded to whole vectors, as in the two below */
    float *e;       /* (B, columns) logits, then E */
    float *weight;  /* (B,) of the samples in class order */
    float *dot;     /* (B,) weight · fᵀg */
    float *key;     /* (S,) e^{z − max} */
    float *count;   /* (S,) of one sample */
    int64_t *order; /* (B,) samples by class */
    int64_t *start; /* (K + 1) */
} work;

/* What is the same for all runs; the names are those of dynamics/layout.py. */
typedef struct {
    int64_t n_classes, n_slots_max, n_rows, n_columns, n_queries, vocab_size, batch_size;
    const int64_t *n_slots, *slots, *slot_row, *class_query, *target;
    const float *multiplicity, *inverse_multiplicity, *log_multiplicity; /* (columns,), padded */
} shape;

/* logits[i..i+mr, j..j+nv vectors] = Σ_s f[i, s] Y[row_s, j] */
INLINE void logits_tile(int mr, int nv, const float *f, int64_t f_stride, const float *y, const int64_t *row,
                        int64_t n_slots, float *out, int64_t columns) {
    vec acc[TILE][3] = {0};
    for (int64_t s = 0; s < n_slots; s++) {
        const float *y_row = y + row[s] * columns;
        for (int v = 0; v < nv; v++) {
            vec y_v = load(y_row + v * W);
            for (int i = 0; i < mr; i++) acc[i][v] += f[i * f_stride + s] * y_v;
        }
    }
    for (int i = 0; i < mr; i++)
        for (int v = 0; v < nv; v++) store(out + i * columns + v * W, acc[i][v]);
}

/* velocity[row_s] += Σ_i f[i, s] E[i]; row_dot[s] += Σ_j multiplicity_j Y[row_s, j] dY_n[s, j] */
INLINE void gradient_tile(int mr, int nv, const float *f, int64_t f_stride, const float *e, int64_t n_samples,
                          float *v_table, const float *y, const int64_t *row, const float *multiplicity,
                          float *row_dot, int64_t columns) {
    vec acc[TILE][3] = {0};
    for (int64_t i = 0; i < n_samples; i++)
        for (int v = 0; v < nv; v++) {
            vec e_v = load(e + i * columns + v * W);
            for (int s = 0; s < mr; s++) acc[s][v] += f[i * f_stride + s] * e_v;
        }
    for (int s = 0; s < mr; s++) {
        float *v_row = v_table + row[s] * columns;
        const float *y_row = y + row[s] * columns;
        vec total = {0};
        for (int v = 0; v < nv; v++) {
            store(v_row + v * W, load(v_row + v * W) + acc[s][v]);
            total += load(y_row + v * W) * load(multiplicity + v * W) * acc[s][v];
        }
        row_dot[s] += sum(total);
    }
}

/* Calls TILE_CALL(rows, vectors) with both as compile-time constants. */
#define BY_ROWS(rows, nv, CALL)            \
    switch (rows) {                        \
        case 1: CALL(1, nv); break;        \
        case 2: CALL(2, nv); break;        \
        case 3: CALL(3, nv); break;        \
        default: CALL(4, nv); break;       \
    }
#define BY_SHAPE(rows, vectors, CALL)                   \
    switch (vectors) {                                  \
        case 1: BY_ROWS(rows, 1, CALL) break;           \
        case 2: BY_ROWS(rows, 2, CALL) break;           \
        default: BY_ROWS(rows, 3, CALL) break;          \
    }

/* f = k∘e^z / ‖k∘e^z‖ for the samples of one class; the sum in c cancels in the norm. */
INLINE void attention(const work *w, const shape *k, int64_t n, int64_t n_samples, const int64_t *order,
                      const float *counts, int64_t f_stride) {
    int64_t n_slots = k->n_slots[n];
    const float *z_row = w->z + k->class_query[n] * k->vocab_size;
    const int64_t *slot = k->slots + n * k->n_slots_max;
    int64_t padded = (n_slots + W - 1) / W * W;
    float top = z_row[slot[0]];
    for (int64_t s = 1; s < n_slots; s++) top = z_row[slot[s]] > top ? z_row[slot[s]] : top;
    for (int64_t s = 0; s < padded; s++) w->key[s] = s < n_slots ? z_row[slot[s]] - top : -87;
    for (int64_t s = 0; s < padded; s += W) store(w->key + s, exp_vec(load(w->key + s)));
    memset(w->count, 0, padded * sizeof(float));
    for (int64_t i = 0; i < n_samples; i++) {
        const float *count = counts + order[i] * k->n_slots_max;
        float *f = w->f + i * f_stride;
        memcpy(w->count, count, n_slots * sizeof(float));
        vec most = {0}, square = {0};
        for (int64_t s = 0; s < padded; s += W) {
            vec x = load(w->count + s) * load(w->key + s);
            most = larger(x, most);
            store(f + s, x);
        }
        if (largest(most) < 1e-12f) { /* the class's favourite key is not in this sample: squares would underflow */
            float own = -1e38f;
            for (int64_t s = 0; s < n_slots; s++)
                if (count[s] > 0 && z_row[slot[s]] > own) own = z_row[slot[s]];
            for (int64_t s = 0; s < n_slots; s++) {
                float x = z_row[slot[s]] - own;
                f[s] = count[s] > 0 ? count[s] * exp_vec(all(x < 0 ? x : 0))[0] : 0;
            }
        }
        for (int64_t s = 0; s < padded; s += W) square += load(f + s) * load(f + s);
        float scale = 1 / __builtin_sqrtf(sum(square));
        for (int64_t s = 0; s < padded; s += W) store(f + s, load(f + s) * scale);
    }
}

/* logits → E = weight (e_n − α) / multiplicity, in place; returns weight · fᵀg.
 *
 * 1 − α_n is summed from the other outputs and fᵀg from differences of logits: both stay accurate when α_n is
 * nearly 1, and Σ_l dz_l = 0 then holds to rounding of dz itself. */
INLINE float softmax_error(float *e, const shape *k, int64_t target, float weight) {
    int64_t columns = k->n_columns;
    vec top = load(e) + load(k->log_multiplicity);
    for (int64_t j = W; j < columns; j += W) {
        vec x = load(e + j) + load(k->log_multiplicity + j);
        top = larger(x, top);
    }
    float shift = largest(top), right = e[target];
    vec total = {0}, behind = {0}, others = {0};
    for (int64_t j = 0; j < columns; j += W) {
        vec logit = load(e + j);
        vec p = exp_vec(logit + load(k->log_multiplicity + j) - shift);
        total += p;
        behind += p * (right - logit);
        store(e + j, p);
    }
    float share = weight / sum(total);
    e[target] = 0;
    for (int64_t j = 0; j < columns; j += W) {
        vec p = load(e + j) * share;
        others += p;
        store(e + j, p * -load(k->inverse_multiplicity + j));
    }
    e[target] = sum(others);
    return share * sum(behind);
}

INLINE void class_step(const work *w, const shape *k, int64_t n, int64_t n_samples, const int64_t *order,
                       const float *counts, float *row_dot) {
    int64_t n_slots = k->n_slots[n], columns = k->n_columns, f_stride = (k->n_slots_max + W - 1) / W * W;
    const int64_t *row = k->slot_row + n * k->n_slots_max, *slot = k->slots + n * k->n_slots_max;
    attention(w, k, n, n_samples, order, counts, f_stride);

    for (int64_t j = 0; j < columns; j += 3 * W) {
        int64_t vectors = (columns - j) / W;
        for (int64_t i = 0; i < n_samples; i += TILE) {
#define CALL(mr, nv) logits_tile(mr, nv, w->f + i * f_stride, f_stride, w->y + j, row, n_slots, w->e + i * columns + j, columns)
            BY_SHAPE(n_samples - i, vectors, CALL)
#undef CALL
        }
    }
    for (int64_t i = 0; i < n_samples; i++)
        w->dot[i] = softmax_error(w->e + i * columns, k, k->target[n], w->weight[order - w->order + i]);

    memset(row_dot, 0, f_stride * sizeof *row_dot);
    for (int64_t j = 0; j < columns; j += 3 * W) {
        int64_t vectors = (columns - j) / W;
        for (int64_t s = 0; s < n_slots; s += TILE) {
#define CALL(mr, nv) gradient_tile(mr, nv, w->f + s, f_stride, w->e + j, n_samples, w->v + j, w->y + j, row + s, \
                                   k->multiplicity + j, row_dot + s, columns)
            BY_SHAPE(n_slots - s, vectors, CALL)
#undef CALL
        }
    }
    for (int64_t s = 0; s < n_slots; s += W) {
        vec total = load(row_dot + s);
        for (int64_t i = 0; i < n_samples; i++) {
            vec f = load(w->f + i * f_stride + s);
            total -= f * f * w->dot[i];
        }
        store(row_dot + s, total);
    }
    float *vz = w->vz + k->class_query[n] * k->vocab_size;
    for (int64_t s = 0; s < n_slots; s++) vz[slot[s]] += row_dot[s];
}

/* table += rate · velocity; velocity ← keep · velocity, so that the next gradient can be added to it. */
INLINE void move(float *table, float *velocity, int64_t size, float rate, float keep) {
    for (int64_t i = 0; i < size; i++) {
        table[i] += rate * velocity[i];
        velocity[i] *= keep;
    }
}

INLINE void copy_in(float *to, const float *from, int64_t rows, int64_t columns, int64_t padded, float factor) {
    for (int64_t l = 0; l < rows; l++) {
        for (int64_t j = 0; j < columns; j++) to[l * padded + j] = from[l * columns + j] * factor;
        for (int64_t j = columns; j < padded; j++) to[l * padded + j] = 0;
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

static float *floats(int64_t n) { return aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64); }

/* Runs [first, last), n_steps updates each. Tables are (R, L, J) and (R, Q, M); data (G, N, B[, S]) by data stream
 * stream[r]; rates (N, R). finite[r] says whether the run's new tables may be used. Returns 0, or 1 without memory. */
int advance_runs(int64_t first, int64_t last, int64_t n_steps, const shape *k, int64_t columns,
                 const int64_t *stream, const int64_t *cls, const float *counts, const float *weight,
                 const float *rate_y, const float *rate_z, const float *momentum, int64_t n_runs,
                 const float *y, const float *v, const float *z, const float *vz,
                 float *new_y, float *new_v, float *new_z, float *new_vz, uint8_t *finite) {
    int64_t b_size = k->batch_size, y_size = k->n_rows * k->n_columns, z_size = k->n_queries * k->vocab_size;
    int64_t f_stride = (k->n_slots_max + W - 1) / W * W;
    work w = {
        floats(y_size), floats(y_size), floats(z_size), floats(z_size),
        floats(b_size * f_stride), floats(b_size * k->n_columns), floats(b_size), floats(b_size),
        floats(f_stride), floats(f_stride), malloc(b_size * sizeof(int64_t)), malloc((k->n_classes + 1) * sizeof(int64_t)),
    };
    float *row_dot = floats(f_stride);
    int failed = !(w.y && w.v && w.z && w.vz && w.f && w.e && w.weight && w.dot && w.key && w.count && w.order && w.start && row_dot);
    for (int64_t r = first; r < last && !failed; r++) {
        float keep = momentum[r];
        int64_t y_at = r * k->n_rows * columns, z_at = r * z_size;
        copy_in(w.y, y + y_at, k->n_rows, columns, k->n_columns, 1);
        copy_in(w.v, v + y_at, k->n_rows, columns, k->n_columns, keep);
        copy_in(w.z, z + z_at, 1, z_size, z_size, 1);
        copy_in(w.vz, vz + z_at, 1, z_size, z_size, keep);
        for (int64_t t = 0; t < n_steps; t++) {
            int64_t batch = (stream[r] * n_steps + t) * b_size;
            /* counting sort by class */
            memset(w.start, 0, (k->n_classes + 1) * sizeof *w.start);
            for (int64_t b = 0; b < b_size; b++) w.start[cls[batch + b] + 1]++;
            for (int64_t n = 0; n < k->n_classes; n++) w.start[n + 1] += w.start[n];
            for (int64_t b = 0; b < b_size; b++) {
                int64_t at = w.start[cls[batch + b]]++;
                w.order[at] = b;
                w.weight[at] = weight[batch + b];
            }
            int64_t begin = 0; /* after the loop above, start[n] is the end of class n */
            for (int64_t n = 0; n < k->n_classes; n++) {
                int64_t end = w.start[n];
                if (end > begin)
                    class_step(&w, k, n, end - begin, w.order + begin, counts + batch * k->n_slots_max, row_dot);
                begin = end;
            }
            float fade = t + 1 < n_steps ? keep : 1;
            move(w.y, w.v, y_size, rate_y[t * n_runs + r], fade);
            move(w.z, w.vz, z_size, rate_z[t * n_runs + r], fade);
        }
        int good = copy_out(new_y + y_at, w.y, k->n_rows, columns, k->n_columns);
        good &= copy_out(new_v + y_at, w.v, k->n_rows, columns, k->n_columns);
        good &= copy_out(new_z + z_at, w.z, 1, z_size, z_size);
        good &= copy_out(new_vz + z_at, w.vz, 1, z_size, z_size);
        finite[r] = (uint8_t)good;
    }
    free(w.y); free(w.v); free(w.z); free(w.vz); free(w.f); free(w.e); free(w.weight); free(w.dot); free(w.key); free(w.count);
    free(w.order); free(w.start); free(row_dot);
    return failed;
}
