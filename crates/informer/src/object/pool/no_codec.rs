//! The codec without the feature `compressed`, which no policy uses.

use bytes::Bytes;

/// Packs nothing.
pub(crate) struct Codec;

impl Codec {
    pub(crate) fn new(_dictionary: Vec<u8>) -> Self {
        Self
    }

    pub(crate) fn trained(_samples: &[Bytes], _n_bytes_max: usize) -> Self {
        Self
    }

    pub(crate) fn pack(&self, _json: &[u8], _out: &mut Vec<u8>) -> bool {
        false
    }

    pub(crate) fn unpack(&self, _packed: &[u8]) -> std::io::Result<Vec<u8>> {
        Err(std::io::Error::other("built without the feature `compressed`"))
    }
}
