/* The real time of a host fault of a program on the simulated driver: `host_faults LIBRARY`.
 *
 * Reads a page of each of 64 blocks of 2 MiB that are on the device, and prints the median in
 * nanoseconds, the best of ten rounds, beside that of the first write to pages of shared memory of
 * Linux. Build with `cc -O2 benches/host_faults.c -o host_faults -ldl`; the options of
 * PAGEWISE_DRIVER choose the mechanism, summary and trace. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define BLOCK (2ul << 20)
#define BLOCKS 64
#define ROUNDS 10

static void *library;

static void call(const char *name, unsigned long a, unsigned long b, unsigned long c) {
    int (*function)(unsigned long, unsigned long, unsigned long, unsigned long);
    *(void **)&function = dlsym(library, name);
    int code = function ? function(a, b, c, 0) : -1;
    if (code) {
        fprintf(stderr, "%s: %d\n", name, code);
        exit(1);
    }
}

static long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000l + time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

/* The median time of an access to the first byte of each block. */
static long median(volatile unsigned char *memory, int writes) {
    long times[BLOCKS];
    for (size_t block = 0; block < BLOCKS; block++) {
        long start = now_ns();
        if (writes) memory[block * BLOCK] = 1;
        else (void)memory[block * BLOCK];
        times[block] = now_ns() - start;
    }
    qsort(times, BLOCKS, sizeof *times, ascending);
    return times[BLOCKS / 2];
}

int main(int count, char **arguments) {
    unsigned long context, managed;
    long fault = -1, plain = -1;
    library = dlopen(count > 1 ? arguments[1] : "libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    call("cuInit", 0, 0, 0);
    call("cuDevicePrimaryCtxRetain", (unsigned long)&context, 0, 0);
    call("cuCtxSetCurrent", context, 0, 0);
    call("cuMemAllocManaged", (unsigned long)&managed, BLOCKS * BLOCK, 1);
    for (int round = 0; round < ROUNDS; round++) {
        call("cuMemsetD8_v2", managed, 1, BLOCKS * BLOCK);
        call("cuMemPrefetchAsync", managed, BLOCKS * BLOCK, 0);
        call("cuCtxSynchronize", 0, 0, 0);
        long time = median((volatile unsigned char *)managed, 0);
        if (fault < 0 || time < fault) fault = time;
        void *own = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (own == MAP_FAILED) return 1;
        time = median(own, 1);
        if (plain < 0 || time < plain) plain = time;
        munmap(own, BLOCKS * BLOCK);
    }
    printf("host fault %ld ns, page fault of Linux %ld ns\n", fault, plain);
    return 0;
}
