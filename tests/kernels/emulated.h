/* A thread block on a CPU: every thread is a fiber, and a fiber runs until it waits for others.
 *
 * Enough of CUDA for kernels/cuda/*.cu: warps of 32 that exchange numbers, barriers of a block, shared memory. Blocks run
 * one after the other.
 */
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define EMULATED
#define __device__
#define __global__
#define __noinline__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define YIELD() give_way()
#define SHARED_MEMORY(name) float *name = shared_memory

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class T> static T __ldcg(const T *from) { return *from; }
template <class T> static void __stcg(T *to, T value) { *to = value; }

struct Index {
    int x;
};

namespace emulated {
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
};
struct Warp {
    int waiting, phase;
    uint64_t number[32];
    float left[16][8], right[8][8];
};
std::vector<Fiber> fibers;
std::vector<Warp> warps;
ucontext_t scheduler;
int current, block_waiting, block_phase;
void (*body)();
} // namespace emulated

static float *shared_memory;
static Index threadIdx, blockIdx, blockDim, gridDim;

static float __fdividef(float a, float b) { return a / b; }
static float rsqrtf(float x) { return 1 / std::sqrt(x); }

static void give_way() {
    using namespace emulated;
    int me = current;
    swapcontext(&fibers[me].context, &scheduler);
    threadIdx.x = me;
}

static void meet(int &waiting, int &phase, int size) {
    int before = phase;
    if (++waiting == size) {
        waiting = 0;
        phase++;
    } else
        while (phase == before) give_way();
}

static void __syncthreads() { meet(emulated::block_waiting, emulated::block_phase, blockDim.x); }
static void __syncwarp() {
    emulated::Warp &warp = emulated::warps[threadIdx.x / 32];
    meet(warp.waiting, warp.phase, 32);
}
static void __threadfence_block() {}
static bool __syncthreads_and(bool value) {
    static int all;
    __syncthreads();
    all = 1;
    __syncthreads();
    all &= value;
    __syncthreads();
    return all;
}

template <class T> static T exchange(T value, int from) {
    emulated::Warp &warp = emulated::warps[threadIdx.x / 32];
    std::memcpy(&warp.number[threadIdx.x % 32], &value, sizeof value);
    __syncwarp();
    std::memcpy(&value, &warp.number[from & 31], sizeof value);
    __syncwarp();
    return value;
}
template <class T> static T __shfl_sync(unsigned, T value, int from) { return exchange(value, from); }
template <class T> static T __shfl_xor_sync(unsigned, T value, int with) { return exchange(value, (threadIdx.x % 32) ^ with); }
static bool __any_sync(unsigned, bool value) {
    bool any = false;
    for (int i = 0; i < 32; i++) any |= exchange<int>(value, i);
    return any;
}

static unsigned __ballot_sync(unsigned, bool value) {
    unsigned found = 0;
    for (int i = 0; i < 32; i++) found |= (unsigned)exchange<int>(value, i) << i;
    return found;
}
static int atomicAdd(int *to, int value) { return (*to += value) - value; }
static int __float2int_rn(float x) { return (int)std::nearbyint(x); }

static unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
static float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned found = 0;
    for (int i = 0; i < 4; i++) found |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return found;
}

/* mma.m16n8k8 with factors cut to 11 bits, as the PTX manual has its entries in lanes. */
static void emulated_product(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
    emulated::Warp &warp = emulated::warps[threadIdx.x / 32];
    const int lane = threadIdx.x % 32, group = lane / 4, own = lane % 4;
    for (int i = 0; i < 4; i++) warp.left[group + 8 * (i & 1)][own + 4 * (i / 2)] = __uint_as_float(__float_as_uint(a[i]) & 0xffffe000u);
    for (int i = 0; i < 2; i++) warp.right[own + 4 * i][group] = __uint_as_float(__float_as_uint(b[i]) & 0xffffe000u);
    __syncwarp();
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 8; k++) d[i] += warp.left[group + 8 * (i / 2)][k] * warp.right[k][2 * own + (i & 1)];
    __syncwarp();
}

namespace emulated {
static void enter() {
    body();
    fibers[current].done = true;
    swapcontext(&fibers[current].context, &scheduler);
}

static void launch(int blocks, int threads, int shared_bytes, void (*kernel)()) {
    gridDim.x = blocks;
    blockDim.x = threads;
    body = kernel;
    for (int b = 0; b < blocks; b++) {
        blockIdx.x = b;
        shared_memory = (float *)aligned_alloc(64, (shared_bytes + 63) / 64 * 64);
        std::memset(shared_memory, 0xff, shared_bytes); /* NaN: what is read must have been written */
        fibers.assign(threads, Fiber());
        warps.assign((threads + 31) / 32, Warp());
        block_waiting = 0;
        for (int i = 0; i < threads; i++) {
            Fiber &fiber = fibers[i];
            fiber.stack.resize(256 << 10);
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            fiber.context.uc_link = &scheduler;
            makecontext(&fiber.context, enter, 0);
        }
        for (bool more = true; more;) {
            more = false;
            for (int i = 0; i < threads; i++)
                if (!fibers[i].done) {
                    more = true;
                    current = threadIdx.x = i;
                    swapcontext(&scheduler, &fibers[i].context);
                }
        }
        free(shared_memory);
    }
}
} // namespace emulated
