// Cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

//: case group_tiles
//: x u32 256 random
//: out u32 1024 zero result
//: group_tiles<<<2, 128>>>(x, out)
extern "C" __global__ void group_tiles(const unsigned *x, uint4 *out) {
    cg::thread_block block = cg::this_thread_block();
    unsigned i = blockIdx.x * 128 + block.thread_rank(), v = x[i];
    auto four = cg::tiled_partition<4>(block);
    auto sixteen = cg::tiled_partition<16>(block);
    uint4 o;
    o.x = four.shfl_xor(v, 3) + four.thread_rank();
    o.y = four.any(v & 1) + 2 * four.all(v & 2) + 4 * sixteen.ballot(v & 4);
    o.z = cg::reduce(sixteen, v, cg::bit_xor<unsigned>()) + sixteen.meta_group_rank();
    o.w = cg::inclusive_scan(four, v & 0xffff, cg::plus<unsigned>());
    block.sync();
    out[i] = o;
}

//: case group_coalesced
//: x u32 256 random
//: out u32 256 zero result
//: group_coalesced<<<2, 128>>>(x, out)
extern "C" __global__ void group_coalesced(const unsigned *x, unsigned *out) {
    unsigned i = blockIdx.x * 128 + threadIdx.x, v = x[i];
    if (v % 3 == 0) {
        cg::coalesced_group active = cg::coalesced_threads();
        out[i] = active.size() * 1000000 + active.thread_rank() * 1000 + active.shfl(v & 255, active.size() / 2);
    } else {
        cg::coalesced_group active = cg::coalesced_threads();
        out[i] = cg::reduce(active, v >> 8, cg::plus<unsigned>());
    }
}

//: case group_labels
//: x u32 128 below 6
//: out u32 128 zero result
//: group_labels<<<1, 128>>>(x, out)
extern "C" __global__ void group_labels(const unsigned *x, unsigned *out) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    unsigned v = x[threadIdx.x];
    auto same = cg::labeled_partition(warp, v);
    auto odd = cg::binary_partition(warp, v & 1);
    out[threadIdx.x] = same.size() * 10000 + same.thread_rank() * 100 + odd.thread_rank();
}

//: case group_grid
//: x s32 512 random result
//: y s32 512 zero result
//: group_grid<<<4, 128>>>(x, y, s32 6) cooperative
extern "C" __global__ void group_grid(int *x, int *y, int rounds) {
    cg::grid_group grid = cg::this_grid();
    unsigned i = grid.thread_rank(), n = grid.size();
    for (int k = 0; k < rounds; k++) {
        y[i] = x[(i * 5 + k) % n] - x[(i + 1) % n];
        grid.sync();
        x[i] = y[i] * 3 + (y[(i + n / 2) % n] ^ i);
        grid.sync();
    }
}

//: case group_scan
//: x s32 256 below 1000
//: out s32 512 zero result
//: group_scan<<<1, 256>>>(x, out)
extern "C" __global__ void group_scan(const int *x, int2 *out) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    int v = x[threadIdx.x];
    int before = cg::exclusive_scan(warp, v);
    int most = cg::inclusive_scan(warp, v, cg::greater<int>());
    out[threadIdx.x] = make_int2(before, most);
}
