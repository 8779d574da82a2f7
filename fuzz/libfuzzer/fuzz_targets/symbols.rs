//! The target `symbols`, with inputs from libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    pagewise_fuzz::campaign::round(pagewise_fuzz::target("symbols").expect("a target"), bytes);
});
