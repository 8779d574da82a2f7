// Functions of a warp and barriers of a block.

//: case votes
//: x u32 128 random
//: out u32 1024 zero result
//: votes<<<1, 128>>>(x, out)
extern "C" __global__ void votes(const unsigned *x, unsigned *out) {
    unsigned t = threadIdx.x, v = x[t], *o = out + t * 8, lane = t & 31;
    o[0] = __ballot_sync(~0u, v & 1);
    o[1] = __any_sync(~0u, v < 1u << 26) + 2 * __all_sync(~0u, v > 1u << 20);
    o[2] = __match_any_sync(~0u, v & 7);
    int same;
    o[3] = __match_all_sync(~0u, v >> 31 | t >> 5, &same);
    o[4] = same;
    if (lane < 20) {
        o[5] = __activemask();
        o[6] = __ballot_sync(0xfffff, v & 2);
    } else {
        o[5] = __shfl_down_sync(0xfff00000, v, 3);
        o[6] = __match_any_sync(0xfff00000, v & 3);
    }
    __syncwarp();
}

//: case shuffles
//: x u32 64 random
//: d f64 64 random
//: out u32 640 zero result
//: wide f64 64 zero result
//: shuffles<<<1, 64>>>(x, d, out, wide)
extern "C" __global__ void shuffles(const unsigned *x, const double *d, unsigned *out, double *wide) {
    unsigned t = threadIdx.x, v = x[t], *o = out + t * 10;
    o[0] = __shfl_sync(~0u, v, 7);
    o[1] = __shfl_sync(~0u, v, v);
    o[2] = __shfl_sync(~0u, v, 3, 8);
    o[3] = __shfl_up_sync(~0u, v, 5);
    o[4] = __shfl_up_sync(~0u, v, 2, 16);
    o[5] = __shfl_down_sync(~0u, v, 9);
    o[6] = __shfl_down_sync(~0u, v, 1, 4);
    o[7] = __shfl_xor_sync(~0u, v, 21);
    o[8] = __shfl_xor_sync(~0u, v, 9, 8);
    o[9] = __shfl_sync(~0u, v, t * 11, 16);
    wide[t] = __shfl_xor_sync(~0u, d[t], 17) - __shfl_down_sync(~0u, d[t], 4);
}

// Lanes leave a loop at different times and meet again.
//: case divergence
//: x u32 256 below 40
//: out u32 512 zero result
//: divergence<<<2, 128>>>(x, out)
extern "C" __global__ void divergence(const unsigned *x, unsigned *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x, v = x[i], sum = 0;
    for (unsigned k = 0; k < v; k++) {
        if (k % 3 == 0) continue;
        if (k * k > 30 * v) break;
        switch ((k + i) % 5) {
        case 0: sum += k; break;
        case 1: sum ^= k << 3; break;
        case 2: sum *= 3;
        case 3: sum -= 7; break;
        default: sum = sum << 1 | sum >> 31;
        }
    }
    __syncwarp();
    out[2 * i] = sum;
    out[2 * i + 1] = __ballot_sync(~0u, sum & 1);
}

// Threads that end early do not hold up a barrier of the others.
//: case early_exit
//: x u32 256 random
//: out u32 256 zero result
//: early_exit<<<1, 256>>>(x, out)
extern "C" __global__ void early_exit(const unsigned *x, unsigned *out) {
    __shared__ unsigned s[256];
    unsigned t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t >= 192) return;
    unsigned v = s[255 - t];
    asm volatile("bar.sync 1, 192;" ::: "memory");
    s[t] = v * 2;
    asm volatile("bar.sync 1, 192;" ::: "memory");
    if (t < 64) {
        unsigned sum = s[t] + s[t + 64] + s[t + 128];
        asm volatile("bar.sync 2, 64;" ::: "memory");
        s[t] = sum;
    }
    asm volatile("bar.sync 1, 192;" ::: "memory");
    out[t] = s[t % 64] + t;
}

//: case barrier_votes
//: x u32 256 random
//: out s32 768 zero result
//: barrier_votes<<<2, 128>>>(x, out)
extern "C" __global__ void barrier_votes(const unsigned *x, int *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    out[3 * i] = __syncthreads_count(x[i] & 1);
    out[3 * i + 1] = __syncthreads_and(x[i] > 1000);
    out[3 * i + 2] = __syncthreads_or(x[i] > 0xfff00000u);
}

// Warps of two kinds hand a buffer over by named barriers.
//: case named_barriers
//: out u32 256 zero result
//: named_barriers<<<1, 128>>>(out)
extern "C" __global__ void named_barriers(unsigned *out) {
    __shared__ unsigned s[64];
    unsigned t = threadIdx.x;
    for (unsigned round = 0; round < 4; round++) {
        if (t < 64) {
            if (round) asm volatile("bar.sync 2, 128;" ::: "memory");
            s[t] = round * 1000 + t * t;
            asm volatile("bar.arrive 1, 128;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            out[round * 64 + t - 64] = s[127 - t];
            if (round < 3) asm volatile("bar.arrive 2, 128;" ::: "memory");
        }
    }
}
