//! Claims about the memory manager, by topic. Together they are the evidence of
//! docs/parity-manager.md.
#![cfg(feature = "instances")]

mod bounds;
mod chunking;
mod divisions;
mod failures;
mod groups;
mod hosts;
mod lifetime;
mod like_cubie;
mod model;
mod pinned;
mod pools;
mod queue;
mod reuse;
mod threads;
mod waits;
mod windows;

mod example {
    include!("../../examples/manager.rs");

    #[test]
    fn the_example_runs_and_what_the_manager_divides_does_not_fault() -> Result<()> {
        main()?;
        let (alone, chunks, windows) = (left_alone()?, in_chunks()?, in_windows()?);
        assert!(alone.faults > 1000, "{alone:?}");
        assert_eq!((chunks.faults, windows.faults), (0, 0));
        assert!(windows.milliseconds < alone.milliseconds, "{windows:?} {alone:?}");
        Ok(())
    }
}
