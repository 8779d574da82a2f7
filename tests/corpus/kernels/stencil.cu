// Stencils in one, two and three dimensions.

//: case stencil_1d
//: x f32 1024 random
//: y f32 1024 zero result
//: stencil_1d<<<8, 128>>>(x, y, s32 1024)
extern "C" __global__ void stencil_1d(const float *x, float *y, int n) {
    const int r = 3;
    __shared__ float s[128 + 2 * r];
    int i = blockIdx.x * blockDim.x + threadIdx.x, l = threadIdx.x + r;
    s[l] = x[i];
    if (threadIdx.x < r) {
        s[l - r] = i >= r ? x[i - r] : 0;
        s[l + 128] = i + 128 < n ? x[i + 128] : 0;
    }
    __syncthreads();
    float sum = 0;
    for (int d = -r; d <= r; d++) sum += s[l + d] * (1.0f / (1 + d * d));
    y[i] = sum;
}

//: case jacobi_2d
//: x f32 1600 random result
//: y f32 1600 zero result
//: for k 0 6: jacobi_2d<<<3x3, 16x16>>>(x, y, s32 {k}, s32 40)
extern "C" __global__ void jacobi_2d(float *x, float *y, int k, int n) {
    __shared__ float s[18][19];
    const float *from = k & 1 ? y : x;
    float *to = k & 1 ? x : y;
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    int lc = threadIdx.x + 1, lr = threadIdx.y + 1;
    auto at = [&](int r, int c) { return r >= 0 && r < n && c >= 0 && c < n ? from[r * n + c] : 0.0f; };
    s[lr][lc] = at(r, c);
    if (threadIdx.x == 0) { s[lr][0] = at(r, c - 1); s[lr][17] = at(r, c + 16); }
    if (threadIdx.y == 0) { s[0][lc] = at(r - 1, c); s[17][lc] = at(r + 16, c); }
    __syncthreads();
    if (r < n && c < n) to[r * n + c] = 0.25f * (s[lr - 1][lc] + s[lr + 1][lc] + s[lr][lc - 1] + s[lr][lc + 1]);
}

//: case stencil_3d
//: x f64 1728 random
//: y f64 1728 zero result
//: stencil_3d<<<2x2, 6x6>>>(x, y)
extern "C" __global__ void stencil_3d(const double *x, double *y) {
    const int n = 12;
    int i = blockIdx.x * 6 + threadIdx.x, j = blockIdx.y * 6 + threadIdx.y;
    if (i == 0 || j == 0 || i == n - 1 || j == n - 1) return;
    double below = x[j * n + i], here = x[(n + j) * n + i];
    for (int k = 1; k < n - 1; k++) {
        double above = x[((k + 1) * n + j) * n + i];
        const double *p = x + (k * n + j) * n + i;
        y[(k * n + j) * n + i] = 0.4 * here + 0.1 * (below + above + p[1] + p[-1] + p[n] + p[-n]);
        below = here;
        here = above;
    }
}

// The wave equation, leapfrog.
//: case wave_2d
//: old f32 1024 zero result
//: now f32 1024 random result
//: for k 0 4: wave_2d<<<4x4, 8x8>>>(old, now, u32 {k})
extern "C" __global__ void wave_2d(float *old, float *now, unsigned k) {
    if (k & 1) { float *swap = old; old = now; now = swap; }
    int c = blockIdx.x * 8 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y, i = r * 32 + c;
    float laplace = now[r * 32 + ((c + 1) & 31)] + now[r * 32 + ((c + 31) & 31)] +
                    now[((r + 1) & 31) * 32 + c] + now[((r + 31) & 31) * 32 + c] - 4 * now[i];
    old[i] = 2 * now[i] - old[i] + 0.1f * laplace;
}

// A lattice of Boltzmann's kind, nine speeds, one time step.
__constant__ int dx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, dy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
__constant__ float weight[9] = {4 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 36.f, 1 / 36.f, 1 / 36.f, 1 / 36.f};
//: case lattice
//: f f32 2304 random
//: g f32 2304 zero result
//: lattice<<<2x2, 8x8>>>(f, g)
extern "C" __global__ void lattice(const float *f, float *g) {
    const int n = 16;
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    float in[9], density = 0, u = 0, v = 0;
    for (int q = 0; q < 9; q++) {
        int fx = (x - dx[q] + n) % n, fy = (y - dy[q] + n) % n;
        in[q] = 1.5f + f[(q * n + fy) * n + fx];
        density += in[q];
        u += in[q] * dx[q];
        v += in[q] * dy[q];
    }
    u /= density;
    v /= density;
    for (int q = 0; q < 9; q++) {
        float along = 3 * (dx[q] * u + dy[q] * v);
        float rest = weight[q] * density * (1 + along + 0.5f * along * along - 1.5f * (u * u + v * v));
        g[(q * n + y) * n + x] = in[q] + 0.6f * (rest - in[q]);
    }
}
