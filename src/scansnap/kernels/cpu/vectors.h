/* Vectors of W floats, where W is said before this is included: GCC's and Clang's own types, with the few operations that
 * all kernels do on them. */
#include <stdint.h>
#include <string.h>

typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t ivec __attribute__((vector_size(4 * W)));
typedef float four __attribute__((vector_size(16)));
typedef int32_t ifour __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vec v) { memcpy(p, &v, sizeof v); }

INLINE vec all(float x) { return x - (vec){0}; }

INLINE vec pick(ivec mask, vec yes, vec no) { return (vec)((mask & (ivec)yes) | (~mask & (ivec)no)); }
