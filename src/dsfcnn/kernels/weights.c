/* A row of a product belongs to one atom, so it depends on that atom's weights alone: 2 n numbers (n for frequency 0) for a pair of fields,
 * given by the tables of tables.py. Layers with many fields on small maps spend as long here as on the maps. */
#include "weights.h"

#include <string.h>

#include "vectors.h"

enum { MAX_PRODUCTS = 11 }; /* summed at the same time: all of C8, and as many sums as registers can hold */

/* Some entries, for 8 output fields: sums over offsets of table times weights. */
INLINE void pack_row(const long products, const float *table, long table_step, const float *real, const float *imaginary, long n, long step,
                     float *to, long to_step) {
  v8 sum[MAX_PRODUCTS];
#pragma GCC unroll 11
  for (long g = 0; g < products; g++) sum[g] = ZERO;
  for (long offset = 0; offset < n; offset++, real += step, imaginary += step) {
    const v8 re = LOAD(real), im = LOAD(imaginary);
#pragma GCC unroll 11
    for (long g = 0; g < products; g++) sum[g] += SPLAT(table[g * table_step + 2 * offset]) * re;
#pragma GCC unroll 11
    for (long g = 0; g < products; g++) sum[g] += SPLAT(table[g * table_step + 2 * offset + 1]) * im;
  }
#pragma GCC unroll 11
  for (long g = 0; g < products; g++) STORE(to + g * to_step, sum[g]);
}

static void pack_rows(long products, const float *table, long table_step, const float *real, const float *imaginary, long n, long step,
                      float *to, long to_step) {
#define CASE(count) \
  case count: \
    pack_row(count, table, table_step, real, imaginary, n, step, to, to_step); \
    break;
  switch (products) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) }
#undef CASE
}

static long lanes_of(long out) { return (out + 7) / 8 * 8; }

long dsfcnn_weights_scratch(const struct packing *p, long out) { return (2 * p->n * p->live + p->products * p->rows) * lanes_of(out); }

/* Weights (n, live, lanes) of some atoms to those of others that combine from them, from a constant number of them. */
INLINE void combine_n(const long most, const struct packing *p, const float *by, const float *from, long lanes, float *to) {
  const long step = p->live * lanes;
  for (long c = 0; c < p->live; c++, by += most)
    for (long o = 0; o < lanes; o += 8)
      for (long offset = 0; offset < p->n; offset++) {
        v8 sum = ZERO;
#pragma GCC unroll 5
        for (long i = 0; i < most; i++) sum += SPLAT(by[i]) * LOAD(from + offset * step + p->alike[c * most + i] * lanes + o);
        STORE(to + offset * step + c * lanes + o, sum);
      }
}

static void combine(const struct packing *p, const float *by, const float *from, long lanes, float *to) {
#define CASE(most) \
  case most: \
    combine_n(most, p, by, from, lanes, to); \
    break;
  switch (p->most_alike) { CASE(2) CASE(3) CASE(4) CASE(5) }
#undef CASE
}

void dsfcnn_pack(const struct packing *p, const float *weights, long weights_step, long out, float *packed, long product, float *scratch) {
  const long n = p->n, columns = n * p->live, lanes = lanes_of(out), step = p->live * lanes, table_step = p->rows * n * 2;
  float *read = scratch + columns * lanes;
  for (long c = 0; c < columns; c++)
    for (long o = 0; o < lanes; o++) read[c * lanes + o] = o < out ? weights[o * weights_step + c] : 0;
  combine(p, p->combine, read, lanes, scratch);
  for (long row = 0; row < p->rows; row++) {
    const long real = p->columns[2 * row], imaginary = p->columns[2 * row + 1];
    for (long first = 0; first < p->products; first += MAX_PRODUCTS) {
      const long now = p->products - first < MAX_PRODUCTS ? p->products - first : MAX_PRODUCTS;
      for (long o = 0; o < lanes; o += 8) {
        /* without imaginary part its table is zero, and what that multiplies does not matter */
        const float *re = scratch + real * lanes + o, *im = imaginary < 0 ? re : scratch + imaginary * lanes + o;
        pack_rows(now, p->table + first * table_step + row * n * 2, table_step, re, im, n, step, packed + first * product + row * lanes + o,
                  product);
      }
    }
  }
}

/* The other way: what all products give to the two parts of a weight, at some offsets, for 8 output fields. */
INLINE void unpack_row(const long offsets, const float *table, long table_step, const float *total, long total_step, long products,
                       float *real, float *imaginary, long step) {
  v8 re[4] = {ZERO}, im[4] = {ZERO};
  for (long g = 0; g < products; g++, table += table_step, total += total_step) {
    const v8 value = LOAD(total);
#pragma GCC unroll 4
    for (long i = 0; i < offsets; i++) {
      re[i] += SPLAT(table[2 * i]) * value;
      im[i] += SPLAT(table[2 * i + 1]) * value;
    }
  }
#pragma GCC unroll 4
  for (long i = 0; i < offsets; i++) {
    STORE(real + i * step, LOAD(real + i * step) + re[i]);
    if (imaginary) STORE(imaginary + i * step, LOAD(imaginary + i * step) + im[i]);
  }
}

void dsfcnn_unpack(const struct packing *p, const float *gradient, long parts, long part, float *weights, long weights_step, long out,
                   float *scratch) {
  const long n = p->n, columns = n * p->live, lanes = lanes_of(out), step = p->live * lanes, size = p->products * p->rows * lanes;
  const long at_once = n % 4 ? 2 : 4;
  float *written = scratch + columns * lanes, *total = written + columns * lanes;
  memset(scratch, 0, columns * lanes * sizeof(float));
  memcpy(total, gradient, size * sizeof(float));
  for (long i = 1; i < parts; i++)
    for (long k = 0; k < size; k += 8) STORE(total + k, LOAD(total + k) + LOAD(gradient + i * part + k));
  for (long row = 0; row < p->rows; row++) /* two rows share an atom */
    for (long o = 0; o < lanes; o += 8)
      for (long offset = 0; offset < n; offset += at_once) {
        const float *table = p->table + (row * n + offset) * 2, *from = total + row * lanes + o;
        float *at = scratch + offset * step + o, *real = at + p->columns[2 * row] * lanes;
        float *imaginary = p->columns[2 * row + 1] < 0 ? NULL : at + p->columns[2 * row + 1] * lanes;
        if (at_once == 4)
          unpack_row(4, table, p->rows * n * 2, from, p->rows * lanes, p->products, real, imaginary, step);
        else
          unpack_row(2, table, p->rows * n * 2, from, p->rows * lanes, p->products, real, imaginary, step);
      }
  combine(p, p->combine_back, scratch, lanes, written);
  for (long o = 0; o < out; o++)
    for (long c = 0; c < columns; c++) weights[o * weights_step + c] = written[c * lanes + o];
}
