//! One page of a list, in the pieces in which it arrives.
use super::SourceError;
use bytes::Bytes;
use futures::stream::BoxStream;
use setpoint_object::Head;

/// The parts of one page: items, some at a time and in the server's order, and then one
/// [`ListPart::End`]. A stream that ends without it, or with an error, was no list, whatever came
/// before.
pub type ListStream = BoxStream<'static, Result<ListPart, SourceError>>;

/// One part of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListPart {
    /// The next items.
    Items(Vec<ListItem>),
    /// There are no more items in this page. What the list says of itself may stand behind its
    /// items, so it comes last.
    End(ListHead),
}

/// One item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListItem {
    /// The JSON of one object as the server sent it: a slice of what was read with it. Copy what is
    /// kept for long.
    pub bytes: Bytes,
    /// Where in the bytes it says who the object is, if the source came by it on the way: then
    /// nobody needs to look again.
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

/// What a list says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListHead {
    /// `metadata.resourceVersion` of the list.
    pub resource_version: String,
    /// `metadata.continue` when there are more pages.
    pub continue_token: Option<String>,
}
