//! Tensors and pools at their edges: no bytes, neighbours that touch, and the names in errors.
#![cfg(feature = "unified-pool")]

use pagewise::inject::Fault;
use pagewise::intercept::Operation;
use pagewise::{BackendExt, Code, DevicePtr, DriverVersion, Place, Result, Rounding, Span, Stream};
use pagewise_managers::mempool::{
    ModuleOptions, RangeFootprint, Tensor, Unmanaged, create_unified_mempool,
    discard_managed_module_parameters, prefetch_managed_module_parameters, prefetch_managed_tensor,
};

use crate::mempool_common::{FIRST, PAGE, bytes, injected, module_of};

fn span(start: u64, bytes: u64) -> Span {
    Span::new(DevicePtr(start), bytes)
}

#[test]
fn ranges_without_bytes_count_for_nothing_however_they_lie() -> Result<()> {
    let page = span(PAGE, PAGE);
    for rounding in [Rounding::Outward, Rounding::Inward, Rounding::Exact] {
        for coalesce in [true, false] {
            let footprint = RangeFootprint::of(&[page, span(5, 0)], rounding, coalesce)?;
            assert_eq!(footprint.ranges, [page], "{rounding:?}");
        }
    }
    let part = RangeFootprint::of(&[span(PAGE + 1, 1000)], Rounding::Inward, true)?;
    assert_eq!((part.unique_bytes, part.ranges), (1000, vec![]), "it has no whole page");
    Ok(())
}

#[test]
fn an_error_names_the_tensors_of_the_range_that_failed_and_no_neighbours() -> Result<()> {
    let (backend, machine, _) = injected(DriverVersion::CUDA_13_0)?;
    // The driver's batches do not take it, so each range is a call.
    let stream = Stream::legacy_default(&machine);
    let memory = backend.alloc(3 * PAGE)?;
    let options = ModuleOptions { coalesce: false, ..ModuleOptions::default() };
    let at = |name, page: u64| {
        Tensor::foreign(name, &machine, memory.ptr.offset(page * PAGE), bytes(PAGE))
    };
    let module = module_of([("a", at("a", 0)?), ("b", at("b", 1)?), ("c", at("c", 2)?)])?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::Prefetch).nth(1));
    let error = prefetch_managed_module_parameters(&module, FIRST, &options, &stream).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("`b`") && !text.contains("`a`") && !text.contains("`c`"), "{text}");
    Ok(())
}

#[test]
fn an_error_about_a_single_range_names_its_tensor() -> Result<()> {
    for version in [DriverVersion::CUDA_12_2, DriverVersion::CUDA_13_0] {
        let (backend, machine, stream) = injected(version)?;
        let memory = backend.alloc(PAGE)?;
        let only = Tensor::foreign("only", &machine, memory.ptr, bytes(PAGE))?;
        for operation in [Operation::Prefetch, Operation::PrefetchBatch] {
            backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(operation));
        }
        let error = prefetch_managed_tensor(&only, FIRST, &stream).unwrap_err();
        assert!(error.to_string().contains("in `only`"), "{error}");
    }
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let memory = backend.alloc(PAGE)?;
    let module =
        module_of([("only", Tensor::foreign("only", &machine, memory.ptr, bytes(PAGE))?)])?;
    for (operation, then_to) in
        [(Operation::DiscardBatch, None), (Operation::DiscardPrefetchBatch, Some(FIRST))]
    {
        backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(operation));
        let options = ModuleOptions::default();
        // SAFETY: no code reads the contents.
        let answer =
            unsafe { discard_managed_module_parameters(&module, then_to, &options, &stream) };
        let error = answer.unwrap_err();
        assert!(error.to_string().contains("in `only`"), "{operation:?}: {error}");
    }
    Ok(())
}

#[test]
fn memory_that_cannot_be_asked_about_is_not_taken_for_unmanaged() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let memory = backend.alloc(PAGE)?;
    let module = module_of([("a", Tensor::foreign("a", &machine, memory.ptr, bytes(PAGE))?)])?;
    let options = ModuleOptions { unmanaged: Unmanaged::Skip, ..ModuleOptions::default() };
    backend.arm(Fault::new(Code::NOT_PERMITTED).on(Operation::PointerAttribute));
    let error = prefetch_managed_module_parameters(&module, FIRST, &options, &stream).unwrap_err();
    assert_eq!(error.code(), Some(Code::NOT_PERMITTED));
    Ok(())
}

#[test]
fn a_pool_knows_its_tensors_and_their_ranges() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    assert_eq!(pool.ranges()?, []);
    let tensor = pool.tensor("t", bytes(PAGE), &stream)?;
    assert_eq!(pool.ranges()?, [tensor.span()]);
    let foreign = Tensor::foreign("f", &machine, backend.alloc(PAGE)?.ptr, bytes(PAGE))?;
    assert_eq!((tensor.is_of_a_pool(), foreign.is_of_a_pool()), (true, false));
    let empty = Tensor::foreign("e", &machine, DevicePtr(0), bytes(0))?;
    assert_eq!(prefetch_managed_tensor(&empty, FIRST, &stream)?.ranges, 0);
    assert!(Tensor::foreign("n", &machine, DevicePtr(0), bytes(1)).is_err());
    Ok(())
}

#[test]
fn an_empty_pool_refuses_streams_of_other_machines_and_places_that_there_are_not() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let (_, _, elsewhere) = injected(DriverVersion::CUDA_13_0)?;
    let pool = create_unified_mempool(&machine)?;
    let nowhere = Place::from(pagewise::Device::new(9)?);
    let refuses = |call: &dyn Fn(Place, &Stream) -> bool| {
        call(Place::HOST, &elsewhere) && call(nowhere, &stream)
    };
    assert!(refuses(&|to, stream| pool.suspend(to, stream).is_err()));
    assert!(!pool.is_suspended());
    drop(pool.suspend(Place::HOST, &stream)?);
    assert!(refuses(&|to, stream| pool.resume(to, stream).is_err()));
    assert!(pool.is_suspended());
    pool.resume(FIRST, &stream).map(drop)
}
