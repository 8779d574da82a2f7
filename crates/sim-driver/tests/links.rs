//! Links of several modules of PTX, and loads of modules that need others, against the answers of an
//! H200 (driver 580.159.04): codes, logs, and the word that the linked kernel leaves.

mod common;

use std::ffi::{CString, c_int, c_void};
use std::ptr::{from_mut, null, null_mut};

use common::start;
use pagewise_driver::*;
use serde_json::{Map, Value, json};

/// Bytes of a log.
const LOG: usize = 4096;

/// The options of a call that is to fill a log of errors.
struct Log {
    text: Box<[u8; LOG]>,
    keys: [c_int; 2],
    values: Box<[*mut c_void; 2]>,
}

impl Log {
    fn new() -> Self {
        let mut text = Box::new([0; LOG]);
        let size = std::ptr::without_provenance_mut(LOG);
        let values = Box::new([text.as_mut_ptr().cast(), size]);
        Self { text, keys: [5, 6], values }
    }

    fn read(&self) -> String {
        let text = self.text.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte));
        text.collect()
    }
}

/// The codes of a launch, and the word that the kernel leaves.
fn run(module: *mut c_void) -> Map<String, Value> {
    let (mut function, mut out) = (null_mut(), 0_u64);
    // SAFETY: the places are locals, the name is NUL-terminated, and the kernel takes one address of a
    // word that is allocated here.
    unsafe {
        let code = cuModuleGetFunction(&raw mut function, module, c"k".as_ptr());
        if code != 0 {
            return Map::from_iter([("function".to_owned(), json!(code))]);
        }
        assert_eq!(cuMemAlloc_v2(&raw mut out, 4), 0);
        assert_eq!(cuMemsetD8_v2(out, 0, 4), 0);
        let mut parameters = [from_mut(&mut out).cast::<c_void>()];
        let (place, none) = (parameters.as_mut_ptr(), null_mut());
        let launched = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, none, place, null_mut());
        let code = if launched == 0 { cuCtxSynchronize() } else { launched };
        let mut word = [0_u8; 4];
        assert_eq!(cuMemcpyDtoH_v2(word.as_mut_ptr().cast(), out, 4), 0);
        assert_eq!(cuMemFree_v2(out), 0);
        let value = u32::from_le_bytes(word);
        Map::from_iter([("run".to_owned(), json!(code)), ("value".to_owned(), json!(value))])
    }
}

fn linked(units: &[CString]) -> Value {
    let mut log = Log::new();
    let (mut link, mut image, mut again) = (null_mut(), null_mut(), null_mut());
    let mut answer = Map::new();
    // SAFETY: the places are locals, the log is there until the link is destroyed, and the texts have
    // as many bytes as is said.
    unsafe {
        let (keys, values) = (log.keys.as_ptr(), log.values.as_mut_ptr());
        assert_eq!(cuLinkCreate_v2(2, keys, values, &raw mut link), 0);
        let mut added = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            let name = CString::new(format!("unit{index}.ptx")).expect("no NUL");
            let (data, bytes) = (unit.as_ptr().cast_mut().cast(), unit.as_bytes_with_nul().len());
            let (name, none) = (name.as_ptr(), null_mut());
            added.push(cuLinkAddData_v2(link, 1, data, bytes, name, 0, null(), none));
        }
        answer.insert("add".to_owned(), json!(added));
        let code = cuLinkComplete(link, &raw mut image, null_mut());
        answer.insert("complete".to_owned(), json!(code));
        answer.insert("error".to_owned(), json!(log.read()));
        if code == 0 {
            let mut module = null_mut();
            let loaded = cuModuleLoadData(&raw mut module, image);
            answer.insert("load".to_owned(), json!(loaded));
            if loaded == 0 {
                answer.extend(run(module));
                assert_eq!(cuModuleUnload(module), 0);
            }
        }
        let code = cuLinkComplete(link, &raw mut again, null_mut());
        answer.insert("complete_again".to_owned(), json!(code));
        answer.insert("destroy".to_owned(), json!(cuLinkDestroy(link)));
    }
    Value::Object(answer)
}

fn loaded(unit: &CString) -> Value {
    let mut log = Log::new();
    let mut module = null_mut();
    let (keys, values) = (log.keys.as_mut_ptr(), log.values.as_mut_ptr());
    // SAFETY: the text is NUL-terminated, the place is a local, and the log is there after the call.
    let code =
        unsafe { cuModuleLoadDataEx(&raw mut module, unit.as_ptr().cast(), 2, keys, values) };
    let mut answer =
        Map::from_iter([("load".to_owned(), json!(code)), ("error".to_owned(), json!(log.read()))]);
    if code == 0 {
        answer.extend(run(module));
        assert_eq!(cuModuleUnload(module), 0);
    }
    Value::Object(answer)
}

#[test]
fn links_and_loads_answer_as_on_an_h200() {
    start();
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("data/links.json")).expect("recorded cases");
    let mut wrong = Vec::new();
    for case in &cases {
        let units = case["units"].as_array().expect("texts");
        let units: Vec<_> = units
            .iter()
            .map(|unit| CString::new(unit.as_str().expect("text")).expect("no NUL"))
            .collect();
        for (what, answer) in [("link", linked(&units)), ("load", loaded(&units[0]))] {
            if answer != case[what] {
                wrong.push(format!("{what} of {}: {answer}\n  not {}", case["name"], case[what]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// A kernel in which the first thread of each block counts, all blocks meet, and the last word is what
/// the first block saw then: all of them, or none if the launch is not cooperative.
const MEETING: &str = ".version 8.0\n.target sm_60\n.address_size 64
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 s);
.extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 h, .param .b32 f);
.visible .entry k(.param .u64 out) {
 .reg .b64 %o, %h; .reg .b32 %r, %b, %t; .reg .pred %p;
 ld.param.u64 %o, [out]; mov.u32 %b, %ctaid.x; mov.u32 %t, %tid.x;
 setp.eq.u32 %p, %t, 0; @%p red.global.add.u32 [%o], 1;
 { .param .b32 s; st.param.b32 [s], 1; .param .b64 h;
   call (h), cudaCGGetIntrinsicHandle, (s); ld.param.b64 %h, [h]; }
 { .param .b64 h; st.param.b64 [h], %h; .param .b32 f; st.param.b32 [f], 0; .param .b32 r;
   call (r), cudaCGSynchronize, (h, f); ld.param.b32 %r, [r]; }
 add.u32 %t, %t, %b; setp.eq.u32 %p, %t, 0; ld.volatile.global.u32 %t, [%o];
 @%p st.global.u32 [%o+4], %t; @%p st.global.u32 [%o+8], %r; ret; }";

#[test]
fn kernels_meet_by_the_runtime_of_devices_if_its_archive_is_linked() {
    start();
    let text = CString::new(MEETING).expect("no NUL");
    // SAFETY: the places are locals, and the data has as many bytes as is said.
    let link_with = |archive: Option<&[u8]>| unsafe {
        let (mut link, mut image) = (null_mut(), null_mut());
        assert_eq!(cuLinkCreate_v2(0, null(), null_mut(), &raw mut link), 0);
        let (data, bytes) = (text.as_ptr().cast_mut().cast(), text.as_bytes_with_nul().len());
        let add = |kind, data, bytes| {
            cuLinkAddData_v2(link, kind, data, bytes, null(), 0, null(), null_mut())
        };
        assert_eq!(add(1, data, bytes), 0);
        let added =
            archive.map(|archive| add(4, archive.as_ptr().cast_mut().cast(), archive.len()));
        (link, added, cuLinkComplete(link, &raw mut image, null_mut()), image)
    };
    let archive = b"!<arch>\n/               0           0     0     0       0         `\n";
    // As an H100 answers: 300 without the archive, 200 for one without members, 999 for no archive.
    assert_eq!((link_with(None).1, link_with(None).2), (None, 300));
    assert_eq!(link_with(Some(b"!<arch>\n")).1, Some(200));
    assert_eq!(link_with(Some(b"hello world")).1, Some(999));
    let (link, added, complete, image) = link_with(Some(archive));
    assert_eq!((added, complete), (Some(0), 0));
    let (mut module, mut function, mut out) = (null_mut(), null_mut(), 0_u64);
    // SAFETY: the places are locals, and the kernel takes one address of three words.
    unsafe {
        assert_eq!(cuModuleLoadData(&raw mut module, image), 0);
        assert_eq!(cuLinkDestroy(link), 0);
        assert_eq!(cuModuleGetFunction(&raw mut function, module, c"k".as_ptr()), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut out, 12), 0);
        let mut parameters = [from_mut(&mut out).cast::<c_void>()];
        let place = parameters.as_mut_ptr();
        let mut words = [0_u32; 3];
        for (is_cooperative, expected) in [(true, [40, 40, 0]), (false, [40, 0, 1])] {
            assert_eq!(cuMemsetD8_v2(out, 0, 12), 0);
            let launched = if is_cooperative {
                cuLaunchCooperativeKernel(function, 40, 1, 1, 64, 1, 1, 0, null_mut(), place)
            } else {
                cuLaunchKernel(function, 40, 1, 1, 64, 1, 1, 0, null_mut(), place, null_mut())
            };
            assert_eq!((launched, cuCtxSynchronize()), (0, 0));
            assert_eq!(cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), out, 12), 0);
            assert_eq!((words[0], words[2]), (expected[0], expected[2]));
            // Blocks that do not meet have seen any count.
            assert!(!is_cooperative || words == expected, "{words:?}");
        }
        assert_eq!(cuMemFree_v2(out), 0);
    }
}
