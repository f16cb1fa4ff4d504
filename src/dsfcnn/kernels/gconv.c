/* Steerable group convolution in the orientation-Fourier domain, float32, for C_n with even n. docs/performance.md has the mathematics.
 *
 * One call is one layer. Work goes by strips of a few rows of one image; for each strip:
 *   1. the rows of all input fields are transformed over their n orientations, into padded planes that stay in cache;
 *   2. for each tile of 16 columns and a few fields at a time, the bank (bank.py) applies all atoms to each pair of planes, and routes the
 *      responses into rows of the products that need them;
 *   3. each product, a small matrix of weights times those rows, is added up in cache over all fields;
 *   4. the inverse transform writes the output orientations.
 *
 * A complex product takes three real ones: with Z = R + iI and w = u + iv, T1 = u (R + I), T2 = (v - u) R, T3 = (u + v) I give
 * Re wZ = T1 - T3 and Im wZ = T1 + T2. Frequencies 0 and n/2 are real and take one each, the n/2 - 1 others three: 11 for n = 8.
 *
 * GCC and clang vector extensions, no intrinsics, no torch. Build with -O3 -ffp-contract=fast and never with -ffast-math: it would re-order the
 * sums, and switch denormal numbers off in the whole process that loads this. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef float v8 __attribute__((vector_size(32)));
typedef float v8_unaligned __attribute__((vector_size(32), aligned(4), may_alias));

enum {
  TILE = 16,      /* columns of a tile */
  MAX_ROWS = 8,   /* rows of a strip */
  CHUNK = 4,      /* input fields whose responses are held at once */
  MAX_N = 32,     /* orientations */
  MAX_OUT = 6,    /* output fields of one step of the product */
  MARGIN = 8,     /* zeros left and right of a padded row; at least half a kernel, and keeps rows aligned */
};

#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) ((v8) * (const v8_unaligned *)(p))
#define STORE(p, v) (*(v8_unaligned *)(p) = (v))
#define AT(p, offset) LOAD((p) + (offset))
INLINE v8 SPLAT(float x) { return (v8){x, x, x, x, x, x, x, x}; } /* not ZERO + x, which is an addition */
#define ZERO ((v8){0})
/* Keeps the compiler from merging loads over hundreds of instructions and spilling what it merged. */
#define BARRIER __asm__ volatile("" ::: "memory");

/* Where a complex response goes: rows of a complex product, two rows of a real one, or one row (frequency 0 of a real plane). */
enum route_kind { NOWHERE, COMPLEX, REAL, SINGLE };
struct route {
  long offset;    /* floats from the tile's first row */
  long step;      /* floats from one product to the next */
  long imaginary; /* number of the atom's imaginary filter, -1 for frequency 0 */
  long kind;
  float sign;     /* -1 where the conjugate is meant: it only turns the sign of I in R + I, the rest is in the weights */
};

struct plan {
  long n, kernel_size, rows; /* orientations, K, rows of a product per field */
  const float *coefficient;  /* of the bank */
  const struct route *routes; /* n/2 pairs of planes, all atoms, two each */
  long atoms;
  const float *cosine, *sine; /* of the transform: n/2 x n/2, frequency m (1 ..) and orientation j < n/2 */
};

INLINE void put(float *out, const struct route *to, v8 real, v8 imaginary) {
  float *row = out + to->offset;
  if (to->kind == COMPLEX) {
    STORE(row, real + SPLAT(to->sign) * imaginary);
    STORE(row + to->step, real);
    STORE(row + 2 * to->step, imaginary);
  } else if (to->kind == REAL) {
    STORE(row, real);
    STORE(row + TILE, imaginary);
  } else if (to->kind == SINGLE) {
    STORE(row, real);
  }
}

/* The responses of all filters to a pair of planes, combined to complex numbers and sent on.
 * A pair is (Re X, Im X) of one frequency: X * psi and X * conj(psi) go to frequencies k below and k above. The first pair is two real
 * planes, frequencies 0 and n/2, each with a destination of its own. */
INLINE void route_responses(long atoms, const v8 (*response)[2], const struct route *routes, int real_pair, float *out) {
  for (long atom = 0; atom < atoms; atom++) {
    const struct route *to = routes + 2 * atom;
    v8 p = response[atom][0], v = response[atom][1];
    if (to->imaginary < 0) {
      put(out, to, p, v);
      if (real_pair) put(out, to + 1, v, v);
      continue;
    }
    v8 u = response[to->imaginary][0], q = response[to->imaginary][1];
    if (real_pair) {
      put(out, to, p, u);
      put(out, to + 1, v, q);
    } else {
      put(out, to, p - q, u + v);
      put(out, to + 1, p + q, v - u);
    }
  }
}

/* Sums and differences of pixels left and right, for every row: [row][0: pixel, 1..h: sums, h+1..2h: differences][TILE]. */
INLINE void fold_rows(const float *restrict plane, long stride, long rows, long half, float *restrict folded) {
  for (long r = 0; r < rows; r++)
    for (long x = 0; x < TILE; x += 8) {
      const float *f = plane + r * stride + x;
      float *to = folded + r * (2 * half + 1) * TILE + x;
      STORE(to, LOAD(f));
      for (long d = 1; d <= half; d++) {
        v8 right = LOAD(f + d), left = LOAD(f - d);
        STORE(to + d * TILE, right + left);
        STORE(to + (half + d) * TILE, right - left);
      }
    }
}

#include "banks.h"

static void bank(const struct plan *plan, const float *re, const float *im, long stride, long rows, const struct route *routes, int real_pair,
                 float *out, long row_step) {
  switch (plan->kernel_size) {
    case 3: bank3(re, im, stride, rows, plan->coefficient, routes, real_pair, out, row_step); break;
    case 5: bank5(re, im, stride, rows, plan->coefficient, routes, real_pair, out, row_step); break;
    case 7: bank7(re, im, stride, rows, plan->coefficient, routes, real_pair, out, row_step); break;
    default: bank9(re, im, stride, rows, plan->coefficient, routes, real_pair, out, row_step);
  }
}

/* Real Fourier transform over orientations of 8 pixels: planes 0 and n/2, then real and imaginary parts of 1, 2, ... */
INLINE void transform(const long n, const v8 *x, const float *cosine, const float *sine, v8 *f) {
  const long half = n / 2;
  v8 sum[MAX_N / 2], difference[MAX_N / 2], even = ZERO, odd = ZERO;
  for (long j = 0; j < half; j++) {
    sum[j] = x[j] + x[j + half];
    difference[j] = x[j] - x[j + half];
  }
  /* e^(-i m j) of j + n/2 is (-1)^m that of j: even frequencies see the sums, odd ones the differences. */
  for (long j = 0; j < half; j++) {
    even += sum[j];
    const v8 *half_sign = half % 2 ? difference : sum;
    odd = j % 2 ? odd - half_sign[j] : odd + half_sign[j];
  }
  f[0] = even;
  f[1] = odd;
  for (long m = 1; m < half; m++) {
    const v8 *z = m % 2 ? difference : sum;
    v8 re = ZERO, im = ZERO;
    for (long j = 0; j < half; j++) {
      re += SPLAT(cosine[m * half + j]) * z[j];
      im -= SPLAT(sine[m * half + j]) * z[j];
    }
    f[2 * m] = re;
    f[2 * m + 1] = im;
  }
}

/* The other way; factors 1/n and 2/n are in the weights. */
INLINE void transform_back(const long n, const v8 *f, const float *cosine, const float *sine, v8 *y) {
  const long half = n / 2;
  for (long j = 0; j < half; j++) {
    v8 even = f[0], odd = ZERO, last = j % 2 ? -f[1] : f[1];
    if (half % 2) odd += last; else even += last;
    for (long m = 1; m < half; m++) {
      v8 value = SPLAT(cosine[m * half + j]) * f[2 * m] - SPLAT(sine[m * half + j]) * f[2 * m + 1];
      if (m % 2) odd += value; else even += value;
    }
    y[j] = even + odd;
    y[j + half] = even - odd;
  }
}

/* Constant n lets the compiler unroll the loops above. */
#define FOR_N(n, CALL) \
  switch (n) { \
    case 4: { enum { N = 4 }; CALL; } break; \
    case 8: { enum { N = 8 }; CALL; } break; \
    case 12: { enum { N = 12 }; CALL; } break; \
    case 16: { enum { N = 16 }; CALL; } break; \
    default: { const long N = n; CALL; } \
  }

INLINE void transform_row_n(const long n, const struct plan *plan, const float *x, long plane, float *f, long f_plane, long width) {
  for (long i = 0; i < width; i += 8) {
    v8 in[MAX_N], out[MAX_N];
    if (i + 8 <= width) {
      for (long j = 0; j < n; j++) in[j] = LOAD(x + j * plane + i);
    } else {
      for (long j = 0; j < n; j++) {
        float tail[8] = {0};
        memcpy(tail, x + j * plane + i, (width - i) * sizeof(float));
        in[j] = LOAD(tail);
      }
    }
    transform(n, in, plan->cosine, plan->sine, out);
    for (long j = 0; j < n; j++) STORE(f + j * f_plane + i, out[j]);
  }
}

static void transform_row(const struct plan *plan, const float *x, long plane, float *f, long f_plane, long width) {
  FOR_N(plan->n, transform_row_n(N, plan, x, plane, f, f_plane, width))
}

/* products: the n/2 - 1 triples and two real ones of a 16-pixel panel, ``step`` floats apart; y: n orientations, ``plane`` floats apart. */
INLINE void output_row_n(const long n, const struct plan *plan, const float *products, long step, float bias, float *y, long plane, long valid) {
  for (long x = 0; x < TILE && x < valid; x += 8) {
    const float *c = products + x;
    v8 f[MAX_N], out[MAX_N];
    f[0] = LOAD(c) + SPLAT(bias);
    f[1] = LOAD(c + step);
    for (long m = 1; m < n / 2; m++) {
      v8 t1 = LOAD(c + (3 * m - 1) * step), t2 = LOAD(c + 3 * m * step), t3 = LOAD(c + (3 * m + 1) * step);
      f[2 * m] = t1 - t3;
      f[2 * m + 1] = t1 + t2;
    }
    transform_back(n, f, plan->cosine, plan->sine, out);
    for (long j = 0; j < n; j++) {
      if (x + 8 <= valid) {
        STORE(y + j * plane + x, out[j]);
      } else {
        memcpy(y + j * plane + x, &out[j], (valid - x) * sizeof(float));
      }
    }
  }
}

static void output_row(const struct plan *plan, const float *products, long step, float bias, float *y, long plane, long valid) {
  FOR_N(plan->n, output_row_n(N, plan, products, step, bias, y, plane, valid))
}

/* c[o][TILE] (+)= sum_r w[r][o] b[r][TILE] for a constant number of outputs. */
INLINE void mix_n(const long outputs, const float *restrict w, const float *restrict b, float *restrict c, long depth, int first) {
  v8 left[MAX_OUT], right[MAX_OUT];
#pragma GCC unroll 6
  for (long o = 0; o < outputs; o++) {
    left[o] = first ? ZERO : LOAD(c + TILE * o);
    right[o] = first ? ZERO : LOAD(c + TILE * o + 8);
  }
  for (long r = 0; r < depth; r++) {
    v8 x = LOAD(b), y = LOAD(b + 8);
    b += TILE;
#pragma GCC unroll 6
    for (long o = 0; o < outputs; o++) {
      left[o] += SPLAT(w[o]) * x;
      right[o] += SPLAT(w[o]) * y;
    }
    w += outputs;
  }
#pragma GCC unroll 6
  for (long o = 0; o < outputs; o++) {
    STORE(c + TILE * o, left[o]);
    STORE(c + TILE * o + 8, right[o]);
  }
}

static void mix(long outputs, const float *w, const float *b, float *c, long depth, int first) {
  switch (outputs) {
    case 1: mix_n(1, w, b, c, depth, first); break;
    case 2: mix_n(2, w, b, c, depth, first); break;
    case 3: mix_n(3, w, b, c, depth, first); break;
    case 4: mix_n(4, w, b, c, depth, first); break;
    case 5: mix_n(5, w, b, c, depth, first); break;
    default: mix_n(6, w, b, c, depth, first);
  }
}

/* d[r][lanes] += sum over panels p and pixels x of b[p][r][x] v[p][x][lanes], for a constant number of rows and vectors of 8 lanes. */
INLINE void correlate_n(const long rows, const long vectors, const float *restrict b, long b_step, const float *restrict v, long lanes,
                        float *restrict d, long panels) {
  v8 sum[12];
#pragma GCC unroll 12
  for (long i = 0; i < rows * vectors; i++) sum[i] = LOAD(d + (i / vectors) * lanes + (i % vectors) * 8);
  for (long p = 0; p < panels; p++, b += b_step)
    for (long x = 0; x < TILE; x++, v += lanes) {
      v8 first = LOAD(v), second = vectors == 2 ? LOAD(v + 8) : ZERO;
#pragma GCC unroll 12
      for (long r = 0; r < rows; r++) {
        v8 w = SPLAT(b[r * TILE + x]);
        sum[r * vectors] += w * first;
        if (vectors == 2) sum[r * vectors + 1] += w * second;
      }
    }
#pragma GCC unroll 12
  for (long i = 0; i < rows * vectors; i++) STORE(d + (i / vectors) * lanes + (i % vectors) * 8, sum[i]);
}

static void correlate(long rows, const float *b, long b_step, const float *v, long lanes, float *d, long panels) {
  for (long lane = 0; lane < lanes;) {
    const long vectors = lane + 16 <= lanes ? 2 : 1, at_once = vectors == 2 ? 6 : 12;
    for (long r = 0; r < rows; r += at_once) {
      const long now = rows - r < at_once ? rows - r : at_once;
      const float *from = b + r * TILE, *x = v + lane;
      float *to = d + r * lanes + lane;
#define CASE(count, width) \
  case count: \
    correlate_n(count, width, from, b_step, x, lanes, to, panels); \
    break;
      if (vectors == 2)
        switch (now) { CASE(1, 2) CASE(2, 2) CASE(3, 2) CASE(4, 2) CASE(5, 2) CASE(6, 2) }
      else
        switch (now) {
          CASE(1, 1) CASE(2, 1) CASE(3, 1) CASE(4, 1) CASE(5, 1) CASE(6, 1)
          CASE(7, 1) CASE(8, 1) CASE(9, 1) CASE(10, 1) CASE(11, 1) CASE(12, 1)
        }
#undef CASE
    }
    lane += 8 * vectors;
  }
}

/* One call: a layer from x to y, and with ``other`` also the gradient of its weights. */
struct call {
  const struct plan *plan;
  const float *x;       /* (images, in, n, height, width) */
  float *y;             /* (images, out, n, height, width) */
  const float *weights; /* packed: chunk of input fields, product, step of output fields, row, output */
  const float *bias;    /* per output field, or NULL */
  const float *other;   /* (images, out, n, height, width), multiplied with the responses of x, or NULL */
  float *gradient;      /* of the products: part, chunk, product, row, output padded to 8 */
  long images, in, out, height, width, parts;
  atomic_long next;     /* strip, or part, that nobody has taken yet */
  atomic_int failed;
};

struct scratch {
  float *planes, *responses, *products, *pixels;
};

static long products_of(const struct plan *plan) { return 2 + 3 * (plan->n / 2 - 1); }

static void strip(const struct call *call, struct scratch *s, long number, float *gradient) {
  const struct plan *plan = call->plan;
  const long n = plan->n, half = plan->kernel_size / 2, rows_of = plan->rows, count = products_of(plan);
  const long strips = (call->height + MAX_ROWS - 1) / MAX_ROWS, image = number / strips, y0 = number % strips * MAX_ROWS;
  const long height = call->height, width = call->width, rows = height - y0 < MAX_ROWS ? height - y0 : MAX_ROWS;
  const long tiles = (width + TILE - 1) / TILE, stride = tiles * TILE + 2 * MARGIN, plane = (MAX_ROWS + 2 * half) * stride;
  const long product_step = CHUNK * rows_of * TILE, row_step = count * product_step;
  const long steps = (call->out + MAX_OUT - 1) / MAX_OUT, lanes = (call->out + 7) / 8 * 8;

  for (long field = 0; field < call->in; field++)
    for (long r = 0; r < rows + 2 * half; r++) {
      const long row = y0 + r - half;
      float *f = s->planes + field * n * plane + r * stride;
      const long written = row < 0 || row >= height ? 0 : (width + 7) / 8 * 8;
      for (long j = 0; j < n; j++) {
        memset(f + j * plane, 0, MARGIN * sizeof(float));
        memset(f + j * plane + MARGIN + written, 0, (stride - MARGIN - written) * sizeof(float));
      }
      if (written)
        transform_row(plan, call->x + (((image * call->in + field) * n) * height + row) * width, height * width, f + MARGIN, plane, width);
    }

  for (long tile = 0; tile < tiles; tile++) {
    const long valid = width - tile * TILE < TILE ? width - tile * TILE : TILE;
    const float *w = call->weights;
    if (gradient) { /* the other factor of the gradient, as [product][row][pixel][output field] */
      memset(s->pixels, 0, count * MAX_ROWS * TILE * lanes * sizeof(float));
      for (long o = 0; o < call->out; o++)
        for (long r = 0; r < rows; r++) {
          float f[MAX_N][TILE] __attribute__((aligned(32)));
          const float *from = call->other + (((image * call->out + o) * n) * height + y0 + r) * width + tile * TILE;
          transform_row(plan, from, height * width, &f[0][0], TILE, valid);
          for (long x = 0; x < valid; x++) {
            float *to = s->pixels + (r * TILE + x) * lanes + o;
            const long product = MAX_ROWS * TILE * lanes;
            to[0] = f[0][x];
            to[product] = f[1][x];
            for (long m = 1; m < n / 2; m++) {
              to[(3 * m - 1) * product] = f[2 * m][x] + f[2 * m + 1][x];
              to[3 * m * product] = f[2 * m + 1][x];
              to[(3 * m + 1) * product] = -f[2 * m][x];
            }
          }
        }
    }
    float *d = gradient;
    for (long start = 0; start < call->in; start += CHUNK) {
      const long fields = call->in - start < CHUNK ? call->in - start : CHUNK, depth = fields * rows_of;
      for (long pair = 0; pair < n / 2; pair++)
        for (long field = 0; field < fields; field++) {
          const float *re = s->planes + ((start + field) * n + 2 * pair) * plane + MARGIN + tile * TILE;
          bank(plan, re, re + plane, stride, rows, plan->routes + pair * 2 * plan->atoms, pair == 0, s->responses + field * rows_of * TILE,
               row_step);
        }
      for (long g = 0; g < count; g++) {
        for (long r = 0; r < rows; r++) {
          const float *now = w;
          float *c = s->products + (r * count + g) * call->out * TILE;
          for (long step = 0; step < steps; step++) {
            const long outputs = call->out / steps + (step < call->out % steps);
            mix(outputs, now, s->responses + g * product_step + r * row_step, c, depth, start == 0);
            now += outputs * depth;
            c += outputs * TILE;
          }
        }
        w += call->out * depth;
      }
      if (gradient)
        for (long g = 0; g < count; g++) {
          correlate(depth, s->responses + g * product_step, row_step, s->pixels + g * MAX_ROWS * TILE * lanes, lanes, d, rows);
          d += depth * lanes;
        }
    }
    for (long o = 0; o < call->out; o++)
      for (long r = 0; r < rows; r++)
        output_row(plan, s->products + (r * count * call->out + o) * TILE, call->out * TILE, call->bias ? call->bias[o] : 0.0f,
                   call->y + (((image * call->out + o) * n) * height + y0 + r) * width + tile * TILE, height * width, valid);
  }
}

static float *floats(long count) { return aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64); }

/* What one thread does: takes strips (or, for gradients, parts: fixed runs of strips with a sum each, so that the result does not depend on the
 * number of threads) until none is left. */
static void *work(void *argument) {
  struct call *call = argument;
  const struct plan *plan = call->plan;
  const long n = plan->n, half = plan->kernel_size / 2, count = products_of(plan);
  const long strips = (call->height + MAX_ROWS - 1) / MAX_ROWS, all = call->images * strips;
  const long stride = (call->width + TILE - 1) / TILE * TILE + 2 * MARGIN, lanes = (call->out + 7) / 8 * 8;
  const long gradient_size = count * call->in * plan->rows * lanes;
  struct scratch s = {
      floats(call->in * n * (MAX_ROWS + 2 * half) * stride),
      floats(MAX_ROWS * count * CHUNK * plan->rows * TILE),
      floats(MAX_ROWS * count * call->out * TILE),
      call->gradient ? floats(count * MAX_ROWS * TILE * lanes) : NULL,
  };
  if (!s.planes || !s.responses || !s.products || (call->gradient && !s.pixels)) {
    atomic_store(&call->failed, 1);
  } else if (call->gradient) {
    for (long part; (part = atomic_fetch_add(&call->next, 1)) < call->parts;)
      for (long number = all * part / call->parts; number < all * (part + 1) / call->parts; number++)
        strip(call, &s, number, call->gradient + part * gradient_size);
  } else {
    for (long number; (number = atomic_fetch_add(&call->next, 1)) < all;) strip(call, &s, number, NULL);
  }
  free(s.planes);
  free(s.responses);
  free(s.products);
  free(s.pixels);
  return NULL;
}

/* 0, or 1 if there was no memory. ``gradient`` must be zero on entry: parts x (what the weights would be, outputs padded to 8). */
int dsfcnn_gconv(const struct plan *plan, const float *x, float *y, const float *weights, const float *bias, const float *other, float *gradient,
                 long images, long in, long out, long height, long width, long parts, long threads) {
  struct call call = {plan, x, y, weights, bias, other, gradient, images, in, out, height, width, parts, 0, 0};
  pthread_t helpers[64];
  long started = 0;
  for (; started < threads - 1 && started < 64; started++)
    if (pthread_create(&helpers[started], NULL, work, &call)) break;
  work(&call);
  for (long i = 0; i < started; i++) pthread_join(helpers[i], NULL);
  return atomic_load(&call.failed);
}

/* Whether this machine can run what was compiled here; itself made of instructions that every one has. */
#if defined(__x86_64__)
__attribute__((target("arch=x86-64")))
#endif
int dsfcnn_supported(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return 1;
#endif
}
