// Locks and waiting. They need the progress that independent thread scheduling promises.

//: case lock_per_block
//: word u32 2 zero result
//: total u64 1 zero result
//: lock_per_block<<<12, 64>>>(word, total)
extern "C" __global__ void lock_per_block(unsigned *word, volatile unsigned long long *total) {
    __syncthreads();
    if (threadIdx.x == 0) {
        while (atomicCAS(word, 0, 1) != 0) { }
        __threadfence();
        *total = *total * 1 + blockIdx.x + 1;
        word[1] += 1;
        __threadfence();
        atomicExch(word, 0);
    }
}

// Lanes of one warp want the same lock.
//: case lock_per_lane
//: word u32 1 zero result
//: total u32 1 zero result
//: lock_per_lane<<<2, 64>>>(word, total)
extern "C" __global__ void lock_per_lane(unsigned *word, volatile unsigned *total) {
    while (atomicCAS(word, 0, 1) != 0) { }
    __threadfence();
    *total = *total + threadIdx.x;
    __threadfence();
    atomicExch(word, 0);
}

//: case lock_try
//: word u32 8 zero result
//: total u32 8 zero result
//: lock_try<<<2, 96>>>(word, total)
extern "C" __global__ void lock_try(unsigned *word, volatile unsigned *total) {
    unsigned which = threadIdx.x % 8;
    bool done = false;
    while (!done) {
        if (atomicExch(&word[which], 1) == 0) {
            total[which] = total[which] + 1;
            __threadfence();
            atomicExch(&word[which], 0);
            done = true;
        }
    }
}

//: case lock_ticket
//: next u32 1 zero result
//: serving u32 1 zero result
//: log u32 48 zero result sorted
//: lock_ticket<<<3, 16>>>(next, serving, log)
extern "C" __global__ void lock_ticket(unsigned *next, volatile unsigned *serving, unsigned *log) {
    unsigned mine = atomicAdd(next, 1);
    while (*serving != mine) { }
    __threadfence();
    log[mine] = blockIdx.x * 16 + threadIdx.x;
    __threadfence();
    *serving = mine + 1;
}

// Block 0 makes, block 1 uses; a ring of four places.
//: case producer_consumer
//: ring u32 4 zero result
//: made u32 1 zero result
//: used u32 1 zero result
//: out u32 64 zero result
//: producer_consumer<<<2, 1>>>(ring, made, used, out, u32 64)
extern "C" __global__ void producer_consumer(volatile unsigned *ring, volatile unsigned *made,
                                             volatile unsigned *used, unsigned *out, unsigned n) {
    if (blockIdx.x == 0) {
        for (unsigned i = 0; i < n; i++) {
            while (i - *used >= 4) { }
            ring[i & 3] = i * i + 1;
            __threadfence();
            *made = i + 1;
        }
    } else {
        for (unsigned i = 0; i < n; i++) {
            while (*made <= i) { }
            __threadfence();
            out[i] = ring[i & 3] * 3;
            __threadfence();
            *used = i + 1;
        }
    }
}

// One lane of a warp waits for another.
//: case lane_waits
//: out u32 32 zero result
//: lane_waits<<<1, 32>>>(out)
extern "C" __global__ void lane_waits(unsigned *out) {
    __shared__ volatile unsigned turn;
    if (threadIdx.x == 0) turn = 31;
    __syncwarp();
    while (turn != threadIdx.x) { }
    out[threadIdx.x] = threadIdx.x == 31 ? 1 : out[threadIdx.x + 1] * 3 + threadIdx.x;
    __threadfence_block();
    turn = threadIdx.x - 1;
}

// A work queue that grows: each item of size s makes two of s - 1.
//: case work_queue
//: queue u32 512 zero
//: head u32 3 zero result
//: sum u32 1 zero result
//: work_queue<<<2, 32>>>(queue, head, sum)
extern "C" __global__ void work_queue(volatile unsigned *queue, unsigned *head, unsigned *sum) {
    // head[0]: next to take, head[1]: next to give, head[2]: items that are done.
    const unsigned all = (1u << 8) - 1;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        queue[0] = 8;
        __threadfence();
        atomicAdd(&head[1], 1);
    }
    while (true) {
        unsigned mine = atomicAdd(&head[0], 1);
        if (mine >= all) return;
        unsigned size;
        while ((size = queue[mine]) == 0) { }
        atomicAdd(sum, size * size);
        if (size > 1) {
            unsigned at = atomicAdd(&head[1], 2);
            queue[at] = size - 1;
            queue[at + 1] = size - 1;
            __threadfence();
        }
        atomicAdd(&head[2], 1);
    }
}

// All blocks meet, by hand.
//: case grid_barrier
//: count u32 1 zero result
//: x u32 64 iota
//: out u32 64 zero result
//: grid_barrier<<<4, 16>>>(count, x, out) cooperative
extern "C" __global__ void grid_barrier(unsigned *count, unsigned *x, unsigned *out) {
    unsigned i = blockIdx.x * 16 + threadIdx.x;
    for (unsigned round = 1; round <= 3; round++) {
        out[i] = ((volatile unsigned *)x)[(i + 17 * round) % 64] + round;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(count, 1);
            while (*(volatile unsigned *)count < (2 * round - 1) * 4) { }
            __threadfence();
        }
        __syncthreads();
        ((volatile unsigned *)x)[i] = out[i];
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(count, 1);
            while (*(volatile unsigned *)count < 2 * round * 4) { }
            __threadfence();
        }
        __syncthreads();
    }
}
