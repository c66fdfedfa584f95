/* What the lanes of a warp do together: columns and rows of tables, sums over lanes. Which lane has what is decided here. */
#define LANES (32 / GROUPS)                      /* of a group */
#define WIDE (GROUPS * TILE)                     /* samples of a tile */
#define C ((COLUMNS + LANES - 1) / LANES)        /* columns of a lane */
#define QUADS (C / 4 * 4)                        /* those that are fours of neighbours */
#define PITCH STEP_UP(COLUMNS, 4)                /* of a row of Y in memory here */
#define NS ((SLOTS + 31) / 32)                   /* slots of a lane */
#define PITCH_F (STEP_UP(WIDE, 4) + (HELD ? 4 : 0)) /* of a slot's row of f; banks of neighbouring rows differ */

__device__ __forceinline__ int group() { return lane() / LANES; }

/* Column of a lane's c-th place: fours of neighbours, then single ones. */
__device__ __forceinline__ int column(int c) {
    const int own = lane() % LANES;
    return c < QUADS ? 4 * (own + LANES * (c / 4)) + c % 4 : LANES * c + own;
}
__device__ __forceinline__ int first_column() { return QUADS ? 4 * (lane() % LANES) : lane() % LANES; }
__device__ __forceinline__ int end_of(int c) { return c < QUADS ? 4 * LANES * (c / 4 + 1) : LANES * (c + 1); }
__device__ __forceinline__ bool inside(int c) { return end_of(c) <= PITCH || column(c) < PITCH; }
__device__ __forceinline__ bool real(int c) { return end_of(c) <= COLUMNS || column(c) < COLUMNS; }

/* Where a column is: its place in its lane, and the lane of this group. */
__device__ __forceinline__ int place_of(int column) {
    return column < LANES * QUADS ? column / (4 * LANES) * 4 + column % 4 : column / LANES;
}
__device__ __forceinline__ int lane_of(int column) {
    return group() * LANES + (column < LANES * QUADS ? column / 4 % LANES : column % LANES);
}

/* Rows are given by where this lane's first column is in them. */
template <bool SHARED> __device__ __forceinline__ void load_row(const float *row, float (&to)[C]) {
#pragma unroll
    for (int c = 0; c < QUADS; c += 4) {
        float4 part = make_float4(0, 0, 0, 0);
        if (inside(c)) part = get<SHARED>((const float4 *)(row + LANES * c));
        to[c] = part.x, to[c + 1] = part.y, to[c + 2] = part.z, to[c + 3] = part.w;
    }
    const float *single = row - (QUADS ? 3 * (lane() % LANES) : 0);
#pragma unroll
    for (int c = QUADS; c < C; c++) to[c] = inside(c) ? get<SHARED>(single + LANES * c) : 0;
}

template <bool SHARED> __device__ __forceinline__ void store_row(float *row, const float (&from)[C]) {
#pragma unroll
    for (int c = 0; c < QUADS; c += 4)
        if (inside(c)) set<SHARED>((float4 *)(row + LANES * c), make_float4(from[c], from[c + 1], from[c + 2], from[c + 3]));
    float *single = row - (QUADS ? 3 * (lane() % LANES) : 0);
#pragma unroll
    for (int c = QUADS; c < C; c++)
        if (inside(c)) set<SHARED>(single + LANES * c, from[c]);
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
