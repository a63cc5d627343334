//! Packs JSON with a dictionary.
use bytes::Bytes;
use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{self, CParameter};

/// zstd's level 1. With a dictionary of the same kind the levels hardly differ: Pods of 2.8 KiB are
/// packed into 335 bytes at level 1, 340 at 3, 365 at 6 and 346 at 9, and their metadata of 670
/// bytes into 144, 146, 147 and 147.
const LEVEL: i32 = 1;

/// The number of contexts of each kind that are kept for reuse. With its copy of the dictionary,
/// one takes up to half a MiB.
const CONTEXTS_MAX: usize = 4;

/// Packs and unpacks with one dictionary.
pub(crate) struct Codec {
    dictionary: Vec<u8>,
    compressors: Mutex<Vec<Compressor<'static>>>,
    decompressors: Mutex<Vec<Decompressor<'static>>>,
}

impl Codec {
    /// A codec. An empty dictionary is none.
    pub(crate) fn new(dictionary: Vec<u8>) -> Self {
        Self {
            dictionary,
            compressors: Mutex::new(Vec::new()),
            decompressors: Mutex::new(Vec::new()),
        }
    }

    /// A codec with a dictionary trained on samples, at most `n_bytes_max` and a tenth of the
    /// samples, as zstd recommends. Without a dictionary if the samples are too few or too
    /// different.
    pub(crate) fn trained(samples: &[Bytes], n_bytes_max: usize) -> Self {
        let n_bytes: usize = samples.iter().map(Bytes::len).sum();
        let dictionary = zstd::dict::from_samples(samples, (n_bytes / 10).min(n_bytes_max));
        Self::new(dictionary.unwrap_or_default())
    }

    /// Appends the packed JSON to `out`. Returns whether that succeeded; it fails only without
    /// memory.
    pub(crate) fn pack(&self, json: &[u8], out: &mut Vec<u8>) -> bool {
        let held = self.compressors.lock().pop();
        let Some(mut compressor) = held.or_else(|| self.compressor().ok()) else { return false };
        let from = out.len();
        out.resize(from + zstd_safe::compress_bound(json.len()), 0);
        let packed = compressor.compress_to_buffer(json, &mut out[from..]);
        let mut held = self.compressors.lock();
        if held.len() < CONTEXTS_MAX {
            held.push(compressor);
        }
        drop(held);
        out.truncate(from + packed.as_ref().map_or(0, |n| *n));
        packed.is_ok()
    }

    /// Unpacks JSON.
    ///
    /// # Errors
    /// If it was not packed by this codec.
    pub(crate) fn unpack(&self, packed: &[u8]) -> std::io::Result<Vec<u8>> {
        let broken = || std::io::Error::other("not a frame of this cache");
        let n_bytes = zstd_safe::get_frame_content_size(packed).ok().flatten();
        let n_bytes = n_bytes.and_then(|n| usize::try_from(n).ok()).ok_or_else(broken)?;
        let held = self.decompressors.lock().pop();
        let mut decompressor = match held {
            Some(held) => held,
            None if self.dictionary.is_empty() => Decompressor::new()?,
            None => Decompressor::with_dictionary(&self.dictionary)?,
        };
        let json = decompressor.decompress(packed, n_bytes);
        let mut held = self.decompressors.lock();
        if held.len() < CONTEXTS_MAX {
            held.push(decompressor);
        }
        json
    }

    fn compressor(&self) -> std::io::Result<Compressor<'static>> {
        let mut compressor = match self.dictionary.is_empty() {
            true => Compressor::new(LEVEL)?,
            false => Compressor::with_dictionary(LEVEL, &self.dictionary)?,
        };
        // There is one dictionary, and no need for a checksum.
        compressor.set_parameter(CParameter::DictIdFlag(false))?;
        compressor.set_parameter(CParameter::ChecksumFlag(false))?;
        compressor.set_parameter(CParameter::ContentSizeFlag(true))?;
        Ok(compressor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_objects_round_trip_with_and_without_a_dictionary() {
        let json = br#"{"metadata":{"name":"a","labels":{"app":"a","app2":"a"}}}"#;
        for dictionary in [Vec::new(), json.repeat(20)] {
            let codec = Codec::new(dictionary);
            let mut packed = b"before".to_vec();
            assert!(codec.pack(json, &mut packed));
            assert_eq!(codec.unpack(&packed[6..]).unwrap(), json);
            assert!(codec.unpack(b"nonsense").is_err());
            assert!(codec.unpack(&packed[6..packed.len() - 1]).is_err());
        }
    }

    #[test]
    fn number_of_pooled_contexts_is_bounded() {
        let codec = Codec::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..2 * CONTEXTS_MAX {
                scope.spawn(|| {
                    let mut packed = Vec::new();
                    assert!(codec.pack(b"{}", &mut packed));
                    assert_eq!(codec.unpack(&packed).unwrap(), b"{}");
                });
            }
        });
        assert!(codec.compressors.lock().len() <= CONTEXTS_MAX);
        assert!(codec.decompressors.lock().len() <= CONTEXTS_MAX);
    }
}
