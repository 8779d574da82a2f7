/* Calls the runtime as code from nvcc calls it. Prototypes are declared here: no header is needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
extern int cudaMalloc(void **, size_t);
extern int cudaMallocManaged(void **, size_t, unsigned);
extern int cudaFree(void *);
extern int cudaMemcpy(void *, const void *, size_t, int);
extern int cudaMemset(void *, int, size_t);
extern int cudaMemcpy_ptds(void *, const void *, size_t, int);
extern int cudaDeviceSynchronize(void);
extern int cudaGetLastError(void);
extern int cudaRuntimeGetVersion(int *);
extern int cudaStreamSynchronize_ptsz(void *);
extern int cudaCreateSurfaceObject(unsigned long long *, const void *);
extern int cudaGetSymbolAddress(void **, const void *);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaUnregisterFatBinary(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, dim3 *, dim3 *, int *);
extern void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
extern unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void *);
extern int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
extern int __cudaGetKernel(void **, const void *);
extern int __cudaLaunchKernel(void *, dim3, dim3, void **, size_t, void *);

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static void memory(void) {
    void *device, *managed;
    char there[64], back[64];
    memset(there, 5, sizeof there);
    CHECK(cudaMalloc(&device, sizeof there) == 0);
    CHECK(cudaMallocManaged(&managed, sizeof there, 1) == 0);
    CHECK(cudaMemcpy(device, there, sizeof there, 1) == 0);
    CHECK(cudaMemcpy_ptds(managed, device, sizeof there, 3) == 0);
    CHECK(cudaMemcpy(back, managed, sizeof back, 4) == 0);
    CHECK(memcmp(there, back, sizeof back) == 0);
    CHECK(cudaMemcpy(back, managed, sizeof back, 7) == 21);
    CHECK(cudaGetLastError() == 21 && cudaGetLastError() == 0);
    CHECK(cudaStreamSynchronize_ptsz(0) == 0 && cudaDeviceSynchronize() == 0);
    CHECK(cudaFree(device) == 0 && cudaFree(managed) == 0);
}

/* A wrapper whose data is no image, as the simulated driver finds out when it is used. */
static const unsigned long long junk[8] = {1, 2, 3};
static struct { int magic, version; const void *data, *linked; } wrapper = {0x466243b1, 1, junk, 0};
static char function_of_host, other_function, variable_of_host, other_variable;

static void registration(void) {
    dim3 grid = {2, 3, 4}, block = {5, 6, 7}, grid_back, block_back;
    size_t shared;
    void *stream, *kernel = 0, *address;
    void **image = __cudaRegisterFatBinary(&wrapper);
    CHECK(image);
    __cudaRegisterFunction(image, &function_of_host, 0, "kernel", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(image, &variable_of_host, 0, "variable", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(image);

    CHECK(__cudaPushCallConfiguration(grid, block, 99, (void *)2) == 0);
    CHECK(__cudaPopCallConfiguration(&grid_back, &block_back, &shared, &stream) == 0);
    CHECK(memcmp(&grid, &grid_back, sizeof grid) == 0 && memcmp(&block, &block_back, sizeof block) == 0);
    CHECK(shared == 99 && stream == (void *)2);
    CHECK(__cudaPopCallConfiguration(&grid_back, &block_back, &shared, &stream) == 52);

    CHECK(__cudaGetKernel(&kernel, &function_of_host) == 0 && kernel);
    CHECK(__cudaGetKernel(&stream, &other_function) == 98);
    /* Both answer what the driver answers to the junk, and neither succeeds. */
    CHECK(__cudaLaunchKernel(kernel, grid, block, 0, 0, 0) != 0);
    CHECK(cudaLaunchKernel(&function_of_host, grid, block, 0, 0, 0) != 0);
    CHECK(cudaLaunchKernel(&other_function, grid, block, 0, 0, 0) == 400);
    CHECK(cudaGetSymbolAddress(&address, &variable_of_host) != 0);
    CHECK(cudaGetSymbolAddress(&address, &other_variable) == 13);
    __cudaUnregisterFatBinary(image);
    CHECK(__cudaGetKernel(&kernel, &function_of_host) == 98);
    cudaGetLastError();
}

/* An object of a program that nvcc linked (-rdc=true) for no GPU: a fat binary with an entry of text. */
static const char text[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry store(.param .u64 p) { .reg .u64 %d; .reg .u32 %r; ld.param.u64 %d, [p];\n"
    "mov.u32 %r, 42; st.global.u32 [%d], %r; ret; }\n";
static struct {
    unsigned magic; unsigned short version, header; unsigned long long bytes;
    unsigned short kind, entry_version; unsigned entry_header; unsigned long long text_bytes;
    unsigned before[3], capability, after[8];
    char text[sizeof text];
} object = {0xba55ed50, 1, 16, 64 + sizeof text, 1, 0x101, 64, sizeof text, {0}, 75, {0}, {0}};
static const unsigned long long linked[2] = {0x00100001ba55ed50, 0};
static const void *const objects[] = {&object, 0};

static void relinked(void) {
    static struct { int magic, version; const void *data, *objects; } wrapper = {0x466243b1, 2, linked, objects};
    static char store;
    dim3 one = {1, 1, 1};
    unsigned *word = 0;
    void *arguments[] = {&word};
    memcpy(object.text, text, sizeof text);
    void **image = __cudaRegisterFatBinary(&wrapper);
    CHECK(image);
    __cudaRegisterFunction(image, &store, 0, "store", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(image);
    CHECK(cudaMallocManaged((void **)&word, sizeof *word, 1) == 0);
    CHECK(cudaLaunchKernel(&store, one, one, arguments, 0, 0) == 0);
    CHECK(cudaDeviceSynchronize() == 0 && *word == 42);
    CHECK(cudaFree(word) == 0);
    __cudaUnregisterFatBinary(image);
}

int main(void) {
    int version = 0;
    unsigned long long surface;
    CHECK(cudaRuntimeGetVersion(&version) == 0 && version / 1000 == 13);
    memory();
    registration();
    relinked();
    CHECK(cudaCreateSurfaceObject(&surface, 0) == 801);
    CHECK(cudaCreateSurfaceObject(&surface, 0) == 801);
    puts("all as expected");
    return 0;
}
