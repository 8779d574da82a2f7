// Tensor instructions on whole numbers, whose sums are exact in any order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

//: case wmma_half
//: a u8 512 below 9
//: b u8 512 below 9
//: c f32 1024 zero result
//: wmma_half<<<1, 128>>>(a, b, c)
extern "C" __global__ void wmma_half(const unsigned char *a, const unsigned char *b, float *c) {
    __shared__ __half as[512], bs[512];
    for (int i = threadIdx.x; i < 512; i += 128) { as[i] = __float2half(a[i] - 4.0f); bs[i] = __float2half(b[i] * 0.5f); }
    __syncthreads();
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    int warp = threadIdx.x / 32;
    load_matrix_sync(fa, as + warp / 2 * 256, 16);
    load_matrix_sync(fb, bs + warp % 2 * 256, 16);
    fill_fragment(fc, warp);
    mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; i++) fc.x[i] *= 2;
    store_matrix_sync(c + warp * 256, fc, 16, warp & 1 ? mem_row_major : mem_col_major);
}

//: case wmma_bytes
//: a u8 256 below 200
//: b u8 256 below 250
//: c s32 256 below 1000 result
//: wmma_bytes<<<1, 32>>>(a, b, c)
extern "C" __global__ void wmma_bytes(const unsigned char *a, const unsigned char *b, int *c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, unsigned char, row_major> fa;
    fragment<matrix_b, 16, 16, 16, unsigned char, row_major> fb;
    fragment<accumulator, 16, 16, 16, int> fc;
    load_matrix_sync(fa, a, 16);
    load_matrix_sync(fb, b, 16);
    load_matrix_sync(fc, c, 16, mem_row_major);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(c, fc, 16, mem_row_major);
}

//: case mma_half
//: a u8 256 below 16
//: b u8 128 below 16
//: d f32 128 zero result
//: e u32 64 zero result
//: mma_half<<<1, 32>>>(a, b, d, e)
extern "C" __global__ void mma_half(const unsigned char *a, const unsigned char *b, float *d, unsigned *e) {
    __shared__ __align__(16) __half as[256], bs[128];
    int t = threadIdx.x;
    for (int i = t; i < 256; i += 32) as[i] = __float2half(a[i] - 8.0f);
    for (int i = t; i < 128; i += 32) bs[i] = __float2half(b[i] - 7.0f);
    __syncwarp();
    unsigned fa[4], fb[2], half[2] = {0x3c003c00, 0x40004000};
    float fd[4] = {1, 2, 3, 4};
    unsigned at = (unsigned)__cvta_generic_to_shared(as + (t % 16) * 16 + t / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(at));
    at = (unsigned)__cvta_generic_to_shared(bs + (t % 16) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(fb[0]), "=r"(fb[1]) : "r"(at));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(fd[0]), "+f"(fd[1]), "+f"(fd[2]), "+f"(fd[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%0,%1};"
                 : "+r"(half[0]), "+r"(half[1]) : "r"(fa[0]), "r"(fa[1]), "r"(fb[0]));
    for (int i = 0; i < 4; i++) d[t * 4 + i] = fd[i];
    e[t * 2] = half[0];
    e[t * 2 + 1] = half[1];
}

//: case mma_bfloat
//: x u32 192 below 64
//: d f32 256 zero result
//: mma_bfloat<<<1, 32>>>(x, d)
extern "C" __global__ void mma_bfloat(const unsigned *x, float *d) {
    int t = threadIdx.x;
    unsigned f[6], tf[6];
    for (int i = 0; i < 6; i++) {
        __nv_bfloat162 pair = __floats2bfloat162_rn((float)(x[t * 6 + i] % 8) - 3, (float)(x[t * 6 + i] / 8) - 4);
        f[i] = *(unsigned *)&pair;
        tf[i] = __float_as_uint((float)x[t * 6 + i] - 30);
    }
    float a[4] = {}, b[4] = {0.5f, 0, -0.5f, 8};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(a[0]), "+f"(a[1]), "+f"(a[2]), "+f"(a[3])
                 : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "r"(f[4]), "r"(f[5]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(b[0]), "+f"(b[1]), "+f"(b[2]), "+f"(b[3])
                 : "r"(tf[0]), "r"(tf[1]), "r"(tf[2]), "r"(tf[3]), "r"(tf[4]), "r"(tf[5]));
    for (int i = 0; i < 4; i++) { d[t * 8 + i] = a[i]; d[t * 8 + 4 + i] = b[i]; }
}

//: case mma_bytes
//: x u32 192 random
//: d s32 256 zero result
//: mma_bytes<<<1, 32>>>(x, d)
extern "C" __global__ void mma_bytes(const unsigned *x, int *d) {
    int t = threadIdx.x, a[4] = {1, -2, 3, -4}, b[4] = {};
    const unsigned *f = x + t * 6;
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])
                 : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "r"(f[4]), "r"(f[5]));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(b[0]), "+r"(b[1]), "+r"(b[2]), "+r"(b[3]) : "r"(f[0]), "r"(f[1]), "r"(f[2]));
    for (int i = 0; i < 4; i++) { d[t * 8 + i] = a[i]; d[t * 8 + 4 + i] = b[i]; }
}

//: case mma_double
//: x f64 64 linear -20 1
//: d f64 64 zero result
//: mma_double<<<1, 32>>>(x, d)
extern "C" __global__ void mma_double(const double *x, double *d) {
    int t = threadIdx.x;
    double c[2] = {(double)t, -1};
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(c[0]), "+d"(c[1]) : "d"(x[t]), "d"(x[(t * 5 + 32) % 64]));
    d[t * 2] = c[0];
    d[t * 2 + 1] = c[1];
}
