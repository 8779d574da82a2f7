// Kernels that end in an error.
#include <cassert>

//: case fails_address
//: x u32 16 zero
//: fails
//: fails_address<<<1, 32>>>(x)
extern "C" __global__ void fails_address(unsigned *x) { x[(1ull << 36) + threadIdx.x] = 1; }

//: case fails_alignment
//: x u32 16 zero
//: fails
//: fails_alignment<<<1, 32>>>(x)
extern "C" __global__ void fails_alignment(char *x) { *(unsigned *)(x + 1) = threadIdx.x; }

//: case fails_null
//: fails
//: fails_null<<<1, 1>>>(u64 0)
extern "C" __global__ void fails_null(unsigned *x) { *x = *x + 1; }

//: case fails_trap
//: x u32 4 zero
//: fails
//: fails_trap<<<1, 32>>>(x)
extern "C" __global__ void fails_trap(unsigned *x) { if (x[threadIdx.x & 3] == 0 && threadIdx.x == 5) __trap(); }

//: case fails_assert
//: x u32 4 zero
//: fails
//: fails_assert<<<1, 32>>>(x)
extern "C" __global__ void fails_assert(unsigned *x) { assert(x[threadIdx.x & 3] == 1); }

//: case fails_shared
//: x u32 4 zero
//: fails
//: fails_shared<<<1, 32>>>(x, u32 300000)
extern "C" __global__ void fails_shared(unsigned *x, unsigned at) {
    __shared__ unsigned s[32];
    s[threadIdx.x] = 1;
    __syncthreads();
    x[0] = s[threadIdx.x + at];
}
