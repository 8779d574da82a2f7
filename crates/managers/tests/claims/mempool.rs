//! Tensors and modules: their footprints, and the requests that the driver gets.
#![cfg(feature = "unified-pool")]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::mempool_common::{operations, write};
use pagewise::intercept::Operation;
use pagewise::resource::{ManagedMemoryResource, PinnedMemoryResource};
use pagewise::{
    BackendExt, BatchSupport, DevicePtr, DriverVersion, ErrorKind, Host, Location, Machine,
    MemoryAdvice, Place, RangeAttribute, Result, Rounding, Span, Stream, observe,
};
use pagewise_managers::mempool::{
    MempoolOptions, Module, ModuleOptions, RangeFootprint, Tensor, TensorLayout, UnifiedMempool,
    Unmanaged, advise_managed_module_parameters, advise_managed_module_parameters_accessed_by,
    advise_managed_module_parameters_preferred_location, advise_managed_tensor,
    advise_managed_tensor_accessed_by, advise_managed_tensor_preferred_location,
    create_unified_mempool, device_index, discard_managed_module_parameters,
    prefetch_managed_module_parameters, prefetch_managed_tensor,
};
use proptest::prelude::*;

use crate::mempool_common::{FIRST, MIB, PAGE, attribute, bytes, host_sum, injected, module_of};

// ---- shapes, strides, ranges ------------------------------------------------------------------

/// The bytes of all elements, each address written out.
fn addresses(shape: &[u64], strides: &[i64], element: u64) -> BTreeSet<u64> {
    let mut offsets = BTreeSet::from([0_u64]);
    for (&length, &stride) in shape.iter().zip(strides) {
        let steps = |base: u64| (0..length).map(move |i| base + i * stride.unsigned_abs());
        offsets = offsets.into_iter().flat_map(steps).collect();
    }
    offsets.into_iter().flat_map(|at| at * element..(at + 1) * element).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The span begins with the first byte of any element and ends with the last.
    #[test]
    fn a_span_is_from_the_first_byte_of_any_element_to_the_last(
        dimensions in prop::collection::vec((0_u64..6, 0_i64..20), 0..4),
        element in 1_u64..9,
    ) {
        let (shape, strides): (Vec<u64>, Vec<i64>) = dimensions.into_iter().unzip();
        let layout = TensorLayout::strided(&shape, &strides, element)?;
        let all = addresses(&shape, &strides, element);
        prop_assert_eq!(layout.span_bytes(), all.last().map_or(0, |last| last + 1));
        prop_assert_eq!(layout.requested_bytes(), shape.iter().product::<u64>() * element);
        let dense = TensorLayout::contiguous(&shape, element)?;
        prop_assert_eq!(dense.span_bytes(), dense.requested_bytes());
    }

    /// Whatever the ranges, bytes count once, pages are those of the policy, and joining changes
    /// neither.
    #[test]
    fn a_footprint_is_the_set_of_its_bytes_and_pages(
        ranges in prop::collection::vec((1_u64..40_000, 0_u64..9_000), 0..12),
    ) {
        let spans: Vec<Span> =
            ranges.iter().map(|&(start, size)| Span::new(DevicePtr(start), size)).collect();
        let every: BTreeSet<u64> =
            ranges.iter().flat_map(|&(start, size)| start..start + size).collect();
        let touched: BTreeSet<u64> = every.iter().map(|byte| byte / PAGE).collect();
        let whole = |page: &u64| (page * PAGE..(page + 1) * PAGE).all(|byte| every.contains(&byte));
        let covered: BTreeSet<u64> = touched.iter().copied().filter(whole).collect();
        let pages_of = |footprint: &RangeFootprint| -> BTreeSet<u64> {
            footprint.ranges.iter().flat_map(|span| span.pages_outward()).collect()
        };
        for coalesce in [true, false] {
            let outward = RangeFootprint::of(&spans, Rounding::Outward, coalesce)?;
            prop_assert_eq!(&pages_of(&outward), &touched);
            prop_assert_eq!(outward.page_bytes, touched.len() as u64 * PAGE);
            prop_assert_eq!(outward.unique_bytes, every.len() as u64);
            prop_assert_eq!(outward.requested_bytes, ranges.iter().map(|range| range.1).sum::<u64>());
            for pair in outward.ranges.windows(2) {
                prop_assert!(pair[0].end() <= Some(pair[1].ptr.0), "ascending, apart");
                let next = pair[1].ptr.0 / PAGE;
                prop_assert!(!coalesce || pair[0].pages_outward().end < next, "no neighbours");
            }
        }
        let inward = RangeFootprint::of(&spans, Rounding::Inward, true)?;
        prop_assert_eq!(&pages_of(&inward), &covered);
        prop_assert_eq!(inward.page_bytes, covered.len() as u64 * PAGE);
        let exact = RangeFootprint::of(&spans, Rounding::Exact, true);
        prop_assert_eq!(exact.is_ok(), touched == covered);
    }
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    let refused = [
        TensorLayout::strided(&[2], &[-1], 4),
        TensorLayout::strided(&[2, 2], &[1], 4),
        TensorLayout::contiguous(&[2], 0),
        TensorLayout::contiguous(&[u64::MAX, 3], 1),
        TensorLayout::contiguous(&[u64::MAX], 2),
        TensorLayout::strided(&[3], &[i64::MAX], 4),
    ];
    for layout in refused {
        assert_eq!(layout.unwrap_err().kind(), ErrorKind::InvalidValue);
    }
    let beyond = [Span::new(DevicePtr(u64::MAX), 2)];
    assert!(RangeFootprint::of(&beyond, Rounding::Outward, true).is_err());
    assert_eq!(TensorLayout::contiguous(&[5, 0], 4).map(|layout| layout.span_bytes()), Ok(0));
    assert_eq!(TensorLayout::contiguous(&[], 4).map(|layout| layout.elements()), Ok(1));
}

/// Defect 5: `nbytes` from the first element covers too little of a strided view, and too much of
/// an expanded one.
#[test]
fn views_move_the_bytes_that_they_reach_and_no_others() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let matrix = pool.tensor("matrix", bytes(16 * MIB), &stream)?;
    let column = matrix.view("column", 0, TensorLayout::strided(&[4, 1], &[4 << 20, 1], 1)?)?;
    let report = prefetch_managed_tensor(&column, FIRST, &stream)?;
    assert_eq!((report.requested_bytes, report.unique_bytes), (4, 12 * MIB + 1));
    let last = Span::new(matrix.span().ptr.offset(12 * MIB), 1);
    assert_eq!(attribute(&machine, last, RangeAttribute::LAST_PREFETCH_LOCATION)?, 0);
    let after = Span::new(matrix.span().ptr.offset(13 * MIB), 1);
    assert_eq!(attribute(&machine, after, RangeAttribute::LAST_PREFETCH_LOCATION)?, -2);
    let small = pool.tensor("small", bytes(8192), &stream)?;
    let expanded =
        small.view("expanded", 0, TensorLayout::strided(&[1 << 30, 8192], &[0, 1], 1)?)?;
    let report = prefetch_managed_tensor(&expanded, FIRST, &stream)?;
    assert_eq!((report.requested_bytes, report.unique_bytes), (8192 << 30, 8192));
    assert!(small.view("beyond", 1, bytes(8192)).is_err());
    Ok(())
}

/// Defect 6: dropping all but the first view at an address loses longer ones, and overlapping views
/// at others count twice.
#[test]
fn shared_storage_is_one_union_of_bytes() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let base = pool.tensor("base", bytes(8 * MIB), &stream)?;
    let module = module_of([
        ("short", base.view("short", 0, bytes(MIB))?),
        ("long", base.view("long", 0, bytes(6 * MIB))?),
        ("overlaps", base.view("overlaps", 5 * MIB, bytes(2 * MIB))?),
        ("tied", base.view("tied", 0, bytes(MIB))?),
    ])?;
    let _ = backend.take_calls();
    let options = ModuleOptions::default();
    let report = prefetch_managed_module_parameters(&module, FIRST, &options, &stream)?;
    assert_eq!((report.tensors, report.ranges), (4, 1));
    assert_eq!((report.requested_bytes, report.unique_bytes), (10 * MIB, 7 * MIB));
    assert_eq!(report.page_bytes, 7 * MIB);
    let calls = backend.take_calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0].size_bytes(), 7 * MIB);
    Ok(())
}

/// Defect 8: one call for each tensor.
#[test]
fn neighbours_are_one_range_and_allocations_are_not_joined() -> Result<()> {
    for version in [DriverVersion::CUDA_12_0, DriverVersion::CUDA_12_9, DriverVersion::CUDA_13_0] {
        let (backend, machine, stream) = injected(version)?;
        let direct = Arc::new(ManagedMemoryResource::direct(&machine));
        let own = UnifiedMempool::over(direct, MempoolOptions::default())?;
        let cut = create_unified_mempool(&machine)?;
        let mut module = Module::new();
        for name in ["a", "b"] {
            module.add_parameter(name, own.tensor(name, bytes(2 * MIB), &stream)?)?;
        }
        for name in ["c", "d", "e"] {
            module.add_parameter(name, cut.tensor(name, bytes(96 << 10), &stream)?)?;
        }
        let _ = backend.take_calls();
        let options = ModuleOptions::default();
        let report = prefetch_managed_module_parameters(&module, FIRST, &options, &stream)?;
        assert_eq!((report.tensors, report.ranges), (5, 3), "{version}");
        // One call: before 13.0 the back end makes a loop of it.
        assert_eq!(operations(&backend), [Operation::PrefetchBatch], "{version}");
        let native = machine.capabilities().prefetch_batch == BatchSupport::Native;
        assert_eq!(native, version == DriverVersion::CUDA_13_0);
        // The default stream, which batch calls refuse, gets a loop.
        let default = Stream::legacy_default(&machine);
        prefetch_managed_module_parameters(&module, Place::HOST, &options, &default)?;
        let single = match version {
            DriverVersion::CUDA_12_0 => Operation::PrefetchOrdinal,
            _ => Operation::Prefetch,
        };
        let calls = operations(&backend);
        let [waits @ .., _, _, _] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!(calls[waits.len()..], [single; 3], "{version}");
        let wait = |call: &&Operation| **call == Operation::StreamWaitEvent;
        assert_eq!(waits.iter().filter(wait).count(), 1, "five tensors came on one stream");
        let apart = ModuleOptions { coalesce: false, ..options };
        let report = prefetch_managed_module_parameters(&module, FIRST, &apart, &stream)?;
        assert_eq!(report.ranges, 5, "{version}");
    }
    Ok(())
}

#[test]
fn the_rounding_decides_about_pages_that_neighbours_share() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let tensors: Vec<Tensor> = ["left", "middle", "right"]
        .into_iter()
        .map(|name| pool.tensor(name, bytes(10_240), &stream))
        .collect::<Result<_>>()?;
    let [left, middle, right] = &tensors[..] else { panic!("three") };
    assert_eq!(left.span().end(), Some(middle.span().ptr.0), "neighbours");
    let module = module_of([("middle", middle.clone())])?;
    let with = |rounding| ModuleOptions { rounding: Some(rounding), ..ModuleOptions::default() };
    let prefer = |rounding| {
        advise_managed_module_parameters_preferred_location(&module, FIRST, &with(rounding))
    };
    let reads = |tensor: &Tensor| {
        let first = Span::new(tensor.span().ptr, 1);
        let last = Span::new(DevicePtr(tensor.span().end().unwrap_or(0) - 1), 1);
        [first, last].map(|byte| attribute(&machine, byte, RangeAttribute::PREFERRED_LOCATION))
    };
    let error = prefer(Rounding::Exact).unwrap_err();
    assert!(error.to_string().contains("`middle`"), "{error}");
    prefer(Rounding::Inward)?;
    assert_eq!(reads(left), [Ok(-2), Ok(-2)]);
    assert_eq!(reads(right), [Ok(-2), Ok(-2)], "neighbours are left alone");
    let report = prefer(Rounding::Outward)?;
    assert_eq!((report.unique_bytes, report.page_bytes), (10_240, 3 * PAGE));
    assert_eq!(reads(middle), [Ok(0), Ok(0)]);
    assert_eq!(reads(left)[1], Ok(0), "the shared page");
    assert_eq!(reads(left)[0], Ok(-2));
    // Taken together the three are whole pages but for the end.
    let all = module_of([("l", left.clone()), ("m", middle.clone()), ("r", right.clone())])?;
    let report = prefetch_managed_module_parameters(&all, FIRST, &with(Rounding::Inward), &stream)?;
    assert_eq!((report.ranges, report.page_bytes), (1, 7 * PAGE));
    Ok(())
}

// ---- memory that is not managed ---------------------------------------------------------------

/// A module with a pool's tensor, one of pinned memory and one of no memory at all.
fn mixed(machine: &Machine, stream: &Stream) -> Result<(Module, impl Sized + use<>)> {
    let pool = create_unified_mempool(machine)?;
    let pinned = PinnedMemoryResource::direct(machine);
    let pinned = pagewise::resource::Allocation::new(Arc::new(pinned), 4096, stream)?;
    let mut inner = Module::new();
    let page = || bytes(4096);
    inner.add_parameter("bias", Tensor::foreign("x", machine, pinned.device_ptr(), page())?)?;
    inner.add_buffer("wild", Tensor::foreign("y", machine, DevicePtr(64), page())?)?;
    let mut module = module_of([("weight", pool.tensor("w", page(), stream)?)])?;
    module.add_module("layer", inner)?;
    Ok((module, (pool, pinned)))
}

/// Defects 4 and 7: the name of the parameter is lost, and a tensor that is not managed fails the
/// operation in the middle.
#[test]
fn what_is_not_managed_is_refused_with_its_name_before_anything_is_done() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let (module, _held) = mixed(&machine, &stream)?;
    let _ = backend.take_calls();
    let options = ModuleOptions::default();
    let answers = [
        prefetch_managed_module_parameters(&module, FIRST, &options, &stream),
        advise_managed_module_parameters_preferred_location(&module, FIRST, &options),
        advise_managed_module_parameters_accessed_by(&module, FIRST, &options),
        // SAFETY: no code reads the module's contents.
        unsafe { discard_managed_module_parameters(&module, None, &options, &stream) },
    ];
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
        assert!(error.to_string().contains("`layer.bias`"), "{error}");
    }
    let calls = operations(&backend);
    assert!(calls.iter().all(|&call| call == Operation::PointerAttribute), "{calls:?}");
    Ok(())
}

#[test]
fn what_is_not_managed_can_be_skipped_or_reported() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let (module, _held) = mixed(&machine, &stream)?;
    let run = |unmanaged, include_buffers| {
        let options = ModuleOptions { unmanaged, include_buffers, ..ModuleOptions::default() };
        prefetch_managed_module_parameters(&module, FIRST, &options, &stream)
    };
    let skipped = run(Unmanaged::Skip, true)?;
    assert_eq!((skipped.tensors, skipped.requested_bytes, skipped.unmanaged.len()), (1, 4096, 0));
    let reported = run(Unmanaged::Report, true)?;
    assert_eq!(reported.unmanaged, ["layer.bias", "layer.wild"]);
    assert_eq!(run(Unmanaged::Report, false)?.unmanaged, ["layer.bias"], "without buffers");
    Ok(())
}

#[test]
fn a_foreign_tensor_that_passes_its_allocation_is_refused() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let span = machine.backend().alloc(2 * MIB)?;
    let theirs = Tensor::foreign("theirs", &machine, span.ptr.offset(MIB), bytes(MIB + 1))?;
    let error = prefetch_managed_tensor(&theirs, FIRST, &stream).unwrap_err();
    assert!(error.to_string().contains("`theirs` passes the end"), "{error}");
    assert!(Tensor::foreign("null", &machine, DevicePtr::NULL, bytes(1)).is_err());
    // SAFETY: no work uses the memory, and it is freed once.
    unsafe { machine.backend().free(span.ptr) }
}

#[test]
fn tensors_of_two_machines_are_no_module() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let (_, other, theirs) = injected(DriverVersion::CUDA_13_0)?;
    let module = module_of([
        ("ours", create_unified_mempool(&machine)?.tensor("a", bytes(8), &stream)?),
        ("theirs", create_unified_mempool(&other)?.tensor("b", bytes(8), &theirs)?),
    ])?;
    let options = ModuleOptions::default();
    let error = prefetch_managed_module_parameters(&module, FIRST, &options, &stream).unwrap_err();
    assert!(error.to_string().contains("`theirs` is of another machine"), "{error}");
    let one = create_unified_mempool(&machine)?.tensor("a", bytes(8), &stream)?;
    assert!(prefetch_managed_tensor(&one, FIRST, &theirs).is_err(), "nor the stream");
    Ok(())
}

// ---- the functions ----------------------------------------------------------------------------

#[test]
fn nothing_to_do_is_nothing_done() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let empty = pool.tensor("empty", TensorLayout::contiguous(&[3, 0], 4)?, &stream)?;
    let mut module = module_of([("empty", empty.clone())])?;
    module.add_parameter("none", None)?;
    let _ = backend.take_calls();
    let options = ModuleOptions::default();
    let reports = [
        prefetch_managed_tensor(None, FIRST, &stream)?,
        prefetch_managed_tensor(&empty, FIRST, &stream)?,
        advise_managed_tensor_preferred_location(None, FIRST)?,
        advise_managed_tensor_accessed_by(&empty, FIRST)?,
        prefetch_managed_module_parameters(None, FIRST, &options, &stream)?,
        prefetch_managed_module_parameters(&module, FIRST, &options, &stream)?,
        advise_managed_module_parameters_preferred_location(None, FIRST, &options)?,
        advise_managed_module_parameters(&module, MemoryAdvice::SetReadMostly, &options)?,
    ];
    assert!(reports.iter().all(|report| *report == reports[0] && report.tensors == 0));
    let calls = operations(&backend);
    assert!(calls.iter().all(|&call| call == Operation::DeviceCount), "{calls:?}");
    Ok(())
}

/// Defect 3: -1 is the host for prefetch and preferred location, and depends on the version for
/// accessed-by.
#[test]
fn minus_one_is_the_host_everywhere_on_every_driver() -> Result<()> {
    let host = device_index(-1)?;
    for version in [DriverVersion::CUDA_12_0, DriverVersion::CUDA_12_2, DriverVersion::CUDA_13_0] {
        let (_, machine, stream) = injected(version)?;
        let pool = create_unified_mempool(&machine)?;
        let tensor = pool.tensor("t", bytes(4096), &stream)?;
        prefetch_managed_tensor(&tensor, host, &stream)?;
        advise_managed_tensor_preferred_location(&tensor, host)?;
        advise_managed_tensor_accessed_by(&tensor, host)?;
        let reads = [RangeAttribute::LAST_PREFETCH_LOCATION, RangeAttribute::PREFERRED_LOCATION]
            .map(|what| attribute(&machine, tensor.span(), what));
        assert_eq!(reads, [const { Ok(Location::ORDINAL_HOST) }; 2], "{version}");
        let mut accessed_by = [0; 2];
        machine.backend().range_accessed_by(tensor.span(), &mut accessed_by)?;
        assert_eq!(accessed_by, [Location::ORDINAL_HOST, -2], "{version}");
        advise_managed_tensor(&tensor, MemoryAdvice::UnsetAccessedBy(host))?;
        machine.backend().range_accessed_by(tensor.span(), &mut accessed_by)?;
        assert_eq!(accessed_by, [-2, -2], "{version}");
    }
    for wrong in [-2, i64::MIN, 1 << 31, i64::MAX] {
        assert_eq!(device_index(wrong).unwrap_err().kind(), ErrorKind::InvalidValue);
    }
    Ok(())
}

/// Defect 9, of advice and places.
#[test]
fn any_advice_is_given_and_taken_back_and_any_place_is_gone_to() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let tensor = pool.tensor("t", bytes(4096), &stream)?;
    let module = module_of([("t", tensor.clone())])?;
    let read = |what| attribute(&machine, tensor.span(), what);
    advise_managed_tensor(&tensor, MemoryAdvice::SetReadMostly)?;
    assert_eq!(read(RangeAttribute::READ_MOSTLY), Ok(1));
    let options = ModuleOptions::default();
    advise_managed_module_parameters(&module, MemoryAdvice::UnsetReadMostly, &options)?;
    assert_eq!(read(RangeAttribute::READ_MOSTLY), Ok(0));
    advise_managed_tensor_preferred_location(&tensor, FIRST)?;
    advise_managed_module_parameters(&module, MemoryAdvice::UnsetPreferredLocation, &options)?;
    assert_eq!(read(RangeAttribute::PREFERRED_LOCATION), Ok(-2));
    prefetch_managed_tensor(&tensor, Host::node(0)?, &stream)?;
    assert_eq!(read(RangeAttribute::LAST_PREFETCH_LOCATION_ID), Ok(0));
    let node = advise_managed_tensor_accessed_by(&tensor, Host::node(0)?).unwrap_err();
    assert_eq!((node.kind(), node.code()), (ErrorKind::InvalidValue, None));
    Ok(())
}

#[test]
fn a_device_that_does_not_exist_is_refused_before_anything_is_done() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let tensor = pool.tensor("t", bytes(4096), &stream)?;
    let _ = backend.take_calls();
    let ninth = device_index(9)?;
    for answer in [
        prefetch_managed_tensor(&tensor, ninth, &stream),
        advise_managed_tensor_preferred_location(&tensor, ninth),
        advise_managed_tensor_accessed_by(&tensor, ninth),
    ] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidDevice);
    }
    assert_eq!(operations(&backend), []);
    Ok(())
}

#[test]
fn a_tree_names_its_tensors_by_path_parameters_and_buffers_apart() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let tensor = |name: &str| pool.tensor(name, bytes(8), &stream);
    let mut root = module_of([("embedding", tensor("e")?)])?;
    for layer in ["0", "1"] {
        let mut attention = module_of([("q", tensor("q")?)])?;
        attention.add_buffer("mask", tensor("m")?)?;
        let mut block = Module::new();
        block.add_module("attention", attention)?;
        block.add_parameter("norm", tensor("n")?)?;
        root.add_module(layer, block)?;
    }
    let names: Vec<String> = root.named_parameters().map(|(name, _)| name).collect();
    assert_eq!(names, ["embedding", "0.norm", "0.attention.q", "1.norm", "1.attention.q"]);
    let names: Vec<String> = root.named_buffers().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.attention.mask", "1.attention.mask"]);
    for taken in ["embedding", "0", "", "a.b"] {
        assert!(root.add_parameter(taken, None).is_err(), "{taken:?}");
        assert!(root.add_module(taken, Module::new()).is_err(), "{taken:?}");
    }
    let options = ModuleOptions { include_buffers: true, ..ModuleOptions::default() };
    let report = prefetch_managed_module_parameters(&root, FIRST, &options, &stream)?;
    assert_eq!((report.tensors, report.requested_bytes), (7, 56));
    Ok(())
}

/// Before a refit overwrites all weights they come to the device without being copied.
#[test]
fn weights_that_are_about_to_be_overwritten_come_without_being_copied() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let weight = pool.tensor("w", bytes(8 * MIB), &stream)?;
    write(&machine, &weight, 1, &stream)?;
    prefetch_managed_tensor(&weight, Place::HOST, &stream)?;
    let module = module_of([("w", weight.clone())])?;
    let options = ModuleOptions::default();
    let (report, seen) = observe(&machine, || {
        // SAFETY: no code reads the weights until they are written below.
        unsafe { discard_managed_module_parameters(&module, Some(FIRST), &options, &stream) }
    })?;
    assert_eq!((report?.page_bytes, seen.counters.migrated_bytes()), (8 * MIB, 0));
    let (_, seen) = observe(&machine, || write(&machine, &weight, 2, &stream))?;
    assert_eq!(seen.counters.faults(), 0, "it is there");
    assert_eq!(host_sum(&machine, &weight)?, 2 * 8 * MIB);
    let outward = ModuleOptions { rounding: Some(Rounding::Outward), ..options };
    let odd = module_of([("odd", weight.view("odd", 1, bytes(8192))?)])?;
    let _ = backend.take_calls();
    // SAFETY: no code reads the weights; the call refuses the range before it discards anything.
    let answer = unsafe { discard_managed_module_parameters(&odd, None, &outward, &stream) };
    assert!(answer.is_err(), "it would take contents of neighbours");
    assert_eq!(operations(&backend), []);
    Ok(())
}

/// The weights of a second model, as reinforcement learning keeps them: advised, then moved.
#[test]
fn weights_go_to_the_host_and_come_back_with_their_contents() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let weight = pool.tensor("w", bytes(4 * MIB), &stream)?;
    write(&machine, &weight, 3, &stream)?;
    let module = module_of([("w", weight.clone())])?;
    let options = ModuleOptions::default();
    for to in [device_index(-1)?, device_index(0)?] {
        let (moved, seen) = observe(&machine, || {
            advise_managed_module_parameters_preferred_location(&module, to, &options)?;
            let report = prefetch_managed_module_parameters(&module, to, &options, &stream)?;
            stream.synchronize().map(|()| report)
        })?;
        assert_eq!(moved?.unique_bytes, 4 * MIB);
        assert_eq!(seen.counters.migrated_bytes(), 4 * MIB);
    }
    assert_eq!(host_sum(&machine, &weight)?, 3 * 4 * MIB);
    Ok(())
}
