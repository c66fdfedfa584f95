/* Many SGD steps of many runs: a thread block owns a run from its first step to its last.
 *
 * The twin of kernels/cpu/fused.c, with the same formulas. Y and Z live in shared memory, the velocity too where it
 * fits and in a scratch that stays in the second-level cache where it does not; only recorded steps leave. A warp takes
 * a class at a time: its lanes own columns, so that logits, softmax and gradient of a tile of samples never leave
 * registers, and
 *
 *     logits = F Y_n,   dY_n = Fᵀ E,   dz = rowsum(Y_n ∘ dY_n) − Σ_i f_i² (f_iᵀ g_i)
 *
 * need nothing but F from shared memory beside the tables. Rows of Y that one class alone reads are moved by its warp
 * at once; rows of several classes get their gradients in a fixed order of the classes (`turn`), so that runs repeat bit
 * for bit, and are moved when all classes are through.
 *
 * With few columns a warp is cut into GROUPS of lanes that take different samples; with HELD the gradient of all slots of
 * a class stays in registers until its last sample; with LATE those of the rows that all classes share, until the step's.
 * What is done once per tile is written out, what is done per row of Y is a loop: code that does not fit the instruction
 * cache is slower by far.
 *
 * Compiled for one shape: SLOTS, COLUMNS, GROUPS, HELD, LATE, WARPS, TILE (samples of a group at a time), SMALL
 * (the same where few are left), SHARED_CHUNK
 * (shared rows at a time), Y_SHARED and V_SHARED (which tables are in shared memory), LUMPED (a column stands for
 * several outputs), COUNT (type of a count), BLOCKS (per multiprocessor, at least).
 */
#define LANES (32 / GROUPS)                      /* of a group */
#define WIDE (GROUPS * TILE)                     /* samples of a tile */
#define C ((COLUMNS + LANES - 1) / LANES)        /* columns of a lane */
#define VW (C % 4 == 0 ? 4 : C % 2 == 0 ? 2 : 1) /* neighbours among them */
#define PITCH ((COLUMNS + VW - 1) / VW * VW)     /* of a row of Y in memory here */
#define NS ((SLOTS + 31) / 32)                   /* slots of a lane */
#define PITCH_F (STEP_UP(WIDE, 4) + (HELD ? 4 : 0)) /* of a slot's row of f; banks of neighbouring rows differ */
#define EVERY 0xffffffffu
#define LOG2E 1.44269504f
#define STEP_UP(n, to) (((n) + (to) - 1) / (to) * (to))

/* Names as in dynamics/engines/layout.py; the slots of a class are ordered so that those whose rows no other class has
 * come first, in the counts too. */
struct Job {
    int n_classes, n_rows, n_z, n_shared, batch_size, n_steps, n_runs, z_size, vocab_size, n_records, init;
    float even;         /* weight of a sample where `weight` is null */
    double init_size;   /* half-width of the uniform or std of the normal */
    const int *n_slots; /* (K) */
    const int *n_own;   /* (K) slots whose rows no other class has */
    const int *row;     /* (K, S) */
    const int *slot_z;  /* (K, S) entry of Z */
    const int *target;  /* (K) */
    const int *shared_rows, *z_first, *z_list, *z_at; /* (n_shared) (n_z + 1) (·) of class · S + slot, (n_z) in (Q, M) */
    const int *row_token, *column_token, *queries; /* tokens, for initial values */
    const float *multiplicity, *inverse_multiplicity, *log2_multiplicity; /* (C · 32), by column */
    const float *expected, *p_class;                                      /* (K, S) (K) for the loss */
    const int *start, *rank; /* (G, N, K + 1) (G, N, K) first sample of a class; classes, the largest first */
    const COUNT *counts;     /* (G, N, B, S), samples by class */
    const float *weight;     /* (G, N, B) or null */
    const int *stream;       /* (R) */
    const u64 *seed;         /* (R) */
    const double *factor_y, *factor_z, *eta_y, *eta_z, *momentum; /* (N) (N) (R) (R) (R) */
    const float *y, *v, *z, *vz;                                  /* to begin with, or null: initial values */
    float *new_y, *new_v, *new_z, *new_vz;                        /* in the end, or null */
    float *v_scratch;                                             /* (blocks, L, PITCH) without V_SHARED */
    float *y_scratch;                                             /* the same without Y_SHARED */
    const int *record; /* (N + 1) number of the record after so many steps, or −1 */
    const int *entry;  /* (Q, M) entry of Z, or −1 where no class reads it; null: entries alone are recorded */
    float *record_z;   /* (R, records, Q, M), or (R, records, n_z) */
    float *record_loss; /* (R, records) */
    u8 *finite;         /* (R) */
};

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

__device__ __forceinline__ float exp2_near(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

__device__ __forceinline__ int lane() { return threadIdx.x & 31; }
__device__ __forceinline__ int group() { return lane() / LANES; }

/* Column of a lane's c-th place. */
__device__ __forceinline__ int first_column(int c) { return VW * (lane() % LANES + LANES * (c / VW)); }
__device__ __forceinline__ int column(int c) { return first_column(c) + c % VW; }
__device__ __forceinline__ bool inside(int c) { return LANES * VW * (c / VW + 1) <= PITCH || first_column(c) < PITCH; }
__device__ __forceinline__ bool real(int c) { return LANES * VW * (c / VW + 1) <= COLUMNS || column(c) < COLUMNS; }

/* Numbers in shared memory, or in global memory that only the second-level cache is to hold. */
template <bool SHARED, class T> __device__ __forceinline__ T get(const T *from) {
    if constexpr (SHARED) return *from;
    else return __ldcg(from);
}
template <bool SHARED, class T> __device__ __forceinline__ void set(T *to, T value) {
    if constexpr (SHARED) *to = value;
    else __stcg(to, value);
}

/* Rows are given by where this lane's first column is in them. */
template <bool SHARED> __device__ __forceinline__ void load_row(const float *row, float (&to)[C]) {
#pragma unroll
    for (int c = 0; c < C; c += VW) {
        const float *from = row + LANES * VW * (c / VW);
        bool there = inside(c);
        if constexpr (VW == 4) {
            float4 part = there ? get<SHARED>((const float4 *)from) : make_float4(0, 0, 0, 0);
            to[c] = part.x, to[c + 1] = part.y, to[c + 2] = part.z, to[c + 3] = part.w;
        } else if constexpr (VW == 2) {
            float2 part = there ? get<SHARED>((const float2 *)from) : make_float2(0, 0);
            to[c] = part.x, to[c + 1] = part.y;
        } else
            to[c] = there ? get<SHARED>(from) : 0;
    }
}

template <bool SHARED> __device__ __forceinline__ void store_row(float *row, const float (&from)[C]) {
#pragma unroll
    for (int c = 0; c < C; c += VW) {
        float *to = row + LANES * VW * (c / VW);
        if (!inside(c)) continue;
        if constexpr (VW == 4) set<SHARED>((float4 *)to, make_float4(from[c], from[c + 1], from[c + 2], from[c + 3]));
        else if constexpr (VW == 2) set<SHARED>((float2 *)to, make_float2(from[c], from[c + 1]));
        else set<SHARED>(to, from[c]);
    }
}

/* f of N samples of a group at one slot: the same for all its lanes. */
template <int N> __device__ __forceinline__ void load_f(const float *from, float (&to)[N]) {
    constexpr int step = GROUPS == 1 ? 4 : N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1; /* what the address is a multiple of */
    constexpr int fours = step == 4 ? N / 4 * 4 : 0, twos = step >= 2 ? N / 2 * 2 : fours;
#pragma unroll
    for (int i = 0; i < fours; i += 4) {
        float4 part = *(const float4 *)(from + i);
        to[i] = part.x, to[i + 1] = part.y, to[i + 2] = part.z, to[i + 3] = part.w;
    }
#pragma unroll
    for (int i = fours; i < twos; i += 2) {
        float2 part = *(const float2 *)(from + i);
        to[i] = part.x, to[i + 1] = part.y;
    }
#pragma unroll
    for (int i = twos; i < N; i++) to[i] = from[i];
}

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

__device__ constexpr int power_above(int n) { return n <= 1 ? 1 : 2 * power_above((n + 1) / 2); }

/* N values of every lane combined over the warp: the first of `x` is then the total of number `owner<N>`. Each exchange
 * halves how many values a lane is in charge of, so that it takes some N shuffles and not 5 N. */
template <int N, int D, class Op> __device__ __forceinline__ void combine(float *x, Op op) {
    constexpr int half = power_above(N) / 2;
    if constexpr (D > 0) {
        if constexpr (N > 1) {
            bool upper = lane() & D;
#pragma unroll
            for (int i = 0; i < half; i++) {
                float mine = x[i], other = x[i];
                if (i + half < N) {
                    mine = upper ? x[i + half] : x[i];
                    other = upper ? x[i] : x[i + half];
                }
                x[i] = op(mine, __shfl_xor_sync(EVERY, other, D));
            }
            combine<half, D / 2>(x, op);
        } else {
            x[0] = op(x[0], __shfl_xor_sync(EVERY, x[0], D));
            combine<1, D / 2>(x, op);
        }
    }
}

/* Which of N values a lane has after `combine` over L lanes; and the first of them that has a value. */
template <int N, int L> __device__ __forceinline__ int owned() { return lane() % L / (L / power_above(N)); }
template <int N, int L> __device__ __forceinline__ int owner(int i) { return lane() / L * L + i * (L / power_above(N)); }

/* Every lane of a group gets every total of the group; what does not fit at once goes in two parts. */
template <int N, class Op> __device__ __forceinline__ void combine_all(float (&x)[N], Op op) {
    if constexpr (power_above(N) > LANES) {
        constexpr int half = power_above(N) / 2;
        float one[half], two[N - half];
#pragma unroll
        for (int i = 0; i < N; i++) (i < half ? one[i < half ? i : 0] : two[i < half ? 0 : i - half]) = x[i];
        combine_all<half>(one, op);
        combine_all<N - half>(two, op);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = i < half ? one[i < half ? i : 0] : two[i < half ? 0 : i - half];
    } else {
        combine<N, LANES / 2>(x, op);
        float mine = x[0];
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = __shfl_sync(EVERY, mine, owner<N, LANES>(i));
    }
}

template <class Op> __device__ __forceinline__ void over_warp(float (&x)[1], Op op) { combine<1, 16>(x, op); }

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
#pragma unroll 2
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
    const int at = target / (LANES * VW) * VW + target % VW, from = group() * LANES + target / VW % LANES;
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
        float *row = run.common + a * PITCH + first_column(0);
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
    const int at = target / (LANES * VW) * VW + target % VW, from = group() * LANES + target / VW % LANES;
    put<N>(e, at, from, 1, others);
}

/* One tile of `m` samples of class n, N in each group at most; adds to dz of the lanes' slots. */
template <int N>
__device__ __forceinline__ void tile(const Job &job, const Run &run, int n, int n_slots, long long sample, int m,
                                     bool last, int turn, float (&dz)[NS], Held &held) {
    attention<GROUPS * N>(run, job.counts + sample * SLOTS, n_slots, m);
    float e[N][C];
    logits<N>(run, n, n_slots, e);
    constexpr int part = HELD && N % 4 == 0 ? 4 : N; /* registers are short where a gradient is held */
#pragma unroll
    for (int i = 0; i < N; i += part)
        errors<part>(job, run, *(float (*)[part][C])(e + i), job.target[n], sample, group() * N + i, m);
#if HELD
    __syncwarp();
#pragma unroll
    for (int p = 0; p < SLOTS; p++)
        if (p < n_slots) {
            float f[N];
            load_f<N>(run.f + p * PITCH_F + group() * N, f);
#pragma unroll
            for (int i = 0; i < N; i++)
#pragma unroll
                for (int c = 0; c < C; c++) held[p][c] += f[i] * e[i][c];
        }
#else
    int n_own = job.n_own[n];
    own_rows<N>(job, run, n, n_own, e, last);
#if LATE
    shared_rows<N>(job, run, n, n_own, n_slots, e, held);
#else
#pragma unroll 1
    for (int p = n_own; p < n_slots; p += SHARED_CHUNK) {
        shared_rows<N>(job, run, n, p, n_slots, e, held);
        wait_for(run, turn);
        let_go(run, n, p, n_slots, held);
    }
#endif
    __syncwarp();
#endif
#pragma unroll
    for (int k = 0; k < NS; k++)
        if (lane() + 32 * k < n_slots) {
            const float *f = run.f + (lane() + 32 * k) * PITCH_F;
#if HELD
            float total = 0;
#else
            float total = sum_dots(run, lane() + 32 * k);
#endif
#pragma unroll
            for (int i = 0; i < GROUPS * N; i++) total -= f[i] * f[i] * run.each[i];
            dz[k] += total;
        }
    __syncwarp();
}

__device__ __forceinline__ void clear(Held &held) {
#pragma unroll
    for (int p = 0; p < (int)(sizeof held / sizeof held[0]); p++)
#pragma unroll
        for (int c = 0; c < C; c++) held[p][c] = 0;
}

__device__ __forceinline__ void class_step(const Job &job, const Run &run, int n, long long batch, int begin, int end,
                                           int turn HELD_OUTSIDE) {
    const int n_slots = keys_of(job, run, n);
    float dz[NS];
#pragma unroll
    for (int k = 0; k < NS; k++) dz[k] = 0;
#if HELD
    Held held;
    clear(held);
#endif
#pragma unroll 1
    for (int i = begin; i < end; i += WIDE) {
        int m = end - i < WIDE ? end - i : WIDE;
        bool last = i + WIDE >= end;
        if (SMALL < TILE && m <= SMALL * GROUPS) tile<SMALL>(job, run, n, n_slots, batch + i, m, last, turn, dz, held);
        else tile<TILE>(job, run, n, n_slots, batch + i, m, last, turn, dz, held);
    }
#if HELD
    finish(job, run, n, n_slots, held, turn);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < NS; k++)
        if (lane() + 32 * k < n_slots) dz[k] += run.row_dot[lane() + 32 * k];
    __syncwarp();
#else
    if (begin == end) { /* no sample: the velocity goes on */
#pragma unroll 1
        for (int p = 0; p < job.n_own[n]; p++) {
            int row = run.row[n * SLOTS + p];
            float y[C], v[C];
            load_row<Y_SHARED>(run.y_here + row, y);
            load_row<V_SHARED>(run.v_here + row, v);
#pragma unroll
            for (int c = 0; c < C; c++) {
                y[c] += run.rate_y * v[c];
                v[c] *= run.fade;
            }
            store_row<Y_SHARED>(run.y_here + row, y);
            store_row<V_SHARED>(run.v_here + row, v);
        }
    }
#endif
#pragma unroll
    for (int k = 0; k < NS; k++)
        if (lane() + 32 * k < n_slots) run.dz[n * SLOTS + lane() + 32 * k] = dz[k];
}

/* Waits for the turn, if it has not come yet, and hands it on. */
__device__ __forceinline__ void pass_on(const Run &run, int turn) {
    if (WARPS == 1) return;
    wait_for(run, turn);
    if (lane() == 0) *run.turn = turn + 1;
    __syncwarp();
}

__device__ __noinline__ float initial(int kind, double size, u64 seed, u32 purpose, u32 row, u32 column) {
    if (kind == 0) return 0;
    Pair draw = uniforms(seed, purpose, 0, row, column);
    if (kind == 1) return (float)((2 * draw.u - 1) * size);
    return (float)(sqrt(-2 * log1p(-draw.u)) * cos(2 * 3.141592653589793 * draw.v) * size);
}

/* What leaves after a recorded step: z, and the loss of the classes themselves. */
__device__ __forceinline__ void look(const Job &job, const Run &run, int r, int number, float *loss) {
    const int size = job.entry ? job.z_size : job.n_z;
    float *z = job.record_z + ((long long)r * job.n_records + number) * size;
#pragma unroll 1
    for (int i = threadIdx.x; i < size; i += 32 * WARPS) {
        int at = job.entry ? job.entry[i] : i;
        z[i] = at >= 0 ? run.z[at]
                       : initial(job.init, job.init_size, job.seed[r], PURPOSE_INIT_Z, job.queries[i / job.vocab_size],
                                 i % job.vocab_size);
    }
#pragma unroll 1
    for (int n = run.warp; n < job.n_classes; n += WARPS) {
        const int n_slots = keys_of(job, run, n);
        attention<1>(run, job.expected + n * SLOTS, n_slots, 1);
        float e[1][C], others[1], behind[1], right[1], most[1], scale[1] = {run.scale[0]};
        logits<1>(run, n, n_slots, e);
        softmax<1>(job, e, scale, job.target[n], others, behind, right, most);
        if (lane() == 0) loss[n] = job.p_class[n] * ((log2f(others[0] + right[0]) + most[0]) / LOG2E);
        __syncwarp();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
#pragma unroll 1
        for (int n = 0; n < job.n_classes; n++) total += loss[n];
        job.record_loss[(long long)r * job.n_records + number] = total;
    }
    __syncthreads();
}

__device__ __forceinline__ bool ordinary(float x) { return fabsf(x) <= 3.4028235e38f; }

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) train(const Job job) {
    SHARED_MEMORY(memory);
    const int k_size = job.n_classes, y_size = job.n_rows * PITCH;
    Run run;
    run.warp = WARPS == 1 ? 0 : __shfl_sync(EVERY, threadIdx.x >> 5, 0);
    float *next = memory;
    run.y = Y_SHARED ? next : job.y_scratch + (long long)blockIdx.x * y_size;
    if (Y_SHARED) next += y_size;
    run.v = V_SHARED ? next : job.v_scratch + (long long)blockIdx.x * y_size;
    if (V_SHARED) next += y_size;
    run.y_here = run.y + first_column(0);
    run.v_here = run.v + first_column(0);
    next = memory + STEP_UP((int)(next - memory), 4);
    run.common = next;
    if (LATE) next += STEP_UP(SHARED_CHUNK * PITCH, 4);
    run.f = next + run.warp * SLOTS * PITCH_F;
    next += WARPS * SLOTS * PITCH_F;
    run.each = next + run.warp * 2 * STEP_UP(WIDE, 4);
    run.scale = run.each + STEP_UP(WIDE, 4);
    next += WARPS * 2 * STEP_UP(WIDE, 4);
    run.row_dot = run.dots = next + run.warp * SLOTS * (HELD ? 1 : 9);
    next += WARPS * SLOTS * (HELD ? 1 : 9);
    run.key = next + run.warp * 2 * SLOTS;
    run.z_of = run.key + SLOTS;
    next += WARPS * 2 * SLOTS;
    run.z = next;
    run.vz = next + job.n_z;
    run.dz = next + 2 * job.n_z;
    next += 2 * job.n_z + k_size * SLOTS;
    float *loss = next; /* (K) */
    next += k_size;
    run.row = (int *)next;
    run.start = run.row + k_size * SLOTS;
    run.rank = run.start + 2 * (k_size + 1);
    run.turn = (volatile int *)(run.rank + 2 * k_size);
    const int first = threadIdx.x, stride = 32 * WARPS, rounds = (k_size + WARPS - 1) / WARPS;
#pragma unroll 1

    for (int i = first; i < k_size * SLOTS; i += stride) run.row[i] = job.row[i] * PITCH;
    for (int r = blockIdx.x; r < job.n_runs; r += gridDim.x) {
        const float keep = (float)job.momentum[r];
        const u64 seed = job.seed[r];
        const long long y_at = (long long)r * job.n_rows * COLUMNS, z_at = (long long)r * job.z_size;
        const long long batches = (long long)job.stream[r] * job.n_steps;
        __syncthreads();
#pragma unroll 1
        for (int i = first; i < y_size; i += stride) {
            int l = i / PITCH, j = i % PITCH;
            float y = 0, v = 0;
            if (j < COLUMNS) {
                y = job.y ? job.y[y_at + l * COLUMNS + j]
                          : initial(job.init, job.init_size, seed, PURPOSE_INIT_Y, job.row_token[l], job.column_token[j]);
                if (job.v) v = keep * job.v[y_at + l * COLUMNS + j];
            }
            set<Y_SHARED>(run.y + i, y);
            set<V_SHARED>(run.v + i, v);
        }
#pragma unroll 1
        for (int i = first; i < job.n_z; i += stride) {
            run.z[i] = job.z ? job.z[z_at + job.z_at[i]]
                             : initial(job.init, job.init_size, seed, PURPOSE_INIT_Z, job.queries[job.z_at[i] / job.vocab_size],
                                       job.z_at[i] % job.vocab_size);
            run.vz[i] = job.vz ? keep * job.vz[z_at + job.z_at[i]] : 0;
        }
#pragma unroll 1
        for (int i = first; i <= k_size; i += stride) run.start[i] = job.start[batches * (k_size + 1) + i];
#pragma unroll 1
        for (int i = first; i < k_size; i += stride) run.rank[i] = job.rank[batches * k_size + i];
        if (first == 0) *run.turn = 0;
        __syncthreads();
        if (job.record && job.record[0] >= 0) look(job, run, r, job.record[0], loss);

        for (int t = 0; t < job.n_steps; t++) {
            run.rate_y = (float)(job.factor_y[t] * job.eta_y[r]);
            const float rate_z = (float)(job.factor_z[t] * job.eta_z[r]);
            run.fade = t + 1 < job.n_steps ? keep : 1;
            const long long batch = (batches + t) * job.batch_size;
            const int *start = run.start + (t & 1) * (k_size + 1), *rank = run.rank + (t & 1) * k_size;
#if !HELD
            Held held;
            clear(held);
#endif
#pragma unroll 1
            for (int round = 0; round < rounds; round++) {
                /* there and back, so that who has a large class gets a small one next; the small ones add first */
                int i = round * WARPS + (round & 1 ? WARPS - 1 - run.warp : run.warp), turn = round * WARPS + WARPS - 1 - run.warp;
                if (i < k_size) {
                    int n = rank[i];
#if HELD
                    class_step(job, run, n, batch, start[n], start[n + 1], turn);
#else
                    class_step(job, run, n, batch, start[n], start[n + 1], turn, held);
#endif
                }
                if (!LATE) pass_on(run, turn);
            }
#if LATE && !HELD /* all classes share the same rows */
            let_go(run, held);
            pass_on(run, run.warp);
#endif
            __syncthreads();
#pragma unroll 1
            for (int i = first; i < job.n_shared * PITCH; i += stride) {
                int at = job.shared_rows[i / PITCH] * PITCH + i % PITCH;
                float v = get<V_SHARED>(run.v + at) + (LATE ? run.common[i] : 0);
                set<Y_SHARED>(run.y + at, get<Y_SHARED>(run.y + at) + run.rate_y * v);
                set<V_SHARED>(run.v + at, v * run.fade);
            }
#pragma unroll 1
            for (int i = first; i < job.n_z; i += stride) {
                float v = run.vz[i];
#pragma unroll 1
                for (int k = job.z_first[i]; k < job.z_first[i + 1]; k++) v += run.dz[job.z_list[k]];
                run.z[i] += rate_z * v;
                run.vz[i] = v * run.fade;
            }
            if (t + 1 < job.n_steps) {
                int *next_start = run.start + (t + 1 & 1) * (k_size + 1), *next_rank = run.rank + (t + 1 & 1) * k_size;
#pragma unroll 1
                for (int i = first; i <= k_size; i += stride)
                    next_start[i] = job.start[(batches + t + 1) * (k_size + 1) + i];
#pragma unroll 1
                for (int i = first; i < k_size; i += stride) next_rank[i] = job.rank[(batches + t + 1) * k_size + i];
            }
            if (first == 0) *run.turn = 0;
            __syncthreads();
            if (job.record && job.record[t + 1] >= 0) look(job, run, r, job.record[t + 1], loss);
        }

        bool good = true;
#pragma unroll 1
        for (int i = first; i < y_size; i += stride) {
            int l = i / PITCH, j = i % PITCH;
            if (j >= COLUMNS) continue;
            const float y = get<Y_SHARED>(run.y + i), v = get<V_SHARED>(run.v + i);
            good &= ordinary(y) && ordinary(v);
            if (job.new_y) job.new_y[y_at + l * COLUMNS + j] = y;
            if (job.new_v) job.new_v[y_at + l * COLUMNS + j] = v;
        }
#pragma unroll 1
        for (int i = first; i < job.n_z; i += stride) {
            good &= ordinary(run.z[i]) && ordinary(run.vz[i]);
            if (job.new_z) job.new_z[z_at + job.z_at[i]] = run.z[i];
            if (job.new_vz) job.new_vz[z_at + job.z_at[i]] = run.vz[i];
        }
        good = __syncthreads_and(good);
        if (first == 0) job.finite[r] = good;
    }
}
