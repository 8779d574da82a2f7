// Clusters of thread blocks: their memory, barriers, registers, launches and occupancy.
//
// clusters-h100-580.txt is the output of an H100 with driver 580.159.04, compiled for
// sm_90.
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <vector>
namespace cg = cooperative_groups;

// Each block has a part of the bins in its shared memory; every thread adds to the block
// that has its bin.
template <int N>
__global__ void histogram(const unsigned *in, unsigned *bins, int count, int per_block) {
    extern __shared__ unsigned own[];
    cg::cluster_group cluster = cg::this_cluster();
    for (int i = threadIdx.x; i < per_block; i += blockDim.x)
        own[i] = 0;
    cluster.sync();
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = id; i < count; i += gridDim.x * blockDim.x) {
        unsigned bin = in[i] % (per_block * N);
        unsigned *there = cluster.map_shared_rank(own, bin / per_block);
        atomicAdd(there + bin % per_block, 1);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < per_block; i += blockDim.x)
        atomicAdd(&bins[cluster.block_rank() * per_block + i], own[i]);
}

// Registers, and the addresses of the same word in each block: rank, space, whether it is
// the own.
__global__ void addresses(unsigned *out) {
    __shared__ unsigned word[8];
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) {
        unsigned own = (unsigned)__cvta_generic_to_shared(word),
                 rank = cluster.block_rank();
        unsigned *to = out + blockIdx.x * 64;
        to[0] = rank;
        to[1] = cluster.num_blocks();
        to[2] = own & 0xffffff;
        unsigned x, y, z, w;
        asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(x));
        asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(y));
        asm volatile("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(z));
        asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(w));
        to[3] = x;
        to[4] = y;
        to[5] = z;
        to[6] = w;
        asm volatile(
            "{.reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p;}"
            : "=r"(x));
        to[7] = x;
        for (unsigned r = 0; r < cluster.num_blocks(); r++) {
            unsigned far, back;
            unsigned long long wide;
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                         : "=r"(far)
                         : "r"(own), "r"(r));
            asm volatile("getctarank.shared::cluster.u32 %0, %1;"
                         : "=r"(back)
                         : "r"(far));
            to[8 + 4 * r] = far & 0xffffff;
            to[9 + 4 * r] = back;
            asm volatile("mapa.u64 %0, %1, %2;"
                         : "=l"(wide)
                         : "l"((unsigned long long)word), "r"(r));
            to[10 + 4 * r] = wide == (unsigned long long)word;
            asm volatile(
                "{.reg .pred p, q; isspacep.shared::cluster p, %1; isspacep.shared::cta "
                "q, %1; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}"
                : "=r"(back)
                : "l"(wide));
            to[11 + 4 * r] = back;
        }
    }
    cluster.sync();
}

// Half of the threads end before the barrier; the others read the neighbour's word behind
// it.
__global__ void leave(unsigned *out) {
    __shared__ unsigned word;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 1)
        word = 100 + blockIdx.x;
    cluster.sync();
    if (threadIdx.x & 1)
        return;
    unsigned other = (cluster.block_rank() + 1) % cluster.num_blocks();
    unsigned value = *cluster.map_shared_rank(&word, other);
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");
    if (threadIdx.x == 0)
        out[blockIdx.x] = value;
}
// A kernel that declares its clusters.
__global__ void __cluster_dims__(2, 1, 1) declared(unsigned *out) {
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0)
        out[blockIdx.x] = 10 * cluster.num_blocks() + cluster.block_rank();
    cluster.sync();
}
// st.async: each block writes to its neighbour's shared memory and signals its mbarrier.
__global__ void send(unsigned *out) {
    __shared__ alignas(8) unsigned long long bar;
    __shared__ alignas(8) unsigned value[2];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned b = (unsigned)__cvta_generic_to_shared(&bar),
             v = (unsigned)__cvta_generic_to_shared(value);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 8;" ::"r"(b));
    }
    cluster.sync();
    unsigned other = (cluster.block_rank() + 1) % cluster.num_blocks(), fb, fv;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(fb) : "r"(b), "r"(other));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(fv) : "r"(v), "r"(other));
    if (threadIdx.x == 0) {
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::
                "r"(fv),
            "r"(blockIdx.x + 1000), "r"(fb));
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0+4], "
                     "%1, [%2];" ::"r"(fv),
                     "r"(blockIdx.x + 2000), "r"(fb));
        unsigned done = 0;
        while (!done)
            asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, "
                         "[%1], 0; selp.u32 %0, 1, 0, p;}"
                         : "=r"(done)
                         : "r"(b));
        out[2 * blockIdx.x] = value[0];
        out[2 * blockIdx.x + 1] = value[1];
    }
    cluster.sync();
}

// The error of the launch; errors that come later are printed.
static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, dim3 cluster,
                          size_t shared, void **args) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster.x;
    attribute.val.clusterDim.y = cluster.y;
    attribute.val.clusterDim.z = cluster.z;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaError_t e = cudaLaunchKernelExC(&config, kernel, args);
    cudaError_t last = cudaGetLastError(), s = cudaDeviceSynchronize();
    if (e == cudaSuccess && (last || s))
        printf("(last %d, synchronize %d) ", last, s);
    return e;
}
template <int N> static void histograms() {
    int count = 1 << 16, per_block = 96;
    unsigned *in, *bins;
    cudaMallocManaged(&in, count * 4);
    cudaMallocManaged(&bins, per_block * N * 4);
    for (int i = 0; i < count; i++)
        in[i] = i * 2654435761u >> 7;
    for (int i = 0; i < per_block * N; i++)
        bins[i] = 0;
    void *args[] = {&in, &bins, &count, &per_block};
    cudaError_t e =
        launch((const void *)histogram<N>, N * 5, 128, N, per_block * 4, args);
    unsigned long long sum = 0, wrong = 0;
    std::vector<unsigned> want(per_block * N, 0);
    for (int i = 0; i < count; i++)
        want[in[i] % (per_block * N)]++;
    for (int i = 0; i < per_block * N; i++) {
        sum += (unsigned long long)bins[i] * (i + 1);
        wrong += want[i] != bins[i];
    }
    printf("histogram %d: %d sum %llu wrong %llu\n", N, e, sum, wrong);
    cudaFree(in);
    cudaFree(bins);
}
int main() {
    setvbuf(stdout, 0, _IOLBF, 0);
    unsigned *out;
    cudaMallocManaged(&out, 1 << 16);
    histograms<1>();
    histograms<2>();
    histograms<4>();
    histograms<8>();
    void *args[] = {&out};
    for (int n : {1, 2, 4}) {
        printf("addresses %d: %d\n", n,
               launch((const void *)addresses, 2 * n, 32, n, 0, args));
        for (int b = 0; b < 2 * n; b++) {
            for (int i = 0; i < 8 + 4 * n; i++)
                printf(" %x", out[b * 64 + i]);
            printf("\n");
        }
    }
    printf("leave: %d", launch((const void *)leave, 8, 64, 4, 0, args));
    for (int i = 0; i < 8; i++)
        printf(" %u", out[i]);
    printf("\n");
    printf("send: %d", launch((const void *)send, 4, 32, 2, 0, args));
    for (int i = 0; i < 8; i++)
        printf(" %u", out[i]);
    printf("\n");
    declared<<<4, 32>>>(out);
    cudaError_t e = cudaGetLastError();
    cudaDeviceSynchronize();
    printf("declared: %d", e);
    for (int i = 0; i < 4; i++)
        printf(" %u", out[i]);
    printf("\n");
    declared<<<3, 32>>>(out);
    printf("declared, 3 blocks: %d\n", cudaGetLastError());
    cudaDeviceSynchronize();
    printf("declared, launched as 2: %d, as 4: %d, as 1: %d\n",
           launch((const void *)declared, 4, 32, 2, 0, args),
           launch((const void *)declared, 4, 32, 4, 0, args),
           launch((const void *)declared, 4, 32, 1, 0, args));
    for (int n : {1, 2, 3, 5, 6, 7, 8, 9, 12, 16, 32})
        printf("cluster of %d, grid of %d: %d; grid of %d: %d\n", n, 2 * n,
               launch((const void *)addresses, 2 * n, 32, n, 0, args), 2 * n + 1,
               launch((const void *)addresses, 2 * n + 1, 32, n, 0, args));
    printf("cluster 2x2x2: %d, 4x4: %d, 0: %d, 1x8 of 8x1: %d\n",
           launch((const void *)leave, dim3(2, 2, 2), 64, dim3(2, 2, 2), 0, args),
           launch((const void *)leave, dim3(4, 4), 64, dim3(4, 4), 0, args),
           launch((const void *)leave, 8, 64, 0, 0, args),
           launch((const void *)leave, 8, 64, dim3(1, 8), 0, args));
    printf("non-portable: %d\n",
           cudaFuncSetAttribute((const void *)leave,
                                cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    printf("cluster of 16: %d, 12: %d, 32: %d\n",
           launch((const void *)leave, 16, 64, 16, 0, args),
           launch((const void *)leave, 12, 64, 12, 0, args),
           launch((const void *)leave, 32, 64, 32, 0, args));
    for (int n : {1, 2, 4, 8, 16})
        for (int block : {64, 1024})
            for (int shared : {0, 40000}) {
                cudaLaunchConfig_t c = {};
                c.gridDim = 64;
                c.blockDim = block;
                c.dynamicSmemBytes = shared;
                cudaLaunchAttribute a;
                a.id = cudaLaunchAttributeClusterDimension;
                a.val.clusterDim.x = n;
                a.val.clusterDim.y = a.val.clusterDim.z = 1;
                c.attrs = &a;
                c.numAttrs = 1;
                int size = -1, many = -1;
                cudaError_t e1 =
                    cudaOccupancyMaxActiveClusters(&many, (const void *)leave, &c);
                c.numAttrs = 0;
                cudaError_t e2 =
                    cudaOccupancyMaxPotentialClusterSize(&size, (const void *)leave, &c);
                printf("occupancy %d x %d, %d bytes: %d %d; potential %d %d\n", n, block,
                       shared, e1, many, e2, size);
            }
    int size;
    cudaLaunchConfig_t c = {};
    c.gridDim = 64;
    c.blockDim = 64;
    cudaError_t e3 =
        cudaOccupancyMaxPotentialClusterSize(&size, (const void *)addresses, &c);
    printf("potential of addresses: %d %d\n", e3, size);
    return 0;
}
