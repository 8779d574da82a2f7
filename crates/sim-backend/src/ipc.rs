//! Handles by which another process opens memory of `cuMemAlloc`, and events.
//!
//! A handle names a descriptor of the process that made it, and the number of the file there. So it
//! is found while that process lives and the memory does. Both are guesses, as is the refusal of
//! every other handle (CONTRACT-109).

use pagewise_hal::{
    BLOCK_BYTES, Code, DeviceId, DevicePtr, EventHandle, HandleTypes, IpcMemHandle, Location,
    SHARED_BLOB_BYTES,
};

use crate::foreign::Bytes;
use crate::refusal::{Checked, bad_device, bad_handle, invalid, refuse};
use crate::shared::Origin;
use crate::shared_memory::SharedFile;
use crate::shared_words::{About, Content, MEMORY_AT, Mark};
use crate::sim::Sim;
use crate::space::{Allocation, MemoryKind};

/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`
const PEER_ACCESS_UNSUPPORTED: i32 = 217;

const NO_DESCRIPTOR: &str = "the process has no descriptor or no memory left for an export";
const NO_MEMORY: &str = "the handle names no live memory of a process of this host";
const NO_EVENT: &str = "the handle names no live event of a process of this host";

impl Sim {
    /// `cuIpcGetMemHandle`: the memory moves into a file.
    pub(crate) fn ipc_mem_handle(&mut self, ptr: DevicePtr) -> Checked<IpcMemHandle> {
        let Some(&Allocation { start, bytes, kind: MemoryKind::Device(device), .. }) =
            self.space.containing(ptr)
        else {
            return invalid("only memory of cuMemAlloc has a handle; export a pool instead");
        };
        if let Some(file) = self.sharing.memory.get(&start) {
            return Ok(IpcMemHandle(Mark::Memory.of_file(file)));
        }
        let whole = bytes.next_multiple_of(BLOCK_BYTES);
        let location = Location::device(device);
        let handle_types = HandleTypes::empty();
        let about = About { content: Content::Memory, location, bytes, handle_types };
        let lent = about.create_file(MEMORY_AT + whole).and_then(|file| {
            self.arena.lend(&(start..start + whole), &file, MEMORY_AT)?;
            Ok(file)
        });
        let Ok(file) = lent else { return refuse(Code::OUT_OF_MEMORY, NO_DESCRIPTOR) };
        let handle = IpcMemHandle(Mark::Memory.of_file(&file));
        self.sharing.memory.insert(start, file);
        Ok(handle)
    }

    /// Memory of `cuMemAlloc` is freed: its addresses are the arena's again, and those who opened
    /// it keep it.
    pub(crate) fn withdraw_memory(&mut self, allocation: &Allocation) {
        if self.sharing.memory.remove(&allocation.start).is_some() {
            let whole = allocation.bytes.next_multiple_of(BLOCK_BYTES);
            self.arena.reclaim(&(allocation.start..allocation.start + whole));
        }
    }

    /// `cuIpcOpenMemHandle`: CONTRACT-108.
    pub(crate) fn ipc_open_mem_handle(
        &mut self,
        device: DeviceId,
        handle: IpcMemHandle,
    ) -> Checked<DevicePtr> {
        if !self.topology.has_device(device) {
            return bad_device("the device does not exist");
        }
        if self.sharing.memory.values().any(|file| Mark::Memory.names(file, &handle.0)) {
            return refuse(Code::INVALID_CONTEXT, "the memory is of this process");
        }
        let Some([.., number]) = Mark::Memory.words(&handle.0) else { return invalid(NO_MEMORY) };
        for (&start, foreign) in &mut self.sharing.foreign {
            match &mut foreign.origin {
                Origin::Handle { number: known, device: by, opened }
                    if (*known, *by) == (number, device) =>
                {
                    *opened = opened.saturating_add(1);
                    return Ok(DevicePtr(start));
                }
                _ => {}
            }
        }
        self.open_mem(device, &handle, number)
    }

    /// Maps memory of another process, for the device that opens it and no other (CONTRACT-126).
    fn open_mem(
        &mut self,
        device: DeviceId,
        handle: &IpcMemHandle,
        number: u64,
    ) -> Checked<DevicePtr> {
        let opened = Mark::Memory.open_file(&handle.0);
        let about = opened.as_ref().and_then(|file| About::read(file, Content::Memory));
        let Some((file, About { location, bytes, .. })) = opened.zip(about) else {
            return invalid(NO_MEMORY);
        };
        let owner = DeviceId(location.id);
        if location != Location::device(owner) || !self.topology.has_device(owner) {
            return bad_device("the memory is on a device that this machine does not have");
        }
        if device != owner && !self.can_access_peer(device, owner)? {
            return refuse(PEER_ACCESS_UNSUPPORTED, "the device is no peer of the memory's");
        }
        let whole = MEMORY_AT..MEMORY_AT + bytes.next_multiple_of(BLOCK_BYTES);
        if !file.has(&whole) {
            return invalid(NO_MEMORY);
        }
        let memory = Bytes { file: &file, parts: &[whole], first: 0, bytes };
        let origin = Origin::Handle { number, device, opened: 1 };
        self.enter_foreign(&memory, MemoryKind::Opened(device), origin)
    }

    /// `cuIpcCloseMemHandle`: as often as it was opened.
    pub(crate) fn ipc_close_mem_handle(&mut self, ptr: DevicePtr) -> Checked<()> {
        let found = self.sharing.foreign.get_mut(&ptr.0).map(|foreign| &mut foreign.origin);
        let Some(Origin::Handle { opened, .. }) = found else {
            return invalid("no handle was opened at the address");
        };
        *opened = opened.saturating_sub(1);
        if *opened == 0 {
            self.leave_foreign(ptr);
        }
        Ok(())
    }

    /// `cuIpcGetEventHandle`, of an event that was made for that. All work is complete when its call
    /// returns, so the file only says that the event lives.
    pub(crate) fn ipc_event_handle(
        &mut self,
        event: EventHandle,
    ) -> Checked<[u8; SHARED_BLOB_BYTES]> {
        self.streams.check_event(event)?;
        if let Some(file) = self.sharing.events.get(&event.as_raw()) {
            return Ok(Mark::Event.of_file(file));
        }
        let about = About {
            content: Content::Event,
            location: Location::HOST,
            bytes: 0,
            handle_types: HandleTypes::empty(),
        };
        let Ok(file) = about.create_file(MEMORY_AT) else {
            return refuse(Code::OUT_OF_MEMORY, NO_DESCRIPTOR);
        };
        let handle = Mark::Event.of_file(&file);
        self.sharing.events.insert(event.as_raw(), file);
        Ok(handle)
    }

    /// The checks of `cuIpcOpenEventHandle`: whether a handle names a live event of another process.
    pub(crate) fn check_ipc_event(&self, handle: &[u8; SHARED_BLOB_BYTES]) -> Checked<()> {
        if self.sharing.events.values().any(|file| Mark::Event.names(file, handle)) {
            return refuse(Code::INVALID_CONTEXT, "the event is of this process");
        }
        if Mark::Event.words(handle).is_none() {
            return invalid("the bytes are no handle of an event");
        }
        let is_event = |file: SharedFile| About::read(&file, Content::Event).is_some();
        match Mark::Event.open_file(handle).is_some_and(is_event) {
            true => Ok(()),
            false => bad_handle(NO_EVENT),
        }
    }

    /// An event is destroyed: its handle names nothing any more.
    pub(crate) fn withdraw_event(&mut self, event: EventHandle) {
        self.sharing.events.remove(&event.as_raw());
    }
}
