//! Pages that pass: their links are changed while they stream, in bounded memory.
//!
//! ```text
//! pieces ─▶ decompressed ─▶ links changed ─▶ compressed ─▶ pieces
//! ```

use super::links::Links;
use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::write::{DeflateDecoder, DeflateEncoder, GzEncoder, MultiGzDecoder};
use futures::{Stream, StreamExt as _, stream};
use http::{HeaderMap, header};
use lol_html::errors::RewritingError;
use lol_html::send::{Element, ElementContentHandlers, HtmlRewriter, Settings};
use lol_html::{HandlerResult, MemorySettings, Selector};
use parking_lot::Mutex;
use setpoint_apiserver::{Body, BodyError};
use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

/// Maximum memory for one page: a longer tag, and what follows it, stays as it is.
const TAG_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes that are changed at a time, before other tasks have their turn. A decompressor has
/// as many, whatever it is given.
const INPUT_BYTES_MAX: usize = 32 << 10;

/// How a page is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Plain,
    Gzip,
    Deflate,
}

impl Encoding {
    /// `None`: an unknown one.
    fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"") => Some(Self::Plain),
            Some(b"gzip") => Some(Self::Gzip),
            Some(b"deflate") => Some(Self::Deflate),
            Some(_) => None,
        }
    }
}

/// Changes the links of an answer that is a page, unless it is compressed in an unknown way.
pub(super) fn with_links(headers: &mut HeaderMap, body: Body, links: &Links) -> Body {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if kind.trim() != "text/html" {
        return body;
    }
    let Some(page) = Encoding::of(headers).and_then(|encoding| Page::new(encoding, links)) else {
        return body;
    };
    headers.remove(header::CONTENT_LENGTH);
    let pieces = http_body_util::BodyDataStream::new(body);
    Body::try_stream(page.follow(pieces))
}

/// A page on its way.
struct Page {
    input: Input,
    output: Output,
}

impl Page {
    fn new(encoding: Encoding, links: &Links) -> Option<Self> {
        let output = Output(Arc::new(Mutex::new(match encoding {
            Encoding::Plain => Packed::Plain(Vec::new()),
            Encoding::Gzip => Packed::Gzip(GzEncoder::new(Vec::new(), Compression::default())),
            Encoding::Deflate => {
                Packed::Deflate(DeflateEncoder::new(Vec::new(), Compression::default()))
            }
        })));
        let rewriter = Rewriter {
            rewriter: Some(Box::new(rewriter(links.clone(), output.clone())?)),
            output: output.clone(),
        };
        let input = match encoding {
            Encoding::Plain => Input::Plain(rewriter),
            Encoding::Gzip => Input::Gzip(Box::new(MultiGzDecoder::new(rewriter))),
            Encoding::Deflate => Input::Deflate(Box::new(DeflateDecoder::new(rewriter))),
        };
        Some(Self { input, output })
    }

    /// The changed pieces.
    fn follow(
        self,
        pieces: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
    ) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static {
        let broken = |error: io::Error| BodyError::Broken(error.into());
        let state = (Some(self), pieces.boxed(), Bytes::new());
        let changed = stream::try_unfold(state, move |(page, mut pieces, mut piece)| async move {
            let Some(mut page) = page else { return Ok(None) };
            if piece.is_empty() {
                let Some(next) = pieces.next().await.transpose()? else {
                    let bytes = page.finish().map_err(broken)?;
                    return Ok(Some((bytes, (None, pieces, piece))));
                };
                piece = next;
            }
            piece.advance(page.write(&piece).map_err(broken)?);
            // Decompressed, a piece may be a thousand times as long.
            tokio::task::yield_now().await;
            Ok(Some((page.output.take(), (Some(page), pieces, piece))))
        });
        changed.filter(|piece| {
            let is_kept = piece.as_ref().map_or(true, |bytes: &Bytes| !bytes.is_empty());
            std::future::ready(is_kept)
        })
    }

    /// Changes the start of a piece, and returns how much of it.
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let part = piece.get(..INPUT_BYTES_MAX).unwrap_or(piece);
        let (n, input): (_, &mut dyn Write) = match &mut self.input {
            Input::Plain(rewriter) => (rewriter.write(part)?, rewriter),
            Input::Gzip(decoder) => (decoder.write(part)?, decoder),
            Input::Deflate(decoder) => (decoder.write(part)?, decoder),
        };
        if n == piece.len() {
            input.flush()?;
        } else if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(n)
    }

    fn finish(self) -> io::Result<Bytes> {
        let Self { input, output } = self;
        let rewriter = match input {
            Input::Plain(rewriter) => rewriter,
            Input::Gzip(decoder) => decoder.finish()?,
            Input::Deflate(decoder) => decoder.finish()?,
        };
        rewriter.end()?;
        output.0.lock().finish()?;
        Ok(output.take())
    }
}

/// Where the pieces of a page go.
enum Input {
    Plain(Rewriter),
    Gzip(Box<MultiGzDecoder<Rewriter>>),
    Deflate(Box<DeflateDecoder<Rewriter>>),
}

/// Changes the links of what is written to it. What follows a tag that is too long stays as it is.
struct Rewriter {
    rewriter: Option<Box<HtmlRewriter<'static, Sink>>>,
    output: Output,
}

type Sink = Box<dyn FnMut(&[u8]) + Send>;

impl Rewriter {
    fn end(self) -> io::Result<()> {
        self.rewriter.map_or(Ok(()), |rewriter| checked(rewriter.end()).map(drop))
    }
}

/// Whether the rewriter can go on. One that has too little memory has passed everything on.
fn checked(written: Result<(), RewritingError>) -> io::Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(RewritingError::MemoryLimitExceeded(_)) => Ok(false),
        Err(error) => Err(io::Error::other(error)),
    }
}

impl Write for Rewriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.rewriter.take() {
            None => self.output.push(bytes),
            Some(mut rewriter) => {
                let goes_on = checked(rewriter.write(bytes))?;
                self.rewriter = goes_on.then_some(rewriter);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn rewriter(links: Links, output: Output) -> Option<HtmlRewriter<'static, Sink>> {
    let change = move |element: &mut Element<'_, '_>| -> HandlerResult {
        for name in attributes(&element.tag_name()) {
            if let Some(link) = element.get_attribute(name)
                && let Some(link) = links.changed(link.trim())
            {
                element.set_attribute(name, &link)?;
            }
        }
        Ok(())
    };
    let all: Selector = "*".parse().ok()?;
    let handlers = ElementContentHandlers { element: Some(Box::new(change)), ..Default::default() };
    let memory = MemorySettings::new()
        .with_max_allowed_memory_usage(TAG_BYTES_MAX)
        .with_graceful_bail_out_on_memory_limit_exceeded(true);
    let settings = Settings::new_send()
        .append_element_content_handler((Cow::Owned(all), handlers))
        .with_memory_settings(memory)
        .with_strict(false);
    Some(HtmlRewriter::new(settings, Box::new(move |bytes: &[u8]| output.push(bytes))))
}

/// The attributes of an element that are links (HTML 4.01, "Index of Attributes"; HTML 5). The same
/// ones as on kube-apiserver.
fn attributes(tag: &str) -> &'static [&'static str] {
    match tag {
        "a" | "area" | "base" | "link" => &["href"],
        "applet" => &["codebase"],
        "audio" | "embed" | "script" | "source" => &["src"],
        "blockquote" | "del" | "ins" | "q" => &["cite"],
        "body" => &["background"],
        "button" => &["formaction"],
        "command" => &["icon"],
        "form" => &["action"],
        "frame" | "iframe" => &["longdesc", "src"],
        "head" => &["profile"],
        "html" => &["manifest"],
        "img" => &["longdesc", "src", "usemap"],
        "input" => &["src", "usemap", "formaction"],
        "object" => &["classid", "codebase", "data", "usemap"],
        "video" => &["poster", "src"],
        _ => &[],
    }
}

/// What has been changed and not been taken.
#[derive(Clone)]
struct Output(Arc<Mutex<Packed>>);

impl Output {
    fn push(&self, bytes: &[u8]) {
        // Writing to memory does not fail.
        _ = match &mut *self.0.lock() {
            Packed::Plain(out) => out.write_all(bytes),
            Packed::Gzip(out) => out.write_all(bytes),
            Packed::Deflate(out) => out.write_all(bytes),
        };
    }

    fn take(&self) -> Bytes {
        let mut packed = self.0.lock();
        let out = match &mut *packed {
            Packed::Plain(out) => out,
            Packed::Gzip(out) => out.get_mut(),
            Packed::Deflate(out) => out.get_mut(),
        };
        std::mem::take(out).into()
    }
}

enum Packed {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(DeflateEncoder<Vec<u8>>),
}

impl Packed {
    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(out) => out.try_finish(),
            Self::Deflate(out) => out.try_finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder as Unpacked;
    use futures::TryStreamExt as _;
    use std::io::Read as _;

    fn links() -> Links {
        Links {
            hosts: vec!["10.0.0.1:80".to_owned()],
            client_host: "host".to_owned(),
            prefix: "/p".to_owned(),
        }
    }

    async fn changed(headers: &mut HeaderMap, page: &[u8], n_piece: usize) -> Vec<u8> {
        let pieces: Vec<_> = page.chunks(n_piece).map(|part| Ok(part.to_vec().into())).collect();
        let body = with_links(headers, Body::try_stream(stream::iter(pieces)), &links());
        let pieces: Vec<Bytes> =
            http_body_util::BodyDataStream::new(body).try_collect().await.unwrap();
        pieces.concat()
    }

    fn html() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "text/html; charset=utf-8".parse().unwrap());
        headers.insert(header::CONTENT_LENGTH, "1".parse().unwrap());
        headers
    }

    const PAGE: &[u8] = b"<!DOCTYPE html><body background='/b.png'><a href=\"/a?x=1&amp;y=2\">a</a><A HREF=/b/>b</A><a href=c>c</a>\
        <a href=\"http://10.0.0.1:80/d\">d</a><script>var x=\"<a href='/no'>\";</script><img src='//cdn/x'><!-- <a href=\"/c\"> -->";
    const CHANGED: &str = "<!DOCTYPE html><body background=\"/p/b.png\"><a href=\"/p/a?x=1&amp;y=2\">a</a><A href=\"/p/b/\">b</A><a href=c>c</a>\
        <a href=\"/p/d\">d</a><script>var x=\"<a href='/no'>\";</script><img src='//cdn/x'><!-- <a href=\"/c\"> -->";

    #[tokio::test]
    async fn links_are_changed_in_any_pieces() {
        for n_piece in [1, 7, 1000] {
            let mut headers = html();
            let page = changed(&mut headers, PAGE, n_piece).await;
            assert_eq!(String::from_utf8(page).unwrap().replace("HREF", "href"), CHANGED);
            assert!(!headers.contains_key(header::CONTENT_LENGTH));
        }
    }

    #[tokio::test]
    async fn compressed_pages_are_changed_too() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(PAGE).unwrap();
        let packed = packed.finish().unwrap();
        let mut headers = html();
        headers.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        let page = changed(&mut headers, &packed, 5).await;
        let mut text = String::new();
        Unpacked::new(&*page).read_to_string(&mut text).unwrap();
        assert_eq!(text.replace("HREF", "href"), CHANGED);
    }

    /// One piece of a compressed page was changed as a whole, for as long as that took.
    #[tokio::test]
    async fn other_tasks_have_their_turn_while_a_page_is_decompressed() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&b"<img src='/a'>".repeat(400_000)).unwrap();
        let packed = packed.finish().unwrap();
        assert!(packed.len() < 64 << 10, "{}", packed.len());
        let mut headers = html();
        headers.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        let mut n_turns = 0;
        let turns = std::future::poll_fn(|cx| {
            n_turns += 1;
            cx.waker().wake_by_ref();
            std::task::Poll::<()>::Pending
        });
        tokio::select! {
            biased;
            () = turns => {}
            page = changed(&mut headers, &packed, packed.len()) => {
                let mut text = String::new();
                Unpacked::new(&*page).read_to_string(&mut text).unwrap();
                assert_eq!(text.matches("\"/p/a\"").count(), 400_000);
            }
        }
        assert!(n_turns > 100, "{n_turns}");
    }

    #[tokio::test]
    async fn what_is_no_page_stays_as_it_is() {
        let mut headers = html();
        headers.insert(header::CONTENT_ENCODING, "br".parse().unwrap());
        assert_eq!(changed(&mut headers, PAGE, 100).await, PAGE);
        let mut headers = html();
        headers.insert(header::CONTENT_TYPE, "text/plain".parse().unwrap());
        assert_eq!(changed(&mut headers, PAGE, 100).await, PAGE);
        // A tag without an end is not collected.
        let endless = [b"<a title='".as_slice(), &vec![b'x'; 2 << 20]].concat();
        assert_eq!(changed(&mut html(), &endless, 1 << 16).await, endless);
    }
}
