//! Lists that a process saved and another reads.
use bytes::Bytes;
use setpoint_informer::source::saved::SavedLists;

/// Number of bytes before the checksum.
const MAGIC_BYTES: usize = 8;

/// Lists that can be read are encoded to bytes that read as the same lists. The checksum is made to
/// match, since otherwise nearly every input stops there.
pub fn check(input: &[u8]) {
    let mut bytes = input.to_vec();
    if let Some((head, content)) = bytes.split_at_mut_checked(MAGIC_BYTES + 4) {
        head[MAGIC_BYTES..].copy_from_slice(&crc32fast::hash(content).to_le_bytes());
    }
    let Ok(lists) = SavedLists::from_bytes(Bytes::from(bytes)) else { return };
    let again = lists.to_bytes().unwrap();
    assert_eq!(SavedLists::from_bytes(Bytes::from(again)).unwrap(), lists);
}
