//! One page of a list, in parts as it arrives.
use super::SourceError;
use bytes::Bytes;
use futures::stream::BoxStream;
use setpoint_object::Head;

/// The parts of one page: items in the server's order, and then one [`ListPart::End`]. Without it,
/// or after an error, all parts of the list are invalid.
pub type ListStream = BoxStream<'static, Result<ListPart, SourceError>>;

/// One part of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListPart {
    /// The next items.
    Items(Vec<ListItem>),
    /// The end of the items, and the metadata of the list, which may follow them in the text.
    End(ListHead),
}

/// One item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListItem {
    /// The JSON of one object as the server sent it: a slice of the read buffer. Copy it to keep it
    /// for long.
    pub bytes: Bytes,
    /// The positions of the object's identity, if the source has scanned it.
    pub head: Option<Head>,
}

impl From<Bytes> for ListItem {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, head: None }
    }
}

impl From<(Bytes, Head)> for ListItem {
    fn from((bytes, head): (Bytes, Head)) -> Self {
        Self { bytes, head: Some(head) }
    }
}

/// The metadata of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListHead {
    /// `metadata.resourceVersion` of the list.
    pub resource_version: String,
    /// `metadata.continue` if there are more pages.
    pub continue_token: Option<String>,
}
