//! Matrices between memory and the registers of a warp.

use super::access::{Blocked, Wanted, read, write};
use super::block::Common;
use super::engine::Engine;
use super::memory::Kind;
use super::registers::lanes;
use super::warp::{Fragment, Warp};
use crate::code::{Lanes, Layout, MatrixAccess, Op, Place, Tiles, WIDTH, active};

/// The most bytes of a matrix.
const BYTES_MAX: usize = 1024;

/// The bytes of a matrix, without gaps.
type Bytes = [u8; BYTES_MAX];

/// Where the elements of a part of a register are among those of their matrix, which follow one
/// another in its lines or across them.
struct Places {
    start: usize,
    line: usize,
    step: usize,
}

impl Places {
    #[inline(always)]
    fn of(layout: Layout, along_lines: bool, register: usize, part: usize) -> Self {
        let (line, place) = layout.origin(register, part);
        let (lines, places) = if along_lines { (layout.length, 1) } else { (1, layout.lines) };
        Self { start: line * lines + place * places, line: lines, step: layout.adjacent * places }
    }

    #[inline(always)]
    fn lane(&self, lane: usize) -> usize {
        self.start + lane / 4 * self.line + lane % 4 * self.step
    }
}

/// The pieces of a matrix in memory: lines of adjacent elements, each in parts of up to 16 bytes.
struct Pieces {
    place: Place,
    base: u64,
    /// The bytes from one line to the next.
    apart: u64,
    /// The pieces of a line.
    each: usize,
    bytes: usize,
    count: usize,
}

impl Pieces {
    /// A line may begin at any multiple of an element; most begin at one of 16 bytes.
    fn of((place, access): (Place, MatrixAccess), base: u64, stride: u32) -> Self {
        let Layout { lines, length, .. } = access.layout();
        let (lines, elements) = if access.along { (lines, length) } else { (length, lines) };
        let line = elements * usize::from(access.bytes);
        let apart = u64::from(stride) * u64::from(access.bytes);
        let aligned = 1 << (base | apart | 16).trailing_zeros();
        let bytes = aligned.max(usize::from(access.bytes));
        Self { place, base, apart, each: line / bytes, bytes, count: lines * line / bytes }
    }
}

/// The next piece of a walk: where its line begins, and its number there.
struct Next {
    line: u64,
    part: usize,
}

impl Next {
    /// The address of the piece. The one behind it is the next.
    #[inline(always)]
    fn take(&mut self, pieces: &Pieces) -> u64 {
        let address = self.line.wrapping_add((self.part * pieces.bytes) as u64);
        self.part += 1;
        if self.part == pieces.each {
            (self.line, self.part) = (self.line.wrapping_add(pieces.apart), 0);
        }
        address
    }
}

/// The words of a row of a matrix, if the four lanes of a tile's row have words that follow one another.
fn words_of_rows(access: MatrixAccess) -> Option<usize> {
    let (layout, bytes) = (access.layout(), usize::from(access.bytes));
    let are_adjacent = layout.adjacent * bytes == 4 && layout.packed * bytes == 4;
    (access.along && are_adjacent).then(|| layout.length * bytes / 4)
}

/// Where the elements of a part of a register are in a matrix without gaps.
#[inline(always)]
fn places_of(access: MatrixAccess, register: usize, part: usize) -> Places {
    Places::of(access.layout(), access.along, register, part)
}

/// The words of a tile that begins at a byte of a matrix with so many words in a row.
#[inline(always)]
fn rows_of(matrix: &Bytes, first: usize, words: usize) -> [u32; WIDTH] {
    let mut values = [0; WIDTH];
    for row in 0..WIDTH / 4 {
        let at = first + row * words * 4;
        let mut four = [0; 16];
        four.copy_from_slice(&matrix[at..at + 16]);
        for lane in 0..4 {
            let [a, b, c, d] = [4 * lane, 4 * lane + 1, 4 * lane + 2, 4 * lane + 3];
            values[4 * row + lane] = u32::from_le_bytes([four[a], four[b], four[c], four[d]]);
        }
    }
    values
}

/// The values of a register in a matrix of elements of `N` bytes.
fn elements_of<const N: usize>(
    access: MatrixAccess,
    register: usize,
    matrix: &Bytes,
) -> [u32; WIDTH] {
    let mut values = [0; WIDTH];
    for part in 0..access.layout().packed {
        let places = places_of(access, register, part);
        for (lane, value) in values.iter_mut().enumerate() {
            let mut element = [0; 4];
            element[..N].copy_from_slice(&matrix[places.lane(lane) * N..][..N]);
            *value |= u32::from_le_bytes(element) << (8 * N * part);
        }
    }
    values
}

/// Puts the values of a register into a matrix of elements of up to 4 bytes.
fn store(access: MatrixAccess, register: usize, values: &[u32; WIDTH], matrix: &mut Bytes) {
    let bytes = usize::from(access.bytes);
    for part in 0..access.layout().packed {
        let places = places_of(access, register, part);
        for (lane, value) in values.iter().enumerate() {
            let element = (value >> (8 * bytes * part)).to_le_bytes();
            matrix[places.lane(lane) * bytes..][..bytes].copy_from_slice(&element[..bytes]);
        }
    }
}

/// Reads a piece of a matrix, or a line of it, from memory, or writes it there, by `N` bytes at a time.
///
/// # Safety
/// As for [`read`], or [`write`].
#[inline(always)]
unsafe fn move_parts<const N: usize>(mut pointer: *mut u8, piece: &mut [u8], is_store: bool) {
    for part in piece.as_chunks_mut::<N>().0 {
        let mut value = [0; 8];
        if is_store {
            // As an array: a copy of a slice is a call in some builds.
            if let Some(low) = value.first_chunk_mut() {
                *low = *part;
            }
            // SAFETY: the caller says that the piece's bytes may be written there.
            unsafe { write(pointer, N as u8, u64::from_le_bytes(value)) };
        } else {
            // SAFETY: the caller says that the piece's bytes are there.
            value = unsafe { read(pointer, N as u8) }.to_le_bytes();
            if let Some(low) = value.first_chunk() {
                *part = *low;
            }
        }
        pointer = pointer.wrapping_add(N);
    }
}

/// As [`move_parts`], by up to `width` bytes at a time.
///
/// # Safety
/// As for [`read`], or [`write`].
#[inline(always)]
unsafe fn move_piece(pointer: *mut u8, piece: &mut [u8], width: usize, is_store: bool) {
    // SAFETY: the caller promises what the functions ask for.
    unsafe {
        match width {
            1 => move_parts::<1>(pointer, piece, is_store),
            2 => move_parts::<2>(pointer, piece, is_store),
            4 => move_parts::<4>(pointer, piece, is_store),
            // Accesses are of 8 bytes at most.
            _ => move_parts::<8>(pointer, piece, is_store),
        }
    }
}

/// Writes the registers of a load.
fn set_registers(lanes: &mut Lanes<'_>, op: &Op, access: MatrixAccess, matrix: &Bytes) {
    let (layout, bytes) = (access.layout(), usize::from(access.bytes));
    let (once, rows) = (layout.registers(), words_of_rows(access));
    let (mut line, mut place) = (0, 0);
    for register in 0..usize::from(access.registers) {
        if bytes == 8 {
            let places = places_of(access, register, 0);
            let values = std::array::from_fn(|lane| {
                let element = matrix[places.lane(lane) * bytes..].first_chunk();
                u64::from_le_bytes(*element.unwrap_or(&[0; 8]))
            });
            lanes.set_double(op.result(register), &values);
        } else if register >= once {
            let values = *lanes.word(op.result(register - once));
            lanes.set_word(op.result(register), &values);
        } else if let Some(words) = rows {
            let values = rows_of(matrix, (line * layout.length + place) * bytes, words);
            lanes.set_word(op.result(register), &values);
            (line, place) = layout.next_tile(line, place);
        } else {
            let values = match bytes {
                1 => elements_of::<1>(access, register, matrix),
                2 => elements_of::<2>(access, register, matrix),
                _ => elements_of::<4>(access, register, matrix),
            };
            lanes.set_word(op.result(register), &values);
        }
    }
}

/// The matrix in the registers of a store.
fn matrix_of(lanes: &Lanes<'_>, op: &Op, access: MatrixAccess) -> Bytes {
    let mut matrix = [0; BYTES_MAX];
    for register in 0..usize::from(access.registers) {
        let source = op.source(2 + register);
        if access.bytes < 8 {
            store(access, register, lanes.word(source), &mut matrix);
            continue;
        }
        let places = places_of(access, register, 0);
        for (lane, value) in lanes.double(source).iter().enumerate() {
            matrix[places.lane(lane) * 8..][..8].copy_from_slice(&value.to_le_bytes());
        }
    }
    matrix
}

impl Engine<'_> {
    /// `wmma.load`, `wmma.store`: all lanes give the same address and stride.
    pub(super) fn matrix(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (place, access, mask): (Place, MatrixAccess, u32),
    ) -> Result<(), Blocked> {
        let (program, frame) = (self.program, &fragment.frame);
        let first = mask.trailing_zeros() as usize % WIDTH;
        let sources = lanes(program, warp, frame, mask);
        let (base, stride) =
            (sources.double(op.source(0))[first], sources.word(op.source(1))[first]);
        let pieces = Pieces::of((place, access), base, stride);
        if access.store {
            let mut matrix = matrix_of(&sources, op, access);
            return self.move_pieces(common, warp, fragment, (access, &pieces), &mut matrix);
        }
        let mut matrix = [0; BYTES_MAX];
        self.move_pieces(common, warp, fragment, (access, &pieces), &mut matrix)?;
        set_registers(&mut lanes(program, warp, frame, mask), op, access, &matrix);
        Ok(())
    }

    /// Moves a matrix by lines, if one region has them all.
    fn move_lines(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        (wanted, pieces): (Wanted, &Pieces),
        matrix: &mut Bytes,
    ) -> Option<()> {
        let region = self.reach.region(common, warp, &fragment.frame, pieces.base, wanted)?;
        let (lines, line) = (pieces.count / pieces.each, pieces.each * pieces.bytes);
        let offset = pieces.base.wrapping_sub(region.start);
        let span = pieces.apart * (lines as u64 - 1) + line as u64;
        let is_inside = offset.checked_add(span)? <= region.bytes.into();
        let is_aligned = (pieces.base | pieces.apart).is_multiple_of(u64::from(wanted.bytes));
        if region.apart != 0 || !is_inside || !is_aligned {
            return None;
        }
        let mut pointer = region.host.wrapping_add(offset as usize);
        for part in matrix.chunks_exact_mut(line).take(lines) {
            // SAFETY: the region has the bytes of all lines, to write if this is a store.
            unsafe { move_piece(pointer, part, pieces.bytes, wanted.kind == Kind::Write) };
            pointer = pointer.wrapping_add(pieces.apart as usize);
        }
        if region.is_counted {
            self.reach.count(wanted, pieces.count as u64);
        }
        Some(())
    }

    /// Moves the pieces of a matrix that need not wait. If one must, all are moved again later, which
    /// writes the same bytes.
    fn move_pieces(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        (access, pieces): (MatrixAccess, &Pieces),
        matrix: &mut Bytes,
    ) -> Result<(), Blocked> {
        let kind = if access.store { Kind::Write } else { Kind::Read };
        let (place, bytes) = (pieces.place, pieces.bytes as u32);
        let wanted = Wanted { place, bytes, kind, mask: u32::MAX };
        if self.move_lines(common, warp, fragment, (wanted, pieces), matrix).is_some() {
            return Ok(());
        }
        let (mut waits, mut next) = (false, Next { line: pieces.base, part: 0 });
        for first in (0..pieces.count).step_by(WIDTH) {
            let here = WIDTH.min(pieces.count - first);
            let mask = u32::MAX >> (WIDTH - here);
            let mut addresses = [0; WIDTH];
            for address in &mut addresses[..here] {
                *address = next.take(pieces);
            }
            let wanted = Wanted { mask, ..wanted };
            let places = match self.reach.places(common, warp, fragment, &addresses, wanted) {
                Ok(places) => places.pointers,
                Err(Blocked::Memory) => {
                    waits = true;
                    continue;
                }
                Err(trap) => return Err(trap),
            };
            let parts = matrix.chunks_exact_mut(pieces.bytes).skip(first);
            for (pointer, part) in places[..here].iter().zip(parts) {
                // SAFETY: `places` gave the pointer for as many bytes, to write if this is a store.
                unsafe { move_piece(*pointer, part, pieces.bytes, access.store) };
            }
        }
        if waits { Err(Blocked::Memory) } else { Ok(()) }
    }

    /// `ldmatrix`, `stmatrix`: each lane gives the address of one row.
    pub(super) fn tiles(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        tiles: Tiles,
        mask: u32,
    ) -> Result<(), Blocked> {
        let count = usize::from(tiles.count);
        let rows = mask & (u64::MAX >> (64 - 8 * count)) as u32;
        let (program, frame) = (self.program, &fragment.frame);
        let addresses =
            lanes(program, warp, frame, mask).addresses(op.source(0), op.imm, tiles.wide);
        let kind = if tiles.store { Kind::Write } else { Kind::Read };
        let wanted = Wanted { place: tiles.place, bytes: 16, kind, mask: rows };
        let pointers = self.reach.places(common, warp, fragment, &addresses, wanted)?.pointers;
        let mut lanes = lanes(program, warp, frame, mask);
        let mut halves = [[0_u16; 8]; WIDTH];
        // The row and the column of a lane's first and second element of a matrix.
        let spot = |lane: usize, part: usize| {
            let (line, place) = (lane / 4, lane % 4 * 2 + part);
            if tiles.transposed { (place, line) } else { (line, place) }
        };
        if tiles.store {
            for matrix in 0..count {
                let values = lanes.word(op.source(matrix + 1));
                for (lane, value) in values.iter().enumerate() {
                    for part in 0..2 {
                        let (row, column) = spot(lane, part);
                        halves[matrix * 8 + row][column] = (value >> (16 * part)) as u16;
                    }
                }
            }
            for lane in active(rows) {
                for (at, half) in halves[lane].iter().enumerate() {
                    // SAFETY: `places` gave the pointer for 16 bytes to write.
                    unsafe { write(pointers[lane].wrapping_add(2 * at), 2, u64::from(*half)) };
                }
            }
            return Ok(());
        }
        for lane in active(rows) {
            for (at, half) in halves[lane].iter_mut().enumerate() {
                // SAFETY: `places` gave the pointer for 16 bytes.
                *half = unsafe { read(pointers[lane].wrapping_add(2 * at), 2) } as u16;
            }
        }
        for matrix in 0..count {
            let half = |lane, part| {
                let (row, column) = spot(lane, part);
                u32::from(halves[matrix * 8 + row][column])
            };
            let values = std::array::from_fn(|lane| half(lane, 0) | half(lane, 1) << 16);
            lanes.set_word(op.result(matrix), &values);
        }
        Ok(())
    }
}
