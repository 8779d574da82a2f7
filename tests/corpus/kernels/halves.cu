// Arithmetic in half precision.
#include <cuda_fp16.h>

//: case half_pairs
//: x f32 256 random
//: out u32 1024 zero result
//: half_pairs<<<1, 128>>>(x, out)
extern "C" __global__ void half_pairs(const float2 *x, unsigned *out) {
    unsigned t = threadIdx.x, *o = out + t * 8;
    __half2 a = __float22half2_rn(x[t]), b = __float22half2_rn(x[(t + 5) % 128]), c = __half2half2(__float2half(1.5f));
    auto bits = [](__half2 h) { return *(unsigned *)&h; };
    o[0] = bits(__hadd2(a, b));
    o[1] = bits(__hsub2(a, b));
    o[2] = bits(__hmul2(a, b));
    o[3] = bits(__hfma2(a, b, c));
    o[4] = bits(__hadd2_sat(a, b));
    o[5] = bits(__hmin2(a, b)) ^ bits(__hneg2(__habs2(b)));
    o[6] = bits(__hlt2(a, b)) + __hbge2(a, b);
    o[7] = bits(__lowhigh2highlow(a)) ^ bits(__halves2half2(__low2half(a), __high2half(b)));
}

//: case half_scalars
//: x f32 128 random
//: out u16 1536 zero result
//: half_scalars<<<1, 128>>>(x, out)
extern "C" __global__ void half_scalars(const float *x, unsigned short *out) {
    unsigned t = threadIdx.x;
    unsigned short *o = out + t * 12;
    float f = x[t] * 300, g = x[(t + 9) % 128];
    __half a = __float2half_rn(f), b = __float2half_rn(g);
    auto bits = [](__half h) { return __half_as_ushort(h); };
    o[0] = bits(__float2half_rz(f)); o[1] = bits(__float2half_ru(f)); o[2] = bits(__float2half_rd(f));
    o[3] = bits(a + b); o[4] = bits(a * b); o[5] = bits(__hfma(a, b, a)); o[6] = bits(__hmax(a, b));
    o[7] = (unsigned short)__half2int_rn(a); o[8] = (unsigned short)__half2ushort_rz(__habs(a));
    o[9] = bits(__int2half_rn((int)(f * 100))); o[10] = bits(__float2half_rn(f * 1e4f)); o[11] = a < b;
}

// Every half, widened, and narrowed again after a small change: each thread folds 16 of them.
//: case half_all
//: out u32 4096 zero result
//: half_all<<<32, 128>>>(out)
extern "C" __global__ void half_all(unsigned *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x, hash = 1;
    for (unsigned k = 0; k < 16; k++) {
        float f = __half2float(__ushort_as_half((unsigned short)(i * 16 + k)));
        unsigned bits = f == f ? __float_as_uint(f) ^ __half_as_ushort(__float2half_rn(f * 1.0009f)) : 7;
        hash = hash * 0x01000193 ^ bits;
    }
    out[i] = hash;
}

// Sums of halves by atomics: whole numbers below 2048 are exact.
//: case half_atomics
//: out u32 2 zero result
//: half_atomics<<<2, 64>>>(out)
extern "C" __global__ void half_atomics(__half2 *out) {
    atomicAdd(&out[0], __floats2half2_rn(threadIdx.x % 4, 2));
    atomicAdd((__half *)&out[1], __float2half(1.0f));
}
