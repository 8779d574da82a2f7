//! The calls that a process made of each function, as a file that is up to date after each call.
//!
//! A line has the function's name and its number of calls, in as many digits whatever the number,
//! so that one write replaces it and a process that ends in a crash leaves the file too.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::forms::{FORMS, Form};

/// The numbers of calls of a process.
#[derive(Debug)]
pub(super) struct CallCounts {
    file: File,
    /// The process that the file belongs to: a child of `fork` must not write it.
    process: u32,
    /// By the function's name: where its number is in the file, and the number.
    counts: Mutex<BTreeMap<&'static str, (u64, u64)>>,
}

impl CallCounts {
    /// Makes the file of this process in a folder: `calls-PID.txt`.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let process = std::process::id();
        let file = File::create(folder.join(format!("calls-{process}.txt")))?;
        let answering = FORMS.iter().filter(|form| form.answers);
        let names = answering.filter_map(|form| form.name.to_str().ok());
        let mut counts: BTreeMap<_, _> = names.map(|name| (name, (0, 0))).collect();
        let mut text = String::new();
        for (name, (at, _)) in &mut counts {
            text.push_str(name);
            text.push(' ');
            *at = text.len() as u64;
            text.push_str(&format!("{:020}\n", 0));
        }
        file.write_all_at(text.as_bytes(), 0)?;
        Ok(Self { file, process, counts: Mutex::new(counts) })
    }

    /// Counts a call. A file that cannot be written is left behind: the call goes on.
    pub(super) fn count(&self, form: &Form) {
        if self.process != std::process::id() {
            return;
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let name = form.name.to_str().unwrap_or_default();
        if let Some((at, count)) = counts.get_mut(name) {
            *count = count.saturating_add(1);
            _ = self.file.write_all_at(format!("{count:020}").as_bytes(), *at);
        }
    }
}
