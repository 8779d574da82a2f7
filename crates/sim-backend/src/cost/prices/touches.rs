//! Claims about the price of access programs.

use super::*;
use crate::paging::Access;

fn walk(by: Processor, access: Access) -> Walk {
    Walk { by, first_byte: 0, bytes: 4096, stride_bytes: 64, access }
}

#[test]
fn accesses_of_the_host_cost_by_their_number_and_their_pages() {
    let covered = Covered { pages: 3, remote_pages: 0, first_written: 5, written_before: 7 };
    let walked = |covered| Input::Walked(walk(Processor::HOST, Access::Write), covered);
    let near = [("call", 1.0), ("access", 64.0), ("first_write", 5.0), ("written_page", 7.0)];
    let warm = priced(Call::HostTouch, WARM, &[walked(covered)]);
    assert_eq!(warm, figures("host_touch", &near));
    let asleep = Warmth::AfterSleep { others: 0, long: false };
    let slept = priced(Call::HostTouch, asleep, &[walked(covered)]);
    assert_eq!(slept["host_touch.access_after_sleep"], 64.0);
    let pages = |pages| {
        let priced = priced(Call::HostTouch, WARM, &[walked(Covered { pages, ..covered })]);
        let count = |figure: &str| priced.get(figure).copied().unwrap_or(0.0);
        [count("host_touch.far_page"), count("host_touch.very_far_page")]
    };
    assert_eq!(pages(1024), [0.0, 0.0]);
    assert_eq!(pages(1030), [6.0, 0.0]);
    assert_eq!(pages(8192), [7168.0, 0.0]);
    assert_eq!(pages(8200), [7176.0, 8.0]);
    let twice = priced(Call::HostTouch, WARM, &[walked(covered), walked(covered)]);
    assert_eq!(twice["host_touch.access"], 128.0);
}

fn host_fault(block: u64) -> Work {
    Work { cause: WorkCause::Fault, processor: Some(Processor::HOST), block, ..Work::default() }
}

#[test]
fn faults_of_the_host_cost_by_kind_block_and_pages() {
    let copy = Work {
        copies: 1,
        pages_to_host: 3,
        pages_zeroed_host: 5,
        pages_mapped_host: 7,
        unmaps_device: 11,
        ..host_fault(0)
    };
    let copied = [
        ("call", 1.0),
        ("faults", 1.0),
        ("faulted_block", 1.0),
        ("fault_copy", 2.0),
        ("map_page", 14.0),
        ("zero_page", 10.0),
        ("copy_byte", 6.0 * PAGE),
        ("unmap_device", 22.0),
    ];
    let inputs = [Input::Work(copy), Input::Work(copy)];
    assert_eq!(priced(Call::HostTouch, WARM, &inputs), figures("host_touch", &copied));
    let kind = |work: Work, warmth| {
        let mut priced = priced(Call::HostTouch, warmth, &[Input::Work(work)]);
        for figure in ["call", "faulted_block", "warmth.cold"] {
            priced.remove(&format!("host_touch.{figure}"));
        }
        priced
    };
    let fresh = Work { pages_fresh: 1, ..host_fault(0) };
    let expected = figures("host_touch", &[("faults", 1.0), ("fault_fresh", 1.0)]);
    assert_eq!(kind(fresh, WARM), expected);
    let cold = both(expected, figures("host_touch", &[("faults_cold", 1.0)]));
    assert_eq!(kind(fresh, COLD), cold);
    assert_eq!(kind(host_fault(0), COLD), figures("host_touch", &[("fault_map", 1.0)]));
    // One fault that moves is enough, wherever it comes.
    let mixed = [Input::Work(fresh), Input::Work(host_fault(512)), Input::Work(host_fault(0))];
    let mixed = priced(Call::HostTouch, WARM, &mixed);
    assert_eq!(mixed["host_touch.faults"], 1.0);
    assert_eq!(mixed["host_touch.faulted_block"], 3.0, "each time that the block changes");
}

/// A program of one thread of a device, and what it goes over.
const SINGLE: Call = Call::DeviceTouch { threads: 1, bulk: false };

fn by_device(access: Access) -> Walk {
    walk(Processor::device(0), access)
}

#[test]
fn accesses_of_one_thread_cost_by_their_kind_and_reads_by_where_the_page_is() {
    let covered = Covered { pages: 4, remote_pages: 1, ..Covered::default() };
    let walked = |access| {
        let input = Input::Walked(by_device(access), covered);
        let mut priced = priced(SINGLE, WARM, &[input]);
        assert_eq!(priced.remove("device_touch.call"), Some(1.0));
        priced
    };
    let read = figures("device_touch", &[("read", 48.0), ("read_remote", 16.0)]);
    assert_eq!(walked(Access::Read), read);
    assert_eq!(walked(Access::Write), figures("device_touch", &[("write", 64.0)]));
    assert_eq!(walked(Access::Atomic), figures("device_touch", &[("atomic", 64.0)]));
}

#[test]
fn accesses_of_many_threads_cost_by_sectors_and_by_what_each_thread_does() {
    let covered = Covered { pages: 4, remote_pages: 1, ..Covered::default() };
    let walked = |call, access, stride_bytes| {
        let walk = Walk { stride_bytes, ..by_device(access) };
        let mut priced = priced(call, WARM, &[Input::Walked(walk, covered)]);
        assert_eq!(priced.remove("device_touch.call"), Some(1.0));
        priced
    };
    let two = Call::DeviceTouch { threads: 2, bulk: false };
    // 64 accesses to 32 bytes each, three quarters of them at home.
    let sectors = [("parallel_byte", 1536.0), ("parallel_remote_byte", 512.0)];
    let reads = [&sectors[..], &[("parallel_read", 32.0)]].concat();
    assert_eq!(walked(two, Access::Read, 64), figures("device_touch", &reads));
    let writes = [&sectors[..], &[("parallel_write", 32.0)]].concat();
    assert_eq!(walked(two, Access::Write, 64), figures("device_touch", &writes));
    // No more than the memory that is walked over.
    let all = [("parallel_byte", 3072.0), ("parallel_remote_byte", 1024.0)];
    let dense = [&all[..], &[("parallel_read", 2048.0)]].concat();
    assert_eq!(walked(two, Access::Read, 1), figures("device_touch", &dense));
    let bulk = Call::DeviceTouch { threads: 1, bulk: true };
    assert_eq!(walked(bulk, Access::Read, 64), figures("device_touch", &all));
}

#[test]
fn state_counts_for_a_program_without_faults_only() {
    let idle = figures("device_touch", &[("call", 1.0), ("warmth.cold", 1.0)]);
    assert_eq!(priced(SINGLE, COLD, &[]), idle);
    let fault = Input::Work(device_fault());
    let faulted = figures("device_touch", &[("call", 1.0), ("fault_map", 1.0)]);
    assert_eq!(priced(SINGLE, COLD, &[fault]), faulted);
}

fn device_fault() -> Work {
    Work { cause: WorkCause::Fault, processor: GPU, ..Work::default() }
}

#[test]
fn a_fault_of_one_thread_costs_by_its_kind_and_its_pages() {
    let kind = |work: Work| {
        let mut priced = priced(SINGLE, WARM, &[Input::Work(work)]);
        assert_eq!(priced.remove("device_touch.call"), Some(1.0));
        priced
    };
    let fault = device_fault();
    let figure = |list: &[(&str, f64)]| figures("device_touch", list);
    let copied = figure(&[("fault_copy", 1.0), ("zero_host_page", 3.0), ("unmap_host_page", 5.0)]);
    let work = Work { pages_zeroed_host: 3, pages_unmapped_host: 5, ..fault };
    assert_eq!(kind(Work { pages_to_device: 1, ..work }), copied);
    let between = figure(&[
        ("fault_copy_between_devices", 1.0),
        ("zero_host_page", 3.0),
        ("unmap_host_page", 5.0),
    ]);
    assert_eq!(kind(Work { pages_between_devices: 1, ..work }), between);
    assert_eq!(kind(Work { pages_fresh: 1, ..fault }), figure(&[("fault_fresh", 1.0)]));
    assert_eq!(kind(fault), figure(&[("fault_map", 1.0)]));
    let remote = Work { remote_maps: 2, pages_fresh: 1, ..fault };
    assert_eq!(kind(remote), figure(&[("remote_map", 2.0)]), "a mapping and nothing else");
    let read_mostly = figure(&[("fault_read_mostly", 1.0)]);
    assert_eq!(kind(Work { read_mostly: true, ..fault }), read_mostly);
    let fresh = both(read_mostly.clone(), figure(&[("fault_fresh", 1.0)]));
    assert_eq!(kind(Work { read_mostly: true, pages_fresh: 1, ..fault }), fresh);
}

#[test]
fn device_memory_taken_for_a_program_is_paid_with_its_next_fault() {
    let taken = Work { cause: WorkCause::Allocation, chunks_device: 3, ..device_fault() };
    let [taken, fault] = [taken, device_fault()].map(Input::Work);
    let chunks = |call, inputs: &[Input]| {
        let priced = priced(call, WARM, inputs);
        let count = |figure: &str| priced.get(figure).copied().unwrap_or(0.0);
        [count("device_touch.device_chunk"), count("prefetch.device_chunk")]
    };
    assert_eq!(chunks(SINGLE, &[taken, taken]), [0.0, 0.0]);
    assert_eq!(chunks(SINGLE, &[taken, taken, fault, fault]), [6.0, 0.0]);
    let prefetch = Call::Prefetch { ranges: 1, batch: false };
    assert_eq!(chunks(prefetch, &[taken, taken]), [0.0, 6.0]);
}

#[test]
fn faults_of_many_threads_cost_by_block_and_byte() {
    let fault = |block, pages_to_device, pages_between_devices| {
        Input::Work(Work { block, pages_to_device, pages_between_devices, ..device_fault() })
    };
    let inputs = [fault(0, 256, 0), fault(512, 0, 512), fault(0, 256, 256)];
    let expected = [
        ("call", 1.0),
        ("parallel_block", 2.0),
        ("parallel_copy_2mib", 1.0),
        ("parallel_copy_between_devices_2mib", 1.5),
    ];
    for (threads, bulk) in [(2, false), (1, true)] {
        let call = Call::DeviceTouch { threads, bulk };
        assert_eq!(priced(call, WARM, &inputs), figures("device_touch", &expected));
    }
    let single = priced(SINGLE, WARM, &inputs);
    assert_eq!(single["device_touch.fault_copy"], 2.0);
    assert_eq!(single["device_touch.fault_copy_between_devices"], 1.0);
}

/// The times until the driver looks at faults of accesses with these numbers. One thread reads; the
/// driver waits for 100 accesses between two.
fn latencies(call: Call, warmth: Warmth, accesses: &[u64]) -> BTreeMap<String, f64> {
    let by = Processor::device(0);
    let mut inputs = vec![Input::Walks(by_device(Access::Read))];
    inputs.extend(accesses.iter().map(|&access| Input::Fault { by, access }));
    let mut counted = counts(|params| {
        let mut params = *params;
        params.device_touch.fault_gap = 100.0;
        (params.device_touch.gap_read, params.device_touch.gap_write) = (1.0, 0.5);
        let mut account = Account::new(call, warmth);
        inputs.iter().map(|input| account.count(&params, input)).sum()
    });
    counted.retain(|figure, _| !figure.contains(".gap_"));
    counted
}

#[test]
fn the_first_fault_of_one_thread_finds_the_driver_by_what_came_before() {
    let first = |warmth| latencies(SINGLE, warmth, &[5]);
    let figure = |figure| figures("device_touch", &[(figure, 1.0)]);
    let asleep = |others| Warmth::AfterSleep { others, long: false };
    assert_eq!(first(asleep(0)), figure("first_fault_after_sleep.0"));
    assert_eq!(first(asleep(1)), figure("first_fault_after_sleep.1"));
    assert_eq!(first(asleep(9)), figure("first_fault_after_sleep.1"));
    assert_eq!(first(COLD), figure("first_fault_cold"));
    assert_eq!(first(WARM), figure("first_fault_warm"));
    let later = figures("device_touch", &[("first_fault_after_sleep.0", 1.0), ("wake_cold", 1.0)]);
    assert_eq!(latencies(SINGLE, asleep(0), &[5, 500]), later, "the sleep is paid once");
    let many = Call::DeviceTouch { threads: 2, bulk: false };
    assert_eq!(latencies(many, COLD, &[5]), figure("parallel_first_fault"));
    let batches =
        figures("device_touch", &[("parallel_first_fault", 1.0), ("parallel_batch", 2.0)]);
    assert_eq!(latencies(many, COLD, &[5, 500, 900]), batches, "each batch, whatever came between");
}

#[test]
fn a_later_fault_wakes_the_driver_by_how_long_it_had_nothing_to_do() {
    let later = |warmth, accesses: &[u64], figure: &str| {
        let all = latencies(SINGLE, warmth, accesses);
        all.get(&format!("device_touch.{figure}")).copied().unwrap_or(0.0)
    };
    assert_eq!(later(COLD, &[5, 6], "wake_cold"), 0.0, "the next access faults");
    assert_eq!(later(COLD, &[5, 31], "wake_cold"), 0.25);
    assert_eq!(later(COLD, &[5, 106], "wake_cold"), 1.0);
    assert_eq!(later(COLD, &[5, 1000], "wake_cold"), 1.0);
    assert_eq!(later(WARM, &[5, 31, 82], "wake_warm"), 0.75);
    // The first 8 later ones, and those after them.
    let many: Vec<u64> = (0..=12).map(|nth| nth * 1000).collect();
    assert_eq!(later(COLD, &many, "wake_cold"), 8.0);
    assert_eq!(later(COLD, &many, "wake_warm_later"), 0.0);
    assert_eq!(later(WARM, &many, "wake_warm"), 8.0);
    assert_eq!(later(WARM, &many, "wake_warm_later"), 4.0);
}

#[test]
fn writes_between_faults_count_for_less_and_a_new_walk_begins_anew() {
    let by = Processor::device(0);
    let walks = |access| Input::Walks(by_device(access));
    let fault = |access| Input::Fault { by, access };
    let woken = |inputs: &[Input]| {
        let mut params = only("device_touch.wake_warm");
        params.device_touch.fault_gap = 100.0;
        (params.device_touch.gap_read, params.device_touch.gap_write) = (1.0, 0.5);
        let mut account = Account::new(SINGLE, WARM);
        inputs.iter().map(|input| account.count(&params, input)).sum::<f64>()
    };
    assert_eq!(woken(&[walks(Access::Read), fault(0), fault(51)]), 0.5);
    assert_eq!(woken(&[walks(Access::Atomic), fault(0), fault(51)]), 0.5);
    assert_eq!(woken(&[walks(Access::Write), fault(0), fault(51)]), 0.25);
    let anew = [walks(Access::Read), fault(0), walks(Access::Read), fault(51)];
    assert_eq!(woken(&anew), 0.0);
    let host = Input::Fault { by: Processor::HOST, access: 51 };
    assert_eq!(woken(&[walks(Access::Read), fault(0), host]), 0.0, "nobody wakes the host");
}
