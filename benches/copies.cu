// How long fills and copies of memory that does not migrate take on a GPU: the source of
// `cost.copies` of a profile. Prints for each way and length the median time between two events.
//
//   nvcc -O2 -cudart shared -o copies benches/copies.cu && ./copies
//
// A second GPU is copied to without access to the first one's memory, and then with it.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include <cuda_runtime.h>

static const size_t LONGEST = size_t(1) << 30;

static void check(cudaError_t code, const char *what) {
    if (code != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
        exit(1);
    }
}

#define CHECK(call) check(call, #call)

static double median_ns(cudaStream_t stream, const std::function<void()> &copy) {
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times(11);
    for (float &ms : times) {
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventRecord(begin, stream));
        copy();
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    return times[times.size() / 2] * 1e6;
}

static void measure(const char *way, cudaStream_t stream, const std::function<void(size_t)> &copy) {
    for (size_t bytes : {size_t(4), size_t(4) << 10, size_t(64) << 10, size_t(1) << 20,
                         size_t(16) << 20, size_t(256) << 20, LONGEST}) {
        double ns = median_ns(stream, [&] { copy(bytes); });
        printf("%-32s %10zu bytes %12.0f ns\n", way, bytes, ns);
    }
}

int main() {
    char *device, *other, *pinned, *pageable = static_cast<char *>(malloc(LONGEST));
    memset(pageable, 1, LONGEST);
    CHECK(cudaMalloc(&device, LONGEST));
    CHECK(cudaMalloc(&other, LONGEST));
    CHECK(cudaMallocHost(&pinned, LONGEST));
    memset(pinned, 1, LONGEST);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    auto copies = [&](const char *way, char *to, char *from) {
        measure(way, stream, [=](size_t bytes) {
            CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
        });
    };
    copies("page-locked to device", device, pinned);
    copies("device to page-locked", pinned, device);
    copies("pageable to device", device, pageable);
    copies("device to pageable", pageable, device);
    copies("within device", other, device);
    measure("fill", stream, [=](size_t bytes) { CHECK(cudaMemsetAsync(device, 0, bytes, stream)); });
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices < 2) return 0;
    char *remote;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&remote, LONGEST));
    CHECK(cudaSetDevice(0));
    auto between = [=](size_t bytes) {
        CHECK(cudaMemcpyPeerAsync(remote, 1, device, 0, bytes, stream));
    };
    measure("between devices", stream, between);
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceEnablePeerAccess(0, 0));
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    measure("between devices, with access", stream, between);
    return 0;
}
