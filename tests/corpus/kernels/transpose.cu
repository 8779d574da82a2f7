// Layouts of matrices.

//: case transpose_padded
//: x f32 3072 random
//: y f32 3072 zero result
//: transpose_padded<<<2x2, 32x8>>>(x, y, s32 64, s32 48)
extern "C" __global__ void transpose_padded(const float *x, float *y, int wide, int high) {
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (r + j < high && c < wide) tile[threadIdx.y + j][threadIdx.x] = x[(r + j) * wide + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x;
    r = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (c < high && r + j < wide) y[(r + j) * high + c] = tile[threadIdx.x][threadIdx.y + j];
}

//: case transpose_in_place
//: x u64 1024 random result
//: transpose_in_place<<<4x4, 8x8>>>(x)
extern "C" __global__ void transpose_in_place(unsigned long long *x) {
    int c = blockIdx.x * 8 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
    if (c > r) {
        unsigned long long v = x[r * 32 + c];
        x[r * 32 + c] = x[c * 32 + r];
        x[c * 32 + r] = v;
    }
}

//: case swizzle
//: x u32 1024 random
//: y u32 1024 zero result
//: swizzle<<<1, 32x32>>>(x, y)
extern "C" __global__ void swizzle(const unsigned *x, unsigned *y) {
    __shared__ unsigned tile[1024];
    int c = threadIdx.x, r = threadIdx.y;
    tile[r * 32 + (c ^ r)] = x[r * 32 + c];
    __syncthreads();
    y[r * 32 + c] = tile[c * 32 + (c ^ r)];
}

// Bits of 32 words by 32, over shuffles.
//: case transpose_bits
//: x u32 64 random
//: y u32 64 zero result
//: transpose_bits<<<2, 32>>>(x, y)
extern "C" __global__ void transpose_bits(const unsigned *x, unsigned *y) {
    unsigned v = x[blockIdx.x * 32 + threadIdx.x], lane = threadIdx.x, mask = 0xffff;
    for (unsigned d = 16; d; d >>= 1, mask ^= mask << d) {
        unsigned o = __shfl_xor_sync(~0u, v, d);
        v = lane & d ? (v & ~mask) | ((o >> d) & mask) : (v & mask) | ((o << d) & ~mask);
    }
    y[blockIdx.x * 32 + threadIdx.x] = v;
}
