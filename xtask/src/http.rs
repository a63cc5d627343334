//! Requests to a server: HTTP/1.1 over one connection that is kept.

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest answer that is read.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The type of most bodies.
const JSON: &str = "application/json";

/// The code of a connection that ended without an answer.
const NO_ANSWER: u16 = 599;

/// Where a server is, and what it asks of its clients.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// An IP address and a port.
    pub(crate) authority: String,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) token: String,
}

/// What a server answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    /// The header `Content-Type`.
    pub(crate) content_type: String,
    /// The values of the header `Warning`, in order.
    pub(crate) warnings: Vec<String>,
    /// The header `Audit-Id`.
    pub(crate) audit_id: String,
    pub(crate) body: Vec<u8>,
}

/// A connection, opened when it is first used and again when the server has closed it.
#[derive(Debug)]
pub(crate) struct Connection {
    to: Address,
    stream: Option<BufReader<Stream>>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A client's TLS that trusts the certificates of a file.
pub(crate) fn trusting(file: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).context("read certificates")? {
        // A file may hold a leaf, too, which is no authority.
        let _ = roots.add(certificate.context("read a certificate")?);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(Arc::new(config?.with_root_certificates(roots).with_no_client_auth()))
}

impl Connection {
    pub(crate) fn new(to: &Address) -> Self {
        Self { to: to.clone(), stream: None }
    }

    fn open(&self) -> Result<BufReader<Stream>> {
        let stream = TcpStream::connect(&self.to.authority).context("connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let Some(config) = &self.to.tls else { return Ok(BufReader::new(Stream::Plain(stream))) };
        let address = stream.peer_addr()?.ip();
        let tls = ClientConnection::new(config.clone(), ServerName::from(address))?;
        Ok(BufReader::new(Stream::Tls(Box::new(StreamOwned::new(tls, stream)))))
    }

    /// Sends a request. A kept connection that the server has closed is opened again. A server
    /// that takes a request and closes the connection has panicked: the code is [`NO_ANSWER`].
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        let sent = match method {
            "PATCH" => "application/merge-patch+json",
            _ => JSON,
        };
        self.send_as(method, path, body, sent, JSON)
    }

    /// The same with the type of the body and the type of the answer.
    pub(crate) fn send_as(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        sent: &str,
        accepted: &str,
    ) -> Result<Answer> {
        let was_open = self.stream.is_some();
        let answer = match self.once(method, path, body, [sent, accepted]) {
            Err(_) if was_open => self.once(method, path, body, [sent, accepted]),
            answer => answer,
        };
        answer.or_else(|error| {
            // Whether it listens still.
            TcpStream::connect(&self.to.authority)
                .with_context(|| format!("{method} {path} to {}", self.to.authority))?;
            let body = serde_json::json!({"message": format!("no answer: {error}")});
            let body = body.to_string().into_bytes();
            Ok(Answer { code: NO_ANSWER, body, ..Answer::default() })
        })
    }

    fn once(&mut self, method: &str, path: &str, body: &[u8], types: [&str; 2]) -> Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.open()?,
        };
        self.request(&mut stream, method, path, body, types)?;
        let (answer, is_kept) = read(&mut stream, method == "HEAD")?;
        if is_kept {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    /// Reads a stream of lines in JSON until the server ends it. `None`: it has begun.
    pub(crate) fn lines(&self, path: &str, each: impl FnMut(Option<&[u8]>)) -> Result<()> {
        self.lines_as(path, JSON, each)
    }

    /// The same with the type of the answer.
    pub(crate) fn lines_as(
        &self,
        path: &str,
        accepted: &str,
        mut each: impl FnMut(Option<&[u8]>),
    ) -> Result<()> {
        let mut stream = self.open()?;
        self.request(&mut stream, "GET", path, b"", [JSON, accepted])?;
        let status = line(&mut stream)?;
        while line(&mut stream)?.contains(':') {}
        if !status.contains(" 200 ") {
            bail!("{path}: {status}");
        }
        each(None);
        let mut rest = Vec::new();
        loop {
            let size = usize::from_str_radix(line(&mut stream)?.trim(), 16)?;
            rest.extend(exactly(&mut stream, size)?);
            line(&mut stream)?;
            if size == 0 {
                return Ok(());
            }
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                each(Some(&rest[..end]));
                rest.drain(..=end);
            }
            if rest.len() > BODY_BYTES_MAX {
                bail!("a line is too long");
            }
        }
    }

    fn request(
        &self,
        stream: &mut BufReader<Stream>,
        method: &str,
        path: &str,
        body: &[u8],
        [sent, accepted]: [&str; 2],
    ) -> Result<()> {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: {accepted}\r\nContent-Type: \
             {sent}\r\nContent-Length: {}\r\n",
            self.to.authority,
            body.len()
        );
        if !self.to.token.is_empty() {
            request += &format!("Authorization: Bearer {}\r\n", self.to.token);
        }
        request += "\r\n";
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        stream.get_mut().write_all(&bytes)?;
        stream.get_mut().flush()?;
        Ok(())
    }
}

/// Reads an answer, and whether the connection stays open. `is_bare`: nothing follows the headers.
fn read(stream: &mut impl BufRead, is_bare: bool) -> Result<(Answer, bool)> {
    let status = line(stream)?;
    let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let mut answer = Answer { code: code.context("no status line")?, ..Answer::default() };
    let (mut length, mut is_chunked, mut is_kept) = (0, false, true);
    loop {
        let header = line(stream)?;
        let Some((name, value)) = header.split_once(':') else { break };
        let value = value.trim();
        match &*name.to_ascii_lowercase() {
            "content-length" => length = value.parse()?,
            "transfer-encoding" => is_chunked = value == "chunked",
            "connection" => is_kept = value != "close",
            "content-type" => value.clone_into(&mut answer.content_type),
            "audit-id" => value.clone_into(&mut answer.audit_id),
            "warning" => answer.warnings.push(value.to_owned()),
            _ => {}
        }
    }
    if is_bare {
        return Ok((answer, is_kept));
    }
    if !is_chunked {
        answer.body = exactly(stream, length)?;
        return Ok((answer, is_kept));
    }
    loop {
        let size = usize::from_str_radix(line(stream)?.trim(), 16)?;
        let chunk = exactly(stream, size)?;
        line(stream)?;
        if size == 0 {
            return Ok((answer, is_kept));
        }
        answer.body.extend(chunk);
        if answer.body.len() > BODY_BYTES_MAX {
            bail!("an answer is too long");
        }
    }
}

fn exactly(stream: &mut impl Read, length: usize) -> Result<Vec<u8>> {
    if length > BODY_BYTES_MAX {
        bail!("an answer is too long");
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn line(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        bail!("the connection has ended");
    }
    Ok(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn answers_are_read_in_chunks_and_whole() {
        let chunked = "HTTP/1.1 201 Created\r\nWarning: 299 - \"a\"\r\nTransfer-Encoding: \
                       chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let (answer, is_kept) = read(&mut chunked.as_bytes(), false).unwrap();
        assert_eq!((answer.code, &*answer.body, is_kept), (201, &b"abcde"[..], true));
        assert_eq!(answer.warnings, ["299 - \"a\""]);
        let whole = "HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
        let (answer, is_kept) = read(&mut whole.as_bytes(), false).unwrap();
        assert_eq!((answer.code, &*answer.body, is_kept), (409, &b"{}"[..], false));
    }
}
