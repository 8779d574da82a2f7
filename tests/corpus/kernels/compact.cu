// Selection and partition.

//: case compact_ordered
//: x s32 1024 random
//: out s32 1024 zero result
//: count u32 1 zero result
//: compact_ordered<<<1, 1024>>>(x, out, count)
extern "C" __global__ void compact_ordered(const int *x, int *out, unsigned *count) {
    __shared__ unsigned warps[32];
    unsigned t = threadIdx.x, lane = t & 31;
    bool keep = x[t] > 0 && x[t] % 3 != 0;
    unsigned kept = __ballot_sync(~0u, keep);
    if (lane == 0) warps[t / 32] = __popc(kept);
    __syncthreads();
    if (t < 32) {
        unsigned v = warps[t];
        for (int d = 1; d < 32; d *= 2) {
            unsigned up = __shfl_up_sync(~0u, v, d);
            if (lane >= d) v += up;
        }
        warps[t] = v;
    }
    __syncthreads();
    unsigned before = (t >= 32 ? warps[t / 32 - 1] : 0) + __popc(kept & ((1u << lane) - 1));
    if (keep) out[before] = x[t];
    if (t == 1023) *count = warps[31];
}

// One atomic for the lanes that are active; the order of warps is open.
//: case compact_aggregated
//: x u32 2000 random
//: out u32 2000 zero result sorted
//: count u32 1 zero result
//: compact_aggregated<<<8, 250>>>(x, out, count)
extern "C" __global__ void compact_aggregated(const unsigned *x, unsigned *out, unsigned *count) {
    unsigned v = x[blockIdx.x * blockDim.x + threadIdx.x];
    if (v % 5 < 2) {
        unsigned active = __activemask(), lane = threadIdx.x & 31, leader = __ffs(active) - 1, at;
        if (lane == leader) at = atomicAdd(count, __popc(active));
        at = __shfl_sync(active, at, leader);
        out[at + __popc(active & ((1u << lane) - 1))] = v;
    }
}

//: case partition
//: x f32 512 random result
//: below u32 1 zero result
//: partition<<<1, 512>>>(x, below, f32 0.25)
extern "C" __global__ void partition(float *x, unsigned *below, float pivot) {
    __shared__ unsigned total;
    unsigned t = threadIdx.x;
    float v = x[t];
    unsigned low = v < pivot, before = 0;
    if (t == 0) total = 0;
    unsigned all = __syncthreads_count(low);
    for (unsigned j = 0; j < t; j++) before += x[j] < pivot;
    __syncthreads();
    x[low ? before : all + t - before] = v;
    if (low) atomicAdd(&total, 1);
    __syncthreads();
    if (t == 0) *below = total;
}

//: case unique
//: x u16 256 below 40
//: out u16 256 zero result
//: count u32 1 zero result
//: unique<<<1, 256>>>(x, out, count)
extern "C" __global__ void unique(const unsigned short *x, unsigned short *out, unsigned *count) {
    __shared__ unsigned seen[256];
    unsigned t = threadIdx.x, before = 0;
    bool first = true;
    for (unsigned j = 0; j < t; j++) first &= x[j] != x[t];
    seen[t] = first;
    __syncthreads();
    for (unsigned j = 0; j < t; j++) before += seen[j];
    if (first) out[before] = x[t];
    if (t == 255) *count = before + first;
}

// The k greatest of each row by a heap in local memory.
//: case greatest
//: x s32 2048 random
//: out s32 256 zero result
//: greatest<<<1, 32>>>(x, out)
extern "C" __global__ void greatest(const int *x, int *out) {
    int heap[8];
    for (int i = 0; i < 8; i++) heap[i] = -2147483647 - 1;
    for (int i = 0; i < 64; i++) {
        int v = x[threadIdx.x * 64 + i];
        if (v <= heap[0]) continue;
        int at = 0;
        while (true) {
            int child = 2 * at + 1;
            if (child >= 8) break;
            if (child + 1 < 8 && heap[child + 1] < heap[child]) child++;
            if (heap[child] >= v) break;
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = v;
    }
    for (int i = 0; i < 8; i++) out[threadIdx.x * 8 + i] = heap[i];
}

//: case bisection
//: x u32 500 linear 7 13
//: key u32 300 below 7000
//: out u32 300 zero result
//: bisection<<<3, 100>>>(x, key, out, u32 500)
extern "C" __global__ void bisection(const unsigned *x, const unsigned *key, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, low = 0, high = n;
    while (low < high) {
        unsigned middle = (low + high) >> 1;
        if (x[middle] < key[i]) low = middle + 1;
        else high = middle;
    }
    out[i] = low;
}
