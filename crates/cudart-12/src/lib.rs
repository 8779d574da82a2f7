//! `libcudart.so.12`: the symbols of the CUDA 12 runtime, over `pagewise-cudart`.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the names are the runtime's")]
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "pagewise-cudart documents the functions"
)]

pagewise_cudart::exports_12!();
