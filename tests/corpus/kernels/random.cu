// Generators of random numbers, and what is counted with them.

__device__ unsigned xorshift(unsigned &s) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; return s; }

//: case monte_carlo_pi
//: inside u32 1 zero result
//: monte_carlo_pi<<<4, 128>>>(inside, u32 200)
extern "C" __global__ void monte_carlo_pi(unsigned *inside, unsigned rounds) {
    unsigned s = 2463534242u + 7919 * (blockIdx.x * blockDim.x + threadIdx.x), in = 0;
    for (unsigned i = 0; i < rounds; i++) {
        float x = xorshift(s) * 2.3283064e-10f, y = xorshift(s) * 2.3283064e-10f;
        in += x * x + y * y < 1.0f;
    }
    for (int d = 16; d; d /= 2) in += __shfl_down_sync(~0u, in, d);
    if (threadIdx.x % 32 == 0) atomicAdd(inside, in);
}

//: case philox
//: out u32 1024 zero result
//: philox<<<2, 128>>>(out, u64 1311768467463790320)
extern "C" __global__ void philox(uint4 *out, unsigned long long seed) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
    uint4 c = make_uint4(i, 0, 0x9e37, ~i);
    for (int round = 0; round < 10; round++) {
        unsigned h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
        unsigned h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[i] = c;
}

//: case pcg_jump
//: out u64 256 zero result
//: pcg_jump<<<2, 128>>>(out)
extern "C" __global__ void pcg_jump(unsigned long long *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long mul = 6364136223846793005ull, add = 1442695040888963407ull, a = 1, c = 0;
    for (unsigned long long delta = i * 1000003ull; delta; delta >>= 1) {
        if (delta & 1) { a *= mul; c = c * mul + add; }
        add = (mul + 1) * add;
        mul *= mul;
    }
    unsigned long long s = a * 42 + c;
    unsigned word = (unsigned)(((s >> 18) ^ s) >> 27), turn = (unsigned)(s >> 59);
    out[i] = s ^ (unsigned long long)__funnelshift_r(word, word, turn) << 16;
}

//: case random_walk
//: place s32 256 zero result
//: random_walk<<<2, 128>>>(place)
extern "C" __global__ void random_walk(int *place) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, s = 88172645 + i * 362437;
    int x = 0, steps = 0;
    while (x > -12 && x < 12 && steps < 2000) { x += xorshift(s) >> 9 & 1 ? 1 : -1; steps++; }
    place[i] = x * 10000 + steps;
}
