//! The node ports that a kube-apiserver has allocated: one bit for each, in one key.
//!
//! ```text
//! /registry/ranges/servicenodeports   "k8s\0" Unknown { typeMeta = 1, raw = 2, … }
//!                                       └ RangeAllocation { metadata = 1, range = 2, data = 3 }
//! ```
//!
//! `range` is `30000-32767`. `data` is one large number, its most significant byte first; bit *n*
//! is the port *n* above the first one. With `--storage-media-type=application/json` the same
//! object is JSON, and `data` is in base64.
//!
//! A kube-apiserver sets a port's bit before it writes the Service, and does not know claims. So on
//! a store with a bitmap, a port is free only if its bit is not set, and the write of a Service
//! changes its bits in the same transaction. Without a kube-apiserver there is no bitmap, and none
//! is made. A kube-apiserver makes it from the stored Services when it starts.
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use prost::Message;
use serde_json::Value;
use setpoint_object::encode;
use setpoint_object::keys::NODE_PORT_BITMAP;
use setpoint_store::{At, Compare, Op, ReadFault, Revision, Store, StoreError};

const KEY: Bytes = Bytes::from_static(NODE_PORT_BITMAP.as_bytes());
/// The first bytes of an object in protobuf.
const MAGIC: &[u8] = b"k8s\0";

/// The envelope of an object in protobuf, with the fields of Kubernetes' `Unknown`.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "bytes", optional, tag = "1")]
    type_meta: Option<Bytes>,
    #[prost(bytes = "vec", optional, tag = "2")]
    raw: Option<Vec<u8>>,
    #[prost(string, optional, tag = "3")]
    content_encoding: Option<String>,
    #[prost(string, optional, tag = "4")]
    content_type: Option<String>,
}

/// The object in it, with the fields of Kubernetes' `RangeAllocation`.
#[derive(Clone, PartialEq, Message)]
struct RangeAllocation {
    #[prost(bytes = "bytes", optional, tag = "1")]
    metadata: Option<Bytes>,
    #[prost(string, optional, tag = "2")]
    range: Option<String>,
    #[prost(bytes = "vec", optional, tag = "3")]
    data: Option<Vec<u8>>,
}

/// A stored bitmap.
#[derive(Debug)]
pub(super) struct Bitmap {
    modified: Revision,
    value: Bytes,
    /// The first port.
    first: u16,
    /// The most significant byte first.
    data: Vec<u8>,
}

impl Bitmap {
    /// Reads the bitmap. `None`: there is none.
    ///
    /// # Errors
    ///
    /// The store fails, or has a value that is no bitmap.
    pub(super) async fn read(store: &dyn Store) -> Result<Option<Self>, StoreError> {
        let Some(found) = store.get(&KEY, At::Latest).await?.value else { return Ok(None) };
        let unreadable = || StoreError::Unreadable {
            key: NODE_PORT_BITMAP.to_owned(),
            fault: ReadFault::Decode(found.modified),
            reason: "it is no RangeAllocation".to_owned(),
        };
        let (first, data) = content(&found.value).ok_or_else(unreadable)?;
        Ok(Some(Self { modified: found.modified, value: found.value, first, data }))
    }

    /// Whether a port is allocated.
    pub(super) fn has(&self, port: u16) -> bool {
        self.bit(port).is_some_and(|(at, bit)| {
            self.data.len().checked_sub(at + 1).is_some_and(|at| self.data[at] & bit != 0)
        })
    }

    /// The bytes from the end, and the bit in that one. `None`: below the range.
    fn bit(&self, port: u16) -> Option<(usize, u8)> {
        let offset = usize::from(port.checked_sub(self.first)?);
        Some((offset / 8, 1 << (offset % 8)))
    }

    fn set(&mut self, port: u16, is_taken: bool) {
        let Some((at, bit)) = self.bit(port) else { return };
        if self.data.len() <= at {
            if !is_taken {
                return;
            }
            let missing = at + 1 - self.data.len();
            self.data.splice(..0, std::iter::repeat_n(0, missing));
        }
        let at = self.data.len() - 1 - at;
        match is_taken {
            true => self.data[at] |= bit,
            false => self.data[at] &= !bit,
        }
    }

    /// The write that takes some ports and frees others. `None`: nothing changes.
    pub(super) fn change(mut self, taken: &[u16], freed: &[u16]) -> Option<(Compare, Op)> {
        let before = self.data.clone();
        freed.iter().for_each(|port| self.set(*port, false));
        taken.iter().for_each(|port| self.set(*port, true));
        if self.data == before {
            return None;
        }
        // Go's big numbers have no zero bytes in front.
        let n_zeros = self.data.iter().take_while(|byte| **byte == 0).count();
        let value = with_data(&self.value, &self.data[n_zeros..])?;
        Some((Compare::Modified(KEY, self.modified), Op::Put(KEY, value)))
    }
}

/// Whether a port is free in the bitmap, if there is one.
///
/// # Errors
///
/// As [`Bitmap::read`].
pub(super) async fn is_free(store: &dyn Store, port: u16) -> Result<bool, StoreError> {
    Ok(Bitmap::read(store).await?.is_none_or(|bitmap| !bitmap.has(port)))
}

/// The first port and the bits of a stored bitmap.
fn content(value: &[u8]) -> Option<(u16, Vec<u8>)> {
    let (range, data) = match value.strip_prefix(MAGIC) {
        Some(envelope) => {
            let (_, object) = messages(envelope)?;
            (object.range?, object.data.unwrap_or_default())
        }
        None => {
            let object: Value = serde_json::from_slice(value).ok()?;
            let data = STANDARD.decode(object["data"].as_str().unwrap_or_default()).ok()?;
            (object["range"].as_str()?.to_owned(), data)
        }
    };
    Some((range.split_once('-')?.0.parse().ok()?, data))
}

/// A stored bitmap with other bits.
fn with_data(value: &[u8], data: &[u8]) -> Option<Bytes> {
    if let Some(envelope) = value.strip_prefix(MAGIC) {
        let (mut envelope, mut object) = messages(envelope)?;
        object.data = Some(data.to_vec());
        envelope.raw = Some(object.encode_to_vec());
        return Some([MAGIC, &envelope.encode_to_vec()].concat().into());
    }
    let mut object: Value = serde_json::from_slice(value).ok()?;
    object["data"] = STANDARD.encode(data).into();
    Some(encode::to_bytes(&object))
}

/// The envelope and the object in it.
fn messages(envelope: &[u8]) -> Option<(Envelope, RangeAllocation)> {
    let envelope = Envelope::decode(envelope).ok()?;
    let object = RangeAllocation::decode(envelope.raw.as_deref()?).ok()?;
    Some((envelope, object))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Kubernetes 1.36 stores it, with these bits.
    fn stored(range: &str, data: &[u8]) -> Bytes {
        let mut raw = b"\x0a\x10\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0\x12".to_vec();
        raw.push(u8::try_from(range.len()).unwrap());
        raw.extend_from_slice(range.as_bytes());
        raw.extend([0x1a, u8::try_from(data.len()).unwrap()]);
        raw.extend_from_slice(data);
        let type_meta = b"\x0a\x15\x0a\x02v1\x12\x0fRangeAllocation";
        let length = u8::try_from(raw.len()).unwrap();
        [MAGIC, type_meta, &[0x12, length], &raw, b"\x1a\0\x22\0"].concat().into()
    }

    fn bitmap(value: Bytes) -> Bitmap {
        let (first, data) = content(&value).unwrap();
        Bitmap { modified: Revision(7), value, first, data }
    }

    fn ports(bitmap: &Bitmap) -> Vec<u16> {
        (0..=u16::MAX).filter(|port| bitmap.has(*port)).collect()
    }

    fn written(change: Option<(Compare, Op)>) -> Bitmap {
        let Some((Compare::Modified(_, Revision(7)), Op::Put(_, value))) = change else {
            panic!("{change:?}")
        };
        bitmap(value)
    }

    #[test]
    fn bits_are_those_of_a_large_number() {
        // 2^9 + 2^0.
        let read = bitmap(stored("30000-32767", &[0x02, 0x01]));
        assert_eq!(ports(&read), [30000, 30009]);
        let read = written(read.change(&[32767, 30001], &[30009]));
        assert_eq!(ports(&read), [30000, 30001, 32767]);
        assert_eq!(read.data.len(), 346);
        let read = written(read.change(&[], &[32767]));
        assert_eq!((ports(&read), &*read.data), (vec![30000, 30001], &[0x03][..]));
        let read = written(read.change(&[], &[30000, 30001]));
        assert_eq!(read.data, [0; 0]);
        assert_eq!(ports(&written(read.change(&[30003], &[]))), [30003]);
    }

    #[test]
    fn the_same_bits_are_not_written() {
        let read = || bitmap(stored("30000-32767", &[0x01]));
        assert!(read().change(&[30000], &[30005, 32000, 29999]).is_none());
        assert!(read().change(&[], &[]).is_none());
    }

    #[test]
    fn other_members_stay() {
        let before = stored("30000-32767", &[0x01]);
        let Some((_, Op::Put(_, after))) = bitmap(before).change(&[30001], &[30000]) else {
            panic!("no change")
        };
        assert_eq!(after, stored("30000-32767", &[0x02]));
    }

    #[test]
    fn json_is_read_and_written() {
        let value = r#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"30000-30010","data":"Ag=="}"#;
        let read = bitmap(value.into());
        assert_eq!(ports(&read), [30001]);
        assert_eq!(ports(&written(read.change(&[30008], &[]))), [30001, 30008]);
    }

    #[test]
    fn damaged_values_are_no_bitmaps() {
        let whole = stored("30000-32767", &[0x01, 0x02]);
        assert!(content(b"").is_none());
        assert!(content(b"k8s\0").is_none());
        assert!(content(&whole[..40]).is_none());
        assert!(content(&stored("", &[])).is_none());
    }
}
