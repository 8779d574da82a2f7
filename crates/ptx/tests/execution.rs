//! Kernels compute what PTX says they compute.

mod machine;

use std::sync::Arc;

use machine::{BASE, Flat, Journal, done, end, kernel, module, words};
use pagewise_ptx::execute::{Cause, Config, Launch, Step};
use pagewise_ptx::module::{Module, Target};

#[test]
fn each_thread_computes_its_own_word() {
    let text = kernel(".reg .b32 %r; mul.lo.s32 %r, %t, 3; st.global.u32 [%mine], %r;");
    let expected: Vec<u32> = (0..100).map(|t| 3 * t).collect();
    assert_eq!(words(&text, 2, 50, 100), expected);
}

#[test]
fn lanes_of_both_sides_of_a_branch_meet_again() {
    let text = kernel(
        ".reg .pred %p; .reg .b32 %r, %m; and.b32 %r, %t, 1; setp.eq.s32 %p, %r, 0;
         @%p bra even;
         add.s32 %r, %t, 1000; bra.uni join;
         even: add.s32 %r, %t, 2000;
         join: activemask.b32 %m; add.s32 %r, %r, %m; st.global.u32 [%mine], %r;",
    );
    let all = words(&text, 1, 32, 32);
    let expected: Vec<u32> = (0..32_u32)
        .map(|t| (if t % 2 == 0 { 2000 } else { 1000 } + t).wrapping_add(u32::MAX))
        .collect();
    assert_eq!(all, expected);
}

#[test]
fn lanes_that_leave_a_loop_wait_for_the_others() {
    let text = kernel(
        ".reg .pred %p; .reg .b32 %i, %m; mov.u32 %i, 0;
         loop: add.s32 %i, %i, 1; setp.le.s32 %p, %i, %t; @%p bra loop;
         activemask.b32 %m; add.s32 %i, %i, %m; st.global.u32 [%mine], %i;",
    );
    let expected: Vec<u32> = (0..32).collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}

#[test]
fn the_system_has_the_first_kilobyte_of_shared_memory_as_on_an_h200() {
    // 20 static bytes, and 100 dynamic ones behind them with an alignment of 16.
    let registers = [
        ("reserved_smem_offset_begin", 0),
        ("reserved_smem_offset_end", 288),
        ("reserved_smem_offset_cap", 1024),
        ("reserved_smem_offset_0", 0),
        ("reserved_smem_offset_1", 0),
        ("total_smem_size", 256),
        ("aggr_smem_size", 1024 + 132),
        ("dynamic_smem_size", 100),
    ];
    let moves = registers.map(|(name, _)| {
        format!("mov.u32 %r, %{name}; st.global.u32 [%out], %r; add.s64 %out, %out, 4;\n")
    });
    let text = module(&format!(
        ".extern .shared .align 16 .b8 dynamic[];
         .visible .entry k(.param .u64 k_out) {{
         .shared .align 4 .b8 own[20]; .reg .b32 %r; .reg .b64 %out; ld.param.u64 %out, [k_out]; {}
         mov.u32 %r, own; st.global.u32 [%out], %r; mov.u32 %r, dynamic; st.global.u32 [%out+4], %r; ret; }}",
        moves.concat()
    ));
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    let launch = Launch {
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared: 100,
        params: &BASE.to_le_bytes(),
        cooperative: false,
        cluster: None,
    };
    let mut run = machine::load(&text)
        .instantiate(&[])
        .unwrap()
        .kernel("k")
        .unwrap()
        .start(&launch, &Config::default())
        .unwrap();
    assert!(matches!(run.step(&mut memory, &mut journal, u64::MAX), Step::Done(_)));
    let expected: Vec<u32> = registers.iter().map(|one| one.1).chain([1024, 1056]).collect();
    assert_eq!(memory.words(BASE, 10), expected);
}

#[test]
fn a_block_sums_through_shared_memory() {
    let text = module(
        ".visible .entry k(.param .u64 k_out) {
         .shared .align 4 .b8 sums[1024];
         .reg .b32 %t, %n, %a, %s, %x, %y; .reg .b64 %out; .reg .pred %p;
         ld.param.u64 %out, [k_out]; mov.u32 %t, %tid.x; shl.b32 %a, %t, 2; mov.u32 %s, sums; add.s32 %a, %s, %a;
         st.shared.u32 [%a], %t; mov.u32 %n, 128;
         loop: bar.sync 0; setp.ge.u32 %p, %t, %n; @%p bra skip;
         shl.b32 %x, %n, 2; add.s32 %x, %a, %x; ld.shared.u32 %x, [%x]; ld.shared.u32 %y, [%a];
         add.s32 %x, %x, %y; st.shared.u32 [%a], %x;
         skip: shr.u32 %n, %n, 1; setp.ne.s32 %p, %n, 0; @%p bra loop;
         setp.ne.s32 %p, %t, 0; @%p bra end; ld.shared.u32 %x, [sums]; st.global.u32 [%out], %x;
         end: ret; }",
    );
    assert_eq!(words(&text, 1, 256, 1), [255 * 256 / 2]);
}

#[test]
fn a_lock_between_lanes_of_one_warp_is_released() {
    // Each lane takes the lock in turn and adds one without an atomic.
    let text = kernel(
        ".reg .pred %p; .reg .b32 %r;
         spin: atom.global.cas.b32 %r, [%out], 0, 1; setp.ne.s32 %p, %r, 0; @%p bra spin;
         ld.volatile.global.u32 %r, [%out+4]; add.s32 %r, %r, 1; st.volatile.global.u32 [%out+4], %r;
         atom.global.exch.b32 %r, [%out], 0;",
    );
    assert_eq!(words(&text, 3, 64, 2), [0, 192]);
}

#[test]
fn a_block_waits_for_another_blocks_flag() {
    let text = kernel(
        ".reg .pred %p; .reg .b32 %r; setp.ne.s32 %p, %b, 0; @%p bra set;
         wait: ld.volatile.global.u32 %r, [%out+400]; setp.eq.s32 %p, %r, 0; @%p bra wait;
         st.global.u32 [%mine], %r; ret;
         set: st.volatile.global.u32 [%out+400], 7;",
    );
    assert_eq!(words(&text, 2, 32, 1), [7]);
}

#[test]
fn functions_take_arguments_and_recurse() {
    let text = module(
        ".visible .func (.param .b32 r) fact(.param .b32 n) {
         .reg .b32 %n, %m, %r; .reg .pred %p;
         ld.param.u32 %n, [n]; mov.u32 %r, 1; setp.le.s32 %p, %n, 1; @%p bra done;
         sub.s32 %m, %n, 1;
         { .param .b32 a; st.param.b32 [a], %m; .param .b32 b; call.uni (b), fact, (a); ld.param.b32 %m, [b]; }
         mul.lo.s32 %r, %n, %m;
         done: st.param.b32 [r], %r; ret; }
         .visible .entry k(.param .u64 k_out) {
         .reg .b32 %t, %r; .reg .b64 %out, %off; ld.param.u64 %out, [k_out]; mov.u32 %t, %tid.x;
         mul.wide.u32 %off, %t, 4; add.s64 %out, %out, %off;
         { .param .b32 a; st.param.b32 [a], %t; .param .b32 b; call.uni (b), fact, (a); ld.param.b32 %r, [b]; }
         st.global.u32 [%out], %r; ret; }",
    );
    let expected: Vec<u32> = (0..12).map(|n: u32| (1..=n).product()).collect();
    assert_eq!(words(&text, 1, 12, 12), expected);
}

#[test]
fn indirect_calls_reach_each_lanes_function() {
    let text = module(
        ".func (.param .b32 r) one(.param .b32 n) { .reg .b32 %n; ld.param.u32 %n, [n]; add.s32 %n, %n, 100; st.param.b32 [r], %n; ret; }
         .func (.param .b32 r) two(.param .b32 n) { .reg .b32 %n; ld.param.u32 %n, [n]; add.s32 %n, %n, 200; st.param.b32 [r], %n; ret; }
         .global .align 8 .u64 table[2] = {one, two};
         .visible .entry k(.param .u64 k_out) {
         .reg .b32 %t, %r; .reg .b64 %out, %off, %f, %g;
         ld.param.u64 %out, [k_out]; mov.u32 %t, %tid.x;
         and.b32 %r, %t, 1; mul.wide.u32 %off, %r, 8; mov.u64 %g, table; add.s64 %g, %g, %off; ld.global.u64 %f, [%g];
         { .param .b32 a; st.param.b32 [a], %t; .param .b32 b;
         proto: .callprototype (.param .b32 _) _ (.param .b32 _);
         call (b), %f, (a), proto; ld.param.b32 %r, [b]; }
         mul.wide.u32 %off, %t, 4; add.s64 %out, %out, %off; st.global.u32 [%out], %r; ret; }",
    );
    let expected: Vec<u32> = (0..8).map(|t| if t % 2 == 0 { t + 100 } else { t + 200 }).collect();
    assert_eq!(words(&text, 1, 8, 8), expected);
}

#[test]
fn shuffles_votes_and_reductions_see_the_lanes_they_name() {
    let text = kernel(
        ".reg .b32 %r, %s; .reg .pred %p, %q;
         shfl.sync.down.b32 %r|%p, %t, 4, 31, -1; selp.u32 %s, 1, 0, %p; mad.lo.s32 %r, %s, 100, %r;
         setp.lt.s32 %q, %t, 3; vote.sync.ballot.b32 %s, %q, -1; mad.lo.s32 %r, %s, 1000, %r;
         redux.sync.add.s32 %s, %t, -1; mad.lo.s32 %r, %s, 100000, %r;
         st.global.u32 [%mine], %r;",
    );
    let expected: Vec<u32> = (0..32_u32)
        .map(|t| if t < 28 { t + 104 } else { t })
        .map(|value| value + 7000 + 496 * 100_000)
        .collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}

#[test]
fn a_shuffle_from_a_lane_that_takes_no_part_gives_zero() {
    let text = kernel(
        ".reg .pred %p; .reg .b32 %r; add.s32 %r, %t, 1; setp.ge.u32 %p, %t, 8; @%p bra done;
         shfl.sync.down.b32 %r, %r, 4, 31, 255;
         done: st.global.u32 [%mine], %r;",
    );
    let expected: Vec<u32> = (0..32)
        .map(|t| {
            if t < 4 {
                t + 5
            } else if t < 8 {
                0
            } else {
                t + 1
            }
        })
        .collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}

#[test]
fn vectors_of_all_lanes_move_by_rows_as_by_single_lanes() {
    // The lanes of the first warp are in order, those of the second in reverse.
    let text = kernel(
        ".reg .pred %p; .reg .b32 %i, %a, %b, %c, %d; .reg .b64 %from, %to, %q;
         xor.b32 %i, %t, 31; setp.lt.u32 %p, %t, 32; selp.b32 %i, %t, %i, %p;
         mul.wide.u32 %from, %i, 16; add.s64 %from, %from, %out;
         mul.lo.s32 %a, %i, 4; add.s32 %b, %a, 1; add.s32 %c, %a, 2; add.s32 %d, %a, 3;
         st.global.v4.u32 [%from], {%a, %b, %c, %d};
         ld.global.v2.u32 {%a, %b}, [%from+8]; ld.global.u64 %q, [%from];
         add.s64 %to, %from, 2048;
         st.global.v2.u32 [%to], {%b, %a}; st.global.u64 [%to+8], %q;",
    );
    let all = words(&text, 1, 64, 1024);
    let expected: Vec<u32> =
        (0..64).flat_map(|i| [4 * i + 3, 4 * i + 2, 4 * i, 4 * i + 1]).collect();
    assert_eq!(all[..256], (0..256).collect::<Vec<u32>>());
    assert_eq!(all[512..512 + 256], expected);
}

#[test]
fn a_shuffle_waits_for_lanes_that_come_by_another_way() {
    let text = kernel(
        ".reg .b32 %r; .reg .pred %p; mov.u32 %r, %t; setp.lt.s32 %p, %t, 16; @%p bra far;
         join: shfl.sync.bfly.b32 %r, %r, 16, 31, -1; st.global.u32 [%mine], %r; ret;
         far: add.s32 %r, %r, 100; bra join;",
    );
    let expected: Vec<u32> = (0..32).map(|t| if t < 16 { t + 16 } else { t - 16 + 100 }).collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}

#[test]
fn print_formats_as_the_c_library() {
    let text = module(
        ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
         .global .align 1 .b8 format[24] = {37, 100, 124, 37, 53, 46, 50, 102, 124, 37, 45, 52, 120, 124, 37, 48, 52, 108, 108, 117, 10, 0};
         .visible .entry k(.param .u64 k_out) {
         .local .align 8 .b8 depot[32]; .reg .b64 %sp, %f; .reg .b32 %t;
         mov.u64 %sp, depot; cvta.local.u64 %sp, %sp; mov.u32 %t, %tid.x; sub.s32 %t, %t, 1;
         st.local.u32 [depot], %t; st.f64 [%sp+8], 0d400921FB54442D18; st.u32 [%sp+16], 255; st.u64 [%sp+24], 42;
         mov.u64 %f, format; cvta.global.u64 %f, %f;
         { .param .b64 a; st.param.b64 [a], %f; .param .b64 b; st.param.b64 [b], %sp; .param .b32 c;
         call.uni (c), vprintf, (a, b); }
         ret; }",
    );
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    done(&text, 1, 2, &mut memory, &mut journal);
    assert_eq!(journal.text, "-1| 3.14|ff  |0042\n0| 3.14|ff  |0042\n");
}

/// A kernel of one thread that prints a format of at most 31 bytes with the number 7.
fn printing(format: &str) -> String {
    let bytes: Vec<_> = format.bytes().map(|byte| byte.to_string()).collect();
    module(&format!(
        ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
         .global .align 1 .b8 format[32] = {{{}, 0}};
         .visible .entry k(.param .u64 k_out) {{
         .local .align 8 .b8 depot[24]; .reg .b64 %sp, %f;
         mov.u64 %sp, depot; cvta.local.u64 %sp, %sp; st.u64 [%sp], 7; st.u64 [%sp+8], 0; st.u64 [%sp+16], 0;
         mov.u64 %f, format; cvta.global.u64 %f, %f;
         {{ .param .b64 a; st.param.b64 [a], %f; .param .b64 b; st.param.b64 [b], %sp; .param .b32 c;
         call.uni (c), vprintf, (a, b); }}
         ret; }}",
        bytes.join(", ")
    ))
}

/// As by an H100.
#[test]
fn print_leaves_what_is_no_conversion_as_it_is() {
    for (format, expected) in [
        ("[%y] [%d]", "[%y] [7]"),
        ("[%I] [%d]", "[%I] [7]"),
        ("[%d] [%5.2", "[7] [%5.2"),
        ("[%d] [%", "[7] [%"),
        ("[%5%] [%d]", "[%] [7]"),
        ("[%%%d%%]", "[%7%]"),
        ("[%p] [%.2s] [%s]", "[0x7] [] [(null)]"),
    ] {
        let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
        done(&printing(format), 1, 1, &mut memory, &mut journal);
        assert_eq!(journal.text, expected, "{format}");
    }
}

#[test]
fn a_warp_that_misses_goes_on_when_its_page_is_there() {
    let text = kernel(
        ".reg .b32 %r; atom.global.add.u32 %r, [%mine], 1; ld.global.u32 %r, [%mine+8192]; st.global.u32 [%mine], %r;",
    );
    let mut memory = Flat::new(1 << 20);
    memory.write_words(BASE + 8192, &(100..1124).collect::<Vec<u32>>());
    memory.missing = vec![2];
    let mut journal = Journal::default();
    let config = Config::default();
    let mut run = machine::start(&text, "k", 2, 64, &BASE.to_le_bytes(), &config);
    assert_eq!(run.step(&mut memory, &mut journal, u64::MAX), Step::Waiting);
    let waiting: Vec<_> =
        run.outstanding().iter().map(|o| (o.block, o.warp, o.sm, o.address)).collect();
    let at = |thread: u64| BASE + 8192 + 4 * thread;
    assert_eq!(
        waiting,
        [(0, 0, 0, at(0)), (0, 1, 0, at(32)), (1, 0, 1, at(64)), (1, 1, 1, at(96))]
    );
    memory.missing.clear();
    memory.generation += 1;
    assert!(matches!(run.step(&mut memory, &mut journal, u64::MAX), Step::Done(_)));
    assert_eq!(memory.words(BASE, 128), (100..228).collect::<Vec<u32>>());
}

#[test]
fn a_wild_access_is_reported_with_its_thread() {
    let text = kernel(
        ".reg .pred %p; setp.ne.s32 %p, %t, 37; @%p bra end; st.global.u32 [%out+16777216], 1; end: ret;",
    );
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    let Step::Trap(report) = end(&text, 1, 64, &mut memory, &mut journal) else {
        panic!("no trap")
    };
    assert!(matches!(report.cause, Cause::IllegalAddress { .. }), "{report}");
    assert_eq!((report.thread, report.address), ([37, 0, 0], Some(BASE + 16_777_216)));
}

/// The first warp of the grid reads nothing's memory. The others do `then`.
fn wild_first(then: &str) -> String {
    let first = ".reg .pred %p; .reg .b32 %r; sub.u64 %rd, %mine, %out; setp.ge.u64 %p, %rd, 128;";
    let wild = "@%p bra others; ld.global.u32 %r, [%out+16777216];";
    kernel(&format!(".reg .b64 %rd; {first} {wild} st.global.u32 [%mine], %r; ret; others: {then}"))
}

#[test]
fn an_illegal_address_halts_its_warp_and_the_others_end() {
    let text = wild_first("st.global.u32 [%mine], 7;");
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    let Step::Trap(report) = end(&text, 2000, 64, &mut memory, &mut journal) else {
        panic!("no trap")
    };
    assert_eq!((report.block, report.address), ([0; 3], Some(BASE + 16_777_216)));
    let words = memory.words(BASE, 2000 * 64);
    assert_eq!(words[..32], [0; 32]);
    assert!(words[32..].iter().all(|word| *word == 7));
}

#[test]
fn a_kernel_that_waits_for_a_halted_warp_ends() {
    let at_barrier = wild_first("bar.sync 0; st.global.u32 [%mine], 7;");
    let spins =
        wild_first("spin: ld.volatile.global.u32 %r, [%out]; setp.eq.u32 %p, %r, 0; @%p bra spin;");
    for text in [at_barrier, spins] {
        let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
        let config = Config { instruction_limit: None, ..Config::default() };
        let mut run = machine::start(&text, "k", 1, 64, &BASE.to_le_bytes(), &config);
        let Step::Trap(report) = run.step(&mut memory, &mut journal, u64::MAX) else {
            panic!("no trap")
        };
        assert!(matches!(report.cause, Cause::IllegalAddress { .. }), "{report}");
        assert_eq!(memory.words(BASE, 64), [0; 64]);
    }
}

#[test]
fn misaligned_and_outside_accesses_end_the_kernel() {
    let cause = |body: &str| {
        let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
        match end(&kernel(body), 1, 1, &mut memory, &mut journal) {
            Step::Trap(report) => report.cause,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(cause("st.global.u32 [%out+2], 1;"), Cause::Misaligned { bytes: 4 });
    assert_eq!(
        cause(".shared .b8 s[16]; st.shared.u32 [s+16], 1;"),
        Cause::OutsideShared { bytes: 1024 + 16 }
    );
    // The bytes of the system come first, and a kernel may use them, as on an H200.
    assert_eq!(cause(".shared .b8 s[16]; st.shared.u32 [s-1024], 1; trap;"), Cause::Trap);
    assert_eq!(cause("trap;"), Cause::Trap);
    assert_eq!(cause("l: bra l;"), Cause::InstructionLimit);
    let text = ".reg .pred %p; setp.ne.s32 %p, %t, 0; @%p bra l; l: ret;";
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    assert!(matches!(end(&kernel(text), 1, 1, &mut memory, &mut journal), Step::Done(_)));
}

#[test]
fn a_module_with_an_unknown_instruction_is_refused_with_its_line() {
    let text = kernel("add.s32 %t, %t, 1;\n frobnicate.u32 %t, %t;");
    let target = pagewise_ptx::module::Target { compute: (9, 0) };
    let error = pagewise_ptx::module::Module::load(&text, &target).unwrap_err();
    assert!(error.instruction.starts_with("frobnicate.u32"), "{error}");
    let unknown = kernel("add.frob.s32 %t, %t, 1;");
    let error = pagewise_ptx::module::Module::load(&unknown, &target).unwrap_err();
    assert!(error.message.contains(".frob"), "{error}");
}

#[test]
fn only_a_match_of_all_lanes_has_a_predicate() {
    let target = pagewise_ptx::module::Target { compute: (9, 0) };
    let load = |mode| {
        let text = kernel(&format!(".reg .pred %p; match.{mode}.sync.b32 %w|%p, %t, -1;"));
        pagewise_ptx::module::Module::load(&text, &target)
    };
    assert!(load("all").is_ok());
    let error = load("any").unwrap_err();
    assert!(error.message.contains("no predicate"), "{error}");
}

#[test]
fn approximate_functions_are_exact_where_the_hardware_is() {
    let text = kernel(
        ".reg .f32 %f; .reg .b32 %r; cvt.rn.f32.u32 %f, %t; ex2.approx.ftz.f32 %f, %f; lg2.approx.f32 %f, %f;
         rcp.approx.f32 %f, %f; rcp.approx.ftz.f32 %f, %f; cvt.rni.u32.f32 %r, %f; st.global.u32 [%mine], %r;",
    );
    let expected: Vec<u32> = (0..32).collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}

#[test]
fn arrays_without_a_size_are_refused_but_for_those_of_other_modules() {
    for declaration in [".global .b32 x[];", ".const .b32 x[];", ".shared .b32 x[];"] {
        let text = module(&format!("{declaration} .visible .entry k() {{ ret; }}"));
        let error = Module::load(&text, &Target { compute: (9, 0) }).expect_err(declaration);
        assert!(error.message.contains("`x` has no size"), "{error}");
    }
    let parameter = module(".visible .entry k(.param .b32 x[]) { ret; }");
    let error = Module::load(&parameter, &Target { compute: (9, 0) }).expect_err("a parameter");
    assert!(error.message.contains("`x` has no size"), "{error}");
    for declaration in [".global .b32 x[] = {1, 2};", ".extern .shared .b32 x[];"] {
        let text = module(&format!("{declaration} .visible .entry k() {{ ret; }}"));
        assert!(Module::load(&text, &Target { compute: (9, 0) }).is_ok(), "{declaration}");
    }
}

/// As `ptxas` takes them: an access without a space to a variable is one in the variable's space.
#[test]
fn a_generic_access_reaches_a_variable_by_its_name() {
    let text = kernel(
        ".shared .align 4 .b8 s[128]; .local .align 4 .b8 l[8]; .reg .b32 %a, %c;
         st.u32 [s+4], 5; st.u32 [l+4], %t; ld.u32 %a, [s+4]; ld.u32 %c, [l+4];
         add.u32 %a, %a, %c; st.u32 [%mine], %a;",
    );
    assert_eq!(words(&text, 1, 4, 4), [5, 6, 7, 8]);
}

/// A kernel of so many numbers that live at once, and how many registers that is by the estimate.
fn with_registers(values: usize) -> (String, u32) {
    let names: Vec<String> = (0..values).map(|value| format!("%v{value}")).collect();
    let loads: String = (0..values)
        .map(|value| format!("ld.global.u32 %v{value}, [%out + {}];\n", 4 * value))
        .collect();
    let sums: String = names.iter().map(|name| format!("add.u32 %r, %r, {name};\n")).collect();
    let text = kernel(&format!(
        ".reg .b32 %r, {}; {loads} bar.sync 0; mov.u32 %r, 0; {sums} st.global.u32 [%mine], %r;",
        names.join(", ")
    ));
    let loaded = Module::load(&text, &Target { compute: (9, 0) }).unwrap();
    let registers = loaded.kernels()[0].registers;
    (text, registers)
}

#[test]
fn a_block_that_needs_too_many_registers_by_the_estimate_alone_runs() {
    // 65,536 registers are 64 for each of 1,024 threads. The estimate is up to 2.6 times too high.
    let start = |text: &str| {
        let loaded = Module::load(text, &Target { compute: (9, 0) }).unwrap();
        let instance = Arc::new(loaded).instantiate(&[]).unwrap();
        let launch = Launch {
            grid: [1, 1, 1],
            block: [1024, 1, 1],
            dynamic_shared: 0,
            params: &BASE.to_le_bytes(),
            cooperative: false,
            cluster: None,
        };
        instance.kernel("k").unwrap().start(&launch, &Config::default()).map(drop)
    };
    let (text, registers) = with_registers(150);
    assert!((150..192).contains(&registers), "{registers}");
    assert!(start(&text).is_ok());
    let (text, registers) = with_registers(220);
    assert!(registers > 200, "{registers}");
    let error = start(&text).unwrap_err().to_string();
    assert!(error.contains("registers, and there are 65536"), "{error}");
}
