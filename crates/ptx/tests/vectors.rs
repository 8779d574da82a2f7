//! Atomics of vectors. Their results are recorded (`tests/conformance`); here is where they may be.

mod machine;

use machine::{BASE, Flat, Journal, end, kernel, words};
use pagewise_ptx::execute::{Cause, Step};

#[test]
fn each_lane_adds_its_vector_and_gets_the_one_before_it() {
    let text = kernel(
        ".reg .f32 %a<4>, %o<4>; cvt.rn.f32.u32 %a0, %t; mov.f32 %a1, 0f3F800000;
         atom.global.add.v2.f32 {%a1, %o0}, [%out+512], {%a0, %a1};
         st.global.f32 [%mine], %o0;",
    );
    let all = words(&text, 1, 32, 130);
    let before: Vec<f32> = all[..32].iter().map(|bits| f32::from_bits(*bits)).collect();
    assert_eq!(before, (0..32).map(|lane| lane as f32).collect::<Vec<_>>());
    let sums = [all[128], all[129]].map(f32::from_bits);
    assert_eq!(sums, [496.0, 32.0]);
}

#[test]
fn a_vector_at_an_address_of_its_elements_only_is_misaligned() {
    for (atomic, bytes, offset) in [
        ("red.global.add.v2.f32 [%l], {%a, %a}", 8, 4),
        ("red.global.add.v4.f32 [%l], {%a, %a, %a, %a}", 16, 8),
        ("red.global.max.noftz.v2.f16x2 [%l], {%a, %a}", 8, 4),
    ] {
        let body = format!(
            ".reg .b64 %l; .reg .b32 %a; mov.b32 %a, 0; add.u64 %l, %out, {offset}; {atomic};"
        );
        let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
        let Step::Trap(report) = end(&kernel(&body), 1, 1, &mut memory, &mut journal) else {
            panic!("no trap: {atomic}");
        };
        assert_eq!(report.cause, Cause::Misaligned { bytes });
        assert_eq!(report.address, Some(BASE + offset));
        assert_eq!(memory.words(BASE, 8), [0; 8]);
    }
}
