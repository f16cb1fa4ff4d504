/* Steerable group convolution in the orientation-Fourier domain, float32, for C_n with even n. docs/performance.md has the mathematics.
 *
 * One call is one layer. Its weights are packed into matrices (weights.c); then work goes by strips of a few rows of one image; for each strip:
 *   1. the rows of all input fields are transformed over their n orientations, into padded planes that stay in cache; a batch of narrow images
 *      goes by 8 images at a time, each in a lane of its own;
 *   2. for each tile of 16 columns and a few fields at a time, the bank (bank.py) applies all atoms to each pair of planes, and routes the
 *      responses into rows of the products that need them;
 *   3. each product, a small matrix of weights times those rows, is added up in cache over all fields;
 *   4. the inverse transform writes the output orientations.
 *
 * A complex product takes three real ones: with Z = R + iI and w = u + iv, T1 = u (R + I), T2 = (v - u) R, T3 = (u + v) I give
 * Re wZ = T1 - T3 and Im wZ = T1 + T2. Frequencies 0 and n/2 are real and take one each, the n/2 - 1 others three: 11 for n = 8.
 *
 * GCC and clang vector extensions, no intrinsics, no torch; vectors of 16 floats where there is AVX-512. Build with -O3 -ffp-contract=fast and
 * never with -ffast-math: it would re-order the sums, and switch denormal numbers off in the whole process that loads this. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "threads.h"
#include "vectors.h"
#include "weights.h"

enum {
  TILE = 16,      /* columns of a tile */
  MAX_ROWS = 8,   /* rows of a block */
  COLUMNS = 64,   /* columns of a block */
  CHUNK = 4,      /* input fields whose responses are held at once */
  MAX_N = 32,     /* orientations */
  MAX_OUT = WIDE == 16 ? 14 : 6, /* output fields of one step of the product: as many sums of a tile as registers hold, or nearly */
  PARTS = 8,      /* sums of the weights' gradient that are kept apart, at most: the same for every number of threads */
  NARROW = 16,    /* columns of images that share vectors, at most */
  MARGIN = 8,     /* zeros left and right of a padded row; at least half a kernel, and keeps rows aligned */
};

/* Keeps the compiler from merging loads over hundreds of instructions and spilling what it merged. */
#define BARRIER __asm__ volatile("" ::: "memory");

/* Inlined into its callers, such a function would have fewer registers for its sums. */
#define APART static __attribute__((noinline))

/* Where a complex response goes: a row in both panels of a complex frequency, two rows in the panel of a real one, or one row (frequency 0 of a
 * real plane). */
enum route_kind { NOWHERE, COMPLEX, REAL, SINGLE };
struct route {
  long offset; /* floats from the tile's first row */
  long step;   /* floats from one panel to the next */
  long kind;
  float sign;  /* -1 where the conjugate is meant */
};

struct plan {
  long n, kernel_size, rows; /* orientations, K, rows of a product per field */
  const float *coefficient;  /* of the bank */
  const struct route *routes; /* n/2 pairs of planes, all atoms, two each */
  long atoms;
  const float *cosine, *sine; /* of the transform: n/2 x n/2, frequency m (1 ..) and orientation j < n/2 */
};

INLINE void put(float *out, const struct route *to, wide real, wide imaginary) {
  float *row = out + to->offset;
  if (to->kind == COMPLEX) {
    STORE_WIDE(row, real);
    STORE_WIDE(row + to->step, SPLAT_WIDE(to->sign) * imaginary);
  } else if (to->kind == REAL) {
    STORE_WIDE(row, real);
    STORE_WIDE(row + TILE, imaginary);
  } else if (to->kind == SINGLE) {
    STORE_WIDE(row, real);
  }
}

/* Responses of an atom's cosine and sine to the two planes a and b of a pair, sent on as complex numbers. A pair is (Re X, Im X) of one
 * frequency: X * psi and X * conj(psi) go to frequencies k below and k above. The first pair is two real planes, frequencies 0 and n/2, each
 * with a destination of its own. */
INLINE void route(float *out, const struct route *to, const int real_pair, wide cosine_a, wide cosine_b, wide sine_a, wide sine_b) {
  if (real_pair) {
    put(out, to, cosine_a, sine_a);
    put(out, to + 1, cosine_b, sine_b);
  } else {
    put(out, to, cosine_a - sine_b, cosine_b + sine_a);
    put(out, to + 1, cosine_a + sine_b, cosine_b - sine_a);
  }
}

/* An atom of frequency 0 is real, and leaves frequencies where they are. */
INLINE void route_flat(float *out, const struct route *to, const int real_pair, wide a, wide b) {
  put(out, to, a, b);
  if (real_pair) put(out, to + 1, b, b);
}

/* Sums and differences of pixels left and right, for every row: [row][0: pixel, 1..h: sums, h+1..2h: differences][TILE]. */
#define FOLD(name, type) \
  INLINE void name(const float *restrict plane, long stride, const long step, long rows, const long columns, const long half, \
                   float *restrict folded) { \
    for (long r = 0; r < rows; r++) \
      for (long x = 0; x < columns; x += sizeof(type) / sizeof(float)) { \
        const float *f = plane + r * stride + x; \
        float *to = folded + r * (2 * half + 1) * TILE + x; \
        STORE_AS(type, to, LOAD_AS(type, f)); \
        for (long d = 1; d <= half; d++) { \
          type right = LOAD_AS(type, f + d * step), left = LOAD_AS(type, f - d * step); \
          STORE_AS(type, to + d * TILE, right + left); \
          STORE_AS(type, to + (half + d) * TILE, right - left); \
        } \
      } \
  }
FOLD(fold_columns, wide)
FOLD(fold_half, v8)
#undef FOLD

/* For the rows of a tile, whose right half is beside the left one or ``down`` rows below. */
INLINE void fold_rows(const float *restrict plane, long stride, long step, long rows, long down, const long half, float *restrict folded) {
  rows += 2 * half;
#define HALVES(step) \
  fold_half(plane, stride, step, rows, TILE / 2, half, folded), \
      fold_half(plane + down * stride, stride, step, rows, TILE / 2, half, folded + TILE / 2)
  if (step == 1 && down) /* constants let the compiler unroll */
    HALVES(1);
  else if (step == 1)
    fold_columns(plane, stride, 1, rows, TILE, half, folded);
  else if (down)
    HALVES(8);
  else
    fold_columns(plane, stride, 8, rows, TILE, half, folded);
#undef HALVES
}

#define BANK_ARGUMENTS \
  const float *restrict re, const float *restrict im, long stride, long step, long rows, long down, const float *restrict coefficient, \
      float *restrict out, long row_step
typedef void bank_function(BANK_ARGUMENTS, const struct route *routes);

#include "banks.h"

static bank_function *bank_for(long kernel_size, long n, long pair) {
  static bank_function *(*const banks[])(long, long) = {bank3_for, bank5_for, bank7_for, bank9_for};
  return banks[(kernel_size - 3) / 2](n, pair);
}

/* cos and sin of the transform, e^(i m j 2 pi / n): read from the plan, or constants for 8 orientations, where the compiler then leaves out
 * every product with 0, 1 and -1. */
struct turn {
  float cosine, sine;
};

INLINE struct turn turn_of(const long n, const struct plan *plan, long m, long j) {
#define ROOT 0.70710678118654752f
  static const float eighth[8] = {1, ROOT, 0, -ROOT, -1, -ROOT, 0, ROOT};
#undef ROOT
  if (n == 8) return (struct turn){eighth[m * j % 8], eighth[(m * j + 6) % 8]};
  return (struct turn){plan->cosine[m * (n / 2) + j], plan->sine[m * (n / 2) + j]};
}

INLINE v8 plus(const long n, v8 sum, float factor, v8 x) {
  if (n == 8 && factor == 0) return sum;
  if (n == 8 && factor == 1) return sum + x;
  if (n == 8 && factor == -1) return sum - x;
  return sum + SPLAT(factor) * x;
}

/* Real Fourier transform over orientations of 8 pixels: planes 0 and n/2, then real and imaginary parts of 1, 2, ... */
INLINE void transform(const long n, const struct plan *plan, const v8 *x, v8 *f) {
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
      const struct turn by = turn_of(n, plan, m, j);
      re = plus(n, re, by.cosine, z[j]);
      im = plus(n, im, -by.sine, z[j]);
    }
    f[2 * m] = re;
    f[2 * m + 1] = im;
  }
}

/* The other way; factors 1/n and 2/n are in the weights. */
INLINE void transform_back(const long n, const struct plan *plan, const v8 *f, v8 *y) {
  const long half = n / 2;
#pragma GCC unroll 4 /* all of 8 orientations, so that turns are constants */
  for (long j = 0; j < half; j++) {
    v8 even = f[0], odd = ZERO, last = j % 2 ? -f[1] : f[1];
    if (half % 2) odd += last; else even += last;
#pragma GCC unroll 4
    for (long m = 1; m < half; m++) {
      const struct turn by = turn_of(n, plan, m, j);
      const v8 value = plus(n, plus(n, m % 2 ? odd : even, by.cosine, f[2 * m]), -by.sine, f[2 * m + 1]);
      if (m % 2) odd = value; else even = value;
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

/* Batch norm and ReLU of the maps that a layer reads: max(0, scale x + shift) for every field; or nothing. */
struct activation {
  int on;
  float scale, shift;
};

INLINE v8 activated(v8 x, struct activation by) { return by.on ? relu(SPLAT(by.scale) * x + SPLAT(by.shift)) : x; }

/* The first ``count`` of 8 lanes, the others zero; of memory only those are read. */
INLINE v8 load_some(const float *from, long count) {
  v8 lanes = ZERO;
  for (long i = 0; i < 8; i++)
    if (i < count) lanes[i] = from[i];
  return lanes;
}

INLINE v8 first_lanes(v8 value, long count) { return (v8)(((v8_mask){0, 1, 2, 3, 4, 5, 6, 7} < (int)count) & (v8_mask)value); }

/* ``width`` columns of all orientations of a row, ``plane`` floats apart, transformed; zeros after the last of them up to a multiple of 8. */
INLINE void transform_row_n(const long n, const struct plan *plan, const float *x, long plane, struct activation by, float *f, long f_plane,
                            long width) {
  for (long i = 0; i < width; i += 8) {
    v8 in[MAX_N], out[MAX_N];
    if (i + 8 <= width) {
      for (long j = 0; j < n; j++) in[j] = activated(LOAD(x + j * plane + i), by);
    } else {
      for (long j = 0; j < n; j++) in[j] = first_lanes(activated(load_some(x + j * plane + i, width - i), by), width - i);
    }
    transform(n, plan, in, out);
    for (long j = 0; j < n; j++) STORE(f + j * f_plane + i, out[j]);
  }
}

static void transform_row(const struct plan *plan, const float *x, long plane, struct activation by, float *f, long f_plane, long width) {
  FOR_N(plan->n, transform_row_n(N, plan, x, plane, by, f, f_plane, width))
}

/* Where a gradient that has passed the layer goes on through the activation of what the layer read. */
struct passage {
  const float *x; /* what was read, same place as y; NULL without activation */
  struct activation by;
  float centre;
  v8 *sums; /* of what passes the ReLU, and of that times x - centre */
};

INLINE v8 pass(const struct passage *through, v8 gradient, v8 x) {
  v8 passed = relu_back(SPLAT(through->by.scale) * x + SPLAT(through->by.shift), gradient);
  through->sums[0] += passed;
  through->sums[1] += passed * (x - SPLAT(through->centre));
  return SPLAT(through->by.scale) * passed;
}

/* products: the n/2 - 1 triples and two real ones of a tile, ``step`` floats apart; out: n orientations of the tile. */
INLINE void output_row_n(const long n, const struct plan *plan, const float *products, long step, float bias, float (*out)[TILE]) {
  for (long x = 0; x < TILE; x += 8) {
    const float *c = products + x;
    v8 f[MAX_N], y[MAX_N];
    f[0] = LOAD(c) + SPLAT(bias);
    f[1] = LOAD(c + step);
    for (long m = 1; m < n / 2; m++) {
      v8 t1 = LOAD(c + (3 * m - 1) * step), t2 = LOAD(c + 3 * m * step), t3 = LOAD(c + (3 * m + 1) * step);
      f[2 * m] = t1 - t3;
      f[2 * m + 1] = t1 + t2;
    }
    transform_back(n, plan, f, y);
    for (long j = 0; j < n; j++) STORE(out[j] + x, y[j]);
  }
}

static void output_row(const struct plan *plan, const float *products, long step, float bias, float (*out)[TILE]) {
  FOR_N(plan->n, output_row_n(N, plan, products, step, bias, out))
}

/* ``count`` pixels from a tile to their place in a map. */
INLINE void store_row(const float *from, const struct passage *through, float *to, long offset, long count) {
  for (long x = 0; x < count; x += 8) {
    const long now = count - x < 8 ? count - x : 8;
    if (now == 8) {
      v8 value = LOAD(from + x);
      STORE(to + offset + x, through->x ? pass(through, value, LOAD(through->x + offset + x)) : value);
    } else { /* what lies past the last column must not reach the sums */
      float some[8] = {0}, was[8] = {0};
      memcpy(some, from + x, now * sizeof(float));
      if (through->x) {
        memcpy(was, through->x + offset + x, now * sizeof(float));
        STORE(some, pass(through, LOAD(some), LOAD(was)));
      }
      memcpy(to + offset + x, some, now * sizeof(float));
    }
  }
}

/* c[o][TILE] (+)= sum over rows of w[row][o] b[row][TILE], for a constant number of outputs; or of the sum of b and what is ``plus`` after it. */
INLINE void mix_n(const long outputs, const float *restrict w, long w_row, const float *restrict b, long plus, float *restrict c, long rows,
                  int first) {
  enum { PARTS_OF_TILE = TILE / WIDE };
  wide sum[MAX_OUT][PARTS_OF_TILE];
#pragma GCC unroll 14
  for (long o = 0; o < outputs; o++)
#pragma GCC unroll 2
    for (long i = 0; i < PARTS_OF_TILE; i++) sum[o][i] = first ? SPLAT_WIDE(0) : LOAD_WIDE(c + TILE * o + WIDE * i);
  for (long r = 0; r < rows; r++, w += w_row, b += TILE) {
    wide x[PARTS_OF_TILE];
#pragma GCC unroll 2
    for (long i = 0; i < PARTS_OF_TILE; i++) x[i] = plus ? LOAD_WIDE(b + WIDE * i) + LOAD_WIDE(b + plus + WIDE * i) : LOAD_WIDE(b + WIDE * i);
#pragma GCC unroll 14
    for (long o = 0; o < outputs; o++)
#pragma GCC unroll 2
      for (long i = 0; i < PARTS_OF_TILE; i++) sum[o][i] += SPLAT_WIDE(w[o]) * x[i];
  }
#pragma GCC unroll 14
  for (long o = 0; o < outputs; o++)
#pragma GCC unroll 2
    for (long i = 0; i < PARTS_OF_TILE; i++) STORE_WIDE(c + TILE * o + WIDE * i, sum[o][i]);
}

APART void mix(long outputs, const float *w, long w_row, const float *b, long plus, float *c, long rows, int first) {
#define CASE(count) \
  case count: \
    if (plus) mix_n(count, w, w_row, b, plus, c, rows, first); else mix_n(count, w, w_row, b, 0, c, rows, first); \
    break;
  switch (outputs) {
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#ifdef __AVX512F__
    CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
#endif
  }
#undef CASE
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

APART void correlate(long rows, const float *b, long b_step, const float *v, long lanes, float *d, long panels) {
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

/* Several maps (images, fields, n, height, width) that stand side by side, as if they were joined along their fields. */
struct map {
  float *data;
  long fields;
};

struct maps {
  const struct map *list;
  long count;
  const float *centre, *scale, *shift; /* per field, the batch norm (then ReLU) through which they are read; NULL: as they are */
};

/* Only longs and pointers, for calls.py writes it as a row of numbers.
 *
 * One call: a layer from x to y; and in the backward pass, where y is the gradient to ``read``, the gradients that ``read`` makes
 * possible. */
struct call {
  const struct plan *plan;
  const struct packing *packing;
  struct maps x, y, read;
  const float *weights;  /* (y fields, x fields, n, live), by the steps below */
  float *gradient;       /* of the weights, likewise; or NULL */
  long y_step, x_step;   /* of weights, from field to field */
  const float *bias;     /* per y field, or NULL */
  double *sums;          /* (y fields, 2): of the gradient that passes ReLU, and of that times read - centre; or NULL */
  long images, height, width, threads;
};

/* Where one field lies, and how it is read. */
struct field {
  float *data;
  long step; /* from image to image */
  struct activation by;
  float centre;
};

struct job {
  const struct call *call;
  struct field *x, *y, *read; /* read: NULL in the forward pass */
  long in, out, blocks;
  long step;           /* floats from column to column: 1, or 8 where each lane of a vector holds an image of its own */
  long beside, pitch;  /* images in a block, and columns from one to the next where they stand side by side */
  long stride, margin; /* of padded rows, in floats */
  float *packed;       /* (product, x fields, row, y fields padded to 8) */
  float *gradients;    /* (part, x fields, product, row, y fields padded to 8), of the packed weights */
  double *sums;        /* (block, y fields, 2) */
  float *scratch;
  long scratch_size;   /* floats per thread */
  struct stage packing, parts, unpacking; /* of x fields, of runs of blocks, of x fields */
};

/* What one thread works with. */
struct scratch {
  float *planes, *responses, *added, *products, *pixels, *sums, *weights;
};

static long products_of(const struct plan *plan) { return 2 + 3 * (plan->n / 2 - 1); }

static long lanes_of(const struct job *job) { return (job->out + 7) / 8 * 8; } /* y fields, padded */

/* Narrow images stand side by side in a block, half a kernel of zeros apart, where that fills its tiles better; or each of 8 in a lane of its own,
 * where that leaves yet a tenth less to compute, which is what it costs to bring them there (measured). */
static void arrange(struct job *job) {
  const struct call *call = job->call;
  const long half = call->plan->kernel_size / 2, groups = (call->images + 7) / 8;
  job->step = job->beside = 1;
  job->pitch = call->width + half;
  long fewest = (call->width + 7) / 8; /* vectors of a row */
  for (long count = 2; count <= call->images && count * job->pitch - half <= COLUMNS; count++) {
    const long vectors = (count * job->pitch - half + 7) / 8;
    if (vectors * job->beside < fewest * count) {
      fewest = vectors;
      job->beside = count;
    }
  }
  if (call->width <= NARROW && 10 * groups * call->width * job->beside <= 9 * call->images * fewest) job->step = job->beside = 8;
  job->margin = job->step == 1 ? MARGIN : 8 * half;
  const long most = call->width < COLUMNS ? call->width : COLUMNS; /* columns of an image in a block */
  const long floats = job->step == 1 ? (job->beside - 1) * job->pitch + most : 8 * call->width;
  job->stride = (floats + TILE - 1) / TILE * TILE + 2 * job->margin;
}

static long blocks_of(const struct job *job) {
  const struct call *call = job->call;
  return (call->images + job->beside - 1) / job->beside * ((call->height + MAX_ROWS - 1) / MAX_ROWS) * ((call->width + COLUMNS - 1) / COLUMNS);
}

/* A block: some rows and columns of one image, or of several. */
struct block {
  long image, images, y, rows, x, columns; /* columns of one image */
  long floats;                             /* of a row of all of them */
};

static struct block block_of(const struct job *job, long number) {
  const struct call *call = job->call;
  const long across = (call->width + COLUMNS - 1) / COLUMNS, down = (call->height + MAX_ROWS - 1) / MAX_ROWS;
  struct block b = {.image = number / (across * down) * job->beside, .y = number / across % down * MAX_ROWS, .x = number % across * COLUMNS};
  b.images = call->images - b.image < job->beside ? call->images - b.image : job->beside;
  b.rows = call->height - b.y < MAX_ROWS ? call->height - b.y : MAX_ROWS;
  b.columns = call->width - b.x < COLUMNS ? call->width - b.x : COLUMNS;
  b.floats = job->step == 1 ? (b.images - 1) * job->pitch + b.columns : 8 * b.columns;
  return b;
}

/* 16 floats of a block's rows; or the last 8 of them, where the right half of a tile's row is the row ``down`` below its left half. */
struct tile {
  long first, rows, down; /* float of a block's row; rows of 16 floats */
};

static long tiles_of(const struct block *b) { return (b->floats + TILE - 1) / TILE; }

static struct tile tile_of(const struct block *b, long number) {
  if (b->floats - number * TILE > TILE / 2) return (struct tile){number * TILE, b->rows, 0};
  return (struct tile){number * TILE, (b->rows + 1) / 2, b->rows / 2}; /* an odd number of rows: the middle one is in both halves */
}

/* The part of a tile that lies in one image, or in all those that share its vectors. */
struct piece {
  long image, column, place, width, down;
};

static long pieces_of(const struct job *job, const struct block *b, const struct tile *tile, struct piece *pieces) {
  const long floats = tile->down ? TILE / 2 : TILE, images = job->step == 1 ? b->images : 1;
  long count = 0;
  for (long place = 0; place < TILE; place += floats) /* from left to right */
    for (long i = 0; i < images; i++) {
      const long left = i * job->pitch, right = left + b->columns * job->step, end = tile->first + floats;
      const long from = left > tile->first ? left : tile->first, to = right < end ? right : end;
      if (from < to)
        pieces[count++] = (struct piece){b->image + i, b->x + (from - left) / job->step, place + from - tile->first, (to - from) / job->step,
                                         place ? tile->down : 0};
    }
  return count;
}

/* Whether a row of the right half has been in the left one. */
INLINE int is_twice(const struct tile *tile, const struct piece *piece, long row) { return piece->down && row + piece->down < tile->rows; }

#define MIX(x, y, ...) __builtin_shuffle(x, y, (v8_mask){__VA_ARGS__})

/* 8 rows of 8 to 8 columns. */
INLINE void transpose(v8 *a) {
  v8 b[8], c[8];
  for (long i = 0; i < 4; i++) {
    b[2 * i] = MIX(a[2 * i], a[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[2 * i + 1] = MIX(a[2 * i], a[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (long i = 0; i < 8; i += 4)
    for (long k = 0; k < 2; k++) {
      c[i + k] = MIX(b[i + k], b[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      c[i + k + 2] = MIX(b[i + k], b[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (long k = 0; k < 4; k++) {
    a[k] = MIX(c[k], c[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    a[k + 4] = MIX(c[k], c[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

/* Columns of a row of several images, ``step`` floats apart, to vectors with one image in each lane; zeros where there is none. Before the first
 * column so many floats may be read too, and up to SPARE floats written. */
enum { SPARE = 7 * 8 };

INLINE void gather_n(const long images, const float *from, long before, long step, long columns, float *to) {
  for (long end = columns; end > 0; end -= 8) { /* from right to left */
    v8 a[8];
    if (end - 8 < -before) {
      for (long c = 0; c < end; c++)
        for (long i = 0; i < 8; i++) to[8 * c + i] = i < images ? from[i * step + c] : 0;
      return;
    }
    for (long i = 0; i < 8; i++) a[i] = i < images ? LOAD(from + i * step + end - 8) : ZERO;
    transpose(a);
    if (end == 2) { /* a tile */
      STORE(to, a[6]);
      STORE(to + 8, a[7]);
    } else {
      for (long i = 0; i < 8; i++) STORE(to + 8 * (end - 8 + i), a[i]);
    }
  }
}

INLINE void gather(const float *from, long before, long step, long images, long columns, float *to) {
  if (images == 8) /* a constant, most of the time */
    gather_n(8, from, before, step, columns, to);
  else
    gather_n(images, from, before, step, columns, to);
}

/* One or two columns, and back. */
INLINE void scatter(const float *from, long step, long images, long columns, float *to) {
  const v8 left = LOAD(from), right = LOAD(from + 8 * (columns - 1));
  float both[16] __attribute__((aligned(32)));
  STORE(both, MIX(left, right, 0, 8, 1, 9, 2, 10, 3, 11));
  STORE(both + 8, MIX(left, right, 4, 12, 5, 13, 6, 14, 7, 15));
  for (long i = 0; i < images; i++) memcpy(to + i * step, both + 2 * i, columns * sizeof(float));
}

/* Pixels of a row, from ``place`` on, of one image or of several that share vectors, in frequencies. */
static void load_pixels(const struct job *job, const struct field *field, long image, long images, long place, long columns, float *f,
                        long plane) {
  const struct call *call = job->call;
  const long area = call->height * call->width;
  const float *from = field->data + image * field->step + place;
  float raw[MAX_N][SPARE + 8 * NARROW] __attribute__((aligned(32)));
  if (job->step == 1) {
    transform_row(call->plan, from, area, field->by, f, plane, columns);
  } else {
    for (long j = 0; j < call->plan->n; j++) gather(from + j * area, place + j * area, field->step, images, columns, raw[j] + SPARE);
    transform_row(call->plan, raw[0] + SPARE, SPARE + 8 * NARROW, field->by, f, plane, 8 * columns);
  }
}

static long plane_of(const struct job *job) { return (MAX_ROWS + 2 * (job->call->plan->kernel_size / 2)) * job->stride; }

/* A few vectors of zeros at the same place of all planes: calls of memset, which the compiler would make of it, take longer. */
INLINE void clear(float *f, long plane, long n, long floats) {
  for (long j = 0; j < n; j++, f += plane)
    for (long i = 0; i < floats; i += 8) {
      STORE(f + i, ZERO);
      BARRIER
    }
}

/* One row of one field in frequencies, with half a kernel more on both sides: neighbours, or zeros outside of the image. */
static void load_row(const struct job *job, const struct block *b, const struct field *field, long row, float *f, long plane) {
  const struct call *call = job->call;
  const long n = call->plan->n, end = tiles_of(b) * TILE + 2 * job->margin; /* no tile reads further */
  const int beside = b->images > 1 && job->step == 1;
  if (beside || row < 0 || row >= call->height) {
    clear(f, plane, n, end);
    if (row < 0 || row >= call->height) return;
    for (long i = 0; i < b->images; i++) /* from left to right: each one's zeros on its right end where the next one starts */
      load_pixels(job, field, b->image + i, 1, row * call->width, call->width, f + job->margin + i * job->pitch, plane);
    return;
  }
  const long first = b->x ? b->x - MARGIN : 0, reach = b->x + b->columns + MARGIN;
  const long columns = (reach < call->width ? reach : call->width) - first;
  const long before = b->x ? 0 : job->margin, after = before + (columns * job->step + 7) / 8 * 8;
  clear(f, plane, n, before);
  clear(f + after, plane, n, end - after);
  load_pixels(job, field, b->image, b->images, row * call->width + first, columns, f + before, plane);
}

static void load_planes(const struct job *job, const struct block *b, float *planes) {
  const long half = job->call->plan->kernel_size / 2, plane = plane_of(job);
  for (long i = 0; i < job->in; i++)
    for (long r = 0; r < b->rows + 2 * half; r++)
      load_row(job, b, job->x + i, b->y + r - half, planes + i * job->call->plan->n * plane + r * job->stride, plane);
}

/* The other factor of the weights' gradient, what the layer read, as [product][row][pixel][field]: the products' transposed combinations. */
static void load_read(const struct job *job, const struct block *b, const struct tile *tile, const struct piece *pieces, long count,
                      float *pixels) {
  const struct call *call = job->call;
  const long n = call->plan->n, lanes = lanes_of(job), product = MAX_ROWS * TILE * lanes;
  float f[8][MAX_N][TILE + 8] __attribute__((aligned(32))); /* a piece ends in zeros up to a multiple of 8 */
  for (long first = 0; first < job->out; first += 8)
    for (long r = 0; r < tile->rows; r++) {
      for (long o = 0; o < 8; o++) memset(f[o], 0, n * sizeof f[o][0]);
      for (long o = first; o < job->out && o < first + 8; o++) {
        for (const struct piece *p = pieces; p < pieces + count; p++)
          if (!is_twice(tile, p, r))
            load_pixels(job, job->read + o, p->image, b->images, (b->y + r + p->down) * call->width + p->column, p->width,
                        &f[o - first][0][p->place], TILE + 8);
      }
      for (long x = 0; x < TILE; x += 8)
        for (long m = 0; m < n / 2; m++) {
          v8 even[8], odd[8];
          for (long o = 0; o < 8; o++) {
            even[o] = LOAD(&f[o][2 * m][x]);
            odd[o] = LOAD(&f[o][2 * m + 1][x]);
          }
          transpose(even);
          transpose(odd);
          for (long i = 0; i < 8; i++) {
            float *to = pixels + (r * TILE + x + i) * lanes + first;
            if (m == 0) {
              STORE(to, even[i]);
              STORE(to + product, odd[i]);
            } else {
              STORE(to + (3 * m - 1) * product, even[i] + odd[i]);
              STORE(to + 3 * m * product, odd[i]);
              STORE(to + (3 * m + 1) * product, -even[i]);
            }
          }
        }
    }
}

/* Responses of one field in two panels, ``plus`` floats apart, added, row by row of a tile. */
INLINE void add_panels(const float *b, long plus, long b_step, long rows, long floats, float *to) {
  for (long r = 0; r < rows; r++, b += b_step, to += floats)
    for (long i = 0; i < floats; i += WIDE) STORE_WIDE(to + i, LOAD_WIDE(b + i) + LOAD_WIDE(b + plus + i));
}

/* Some input fields of one tile: their responses, what these add to the products, and to the gradient of the weights. */
static void add_fields(const struct job *job, const struct tile *tile, const struct scratch *s, long start, float *gradient) {
  const struct plan *plan = job->call->plan;
  const long n = plan->n, rows_of = plan->rows, count = products_of(plan), plane = plane_of(job);
  const long panel_step = CHUNK * rows_of * TILE, row_step = n * panel_step, lanes = lanes_of(job);
  const long fields = job->in - start < CHUNK ? job->in - start : CHUNK, steps = (job->out + MAX_OUT - 1) / MAX_OUT;
  for (long pair = 0; pair < n / 2; pair++) {
    bank_function *bank = bank_for(plan->kernel_size, n, pair);
    for (long field = 0; field < fields; field++) {
      const float *re = s->planes + ((start + field) * n + 2 * pair) * plane + job->margin + tile->first;
      bank(re, re + plane, job->stride, job->step, tile->rows, tile->down, plan->coefficient, s->responses + field * rows_of * TILE, row_step,
           plan->routes + pair * 2 * plan->atoms);
    }
  }
  for (long g = 0; g < count; g++) {
    const float *w = job->packed + (g * job->in + start) * rows_of * lanes;
    /* Of a real frequency its panel; of a complex one R + I, R and I for the three products. */
    const long part = g < 2 ? 1 : (g + 1) % 3, panel = g < 2 ? g : (g + 1) / 3 * 2 + (part == 2), plus = part ? 0 : panel_step;
    const float *responses = s->responses + panel * panel_step;
    for (long r = 0; r < tile->rows; r++)
      for (long step = 0, first = 0; step < steps; step++) {
        const long outputs = job->out / steps + (step < job->out % steps);
        mix(outputs, w + first, lanes, responses + r * row_step, plus, s->products + ((r * count + g) * job->out + first) * TILE,
            fields * rows_of, start == 0);
        first += outputs;
      }
    for (long field = 0; gradient && field < fields; field++) {
      const float *of_field = responses + field * rows_of * TILE;
      if (plus) add_panels(of_field, plus, row_step, tile->rows, rows_of * TILE, s->added);
      correlate(rows_of, plus ? s->added : of_field, plus ? rows_of * TILE : row_step, s->pixels + g * MAX_ROWS * TILE * lanes, lanes,
                gradient + ((start + field) * count + g) * rows_of * lanes, tile->rows);
    }
  }
}

/* The piece of a tile that several images share, to their places in maps, as store_row does for one. */
APART void store_lanes(float *from, const struct passage *through, const struct field *read, const struct field *y, const struct block *b,
                       const struct piece *piece, long place) {
  if (through->x) {
    float was[SPARE + TILE];
    gather(read->data + b->image * read->step + place, place, read->step, b->images, piece->width, was + SPARE);
    for (long i = 0; i < 8 * piece->width; i += 8) STORE(from + i, pass(through, LOAD(from + i), LOAD(was + SPARE + i)));
  }
  if (piece->width == 2) /* a constant size of what is copied */
    scatter(from, y->step, b->images, 2, y->data + b->image * y->step + place);
  else
    scatter(from, y->step, b->images, 1, y->data + b->image * y->step + place);
}

/* The products of a tile, transformed back, to their places; gradients on through the activation. */
APART void store_tile(const struct job *job, const struct block *b, const struct tile *tile, const struct piece *pieces, long count,
                      const struct scratch *s) {
  const struct call *call = job->call;
  const long n = call->plan->n, products = products_of(call->plan), area = call->height * call->width;
  float out[MAX_N][TILE] __attribute__((aligned(32)));
  for (long o = 0; o < job->out; o++)
    for (long r = 0; r < tile->rows; r++) {
      const struct field *y = job->y + o, *read = job->read + o;
      output_row(call->plan, s->products + (r * products * job->out + o) * TILE, job->out * TILE, call->bias ? call->bias[o] : 0.0f, out);
      for (const struct piece *p = pieces; p < pieces + count; p++) {
        if (is_twice(tile, p, r)) continue;
        const long place = (b->y + r + p->down) * call->width + p->column;
        struct passage through = {0};
        if (call->sums) through = (struct passage){read->data + p->image * read->step + place, read->by, read->centre, (v8 *)s->sums + 2 * o};
        if (job->step == 1)
          for (long j = 0; j < n; j++) store_row(out[j] + p->place, &through, y->data + p->image * y->step + place, j * area, p->width);
        else
          for (long j = 0; j < n; j++) store_lanes(out[j] + p->place, &through, read, y, b, p, place + j * area);
      }
    }
}

static void do_block(const struct job *job, const struct scratch *s, long number, float *gradient) {
  const struct call *call = job->call;
  const struct block b = block_of(job, number);
  struct piece pieces[TILE];
  load_planes(job, &b, s->planes);
  if (call->sums) memset(s->sums, 0, 2 * job->out * sizeof(v8));
  for (long i = 0; i < tiles_of(&b); i++) {
    const struct tile tile = tile_of(&b, i);
    const long count = pieces_of(job, &b, &tile, pieces);
    if (gradient) load_read(job, &b, &tile, pieces, count, s->pixels);
    for (long start = 0; start < job->in; start += CHUNK) add_fields(job, &tile, s, start, gradient);
    store_tile(job, &b, &tile, pieces, count, s);
  }
  for (long i = 0; call->sums && i < 2 * job->out; i++) job->sums[number * 2 * job->out + i] = sum_of(((v8 *)s->sums)[i]);
}

static long in_cache_lines(long floats) { return (floats + 15) / 16 * 16; }

/* Floats of scratch space for one thread; and its places, if there is memory for them already. */
static long lay_out(const struct job *job, float *memory, struct scratch *s) {
  const struct plan *plan = job->call->plan;
  const long count = products_of(plan);
  const long sizes[] = {
      job->in * plan->n * plane_of(job),
      MAX_ROWS * plan->n * CHUNK * plan->rows * TILE,
      job->call->gradient ? MAX_ROWS * plan->rows * TILE : 0,
      MAX_ROWS * count * job->out * TILE,
      job->call->gradient ? count * MAX_ROWS * TILE * lanes_of(job) : 0,
      2 * job->out * 8,
      dsfcnn_weights_scratch(job->call->packing, job->out),
  };
  float **places[] = {&s->planes, &s->responses, &s->added, &s->products, &s->pixels, &s->sums, &s->weights};
  long total = 0;
  for (long i = 0; i < 7; i++) {
    *places[i] = memory ? memory + total : NULL;
    total += in_cache_lines(sizes[i]);
  }
  return total;
}

static long matrices_of(const struct job *job) { return job->in * products_of(job->call->plan) * job->call->plan->rows * lanes_of(job); }

/* The same for what all threads share. */
static long lay_out_shared(struct job *job, float *memory) {
  const long packed = in_cache_lines(matrices_of(job)), gradients = job->call->gradient ? in_cache_lines(job->parts.items * matrices_of(job)) : 0;
  const long sums = job->call->sums ? in_cache_lines(job->blocks * job->out * 2 * (sizeof(double) / sizeof(float))) : 0;
  if (memory) {
    job->packed = memory;
    job->gradients = memory + packed;
    job->sums = (double *)(memory + packed + gradients);
    job->scratch = memory + packed + gradients + sums;
  }
  return packed + gradients + sums;
}

/* What one thread does. A part is a block; or, for gradients, a run of blocks with a sum of its own, so that the result does not depend on
 * the number of threads. */
static void work(void *argument, long thread) {
  struct job *job = argument;
  const struct call *call = job->call;
  const long matrices = matrices_of(job), field_size = matrices / job->in, row_size = call->plan->rows * lanes_of(job);
  struct scratch s;
  lay_out(job, job->scratch + thread * job->scratch_size, &s);
  for (long field; (field = take(&job->packing, thread)) >= 0; finish(&job->packing))
    dsfcnn_pack(call->packing, call->weights + field * call->x_step, call->y_step, job->out, job->packed + field * row_size,
                job->in * row_size, s.weights);
  dsfcnn_wait(&job->packing);
  for (long part; (part = take(&job->parts, thread)) >= 0; finish(&job->parts)) {
    float *gradient = call->gradient ? job->gradients + part * matrices : NULL;
    if (gradient) memset(gradient, 0, matrices * sizeof(float));
    for (long number = job->blocks * part / job->parts.items; number < job->blocks * (part + 1) / job->parts.items; number++)
      do_block(job, &s, number, gradient);
  }
  if (!call->gradient) return;
  dsfcnn_wait(&job->parts);
  for (long field; (field = take(&job->unpacking, thread)) >= 0;)
    dsfcnn_unpack(call->packing, job->gradients + field * field_size, job->parts.items, matrices, call->gradient + field * call->x_step,
                  call->y_step, job->out, s.weights);
}

static void add_sums(const struct job *job) {
  for (long i = 0; i < 2 * job->out; i++) {
    double sum = 0;
    for (long block = 0; block < job->blocks; block++) sum += job->sums[block * 2 * job->out + i];
    job->call->sums[i] = sum;
  }
}

static long fields_of(const struct maps *maps) {
  long fields = 0;
  for (long i = 0; i < maps->count; i++) fields += maps->list[i].fields;
  return fields;
}

static void list_fields(const struct call *call, const struct maps *maps, struct field *fields) {
  const long size = call->plan->n * call->height * call->width;
  for (long i = 0, all = 0; i < maps->count; i++)
    for (long field = 0; field < maps->list[i].fields; field++, all++) {
      fields[all] = (struct field){maps->list[i].data + field * size, maps->list[i].fields * size, {0}, 0};
      if (maps->scale) fields[all].by = (struct activation){1, maps->scale[all], maps->shift[all]};
      if (maps->centre) fields[all].centre = maps->centre[all];
    }
}

/* Scratch space is kept from call to call, if it is not too large: a fresh one would be cleared by the system, page by page, every time. */
enum { KEPT = 1 << 25 }; /* bytes */
static struct {
  atomic_flag taken;
  float *memory;
  size_t size;
} kept = {ATOMIC_FLAG_INIT, NULL, 0};

/* Memory in large pages, where the system has them: responses go to many places at once, each in a page of its own otherwise, more than a
 * processor knows the addresses of; and small pages, wherever they lie, may crowd one part of its cache. */
static float *in_large_pages(size_t size) {
  const size_t page = 1 << 21, whole = (size + page - 1) / page * page;
  float *memory = aligned_alloc(page, whole);
#ifdef MADV_HUGEPAGE
  if (memory) madvise(memory, whole, MADV_HUGEPAGE); /* if it cannot be, all is as before */
#endif
  return memory;
}

/* 0, or 1 if there was no memory. */
int dsfcnn_gconv(const struct call *call) {
  struct job job = {.call = call, .in = fields_of(&call->x), .out = fields_of(&call->y)};
  arrange(&job);
  job.blocks = blocks_of(&job);
  job.packing.items = job.unpacking.items = job.in;
  job.parts.items = call->gradient && job.blocks > PARTS ? PARTS : job.blocks;
  job.packing.threads = job.parts.threads = job.unpacking.threads = call->threads;
  struct scratch unused;
  job.scratch_size = lay_out(&job, NULL, &unused);
  const size_t size = (size_t)(lay_out_shared(&job, NULL) + call->threads * job.scratch_size) * sizeof(float);
  const int mine = size <= KEPT && !atomic_flag_test_and_set(&kept.taken);
  float *memory = mine && kept.size >= size ? kept.memory : mine ? in_large_pages(size) : aligned_alloc(64, size);
  if (mine && memory != kept.memory) {
    free(kept.memory);
    kept.memory = memory;
    kept.size = memory ? size : 0;
  }
  struct field *fields = malloc((job.in + 2 * job.out) * sizeof *fields);
  const int failed = !fields || !memory;
  if (!failed) {
    lay_out_shared(&job, memory);
    job.x = fields;
    job.y = fields + job.in;
    list_fields(call, &call->x, job.x);
    list_fields(call, &call->y, job.y);
    if (call->read.count) {
      job.read = job.y + job.out;
      list_fields(call, &call->read, job.read);
    }
    dsfcnn_share(work, &job, call->threads);
    if (call->sums) add_sums(&job);
  }
  free(fields);
  if (mine) {
    atomic_flag_clear(&kept.taken);
  } else {
    free(memory);
  }
  return failed;
}

/* Whether this machine can run what was compiled here; itself made of instructions that every one has. */
#if defined(__x86_64__)
__attribute__((target("arch=x86-64")))
#endif
int dsfcnn_supported(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#ifdef __AVX512F__
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512cd"))
    return 0;
#endif
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return 1;
#endif
}
