// Copies to shared memory that run beside the threads, and barriers in memory.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

//: case copy_async
//: x f32 2048 random
//: out f32 512 zero result
//: copy_async<<<4, 128>>>(x, out)
extern "C" __global__ void copy_async(const float *x, float *out) {
    __shared__ __align__(16) float s[2][128];
    unsigned t = threadIdx.x;
    const float *mine = x + blockIdx.x * 512;
    auto load = [&](int k) {
        if (t < 32) __pipeline_memcpy_async(&s[k & 1][t * 4], mine + k * 128 + t * 4, 16);
        __pipeline_commit();
    };
    float sum = 0;
    load(0);
    for (int k = 0; k < 4; k++) {
        if (k < 3) { load(k + 1); __pipeline_wait_prior(1); } else __pipeline_wait_prior(0);
        __syncthreads();
        sum += s[k & 1][127 - t] * (k + 1);
        __syncthreads();
    }
    out[blockIdx.x * 128 + t] = sum;
}

//: case copy_async_small
//: x u32 256 random
//: out u32 256 zero result
//: copy_async_small<<<1, 128>>>(x, out)
extern "C" __global__ void copy_async_small(const unsigned *x, unsigned *out) {
    __shared__ __align__(16) unsigned s[256];
    unsigned t = threadIdx.x;
    if (t & 1) __pipeline_memcpy_async(&s[t], x + t, 4);
    else __pipeline_memcpy_async(&s[t], x + t, 4, t % 4);
    __pipeline_memcpy_async(&s[128 + (t & ~1)], x + 128 + (t & ~1), 8);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[t] = s[127 - t];
    out[128 + t] = s[255 - t];
}

//: case block_barrier
//: out u32 128 zero result
//: block_barrier<<<1, 128>>>(out)
extern "C" __global__ void block_barrier(unsigned *out) {
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ unsigned s[128];
    unsigned t = threadIdx.x;
    if (t == 0) init(&barrier, 128);
    __syncthreads();
    unsigned v = t + 1;
    for (int k = 0; k < 5; k++) {
        s[t] = v;
        auto token = barrier.arrive();
        v = v * 3 + k;
        barrier.wait(std::move(token));
        v ^= s[(t * 3 + 1) % 128];
        barrier.arrive_and_wait();
    }
    out[t] = v;
}

//: case group_copy
//: x u32 512 random
//: out u32 512 zero result
//: group_copy<<<2, 64>>>(x, out)
extern "C" __global__ void group_copy(const unsigned *x, unsigned *out) {
    __shared__ __align__(16) unsigned s[256];
    cg::thread_block block = cg::this_thread_block();
    cg::memcpy_async(block, s, x + blockIdx.x * 256, sizeof s);
    cg::wait(block);
    for (unsigned i = threadIdx.x; i < 256; i += 64) out[blockIdx.x * 256 + i] = s[255 - i] + i;
}
