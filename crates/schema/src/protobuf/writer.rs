//! Tags, varints and lengths, written from the end of a message to its beginning.

use super::EncodeError;

/// The bytes of a message in reverse, so that a length is known when it is written.
#[derive(Debug)]
pub(super) struct Writer {
    /// Behind the first `start` bytes, which are others'.
    reversed: Vec<u8>,
    start: usize,
}

/// The longest varint, in bytes.
const VARINT_BYTES_MAX: usize = 10;

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { reversed: Vec::with_capacity(bytes), start: 0 }
    }

    /// Writes behind bytes that are whole.
    pub(super) fn behind(bytes: Vec<u8>) -> Self {
        Self { start: bytes.len(), reversed: bytes }
    }

    /// The message, behind what was there before.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if let Some(message) = self.reversed.get_mut(self.start..) {
            message.reverse();
        }
        self.reversed
    }

    /// The bytes of the message, in reverse.
    pub(super) fn into_reversed(self) -> Vec<u8> {
        self.reversed
    }

    /// Bytes that are in reverse already.
    pub(super) fn reversed(&mut self, bytes: &[u8]) {
        self.reversed.extend_from_slice(bytes);
    }

    /// The bytes before it.
    pub(super) fn discard(mut self) -> Vec<u8> {
        self.reversed.truncate(self.start);
        self.reversed
    }

    /// Bytes as they are.
    pub(super) fn plain(&mut self, bytes: &[u8]) {
        self.reversed.extend(bytes.iter().rev());
    }

    /// A field of text or bytes.
    pub(super) fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.plain(bytes);
        self.length(number, bytes.len());
    }

    /// A field that is an integer or a flag; negative numbers are 64 bits.
    pub(super) fn varint(&mut self, number: u32, value: u64) {
        self.raw_varint(value);
        self.tag(number, 0);
    }

    /// A field that is a double.
    pub(super) fn double(&mut self, number: u32, value: f64) {
        self.plain(&value.to_le_bytes());
        self.tag(number, 1);
    }

    /// A field that is a message, whose fields `write` writes from the last to the first.
    pub(super) fn message(
        &mut self,
        number: u32,
        write: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let end = self.reversed.len();
        write(self)?;
        self.length(number, self.reversed.len() - end);
        Ok(())
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.reversed.len() - self.start
    }

    /// A field that is a message of one field 1, which holds the bytes.
    pub(super) fn wrapped_bytes(&mut self, number: u32, bytes: &[u8]) {
        let end = self.reversed.len();
        self.bytes(1, bytes);
        self.length(number, self.reversed.len() - end);
    }

    /// The tag and length before the bytes of a message or bytes field.
    pub(super) fn length(&mut self, number: u32, length: usize) {
        self.raw_varint(length as u64);
        self.tag(number, 2);
    }

    fn tag(&mut self, number: u32, wire_type: u32) {
        self.raw_varint(u64::from(number << 3 | wire_type));
    }

    fn raw_varint(&mut self, mut value: u64) {
        let (mut bytes, mut count) = ([0; VARINT_BYTES_MAX], 0);
        for byte in &mut bytes {
            count += 1;
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                *byte = low & 0x7f;
                break;
            }
            *byte = low | 0x80;
        }
        self.plain(bytes.get(..count).unwrap_or_default());
    }
}
