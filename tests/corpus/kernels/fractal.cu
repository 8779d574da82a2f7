// Iterations that diverge.

//: case mandelbrot
//: out u16 2304 zero result
//: mandelbrot<<<3x3, 16x16>>>(out, s32 48, f32 -2.0, f32 -1.25, f32 0.052)
extern "C" __global__ void mandelbrot(unsigned short *out, int n, float left, float top, float step) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y, k = 0;
    float cx = left + c * step, cy = top + r * step, x = 0, y = 0;
    while (k < 300 && x * x + y * y < 4) {
        float next = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = next;
        k++;
    }
    out[r * n + c] = (unsigned short)k;
}

//: case julia
//: out u16 1024 zero result
//: julia<<<4x4, 8x8>>>(out, f64 -0.8, f64 0.156)
extern "C" __global__ void julia(unsigned short *out, double cx, double cy) {
    int c = blockIdx.x * 8 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y, k = 0;
    double x = (c - 16) / 10.0, y = (r - 16) / 10.0;
    for (; k < 200 && x * x + y * y < 4; k++) {
        double next = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = next;
    }
    out[r * 32 + c] = (unsigned short)k;
}

//: case collatz
//: out u32 512 zero result
//: collatz<<<4, 128>>>(out)
extern "C" __global__ void collatz(unsigned *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, steps = 0;
    unsigned long long v = i + 1, top = v;
    while (v != 1) {
        v = v & 1 ? 3 * v + 1 : v / 2;
        top = v > top ? v : top;
        steps++;
    }
    out[i] = steps << 20 ^ (unsigned)top;
}

// Newton's method; the root that it reaches decides.
//: case newton
//: out u8 1024 zero result
//: newton<<<1x4, 32x8>>>(out)
extern "C" __global__ void newton(unsigned char *out) {
    int c = threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
    float x = (c - 15.5f) / 8, y = (r - 15.5f) / 8;
    unsigned char k = 0;
    for (; k < 40; k++) {
        float a = x * x - y * y, b = 2 * x * y, norm = 3 * (a * a + b * b);
        float cubeX = a * x - b * y - 1, cubeY = a * y + b * x;
        float dx = (cubeX * a + cubeY * b) / norm, dy = (cubeY * a - cubeX * b) / norm;
        x -= dx;
        y -= dy;
        if (fabsf(dx) + fabsf(dy) < 1e-5f) break;
    }
    out[r * 32 + c] = k * 4 + (x > 0.5f ? 1 : y > 0 ? 2 : 3);
}

//: case queens
//: out u32 64 zero result
//: queens<<<1, 64>>>(out)
extern "C" __global__ void queens(unsigned *out) {
    // The first two rows by thread; eight rows in all.
    unsigned first = threadIdx.x / 8, second = threadIdx.x % 8, found = 0;
    unsigned cols[8], left[8], right[8], free[8];
    int row = 2;
    if (first != second && first != second + 1 && second != first + 1) {
        cols[2] = 1u << first | 1u << second;
        left[2] = 1u << first << 2 | 1u << second << 1;
        right[2] = 1u << first >> 2 | 1u << second >> 1;
        free[2] = ~(cols[2] | left[2] | right[2]) & 255;
        while (row >= 2) {
            if (free[row] == 0) { row--; continue; }
            unsigned bit = free[row] & -free[row];
            free[row] ^= bit;
            if (row == 7) { found++; continue; }
            cols[row + 1] = cols[row] | bit;
            left[row + 1] = (left[row] | bit) << 1;
            right[row + 1] = (right[row] | bit) >> 1;
            row++;
            free[row] = ~(cols[row] | left[row] | right[row]) & 255;
        }
    }
    out[threadIdx.x] = found;
}
