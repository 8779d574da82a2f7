//! The order in which memory goes back: after the work of its stream, whichever that is by then.

use std::sync::Arc;

use pagewise::resource::{
    Allocation, DeviceMemoryResource, ManagedMemoryResource, MemoryResource, PinnedMemoryResource,
};
use pagewise::{
    Code, Device, DevicePtr, Error, EventHandle, Machine, PoolHandle, Result, Stream, StreamHandle,
};
use pagewise_hal::mock::{MockBackend, Sequence, permit_machine};

const MEMORY: DevicePtr = DevicePtr(1 << 20);
const ONE: StreamHandle = StreamHandle::checked(0x70);
const TWO: StreamHandle = StreamHandle::checked(0x80);
const EVENT: EventHandle = EventHandle::checked(0x90);

type Make = fn(&Machine) -> Result<Arc<dyn MemoryResource>>;

/// A machine with `ONE` and `TWO` for its first two streams.
fn machine(mut mock: MockBackend) -> Result<(Machine, Stream, Stream)> {
    for handle in [ONE, TWO] {
        mock.expect_stream_create().times(1).returning(move |_, _| Ok(handle));
    }
    permit_machine(&mut mock);
    let machine = Machine::from(Arc::new(mock));
    let one = Stream::new(&machine, Device::FIRST)?;
    let two = Stream::new(&machine, Device::FIRST)?;
    Ok((machine, one, two))
}

/// Memory of the driver's own calls has no stream: its resources wait for the one that is given.
#[test]
fn a_stream_given_to_deallocate_is_waited_for_before_direct_memory_is_freed() -> Result<()> {
    let resources: [(bool, Make); 3] = [
        (false, |machine| Ok(Arc::new(DeviceMemoryResource::direct(machine, Device::FIRST)?))),
        (false, |machine| Ok(Arc::new(ManagedMemoryResource::direct(machine)))),
        (true, |machine| Ok(Arc::new(PinnedMemoryResource::direct(machine)))),
    ];
    for (is_pinned, make) in resources {
        let mut mock = MockBackend::new();
        let mut order = Sequence::new();
        mock.expect_alloc_device().returning(|_, _| Ok(MEMORY));
        mock.expect_alloc_managed().returning(|_, _| Ok(MEMORY));
        mock.expect_alloc_pinned().returning(|_, _| Ok(MEMORY));
        mock.expect_stream_synchronize()
            .withf(|stream| *stream == TWO)
            .times(1)
            .in_sequence(&mut order)
            .returning(|_| Ok(()));
        if is_pinned {
            let free = mock.expect_free_pinned().withf(|ptr| *ptr == MEMORY);
            free.times(1).in_sequence(&mut order).returning(|_| Ok(()));
        } else {
            let free = mock.expect_free().withf(|ptr| *ptr == MEMORY);
            free.times(1).in_sequence(&mut order).returning(|_| Ok(()));
        }
        let (machine, one, two) = machine(mock)?;
        let resource = make(&machine)?;
        assert_eq!(resource.allocate(100, &one)?, MEMORY);
        // SAFETY: the memory came from the resource, and a mock's address has no memory behind it.
        unsafe { resource.deallocate(MEMORY, 100, &two)? };
    }
    Ok(())
}

/// `direct` asks `cuMemAlloc`, the others ask their pool, and each gives back the same way.
#[test]
fn direct_memory_is_of_no_pool_and_pool_memory_is_of_its_own() -> Result<()> {
    const POOL: PoolHandle = PoolHandle::checked(0x60);
    let makes: [(bool, Make); 2] = [
        (true, |machine| Ok(Arc::new(DeviceMemoryResource::direct(machine, Device::FIRST)?))),
        (false, |machine| {
            let options = Default::default();
            Ok(Arc::new(DeviceMemoryResource::new_pool(machine, Device::FIRST, options)?))
        }),
    ];
    for (is_direct, make) in makes {
        let mut mock = MockBackend::new();
        let (direct, pooled) = (usize::from(is_direct), usize::from(!is_direct));
        mock.expect_alloc_device()
            .withf(|device, bytes| (*device, *bytes) == (Device::FIRST.id(), 100))
            .times(direct)
            .returning(|_, _| Ok(MEMORY));
        mock.expect_free().times(direct).returning(|_| Ok(()));
        mock.expect_pool_create().times(pooled).returning(|_| Ok(POOL));
        mock.expect_pool_set_attribute().returning(|_, _, _| Ok(()));
        mock.expect_pool_alloc()
            .withf(|pool, bytes, stream| (*pool, *bytes, *stream) == (POOL, 100, ONE))
            .times(pooled)
            .returning(|_, _, _| Ok(MEMORY));
        mock.expect_free_async()
            .withf(|ptr, stream| (*ptr, *stream) == (MEMORY, ONE))
            .times(pooled)
            .returning(|_, _| Ok(()));
        mock.expect_pool_destroy().times(pooled).returning(|_| Ok(()));
        let (machine, one, _two) = machine(mock)?;
        Allocation::new(make(&machine)?, 100, &one)?.free()?;
    }
    Ok(())
}

/// The memory goes back on the new stream, which waits first; a wait that fails changes nothing.
#[test]
fn an_allocation_changes_streams_only_when_the_new_one_waits_for_the_old() -> Result<()> {
    const POOL: PoolHandle = PoolHandle::checked(0x60);
    for (fails, goes_on) in [(false, TWO), (true, ONE)] {
        let mut mock = MockBackend::new();
        let mut order = Sequence::new();
        mock.expect_pool_current().returning(|_, _| Ok(POOL));
        mock.expect_pool_alloc().returning(|_, _, _| Ok(MEMORY));
        mock.expect_event_create().times(1).returning(|_, _| Ok(EVENT));
        mock.expect_event_record()
            .withf(|event, stream| (*event, *stream) == (EVENT, ONE))
            .times(1)
            .in_sequence(&mut order)
            .returning(|_, _| Ok(()));
        mock.expect_stream_wait_event()
            .withf(|stream, event| (*stream, *event) == (TWO, EVENT))
            .times(1)
            .in_sequence(&mut order)
            .returning(move |_, _| match fails {
                true => Err(Error::from_code("stream_wait_event", Code::OUT_OF_MEMORY)),
                false => Ok(()),
            });
        mock.expect_free_async()
            .withf(move |ptr, stream| (*ptr, *stream) == (MEMORY, goes_on))
            .times(1)
            .in_sequence(&mut order)
            .returning(|_, _| Ok(()));
        let (machine, one, two) = machine(mock)?;
        let pool = Arc::new(DeviceMemoryResource::current_pool(&machine, Device::FIRST)?);
        let mut bytes = Allocation::new(pool, 100, &one)?;
        assert_eq!(bytes.set_stream(&two).is_err(), fails);
        drop(bytes);
    }
    Ok(())
}
