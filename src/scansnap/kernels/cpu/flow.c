/* The field of a small population flow in one call: dynamics/flow/compact.py in torch takes some seventy small operations.
 *
 * The state and its rates stay where decoder_rows.py keeps them, and classes are done one after the other. Y of a class's
 * distinct tokens is never formed: it is Y_0 and, for each stage j so far with weight w_j, the outer product of phi_j and
 * r_j. A test holds both versions equal.
 */
#include <math.h>
#include <stdint.h>

struct field {
    int64_t n_classes, n_distinct, n_slots, n_outputs, n_cells, n_common; /* K, D, L, J, cells, R */
    double n_rest, eta_y, eta_z;                   /* n_rest: outputs that are never right */
    const double *log_p, *p_class;                 /* (K, L), (K) */
    const int64_t *cell, *common;                  /* (K, L); (K, L - D) rows of common tokens, -1 at padding */
    double *z, *z_rates, *y_common, *common_rates; /* (cells), (17, cells), (R, J), (17, R, J) */
    const int64_t *d;                              /* (K) distinct tokens of the class's block */
    double **stack, **phi;                         /* (K) addresses: Y_0 and below it the r_j, (d + 17, J); (17, d) */
};

/* Out: value + sum_j w_j rates_j. */
static void weighted(int64_t n, int64_t s, const double *w, const double *value, const double *rates, double *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = value[i];
    for (int64_t j = 0; j < s; j++)
        for (int64_t i = 0; i < n; i++) out[i] += w[j] * rates[j * n + i];
}

static double dot(int64_t n, const double *a, const double *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void add(int64_t n, double factor, const double *a, double *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] += factor * a[i];
}

/* c and f = c/|c| of a class; its padded slots have log p = -inf. */
static void attend(int64_t n, const double *log_p, const int64_t *cell, const double *z, double *c, double *f) {
    double top = -INFINITY, sum = 0, square = 0;
    for (int64_t l = 0; l < n; l++) {
        c[l] = log_p[l] + z[cell[l]];
        top = c[l] > top ? c[l] : top;
    }
    for (int64_t l = 0; l < n; l++) {
        c[l] = exp(c[l] - top);
        sum += c[l];
        square += c[l] * c[l];
    }
    for (int64_t l = 0; l < n; l++) {
        f[l] = c[l] / sqrt(square);
        c[l] /= sum;
    }
}

/* e_n - alpha_n from the logits; 1 - alpha_n as the sum of the others, however close alpha_n is to 1. */
static void error(int64_t n, int64_t n_outputs, double n_rest, const double *logits, double *r) {
    double top = logits[0], sum = 0;
    for (int64_t j = 1; j < n_outputs; j++) top = logits[j] > top ? logits[j] : top;
    for (int64_t j = 0; j < n_outputs; j++) r[j] = exp(logits[j] - top);
    r[n_outputs - 1] *= n_rest;
    for (int64_t j = 0; j < n_outputs; j++) sum += r[j];
    for (int64_t j = 0; j < n_outputs; j++) r[j] /= -sum;
    r[n] = sum = 0;
    for (int64_t j = 0; j < n_outputs; j++) sum += r[j];
    r[n] = -sum;
}

/* The field at x + sum_j w_j k_j, j < s. ``out`` is z and z's rate (cells), the common rows of Y (R, J), c, f and g (K, L),
 * logits and r (K, J), one after the other. With stage >= 0 the rates are stored as that stage's. */
int rates(const struct field *at, int64_t stage, int64_t s, const double *w, double *out) {
    const int64_t k = at->n_classes, d_most = at->n_distinct, n_slots = at->n_slots, n_out = at->n_outputs;
    double *z = out, *z_rate = z + at->n_cells, *y = z_rate + at->n_cells, *c = y + at->n_common * n_out;
    double *f = c + k * n_slots, *g = f + k * n_slots, *logits = g + k * n_slots, *r = logits + k * n_out;
    double *y_rate = at->common_rates + stage * at->n_common * n_out;
    weighted(at->n_cells, s, w, at->z, at->z_rates, z);
    weighted(at->n_common * n_out, s, w, at->y_common, at->common_rates, y);
    for (int64_t i = 0; i < at->n_cells; i++) z_rate[i] = 0;
    if (stage >= 0)
        for (int64_t i = 0; i < at->n_common * n_out; i++) y_rate[i] = 0;
    for (int64_t n = 0; n < k; n++, c += n_slots, f += n_slots, g += n_slots, logits += n_out, r += n_out) {
        const int64_t d = at->d[n], *row = at->common + n * (n_slots - d_most), *cell = at->cell + n * n_slots;
        double *stages = at->stack[n] + d * n_out, *phi = at->phi[n];
        const int64_t past = d > 0 ? s : 0; /* a class without distinct tokens has no stack */
        attend(n_slots, at->log_p + n * n_slots, cell, z, c, f);

        for (int64_t j = 0; j < n_out; j++) logits[j] = 0;
        for (int64_t l = 0; l < d; l++) add(n_out, f[l], at->stack[n] + l * n_out, logits);
        for (int64_t j = 0; j < past; j++) add(n_out, w[j] * dot(d, phi + j * d, f), stages + j * n_out, logits);
        for (int64_t l = d_most; l < n_slots; l++)
            if (row[l - d_most] >= 0) add(n_out, f[l], y + row[l - d_most] * n_out, logits);
        error(n, n_out, at->n_rest, logits, r);

        for (int64_t l = 0; l < n_slots; l++) g[l] = 0;
        for (int64_t l = 0; l < d; l++) g[l] = dot(n_out, at->stack[n] + l * n_out, r);
        for (int64_t j = 0; j < past; j++) add(d, w[j] * dot(n_out, stages + j * n_out, r), phi + j * d, g);
        for (int64_t l = d_most; l < n_slots; l++)
            if (row[l - d_most] >= 0) g[l] = dot(n_out, y + row[l - d_most] * n_out, r);
        const double fg = dot(n_out, logits, r), pace_z = at->eta_z * at->p_class[n], pace_y = at->eta_y * at->p_class[n];
        for (int64_t l = 0; l < n_slots; l++) z_rate[cell[l]] += pace_z * f[l] * (g[l] - f[l] * fg);
        if (stage < 0) continue;

        r[n_out - 1] /= at->n_rest > 1 ? at->n_rest : 1; /* from the sum over the other outputs to each of them */
        for (int64_t j = 0; d > 0 && j < n_out; j++) stages[stage * n_out + j] = r[j];
        for (int64_t l = 0; l < d; l++) phi[stage * d + l] = pace_y * f[l];
        for (int64_t l = d_most; l < n_slots; l++)
            if (row[l - d_most] >= 0) add(n_out, pace_y * f[l], r, y_rate + row[l - d_most] * n_out);
    }
    if (stage >= 0)
        for (int64_t i = 0; i < at->n_cells; i++) at->z_rates[stage * at->n_cells + i] = z_rate[i];
    return 0;
}
