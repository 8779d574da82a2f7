//! `tanh.approx` of many operands, by hashes of what an H200 gave (`conformance/tangents.py`).

use pagewise_ptx::math::half::{Binary16, Brain16};
use pagewise_ptx::math::tangent::{tangent, tangent_half};

/// The bits of 2^-14.
const LEAST: u32 = 0x3880_0000;

/// FNV-1a, a result at a time.
fn hash(results: impl Iterator<Item = u32>) -> u64 {
    results.fold(0xcbf2_9ce4_8422_2325, |hash, result| {
        (hash ^ u64::from(result)).wrapping_mul(0x100_0000_01b3)
    })
}

#[test]
fn each_64th_single_from_2_to_the_minus_14_to_16_gives_the_bits_of_an_h200() {
    let results = (0..36 << 16).map(|n| tangent(n * 64 + LEAST));
    assert_eq!(hash(results), 0x21f1_0efa_a12e_dc17);
}

#[test]
fn runs_of_singles_give_the_bits_of_an_h200() {
    let results = (0..1_u32 << 20).map(|n| {
        let begins = ((n >> 12).wrapping_mul(2_654_435_761) >> 4) % 0x0900_0000;
        tangent((n & 4095) + (begins & 0xffff_f000) + LEAST)
    });
    assert_eq!(hash(results), 0xdab0_913c_2f88_c8d5);
}

#[test]
fn all_halves_give_the_bits_of_an_h200() {
    let all = || 0..=u16::MAX;
    let results = all().map(|bits| tangent_half::<Binary16>(bits).into());
    assert_eq!(hash(results), 0xad1f_2540_8717_7b9d);
    let results = all().map(|bits| tangent_half::<Brain16>(bits).into());
    assert_eq!(hash(results), 0x0483_e974_75bf_5a09);
}
