#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>

enum { MAX_THREADS = 64 };

/* Torch's own OpenMP threads, where the loader found them. Threads of ours would compete with them: they spin for a while after each of torch's
 * operations, waiting for the next. */
static void (*openmp)(void (*)(void *), void *, unsigned, unsigned) = NULL;

void dsfcnn_use_openmp(void *gomp_parallel) { openmp = (void (*)(void (*)(void *), void *, unsigned, unsigned))gomp_parallel; }

struct job {
  void (*work)(void *);
  void *data;
};

static void *start(void *job) {
  ((struct job *)job)->work(((struct job *)job)->data);
  return NULL;
}

void dsfcnn_share(void (*work)(void *), void *data, long threads) {
  if (threads <= 1) {
    work(data);
  } else if (openmp) {
    openmp(work, data, (unsigned)threads, 0);
  } else {
    struct job job = {work, data};
    pthread_t helpers[MAX_THREADS];
    long started = 0;
    for (; started < threads - 1 && started < MAX_THREADS; started++)
      if (pthread_create(&helpers[started], NULL, start, &job)) break;
    work(data);
    for (long i = 0; i < started; i++) pthread_join(helpers[i], NULL);
  }
}

void dsfcnn_wait(struct stage *stage) {
  for (long turns = 0; atomic_load(&stage->done) < stage->items; turns++)
    if (turns > 1000) sched_yield(); /* whoever has the last item may need this processor */
}
