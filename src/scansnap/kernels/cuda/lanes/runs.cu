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
 * (the same where few are left), SHARED_CHUNK (shared rows at a time), Y_SHARED and V_SHARED (which tables are in shared
 * memory), LUMPED (a column stands for several outputs), COUNT (type of a count), BLOCKS (per multiprocessor, at
 * least).
 */

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
            float f[GROUPS * N], each[GROUPS * N];
            load_f<GROUPS * N>(run.f + (lane() + 32 * k) * PITCH_F, f);
            load_f<GROUPS * N>(run.each, each);
#if HELD
            float total = 0;
#else
            float total = sum_dots(run, lane() + 32 * k);
#endif
#pragma unroll
            for (int i = 0; i < GROUPS * N; i++) total -= f[i] * f[i] * each[i];
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

/* What leaves after a recorded step: z, and the loss of the classes themselves. */
__device__ __forceinline__ void look(const Job &job, const Run &run, int r, int number, float *loss) {
    record_z(job, run.z, r, number, 32 * WARPS);
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
    record_loss(job, loss, r, number);
}

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
    run.y_here = run.y + first_column();
    run.v_here = run.v + first_column();
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
        const long long batches = (long long)job.stream[r] * job.n_steps;
        __syncthreads();
        begin_y<Y_SHARED, V_SHARED>(job, r, PITCH, keep, run.y, run.v, stride);
        begin_z(job, r, keep, run.z, run.vz, stride);
        load_batch(job, batches, run.start, run.rank, stride);
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
            move_z(job, rate_z, run.fade, run.z, run.vz, run.dz, stride);
            const int other = t + 1 & 1;
            if (t + 1 < job.n_steps)
                load_batch(job, batches + t + 1, run.start + other * (k_size + 1), run.rank + other * k_size, stride);
            if (first == 0) *run.turn = 0;
            __syncthreads();
            if (job.record && job.record[t + 1] >= 0) look(job, run, r, job.record[t + 1], loss);
        }

        leave<Y_SHARED, V_SHARED>(job, r, PITCH, run.y, run.v, run.z, run.vz, stride);
    }
}
