//! The target `profile_reader`, with inputs from libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    pagewise_fuzz::campaign::round(pagewise_fuzz::target("profile_reader").expect("a target"), bytes);
});
