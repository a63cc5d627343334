//! Handwritten HTTP over the plain port, for requests that no proper client sends.

use crate::server::{PATIENCE, Server};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The `message` of a `Status` with this response's code.
    #[track_caller]
    pub(crate) fn message(&self) -> String {
        let status: Value =
            serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        assert_eq!(status["kind"], "Status", "{self:?}");
        assert_eq!(status["code"], self.code, "{self:?}");
        status["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// A connection to the plain port.
pub(crate) fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.plain.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends these bytes and reads until the server closes the connection.
#[track_caller]
pub(crate) fn exchange(server: &Server, bytes: &[u8]) -> Answer {
    try_exchange(&server.plain, bytes)
        .unwrap_or_else(|e| panic!("{e}\nserver log:\n{}", server.log()))
}

/// As [`exchange`], with a server that may be gone.
pub(crate) fn try_exchange(plain: &str, bytes: &[u8]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(plain.trim_start_matches("http://"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut read = Vec::new();
    let ended = stream.read_to_end(&mut read);
    let text = String::from_utf8_lossy(&read).into_owned();
    let unusable = || std::io::Error::other(format!("{ended:?}: {text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(unusable)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(unusable)?;
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { dechunked(body) } else { body.to_owned() };
    Ok(Answer { code, head: head.to_owned(), body })
}

/// The decoded part of a chunked body that has arrived.
fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|e| panic!("{e}: {size:?}"));
        let Some(chunk) = rest.get(..size).filter(|_| size > 0) else { break };
        whole.push_str(chunk);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// One request with a body.
#[track_caller]
pub(crate) fn send(
    server: &Server,
    verb: &str,
    path: &str,
    content_type: &str,
    body: &[u8],
) -> Answer {
    let head = format!(
        "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    exchange(server, &[head.as_bytes(), body].concat())
}

/// One request without a body.
#[track_caller]
pub(crate) fn get(server: &Server, path: &str) -> Answer {
    exchange(
        server,
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
    )
}
