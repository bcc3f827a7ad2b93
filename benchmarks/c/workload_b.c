/* Workload B, as small as it can be: the physical limit that the compiled core is measured against.

   A chain of STAGES functions on NODES nodes of VCPUS vCPUs, one global queue, the warm node with the most free vCPUs
   first, else the emptiest. The placement is inlined (b_inlined) or called through a pointer (b_pointer).
   Built by c_programs.py, which gives the constants. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef struct { double at; int64_t order; uint64_t what; } event; /* what: task * NODES + node */
typedef struct { int64_t cold, rejected; double latency_sum_s; } answer;
typedef int placement(int function, const int *free, const int *warm);

enum { KEYS = NODES * STAGES, ROOM = 2 * NODES * VCPUS, RING = 1 << 17, IDLE = 2 * VCPUS };

static event heap[ROOM];
static int size;
static double expiry_at[RING];
static int expiry_key[RING];
static int64_t expiry_stamp[RING], idle[KEYS][IDLE];
static uint64_t queue[RING]; /* tasks: request * STAGES + stage */

static inline int before(const event *a, const event *b) {
  return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static inline void push(event e) {
  int i = size++;
  while (i > 0) {
    int above = (i - 1) >> 1;
    if (before(&heap[above], &e)) break;
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
    if (below + 1 < size && before(&heap[below + 1], &heap[below])) below++;
    if (before(&e, &heap[below])) break;
    heap[i] = heap[below];
    i = below;
  }
  heap[i] = e;
  return top;
}

static inline int pick(int function, const int *free, const int *warm) {
  int best = -1, most = 0;
  for (int node = 0; node < NODES; node++) {
    if (free[node]) {
      int score = free[node] + (warm[node * STAGES + function] ? 1000 : 0);
      if (score > most) most = score, best = node;
    }
  }
  return best;
}

static int pick_apart(int function, const int *free, const int *warm) { return pick(function, free, warm); }
static placement *volatile pointer = pick_apart;

static inline __attribute__((always_inline)) void run(
    const double *arrivals, const double *factors, size_t count, answer *out, placement *place) {
  int free[NODES], warm[KEYS] = {0}, oldest[KEYS] = {0};
  for (int i = 0; i < NODES; i++) free[i] = VCPUS;
  int expiry = 0, expiries = 0, first = 0, waiting = 0, left = NODES * VCPUS;
  int64_t order = 0, stamp = 0;
  size_t next = 0;
  size = 0;
  *out = (answer){0};
  for (;;) {
    double arrival = next < count ? arrivals[next] : INFINITY, due = size ? heap[0].at : INFINITY, now;
    if (arrival <= due) {
      if (arrival == INFINITY) return;
      now = arrival;
      queue[(first + waiting++) & (RING - 1)] = next++ * STAGES;
    } else {
      event e = pop();
      now = e.at;
      int node = e.what % NODES;
      uint64_t task = e.what / NODES;
      int function = task % STAGES, key = node * STAGES + function;
      free[node]++, left++, stamp++;
      idle[key][(oldest[key] + warm[key]++) & (IDLE - 1)] = stamp;
      int i = (expiry + expiries++) & (RING - 1);
      expiry_at[i] = now + KEEP_ALIVE_S, expiry_key[i] = key, expiry_stamp[i] = stamp;
      if (function == STAGES - 1) out->latency_sum_s += now - arrivals[task / STAGES];
      else queue[(first + waiting++) & (RING - 1)] = task + 1;
    }
    while (expiries > 0 && expiry_at[expiry] <= now) {
      int key = expiry_key[expiry];
      int64_t mark = expiry_stamp[expiry];
      expiry = (expiry + 1) & (RING - 1), expiries--;
      if (warm[key] > 0 && idle[key][oldest[key] & (IDLE - 1)] == mark) oldest[key]++, warm[key]--;
    }
    while (waiting > 0 && left > 0) {
      uint64_t task = queue[first];
      first = (first + 1) & (RING - 1), waiting--;
      int function = task % STAGES, node = place(function, free, warm), key = node * STAGES + function;
      double begins = now;
      if (warm[key] > 0) warm[key]--;
      else out->cold++, begins += COLD_S;
      free[node]--, left--;
      push((event){begins + MEAN_S * factors[task], ++order, task * NODES + node});
    }
  }
}

void b_inlined(const double *arrivals, const double *factors, size_t count, answer *out) {
  run(arrivals, factors, count, out, pick);
}

void b_pointer(const double *arrivals, const double *factors, size_t count, answer *out) {
  run(arrivals, factors, count, out, pointer);
}
