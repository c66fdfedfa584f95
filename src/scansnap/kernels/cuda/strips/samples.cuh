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
#define EIGHTS ((SLOTS + 7) / 8)   /* of slots */
#define PLACES (8 * EIGHTS)
#define PITCH (16 * STRIPS + 4)    /* of a row of Y: four pairs of rows begin in different banks */
#define WORDS ((EIGHTS + 1) / 2)   /* of a lane's counts */

#if HELD
#define LOOPED EIGHTS
#else
#define LOOPED 1 /* code that does not fit the instruction cache is slower by far */
#endif

/* One run in its block. */
struct Run {
    float *y, *v;            /* (L, PITCH) */
    int *common;             /* (n_shared, PITCH) gradients of the rows that all classes share, in units of FINE */
    float *z, *vz, *dz;      /* (n_z) (n_z) (K, S) */
    float *key, *shift;      /* (K, PLACES) (K) e^{z − max}; what was log2 Σ e^logit of the class */
    float *own_key;          /* (PLACES) of this warp, for a sample with a key of its own */
    int *row, *start, *rank; /* (K, PLACES) offsets of rows in y; (2, K + 1), (2, K) of this step and the next */
    float rate_y, fade;
    int warp;
};

struct Lane {
    int number, row, pair, column; /* column: the first of this lane's */
};

typedef float Tile[STRIPS][4]; /* columns × samples */

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

/* What a factor is beside its first 11 bits, which are all that a product takes of it. */
__device__ __forceinline__ void rest_of(const float (&x)[4], float (&low)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) low[i] = x[i] - __uint_as_float(__float_as_uint(x[i]) & 0xffffe000u);
}

/* d += a b with a in two parts. */
__device__ __forceinline__ void multiply_all(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
    float low[4];
    rest_of(a, low);
    multiply(d, low, b);
    multiply(d, a, b);
}

/* Whatever was computed from these numbers is computed again, since registers cannot hold both. */
__device__ __forceinline__ void forget(Tile &e) {
#ifdef __CUDA_ARCH__
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
        asm volatile("" : "+f"(e[s][0]), "+f"(e[s][1]), "+f"(e[s][2]), "+f"(e[s][3]));
#endif
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

/* Of a lane's counts the one of place j, 0 or 1, of eight number k. */
__device__ __forceinline__ float count_at(const u32 (&word)[WORDS], int k, int j) {
    return count_of(WORDS > 1 && k >= 2 ? word[WORDS - 1] : word[0], 2 * (k & 1) + j);
}

/* Counts of the samples whose bits are set: of number `row` of each tile at this lane's slots, two bytes for each eight of
 * them; what is read for slots that are not there has no key. */
__device__ __forceinline__ void load_counts(const Lane &at, const u8 *counts, u32 samples, u32 (&word)[TILES][WORDS]) {
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const bool there = samples >> (8 * t + at.row) & 1;
        const u8 *own = counts + (8 * t + at.row) * SLOTS;
        u32 two[EIGHTS];
#pragma unroll
        for (int k = 0; k < EIGHTS; k++) {
            int p = 8 * k + 2 * at.pair;
            two[k] = 0;
            if (SLOTS % 2 == 0) {
                if (8 * k + 8 > SLOTS && p > SLOTS - 2) p = SLOTS - 2;
                if (there) two[k] = *(const u16 *)(own + p);
            } else {
                int q = p + 1;
                if (8 * k + 8 > SLOTS) p = p > SLOTS - 1 ? SLOTS - 1 : p, q = q > SLOTS - 1 ? SLOTS - 1 : q;
                if (there) two[k] = (u32)own[p] | (u32)own[q] << 8;
            }
        }
#pragma unroll
        for (int w = 0; w < WORDS; w++) word[t][w] = two[2 * w] | (2 * w + 1 < EIGHTS ? two[2 * w + 1 < EIGHTS ? 2 * w + 1 : 0] << 16 : 0);
    }
}

/* ‖k∘e^z‖² of sample number `row`. */
__device__ __forceinline__ float square_of(const Lane &at, const u32 (&word)[WORDS], const float *key) {
    float square = 0;
#pragma unroll
    for (int k = 0; k < EIGHTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float f = count_of(word[k / 2], 2 * (k & 1) + j) * key[8 * k + 2 * at.pair + j];
            square += f * f;
        }
    return over_pairs(square, Sum());
}

/* e^{z − max} with the largest z of the keys that are in a sample, the only one in `word`. */
__device__ __forceinline__ void make_own_key(const Job &job, const Run &run, const Lane &at, int n, const u32 (&words)[TILES][WORDS]) {
    u32 word[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        word[w] = words[0][w];
#pragma unroll
        for (int t = 1; t < TILES; t++) word[w] |= words[t][w];
    }
    float most = -1e38f;
#pragma unroll 1
    for (int again = 0; again < 2; again++) {
#pragma unroll
        for (int k = 0; k < EIGHTS; k++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int p = 8 * k + 2 * at.pair + j;
                u32 there = p < SLOTS && (word[k / 2] >> 8 * (2 * (k & 1) + j) & 255);
#pragma unroll
                for (int d = 4; d < 32; d *= 2) there |= __shfl_xor_sync(EVERY, there, d);
                const float z = there ? run.z[job.slot_z[n * SLOTS + p]] : -1e38f;
                if (!again) most = fmaxf(most, z);
                else if (at.row == 0) run.own_key[p] = there ? expf(z - most) : 0;
            }
        most = over_pairs(most, Max());
    }
    __syncwarp();
}

/* Two numbers of Y, read again for each tile: with a gradient that is held registers cannot hold them, too. */
__device__ __forceinline__ float2 load_y(const float *from) {
#if HELD && defined(__CUDA_ARCH__)
    float2 y;
    asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(y.x), "=f"(y.y) : "r"((u32)__cvta_generic_to_shared(from)));
    return y;
#else
    return *(const float2 *)from;
#endif
}

/* Products with k∘e^z of the tiles' samples. */
__device__ __forceinline__ void logits(const Run &run, const Lane &at, int n, const u32 (&word)[TILES][WORDS], const float *key,
                                       Tile (&e)[TILES]) {
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int s = 0; s < STRIPS; s++) { /* columns that are not there vanish in the softmax, and stay finite */
            const int column = at.column + 16 * s;
            const bool all = 16 * s + 16 <= COLUMNS;
            e[t][s][0] = e[t][s][1] = all || column < COLUMNS ? 0 : -1e20f;
            e[t][s][2] = e[t][s][3] = all || column + 1 < COLUMNS ? 0 : -1e20f;
        }
#pragma unroll LOOPED
    for (int k = 0; k < EIGHTS; k++) {
        const int place = 8 * k + 2 * at.pair;
        const float2 times = *(const float2 *)(key + place);
        const float *first = run.y + run.row[n * PLACES + place] + at.column;
        const float *second = run.y + run.row[n * PLACES + place + 1] + at.column;
        float count[TILES][2];
#pragma unroll
        for (int t = 0; t < TILES; t++) count[t][0] = count_at(word[t], k, 0), count[t][1] = count_at(word[t], k, 1);
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            const float2 a = load_y(first + 16 * s), b = load_y(second + 16 * s);
            const float y[4] = {a.x * times.x, a.y * times.x, b.x * times.y, b.y * times.y};
            float low[4];
            rest_of(y, low);
#pragma unroll
            for (int t = 0; t < TILES; t++) multiply(e[t][s], low, count[t]);
#pragma unroll
            for (int t = 0; t < TILES; t++) multiply(e[t][s], y, count[t]);
        }
    }
}

/* The strip of a column as a bit: a number would become an index into e, which registers do not have. */
__device__ __forceinline__ u32 strip_of(int column) { return 1u << column / 16; }

/* Where the target's column is among a lane's numbers. With few strips that is known from the beginning of a class on; with many
 * it is found anew in each place, which takes less than to find it for all of them at once. */
struct Spot {
    u32 strip, even, odd;
    bool mine, second; /* the lane's; the second of its two columns */
    __device__ __forceinline__ bool is(int s, int i) const {
        if (STRIPS > 5) return (i / 2 ? odd : even) >> s & 1;
        return mine && strip >> s & 1 && (i / 2 ^ second) == 0;
    }
};
__device__ __forceinline__ Spot spot_of(const Lane &at, int target) {
    Spot spot = {strip_of(target), 0, 0, (target & 15) / 2 == at.row, bool(target & 1)};
    u32 own = spot.mine ? spot.strip : 0;
#ifdef __CUDA_ARCH__
    if (STRIPS > 5) asm volatile("" : "+r"(own));
#endif
    spot.odd = spot.second ? own : 0, spot.even = own ^ spot.odd;
    return spot;
}

/* log2 of the largest e^logit of each of a lane's samples. */
__device__ __forceinline__ void largest(const Tile &e, const float (&factor)[2], float (&top)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = -1e38f;
#pragma unroll
        for (int s = 0; s < STRIPS; s++) top[i] = fmaxf(top[i], fmaxf(e[s][i], e[s][i + 2]) * factor[i]);
        top[i] = over_rows(top[i], Max());
    }
}

/* Products with k∘e^z become 2^(logit − shift) with the target's left out: `others` and `behind` are their sum and that of
 * their products with (logit − shift), `right` is the target's logit less the shift; base 2. */
__device__ __forceinline__ void softmax(const Lane &at, int target, Tile &e, const float (&factor)[2], const float (&shift)[2],
                                        float (&sums)[3][2]) {
    float(&others)[2] = sums[0], (&behind)[2] = sums[1], (&right)[2] = sums[2];
    others[0] = others[1] = behind[0] = behind[1] = right[0] = right[1] = 0;
#pragma unroll
    for (int first = 0; first < STRIPS; first += 5) {
#pragma unroll
        for (int s = first; s < first + 5 && s < STRIPS; s++)
#pragma unroll
            for (int i = 0; i < 4; i++) e[s][i] = e[s][i] * factor[i & 1] - shift[i & 1];
        if (strip_of(target) >> first & 31) { /* the same for all lanes */
            const Spot spot = spot_of(at, target);
#pragma unroll
            for (int s = first; s < first + 5 && s < STRIPS; s++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (spot.is(s, i)) right[i & 1] = e[s][i], e[s][i] = -1e30f;
        }
#pragma unroll
        for (int s = first; s < first + 5 && s < STRIPS; s++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float p = exp2_near(e[s][i]);
                others[i & 1] += p;
                behind[i & 1] += p * e[s][i];
                e[s][i] = p;
            }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        others[i] = over_rows(others[i], Sum());
        behind[i] = over_rows(behind[i], Sum());
        right[i] = __shfl_sync(EVERY, right[i], (target & 15) / 2 * 4 + at.pair);
    }
}

/* These become weight (e_n − α) / ‖k∘e^z‖. */
__device__ __forceinline__ void errors(const Lane &at, int target, Tile &e, const float (&share)[2], const float (&others)[2]) {
#pragma unroll
    for (int first = 0; first < STRIPS; first += 5) {
#pragma unroll
        for (int s = first; s < first + 5 && s < STRIPS; s++)
#pragma unroll
            for (int i = 0; i < 4; i++) e[s][i] *= -share[i & 1];
        if (strip_of(target) >> first & 31) {
            const Spot spot = spot_of(at, target);
#pragma unroll
            for (int s = first; s < first + 5 && s < STRIPS; s++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (spot.is(s, i)) e[s][i] = others[i & 1] * share[i & 1];
        }
    }
}
