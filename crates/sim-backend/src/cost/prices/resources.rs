//! Claims about the price of pools, memory that does not migrate, streams and events.

use super::*;

const SLEPT: Warmth = Warmth::AfterSleep { others: 0, long: false };

fn step(step: MemoryStep) -> BTreeMap<String, f64> {
    priced(Call::Wait, WARM, &[Input::Memory(step)])
}

#[test]
fn a_chunk_costs_by_the_memory_behind_it_whichever_call_takes_or_gives_it() {
    let memories = [
        (PoolMemory::Device, "device"),
        (PoolMemory::Host, "host"),
        (PoolMemory::ManagedDevice, "managed_device"),
        (PoolMemory::ManagedHost, "managed_host"),
        (PoolMemory::ManagedAnywhere, "managed_anywhere"),
    ];
    for (memory, name) in memories {
        let of = |list: &[(&str, f64)]| figures(&format!("pool.{name}"), list);
        let taken = step(MemoryStep::ChunksMade { memory, fresh: 3, again: 2 });
        let wanted = of(&[("chunk", 3.0), ("chunk_again", 2.0)]);
        assert_eq!(taken, wanted);
        assert_eq!(
            step(MemoryStep::ChunksGone { memory, chunks: 5 }),
            of(&[("chunk_release", 5.0)])
        );
        let made = |is_limited| step(MemoryStep::PoolMade { memory, is_limited });
        assert_eq!(made(false), of(&[("create", 1.0)]));
        assert_eq!(made(true), of(&[("create_limited", 1.0)]));
        let gone = |was_used| step(MemoryStep::PoolGone { memory, was_used });
        assert_eq!(gone(false), of(&[("destroy", 1.0)]));
        assert_eq!(gone(true), of(&[("destroy", 1.0), ("destroy_used", 1.0)]));
    }
}

#[test]
fn a_call_on_a_pool_costs_by_its_kind_and_its_state() {
    let kinds = [
        (PoolCall::Alloc, "alloc"),
        (PoolCall::Free, "free"),
        (PoolCall::Trim, "trim"),
        (PoolCall::Query, "query"),
    ];
    for (kind, figure) in kinds {
        assert_eq!(priced(Call::Pool(kind), WARM, &[]), figures("pool", &[(figure, 1.0)]));
        let slept = figures("pool", &[(figure, 1.0), ("warmth.after_sleep.0", 1.0)]);
        assert_eq!(priced(Call::Pool(kind), SLEPT, &[]), slept);
    }
    assert_eq!(priced(Call::Pool(PoolCall::Whole), WARM, &[]), BTreeMap::new());
}

#[test]
fn memory_that_does_not_migrate_costs_by_byte_where_the_host_pins_it() {
    let of = |figure: &str, count: f64| figures("plain_memory", &[(figure, count)]);
    assert_eq!(step(MemoryStep::PinnedMade(7)), of("pinned_byte", 7.0));
    assert_eq!(step(MemoryStep::PinnedGone(5)), of("pinned_free_byte", 5.0));
    assert_eq!(step(MemoryStep::Registered(3)), of("registered_byte", 3.0));
    assert_eq!(step(MemoryStep::Unregistered(2)), of("unregistered_byte", 2.0));
    assert_eq!(priced(Call::PlainMemory, COLD, &[]), of("call", 1.0));
    let slept = figures("plain_memory", &[("call", 1.0), ("after_sleep", 1.0)]);
    assert_eq!(priced(Call::PlainMemory, SLEPT, &[]), slept);
}

#[test]
fn fills_and_copies_cost_by_byte_and_by_their_ends() {
    let transfers = [
        (Transfer::ToDevice, "to_device_byte"),
        (Transfer::ToHost, "to_host_byte"),
        (Transfer::WithinDevice, "within_device_byte"),
        (Transfer::BetweenDevices, "between_devices_byte"),
        (Transfer::ByHost, "between_devices_by_host_byte"),
        (Transfer::WithinHost, "pageable_to_host_byte"),
        (Transfer::Fill, "fill_byte"),
    ];
    for (transfer, figure) in transfers {
        let expected = figures("copies", &[(figure, 7.0)]);
        assert_eq!(step(MemoryStep::Moved(transfer, 7)), expected);
    }
}

#[test]
fn calls_on_streams_and_events_cost_by_their_kind() {
    let kinds = [
        (Control::StreamCreate, "stream_create"),
        (Control::StreamDestroy, "stream_destroy"),
        (Control::StreamWaitEvent, "stream_wait_event"),
        (Control::StreamAttach, "stream_attach"),
        (Control::EventCreate, "event_create"),
        (Control::EventDestroy, "event_destroy"),
        (Control::EventRecord, "event_record"),
        (Control::EventQuery, "event_query"),
        (Control::EventElapsed, "event_elapsed"),
        (Control::MemoryInfo, "memory_info"),
        (Control::DeviceAttribute, "device_attribute"),
    ];
    for (kind, figure) in kinds {
        assert_eq!(priced(Call::Control(kind), WARM, &[]), figures("control", &[(figure, 1.0)]));
        let slept = figures("control", &[(figure, 1.0), ("after_sleep", 1.0)]);
        assert_eq!(priced(Call::Control(kind), SLEPT, &[]), slept);
    }
}

#[test]
fn a_copy_between_devices_has_a_price_of_its_own() {
    let work = Work {
        cause: WorkCause::Migration,
        processor: GPU,
        pages_between_devices: 3,
        ..Work::default()
    };
    let prefetch = Call::Prefetch { ranges: 1, batch: false };
    let priced = priced(prefetch, WARM, &[Input::Work(work)]);
    let bytes = 3.0 * pagewise_hal::PAGE_BYTES as f64;
    assert_eq!(priced["prefetch.copies_between_devices"], 1.0);
    assert_eq!(priced["prefetch.between_devices_byte"], bytes);
    assert!(!priced.contains_key("prefetch.to_device_byte"), "{priced:?}");
}
