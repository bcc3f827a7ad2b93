#define KERNEL __kernel void
#define GLOBAL __global
#define X ((int)get_global_id(0))
#define Y ((int)get_global_id(1))
#define Z ((int)get_global_id(2))
