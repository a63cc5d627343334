//! The upgrade to WebSocket (RFC 6455), and watches over it. One text message per event, a close
//! frame at the end.
//!
//! The answer to an upgrade contains a [`Conversation`]: the owner of the connection takes it out
//! of the response and runs it. In process there is no connection to upgrade, and the request is
//! answered as an ordinary watch.

use crate::body::Body;
use crate::filter::authenticate::TOKEN_PROTOCOL;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use setpoint_object::error::chain;
use setpoint_serve::Conversation;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Maximum length of a client's message in bytes. All messages are ignored except pings and closes.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024;

/// Appended to every handshake's key (RFC 6455, section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// Maximum length of the body of a ping, a pong or a close in bytes (RFC 6455, section 5.5). As the
/// reference, the rest of a longer one is dropped.
const CONTROL_BYTES_MAX: usize = 125;

/// The body of a close frame: the code of a normal end.
const NORMAL: [u8; 2] = 1000_u16.to_be_bytes();
/// The same of an end because a client's frame is not masked.
const PROTOCOL_ERROR: [u8; 2] = 1002_u16.to_be_bytes();

/// A request to upgrade.
pub(crate) struct Upgrade {
    accept: HeaderValue,
    /// What the client offers.
    protocols: Vec<String>,
    connection: OnUpgrade,
}

impl Upgrade {
    /// Reads the request; `None` if it requests no upgrade, or its connection cannot be upgraded.
    pub(crate) fn of(parts: &Parts) -> Option<Self> {
        let headers = &parts.headers;
        let asked = has_token(headers, header::CONNECTION, "upgrade")
            && has_token(headers, header::UPGRADE, "websocket");
        if !asked || headers.get(header::SEC_WEBSOCKET_VERSION)? != "13" {
            return None;
        }
        let key = headers.get(header::SEC_WEBSOCKET_KEY)?.to_str().ok()?;
        let protocols = tokens(headers, header::SEC_WEBSOCKET_PROTOCOL)
            .filter(|protocol| !protocol.starts_with(TOKEN_PROTOCOL))
            .map(str::to_owned);
        Some(Self {
            accept: accept(key),
            protocols: protocols.collect(),
            connection: parts.extensions.get::<OnUpgrade>()?.clone(),
        })
    }

    /// The first known protocol that the client offers.
    pub(crate) fn offered(&self, known: &[&'static str]) -> Option<&'static str> {
        known.iter().copied().find(|known| self.protocols.iter().any(|offered| offered == known))
    }

    /// Whether the client offers a protocol at all.
    pub(crate) fn offers_any(&self) -> bool {
        !self.protocols.is_empty()
    }

    /// Switches protocols and sends one message per item until the stream ends or the client
    /// closes.
    pub(crate) fn respond(
        self,
        messages: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Response<Body> {
        let protocol = self.protocols.first().cloned();
        self.switch(protocol.as_deref(), async move |io| {
            let (read, write) = tokio::io::split(io);
            if let Err(error) = converse(read, write, messages).await {
                tracing::debug!(error = chain(&error), "a WebSocket broke");
            }
        })
    }

    /// Switches protocols, and runs a conversation over the connection.
    pub(crate) fn switch<F, Fut>(self, protocol: Option<&str>, run: F) -> Response<Body>
    where
        F: FnOnce(TokioIo<Upgraded>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let connection = self.connection;
        let conversation = async move {
            match connection.await {
                Ok(upgraded) => run(TokioIo::new(upgraded)).await,
                Err(error) => tracing::debug!(error = chain(&error), "upgrade to WebSocket"),
            }
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        let protocol = protocol.and_then(|protocol| HeaderValue::from_str(protocol).ok());
        if let Some(protocol) = protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        response.extensions_mut().insert(Conversation::new(conversation));
        response
    }
}

/// The answer to a handshake's key.
fn accept(key: &str) -> HeaderValue {
    let digest = ring::digest::digest(
        &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{GUID}").as_bytes(),
    );
    HeaderValue::try_from(STANDARD.encode(digest)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The comma-separated words of a header.
pub(crate) fn tokens(headers: &HeaderMap, name: http::HeaderName) -> impl Iterator<Item = &str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Whether a header has a word, in any case.
pub(crate) fn has_token(headers: &HeaderMap, name: http::HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|word| word.eq_ignore_ascii_case(token))
}

/// Whether a request asks for another protocol, a WebSocket or not.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE) && has_token(headers, header::CONNECTION, "upgrade")
}

/// Sends messages and answers pings until either side ends the conversation.
async fn converse(
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    messages: impl Stream<Item = Bytes>,
) -> std::io::Result<()> {
    let mut messages = std::pin::pin!(messages);
    let mut frame = Box::pin(receive(read));
    loop {
        tokio::select! {
            // Cancel safe: a message is taken whole or not at all.
            message = messages.next() => match message {
                Some(message) => send(&mut write, TEXT, &message).await?,
                None => {
                    send(&mut write, CLOSE, &NORMAL).await?;
                    return write.shutdown().await;
                }
            },
            // Not cancelled by the other arm: the future lives across iterations of the loop.
            received = &mut frame => {
                let (Frame { opcode, is_masked, mut payload }, rest) = received?;
                payload.truncate(CONTROL_BYTES_MAX);
                match opcode {
                    _ if !is_masked => {
                        send(&mut write, CLOSE, &PROTOCOL_ERROR).await?;
                        return write.shutdown().await;
                    }
                    CLOSE => {
                        send(&mut write, CLOSE, &payload).await?;
                        return write.shutdown().await;
                    }
                    PING => send(&mut write, PONG, &payload).await?,
                    _ => {}
                }
                read = rest;
                frame = Box::pin(receive(read));
            }
        }
    }
}

/// A frame of a client.
struct Frame {
    opcode: u8,
    is_masked: bool,
    payload: Vec<u8>,
}

/// Receives one frame; also returns the reader.
async fn receive<R: AsyncRead + Unpin>(mut read: R) -> std::io::Result<(Frame, R)> {
    let [first, second] = read_array::<2, _>(&mut read).await?;
    let length = match second & 0x7f {
        126 => u64::from(u16::from_be_bytes(read_array(&mut read).await?)),
        127 => u64::from_be_bytes(read_array(&mut read).await?),
        short => u64::from(short),
    };
    if length > MESSAGE_BYTES_MAX {
        return Err(std::io::Error::other("a WebSocket message is too long"));
    }
    let is_masked = second & 0x80 != 0;
    let mask: [u8; 4] = if is_masked { read_array(&mut read).await? } else { [0; 4] };
    let mut payload = Vec::new();
    (&mut read).take(length).read_to_end(&mut payload).await?;
    if payload.len() as u64 != length {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Ok((Frame { opcode: first & 0x0f, is_masked, payload }, read))
}

async fn read_array<const N: usize, R: AsyncRead + Unpin>(
    read: &mut R,
) -> std::io::Result<[u8; N]> {
    let mut array = [0; N];
    read.read_exact(&mut array).await?;
    Ok(array)
}

/// Sends one whole, unmasked frame.
async fn send(
    write: &mut (impl AsyncWrite + Unpin),
    opcode: u8,
    payload: &[u8],
) -> std::io::Result<()> {
    let mut head = vec![0x80 | opcode];
    match payload.len() {
        short @ 0..=125 => head.push(short as u8),
        medium @ 126..=0xffff => {
            head.push(126);
            head.extend_from_slice(&(medium as u16).to_be_bytes());
        }
        long => {
            head.push(127);
            head.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    write.write_all(&head).await?;
    write.write_all(payload).await?;
    write.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_answers_the_example_of_the_standard() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    /// A masked frame as a client sends it.
    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut frame = vec![0x80 | opcode, 0x80 | payload.len() as u8];
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    #[tokio::test]
    async fn messages_are_sent_and_the_end_is_a_close_frame() {
        let (mut client, server) = tokio::io::duplex(1024);
        let (read, write) = tokio::io::split(server);
        let long = Bytes::from(vec![b'x'; 200]);
        let messages = futures::stream::iter([Bytes::from_static(b"{}\n"), long]);
        converse(read, write, messages).await.unwrap();
        let mut sent = Vec::new();
        client.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent[..5], *b"\x81\x03{}\n");
        assert_eq!(sent[5..9], [0x81, 126, 0, 200]);
        assert_eq!(sent[209..], [0x88, 2, 0x03, 0xe8]);
    }

    #[tokio::test]
    async fn pings_are_answered_and_a_close_ends_the_conversation() {
        let (mut client, server) = tokio::io::duplex(1024);
        let (read, write) = tokio::io::split(server);
        client.write_all(&masked(PING, b"hi")).await.unwrap();
        client.write_all(&masked(CLOSE, &NORMAL)).await.unwrap();
        converse(read, write, futures::stream::pending()).await.unwrap();
        let mut sent = Vec::new();
        client.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent, b"\x8a\x02hi\x88\x02\x03\xe8");
    }

    #[tokio::test]
    async fn an_unmasked_frame_ends_the_conversation_and_long_pings_are_cut() {
        let (mut client, server) = tokio::io::duplex(4096);
        let (read, write) = tokio::io::split(server);
        // 300 bytes, with a mask of zeros.
        client.write_all(&[0x80 | PING, 0x80 | 126, 1, 44, 0, 0, 0, 0]).await.unwrap();
        client.write_all(&[b'x'; 300]).await.unwrap();
        client.write_all(&[0x80 | PING, 2, b'h', b'i']).await.unwrap();
        converse(read, write, futures::stream::pending()).await.unwrap();
        let mut sent = Vec::new();
        client.read_to_end(&mut sent).await.unwrap();
        let expected = [&[0x80 | PONG, 125][..], &[b'x'; 125], &[0x88, 2, 0x03, 0xea]].concat();
        assert_eq!(sent, expected);
    }
}
