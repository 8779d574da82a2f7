//! Gives the library the name and the symbol versions that programs ask for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libcudart.so.13");
    // Programs ask for `cudaMalloc@libcudart.so.13`: the version of a symbol is the library's name.
    // GNU ld has an option that gives every symbol that version. lld, Rust's default on x86-64,
    // does not.
    println!("cargo::rustc-link-arg-cdylib=-fuse-ld=bfd");
    println!("cargo::rustc-link-arg-cdylib=-Wl,--default-symver");
}
