// Products of matrices.

//: case gemm_naive
//: a f32 1050 random
//: b f32 1200 random
//: c f32 1400 zero result
//: gemm_naive<<<3x5, 16x8>>>(a, b, c, s32 35, s32 40, s32 30)
extern "C" __global__ void gemm_naive(const float *a, const float *b, float *c, int m, int n, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0;
    for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}

//: case gemm_tiled
//: a f32 2304 random
//: b f32 2304 random
//: c f32 2304 random result
//: gemm_tiled<<<3x3, 16x16>>>(a, b, c, s32 48, f32 1.5, f32 -0.5)
extern "C" __global__ void gemm_tiled(const float *a, const float *b, float *c, int n, float alpha, float beta) {
    __shared__ float as[16][16], bs[16][17];
    int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        as[y][x] = a[row * n + k + x];
        bs[y][x] = b[(k + y) * n + col];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; i++) sum += as[y][i] * bs[i][x];
        __syncthreads();
    }
    c[row * n + col] = alpha * sum + beta * c[row * n + col];
}

// Each thread owns four by four elements.
//: case gemm_registers
//: a f32 4096 random
//: b f32 4096 random
//: c f32 4096 zero result
//: gemm_registers<<<2x2, 8x8>>>(a, b, c, s32 64)
extern "C" __global__ void gemm_registers(const float *a, const float *b, float *c, int n) {
    __shared__ float as[8][32];
    __shared__ __align__(16) float bs[8][32];
    int t = threadIdx.y * 8 + threadIdx.x;
    float sum[4][4] = {};
    for (int k = 0; k < n; k += 8) {
        for (int e = t; e < 256; e += 64) {
            as[e % 8][e / 8] = a[(blockIdx.y * 32 + e / 8) * n + k + e % 8];
            bs[e / 32][e % 32] = b[(k + e / 32) * n + blockIdx.x * 32 + e % 32];
        }
        __syncthreads();
        for (int i = 0; i < 8; i++) {
            float4 right = *(const float4 *)&bs[i][threadIdx.x * 4];
            for (int r = 0; r < 4; r++) {
                float left = as[i][threadIdx.y * 4 + r];
                sum[r][0] += left * right.x;
                sum[r][1] += left * right.y;
                sum[r][2] += left * right.z;
                sum[r][3] += left * right.w;
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; r++)
        *(float4 *)&c[(blockIdx.y * 32 + threadIdx.y * 4 + r) * n + blockIdx.x * 32 + threadIdx.x * 4] =
            make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

//: case gemm_f64
//: a f64 400 random
//: b f64 400 random
//: c f64 400 zero result
//: gemm_f64<<<5x5, 4x4>>>(a, b, c, s32 20)
extern "C" __global__ void gemm_f64(const double *a, const double *b, double *c, int n) {
    int col = blockIdx.x * 4 + threadIdx.x, row = blockIdx.y * 4 + threadIdx.y;
    double sum = 0;
    for (int i = 0; i < n; i++) sum = fma(a[row * n + i], b[i * n + col], sum);
    c[row * n + col] = sum;
}

// A matrix of 16 by 16 to the power e, modulo 2^32.
//: case matrix_power
//: m u32 256 random
//: out u32 256 zero result
//: matrix_power<<<1, 16x16>>>(m, out, u32 1000003)
extern "C" __global__ void matrix_power(const unsigned *m, unsigned *out, unsigned e) {
    __shared__ unsigned base[16][16], power[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    base[y][x] = m[y * 16 + x];
    power[y][x] = x == y;
    __syncthreads();
    while (e) {
        unsigned p = 0, b = 0;
        for (int i = 0; i < 16; i++) { p += power[y][i] * base[i][x]; b += base[y][i] * base[i][x]; }
        __syncthreads();
        if (e & 1) power[y][x] = p;
        base[y][x] = b;
        e >>= 1;
        __syncthreads();
    }
    out[y * 16 + x] = power[y][x];
}

// Signed bytes, four products an instruction.
//: case gemm_dp4a
//: a u32 256 random
//: b u32 256 random
//: c s32 1024 zero result
//: gemm_dp4a<<<2x2, 16x16>>>(a, b, c)
extern "C" __global__ void gemm_dp4a(const int *a, const int *b, int *c) {
    int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y, sum = 0;
    for (int i = 0; i < 8; i++) sum = __dp4a(a[row * 8 + i], b[col * 8 + i], sum);
    for (int i = 0; i < 8; i++) sum = __dp2a_lo(a[row * 8 + i], b[col * 8 + i], sum);
    c[row * 32 + col] = sum;
}
