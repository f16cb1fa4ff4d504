#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>

enum { MAX_THREADS = 64 };

/* Torch's own OpenMP threads, where the loader found them. Threads of ours would compete with them: they spin for a while after each of torch's
 * operations, waiting for the next. */
static void (*openmp)(void (*)(void *), void *, unsigned, unsigned) = NULL;
static int (*number)(void) = NULL; /* of the thread that asks */

void dsfcnn_use_openmp(void *gomp_parallel, void *omp_get_thread_num) {
  openmp = (void (*)(void (*)(void *), void *, unsigned, unsigned))gomp_parallel;
  number = (int (*)(void))omp_get_thread_num;
}

struct team {
  void (*work)(void *, long);
  void *data;
  atomic_long came;
};

static void *enter(void *argument) {
  struct team *team = argument;
  team->work(team->data, openmp ? number() : atomic_fetch_add(&team->came, 1));
  return NULL;
}

static void enter_openmp(void *team) { enter(team); }

void dsfcnn_share(void (*work)(void *, long), void *data, long threads) {
  struct team team = {work, data, 0};
  if (threads <= 1) {
    work(data, 0);
  } else if (openmp) {
    openmp(enter_openmp, &team, (unsigned)threads, 0);
  } else {
    pthread_t helpers[MAX_THREADS];
    long started = 0;
    for (; started < threads - 1 && started < MAX_THREADS; started++)
      if (pthread_create(&helpers[started], NULL, enter, &team)) break;
    enter(&team);
    for (long i = 0; i < started; i++) pthread_join(helpers[i], NULL);
  }
}

void dsfcnn_wait(struct stage *stage) {
  for (long turns = 0; atomic_load(&stage->done) < stage->items; turns++)
    if (turns > 1000) sched_yield(); /* whoever has the last item may need this processor */
}
