/* Many SGD steps of many runs on tensor cores: a thread block owns a run from its first step to its last.
 *
 * The twin of runs.cu for counts of one byte and classes that all share the same rows and have as many of their own.
 * A warp has STRIPS strips of 16 columns; the ACROSS warps that have all columns between them are a team, which takes a
 * class at a time and exchanges no more than three sums for each sample. Rows of Y are moved by whoever has their
 * columns: those of a class when its gradient is there, the common ones at the end of a step, when every team has added
 * what it holds, in the order of the teams, so that runs repeat bit for bit.
 *
 * Compiled for one shape: SLOTS, OWN (slots whose rows no other class has), COLUMNS, STRIPS, ACROSS, TEAMS, V_SHARED
 * (velocities in shared memory; else in a scratch that stays in the second-level cache), KEPT (Y of a class stays in registers
 * for all its samples), BLOCKS (per multiprocessor, at least).
 */
__device__ __forceinline__ float2 load_v(const float *from) {
    if (V_SHARED) return *(const float2 *)from;
    return __ldcg((const float2 *)from);
}
__device__ __forceinline__ void store_v(float *to, float2 v) {
    if (V_SHARED) *(float2 *)to = v;
    else __stcg((float2 *)to, v);
}

/* Velocities of a common row, by its number among them. */
__device__ __forceinline__ float *common_v(const Run &run, int number) {
    return V_SHARED ? run.v + run.row[OWN + number] : run.common + number * PITCH;
}

/* Dots of the class before, once all its team has met. */
__device__ __forceinline__ void add_dots(Run &run, const Lane &at) {
    if (ACROSS == 1) return;
    if (run.pending >= 0 && run.side == run.pending % ACROSS) {
        const float *dots = run.dots + (run.classes + 1 & 1) * ACROSS * PLACES;
        if (at.number < SLOTS) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < ACROSS; w++) sum += dots[w * PLACES + at.number];
            run.dz[run.pending * SLOTS + at.number] = sum;
        }
    }
    run.pending = -1;
}

/* Of the rows this lane has columns of: products with a tile's samples. `high` and `low` are e^z∘Y, with KEPT. */
__device__ __forceinline__ void logits(const Run &run, const Lane &at, const int (&row)[EIGHTS][2], const Slots &key,
                                       const Table &high, const Table &low, const Slots &count, Tile &e) {
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        const int column = at.column + 16 * s; /* those that are not there vanish in the softmax */
        const bool all = COLUMNS == 16 * ACROSS * STRIPS;
        e[s][0] = e[s][1] = all || column < COLUMNS ? 0 : -1e30f;
        e[s][2] = e[s][3] = all || column + 1 < COLUMNS ? 0 : -1e30f;
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) {
#if KEPT
            multiply(e[s], low[s][k], count[k]);
            multiply(e[s], high[s][k], count[k]);
#else
            float y[4], more[4], less[4];
            load_y(run, row[k], column, y);
            y[0] *= key[k][0], y[1] *= key[k][0], y[2] *= key[k][1], y[3] *= key[k][1];
            cut(y, more, less);
            multiply(e[s], less, count[k]);
            multiply(e[s], more, count[k]);
#endif
        }
    }
}

/* The same where a sample has its own e^z, which is in f. */
__device__ __forceinline__ void rare_logits(const Run &run, const Lane &at, const int (&row)[EIGHTS][2], const Slots &f, Tile &e) {
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        const int column = at.column + 16 * s;
        e[s][0] = e[s][1] = column < COLUMNS ? 0 : -1e30f;
        e[s][2] = e[s][3] = column + 1 < COLUMNS ? 0 : -1e30f;
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) {
            float y[4], more[4], less[4], f_more[2], f_less[2];
            load_y(run, row[k], column, y);
            cut(y, more, less);
            halve(f[k], f_more, f_less);
            multiply(e[s], less, f_more);
            multiply(e[s], more, f_less);
            multiply(e[s], more, f_more);
        }
    }
}

/* g += E Kᵀ. */
__device__ __forceinline__ void gradient(const Lane &at, const Tile &e, const u32 (&word)[WORDS], Table &g) {
    Slots count;
    turn_counts(at, word, count);
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        float a[4] = {e[s][0], e[s][2], e[s][1], e[s][3]}, more[4], less[4];
        cut(a, more, less);
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) multiply(g[s][k], less, count[k]);
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) multiply(g[s][k], more, count[k]);
    }
}

__device__ __forceinline__ void rare_gradient(const Lane &at, const Tile &e, const Slots &f, Table &g) {
    Slots turned;
    turn(at, f, turned);
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        float a[4] = {e[s][0], e[s][2], e[s][1], e[s][3]}, more[4], less[4];
        cut(a, more, less);
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) {
            float f_more[2], f_less[2];
            halve(turned[k], f_more, f_less);
            multiply(g[s][k], less, f_more);
            multiply(g[s][k], more, f_less);
            multiply(g[s][k], more, f_more);
        }
    }
}

__device__ __forceinline__ void class_step(const Job &job, Run &run, const Lane &at, int n, long long batch, int begin,
                                           int end, Table &held) {
    int row[EIGHTS][2];
    float dz[EIGHTS][2], key[EIGHTS][2];
    Table g, high, low;
#pragma unroll
    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            row[k][j] = run.row[n * PLACES + 8 * k + 2 * at.pair + j];
            key[k][j] = run.key[n * PLACES + 8 * k + 2 * at.pair + j];
            dz[k][j] = 0;
#pragma unroll
            for (int s = 0; s < STRIPS; s++) g[s][k][j] = g[s][k][j + 2] = 0;
        }
#if KEPT
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) {
            float y[4];
            load_y(run, row[k], at.column + 16 * s, y);
            y[0] *= key[k][0], y[1] *= key[k][0], y[2] *= key[k][1], y[3] *= key[k][1];
            cut(y, high[s][k], low[s][k]);
        }
#endif
    const Target target = find(run, at, job.target[n]);
    const float usual = run.shift[n];
    float log_sum = usual;
    bool rare = false; /* whether g has e^z already */
#pragma unroll 1
    for (int i = begin; i < end; i += 8) {
        u32 word[WORDS];
        Slots f;
        Tile e;
        float square = 0, scale[2], factor[2], shift[2], others[2], behind[2], right[2], share[2], each[2];
        load_counts(at, job.counts + (batch + i) * SLOTS, end - i, word);
#pragma unroll
        for (int k = 0; k < EIGHTS; k++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                f[k][j] = count_of(word[k / 2], 2 * (k & 1) + j) * key[k][j];
                square += f[k][j] * f[k][j];
            }
        square = over_pairs(square, Sum());
        const bool low_square = i + at.row < end && square < 1e-24f;
        if (__any_sync(EVERY, rare || low_square)) {
            square = rare_attention(job, run, at, n, word, low_square, f);
            if (!rare)
#pragma unroll
                for (int s = 0; s < STRIPS; s++)
#pragma unroll
                    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
                        for (int l = 0; l < 4; l++) g[s][k][l] *= key[k][l & 1];
            rare = true;
        }
        const float own_scale = square > 0 ? rsqrtf(square) : 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            scale[j] = __shfl_sync(EVERY, own_scale, 8 * at.pair + 4 * j);
            factor[j] = scale[j] * LOG2E;
            shift[j] = i + 2 * at.pair + j < end ? usual : 0;
        }
        for (bool again = false;; again = true) {
            if (rare) rare_logits(run, at, row, f, e);
            else {
                Slots count;
#pragma unroll
                for (int k = 0; k < EIGHTS; k++)
#pragma unroll
                    for (int j = 0; j < 2; j++) count[k][j] = count_of(word[k / 2], 2 * (k & 1) + j);
                logits(run, at, row, key, high, low, count, e);
            }
            if (again) largest(run, at, e, factor, shift);
            softmax(run, at, target, e, factor, shift, others, behind, right);
            bool good = true; /* else the shift is that of logits of long ago */
#pragma unroll
            for (int j = 0; j < 2; j++) {
                share[j] = others[j] + exp2_near(right[j]);
                good &= share[j] > 1e-12f && share[j] < 1e24f;
            }
            if (again || !__any_sync(EVERY, !good)) break;
        }
        log_sum = shift[0] + log2_near(share[0]);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            share[j] = __fdividef(i + 2 * at.pair + j < end ? job.even : 0, share[j]) * scale[j];
            each[j] = (others[j] * right[j] - behind[j]) * (share[j] * scale[j] * (1 / LOG2E));
        }
        errors(target, e, share, others);
        if (i == begin) add_dots(run, at);
        if (run.side == 0) {
            const float first = __shfl_sync(EVERY, each[0], at.row / 2), second = __shfl_sync(EVERY, each[1], at.row / 2);
#pragma unroll
            for (int k = 0; k < EIGHTS; k++)
#pragma unroll
                for (int j = 0; j < 2; j++) dz[k][j] -= f[k][j] * f[k][j] * (at.row & 1 ? second : first);
        }
        if (rare) rare_gradient(at, e, f, g);
        else gradient(at, e, word, g);
    }
#pragma unroll
    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (8 * k + j >= SLOTS) continue; /* no lane has such a slot */
            const int p = 8 * k + 2 * at.pair + j;
            const float times = rare ? 1 : key[k][j];
            float *y_row = run.y + row[k][j] + at.column, *v_row = run.v + row[k][j] + at.column, dot = 0;
            float2 y[STRIPS];
#pragma unroll
            for (int s = 0; s < STRIPS; s++) {
                y[s] = *(float2 *)(y_row + 16 * s);
                dot += y[s].x * g[s][k][j] + y[s].y * g[s][k][j + 2];
            }
            dz[k][j] += times * dot;
            if (p < OWN) {
                float2 v[STRIPS];
#pragma unroll
                for (int s = 0; s < STRIPS; s++) v[s] = load_v(v_row + 16 * s);
#pragma unroll
                for (int s = 0; s < STRIPS; s++) {
                    v[s].x += times * g[s][k][j], v[s].y += times * g[s][k][j + 2];
                    y[s].x += run.rate_y * v[s].x, y[s].y += run.rate_y * v[s].y;
                    v[s].x *= run.fade, v[s].y *= run.fade;
                    *(float2 *)(y_row + 16 * s) = y[s];
                    store_v(v_row + 16 * s, v[s]);
                }
            } else if (8 * k + 7 >= OWN)
#pragma unroll
                for (int s = 0; s < STRIPS; s++) {
                    held[s][k][j] += times * g[s][k][j];
                    held[s][k][j + 2] += times * g[s][k][j + 2];
                }
        }
    if (begin == end) { /* no sample, so nobody has met */
        if (run.side == 0 && at.number < SLOTS) run.dz[n * SLOTS + at.number] = 0;
        return;
    }
    if (run.side == 0 && at.number == 0) run.shift[n] = log_sum;
    float *dots = ACROSS == 1 ? run.dz + n * SLOTS : run.dots + ((run.classes & 1) * ACROSS + run.side) * PLACES;
#pragma unroll
    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int p = 8 * k + 2 * at.pair + j;
            float dot = over_rows(dz[k][j], Sum());
            if (at.row == 0 && p < SLOTS) dots[p] = dot;
        }
    run.classes++;
    run.pending = n;
}

/* What this team holds is added to the velocities of the common rows; the last team moves them. */
__device__ __forceinline__ void let_go(const Run &run, const Lane &at, const Table &held) {
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int k = OWN / 8; k < EIGHTS; k++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int column = at.column + 16 * s, p = 8 * k + 2 * at.pair + j;
                if (p < OWN || p >= SLOTS) continue;
                float *to = common_v(run, p - OWN) + column;
                float2 v = *(float2 *)to;
                v.x += held[s][k][j], v.y += held[s][k][j + 2];
                if (run.team == TEAMS - 1) {
                    float2 *from = (float2 *)(run.y + run.row[p] + column), y = *from;
                    y.x += run.rate_y * v.x, y.y += run.rate_y * v.y;
                    v.x *= run.fade, v.y *= run.fade;
                    *from = y;
                }
                *(float2 *)to = v;
            }
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
    const int first = threadIdx.x, stride = 32 * WARPS, rounds = (k_size + TEAMS - 1) / TEAMS;
    Run run;
    run.warp = WARPS == 1 ? 0 : __shfl_sync(EVERY, threadIdx.x >> 5, 0);
    run.team = run.warp / ACROSS;
    run.side = run.warp % ACROSS;
    const Lane at = {lane(), lane() / 4, lane() % 4, 16 * STRIPS * run.side + lane() / 4 * 2};
    float *next = memory;
    run.part = next + run.team * 2 * 16 * SIDES;
    if (ACROSS > 1) next += TEAMS * 2 * 16 * SIDES;
    run.y = next;
    next += y_size;
    run.v = V_SHARED ? next : job.v_scratch + (long long)blockIdx.x * y_size;
    if (V_SHARED) next += y_size;
    run.common = next;
    if (!V_SHARED) next += job.n_shared * PITCH;
    run.right = next + run.team * 16;
    run.dots = next + TEAMS * 16 + run.team * 2 * ACROSS * PLACES;
    if (ACROSS > 1) next += TEAMS * (16 + 2 * ACROSS * PLACES);
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
        if (!V_SHARED) {
            __syncthreads();
#pragma unroll 1
            for (int i = first; i < job.n_shared * PITCH; i += stride)
                run.common[i] = __ldcg(run.v + job.shared_rows[i / PITCH] * PITCH + i % PITCH);
        }
#pragma unroll 1
        for (int i = first; i <= k_size; i += stride) run.start[i] = job.start[batches * (k_size + 1) + i];
#pragma unroll 1
        for (int i = first; i < k_size; i += stride) run.rank[i] = job.rank[batches * k_size + i];
#pragma unroll 1
        for (int i = first; i < k_size; i += stride) run.shift[i] = 0;
        run.tiles = run.classes = 0;
        run.pending = -1;
        __syncthreads();
        make_keys(job, run);
        if (job.record && job.record[0] >= 0) look(job, run, r, job.record[0], loss);

        for (int t = 0; t < job.n_steps; t++) {
            run.rate_y = (float)(job.factor_y[t] * job.eta_y[r]);
            const float rate_z = (float)(job.factor_z[t] * job.eta_z[r]);
            run.fade = t + 1 < job.n_steps ? keep : 1;
            const long long batch = (batches + t) * job.batch_size;
            const int *start = run.start + (t & 1) * (k_size + 1), *rank = run.rank + (t & 1) * k_size;
            Table held;
#pragma unroll
            for (int s = 0; s < STRIPS; s++)
#pragma unroll
                for (int k = 0; k < EIGHTS; k++)
#pragma unroll
                    for (int i = 0; i < 4; i++) held[s][k][i] = 0;
#pragma unroll 1
            for (int round = 0; round < rounds; round++) {
                /* there and back, so that who has a large class gets a small one next */
                int i = round * TEAMS + (round & 1 ? TEAMS - 1 - run.team : run.team);
                if (i < k_size) class_step(job, run, at, rank[i], batch, start[rank[i]], start[rank[i] + 1], held);
            }
#pragma unroll 1
            for (int turn = 0; turn < (TEAMS > 1 ? TEAMS : ACROSS > 1 ? 2 : 1); turn++) {
                if (run.team == turn) let_go(run, at, held);
                if (turn == 1) add_dots(run, at);
                __syncthreads();
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
        if (!V_SHARED) {
#pragma unroll 1
            for (int i = first; i < job.n_shared * PITCH; i += stride)
                __stcg(run.v + job.shared_rows[i / PITCH] * PITCH + i % PITCH, run.common[i]);
            __syncthreads();
        }
        leave<true, V_SHARED>(job, r, PITCH, run.y, run.v, run.z, run.vz, stride);
    }
}
