// Bytes and characters.

//: case search_naive
//: text u8 2048 below 3
//: place u32 64 zero result sorted
//: count u32 1 zero result
//: search_naive<<<8, 256>>>(text, place, count, u32 2048)
extern "C" __global__ void search_naive(const char *text, unsigned *place, unsigned *count, unsigned n) {
    const char pattern[] = {0, 1, 2, 2, 1};
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + sizeof pattern > n) return;
    for (unsigned k = 0; k < sizeof pattern; k++) if (text[i + k] != pattern[k]) return;
    unsigned at = atomicAdd(count, 1);
    if (at < 64) place[at] = i;
}

//: case search_horspool
//: text u8 4096 below 4
//: pattern u8 4 below 4
//: count u32 64 zero result
//: search_horspool<<<2, 32>>>(text, pattern, count)
extern "C" __global__ void search_horspool(const unsigned char *text, const unsigned char *pattern, unsigned *count) {
    unsigned char skip[4] = {4, 4, 4, 4};
    for (int i = 0; i < 3; i++) skip[pattern[i]] = (unsigned char)(3 - i);
    unsigned start = (blockIdx.x * 32 + threadIdx.x) * 64, found = 0;
    for (unsigned i = start; i + 4 <= start + 64; i += skip[text[i + 3]]) {
        int k = 3;
        while (k >= 0 && text[i + k] == pattern[k]) k--;
        found += k < 0;
    }
    count[start / 64] = found;
}

__constant__ char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
//: case base64
//: x u8 768 random
//: text u8 1024 zero result
//: back u8 768 zero result
//: encode<<<2, 128>>>(x, text)
//: decode<<<2, 128>>>(text, back)
extern "C" __global__ void encode(const unsigned char *x, uchar4 *text) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = x[3 * i] << 16 | x[3 * i + 1] << 8 | x[3 * i + 2];
    text[i] = make_uchar4(digits[v >> 18], digits[v >> 12 & 63], digits[v >> 6 & 63], digits[v & 63]);
}
__device__ unsigned digit(unsigned char c) {
    switch (c) {
    case '+': return 62;
    case '/': return 63;
    default: return c >= 'a' ? c - 'a' + 26 : c >= 'A' ? c - 'A' : c - '0' + 52;
    }
}
extern "C" __global__ void decode(const uchar4 *text, unsigned char *back) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    uchar4 c = text[i];
    unsigned v = digit(c.x) << 18 | digit(c.y) << 12 | digit(c.z) << 6 | digit(c.w);
    back[3 * i] = (unsigned char)(v >> 16);
    back[3 * i + 1] = (unsigned char)(v >> 8);
    back[3 * i + 2] = (unsigned char)v;
}

// Runs: heads are counted by a scan over ballots.
//: case run_lengths
//: x u8 512 below 2
//: symbol u8 512 zero result
//: start u16 512 zero result
//: runs u32 1 zero result
//: run_lengths<<<1, 512>>>(x, symbol, start, runs)
extern "C" __global__ void run_lengths(const unsigned char *x, unsigned char *symbol, unsigned short *start, unsigned *runs) {
    __shared__ unsigned warps[16];
    unsigned t = threadIdx.x, lane = t & 31;
    bool head = t == 0 || x[t] != x[t - 1];
    unsigned heads = __ballot_sync(~0u, head);
    if (lane == 0) warps[t / 32] = __popc(heads);
    __syncthreads();
    unsigned before = 0;
    for (unsigned w = 0; w < t / 32; w++) before += warps[w];
    unsigned at = before + __popc(heads & ((1u << lane) - 1));
    if (head) { symbol[at] = x[t]; start[at] = (unsigned short)t; }
    if (t == 511) *runs = at + head;
}

//: case words
//: text u8 130 text "the quick  brown fox jumps over the lazy dog, and the dog; being lazy, does not mind: it naps on -- 42 times a day, or so they say!!"
//: count u32 2 zero result
//: upper u8 130 zero result
//: words<<<1, 130>>>(text, count, upper)
extern "C" __global__ void words(const char *text, unsigned *count, char *upper) {
    unsigned t = threadIdx.x;
    auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    char c = text[t];
    if (letter(c) && (t == 0 || !letter(text[t - 1]))) atomicAdd(&count[0], 1);
    if (c == ' ') atomicAdd(&count[1], 1);
    upper[t] = c >= 'a' && c <= 'z' ? c - 32 : c;
}

//: case numbers
//: x s32 64 random
//: text u8 1024 zero result
//: numbers<<<1, 64>>>(x, text)
extern "C" __global__ void numbers(const int *x, char *text) {
    char *to = text + threadIdx.x * 16, digits[12];
    int v = x[threadIdx.x], n = 0;
    unsigned u = v < 0 ? 0u - v : v;
    do { digits[n++] = '0' + u % 10; u /= 10; } while (u);
    if (v < 0) *to++ = '-';
    while (n) *to++ = digits[--n];
}

//: case varints
//: x u64 64 random
//: bytes u8 640 zero result
//: back u64 64 zero result
//: varints<<<1, 64>>>(x, bytes, back)
extern "C" __global__ void varints(const unsigned long long *x, unsigned char *bytes, unsigned long long *back) {
    unsigned char *p = bytes + threadIdx.x * 10;
    unsigned long long v = x[threadIdx.x] >> threadIdx.x, w = 0;
    int n = 0;
    for (; v >= 128; v >>= 7) p[n++] = (unsigned char)(v | 128);
    p[n] = (unsigned char)v;
    for (int k = 0; k <= n; k++) w |= (unsigned long long)(p[k] & 127) << (7 * k);
    back[threadIdx.x] = w;
}
