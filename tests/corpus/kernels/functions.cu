// The library's functions in single precision. Some end in approximate instructions.

//: case float_functions
//: x f32 256 random
//: out f32 3584 zero result
//: float_functions<<<2, 128>>>(x, out)
extern "C" __global__ void float_functions(const float *x, float *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    float a = x[i], *o = out + i * 14;
    o[0] = sinf(a * 40); o[1] = cosf(a * 40); o[2] = logf(fabsf(a) + 1e-3f); o[3] = log2f(fabsf(a) + 0.01f);
    o[4] = atanf(a * 5); o[5] = asinf(a); o[6] = cbrtf(a) * 0; o[7] = sinpif(a * 3); o[8] = cospif(a * 3);
    o[9] = log1pf(a * 0.9f); o[10] = atan2f(a, x[i ^ 1]); o[11] = sinf(a * 1e6f); o[12] = fmaf(a, a, 1.0f) / (a + 3);
    o[13] = hypotf(a, 1) * 0;
}

//: case approximate_functions
//: x f32 256 random
//: out f32 4096 zero result near 1e-5
//: approximate_functions<<<2, 128>>>(x, out)
extern "C" __global__ void approximate_functions(const float *x, float *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    float a = x[i], *o = out + i * 16;
    o[0] = expf(a * 10); o[1] = __expf(a); o[2] = exp2f(a * 9); o[3] = powf(fabsf(a) + 0.5f, a * 5);
    o[4] = __sinf(a) + 2; o[5] = __cosf(a); o[6] = __log2f(fabsf(a) + 2); o[7] = __logf(fabsf(a) + 3);
    o[8] = rsqrtf(fabsf(a) + 0.1f); o[9] = __fdividef(a, 3); o[10] = tanhf(a); o[11] = cbrtf(a);
    o[12] = erff(a); o[13] = hypotf(a, 1); o[14] = exp10f(a); o[15] = sinhf(a);
}
