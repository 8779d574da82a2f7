//! Elements of arrays as operands, against the addresses that an H100 (driver 580) computes for them.

mod machine;

use machine::{BASE, Flat, Journal, done, kernel, module, words};
use pagewise_ptx::module::{Module, Target};

const INDICES: [&str; 9] =
    ["0", "3", "1+1", "0x10", "%two", "%two+1", "%two+-1", "%wide", "%minus"];

#[test]
fn an_index_counts_elements_of_the_declared_type() {
    // The words of the last column: the element before the first, in as many bits as the space has.
    let behind = |bytes: u32| bytes.wrapping_neg();
    let arrays = [
        (".shared .align 16 .b8 a[64]", 1, [behind(1), u32::MAX]),
        (".shared .u32 a[16]", 4, [behind(4), u32::MAX]),
        (".shared .u16 a[4][8]", 2, [behind(2), u32::MAX]),
        (".shared .align 16 .v4 .f32 a[4]", 4, [behind(4), u32::MAX]),
        (".shared .f64 a[3][4][5]", 8, [behind(8), u32::MAX]),
        (".local .u32 a[8]", 4, [behind(4), 0]),
    ];
    for (declared, bytes, last) in arrays {
        let differences: String = INDICES
            .iter()
            .map(|index| {
                format!(
                    "mov.u64 %b, a[{index}]; sub.s64 %b, %b, %a; st.global.u64 [%out], %b;
                     add.s64 %out, %out, 8;\n"
                )
            })
            .collect();
        let text = kernel(&format!(
            "{declared}; .reg .b32 %two, %minus; .reg .b64 %wide, %a, %b;
             mov.u32 %two, 2; mov.u32 %minus, -1; mov.u64 %wide, 2; mov.u64 %a, a; {differences}"
        ));
        let found = words(&text, 1, 1, 2 * INDICES.len());
        let expected = [0, 3, 2, 16, 2, 3, 1, 2].map(|index| [index * bytes, 0]);
        let expected: Vec<u32> = expected.into_iter().chain([last]).flatten().collect();
        assert_eq!(found, expected, "{declared}");
    }
}

#[test]
fn loads_and_stores_name_elements_in_each_space() {
    let text = module(
        ".global .u32 g[8]; .const .u16 c[4] = {7, 8, 9, 10};
         .visible .entry k(.param .u64 o) {
         .shared .u32 s[8]; .local .u32 l[8]; .reg .b64 %out; .reg .b32 %i, %x, %y; .reg .b16 %h;
         ld.param.u64 %out, [o]; mov.u32 %i, 2;
         st.shared.u32 s[3], 11; ld.shared.u32 %x, s[%i+1]; st.global.u32 [%out], %x;
         st.local.u32 l[%i], 12; ld.local.u32 %x, l[2]; st.global.u32 [%out+4], %x;
         st.local.u32 l[3], 13; ld.local.v2.u32 {%x, %y}, l[%i]; add.u32 %x, %x, %y;
         st.global.u32 [%out+8], %x;
         ld.const.u16 %h, c[%i]; cvt.u32.u16 %x, %h; st.global.u32 [%out+12], %x;
         cvta.shared.u64 %out, s[1]; ret; }",
    );
    let mut memory = Flat::new(1 << 20);
    done(&text, 1, 1, &mut memory, &mut Journal::default());
    assert_eq!(memory.words(BASE, 4), [11, 12, 25, 9]);
}

#[test]
fn names_without_elements_are_refused() {
    for (instruction, reason) in [
        ("mov.u64 %a, one[0];", "`one` is no array"),
        ("mov.u64 %a, %out[0];", "`%out` is no array"),
        ("add.u64 %a, %a, some[1];", "`add` takes no element"),
        ("ld.shared.u32 %x, some[%h];", "`%h` has 16"),
        ("ld.shared.u32 %x, some[none];", "`none` is no register"),
    ] {
        let text = kernel(&format!(
            ".shared .u32 one, some[4]; .reg .b64 %a; .reg .b32 %x; .reg .b16 %h; {instruction}"
        ));
        let error = Module::load(&text, &Target { compute: (9, 0) }).unwrap_err().to_string();
        assert!(error.contains(reason), "{instruction}: {error}");
    }
}
