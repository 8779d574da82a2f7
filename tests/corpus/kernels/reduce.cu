// Sums, minima and dot products by trees, shuffles, atomics and cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

//: case reduce_tree
//: x f32 2048 random
//: out f32 8 zero result
//: reduce_tree<<<8, 256>>>(x, out)
extern "C" __global__ void reduce_tree(const float *x, float *out) {
    __shared__ float part[256];
    unsigned t = threadIdx.x;
    part[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (unsigned step = 128; step > 0; step >>= 1) {
        if (t < step) part[t] += part[t + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

//: case reduce_shuffle
//: x f32 2000 random
//: out f32 4 zero result
//: reduce_shuffle<<<4, 256>>>(x, out, u32 2000)
extern "C" __global__ void reduce_shuffle(const float *x, float *out, unsigned n) {
    __shared__ float warps[32];
    float sum = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
        for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }
}

//: case reduce_atomic
//: x u32 3000 random
//: out u32 4 zero result
//: reduce_atomic<<<6, 512>>>(x, out, u32 3000)
extern "C" __global__ void reduce_atomic(const unsigned *x, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&out[0], x[i]);
    atomicMax(&out[1], x[i]);
    atomicXor(&out[2], x[i]);
    atomicOr(&out[3], 1u << (x[i] & 31));
}

//: case reduce_groups
//: x s32 1024 random
//: out s32 48 zero result
//: reduce_groups<<<2, 512>>>(x, out)
extern "C" __global__ void reduce_groups(const int *x, int *out) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    int v = x[blockIdx.x * 512 + block.thread_rank()];
    int sum = cg::reduce(tile, v, cg::plus<int>());
    auto small = cg::tiled_partition<8>(tile);
    int low = cg::reduce(small, v, cg::less<int>());
    low = cg::reduce(tile, low, cg::greater<int>());
    if (tile.thread_rank() == 0) {
        out[blockIdx.x * 24 + tile.meta_group_rank()] = sum;
        if (tile.meta_group_rank() < 8) out[blockIdx.x * 24 + 16 + tile.meta_group_rank()] = low;
    }
}

//: case reduce_grid
//: x u64 4096 random
//: part u64 16 zero
//: out u64 1 zero result
//: reduce_grid<<<8, 128>>>(x, part, out, u32 4096) cooperative
extern "C" __global__ void reduce_grid(const unsigned long long *x, unsigned long long *part,
                                       unsigned long long *out, unsigned n) {
    cg::grid_group grid = cg::this_grid();
    __shared__ unsigned long long sums[128];
    unsigned long long sum = 0;
    for (unsigned i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i] >> 7;
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) part[blockIdx.x] = sums[0];
    grid.sync();
    if (grid.thread_rank() == 0) {
        for (unsigned b = 1; b < gridDim.x; b++) sum = (b == 1 ? part[0] : sum) + part[b];
        *out = sum;
    }
}

//: case reduce_last_block
//: x f32 4096 random
//: part f32 16 zero
//: count u32 1 zero result
//: out f32 1 zero result
//: reduce_last_block<<<16, 256>>>(x, part, count, out)
extern "C" __global__ void reduce_last_block(const float *x, volatile float *part, unsigned *count, float *out) {
    __shared__ float sums[256];
    __shared__ bool last;
    unsigned t = threadIdx.x;
    sums[t] = x[blockIdx.x * 256 + t];
    for (unsigned step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (t < step) sums[t] += sums[t + step];
    }
    if (t == 0) {
        part[blockIdx.x] = sums[0];
        __threadfence();
        last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        float sum = 0;
        for (unsigned b = 0; b < gridDim.x; b++) sum += part[b];
        *out = sum;
    }
}

//: case dot_f64
//: x f64 1500 random
//: y f64 1500 random
//: out f64 3 zero result
//: dot_f64<<<3, 128>>>(x, y, out, u32 1500)
extern "C" __global__ void dot_f64(const double *x, const double *y, double *out, unsigned n) {
    __shared__ double sums[4];
    double sum = 0;
    for (unsigned i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) sum += x[i] * y[i];
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

//: case arg_max
//: x f32 1024 random
//: value f32 4 zero result
//: place u32 4 zero result
//: arg_max<<<4, 256>>>(x, value, place)
extern "C" __global__ void arg_max(const float *x, float *value, unsigned *place) {
    __shared__ float best[256];
    __shared__ unsigned where[256];
    unsigned t = threadIdx.x;
    best[t] = x[blockIdx.x * 256 + t];
    where[t] = blockIdx.x * 256 + t;
    __syncthreads();
#pragma unroll
    for (unsigned step = 128; step > 0; step /= 2) {
        if (t < step && (best[t + step] > best[t] || (best[t + step] == best[t] && where[t + step] < where[t]))) {
            best[t] = best[t + step];
            where[t] = where[t + step];
        }
        __syncthreads();
    }
    if (t == 0) { value[blockIdx.x] = best[0]; place[blockIdx.x] = where[0]; }
}
