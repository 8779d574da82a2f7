//! Memory of a machine that other processes share: files that take the place of pages.

use std::io;
use std::ops::Range;

use pagewise_hal::PAGE_BYTES;

use super::segments::{Map, Segments};
use crate::shared_memory::{SharedFile, map_over, map_private};

/// Bytes of private memory that are copied to a shared file at once.
const COPIED_BYTES: usize = 1 << 20;

const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

impl Segments {
    /// Copies whole pages to a shared file, from an offset on, where there are zeros.
    ///
    /// # Errors
    /// If the host has no memory left.
    pub(super) fn copy_to_file(
        &self,
        addresses: &Range<u64>,
        file: &SharedFile,
        offset: u64,
    ) -> io::Result<()> {
        for address in addresses.clone().step_by(COPIED_BYTES) {
            let length = (addresses.end - address).min(COPIED_BYTES as u64);
            let mut bytes = vec![0; length as usize];
            self.read(address, &mut bytes);
            // Pages of zeros take no memory in the file.
            let is_zero = |page: &[u8]| *page == ZEROS[..page.len()];
            let pages: Vec<&[u8]> = bytes.chunks(PAGE_BYTES as usize).collect();
            let mut at = 0;
            for alike in pages.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
                let run = at..at + alike.iter().map(|page| page.len()).sum::<usize>();
                if !is_zero(alike[0]) {
                    let to = offset + (address - addresses.start) + at as u64;
                    file.write(to, &bytes[run.clone()])?;
                }
                at = run.end;
            }
        }
        Ok(())
    }

    /// Puts the bytes of a shared file at whole pages, in place of what they hold.
    ///
    /// # Errors
    /// If the host has no mapping left.
    pub(super) fn share(
        &mut self,
        addresses: &Range<u64>,
        file: &SharedFile,
        offset: u64,
    ) -> io::Result<()> {
        match &self.segment(addresses.start, addresses.end - addresses.start).map {
            // SAFETY: `segment` found the addresses in a mapping of this arena. What they hold is in
            // the file, or the memory was not handed out yet.
            Map::Private(_) => unsafe { map_over(addresses, file, offset)? },
            Map::Double(map) => file.map_in_views(map, addresses, offset)?,
        }
        self.shared.insert(addresses.start, addresses.clone());
        Ok(())
    }

    /// Takes addresses back from shared files: they have private memory of zeros. Other processes
    /// keep what they mapped.
    pub(super) fn reclaim(&mut self, addresses: &Range<u64>) {
        let inside: Vec<_> =
            self.shared.range(addresses.clone()).map(|(_, at)| at.clone()).collect();
        for part in inside {
            let bytes = part.end - part.start;
            let done = match &self.segment(part.start, bytes).map {
                // SAFETY: `segment` found the addresses in a mapping of this arena. An `unsafe` call
                // freed the memory, and its caller promised not to use it any more.
                Map::Private(_) => unsafe { map_private(&part) },
                Map::Double(map) => map.reclaim(&part),
            };
            self.shared.remove(&part.start);
            if done.is_err() {
                // The process has no mapping left. The addresses keep the file's memory.
                self.fill(part.start, bytes, &[0]);
            }
        }
    }
}
