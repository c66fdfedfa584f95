/* Many SGD steps of many runs on tensor cores: a thread block owns a run from its first step to its last.
 *
 * The twin of lanes/runs.cu for counts of one byte and classes that all share the same rows and have as many of their own. A warp
 * takes a class at a time, and all columns, in strips of 16. Rows that are a class's own move when its gradient is there;
 * gradients of the common ones are added up as whole numbers, so that it does not matter who comes first and runs repeat
 * bit for bit, and the rows move at the end of a step.
 *
 * Compiled for one shape: SLOTS, OWN (slots whose rows no other class has), COLUMNS, STRIPS, WARPS, V_SHARED (velocities
 * in shared memory; else in a scratch that stays in the second-level cache), HELD (the gradient of a class stays in registers
 * until its last sample; else rows are visited with every tile of 8 samples), TILES (of 8 samples at a time; 1 if not HELD),
 * GROUP (strips that are visited at a time), BLOCKS (per multiprocessor, at least).
 */
/* The first samples of those that are left, as bits. */
__device__ __forceinline__ u32 some_of(int left) { return left >= 8 * TILES ? (1u << 8 * TILES) - 1 : (1u << left) - 1; }

__device__ __forceinline__ void class_step(const Job &job, Run &run, const Lane &at, int n, long long batch, int begin, int end) {
    const int target = job.target[n];
    const float usual = run.shift[n];
    float log_sum = usual;
    bool fresh = true, alone = false;
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
    const u8 *counts = job.counts + (batch + begin) * SLOTS;
    const float *key = run.key + n * PLACES;
    int left = end - begin;
    u32 samples = some_of(left), rare = 0; /* of these tiles; and those that need a key of their own */
    u32 word[TILES][WORDS], ahead[TILES][WORDS];
    load_counts(at, counts, samples, ahead);
#pragma unroll 1
    while (true) {
        if (!alone) {
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int w = 0; w < WORDS; w++) word[t][w] = ahead[t][w];
            if (left > 8 * TILES) load_counts(at, counts + 8 * TILES * SLOTS, some_of(left - 8 * TILES), ahead);
        }
        float square[TILES];
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            square[t] = square_of(at, word[t], key);
            const bool low = (samples >> (8 * t + at.row) & 1) && square[t] < 1e-24f;
            if (!alone && __any_sync(EVERY, low)) { /* the class's favourite keys are not in a sample, and its squares vanish */
                const u32 found = __ballot_sync(EVERY, low);
#pragma unroll
                for (int r = 0; r < 8; r++) rare |= (found >> 4 * r & 1) << (8 * t + r);
                samples &= ~rare;
                if (low) {
                    square[t] = 0;
#pragma unroll
                    for (int w = 0; w < WORDS; w++) word[t][w] = 0;
                }
            }
        }
        Tile e[TILES];
        float scale[TILES][2], factor[TILES][2], shift[TILES][2], sums[TILES][3][2];
        float share[TILES][2], own_each[TILES];
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const float own_scale = square[t] > 0 ? rsqrtf(square[t]) : 0;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                scale[t][j] = __shfl_sync(EVERY, own_scale, 8 * at.pair + 4 * j);
                factor[t][j] = scale[t][j] * LOG2E;
                shift[t][j] = samples >> (8 * t + 2 * at.pair + j) & 1 ? usual : 0;
            }
        }
#pragma unroll 1
        for (bool again = false;; again = true) {
            logits(run, at, n, word, key, e);
            bool good = true; /* else the shift is that of logits of long ago */
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                if (again) largest(e[t], factor[t], shift[t]);
                softmax(at, target, e[t], factor[t], shift[t], sums[t]);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    share[t][j] = sums[t][0][j] + exp2_near(sums[t][2][j]);
                    good &= share[t][j] > 1e-12f && share[t][j] < 1e24f;
                }
            }
            if (again || !__any_sync(EVERY, !good)) break;
        }
        if (samples & 1) log_sum = shift[0][0] + log2_near(share[0][0]); /* of the first, in the first lane */
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            float each[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float weight = samples >> (8 * t + 2 * at.pair + j) & 1 ? job.even : 0;
                share[t][j] = __fdividef(weight, share[t][j]) * scale[t][j];
                each[j] = (sums[t][0][j] * sums[t][2][j] - sums[t][1][j]) * (share[t][j] * scale[t][j] * (1 / LOG2E));
            }
            errors(at, target, e[t], share[t], sums[t][0]);
            const float even = __shfl_sync(EVERY, each[0], at.row / 2), odd = __shfl_sync(EVERY, each[1], at.row / 2);
            own_each[t] = at.row & 1 ? odd : even; /* of sample number `row` */
        }
        u32 turned[TILES][2][WORDS]; /* counts of this lane's two samples at place number `row` of the eights */
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int w = 0; w < WORDS; w++)
                    turned[t][j][w] = __shfl_sync(EVERY, word[t][w], 4 * (2 * at.pair + j) + at.row / 2);
        const bool last = left <= 8 * TILES && !rare;
#pragma unroll LOOPED
        for (int k = 0; k < EIGHTS; k++) {
            const float2 times = *(const float2 *)(key + 8 * k + 2 * at.pair);
            float samples_dz[2] = {0, 0}, count[TILES][2];
#pragma unroll
            for (int t = 0; t < TILES; t++) {
#pragma unroll
                for (int j = 0; j < 2; j++) count[t][j] = count_at(turned[t][j], k, at.row & 1);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const float f = count_at(word[t], k, j) * (j ? times.y : times.x);
                    samples_dz[j] -= f * f * own_each[t];
                }
            }
#if HELD
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int s = 0; s < STRIPS; s++) {
                    const float a[4] = {e[t][s][0], e[t][s][2], e[t][s][1], e[t][s][3]};
                    multiply_all(g[k][s], a, count[t]);
                }
            dz[k][0] += samples_dz[0], dz[k][1] += samples_dz[1];
#else
            const Rows rows = find_rows(run, at, n, k, key);
            float dot[2] = {0, 0};
            float2 v[2][2][GROUP]; /* of this group and the next, on their way while this one is worked on */
            forget(e[0]);
            load_rows<GROUP>(rows, 0, v[0]);
#pragma unroll
            for (int first = 0; first < STRIPS; first += GROUP) {
                float g[GROUP][4];
                if (first + GROUP < STRIPS) load_rows<GROUP>(rows, first + GROUP, v[first / GROUP + 1 & 1]);
#pragma unroll
                for (int s = 0; s < GROUP; s++) {
                    const float(&one)[4] = e[0][first + s], a[4] = {one[0], one[2], one[1], one[3]};
                    g[s][0] = g[s][1] = g[s][2] = g[s][3] = 0;
                    multiply_all(g[s], a, count[0]);
                }
                move_rows<GROUP>(run, rows, first, g, last, v[first / GROUP & 1], dot);
            }
            const float dz[2] = {times.x * dot[0] + samples_dz[0], times.y * dot[1] + samples_dz[1]};
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
        if (last) break;
        alone = rare;
        if (alone) { /* one of them, with its own key */
            samples = rare & -rare;
            rare &= rare - 1;
            load_counts(at, counts, samples, word);
            make_own_key(job, run, at, n, word);
            key = run.own_key;
        } else {
            left -= 8 * TILES;
            counts += 8 * TILES * SLOTS;
            samples = some_of(left);
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
    for (int i = first; i < k_size * PLACES; i += stride) { /* places without a slot get a row in a bank of its own */
        const int *row = job.row + i / PLACES * SLOTS, p = i % PLACES, next = row[p & ~7] + (p & 7);
        run.row[i] = (p < SLOTS ? row[p] : next < job.n_rows ? next : next - 8 >= 0 ? next - 8 : 0) * PITCH;
    }
    for (int r = blockIdx.x; r < job.n_runs; r += gridDim.x) {
        const float keep = (float)job.momentum[r];
        const long long batches = (long long)job.stream[r] * job.n_steps;
        __syncthreads();
        begin_y<true, V_SHARED>(job, r, PITCH, keep, run.y, run.v, stride);
        begin_z(job, r, keep, run.z, run.vz, stride);
#pragma unroll 1
        for (int i = first; i < job.n_shared * PITCH; i += stride) run.common[i] = 0;
        load_batch(job, batches, run.start, run.rank, stride);
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
            const long long later = batches + (t + 1 < job.n_steps ? t + 1 : t);
            int next_start = first <= k_size ? job.start[later * (k_size + 1) + first] : 0; /* on their way meanwhile */
            int next_rank = first < k_size ? job.rank[later * k_size + first] : 0;
#pragma unroll 1
            for (int round = 0; round < rounds; round++) {
                /* there and back, so that who has a large class gets a small one next */
                int i = round * WARPS + (round & 1 ? WARPS - 1 - run.warp : run.warp);
                if (i < k_size) class_step(job, run, at, rank[i], batch, start[rank[i]], start[rank[i] + 1]);
            }
            if (first <= k_size) run.start[(t + 1 & 1) * (k_size + 1) + first] = next_start;
            if (first < k_size) run.rank[(t + 1 & 1) * k_size + first] = next_rank;
            __syncthreads();
            move_common(job, run, stride);
            move_z(job, rate_z, run.fade, run.z, run.vz, run.dz, stride);
            __syncthreads();
            make_keys(job, run);
            if (job.record && job.record[t + 1] >= 0) look(job, run, r, job.record[t + 1], loss);
        }
        leave<true, V_SHARED>(job, r, PITCH, run.y, run.v, run.z, run.vz, stride);
    }
}
