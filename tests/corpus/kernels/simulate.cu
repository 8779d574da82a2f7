// Simulations and statistics.

//: case n_body
//: p f32 512 random result
//: v f32 512 zero result
//: n_body<<<2, 64>>>(p, v, u32 128, f32 0.01)
//: n_body_move<<<2, 64>>>(p, v, f32 0.01)
//: n_body<<<2, 64>>>(p, v, u32 128, f32 0.01)
extern "C" __global__ void n_body(const float4 *p, float4 *v, unsigned n, float dt) {
    __shared__ float4 tile[64];
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    float4 me = p[i], a = make_float4(0, 0, 0, 0);
    for (unsigned base = 0; base < n; base += 64) {
        tile[threadIdx.x] = p[base + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (unsigned j = 0; j < 64; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float square = dx * dx + dy * dy + dz * dz + 0.05f, inverse = 1.0f / sqrtf(square * square * square);
            a.x += dx * inverse * tile[j].w;
            a.y += dy * inverse * tile[j].w;
            a.z += dz * inverse * tile[j].w;
        }
        __syncthreads();
    }
    float4 w = v[i];
    v[i] = make_float4(w.x + dt * a.x, w.y + dt * a.y, w.z + dt * a.z, w.w + 1);
}
extern "C" __global__ void n_body_move(float4 *p, const float4 *v, float dt) {
    unsigned i = blockIdx.x * 64 + threadIdx.x;
    p[i].x += dt * v[i].x;
    p[i].y += dt * v[i].y;
    p[i].z += dt * v[i].z;
}

// Sums in fixed point, so that the order of the atomics does not matter.
//: case k_means
//: p f32 1024 random
//: centre f32 16 random result
//: sum s64 16 zero result
//: size u32 8 zero result
//: for k 0 4: k_means_assign<<<4, 128>>>(p, centre, sum, size)
//: for k 0 4: k_means_move<<<1, 8>>>(centre, sum, size)
extern "C" __global__ void k_means_assign(const float2 *p, const float2 *centre, unsigned long long *sum, unsigned *size) {
    float2 me = p[blockIdx.x * blockDim.x + threadIdx.x];
    int best = 0;
    float least = 1e30f;
    for (int c = 0; c < 8; c++) {
        float dx = me.x - centre[c].x, dy = me.y - centre[c].y, d = dx * dx + dy * dy;
        if (d < least) { least = d; best = c; }
    }
    atomicAdd(&sum[2 * best], (unsigned long long)__float2ll_rn(me.x * 16777216));
    atomicAdd(&sum[2 * best + 1], (unsigned long long)__float2ll_rn(me.y * 16777216));
    atomicAdd(&size[best], 1);
}
extern "C" __global__ void k_means_move(float2 *centre, long long *sum, unsigned *size) {
    int c = threadIdx.x;
    if (size[c]) centre[c] = make_float2(sum[2 * c] / 16777216.0f / size[c], sum[2 * c + 1] / 16777216.0f / size[c]);
}

//: case heat
//: x f64 256 random result
//: heat<<<1, 256>>>(x, s32 50, f64 0.2)
extern "C" __global__ void heat(double *x, int rounds, double rate) {
    __shared__ double s[258];
    int t = threadIdx.x;
    double v = x[t];
    if (t == 0) { s[0] = 1; s[257] = -1; }
    for (int k = 0; k < rounds; k++) {
        s[t + 1] = v;
        __syncthreads();
        v += rate * (s[t] - 2 * v + s[t + 2]);
        __syncthreads();
    }
    x[t] = v;
}

// A binomial tree prices an option that may be used early.
//: case binomial
//: strike f32 4 linear 80 10
//: out f32 4 zero result
//: binomial<<<4, 128>>>(strike, out, f32 1.01, f32 0.52)
extern "C" __global__ void binomial(const float *strike, float *out, float up, float p) {
    __shared__ float value[129];
    int t = threadIdx.x;
    float price = 100, down = 1 / up;
    for (int i = 0; i < 128; i++) price *= i < t ? up : down;
    value[t] = fmaxf(0, strike[blockIdx.x] - price);
    if (t == 127) value[128] = fmaxf(0, strike[blockIdx.x] - price * up * up);
    for (int step = 127; step >= 0; step--) {
        __syncthreads();
        price *= up;
        float hold = 0;
        if (t <= step) hold = 0.9998f * (p * value[t + 1] + (1 - p) * value[t]);
        __syncthreads();
        if (t <= step) value[t] = fmaxf(hold, strike[blockIdx.x] - price);
    }
    if (t == 0) out[blockIdx.x] = value[0];
}

//: case statistics
//: x f32 2048 random
//: out f64 24 zero result
//: statistics<<<8, 32>>>(x, out)
extern "C" __global__ void statistics(const float *x, double *out) {
    // Welford's running mean and variance, joined over the lanes as Chan does.
    double mean = 0, square = 0, n = 0;
    for (int k = 0; k < 8; k++) {
        double v = x[(blockIdx.x * 8 + k) * 32 + threadIdx.x], delta = v - mean;
        n += 1;
        mean += delta / n;
        square += delta * (v - mean);
    }
    for (int d = 1; d < 32; d *= 2) {
        double m = __shfl_xor_sync(~0u, mean, d), s = __shfl_xor_sync(~0u, square, d), k = __shfl_xor_sync(~0u, n, d);
        double low = threadIdx.x & d ? m : mean, high = threadIdx.x & d ? mean : m, delta = high - low;
        mean = (low + high) / 2;
        square = square + s + delta * delta * n * k / (n + k);
        n += k;
    }
    if (threadIdx.x == 0) { out[blockIdx.x * 3] = n; out[blockIdx.x * 3 + 1] = mean; out[blockIdx.x * 3 + 2] = square / (n - 1); }
}
