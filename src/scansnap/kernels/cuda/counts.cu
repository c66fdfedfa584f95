/* Classes and token counts of mini-batches, a block for each (seed, step): the twin of kernels/cpu/sampling.c.
 *
 * Every number is a pure function of (seed, purpose, step, sample, slot, trial), and the arithmetic follows the other
 * versions operation by operation, without fused multiply-adds, so that all draw the same data. Samples are written by
 * class, as the kernels of whole runs read them. Compiled with COUNT, the type of a count.
 */
struct Draws {
    int n_classes, n_slots, batch_size, n_steps;
    long long first_step;
    double length;
    const u64 *seeds;                                                        /* (G) */
    const double *class_edges, *conditional, *log_rest, *stirling, *own; /* (K) (K, S) (K, S) (10) (K, S) */
    const int *place; /* (K, S) where a slot's count goes */
    int *start, *rank; /* (G, N, K + 1) (G, N, K) */
    COUNT *counts;     /* (G, N, B, S) */
};

struct Place {
    u64 seed;
    u32 step, sample;
};

__device__ inline Pair draw(const Place &at, int slot, int trial) {
    return uniforms(at.seed, PURPOSE_COUNT, at.step, at.sample, (u32)(slot << 8 | trial));
}

/* ln k! minus Stirling's formula at k + 1. */
__device__ inline double stirling(const double *table, double k) {
    if (k < 10) return table[(int)k];
    double i = k + 1;
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / (i * i)) / (i * i)) / i;
}

/* Walk up the distribution function until it passes u. */
__device__ inline double by_inversion(double n, double p, double log_rest, double u, const double *reciprocal) {
    double odds = p / (1 - p), pmf = exp(n * log_rest), k = 0;
    while (u >= pmf && k < n) {
        u -= pmf;
        k += 1;
        pmf *= odds * (n - k + 1) * (k < 128 ? reciprocal[(int)k] : 1 / k);
    }
    return k;
}

/* Hörmann's transformed rejection with squeeze (BTRS, 1993), for n p of at least 10 and p of at most 1/2. */
__device__ __noinline__ double by_rejection(double n, double p, const Place &at, int slot, const double *table) {
    double odds = p / (1 - p), spread = sqrt(n * p * (1 - p));
    double b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * p;
    double mode = floor((n + 1) * p);
    double peak = (mode + 0.5) * log((mode + 1) / (odds * (n - mode + 1))) + stirling(table, mode) + stirling(table, n - mode);
    double scale = (2.83 + 5.1 / b) * spread;
    for (int trial = 1;; trial++) {
        Pair r = draw(at, slot, trial);
        double u = r.u - 0.5, us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + n * p + 0.5);
        if (!(k >= 0 && k <= n)) continue;
        if (us >= 0.07 && r.v <= 0.92 - 4.2 / b) return k;
        double bound = peak + (n + 1) * log((n - mode + 1) / (n - k + 1)) +
                       (k + 0.5) * log(odds * (n - k + 1) / (k + 1)) - stirling(table, k) - stirling(table, n - k);
        if (log(r.v * scale / (a / (us * us) + b)) <= bound) return k;
    }
}

extern "C" __global__ void sample(const Draws job) {
    SHARED_MEMORY(memory); /* reciprocals (128) in float64, classes (B), sizes (K) */
    double *reciprocal = (double *)memory;
    int *cls = (int *)(memory + 256), *size = cls + job.batch_size;
    const long long place = blockIdx.x;
    const int k_size = job.n_classes;
    Place at = {job.seeds[place / job.n_steps], (u32)(job.first_step + place % job.n_steps), 0};
    for (int k = threadIdx.x; k < 128; k += blockDim.x) reciprocal[k] = 1.0 / (k > 0 ? k : 1);
    for (int b = threadIdx.x; b < job.batch_size; b += blockDim.x) {
        double u = uniforms(at.seed, PURPOSE_CLASS, at.step, 0, (u32)b).u;
        int low = 0, high = k_size; /* number of edges at or below u */
        while (low < high) {
            int middle = (low + high) / 2;
            if (job.class_edges[middle] <= u) low = middle + 1;
            else high = middle;
        }
        cls[b] = low;
    }
    __syncthreads();
    for (int n = threadIdx.x; n <= k_size; n += blockDim.x) {
        int before = 0, own = 0;
        for (int b = 0; b < job.batch_size; b++) {
            before += cls[b] < n;
            own += cls[b] == n;
        }
        job.start[place * (k_size + 1) + n] = before;
        if (n < k_size) size[n] = own;
    }
    __syncthreads();
    for (int n = threadIdx.x; n < k_size; n += blockDim.x) {
        int ahead = 0;
        for (int m = 0; m < k_size; m++) ahead += size[m] > size[n] || (size[m] == size[n] && m < n);
        job.rank[place * k_size + ahead] = n;
    }
    for (int b = threadIdx.x; b < job.batch_size; b += blockDim.x) {
        const int n = cls[b], s_size = job.n_slots;
        int row = 0;
        for (int other = 0; other < job.batch_size; other++) row += cls[other] < n || (cls[other] == n && other < b);
        COUNT *to = job.counts + (place * job.batch_size + row) * s_size;
        at.sample = (u32)b;
        double left = job.length;
        for (int s = 0; s < s_size; s++) {
            double q = job.conditional[n * s_size + s];
            bool flip = q > 0.5;
            if (flip) q = 1 - q;
            double k = left * q < 12.0 ? by_inversion(left, q, job.log_rest[n * s_size + s], draw(at, s, 0).u, reciprocal)
                                       : by_rejection(left, q, at, s, job.stirling);
            if (flip) k = left - k;
            to[job.place[n * s_size + s]] = (COUNT)((float)k + (job.own ? (float)job.own[n * s_size + s] : 0));
            left -= k;
        }
    }
}
