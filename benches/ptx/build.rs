//! Compiles the loops in C.

fn main() {
    println!("cargo::rerun-if-changed=loops.c");
    cc::Build::new().file("loops.c").opt_level(3).flag("-march=native").compile("loops");
}
