/* Frees memory when the process ends, as destructors of static objects in C++ do. */
#include <stdio.h>
#include <stdlib.h>

extern int cudaMalloc(void **, size_t);
extern int cudaMallocManaged(void **, size_t, unsigned);
extern int cudaFree(void *);
extern int cudaMemset(void *, int, size_t);
extern int cudaDeviceSynchronize(void);

static void *device, *managed;

static void end(void) {
    int failures = cudaMemset(device, 1, 64) != 0;
    failures += cudaDeviceSynchronize() != 0;
    failures += cudaFree(device) != 0;
    failures += cudaFree(managed) != 0;
    printf("%d failures\n", failures);
}

int main(void) {
    /* It is called after what the libraries do at the end, as they come later. */
    atexit(end);
    return cudaMalloc(&device, 64) != 0 || cudaMallocManaged(&managed, 64, 1) != 0;
}
