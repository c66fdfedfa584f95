/* Masks of dropout: the draws of torch's bernoulli_ on a CPU from its generator (MT19937, Matsumoto & Nishimura 1998), whose
 * state they advance, eight times as fast. They are the same on all processors; torch has others on Intel's.
 */
#include <math.h>
#include <stdint.h>

enum { N = 624, M = 397 };

struct generator { /* the beginning of torch's saved state; a word of 32 bits in each number of 64 */
    uint64_t seed;
    int32_t left, seeded;
    uint64_t next, state[N];
};

static inline uint32_t mix(uint32_t a, uint32_t b) {
    return (((a & 0x80000000u) | (b & 0x7fffffffu)) >> 1) ^ (-(b & 1u) & 0x9908b0dfu);
}

static void renew(uint32_t *mt) {
    for (int i = 0; i < N - M; i++) mt[i] = mt[i + M] ^ mix(mt[i], mt[i + 1]);
    for (int i = N - M; i < N - 1; i++) mt[i] = mt[i + M - N] ^ mix(mt[i], mt[i + 1]);
    mt[N - 1] = mt[M - 1] ^ mix(mt[N - 1], mt[0]);
}

static inline uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* n entries that are `scale` with probability p, else 0: a draw is the 53 lower bits of two words, as a share of 2^53. */
int masks(struct generator *at, int64_t n, double p, double scale, float *out) {
    uint32_t mt[N], words[2 * N];
    const uint64_t limit = (uint64_t)ceil(p * 0x1p53);
    const uint32_t most = (uint32_t)(limit >> 32), rest = (uint32_t)limit; /* a draw below both together is kept */
    const float kept = (float)scale;
    int next = at->left == 1 ? N : (int)at->next, waiting = 0; /* words that were drawn and not used */
    for (int i = 0; i < N; i++) mt[i] = (uint32_t)at->state[i];
    for (int64_t done = 0; done < n;) {
        if (next == N) renew(mt), next = 0;
        int64_t need = 2 * (n - done) - waiting;
        int more = need < N - next ? (int)need : N - next;
        for (int i = 0; i < more; i++) words[waiting + i] = temper(mt[next + i]);
        next += more;
        waiting += more;
        int pairs = waiting / 2;
        for (int i = 0; i < pairs; i++) {
            uint32_t high = words[2 * i] & 0x1fffffu, low = words[2 * i + 1];
            out[done + i] = (high < most) | ((high == most) & (low < rest)) ? kept : 0.0f;
        }
        words[0] = words[waiting - 1];
        waiting %= 2;
        done += pairs;
    }
    for (int i = 0; i < N; i++) at->state[i] = mt[i];
    at->next = (uint64_t)next;
    at->left = N + 1 - next;
    return 0;
}
