/* Weights of a layer to the matrices that mix frequencies, and the gradient back, one input field at a time. */
#pragma once

struct packing {
  const float *table;  /* (products, rows, n, 2): what a row takes of its atom's real and imaginary weight at each offset */
  const long *columns; /* (rows, 2): places of the atom's two parts among the live weights of an offset; -1: frequency 0 has no imaginary part */
  const long *alike;   /* (live, most_alike): weights of the same part and frequency; after the last of them any */
  const float *combine, *combine_back; /* likewise: what a weight of the bank's atom takes of those of the paper's, and the other way; or 0 */
  long most_alike, products, rows, n, live;
};

/* ``weights``: (n, live) of one input field for each of ``out`` output fields, ``step`` floats apart. ``packed``: its rows of every product, (rows,
 * out padded to 8), ``product`` floats apart. ``scratch``: so many floats. */
long dsfcnn_weights_scratch(const struct packing *packing, long out);
void dsfcnn_pack(const struct packing *packing, const float *weights, long step, long out, float *packed, long product, float *scratch);

/* The gradient of that, the sum of some parts (products, rows, out padded to 8), ``part`` floats apart. */
void dsfcnn_unpack(const struct packing *packing, const float *gradient, long parts, long part, float *weights, long step, long out,
                   float *scratch);
