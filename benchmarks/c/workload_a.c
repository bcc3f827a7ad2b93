/* Workload A, as small as it can be: what a program for this one model reaches.

   One function, at most INSTANCES at once, lost when all are busy, the most recently used idle instance first. Two
   ways to end an idle instance: an event of its own in the heap, or a look at the next arrival. Same answers.
   Built by c_programs.py, which gives the constants. */
#include <stddef.h>
#include <stdint.h>

typedef struct { double at; int64_t what; } event;
typedef struct { int64_t cold, rejected; double latency_sum_s; } answer;

enum { RING = 256, ROOM = 8192 }; /* idle instances; events: one per idle period of the last KEEP_ALIVE_S */

static event heap[ROOM];
static int size;

static inline int before(event a, event b) { return a.at < b.at || (a.at == b.at && a.what < b.what); }

static inline void push(event e) {
  int i = size++;
  while (i > 0) {
    int above = (i - 1) >> 1;
    if (before(heap[above], e)) break;
    heap[i] = heap[above];
    i = above;
  }
  heap[i] = e;
}

static inline event pop(void) {
  event top = heap[0], e = heap[--size];
  int i = 0;
  for (;;) {
    int below = 2 * i + 1;
    if (below >= size) break;
    if (below + 1 < size && before(heap[below + 1], heap[below])) below++;
    if (before(e, heap[below])) break;
    heap[i] = heap[below];
    i = below;
  }
  heap[i] = e;
  return top;
}

/* When a run that is started now begins: where no instance is idle, one starts first. */
#define BEGIN(now, length, out) ((length) > 0 ? ((length)--, (now)) : ((out)->cold++, (now) + COLD_S))

void a_events(const double *arrivals, const double *factors, size_t count, answer *out) {
  static int64_t idle[RING];
  int first = 0, length = 0, busy = 0;
  int64_t stamp = 0;
  size = 0;
  *out = (answer){0};
  for (size_t i = 0; i < count; i++) {
    double now = arrivals[i];
    while (size > 0 && heap[0].at <= now) {
      event e = pop();
      if (e.what & 1) { /* the keep-alive of an idle period; stale if the instance was used since */
        if (length > 0 && idle[first & (RING - 1)] == e.what >> 1) first++, length--;
      } else {
        busy--;
        idle[(first + length++) & (RING - 1)] = ++stamp;
        push((event){e.at + KEEP_ALIVE_S, stamp * 2 + 1});
      }
    }
    if (busy >= INSTANCES) {
      out->rejected++;
      continue;
    }
    double end = BEGIN(now, length, out) + MEAN_S * factors[i];
    busy++;
    out->latency_sum_s += end - now;
    push((event){end, ++stamp * 2});
  }
}

void a_lazy(const double *arrivals, const double *factors, size_t count, answer *out) {
  static double idle[RING];
  int first = 0, length = 0, busy = 0;
  size = 0;
  *out = (answer){0};
  for (size_t i = 0; i < count; i++) {
    double now = arrivals[i];
    while (size > 0 && heap[0].at <= now) {
      event e = pop();
      busy--;
      idle[(first + length++) & (RING - 1)] = e.at + KEEP_ALIVE_S;
    }
    while (length > 0 && idle[first & (RING - 1)] <= now) first++, length--;
    if (busy >= INSTANCES) {
      out->rejected++;
      continue;
    }
    double end = BEGIN(now, length, out) + MEAN_S * factors[i];
    busy++;
    out->latency_sum_s += end - now;
    push((event){end, (int64_t)i});
  }
}
