//! The observations after an operation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use pagewise_hal::PageRun;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The result of one operation and what could be seen after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// `CUresult` of the call, or of the synchronisation after it if the call succeeded.
    pub code: i32,
    /// Address of a new managed buffer modulo 2 MiB.
    pub offset_in_2mib: Option<u64>,
    /// Sum of the bytes that the host read.
    pub sum: Option<u64>,
    /// Attributes of a range, pointer or pool.
    pub attributes: Option<Attributes>,
    /// Access of a location to a pool; 99 where the call failed.
    pub access_flags: Option<i32>,
    /// Earlier pools of the case with the same handle.
    pub same_as: Option<Vec<u32>>,
    /// Unified-memory records.
    pub events: Vec<MemoryRecord>,
    /// The host's page table, by buffer.
    pub host_mapped: BTreeMap<u32, PageMap>,
    /// When the operation began, in nanoseconds since its case did: host time of the run that the
    /// records are of. Absent in recordings made before there was this field.
    pub start_ns: Option<u64>,
    /// Host time of the operation with the profiler on.
    pub ns_profiled: Option<u64>,
    /// Host time of the operation.
    pub ns: Option<Timing>,
    /// Fields that differed between two recorded runs.
    pub unstable: Vec<String>,
}

impl Observed {
    /// Whether a field is marked as differing from run to run.
    #[must_use]
    pub fn is_unstable(&self, field: &str) -> bool {
        self.unstable.iter().any(|name| name == field)
    }
}

/// Host time of an operation over several runs, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// The shortest.
    pub min: u64,
    /// The middle one.
    pub median: u64,
    /// The longest.
    pub max: u64,
}

/// A short name from a known set, or any other that a newer recorder may write.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Label(Cow<'static, str>);

const LABELS: &[&str] = &[
    "copy_h2d",
    "copy_d2h",
    "copy_d2d",
    "cpu_fault",
    "gpu_fault",
    "remote_map",
    "thrashing",
    "throttling",
    "user",
    "coherence",
    "prefetch",
    "eviction",
    "read",
    "write",
    "atomic",
    "policy",
    "read_mostly",
    "preferred_location",
    "last_prefetch_location",
    "preferred_location_type",
    "preferred_location_id",
    "last_prefetch_location_type",
    "last_prefetch_location_id",
    "accessed_by",
];

impl Label {
    /// A name known at compile time.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Label {
    fn from(name: &str) -> Self {
        match LABELS.iter().find(|&&known| known == name) {
            Some(known) => Self::new(known),
            None => Self(Cow::Owned(name.to_owned())),
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

struct LabelVisitor;

impl Visitor<'_> for LabelVisitor {
    type Value = Label;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Label, E> {
        Ok(Label::from(name))
    }
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(LabelVisitor)
    }
}

/// The seventh field of a record: a name, or a number as reported.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Detail {
    /// A cause or a kind of access.
    Name(Label),
    /// A number as the profiler reports it.
    Number(i64),
}

impl fmt::Debug for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Detail {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Detail;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or an integer")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Detail, E> {
                Ok(Detail::Name(Label::from(name)))
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Detail, E> {
                Ok(Detail::Number(number))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Detail, E> {
                i64::try_from(number).map(Detail::Number).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// One unified-memory record, with its buffer named at the end of the case.
///
/// The order of fields is the order of comparison; `ns` is never compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryRecord {
    /// `copy_h2d`, `cpu_fault`, …
    pub kind: Label,
    /// Bytes, or the number of merged faults.
    pub value: u64,
    /// The buffer that owns the address when the case ends, -1 for none.
    pub buf: i64,
    /// Offset in that buffer; for -1, address modulo 2 MiB.
    pub offset: u64,
    /// Source or faulting processor: -1 host, n for GPU n; for `thrashing` a mask of GPUs.
    pub src: i64,
    /// Destination processor.
    pub dst: i64,
    /// Cause or access.
    pub detail: Detail,
    /// Duration.
    pub ns: u64,
}

impl MemoryRecord {
    /// The seven fields that are compared.
    #[must_use]
    pub fn key(&self) -> (&Label, u64, i64, u64, i64, i64, &Detail) {
        (&self.kind, self.value, self.buf, self.offset, self.src, self.dst, &self.detail)
    }
}

impl Serialize for MemoryRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(8)?;
        tuple.serialize_element(&self.kind)?;
        tuple.serialize_element(&self.value)?;
        tuple.serialize_element(&self.buf)?;
        tuple.serialize_element(&self.offset)?;
        tuple.serialize_element(&self.src)?;
        tuple.serialize_element(&self.dst)?;
        tuple.serialize_element(&self.detail)?;
        tuple.serialize_element(&self.ns)?;
        tuple.end()
    }
}

impl<'de> Deserialize<'de> for MemoryRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        fn field<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
            seq: &mut A,
            name: &str,
        ) -> Result<T, A::Error> {
            let missing = || A::Error::custom(format_args!("a record lacks its field {name}"));
            seq.next_element()?.ok_or_else(missing)
        }
        impl<'de> Visitor<'de> for Fields {
            type Value = MemoryRecord;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record [kind, value, buf, offset, src, dst, detail, ns]")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MemoryRecord, A::Error> {
                Ok(MemoryRecord {
                    kind: field(&mut seq, "kind")?,
                    value: field(&mut seq, "value")?,
                    buf: field(&mut seq, "buf")?,
                    offset: field(&mut seq, "offset")?,
                    src: field(&mut seq, "src")?,
                    dst: field(&mut seq, "dst")?,
                    detail: field(&mut seq, "detail")?,
                    ns: field(&mut seq, "ns")?,
                })
            }
        }
        deserializer.deserialize_seq(Fields)
    }
}

/// Attribute reads by name, in the order in which they were made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes(pub Vec<(Label, AttributeRead)>);

impl Attributes {
    /// The read of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&AttributeRead> {
        self.0.iter().find(|(label, _)| label.as_str() == name).map(|(_, read)| read)
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, read) in &self.0 {
            map.serialize_entry(name, read)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Attributes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of attribute reads [code, value]")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Attributes, M::Error> {
                let mut reads = Vec::new();
                while let Some(name) = map.next_key::<Label>()? {
                    reads.push((name, map.next_value()?));
                }
                Ok(Attributes(reads))
            }
        }
        deserializer.deserialize_map(Reads)
    }
}

/// One attribute read: `[code, value]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeRead(pub i32, pub Option<AttributeValue>);

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AttributeValue {
    /// A number.
    Number(i64),
    /// A number past `i64::MAX`, such as the size of an unlimited pool.
    Large(u64),
    /// A list of processors.
    List(Vec<i32>),
}

/// The host's page table over a buffer, as runs of pages: `16.,496H` is 16 pages not mapped, then
/// 496 mapped. Adjacent runs differ, so equal maps have equal text.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PageMap(Vec<PageRun>);

impl PageMap {
    /// The runs, joined where neighbours are alike, without empty ones.
    #[must_use]
    pub fn new(runs: impl IntoIterator<Item = PageRun>) -> Self {
        let mut joined: Vec<PageRun> = Vec::new();
        for run in runs.into_iter().filter(|run| run.pages > 0) {
            match joined.last_mut() {
                Some(last) if last.mapped == run.mapped => {
                    last.pages = last.pages.saturating_add(run.pages);
                }
                _ => joined.push(run),
            }
        }
        Self(joined)
    }

    /// The runs.
    #[must_use]
    pub fn runs(&self) -> &[PageRun] {
        &self.0
    }
}

impl fmt::Display for PageMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, run) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}{}", run.pages, if run.mapped { 'H' } else { '.' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for PageMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PageMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text:.40}` is not a list of page runs such as `16.,496H`");
        if text.is_empty() {
            return Ok(Self::default());
        }
        let mut runs = Vec::new();
        for item in text.split(',') {
            let (count, mapped) = match (item.strip_suffix('.'), item.strip_suffix('H')) {
                (Some(count), _) => (count, false),
                (_, Some(count)) => (count, true),
                _ => return Err(bad()),
            };
            let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
            let pages = count.parse().ok().filter(|_| digits).ok_or_else(bad)?;
            runs.push(PageRun { pages, mapped });
        }
        Ok(Self::new(runs))
    }
}

impl Serialize for PageMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PageMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = PageMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of page runs such as `16.,496H`")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PageMap, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}
