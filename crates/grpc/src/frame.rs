//! Frames of messages.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;
use std::fmt;

/// Bytes before a message: whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;

/// Maximum buffer in bytes that is reserved before a message has arrived.
const RESERVE_BYTES_MAX: usize = 32 << 20;

/// Encodes a message as a frame.
pub fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + length);
    frame.put_u8(0);
    // Callers limit their messages far below this.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Encoding fails only for lack of room, and this buffer grows.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// Bytes that are not frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The message is compressed.
    #[error("a compressed message, which was not requested")]
    Compressed,
    /// The message is longer than the reader allows.
    #[error("a message of {bytes} bytes, more than {bytes_max}")]
    TooLarge {
        /// Length of the message in bytes.
        bytes: usize,
        /// Maximum in bytes.
        bytes_max: usize,
    },
    /// The bytes end within a frame.
    #[error("it ends within a message")]
    Truncated,
}

/// Splits the bytes of a body into messages. Has at most one message that is not complete.
pub struct Frames {
    buffer: BytesMut,
    bytes_max: usize,
}

impl Frames {
    /// No bytes yet. Messages have at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), bytes_max }
    }

    /// Adds bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the first message; `None` if it is not complete.
    ///
    /// # Errors
    ///
    /// [`FrameError::Compressed`], [`FrameError::TooLarge`]. The error is the same each time.
    pub fn take(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(&[compressed, ref length @ ..]) = self.buffer.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        if compressed != 0 {
            return Err(FrameError::Compressed);
        }
        let bytes = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if bytes > self.bytes_max {
            return Err(FrameError::TooLarge { bytes, bytes_max: self.bytes_max });
        }
        let whole = HEAD_BYTES + bytes;
        if self.buffer.len() < whole {
            // Reserves room for a usual message at once. For an implausible length, room grows with
            // the bytes received.
            self.buffer.reserve(whole.min(RESERVE_BYTES_MAX).saturating_sub(self.buffer.len()));
            return Ok(None);
        }
        self.buffer.advance(HEAD_BYTES);
        Ok(Some(self.buffer.split_to(bytes).freeze()))
    }

    /// Checks that the body may end here: all its messages were taken.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`].
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.buffer.is_empty() { Ok(()) } else { Err(FrameError::Truncated) }
    }
}

/// Without the bytes, which may be secret.
impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("bytes", &self.buffer.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(bytes: &[u8]) -> Frames {
        let mut frames = Frames::new(1 << 20);
        frames.push(bytes);
        frames
    }

    #[test]
    fn messages_are_assembled_from_chunks_of_any_size() {
        let bytes = [&b"\0\0\0\0\x02ab"[..], b"\0\0\0\0\0", b"\0\0\0\0\x01c"].concat();
        for cut in 0..=bytes.len() {
            let (mut frames, mut seen) = (of(b""), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                frames.push(part);
                while let Some(message) = frames.take().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, ["ab", "", "c"], "cut at {cut}");
            assert_eq!(frames.finish(), Ok(()));
        }
    }

    #[test]
    fn implausible_messages_are_errors() {
        assert_eq!(of(b"\x01\0\0\0\0").take(), Err(FrameError::Compressed));
        let too_large = FrameError::TooLarge { bytes: 0xffff_ffff, bytes_max: 1 << 20 };
        assert_eq!(of(b"\0\xff\xff\xff\xff").take(), Err(too_large));
        let mut cut = of(b"\0\0\0\0\x02a");
        assert_eq!((cut.take(), cut.finish()), (Ok(None), Err(FrameError::Truncated)));
    }

    #[test]
    fn frame_is_taken_as_the_message_that_it_was_made_of() {
        let message = "a".repeat(1000);
        let taken = of(&frame(&message)).take().unwrap().unwrap();
        assert_eq!(String::decode(taken), Ok(message));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut frames = of(&bytes);
            while let Ok(Some(message)) = frames.take() {
                prop_assert!(message.len() < bytes.len());
            }
        }
    }
}
