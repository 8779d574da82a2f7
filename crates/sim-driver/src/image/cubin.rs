//! Cubins: machine code in ELF files. Their kernels and variables are read; no code is executed.
//!
//! The sections, and the attributes in `.nv.info`, are known from public descriptions and from files
//! that ptxas 13.0 wrote for `sm_75` and `sm_90`.

use std::collections::BTreeMap;

use object::LittleEndian as Little;
use object::elf::{
    EM_CUDA, FileHeader64, SHT_SYMTAB, STT_FUNC, STT_OBJECT, SectionHeader64, Sym64,
};
use object::read::SymbolIndex;
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, SectionTable, Sym as _};

use super::parts::{Kernel, Linkage, Parameter, Relocation, Space, Target, Variable};

/// `st_other` of kernels.
const IS_KERNEL: u8 = 0x10;
/// `st_other` of managed variables.
const IS_MANAGED: u8 = 0x04;

/// Attributes of `.nv.info`.
const MAX_THREADS: u8 = 0x05;
const REQUIRED_THREADS: u8 = 0x10;
const FRAME_SIZE: u8 = 0x11;
const PARAMETER: u8 = 0x17;
const REGISTERS: u8 = 0x2F;

/// The form of an attribute that has as many bytes as it says.
const HAS_SIZE: u8 = 4;

/// Bytes of shared memory that the system takes of each block, if the file has a section for them.
const RESERVED_BYTES: u64 = 1024;

/// The contents of a cubin.
#[derive(Debug, Default)]
pub(crate) struct Cubin {
    pub(crate) target: Target,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
}

/// The parts of a file that are looked up.
struct File<'a> {
    bytes: &'a [u8],
    sections: SectionTable<'a, FileHeader64<Little>>,
    by_name: BTreeMap<&'a [u8], &'a SectionHeader64<Little>>,
}

/// Reads a cubin; `None` if it is none, or damaged.
pub(crate) fn read(bytes: &[u8]) -> Option<Cubin> {
    let header = FileHeader64::<Little>::parse(bytes).ok()?;
    if header.e_machine(Little) != EM_CUDA {
        return None;
    }
    let flags = header.e_flags(Little);
    // Newer files have the compute capability one byte higher.
    let is_new = header.e_ident.abi_version >= 8;
    let capability = if is_new { flags >> 8 & 0xFF } else { flags & 0xFF };
    let sections = header.sections(Little, bytes).ok()?;
    let named = sections.iter().map(|one| (sections.section_name(Little, one), one));
    let by_name = named.filter_map(|(name, one)| Some((name.ok()?, one))).collect();
    let file = File { bytes, sections, by_name };
    let mut found = Cubin { target: Target::of_machine_code(capability), ..Cubin::default() };
    let symbols = file.sections.symbols(Little, bytes, SHT_SYMTAB).ok()?;
    let of_symbols = file.values_of_symbols();
    // The names of variables by their place, for relocations.
    let mut names = BTreeMap::new();
    let mut room = bytes.len();
    for (index, symbol) in symbols.enumerate() {
        let name = symbol.name(Little, symbols.strings()).ok()?;
        let Ok(name) = std::str::from_utf8(name) else { continue };
        if symbol.st_type() == STT_FUNC && symbol.st_other() & IS_KERNEL != 0 {
            found.kernels.push(file.kernel(name, index, &of_symbols));
        } else if symbol.st_type() == STT_OBJECT
            && let Some(variable) = file.variable(name, symbol)
        {
            // Symbols may not claim the same bytes again and again.
            room = room.checked_sub(variable.contents.len())?;
            names.insert(index.0, found.variables.len());
            found.variables.push(variable);
        }
    }
    file.relocate(&mut found.variables, &names, |index| {
        let symbol = symbols.symbol(SymbolIndex(index)).ok()?;
        Some(Place { section: symbol.st_shndx(Little), offset: symbol.st_value(Little) })
    });
    Some(found)
}

/// A place in a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    section: u16,
    offset: u64,
}

/// A number of up to 8 bytes.
fn number(bytes: &[u8], offset: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

fn number32(bytes: &[u8], offset: usize) -> Option<u32> {
    u32::try_from(number(bytes, offset, 4)?).ok()
}

/// The attributes of an `.nv.info` section that have contents.
fn attributes(mut info: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let Some(&[form, attribute, low, high]) = info.first_chunk() {
        let bytes = if form == HAS_SIZE { usize::from(u16::from_le_bytes([low, high])) } else { 0 };
        let end = bytes.saturating_add(4);
        let Some(contents) = info.get(4..end) else { break };
        if form == HAS_SIZE {
            found.push((attribute, contents));
        }
        info = info.get(end..).unwrap_or_default();
    }
    found
}

impl<'a> File<'a> {
    /// The bytes of a section; none if it does not exist or has none in the file.
    fn section(&self, name: &str) -> &'a [u8] {
        let section = self.by_name.get(name.as_bytes());
        section.and_then(|section| section.data(Little, self.bytes).ok()).unwrap_or_default()
    }

    /// Registers and frame sizes, by attribute and symbol.
    fn values_of_symbols(&self) -> BTreeMap<(u8, usize), u32> {
        let values = attributes(self.section(".nv.info")).into_iter();
        let value = |(attribute, contents): (u8, &[u8])| {
            let symbol = number32(contents, 0)? as usize;
            Some(((attribute, symbol), number32(contents, 4)?))
        };
        values.filter_map(value).collect()
    }

    fn kernel(
        &self,
        name: &str,
        SymbolIndex(index): SymbolIndex,
        of_symbols: &BTreeMap<(u8, usize), u32>,
    ) -> Kernel {
        let mut kernel = Kernel::new(name);
        kernel.registers = of_symbols.get(&(REGISTERS, index)).copied();
        kernel.local_bytes = of_symbols.get(&(FRAME_SIZE, index)).copied().unwrap_or(0).into();
        let shared = self.by_name.get(format!(".nv.shared.{name}").as_bytes());
        let shared = shared.map_or(0, |section| section.sh_size(Little));
        let has_reserved = self.by_name.contains_key(b".nv.shared.reserved.0".as_slice());
        let reserved = if has_reserved { RESERVED_BYTES } else { 0 };
        kernel.shared_bytes = shared.saturating_sub(reserved);
        let mut parameters = BTreeMap::new();
        for (attribute, contents) in attributes(self.section(&format!(".nv.info.{name}"))) {
            let three = || -> Option<[u32; 3]> {
                Some([number32(contents, 0)?, number32(contents, 4)?, number32(contents, 8)?])
            };
            match attribute {
                MAX_THREADS => kernel.max_block = three(),
                REQUIRED_THREADS => kernel.required_block = three(),
                PARAMETER => {
                    let place = number(contents, 4, 2).zip(number(contents, 6, 2));
                    if let Some((ordinal, offset)) = place {
                        // The size begins at bit 18.
                        let bytes = number(contents, 8, 4).unwrap_or_default() >> 18;
                        parameters.insert(ordinal, Parameter { offset, bytes });
                    }
                }
                _ => {}
            }
        }
        kernel.parameters = parameters.into_values().collect();
        kernel
    }

    /// A variable, if the symbol is one with memory.
    fn variable(&self, name: &str, symbol: &Sym64<Little>) -> Option<Variable> {
        let index = object::read::SectionIndex(usize::from(symbol.st_shndx(Little)));
        let section = self.sections.section(index).ok()?;
        let of_section = self.sections.section_name(Little, section).ok()?;
        let space = if of_section.starts_with(b".nv.global") {
            Space::Global
        } else if of_section == b".nv.constant3" {
            Space::Constant
        } else {
            return None;
        };
        let (offset, bytes) = (symbol.st_value(Little), symbol.st_size(Little));
        let all = section.data(Little, self.bytes).unwrap_or_default();
        let start = usize::try_from(offset).ok()?;
        let end = start.saturating_add(usize::try_from(bytes).ok()?);
        let mut contents = all.get(start..end).unwrap_or_default().to_vec();
        let used = contents.iter().rposition(|byte| *byte != 0);
        contents.truncate(used.map_or(0, |last| last.saturating_add(1)));
        Some(Variable {
            name: name.to_owned(),
            space,
            is_managed: symbol.st_other() & IS_MANAGED != 0,
            linkage: Linkage::Visible,
            align: section.sh_addralign(Little).clamp(1, 1 << 20).next_power_of_two(),
            bytes,
            contents,
            relocations: Vec::new(),
        })
    }

    /// Notes the addresses in variables.
    fn relocate(
        &self,
        variables: &mut [Variable],
        names: &BTreeMap<usize, usize>,
        place: impl Fn(usize) -> Option<Place>,
    ) {
        // Variables with contents by their place.
        let places = names.iter().filter_map(|(index, variable)| {
            let Place { section, offset } = place(*index)?;
            Some(((section, offset), *variable))
        });
        let places: BTreeMap<(u16, u64), usize> = places.collect();
        for section in self.sections.iter() {
            let Ok(Some((relocations, _))) = section.rela(Little, self.bytes) else { continue };
            let of = u16::try_from(section.sh_info(Little)).unwrap_or_default();
            for one in relocations {
                // An address of 32 or 64 bits, in its space or a generic one.
                let bytes = match one.r_type(Little, false) {
                    1 | 3 => 4,
                    2 | 4 => 8,
                    _ => continue,
                };
                let at = one.r_offset(Little);
                let holder = places.range((of, 0)..=(of, at)).next_back();
                let symbol = one.r_sym(Little, false) as usize;
                let symbol = names.get(&symbol).and_then(|index| variables.get(*index));
                let Some((((_, start), holder), symbol)) = holder.zip(symbol) else { continue };
                let (symbol, offset) = (symbol.name.clone(), at.saturating_sub(*start));
                let addend = one.r_addend(Little).cast_unsigned();
                let Some(holder) = variables.get_mut(*holder) else { continue };
                if offset.saturating_add(bytes as u64) <= holder.bytes {
                    let relocation = Relocation { offset, bytes, symbol, addend, shift: 0 };
                    holder.relocations.push(relocation);
                }
            }
        }
    }
}
