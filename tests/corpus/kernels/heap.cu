// The device's heap.

struct Node { int value; Node *next; };
//: case heap_lists
//: out u32 64 zero result
//: heap_lists<<<2, 32>>>(out)
extern "C" __global__ void heap_lists(unsigned *out) {
    Node *head = nullptr;
    for (int i = 0; i < (int)threadIdx.x % 9 + 1; i++) {
        Node *node = (Node *)malloc(sizeof(Node));
        if (!node) return;
        node->value = i * i + blockIdx.x;
        node->next = head;
        head = node;
    }
    unsigned hash = 7;
    while (head) {
        Node *next = head->next;
        hash = hash * 33 + head->value;
        free(head);
        head = next;
    }
    out[blockIdx.x * 32 + threadIdx.x] = hash;
}

//: case heap_shared
//: out u64 64 zero result
//: heap_shared<<<1, 64>>>(out)
extern "C" __global__ void heap_shared(unsigned long long *out) {
    __shared__ unsigned long long *room;
    unsigned t = threadIdx.x;
    if (t == 0) room = new unsigned long long[64];
    __syncthreads();
    room[t] = t * 1000003ull;
    __syncthreads();
    out[t] = room[63 - t] ^ t;
    __syncthreads();
    if (t == 0) delete[] room;
}

// A tree that one launch builds and the next one reads.
struct Tree { int key; Tree *side[2]; };
__device__ Tree *root;
//: case heap_tree
//: x s32 64 random
//: out s32 64 zero result
//: tree_build<<<1, 1>>>(x, u32 64)
//: tree_walk<<<1, 1>>>(out)
extern "C" __global__ void tree_build(const int *x, unsigned n) {
    root = nullptr;
    for (unsigned i = 0; i < n; i++) {
        Tree **at = &root;
        while (*at) at = &(*at)->side[x[i] > (*at)->key];
        *at = new Tree{x[i], {nullptr, nullptr}};
    }
}
__device__ __noinline__ void walk(Tree *t, int *&out) {
    if (!t) return;
    walk(t->side[0], out);
    *out++ = t->key;
    walk(t->side[1], out);
    delete t;
}
extern "C" __global__ void tree_walk(int *out) { walk(root, out); }
