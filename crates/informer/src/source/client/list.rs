//! Splits the body of a list into items while it arrives.
use crate::source::{
    ListHead, ListItem, ListPart, ListSplitter, ListStream, PART_ITEMS_MAX, SourceError, gzip,
};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use http::{Response, header};
use http_body_util::BodyExt;
use kube_client::client::Body;

/// The largest list that passes through, bytes once decoded: 64 GiB.
///
/// A list is never in memory as a whole, so this limits the time of a list, not memory: fifty
/// million objects of 1.3 KiB, or more than a server with an etcd of 8 GiB has.
pub const LIST_STREAM_BYTES_MAX: u64 = 64 << 30;

/// The chunks of a body, decoded if it is compressed.
pub(super) fn body(response: Response<Body>) -> BoxStream<'static, Result<Bytes, SourceError>> {
    let encoding = response.headers().get(header::CONTENT_ENCODING);
    let encoding = encoding.map(|encoding| encoding.as_bytes().to_ascii_lowercase());
    let chunks = response.into_body().into_data_stream().map_err(SourceError::transport);
    match encoding.as_deref() {
        None | Some(b"identity") => chunks.boxed(),
        Some(b"gzip" | b"x-gzip") => gzip::decoded(chunks, LIST_STREAM_BYTES_MAX).boxed(),
        Some(encoding) => {
            let encoding = String::from_utf8_lossy(encoding);
            let error = SourceError::protocol(format!("a body in {encoding:?}"));
            stream::iter([Err(error)]).boxed()
        }
    }
}

/// Splits the body of a list into parts. `shard` is the shard selector that the list must have;
/// empty is none.
pub(super) fn parts(
    chunks: BoxStream<'static, Result<Bytes, SourceError>>,
    shard: String,
) -> ListStream {
    let splitter = ListSplitter::default();
    let list = List { chunks, splitter, n_bytes: 0, shard, is_read: false };
    stream::unfold(Some(list), |list| async move {
        let mut list = list?;
        match list.items().await {
            Ok(items) if items.is_empty() => Some((list.end().map(ListPart::End), None)),
            Ok(items) => Some((Ok(ListPart::Items(items)), Some(list))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

struct List {
    chunks: BoxStream<'static, Result<Bytes, SourceError>>,
    splitter: ListSplitter,
    n_bytes: u64,
    shard: String,
    is_read: bool,
}

impl List {
    /// The next items; none at the end of the body.
    async fn items(&mut self) -> Result<Vec<ListItem>, SourceError> {
        loop {
            let mut items = Vec::new();
            while items.len() < PART_ITEMS_MAX
                && let Some(item) = self.splitter.next_item()?
            {
                items.push(ListItem::from(item));
            }
            if !items.is_empty() || self.is_read {
                return Ok(items);
            }
            match self.chunks.next().await {
                Some(chunk) => {
                    let chunk = chunk?;
                    self.n_bytes = self.n_bytes.saturating_add(chunk.len() as u64);
                    if self.n_bytes > LIST_STREAM_BYTES_MAX {
                        let bytes_max = usize::try_from(LIST_STREAM_BYTES_MAX);
                        let bytes_max = bytes_max.unwrap_or(usize::MAX);
                        return Err(SourceError::TooLarge { what: "list", bytes_max });
                    }
                    self.splitter.feed(chunk);
                }
                None => self.is_read = true,
            }
        }
    }

    fn end(self) -> Result<ListHead, SourceError> {
        let end = self.splitter.finish()?;
        if !self.shard.is_empty() && end.shard_selector.as_deref() != Some(&*self.shard) {
            let (asked, honored) = (self.shard, end.shard_selector);
            return Err(SourceError::NotSharded { asked, honored });
        }
        Ok(ListHead { resource_version: end.resource_version, continue_token: end.continue_token })
    }
}
