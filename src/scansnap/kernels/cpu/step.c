/* What a training step of many small transformers does beside its matrix products, each in one pass over memory.
 *
 * Operation by operation the numbers of all runs go through memory once for each: attention weights of 40 runs are 5 MB
 * and do not fit the second-level cache. Here one head of one sequence is done from its scores to what it read while it
 * is in the first-level cache, and so is a row of the loss, and a GELU with its derivative. Keys that a query does
 * not see (half of them, where it sees those before it) are left out of the products.
 * The torch versions are in scansnap/dial; a test holds them equal.
 */
#include <math.h>
#include <stdlib.h>

enum { W = 16, TILE = 4, ACROSS = 4, DEEP = 64 }; /* floats in a vector; rows, vectors across and depth of a tile */

#include "vectors.h"

typedef float half __attribute__((vector_size(4 * W / 2)));
typedef int32_t ihalf __attribute__((vector_size(4 * W / 2)));

INLINE float sum(vec v) {
    half a, b;
    four c, d;
    memcpy(&a, &v, sizeof a);
    memcpy(&b, (char *)&v + sizeof a, sizeof b);
    a += b;
    memcpy(&c, &a, sizeof c);
    memcpy(&d, (char *)&a + sizeof c, sizeof d);
    c += d;
    return (c[0] + c[1]) + (c[2] + c[3]);
}

INLINE float largest(vec v) {
    half a, b;
    four c, d;
    memcpy(&a, &v, sizeof a);
    memcpy(&b, (char *)&v + sizeof a, sizeof b);
    a = (half)(((a > b) & (ihalf)a) | (~(a > b) & (ihalf)b));
    memcpy(&c, &a, sizeof c);
    memcpy(&d, (char *)&a + sizeof c, sizeof d);
    c = (four)(((c > d) & (ifour)c) | (~(c > d) & (ifour)d));
    float x = c[0] > c[1] ? c[0] : c[1], y = c[2] > c[3] ? c[2] : c[3];
    return x > y ? x : y;
}

/* The n ≤ W numbers at p, and `rest` behind them. */
INLINE vec load_some(const float *p, int64_t n, float rest) {
    if (n >= W) return load(p);
    vec v = all(rest);
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

INLINE void store_some(float *p, vec v, int64_t n) { memcpy(p, &v, (size_t)(n < W ? n : W) * sizeof *p); }

/* e^x for x ≤ 88, to about 2 units in the last place; 0 below the least normal number (Cephes). NaN stays NaN. */
INLINE vec exp_vec(vec x) {
    vec n = x * 1.44269504f + 12582912.0f; /* 1.5·2²³: what is below 1 is rounded away */
    ivec power = (ivec)n << 23;
    n -= 12582912.0f;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return pick(x < -87.3f, all(0.0f), (vec)((ivec)p + power));
}

/* erf x as a quotient of polynomials on [−4, 4], beyond which it is ±1 in this precision (Eigen's coefficients). */
INLINE vec erf_vec(vec x) {
    x = pick(x > 4.0f, all(4.0f), x);
    x = pick(x < -4.0f, all(-4.0f), x);
    vec s = x * x;
    vec p = s * -2.72614225801306e-10f + 2.77068142495902e-08f;
    p = p * s - 2.10102402082508e-06f;
    p = p * s - 5.69250639462346e-05f;
    p = p * s - 7.34990630326855e-04f;
    p = p * s - 2.95459980854025e-03f;
    p = p * s - 1.60960333262415e-02f;
    vec q = s * -1.45660718464996e-05f - 2.13374055278905e-04f;
    q = q * s - 1.68282697438203e-03f;
    q = q * s - 7.37332916720468e-03f;
    q = q * s - 1.42647390514189e-02f;
    return x * p / q;
}

/* --- products of what is in the cache -------------------------------------------------------------------------- */

/* One tile of c = a b, or of c += a b: TILE rows of a, whose entries are `down` and `right` apart, times columns of
 * b's rows [from, to). */
INLINE void tile(int across, int more, const float *a, int64_t down, int64_t right, const float *b, int64_t ldb,
                 int64_t from, int64_t to, float *c, int64_t ldc) {
    vec sums[TILE][ACROSS] = {{{0}}};
    if (more)
        for (int i = 0; i < TILE; i++)
            for (int j = 0; j < across; j++) sums[i][j] = load(c + i * ldc + j * W);
    for (int64_t k = from; k < to; k++)
        for (int j = 0; j < across; j++) {
            vec own = load(b + k * ldb + j * W);
            for (int i = 0; i < TILE; i++) sums[i][j] += a[i * down + k * right] * own;
        }
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < across; j++) store(c + i * ldc + j * W, sums[i][j]);
}

/* TILE rows of c = a b, `vectors` wide. */
static void times(int64_t vectors, int more, const float *a, int64_t down, int64_t right, const float *b, int64_t ldb,
                  int64_t from, int64_t to, float *c, int64_t ldc) {
    for (; vectors >= 4; vectors -= 4, b += 4 * W, c += 4 * W) tile(4, more, a, down, right, b, ldb, from, to, c, ldc);
    if (vectors == 3) tile(3, more, a, down, right, b, ldb, from, to, c, ldc);
    if (vectors == 2) tile(2, more, a, down, right, b, ldb, from, to, c, ldc);
    if (vectors == 1) tile(1, more, a, down, right, b, ldb, from, to, c, ldc);
}

INLINE int64_t padded(int64_t n) { return (n + W - 1) / W * W; }

INLINE int64_t tiled(int64_t n) { return (n + TILE - 1) / TILE * TILE; }

/* c (n × m) = a (n × k) b (k × m) with n at least TILE and m in whole vectors; rows of b are ldb apart, c is dense. */
static void multiply(int64_t n, int64_t k, int64_t m, const float *a, int64_t down, int64_t right, const float *b,
                     int64_t ldb, float *c) {
    int64_t whole = n / TILE * TILE;
    for (int64_t j = 0; j < m; j += ACROSS * W) {
        int64_t vectors = (m - j) / W < ACROSS ? (m - j) / W : ACROSS;
        for (int64_t from = 0; from < k; from += DEEP) {
            int64_t to = from + DEEP < k ? from + DEEP : k;
            for (int64_t i = 0; i < whole; i += TILE)
                times(vectors, from > 0, a + i * down, down, right, b + j, ldb, from, to, c + i * m + j, m);
        }
        if (whole < n) /* the last rows, with some of those above again */
            times(vectors, 0, a + (n - TILE) * down, down, right, b + j, ldb, 0, k, c + (n - TILE) * m + j, m);
    }
}

/* Matrices [first, last): c (n × m) = a (n × k) b (k × m), with strides of a and b for the matrix, down and right; c is
 * dense, n at least TILE. Tables are too small for copies of both to pay: b is copied only where its rows are not whole
 * vectors. */
int product(int64_t first, int64_t last, int64_t n, int64_t k, int64_t m, const float *a, int64_t a_each,
            int64_t a_down, int64_t a_right, const float *b, int64_t b_each, int64_t b_down, int64_t b_right,
            float *c) {
    int64_t wide = padded(m), direct = b_right == 1 && wide == m;
    float *own = aligned_alloc(64, (size_t)((direct ? 0 : k) + (wide == m ? 0 : n) + 1) * wide * sizeof *own);
    if (!own) return 1;
    float *rows = own + (direct ? 0 : k * wide);
    for (int64_t r = first; r < last; r++) {
        const float *left = a + r * a_each, *right = b + r * b_each;
        for (int64_t i = 0; !direct && i < k; i++) {
            for (int64_t j = 0; j < m; j++) own[i * wide + j] = right[i * b_down + j * b_right];
            for (int64_t j = m; j < wide; j++) own[i * wide + j] = 0;
        }
        multiply(n, k, wide, left, a_down, a_right, direct ? right : own, direct ? b_down : wide,
                 wide == m ? c + r * n * m : rows);
        for (int64_t i = 0; wide != m && i < n; i++) memcpy(c + (r * n + i) * m, rows + i * wide, (size_t)m * sizeof *c);
    }
    free(own);
    return 0;
}

/* --- attention ------------------------------------------------------------------------------------------------- */

/* Where the rows of a head are: strides of runs, heads, sequences and positions, in floats. */
typedef struct {
    float *at;
    int64_t run, head, sequence, row;
} rows;

typedef struct {
    int64_t n_heads, n_sequences, n_queries, n_keys, width, depth; /* width of q and k, depth of v */
    rows q, k, v, out, dq, dk, dv;                                 /* dk.at and dv.at may be null */
    rows bias;                                                     /* ln of how often a key counts for a query */
    const float *turn;                                             /* RoPE: (positions, width/2 cos and width/2 sin) or null */
    const int64_t *place;                                          /* of every query, or null: the last positions */
    int64_t place_run, place_sequence;
    float *weights; /* (units, queries, keys), in whole tiles and vectors */
} shape;

INLINE float *of(const rows *x, const shape *s, int64_t unit) {
    int64_t b = unit % s->n_sequences, h = unit / s->n_sequences % s->n_heads, r = unit / s->n_sequences / s->n_heads;
    return x->at + r * x->run + h * x->head + b * x->sequence;
}

INLINE int64_t place_of(const shape *s, int64_t unit, int64_t i, int query) {
    if (!query) return i;
    if (!s->place) return s->n_keys - s->n_queries + i;
    int64_t b = unit % s->n_sequences, r = unit / s->n_sequences / s->n_heads;
    return s->place[r * s->place_run + b * s->place_sequence + i];
}

/* Entries j and half + j turned by the angle of the position, or back. */
INLINE void turned(float *x, const float *turn, int64_t half, float sign) {
    for (int64_t j = 0; j < half; j++) {
        float c = turn[j], s = sign * turn[half + j], a = x[j], b = x[half + j];
        x[j] = a * c - b * s;
        x[half + j] = a * s + b * c;
    }
}

/* Rows of a head into rows of whole vectors, with zeros behind and below them. */
static void take(const rows *x, const shape *s, int64_t unit, int64_t n, int64_t width, int turns, int query, float *out) {
    const float *from = of(x, s, unit);
    int64_t pad = padded(width);
    for (int64_t i = 0; i < n; i++) {
        float *to = out + i * pad;
        for (int64_t j = 0; j < width; j += W) store(to + j, load_some(from + i * x->row + j, width - j, 0));
        if (turns && s->turn)
            turned(to, s->turn + place_of(s, unit, i, query) * (width / 2 * 2), width / 2, 1);
    }
    memset(out + n * pad, 0, (size_t)(padded(n) - n) * pad * sizeof *out);
}

static void transpose(const float *x, int64_t n, int64_t width, float *out) {
    int64_t pad = padded(width), across = padded(n);
    for (int64_t i = 0; i < across; i++)
        for (int64_t j = 0; j < width; j++) out[j * across + i] = x[i * pad + j];
}

/* TILE rows of a gradient to where they belong, turned back. */
static void give(const rows *x, const shape *s, int64_t unit, int64_t first, int64_t n, int64_t width, int turns,
                 int query, float *part) {
    float *to = of(x, s, unit);
    int64_t pad = padded(width);
    for (int64_t i = first; i < n && i < first + TILE; i++) {
        float *own = part + (i - first) * pad;
        if (turns && s->turn)
            turned(own, s->turn + place_of(s, unit, i, query) * (width / 2 * 2), width / 2, -1);
        for (int64_t j = 0; j < width; j += W) store_some(to + i * x->row + j, load(own + j), width - j);
    }
}

/* The biases of a unit in rows of whole vectors, and one more than the last key that each query sees. */
static void sight(const shape *s, int64_t unit, float *bias, int64_t *seen) {
    const float *from = of(&s->bias, s, unit);
    int64_t keys = padded(s->n_keys);
    for (int64_t i = 0; i < padded(s->n_queries); i++) {
        float *own = bias + i * keys;
        int64_t n = i < s->n_queries ? s->n_keys : 0;
        memcpy(own, from + i * s->bias.row, (size_t)n * sizeof *own);
        for (int64_t j = n; j < keys; j++) own[j] = -INFINITY;
        while (n > 0 && own[n - 1] == -INFINITY) n--;
        seen[i] = n;
    }
}

INLINE int same_sight(const shape *s) { return !(s->bias.run || s->bias.head || s->bias.sequence); }

INLINE int64_t most(const int64_t *seen) {
    int64_t n = 0;
    for (int i = 0; i < TILE; i++) n = seen[i] > n ? seen[i] : n;
    return n;
}

/* Scratch for a unit: rows of q, k, v and of a gradient, a transposed table, gradients of the scores, a tile. */
typedef struct {
    float *q, *k, *v, *g, *across, *tiled, *scores, *bias;
    int64_t *seen;
    void *block;
} scratch;

static int prepare(const shape *s, scratch *m) {
    size_t wide = (size_t)padded(s->width > s->depth ? s->width : s->depth);
    size_t q = (size_t)padded(s->n_queries), k = (size_t)padded(s->n_keys);
    size_t floats = (q + k + k + q + k + TILE) * wide + 2 * q * k;
    m->block = aligned_alloc(64, floats * sizeof(float) + q * sizeof(int64_t));
    if (!m->block) return 1;
    m->q = m->block;
    m->k = m->q + q * wide;
    m->v = m->k + k * wide;
    m->g = m->v + k * wide;
    m->across = m->g + q * wide;
    m->tiled = m->across + k * wide;
    m->scores = m->tiled + TILE * wide;
    m->bias = m->scores + q * k;
    m->seen = (int64_t *)(m->bias + q * k);
    return 0;
}

/* softmax(scores + bias) of one row, zeros behind what it sees. */
INLINE void softmax(float *row, const float *bias, int64_t seen, int64_t keys) {
    vec top = all(-INFINITY), total = {0};
    for (int64_t j = 0; j < seen; j += W) {
        vec x = load(row + j) + load(bias + j);
        top = pick(x > top, x, top);
        store(row + j, x);
    }
    float most = largest(top);
    for (int64_t j = 0; j < seen; j += W) {
        vec e = exp_vec(load(row + j) - most);
        total += e;
        store(row + j, e);
    }
    float scale = 1.0f / sum(total);
    for (int64_t j = 0; j < seen; j += W) store(row + j, load(row + j) * scale);
    for (int64_t j = padded(seen); j < keys; j += W) store(row + j, all(0.0f));
}

/* Units [first, last) of runs × heads × sequences: out = softmax(q kᵀ + bias) v, and the weights. */
int attend(int64_t first, int64_t last, const shape *s) {
    int64_t keys = padded(s->n_keys), width = padded(s->width), depth = padded(s->depth);
    scratch m;
    if (prepare(s, &m)) return 1;
    for (int64_t unit = first; unit < last; unit++) {
        float *weights = s->weights + unit * tiled(s->n_queries) * keys;
        take(&s->q, s, unit, s->n_queries, s->width, 1, 1, m.q);
        take(&s->k, s, unit, s->n_keys, s->width, 1, 0, m.k);
        take(&s->v, s, unit, s->n_keys, s->depth, 0, 0, m.v);
        transpose(m.k, s->n_keys, s->width, m.across);
        if (unit == first || !same_sight(s)) sight(s, unit, m.bias, m.seen);
        for (int64_t i = 0; i < s->n_queries; i += TILE) {
            int64_t seen = most(m.seen + i);
            float *rows = weights + i * keys;
            times(padded(seen) / W, 0, m.q + i * width, width, 1, m.across, keys, 0, s->width, rows, keys);
            for (int64_t t = 0; t < TILE; t++) softmax(rows + t * keys, m.bias + (i + t) * keys, seen, keys);
            times(depth / W, 0, rows, keys, 1, m.v, depth, 0, seen, m.tiled, depth);
            give(&s->out, s, unit, i, s->n_queries, s->depth, 0, 1, m.tiled);
        }
    }
    free(m.block);
    return 0;
}

/* Gradients of q, k and v of the same units; `out` holds the gradient of what was read. */
int attend_back(int64_t first, int64_t last, const shape *s) {
    int64_t keys = padded(s->n_keys), width = padded(s->width), depth = padded(s->depth);
    scratch m;
    if (prepare(s, &m)) return 1;
    for (int64_t unit = first; unit < last; unit++) {
        const float *weights = s->weights + unit * tiled(s->n_queries) * keys;
        take(&s->q, s, unit, s->n_queries, s->width, 1, 1, m.q);
        take(&s->k, s, unit, s->n_keys, s->width, 1, 0, m.k);
        take(&s->v, s, unit, s->n_keys, s->depth, 0, 0, m.v);
        take(&s->out, s, unit, s->n_queries, s->depth, 0, 1, m.g);
        transpose(m.v, s->n_keys, s->depth, m.across);
        if (unit == first || !same_sight(s)) sight(s, unit, m.bias, m.seen);
        for (int64_t i = 0; i < s->n_queries; i += TILE) {
            int64_t seen = most(m.seen + i);
            float *slope = m.scores + i * keys;
            times(padded(seen) / W, 0, m.g + i * depth, depth, 1, m.across, keys, 0, s->depth, slope, keys);
            for (int64_t t = 0; t < TILE; t++) {
                const float *weight = weights + (i + t) * keys;
                float *row = slope + t * keys;
                vec mean = {0};
                for (int64_t j = 0; j < seen; j += W) mean += load(weight + j) * load(row + j);
                float whole = sum(mean);
                for (int64_t j = 0; j < seen; j += W) store(row + j, load(weight + j) * (load(row + j) - whole));
                for (int64_t j = padded(seen); j < keys; j += W) store(row + j, all(0.0f));
            }
            times(width / W, 0, slope, keys, 1, m.k, width, 0, seen, m.tiled, width);
            give(&s->dq, s, unit, i, s->n_queries, s->width, 1, 1, m.tiled);
        }
        for (int64_t j = 0, from = 0; j < s->n_keys; j += TILE) {
            while (from < s->n_queries && m.seen[from] <= j) from++;
            if (s->dk.at) {
                times(width / W, 0, m.scores + j, 1, keys, m.q, width, from, s->n_queries, m.tiled, width);
                give(&s->dk, s, unit, j, s->n_keys, s->width, 1, 0, m.tiled);
            }
            if (s->dv.at) {
                times(depth / W, 0, weights + j, 1, keys, m.g, depth, from, s->n_queries, m.tiled, depth);
                give(&s->dv, s, unit, j, s->n_keys, s->depth, 0, 0, m.tiled);
            }
        }
    }
    free(m.block);
    return 0;
}

/* --- elementwise ----------------------------------------------------------------------------------------------- */

/* Runs [first, last): Σ weight ln(1 + Σ_{j≠n} e^{l_j − l_n}) of n_rows rows of logits l, and its gradient in them. */
int cross_entropy(int64_t first, int64_t last, int64_t n_rows, int64_t n, const float *logits, const int64_t *target,
                  const float *weight, float *loss, float *slope) {
    int64_t whole = n / W * W;
    for (int64_t r = first; r < last; r++) {
        double total = 0;
        for (int64_t i = r * n_rows; i < (r + 1) * n_rows; i++) {
            const float *l = logits + i * n;
            float *g = slope + i * n, own = l[target[i]];
            memcpy(g, l, (size_t)n * sizeof *g);
            g[target[i]] = -INFINITY;
            vec top = load_some(g + whole, n - whole, -INFINITY);
            for (int64_t j = 0; j < whole; j += W) top = pick(load(g + j) > top, load(g + j), top);
            float most = largest(top);
            vec mass = exp_vec(load_some(g + whole, n - whole, -INFINITY) - most);
            store_some(g + whole, mass, n - whole);
            for (int64_t j = 0; j < whole; j += W) {
                vec e = exp_vec(load(g + j) - most);
                mass += e;
                store(g + j, e);
            }
            float sums = sum(mass), behind = most + logf(sums) - own;
            float wrong = weight[i] / (1.0f + expf(-behind));
            total += (double)weight[i] * (behind > 20.0f ? behind : log1pf(expf(behind)));
            float scale = wrong / sums;
            for (int64_t j = 0; j < n; j++) g[j] *= scale;
            g[target[i]] = -wrong;
        }
        loss[r] = (float)total;
    }
    return 0;
}

INLINE vec gelu_vec(vec x, vec *slope) {
    vec below = 0.5f * (1.0f + erf_vec(x * 0.70710678f));
    *slope = below + x * 0.39894228f * exp_vec(x * x * -0.5f);
    return x * below;
}

/* y = x Φ(x), and its derivative Φ(x) + x e^{−x²/2}/√2π. */
int gelu(int64_t first, int64_t last, const float *x, float *y, float *slope) {
    int64_t whole = first + (last - first) / W * W, rest = last - whole;
    vec down;
    for (int64_t j = first; j < whole; j += W) {
        store(y + j, gelu_vec(load(x + j), &down));
        store(slope + j, down);
    }
    store_some(y + whole, gelu_vec(load_some(x + whole, rest, 0), &down), rest);
    store_some(slope + whole, down, rest);
    return 0;
}

/* --- a norm, an MLP and what goes past them --------------------------------------------------------------------- */

enum { NO_NORM, LAYERNORM, RMSNORM }; /* step.py has the same */
enum { LINEAR, RELU, GELU };
#define EPS 1e-5f

/* n rows of d, in whole vectors, of mean 0 (LayerNorm) and mean square 1; scale: what each was multiplied by. */
static void norm_rows(int64_t kind, int64_t n, int64_t d, const float *x, float *y, float *scale) {
    for (int64_t i = 0; i < n; i++, x += d, y += d) {
        vec total = {0}, square = {0};
        for (int64_t j = 0; j < d; j += W) total += load(x + j);
        float mean = kind == LAYERNORM ? sum(total) / (float)d : 0;
        for (int64_t j = 0; j < d; j += W) square += (load(x + j) - mean) * (load(x + j) - mean);
        scale[i] = 1.0f / sqrtf(sum(square) / (float)d + EPS);
        for (int64_t j = 0; j < d; j += W) store(y + j, (load(x + j) - mean) * scale[i]);
    }
}

/* The gradient in x from that in y, g: added to dx where there is something already. */
static void norm_back(int64_t kind, int64_t n, int64_t d, const float *y, const float *scale, const float *g, float *dx,
                      int more) {
    for (int64_t i = 0; i < n; i++, y += d, g += d, dx += d) {
        vec total = {0}, along = {0};
        for (int64_t j = 0; j < d; j += W) {
            total += load(g + j);
            along += load(g + j) * load(y + j);
        }
        float mean = kind == LAYERNORM ? sum(total) / (float)d : 0, share = sum(along) / (float)d;
        for (int64_t j = 0; j < d; j += W) {
            vec own = (load(g + j) - mean - load(y + j) * share) * scale[i];
            store(dx + j, more ? load(dx + j) + own : own);
        }
    }
}

int norm(int64_t first, int64_t last, int64_t kind, int64_t d, const float *x, float *y, float *scale) {
    norm_rows(kind, last - first, d, x + first * d, y + first * d, scale + first);
    return 0;
}

int norm_slope(int64_t first, int64_t last, int64_t kind, int64_t d, const float *y, const float *scale, const float *g,
               float *dx) {
    norm_back(kind, last - first, d, y + first * d, scale + first, g + first * d, dx + first * d, 0);
    return 0;
}

/* Runs [first, last): out = [x +] act(norm(x) w1) w2 of n rows of d, w1 (d × h); kept: y = norm(x), scale, act and its
 * derivative. */
int mlp(int64_t first, int64_t last, int64_t kind, int64_t act, int64_t past, int64_t n, int64_t d, int64_t h,
        const float *x, const float *w1, const float *w2, float *y, float *scale, float *inside, float *slope,
        float *out) {
    for (int64_t r = first; r < last; r++) {
        const float *from = x + r * n * d;
        float *own = inside + r * n * h, *down = slope + r * n * h, *to = out + r * n * d;
        if (kind != NO_NORM) norm_rows(kind, n, d, from, y + r * n * d, scale + r * n);
        multiply(n, d, h, kind != NO_NORM ? y + r * n * d : from, d, 1, w1 + r * d * h, h, own);
        for (int64_t j = 0; j < n * h && act != LINEAR; j += W) {
            vec v = load(own + j), s;
            if (act == GELU) v = gelu_vec(v, &s);
            else s = pick(v > 0, all(1.0f), all(0.0f)), v = pick(v < 0, all(0.0f), v);
            store(own + j, v);
            store(down + j, s);
        }
        multiply(n, h, d, own, h, 1, w2 + r * h * d, d, to);
        for (int64_t j = 0; j < n * d && past; j += W) store(to + j, load(to + j) + load(from + j));
    }
    return 0;
}

/* Gradients of x, w1 and w2 from that of the result, g. */
int mlp_back(int64_t first, int64_t last, int64_t kind, int64_t act, int64_t past, int64_t n, int64_t d, int64_t h,
             const float *x, const float *w1, const float *w2, const float *y, const float *scale, const float *inside,
             const float *slope, const float *g, float *dx, float *dw1, float *dw2) {
    float *block = aligned_alloc(64, (size_t)(n * h + n * d + h * d) * sizeof *block);
    if (!block) return 1;
    float *deep = block, *back = deep + n * h, *turn = back + n * d;
    for (int64_t r = first; r < last; r++) {
        const float *above = g + r * n * d, *first1 = w1 + r * d * h, *second = w2 + r * d * h;
        const float *given = kind != NO_NORM ? y + r * n * d : x + r * n * d;
        float *to = dx + r * n * d;
        multiply(h, n, d, inside + r * n * h, 1, h, above, d, dw2 + r * d * h);
        for (int64_t i = 0; i < h; i++)
            for (int64_t j = 0; j < d; j++) turn[j * h + i] = second[i * d + j];
        multiply(n, d, h, above, d, 1, turn, h, deep);
        for (int64_t j = 0; j < n * h && act != LINEAR; j += W)
            store(deep + j, load(deep + j) * load(slope + r * n * h + j));
        multiply(d, n, h, given, 1, d, deep, h, dw1 + r * d * h);
        for (int64_t i = 0; i < d; i++)
            for (int64_t j = 0; j < h; j++) turn[j * d + i] = first1[i * h + j];
        multiply(n, h, d, deep, h, 1, turn, d, kind != NO_NORM ? back : to);
        if (kind != NO_NORM) {
            if (past) memcpy(to, above, (size_t)(n * d) * sizeof *to);
            norm_back(kind, n, d, given, scale + r * n, back, to, (int)past);
        } else
            for (int64_t j = 0; j < n * d && past; j += W) store(to + j, load(to + j) + load(above + j));
    }
    free(block);
    return 0;
}
