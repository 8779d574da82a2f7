//! A runner of programs under random thread schedules.

use pagewise::{Device, Machine};

/// Tries many schedules; a deadlock is a failure. One machine does for all of them: it has no locks
/// of shuttle's, so it is like hardware.
pub(crate) fn check(program: impl Fn(&Machine) + Send + Sync + 'static) {
    let machine = Machine::from(pagewise::sim().expect("a simulated machine"));
    let info = || machine.backend().memory_info(Device::FIRST.id()).expect("the simulator answers");
    let before = info();
    let mut config = shuttle::Config::new();
    // The simulator needs more than shuttle's 32 KiB.
    config.stack_size = 1 << 20;
    let scheduler = shuttle::scheduler::RandomScheduler::new(1000);
    let hardware = machine.clone();
    shuttle::Runner::new(scheduler, config).run(move || program(&hardware));
    assert_eq!(info(), before, "nothing leaks, whatever the schedule");
    assert_eq!(machine.failures_on_drop(), 0);
}
