// Cellular automata.

//: case life
//: a u8 1024 below 2 result
//: b u8 1024 zero result
//: for k 0 5: life<<<2x2, 16x16>>>(a, b, u32 {k})
extern "C" __global__ void life(unsigned char *a, unsigned char *b, unsigned k) {
    const unsigned char *from = k & 1 ? b : a;
    unsigned char *to = k & 1 ? a : b;
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y, near = 0;
    for (int dr = 31; dr <= 33; dr++)
        for (int dc = 31; dc <= 33; dc++)
            if (dr != 32 || dc != 32) near += from[((r + dr) & 31) * 32 + ((c + dc) & 31)];
    to[r * 32 + c] = near == 3 || (near == 2 && from[r * 32 + c]);
}

// 32 cells a word, added bit by bit.
//: case life_bits
//: x u32 32 random result
//: life_bits<<<1, 32>>>(x, s32 20)
extern "C" __global__ void life_bits(unsigned *x, int rounds) {
    unsigned v = x[threadIdx.x], lane = threadIdx.x;
    for (int k = 0; k < rounds; k++) {
        unsigned up = __shfl_sync(~0u, v, (lane + 31) & 31), down = __shfl_sync(~0u, v, (lane + 1) & 31);
        unsigned rows[3] = {up, v, down}, one = 0, two = 0, four = 0;
        for (int r = 0; r < 3; r++)
            for (int d = -1; d <= 1; d++) {
                if (r == 1 && d == 0) continue;
                unsigned n = __funnelshift_l(rows[r], rows[r], d & 31);
                unsigned carry = one & n;
                one ^= n;
                four |= two & carry;
                two ^= carry;
            }
        v = ~four & two & (one | v);
    }
    x[lane] = v;
}

//: case rule_110
//: x u32 4 random
//: out u32 128 zero result
//: rule_110<<<1, 4>>>(x, out)
extern "C" __global__ void rule_110(const unsigned *x, unsigned *out) {
    __shared__ unsigned row[4];
    unsigned t = threadIdx.x;
    row[t] = x[t];
    for (int k = 0; k < 32; k++) {
        __syncthreads();
        unsigned here = row[t], left = here >> 1 | row[(t + 3) & 3] << 31, right = here << 1 | row[(t + 1) & 3] >> 31;
        __syncthreads();
        row[t] = (here | right) & ~(left & here & right);
        out[k * 4 + t] = row[t];
    }
}
