/* What a kernel of whole runs is asked to do, and what both of them need. */
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

__device__ __forceinline__ float exp2_near(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

__device__ __forceinline__ int lane() { return threadIdx.x & 31; }

__device__ __noinline__ float initial(int kind, double size, u64 seed, u32 purpose, u32 row, u32 column) {
    if (kind == 0) return 0;
    Pair draw = uniforms(seed, purpose, 0, row, column);
    if (kind == 1) return (float)((2 * draw.u - 1) * size);
    return (float)(sqrt(-2 * log1p(-draw.u)) * cos(2 * 3.141592653589793 * draw.v) * size);
}

__device__ __forceinline__ bool ordinary(float x) { return fabsf(x) <= 3.4028235e38f; }

/* Numbers in shared memory, or in global memory that only the second-level cache is to hold. */
template <bool SHARED, class T> __device__ __forceinline__ T get(const T *from) {
    if constexpr (SHARED) return *from;
    else return __ldcg(from);
}
template <bool SHARED, class T> __device__ __forceinline__ void set(T *to, T value) {
    if constexpr (SHARED) *to = value;
    else __stcg(to, value);
}

/* Tables of run r as it begins, or as its seed makes them; velocities as they enter the first step. */
template <bool Y_HERE, bool V_HERE>
__device__ __forceinline__ void begin_y(const Job &job, int r, int pitch, float keep, float *to_y, float *to_v, int stride) {
    const long long from = (long long)r * job.n_rows * COLUMNS;
#pragma unroll 1
    for (int i = threadIdx.x; i < job.n_rows * pitch; i += stride) {
        int l = i / pitch, j = i % pitch;
        float y = 0, v = 0;
        if (j < COLUMNS) {
            y = job.y ? job.y[from + l * COLUMNS + j]
                      : initial(job.init, job.init_size, job.seed[r], PURPOSE_INIT_Y, job.row_token[l], job.column_token[j]);
            if (job.v) v = keep * job.v[from + l * COLUMNS + j];
        }
        set<Y_HERE>(to_y + i, y);
        set<V_HERE>(to_v + i, v);
    }
}

/* Where the classes of a batch begin, and their order by size. */
__device__ __forceinline__ void load_batch(const Job &job, long long batch, int *start, int *rank, int stride) {
    const int k_size = job.n_classes;
#pragma unroll 1
    for (int i = threadIdx.x; i <= k_size; i += stride) start[i] = job.start[batch * (k_size + 1) + i];
#pragma unroll 1
    for (int i = threadIdx.x; i < k_size; i += stride) rank[i] = job.rank[batch * k_size + i];
}

__device__ __forceinline__ float initial_z(const Job &job, int r, int at) {
    return initial(job.init, job.init_size, job.seed[r], PURPOSE_INIT_Z, job.queries[at / job.vocab_size], at % job.vocab_size);
}

__device__ __forceinline__ void begin_z(const Job &job, int r, float keep, float *to_z, float *to_v, int stride) {
    const long long from = (long long)r * job.z_size;
#pragma unroll 1
    for (int i = threadIdx.x; i < job.n_z; i += stride) {
        to_z[i] = job.z ? job.z[from + job.z_at[i]] : initial_z(job, r, job.z_at[i]);
        to_v[i] = job.vz ? keep * job.vz[from + job.z_at[i]] : 0;
    }
}

__device__ __forceinline__ void move_z(const Job &job, float rate, float fade, float *z, float *vz, const float *dz, int stride) {
#pragma unroll 1
    for (int i = threadIdx.x; i < job.n_z; i += stride) {
        float v = vz[i];
#pragma unroll 1
        for (int k = job.z_first[i]; k < job.z_first[i + 1]; k++) v += dz[job.z_list[k]];
        z[i] += rate * v;
        vz[i] = v * fade;
    }
}

__device__ __forceinline__ void record_z(const Job &job, const float *z, int r, int number, int stride) {
    const int size = job.entry ? job.z_size : job.n_z;
    float *to = job.record_z + ((long long)r * job.n_records + number) * size;
#pragma unroll 1
    for (int i = threadIdx.x; i < size; i += stride) {
        int at = job.entry ? job.entry[i] : i;
        to[i] = at >= 0 ? z[at] : initial_z(job, r, i);
    }
}

/* The classes' losses, weighted, become that of the run. */
__device__ __forceinline__ void record_loss(const Job &job, const float *loss, int r, int number) {
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
#pragma unroll 1
        for (int n = 0; n < job.n_classes; n++) total += loss[n];
        job.record_loss[(long long)r * job.n_records + number] = total;
    }
    __syncthreads();
}

/* Whether all of a run is finite, and its tables where they are asked for. */
template <bool Y_HERE, bool V_HERE>
__device__ __forceinline__ void leave(const Job &job, int r, int pitch, const float *y, const float *v, const float *z,
                                      const float *vz, int stride) {
    const long long y_to = (long long)r * job.n_rows * COLUMNS, z_to = (long long)r * job.z_size;
    bool good = true;
#pragma unroll 1
    for (int i = threadIdx.x; i < job.n_rows * pitch; i += stride) {
        int l = i / pitch, j = i % pitch;
        if (j >= COLUMNS) continue;
        const float one = get<Y_HERE>(y + i), two = get<V_HERE>(v + i);
        good &= ordinary(one) && ordinary(two);
        if (job.new_y) job.new_y[y_to + l * COLUMNS + j] = one;
        if (job.new_v) job.new_v[y_to + l * COLUMNS + j] = two;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < job.n_z; i += stride) {
        good &= ordinary(z[i]) && ordinary(vz[i]);
        if (job.new_z) job.new_z[z_to + job.z_at[i]] = z[i];
        if (job.new_vz) job.new_vz[z_to + job.z_at[i]] = vz[i];
    }
    good = __syncthreads_and(good);
    if (threadIdx.x == 0) job.finite[r] = good;
}
