/* Work shared by threads: ``work(data)`` runs in all of them at once, and takes its share of the work from ``data``. */
#pragma once

#include <stdatomic.h>

void dsfcnn_share(void (*work)(void *), void *data, long threads);

/* Items that threads take one by one. A stage is over when all of its items are done, however many threads came to do them. */
struct stage {
  long items;
  atomic_long taken, done;
};

/* The number of an item, or -1 if none is left; whoever has taken one says when it is done. */
static inline long take(struct stage *stage) {
  const long item = atomic_fetch_add(&stage->taken, 1);
  return item < stage->items ? item : -1;
}

static inline void finish(struct stage *stage) { atomic_fetch_add(&stage->done, 1); }

void dsfcnn_wait(struct stage *stage);
