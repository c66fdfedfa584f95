/* Samples of a class on tensor cores: products of 16 columns of Y, 8 slots and 8 samples at a time.
 *
 * A lane is known by `row` = lane / 4 and `pair` = lane % 4. Of a strip of 16 columns it has two neighbours, of 8 slots
 * two, of 8 samples two; which row or column of a product stands for which of them is chosen so that
 *
 *     logits (columns × samples) = Yᵀ (columns × slots) F (slots × samples),
 *     dY (columns × slots) = E (columns × samples) Fᵀ (samples × slots)
 *
 * leave in a lane just those numbers that the next product and the move of Y want from it. Tensor cores round factors to
 * 11 bits, so each factor is two such numbers, and of the four products the smallest is left out: what is lost is of
 * the size of float32's own rounding.
 */
#define WARPS (ACROSS * TEAMS)
#define EIGHTS ((SLOTS + 7) / 8)          /* of slots */
#define PLACES (8 * EIGHTS)
#define PITCH (16 * ACROSS * STRIPS + 4) /* of a row of Y: four pairs of rows begin in different banks */

struct Part {
    float top, others, behind, unused;
};

/* One run in its block. */
struct Run {
    float *y, *v;              /* (L, PITCH) */
    float *common;             /* (n_shared, PITCH) velocities of the rows that all classes share, without V_SHARED */
    float *z, *vz, *dz, *key;  /* (n_z) (n_z) (K, S) (K, PLACES) */
    Part *part;                /* (2, ACROSS, 8) of this team: sums of the samples of a tile over a warp's columns */
    float *right;              /* (2, 8) of this team: logits of the target */
    float *dots;               /* (2, ACROSS, PLACES) of this team */
    int *row, *start, *rank;   /* (K, PLACES) offsets of rows in y; (2, K + 1), (2, K) of this step and the next */
    float rate_y, fade;
    int warp, team, side;      /* side: which columns, of those of a team */
    int tiles, classes;        /* that the team has been through, for whose turn it is in `part` and `dots` */
    int pending;               /* class whose dots are not added up yet, or −1 */
};

struct Lane {
    int row, pair, column; /* column: the first of this lane's */
};

/* Gradients of the rows that all classes share, of all classes of a step. */
typedef float Held[STRIPS][EIGHTS][4];

__device__ __forceinline__ void meet_team(const Run &run) {
    if (ACROSS == 1) return;
#ifdef __CUDA_ARCH__
    asm volatile("bar.sync %0, %1;" ::"r"(run.team + 1), "n"(32 * ACROSS) : "memory");
#else
    emulated_team(run.team, 32 * ACROSS);
#endif
}

/* d += a b, of 16 × 8 by 8 × 8, with factors cut to 11 bits. */
__device__ __forceinline__ void multiply(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
#ifdef __CUDA_ARCH__
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#else
    emulated_product(d, a, b);
#endif
}

/* x in two parts of 11 bits: cut, or for the factor with few entries rounded, so that what is left out has any sign. */
template <int N> __device__ __forceinline__ void cut(const float (&x)[N], float (&high)[N], float (&low)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        high[i] = __uint_as_float(__float_as_uint(x[i]) & 0xffffe000u);
        low[i] = x[i] - high[i];
    }
}
template <int N> __device__ __forceinline__ void halve(const float (&x)[N], float (&high)[N], float (&low)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        high[i] = __uint_as_float((__float_as_uint(x[i]) + 0x1000u) & 0xffffe000u);
        low[i] = x[i] - high[i];
    }
}

__device__ __forceinline__ void multiply(float (&d)[4], const float (&a)[4], const float (&a_low)[4], const float (&b)[2],
                                         const float (&b_low)[2]) {
    multiply(d, a_low, b);
    multiply(d, a, b_low);
    multiply(d, a, b);
}

/* A lane's part of Yᵀ: columns 0 and 1 of its first slot, then of its second. */
__device__ __forceinline__ void load_y(const Run &run, const int (&row)[2], int column, float (&y)[4]) {
    float2 first = *(const float2 *)(run.y + row[0] + column), second = *(const float2 *)(run.y + row[1] + column);
    y[0] = first.x, y[1] = first.y, y[2] = second.x, y[3] = second.y;
}

template <class Op> __device__ __forceinline__ float over_pairs(float x, Op op) {
    x = op(x, __shfl_xor_sync(EVERY, x, 1));
    return op(x, __shfl_xor_sync(EVERY, x, 2));
}
template <class Op> __device__ __forceinline__ float over_rows(float x, Op op) {
#pragma unroll
    for (int d = 4; d < 32; d *= 2) x = op(x, __shfl_xor_sync(EVERY, x, d));
    return x;
}

/* k∘e^z of sample number `row` of a tile at this lane's slots, and 1 / ‖k∘e^z‖. */
__device__ __forceinline__ float attention(const Job &job, const Run &run, const Lane &at, int n, const u8 *counts, bool there,
                                           const float (&key)[EIGHTS][2], float (&f)[EIGHTS][2]) {
    float square = 0;
    u8 count[EIGHTS][2];
#pragma unroll
    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int p = 8 * k + 2 * at.pair + j;
            count[k][j] = there && p < SLOTS ? counts[at.row * SLOTS + p] : 0;
        }
#pragma unroll
    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            f[k][j] = (float)count[k][j] * key[k][j];
            square += f[k][j] * f[k][j];
        }
    square = over_pairs(square, Sum());
    const bool low = there && square < 1e-24f; /* the class's favourite key is not in it: underflow */
    if (__any_sync(EVERY, low)) {
        float z[EIGHTS][2], most = -1e38f;
#pragma unroll
        for (int k = 0; k < EIGHTS; k++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                z[k][j] = count[k][j] ? run.z[job.slot_z[n * SLOTS + 8 * k + 2 * at.pair + j]] : -1e38f;
                most = fmaxf(most, z[k][j]);
            }
        most = over_pairs(most, Max());
        float again = 0;
#pragma unroll
        for (int k = 0; k < EIGHTS; k++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if (low) f[k][j] = count[k][j] ? (float)count[k][j] * expf(z[k][j] - most) : 0;
                again += f[k][j] * f[k][j];
            }
        square = over_pairs(again, Sum());
    }
    return square > 0 ? rsqrtf(square) : 0;
}

/* Products with k∘e^z become weight (e_n − α) / ‖k∘e^z‖; returns weight · fᵀg / ‖k∘e^z‖² of sample number `row`. With
 * base 2: of a warp's columns its largest logit, Σ 2^(logit − largest) and Σ 2^(logit − largest) (logit − largest)
 * are all that others need of it. */
__device__ __forceinline__ float errors(const Job &job, Run &run, const Lane &at, int target, float own_scale, int m,
                                        float (&e)[STRIPS][4]) {
    float scale[2], top[2], others[2] = {0, 0}, behind[2] = {0, 0}, right[2] = {0, 0}, each[2];
    const int place = target - 16 * STRIPS * run.side; /* of the target, among this warp's columns */
    const int strip = place >> 4, odd = place & 1;
    const bool mine = (place & 15) / 2 == at.row;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        scale[i] = __shfl_sync(EVERY, own_scale, 8 * at.pair + 4 * i);
        top[i] = fmaxf(e[0][i], e[0][i + 2]);
#pragma unroll
        for (int s = 1; s < STRIPS; s++) top[i] = fmaxf(top[i], fmaxf(e[s][i], e[s][i + 2]));
        top[i] = over_rows(top[i], Max()) * (scale[i] * LOG2E);
    }
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
#pragma unroll
        for (int i = 0; i < 4; i++) e[s][i] = e[s][i] * (scale[i & 1] * LOG2E) - top[i & 1];
        if (s == strip) /* the same for all lanes */
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (mine && i / 2 == odd) right[i & 1] = e[s][i], e[s][i] = -1e30f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float p = exp2_near(e[s][i]);
            others[i & 1] += p;
            behind[i & 1] += p * e[s][i];
            e[s][i] = p;
        }
    }
    float factor[2];
#if ACROSS > 1
    float most[2];
    Part *part = run.part + (run.tiles & 1) * ACROSS * 8;
    float *rights = run.right + (run.tiles & 1) * 8;
    if (mine && strip >= 0 && strip < STRIPS)
#pragma unroll
        for (int i = 0; i < 2; i++) rights[2 * at.pair + i] = right[i] + top[i];
    { /* each exchange halves how many sums a lane is in charge of */
        const bool back = lane() & 16, second = lane() & 8;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float other = back ? others[i] : behind[i];
            others[i] = (back ? behind[i] : others[i]) + __shfl_xor_sync(EVERY, other, 16);
        }
        float other = second ? others[0] : others[1], sum = (second ? others[1] : others[0]) + __shfl_xor_sync(EVERY, other, 8);
        sum += __shfl_xor_sync(EVERY, sum, 4);
        Part *to = part + run.side * 8 + 2 * at.pair + second;
        if (lane() & 4) {
            if (!back) to->top = second ? top[1] : top[0];
        } else
            *(back ? &to->behind : &to->others) = sum;
    }
    meet_team(run);
    run.tiles++;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const Part *from = part + 2 * at.pair + i;
        most[i] = from[0].top;
#pragma unroll
        for (int w = 1; w < ACROSS; w++) most[i] = fmaxf(most[i], from[8 * w].top);
        others[i] = behind[i] = 0;
#pragma unroll
        for (int w = 0; w < ACROSS; w++) {
            float4 one = *(const float4 *)(from + 8 * w);
            float less = one.x - most[i], share = exp2_near(less);
            others[i] += share * one.y;
            behind[i] += share * (one.z + less * one.y);
        }
        right[i] = rights[2 * at.pair + i] - most[i];
        factor[i] = exp2_near(top[i] - most[i]);
    }
#else
#pragma unroll
    for (int i = 0; i < 2; i++) {
        others[i] = over_rows(others[i], Sum());
        behind[i] = over_rows(behind[i], Sum());
        right[i] = __shfl_sync(EVERY, right[i], (place & 15) / 2 * 4 + at.pair);
        factor[i] = 1;
    }
#endif
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float weight = 2 * at.pair + i < m ? job.even : 0;
        float share = __fdividef(weight, others[i] + exp2_near(right[i])) * scale[i];
        each[i] = (others[i] * right[i] - behind[i]) * (share * scale[i] / LOG2E);
        factor[i] *= -share;
        others[i] *= share;
    }
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
#pragma unroll
        for (int i = 0; i < 4; i++) e[s][i] *= factor[i & 1];
        if (s == strip)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (mine && i / 2 == odd) e[s][i] = others[i & 1];
    }
    float first = __shfl_sync(EVERY, each[0], at.row / 2), second = __shfl_sync(EVERY, each[1], at.row / 2);
    return at.row & 1 ? second : first;
}
