/* Many SGD steps of many runs on tensor cores: a thread block owns a run from its first step to its last.
 *
 * The twin of runs.cu for counts of one byte and classes that all share the same rows and have as many of their own. A warp
 * takes a class at a time, and all columns, in strips of 16. Rows that are a class's own move when its gradient is there;
 * gradients of the common ones are added up as whole numbers, so that it does not matter who comes first and runs repeat
 * bit for bit, and the rows move at the end of a step.
 *
 * Compiled for one shape: SLOTS, OWN (slots whose rows no other class has), COLUMNS, STRIPS, WARPS, V_SHARED (velocities
 * in shared memory; else in a scratch that stays in the second-level cache), HELD (the gradient of a class stays in registers
 * until its last sample; else rows are visited with every tile of 8 samples), GROUP (strips that are visited at a time),
 * BLOCKS (per multiprocessor, at least).
 */
#define FINE 9.313225746154785e-10f /* 2⁻³⁰: no gradient is above 1, as weights of samples add up to 1 and ‖f‖ is 1 */

__device__ __forceinline__ float2 load_v(const float *from) {
    if (V_SHARED) return *(const float2 *)from;
    return __ldcg((const float2 *)from);
}
__device__ __forceinline__ void store_v(float *to, float2 v) {
    if (V_SHARED) *(float2 *)to = v;
    else __stcg((float2 *)to, v);
}

/* The rows at this lane's two places of eight number k, from its first column on. */
struct Rows {
    float *y[2], *v[2], key[2];
    int *common[2];
    bool own[2], shared[2];
};
__device__ __forceinline__ Rows find_rows(const Run &run, const Lane &at, int n, int k, const float *key) {
    Rows rows;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int p = 8 * k + 2 * at.pair + j, row = run.row[n * PLACES + p] + at.column;
        rows.y[j] = run.y + row, rows.v[j] = run.v + row, rows.key[j] = key[p];
        rows.own[j] = p < OWN, rows.shared[j] = p >= OWN && p < SLOTS;
        rows.common[j] = run.common + (rows.shared[j] ? p - OWN : 0) * PITCH + at.column;
    }
    return rows;
}

/* Their velocities in N strips from `first` on, those of rows that are the class's own. */
template <int N> __device__ __forceinline__ void load_rows(const Rows &rows, int first, float2 (&v)[2][N]) {
#pragma unroll
    for (int j = 0; j < 2; j++)
        if (rows.own[j])
#pragma unroll
            for (int s = 0; s < N; s++) v[j][s] = load_v(rows.v[j] + 16 * (first + s));
}

/* Their products with the gradient, which lacks e^z, go to `dot`, and the gradient to the velocity, by which rows of the class's
 * own move if the sample was its last. */
template <int N>
__device__ __forceinline__ void move_rows(const Run &run, const Rows &rows, int first, const float (&g)[N][4], bool last,
                                          float2 (&v)[2][N], float (&dot)[2]) {
    const float rate = last ? run.rate_y : 0, fade = last ? run.fade : 1;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float2 y[N];
#pragma unroll
        for (int s = 0; s < N; s++) {
            y[s] = *(const float2 *)(rows.y[j] + 16 * (first + s));
            dot[j] += y[s].x * g[s][j];
            dot[j] += y[s].y * g[s][j + 2];
        }
        if (rows.own[j]) {
#pragma unroll
            for (int s = 0; s < N; s++) {
                v[j][s].x += rows.key[j] * g[s][j], v[j][s].y += rows.key[j] * g[s][j + 2];
                y[s].x += rate * v[j][s].x, y[s].y += rate * v[j][s].y;
                v[j][s].x *= fade, v[j][s].y *= fade;
                *(float2 *)(rows.y[j] + 16 * (first + s)) = y[s];
                store_v(rows.v[j] + 16 * (first + s), v[j][s]);
            }
        } else if (rows.shared[j]) {
            const float fine = rows.key[j] * (1 / FINE);
#pragma unroll
            for (int s = 0; s < N; s++) {
                atomicAdd(rows.common[j] + 16 * (first + s), __float2int_rn(fine * g[s][j]));
                atomicAdd(rows.common[j] + 16 * (first + s) + 1, __float2int_rn(fine * g[s][j + 2]));
            }
        }
    }
}

/* The samples' part of dz at this lane's places of eight number k, for all rows of lanes. */
__device__ __forceinline__ void put_dz(const Run &run, const Lane &at, int n, int k, const float (&dz)[2], bool fresh) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int p = 8 * k + 2 * at.pair + j;
        const float sum = over_rows(dz[j], Sum());
        if (at.row == 0 && p < SLOTS) run.dz[n * SLOTS + p] = fresh ? sum : run.dz[n * SLOTS + p] + sum;
    }
}

#if HELD
typedef float Held[EIGHTS][STRIPS][4];

/* A gradient with these keys is complete. */
__device__ __forceinline__ void let_go(const Run &run, const Lane &at, int n, const float *key, Held &g, float (&dz)[EIGHTS][2],
                                       bool last, bool fresh) {
#pragma unroll
    for (int k = 0; k < EIGHTS; k++) {
        const Rows rows = find_rows(run, at, n, k, key);
        float dot[2] = {0, 0};
        float2 v[2][STRIPS];
        load_rows<STRIPS>(rows, 0, v);
        move_rows<STRIPS>(run, rows, 0, g[k], last, v, dot);
        dz[k][0] += rows.key[0] * dot[0], dz[k][1] += rows.key[1] * dot[1];
        put_dz(run, at, n, k, dz[k], fresh);
        dz[k][0] = dz[k][1] = 0;
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
#pragma unroll
            for (int i = 0; i < 4; i++) g[k][s][i] = 0;
    }
}
#endif

__device__ __forceinline__ void class_step(const Job &job, Run &run, const Lane &at, int n, long long batch, int begin, int end) {
    const int target = job.target[n];
    const float usual = run.shift[n];
    float log_sum = usual;
    bool fresh = true;
#if HELD
    Held g;
    float dz[EIGHTS][2];
#pragma unroll
    for (int k = 0; k < EIGHTS; k++) {
        dz[k][0] = dz[k][1] = 0;
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
#pragma unroll
            for (int i = 0; i < 4; i++) g[k][s][i] = 0;
    }
#endif
    int i = begin;
    u32 samples = (1u << (end - i < 8 ? end - i : 8)) - 1, rare = 0; /* of the tile; and those that need a key of their own */
    const float *key = run.key + n * PLACES;
    bool more = true;
#pragma unroll 1
    while (more) {
        u32 word[WORDS];
        load_counts(at, job.counts + (samples ? (batch + i) * SLOTS : 0), samples, word);
        float square = square_of(at, word, key);
        const bool alone = key == run.own_key;
        if (!alone) { /* where the class's favourite keys are not in a sample its squares vanish */
            const u32 low = __ballot_sync(EVERY, (samples >> at.row & 1) && square < 1e-24f);
            if (low) {
#pragma unroll
                for (int r = 0; r < 8; r++) rare |= (low >> 4 * r & 1) << r;
                samples &= ~rare;
                if (rare >> at.row & 1) {
                    square = 0;
#pragma unroll
                    for (int w = 0; w < WORDS; w++) word[w] = 0;
                }
            }
        }
        Tile e;
        float scale[2], factor[2], shift[2], others[2], behind[2], right[2], share[2], each[2];
        const float own_scale = square > 0 ? rsqrtf(square) : 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            scale[j] = __shfl_sync(EVERY, own_scale, 8 * at.pair + 4 * j);
            factor[j] = scale[j] * LOG2E;
            shift[j] = samples >> (2 * at.pair + j) & 1 ? usual : 0;
        }
#pragma unroll 1
        for (bool again = false;; again = true) {
            logits(run, at, n, word, key, e);
            if (again) largest(e, factor, shift);
            softmax(at, target, e, factor, shift, others, behind, right);
            bool good = true; /* else the shift is that of logits of long ago */
#pragma unroll
            for (int j = 0; j < 2; j++) {
                share[j] = others[j] + exp2_near(right[j]);
                good &= share[j] > 1e-12f && share[j] < 1e24f;
            }
            if (again || !__any_sync(EVERY, !good)) break;
        }
        if (samples & 1) log_sum = shift[0] + log2_near(share[0]); /* of the first, in the first lane */
#pragma unroll
        for (int j = 0; j < 2; j++) {
            share[j] = __fdividef(samples >> (2 * at.pair + j) & 1 ? job.even : 0, share[j]) * scale[j];
            each[j] = (others[j] * right[j] - behind[j]) * (share[j] * scale[j] * (1 / LOG2E));
        }
        errors(at, target, e, share, others);
        const float even = __shfl_sync(EVERY, each[0], at.row / 2), odd = __shfl_sync(EVERY, each[1], at.row / 2);
        const float own_each = at.row & 1 ? odd : even; /* of sample number `row` */
        u32 turned[2][WORDS]; /* counts of this lane's two samples at place number `row` of the eights */
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int w = 0; w < WORDS; w++) turned[j][w] = __shfl_sync(EVERY, word[w], 4 * (2 * at.pair + j) + at.row / 2);
        const bool last = i + 8 >= end && !rare;
#pragma unroll LOOPED
        for (int k = 0; k < EIGHTS; k++) {
            const int w = WORDS > 1 && k >= 2 ? 1 : 0, byte = 2 * (k & 1);
            const float count[2] = {count_of(w ? turned[0][WORDS - 1] : turned[0][0], byte + (at.row & 1)),
                                    count_of(w ? turned[1][WORDS - 1] : turned[1][0], byte + (at.row & 1))};
            const u32 own = w ? word[WORDS - 1] : word[0];
            const float2 times = *(const float2 *)(key + 8 * k + 2 * at.pair);
            const float f[2] = {count_of(own, byte) * times.x, count_of(own, byte + 1) * times.y};
#if HELD
#pragma unroll
            for (int s = 0; s < STRIPS; s++) {
                const float a[4] = {e[s][0], e[s][2], e[s][1], e[s][3]};
                multiply_all(g[k][s], a, count);
            }
            dz[k][0] -= f[0] * f[0] * own_each, dz[k][1] -= f[1] * f[1] * own_each;
#else
            const Rows rows = find_rows(run, at, n, k, key);
            float dot[2] = {0, 0};
            forget(e);
#pragma unroll
            for (int first = 0; first < STRIPS; first += GROUP) {
                float g[GROUP][4];
                float2 v[2][GROUP];
                load_rows<GROUP>(rows, first, v);
#pragma unroll
                for (int s = 0; s < GROUP; s++) {
                    const float a[4] = {e[first + s][0], e[first + s][2], e[first + s][1], e[first + s][3]};
                    g[s][0] = g[s][1] = g[s][2] = g[s][3] = 0;
                    multiply_all(g[s], a, count);
                }
                move_rows<GROUP>(run, rows, first, g, last, v, dot);
            }
            const float dz[2] = {times.x * dot[0] - f[0] * f[0] * own_each, times.y * dot[1] - f[1] * f[1] * own_each};
            put_dz(run, at, n, k, dz, fresh);
#endif
        }
#if HELD
        if (last || rare || alone) {
            let_go(run, at, n, key, g, dz, last, fresh);
            fresh = false;
        }
#else
        fresh = false;
#endif
        more = !last;
        if (rare) { /* one of them, with its own key */
            samples = rare & -rare;
            rare &= rare - 1;
            load_counts(at, job.counts + (batch + i) * SLOTS, samples, word);
            make_own_key(job, run, at, n, word);
            key = run.own_key;
        } else {
            i += 8;
            samples = (1u << (end - i < 8 ? end - i : 8)) - 1;
            key = run.key + n * PLACES;
        }
    }
    if (at.number == 0) run.shift[n] = log_sum;
}

/* e^{z − max} of every class. */
__device__ __forceinline__ void make_keys(const Job &job, const Run &run) {
#pragma unroll 1
    for (int n = run.warp; n < job.n_classes; n += WARPS) {
        float z = lane() < SLOTS ? run.z[job.slot_z[n * SLOTS + lane()]] : -1e38f;
        float top = over_rows(over_pairs(z, Max()), Max());
        if (lane() < PLACES) run.key[n * PLACES + lane()] = lane() < SLOTS ? expf(z - top) : 0;
    }
    __syncthreads();
}

/* What leaves after a recorded step: z, and the loss of the classes themselves. */
__device__ __forceinline__ void look(const Job &job, const Run &run, int r, int number, float *loss) {
    record_z(job, run.z, r, number, 32 * WARPS);
#pragma unroll 1
    for (int n = run.warp; n < job.n_classes; n += WARPS) {
        constexpr int columns = (COLUMNS + 31) / 32;
        float x = lane() < SLOTS ? job.expected[n * SLOTS + lane()] * run.key[n * PLACES + lane()] : 0;
        const float scale = rsqrtf(over_rows(over_pairs(x * x, Sum()), Sum()));
        float logit[columns], top = -1e30f, sum = 0, right = 0;
#pragma unroll
        for (int c = 0; c < columns; c++) logit[c] = 0;
#pragma unroll 1
        for (int p = 0; p < SLOTS; p++) {
            float f = __shfl_sync(EVERY, x, p) * scale;
            const float *y = run.y + run.row[n * PLACES + p] + lane();
#pragma unroll
            for (int c = 0; c < columns; c++) logit[c] += f * (lane() + 32 * c < COLUMNS ? y[32 * c] : 0);
        }
#pragma unroll
        for (int c = 0; c < columns; c++) {
            if (lane() + 32 * c >= COLUMNS) logit[c] = -1e30f;
            if (lane() + 32 * c == job.target[n]) right = logit[c];
            top = fmaxf(top, logit[c]);
        }
        top = over_rows(over_pairs(top, Max()), Max());
        right = __shfl_sync(EVERY, right, job.target[n] % 32);
#pragma unroll
        for (int c = 0; c < columns; c++) sum += exp2_near((logit[c] - top) * LOG2E);
        sum = over_rows(over_pairs(sum, Sum()), Sum());
        if (lane() == 0) loss[n] = job.p_class[n] * (log2f(sum) / LOG2E + (top - right));
    }
    record_loss(job, loss, r, number);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) train(const Job job) {
    SHARED_MEMORY(memory);
    const int k_size = job.n_classes, y_size = job.n_rows * PITCH;
    const int first = threadIdx.x, stride = 32 * WARPS, rounds = (k_size + WARPS - 1) / WARPS;
    Run run;
    run.warp = WARPS == 1 ? 0 : __shfl_sync(EVERY, threadIdx.x >> 5, 0);
    const Lane at = {lane(), lane() / 4, lane() % 4, lane() / 4 * 2};
    float *next = memory;
    run.y = next;
    next += y_size;
    run.v = V_SHARED ? next : job.v_scratch + (long long)blockIdx.x * y_size;
    if (V_SHARED) next += y_size;
    run.common = (int *)next;
    next += job.n_shared * PITCH;
    run.own_key = next + run.warp * PLACES;
    next += WARPS * PLACES;
    run.key = next;
    run.shift = run.key + k_size * PLACES;
    run.z = run.shift + k_size;
    run.vz = run.z + job.n_z;
    run.dz = run.vz + job.n_z;
    float *loss = run.dz + k_size * SLOTS; /* (K) */
    run.row = (int *)(loss + k_size);
    run.start = run.row + k_size * PLACES;
    run.rank = run.start + 2 * (k_size + 1);
#pragma unroll 1
    for (int i = first; i < k_size * PLACES; i += stride)
        run.row[i] = i % PLACES < SLOTS ? job.row[i / PLACES * SLOTS + i % PLACES] * PITCH : 0;
    for (int r = blockIdx.x; r < job.n_runs; r += gridDim.x) {
        const float keep = (float)job.momentum[r];
        const long long batches = (long long)job.stream[r] * job.n_steps;
        __syncthreads();
        begin_y<true, V_SHARED>(job, r, PITCH, keep, run.y, run.v, stride);
        begin_z(job, r, keep, run.z, run.vz, stride);
#pragma unroll 1
        for (int i = first; i < job.n_shared * PITCH; i += stride) run.common[i] = 0;
#pragma unroll 1
        for (int i = first; i <= k_size; i += stride) run.start[i] = job.start[batches * (k_size + 1) + i];
#pragma unroll 1
        for (int i = first; i < k_size; i += stride) run.rank[i] = job.rank[batches * k_size + i];
#pragma unroll 1
        for (int i = first; i < k_size; i += stride) run.shift[i] = 0;
        __syncthreads();
        make_keys(job, run);
        if (job.record && job.record[0] >= 0) look(job, run, r, job.record[0], loss);

        for (int t = 0; t < job.n_steps; t++) {
            run.rate_y = (float)(job.factor_y[t] * job.eta_y[r]);
            const float rate_z = (float)(job.factor_z[t] * job.eta_z[r]);
            run.fade = t + 1 < job.n_steps ? keep : 1;
            const long long batch = (batches + t) * job.batch_size;
            const int *start = run.start + (t & 1) * (k_size + 1), *rank = run.rank + (t & 1) * k_size;
#pragma unroll 1
            for (int round = 0; round < rounds; round++) {
                /* there and back, so that who has a large class gets a small one next */
                int i = round * WARPS + (round & 1 ? WARPS - 1 - run.warp : run.warp);
                if (i < k_size) class_step(job, run, at, rank[i], batch, start[rank[i]], start[rank[i] + 1]);
            }
            __syncthreads();
#pragma unroll 1
            for (int i = first; i < job.n_shared * PITCH; i += stride) {
                int to = job.shared_rows[i / PITCH] * PITCH + i % PITCH;
                float v = get<V_SHARED>(run.v + to) + run.common[i] * FINE;
                run.common[i] = 0;
                run.y[to] += run.rate_y * v;
                set<V_SHARED>(run.v + to, v * run.fade);
            }
            move_z(job, rate_z, run.fade, run.z, run.vz, run.dz, stride);
            if (t + 1 < job.n_steps) {
                int *next_start = run.start + (t + 1 & 1) * (k_size + 1), *next_rank = run.rank + (t + 1 & 1) * k_size;
#pragma unroll 1
                for (int i = first; i <= k_size; i += stride)
                    next_start[i] = job.start[(batches + t + 1) * (k_size + 1) + i];
#pragma unroll 1
                for (int i = first; i < k_size; i += stride) next_rank[i] = job.rank[(batches + t + 1) * k_size + i];
            }
            __syncthreads();
            make_keys(job, run);
            if (job.record && job.record[t + 1] >= 0) look(job, run, r, job.record[t + 1], loss);
        }
        leave<true, V_SHARED>(job, r, PITCH, run.y, run.v, run.z, run.vz, stride);
    }
}
