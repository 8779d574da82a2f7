//! Launches of kernels in a trace: their accesses, packed.

use std::io::Read as _;

use pagewise_hal::{DeviceId, KernelWork, RecordedBlocks, RecordedLaunch, Span};
use serde::{Deserialize, Serialize};

use super::{Part, Stream};

/// The compression of the accesses of a launch: a fast level of zstd.
const LEVEL: i32 = 3;

/// The digits of packed bytes: base64 of RFC 4648, without padding.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A launch of a kernel, by its accesses: [`RecordedLaunch`] with buffers in place of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The device.
    pub device: i32,
    /// The stream; the device's own non-blocking one if there is none.
    pub stream: Option<Stream>,
    /// Shape, resources and instructions.
    pub shape: LaunchShape,
    /// The memory that accesses are within.
    pub ranges: Vec<Part>,
    /// The accesses.
    pub accesses: PackedAccesses,
}

/// The parts of a launch that are no memory. Unknown fields are ignored, as in a line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaunchShape {
    /// The kernel's name.
    #[serde(default)]
    pub kernel: String,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Registers of a thread.
    #[serde(default)]
    pub registers: u32,
    /// Bytes of shared memory of a block.
    #[serde(default)]
    pub shared_bytes: u32,
    /// Multiprocessors of the device, and the blocks that each held.
    pub multiprocessors: u32,
    /// Blocks that each multiprocessor held.
    pub blocks_each: u32,
    /// The instructions of warps. Counts that are 0 may be missing.
    #[serde(default)]
    pub work: KernelWork,
}

/// The accesses of a launch, compressed: zstd in base64, with the length of what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PackedAccesses {
    /// The bytes that there are when they are unpacked.
    bytes: u64,
    packed: String,
}

impl PackedAccesses {
    /// Packs the accesses of a launch.
    #[must_use]
    pub fn pack(accesses: &[u8]) -> Self {
        // Compression into memory fails for levels that zstd does not have, and for none that it has.
        let compressed = zstd::bulk::compress(accesses, LEVEL).unwrap_or_default();
        Self { bytes: accesses.len() as u64, packed: to_text(&compressed) }
    }

    /// How many bytes there are when they are unpacked.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The length of the text that holds them.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        self.packed.len() as u64
    }

    /// The accesses.
    ///
    /// # Errors
    /// The reason: they are longer than a launch may have or than they say, or the text is damaged.
    pub fn unpack(&self) -> Result<Vec<u8>, &'static str> {
        if self.bytes > RecordedLaunch::ACCESSES_MAX as u64 {
            return Err("more than 32 MiB of accesses");
        }
        let damaged = "the accesses are not zstd in base64";
        let compressed = from_text(&self.packed).ok_or(damaged)?;
        let decoder = zstd::stream::read::Decoder::new(&compressed[..]).map_err(|_| damaged)?;
        let mut accesses = Vec::new();
        let read = decoder.take(self.bytes.saturating_add(1)).read_to_end(&mut accesses);
        read.map_err(|_| damaged)?;
        if accesses.len() as u64 == self.bytes {
            Ok(accesses)
        } else {
            Err("the accesses are not as long as they say")
        }
    }
}

impl Launch {
    /// A launch as a back end observed it. `part` names memory.
    pub(crate) fn of(
        launch: &RecordedLaunch,
        stream: Option<Stream>,
        part: impl Fn(Span) -> Part,
    ) -> Self {
        let shape = LaunchShape {
            kernel: launch.kernel.clone(),
            grid: launch.grid,
            block: launch.block,
            registers: launch.registers,
            shared_bytes: launch.shared_bytes,
            multiprocessors: launch.multiprocessors,
            blocks_each: launch.blocks_each,
            work: launch.work,
        };
        let ranges = launch.ranges.iter().map(|range| part(*range)).collect();
        let accesses = PackedAccesses::pack(&launch.accesses);
        Self { device: launch.device.0, stream, shape, ranges, accesses }
    }

    /// The launch for a back end, with the memory that its ranges name.
    ///
    /// # Errors
    /// As [`PackedAccesses::unpack`].
    pub fn unpack(&self, span: impl Fn(Part) -> Span) -> Result<RecordedLaunch, &'static str> {
        let accesses = self.accesses.unpack()?;
        let LaunchShape { kernel, grid, block, registers, shared_bytes, .. } = self.shape.clone();
        let LaunchShape { multiprocessors, blocks_each, work, .. } = self.shape;
        Ok(RecordedLaunch {
            device: DeviceId(self.device),
            kernel,
            grid,
            block,
            registers,
            shared_bytes,
            multiprocessors,
            blocks_each,
            work,
            ranges: self.ranges.iter().map(|part| span(*part)).collect(),
            accesses,
        })
    }

    /// Checks that the accesses can be read.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let launch = self.unpack(|part| Span::new(pagewise_hal::DevicePtr::NULL, part.bytes))?;
        launch.check()?;
        RecordedBlocks::new(&launch.accesses).try_for_each(|block| block.map(drop))
    }
}

fn to_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for chunk in bytes.chunks(3) {
        let all = chunk.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
        let all = all << (24_usize.saturating_sub(chunk.len().saturating_mul(8)));
        for digit in 0..=chunk.len() {
            let shift = 18_usize.saturating_sub(digit.saturating_mul(6));
            text.push(char::from(DIGITS[(all >> shift & 63) as usize]));
        }
    }
    text
}

fn from_text(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    for chunk in text.as_bytes().chunks(4) {
        let mut all = 0_u32;
        for digit in chunk {
            let value = match digit {
                b'A'..=b'Z' => digit.wrapping_sub(b'A'),
                b'a'..=b'z' => digit.wrapping_sub(b'a').wrapping_add(26),
                b'0'..=b'9' => digit.wrapping_sub(b'0').wrapping_add(52),
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            all = all << 6 | u32::from(value);
        }
        let count = chunk.len().checked_sub(1).filter(|count| *count > 0)?;
        let all = all << (24_usize.saturating_sub(chunk.len().saturating_mul(6)));
        bytes.extend(all.to_be_bytes().iter().skip(1).take(count));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_come_out_as_they_went_in() {
        for length in [0, 1, 2, 3, 4, 5, 100, 5000] {
            let bytes: Vec<u8> = (0..length).map(|at: u32| ((at * at) >> 3) as u8).collect();
            let packed = PackedAccesses::pack(&bytes);
            assert_eq!((packed.unpack(), packed.len()), (Ok(bytes), u64::from(length)));
        }
        for text in ["", "A", "AB", "ABC", "/+09"] {
            let bytes = from_text(text);
            assert_eq!(bytes.is_none(), text.len() % 4 == 1, "{text}");
        }
    }

    #[test]
    fn what_unpacks_to_more_than_it_says_is_refused() {
        let bomb = PackedAccesses { bytes: 10, ..PackedAccesses::pack(&vec![0; 16 << 20]) };
        assert!(bomb.text_bytes() < 4096);
        assert_eq!(bomb.unpack(), Err("the accesses are not as long as they say"));
        let much = PackedAccesses { bytes: 1 << 40, ..bomb };
        assert_eq!(much.unpack(), Err("more than 32 MiB of accesses"));
        let damaged = PackedAccesses { bytes: 10, packed: "Ü".to_owned() };
        assert!(damaged.unpack().is_err());
    }
}
