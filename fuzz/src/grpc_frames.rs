//! Frames of messages of gRPC, of etcd, KMS plugins and collectors.
use crate::pieces;
use bytes::Bytes;
use setpoint_grpc::{FrameError, Frames};

/// Maximum bytes of a message here.
const BYTES_MAX: usize = 512;

/// The messages before an error, and the error.
fn messages(pieces: &[Bytes]) -> (Vec<Bytes>, Result<(), FrameError>) {
    let (mut frames, mut messages) = (Frames::new(BYTES_MAX), Vec::new());
    for piece in pieces {
        frames.push(piece);
        loop {
            match frames.take() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(frames.take(), Err(error.clone()), "it stays");
                    return (messages, Err(error));
                }
            }
        }
    }
    (messages, frames.finish())
}

/// However the bytes are cut, the messages are the same, and are what was sent.
pub fn check(input: &[u8]) {
    let (cut, whole) = pieces(input);
    let (found, end) = messages(&cut);
    let (at_once, its_end) = messages(std::slice::from_ref(&whole));
    assert_eq!((&found, &end), (&at_once, &its_end));
    assert!(found.iter().all(|message| message.len() <= BYTES_MAX));
    let sent: Vec<u8> = found.iter().flat_map(framed).collect();
    assert!(whole.starts_with(&sent));
    assert_eq!(end.is_ok(), sent.len() == whole.len());
}

fn framed(message: &Bytes) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[0], &length.to_be_bytes()[..], message].concat()
}
