//! Programs that are linked of several modules of PTX.
//!
//! The result is an image of its own form: the texts of all modules, one behind another, behind a
//! first line that says so. It loads as any image does. Machine code is not linked.

use crate::image::Image;
use crate::image::ptx::LINKED;

/// A link that is under way.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// The texts of the modules.
    texts: Vec<Vec<u8>>,
    /// The image, once it was asked for. It stays where it is until the link is destroyed.
    image: Option<Box<[u8]>>,
}

impl Link {
    /// Adds a module, which passed its checks.
    pub(crate) fn add(&mut self, image: Image) {
        self.texts.push(image.text);
    }

    /// The image of all modules, with a NUL at its end. A link of nothing is an empty module for a
    /// device of this compute capability.
    pub(crate) fn complete(&mut self, capability: u32) -> &[u8] {
        let texts = &self.texts;
        self.image.get_or_insert_with(|| {
            let mut all = LINKED.to_vec();
            if texts.is_empty() {
                let empty = format!(".version 8.0\n.target sm_{capability}\n.address_size 64\n");
                all.extend_from_slice(empty.as_bytes());
            }
            for text in texts {
                all.extend_from_slice(text);
                all.push(b'\n');
            }
            all.push(0);
            all.into_boxed_slice()
        })
    }
}
