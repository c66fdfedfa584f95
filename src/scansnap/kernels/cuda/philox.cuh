/* Philox4x32-10 as in sampling/philox.py: two float64 uniforms on [0, 1) for each place. */
#ifndef EMULATED /* tests run these files on a CPU */
#define YIELD()
#define SHARED_MEMORY(name) extern __shared__ __align__(16) float name[]
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum { PURPOSE_CLASS = 1, PURPOSE_COUNT = 2, PURPOSE_INIT_Y = 4, PURPOSE_INIT_Z = 5 };

struct Pair {
    double u, v;
};

__device__ inline double unit(u32 high, u32 low) { return (double)((u64)high << 21 | low >> 11) * 0x1p-53; }

__device__ inline Pair uniforms(u64 seed, u32 purpose, u32 step, u32 major, u32 minor) {
    u32 c0 = minor, c1 = major, c2 = step, c3 = purpose, k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 p0 = (u64)c0 * 0xD2511F53u, p1 = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {unit(c0, c1), unit(c2, c3)};
}
