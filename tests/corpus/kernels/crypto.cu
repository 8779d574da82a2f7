// Check sums, hashes and ciphers.

__device__ unsigned crc_table[256];
//: case crc32
//: x u8 2048 random
//: out u32 32 zero result
//: crc_table u32 256 symbol result
//: crc_fill<<<1, 256>>>()
//: crc<<<1, 32>>>(x, out)
extern "C" __global__ void crc_fill() {
    unsigned v = threadIdx.x;
    for (int k = 0; k < 8; k++) v = v & 1 ? v >> 1 ^ 0xEDB88320u : v >> 1;
    crc_table[threadIdx.x] = v;
}
extern "C" __global__ void crc(const unsigned char *x, unsigned *out) {
    unsigned v = ~0u;
    for (int i = 0; i < 64; i++) v = crc_table[(v ^ x[threadIdx.x * 64 + i]) & 255] ^ v >> 8;
    out[threadIdx.x] = ~v;
}

__constant__ unsigned rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
//: case sha256
//: x u32 512 random
//: out u32 256 zero result
//: sha256<<<1, 32>>>(x, out)
extern "C" __global__ void sha256(const unsigned *x, unsigned *out) {
    unsigned w[64], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    auto turn = [](unsigned v, int n) { return v >> n | v << (32 - n); };
    for (int i = 0; i < 16; i++) w[i] = __byte_perm(x[threadIdx.x * 16 + i], 0, 0x0123);
    for (int i = 16; i < 64; i++) {
        unsigned a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    unsigned s[8];
    for (int i = 0; i < 8; i++) s[i] = h[i];
    for (int i = 0; i < 64; i++) {
        unsigned e = s[4], a = s[0];
        unsigned t1 = s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + rounds[i] + w[i];
        unsigned t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        for (int k = 7; k > 0; k--) s[k] = s[k - 1];
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) out[threadIdx.x * 8 + i] = h[i] + s[i];
}

// The box is computed: inverses in the field of 256 by a table of powers of 3.
//: case aes128
//: key u8 16 random
//: x u8 1024 random
//: out u8 1024 zero result
//: aes128<<<1, 64>>>(key, x, out)
extern "C" __global__ void aes128(const unsigned char *key, const unsigned char *x, unsigned char *out) {
    __shared__ unsigned char box[256], round[176];
    auto twice = [](unsigned char v) { return (unsigned char)(v << 1 ^ (v >> 7) * 0x1b); };
    if (threadIdx.x == 0) {
        unsigned char p = 1, q = 1;
        do {
            p = p ^ twice(p);
            q ^= q << 1; q ^= q << 2; q ^= q << 4;
            if (q & 0x80) q ^= 0x09;
            auto turn = [&](int n) { return (unsigned char)(q << n | q >> (8 - n)); };
            box[p] = q ^ turn(1) ^ turn(2) ^ turn(3) ^ turn(4) ^ 0x63;
        } while (p != 1);
        box[0] = 0x63;
        for (int i = 0; i < 16; i++) round[i] = key[i];
        unsigned char rcon = 1;
        for (int i = 16; i < 176; i += 4) {
            unsigned char t[4] = {round[i - 4], round[i - 3], round[i - 2], round[i - 1]};
            if (i % 16 == 0) {
                unsigned char first = t[0];
                t[0] = box[t[1]] ^ rcon; t[1] = box[t[2]]; t[2] = box[t[3]]; t[3] = box[first];
                rcon = twice(rcon);
            }
            for (int k = 0; k < 4; k++) round[i + k] = round[i + k - 16] ^ t[k];
        }
    }
    __syncthreads();
    unsigned char s[16], n[16];
    for (int i = 0; i < 16; i++) s[i] = x[threadIdx.x * 16 + i] ^ round[i];
    for (int r = 1; r <= 10; r++) {
        for (int i = 0; i < 16; i++) n[i] = box[s[(i + 4 * (i % 4)) % 16]];
        for (int c = 0; c < 16; c += 4) {
            unsigned char all = n[c] ^ n[c + 1] ^ n[c + 2] ^ n[c + 3];
            for (int k = 0; k < 4; k++) {
                unsigned char mixed = r < 10 ? n[c + k] ^ all ^ twice(n[c + k] ^ n[c + (k + 1) % 4]) : n[c + k];
                s[c + k] = mixed ^ round[16 * r + c + k];
            }
        }
    }
    for (int i = 0; i < 16; i++) out[threadIdx.x * 16 + i] = s[i];
}

//: case chacha
//: key u32 8 random
//: out u32 1024 zero result
//: chacha<<<2, 32>>>(key, out)
extern "C" __global__ void chacha(const unsigned *key, uint4 *out) {
    unsigned s[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, w[16];
    for (int i = 0; i < 8; i++) s[4 + i] = key[i];
    s[12] = blockIdx.x * 32 + threadIdx.x; s[13] = 0; s[14] = 7; s[15] = 9;
    for (int i = 0; i < 16; i++) w[i] = s[i];
    auto quarter = [&](int a, int b, int c, int d) {
        w[a] += w[b]; w[d] = __funnelshift_l(w[d] ^ w[a], w[d] ^ w[a], 16);
        w[c] += w[d]; w[b] = __funnelshift_l(w[b] ^ w[c], w[b] ^ w[c], 12);
        w[a] += w[b]; w[d] = __funnelshift_l(w[d] ^ w[a], w[d] ^ w[a], 8);
        w[c] += w[d]; w[b] = __funnelshift_l(w[b] ^ w[c], w[b] ^ w[c], 7);
    };
    for (int i = 0; i < 10; i++) {
        quarter(0, 4, 8, 12); quarter(1, 5, 9, 13); quarter(2, 6, 10, 14); quarter(3, 7, 11, 15);
        quarter(0, 5, 10, 15); quarter(1, 6, 11, 12); quarter(2, 7, 8, 13); quarter(3, 4, 9, 14);
    }
    for (int i = 0; i < 4; i++)
        out[s[12] * 4 + i] = make_uint4(w[4 * i] + s[4 * i], w[4 * i + 1] + s[4 * i + 1],
                                        w[4 * i + 2] + s[4 * i + 2], w[4 * i + 3] + s[4 * i + 3]);
}

//: case siphash
//: x u64 256 random
//: out u64 64 zero result
//: siphash<<<1, 64>>>(x, out, u64 506097522914230528, u64 1084818905618843912)
extern "C" __global__ void siphash(const unsigned long long *x, unsigned long long *out,
                                   unsigned long long k0, unsigned long long k1) {
    typedef unsigned long long u64;
    u64 a = 0x736f6d6570736575ull ^ k0, b = 0x646f72616e646f6dull ^ k1;
    u64 c = 0x6c7967656e657261ull ^ k0, d = 0x7465646279746573ull ^ k1;
    auto turn = [](u64 v, int n) { return v << n | v >> (64 - n); };
    auto round = [&] {
        a += b; b = turn(b, 13) ^ a; a = turn(a, 32);
        c += d; d = turn(d, 16) ^ c;
        a += d; d = turn(d, 21) ^ a;
        c += b; b = turn(b, 17) ^ c; c = turn(c, 32);
    };
    for (int i = 0; i < 5; i++) {
        u64 m = i < 4 ? x[threadIdx.x * 4 + i] : 32ull << 56;
        d ^= m; round(); round(); a ^= m;
    }
    c ^= 0xff;
    for (int i = 0; i < 4; i++) round();
    out[threadIdx.x] = a ^ b ^ c ^ d;
}
