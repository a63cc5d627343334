//! Frames of SPDY/3.1.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Maximum length of a frame that is read.
const FRAME_BYTES_MAX: usize = 1 << 20;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// The flag of the last frame of a direction.
const FIN: u8 = 1;
/// The status of a stream that is not served.
const REFUSED: u32 = 3;

/// A frame of the client. Headers are still compressed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Open {
        id: u32,
        is_last: bool,
        headers: Vec<u8>,
    },
    Data {
        id: u32,
        bytes: Vec<u8>,
        is_last: bool,
    },
    Headers {
        headers: Vec<u8>,
    },
    Reset {
        id: u32,
    },
    /// With the frame that answers it.
    Ping(Vec<u8>),
    GoAway,
    Other,
}

/// Reads a frame; `None` at the end of the connection.
///
/// # Errors
///
/// The connection breaks inside a frame, or the frame is none of SPDY/3.
pub(super) async fn read_frame(read: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut head = [0; 8];
    if read.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    read.read_exact(&mut head[1..]).await?;
    let [a, b, c, d, flags, length @ ..] = head;
    let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("a frame is too long"));
    }
    let mut body = Vec::new();
    read.take(length as u64).read_to_end(&mut body).await?;
    if body.len() != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let is_last = flags & FIN != 0;
    let is_control = a & 0x80 != 0;
    if !is_control {
        let id = u32::from_be_bytes([a, b, c, d]);
        return Ok(Some(Frame::Data { id, bytes: body, is_last }));
    }
    if u16::from_be_bytes([a & 0x7f, b]) != 3 {
        return Err(io::Error::other("the version of SPDY is not 3"));
    }
    let word = |at: usize| {
        let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        let short = || io::Error::other("a frame is too short");
        bytes.map(|bytes| u32::from_be_bytes(bytes) & 0x7fff_ffff).ok_or_else(short)
    };
    let after = |n: usize| body.get(n..).unwrap_or_default().to_vec();
    Ok(Some(match u16::from_be_bytes([c, d]) {
        // The id, the one it belongs to, its priority and a slot.
        SYN_STREAM => Frame::Open { id: word(0)?, is_last, headers: after(10) },
        SYN_REPLY | HEADERS => Frame::Headers { headers: after(4) },
        RST_STREAM => Frame::Reset { id: word(0)? },
        PING => {
            word(0)?;
            // Its id: an answer is no longer, however long the ping is.
            Frame::Ping(control(PING, body.get(..4).unwrap_or_default()))
        }
        GOAWAY => Frame::GoAway,
        _ => Frame::Other,
    }))
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let kind = kind.to_be_bytes();
    let mut frame = vec![0x80, 3, kind[0], kind[1], 0];
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
    frame.extend_from_slice(body);
    frame
}

/// A frame of data, at most 16 MiB.
pub(super) fn data(id: u32, bytes: &[u8], is_last: bool) -> Vec<u8> {
    let mut frame = id.to_be_bytes().to_vec();
    frame.push(if is_last { FIN } else { 0 });
    frame.extend_from_slice(&(bytes.len() as u32).to_be_bytes()[1..]);
    frame.extend_from_slice(bytes);
    frame
}

/// Opens a stream with one header, which is compressed as a reply is. `is_first`: no stream of the
/// connection was opened before.
pub(super) fn open(id: u32, name: &str, value: &str, is_first: bool) -> Vec<u8> {
    let mut headers = 1_u32.to_be_bytes().to_vec();
    for text in [name, value] {
        headers.extend_from_slice(&(text.len() as u32).to_be_bytes());
        headers.extend_from_slice(text.as_bytes());
    }
    // The id, no other stream, no priority.
    let mut body = id.to_be_bytes().to_vec();
    body.extend_from_slice(&[0; 6]);
    if is_first {
        body.extend_from_slice(&[0x78, 0x01]);
    }
    // A stored block, and an empty one.
    let n = headers.len() as u16;
    body.push(0);
    body.extend_from_slice(&n.to_le_bytes());
    body.extend_from_slice(&(!n).to_le_bytes());
    body.extend_from_slice(&headers);
    body.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
    control(SYN_STREAM, &body)
}

/// Accepts a stream, without headers. They are compressed over all replies of a connection, so only
/// the first one has the compression's own header; each is a block that is stored as it is.
pub(super) fn reply(id: u32, has_replied: bool) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if !has_replied {
        body.extend_from_slice(&[0x78, 0x01]);
    }
    // A stored block of four bytes, the number of headers; and an empty one, without which clients
    // wait for more.
    body.extend_from_slice(&[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0]);
    body.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
    control(SYN_REPLY, &body)
}

/// Refuses a stream.
pub(super) fn reset(id: u32) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.extend_from_slice(&REFUSED.to_be_bytes());
    control(RST_STREAM, &body)
}
