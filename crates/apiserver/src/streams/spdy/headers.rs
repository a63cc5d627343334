//! Headers of SPDY: compressed by zlib, with a dictionary that both sides know.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
use std::collections::BTreeMap;
use std::io;

/// Maximum length of the headers of a stream.
const HEADERS_BYTES_MAX: usize = 64 << 10;
/// How far back compressed data refers.
const WINDOW_BYTES: usize = 32 << 10;

/// The words of the dictionary of SPDY/3, each with its length before it. `_` stands for a space.
const WORDS: &str = "\
    options head post put delete trace accept accept-charset accept-encoding \
    accept-language accept-ranges age allow authorization cache-control connection \
    content-base content-encoding content-language content-length content-location \
    content-md5 content-range content-type date etag expect expires from host \
    if-match if-modified-since if-none-match if-range if-unmodified-since \
    last-modified location max-forwards pragma proxy-authenticate \
    proxy-authorization range referer retry-after server te trailer \
    transfer-encoding upgrade user-agent vary via warning www-authenticate method \
    get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin";

/// The end of the dictionary.
const TAIL: &str = "\
    100101201202205206300302303304305306307402405406407408409410411412413414415416417502\
    504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Re\
    quest401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Impl\
    emented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00\
    :00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,imag\
    e/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivate\
    max-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// The dictionary.
fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::new();
    for word in WORDS.split(' ') {
        dictionary.extend_from_slice(&(word.len() as u32).to_be_bytes());
        dictionary.extend(word.bytes().map(|byte| if byte == b'_' { b' ' } else { byte }));
    }
    dictionary.extend_from_slice(TAIL.as_bytes());
    dictionary
}

/// Decompresses the headers of a connection's frames, one after the other.
pub(super) struct Inflater {
    state: Box<DecompressorOxide>,
    /// The last bytes, as a ring.
    window: Vec<u8>,
    /// Where the next byte goes.
    at: usize,
    has_begun: bool,
}

impl Inflater {
    pub(super) fn new() -> Self {
        Self { state: Box::default(), window: vec![0; WINDOW_BYTES], at: 0, has_begun: false }
    }

    /// The headers of a frame.
    ///
    /// # Errors
    ///
    /// They are not compressed as they should be, or too long.
    pub(super) fn read(&mut self, compressed: &[u8]) -> io::Result<BTreeMap<String, String>> {
        parse(&self.inflate(compressed)?)
    }

    fn inflate(&mut self, compressed: &[u8]) -> io::Result<Vec<u8>> {
        let mut rest = match self.has_begun {
            true => compressed,
            false => self.begin(compressed)?,
        };
        let mut out = Vec::new();
        loop {
            let flags = inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
            let (status, n_read, n_written) =
                decompress(&mut self.state, rest, &mut self.window, self.at, flags);
            out.extend_from_slice(&self.window[self.at..self.at + n_written]);
            self.at = (self.at + n_written) % WINDOW_BYTES;
            rest = &rest[n_read..];
            if out.len() > HEADERS_BYTES_MAX {
                return Err(io::Error::other("headers are too long"));
            }
            match status {
                TINFLStatus::NeedsMoreInput | TINFLStatus::Done => return Ok(out),
                TINFLStatus::HasMoreOutput => {}
                _ => return Err(io::Error::other("headers cannot be decompressed")),
            }
        }
    }

    /// Reads the header of the compression, and begins with the dictionary that it names.
    fn begin<'a>(&mut self, compressed: &'a [u8]) -> io::Result<&'a [u8]> {
        let bad = || io::Error::other("headers are not compressed by zlib");
        let (head, rest) = compressed.split_at_checked(2).ok_or_else(bad)?;
        let has_dictionary = head[1] & 0x20 != 0;
        if head[0] & 0x0f != 8 {
            return Err(bad());
        }
        self.has_begun = true;
        if !has_dictionary {
            return Ok(rest);
        }
        let dictionary = dictionary();
        self.window[..dictionary.len()].copy_from_slice(&dictionary);
        self.at = dictionary.len();
        // After the sum of the dictionary, of which there is only one.
        rest.get(4..).ok_or_else(bad)
    }
}

/// Names and values, each with its length before it. Names are in lower case.
fn parse(bytes: &[u8]) -> io::Result<BTreeMap<String, String>> {
    let mut rest = bytes;
    let text = |rest: &mut &[u8]| -> Option<String> {
        let n = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let found = rest.get(4..n.checked_add(4)?)?;
        *rest = &rest[4 + n..];
        Some(String::from_utf8_lossy(found).into_owned())
    };
    let short = || io::Error::other("headers are too short");
    let n = rest.get(..4).and_then(|n| n.try_into().ok()).map(u32::from_be_bytes);
    rest = rest.get(4..).unwrap_or_default();
    let mut headers = BTreeMap::new();
    for _ in 0..n.ok_or_else(short)? {
        let name = text(&mut rest).ok_or_else(short)?;
        let value = text(&mut rest).ok_or_else(short)?;
        headers.insert(name.to_ascii_lowercase(), value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_has_the_length_of_the_standard() {
        assert_eq!(dictionary().len(), 1423);
        assert!(dictionary().starts_with(b"\0\0\0\x07options"));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        assert!(Inflater::new().read(b"").is_err());
        assert!(Inflater::new().read(b"ab").is_err());
        assert!(parse(&[0, 0, 0, 1, 0, 0, 0, 9, b'a']).is_err());
        assert!(parse(&[255, 255, 255, 255]).is_err());
        assert!(parse(&[0, 0, 0, 0]).unwrap().is_empty());
    }

    /// Two frames as zlib writes them.
    #[test]
    fn frames_are_decompressed_with_the_dictionary() {
        let first = [
            0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0x25, 0x3a, 0x70, 0x3a, 0x2b, 0x29, 0x4a,
            0x4d, 0xcc, 0x85, 0x16, 0x25, 0xac, 0xa9, 0xa0, 0x80, 0x86, 0x14, 0xcb, 0x45, 0xe0,
            0x1c, 0x60, 0x61, 0x60, 0x61, 0x00, 0xa4, 0x39, 0x8b, 0x20, 0xd1, 0x98, 0x09, 0x4a,
            0xde, 0x8c, 0x06, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff,
        ];
        let second = [
            0x82, 0x69, 0x0e, 0x46, 0xd6, 0x0c, 0x2a, 0x87, 0x12, 0x09, 0xeb, 0x05, 0x00, 0x00,
            0x00, 0xff, 0xff,
        ];
        let mut inflater = Inflater::new();
        let headers = inflater.read(&first).unwrap();
        assert_eq!(headers["streamtype"], "error");
        assert_eq!(headers["port"], "8080");
        let headers = inflater.read(&second).unwrap();
        assert_eq!(headers["streamtype"], "data");
        assert_eq!(headers["requestid"], "0");
    }
}
