/* Samples of a class: attention, logits and the error E = e_n − α, a tile of them at a time. */
/* One run in its block. */
struct Run {
    float *y, *v;          /* (L, PITCH) */
    float *y_here, *v_here; /* the same from this lane's first column on */
    float *common;         /* (SHARED_CHUNK, PITCH) with LATE: gradients of the rows that all classes share */
    float *z, *vz, *dz;    /* (n_z) (n_z) (K, S) */
    float *f;              /* (S, WIDE) of this warp: k∘e^z */
    float *row_dot;        /* (S) of this warp, HELD */
    float *dots;           /* (S, 9) of this warp, not HELD: a row's dot in eight parts */
    float *each, *scale;   /* (WIDE) of this warp, numbers for each sample */
    float *key, *z_of;     /* (S) of this warp */
    int *row, *start, *rank; /* (K, S) offsets of rows in y; (2, K + 1), (2, K) of this step and the next */
    volatile int *turn;
    float rate_y, fade;
    int warp; /* known to be the same in all its lanes, so that branches on it need no care for those that take others */
};

/* The keys of a class into the warp's scratch: z and e^{z − max}; returns how many slots there are. */
__device__ __forceinline__ int keys_of(const Job &job, const Run &run, int n) {
    const int n_slots = job.n_slots[n];
    float top[1] = {-1e38f}, z[NS];
#pragma unroll
    for (int k = 0; k < NS; k++) {
        int p = lane() + 32 * k;
        z[k] = p < n_slots ? run.z[job.slot_z[n * SLOTS + p]] : -1e38f;
        top[0] = fmaxf(top[0], z[k]);
    }
    over_warp(top, Max());
#pragma unroll
    for (int k = 0; k < NS; k++)
        if (lane() + 32 * k < n_slots) {
            run.z_of[lane() + 32 * k] = z[k];
            run.key[lane() + 32 * k] = expf(z[k] - top[0]);
        }
    __syncwarp();
    return n_slots;
}

/* k∘e^z of `m` samples, N at most, into the warp's scratch by slot, and 1 / ‖k∘e^z‖ into `scale`. A sample has 32 / N
 * lanes. */
template <int N, class Number>
__device__ __forceinline__ void attention(const Run &run, const Number *counts, int n_slots, int m) {
    constexpr int wide = power_above(N) < 32 ? power_above(N) : 32, lanes = 32 / wide;
#pragma unroll
    for (int first = 0; first < N; first += wide) {
        const int i = first + lane() % wide;
        const Number *own = counts + i * SLOTS;
        float square = 0;
        if (i < m) {
#pragma unroll 4
            for (int p = lane() / wide; p < n_slots; p += lanes) {
                float x = (float)own[p] * run.key[p];
                square += x * x;
                run.f[p * PITCH_F + i] = x;
            }
        } else if (i < N) {
#pragma unroll 1
            for (int p = lane() / wide; p < n_slots; p += lanes) run.f[p * PITCH_F + i] = 0;
        }
        __syncwarp();
#pragma unroll
        for (int d = wide; d < 32; d *= 2) square += __shfl_xor_sync(EVERY, square, d);
        if (__any_sync(EVERY, i < m && square < 1e-24f)) { /* the class's favourite key is not in it: underflow */
            float most = -1e38f;
            if (i < m)
#pragma unroll 1
                for (int p = lane() / wide; p < n_slots; p += lanes)
                    if (own[p] > 0) most = fmaxf(most, run.z_of[p]);
            __syncwarp();
#pragma unroll
            for (int d = wide; d < 32; d *= 2) most = fmaxf(most, __shfl_xor_sync(EVERY, most, d));
            square = 0;
            if (i < m)
#pragma unroll 1
                for (int p = lane() / wide; p < n_slots; p += lanes) {
                    float x = own[p] > 0 ? (float)own[p] * expf(run.z_of[p] - most) : 0;
                    square += x * x;
                    run.f[p * PITCH_F + i] = x;
                }
            __syncwarp();
#pragma unroll
            for (int d = wide; d < 32; d *= 2) square += __shfl_xor_sync(EVERY, square, d);
        }
        if (lane() < wide && i < N) run.scale[i] = square > 0 ? rsqrtf(square) : 0;
    }
    __syncwarp();
}

template <int N> __device__ __forceinline__ void logits(const Run &run, int n, int n_slots, float (&e)[N][C]) {
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int c = 0; c < C; c++) e[i][c] = real(c) ? 0 : -1e30f; /* columns that are not there vanish in the softmax */
    const int *row = run.row + n * SLOTS;
    constexpr int together = N * C > 32 ? 2 : 4;
#pragma unroll together
    for (int p = 0; p < n_slots; p++) {
        float y[C], f[N];
        load_row<Y_SHARED>(run.y_here + row[p], y);
        load_f<N>(run.f + p * PITCH_F + group() * N, f);
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int c = 0; c < C; c++) e[i][c] += f[i] * y[c];
    }
}

/* In column `at` of lane `from` of each group: scale times the given numbers. */
template <int N>
__device__ __forceinline__ void put(float (&e)[N][C], int at, int from, float scale, const float (&given)[N]) {
#pragma unroll
    for (int c = 0; c < C; c++)
        if (c == at) /* the same for all lanes */
#pragma unroll
            for (int i = 0; i < N; i++)
                if (lane() == from) e[i][c] = scale == 0 ? 0 : given[i];
}

/* Products with k∘e^z, which `scale` makes logits, become e^{logit − max} with the target's left out. Returns in `others`
 * and `behind` their sum and that of their products with (target's logit − logit), in `right` e^{target's logit − max};
 * `most` is log2 of e^max less the target's logit, for the loss. */
template <int N>
__device__ __forceinline__ void softmax(const Job &job, float (&e)[N][C], const float (&scale)[N], int target,
                                        float (&others)[N], float (&behind)[N], float (&right)[N], float (&most)[N]) {
    const int at = place_of(target), from = lane_of(target);
    float shift[C];
#pragma unroll
    for (int c = 0; c < C; c++) {
        shift[c] = LUMPED && real(c) ? job.log2_multiplicity[column(c)] : 0;
        if (c == at)
#pragma unroll
            for (int i = 0; i < N; i++) most[i] = e[i][c];
    }
    float top[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float factor = scale[i] * LOG2E;
        right[i] = __shfl_sync(EVERY, most[i], from);
        top[i] = LUMPED ? e[i][0] * factor + shift[0] : e[i][0];
#pragma unroll
        for (int c = 1; c < C; c++) top[i] = fmaxf(top[i], LUMPED ? e[i][c] * factor + shift[c] : e[i][c]);
        if (!LUMPED) top[i] *= factor;
    }
    combine_all<N>(top, Max());
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float factor = scale[i] * LOG2E;
        behind[i] = 0;
#pragma unroll
        for (int c = 0; c < C; c++) {
            float logit = e[i][c];
            e[i][c] = exp2_near(logit * factor + (shift[c] - top[i]));
            behind[i] += e[i][c] * (right[i] - logit);
        }
        behind[i] *= scale[i];
        most[i] = top[i] - right[i] * factor;
        right[i] = exp2_near(right[i] * factor - top[i]);
    }
    put<N>(e, at, from, 0, others);
#pragma unroll
    for (int i = 0; i < N; i++) {
        others[i] = e[i][0];
#pragma unroll
        for (int c = 1; c < C; c++) others[i] += e[i][c];
    }
    combine_all<N>(others, Sum());
    combine_all<N>(behind, Sum());
}

/* Products with k∘e^z become weight (e_n − α) / (multiplicity ‖k∘e^z‖), which is E for f = k∘e^z / ‖k∘e^z‖, and `each`
 * weight · fᵀg / ‖k∘e^z‖², of the samples from `first` on. */
template <int N>
__device__ __forceinline__ void errors(const Job &job, const Run &run, float (&e)[N][C], int target, long long sample,
                                       int first, int m) {
    float others[N], behind[N], right[N], most[N], scale[N];
    load_f<N>(run.scale + first, scale);
    softmax<N>(job, e, scale, target, others, behind, right, most);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float weight = first + i < m ? (job.weight ? job.weight[sample + first + i] : job.even) : 0;
        float share = __fdividef(weight, others[i] + right[i]);
        if (lane() % LANES == 0) run.each[first + i] = behind[i] * share * scale[i] * scale[i];
        share *= scale[i]; /* for the products with k∘e^z that follow */
#pragma unroll
        for (int c = 0; c < C; c++)
            e[i][c] *= LUMPED && real(c) ? -share * job.inverse_multiplicity[column(c)] : -share;
        others[i] *= share;
    }
    const int at = place_of(target), from = lane_of(target);
    put<N>(e, at, from, 1, others);
}
