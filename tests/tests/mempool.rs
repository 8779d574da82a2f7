//! Unified pools on every back end: moves, advice, attributes that read back, and memory returned.

mod machines;

use std::sync::Arc;

use machines::tensors::{
    FIRST, HOST, NOWHERE, WILD, apart, bytes, figures, mapped_by, module_of, prefers, read, sent_to,
};
use machines::{MIB, PAGE, fill, holds, machine, moving};
use pagewise::resource::{Allocation, PinnedMemoryResource};
use pagewise::{
    Backend, Device, DevicePtr, ErrorKind, Host, Machine, MemoryAdvice, Place, RangeAttribute,
    Result, Span, Stream,
};
use pagewise_managers::mempool::{
    Module, ModuleOptions, Report, Tensor, TensorLayout, UnifiedMempool, Unmanaged,
    advise_managed_module_parameters, advise_managed_module_parameters_accessed_by,
    advise_managed_module_parameters_preferred_location, advise_managed_tensor,
    advise_managed_tensor_accessed_by, advise_managed_tensor_preferred_location,
    create_unified_mempool, device_index, discard_managed_module_parameters,
    prefetch_managed_module_parameters, prefetch_managed_tensor,
};

machines::claims_hold_everywhere![
    a_tensor_goes_where_it_is_sent_and_says_so,
    advice_on_a_tensor_reads_back_until_it_is_taken_back,
    a_module_is_moved_and_advised_as_a_whole,
    views_move_the_bytes_that_they_reach,
    shared_storage_counts_and_moves_once,
    what_is_not_managed_is_refused_before_anything_is_done,
    what_is_not_managed_is_skipped_or_reported,
    places_that_do_not_exist_are_refused_before_anything_is_done,
    weights_that_will_be_overwritten_come_without_contents,
];

// ---- one tensor -------------------------------------------------------------------------------

fn a_tensor_goes_where_it_is_sent_and_says_so(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let pool = apart(&machine)?;
    let tensor = pool.tensor("t", bytes(2 * MIB - 100), &stream)?;
    fill(tensor.span(), 3, &stream)?;
    assert_eq!(sent_to(&tensor, &stream)?, NOWHERE);
    for (index, expected) in [(-1, HOST), (0, 0), (-1, HOST)] {
        let report = prefetch_managed_tensor(&tensor, device_index(index)?, &stream)?;
        let size = 2 * MIB - 100;
        assert_eq!(figures(&report), (1, size, size, 2 * MIB, 1));
        assert_eq!(sent_to(&tensor, &stream)?, expected);
        assert!(holds(tensor.span(), 3, &stream)?, "contents come along");
    }
    let default = Stream::legacy_default(&machine);
    prefetch_managed_tensor(&tensor, FIRST, &default)?;
    default.synchronize()?;
    assert_eq!(sent_to(&tensor, &stream)?, 0, "on the default stream too");
    assert_eq!(prefetch_managed_tensor(None, FIRST, &stream)?, Report::default());
    let empty = pool.tensor("empty", TensorLayout::contiguous(&[3, 0], 4)?, &stream)?;
    assert_eq!(prefetch_managed_tensor(&empty, FIRST, &stream)?, Report::default());
    let node = prefetch_managed_tensor(&tensor, Host::node(0)?, &stream);
    match machine.capabilities().locations {
        true => {
            node?;
            let id = read(tensor.span(), RangeAttribute::LAST_PREFETCH_LOCATION_ID, &stream)?;
            assert_eq!(id, 0);
        }
        false => assert_eq!(node.unwrap_err().kind(), ErrorKind::Unsupported),
    }
    Ok(())
}

fn advice_on_a_tensor_reads_back_until_it_is_taken_back(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let pool = apart(&machine)?;
    let tensor = pool.tensor("t", bytes(2 * MIB), &stream)?;
    for (index, expected) in [(0, 0), (-1, HOST)] {
        let place = device_index(index)?;
        let report = advise_managed_tensor_preferred_location(&tensor, place)?;
        assert_eq!(figures(&report), (1, 2 * MIB, 2 * MIB, 2 * MIB, 1));
        assert_eq!(prefers(&tensor, &stream)?, expected);
    }
    advise_managed_tensor(&tensor, MemoryAdvice::UnsetPreferredLocation)?;
    assert_eq!(prefers(&tensor, &stream)?, NOWHERE);
    assert!(mapped_by(&tensor)?.is_empty());
    advise_managed_tensor_accessed_by(&tensor, FIRST)?;
    assert_eq!(mapped_by(&tensor)?, [0]);
    advise_managed_tensor_accessed_by(&tensor, Place::HOST)?;
    assert_eq!(mapped_by(&tensor)?, [HOST, 0], "-1 is the host on every driver");
    advise_managed_tensor(&tensor, MemoryAdvice::UnsetAccessedBy(FIRST))?;
    advise_managed_tensor(&tensor, MemoryAdvice::UnsetAccessedBy(Place::HOST))?;
    assert!(mapped_by(&tensor)?.is_empty());
    for (advice, on) in [(MemoryAdvice::SetReadMostly, 1), (MemoryAdvice::UnsetReadMostly, 0)] {
        advise_managed_tensor(&tensor, advice)?;
        assert_eq!(read(tensor.span(), RangeAttribute::READ_MOSTLY, &stream)?, on);
    }
    let node = advise_managed_tensor_accessed_by(&tensor, Host::node(0)?).unwrap_err();
    assert_eq!((node.kind(), node.code()), (ErrorKind::InvalidValue, None));
    Ok(())
}

// ---- modules, views ---------------------------------------------------------------------------

fn a_module_is_moved_and_advised_as_a_whole(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let (own, cut) = (apart(&machine)?, create_unified_mempool(&machine)?);
    let tensor = |pool: &UnifiedMempool, name, size| pool.tensor(name, bytes(size), &stream);
    let [a, b] = [tensor(&own, "a", 2 * MIB)?, tensor(&own, "b", 2 * MIB)?];
    let [c, d] = [tensor(&cut, "c", 96 << 10)?, tensor(&cut, "d", 96 << 10)?];
    let steps = tensor(&own, "steps", 10_000)?;
    let mut layer = module_of(&[("c", &c), ("d", &d)])?;
    layer.add_buffer("steps", steps.clone())?;
    let mut module = module_of(&[("a", &a), ("b", &b)])?;
    module.add_parameter("absent", None)?;
    module.add_module("layer", layer)?;
    let all = [&a, &b, &c, &d];
    (1..).zip(all).try_for_each(|(value, tensor)| fill(tensor.span(), value, &stream))?;
    let options = ModuleOptions::default();
    let size = 4 * MIB + (192 << 10);
    let default = Stream::legacy_default(&machine);
    for (place, expected, on) in
        [(Place::HOST, HOST, &stream), (FIRST, 0, &default), (Place::HOST, HOST, &stream)]
    {
        let (report, moved) = moving(&machine, || -> Result<Report> {
            let report = prefetch_managed_module_parameters(&module, place, &options, on)?;
            on.synchronize().map(|()| report)
        })?;
        assert_eq!(figures(&report), (4, size, size, size, 3), "neighbours are one range");
        assert!(moved.is_none_or(|bytes| bytes == size), "{moved:?}");
        for tensor in all {
            assert_eq!(sent_to(tensor, &stream)?, expected, "{tensor:?}");
        }
        assert_eq!(sent_to(&steps, &stream)?, NOWHERE, "buffers were not asked for");
    }
    advise_managed_module_parameters_preferred_location(&module, FIRST, &options)?;
    let with = ModuleOptions { include_buffers: true, coalesce: false, ..options };
    let report = advise_managed_module_parameters_accessed_by(&module, FIRST, &with)?;
    assert_eq!((report.tensors, report.ranges), (5, 5));
    for tensor in all {
        assert_eq!((prefers(tensor, &stream)?, mapped_by(tensor)?), (0, vec![0]), "{tensor:?}");
    }
    assert_eq!((prefers(&steps, &stream)?, mapped_by(&steps)?), (NOWHERE, vec![0]));
    advise_managed_module_parameters(&module, MemoryAdvice::UnsetPreferredLocation, &options)?;
    for (advice, on) in [(MemoryAdvice::SetReadMostly, 1), (MemoryAdvice::UnsetReadMostly, 0)] {
        advise_managed_module_parameters(&module, advice, &options)?;
        for tensor in all {
            assert_eq!(read(tensor.span(), RangeAttribute::READ_MOSTLY, &stream)?, on);
            assert_eq!(prefers(tensor, &stream)?, NOWHERE);
        }
    }
    for (value, tensor) in (1..).zip(all) {
        assert!(holds(tensor.span(), value, &stream)?, "{tensor:?}");
    }
    Ok(())
}

fn views_move_the_bytes_that_they_reach(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let pool = apart(&machine)?;
    let matrix = pool.tensor("matrix", bytes(8 * MIB), &stream)?;
    fill(matrix.span(), 1, &stream)?;
    let column = matrix.view("column", 0, TensorLayout::strided(&[3, 1], &[2 << 20, 1], 1)?)?;
    let report = prefetch_managed_tensor(&column, Place::HOST, &stream)?;
    assert_eq!(figures(&report), (1, 3, 4 * MIB + 1, 4 * MIB + PAGE, 1));
    let page = |at| Span::new(matrix.span().ptr.offset(at), PAGE);
    let last = |at| read(page(at), RangeAttribute::LAST_PREFETCH_LOCATION, &stream);
    assert_eq!([last(0)?, last(2 * MIB)?, last(4 * MIB)?], [HOST; 3]);
    assert_eq!([last(4 * MIB + PAGE)?, last(6 * MIB)?], [NOWHERE; 2], "and no others");
    let small = pool.tensor("small", bytes(2 * PAGE), &stream)?;
    let repeated = TensorLayout::strided(&[1 << 20, 2 * PAGE], &[0, 1], 1)?;
    let expanded = small.view("expanded", 0, repeated)?;
    let report = prefetch_managed_tensor(&expanded, FIRST, &stream)?;
    assert_eq!(figures(&report), (1, (2 * PAGE) << 20, 2 * PAGE, 2 * PAGE, 1));
    assert_eq!(sent_to(&small, &stream)?, 0);
    assert!(small.view("beyond", 1, bytes(2 * PAGE)).is_err());
    assert!(holds(matrix.span(), 1, &stream)?);
    Ok(())
}

fn shared_storage_counts_and_moves_once(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let pool = apart(&machine)?;
    let base = pool.tensor("base", bytes(8 * MIB), &stream)?;
    fill(base.span(), 9, &stream)?;
    let module = module_of(&[
        ("short", &base.view("short", 0, bytes(MIB))?),
        ("long", &base.view("long", 0, bytes(6 * MIB))?),
        ("overlaps", &base.view("overlaps", 5 * MIB, bytes(2 * MIB))?),
        ("tied", &base.view("tied", 0, bytes(MIB))?),
    ])?;
    let options = ModuleOptions::default();
    let (report, moved) = moving(&machine, || -> Result<Report> {
        let to = Place::HOST;
        let report = prefetch_managed_module_parameters(&module, to, &options, &stream)?;
        stream.synchronize().map(|()| report)
    })?;
    assert_eq!(figures(&report), (4, 10 * MIB, 7 * MIB, 7 * MIB, 1));
    assert!(moved.is_none_or(|bytes| bytes == 7 * MIB), "{moved:?}");
    let moved = base.view("moved", 0, bytes(7 * MIB))?;
    let rest = base.view("rest", 7 * MIB, bytes(MIB))?;
    assert_eq!((sent_to(&moved, &stream)?, sent_to(&rest, &stream)?), (HOST, NOWHERE));
    assert!(holds(base.span(), 9, &stream)?);
    drop((pool, base, rest, moved));
    assert!(prefetch_managed_module_parameters(&module, FIRST, &options, &stream).is_ok());
    Ok(())
}

fn weights_that_will_be_overwritten_come_without_contents(
    backend: &Arc<dyn Backend>,
) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let pool = apart(&machine)?;
    let weight = pool.tensor("w", bytes(4 * MIB), &stream)?;
    let neighbour = weight.view("neighbour", 2 * MIB + 100, bytes(2 * MIB - 100))?;
    fill(weight.span(), 1, &stream)?;
    let kept = weight.view("kept", 3 * MIB, bytes(MIB))?;
    prefetch_managed_tensor(&weight, Place::HOST, &stream)?;
    let module = module_of(&[("w", &weight.view("head", 0, bytes(2 * MIB + 100))?)])?;
    let options = ModuleOptions::default();
    // SAFETY: no code reads the weights until they are written below.
    let answer =
        unsafe { discard_managed_module_parameters(&module, Some(FIRST), &options, &stream) };
    if !machine.capabilities().discard {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(holds(weight.span(), 1, &stream)?, "nothing was done");
        return Ok(());
    }
    assert_eq!(figures(&answer?), (1, 2 * MIB + 100, 2 * MIB + 100, 2 * MIB, 1));
    let head = Span::new(weight.span().ptr, 2 * MIB);
    assert_eq!(read(head, RangeAttribute::LAST_PREFETCH_LOCATION, &stream)?, 0);
    assert!(holds(kept.span(), 1, &stream)?, "what was not discarded is there");
    fill(head, 2, &stream)?;
    assert!(holds(head, 2, &stream)?);
    fill(neighbour.span(), 3, &stream)?;
    assert!(holds(head, 2, &stream)? && holds(neighbour.span(), 3, &stream)?);
    Ok(())
}

// ---- memory that is not managed ---------------------------------------------------------------

/// A module with a tensor of the pool's and three that are not managed: device memory, page-locked
/// memory, no memory at all.
struct Mixed {
    module: Module,
    managed: Tensor,
    device: DevicePtr,
    machine: Machine,
    _pinned: Allocation,
}

impl Mixed {
    fn new(machine: &Machine, stream: &Stream) -> Result<Self> {
        let page = || bytes(PAGE);
        let managed = apart(machine)?.tensor("w", page(), stream)?;
        let pinned = Arc::new(PinnedMemoryResource::direct(machine));
        let pinned = Allocation::new(pinned, PAGE, stream)?;
        let device = machine.backend().alloc_device(Device::FIRST.id(), PAGE)?;
        let mut layer = Module::new();
        layer.add_parameter("bias", Tensor::foreign("x", machine, pinned.device_ptr(), page())?)?;
        layer.add_parameter("scale", Tensor::foreign("y", machine, device, page())?)?;
        layer.add_buffer("wild", Tensor::foreign("z", machine, WILD, page())?)?;
        let mut module = module_of(&[("weight", &managed)])?;
        module.add_module("layer", layer)?;
        Ok(Self { module, managed, device, machine: machine.clone(), _pinned: pinned })
    }
}

impl Drop for Mixed {
    fn drop(&mut self) {
        // SAFETY: no work uses the memory, and a destructor runs once.
        unsafe { self.machine.backend().free(self.device) }.expect("it is freed once");
    }
}

fn what_is_not_managed_is_refused_before_anything_is_done(
    backend: &Arc<dyn Backend>,
) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let mixed = Mixed::new(&machine, &stream)?;
    let (module, options) = (&mixed.module, ModuleOptions::default());
    let answers = [
        prefetch_managed_module_parameters(module, Place::HOST, &options, &stream),
        advise_managed_module_parameters_preferred_location(module, FIRST, &options),
        advise_managed_module_parameters_accessed_by(module, FIRST, &options),
        // SAFETY: no code reads the module's contents.
        unsafe { discard_managed_module_parameters(module, None, &options, &stream) },
    ];
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
        assert!(error.to_string().contains("`layer.bias`"), "{error}");
    }
    let managed = &mixed.managed;
    let after = (sent_to(managed, &stream)?, prefers(managed, &stream)?, mapped_by(managed)?);
    assert_eq!(after, (NOWHERE, NOWHERE, vec![]));
    for ptr in [mixed.device, WILD] {
        let foreign = Tensor::foreign("foreign", &machine, ptr, bytes(PAGE))?;
        let error = prefetch_managed_tensor(&foreign, FIRST, &stream).unwrap_err();
        assert!(error.to_string().contains("`foreign` is not managed"), "{error}");
    }
    // Managed memory from elsewhere is as good as the pool's, within its allocation.
    let span = managed.span();
    let theirs = Tensor::foreign("theirs", &machine, span.ptr, bytes(PAGE))?;
    assert_eq!(prefetch_managed_tensor(&theirs, FIRST, &stream)?.tensors, 1);
    assert_eq!(sent_to(managed, &stream)?, 0);
    let past = Tensor::foreign("past", &machine, span.ptr.offset(100), bytes(PAGE))?;
    let error = prefetch_managed_tensor(&past, FIRST, &stream).unwrap_err();
    assert!(error.to_string().contains("`past` passes the end"), "{error}");
    assert!(Tensor::foreign("null", &machine, DevicePtr::NULL, bytes(1)).is_err());
    Ok(())
}

fn what_is_not_managed_is_skipped_or_reported(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let mixed = Mixed::new(&machine, &stream)?;
    let run = |unmanaged, include_buffers| {
        let options = ModuleOptions { unmanaged, include_buffers, ..ModuleOptions::default() };
        prefetch_managed_module_parameters(&mixed.module, FIRST, &options, &stream)
    };
    let skipped = run(Unmanaged::Skip, true)?;
    assert_eq!((figures(&skipped), skipped.unmanaged.len()), ((1, PAGE, PAGE, PAGE, 1), 0));
    assert_eq!(sent_to(&mixed.managed, &stream)?, 0);
    let reported = run(Unmanaged::Report, true)?;
    assert_eq!(reported.unmanaged, ["layer.bias", "layer.scale", "layer.wild"]);
    assert_eq!(run(Unmanaged::Report, false)?.unmanaged, ["layer.bias", "layer.scale"]);
    Ok(())
}

fn places_that_do_not_exist_are_refused_before_anything_is_done(
    backend: &Arc<dyn Backend>,
) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let pool = apart(&machine)?;
    let tensor = pool.tensor("t", bytes(PAGE), &stream)?;
    let nowhere = device_index(99)?;
    for answer in [
        prefetch_managed_tensor(&tensor, nowhere, &stream),
        advise_managed_tensor_preferred_location(&tensor, nowhere),
        advise_managed_tensor_accessed_by(&tensor, nowhere),
    ] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidDevice);
    }
    assert_eq!(pool.suspend(nowhere, &stream).unwrap_err().kind(), ErrorKind::InvalidDevice);
    assert!(!pool.is_suspended());
    let after = (sent_to(&tensor, &stream)?, prefers(&tensor, &stream)?, mapped_by(&tensor)?);
    assert_eq!(after, (NOWHERE, NOWHERE, vec![]));
    Ok(())
}
