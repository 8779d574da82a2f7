// Calls: recursion, tables of functions, virtual functions, templates, lambdas.

__device__ __noinline__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    return m == 0 ? n + 1 : ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}
//: case recursion
//: out u32 96 zero result
//: recursion<<<1, 48>>>(out)
extern "C" __global__ void recursion(unsigned *out) {
    out[threadIdx.x] = fibonacci(threadIdx.x % 13);
    out[48 + threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x % 6);
}

__device__ bool is_odd(unsigned n);
__device__ __noinline__ bool is_even(unsigned n) { return n == 0 || is_odd(n - 1); }
__device__ __noinline__ bool is_odd(unsigned n) { return n != 0 && is_even(n - 1); }
__device__ __noinline__ void hanoi(int n, int from, int to, unsigned *moves, unsigned &hash) {
    if (n == 0) return;
    hanoi(n - 1, from, 3 - from - to, moves, hash);
    hash = hash * 31 + from * 3 + to;
    ++*moves;
    hanoi(n - 1, 3 - from - to, to, moves, hash);
}
//: case mutual_recursion
//: out u32 96 zero result
//: mutual_recursion<<<1, 32>>>(out)
extern "C" __global__ void mutual_recursion(unsigned *out) {
    unsigned t = threadIdx.x, moves = 0, hash = 1;
    hanoi(t % 6, 0, 2, &moves, hash);
    out[t * 3] = is_even(t) + 2 * is_odd(t);
    out[t * 3 + 1] = moves;
    out[t * 3 + 2] = hash;
}

typedef int (*Operation)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ __noinline__ int choose(int a, int b) { return a > b ? a : ~b; }
__device__ Operation table[4] = {add, subtract, multiply, choose};
__constant__ Operation fixed[2] = {multiply, add};
//: case function_table
//: x s32 128 random
//: out s32 256 zero result
//: function_table<<<1, 128>>>(x, out)
extern "C" __global__ void function_table(const int *x, int *out) {
    int t = threadIdx.x, v = x[t];
    out[t] = table[(unsigned)v % 4](v, t);
    out[128 + t] = fixed[t & 1](v, table[t / 32](t, 3));
}

struct Shape {
    float size;
    __device__ Shape(float size) : size(size) {}
    __device__ virtual float area() const { return 0; }
    __device__ virtual int corners() const = 0;
};
struct Square : Shape {
    __device__ Square(float s) : Shape(s) {}
    __device__ float area() const override { return size * size; }
    __device__ int corners() const override { return 4; }
};
struct Circle : Shape {
    __device__ Circle(float s) : Shape(s) {}
    __device__ float area() const override { return 3.14159265f * size * size; }
    __device__ int corners() const override { return 0; }
};
struct Triangle final : Square {
    __device__ Triangle(float s) : Square(s) {}
    __device__ float area() const override { return Square::area() / 2; }
    __device__ int corners() const override { return 3; }
};
__device__ __noinline__ float measure(const Shape *s) { return s->area() + s->corners(); }
//: case virtual_functions
//: out f32 96 zero result
//: virtual_functions<<<1, 96>>>(out)
extern "C" __global__ void virtual_functions(float *out) {
    Square square(threadIdx.x);
    Circle circle(threadIdx.x * 0.5f);
    Triangle triangle(threadIdx.x + 1.0f);
    const Shape *shapes[3] = {&square, &circle, &triangle};
    out[threadIdx.x] = measure(shapes[threadIdx.x % 3]) + measure(shapes[(threadIdx.x / 3) % 3]);
}

template <typename... T> __device__ double sum_of(T... values) { return (double(0) + ... + values); }
template <int N> struct Factorial { static constexpr unsigned value = N * Factorial<N - 1>::value; };
template <> struct Factorial<0> { static constexpr unsigned value = 1; };
template <typename F> __device__ __noinline__ int twice(F f, int v) { return f(f(v)); }
//: case templates
//: out f64 64 zero result
//: templates<<<1, 64>>>(out)
extern "C" __global__ void templates(double *out) {
    int t = threadIdx.x, k = t * 3;
    auto grow = [=](int v) { return v * 2 + k; };
    auto count = [&k](int v) { k++; return v - k; };
    out[t] = sum_of(t, 0.5f * t, (short)-3, 2.25, (unsigned)Factorial<7>::value) + twice(grow, t) + twice(count, 5) * 0.001 + k;
}

struct Wide { int a[6]; double d; short s; };
__device__ __noinline__ Wide turn(Wide w, int by) {
    Wide r;
    for (int i = 0; i < 6; i++) r.a[i] = w.a[(i + by) % 6];
    r.d = w.d * by;
    r.s = (short)(w.s + by);
    return r;
}
//: case structures
//: out f64 64 zero result
//: structures<<<1, 64>>>(bytes 0100000002000000030000000400000005000000060000000000000000001440ff7f000000000000, out)
extern "C" __global__ void structures(Wide w, double *out) {
    Wide r = turn(w, threadIdx.x % 7);
    for (int i = 0; i < 3; i++) r = turn(r, i + 1);
    out[threadIdx.x] = r.a[0] * 100000.0 + r.a[3] * 1000.0 + r.d + r.s * 1e-3;
}
