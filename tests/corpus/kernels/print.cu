// Output of kernels.
#include <cstdio>

//: case print_formats
//: stdout
//: print_formats<<<1, 1>>>(s32 -42, f64 2.71828182845904, u64 1311768467463790320)
extern "C" __global__ void print_formats(int i, double d, unsigned long long u) {
    printf("plain\n");
    printf("%d %i %u %x %X %o %c|\n", i, 7, 8u, 255, 255, 8, 'q');
    printf("[%5d] [%-5d] [%05d] [%+d] [% d] [%#x] [%#o]\n", 42, 42, 42, 42, 42, 42, 42);
    printf("%f %.3f %10.2f %-10.1f| %e %.2E %g %G\n", d, d, d, d, d, d, d, d * 1e10);
    printf("%lld %llu %llx %ld\n", (long long)u, u, u, -1l);
    printf("%s and %10s and %-10s and %.2s|\n", "text", "right", "left", "cut");
    printf("100%% %hd %5.1f%%\n", (short)-3, 12.34f);
    printf("%a %.0f %f %f\n", 1.0, 0.5, 1.0 / 0.0, -0.0);
    printf("%*d|%-*d|\n", 6, 12, 5, 7);
}

//: case print_threads
//: stdout sorted
//: count s32 1 zero result
//: print_threads<<<2, 3>>>(count)
extern "C" __global__ void print_threads(int *count) {
    int n = printf("block %d thread %d of %d: %.1f\n", blockIdx.x, threadIdx.x, blockDim.x, threadIdx.x * 0.5);
    atomicAdd(count, n);
    if (threadIdx.x == 2) atomicAdd(count, printf("the last of block %u\n", blockIdx.x) * 100);
}
