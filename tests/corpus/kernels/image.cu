// Filters of images.

__constant__ float filter[25];
//: case convolution
//: filter f32 25 random symbol
//: x f32 1024 random
//: y f32 1024 zero result
//: convolution<<<2x2, 16x16>>>(x, y, s32 32)
extern "C" __global__ void convolution(const float *x, float *y, int n) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (int i = -2; i <= 2; i++)
        for (int j = -2; j <= 2; j++) {
            int rr = min(max(r + i, 0), n - 1), cc = min(max(c + j, 0), n - 1);
            sum += filter[(i + 2) * 5 + j + 2] * x[rr * n + cc];
        }
    y[r * n + c] = sum;
}

//: case convolution_rows
//: x f32 1024 random
//: y f32 1024 zero result
//: convolution_rows<<<4, 256, 1152>>>(x, y, s32 16)
extern "C" __global__ void convolution_rows(const float *x, float *y, int reach) {
    extern __shared__ float s[];
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    for (int l = threadIdx.x; l < blockDim.x + 2 * reach; l += blockDim.x) {
        int g = blockIdx.x * blockDim.x + l - reach;
        s[l] = g < 0 || g >= n ? 0 : x[g];
    }
    __syncthreads();
    float sum = 0;
    for (int d = 0; d <= 2 * reach; d++) sum = fmaf(s[threadIdx.x + d], 1.0f - fabsf(d - reach) / (reach + 1), sum);
    y[i] = sum;
}

//: case sobel
//: x u8 2048 random
//: y u8 2048 zero result
//: sobel<<<4x4, 16x8>>>(x, y, s32 64, s32 32)
extern "C" __global__ void sobel(const unsigned char *x, unsigned char *y, int wide, int high) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
    if (c == 0 || r == 0 || c == wide - 1 || r == high - 1) return;
    const unsigned char *p = x + r * wide + c;
    int h = p[1 - wide] + 2 * p[1] + p[1 + wide] - p[-1 - wide] - 2 * p[-1] - p[wide - 1];
    int v = p[wide - 1] + 2 * p[wide] + p[wide + 1] - p[-wide - 1] - 2 * p[-wide] - p[1 - wide];
    y[r * wide + c] = min(255, (int)sqrtf((float)(h * h + v * v)));
}

//: case median
//: x u8 1024 random
//: y u8 1024 zero result
//: median<<<1x8, 32x4>>>(x, y)
extern "C" __global__ void median(const unsigned char *x, unsigned char *y) {
    int c = threadIdx.x, r = blockIdx.y * 4 + threadIdx.y;
    unsigned char v[9];
    for (int i = 0; i < 9; i++) v[i] = x[((r + i / 3 + 31) & 31) * 32 + ((c + i % 3 + 31) & 31)];
    for (int i = 0; i < 5; i++)
        for (int j = i + 1; j < 9; j++)
            if (v[j] < v[i]) { unsigned char w = v[i]; v[i] = v[j]; v[j] = w; }
    y[r * 32 + c] = v[4];
}

//: case grey
//: x u8 1200 random
//: y u8 400 zero result
//: grey<<<4, 100>>>(x, y)
struct Colour { unsigned char r, g, b; };
extern "C" __global__ void grey(const Colour *x, unsigned char *y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = (unsigned char)(0.299f * x[i].r + 0.587f * x[i].g + 0.114f * x[i].b + 0.5f);
}

//: case zoom
//: x f32 256 random
//: y f32 1600 zero result
//: zoom<<<5x5, 8x8>>>(x, y, f32 0.3875)
extern "C" __global__ void zoom(const float *x, float *y, float scale) {
    int c = blockIdx.x * 8 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
    float fx = c * scale, fy = r * scale;
    int cx = (int)floorf(fx), cy = (int)floorf(fy);
    float u = fx - cx, v = fy - cy;
    const float *p = x + cy * 16 + cx;
    int right = cx < 15, down = cy < 15 ? 16 : 0;
    float top = p[0] + u * (p[right] - p[0]), bottom = p[down] + u * (p[down + right] - p[down]);
    y[r * 40 + c] = top + v * (bottom - top);
}

// Floyd and Steinberg: rows follow each other by three columns, over volatile progress counters.
//: case dither
//: x s32 1024 below 256 result
//: done s32 32 zero result
//: dither<<<1, 32>>>(x, done)
extern "C" __global__ void dither(int *x, volatile int *done) {
    volatile int *image = x;
    int r = threadIdx.x;
    for (int c = 0; c < 32; c++) {
        while (r > 0 && done[r - 1] < min(32, c + 3)) { }
        int i = r * 32 + c, v = image[i], white = v > 127 ? 255 : 0, error = v - white;
        image[i] = white;
        if (c < 31) image[i + 1] += error * 7 >> 4;
        if (r < 31) {
            if (c > 0) image[i + 31] += error * 3 >> 4;
            image[i + 32] += error * 5 >> 4;
            if (c < 31) image[i + 33] += error >> 4;
        }
        __threadfence();
        done[r] = c + 1;
    }
}
