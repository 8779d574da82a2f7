//! Views of memory by its address, over a back end with memory of this test. Miri can run it;
//! it has no address space for the simulator. The memory is never given back:
//! `MIRIFLAGS=-Zmiri-ignore-leaks cargo +nightly miri test -p pagewise --no-default-features
//! --features mock --test host_views --test in_flight`.

mod mock_memory;

use mock_memory::machine;
use pagewise::{Device, ManagedBuffer, Result, Stream};
use pagewise_hal::mock;

#[test]
fn halves_of_a_buffer_are_written_and_read_side_by_side() -> Result<()> {
    let mut buffer = ManagedBuffer::<u16>::zeroed(machine(), 5000)?;
    let (left, right) = buffer.range_mut(..)?.split_at(2500)?;
    let (left, right) = (left.write()?, right.write()?);
    std::thread::scope(|scope| {
        scope.spawn(|| left.fill(1));
        right.fill(2);
    });
    assert_eq!((left[2499], right[0]), (1, 2));
    let (all, upper) = (buffer.read()?, buffer.range(2500..)?.read()?);
    assert_eq!((all.len(), all[0], all[2500], upper[2499]), (5000, 1, 2, 2));
    Ok(())
}

#[test]
fn views_stay_while_the_pages_are_asked_to_move() -> Result<()> {
    let machine = machine();
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 3 * 4096)?;
    let range = buffer.range_mut(4096..)?;
    let region = *range;
    let lent = range.write()?;
    region.prefetch(Device::FIRST, &stream)?;
    lent[0] = 3;
    let _ = buffer.range_mut(4096..8192)?.discard(&stream)?;
    let _ = buffer.range_mut(4096..8192)?.write()?;
    let view = buffer.read()?;
    buffer.prefetch(Device::FIRST, &stream)?;
    assert_eq!((view[0], view[4096], view[4097]), (0, 0, 0));
    Ok(())
}
