// Reductions of a warp in one instruction.

//: case warp_reduce_ops
//: x u32 128 random
//: out u32 1024 zero result
//: warp_reduce_ops<<<1, 128>>>(x, out)
extern "C" __global__ void warp_reduce_ops(const unsigned *x, unsigned *out) {
    unsigned t = threadIdx.x, v = x[t], *o = out + t * 8;
    o[0] = __reduce_add_sync(~0u, v);
    o[1] = __reduce_min_sync(~0u, v);
    o[2] = __reduce_max_sync(~0u, (int)v);
    o[3] = __reduce_and_sync(~0u, v | 0xff00ff00);
    o[4] = __reduce_or_sync(~0u, v & 0x00ff00ff);
    o[5] = __reduce_xor_sync(~0u, v);
    if (t & 1) o[6] = __reduce_min_sync(0xaaaaaaaa, (int)v);
    else o[6] = __reduce_max_sync(0x55555555, v);
    o[7] = __reduce_add_sync(~0u, (int)v >> 4);
}
