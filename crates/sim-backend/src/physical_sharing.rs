//! Physical memory of virtual memory management for other processes.
//!
//! Imported memory has a handle of its own, in the process that exported it too. Where no rule of
//! the contract says more, the answers are guesses (CONTRACT-124).

use pagewise_hal::{AllocationType, Code, HandleTypes, MemoryHandle, MemoryProps, ShareableHandle};

use crate::refusal::{Checked, bad_device, invalid, refuse, unsupported};
use crate::shared_memory::{HAS_FILES, SharedFile};
use crate::shared_words::{About, Content, MEMORY_AT};
use crate::sharing::check_handle_type;
use crate::sim::Sim;
use crate::virtual_memory::NO_MEMORY;

const NO_EXPORT: &str = "the process has no descriptor or no memory left for an export";

impl Sim {
    /// `cuMemExportToShareableHandle`: the bytes move into a file.
    pub(crate) fn memory_export(
        &mut self,
        memory: MemoryHandle,
        kind: HandleTypes,
    ) -> Checked<ShareableHandle> {
        self.check_manages_virtual_memory()?;
        let Some(physical) = self.mappings.held(memory.as_raw()) else {
            return invalid(NO_MEMORY);
        };
        let MemoryProps { location, handle_types, .. } = physical.props;
        if kind.is_empty() || !handle_types.contains(kind) {
            return invalid("the memory was not made with this handle type");
        }
        check_handle_type(kind)?;
        if !HAS_FILES {
            return unsupported("memory is exported on Linux only");
        }
        if physical.file.is_none() {
            let bytes = physical.bytes;
            let about = About { content: Content::Physical, location, bytes, handle_types };
            let file_bytes = MEMORY_AT.saturating_add(bytes);
            let exported = about
                .create_file(file_bytes)
                .and_then(|file| self.mappings.export(&mut self.arena, memory.as_raw(), file));
            if exported.is_err() {
                return refuse(Code::OUT_OF_MEMORY, NO_EXPORT);
            }
        }
        let file = self.mappings.held(memory.as_raw()).and_then(|memory| memory.file.as_ref());
        let handle = file.and_then(|file| file.duplicate().ok());
        handle.map_or_else(|| refuse(Code::OUT_OF_MEMORY, NO_EXPORT), Ok)
    }

    /// `cuMemImportFromShareableHandle`: memory of any process.
    pub(crate) fn memory_import(
        &mut self,
        handle: ShareableHandle,
        kind: HandleTypes,
    ) -> Checked<MemoryHandle> {
        self.check_manages_virtual_memory()?;
        check_handle_type(kind)?;
        let opened = SharedFile::of_descriptor(handle);
        let about = opened.as_ref().and_then(|file| About::read(file, Content::Physical));
        let Some((file, About { location, bytes, handle_types, .. })) = opened.zip(about) else {
            return refuse(Code::UNKNOWN, "the handle is no memory of a process of this host");
        };
        let is_whole = bytes.is_multiple_of(pagewise_hal::BLOCK_BYTES);
        if !is_whole || !file.has(&(MEMORY_AT..MEMORY_AT.saturating_add(bytes))) {
            return refuse(Code::UNKNOWN, "the handle is no memory of a process of this host");
        }
        let Ok(home) = self.topology.processor(location) else {
            return bad_device("the memory is of a place that this machine does not have");
        };
        let props = MemoryProps { allocation_type: AllocationType::PINNED, location, handle_types };
        Ok(MemoryHandle::checked(self.mappings.import(bytes, props, home, file)))
    }
}
