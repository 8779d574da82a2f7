// Fourier's and other transforms.

//: case fft
//: re f32 256 random result
//: im f32 256 random result
//: fft<<<1, 128>>>(re, im)
extern "C" __global__ void fft(float *re, float *im) {
    __shared__ float2 s[256];
    unsigned t = threadIdx.x;
    for (unsigned i = t; i < 256; i += 128) {
        unsigned to = __brev(i) >> 24;
        s[to] = make_float2(re[i], im[i]);
    }
    for (unsigned half = 1; half < 256; half *= 2) {
        __syncthreads();
        unsigned k = t & (half - 1), a = 2 * t - k, b = a + half;
        float sine, cosine;
        sincospif(-(float)k / half, &sine, &cosine);
        float2 u = s[a], v = s[b];
        float2 w = make_float2(v.x * cosine - v.y * sine, v.x * sine + v.y * cosine);
        s[a] = make_float2(u.x + w.x, u.y + w.y);
        s[b] = make_float2(u.x - w.x, u.y - w.y);
    }
    __syncthreads();
    for (unsigned i = t; i < 256; i += 128) { re[i] = s[i].x; im[i] = s[i].y; }
}

// Over a prime field, so that it is exact: 3 generates the units of 998244353.
__device__ unsigned power(unsigned b, unsigned e, unsigned p) {
    unsigned long long r = 1, x = b;
    for (; e; e >>= 1, x = x * x % p) if (e & 1) r = r * x % p;
    return (unsigned)r;
}
//: case number_transform
//: x u32 256 below 998244353 result
//: number_transform<<<1, 128>>>(x)
extern "C" __global__ void number_transform(unsigned *x) {
    const unsigned p = 998244353;
    __shared__ unsigned s[256];
    unsigned t = threadIdx.x;
    s[__brev(t) >> 24] = x[t];
    s[__brev(t + 128) >> 24] = x[t + 128];
    for (unsigned half = 1; half < 256; half *= 2) {
        __syncthreads();
        unsigned k = t & (half - 1), a = 2 * t - k, b = a + half;
        unsigned w = power(3, (p - 1) / (2 * half) * k, p);
        unsigned u = s[a], v = (unsigned)((unsigned long long)s[b] * w % p);
        s[a] = (u + v) % p;
        s[b] = (u + p - v) % p;
    }
    __syncthreads();
    x[t] = s[t];
    x[t + 128] = s[t + 128];
}

//: case walsh
//: x s32 512 random result
//: walsh<<<2, 128>>>(x)
extern "C" __global__ void walsh(int *x) {
    __shared__ int s[256];
    unsigned t = threadIdx.x, base = blockIdx.x * 256;
    s[t] = x[base + t];
    s[t + 128] = x[base + t + 128];
    for (unsigned h = 1; h < 256; h *= 2) {
        __syncthreads();
        unsigned a = (t / h) * 2 * h + t % h;
        int u = s[a], v = s[a + h];
        s[a] = u + v;
        s[a + h] = u - v;
    }
    __syncthreads();
    x[base + t] = s[t];
    x[base + t + 128] = s[t + 128];
}

//: case haar
//: x f32 256 random result
//: haar<<<1, 128>>>(x)
extern "C" __global__ void haar(float *x) {
    __shared__ float s[256];
    unsigned t = threadIdx.x;
    s[t] = x[t];
    s[t + 128] = x[t + 128];
    for (unsigned n = 256; n > 1; n /= 2) {
        __syncthreads();
        float a = 0, b = 0;
        if (t < n / 2) { a = s[2 * t]; b = s[2 * t + 1]; }
        __syncthreads();
        if (t < n / 2) { s[t] = (a + b) * 0.70710678f; s[n / 2 + t] = (a - b) * 0.70710678f; }
    }
    __syncthreads();
    x[t] = s[t];
    x[t + 128] = s[t + 128];
}

// Cosine transform of blocks of eight by eight.
//: case cosines
//: x f32 256 random
//: y f32 256 zero result
//: cosines<<<2x2, 8x8>>>(x, y)
extern "C" __global__ void cosines(const float *x, float *y) {
    __shared__ float in[8][8], rows[8][8];
    int c = threadIdx.x, r = threadIdx.y, at = (blockIdx.y * 8 + r) * 16 + blockIdx.x * 8 + c;
    in[r][c] = x[at];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += in[r][k] * cospif((2 * k + 1) * c / 16.0f);
    rows[r][c] = sum * (c ? 0.5f : 0.35355339f);
    __syncthreads();
    sum = 0;
    for (int k = 0; k < 8; k++) sum += rows[k][c] * cospif((2 * k + 1) * r / 16.0f);
    y[at] = sum * (r ? 0.5f : 0.35355339f);
}
