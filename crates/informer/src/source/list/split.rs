//! Splits the answer to a list into items while it arrives.
use crate::source::SourceError;
use bytes::{Buf, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use setpoint_object::skim::SkimError;
use setpoint_object::status::ListMeta;
use setpoint_object::{Head, ValueEnd};

/// The largest item of a list, bytes.
///
/// 16 MiB, as the largest frame of a watch: both have one object.
pub const ITEM_BYTES_MAX: usize = crate::source::FRAME_BYTES_MAX;

/// Splits a list into items as its bytes arrive, without building a tree.
///
/// # Theory
///
/// It is a state machine over the members of the list; it skips values as a whole. An item within
/// one chunk is a slice of it, and is scanned once. The item at the end of a chunk is copied, and
/// completed from the next chunk. So it holds at most one chunk and one incomplete item of at most
/// [`ITEM_BYTES_MAX`]. It reads every byte at most three times, however small the chunks are.
///
/// Members may have any order, `items` may be `null` or absent, and unknown members are skipped.
///
/// ```
/// use setpoint_informer::source::ListSplitter;
///
/// let mut splitter = ListSplitter::default();
/// splitter.feed(br#"{"kind":"PodList","items":[{"metadata":{"name":"a"}},{"meta"#[..].into());
/// let (bytes, head) = splitter.next_item()?.unwrap();
/// assert_eq!(head.name(&bytes), "a");
/// assert!(splitter.next_item()?.is_none());
/// splitter.feed(br#"data":{"name":"b"}}],"metadata":{"resourceVersion":"7"}}"#[..].into());
/// let (bytes, head) = splitter.next_item()?.unwrap();
/// assert_eq!(head.name(&bytes), "b");
/// assert!(splitter.next_item()?.is_none());
/// assert_eq!(splitter.finish()?.resource_version, "7");
/// # Ok::<(), setpoint_informer::source::SourceError>(())
/// ```
#[derive(Debug, Default)]
pub struct ListSplitter {
    // Input.
    /// The unread rest of the last chunk.
    chunk: Bytes,
    /// The number of bytes before it.
    at: usize,
    // The value in progress.
    /// Its part in earlier chunks.
    pending: BytesMut,
    end: ValueEnd,
    starts_at: usize,
    // State.
    place: Place,
    member: Member,
    has_items: bool,
    // Output.
    list: ListEnd,
}

/// The metadata of a list, after all of it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListEnd {
    /// `kind`, which ends in `List`; empty if the list has none.
    pub kind: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.continue` if there are more pages.
    pub continue_token: Option<String>,
    /// `metadata.remainingItemCount`: the number of items in later pages, if the server sends it.
    pub remaining_item_count: Option<i64>,
    /// `metadata.shardInfo.selector`: the shard selector that the server has honored (KEP-5866), if
    /// it sends one.
    pub shard_selector: Option<String>,
}

/// The part of a list's metadata about shards.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Sharded {
    shard_info: Option<ShardInfo>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct ShardInfo {
    selector: String,
}

/// The expected next part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// The list's first bracket.
    #[default]
    Start,
    /// A key, or the list's last bracket. A comma comes before all but the first.
    Member { is_first: bool },
    /// A key after a comma.
    Key,
    /// The colon after a key.
    Colon,
    /// A member's value.
    Value,
    /// An item, or the last bracket of the items.
    Items { is_first: bool },
    /// An item after a comma.
    Item,
    /// Nothing: the list has ended.
    End,
}

/// The member of the next value.
#[derive(Debug, Clone, Copy, Default)]
enum Member {
    Items,
    Kind,
    Metadata,
    #[default]
    Other,
}

impl Member {
    /// By its key, a string in its quotes.
    fn of(key: &[u8]) -> Self {
        let decoded;
        let key = if memchr::memchr(b'\\', key).is_some() {
            decoded = serde_json::from_slice::<String>(key).unwrap_or_default();
            decoded.as_bytes()
        } else {
            key.get(1..key.len().saturating_sub(1)).unwrap_or_default()
        };
        match key {
            b"items" => Self::Items,
            b"kind" => Self::Kind,
            b"metadata" => Self::Metadata,
            _ => Self::Other,
        }
    }
}

impl ListSplitter {
    /// Adds the next bytes. Call [`next_item`](Self::next_item) before until it returns `None`;
    /// otherwise unread bytes are copied.
    pub fn feed(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.chunk = [&self.chunk[..], &chunk].concat().into();
        }
    }

    /// The next complete item: its JSON, a slice of a chunk or of a copy, and its head. `None` if
    /// more bytes are needed, or the list has ended.
    ///
    /// # Errors
    /// If the text is not JSON, as far as a skim checks, or not a list. A `Table` is an error
    /// (REF-7), since it would look like an empty list. [`SourceError::TooLarge`] for an item over
    /// [`ITEM_BYTES_MAX`]. The splitter cannot be used after an error.
    pub fn next_item(&mut self) -> Result<Option<(Bytes, Head)>, SourceError> {
        let item = self.read_on()?;
        if self.chunk.is_empty() {
            // The reader of the next chunk can reuse the memory of this one if no slice of it is
            // left, not even an empty one.
            self.chunk = Bytes::new();
        }
        Ok(item)
    }

    fn read_on(&mut self) -> Result<Option<(Bytes, Head)>, SourceError> {
        loop {
            // White space is part of a value in progress; elsewhere it is skipped.
            let is_inside = self.is_inside_value();
            if !is_inside {
                let n_blanks = self.chunk.len() - self.chunk.trim_ascii_start().len();
                self.skip(n_blanks);
            }
            let Some(next) = self.chunk.first().copied() else { return Ok(None) };
            self.place = match (self.place, next) {
                (Place::Start, b'{') => self.step(Place::Member { is_first: true }),
                (Place::Member { .. }, b'}') => self.step(Place::End),
                (Place::Member { is_first: false }, b',') => self.step(Place::Key),
                (Place::Member { is_first: true }, b'"') => Place::Key,
                (Place::Key, _) if is_inside || next == b'"' => {
                    let Some(key) = self.value(true)? else { return Ok(None) };
                    self.member = Member::of(&key);
                    Place::Colon
                }
                (Place::Colon, b':') => self.step(Place::Value),
                (Place::Value, b'[') if matches!(self.member, Member::Items) && !is_inside => {
                    self.check_first_items()?;
                    self.step(Place::Items { is_first: true })
                }
                (Place::Value, _) => {
                    let is_kept = !matches!(self.member, Member::Other);
                    let Some(value) = self.value(is_kept)? else { return Ok(None) };
                    self.read(&value)?;
                    Place::Member { is_first: false }
                }
                (Place::Items { .. }, b']') => self.step(Place::Member { is_first: false }),
                (Place::Items { is_first: false }, b',') => self.step(Place::Item),
                (Place::Items { is_first: true }, _) => Place::Item,
                (Place::Item, _) => {
                    let Some(item) = self.item()? else { return Ok(None) };
                    self.place = Place::Items { is_first: false };
                    return Ok(Some(item));
                }
                _ => {
                    return Err(malformed(SkimError { at: self.at, what: self.place.expected() }));
                }
            };
        }
    }

    /// The metadata of the list, after the last item.
    ///
    /// # Errors
    /// If the list has not ended.
    pub fn finish(self) -> Result<ListEnd, SourceError> {
        if self.place == Place::End && self.chunk.trim_ascii().is_empty() {
            return Ok(self.list);
        }
        let at = self.at + self.chunk.len();
        Err(malformed(SkimError { at, what: "a list without an end" }))
    }

    fn is_inside_value(&self) -> bool {
        self.starts_at != 0
    }
    fn skip(&mut self, n_bytes: usize) {
        self.chunk.advance(n_bytes);
        self.at += n_bytes;
    }
    /// Skips one byte.
    fn step(&mut self, place: Place) -> Place {
        self.skip(1);
        place
    }

    /// An item, if it is complete.
    fn item(&mut self) -> Result<Option<(Bytes, Head)>, SourceError> {
        let (item, head, starts_at) = if self.is_inside_value() {
            let starts_at = self.starts_at;
            let Some(item) = self.value(true)? else { return Ok(None) };
            let head = Head::of(&item);
            (item, head, starts_at)
        } else {
            let starts_at = self.at;
            let head = match Head::scan(&self.chunk) {
                Ok(None) => return self.value(true).map(|_| None),
                Ok(Some(head)) => Ok(head),
                Err(error) => Err(error),
            };
            let n_bytes = head.as_ref().map_or(0, Head::end);
            let item = self.chunk.split_to(n_bytes);
            self.at += n_bytes;
            (item, head, starts_at)
        };
        let head =
            head.map_err(|error| malformed(SkimError { at: starts_at + error.at, ..error }))?;
        check_size(item.len())?;
        Ok(Some((item, head)))
    }

    /// A value, if it is complete. Buffers it only if it `is_kept`.
    fn value(&mut self, is_kept: bool) -> Result<Option<Bytes>, SourceError> {
        if !self.is_inside_value() {
            // Never zero, since the first bracket of the list is before every value.
            self.starts_at = self.at;
        }
        let end = self.end.feed(&self.chunk);
        let end =
            end.map_err(|error| malformed(SkimError { at: self.starts_at + error.at, ..error }))?;
        let n_bytes = end.unwrap_or(self.chunk.len());
        if is_kept {
            check_size(self.pending.len() + n_bytes)?;
        }
        let part = self.chunk.split_to(n_bytes);
        self.at += n_bytes;
        if end.is_none() {
            if is_kept {
                self.pending.extend_from_slice(&part);
            }
            return Ok(None);
        }
        self.end = ValueEnd::default();
        self.starts_at = 0;
        if self.pending.is_empty() {
            return Ok(Some(part));
        }
        self.pending.extend_from_slice(&part);
        Ok(Some(std::mem::take(&mut self.pending).freeze()))
    }

    /// Reads the value of a member of the list.
    fn read(&mut self, value: &[u8]) -> Result<(), SourceError> {
        match self.member {
            Member::Items => {
                self.check_first_items()?;
                if value != b"null" {
                    return Err(SourceError::protocol("not a list: its items are not an array"));
                }
            }
            Member::Kind => {
                let kind: String = parsed(value)?;
                if !kind.is_empty() && !kind.ends_with("List") {
                    let what = format!("a {kind} instead of a list");
                    return Err(SourceError::protocol(what));
                }
                self.list.kind = kind;
            }
            Member::Metadata => {
                let metadata: ListMeta = parsed::<Option<ListMeta>>(value)?.unwrap_or_default();
                self.list.resource_version = metadata.resource_version;
                let continue_token = Some(metadata.continue_token);
                self.list.continue_token = continue_token.filter(|token| !token.is_empty());
                self.list.remaining_item_count = metadata.remaining_item_count;
                let sharded: Sharded = parsed::<Option<Sharded>>(value)?.unwrap_or_default();
                self.list.shard_selector = sharded.shard_info.map(|shard| shard.selector);
            }
            Member::Other => {}
        }
        Ok(())
    }
    fn check_first_items(&mut self) -> Result<(), SourceError> {
        if std::mem::replace(&mut self.has_items, true) {
            return Err(SourceError::protocol("not a list: it has `items` twice"));
        }
        Ok(())
    }
}

impl Place {
    fn expected(self) -> &'static str {
        match self {
            Self::Start => "an object was expected",
            Self::Member { is_first: true } | Self::Key => "a string was expected",
            Self::Colon => "a colon was expected",
            Self::Value | Self::Item => "a value was expected",
            Self::Member { .. } | Self::Items { .. } => {
                "a comma or the closing bracket was expected"
            }
            Self::End => "text after the value",
        }
    }
}

fn parsed<T: DeserializeOwned>(value: &[u8]) -> Result<T, SourceError> {
    serde_json::from_slice(value)
        .map_err(|error| SourceError::protocol(format!("not a list: {error}")))
}
fn malformed(error: SkimError) -> SourceError {
    SourceError::protocol(format!("not a list: {error}"))
}
fn check_size(n_bytes: usize) -> Result<(), SourceError> {
    if n_bytes <= ITEM_BYTES_MAX {
        return Ok(());
    }
    Err(SourceError::TooLarge { what: "item of a list", bytes_max: ITEM_BYTES_MAX })
}

#[cfg(test)]
mod tests;
