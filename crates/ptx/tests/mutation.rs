//! Texts that are damaged at random are refused or run inside of their bounds: nothing panics,
//! nothing hangs, and memory does not grow.

mod damage;
mod machine;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use damage::{Random, damaged, scrambled, tokens};
use machine::{BASE, Flat, Journal, kernel, module};
use pagewise_ptx::execute::{Config, Launch, Step};
use pagewise_ptx::module::{KernelInfo, Module, Target};

/// How many damaged texts each test tries. A long run sets `PTX_MUTATIONS`.
const TRIES: u64 = 2000;
/// The longest text of the corpus that is damaged.
const MOST_TEXT: u64 = 16 << 10;
/// The most bytes by which the process may grow after a tenth of the tries.
const GROWTH: u64 = 48 << 20;
/// The most bytes that a damaged text may make the process take at a time.
const PEAK: u64 = 512 << 20;
/// The longest time for one text, on a slow machine.
const SLOWEST: Duration = Duration::from_secs(20);

fn texts() -> Vec<String> {
    vec![
        kernel(
            ".reg .b32 %r<9>; .reg .f32 %f<4>; .reg .f64 %d<3>; .reg .b64 %q<4>; .reg .b16 %h<4>; .reg .pred %p<4>;
             mad.lo.s32 %r1, %t, 3, 7; div.u32 %r2, %r1, %t; shf.l.wrap.b32 %r3, %r1, %r2, 5; lop3.b32 %r4, %r1, %r2, %r3, 0x96;
             cvt.rn.f32.s32 %f1, %r1; fma.rn.ftz.f32 %f2, %f1, 0f3F800000, %f1; cvt.f64.f32 %d1, %f2; sqrt.rn.f64 %d2, %d1;
             cvt.rzi.s64.f64 %q1, %d2; mov.b64 {%r5, %r6}, %q1; prmt.b32 %r7, %r5, %r6, 0x5410; cvt.u16.u32 %h1, %r7;
             setp.lt.and.s32 %p1|%p2, %r1, %r7, %p3; @%p1 bra skip; selp.b32 %r8, %r1, %r2, %p2; add.cc.u32 %r1, %r1, %r8; addc.u32 %r2, %r2, 0;
             skip: bfe.s32 %r3, %r1, 4, 8; popc.b32 %r4, %r3; st.global.v2.u32 [%out], {%r1, %r2}; ld.global.u8 %r5, [%mine+3];
             atom.global.cas.b32 %r6, [%out+64], 0, %r5; red.global.add.f32 [%out+128], %f2; bar.sync 0; shfl.sync.up.b32 %r7|%p1, %r6, 1, 0, -1;
             vote.sync.ballot.b32 %r8, %p1, -1; match.any.sync.b32 %r1, %r7, -1; redux.sync.max.u32 %r2, %r1, -1; exit;",
        ),
        module(
            ".const .align 4 .f32 c[4] = {0f3F800000, 2.5}; .global .b8 g[8] = {1, 2, 3}; .extern .shared .align 8 .b8 dyn[];
             .func (.param .b32 r) f(.param .b32 n) { .reg .b32 %n; .reg .pred %p; .local .align 8 .b8 l[32]; .reg .b64 %a;
             ld.param.u32 %n, [n]; mov.u64 %a, l; cvta.local.u64 %a, %a; st.u32 [%a+8], %n; setp.eq.s32 %p, %n, 0; @%p bra e; sub.s32 %n, %n, 1;
             { .param .b32 x; st.param.b32 [x], %n; .param .b32 y; call.uni (y), f, (x); ld.param.b32 %n, [y]; }
             e: add.s32 %n, %n, 1; st.param.b32 [r], %n; ret; }
             .visible .entry k(.param .u64 o) { .reg .b32 %r<4>; .reg .b64 %a, %b; .reg .f32 %f; .shared .align 4 .b8 s[256];
             ld.param.u64 %a, [o]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; ld.const.f32 %f, [c+4];
             t: .branchtargets a, b, c1, d; brx.idx %r2, t; a: add.s32 %r1, %r1, 1; b: add.s32 %r1, %r1, 2; c1: add.s32 %r1, %r1, 3; d:
             { .param .b32 x; st.param.b32 [x], %r2; .param .b32 y; call.uni (y), f, (x); ld.param.b32 %r3, [y]; }
             mov.u32 %r2, s; st.shared.u32 [s+4], %r1; bar.sync 0; ld.shared.u32 %r3, [%r2+4]; mov.u64 %b, g; ld.global.u8 %r2, [%b+2];
             mbarrier.init.shared.b64 [s+8], 64; mbarrier.arrive.shared.b64 %b, [s+8]; cp.async.ca.shared.global [s+16], [%a], 4; cp.async.wait_all;
             st.global.u32 [%a], %r3; ret; }",
        ),
        module(
            ".visible .entry k(.param .u64 o) .reqnctapercluster 2 { .reg .b32 %r<9>; .reg .b64 %a<6>; .reg .pred %p;
             .shared .align 16 .b8 s[512]; .shared .align 8 .b64 m; ld.param.u64 %a0, [o]; mov.u32 %r0, %tid.x; mov.u32 %r1, s;
             mad.lo.u32 %r1, %r0, 4, %r1; mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1; mov.u32 %r6, m; setp.eq.u32 %p, %r0, 0;
             @%p mbarrier.init.shared::cta.b64 [%r6], 1; barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
             mapa.shared::cluster.u32 %r3, %r1, %r2; st.shared::cluster.u32 [%r3], %r0; cvt.u64.u32 %a1, %r1; cvta.shared.u64 %a1, %a1;
             mapa.u64 %a2, %a1, %r2; atom.add.u32 %r4, [%a2], 5; getctarank.u64 %r5, %a2; mapa.shared::cluster.u32 %r7, %r6, %r2;
             st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3], %r5, [%r7]; @%p mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
             red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r3], %r5, [%r7];
             @%p cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r3], [s], 64, [%r7];
             barrier.cluster.arrive; barrier.cluster.wait; ld.u32 %r4, [%a1]; ld.shared::cluster.v2.u32 {%r5, %r8}, [%r7];
             mul.wide.u32 %a3, %r0, 4; add.s64 %a0, %a0, %a3; st.global.u32 [%a0], %r4; barrier.cluster.arrive; @%p exit; barrier.cluster.wait; ret; }",
        ),
    ]
}

/// The texts above, and the short ones of the corpus.
fn all_texts() -> Vec<String> {
    let mut texts = texts();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    for folder in ["ptx", "kernels"] {
        let mut paths: Vec<_> =
            fs::read_dir(corpus.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let is_short = |path: &Path| fs::metadata(path).unwrap().len() <= MOST_TEXT;
        let is_ptx = |path: &Path| path.extension().is_some_and(|extension| extension == "ptx");
        paths.retain(|path| is_ptx(path) && is_short(path));
        texts.extend(paths.iter().map(|path| fs::read_to_string(path).unwrap()));
    }
    texts
}

/// The bytes of parameters for a kernel: pointers to different places of the memory.
fn params(info: &KernelInfo) -> Vec<u8> {
    let slots = u64::from(info.param_bytes.div_ceil(8));
    (0..slots).flat_map(|slot| (BASE + (slot % 4) * 8192).to_le_bytes()).collect()
}

/// Loads a text and runs one of its kernels. Says whether it loaded.
fn tried(text: &str, which: usize) -> bool {
    let Ok(module) = Module::load(text, &Target { compute: (9, 0) }) else { return false };
    let module = Arc::new(module);
    let addresses: Vec<u64> =
        (0..module.variables().len() as u64).map(|index| BASE + 4096 + 4096 * index).collect();
    let Ok(instance) = module.instantiate(&addresses) else { return true };
    let kernels = module.kernels();
    let Some(kernel) =
        kernels.get(which % kernels.len().max(1)).and_then(|kernel| instance.kernel(&kernel.name))
    else {
        return true;
    };
    let params = params(kernel.info());
    let launch = Launch {
        grid: [2, 1, 1],
        block: [72, 1, 1],
        dynamic_shared: 64,
        params: &params[..kernel.info().param_bytes as usize],
        cooperative: false,
        cluster: None,
    };
    // Compiled pieces stay inside of the memory, too.
    let config = Config {
        instruction_limit: Some(20_000),
        sms: 2,
        compile_after: Some(which as u32 % 2),
        ..Config::default()
    };
    let Ok(mut run) = kernel.start(&launch, &config) else { return true };
    let (mut memory, mut journal) = (Flat::new(1 << 16), Journal::default());
    for _ in 0..64 {
        if !matches!(run.step(&mut memory, &mut journal, 1000), Step::Paused) {
            assert!(memory.fences_hold(), "a kernel wrote outside of its memory:\n{text}");
            return true;
        }
    }
    panic!("a kernel ran past its limit:\n{text}");
}

/// A figure of the process, in bytes; 0 where the system does not tell.
fn figure(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_matches([':', '\t', ' ', 'k', 'B']).parse().ok());
    number.unwrap_or(0) * 1024
}

/// Tries damaged texts and says how many loaded.
fn campaign(seed: u64, mut damaged: impl FnMut(&mut Random) -> String) -> (u64, u64) {
    let tries = std::env::var("PTX_MUTATIONS").ok().and_then(|tries| tries.parse().ok());
    let tries = tries.unwrap_or(TRIES);
    let mut random = Random::new(seed);
    let (mut loaded, mut early, mut slowest) = (0, 0, Duration::ZERO);
    for index in 0..tries {
        let text = damaged(&mut random);
        let which = random.below(16);
        let before = Instant::now();
        loaded += u64::from(tried(&text, which));
        let took = before.elapsed();
        assert!(took < SLOWEST, "{took:?} for:\n{text}");
        slowest = slowest.max(took);
        if index == tries / 10 {
            early = figure("VmRSS");
        }
    }
    let (now, peak) = (figure("VmRSS"), figure("VmHWM"));
    println!(
        "{tries} texts, {loaded} loaded; the slowest took {slowest:?}; {early} bytes resident after a tenth, {now} at the end, {peak} at most"
    );
    assert!(now <= early + GROWTH, "the process grew from {early} to {now} bytes");
    assert!(peak < PEAK, "a text made the process take {peak} bytes");
    (loaded, tries)
}

#[test]
fn undamaged_texts_load() {
    for text in all_texts() {
        let loaded = Module::load(&text, &Target { compute: (9, 0) });
        assert!(loaded.is_ok(), "{}", loaded.unwrap_err());
    }
}

#[test]
fn damaged_texts_are_refused_or_run_inside_their_bounds() {
    let own: Vec<_> = texts().iter().map(|text| tokens(text)).collect();
    let all: Vec<_> = all_texts().iter().map(|text| tokens(text)).collect();
    let (loaded, tries) = campaign(0x9e37_79b9_7f4a_7c15, |random| {
        let texts = if random.below(4) == 0 { &all } else { &own };
        damaged(&texts[random.below(texts.len())], random)
    });
    // Enough of them still run that the executor is tried, too.
    assert!(loaded > tries / 20, "{loaded} of {tries} loaded");
}

#[test]
fn any_characters_are_refused_or_parsed() {
    let texts = all_texts();
    campaign(0x2545_f491_4f6c_dd1d, |random| scrambled(&texts[random.below(texts.len())], random));
}
