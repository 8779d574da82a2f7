//! Placeholder for the link to the paging engine.
use crate::config::SimConfig;
use pagewise_hal::{FaultAccess, MemoryEvent, PageRun, Processor, Span};
use std::ops::Range;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(crate) by: Processor,
    pub(crate) span: Span,
    pub(crate) stride_bytes: u64,
    pub(crate) access: FaultAccess,
}
#[derive(Debug)]
pub(crate) struct Pager;
impl Pager {
    pub(crate) fn new(_: &SimConfig) -> Self {
        Self
    }
    pub(crate) fn add_range(&mut self, _first: u64, _pages: u64) {}
    pub(crate) fn remove_range(&mut self, _first: u64) {}
    pub(crate) fn set_preferred(&mut self, _p: Range<u64>, _to: Option<Processor>) {}
    pub(crate) fn set_accessed_by(&mut self, _p: Range<u64>, _by: Processor, _on: bool) {}
    pub(crate) fn set_read_mostly(&mut self, _p: Range<u64>, _on: bool) {}
    pub(crate) fn migrate(&mut self, _p: Range<u64>, _to: Processor) {}
    pub(crate) fn discard(&mut self, _p: Range<u64>) {}
    pub(crate) fn host_page_map(&self, p: Range<u64>) -> Vec<PageRun> {
        vec![PageRun { pages: p.end - p.start, mapped: false }]
    }
    pub(crate) fn bytes_on(&self, _by: Processor) -> u64 {
        0
    }
    pub(crate) fn drain_events(&mut self) -> Vec<MemoryEvent> {
        vec![]
    }
    pub(crate) fn walk(&mut self, _w: Walk, now_ns: u64) -> u64 {
        now_ns
    }
}
