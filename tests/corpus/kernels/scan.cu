// Prefix sums.

//: case scan_hillis_steele
//: x u32 512 random
//: out u32 512 zero result
//: scan_hillis_steele<<<2, 256, 2048>>>(x, out)
extern "C" __global__ void scan_hillis_steele(const unsigned *x, unsigned *out) {
    extern __shared__ unsigned pages[];
    unsigned t = threadIdx.x, n = blockDim.x, in = 0;
    pages[t] = x[blockIdx.x * n + t];
    __syncthreads();
    for (unsigned step = 1; step < n; step *= 2) {
        unsigned v = pages[in * n + t];
        if (t >= step) v += pages[in * n + t - step];
        pages[(1 - in) * n + t] = v;
        in = 1 - in;
        __syncthreads();
    }
    out[blockIdx.x * n + t] = pages[in * n + t];
}

//: case scan_blelloch
//: x s32 1024 random
//: out s32 1024 zero result
//: scan_blelloch<<<2, 256>>>(x, out)
extern "C" __global__ void scan_blelloch(const int *x, int *out) {
    __shared__ int s[512];
    int t = threadIdx.x, base = blockIdx.x * 512, step = 1;
    s[2 * t] = x[base + 2 * t];
    s[2 * t + 1] = x[base + 2 * t + 1];
    for (int d = 256; d > 0; d >>= 1, step *= 2) {
        __syncthreads();
        if (t < d) s[step * (2 * t + 2) - 1] += s[step * (2 * t + 1) - 1];
    }
    if (t == 0) s[511] = 0;
    for (int d = 1; d < 512; d *= 2) {
        step >>= 1;
        __syncthreads();
        if (t < d) {
            int a = step * (2 * t + 1) - 1, b = step * (2 * t + 2) - 1, v = s[a];
            s[a] = s[b];
            s[b] += v;
        }
    }
    __syncthreads();
    out[base + 2 * t] = s[2 * t];
    out[base + 2 * t + 1] = s[2 * t + 1];
}

// Each block publishes its sum, then its prefix, in one word: the upper two bits say which.
//: case scan_look_back
//: x u32 4096 below 100
//: state u64 16 zero
//: next u32 1 zero result
//: out u32 4096 zero result
//: scan_look_back<<<16, 256>>>(x, state, next, out)
extern "C" __global__ void scan_look_back(const unsigned *x, volatile unsigned long long *state,
                                          unsigned *next, unsigned *out) {
    __shared__ unsigned s[256], tile, before;
    unsigned t = threadIdx.x;
    if (t == 0) tile = atomicAdd(next, 1);
    __syncthreads();
    unsigned v = x[tile * 256 + t];
    s[t] = v;
    __syncthreads();
    for (unsigned d = 1; d < 256; d *= 2) {
        unsigned add = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += add;
        __syncthreads();
    }
    if (t == 0) {
        unsigned long long sum = s[255], prefix = 0;
        if (tile > 0) {
            state[tile] = 1ull << 62 | sum;
            __threadfence();
            for (int look = tile - 1; look >= 0;) {
                unsigned long long word = state[look];
                if (word >> 62 == 0) continue;
                prefix += word & 0xffffffff;
                if (word >> 62 == 2) break;
                look--;
            }
        }
        state[tile] = 2ull << 62 | (prefix + sum);
        before = (unsigned)prefix;
    }
    __syncthreads();
    out[tile * 256 + t] = before + s[t];
}

//: case scan_warps
//: x f32 256 random
//: out f32 256 zero result
//: scan_warps<<<2, 128>>>(x, out)
extern "C" __global__ void scan_warps(const float *x, float *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x, lane = threadIdx.x & 31;
    float v = x[i];
    for (unsigned d = 1; d < 32; d *= 2) {
        float up = __shfl_up_sync(~0u, v, d);
        if (lane >= d) v += up;
    }
    out[i] = v;
}

// A sum per segment; a flag starts a segment.
//: case scan_segmented
//: x s32 512 below 1000
//: flag u32 512 below 5
//: out s32 512 zero result
//: scan_segmented<<<1, 512>>>(x, flag, out)
extern "C" __global__ void scan_segmented(const int *x, const unsigned *flag, int *out) {
    __shared__ int value[512];
    __shared__ bool head[512];
    int t = threadIdx.x;
    value[t] = x[t];
    head[t] = flag[t] == 0;
    for (int d = 1; d < 512; d *= 2) {
        __syncthreads();
        int v = value[t];
        bool h = head[t];
        if (t >= d && !h) { v += value[t - d]; h = head[t - d]; }
        __syncthreads();
        value[t] = v;
        head[t] = h;
    }
    out[t] = value[t];
}
