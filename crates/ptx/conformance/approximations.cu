// The approximate functions of an H200 against doubles, over all of f32.
//
//     nvcc -O3 -arch=sm_90 -o approximations approximations.cu && ./approximations FOLDER
//
// For each function it prints how many results equal the rounded double, how many are within each
// bound of units in the last place, the largest errors, and how many specials differ. It writes the
// difference of results from the rounded double, one signed byte for each input of a range, into
// FOLDER: the data from which the tables of the hardware can be found.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

enum Function { RCP, SQRT, RSQRT, SIN, COS, LG2, EX2, TANH, RCP_FTZ, SQRT_FTZ, RSQRT_FTZ, SIN_FTZ, COS_FTZ, LG2_FTZ, EX2_FTZ, COUNT };
static const char *NAMES[] = {"rcp.approx", "sqrt.approx", "rsqrt.approx", "sin.approx", "cos.approx", "lg2.approx", "ex2.approx", "tanh.approx", "rcp.approx.ftz", "sqrt.approx.ftz", "rsqrt.approx.ftz", "sin.approx.ftz", "cos.approx.ftz", "lg2.approx.ftz", "ex2.approx.ftz"};

#define ASM(NAME) asm(NAME ".f32 %0, %1;" : "=f"(d) : "f"(x)); return d;
template <int F> __device__ float approximate(float x) {
    float d;
    if constexpr (F == RCP) { ASM("rcp.approx") }
    if constexpr (F == SQRT) { ASM("sqrt.approx") }
    if constexpr (F == RSQRT) { ASM("rsqrt.approx") }
    if constexpr (F == SIN) { ASM("sin.approx") }
    if constexpr (F == COS) { ASM("cos.approx") }
    if constexpr (F == LG2) { ASM("lg2.approx") }
    if constexpr (F == EX2) { ASM("ex2.approx") }
    if constexpr (F == TANH) { ASM("tanh.approx") }
    if constexpr (F == RCP_FTZ) { ASM("rcp.approx.ftz") }
    if constexpr (F == SQRT_FTZ) { ASM("sqrt.approx.ftz") }
    if constexpr (F == RSQRT_FTZ) { ASM("rsqrt.approx.ftz") }
    if constexpr (F == SIN_FTZ) { ASM("sin.approx.ftz") }
    if constexpr (F == COS_FTZ) { ASM("cos.approx.ftz") }
    if constexpr (F == LG2_FTZ) { ASM("lg2.approx.ftz") }
    if constexpr (F == EX2_FTZ) { ASM("ex2.approx.ftz") }
}

template <int F> __device__ double reference(float v) {
    if (F >= RCP_FTZ && fabsf(v) < 1.17549435e-38f) v = copysignf(0.0f, v);
    double x = v;
    switch (F) {
    case RCP: case RCP_FTZ: return 1.0 / x;
    case SQRT: case SQRT_FTZ: return sqrt(x);
    case RSQRT: case RSQRT_FTZ: return v == 0.0f ? copysign(INFINITY, x) : 1.0 / sqrt(x);
    case SIN: case SIN_FTZ: return sin(x);
    case COS: case COS_FTZ: return cos(x);
    case LG2: case LG2_FTZ: return log2(x);
    case EX2: case EX2_FTZ: return exp2(x);
    default: return tanh(x);
    }
}

struct Tally {
    unsigned long long bins[10], specials, worst_ulp, worst_near, sub;
};

__device__ void greatest(unsigned long long *place, double value, uint32_t input) {
    unsigned long long packed = (unsigned long long)__float_as_uint((float)value) << 32 | input;
    if (packed > *place) atomicMax(place, packed);
}

template <int F> __global__ void tally(Tally *out) {
    __shared__ Tally local;
    if (threadIdx.x == 0) memset(&local, 0, sizeof local);
    __syncthreads();
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < 1ull << 32; i += step) {
        float x = __uint_as_float((uint32_t)i);
        float got = approximate<F>(x);
        double want = reference<F>(x);
        float near = (float)want;
        bool flushed = F >= RCP_FTZ && fabsf(near) < 1.17549435e-38f;
        if (flushed) near = copysignf(0.0f, near), want = near;
        if (isnan(got) && isnan(near) || __float_as_uint(got) == __float_as_uint(near)) { atomicAdd(&local.bins[0], 1ull); continue; }
        if (isnan(got) || isnan(near) || isinf(got) || isinf(near) || near == 0.0f && got == 0.0f) {
            if (atomicAdd(&local.specials, 1ull) == 0) local.sub = i;
            continue;
        }
        int e = max(ilogb(want == 0.0 ? 1e-300 : want), -126) - 23;
        double wrong = fabs((double)got - want), ulps = ldexp(wrong, -e);
        int bin = ulps <= 1 ? 1 : ulps <= 1.5 ? 2 : ulps <= 2 ? 3 : ulps <= 3 ? 4 : ulps <= 4 ? 5 : ulps <= 16 ? 6 : ulps <= 256 ? 7 : ulps <= 65536 ? 8 : 9;
        atomicAdd(&local.bins[bin], 1ull);
        greatest(&local.worst_ulp, ulps, (uint32_t)i);
        bool close = F == SIN || F == COS || F == SIN_FTZ || F == COS_FTZ ? fabsf(x) <= 3.14159274f : true;
        if (close) greatest(&local.worst_near, wrong, (uint32_t)i);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < 10; i++) atomicAdd(&out->bins[i], local.bins[i]);
        atomicAdd(&out->specials, local.specials);
        atomicMax(&out->sub, local.sub);
        atomicMax(&out->worst_ulp, local.worst_ulp);
        atomicMax(&out->worst_near, local.worst_near);
    }
}

static float bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }

template <int F> void count() {
    Tally *device, host;
    cudaMalloc(&device, sizeof host);
    cudaMemset(device, 0, sizeof host);
    tally<F><<<132 * 8, 256>>>(device);
    cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost);
    printf("%s equal %llu", NAMES[F], host.bins[0]);
    const char *bounds[] = {"", "1", "1.5", "2", "3", "4", "16", "256", "65536", "more"};
    for (int i = 1; i < 10; i++) printf(" <=%s:%llu", bounds[i], host.bins[i]);
    printf(" specials %llu (%08x) worst %g ulp at %08x, absolute %g at %08x\n", host.specials, (uint32_t)host.sub, bits(host.worst_ulp >> 32), (uint32_t)host.worst_ulp, bits(host.worst_near >> 32), (uint32_t)host.worst_near);
    fflush(stdout);
    if constexpr (F + 1 < COUNT) count<F + 1>();
}

template <int F> __global__ void differences(uint32_t first, uint32_t number, int8_t *out) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < number; i += gridDim.x * blockDim.x) {
        float x = __uint_as_float(first + i);
        int64_t got = __float_as_int(approximate<F>(x)), near = __float_as_int((float)reference<F>(x));
        out[i] = (int8_t)max(-127ll, min(127ll, (long long)(got - near)));
    }
}

template <int F> void dump(const char *folder, uint32_t first, uint32_t number) {
    int8_t *device, *host = (int8_t *)malloc(number);
    cudaMalloc(&device, number);
    differences<F><<<1056, 256>>>(first, number, device);
    cudaMemcpy(host, device, number, cudaMemcpyDeviceToHost);
    char start[16];
    snprintf(start, sizeof start, "%08x", first);
    std::string path = std::string(folder) + "/" + NAMES[F] + "." + start;
    FILE *file = fopen(path.c_str(), "wb");
    fwrite(host, 1, number, file);
    fclose(file);
    cudaFree(device);
    free(host);
}

template <bool FULL> __global__ void quotients(uint64_t number, int narrow, unsigned long long *bins, unsigned long long *worst) {
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < number; i += step) {
        uint64_t z = (i + 1) * 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        z ^= z >> 31;
        uint32_t a = (uint32_t)z, b = (uint32_t)(z >> 32);
        if (narrow) { a = (a & 0x807fffff) + 0x3f800000; b = (b & 0x807fffff) + 0x3f800000; }
        float x = __uint_as_float(a), y = __uint_as_float(b), got;
        if (!isfinite(x) || !isfinite(y)) continue;
        if constexpr (FULL) asm("div.full.f32 %0, %1, %2;" : "=f"(got) : "f"(x), "f"(y));
        else asm("div.approx.f32 %0, %1, %2;" : "=f"(got) : "f"(x), "f"(y));
        double want = (double)x / (double)y;
        if (fabs(want) < 1.2e-38 || fabs(want) > 3e38 || fabsf(y) > 8.5e37f || fabsf(y) < 1.2e-38f) continue;
        double ulps = ldexp(fabs((double)got - want), 23 - ilogb(want));
        int bin = got == (float)want ? 0 : ulps <= 1 ? 1 : ulps <= 1.5 ? 2 : ulps <= 2 ? 3 : 4;
        atomicAdd(&bins[bin], 1ull);
        greatest(worst, ulps, a);
    }
}

template <bool FULL> void divide(int narrow) {
    unsigned long long *device, host[8];
    cudaMalloc(&device, sizeof host);
    cudaMemset(device, 0, sizeof host);
    quotients<FULL><<<1056, 256>>>(1ull << 28, narrow, device, device + 7);
    cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
    printf("%s %s equal %llu <=1:%llu <=1.5:%llu <=2:%llu more:%llu worst %g ulp\n", FULL ? "div.full" : "div.approx", narrow ? "of 1 to 2" : "of all", host[0], host[1], host[2], host[3], host[4], bits(host[7] >> 32));
}

int main(int, char **arguments) {
    const char *folder = arguments[1];
    const uint32_t N = 1u << 23;
    dump<RCP_FTZ>(folder, 0x3f800000, N);
    dump<RSQRT_FTZ>(folder, 0x3f800000, 2 * N);
    dump<SQRT_FTZ>(folder, 0x3f800000, 2 * N);
    dump<EX2_FTZ>(folder, 0x3f800000, N);
    dump<LG2_FTZ>(folder, 0x3f800000, N);
    dump<SIN_FTZ>(folder, 0x40800000, N);
    dump<COS_FTZ>(folder, 0x40800000, N);
    dump<TANH>(folder, 0x3f000000, 2 * N);
    divide<false>(0);
    divide<false>(1);
    divide<true>(0);
    divide<true>(1);
    count<0>();
    return cudaDeviceSynchronize();
}
