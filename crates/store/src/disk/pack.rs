//! Compression of values.
//!
//! zstd's contexts are large, and creating one costs more than compressing a value of a kilobyte.
//! So they are reused.

use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt;
use zstd::bulk::{Compressor, Decompressor};

use super::layout::Damaged;
use crate::contract::VALUE_BYTES_MAX;

/// Smaller values are stored uncompressed.
const PACKED_BYTES_MIN: usize = 128;
/// zstd's level: the first of the fast levels, because a write waits for compression and a start
/// decompresses everything. Compared with level 1, a ConfigMap of 1.2 kB compresses in 3.9 µs
/// instead of 6.0, decompresses in 1.2 instead of 2.5, and becomes 0.87 kB instead of 0.66.
const LEVEL: i32 = -1;
/// Maximum number of idle unpackers, about the number of parallel reads on a larger machine.
const UNPACKERS_MAX: usize = 8;

/// Compresses values with one reused context.
#[derive(Default)]
pub(super) struct Packer(Option<Compressor<'static>>);

impl Packer {
    /// The compressed value. `None` if it would not be shorter.
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

/// Decompresses values with one reused context.
#[derive(Default)]
pub(super) struct Unpacker(Option<Decompressor<'static>>);

impl Unpacker {
    pub(super) fn unpack(&mut self, packed: &[u8]) -> Result<Bytes, Damaged> {
        let size = zstd::zstd_safe::get_frame_content_size(packed)
            .ok()
            .flatten()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size <= VALUE_BYTES_MAX)
            .ok_or(Damaged("its value has no size, or an invalid one"))?;
        let value = self
            .0
            .get_or_insert_default()
            .decompress(packed, size)
            .map_err(|_| Damaged("its value cannot be unpacked"))?;
        if value.len() != size {
            return Err(Damaged("its value does not have the recorded length"));
        }
        Ok(value.into())
    }
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

/// Idle unpackers for the next reads.
#[derive(Debug, Default)]
pub(super) struct Unpackers(Mutex<Vec<Unpacker>>);

impl Unpackers {
    /// Runs a read with one of them.
    pub(super) fn with<T>(&self, read: impl FnOnce(&mut Unpacker) -> T) -> T {
        let idle = self.0.lock().pop();
        let mut unpacker = idle.unwrap_or_default();
        let value = read(&mut unpacker);
        let mut idle = self.0.lock();
        if idle.len() < UNPACKERS_MAX {
            idle.push(unpacker);
        }
        value
    }
}
