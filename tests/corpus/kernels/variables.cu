// Variables of a module.

__device__ int counter = 5;
__device__ unsigned squares[8] = {0, 1, 4, 9, 16, 25};
__device__ double ratio = 0.3;
__device__ unsigned char letters[] = "device";
__constant__ float scale = 1.5f;
__constant__ struct { short a; int b; unsigned long long c; char d[4]; } mixed = {-7, 100000, 0x123456789abcdefull, {'a', 'b', 'c', 0}};
__device__ unsigned *pointer = squares + 2;
__device__ const char *names[3] = {"zero", "one", "two"};
__managed__ int managed_total = 1000;
__device__ volatile unsigned flag;
//: case module_variables
//: counter s32 1 symbol result
//: squares u32 8 symbol result
//: managed_total s32 1 symbol result
//: out f64 64 zero result
//: module_variables<<<1, 32>>>(out)
//: module_variables<<<1, 32>>>(out)
extern "C" __global__ void module_variables(double *out) {
    unsigned t = threadIdx.x;
    atomicAdd(&counter, t);
    atomicSub(&managed_total, 3);
    double v = scale * ratio + mixed.a + mixed.b * 1e-3 + (mixed.c >> 40) + mixed.d[t & 3];
    v += letters[t % 7] + names[t % 3][1];
    out[t] = v;
    out[32 + t] = pointer[t & 1] * 10 + (pointer - squares);
    __syncwarp();
    if (t == 0) { squares[7] = squares[7] + 49; flag = 1; pointer = squares + 2; }
}

__device__ unsigned ticket() {
    static unsigned next = 10;
    return atomicAdd(&next, 2);
}
//: case static_local
//: out u32 64 zero result sorted
//: static_local<<<2, 32>>>(out)
extern "C" __global__ void static_local(unsigned *out) { out[blockIdx.x * 32 + threadIdx.x] = ticket(); }

//: case dynamic_shared
//: x f32 128 random
//: out f32 128 zero result
//: dynamic_shared<<<1, 128, 2560>>>(x, out, s32 128)
extern "C" __global__ void dynamic_shared(const float *x, float *out, int n) {
    extern __shared__ __align__(16) char room[];
    __shared__ int fixed[4];
    double *wide = (double *)room;
    float *narrow = (float *)(wide + n);
    unsigned short *index = (unsigned short *)(narrow + n);
    int t = threadIdx.x;
    if (t < 4) fixed[t] = t * t;
    wide[t] = x[t] * 2.0;
    narrow[t] = x[t] + 1;
    index[t] = (unsigned short)((t * 37) % n);
    __syncthreads();
    unsigned size;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
    out[t] = (float)wide[index[t]] + narrow[n - 1 - t] + fixed[t & 3] + size;
}

//: case shared_96k
//: out u32 64 zero result
//: shared_96k<<<1, 64, 98304>>>(out)
extern "C" __global__ void shared_96k(unsigned *out) {
    extern __shared__ unsigned words[];
    for (unsigned i = threadIdx.x; i < 24576; i += 64) words[i] = i * 2654435761u;
    __syncthreads();
    unsigned sum = 0;
    for (unsigned i = threadIdx.x; i < 24576; i += 64) sum ^= words[24575 - i] + i;
    out[threadIdx.x] = sum;
}

//: case local_arrays
//: x u32 64 random
//: out u32 256 zero result
//: local_arrays<<<2, 32>>>(x, out)
extern "C" __global__ void local_arrays(const unsigned *x, uint4 *out) {
    unsigned i = blockIdx.x * 32 + threadIdx.x, v = x[i], a[32];
    unsigned char bytes[40];
    double wide[5];
    for (int k = 0; k < 32; k++) a[k] = k * v;
    for (int k = 0; k < 40; k++) bytes[k] = (unsigned char)(v >> (k % 24));
    for (int k = 0; k < 5; k++) wide[k] = k / 4.0 + v;
    for (int k = 0; k < 20; k++) a[(v >> k) & 31] ^= bytes[(v >> (k / 2)) % 40] + k;
    unsigned *p = v & 1 ? a + 3 : a + 11;
    out[i] = make_uint4(a[v & 31], p[v % 7], bytes[v % 40], (unsigned)wide[v % 5]);
}

// A parameter of 512 bytes, by value, indexed at run time.
struct Table { unsigned word[128]; };
//: case large_parameter
//: out u32 128 zero result
//: large_parameter<<<1, 128>>>(random 128, out)
extern "C" __global__ void large_parameter(const __grid_constant__ Table table, unsigned *out) {
    unsigned v = threadIdx.x;
    const unsigned *p = table.word;
    for (int k = 0; k < 4; k++) v = (v * 5 + p[v & 127]) & 1023;
    out[threadIdx.x] = v;
}

//: case special_registers
//: out u32 768 zero result
//: special_registers<<<2x1x2, 8x4x2>>>(out)
extern "C" __global__ void special_registers(unsigned *out) {
    unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned *o = out + (b * 64 + t) * 3, lane, warps, lt, ge;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%nwarpid;" : "=r"(warps));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
    asm("mov.u32 %0, %%lanemask_ge;" : "=r"(ge));
    o[0] = lane * 1000 + threadIdx.x * 100 + threadIdx.y * 10 + threadIdx.z;
    o[1] = lt ^ (ge << 1);
    o[2] = gridDim.x + gridDim.z * 10 + blockIdx.x * 100 + blockIdx.z * 1000 + (warps > 1) + warpSize * 10000;
}
