//! Text of kernels, for machines that no driver is put upon: `printf` reaches the program when it
//! waits for the device.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::output::KernelOutput;

/// A receiver of text.
pub(crate) type Listener = Box<dyn FnMut(&[u8]) + Send>;

/// The text that kernels printed.
#[derive(Default)]
pub(crate) struct Text {
    waiting: Mutex<Vec<u8>>,
    listener: Mutex<Option<Listener>>,
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text").finish_non_exhaustive()
    }
}

impl KernelOutput for Text {
    fn print(&self, text: &[u8]) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(text);
    }

    /// A failed assertion, which a driver writes at once.
    fn warn(&self, message: &str) {
        eprint!("{message}");
    }
}

impl Text {
    /// Replaces the receiver; without one text goes to standard output.
    pub(crate) fn listen(&self, listener: Option<Listener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    /// Hands over the text that waits.
    pub(crate) fn flush(&self) {
        let text =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        if text.is_empty() {
            return;
        }
        match &mut *self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(listener) => listener(&text),
            None => print!("{}", String::from_utf8_lossy(&text)),
        }
    }
}
