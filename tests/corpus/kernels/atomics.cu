// Every kind of atomic function; the results do not depend on the order.

//: case atomics_32
//: x u32 512 random
//: u u32 16 fill 3735928559 result
//: s s32 8 zero result
//: atomics_32<<<4, 128>>>(x, u, s)
extern "C" __global__ void atomics_32(const unsigned *x, unsigned *u, int *s) {
    unsigned v = x[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&u[0], v);
    atomicSub(&u[1], v);
    atomicMin(&u[2], v);
    atomicMax(&u[3], v);
    atomicAnd(&u[4], v | 0xff0000ff);
    atomicOr(&u[5], v & 0xffff0000);
    atomicXor(&u[6], v);
    atomicInc(&u[7], 1000);
    atomicDec(&u[8], 300);
    atomicMin(&s[0], (int)v);
    atomicMax(&s[1], (int)v);
    atomicAdd(&s[2], (int)v >> 3);
}

//: case atomics_64
//: x u64 256 random
//: u u64 8 fill 81985529216486895 result
//: s s64 4 zero result
//: atomics_64<<<2, 128>>>(x, u, s)
extern "C" __global__ void atomics_64(const unsigned long long *x, unsigned long long *u, long long *s) {
    unsigned long long v = x[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&u[0], v);
    atomicMin(&u[1], v);
    atomicMax(&u[2], v);
    atomicAnd(&u[3], v | 0xff00ff00ff00ffull);
    atomicOr(&u[4], v & 0xf0f0f0f0f0f0f0f0ull);
    atomicXor(&u[5], v);
    atomicMin(&s[0], (long long)v);
    atomicMax(&s[1], (long long)v);
}

// Sums of whole numbers are exact, in any order.
//: case atomics_float
//: x u32 512 below 64
//: f f32 2 zero result
//: d f64 2 zero result
//: atomics_float<<<4, 128>>>(x, f, d)
extern "C" __global__ void atomics_float(const unsigned *x, float *f, double *d) {
    __shared__ float part;
    __shared__ double wide;
    if (threadIdx.x == 0) { part = 0; wide = 0; }
    __syncthreads();
    unsigned v = x[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&f[0], (float)v * 0.25f);
    atomicAdd(&d[0], (double)v * 0.125);
    atomicAdd(&part, (float)v);
    atomicAdd(&wide, -(double)v);
    __syncthreads();
    if (threadIdx.x == 0) { atomicAdd(&f[1], part); atomicAdd(&d[1], wide); }
}

// What an atomic returns: each ticket is given once, so that the tickets are a permutation.
//: case atomics_tickets
//: next u32 1 zero result
//: ticket u32 600 zero result sorted
//: ring u32 600 zero result sorted
//: atomics_tickets<<<6, 100>>>(next, ticket, ring)
extern "C" __global__ void atomics_tickets(unsigned *next, unsigned *ticket, unsigned *ring) {
    __shared__ unsigned local;
    if (threadIdx.x == 0) local = 0;
    __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    ticket[i] = atomicAdd(next, 1);
    ring[i] = atomicInc(&local, 36);
}

// A maximum of floats by compare-and-swap, and a product modulo a prime.
//: case atomics_loops
//: x f32 256 random
//: best f32 1 fill -9 result
//: product u32 1 fill 1 result
//: short u16 4 zero result
//: atomics_loops<<<2, 128>>>(x, best, product, short)
extern "C" __global__ void atomics_loops(const float *x, float *best, unsigned *product, unsigned short *small) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int *word = (int *)best, was = *word;
    while (__int_as_float(was) < x[i]) {
        int now = atomicCAS(word, was, __float_as_int(x[i]));
        if (now == was) break;
        was = now;
    }
    unsigned old = *product, assumed;
    do {
        assumed = old;
        old = atomicCAS(product, assumed, (unsigned)((unsigned long long)assumed * (i + 2) % 2147483647));
    } while (old != assumed);
    unsigned short half = small[i & 3], guess;
    do {
        guess = half;
        half = atomicCAS(&small[i & 3], guess, (unsigned short)(guess + 3));
    } while (half != guess);
}

//: case atomics_shared
//: x u32 256 random
//: out u32 10 zero result
//: wide u64 4 zero result
//: atomics_shared<<<1, 256>>>(x, out, wide)
extern "C" __global__ void atomics_shared(const unsigned *x, unsigned *out, unsigned long long *wide) {
    __shared__ unsigned s[10];
    __shared__ unsigned long long w[4];
    unsigned t = threadIdx.x, v = x[t];
    if (t < 10) s[t] = t * 0x01234567;
    if (t < 4) w[t] = t;
    __syncthreads();
    atomicAdd(&s[0], v); atomicSub(&s[1], v); atomicMin(&s[2], v); atomicMax(&s[3], v);
    atomicAnd(&s[4], v | 0xffff); atomicOr(&s[5], v & 0xff00ff); atomicXor(&s[6], v);
    atomicInc(&s[7], 99); atomicDec(&s[8], 77);
    if (t == 17) atomicExch(&s[9], v);
    atomicAdd(&w[0], (unsigned long long)v << 20);
    atomicMax(&w[1], (unsigned long long)v * v);
    if (t == 200) atomicExch(&w[2], ~(unsigned long long)v);
    if (t == 100) atomicCAS(&w[3], 3ull, (unsigned long long)v << 32 | t);
    __syncthreads();
    if (t < 10) out[t] = s[t];
    if (t < 4) wide[t] = w[t];
}

//: case atomics_scopes
//: out u32 3 zero result
//: atomics_scopes<<<3, 64>>>(out)
extern "C" __global__ void atomics_scopes(unsigned *out) {
    atomicAdd_system(&out[0], 5);
    atomicMax_system(&out[1], blockIdx.x * 64 + threadIdx.x);
    if (blockIdx.x == 1) atomicAdd_block(&out[2], threadIdx.x);
}
