// Sparse matrices times vectors.

//: case spmv_csr
//: start u32 201 linear 0 7
//: col u32 1400 below 200
//: value f32 1400 random
//: x f32 200 random
//: y f32 200 zero result
//: spmv_csr<<<2, 128>>>(start, col, value, x, y, u32 200)
extern "C" __global__ void spmv_csr(const unsigned *start, const unsigned *col, const float *value,
                                    const float *x, float *y, unsigned n) {
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    float sum = 0;
    for (unsigned e = start[row]; e < start[row + 1]; e++) sum += value[e] * x[col[e]];
    y[row] = sum;
}

// A warp takes a row; the rows' lengths differ.
//: case spmv_csr_warp
//: length u32 64 below 90
//: start u32 65 zero result
//: col u32 6000 below 64
//: value f64 6000 random
//: x f64 64 random
//: y f64 64 zero result
//: csr_starts<<<1, 1>>>(length, start, u32 64)
//: spmv_csr_warp<<<8, 256>>>(start, col, value, x, y)
extern "C" __global__ void csr_starts(const unsigned *length, unsigned *start, unsigned n) {
    for (unsigned i = 0; i < n; i++) start[i + 1] = start[i] + length[i];
}
extern "C" __global__ void spmv_csr_warp(const unsigned *start, const unsigned *col, const double *value,
                                         const double *x, double *y) {
    unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    double sum = 0;
    for (unsigned e = start[row] + lane; e < start[row + 1]; e += 32) sum += value[e] * __ldg(&x[col[e]]);
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (lane == 0) y[row] = sum;
}

//: case spmv_ell
//: col u32 640 below 90
//: value f32 640 random
//: x f32 80 random
//: y f32 80 zero result
//: spmv_ell<<<1, 80>>>(col, value, x, y, s32 80, s32 8)
extern "C" __global__ void spmv_ell(const unsigned *col, const float *value, const float *x, float *y, int n, int wide) {
    int row = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < wide; k++) {
        unsigned c = col[k * n + row];
        if (c < n) sum += value[k * n + row] * x[c];
    }
    y[row] = sum;
}

// Whole numbers, so that the order of the atomics does not matter.
//: case spmv_coo
//: row u32 1000 below 64
//: col u32 1000 below 64
//: value s32 1000 below 1000
//: x s32 64 random
//: y s32 64 zero result
//: spmv_coo<<<4, 250>>>(row, col, value, x, y)
extern "C" __global__ void spmv_coo(const unsigned *row, const unsigned *col, const int *value, const int *x, int *y) {
    unsigned e = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&y[row[e]], value[e] * x[col[e]]);
}
