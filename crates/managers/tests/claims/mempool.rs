//! Tensors and modules: their footprints, and the requests that the driver gets. The claims of
//! `tests/tests/mempool.rs` are about every back end.
#![cfg(feature = "unified-pool")]

use std::collections::BTreeSet;
use std::sync::Arc;

use pagewise::intercept::Operation;
use pagewise::resource::{ManagedMemoryResource, PinnedMemoryResource};
use pagewise::{
    BatchSupport, DevicePtr, DriverVersion, ErrorKind, Machine, MemoryAdvice, Place,
    RangeAttribute, Result, Rounding, Span, Stream, observe,
};
use pagewise_managers::mempool::{
    MempoolOptions, Module, ModuleOptions, RangeFootprint, Tensor, TensorLayout, UnifiedMempool,
    advise_managed_module_parameters, advise_managed_module_parameters_accessed_by,
    advise_managed_module_parameters_preferred_location, advise_managed_tensor_accessed_by,
    advise_managed_tensor_preferred_location, create_unified_mempool, device_index,
    discard_managed_module_parameters, prefetch_managed_module_parameters, prefetch_managed_tensor,
};
use proptest::prelude::*;

use crate::mempool_common::{FIRST, MIB, PAGE, attribute, bytes, injected, module_of};
use crate::mempool_common::{operations, write};

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
        prop_assert_eq!(layout.element_bytes(), element);
        prop_assert_eq!(layout.shape(), &shape[..]);
        let apart: Vec<u64> = strides.iter().map(|stride| stride.unsigned_abs()).collect();
        prop_assert_eq!(layout.strides(), &apart[..]);
        prop_assert_eq!(layout.elements(), shape.iter().product::<u64>());
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

/// A module with a pool's tensor, which comes with it, and one of pinned memory.
fn mixed(machine: &Machine, stream: &Stream) -> Result<(Module, Tensor, impl Sized + use<>)> {
    let pool = create_unified_mempool(machine)?;
    let pinned = PinnedMemoryResource::direct(machine);
    let pinned = pagewise::resource::Allocation::new(Arc::new(pinned), 4096, stream)?;
    let page = || bytes(4096);
    let managed = pool.tensor("w", page(), stream)?;
    let foreign = Tensor::foreign("x", machine, pinned.device_ptr(), page())?;
    let module = module_of([("weight", managed.clone()), ("bias", foreign)])?;
    Ok((module, managed, (pool, pinned)))
}

/// Defect 7: a tensor that is not managed fails the operation in the middle.
#[test]
fn a_refusal_asks_the_driver_about_pointers_at_most() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let (module, managed, _held) = mixed(&machine, &stream)?;
    let _ = backend.take_calls();
    let options = ModuleOptions::default();
    let answers = [
        prefetch_managed_module_parameters(&module, FIRST, &options, &stream),
        advise_managed_module_parameters_preferred_location(&module, FIRST, &options),
        advise_managed_module_parameters_accessed_by(&module, FIRST, &options),
        // SAFETY: no code reads the module's contents.
        unsafe { discard_managed_module_parameters(&module, None, &options, &stream) },
    ];
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    let calls = operations(&backend);
    assert!(calls.iter().all(|&call| call == Operation::PointerAttribute), "{calls:?}");
    let ninth = device_index(9)?;
    let answers = [
        prefetch_managed_tensor(&managed, ninth, &stream),
        advise_managed_tensor_preferred_location(&managed, ninth),
        advise_managed_tensor_accessed_by(&managed, ninth),
    ];
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert_eq!(operations(&backend), []);
    Ok(())
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

#[test]
fn device_indices_that_name_no_place_are_refused() {
    for wrong in [-2, i64::MIN, 1 << 31, i64::MAX] {
        assert_eq!(device_index(wrong).unwrap_err().kind(), ErrorKind::InvalidValue);
    }
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
    let outward = ModuleOptions { rounding: Some(Rounding::Outward), ..options };
    let odd = module_of([("odd", weight.view("odd", 1, bytes(8192))?)])?;
    let _ = backend.take_calls();
    // SAFETY: no code reads the weights; the call refuses the range before it discards anything.
    let answer = unsafe { discard_managed_module_parameters(&odd, None, &outward, &stream) };
    assert!(answer.is_err(), "it would take contents of neighbours");
    assert_eq!(operations(&backend), []);
    Ok(())
}
