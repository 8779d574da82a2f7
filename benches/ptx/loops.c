// The kernels as loops over their threads, for one core.
#include <math.h>
#include <stddef.h>

void c_saxpy(const float *x, float *y, size_t threads) {
    for (size_t i = 0; i < threads; i++) y[i] = fmaf(x[i], 2.5f, y[i]);
}

void c_rounds(const float *x, float *out, size_t threads, size_t n) {
    for (size_t i = 0; i < threads; i++) {
        float value = x[i];
        for (size_t k = 0; k < n; k++) value = fmaf(value, value, -0.25f);
        out[i] = value;
    }
}

void c_gemm(const float *a, const float *b, float *c, size_t n) {
    for (size_t row = 0; row < n; row++)
        for (size_t column = 0; column < n; column++) {
            float sum = 0;
            for (size_t k = 0; k < n; k++) sum = fmaf(a[row * n + k], b[k * n + column], sum);
            c[row * n + column] = sum;
        }
}

void c_sums(const float *x, float *out, size_t blocks) {
    for (size_t block = 0; block < blocks; block++) {
        float part[256];
        for (size_t i = 0; i < 256; i++) part[i] = x[block * 256 + i];
        for (size_t half = 128; half > 0; half /= 2)
            for (size_t i = 0; i < half; i++) part[i] += part[i + half];
        out[block] = part[0];
    }
}
