/* Vectors of 8 floats, by the extensions that GCC and clang share: no intrinsics. */
#pragma once

typedef float v8 __attribute__((vector_size(32)));
typedef float v8_unaligned __attribute__((vector_size(32), aligned(4), may_alias));
typedef int v8_mask __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) ((v8) * (const v8_unaligned *)(p))
#define STORE(p, v) (*(v8_unaligned *)(p) = (v))
#define AT(p, offset) LOAD((p) + (offset))
#define ZERO ((v8){0})
INLINE v8 SPLAT(float x) { return (v8){x, x, x, x, x, x, x, x}; } /* not ZERO + x, which is an addition */

/* ReLU, and the gradient that passes it where ``z`` came in. A value that is no number stays none, as in torch. */
INLINE v8 relu(v8 z) { return (v8)(~(z < ZERO) & (v8_mask)z); }
INLINE v8 relu_back(v8 z, v8 gradient) { return (v8)(~(z <= ZERO) & (v8_mask)gradient); }

INLINE float sum_of(v8 v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
