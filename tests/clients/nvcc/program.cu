// A program as nvcc compiles it: device functions, device, constant and managed variables.
//
// The host side has to work in full. A launch may answer that the driver runs no kernels
// (cudaErrorNotSupported); then nothing is asked of the device's work.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            std::fprintf(stderr, "line %d: %s: last error %s\n", __LINE__,      \
                         #condition, cudaGetErrorName(cudaPeekAtLastError()));  \
            std::exit(1);                                                       \
        }                                                                       \
    } while (0)

__device__ int device_variable[4] = {1, 2, 3, 4};
__constant__ float constant_variable = 2.5f;
__managed__ int managed_variable = 42;

__global__ void add(int *values, int more) { values[threadIdx.x] += more; }

template <typename T> __global__ void fill(T *values, T value) { values[threadIdx.x] = value; }

static void devices() {
    int count = 0, version = 0;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess && count > 0);
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    CHECK(properties.managedMemory == 1 && properties.warpSize == 32);
    int warp = 0;
    CHECK(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, 0) == cudaSuccess && warp == 32);
    CHECK(cudaRuntimeGetVersion(&version) == cudaSuccess && version / 1000 == CUDART_VERSION / 1000);
    CHECK(cudaSetDevice(count) == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess);
}

static void memory() {
    std::vector<int> there(1024, 7), back(1024);
    int *device, *managed;
    const size_t bytes = there.size() * sizeof(int);
    CHECK(cudaMalloc(&device, bytes) == cudaSuccess);
    CHECK(cudaMallocManaged(&managed, bytes) == cudaSuccess);
    CHECK(cudaMemcpy(device, there.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaMemcpy(managed, device, bytes, cudaMemcpyDefault) == cudaSuccess);
    CHECK(cudaMemcpy(back.data(), managed, bytes, cudaMemcpyDefault) == cudaSuccess);
    CHECK(back == there);
    cudaMemLocation to = {cudaMemLocationTypeDevice, 0};
    CHECK(cudaMemAdvise(managed, bytes, cudaMemAdviseSetPreferredLocation, to) == cudaSuccess);
    CHECK(cudaMemPrefetchAsync(managed, bytes, to, 0) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, managed) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeManaged);
    CHECK(cudaFree(device) == cudaSuccess && cudaFree(managed) == cudaSuccess);
}

static int called = 0;

static void streams() {
    cudaStream_t stream;
    cudaEvent_t start, end;
    void *memory;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess);
    CHECK(cudaEventRecord(start, stream) == cudaSuccess);
    CHECK(cudaMallocAsync(&memory, 1 << 20, stream) == cudaSuccess);
    CHECK(cudaMemsetAsync(memory, 1, 1 << 20, stream) == cudaSuccess);
    CHECK(cudaFreeAsync(memory, stream) == cudaSuccess);
    CHECK(cudaLaunchHostFunc(stream, [](void *) { ++called; }, nullptr) == cudaSuccess);
    CHECK(cudaEventRecord(end, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess && called == 1);
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, start, end) == cudaSuccess && ms > 0);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

// Whether the driver has the program's device code.
static bool variables() {
    int *address = nullptr, back[4] = {}, there[4] = {5, 6, 7, 8};
    size_t bytes = 0;
    cudaError_t code = cudaGetSymbolAddress((void **)&address, device_variable);
    if (code == cudaErrorNotSupported) {
        CHECK(cudaGetLastError() == cudaErrorNotSupported);
        return false;
    }
    CHECK(code == cudaSuccess);
    CHECK(cudaGetSymbolSize(&bytes, device_variable) == cudaSuccess && bytes == sizeof back);
    CHECK(cudaMemcpyToSymbol(device_variable, there, sizeof there) == cudaSuccess);
    CHECK(cudaMemcpyFromSymbol(back, device_variable, sizeof back) == cudaSuccess && back[3] == 8);
    float value = 1.5f;
    CHECK(cudaMemcpyToSymbol(constant_variable, &value, sizeof value) == cudaSuccess);
    managed_variable += 1;
    CHECK(cudaGetSymbolAddress((void **)&address, managed_variable) == cudaSuccess);
    CHECK(address == &managed_variable);
    return true;
}

static bool functions() {
    int *values;
    CHECK(cudaMallocManaged(&values, 32 * sizeof(int)) == cudaSuccess);
    add<<<1, 32>>>(values, 1);
    cudaError_t code = cudaGetLastError();
    if (code != cudaErrorNotSupported) {
        CHECK(code == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
        fill<<<1, 32>>>(values, 9);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(values[0] == 9 && values[31] == 9);
        add<<<1, 2048>>>(values, 1);
        CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
        cudaFuncAttributes attributes;
        CHECK(cudaFuncGetAttributes(&attributes, add) == cudaSuccess);
        CHECK(attributes.maxThreadsPerBlock == 1024);
        int blocks = 0;
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0) == cudaSuccess);
        CHECK(blocks > 0);
    }
    CHECK(cudaFree(values) == cudaSuccess);
    return code != cudaErrorNotSupported;
}

int main() {
    devices();
    memory();
    streams();
    bool loads = variables();
    bool runs = functions();
    std::printf("host side as expected; device code is %s and %s\n", loads ? "loaded" : "not loaded",
                runs ? "runs" : "does not run");
    return 0;
}
