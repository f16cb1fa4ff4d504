/* Work shared by threads: ``work(data, thread)`` runs in all of them at once, and takes its share of the work from ``data``. Threads have numbers
 * 0, 1, ..., each its own; those of OpenMP from call to call the same. */
#pragma once

#include <stdatomic.h>

void dsfcnn_share(void (*work)(void *, long), void *data, long threads);

/* Items that threads take one by one: each a run of its own first, in every call the same part of the whole, for what it left there may still be in
 * its cache, from which another processor would have to fetch it; then what others have not begun. A stage is over when all of its items are done,
 * however many threads came to do them. */
enum { MAX_RUNS = 16 };
struct stage {
  long items, threads;
  atomic_long done;
  struct {
    _Alignas(64) atomic_long taken; /* in a cache line of its own */
  } runs[MAX_RUNS];
};

/* The number of an item, or -1 if none is left; whoever has taken one says when it is done. */
static inline long take(struct stage *stage, long thread) {
  const long runs = stage->threads < MAX_RUNS ? stage->threads : MAX_RUNS;
  for (long i = 0; i < runs; i++) {
    const long run = (thread + i) % runs, end = stage->items * (run + 1) / runs;
    const long item = stage->items * run / runs + atomic_fetch_add(&stage->runs[run].taken, 1);
    if (item < end) return item;
  }
  return -1;
}

static inline void finish(struct stage *stage) { atomic_fetch_add(&stage->done, 1); }

void dsfcnn_wait(struct stage *stage);
