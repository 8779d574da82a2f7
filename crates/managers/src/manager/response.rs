//! The outcome of requests.

use std::collections::BTreeMap;

use super::array::Array;
use super::chunking::ChunkParameters;

/// The outcome of an instance's requests.
///
/// ```
/// use pagewise_managers::manager::ArrayResponse;
///
/// let response = ArrayResponse::default();
/// assert_eq!((response.arr.len(), response.chunks, response.chunk_length), (0, 1, 1));
/// ```
#[derive(Debug, Clone)]
pub struct ArrayResponse {
    /// The arrays by label; none if the instance had asked for nothing and is only told.
    pub arr: BTreeMap<String, Array>,
    /// How many chunks there are.
    pub chunks: u64,
    /// How many runs a chunk has, except perhaps the last.
    pub chunk_length: u64,
    /// The shapes of all arrays: one chunk of those that are divided, the whole of the others, also
    /// of those in windows.
    pub chunked_shapes: BTreeMap<String, Vec<u64>>,
    /// The division as arithmetic: the runs of each chunk.
    pub parameters: ChunkParameters,
}

impl Default for ArrayResponse {
    fn default() -> Self {
        Self::of(ChunkParameters::default())
    }
}

impl ArrayResponse {
    pub(crate) fn of(parameters: ChunkParameters) -> Self {
        Self {
            arr: BTreeMap::new(),
            chunks: parameters.chunks(),
            chunk_length: parameters.chunk_length(),
            chunked_shapes: BTreeMap::new(),
            parameters,
        }
    }
}
