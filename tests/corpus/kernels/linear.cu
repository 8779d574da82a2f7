// Linear algebra on small systems.

//: case lu
//: a f32 256 random result
//: pivot u32 16 zero result
//: lu<<<1, 16>>>(a, pivot)
extern "C" __global__ void lu(float *a, unsigned *pivot) {
    const int n = 16;
    __shared__ float s[n][n + 1];
    __shared__ int best;
    int t = threadIdx.x;
    for (int r = 0; r < n; r++) s[r][t] = a[r * n + t];
    for (int k = 0; k < n; k++) {
        __syncthreads();
        if (t == 0) {
            best = k;
            for (int r = k + 1; r < n; r++) if (fabsf(s[r][k]) > fabsf(s[best][k])) best = r;
            pivot[k] = best;
        }
        __syncthreads();
        float v = s[k][t];
        s[k][t] = s[best][t];
        s[best][t] = v;
        __syncthreads();
        if (t > k) {
            float by = s[t][k] / s[k][k];
            for (int c = k + 1; c < n; c++) s[t][c] -= by * s[k][c];
            s[t][k] = by;
        }
    }
    __syncthreads();
    for (int r = 0; r < n; r++) a[r * n + t] = s[r][t];
}

//: case cholesky
//: a f64 144 random result
//: cholesky<<<1, 12>>>(a)
extern "C" __global__ void cholesky(double *a) {
    const int n = 12;
    __shared__ double s[n][n], l[n][n];
    int t = threadIdx.x;
    for (int c = 0; c < n; c++) { s[t][c] = a[t * n + c]; l[t][c] = 0; }
    __syncthreads();
    for (int c = 0; c < n; c++) {
        double sum = t == c ? n : 0;
        for (int k = 0; k < n; k++) sum += s[t][k] * s[c][k];
        a[t * n + c] = sum;
    }
    for (int k = 0; k < n; k++) {
        __syncthreads();
        if (t == k) {
            double sum = a[k * n + k];
            for (int j = 0; j < k; j++) sum -= l[k][j] * l[k][j];
            l[k][k] = sqrt(sum);
        }
        __syncthreads();
        if (t > k) {
            double sum = a[t * n + k];
            for (int j = 0; j < k; j++) sum -= l[t][j] * l[k][j];
            l[t][k] = sum / l[k][k];
        }
    }
    __syncthreads();
    for (int c = 0; c < n; c++) a[t * n + c] = l[t][c];
}

//: case gauss_seidel
//: x f32 1024 zero result
//: b f32 1024 random
//: for k 0 8: gauss_seidel<<<2x4, 16x8>>>(x, b, s32 {k})
extern "C" __global__ void gauss_seidel(float *x, const float *b, int colour) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y, i = r * 32 + c;
    if (((r + c) & 1) != (colour & 1)) return;
    float sum = b[i];
    if (c > 0) sum += x[i - 1];
    if (c < 31) sum += x[i + 1];
    if (r > 0) sum += x[i - 32];
    if (r < 31) sum += x[i + 32];
    x[i] = sum / 4;
}

//: case tridiagonal
//: b f64 512 random
//: x f64 512 zero result
//: tridiagonal<<<1, 16>>>(b, x)
extern "C" __global__ void tridiagonal(const double *b, double *x) {
    double c[32], d[32];
    const double *mine = b + threadIdx.x * 32;
    c[0] = 1.0 / 4;
    d[0] = mine[0] / 4;
    for (int i = 1; i < 32; i++) {
        double m = 1 / (4 - c[i - 1]);
        c[i] = m;
        d[i] = (mine[i] - d[i - 1]) * m;
    }
    double last = 0;
    for (int i = 31; i >= 0; i--) x[threadIdx.x * 32 + i] = last = d[i] - c[i] * (i < 31 ? last : 0);
}

//: case gauss_jordan
//: a f32 64 random
//: out f32 64 zero result
//: gauss_jordan<<<1, 8x8>>>(a, out)
extern "C" __global__ void gauss_jordan(const float *a, float *out) {
    __shared__ float s[8][16];
    int x = threadIdx.x, y = threadIdx.y;
    s[y][x] = a[y * 8 + x] + (x == y ? 8 : 0);
    s[y][x + 8] = x == y;
    for (int k = 0; k < 8; k++) {
        __syncthreads();
        float by = s[y][k], over = s[k][k], v0 = s[k][x] / over, v1 = s[k][x + 8] / over;
        __syncthreads();
        s[y][x] = y == k ? v0 : s[y][x] - by * v0;
        s[y][x + 8] = y == k ? v1 : s[y][x + 8] - by * v1;
    }
    out[y * 8 + x] = s[y][x + 8];
}

//: case power_iteration
//: a f32 1024 random
//: v f32 32 fill 1 result
//: power_iteration<<<1, 32>>>(a, v, s32 12)
extern "C" __global__ void power_iteration(const float *a, float *v, int rounds) {
    unsigned t = threadIdx.x;
    float mine = v[t];
    for (int k = 0; k < rounds; k++) {
        float sum = 0;
        for (int c = 0; c < 32; c++) sum += (a[t * 32 + c] + a[c * 32 + t]) * __shfl_sync(~0u, mine, c);
        float square = sum * sum;
        for (int d = 16; d; d /= 2) square += __shfl_xor_sync(~0u, square, d);
        mine = sum / sqrtf(square);
    }
    v[t] = mine;
}
