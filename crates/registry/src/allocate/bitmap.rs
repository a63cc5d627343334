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
use serde_json::Value;
use setpoint_object::encode;
use setpoint_object::keys::NODE_PORT_BITMAP;
use setpoint_store::{At, Compare, Op, Revision, Store, StoreError};

const KEY: Bytes = Bytes::from_static(NODE_PORT_BITMAP.as_bytes());
/// The first bytes of an object in protobuf.
const MAGIC: &[u8] = b"k8s\0";
/// The object in its envelope.
const RAW: u64 = 2;
/// Members of the object.
const RANGE: u64 = 2;
const DATA: u64 = 3;

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
            let raw = field(envelope, RAW)?;
            let range = String::from_utf8(field(raw, RANGE)?.to_vec()).ok()?;
            (range, field(raw, DATA).unwrap_or_default().to_vec())
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
        let raw = replaced(field(envelope, RAW)?, DATA, data)?;
        return Some([MAGIC, &replaced(envelope, RAW, &raw)?].concat().into());
    }
    let mut object: Value = serde_json::from_slice(value).ok()?;
    object["data"] = STANDARD.encode(data).into();
    Some(encode::to_bytes(&object))
}

/// One field of a message in protobuf: its number, where it is, and its content if it has a length.
struct Wire<'b> {
    number: u64,
    whole: &'b [u8],
    content: Option<&'b [u8]>,
}

/// The fields of a message; ends early if it is damaged.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Option<Wire<'_>>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let next = next_field(rest);
        rest = next.as_ref().map_or(&[], |(_, rest)| rest);
        Some(next.map(|(field, _)| field))
    })
}

fn next_field(bytes: &[u8]) -> Option<(Wire<'_>, &[u8])> {
    let (tag, after) = varint(bytes)?;
    let (content, rest) = match tag & 7 {
        0 => (None, varint(after)?.1),
        1 => (None, after.get(8..)?),
        2 => {
            let (length, after) = varint(after)?;
            let (content, rest) = after.split_at_checked(usize::try_from(length).ok()?)?;
            (Some(content), rest)
        }
        5 => (None, after.get(4..)?),
        _ => return None,
    };
    let whole = &bytes[..bytes.len() - rest.len()];
    Some((Wire { number: tag >> 3, whole, content }, rest))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// The content of a field with a length.
fn field(message: &[u8], number: u64) -> Option<&[u8]> {
    fields(message).flatten().filter(|field| field.number == number).find_map(|field| field.content)
}

/// A message with another content of one field, which comes last if it was absent. `None`: it is
/// damaged.
fn replaced(message: &[u8], number: u64, content: &[u8]) -> Option<Vec<u8>> {
    let put = |out: &mut Vec<u8>| {
        for mut value in [number << 3 | 2, content.len() as u64] {
            loop {
                let [low, ..] = value.to_le_bytes();
                value >>= 7;
                if value == 0 {
                    out.push(low);
                    break;
                }
                out.push(low | 0x80);
            }
        }
        out.extend_from_slice(content);
    };
    let (mut out, mut is_put) = (Vec::with_capacity(message.len() + content.len()), false);
    for field in fields(message) {
        let field = field?;
        if field.number != number {
            out.extend_from_slice(field.whole);
        } else if !is_put {
            put(&mut out);
            is_put = true;
        }
    }
    if !is_put {
        put(&mut out);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Kubernetes 1.36 stores it, with these bits.
    fn stored(range: &str, data: &[u8]) -> Bytes {
        let mut raw = b"\x0a\x10\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0\x12".to_vec();
        raw.push(u8::try_from(range.len()).unwrap());
        raw.extend_from_slice(range.as_bytes());
        let raw = replaced(&raw, DATA, data).unwrap();
        let envelope = b"\x0a\x15\x0a\x02v1\x12\x0fRangeAllocation\x1a\0\x22\0";
        [MAGIC, &replaced(envelope, RAW, &raw).unwrap()].concat().into()
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
