//! Queued requests: their allocation together, and the instances that are told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pagewise::{Device, Machine};
use pagewise_managers::manager::{
    ArrayMemory, ArrayRequest, ArrayResponse, ChunkPolicy, Dtype, InstanceId, LimitMode,
    ManagerError, ManagerOptions, MemoryManager, Registration, Result, Warning,
};

/// A manager that enforces shares of so many bytes, so that shortage needs no full device.
pub(crate) fn manager_of(total_bytes: u64) -> Result<MemoryManager> {
    let options = ManagerOptions::new()
        .total_bytes(total_bytes)
        .limit_mode(LimitMode::Active)
        .chunk_policy(ChunkPolicy::exact());
    MemoryManager::with_options(Machine::from(pagewise::sim()?), Device::FIRST, options)
}

/// The calls of hooks, in order.
pub(crate) type Told = Arc<Mutex<Vec<(&'static str, Vec<String>, u64, u64)>>>;

/// Registers one that writes down what it is told.
pub(crate) fn listening(
    manager: &MemoryManager,
    told: &Told,
    name: &'static str,
    registration: Registration,
) -> Result<InstanceId> {
    let told = Arc::clone(told);
    manager.register(registration.allocation_ready_hook(move |response: &ArrayResponse| {
        let labels = response.arr.keys().cloned().collect();
        told.lock().unwrap().push((name, labels, response.chunks, response.chunk_length));
    }))
}

/// So many runs of so many bytes, along the first axis.
pub(crate) fn runs(runs: u64, bytes: u64) -> ArrayRequest {
    ArrayRequest::new(Dtype::U8, [runs, bytes]).chunk_axis(0).total_runs(runs)
}

/// A table that is needed whole.
pub(crate) fn table(bytes: u64) -> ArrayRequest {
    ArrayRequest::new(Dtype::U8, [bytes]).unchunkable(true)
}

#[test]
fn a_request_is_allocated_and_its_hook_called() -> Result<()> {
    let manager = manager_of(1 << 30)?;
    let told = Told::default();
    let id = listening(&manager, &told, "a", Registration::new())?;
    let request = ArrayRequest::new(Dtype::F64, [2, 3, 4]);
    manager.queue_request(id, [("x", request.clone()), ("y", request)])?;
    assert_eq!(manager.settings(id)?.queued, ["x", "y"]);
    let allocated = manager.allocate_queue(id)?;
    let x = &allocated.responses[&id].arr["x"];
    assert_eq!((x.shape(), x.dtype(), x.nbytes()), (&[2, 3, 4][..], Dtype::F64, 192));
    assert_eq!((x.memory(), x.span()?.bytes, x.slots()), (ArrayMemory::Device, 192, 1));
    let settings = manager.settings(id)?;
    assert_eq!((settings.allocated_bytes(), settings.queued.len()), (384, 0));
    assert_eq!(*told.lock().unwrap(), [("a", vec!["x".into(), "y".into()], 1, 4)]);
    Ok(())
}

/// An old version notified the others once for each request.
#[test]
fn a_group_is_allocated_together_and_everybody_is_told_once() -> Result<()> {
    let manager = manager_of(1000)?;
    let told = Told::default();
    let in_group = || Registration::new().stream_group("solver");
    let a = listening(&manager, &told, "a", in_group())?;
    let b = listening(&manager, &told, "b", in_group())?;
    let _silent = listening(&manager, &told, "c", in_group())?;
    let alone = listening(&manager, &told, "d", Registration::new())?;
    // Three of four shares are the group's: 750 bytes for 100 runs of 10.
    manager.queue_request(a, [("in", runs(100, 6))])?;
    manager.queue_request(b, [("out", runs(100, 4))])?;
    manager.queue_request(alone, [("other", table(10))])?;
    let allocated = manager.allocate_queue(b)?;
    assert_eq!((allocated.parameters.chunk_length(), allocated.parameters.chunks()), (75, 2));
    let expected = [
        ("a", vec!["in".to_owned()], 2, 75),
        ("b", vec!["out".into()], 2, 75),
        ("c", vec![], 2, 75),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
    let response = &allocated.responses[&a];
    assert_eq!(response.arr["in"].shape(), [75, 6]);
    assert_eq!(response.chunked_shapes, BTreeMap::from([("in".to_owned(), vec![75, 6])]));
    assert_eq!(manager.settings(alone)?.queued, ["other"], "another group's is still queued");
    Ok(())
}

#[test]
fn a_second_request_replaces_the_first() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("a", table(10)), ("b", table(10))])?;
    manager.queue_request(id, [("c", table(10))])?;
    assert_eq!(manager.settings(id)?.queued, ["c"]);
    let refused = manager.queue_request(id, [("bad", table(10).total_runs(0))]);
    assert!(refused.is_err());
    assert_eq!(manager.settings(id)?.queued, ["c"], "what was queued stays");
    assert_eq!(manager.cancel_request(id)?.len(), 1);
    assert!(manager.allocate_queue(id)?.responses[&id].arr.is_empty());
    Ok(())
}

#[test]
fn arrays_replace_those_of_the_same_label() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("a", table(10)), ("b", table(20))])?;
    let first = manager.allocate_queue(id)?.responses[&id].arr.clone();
    manager.queue_request(id, [("a", table(30))])?;
    manager.allocate_queue(id)?;
    assert!(first["a"].is_gone() && !first["b"].is_gone());
    assert_eq!(first["a"].span(), Err(ManagerError::ArrayGone));
    assert_eq!(manager.settings(id)?.allocated_bytes(), 50);
    Ok(())
}

/// 3.9.1: in cubie the first request of an instance decides, so a table of one run makes the others
/// one run long.
#[test]
fn the_number_of_runs_does_not_hang_on_the_order_of_requests() -> Result<()> {
    for (small, large) in [("a", "b"), ("b", "a")] {
        let manager = manager_of(1000)?;
        let id = manager.register(Registration::new())?;
        let large_request = ArrayRequest::new(Dtype::U8, [2, 2, 100]).total_runs(100);
        manager.queue_request(id, [(small, table(4)), (large, large_request)])?;
        let allocated = manager.allocate_queue(id)?;
        assert_eq!(allocated.responses[&id].arr[large].shape(), [2, 2, 100]);
        assert_eq!(allocated.responses[&id].chunk_length, 100);
    }
    Ok(())
}

/// 3.9.2: cubie makes all lengths along the axis the number of runs, divided or not.
#[test]
fn shapes_are_not_rewritten() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    let of = |length: u64| ArrayRequest::new(Dtype::U8, [1, 1, length]);
    for length in [50, 7] {
        let refused = manager.queue_request(id, [("x", of(length).total_runs(100))]).unwrap_err();
        assert!(matches!(&refused, ManagerError::InvalidRequest { .. }), "{refused}");
        assert!(refused.to_string().contains("100 runs"), "{refused}");
    }
    // They may stay what they are where nothing has to be divided.
    manager.queue_request(id, [("x", of(50)), ("y", of(7)), ("z", of(7).unchunkable(true))])?;
    let arrays = manager.allocate_queue(id)?.responses[&id].arr.clone();
    assert_eq!((arrays["x"].shape(), arrays["y"].shape()), (&[1, 1, 50][..], &[1, 1, 7][..]));
    // And are a reason not to divide.
    manager.queue_request(id, [("x", of(900)), ("y", of(200))])?;
    let refused = manager.allocate_queue(id).unwrap_err();
    assert!(
        matches!(refused, ManagerError::RunsDiffer { runs: 200, others: 900, .. }),
        "{refused}"
    );
    Ok(())
}

#[test]
fn runs_that_contradict_each_other_are_refused_and_stay_queued() -> Result<()> {
    let manager = manager_of(1000)?;
    let a = manager.register(Registration::new().stream_group("g"))?;
    let b = manager.register(Registration::new().stream_group("g"))?;
    let both = manager.queue_request(a, [("x", runs(10, 1)), ("y", runs(20, 1))]);
    assert!(matches!(both, Err(ManagerError::RunsDiffer { .. })));
    manager.queue_request(a, [("x", runs(10, 1))])?;
    manager.queue_request(b, [("y", runs(20, 1))])?;
    assert!(matches!(manager.allocate_queue(a), Err(ManagerError::RunsDiffer { .. })));
    manager.queue_request(b, [("y", runs(10, 1))])?;
    assert_eq!(manager.allocate_queue(a)?.responses.len(), 2);
    Ok(())
}

/// 3.9.7: cubie takes the queue before it looks at it, and all requests of the group are lost.
#[test]
fn a_queue_that_fails_can_be_tried_again() -> Result<()> {
    let manager = manager_of(1000)?;
    let told = Told::default();
    let share = |share| Registration::new().proportion(share).stream_group("g");
    let a = listening(&manager, &told, "a", share(0.1))?;
    let b = listening(&manager, &told, "b", share(0.2))?;
    manager.queue_request(a, [("x", table(280))])?;
    manager.queue_request(b, [("y", runs(10, 30))])?;
    let refused = manager.allocate_queue(a).unwrap_err();
    assert_eq!(refused, ManagerError::SingleRunTooLarge { needed: 310, available: 300 });
    assert_eq!(
        (manager.settings(a)?.queued, manager.settings(b)?.queued),
        (vec!["x".to_owned()], vec!["y".to_owned()])
    );
    assert_eq!(manager.settings(a)?.allocated_bytes(), 0);
    assert!(told.lock().unwrap().is_empty(), "nobody was told anything");
    manager.set_manual_proportion(b, 0.3)?;
    let allocated = manager.allocate_queue(b)?;
    assert_eq!(allocated.parameters.chunk_length(), 4);
    assert_eq!(told.lock().unwrap().len(), 2);
    Ok(())
}

/// 3.9.8: cubie counts page-locked arrays against the device, and divides them.
#[test]
fn host_memory_neither_counts_nor_is_divided() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    let host = |memory| runs(100, 50).memory(memory);
    manager.queue_request(
        id,
        [
            ("pinned", host(ArrayMemory::Pinned)),
            ("mapped", host(ArrayMemory::Mapped)),
            ("device", runs(100, 11)),
            ("managed", runs(100, 9).memory(ArrayMemory::Managed)),
        ],
    )?;
    let allocated = manager.allocate_queue(id)?;
    assert_eq!(allocated.parameters.chunk_length(), 50);
    let arrays = &allocated.responses[&id].arr;
    assert_eq!((arrays["pinned"].shape()[0], arrays["mapped"].shape()[0]), (100, 100));
    assert_eq!((arrays["device"].shape()[0], arrays["managed"].shape()[0]), (50, 50));
    assert_eq!(manager.settings(id)?.allocated_bytes(), 10_000 + 1000, "but it is counted in all");
    Ok(())
}

/// As `manager_of`, with a margin that chunks leave free.
fn manager_with_margin(total_bytes: u64, margin_bytes: u64) -> Result<MemoryManager> {
    let manager = manager_of(total_bytes)?;
    manager.set_chunk_policy(ChunkPolicy::exact().margin_bytes(margin_bytes));
    Ok(manager)
}

#[test]
fn what_needs_no_device_memory_needs_no_margin_either() -> Result<()> {
    let manager = manager_with_margin(1000, 500)?;
    let idle = manager.register(Registration::new())?;
    manager.queue_request(idle, [("kept", table(400))])?;
    manager.allocate_queue(idle)?;
    manager.set_chunk_policy(ChunkPolicy::exact().margin_bytes(1 << 20));
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(100, 50).memory(ArrayMemory::Pinned))])?;
    let allocated = manager.allocate_queue(id)?;
    assert_eq!((allocated.parameters.chunks(), allocated.evicted.len()), (1, 0));
    assert_eq!(manager.take_warnings(), []);
    Ok(())
}

#[test]
fn what_fits_only_without_the_margin_is_divided() -> Result<()> {
    for (bytes, chunk_length) in [(9, 100), (10, 90)] {
        let manager = manager_with_margin(1000, 100)?;
        let id = manager.register(Registration::new())?;
        manager.queue_request(id, [("x", runs(100, bytes))])?;
        let allocated = manager.allocate_queue(id)?;
        assert_eq!(allocated.parameters.chunk_length(), chunk_length, "runs of {bytes} bytes");
    }
    Ok(())
}

#[test]
fn runs_that_differ_are_allocated_whole_only_if_the_margin_is_left() -> Result<()> {
    let along_own_runs = |runs: u64| ArrayRequest::new(Dtype::U8, [runs]).chunk_axis(0);
    for (bytes, fits) in [(400, true), (401, false)] {
        let manager = manager_with_margin(1000, 100)?;
        let id = manager.register(Registration::new())?;
        manager.queue_request(id, [("x", along_own_runs(500)), ("y", along_own_runs(bytes))])?;
        match manager.allocate_queue(id) {
            Ok(allocated) => assert!(fits && allocated.parameters.chunks() == 1),
            Err(error) => {
                assert!(!fits && matches!(error, ManagerError::RunsDiffer { .. }), "{error}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_cannot_be_divided_is_refused_with_the_reason() -> Result<()> {
    let manager = manager_of(100)?;
    let id = manager.register(Registration::new())?;
    let attempt = |requests: Vec<(&str, ArrayRequest)>| {
        manager.queue_request(id, requests)?;
        manager.allocate_queue(id).map(|allocated| allocated.parameters.chunk_length())
    };
    let divided = |request| attempt(vec![("x", request)]);
    let too_much = Err(ManagerError::NothingToChunk { needed: 200, available: 100 });
    assert_eq!(divided(table(200)), too_much);
    assert_eq!(divided(ArrayRequest::new(Dtype::U8, [2, 100]).chunk_axis(None)), too_much);
    assert_eq!(divided(ArrayRequest::new(Dtype::U8, [2, 100]).chunk_axis(2)), too_much);
    assert_eq!(divided(ArrayRequest::new(Dtype::U8, [1, 200]).chunk_axis(0)), too_much);
    assert_eq!(
        attempt(vec![("x", table(100)), ("y", runs(10, 1))]),
        Err(ManagerError::UnchunkableTooLarge { needed: 100, available: 100 })
    );
    assert_eq!(divided(ArrayRequest::new(Dtype::U8, [2, 100]).chunk_axis(1)), Ok(50));
    Ok(())
}

/// 3.9.10: cubie says that unchunkable arrays need 0 bytes.
#[test]
fn without_any_memory_the_refusal_says_so() -> Result<()> {
    let manager = manager_of(0)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(10, 30))])?;
    let refused = manager.allocate_queue(id).unwrap_err();
    assert_eq!(refused, ManagerError::SingleRunTooLarge { needed: 30, available: 0 });
    assert_eq!(manager.get_available_memory("default")?, 0, "and nothing is divided by 0");
    manager.release_instance(id)?;
    assert_eq!(manager.get_available_memory("default")?, 0, "nor in an empty group");
    assert!(matches!(manager.get_available_memory("x"), Err(ManagerError::UnknownGroup(_))));
    Ok(())
}

#[test]
fn more_than_twenty_times_what_is_free_warns() -> Result<()> {
    let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    let free_bytes = manager.get_memory_info()?.free_bytes;
    // In whole blocks of the allocator, of which ten fit.
    let tenth = free_bytes / 10 / (2 << 20) * (2 << 20);
    manager.queue_request(id, [("x", runs(200, tenth))])?;
    assert_eq!(manager.allocate_queue(id)?.parameters.chunks(), 20);
    assert_eq!(manager.take_warnings(), [], "20 times is not more");
    manager.free("x");
    manager.queue_request(id, [("x", runs(201, tenth))])?;
    assert_eq!(manager.allocate_queue(id)?.parameters.chunks(), 21);
    let requested_bytes = 201 * u128::from(tenth);
    assert_eq!(manager.take_warnings(), [Warning::MuchLarger { requested_bytes, free_bytes }]);
    manager.free("x");
    manager.get_chunk_parameters([("x", &runs(201, tenth))], 201, "default")?;
    assert_eq!(manager.take_warnings(), [Warning::MuchLarger { requested_bytes, free_bytes }]);
    manager.free("x");
    manager.queue_request(id, [("x", runs(21, free_bytes + 1))])?;
    assert!(matches!(manager.allocate_queue(id), Err(ManagerError::SingleRunTooLarge { .. })));
    assert_eq!(manager.take_warnings().len(), 1, "also before a refusal");
    Ok(())
}

#[test]
fn a_group_near_its_cap_warns_in_active_mode() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    let allocate = |label: &str, bytes| {
        manager.queue_request(id, [(label, table(bytes))])?;
        manager.allocate_queue(id).map(drop)
    };
    allocate("a", 950)?;
    assert_eq!(manager.get_available_memory("default")?, 50);
    assert_eq!(manager.take_warnings(), [], "95 % is not more");
    allocate("b", 1)?;
    assert_eq!(manager.get_available_memory("default")?, 49);
    let group = "default".to_owned();
    let warning = Warning::NearCap { group, used_bytes: 951, cap_bytes: 1000 };
    assert_eq!(manager.take_warnings(), [warning]);
    manager.set_limit_mode(LimitMode::Passive);
    assert!(manager.get_available_memory("default")? > 1 << 30);
    allocate("c", 5000)?;
    assert_eq!(manager.take_warnings(), [], "shares are not enforced");
    Ok(())
}

/// 3.9.13: two groups see what the other has taken.
#[test]
fn groups_do_not_get_the_same_bytes_twice() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let a = manager.register(Registration::new().stream_group("a"))?;
    let b = manager.register(Registration::new().stream_group("b"))?;
    let free = manager.get_available_memory("a")?;
    let part = |memory| runs(100, free / 160).memory(memory);
    manager.queue_request(a, [("x", part(ArrayMemory::Managed))])?;
    manager.queue_request(b, [("x", part(ArrayMemory::Managed))])?;
    assert_eq!(manager.allocate_queue(a)?.parameters.chunks(), 1);
    let second = manager.allocate_queue(b)?;
    assert_eq!(second.parameters.chunks(), 2, "managed memory counts before it has come");
    let total = manager.get_memory_info()?.total_bytes;
    let held = |id| manager.settings(id).map(|settings| settings.allocated_bytes());
    assert!(held(a)? + held(b)? <= total);
    Ok(())
}

#[test]
fn requests_are_checked_before_they_are_queued() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    let refused = |request: ArrayRequest| {
        let refused = manager.queue_request(id, [("x", request)]);
        matches!(refused, Err(ManagerError::InvalidRequest { .. }))
    };
    assert!(refused(runs(10, 1).total_runs(0)));
    assert!(refused(ArrayRequest::new(Dtype::F64, [u64::MAX; 5])));
    assert!(refused(runs(10, 1).oversubscribe(true)), "the device has what it has");
    let managed = ArrayRequest::new(Dtype::U8, [2, 10]).memory(ArrayMemory::Managed);
    assert!(refused(managed.chunk_axis(1).oversubscribe(true)), "windows would be in pieces");
    assert!(matches!("disk".parse::<ArrayMemory>(), Err(ManagerError::UnknownName { .. })));
    let default = ArrayRequest::default();
    assert_eq!((default.shape.as_slice(), default.chunk_axis_index), (&[1, 1, 1][..], Some(2)));
    assert!(!default.is_chunkable() && !default.unchunkable && default.total_runs == 1);
    manager.queue_request(
        id,
        [
            ("scalar", ArrayRequest::new(Dtype::I32, [])),
            ("empty", ArrayRequest::new(Dtype::F32, [0, 7, u64::MAX])),
        ],
    )?;
    let arrays = manager.allocate_queue(id)?.responses[&id].arr.clone();
    assert_eq!((arrays["scalar"].nbytes(), arrays["empty"].nbytes()), (4, 0));
    assert_eq!(arrays["empty"].span()?.bytes, 0, "no memory, and no error");
    Ok(())
}

#[test]
fn a_request_knows_its_bytes_runs_and_chunks() {
    let request = ArrayRequest::new(Dtype::F64, [2, 3, 100]);
    assert_eq!((request.bytes(), request.runs()), (Some(4800), Some(100)));
    assert_eq!(request.chunked_shape(40), [2, 3, 40]);
    assert_eq!(request.chunked_shape(400), [2, 3, 100], "never longer than it is");
    let whole = |request: ArrayRequest| {
        !request.is_chunkable() && request.chunked_shape(1) == request.shape
    };
    assert!(whole(ArrayRequest::new(Dtype::F64, [])));
    assert!(whole(request.clone().chunk_axis(None)));
    assert!(whole(request.clone().chunk_axis(3)));
    assert!(whole(request.clone().unchunkable(true)));
    assert!(whole(request.clone().memory(ArrayMemory::Mapped)));
    assert!(whole(ArrayRequest::new(Dtype::F64, [2, 3, 1])));
    assert!(whole(ArrayRequest::new(Dtype::F64, [0, 3, 9])));
    assert_eq!(ArrayRequest::new(Dtype::F64, [u64::MAX; 3]).bytes(), None);
    let sizes = [Dtype::F64, Dtype::F32, Dtype::I32].map(Dtype::size_bytes);
    assert_eq!(sizes, [8, 4, 4]);
    assert_eq!((Dtype::of::<u8>(), Dtype::of::<[f32; 2]>()), (Some(Dtype::U8), None));
}

#[test]
fn hooks_may_be_required() -> Result<()> {
    let options = ManagerOptions::new().require_invalidate_hook(true);
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
    let without = manager.register(Registration::new())?;
    let refused = manager.queue_request(without, [("x", table(1))]);
    assert_eq!(refused, Err(ManagerError::HookRequired(without)));
    let with = manager.register(Registration::new().invalidate_hook(|| {}))?;
    manager.queue_request(with, [("x", table(1))])?;
    let object = Arc::new(());
    let weak = manager.register(Registration::new().invalidate_hook_of(&object, |()| {}))?;
    manager.queue_request(weak, [("x", table(1))])?;
    drop(object);
    let refused = manager.queue_request(weak, [("x", table(1))]);
    assert_eq!(refused, Err(ManagerError::HookRequired(weak)), "a dead hook is none");
    Ok(())
}

#[test]
fn a_request_is_refused_from_the_first_size_beyond_what_a_machine_addresses() -> Result<()> {
    let manager = manager_of(1 << 20)?;
    let id = manager.register(Registration::new())?;
    let of = |length: u64| ArrayRequest::new(Dtype::U8, [1 << 50, 1 << 49, length]);
    manager.queue_request(id, [("largest", of(2).unchunkable(true))])?;
    for length in [3, 4, 1 << 10] {
        let refused = manager.queue_request(id, [("larger", of(length).unchunkable(true))]);
        assert!(matches!(refused, Err(ManagerError::InvalidRequest { .. })), "{length}");
    }
    Ok(())
}
