// Element-wise work over vectors.

//: case vector_add
//: a f32 1000 random
//: b f32 1000 random
//: out f32 1000 zero result
//: vector_add<<<4, 256>>>(a, b, out, u32 1000)
extern "C" __global__ void vector_add(const float *a, const float *b, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

//: case saxpy
//: x f32 777 random
//: y f32 777 random result
//: saxpy<<<7, 128>>>(f32 2.5, x, y, u32 777)
extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

//: case grid_stride
//: x f64 1000 random
//: y f64 1000 random result
//: axpby_stride<<<2, 96>>>(f64 0.75, x, f64 -1.5, y, u32 1000)
extern "C" __global__ void axpby_stride(double a, const double *x, double b, double *y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = a * x[i] + b * y[i];
}

//: case float4_lanes
//: x f32 1024 random
//: y f32 1024 zero result
//: float4_lanes<<<2, 128>>>(x, y)
extern "C" __global__ void float4_lanes(const float4 *__restrict__ x, float4 *__restrict__ y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = x[i];
    y[i] = make_float4(v.w * v.x, v.x + v.y, v.y - v.z, v.z / (1.0f + v.w * v.w));
}

//: case bytes_saturated
//: x u8 1024 random
//: y u8 1024 random result
//: bytes_saturated<<<1, 256>>>(x, y)
extern "C" __global__ void bytes_saturated(const uchar4 *x, uchar4 *y) {
    unsigned i = threadIdx.x;
    uchar4 a = x[i], b = y[i];
    a.x = min(255, a.x + b.x);
    a.y = max(0, (int)a.y - (int)b.y);
    a.z = (a.z + b.z + 1) / 2;
    a.w = a.w > b.w ? a.w - b.w : b.w - a.w;
    y[i] = a;
}

//: case shorts_wrap
//: x s16 640 random
//: y s16 640 zero result
//: shorts_wrap<<<5, 128>>>(x, y)
extern "C" __global__ void shorts_wrap(const short *x, short *y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    short v = x[i];
    v = (short)(v * 3 + 7);
    v = (short)(v >> 2);
    y[i] = (short)(v ^ (unsigned short)(v << 5)) / (short)((i & 7) + 1);
}

//: case grid_3d
//: out u32 1440 zero result
//: grid_3d<<<2x3x2, 5x4x6>>>(out)
extern "C" __global__ void grid_3d(unsigned *out) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    unsigned wide = gridDim.x * blockDim.x, high = gridDim.y * blockDim.y;
    out[(z * high + y) * wide + x] = x + 100 * y + 10000 * z;
}
