//! The examples of this crate run.

#[cfg(feature = "unified-pool")]
#[allow(dead_code, reason = "its `main` reads the arguments of a process of its own")]
mod mempool {
    include!("../../examples/mempool.rs");

    pub(super) fn run_with(arguments: &[&str]) -> Result<()> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        run(bytes_asked_for(&arguments)?)
    }
}

#[cfg(feature = "emm")]
mod emm {
    include!("../../examples/emm.rs");

    pub(super) fn run() -> Result<()> {
        main()
    }
}

#[cfg(feature = "unified-pool")]
#[test]
fn the_example_of_unified_pools_runs_and_refuses_wrong_arguments() -> pagewise::Result<()> {
    mempool::run_with(&["--bytes", "20000000"])?;
    for wrong in [&["--bytes"][..], &["--bytes", "0"], &["--bytes", "-1"], &["x"]] {
        assert!(mempool::run_with(wrong).is_err(), "{wrong:?}");
    }
    Ok(())
}

#[cfg(feature = "emm")]
#[test]
fn the_example_of_external_managers_runs() -> pagewise::Result<()> {
    emm::run()
}
