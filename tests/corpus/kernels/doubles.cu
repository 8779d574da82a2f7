// Arithmetic and functions in double precision.

__device__ double any_double(unsigned long long v) {
    if (v % 5 == 0) return __longlong_as_double(v * 0x9E3779B97F4A7C15ull);
    return __longlong_as_double((v & 0x800fffffffffffffull) | (1015 + (v >> 52) % 16) << 52);
}

//: case rounded_doubles
//: x u64 256 random
//: out u64 4608 zero result
//: rounded_doubles<<<2, 128>>>(x, out)
extern "C" __global__ void rounded_doubles(const unsigned long long *x, double *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    double a = any_double(x[i]), b = any_double(x[(i * 7 + 1) % 256]), c = any_double(x[(i * 3 + 5) % 256]), *o = out + i * 18;
    o[0] = __dadd_rn(a, b); o[1] = __dadd_rz(a, b); o[2] = __dadd_ru(a, b); o[3] = __dadd_rd(a, b);
    o[4] = __dmul_rn(a, b); o[5] = __dmul_rz(a, b); o[6] = __dmul_ru(a, b); o[7] = __dmul_rd(a, b);
    o[8] = __fma_rn(a, b, c); o[9] = __fma_rz(a, b, c); o[10] = __fma_ru(a, b, c); o[11] = __fma_rd(a, b, c);
    o[12] = __ddiv_rn(a, b); o[13] = __ddiv_rz(a, b); o[14] = __dsqrt_rn(fabs(a)); o[15] = __dsqrt_ru(fabs(a));
    o[16] = __drcp_rn(a); o[17] = fmin(a, fmax(b, c));
    for (int k = 0; k < 18; k++) if (o[k] != o[k]) o[k] = 7;
}

//: case converted_doubles
//: x u64 256 random
//: out s64 3584 zero result
//: converted_doubles<<<2, 128>>>(x, out)
extern "C" __global__ void converted_doubles(const unsigned long long *x, long long *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    double a = any_double(x[i]);
    long long *o = out + i * 14;
    o[0] = __double2int_rn(a); o[1] = __double2int_rz(a); o[2] = __double2uint_ru(a); o[3] = __double2uint_rd(a);
    o[4] = __double2ll_rn(a * 1e12); o[5] = __double2ll_rd(a); o[6] = __double2ull_rz(a * 1e12); o[7] = __double2ull_ru(a);
    o[8] = a == a ? __float_as_int(__double2float_rn(a)) : 7; o[9] = a == a ? __float_as_int(__double2float_rz(a)) : 7;
    o[10] = __double_as_longlong(__ll2double_rn(x[i])); o[11] = __double_as_longlong(__ull2double_ru(x[i]));
    o[12] = __double_as_longlong(__int2double_rn((int)x[i])) ^ __double2hiint(a);
    o[13] = __double_as_longlong(floor(a * 0.5)) ^ __double_as_longlong(rint(a)) ^ (a < 0) ^ ((a >= 1) << 5);
    if (a != a) o[13] = o[12] = 7;
}

// The library's functions: polynomials, and a few steps that start from an approximate reciprocal.
//: case double_functions
//: x f64 256 random
//: out f64 3584 zero result near 4e-15
//: double_functions<<<2, 128>>>(x, out)
extern "C" __global__ void double_functions(const double *x, double *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x;
    double a = x[i], *o = out + i * 14;
    o[0] = exp(a * 20); o[1] = log(fabs(a) + 1e-3); o[2] = sin(a * 30); o[3] = cos(a * 30); o[4] = tan(a);
    o[5] = atan2(a, 0.3); o[6] = pow(fabs(a) + 0.5, a * 7); o[7] = sqrt(fabs(a)); o[8] = cbrt(a); o[9] = tanh(a * 3);
    o[10] = asin(a); o[11] = exp2(a * 9); o[12] = log1p(a * 0.9); o[13] = hypot(a, 2.0);
}
