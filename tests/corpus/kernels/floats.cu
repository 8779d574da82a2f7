// Arithmetic and conversions of 32-bit floats: every result is exactly rounded.

__device__ float any_float(unsigned v) {
    // A fifth of the values has a random exponent; the others are between 2^-8 and 2^8.
    if (v % 5 == 0) return __uint_as_float(v * 2654435761u);
    return __uint_as_float((v & 0x807fffff) | (119 + (v >> 23) % 16) << 23);
}

//: case rounded_floats
//: x u32 512 random
//: out u32 8192 zero result
//: rounded_floats<<<4, 128>>>(x, out)
extern "C" __global__ void rounded_floats(const unsigned *x, float *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    float a = any_float(x[i]), b = any_float(x[(i * 7 + 1) % 512]), c = any_float(x[(i * 3 + 5) % 512]), *o = out + i * 16;
    o[0] = __fadd_rn(a, b); o[1] = __fadd_rz(a, b); o[2] = __fadd_ru(a, b); o[3] = __fadd_rd(a, b);
    o[4] = __fmul_rn(a, b); o[5] = __fmul_rz(a, b); o[6] = __fmul_ru(a, b); o[7] = __fmul_rd(a, b);
    o[8] = __fmaf_rn(a, b, c); o[9] = __fmaf_rz(a, b, c); o[10] = __fmaf_ru(a, b, c); o[11] = __fmaf_rd(a, b, c);
    o[12] = __fsub_rn(a, c); o[13] = __saturatef(a * b); o[14] = fminf(a, fmaxf(b, c)); o[15] = copysignf(a, b);
    for (int k = 0; k < 16; k++) if (o[k] != o[k]) o[k] = 7;
}

//: case divided_floats
//: x u32 512 random
//: out u32 6144 zero result
//: divided_floats<<<4, 128>>>(x, out)
extern "C" __global__ void divided_floats(const unsigned *x, float *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    float a = any_float(x[i]), b = any_float(x[(i * 7 + 1) % 512]), *o = out + i * 12;
    o[0] = __fdiv_rn(a, b); o[1] = __fdiv_rz(a, b); o[2] = __fdiv_ru(a, b); o[3] = __fdiv_rd(a, b);
    o[4] = __fsqrt_rn(fabsf(a)); o[5] = __fsqrt_rz(fabsf(a)); o[6] = __fsqrt_ru(fabsf(a)); o[7] = __fsqrt_rd(fabsf(a));
    o[8] = __frcp_rn(a); o[9] = __frcp_rz(a); o[10] = __frcp_ru(b); o[11] = __frcp_rd(b);
    for (int k = 0; k < 12; k++) if (o[k] != o[k]) o[k] = 7;
}

//: case converted_floats
//: x u32 512 random
//: out s64 10240 zero result
//: converted_floats<<<4, 128>>>(x, out)
extern "C" __global__ void converted_floats(const unsigned *x, long long *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    float a = any_float(x[i]);
    long long *o = out + i * 20;
    o[0] = __float2int_rn(a); o[1] = __float2int_rz(a); o[2] = __float2int_ru(a); o[3] = __float2int_rd(a);
    o[4] = __float2uint_rn(a); o[5] = __float2uint_rz(a); o[6] = __float2uint_ru(a); o[7] = __float2uint_rd(a);
    o[8] = __float2ll_rn(a * 1e6f); o[9] = __float2ll_rz(a); o[10] = __float2ull_rn(a * 1e6f); o[11] = __float2ull_ru(a);
    o[12] = __float_as_int(__int2float_rn(x[i])); o[13] = __float_as_int(__int2float_rz(x[i]));
    o[14] = __float_as_int(__uint2float_ru(x[i])); o[15] = __float_as_int(__uint2float_rd(x[i]));
    unsigned long long w = (unsigned long long)x[i] * x[i] + x[i];
    o[16] = __float_as_int(__ll2float_rn(w)); o[17] = __float_as_int(__ull2float_rz(w));
    o[18] = (signed char)(int)a + (unsigned char)(int)a * 1000 + (short)(int)a * 1000000ll;
    o[19] = __double_as_longlong((double)a);
    if (a != a) o[19] = 7;
}

//: case shaped_floats
//: x u32 512 random
//: out u32 8192 zero result
//: shaped_floats<<<4, 128>>>(x, out)
extern "C" __global__ void shaped_floats(const unsigned *x, float *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    float a = any_float(x[i]), b = any_float(x[(i * 5 + 2) % 512]), *o = out + i * 16;
    int e = 0;
    o[0] = floorf(a); o[1] = ceilf(a); o[2] = truncf(a); o[3] = rintf(a); o[4] = roundf(a);
    o[5] = fmodf(fmodf(a, 4096), b); o[6] = frexpf(a, &e); o[7] = (float)e; o[8] = ldexpf(a, (int)(i % 300) - 150);
    o[9] = (float)(isnan(a) + 2 * isinf(a) + 4 * (a < b) + 8 * (a >= b) + 16 * (a != b) + 32 * signbit(a) + 64 * isfinite(b));
    o[10] = fdimf(a, b); o[11] = nextafterf(a, b); o[12] = fabsf(a) - b; o[13] = (float)ilogbf(a);
    o[14] = logbf(b); o[15] = remainderf(fmodf(a, 4096), 3.7f);
    for (int k = 0; k < 16; k++) if (o[k] != o[k]) o[k] = 7;
}
