//! One line of the file as it stands there: every field of every operation, all optional.
//!
//! Reading goes line → [`RawLine`] → typed operation in two steps because a tagged enum would
//! make serde buffer each line, which costs time and the name of the offending field.

use std::collections::BTreeMap;
use std::fmt;

use pagewise_hal::{CopyAttributes, CopyFlags, SourceOrder};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::launch::{LaunchShape, PackedAccesses};
use super::observed::{Attributes, MemoryRecord, PageMap, Timing};

/// A name, or the raw integer of a value that has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum NameOrInt {
    Int(i32),
    Name(String),
}

impl<'de> Deserialize<'de> for NameOrInt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = NameOrInt;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or a 32-bit integer")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<NameOrInt, E> {
                Ok(NameOrInt::Name(name.to_owned()))
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<NameOrInt, E> {
                i32::try_from(value).map(NameOrInt::Int).map_err(|_| out_of_range(value))
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<NameOrInt, E> {
                i32::try_from(value).map(NameOrInt::Int).map_err(|_| out_of_range(value))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn out_of_range<E: serde::de::Error>(value: impl fmt::Display) -> E {
    E::custom(format_args!("{value} does not fit 32 bits"))
}

/// A location in any of its three spellings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct RawLocation {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ordinal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) raw_type: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<i32>,
}

/// The accesses of a kernel to one argument. Unknown fields are ignored, as in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RawWalk {
    pub(crate) access: String,
    pub(crate) ranges: Vec<(i64, u64, u64, u64)>,
}

/// The attributes of copies. Unknown fields are ignored, as in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RawCopyAttributes {
    pub(crate) order: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source_hint: Option<RawLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) destination_hint: Option<RawLocation>,
    #[serde(default)]
    pub(crate) flags: u32,
}

impl RawCopyAttributes {
    /// The typed attributes without the hints, which need the reader's errors.
    pub(super) fn without_hints(&self) -> CopyAttributes {
        CopyAttributes {
            source_order: SourceOrder(self.order),
            flags: CopyFlags::from_bits_retain(self.flags),
            ..CopyAttributes::default()
        }
    }
}

macro_rules! raw_line {
    ($($field:ident: $kind:ty,)*) => {
        /// The fields in the order in which the writer puts them.
        #[derive(Debug, Default)]
        pub(crate) struct RawLine {
            $(pub(crate) $field: Option<$kind>,)*
        }

        #[derive(Deserialize)]
        #[serde(field_identifier)]
        #[allow(non_camel_case_types, reason = "the variants are the names in the file")]
        enum Key {
            $($field,)*
            #[serde(other)]
            Unknown,
        }

        impl<'de> Deserialize<'de> for RawLine {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Line;
                impl<'de> Visitor<'de> for Line {
                    type Value = RawLine;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<RawLine, M::Error> {
                        let mut line = RawLine::default();
                        while let Some(key) = map.next_key()? {
                            match key {
                                $(Key::$field => set(&mut line.$field, stringify!($field), &mut map)?,)*
                                Key::Unknown => _ = map.next_value::<IgnoredAny>()?,
                            }
                        }
                        Ok(line)
                    }
                }
                deserializer.deserialize_map(Line)
            }
        }

        impl Serialize for RawLine {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                $(if let Some(value) = &self.$field {
                    map.serialize_entry(stringify!($field), value)?;
                })*
                map.end()
            }
        }
    };
}

/// Reads one value, so that an error names the field.
fn set<'de, T: Deserialize<'de>, M: MapAccess<'de>>(
    slot: &mut Option<T>,
    field: &'static str,
    map: &mut M,
) -> Result<(), M::Error> {
    if slot.is_some() {
        return Err(M::Error::custom(format_args!("field `{field}` given twice")));
    }
    match map.next_value() {
        Ok(value) => *slot = value,
        Err(error) => return Err(M::Error::custom(format_args!("field `{field}`: {error}"))),
    }
    Ok(())
}

raw_line! {
    case: String,
    op: String,
    abi: u32,
    device: i32,
    buf: i64,
    pool: i64,
    share: i64,
    offset: u64,
    dst_buf: i64,
    dst_offset: u64,
    src_buf: i64,
    src_offset: u64,
    bytes: u64,
    attach_flags: u32,
    ranges: Vec<(i64, u64, u64)>,
    advice: NameOrInt,
    alloc_type: NameOrInt,
    location: RawLocation,
    locations: Vec<RawLocation>,
    location_starts: Vec<u64>,
    handle_types: u32,
    max_bytes: u64,
    attribute: i32,
    flags: u64,
    stride: u64,
    access: NameOrInt,
    value: u64,
    blocks: u32,
    threads: u32,
    ms: u64,
    slots: u32,
    walks: Vec<RawWalk>,
    launch: LaunchShape,
    accesses: PackedAccesses,
    copies: Vec<(i64, u64, i64, u64, u64)>,
    attribute_sets: Vec<RawCopyAttributes>,
    attribute_starts: Vec<u64>,
    stream: String,
    code: i32,
    offset_in_2mib: u64,
    sum: u64,
    access_flags: i32,
    same_as: Vec<i64>,
    attributes: Attributes,
    unstable: Vec<String>,
    events: Vec<MemoryRecord>,
    host_mapped: BTreeMap<u32, PageMap>,
    start_ns: u64,
    ns_profiled: u64,
    ns: Timing,
}
