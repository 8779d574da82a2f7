//! Accesses that a warp issues behind one that waits for its page.

mod machine;

use machine::{BASE, Flat, Journal, PAGE, kernel};
use pagewise_ptx::execute::{Config, Kind, Step};

/// The pages that the only warp of a kernel waits for at first, each with the place of its
/// instruction among those that wait. No page of the first 200 is there but the ones that are named.
fn waiting(body: &str, there: &[u64]) -> Vec<(u64, u32)> {
    let body = format!(".reg .b32 %x, %y; .reg .b64 %a; .reg .pred %p; {body}");
    let mut memory = Flat::new(1 << 20);
    memory.missing = (0..200).filter(|page| !there.contains(page)).collect();
    let (params, config) = (BASE.to_le_bytes(), Config::default());
    let mut run = machine::start(&kernel(&body), "k", 1, 32, &params, &config);
    assert_eq!(run.step(&mut memory, &mut Journal::default(), u64::MAX), Step::Waiting);
    let page = |address: u64| (address - BASE) / PAGE;
    run.outstanding().iter().map(|one| (page(one.address), one.nth)).collect()
}

#[test]
fn stores_and_loads_behind_a_store_wait_with_it() {
    let body = "st.global.u32 [%mine], %t; st.global.u32 [%mine+8192], %t;
        ld.global.u32 %x, [%mine+4096]; ld.global.u32 %y, [%mine+12288];
        st.global.u32 [%mine+16384], %x;";
    assert_eq!(waiting(body, &[]), [(0, 0), (2, 1), (1, 2), (3, 3)]);
    assert_eq!(waiting(body, &[2, 3]), [(0, 0), (1, 1)]);
}

#[test]
fn accesses_behind_a_load_wait_with_it_up_to_one_that_needs_its_value() {
    let body = "ld.global.u32 %x, [%mine]; st.global.u32 [%mine+4096], %t;
        ld.global.u32 %y, [%mine+12288]; st.global.u32 [%mine+8192], %x;
        st.global.u32 [%mine+16384], %t;";
    assert_eq!(waiting(body, &[]), [(0, 0), (1, 1), (3, 2)]);
    assert_eq!(waiting(body, &[0]), [(1, 0), (3, 1), (2, 2), (4, 3)]);
}

#[test]
fn an_address_that_is_calculated_behind_the_store_is_known() {
    let body = "st.global.u32 [%mine], %t; add.s64 %a, %mine, 12288; st.global.u32 [%a], %t;";
    assert_eq!(waiting(body, &[]), [(0, 0), (3, 1)]);
}

#[test]
fn a_value_that_is_loaded_may_be_stored_and_is_no_address() {
    let copies = "st.global.u32 [%mine], %t; ld.global.u32 %x, [%mine+8192]; add.u32 %x, %x, 1;
        st.global.u32 [%mine+4096], %x;";
    assert_eq!(waiting(copies, &[2]), [(0, 0), (1, 1)], "the loaded page is there");
    let follows = "st.global.u32 [%mine], %t; ld.global.u64 %a, [%out+8192];
        st.global.u32 [%mine+4096], %t; add.s64 %a, %a, %mine; st.global.u32 [%a+20480], %t;";
    assert_eq!(waiting(follows, &[2]), [(0, 0), (1, 1)]);
    let branches = "st.global.u32 [%mine], %t; ld.global.u32 %x, [%mine+8192];
        setp.eq.u32 %p, %x, 0; @%p st.global.u32 [%mine+4096], %t;";
    assert_eq!(waiting(branches, &[2]), [(0, 0)]);
}

#[test]
fn a_parameter_may_be_an_address() {
    let body = "st.global.u32 [%mine], %t; ld.param.u64 %a, [k_out]; add.s64 %a, %a, 4096;
        st.global.u32 [%a], %t;";
    assert_eq!(waiting(body, &[]), [(0, 0), (1, 1)]);
    let other_lanes = "st.global.u32 [%mine], %t; setp.lt.u32 %p, %t, 9; mov.u64 %a, %mine;
        @%p ld.param.u64 %a, [k_out]; st.global.u32 [%a+8192], %t;";
    assert_eq!(waiting(other_lanes, &[]), [(0, 0), (2, 1)]);
}

#[test]
fn a_loop_of_stores_runs_ahead_as_far_as_the_bound() {
    let body = "mov.u32 %x, 0;
        again: st.global.u32 [%mine], %x; add.s64 %mine, %mine, 4096; add.u32 %x, %x, 1;
        setp.lt.u32 %p, %x, COUNT; @%p bra again;";
    let pages = |count: u32| (0..count).map(|nth| (u64::from(nth), nth)).collect::<Vec<_>>();
    assert_eq!(waiting(&body.replace("COUNT", "5"), &[]), pages(5));
    let most = waiting(&body.replace("COUNT", "150"), &[]).len();
    assert!((40..=65).contains(&most), "{most}");
}

#[test]
fn lanes_that_part_barriers_atomics_and_volatile_accesses_end_the_walk() {
    let last = "st.global.u32 [%mine+8192], %t;";
    for between in [
        "bar.sync 0;",
        "atom.global.add.u32 %y, [%out+40960], 1;",
        "membar.gl;",
        "ld.volatile.global.u32 %y, [%out+40960];",
        "setp.lt.u32 %p, %t, 9; @%p bra end;",
    ] {
        let body = format!("st.global.u32 [%mine], %t; {between} {last} end: ret;");
        assert_eq!(waiting(&body, &[]), [(0, 0)], "{between}");
    }
    let body = format!("st.volatile.global.u32 [%mine], %t; {last}");
    assert_eq!(waiting(&body, &[]), [(0, 0)]);
}

#[test]
fn a_walk_changes_no_register_no_byte_and_no_figure() {
    let body = ".reg .b32 %x, %y; .reg .pred %p; mov.u32 %x, 0;
        again: st.global.u32 [%mine], %x; add.s64 %mine, %mine, 4096; add.u32 %x, %x, 1;
        ld.global.u32 %y, [%mine]; add.u32 %y, %y, %x; st.global.u32 [%mine+2048], %y;
        setp.lt.u32 %p, %x, 9; @%p bra again;";
    let left = |missing: &[u64]| {
        let mut memory = Flat::new(1 << 20);
        memory.missing = missing.to_vec();
        let (params, config) = (BASE.to_le_bytes(), Config::default());
        let mut run = machine::start(&kernel(body), "k", 1, 32, &params, &config);
        loop {
            match run.step(&mut memory, &mut Journal::default(), u64::MAX) {
                Step::Waiting => {
                    let last = run.outstanding().last().copied().expect("one waits");
                    assert!(matches!(last.kind, Kind::Read | Kind::Write));
                    memory.missing.retain(|page| *page != (last.address - BASE) / PAGE);
                    memory.generation += 1;
                }
                Step::Done(stats) => return (stats, memory.words(BASE, 16 << 10)),
                other => panic!("{other:?}"),
            }
        }
    };
    let (stats, words) = left(&[]);
    let (waited, same) = left(&(0..16).collect::<Vec<_>>());
    assert_eq!(words, same);
    assert_eq!((stats.bytes_read, stats.bytes_written), (waited.bytes_read, waited.bytes_written));
    assert_eq!(stats.thread_instructions, waited.thread_instructions);
}
