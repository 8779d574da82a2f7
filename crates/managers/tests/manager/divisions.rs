//! Divisions into chunks in use: the instances that are told, those that fix them, and the room
//! that eviction makes.

use std::sync::Arc;

use pagewise::Device;
use pagewise::inject::FaultInjector;
use pagewise::intercept::Operation;
use pagewise_managers::manager::{
    ArrayRequest, ChunkPolicy, Dtype, LimitMode, ManagerError, ManagerOptions, MemoryManager,
    Registration, Result,
};

use crate::queue::{Told, listening, manager_of, runs, table};

#[test]
fn nothing_queued_tells_the_last_division_again() -> Result<()> {
    let manager = manager_of(1026)?;
    let told = Told::default();
    let in_group = |owner| Registration::new().stream_group("g").owner(owner);
    let a = listening(&manager, &told, "a", in_group(1))?;
    let _b = listening(&manager, &told, "b", in_group(1))?;
    let c = listening(&manager, &told, "c", in_group(2))?;
    assert_eq!(manager.allocate_queue(a)?.parameters.chunks(), 1, "nothing at all yet");
    manager.queue_request(a, [("x", runs(400, 4))])?;
    manager.allocate_queue(a)?;
    told.lock().unwrap().clear();
    let again = manager.allocate_queue(a)?;
    assert_eq!((again.parameters.chunks(), again.parameters.chunk_length()), (2, 256));
    let expected = [("a", vec![], 2, 256), ("b", vec![], 2, 256)];
    assert_eq!(*told.lock().unwrap(), expected, "those of the same owner");
    assert_eq!(
        manager.allocate_queue(c)?.parameters.chunks(),
        2,
        "it was told as one of the group"
    );
    Ok(())
}

/// A repeated solve lost its chunks (issue 577), and peers hold arrays laid out for them.
#[test]
fn peers_that_keep_arrays_fix_the_division() -> Result<()> {
    let manager = manager_of(1000)?;
    let in_group = || Registration::new().stream_group("g").owner(1);
    let (a, b) = (manager.register(in_group())?, manager.register(in_group())?);
    manager.queue_request(a, [("x", runs(100, 10))])?;
    manager.queue_request(b, [("y", runs(100, 10))])?;
    assert_eq!(manager.allocate_queue(a)?.parameters.chunk_length(), 50);
    manager.queue_request(b, [("y", runs(100, 1))])?;
    let partial = manager.allocate_queue(b)?;
    assert_eq!(partial.parameters.chunk_length(), 50, "though 100 would fit");
    assert_eq!(partial.responses[&b].arr["y"].shape(), [50, 1]);
    manager.queue_request(b, [("y", runs(100, 10)), ("z", runs(100, 10))])?;
    let refused = manager.allocate_queue(b).unwrap_err();
    assert!(
        matches!(refused, ManagerError::PartitionDoesNotFit { chunk_length: 50, .. }),
        "{refused}"
    );
    manager.free("x");
    assert_eq!(manager.allocate_queue(b)?.parameters.chunk_length(), 50, "freely chosen: 20 x 50");
    Ok(())
}

/// A table asked for later says nothing about runs, and so does no request at all.
#[test]
fn requests_without_runs_leave_the_division_as_it_is() -> Result<()> {
    let manager = manager_of(1000)?;
    let told = Told::default();
    let a = listening(&manager, &told, "a", Registration::new().stream_group("g"))?;
    let b = listening(&manager, &told, "b", Registration::new().stream_group("g"))?;
    manager.queue_request(a, [("x", runs(100, 12))])?;
    assert_eq!(manager.allocate_queue(a)?.parameters.chunk_length(), 83);
    for id in [a, b] {
        manager.queue_request(id, [("table", table(2))])?;
        let later = manager.allocate_queue(id)?;
        assert_eq!((later.parameters.chunk_length(), later.parameters.runs()), (83, 100));
        let nothing: [(&str, ArrayRequest); 0] = [];
        manager.queue_request(id, nothing)?;
        assert_eq!(manager.allocate_queue(id)?.parameters.chunk_length(), 83);
        assert_eq!(manager.allocate_queue(id)?.parameters.chunk_length(), 83);
    }
    assert!(
        told.lock().unwrap().iter().all(|(_, _, chunks, length)| (*chunks, *length) == (2, 83))
    );
    Ok(())
}

/// Two solvers in one group do not fix or hear of each other's chunks.
#[test]
fn owners_in_one_group_have_chunks_of_their_own() -> Result<()> {
    let manager = manager_of(1000)?;
    let told = Told::default();
    let owned = |owner| Registration::new().stream_group("g").owner(owner);
    let a = listening(&manager, &told, "a", owned(1))?;
    let b = listening(&manager, &told, "b", owned(2))?;
    manager.queue_request(a, [("x", runs(60, 20))])?;
    assert_eq!(manager.allocate_queue(a)?.parameters.chunk_length(), 50);
    manager.free("x");
    manager.queue_request(a, [("x", runs(20, 20))])?;
    manager.allocate_queue(a)?;
    told.lock().unwrap().clear();
    manager.queue_request(b, [("y", runs(100, 12))])?;
    let second = manager.allocate_queue(b)?;
    assert_eq!(second.parameters.chunk_length(), 50);
    assert_eq!(*told.lock().unwrap(), [("b", vec!["y".to_owned()], 2, 50)], "a holds its own");
    assert_eq!(manager.allocate_queue(a)?.parameters.chunk_length(), 20);
    Ok(())
}

#[test]
fn chunks_of_two_lengths_do_not_become_one() -> Result<()> {
    let manager = manager_of(1000)?;
    let register = |group: &str| manager.register(Registration::new().stream_group(group));
    let (a, b) = (register("g")?, register("h")?);
    for (id, length) in [(a, 10), (b, 20)] {
        manager.queue_request(id, [("x", runs(length, 3))])?;
        manager.allocate_queue(id)?;
    }
    manager.change_stream_group(b, "g")?;
    manager.queue_request(b, [("y", runs(20, 3))])?;
    let refused = manager.allocate_queue(b).unwrap_err();
    assert_eq!(refused, ManagerError::DivisionsDiffer { one: 10, other: 20 });
    assert_eq!(manager.settings(b)?.queued, ["y"]);
    manager.free_instance(a)?;
    assert_eq!(manager.allocate_queue(a)?.parameters.chunk_length(), 20);
    Ok(())
}

/// No instance chose to be in the default group.
#[test]
fn strangers_in_the_default_group_are_divided_apart() -> Result<()> {
    let manager = manager_of(1000)?;
    let (a, b) = (manager.register(Registration::new())?, manager.register(Registration::new())?);
    manager.queue_request(a, [("x", runs(10, 3))])?;
    assert_eq!(manager.allocate_queue(a)?.parameters.chunk_length(), 10);
    manager.queue_request(b, [("y", runs(50, 3))])?;
    assert_eq!(manager.allocate_queue(b)?.parameters.chunks(), 1);
    assert_eq!(manager.allocate_queue(a)?.parameters.chunk_length(), 10);
    Ok(())
}

#[test]
fn what_is_replaced_makes_room_where_memory_is_short() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(100, 9))])?;
    let first = manager.allocate_queue(id)?;
    assert_eq!(first.parameters.chunks(), 1);
    manager.queue_request(id, [("x", runs(100, 9))])?;
    let second = manager.allocate_queue(id)?;
    assert_eq!(second.parameters.chunks(), 1, "the 900 bytes count as free");
    assert!(first.responses[&id].arr["x"].is_gone());
    Ok(())
}

/// A share that shrank while the array was held: its bytes beyond the share are not room.
#[test]
fn what_is_replaced_makes_room_up_to_the_share_and_no_further() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(100, 9))])?;
    assert_eq!(manager.allocate_queue(id)?.parameters.chunks(), 1);
    let half = Registration::new().proportion(0.5).stream_group("other");
    manager.register(half)?;
    manager.queue_request(id, [("x", runs(100, 9))])?;
    let chunk_length = manager.allocate_queue(id)?.parameters.chunk_length();
    assert_eq!(chunk_length, 55, "500 bytes are left of the share");
    Ok(())
}

#[test]
fn two_buffers_are_two_places_for_chunks() -> Result<()> {
    let manager = manager_of(1000)?;
    manager.set_chunk_policy(ChunkPolicy::exact().buffers(2).granularity_bytes(8));
    assert_eq!(manager.chunk_policy(), ChunkPolicy::exact().buffers(2).granularity_bytes(8));
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(400, 3))])?;
    let allocated = manager.allocate_queue(id)?;
    assert_eq!(allocated.parameters.chunk_length(), 165);
    let x = &allocated.responses[&id].arr["x"];
    assert_eq!((x.slots(), x.nbytes(), x.allocated_bytes()), (2, 495, 992));
    let (first, second, third) = (x.slot_span(0)?, x.slot_span(1)?, x.slot_span(2)?);
    assert_eq!(second.ptr.0 - first.ptr.0, 496);
    assert_eq!((third, second.bytes), (first, 495));
    Ok(())
}

#[test]
fn dividing_waits_for_nobody() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let options = ManagerOptions::new().total_bytes(1000).limit_mode(LimitMode::Active);
    let options = options.chunk_policy(ChunkPolicy::exact());
    let manager = MemoryManager::with_options(&backend, Device::FIRST, options)?;
    let id = manager.register(Registration::new().stream_group("a"))?;
    let _other = manager.register(Registration::new().stream_group("b"))?;
    manager.queue_request(id, [("x", runs(100, 30))])?;
    drop(backend.take_calls());
    assert!(manager.allocate_queue(id)?.parameters.chunks() > 1);
    let calls: Vec<_> = backend.take_calls().iter().map(|call| call.operation()).collect();
    assert_eq!(calls, [Operation::MemoryInfo, Operation::AllocDevice]);
    Ok(())
}

#[test]
fn chunks_can_be_asked_for_without_allocating() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    let request = runs(100, 30);
    let chunks = manager.get_chunk_parameters([("x", &request)], 100, "default")?;
    assert_eq!((chunks.chunk_length(), chunks.chunks(), chunks.last_length()), (33, 4, 1));
    manager.queue_request(id, [("x", request)])?;
    assert_eq!(manager.allocate_queue(id)?.parameters, chunks);
    assert!(manager.get_chunk_parameters([], 1, "x").is_err());
    Ok(())
}

/// Only arrays that the instance keeps fix the division of new ones.
#[test]
fn the_division_of_an_array_that_is_replaced_does_not_stay() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(100, 30))])?;
    assert_eq!(manager.allocate_queue(id)?.parameters.chunk_length(), 33);
    manager.queue_request(id, [("x", runs(100, 9))])?;
    assert_eq!(manager.allocate_queue(id)?.parameters.chunk_length(), 100);
    Ok(())
}

#[test]
fn chunks_longer_than_the_runs_of_a_request_do_not_fix_its_division() -> Result<()> {
    for (run_bytes, expected) in [(2, (1, 50)), (10, (3, 20))] {
        let manager = manager_of(1000)?;
        let id = manager.register(Registration::new())?;
        manager.queue_request(id, [("x", runs(400, 2))])?;
        assert_eq!(manager.allocate_queue(id)?.parameters.chunk_length(), 400);
        manager.queue_request(id, [("y", runs(50, run_bytes))])?;
        let fewer = manager.allocate_queue(id)?.parameters;
        assert_eq!((fewer.chunks(), fewer.chunk_length()), expected, "200 bytes are left");
    }
    Ok(())
}

/// The old array can be read until the new one has come, where both have room.
#[test]
fn what_is_replaced_goes_first_only_where_the_new_does_not_fit_beside_it() -> Result<()> {
    for (run_bytes, goes_first) in [(600, false), (700, false), (701, true)] {
        let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
        let options = ManagerOptions::new().total_bytes(1000).limit_mode(LimitMode::Active);
        let options = options.chunk_policy(ChunkPolicy::exact());
        let manager = MemoryManager::with_options(&backend, Device::FIRST, options)?;
        let id = manager.register(Registration::new())?;
        manager.queue_request(id, [("x", runs(1, 300))])?;
        manager.allocate_queue(id)?;
        manager.queue_request(id, [("x", runs(2, run_bytes))])?;
        drop(backend.take_calls());
        assert_eq!(manager.allocate_queue(id)?.parameters.chunk_length(), 1);
        let calls: Vec<_> = backend.take_calls().iter().map(|call| call.operation()).collect();
        let at = |operation| calls.iter().position(|&call| call == operation);
        let freed = at(Operation::Free).expect("the old array is freed");
        let allocated = at(Operation::AllocDevice).expect("the new array is allocated");
        assert_eq!(freed < allocated, goes_first, "{run_bytes} bytes: {calls:?}");
    }
    Ok(())
}

#[test]
fn runs_that_differ_are_no_error_while_all_fits() -> Result<()> {
    let manager = manager_of(1000)?;
    manager.set_chunk_policy(ChunkPolicy::exact().margin_bytes(100));
    manager.register(Registration::new())?;
    let along_own_runs = |runs: u64| ArrayRequest::new(Dtype::U8, [runs]).chunk_axis(0);
    for (bytes, fits) in [(400, true), (401, false)] {
        let (x, y) = (along_own_runs(500), along_own_runs(bytes));
        let chunks = manager.get_chunk_parameters([("x", &x), ("y", &y)], 500, "default");
        match chunks {
            Ok(chunks) => assert!(fits && chunks.chunks() == 1),
            Err(error) => {
                assert!(!fits && matches!(error, ManagerError::RunsDiffer { .. }), "{error}");
            }
        }
    }
    Ok(())
}
