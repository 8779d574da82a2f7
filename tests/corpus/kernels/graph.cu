// Graphs of fixed degree: vertex v has the edges from degree * v on.

// The queue's order depends on the schedule; the levels do not.
//: case bfs
//: edge u32 2048 below 512
//: level s32 512 fill -1 result
//: queue u32 1024 zero
//: size u32 16 zero
//: bfs_start<<<1, 1>>>(level, queue, size)
//: for k 0 12: bfs_step<<<4, 128>>>(edge, level, queue, size, s32 {k})
extern "C" __global__ void bfs_start(int *level, unsigned *queue, unsigned *size) {
    level[3] = 0;
    queue[0] = 3;
    size[0] = 1;
}
extern "C" __global__ void bfs_step(const unsigned *edge, int *level, unsigned *queue, unsigned *size, int k) {
    unsigned *from = queue + (k & 1) * 512, *to = queue + (~k & 1) * 512;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < size[k]; i += gridDim.x * blockDim.x) {
        unsigned v = from[i];
        for (unsigned e = 4 * v; e < 4 * v + 4; e++)
            if (atomicCAS(&level[edge[e]], -1, k + 1) == -1) to[atomicAdd(&size[k + 1], 1)] = edge[e];
    }
}

//: case sssp
//: edge u32 1024 below 256
//: weight u32 1024 below 100
//: distance u32 256 fill 1000000 result
//: changed u32 1 zero result
//: sssp<<<1, 256>>>(edge, weight, distance, changed)
extern "C" __global__ void sssp(const unsigned *edge, const unsigned *weight, unsigned *distance, unsigned *changed) {
    unsigned v = threadIdx.x;
    if (v == 0) distance[0] = 0;
    bool again = true;
    while (again) {
        __syncthreads();
        unsigned mine = distance[v];
        __syncthreads();
        bool better = false;
        for (unsigned e = 4 * v; e < 4 * v + 4; e++) {
            unsigned far = mine + weight[e];
            if (far < distance[edge[e]] && atomicMin(&distance[edge[e]], far) > far) better = true;
        }
        again = __syncthreads_or(better);
    }
}

// Ranks pulled along incoming edges, each sum in the order of the edges.
//: case page_rank
//: in u32 1536 below 256
//: rank f32 256 fill 1 result
//: next f32 256 zero result
//: for k 0 8: page_rank<<<2, 128>>>(in, rank, next, u32 {k})
extern "C" __global__ void page_rank(const unsigned *in, float *rank, float *next, unsigned k) {
    const float *from = k & 1 ? next : rank;
    float *to = k & 1 ? rank : next;
    unsigned v = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (unsigned e = 0; e < 6; e++) sum += from[in[6 * v + e]] / (float)(5 + (in[6 * v + e] & 3));
    to[v] = 0.15f + 0.85f * sum;
}

//: case components
//: edge u32 300 below 400
//: label u32 400 iota result
//: for k 0 80: components<<<2, 200>>>(edge, label, u32 300)
extern "C" __global__ void components(const unsigned *edge, unsigned *label, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned a = i, b = edge[i], least = min(label[a], label[b]);
    atomicMin(&label[a], least);
    atomicMin(&label[b], least);
}

// Lock-free union; the lesser root wins, so that every root is the least of its set at the end.
__device__ unsigned find_root(unsigned *parent, unsigned v) {
    unsigned p = ((volatile unsigned *)parent)[v];
    while (p != v) {
        unsigned up = ((volatile unsigned *)parent)[p];
        if (up != p) atomicCAS(&parent[v], p, up);
        v = p;
        p = ((volatile unsigned *)parent)[v];
    }
    return v;
}
//: case union_find
//: edge u32 700 below 600
//: parent u32 600 iota result
//: union_edges<<<5, 70>>>(edge, parent)
//: flatten<<<6, 100>>>(parent)
extern "C" __global__ void union_edges(const unsigned *edge, unsigned *parent) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned a = edge[2 * i], b = edge[2 * i + 1];
    while (true) {
        a = find_root(parent, a);
        b = find_root(parent, b);
        if (a == b) return;
        unsigned low = min(a, b), high = max(a, b);
        if (atomicCAS(&parent[high], high, low) == high) return;
    }
}
extern "C" __global__ void flatten(unsigned *parent) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, v = i;
    while (parent[v] != v) v = parent[v];
    parent[i] = v;
}

//: case triangles
//: bits u32 512 random
//: count u32 128 zero result
//: triangles<<<1, 128>>>(bits, count)
extern "C" __global__ void triangles(const unsigned *bits, unsigned *count) {
    unsigned v = threadIdx.x, sum = 0;
    for (unsigned u = 0; u < v; u++)
        if (bits[4 * v + u / 32] >> (u % 32) & 1)
            for (unsigned w = 0; w < 4; w++) sum += __popc(bits[4 * v + w] & bits[4 * u + w]);
    count[v] = sum;
}

//: case floyd_warshall
//: d u32 1296 below 1000 result
//: for k 0 36: floyd_warshall<<<3x3, 12x12>>>(d, u32 {k})
extern "C" __global__ void floyd_warshall(unsigned *d, unsigned k) {
    unsigned c = blockIdx.x * 12 + threadIdx.x, r = blockIdx.y * 12 + threadIdx.y;
    unsigned over = d[r * 36 + k] + d[k * 36 + c];
    if (c != k && r != k && over < d[r * 36 + c]) d[r * 36 + c] = over;
}
