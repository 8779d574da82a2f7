// Counts by atomics in shared and global memory.

//: case histogram_shared
//: x u8 4096 random
//: bins u32 256 zero result
//: histogram_shared<<<4, 128>>>(x, bins, u32 1024)
extern "C" __global__ void histogram_shared(const unsigned *x, unsigned *bins, unsigned n) {
    __shared__ unsigned s[256];
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) s[b] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned v = x[i];
        atomicAdd(&s[v & 255], 1);
        atomicAdd(&s[v >> 8 & 255], 1);
        atomicAdd(&s[v >> 16 & 255], 1);
        atomicAdd(&s[v >> 24], 1);
    }
    __syncthreads();
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) if (s[b]) atomicAdd(&bins[b], s[b]);
}

// Lanes with the same value elect one to add for all.
//: case histogram_matched
//: x u32 2048 below 40
//: bins u32 40 zero result
//: histogram_matched<<<8, 256>>>(x, bins)
extern "C" __global__ void histogram_matched(const unsigned *x, unsigned *bins) {
    unsigned v = x[blockIdx.x * blockDim.x + threadIdx.x], lane = threadIdx.x & 31;
    unsigned same = __match_any_sync(~0u, v);
    if (lane == __ffs(same) - 1) atomicAdd(&bins[v], __popc(same));
}

// Two counters of 16 bits in a word.
//: case histogram_packed
//: x f32 2000 random
//: bins u32 16 zero result
//: histogram_packed<<<2, 1000>>>(x, bins)
extern "C" __global__ void histogram_packed(const float *x, unsigned *bins) {
    int bin = (int)((x[blockIdx.x * blockDim.x + threadIdx.x] + 1) * 16);
    atomicAdd(&bins[bin / 2], bin & 1 ? 1 << 16 : 1);
}
