/* What surrounds a G-convolution, one pass over memory each: moments of fields, and batch norm with ReLU as one step.
 *
 * Maps are (images, fields, size) with ``size`` = orientations x height x width; every field has its own numbers. Sums are taken field by field
 * in a fixed order, in float over short blocks and in double over those, so they do not depend on the number of threads. */
#include <string.h>

#include "threads.h"
#include "vectors.h"

enum { BLOCK = 2048 }; /* numbers that are summed in float */

struct call {
  void (*item)(const struct call *, long image, long field);
  const float *x, *gradient, *centre, *scale, *shift;
  float *y;
  double *sums; /* (images, fields, 2) */
  long images, fields, size;
  struct stage all; /* of images x fields */
};

static void work(void *argument, long thread) {
  struct call *call = argument;
  for (long i; (i = take(&call->all, thread)) >= 0;) call->item(call, i / call->fields, i % call->fields);
}

INLINE v8 load_some(const float *p, long count) {
  float some[8] = {0};
  memcpy(some, p, count * sizeof(float));
  return LOAD(some);
}

INLINE void store_some(float *p, v8 v, long count) {
  float some[8];
  STORE(some, v);
  memcpy(p, some, count * sizeof(float));
}

/* Sums of x - centre and of its square, where ``centre`` is the field's first number: near enough to its mean for the difference of the two
 * sums to keep its digits. */
static void moments_item(const struct call *call, long image, long field) {
  const float *x = call->x + (image * call->fields + field) * call->size;
  const v8 centre = SPLAT(call->x[field * call->size]); /* the same in every image */
  double sum = 0, square = 0;
  for (long start = 0; start < call->size; start += BLOCK) {
    const long end = call->size - start < BLOCK ? call->size : start + BLOCK;
    v8 s = ZERO, t = ZERO, q = ZERO, r = ZERO;
    long i = start;
    for (; i + 16 <= end; i += 16) {
      v8 a = LOAD(x + i) - centre, b = LOAD(x + i + 8) - centre;
      s += a;
      t += b;
      q += a * a;
      r += b * b;
    }
    for (; i < end; i++) {
      float a = x[i] - centre[0];
      s[0] += a;
      q[0] += a * a;
    }
    sum += sum_of(s + t);
    square += sum_of(q + r);
  }
  double *to = call->sums + 2 * (image * call->fields + field);
  to[0] = sum;
  to[1] = square;
}

void dsfcnn_moments(const float *x, double *sums, long images, long fields, long size, long threads) {
  struct call call = {moments_item, x, 0, 0, 0, 0, 0, sums, images, fields, size, {images * fields, threads}};
  dsfcnn_share(work, &call, threads);
}

/* y = scale x + shift, then ReLU unless ``linear``. */
INLINE void affine(const struct call *call, long image, long field, int linear) {
  const long at = (image * call->fields + field) * call->size;
  const float *x = call->x + at;
  float *y = call->y + at;
  const v8 scale = SPLAT(call->scale[field]), shift = SPLAT(call->shift[field]);
  long i = 0;
  for (; i + 8 <= call->size; i += 8) {
    v8 z = scale * LOAD(x + i) + shift;
    STORE(y + i, linear ? z : relu(z));
  }
  if (i < call->size) {
    v8 z = scale * load_some(x + i, call->size - i) + shift;
    store_some(y + i, linear ? z : relu(z), call->size - i);
  }
}

static void affine_item(const struct call *call, long image, long field) { affine(call, image, field, 1); }
static void activate_item(const struct call *call, long image, long field) { affine(call, image, field, 0); }

void dsfcnn_affine(const float *x, float *y, const float *scale, const float *shift, int linear, long images, long fields, long size, long threads) {
  struct call call = {linear ? affine_item : activate_item, x, 0, 0, scale, shift, y, 0, images, fields, size, {images * fields, threads}};
  dsfcnn_share(work, &call, threads);
}

/* The gradient of relu(scale (x - centre) + beta): to x in y; sums of what passes the ReLU, and of that times x - centre. */
static void activate_back_item(const struct call *call, long image, long field) {
  const long at = (image * call->fields + field) * call->size;
  const float *x = call->x + at, *gradient = call->gradient + at;
  float *y = call->y + at;
  const v8 scale = SPLAT(call->scale[field]), shift = SPLAT(call->shift[field]), centre = SPLAT(call->centre[field]);
  double sum = 0, product = 0;
  for (long start = 0; start < call->size; start += BLOCK) {
    const long end = call->size - start < BLOCK ? call->size : start + BLOCK;
    v8 s = ZERO, p = ZERO;
    for (long i = start; i < end; i += 8) {
      const long count = end - i < 8 ? end - i : 8;
      v8 value = count == 8 ? LOAD(x + i) : load_some(x + i, count);
      v8 passed = relu_back(scale * value + shift, count == 8 ? LOAD(gradient + i) : load_some(gradient + i, count));
      s += passed;
      p += passed * (value - centre);
      if (count == 8) {
        STORE(y + i, scale * passed);
      } else {
        store_some(y + i, scale * passed, count);
      }
    }
    sum += sum_of(s);
    product += sum_of(p);
  }
  double *to = call->sums + 2 * (image * call->fields + field);
  to[0] = sum;
  to[1] = product;
}

void dsfcnn_activate_back(const float *x, const float *gradient, float *y, const float *centre, const float *scale, const float *shift, double *sums,
                          long images, long fields, long size, long threads) {
  struct call call = {activate_back_item, x, gradient, centre, scale, shift, y, sums, images, fields, size, {images * fields, threads}};
  dsfcnn_share(work, &call, threads);
}
