//! Views of page-locked arrays by their address, over a back end with memory of this test. Miri
//! can run it; it has no address space for the simulator. The memory is never given back:
//! `MIRIFLAGS=-Zmiri-ignore-leaks cargo +nightly miri test -p pagewise-managers --test pinned_views`.
#![cfg(feature = "instances")]

#[path = "../../api/tests/mock_memory/mod.rs"]
mod mock_memory;

use mock_memory::machine;
use pagewise::{Device, mock};
use pagewise_managers::manager::{
    Allocator, Dtype, HostMemory, ManagerError, ManagerOptions, MemoryManager,
};

#[test]
fn a_page_locked_array_shows_itself_to_several_at_once() -> std::result::Result<(), ManagerError> {
    let options = ManagerOptions::new().total_bytes(1 << 30).allocator(Allocator::Direct);
    let manager = MemoryManager::with_options(machine(), Device::FIRST, options)?;
    let mut array = manager.create_host_array(&[10, 10], Dtype::U32, HostMemory::Pinned, None)?;
    array.as_mut_slice::<u32>()?[99] = 8;
    let (first, second) = (array.as_slice::<u32>()?, array.as_slice::<u32>()?);
    assert_eq!((first[99], second[99], first[0]), (8, 8, 0));
    Ok(())
}
