//! Packing values and unpacking them.
//!
//! What zstd works with is large, and making it costs more than a value of a kilobyte does: it is
//! kept from one value to the next.

use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt;
use zstd::bulk::{Compressor, Decompressor};

use super::layout::Damaged;
use crate::contract::VALUE_BYTES_MAX;

/// Values below this are kept as they are.
const PACKED_BYTES_MIN: usize = 128;
/// zstd's level: the first of the fast ones, for a write waits for packing, and a start for
/// unpacking everything. Against level 1, a ConfigMap of 1.2 kB takes 3.9 µs instead of 6.0 to
/// pack, 1.2 instead of 2.5 to unpack, and becomes 0.87 kB instead of 0.66.
const LEVEL: i32 = -1;
/// How many unpackers are kept for reads to come: as many as read at once on a machine of some
/// size.
const UNPACKERS_MAX: usize = 8;

/// Packs one value after the other.
#[derive(Default)]
pub(super) struct Packer(Option<Compressor<'static>>);

impl Packer {
    /// The value packed, if that makes it shorter.
    pub(super) fn pack(&mut self, value: &[u8]) -> Option<Vec<u8>> {
        if value.len() < PACKED_BYTES_MIN {
            return None;
        }
        if self.0.is_none() {
            self.0 = Compressor::new(LEVEL).ok();
        }
        let packed = self.0.as_mut()?.compress(value).ok()?;
        (packed.len() < value.len()).then_some(packed)
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

/// Unpacks one value after the other.
#[derive(Default)]
pub(super) struct Unpacker(Option<Decompressor<'static>>);

impl Unpacker {
    pub(super) fn unpack(&mut self, packed: &[u8]) -> Result<Bytes, Damaged> {
        let size = zstd::zstd_safe::get_frame_content_size(packed)
            .ok()
            .flatten()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size <= VALUE_BYTES_MAX)
            .ok_or(Damaged("its value has no size, or too much of it"))?;
        let value = self
            .0
            .get_or_insert_default()
            .decompress(packed, size)
            .map_err(|_| Damaged("its value cannot be unpacked"))?;
        if value.len() != size {
            return Err(Damaged("its value is not as long as it says"));
        }
        Ok(value.into())
    }
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

/// Unpackers that wait for the next read.
#[derive(Debug, Default)]
pub(super) struct Unpackers(Mutex<Vec<Unpacker>>);

impl Unpackers {
    /// Reads with one of them.
    pub(super) fn with<T>(&self, read: impl FnOnce(&mut Unpacker) -> T) -> T {
        let kept = self.0.lock().pop();
        let mut unpacker = kept.unwrap_or_default();
        let value = read(&mut unpacker);
        let mut kept = self.0.lock();
        if kept.len() < UNPACKERS_MAX {
            kept.push(unpacker);
        }
        value
    }
}
