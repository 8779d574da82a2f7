//! A trace with one operation of every kind, and helpers to read it.

use pagewise_trace::error::TraceError;
use pagewise_trace::format::Case;
use pagewise_trace::reader::TraceReader;

pub(crate) const HEADER: &str = r#"{"format":"pagewise-trace","version":1,"family":"tiny","recorded_on":{"gpus":1,"cuda_driver_version":13000}}"#;

/// One operation of every kind, with every kind of observation.
pub(crate) const OPS: &[&str] = &[
    r#"{"op":"alloc_managed","buf":0,"bytes":2097152,"attach_flags":1,"code":0,"offset_in_2mib":0,"host_mapped":{"0":"512."},"start_ns":4,"ns_profiled":5,"ns":{"min":1,"median":2,"max":3}}"#,
    r#"{"op":"alloc_device","buf":8,"bytes":65536,"code":0}"#,
    r#"{"op":"alloc_pinned","buf":9,"bytes":65536,"code":0,"host_mapped":{"0":"512.","9":"16H"}}"#,
    r#"{"op":"advise","abi":1,"buf":0,"offset":0,"bytes":4096,"advice":"set_read_mostly","location":{"ordinal":-1},"code":0}"#,
    r#"{"op":"advise","abi":2,"buf":0,"offset":0,"bytes":4096,"advice":7,"location":{"raw_type":9,"id":0},"code":1}"#,
    r#"{"op":"prefetch","abi":2,"buf":0,"offset":0,"bytes":4096,"location":{"kind":"host_numa","id":0},"flags":1,"code":1}"#,
    r#"{"op":"prefetch","abi":1,"buf":77,"offset":16,"bytes":4096,"location":{"ordinal":0},"code":1}"#,
    r#"{"op":"prefetch_batch","ranges":[[0,0,4096]],"locations":[{"kind":"device","id":0}],"location_starts":[0],"flags":0,"stream":"stream","code":0}"#,
    r#"{"op":"discard_prefetch_batch","ranges":[[0,0,4096]],"locations":[{"kind":"host"}],"location_starts":[0],"flags":0,"stream":"null","code":1}"#,
    r#"{"op":"discard_batch","ranges":[[0,0,4096]],"flags":0,"stream":"stream","code":0}"#,
    r#"{"op":"host_touch","buf":0,"offset":0,"bytes":8192,"stride":4096,"access":"write","value":3,"code":0,"events":[["cpu_fault",0,0,0,-1,-1,"write",0]],"unstable":["events"]}"#,
    r#"{"op":"host_touch","buf":0,"offset":0,"bytes":8192,"stride":4096,"access":"read","code":0,"sum":6}"#,
    r#"{"op":"device_touch","device":0,"buf":0,"offset":0,"bytes":4096,"stride":4096,"access":"atomic_add","value":0,"blocks":1,"threads":1,"code":0,"events":[["thrashing",4096,0,0,1,0,1,0]]}"#,
    r#"{"op":"memset","buf":0,"offset":0,"bytes":4096,"value":7,"code":0}"#,
    r#"{"op":"memcpy","dst_buf":0,"dst_offset":0,"src_buf":8,"src_offset":0,"bytes":4096,"code":0}"#,
    r#"{"op":"stream_attach","buf":0,"offset":0,"bytes":0,"flags":1,"stream":"stream","code":0}"#,
    r#"{"op":"range_attributes","buf":0,"offset":0,"bytes":4096,"code":0,"attributes":{"read_mostly":[0,1],"accessed_by":[0,[-2,-2]]}}"#,
    r#"{"op":"range_attributes","buf":0,"offset":0,"bytes":4096,"slots":1,"code":0,"attributes":{"accessed_by":[0,[-2]]}}"#,
    r#"{"op":"pointer_attributes","buf":9,"offset":0,"code":0,"attributes":{"memory_type":[0,1],"offset_from_range_start":[0,null]}}"#,
    r#"{"op":"pool_create","pool":0,"alloc_type":"pinned","location":{"kind":"device","id":0},"handle_types":0,"max_bytes":0,"code":0}"#,
    r#"{"op":"pool_get_default","pool":1,"location":{"kind":"host"},"alloc_type":"managed","code":0,"same_as":[]}"#,
    r#"{"op":"pool_get_current","pool":2,"location":{"kind":"host"},"alloc_type":2,"code":0,"same_as":[1]}"#,
    r#"{"op":"pool_attributes","pool":0,"code":0,"attributes":{"reuse_event":[0,1],"attribute_9":[1,null]}}"#,
    r#"{"op":"pool_set_attribute","pool":0,"attribute":4,"value":18446744073709551615,"code":0}"#,
    r#"{"op":"pool_trim_to","pool":0,"bytes":0,"code":0}"#,
    r#"{"op":"pool_set_access","pool":0,"location":{"kind":"device","id":0},"access":3,"code":0}"#,
    r#"{"op":"pool_get_access","pool":0,"location":{"kind":"invalid"},"code":1,"access_flags":99}"#,
    r#"{"op":"pool_alloc","buf":1,"pool":0,"bytes":4096,"code":0}"#,
    r#"{"op":"pool_free","buf":1,"code":0}"#,
    r#"{"op":"pool_set_current","pool":0,"location":{"kind":"device","id":0},"alloc_type":"pinned","code":0}"#,
    r#"{"op":"pool_destroy","pool":0,"code":0}"#,
    r#"{"op":"alloc_device","buf":10,"bytes":65536,"device":1,"code":0}"#,
    r#"{"op":"alloc_pinned","buf":11,"bytes":65536,"flags":3,"code":0}"#,
    r#"{"op":"free_pinned","buf":11,"code":0}"#,
    r#"{"op":"host_memory","buf":12,"bytes":8192,"code":0}"#,
    r#"{"op":"host_register","buf":12,"offset":100,"bytes":4096,"flags":1,"code":0}"#,
    r#"{"op":"host_unregister","buf":12,"offset":100,"code":0}"#,
    r#"{"op":"pool_export","pool":0,"share":0,"handle_types":1,"code":0}"#,
    r#"{"op":"pool_import","pool":3,"share":0,"handle_types":1,"code":0,"same_as":[]}"#,
    r#"{"op":"pool_export_pointer","buf":1,"offset":0,"share":1,"code":0}"#,
    r#"{"op":"pool_import_pointer","buf":13,"pool":3,"share":1,"code":0}"#,
    r#"{"op":"ipc_mem_handle","buf":8,"offset":0,"share":2,"code":0}"#,
    r#"{"op":"ipc_open_mem_handle","buf":14,"device":0,"share":2,"code":201}"#,
    r#"{"op":"ipc_close_mem_handle","buf":8,"offset":0,"code":1}"#,
    r#"{"op":"kernel_accesses","device":0,"blocks":2,"threads":32,"walks":[{"access":"load","ranges":[[0,0,4096,4],[0,8192,1,1]]},{"access":"update","ranges":[[8,0,16,8]]}],"code":0}"#,
    r#"{"op":"memset_d16","buf":0,"offset":2,"bytes":4096,"value":65535,"code":0}"#,
    r#"{"op":"memset_d32","buf":0,"offset":4,"bytes":4096,"value":4294967295,"stream":"null","code":0}"#,
    r#"{"op":"memcpy_batch","copies":[[0,0,8,0,4096],[8,4096,0,8192,1]],"attribute_sets":[{"order":1,"flags":0},{"order":3,"source_hint":{"kind":"host"},"destination_hint":{"kind":"device","id":0},"flags":1}],"attribute_starts":[0,1],"stream":"stream","code":0}"#,
    r#"{"op":"sleep","ms":1,"code":0}"#,
    r#"{"op":"free","buf":0,"code":0}"#,
];

/// Header, case `one`, all operations.
pub(crate) fn tiny() -> String {
    with_ops(OPS)
}

/// Header, case `one`, these operations, which start at line 3.
pub(crate) fn with_ops(ops: &[&str]) -> String {
    let mut text = format!("{HEADER}\n{{\"case\":\"one\"}}\n");
    for op in ops {
        text.push_str(op);
        text.push('\n');
    }
    text
}

/// Reads to the end.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Case>, TraceError> {
    let mut reader = TraceReader::new("tiny.jsonl", bytes)?;
    let mut cases = Vec::new();
    while let Some(case) = reader.next_case()? {
        cases.push(case);
    }
    Ok(cases)
}

/// The error of a trace, as it is printed.
pub(crate) fn error(bytes: impl AsRef<[u8]>) -> String {
    read(bytes.as_ref()).expect_err("the trace is invalid").to_string()
}
