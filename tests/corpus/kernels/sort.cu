// Sorts.

//: case sort_bitonic
//: x u32 1024 random result
//: sort_bitonic<<<1, 512>>>(x)
extern "C" __global__ void sort_bitonic(unsigned *x) {
    __shared__ unsigned s[1024];
    unsigned t = threadIdx.x;
    s[t] = x[t];
    s[t + 512] = x[t + 512];
    for (unsigned size = 2; size <= 1024; size *= 2)
        for (unsigned step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            unsigned a = 2 * t - (t & (step - 1)), b = a + step;
            bool up = (a & size) == 0;
            if ((s[a] > s[b]) == up) { unsigned v = s[a]; s[a] = s[b]; s[b] = v; }
        }
    __syncthreads();
    x[t] = s[t];
    x[t + 512] = s[t + 512];
}

//: case sort_odd_even
//: x f32 300 random result
//: sort_odd_even<<<1, 160>>>(x, u32 300)
extern "C" __global__ void sort_odd_even(float *x, unsigned n) {
    for (unsigned round = 0; round < n; round++) {
        unsigned a = 2 * threadIdx.x + (round & 1);
        if (a + 1 < n && x[a] > x[a + 1]) { float v = x[a]; x[a] = x[a + 1]; x[a + 1] = v; }
        __syncthreads();
    }
}

// Each thread finds its element's place in the other run by bisection.
//: case sort_merge
//: x s32 1024 below 500 result
//: y s32 1024 zero
//: for k 0 10: sort_merge<<<4, 256>>>(x, y, u32 {k})
extern "C" __global__ void sort_merge(int *x, int *y, unsigned k) {
    int *from = k & 1 ? y : x, *to = k & 1 ? x : y;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, run = 1u << k;
    unsigned mine = i & ~(2 * run - 1), right = (i >> k) & 1;
    unsigned other = mine + (right ? 0 : run), low = 0, high = run;
    int v = from[i];
    while (low < high) {
        unsigned middle = (low + high) / 2;
        bool before = right ? from[other + middle] <= v : from[other + middle] < v;
        if (before) low = middle + 1; else high = middle;
    }
    to[mine + (i & (run - 1)) + low] = v;
}

//: case sort_radix
//: key u32 512 random result
//: value u32 512 iota result
//: sort_radix<<<1, 512>>>(key, value)
extern "C" __global__ void sort_radix(unsigned *key, unsigned *value) {
    __shared__ unsigned keys[512], values[512], ones[512];
    unsigned t = threadIdx.x;
    unsigned k = key[t], v = value[t];
    for (int bit = 0; bit < 32; bit++) {
        unsigned one = k >> bit & 1;
        ones[t] = one;
        __syncthreads();
        for (unsigned d = 1; d < 512; d *= 2) {
            unsigned add = t >= d ? ones[t - d] : 0;
            __syncthreads();
            ones[t] += add;
            __syncthreads();
        }
        unsigned total = ones[511], rank = ones[t] - one;
        unsigned to = one ? 512 - total + rank : t - rank;
        keys[to] = k;
        values[to] = v;
        __syncthreads();
        k = keys[t];
        v = values[t];
        __syncthreads();
    }
    key[t] = k;
    value[t] = v;
}

//: case sort_rank
//: x s32 400 below 100
//: out s32 400 zero result
//: sort_rank<<<4, 100>>>(x, out, s32 400)
extern "C" __global__ void sort_rank(const int *x, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, rank = 0;
    for (int j = 0; j < n; j++) rank += x[j] < x[i] || (x[j] == x[i] && j < i);
    out[rank] = x[i];
}

// A warp sorts 32 keys in registers.
//: case sort_warp
//: x u64 256 random result
//: sort_warp<<<2, 128>>>(x)
extern "C" __global__ void sort_warp(unsigned long long *x) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    unsigned long long v = x[i];
    for (unsigned size = 2; size <= 32; size *= 2)
        for (unsigned step = size / 2; step; step /= 2) {
            unsigned long long o = __shfl_xor_sync(~0u, v, step);
            bool low = (lane & step) == 0, up = (lane & size) == 0;
            v = (low == up) == (o < v) ? o : v;
        }
    x[i] = v;
}

// Quicksort by each thread over its own row, with a stack of ranges in local memory.
//: case sort_quick_rows
//: x s16 1024 random result
//: sort_quick_rows<<<1, 32>>>(x)
extern "C" __global__ void sort_quick_rows(short *x) {
    short *row = x + threadIdx.x * 32;
    signed char stack[64];
    int top = 0;
    stack[top++] = 0;
    stack[top++] = 31;
    while (top) {
        int high = stack[--top], low = stack[--top];
        if (low >= high) continue;
        short pivot = row[(low + high) / 2];
        int a = low, b = high;
        while (a <= b) {
            while (row[a] < pivot) a++;
            while (row[b] > pivot) b--;
            if (a <= b) { short v = row[a]; row[a++] = row[b]; row[b--] = v; }
        }
        stack[top++] = (signed char)low;
        stack[top++] = (signed char)b;
        stack[top++] = (signed char)a;
        stack[top++] = (signed char)high;
    }
}
