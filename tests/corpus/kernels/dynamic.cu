// Dynamic programming.

// Scores of an alignment, one anti-diagonal at a time.
//: case needleman_wunsch
//: a u8 64 below 4
//: b u8 64 below 4
//: score s32 4225 zero result
//: needleman_wunsch<<<1, 64>>>(a, b, score)
extern "C" __global__ void needleman_wunsch(const char *a, const char *b, int *score) {
    const int n = 64;
    int t = threadIdx.x;
    score[t + 1] = -2 * (t + 1);
    score[(t + 1) * (n + 1)] = -2 * (t + 1);
    for (int diagonal = 0; diagonal < 2 * n - 1; diagonal++) {
        __syncthreads();
        int r = t, c = diagonal - t;
        if (c < 0 || c >= n) continue;
        int *s = score + (r + 1) * (n + 1) + c + 1;
        s[0] = max(s[-n - 2] + (a[r] == b[c] ? 3 : -1), max(s[-1], s[-n - 1]) - 2);
    }
}

//: case smith_waterman
//: a u8 96 below 4
//: b u8 2048 below 4
//: best s32 16 zero result
//: smith_waterman<<<16, 96>>>(a, b, best)
extern "C" __global__ void smith_waterman(const char *a, const char *b, int *best) {
    __shared__ int row[3][97];
    __shared__ int top;
    int t = threadIdx.x, mine = 0;
    for (int k = 0; k < 3; k++) row[k][t + 1] = 0;
    if (t == 0) { top = 0; row[0][0] = row[1][0] = row[2][0] = 0; }
    __syncthreads();
    for (int d = 0; d < 96 + 128 - 1; d++) {
        int c = d - t;
        int *now = row[d % 3], *before = row[(d + 2) % 3], *older = row[(d + 1) % 3], v = 0;
        if (c >= 0 && c < 128) {
            v = older[t] + (a[t] == b[blockIdx.x * 128 + c] ? 2 : -1);
            v = max(max(0, v), max(before[t], before[t + 1]) - 1);
        }
        mine = max(mine, v);
        now[t + 1] = v;
        __syncthreads();
    }
    atomicMax(&top, mine);
    __syncthreads();
    if (t == 0) best[blockIdx.x] = top;
}

//: case knapsack
//: weight u32 40 below 30
//: worth u32 40 below 100
//: out u32 256 zero result
//: knapsack<<<1, 256>>>(weight, worth, out, u32 40)
extern "C" __global__ void knapsack(const unsigned *weight, const unsigned *worth, unsigned *out, unsigned n) {
    __shared__ unsigned best[256];
    unsigned c = threadIdx.x;
    best[c] = 0;
    __syncthreads();
    for (unsigned i = 0; i < n; i++) {
        unsigned w = weight[i] + 1, v = best[c];
        if (c >= w) v = max(v, best[c - w] + worth[i]);
        __syncthreads();
        best[c] = v;
        __syncthreads();
    }
    out[c] = best[c];
}

// Myers' bit-parallel distance of a pattern of 32 characters to texts.
//: case edit_distance
//: pattern u8 32 below 4
//: text u8 4096 below 4
//: out u32 64 zero result
//: edit_distance<<<2, 32>>>(pattern, text, out)
extern "C" __global__ void edit_distance(const unsigned char *pattern, const unsigned char *text, unsigned *out) {
    unsigned equal[4] = {0, 0, 0, 0}, up = ~0u, down = 0, score = 32;
    for (int i = 0; i < 32; i++) equal[pattern[i]] |= 1u << i;
    const unsigned char *mine = text + (blockIdx.x * 32 + threadIdx.x) * 64;
    for (int i = 0; i < 64; i++) {
        unsigned eq = equal[mine[i]], v = eq | down;
        unsigned h = (((eq & up) + up) ^ up) | eq, plus = down | ~(h | up), minus = up & h;
        if (plus >> 31) score++;
        else if (minus >> 31) score--;
        plus = plus << 1 | 1;
        minus <<= 1;
        up = minus | ~(v | plus);
        down = plus & v;
    }
    out[blockIdx.x * 32 + threadIdx.x] = score;
}

//: case matrix_chain
//: size u32 25 below 50
//: out u32 1 zero result
//: matrix_chain<<<1, 24>>>(size, out)
extern "C" __global__ void matrix_chain(const unsigned *size, unsigned *out) {
    __shared__ unsigned cost[24][24];
    int i = threadIdx.x;
    for (int j = 0; j < 24; j++) cost[i][j] = 0;
    for (int length = 1; length < 24; length++) {
        __syncthreads();
        int j = i + length;
        if (j < 24) {
            unsigned least = ~0u;
            for (int k = i; k < j; k++)
                least = min(least, cost[i][k] + cost[k + 1][j] + (size[i] + 1) * (size[k + 1] + 1) * (size[j + 1] + 1));
            cost[i][j] = least;
        }
    }
    if (i == 0) *out = cost[0][23];
}
