// Arithmetic in bfloat16.
#include <cuda_bf16.h>

//: case bfloats
//: x f32 256 random
//: out u32 896 zero result
//: bfloats<<<1, 128>>>(x, out)
extern "C" __global__ void bfloats(const float2 *x, unsigned *out) {
    unsigned t = threadIdx.x, *o = out + t * 7;
    __nv_bfloat162 a = __float22bfloat162_rn(x[t]), b = __float22bfloat162_rn(x[(t + 3) % 128]);
    auto bits = [](__nv_bfloat162 h) { return *(unsigned *)&h; };
    o[0] = bits(__hadd2(a, b));
    o[1] = bits(__hmul2(a, b));
    o[2] = bits(__hfma2(a, b, a));
    o[3] = bits(__hmax2(a, b));
    o[4] = __bfloat16_as_ushort(__float2bfloat16_rz(x[t].x)) | __bfloat16_as_ushort(__float2bfloat16_ru(x[t].y)) << 16;
    o[5] = __float_as_uint(__bfloat162float(a.x) * 3) ^ (unsigned)__bfloat162int_rz(a.y * __float2bfloat16(100.0f));
    o[6] = bits(__hsub2(a, b)) + __hbgt2(a, b);
}
