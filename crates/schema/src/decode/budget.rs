//! The memory of a tree, estimated while it is decoded.

use super::{DecodeError, TREE_BYTES_MAX};
use serde_json::Value;

/// Bytes of one value, without what it points to.
const VALUE_BYTES: usize = size_of::<Value>();
/// Bytes of one block of a map. A map of one member takes a whole block.
const BLOCK_BYTES: usize = 640;
/// Members that share a block after it was split.
const BLOCK_MEMBERS: usize = 6;

/// The bytes that one body has taken so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    bytes: usize,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > TREE_BYTES_MAX {
            return Err(DecodeError(format!(
                "document takes more than {TREE_BYTES_MAX} bytes of memory"
            )));
        }
        Ok(())
    }

    /// Takes a value with `text` bytes of text.
    pub(super) fn value(&mut self, text: usize) -> Result<(), DecodeError> {
        self.take(VALUE_BYTES + text)
    }

    /// Takes a member of a map that has `members` others. Its value is taken on its own.
    pub(super) fn member(&mut self, members: usize, key: usize) -> Result<(), DecodeError> {
        let block = if members.is_multiple_of(BLOCK_MEMBERS) { BLOCK_BYTES } else { 0 };
        self.take(block + key)
    }
}
