/* A program that uses memory of the driver by plain pointers: `host LIBRARY WHAT [FILE]`.
 *
 * It ends with status 0 if all was as it should be, and names the line otherwise. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;

#define PAGE 4096
#define BLOCK (2 << 20)
#define THREADS 4
#define BYTES (THREADS * BLOCK)

#define CHECK(claim)                                                                              \
    do {                                                                                          \
        if (!(claim)) {                                                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #claim);                                   \
            _exit(1);                                                                             \
        }                                                                                         \
    } while (0)

static void *library;

/* Calls a function of the driver with up to four arguments of 64 bits. */
static int call(const char *name, unsigned long a, unsigned long b, unsigned long c,
                unsigned long d) {
    int (*function)(unsigned long, unsigned long, unsigned long, unsigned long);
    *(void **)&function = dlsym(library, name);
    CHECK(function);
    return function(a, b, c, d);
}

static void start(void) {
    void *context;
    CHECK(call("cuInit", 0, 0, 0, 0) == 0);
    CHECK(call("cuDevicePrimaryCtxRetain", (unsigned long)&context, 0, 0, 0) == 0);
    CHECK(call("cuCtxSetCurrent", (unsigned long)context, 0, 0, 0) == 0);
}

static volatile unsigned char *managed(size_t bytes) {
    CUdeviceptr ptr;
    CHECK(call("cuMemAllocManaged", (unsigned long)&ptr, bytes, 1, 0) == 0);
    return (volatile unsigned char *)ptr;
}

static void to_device(volatile unsigned char *memory, size_t bytes) {
    CHECK(call("cuMemPrefetchAsync", (unsigned long)memory, bytes, 0, 0) == 0);
    CHECK(call("cuCtxSynchronize", 0, 0, 0, 0) == 0);
}

static volatile unsigned char *shared;

static void *write_block(void *number) {
    size_t block = (size_t)number;
    for (size_t at = 0; at < BLOCK; at += PAGE) shared[block * BLOCK + at] = block + 1;
    return NULL;
}

static void *read_block(void *number) {
    size_t block = (size_t)number, wrong = 0;
    for (size_t at = 0; at < BLOCK; at += PAGE) wrong += shared[block * BLOCK + at] != block + 1;
    return (void *)wrong;
}

static void in_threads(void *(*work)(void *)) {
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        CHECK(pthread_create(&threads[t], NULL, work, (void *)t) == 0);
    }
    for (size_t t = 0; t < THREADS; t++) {
        void *wrong;
        CHECK(pthread_join(threads[t], &wrong) == 0 && wrong == NULL);
    }
}

/* Threads write and read blocks of their own; pages are on the device in between. */
static void threads(void) {
    start();
    shared = managed(BYTES);
    in_threads(write_block);
    to_device(shared, BYTES);
    in_threads(read_block);
}

/* A file gets managed memory and gives it back, while its pages are on the device. */
static void files(const char *path) {
    threads();
    CHECK(call("cuMemsetD8_v2", (unsigned long)shared, 9, BLOCK, 0) == 0);
    to_device(shared, BLOCK);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    CHECK(write(file, (void *)shared, BLOCK) == BLOCK);
    CHECK(call("cuMemsetD8_v2", (unsigned long)shared, 8, BLOCK, 0) == 0);
    to_device(shared, BLOCK);
    CHECK(lseek(file, 0, SEEK_SET) == 0 && read(file, (void *)shared, BLOCK) == BLOCK);
    CHECK(shared[0] == 9 && shared[BLOCK - 1] == 9 && shared[BLOCK] == 2);
}

static void device(void) {
    CUdeviceptr ptr;
    start();
    CHECK(call("cuMemAlloc_v2", (unsigned long)&ptr, PAGE, 0, 0) == 0);
    CHECK(call("cuMemsetD8_v2", ptr, 5, PAGE, 0) == 0);
    unsigned char copy[16] = {0};
    CHECK(call("cuMemcpyDtoH_v2", (unsigned long)copy, ptr, sizeof copy, 0) == 0 && copy[15] == 5);
    puts("reached");
    fflush(stdout);
    printf("read %d\n", *(volatile unsigned char *)ptr);
}

static void plain(void) {
    void *pinned, *own = aligned_alloc(PAGE, 4 * PAGE);
    start();
    CHECK(call("cuMemAllocHost_v2", (unsigned long)&pinned, 3 * BLOCK, 0, 0) == 0);
    memset(pinned, 3, 3 * BLOCK);
    CHECK(own && call("cuMemHostRegister_v2", (unsigned long)own, 4 * PAGE, 0, 0) == 0);
    memset(own, 4, 4 * PAGE);
    CHECK(call("cuMemcpyHtoD_v2", (unsigned long)pinned, (unsigned long)own, 4 * PAGE, 0) == 0);
    CHECK(((unsigned char *)pinned)[4 * PAGE - 1] == 4 && ((unsigned char *)pinned)[4 * PAGE] == 3);
}

/* Copies between pageable, managed and device memory, larger than what one fault shows. */
static void copies(void) {
    CUdeviceptr device;
    size_t bytes = 3 * BLOCK;
    start();
    unsigned char *own = malloc(bytes);
    CHECK(own && call("cuMemAlloc_v2", (unsigned long)&device, bytes, 0, 0) == 0);
    shared = managed(bytes);
    memset(own, 5, bytes);
    CHECK(call("cuMemcpyHtoD_v2", device, (unsigned long)own, bytes, 0) == 0);
    memset(own, 0, bytes);
    CHECK(call("cuMemcpyDtoH_v2", (unsigned long)own, device, bytes, 0) == 0);
    CHECK(own[0] == 5 && own[bytes - 1] == 5);
    memset(own, 6, bytes);
    CHECK(call("cuMemcpy", (unsigned long)shared, (unsigned long)own, bytes, 0) == 0);
    to_device(shared, bytes);
    memset(own, 0, bytes);
    CHECK(call("cuMemcpy", (unsigned long)own, (unsigned long)shared, bytes, 0) == 0);
    CHECK(own[0] == 6 && own[bytes - 1] == 6);
    free(own);
}

static int end_of(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void *busy(void *stop) {
    while (!*(volatile int *)stop) {
        CUdeviceptr ptr;
        CHECK(call("cuMemAllocManaged", (unsigned long)&ptr, PAGE, 1, 0) == 0);
        *(volatile char *)ptr = 1;
        CHECK(call("cuMemFree_v2", ptr, 0, 0, 0) == 0);
    }
    return NULL;
}

/* A thread of the parent is at work whenever a child begins. */
static void *in_context(void *stop) {
    void *context;
    CHECK(call("cuDevicePrimaryCtxRetain", (unsigned long)&context, 0, 0, 0) == 0);
    CHECK(call("cuCtxSetCurrent", (unsigned long)context, 0, 0, 0) == 0);
    return busy(stop);
}

static void forks(void) {
    static int stop;
    int version, count, device;
    CUdeviceptr ptr;
    pthread_t thread;
    start();
    shared = managed(BLOCK);
    shared[0] = 7;
    CHECK(pthread_create(&thread, NULL, in_context, &stop) == 0);
    for (int round = 0; round < 50; round++) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(call("cuInit", 0, 0, 0, 0) == 3);
            CHECK(call("cuDriverGetVersion", (unsigned long)&version, 0, 0, 0) == 3);
            CHECK(call("cuDeviceGetCount", (unsigned long)&count, 0, 0, 0) == 3);
            CHECK(call("cuCtxGetDevice", (unsigned long)&device, 0, 0, 0) == 3);
            CHECK(call("cuMemAllocManaged", (unsigned long)&ptr, PAGE, 1, 0) == 3);
            CHECK(call("cuMemFree_v2", (unsigned long)shared, 0, 0, 0) == 3);
            const char *name = NULL;
            CHECK(call("cuGetErrorName", 3, (unsigned long)&name, 0, 0) == 0);
            CHECK(strcmp(name, "CUDA_ERROR_NOT_INITIALIZED") == 0);
            exit(0); /* With the handlers of the parent's libraries. */
        }
        CHECK(end_of(child) == 0);
    }
    pid_t child = fork();
    if (child == 0) _exit(shared[0]);
    CHECK(end_of(child) == -SIGSEGV);
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    to_device(shared, BLOCK);
    CHECK(shared[0] == 7);
}

/* A process that only asked for the version has children with drivers of their own. */
static void forks_first(void) {
    int version;
    CHECK(call("cuDriverGetVersion", (unsigned long)&version, 0, 0, 0) == 0);
    pid_t child = fork();
    start();
    shared = managed(BLOCK);
    shared[5] = 1;
    to_device(shared, BLOCK);
    CHECK(shared[5] == 1);
    if (child == 0) _exit(0);
    CHECK(end_of(child) == 0);
}

static void crash(void) {
    start();
    shared = managed(BYTES);
    for (int page = 0; page < 3; page++) shared[page * BLOCK] = 1;
    *(volatile char *)8 = 1;
}

static volatile unsigned long seen;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    seen = (unsigned long)info->si_addr;
    CHECK(mprotect((void *)(seen / PAGE * PAGE), PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void handles(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    start();
    shared = managed(BLOCK);
    shared[0] = 2;
    to_device(shared, BLOCK);
    CHECK(shared[0] == 2 && seen == 0);
    char *own = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    own[77] = 1;
    CHECK(seen == (unsigned long)own + 77);
}

static void advises(void) {
    start();
    shared = managed(BLOCK);
    for (size_t at = 0; at < BLOCK; at += PAGE) shared[at] = 6;
    CHECK(mlock((void *)shared, BLOCK) == 0);
    to_device(shared, BLOCK);
    CHECK(shared[0] == 6);
    CHECK(munlock((void *)shared, BLOCK) == 0);
    CHECK(madvise((void *)shared, BLOCK, MADV_DONTNEED) == 0);
    CHECK(madvise((void *)shared, BLOCK, MADV_WILLNEED) == 0);
    for (size_t at = 0; at < BLOCK; at += PAGE) CHECK(shared[at] == 6);
    CHECK(call("cuMemFree_v2", (unsigned long)shared, 0, 0, 0) == 0);
}

int main(int count, char **arguments) {
    const char *what = count > 2 ? arguments[2] : "";
    library = dlopen(count > 1 ? arguments[1] : "libcuda.so.1", RTLD_NOW);
    CHECK(library);
    if (!strcmp(what, "threads")) threads();
    else if (!strcmp(what, "files")) files(count > 3 ? arguments[3] : "file");
    else if (!strcmp(what, "device")) device();
    else if (!strcmp(what, "plain")) plain();
    else if (!strcmp(what, "copies")) copies();
    else if (!strcmp(what, "forks")) forks();
    else if (!strcmp(what, "forks first")) forks_first();
    else if (!strcmp(what, "crash")) crash();
    else if (!strcmp(what, "handles")) handles();
    else if (!strcmp(what, "advises")) advises();
    else CHECK(!"a known program");
    return 0;
}
