#define KERNEL extern "C" __global__ void
#define GLOBAL
#define X ((int)(blockIdx.x * blockDim.x + threadIdx.x))
#define Y ((int)(blockIdx.y * blockDim.y + threadIdx.y))
#define Z ((int)(blockIdx.z * blockDim.z + threadIdx.z))
#define fmax fmaxf
#define exp expf
