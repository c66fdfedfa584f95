/* Rows of Y: gradients from the errors of a tile, and moves. Of the two ways the one with HELD keeps the gradients of all
 * slots of a class until its last sample, the other one goes row by row through each tile. */
__device__ __forceinline__ void wait_for(const Run &run, int turn) {
    if (WARPS == 1) return;
    while (*run.turn != turn) YIELD();
    __threadfence_block();
    __syncwarp();
}

#if !HELD
#define HELD_OUTSIDE , Held &held
typedef float Held[SHARED_CHUNK][C];

/* g += dY of one slot; returns this lane's part of Σ_j Y ∘ dY. */
template <int N>
__device__ __forceinline__ float gradient(const Job &job, const Run &run, int p, const float (&y)[C],
                                          const float (&e)[N][C], float (&g)[C]) {
    float f[N], dot = 0;
    load_f<N>(run.f + p * PITCH_F, f);
#pragma unroll
    for (int c = 0; c < C; c++) {
        float own = f[0] * e[0][c];
#pragma unroll
        for (int i = 1; i < N; i++) own += f[i] * e[i][c];
        dot += y[c] * own * (LUMPED && real(c) ? job.multiplicity[column(c)] : 1.0f);
        g[c] += own;
    }
    return dot;
}

/* A lane's part of row p's dot, added up over the warp in two steps: the second, `sum_dots`, for all rows at once. */
__device__ __forceinline__ void keep_dot(const Run &run, int p, float dot) {
    dot += __shfl_xor_sync(EVERY, dot, 16);
    dot += __shfl_xor_sync(EVERY, dot, 8);
    if (lane() < 8) run.dots[p * 9 + lane()] = dot;
}

__device__ __forceinline__ float sum_dots(const Run &run, int p) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) total += run.dots[p * 9 + i];
    return total;
}

/* Rows that are this class's own: gradient and, with the last tile, the move. */
template <int N>
__device__ __forceinline__ void own_rows(const Job &job, const Run &run, int n, int n_own, const float (&e)[N][C],
                                         bool last) {
    const int *row = run.row + n * SLOTS;
    const float rate = last ? run.rate_y : 0, fade = last ? run.fade : 1;
    float next[C];
    if (n_own) load_row<V_SHARED>(run.v_here + row[0], next);
#pragma unroll 2
    for (int p = 0; p < n_own; p++) {
        float y[C], v[C];
        int at = row[p];
#pragma unroll
        for (int c = 0; c < C; c++) v[c] = next[c];
        if (p + 1 < n_own) load_row<V_SHARED>(run.v_here + row[p + 1], next); /* on its way while this row is worked on */
        load_row<Y_SHARED>(run.y_here + at, y);
        keep_dot(run, p, gradient<N>(job, run, p, y, e, v));
#pragma unroll
        for (int c = 0; c < C; c++) {
            y[c] += rate * v[c];
            v[c] *= fade;
        }
        store_row<Y_SHARED>(run.y_here + at, y);
        store_row<V_SHARED>(run.v_here + at, v);
    }
}

/* Rows of several classes, from place p on: their gradients are added to what is held. */
template <int N>
__device__ __forceinline__ void shared_rows(const Job &job, const Run &run, int n, int p, int n_slots,
                                            const float (&e)[N][C], Held &held) {
    const int *row = run.row + n * SLOTS;
#pragma unroll
    for (int a = 0; a < SHARED_CHUNK; a++)
        if (p + a < n_slots) {
            float y[C];
            load_row<Y_SHARED>(run.y_here + row[p + a], y);
            keep_dot(run, p + a, gradient<N>(job, run, p + a, y, e, held[a]));
        }
}

#if LATE
/* What is held of all this warp's classes is added to the gradients of the common rows, in the order of the warps. */
__device__ __forceinline__ void let_go(const Run &run, Held &held) {
    wait_for(run, run.warp);
#pragma unroll
    for (int a = 0; a < SHARED_CHUNK; a++) {
        float *row = run.common + a * PITCH + first_column();
        if (run.warp > 0) {
            float before[C];
            load_row<true>(row, before);
#pragma unroll
            for (int c = 0; c < C; c++) held[a][c] += before[c];
        }
        store_row<true>(row, held[a]);
    }
}
#else
/* What is held goes to the velocities of the rows from place p on, and is 0 again. */
__device__ __forceinline__ void let_go(const Run &run, int n, int p, int n_slots, Held &held) {
    const int *row = run.row + n * SLOTS;
#pragma unroll
    for (int a = 0; a < SHARED_CHUNK; a++) {
        if (p + a < n_slots) {
            float v[C];
            load_row<V_SHARED>(run.v_here + row[p + a], v);
#pragma unroll
            for (int c = 0; c < C; c++) v[c] += held[a][c];
            store_row<V_SHARED>(run.v_here + row[p + a], v);
        }
#pragma unroll
        for (int c = 0; c < C; c++) held[a][c] = 0;
    }
}
#endif
#endif

#if HELD
#define HELD_OUTSIDE
#define HELD_SLOTS STEP_UP(SLOTS, GROUPS)
typedef float Held[HELD_SLOTS][C];

/* Of the groups' parts each gets the sums of its own slots: those whose number in a row of GROUPS is the group. */
template <int D> __device__ __forceinline__ void share_out(Held &g) {
    if constexpr (D > 0) {
        bool upper = group() & D;
#pragma unroll
        for (int p = 0; p < HELD_SLOTS; p++)
            if (p % GROUPS < D)
#pragma unroll
                for (int c = 0; c < C; c++) {
                    float mine = upper ? g[p + D][c] : g[p][c], other = upper ? g[p][c] : g[p + D][c];
                    g[p][c] = mine + __shfl_xor_sync(EVERY, other, D * LANES);
                }
        share_out<D / 2>(g);
    }
}

/* All samples of the class are in g: moves its own rows, and adds to those it shares when its turn has come. */
__device__ __forceinline__ void finish(const Job &job, const Run &run, int n, int n_slots, Held &g, int turn) {
    const int n_own = job.n_own[n], *row = run.row + n * SLOTS;
    float dot[HELD_SLOTS / GROUPS];
    share_out<GROUPS / 2>(g);
#pragma unroll
    for (int q = 0; q < HELD_SLOTS / GROUPS; q++) {
        int p = q * GROUPS + group();
        dot[q] = 0;
        if (p < n_slots) {
            float y[C], v[C];
            load_row<Y_SHARED>(run.y_here + row[p], y);
            if (p < n_own) load_row<V_SHARED>(run.v_here + row[p], v);
#pragma unroll
            for (int c = 0; c < C; c++) {
                dot[q] += y[c] * g[q * GROUPS][c] * (LUMPED && real(c) ? job.multiplicity[column(c)] : 1.0f);
                if (p < n_own) {
                    v[c] += g[q * GROUPS][c];
                    y[c] += run.rate_y * v[c];
                    v[c] *= run.fade;
                }
            }
            if (p < n_own) {
                store_row<Y_SHARED>(run.y_here + row[p], y);
                store_row<V_SHARED>(run.v_here + row[p], v);
            }
        }
    }
#pragma unroll
    for (int q = 0; q < HELD_SLOTS / GROUPS; q++) {
        float total[1] = {dot[q]};
        combine<1, LANES / 2>(total, Sum());
        if (q * GROUPS + group() < n_slots) run.row_dot[q * GROUPS + group()] = total[0];
    }
    if (n_own == n_slots) return;
    wait_for(run, turn);
#pragma unroll
    for (int q = 0; q < HELD_SLOTS / GROUPS; q++) {
        int p = q * GROUPS + group();
        if (p >= n_own && p < n_slots) {
            float v[C];
            load_row<V_SHARED>(run.v_here + row[p], v);
#pragma unroll
            for (int c = 0; c < C; c++) v[c] += g[q * GROUPS][c];
            store_row<V_SHARED>(run.v_here + row[p], v);
        }
    }
}
#endif
