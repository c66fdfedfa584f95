/* Samples of a class on tensor cores: products of 16 columns of Y, 8 slots and 8 samples at a time.
 *
 * A lane is known by `row` = lane / 4 and `pair` = lane % 4. Of a strip of 16 columns it has two neighbours, of 8 slots
 * two, of 8 samples two; which row or column of a product stands for which of them is chosen so that
 *
 *     logits (columns × samples) = (e^z∘Y)ᵀ (columns × slots) K (slots × samples),
 *     dY (columns × slots) = E (columns × samples) Kᵀ (samples × slots), times e^z,
 *
 * leave in a lane just those numbers that the next product and the move of Y want from it. Tensor cores cut factors to
 * 11 bits. Counts K have no more; the others are given as two such numbers, so that what is lost is of the size of
 * float32's own rounding.
 */
#define WARPS (ACROSS * TEAMS)
#define EIGHTS ((SLOTS + 7) / 8)          /* of slots */
#define PLACES (8 * EIGHTS)
#define PITCH (16 * ACROSS * STRIPS + 4) /* of a row of Y: four pairs of rows begin in different banks */
#define SIDES STEP_UP(ACROSS, 2)
#define WORDS ((EIGHTS + 1) / 2) /* of a lane's counts */

/* One run in its block. */
struct Run {
    float *y, *v;              /* (L, PITCH) */
    float *common;             /* (n_shared, PITCH) velocities of the rows that all classes share, without V_SHARED */
    float *z, *vz, *dz;        /* (n_z) (n_z) (K, S) */
    float *key, *shift;        /* (K, PLACES) (K) e^{z − max}; what was log2 Σ e^logit of the class */
    float *part;               /* (2, 8, SIDES, 2) of this team: two sums for each sample of a tile over a warp's columns */
    float *right;              /* (2, 8) of this team: logits of the target */
    float *dots;               /* (2, ACROSS, PLACES) of this team */
    int *row, *start, *rank;   /* (K, PLACES) offsets of rows in y; (2, K + 1), (2, K) of this step and the next */
    float rate_y, fade;
    int warp, team, side;      /* side: which columns, of those of a team */
    int tiles, classes;        /* that the team has been through, for whose turn it is in `part` and `dots` */
    int pending;               /* class whose dots are not added up yet, or −1 */
};

struct Lane {
    int number, row, pair, column; /* column: the first of this lane's */
};

typedef float Tile[STRIPS][4];           /* columns × samples */
typedef float Table[STRIPS][EIGHTS][4];  /* columns × slots */
typedef float Slots[EIGHTS][2];

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

__device__ __forceinline__ float log2_near(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return log2f(x);
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


/* A count of byte b of a word, by a number whose last bits it becomes. */
__device__ __forceinline__ float count_of(u32 word, u32 b) {
    return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7440u | b)) - 8388608.0f;
}

/* Counts of sample number `row` of a tile at this lane's slots; slots that are not there have no key. */
__device__ __forceinline__ void load_counts(const Lane &at, const u8 *counts, int m, u32 (&word)[WORDS]) {
    const u8 *own = counts + (at.row < m ? at.row : m - 1) * SLOTS;
#pragma unroll
    for (int w = 0; w < WORDS; w++) word[w] = 0;
#pragma unroll
    for (int k = 0; k < EIGHTS; k++) {
        int p = 8 * k + 2 * at.pair;
        if (SLOTS % 2 == 0) {
            if (8 * k + 8 > SLOTS && p > SLOTS - 2) p = SLOTS - 2;
            word[k / 2] |= (u32)*(const u16 *)(own + p) << 16 * (k & 1);
        } else {
            int q = p + 1;
            if (8 * k + 8 > SLOTS) p = p > SLOTS - 1 ? SLOTS - 1 : p, q = q > SLOTS - 1 ? SLOTS - 1 : q;
            word[k / 2] |= ((u32)own[p] | (u32)own[q] << 8) << 16 * (k & 1);
        }
    }
#pragma unroll
    for (int w = 0; w < WORDS; w++) word[w] = at.row < m ? word[w] : 0;
}

/* k∘e^z at this lane's slots where the keys with the largest e^z are not in a sample, and its squares would vanish. */
__device__ __forceinline__ float rare_attention(const Job &job, const Run &run, const Lane &at, int n, const u32 (&word)[WORDS],
                                                bool low, Slots &f) {
    float z[EIGHTS][2], most = -1e38f, square = 0;
#pragma unroll
    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int p = 8 * k + 2 * at.pair + j;
            const bool there = p < SLOTS && (word[k / 2] >> 8 * (2 * (k & 1) + j) & 255);
            z[k][j] = there ? run.z[job.slot_z[n * SLOTS + p]] : -1e38f;
            most = fmaxf(most, z[k][j]);
        }
    most = over_pairs(most, Max());
#pragma unroll
    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float count = count_of(word[k / 2], 2 * (k & 1) + j);
            if (low) f[k][j] = z[k][j] > -1e38f ? count * expf(z[k][j] - most) : 0;
            square += f[k][j] * f[k][j];
        }
    return over_pairs(square, Sum());
}

/* The same numbers of other lanes: of this lane's two samples at slot number `row` of each eight. */
__device__ __forceinline__ void turn_counts(const Lane &at, const u32 (&word)[WORDS], Slots &turned) {
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            u32 other = __shfl_sync(EVERY, word[w], 4 * (2 * at.pair + j) + at.row / 2);
#pragma unroll
            for (int k = 2 * w; k < 2 * w + 2; k++)
                if (k < EIGHTS) turned[k][j] = count_of(other, 2 * (k & 1) + (at.row & 1));
        }
}
__device__ __forceinline__ void turn(const Lane &at, const Slots &f, Slots &turned) {
#pragma unroll
    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int from = 4 * (2 * at.pair + j) + at.row / 2;
            float even = __shfl_sync(EVERY, f[k][0], from), odd = __shfl_sync(EVERY, f[k][1], from);
            turned[k][j] = at.row & 1 ? odd : even;
        }
}

/* Sums of two numbers for each of a lane's samples over all columns, in both. */
__device__ __forceinline__ void over_columns(const Run &run, const Lane &at, float (&a)[2], float (&b)[2]) {
#if ACROSS > 1
    /* each exchange halves how many sums a lane is in charge of */
    const bool back = at.number & 16, second = at.number & 8;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float other = back ? a[i] : b[i];
        a[i] = (back ? b[i] : a[i]) + __shfl_xor_sync(EVERY, other, 16);
    }
    float other = second ? a[0] : a[1], sum = (second ? a[1] : a[0]) + __shfl_xor_sync(EVERY, other, 8);
    sum += __shfl_xor_sync(EVERY, sum, 4);
    float *part = run.part + (run.tiles & 1) * 16 * SIDES + 4 * SIDES * at.pair;
    if (!(at.number & 4)) part[2 * SIDES * second + 2 * run.side + back] = sum;
    meet_team(run);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        a[i] = b[i] = 0;
#pragma unroll
        for (int w = 0; w < ACROSS; w += 2) {
            float4 two = *(const float4 *)(part + 2 * SIDES * i + 2 * w);
            a[i] += two.x, b[i] += two.y;
            if (w + 1 < ACROSS) a[i] += two.z, b[i] += two.w;
        }
    }
#else
#pragma unroll
    for (int i = 0; i < 2; i++) a[i] = over_rows(a[i], Sum()), b[i] = over_rows(b[i], Sum());
#endif
}

/* log2 of the largest e^logit of each of a lane's samples over all columns. */
__device__ __forceinline__ void largest(Run &run, const Lane &at, const Tile &e, const float (&factor)[2], float (&top)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = -1e38f;
#pragma unroll
        for (int s = 0; s < STRIPS; s++) top[i] = fmaxf(top[i], fmaxf(e[s][i], e[s][i + 2]) * factor[i]);
        top[i] = over_rows(top[i], Max());
#if ACROSS > 1
        if (at.row == 0) run.part[(run.tiles & 1) * 16 * SIDES + 2 * SIDES * (2 * at.pair + i) + run.side] = top[i];
    }
    meet_team(run);
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int w = 0; w < ACROSS; w++)
            top[i] = fmaxf(top[i], run.part[(run.tiles & 1) * 16 * SIDES + 2 * SIDES * (2 * at.pair + i) + w]);
#endif
    }
    run.tiles++;
}

/* Where the target is among this warp's columns. */
struct Target {
    int strip, odd;
    bool here, mine; /* in this warp, the same for all lanes; in this lane */
};
__device__ __forceinline__ Target find(const Run &run, const Lane &at, int target) {
    const int place = target - 16 * STRIPS * run.side;
    const bool here = ACROSS == 1 || (u32)place < 16 * STRIPS;
    return {place >> 4, place & 1, here, here && (place & 15) / 2 == at.row};
}

/* Products with k∘e^z become 2^(logit − shift) with the target's left out: `others` and `behind` are their sum and that of
 * their products with (logit − shift), `right` is the target's logit less the shift; base 2. */
__device__ __forceinline__ void softmax(Run &run, const Lane &at, const Target &target, Tile &e, const float (&factor)[2],
                                        const float (&shift)[2], float (&others)[2], float (&behind)[2], float (&right)[2]) {
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) e[s][i] = e[s][i] * factor[i & 1] - shift[i & 1];
    right[0] = right[1] = 0;
    float *rights = run.right + (run.tiles & 1) * 8 + 2 * at.pair;
    if (target.here) {
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (target.mine && s == target.strip && i / 2 == target.odd) right[i & 1] = e[s][i], e[s][i] = -1e30f;
        if (ACROSS > 1 && target.mine) rights[0] = right[0], rights[1] = right[1];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) others[i] = behind[i] = 0;
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float p = exp2_near(e[s][i]);
            others[i & 1] += p;
            behind[i & 1] += p * e[s][i];
            e[s][i] = p;
        }
    over_columns(run, at, others, behind);
#pragma unroll
    for (int i = 0; i < 2; i++)
        right[i] = ACROSS > 1 ? rights[i] : over_rows(right[i], Sum()); /* one lane has it, the others 0 */
    run.tiles++;
}

/* These become weight (e_n − α) / ‖k∘e^z‖. */
__device__ __forceinline__ void errors(const Target &target, Tile &e, const float (&share)[2], const float (&others)[2]) {
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) e[s][i] *= -share[i & 1];
    if (target.here)
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (target.mine && s == target.strip && i / 2 == target.odd) e[s][i] = others[i & 1] * share[i & 1];
}
