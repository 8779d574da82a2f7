//! Memory that other processes map too: anonymous files.
//!
//! Memory of a machine is private until a call exports it. Then its bytes move into an anonymous
//! file (`memfd_create`), which is mapped at the addresses that the memory has. Another process
//! opens the file and maps it at addresses of its own. The kernel keeps the bytes until no process
//! has the file open or mapped, so a process that dies takes nothing from another one.
//!
//! | export | file | how another process finds it |
//! | --- | --- | --- |
//! | a pool (`cuMemPoolExportToShareableHandle`) | one, with a header that says where its memory lies | by a descriptor, over a Unix socket or by inheritance |
//! | memory of a pool (`cuMemPoolExportPointer`) | that of its pool, in units of 32 MiB | by the number of its record in the header |
//! | memory of `cuMemAlloc` (`cuIpcGetMemHandle`) | one for each allocation | by `/proc/PID/fd/N` and the file's number |
//! | memory of `cuMemCreate` (`cuMemExportToShareableHandle`) | one for each memory | by a descriptor |
//! | an event (`cuIpcGetEventHandle`) | one for each, without memory | as memory of `cuMemAlloc` |
//!
//! # No lock, no trust
//! Only the exporter writes the header. A record of 32 bytes is written at once, with a check word,
//! so a reader sees all of it or none. Nothing waits for another process.
//!
//! An importer takes every number in a file for hostile. It maps only files that can never become
//! shorter (`F_SEAL_SHRINK`), and only bytes that they have, so no access ends in `SIGBUS`. An
//! exporter never reads what it wrote: importers can write the file.
//!
//! # Memory that goes while it is imported
//! The exporter of a pool gives memory back in units of 32 MiB. An importer holds a read lock on
//! those that it maps, of its own open file (`F_OFD_SETLK`), and the kernel drops the lock when the
//! importer dies. The exporter uses a unit of the file again only when there is no such lock.
//!
//! # Elsewhere
//! Systems other than Linux on x86-64 and aarch64, and Miri, have no such files. Exports work
//! there, and only the machine that made them imports them (`elsewhere`).

mod file;
mod locks;
mod map;

/// Whether exported memory is in files, and other processes import it.
pub(crate) const HAS_FILES: bool = true;

pub(crate) use file::SharedFile;
pub(crate) use map::{map_over, map_private};
