/* Vectors of 8 floats, and of as many as a register holds, by the extensions that GCC and clang share: no intrinsics. */
#pragma once

typedef float v8 __attribute__((vector_size(32)));
typedef float v8_unaligned __attribute__((vector_size(32), aligned(4), may_alias));
typedef int v8_mask __attribute__((vector_size(32)));

#ifdef __AVX512F__
enum { WIDE = 16 };
typedef float wide __attribute__((vector_size(64)));
typedef float wide_unaligned __attribute__((vector_size(64), aligned(4), may_alias));
#else
enum { WIDE = 8 };
typedef v8 wide;
typedef v8_unaligned wide_unaligned;
#endif

#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) ((v8) * (const v8_unaligned *)(p))
#define STORE(p, v) (*(v8_unaligned *)(p) = (v))
#define LOAD_AS(type, p) ((type) * (const type##_unaligned *)(p))
#define STORE_AS(type, p, v) (*(type##_unaligned *)(p) = (v))
#define LOAD_WIDE(p) LOAD_AS(wide, p)
#define STORE_WIDE(p, v) STORE_AS(wide, p, v)
#define ZERO ((v8){0})
INLINE v8 SPLAT(float x) { return (v8){x, x, x, x, x, x, x, x}; } /* not ZERO + x, which is an addition */
INLINE wide SPLAT_WIDE(float x) {
#ifdef __AVX512F__
  return (wide){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#else
  return SPLAT(x);
#endif
}

/* ReLU, and the gradient that passes it where ``z`` came in. A value that is no number stays none, as in torch. */
INLINE v8 relu(v8 z) { return (v8)(~(z < ZERO) & (v8_mask)z); }
INLINE v8 relu_back(v8 z, v8 gradient) { return (v8)(~(z <= ZERO) & (v8_mask)gradient); }

INLINE float sum_of(v8 v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
