//! The tables and records of the file.
//!
//! | table | key | row |
//! |---|---|---|
//! | `meta` | a name | a number: `format`, `revision`, `oldest`, `superseded`, `journal` |
//! | `keys` | a key | the place of its newest record, and its expiry time |
//! | `log` | revision, index in its transaction | a [`Record`] |
//! | `mortal` | expiry time, key of a value with a time to live | the revision that must still be its last change |
//! | `damaged` | a key | the revision at which its value was lost; only in a salvaged file |
//!
//! A record points to the one it replaces, so a key's versions are a chain from the newest to the
//! oldest retained one. A deletion is a record too, and its row in `keys` stays until the deletion
//! is compacted.

use super::{
    damage::DAMAGED_PREFIX,
    error::Fault,
    pack::{Packer, Unpacker},
};
use crate::contract::Revision;
use bytes::Bytes;
use redb::TableDefinition;

/// The format that this program writes. [`migrate`](super::migrate) lists the changes between
/// formats.
pub(super) const FORMAT: u64 = 5;

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const KEYS: TableDefinition<'_, &[u8], KeyRow> = TableDefinition::new("keys");
pub(super) const LOG: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("log");

pub(super) const EXPIRING: TableDefinition<'_, (u64, &[u8]), u64> = TableDefinition::new("mortal");

/// Names in `meta`.
pub(super) mod name {
    pub(in crate::disk) const FORMAT: &str = "format";
    pub(in crate::disk) const REVISION: &str = "revision";
    pub(in crate::disk) const OLDEST: &str = "oldest";
    /// Bytes of replaced records, retained as history.
    pub(in crate::disk) const SUPERSEDED: &str = "superseded";
    /// The id of the journal in use, 0 for one without an id. No row: none is in use.
    pub(in crate::disk) const JOURNAL: &str = "journal";
}

/// A row of `keys`: revision and index of the newest record, the revision that created the key (0:
/// deleted), and the expiry time in milliseconds since 1970 (0: never).
pub(super) type KeyRow = (u64, u32, u64, u64);

/// The place of a key's newest record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: (u64, u32),
    pub(super) created: u64,
    pub(super) expires_ms: u64,
}

impl Place {
    pub(super) fn of((revision, index, created, expires_ms): KeyRow) -> Self {
        Self { at: (revision, index), created, expires_ms }
    }

    pub(super) fn row(self) -> KeyRow {
        (self.at.0, self.at.1, self.created, self.expires_ms)
    }

    pub(super) fn is_deleted(self) -> bool {
        self.created == 0
    }

    pub(super) fn modified(self) -> Revision {
        Revision(self.at.0)
    }
}

/// One version of one key.
///
/// On disk: a byte for the kind, `created` and the replaced revision (8 bytes each, little endian),
/// the replaced index and the key's length (4 each), the key, the value in the form that the kind
/// gives, and the CRC-32 of all that (4, little endian). redb verifies its own checksums only when
/// it repairs or checks a file; this one is verified at every read. Records of format 1 have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// The revision that created the key; 0 for a deletion.
    pub(super) created: u64,
    /// The place of the replaced record; revision 0 if there was none.
    pub(super) replaced: (u64, u32),
    pub(super) key: &'a [u8],
    /// Whether the record has a checksum.
    pub(super) has_checksum: bool,
    value: Packed<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packed<'a> {
    Deleted,
    Plain(&'a [u8]),
    Zstd(&'a [u8]),
}

const DELETED: u8 = 0;
const PLAIN: u8 = 1;
const ZSTD: u8 = 2;
/// Flag in the kind: the record has a checksum.
const CHECKSUMMED: u8 = 0x80;

/// Length of the fields before the key, in bytes.
const HEAD: usize = 1 + 8 + 8 + 4 + 4;

/// A record that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Damaged(pub(super) &'static str);

impl Damaged {
    /// Adds the place of the record.
    pub(super) fn at(self, at: (u64, u32)) -> Fault {
        Fault::RecordAt { at, damage: self }
    }
}

impl<'a> Record<'a> {
    /// Encodes a version of a key into `out`, which is cleared first.
    pub(super) fn encode(
        out: &mut Vec<u8>,
        packer: &mut Packer,
        created: u64,
        replaced: (u64, u32),
        key: &[u8],
        value: Option<&[u8]>,
    ) {
        out.clear();
        let packed = value.and_then(|value| packer.pack(value));
        let kind = match (value, &packed) {
            (None, _) => DELETED,
            (Some(_), None) => PLAIN,
            (Some(_), Some(_)) => ZSTD,
        };
        out.push(kind | CHECKSUMMED);
        out.extend_from_slice(&created.to_le_bytes());
        out.extend_from_slice(&replaced.0.to_le_bytes());
        out.extend_from_slice(&replaced.1.to_le_bytes());
        // A transaction is at most 1.5 MiB, so a key's length always fits.
        out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(key);
        match packed {
            Some(packed) => out.extend_from_slice(&packed),
            None => out.extend_from_slice(value.unwrap_or_default()),
        }
        let sum = crc32fast::hash(out);
        out.extend_from_slice(&sum.to_le_bytes());
    }

    /// Decodes a record.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Damaged> {
        let has_checksum = bytes.first().is_some_and(|kind| kind & CHECKSUMMED != 0);
        let bytes = match bytes.split_last_chunk::<4>() {
            Some((content, sum)) if has_checksum => {
                if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
                    return Err(Damaged("it does not match its checksum"));
                }
                content
            }
            _ => bytes,
        };
        let (head, rest) = bytes.split_at_checked(HEAD).ok_or(Damaged("it is too short"))?;
        let u64_at = |at: usize| {
            head[at..at + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let u32_at = |at: usize| {
            head[at..at + 4].iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte))
        };
        let n_key = usize::try_from(u32_at(21)).map_err(|_| Damaged("its key is too long"))?;
        let (key, value) = rest.split_at_checked(n_key).ok_or(Damaged("its key is truncated"))?;
        let value = match head[0] & !CHECKSUMMED {
            DELETED if value.is_empty() => Packed::Deleted,
            PLAIN => Packed::Plain(value),
            ZSTD => Packed::Zstd(value),
            _ => return Err(Damaged("its kind is unknown")),
        };
        Ok(Self { created: u64_at(1), replaced: (u64_at(9), u32_at(17)), key, has_checksum, value })
    }

    pub(super) fn is_deletion(&self) -> bool {
        matches!(self.value, Packed::Deleted)
    }

    /// Whether the value marks a damaged object. Such values are too short to be compressed.
    pub(super) fn is_mark(&self) -> bool {
        matches!(self.value, Packed::Plain(value) if value.starts_with(DAMAGED_PREFIX))
    }

    /// The value, decompressed. `None` for a deletion.
    pub(super) fn value(&self, unpacker: &mut Unpacker) -> Result<Option<Bytes>, Damaged> {
        Ok(match self.value {
            Packed::Deleted => None,
            Packed::Plain(value) => Some(Bytes::copy_from_slice(value)),
            Packed::Zstd(packed) => Some(unpacker.unpack(packed)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn record_reads_back(
            created in any::<u64>(),
            replaced in any::<(u64, u32)>(),
            key in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::option::of(proptest::collection::vec(0u8..4, 0..600)),
        ) {
            let mut bytes = Vec::new();
            let mut packer = Packer::default();
            Record::encode(&mut bytes, &mut packer, created, replaced, &key, value.as_deref());
            let record = Record::decode(&bytes).unwrap();
            prop_assert_eq!(record.created, created);
            prop_assert_eq!(record.replaced, replaced);
            prop_assert_eq!(record.key, &key[..]);
            prop_assert_eq!(record.is_deletion(), value.is_none());
            let read = record.value(&mut Unpacker::default()).unwrap();
            prop_assert_eq!(read.as_deref(), value.as_deref());
        }

        /// Every flipped bit of a record is detected.
        #[test]
        fn damage_is_found(value in proptest::collection::vec(any::<u8>(), 0..300), bit in any::<proptest::sample::Index>()) {
            let mut bytes = Vec::new();
            Record::encode(&mut bytes, &mut Packer::default(), 1, (2, 3), b"/key", Some(&value[..]));
            let bit = bit.index(bytes.len() * 8);
            // Except the flag for the checksum: redb's own checksums detect that one.
            prop_assume!(bit != 7);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Record::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(record) = Record::decode(&bytes) {
                let _ = record.value(&mut Unpacker::default());
            }
        }
    }
}
