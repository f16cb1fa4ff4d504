/* Weights of a layer to the matrices that mix frequencies, and the gradient back.
 *
 * A row of a product belongs to one atom, so it depends on that atom's weights alone: 2 n numbers (n for frequency 0) for a pair of fields, given by the
 * tables of tables.py. Layers with many fields on small maps spend as long here as on the maps. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "threads.h"
#include "vectors.h"

struct packing {
  const float *table;  /* (products, rows, n, 2): what a row takes of its atom's real and imaginary weight at each offset */
  const long *columns; /* (rows, 2): places of the atom's two parts among the live weights of an offset; -1: frequency 0 has no imaginary part */
  long products, rows, n, live;
};

struct job {
  const struct packing *packing;
  float *weights;        /* (out, in, n, live) by the strides below */
  long out_step, in_step, in, out;
  float *packed;         /* (products, in, rows, lanes) */
  const float *gradient; /* (parts, in, products, rows, lanes), or NULL: pack */
  long parts, lanes; /* output fields padded to 8 */
  float *scratch;        /* per thread: the weights of one input field as (n, live, lanes), and its gradient of all parts */
  atomic_long next, slot;
};

INLINE void add(float *to, const float *from, long count) {
  for (long i = 0; i < count; i += 8) STORE(to + i, LOAD(to + i) + LOAD(from + i));
}

enum { PRODUCTS = 4 }; /* summed at the same time: fewer loads, and no sum waits for itself */

/* Up to PRODUCTS entries, for 8 output fields: sums over offsets of table times weights. */
INLINE void pack_row(const long products, const float *table, long table_step, const float *real, const float *imaginary, long n, long step,
                     float *to, long to_step) {
  v8 sum[PRODUCTS] = {ZERO};
  for (long offset = 0; offset < n; offset++, real += step, imaginary += step) {
    const v8 re = LOAD(real), im = LOAD(imaginary);
#pragma GCC unroll 4
    for (long g = 0; g < products; g++) {
      const float *entry = table + g * table_step + 2 * offset;
      sum[g] += SPLAT(entry[0]) * re;
      sum[g] += SPLAT(entry[1]) * im;
    }
  }
#pragma GCC unroll 4
  for (long g = 0; g < products; g++) STORE(to + g * to_step, sum[g]);
}

static void pack_field(const struct job *job, long field, float *w) {
  const struct packing *p = job->packing;
  const long n = p->n, columns = n * p->live, lanes = job->lanes, step = p->live * lanes;
  const long table_step = p->rows * n * 2, to_step = job->in * p->rows * lanes;
  for (long o = 0; o < job->out; o++)
    for (long c = 0; c < columns; c++) w[c * lanes + o] = job->weights[o * job->out_step + field * job->in_step + c];
  for (long row = 0; row < p->rows; row++) {
    const long real = p->columns[2 * row], imaginary = p->columns[2 * row + 1];
    for (long first = 0; first < p->products; first += PRODUCTS) {
      const float *table = p->table + first * table_step + row * n * 2;
      float *to = job->packed + first * to_step + (field * p->rows + row) * lanes;
      for (long o = 0; o < lanes; o += 8) {
        /* without imaginary part its table is zero, and what that multiplies does not matter */
        const float *re = w + real * lanes + o, *im = imaginary < 0 ? re : w + imaginary * lanes + o;
        switch (p->products - first) {
          case 1: pack_row(1, table, table_step, re, im, n, step, to + o, to_step); break;
          case 2: pack_row(2, table, table_step, re, im, n, step, to + o, to_step); break;
          case 3: pack_row(3, table, table_step, re, im, n, step, to + o, to_step); break;
          default: pack_row(4, table, table_step, re, im, n, step, to + o, to_step);
        }
      }
    }
  }
}

/* The other way: what all products give to the two parts of a weight, at two offsets, for 8 output fields. */
INLINE void unpack_row(const float *table, long table_step, const float *total, long total_step, long products, float *real, float *imaginary,
                       long step) {
  v8 re[2] = {ZERO, ZERO}, im[2] = {ZERO, ZERO};
  for (long g = 0; g < products; g++, table += table_step, total += total_step) {
    const v8 value = LOAD(total);
    for (long i = 0; i < 2; i++) {
      re[i] += SPLAT(table[2 * i]) * value;
      im[i] += SPLAT(table[2 * i + 1]) * value;
    }
  }
  for (long i = 0; i < 2; i++) {
    STORE(real + i * step, LOAD(real + i * step) + re[i]);
    if (imaginary) STORE(imaginary + i * step, LOAD(imaginary + i * step) + im[i]);
  }
}

static void unpack_field(const struct job *job, long field, float *w) {
  const struct packing *p = job->packing;
  const long n = p->n, columns = n * p->live, lanes = job->lanes, step = p->live * lanes, size = p->products * p->rows * lanes;
  float *total = w + columns * lanes;
  memset(w, 0, columns * lanes * sizeof(float));
  memcpy(total, job->gradient + field * size, size * sizeof(float));
  for (long part = 1; part < job->parts; part++) add(total, job->gradient + (part * job->in + field) * size, size);
  for (long row = 0; row < p->rows; row++) /* two rows share an atom */
    for (long o = 0; o < lanes; o += 8)
      for (long offset = 0; offset < n; offset += 2) {
        float *at = w + offset * step + o, *real = at + p->columns[2 * row] * lanes;
        float *imaginary = p->columns[2 * row + 1] < 0 ? NULL : at + p->columns[2 * row + 1] * lanes;
        unpack_row(p->table + (row * n + offset) * 2, p->rows * n * 2, total + row * lanes + o, p->rows * lanes, p->products, real,
                   imaginary, step);
      }
  for (long o = 0; o < job->out; o++)
    for (long c = 0; c < columns; c++) job->weights[o * job->out_step + field * job->in_step + c] = w[c * lanes + o];
}

static long scratch_of(const struct job *job) {
  const struct packing *p = job->packing;
  return (p->n * p->live + (job->gradient ? p->products * p->rows : 0)) * job->lanes;
}

static void work(void *argument) {
  struct job *job = argument;
  float *scratch = job->scratch + atomic_fetch_add(&job->slot, 1) * scratch_of(job);
  for (long field; (field = atomic_fetch_add(&job->next, 1)) < job->in;) (job->gradient ? unpack_field : pack_field)(job, field, scratch);
}

/* With ``gradient``: the sum of its parts, as the gradient of ``weights``; else ``packed`` is made of ``weights``. 0, or 1 if there was no memory. */
int dsfcnn_weights(const struct packing *packing, float *weights, long out_step, long in_step, long in, long out, float *packed,
                   const float *gradient, long parts, long threads) {
  struct job job = {packing, weights, out_step, in_step, in, out, packed, gradient, parts, (out + 7) / 8 * 8, NULL, 0, 0};
  job.scratch = calloc(threads * scratch_of(&job), sizeof(float)); /* lanes past the last output field stay zero */
  if (!job.scratch) return 1;
  dsfcnn_share(work, &job, threads);
  free(job.scratch);
  return 0;
}
