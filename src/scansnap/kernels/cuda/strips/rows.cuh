/* Rows of Y and what a gradient does to them. Those that all classes share get their gradients as whole numbers. */
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
        float *to = run.dz + n * SLOTS + p;
        if (at.row == 0 && p < SLOTS) *to = fresh ? sum : *to + sum;
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

/* The rows that all classes share, by what all of them have added up. */
__device__ __forceinline__ void move_common(const Job &job, const Run &run, int stride) {
    constexpr int at_once = 4;
#pragma unroll 1
    for (int i = threadIdx.x; i < job.n_shared * PITCH; i += at_once * stride) {
        float v[at_once];
        int to[at_once];
#pragma unroll
        for (int u = 0; u < at_once; u++) {
            const int j = i + u * stride;
            to[u] = j < job.n_shared * PITCH ? job.shared_rows[j / PITCH] * PITCH + j % PITCH : -1;
            if (to[u] >= 0) v[u] = get<V_SHARED>(run.v + to[u]);
        }
#pragma unroll
        for (int u = 0; u < at_once; u++)
            if (to[u] >= 0) {
                v[u] += run.common[i + u * stride] * FINE;
                run.common[i + u * stride] = 0;
                run.y[to[u]] += run.rate_y * v[u];
                set<V_SHARED>(run.v + to[u], v[u] * run.fade);
            }
    }
}
