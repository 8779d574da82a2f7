//! Values of 128 bits.

mod machine;

use machine::{BASE, Flat, Journal, done, end, kernel, words};
use pagewise_ptx::execute::{Cause, Step};
use pagewise_ptx::module::{Module, Target};

#[test]
fn values_of_128_bits_move_between_memory_and_registers() {
    let text = kernel(
        ".shared .align 16 .b8 s[512]; .reg .b128 %x<3>; .reg .b128 %one; .reg .b64 %l<4>; .reg .b32 %r;
         mul.wide.u32 %l0, %t, 16; add.s64 %l0, %out, %l0; mov.u32 %r, s; mad.lo.u32 %r, %t, 16, %r;
         ld.global.b128 %x0, [%l0]; st.shared.b128 [%r], %x0; ld.shared.b128 %x1, [%r];
         mov.b128 {%l1, %l2}, %x1; add.u64 %l1, %l1, 1; mov.b128 %x2, {%l2, %l1};
         mov.b128 %one, %x2; st.global.b128 [%l0+512], %one;",
    );
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    let values: Vec<u32> = (0..128).collect();
    memory.write_words(BASE, &values);
    done(&text, 1, 32, &mut memory, &mut journal);
    let expected: Vec<u32> =
        (0..32).flat_map(|t| [4 * t + 2, 4 * t + 3, 4 * t + 1, 4 * t + 1]).collect();
    assert_eq!(memory.words(BASE + 512, 128), expected);
}

#[test]
fn an_exchange_of_128_bits_gives_the_old_value() {
    for space in ["", ".global", ".relaxed.gpu.global"] {
        let text = kernel(&format!(
            ".reg .b128 %x<3>; .reg .b64 %l<2>; cvt.u64.u32 %l0, %t; add.u64 %l1, %l0, 100;
             mov.b128 %x0, {{%l0, %l1}}; atom{space}.exch.b128 %x1, [%out], %x0;
             mov.b128 {{%l0, _}}, %x1; st.global.u32 [%mine+16], %t; st.global.b128 [%out+1024], %x1;"
        ));
        // One lane after the other: the last one stores what the one before it left.
        let left = words(&text, 1, 8, 264);
        assert_eq!(left[..4], [7, 0, 107, 0], "{space}");
        assert_eq!(left[256..260], [6, 0, 106, 0], "{space}");
    }
}

#[test]
fn a_swap_of_128_bits_compares_both_halves() {
    let text = kernel(
        ".shared .align 16 .b8 s[16]; .reg .b128 %x<4>; .reg .b64 %l<4>; .reg .b32 %r;
         mov.u64 %l0, 1; mov.u64 %l1, 2; mov.u64 %l2, 3;
         mov.b128 %x0, {%l0, %l1}; mov.b128 %x1, {%l0, %l2}; st.shared.b128 [s], %x0;
         atom.shared.cas.b128 %x2, [s], %x1, %x1; st.global.b128 [%out], %x2;
         ld.shared.b128 %x3, [s]; st.global.b128 [%out+16], %x3;
         atom.shared.cas.b128 %x2, [s], %x0, %x1; st.global.b128 [%out+32], %x2;
         ld.shared.b128 %x3, [s]; st.global.b128 [%out+48], %x3;",
    );
    let expected = [1, 0, 2, 0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 0, 3, 0];
    assert_eq!(words(&text, 1, 1, 16), expected);
}

#[test]
fn values_of_128_bits_are_at_multiples_of_16() {
    for body in ["ld.global.b128 %x, [%out+8];", "atom.global.exch.b128 %x, [%out+8], %x;"] {
        let text = kernel(&format!(".reg .b128 %x; {body}"));
        let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
        match end(&text, 1, 1, &mut memory, &mut journal) {
            Step::Trap(report) => assert_eq!(report.cause, Cause::Misaligned { bytes: 16 }),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn other_instructions_refuse_registers_of_128_bits() {
    for body in
        ["add.u64 %x, %x, 1;", "st.global.b64 [%out], %x;", "atom.global.add.b128 %x, [%out], %x;"]
    {
        let text = kernel(&format!(".reg .b128 %x; {body}"));
        let error = Module::load(&text, &Target { compute: (9, 0) }).expect_err(body);
        assert!(error.message.contains("128"), "{body}: {error}");
    }
}
