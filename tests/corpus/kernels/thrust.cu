// Thrust's algorithms inside a thread.
#include <thrust/binary_search.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>

//: case thrust_rows
//: x s32 1024 below 100 result
//: out s32 128 zero result
//: thrust_rows<<<1, 32>>>(x, out)
extern "C" __global__ void thrust_rows(int *x, int4 *out) {
    int *row = x + threadIdx.x * 32, total = thrust::reduce(thrust::seq, row, row + 32);
    auto square = [](int v) { return v * v; };
    int squares = thrust::transform_reduce(thrust::seq, row, row + 32, square, 0, thrust::plus<int>());
    thrust::sort(thrust::seq, row, row + 32);
    int place = (int)(thrust::lower_bound(thrust::seq, row, row + 32, 50) - row);
    int kept = (int)(thrust::unique(thrust::seq, row, row + 32) - row);
    thrust::inclusive_scan(thrust::seq, row, row + kept, row);
    out[threadIdx.x] = make_int4(total, squares, place, kept);
}
