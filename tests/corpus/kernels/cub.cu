// CUB: functions of a block and of a warp.
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

//: case cub_reduce
//: x f32 512 random
//: out f32 8 zero result
//: cub_reduce<<<4, 128>>>(x, out)
extern "C" __global__ void cub_reduce(const float *x, float *out) {
    typedef cub::BlockReduce<float, 128> Reduce;
    __shared__ typename Reduce::TempStorage room;
    float v = x[blockIdx.x * 128 + threadIdx.x];
    float sum = Reduce(room).Sum(v);
    __syncthreads();
    float most = Reduce(room).Reduce(v, [](float a, float b) { return a > b ? a : b; }, 100);
    if (threadIdx.x == 0) { out[blockIdx.x * 2] = sum; out[blockIdx.x * 2 + 1] = most; }
}

//: case cub_scan
//: x s32 1024 random
//: out s32 1024 zero result
//: total s32 2 zero result
//: cub_scan<<<2, 128>>>(x, out, total)
extern "C" __global__ void cub_scan(const int *x, int *out, int *total) {
    typedef cub::BlockScan<int, 128, cub::BLOCK_SCAN_WARP_SCANS> Scan;
    typedef cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE> Load;
    typedef cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_VECTORIZE> Store;
    __shared__ union { typename Scan::TempStorage scan; typename Load::TempStorage load; typename Store::TempStorage store; } room;
    int v[4], sum;
    Load(room.load).Load(x + blockIdx.x * 512, v);
    __syncthreads();
    Scan(room.scan).ExclusiveSum(v, v, sum);
    __syncthreads();
    Store(room.store).Store(out + blockIdx.x * 512, v);
    if (threadIdx.x == 0) total[blockIdx.x] = sum;
}

//: case cub_radix_sort
//: key u32 1024 random result
//: value u32 1024 iota result
//: cub_radix_sort<<<2, 128>>>(key, value)
extern "C" __global__ void cub_radix_sort(unsigned *key, unsigned *value) {
    typedef cub::BlockRadixSort<unsigned, 128, 4, unsigned> Sort;
    __shared__ typename Sort::TempStorage room;
    unsigned k[4], v[4], base = blockIdx.x * 512 + threadIdx.x * 4;
    for (int i = 0; i < 4; i++) { k[i] = key[base + i]; v[i] = value[base + i]; }
    Sort(room).Sort(k, v);
    for (int i = 0; i < 4; i++) { key[base + i] = k[i]; value[base + i] = v[i]; }
}

//: case cub_histogram
//: x u8 512 below 64
//: bins u32 64 zero result
//: cub_histogram<<<1, 128>>>(x, bins)
extern "C" __global__ void cub_histogram(const unsigned char *x, unsigned *bins) {
    typedef cub::BlockHistogram<unsigned char, 128, 4, 64, cub::BLOCK_HISTO_SORT> Histogram;
    __shared__ typename Histogram::TempStorage room;
    __shared__ unsigned s[64];
    unsigned char v[4];
    for (int i = 0; i < 4; i++) v[i] = x[threadIdx.x * 4 + i];
    Histogram(room).Histogram(v, s);
    __syncthreads();
    if (threadIdx.x < 64) bins[threadIdx.x] = s[threadIdx.x];
}

//: case cub_warps
//: x s32 128 random
//: out s32 384 zero result
//: cub_warps<<<1, 128>>>(x, out)
extern "C" __global__ void cub_warps(const int *x, int *out) {
    typedef cub::WarpScan<int, 16> Scan;
    typedef cub::WarpReduce<int> Reduce;
    typedef cub::WarpMergeSort<int, 1, 32> Sort;
    __shared__ typename Scan::TempStorage scan[8];
    __shared__ typename Reduce::TempStorage reduce[4];
    __shared__ typename Sort::TempStorage sort[4];
    unsigned t = threadIdx.x;
    int v = x[t], before, keys[1] = {v};
    Scan(scan[t / 16]).InclusiveScan(v, before, [](int a, int b) { return a > b ? a : b; });
    out[t] = before;
    int sum = Reduce(reduce[t / 32]).Sum(v);
    if (t % 32 == 0) out[128 + t / 32] = sum;
    Sort(sort[t / 32]).Sort(keys, [](int a, int b) { return a < b; });
    out[256 + t] = keys[0];
}
