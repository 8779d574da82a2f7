// The standard library of the device.
#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>
#include <cuda/std/optional>
#include <cuda/std/tuple>

//: case standard_atomics
//: out u32 8 zero result
//: standard_atomics<<<3, 32>>>(out)
extern "C" __global__ void standard_atomics(unsigned *out) {
    using cuda::memory_order_acq_rel;
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> sum(out[0]), most(out[1]), lock(out[2]);
    sum.fetch_add(threadIdx.x + 1, cuda::memory_order_relaxed);
    most.fetch_max(blockIdx.x * 32 + threadIdx.x, memory_order_acq_rel);
    unsigned expected = 0;
    while (!lock.compare_exchange_weak(expected, 1, cuda::memory_order_acquire, cuda::memory_order_relaxed)) expected = 0;
    unsigned v = out[3] + 1;
    out[3] = v;
    lock.store(0, cuda::memory_order_release);
    cuda::atomic_ref<unsigned, cuda::thread_scope_block> word(out[4 + blockIdx.x]);
    word.fetch_xor(threadIdx.x * threadIdx.x, cuda::memory_order_seq_cst);
}

// A value goes from block to block by release and acquire.
//: case standard_handover
//: turn u32 1 zero result
//: value u32 1 fill 3 result
//: standard_handover<<<6, 1>>>(turn, value)
extern "C" __global__ void standard_handover(unsigned *turn, unsigned *value) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> mine(*turn);
    while (mine.load(cuda::memory_order_acquire) != blockIdx.x) { }
    *value = *value * 7 + blockIdx.x;
    mine.fetch_add(1, cuda::memory_order_release);
}

//: case standard_types
//: x f32 128 random
//: out f32 256 zero result
//: standard_types<<<1, 64>>>(x, out)
extern "C" __global__ void standard_types(const float *x, float *out) {
    unsigned t = threadIdx.x;
    cuda::std::complex<float> a(x[2 * t], x[2 * t + 1]), b(0.5f, -1.25f), c = a * b + a / b;
    cuda::std::array<unsigned, 4> words = {t, t * t, t << 9, ~t};
    auto pair = cuda::std::make_tuple(t, c.real(), (short)-t);
    cuda::std::optional<int> maybe;
    if (t % 3) maybe = (int)t;
    out[4 * t] = c.real();
    out[4 * t + 1] = c.imag() + maybe.value_or(-100);
    out[4 * t + 2] = (float)(cuda::std::popcount(words[t & 3]) + cuda::std::rotl(words[1], 3) + cuda::std::countl_zero(words[2]));
    out[4 * t + 3] = cuda::std::get<1>(pair) + cuda::std::get<2>(pair) + norm(a);
}
