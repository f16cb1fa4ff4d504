/* Max-pooling by 2 of planes with even height and width. torch's walks pixel by pixel, and in training keeps an index of 8 bytes for each result; here
 * the backward pass looks again where the largest number was. Of equal ones the first counts, row by row, as in torch. */
#include "threads.h"
#include "vectors.h"

struct job {
  const float *x, *gradient; /* gradient of y, or NULL in the forward pass */
  float *y;                  /* or the gradient of x */
  long height, width;
  struct stage planes;
};

INLINE v8 evens(v8 a, v8 b) { return __builtin_shuffle(a, b, (v8_mask){0, 2, 4, 6, 8, 10, 12, 14}); }
INLINE v8 odds(v8 a, v8 b) { return __builtin_shuffle(a, b, (v8_mask){1, 3, 5, 7, 9, 11, 13, 15}); }
INLINE v8 lower(v8 a, v8 b) { return __builtin_shuffle(a, b, (v8_mask){0, 8, 1, 9, 2, 10, 3, 11}); }
INLINE v8 upper(v8 a, v8 b) { return __builtin_shuffle(a, b, (v8_mask){4, 12, 5, 13, 6, 14, 7, 15}); }
INLINE v8 choose(v8_mask where, v8 a, v8 b) { return (v8)((where & (v8_mask)a) | (~where & (v8_mask)b)); }

/* b where it is larger, or no number; so a NaN is kept, and of equal numbers the first. */
INLINE v8_mask second_wins(v8 a, v8 b) { return (b > a) | (b != b); }
INLINE int second_wins_one(float a, float b) { return b > a || b != b; }

static void pool_row(const float *top, const float *bottom, float *y, long width) {
  long i = 0;
  for (; i + 16 <= width; i += 16) {
    const v8 a = LOAD(top + i), b = LOAD(top + i + 8), c = LOAD(bottom + i), d = LOAD(bottom + i + 8);
    const v8 corners[4] = {evens(a, b), odds(a, b), evens(c, d), odds(c, d)};
    v8 best = corners[0];
    for (long k = 1; k < 4; k++) best = choose(second_wins(best, corners[k]), corners[k], best);
    STORE(y + i / 2, best);
  }
  for (; i < width; i += 2) {
    const float corners[4] = {top[i], top[i + 1], bottom[i], bottom[i + 1]};
    float best = corners[0];
    for (long k = 1; k < 4; k++)
      if (second_wins_one(best, corners[k])) best = corners[k];
    y[i / 2] = best;
  }
}

static void pool_row_back(const float *top, const float *bottom, const float *gradient, float *to_top, float *to_bottom, long width) {
  long i = 0;
  for (; i + 16 <= width; i += 16) {
    const v8 a = LOAD(top + i), b = LOAD(top + i + 8), c = LOAD(bottom + i), d = LOAD(bottom + i + 8), g = LOAD(gradient + i / 2);
    const v8 corners[4] = {evens(a, b), odds(a, b), evens(c, d), odds(c, d)};
    v8 best = corners[0], given[4] = {g, ZERO, ZERO, ZERO};
    for (long k = 1; k < 4; k++) {
      const v8_mask wins = second_wins(best, corners[k]);
      best = choose(wins, corners[k], best);
      for (long before = 0; before < k; before++) given[before] = choose(wins, ZERO, given[before]);
      given[k] = choose(wins, g, ZERO);
    }
    STORE(to_top + i, lower(given[0], given[1]));
    STORE(to_top + i + 8, upper(given[0], given[1]));
    STORE(to_bottom + i, lower(given[2], given[3]));
    STORE(to_bottom + i + 8, upper(given[2], given[3]));
  }
  for (; i < width; i += 2) {
    const float corners[4] = {top[i], top[i + 1], bottom[i], bottom[i + 1]};
    float *to[4] = {to_top + i, to_top + i + 1, to_bottom + i, to_bottom + i + 1};
    long best = 0;
    for (long k = 1; k < 4; k++)
      if (second_wins_one(corners[best], corners[k])) best = k;
    for (long k = 0; k < 4; k++) *to[k] = k == best ? gradient[i / 2] : 0.0f;
  }
}

static void work(void *argument, long thread) {
  struct job *job = argument;
  const long size = job->height * job->width;
  for (long plane; (plane = take(&job->planes, thread)) >= 0;)
    for (long row = 0; row < job->height; row += 2) {
      const float *top = job->x + plane * size + row * job->width, *bottom = top + job->width;
      const long small = plane * (size / 4) + row / 2 * (job->width / 2), large = plane * size + row * job->width;
      if (job->gradient) {
        pool_row_back(top, bottom, job->gradient + small, job->y + large, job->y + large + job->width, job->width);
      } else {
        pool_row(top, bottom, job->y + small, job->width);
      }
    }
}

void dsfcnn_max_pool(const float *x, const float *gradient, float *y, long planes, long height, long width, long threads) {
  struct job job = {x, gradient, y, height, width, {planes, threads}};
  dsfcnn_share(work, &job, threads);
}
