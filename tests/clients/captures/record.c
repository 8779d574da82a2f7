// Calls beside a stream capture: what each answers, and whether the capture survives.
//
// One line for each call: its name, then 30 answers. The first 15 are beside a capture of a blocking
// stream, the others beside one of a non-blocking stream. Each 15 are five callers for each mode of
// the capture (global, thread-local, relaxed): the thread that captures; another thread as it is;
// and another thread that set its own mode to global, thread-local, relaxed. An answer is a CUresult,
// with `!` if the capture is invalid afterwards.
//
// It runs on any driver: gcc -o record record.c -ldl -lpthread && ./record
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

typedef int Result;
typedef void *Handle;
typedef uint64_t Address;
typedef struct {
    int kind, id;
} Location;
typedef struct {
    int allocation, handles;
    Location location;
    void *security;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
} PoolProps;
typedef struct {
    int type, handles;
    Location location;
    void *meta;
    unsigned char flags[8];
} MemoryProps;

#define CALLS(with) \
    with(cuInit, unsigned) with(cuDevicePrimaryCtxRetain, Handle *, int) \
    with(cuCtxSetCurrent, Handle) with(cuCtxSynchronize, void) with(cuCtxCreate_v2, Handle *, unsigned, int) \
    with(cuCtxDestroy_v2, Handle) with(cuStreamCreate, Handle *, unsigned) with(cuStreamDestroy_v2, Handle) \
    with(cuStreamBeginCapture_v2, Handle, int) with(cuStreamEndCapture, Handle, Handle *) \
    with(cuStreamIsCapturing, Handle, int *) with(cuThreadExchangeStreamCaptureMode, int *) \
    with(cuStreamSynchronize, Handle) with(cuStreamQuery, Handle) with(cuStreamWaitEvent, Handle, Handle, unsigned) \
    with(cuGraphDestroy, Handle) with(cuEventCreate, Handle *, unsigned) with(cuEventDestroy_v2, Handle) \
    with(cuEventQuery, Handle) with(cuEventRecord, Handle, Handle) with(cuEventSynchronize, Handle) \
    with(cuMemAlloc_v2, Address *, size_t) with(cuMemAllocManaged, Address *, size_t, unsigned) \
    with(cuMemFree_v2, Address) with(cuMemAllocHost_v2, void **, size_t) with(cuMemFreeHost, void *) \
    with(cuMemHostRegister_v2, void *, size_t, unsigned) with(cuMemHostUnregister, void *) \
    with(cuMemAllocAsync, Address *, size_t, Handle) with(cuMemFreeAsync, Address, Handle) \
    with(cuMemAllocFromPoolAsync, Address *, size_t, Handle, Handle) \
    with(cuMemPoolCreate, Handle *, const PoolProps *) with(cuMemPoolDestroy, Handle) \
    with(cuMemPoolTrimTo, Handle, size_t) with(cuDeviceGetDefaultMemPool, Handle *, int) \
    with(cuMemAddressReserve, Address *, size_t, size_t, Address, unsigned long long) \
    with(cuMemAddressFree, Address, size_t) \
    with(cuMemCreate, unsigned long long *, size_t, const MemoryProps *, unsigned long long) \
    with(cuMemRelease, unsigned long long) with(cuMemsetD8_v2, Address, unsigned char, size_t) \
    with(cuMemsetD8Async, Address, unsigned char, size_t, Handle) \
    with(cuMemcpyHtoD_v2, Address, const void *, size_t) with(cuMemcpyDtoD_v2, Address, Address, size_t) \
    with(cuMemcpyHtoDAsync_v2, Address, const void *, size_t, Handle) \
    with(cuMemPrefetchAsync_v2, Address, size_t, Location, unsigned, Handle) \
    with(cuMemAdvise_v2, Address, size_t, int, Location) with(cuMemGetInfo_v2, size_t *, size_t *) \
    with(cuPointerGetAttribute, void *, int, Address) with(cuLaunchHostFunc, Handle, void (*)(void *), void *) \
    with(cuModuleUnload, Handle)

#define POINTER(name, ...) static Result (*name)(__VA_ARGS__);
CALLS(POINTER)

static Handle context, capturing, other, event, finished, pool;
static Address memory, managed, pooled;
static void *host;
static char page[8192] __attribute__((aligned(4096)));

static void nothing(void *data) { (void)data; }

#define CASE(name, ...) \
    static Result name(void) { \
        Handle handle = 0; \
        Address address = 0; \
        size_t bytes = 0, total = 0; \
        unsigned long long raw = 0; \
        Result result; \
        (void)handle, (void)address, (void)bytes, (void)total, (void)raw, (void)result; \
        __VA_ARGS__ \
    }
// Memory and handles that a call gives stay: giving them back would be a second call.
CASE(context_synchronize, return cuCtxSynchronize();)
CASE(context_create, result = cuCtxCreate_v2(&handle, 0, 0); if (!result) cuCtxDestroy_v2(handle);
     cuCtxSetCurrent(context); return result;)
CASE(stream_create, return cuStreamCreate(&handle, 1);)
CASE(stream_destroy, result = cuStreamDestroy_v2(other); if (!result) {
    int mode = 2;
    cuThreadExchangeStreamCaptureMode(&mode);
    cuStreamCreate(&other, 1);
    cuThreadExchangeStreamCaptureMode(&mode);
} return result;)
CASE(synchronize_legacy, return cuStreamSynchronize((Handle)1);)
CASE(synchronize_per_thread, return cuStreamSynchronize((Handle)2);)
CASE(synchronize_capturing, return cuStreamSynchronize(capturing);)
CASE(synchronize_other, return cuStreamSynchronize(other);)
CASE(query_legacy, return cuStreamQuery((Handle)1);)
CASE(query_capturing, return cuStreamQuery(capturing);)
CASE(query_other, return cuStreamQuery(other);)
CASE(wait_other, return cuStreamWaitEvent(other, finished, 0);)
CASE(wait_legacy, return cuStreamWaitEvent((Handle)1, finished, 0);)
CASE(event_create, return cuEventCreate(&handle, 2);)
CASE(event_destroy, cuEventCreate(&handle, 2); return cuEventDestroy_v2(handle);)
CASE(event_query, return cuEventQuery(finished);)
CASE(event_synchronize, return cuEventSynchronize(finished);)
CASE(event_record_legacy, return cuEventRecord(event, (Handle)1);)
CASE(event_record_other, return cuEventRecord(event, other);)
CASE(alloc, return cuMemAlloc_v2(&address, 4096);)
CASE(alloc_managed, return cuMemAllocManaged(&address, 4096, 1);)
CASE(alloc_host, return cuMemAllocHost_v2(&host, 4096);)
CASE(free_managed, return cuMemFree_v2(managed);)
CASE(host_register, return cuMemHostRegister_v2(page, 4096, 0);)
CASE(alloc_async, return cuMemAllocAsync(&address, 4096, other);)
CASE(alloc_from_pool, return cuMemAllocFromPoolAsync(&address, 4096, pool, other);)
CASE(free_async, return cuMemFreeAsync(pooled, other);)
CASE(pool_create, PoolProps props = {.allocation = 1, .location = {1, 0}};
     return cuMemPoolCreate(&handle, &props);)
CASE(pool_trim, return cuMemPoolTrimTo(pool, 0);)
CASE(address_reserve, return cuMemAddressReserve(&address, 2 << 20, 0, 0, 0);)
CASE(memory_create, MemoryProps props = {.type = 1, .location = {1, 0}};
     return cuMemCreate(&raw, 2 << 20, &props, 0);)
CASE(set, return cuMemsetD8_v2(memory, 1, 16);)
CASE(set_managed, return cuMemsetD8_v2(managed, 1, 16);)
CASE(set_other, return cuMemsetD8Async(memory, 1, 16, other);)
CASE(copy_to_device, return cuMemcpyHtoD_v2(memory, page, 16);)
CASE(copy_on_device, return cuMemcpyDtoD_v2(memory, memory + 64, 16);)
CASE(copy_other, return cuMemcpyHtoDAsync_v2(memory, page, 16, other);)
CASE(prefetch_other, return cuMemPrefetchAsync_v2(managed, 4096, (Location){1, 0}, 0, other);)
CASE(advise, return cuMemAdvise_v2(managed, 4096, 3, (Location){1, 0});)
CASE(memory_info, return cuMemGetInfo_v2(&bytes, &total);)
CASE(pointer_attribute, return cuPointerGetAttribute(&total, 2, memory);)
CASE(host_function_other, return cuLaunchHostFunc(other, nothing, 0);)
CASE(host_function_legacy, return cuLaunchHostFunc((Handle)1, nothing, 0);)
CASE(module_unload_null, return cuModuleUnload(0);)

#define NAMED(name) {#name, name}
static const struct {
    const char *name;
    Result (*call)(void);
} cases[] = {
    NAMED(context_synchronize), NAMED(context_create), NAMED(stream_create), NAMED(stream_destroy),
    NAMED(synchronize_legacy), NAMED(synchronize_per_thread), NAMED(synchronize_capturing),
    NAMED(synchronize_other), NAMED(query_legacy), NAMED(query_capturing), NAMED(query_other),
    NAMED(wait_other), NAMED(wait_legacy), NAMED(event_create), NAMED(event_destroy),
    NAMED(event_query), NAMED(event_synchronize), NAMED(event_record_legacy),
    NAMED(event_record_other), NAMED(alloc), NAMED(alloc_managed), NAMED(alloc_host),
    NAMED(free_managed), NAMED(host_register), NAMED(alloc_async), NAMED(alloc_from_pool),
    NAMED(free_async), NAMED(pool_create), NAMED(pool_trim), NAMED(address_reserve),
    NAMED(memory_create), NAMED(set), NAMED(set_managed), NAMED(set_other), NAMED(copy_to_device),
    NAMED(copy_on_device), NAMED(copy_other), NAMED(prefetch_other), NAMED(advise),
    NAMED(memory_info), NAMED(pointer_attribute), NAMED(host_function_other),
    NAMED(host_function_legacy), NAMED(module_unload_null),
};

static int chosen, own_mode;
static Result answer;

static void *other_thread(void *data) {
    cuCtxSetCurrent(context);
    int mode = own_mode;
    if (mode >= 0)
        cuThreadExchangeStreamCaptureMode(&mode);
    answer = cases[chosen].call();
    return data;
}

// Caller -2 is the thread that captures, -1 another as it is, 0 to 2 another with that mode.
static void beside_a_capture(int blocking, int mode, int caller) {
    cuMemAllocManaged(&managed, 4096, 1);
    cuMemAllocAsync(&pooled, 4096, other);
    cuStreamCreate(&capturing, !blocking);
    cuCtxSynchronize();
    if (cuStreamBeginCapture_v2(capturing, mode))
        printf(" (no capture)");
    if (caller == -2) {
        answer = cases[chosen].call();
    } else {
        own_mode = caller;
        pthread_t thread;
        pthread_create(&thread, 0, other_thread, 0);
        pthread_join(thread, 0);
    }
    int status = -1;
    cuStreamIsCapturing(capturing, &status);
    printf(" %d%s", answer, status == 1 ? "" : "!");
    Handle graph = 0;
    cuStreamEndCapture(capturing, &graph);
    if (graph)
        cuGraphDestroy(graph);
    cuStreamDestroy_v2(capturing);
    cuMemFree_v2(managed);
    cuMemHostUnregister(page);
}

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return puts("there is no libcuda.so.1"), 1;
#define FIND(name, ...) \
    if (!(name = (Result(*)(__VA_ARGS__))dlsym(library, #name))) \
        return puts("the driver has no " #name), 1;
    CALLS(FIND)
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return puts("there is no device"), 1;
    cuStreamCreate(&other, 1);
    cuMemAlloc_v2(&memory, 4096);
    cuDeviceGetDefaultMemPool(&pool, 0);
    cuEventCreate(&event, 2);
    cuEventCreate(&finished, 2);
    cuEventRecord(finished, other);
    cuCtxSynchronize();
    for (chosen = 0; chosen < (int)(sizeof cases / sizeof *cases); chosen++) {
        printf("%s", cases[chosen].name);
        for (int blocking = 1; blocking >= 0; blocking--)
            for (int mode = 0; mode < 3; mode++)
                for (int caller = -2; caller < 3; caller++)
                    beside_a_capture(blocking, mode, caller);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
