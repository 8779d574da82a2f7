// Hash tables and filters.

__device__ unsigned mix(unsigned v) {
    v ^= v >> 16; v *= 0x7feb352d; v ^= v >> 15; v *= 0x846ca68b; v ^= v >> 16;
    return v;
}

// Open addressing with linear probing. The order of insertion decides who sits where, so that the
// table is compared as a set.
//: case hash_table
//: key u32 1000 below 600
//: table u32 2048 zero result sorted
//: count u32 2048 zero result sorted
//: found u32 1000 zero result
//: hash_insert<<<4, 256>>>(key, table, count, u32 1000)
//: hash_find<<<4, 256>>>(key, table, count, found, u32 1000)
extern "C" __global__ void hash_insert(const unsigned *key, unsigned *table, unsigned *count, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned k = key[i] + 1;
    for (unsigned slot = mix(k) & 2047;; slot = (slot + 1) & 2047) {
        unsigned was = atomicCAS(&table[slot], 0, k);
        if (was == 0 || was == k) { atomicAdd(&count[slot], 1); return; }
    }
}
extern "C" __global__ void hash_find(const unsigned *key, const unsigned *table, const unsigned *count,
                                     unsigned *found, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned k = key[i] + 1 + (i % 3 == 0 ? 1000 : 0);
    for (unsigned slot = mix(k) & 2047;; slot = (slot + 1) & 2047) {
        if (table[slot] == 0) { found[i] = ~0u; return; }
        if (table[slot] == k) { found[i] = count[slot]; return; }
    }
}

// Key and value in one word of 64 bits; the least value of a key wins.
//: case hash_least
//: key u32 900 below 200
//: value u32 900 random
//: table u64 512 fill -1 result sorted
//: hash_least<<<9, 100>>>(key, value, table)
extern "C" __global__ void hash_least(const unsigned *key, const unsigned *value, unsigned long long *table) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long mine = (unsigned long long)key[i] << 32 | value[i];
    for (unsigned slot = mix(key[i]) & 511;; slot = (slot + 1) & 511) {
        unsigned long long was = atomicCAS(&table[slot], ~0ull, mine);
        if (was == ~0ull) return;
        if (was >> 32 == key[i]) { atomicMin(&table[slot], mine); return; }
    }
}

//: case bloom_filter
//: key u32 300 random
//: probe u32 600 random
//: bits u32 128 zero result
//: hit u32 600 zero result
//: bloom_add<<<3, 100>>>(key, bits)
//: bloom_probe<<<3, 200>>>(probe, bits, hit)
extern "C" __global__ void bloom_add(const unsigned *key, unsigned *bits) {
    unsigned h = mix(key[blockIdx.x * blockDim.x + threadIdx.x]);
    for (int k = 0; k < 3; k++, h = mix(h + k)) atomicOr(&bits[h >> 5 & 127], 1u << (h & 31));
}
extern "C" __global__ void bloom_probe(const unsigned *probe, const unsigned *bits, unsigned *hit) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, h = mix(probe[i]);
    bool in = true;
    for (int k = 0; k < 3 && in; k++, h = mix(h + k)) in = bits[h >> 5 & 127] >> (h & 31) & 1;
    hit[i] = in;
}

// Cuckoo hashing: an insertion evicts by exchange until an empty slot ends it.
//: case hash_cuckoo
//: table u32 1024 zero result sorted
//: failed u32 1 zero result
//: hash_cuckoo<<<2, 150>>>(table, failed)
extern "C" __global__ void hash_cuckoo(unsigned *table, unsigned *failed) {
    unsigned k = mix(blockIdx.x * blockDim.x + threadIdx.x + 1), side = 0;
    for (int tries = 0; tries < 500; tries++) {
        unsigned slot = side ? 512 + (mix(k ^ 0x55555555) & 511) : mix(k) & 511;
        k = atomicExch(&table[slot], k);
        if (k == 0) return;
        side = slot < 512;
    }
    atomicAdd(failed, 1);
}
