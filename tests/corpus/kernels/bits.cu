// Functions of bits and wide products.

//: case bit_functions
//: x u32 512 random
//: out u32 5120 zero result
//: bit_functions<<<4, 128>>>(x, out)
extern "C" __global__ void bit_functions(const unsigned *x, unsigned *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i] >> (i & 31), *o = out + i * 10;
    unsigned w = x[i ^ 1];
    o[0] = __popc(v);
    o[1] = __clz(v);
    o[2] = __ffs(v);
    o[3] = __brev(v);
    o[4] = __byte_perm(v, w, w);
    o[5] = __funnelshift_l(v, w, i);
    o[6] = __funnelshift_rc(v, w, i & 63);
    o[7] = __clzll((unsigned long long)v << 5 | 1) + __popcll((unsigned long long)v * w) + __ffsll((unsigned long long)v << 20);
    o[8] = (unsigned)(__brevll((unsigned long long)w << 32 | v) >> 11);
    o[9] = (v & w) ^ (~v | (w >> 3)) ^ __fns(w, 0, 3);
}

//: case wide_products
//: x u64 256 random
//: y u64 256 random
//: out u64 2048 zero result
//: wide_products<<<2, 128>>>(x, y, out)
extern "C" __global__ void wide_products(const unsigned long long *x, const unsigned long long *y, unsigned long long *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long a = x[i], b = y[i], *o = out + i * 8;
    o[0] = __umul64hi(a, b);
    o[1] = __mul64hi(a, b);
    o[2] = a * b;
    unsigned __int128 product = (unsigned __int128)a * b + a;
    o[3] = (unsigned long long)(product >> 77);
    o[4] = (unsigned long long)(product * 0x9E3779B97F4A7C15ull >> 33);
    o[5] = __umulhi((unsigned)a, (unsigned)b) | (unsigned long long)__mulhi((int)a, (int)b) << 32;
    o[6] = __umul24((unsigned)a, (unsigned)b) + __mul24((int)(a >> 32), (int)b);
    o[7] = (unsigned long long)((__int128)(long long)a * (long long)b >> 64) - (long long)a / 3;
}

//: case divisions
//: x s64 256 random
//: y s64 256 random
//: out s64 2048 zero result
//: divisions<<<2, 128>>>(x, y, out)
extern "C" __global__ void divisions(const long long *x, const long long *y, long long *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    long long a = x[i], b = (y[i] >> (i % 60)) | 1, *o = out + i * 8;
    int c = (int)a, d = (int)b | 1;
    o[0] = a / b;
    o[1] = a % b;
    o[2] = (unsigned long long)a / (unsigned long long)b;
    o[3] = (unsigned long long)a % (unsigned long long)b;
    o[4] = d == -1 ? -1 : c / d;
    o[5] = d == -1 ? 0 : c % d;
    o[6] = (unsigned)c / (unsigned)d * 10ll + (unsigned)c % 1000;
    o[7] = (short)c / (short)((short)d | 1) + (c % 7) * 100000ll;
}

//: case packed_bytes
//: x u32 256 random
//: y u32 256 random
//: out u32 2816 zero result
//: packed_bytes<<<1, 256>>>(x, y, out)
extern "C" __global__ void packed_bytes(const unsigned *x, const unsigned *y, unsigned *out) {
    unsigned i = threadIdx.x, a = x[i], b = y[i], *o = out + i * 11;
    o[0] = __dp4a(a, b, 17u);
    o[1] = __dp4a((int)a, (int)b, -5);
    o[2] = __dp2a_lo(a, b, 1u);
    o[3] = __dp2a_hi((int)a, (int)b, 1);
    o[4] = __sad((int)a, (int)b, 3u);
    o[5] = __usad(a, b, 3u);
    o[6] = __vadd4(a, b);
    o[7] = __vabsdiffu4(a, b);
    o[8] = __vmaxs2(a, b) ^ __vminu4(a, b);
    o[9] = __vcmpgtu4(a, b) + __vavgu4(a, b);
    o[10] = __uhadd(a, b) ^ __rhadd((int)a, (int)b);
}

//: case shifts
//: x s32 256 random
//: out s64 1536 zero result
//: shifts<<<2, 128>>>(x, out)
extern "C" __global__ void shifts(const int *x, long long *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, by = i % 32;
    int v = x[i];
    long long wide = (long long)v * 0x100000003ll, *o = out + i * 6;
    o[0] = v >> by;
    o[1] = (unsigned)v >> by;
    o[2] = wide << (i & 63);
    o[3] = wide >> (i & 63);
    o[4] = (unsigned long long)wide >> (i & 63);
    struct { int a : 5, b : 11; unsigned c : 7, d : 9; } field;
    field.a = v; field.b = v >> by; field.c = v; field.d = v >> 20;
    o[5] = field.a * 1000000ll + field.b * 1000 + field.c + field.d;
}

// Sieve, greatest divisors, powers and a test of primes.
//: case number_theory
//: out u32 1024 zero result
//: number_theory<<<2, 128>>>(out)
extern "C" __global__ void number_theory(uint4 *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = 1000003 + 2 * i, a = n * 48271u % 65537, b = 7560;
    while (b) { unsigned r = a % b; a = b; b = r; }
    auto power = [](unsigned long long x, unsigned e, unsigned m) {
        unsigned long long r = 1;
        for (; e; e >>= 1, x = x * x % m) if (e & 1) r = r * x % m;
        return (unsigned)r;
    };
    bool prime = true;
    unsigned odd = n - 1, twos = 0, bases[] = {2, 3, 5, 7};
    while (!(odd & 1)) { odd >>= 1; twos++; }
    for (unsigned base : bases) {
        unsigned v = power(base, odd, n);
        if (v == 1 || v == n - 1) continue;
        bool passes = false;
        for (unsigned k = 1; k < twos && !passes; k++) {
            v = (unsigned)((unsigned long long)v * v % n);
            passes = v == n - 1;
        }
        if (!passes) { prime = false; break; }
    }
    unsigned root = (unsigned)sqrtf((float)n);
    out[i] = make_uint4(a, power(3, n, 998244353), prime, root);
}
