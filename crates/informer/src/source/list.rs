//! A page of a list, whole or in parts as it arrives; splits it into items without a tree.
mod split;

pub use split::{ITEM_BYTES_MAX, ListEnd, ListSplitter};

use super::SourceError;
use bytes::Bytes;
use futures::stream::BoxStream;
use setpoint_object::Head;

/// The largest body of a list that is read as a whole, bytes.
///
/// 1 GiB: a page of 500 objects of the largest size that an API server stores (1.5 MiB) has 750
/// MiB.
pub const LIST_BODY_BYTES_MAX: usize = 1 << 30;

/// Objects in a page of a list: 500, as in client-go's pager (REF-1).
pub const PAGE_SIZE: u32 = 500;

/// The largest number of objects in a list: fifty million. A server that sends more is broken.
pub const LIST_OBJECTS_MAX: usize = 50_000_000;

/// The largest number of pages of a list: enough for all its objects, and a bound for empty pages.
pub const LIST_PAGES_MAX: usize = LIST_OBJECTS_MAX / PAGE_SIZE as usize;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ListPage {
    /// `metadata.resourceVersion` of the list.
    pub resource_version: String,
    /// `metadata.continue` if there are more pages.
    pub continue_token: Option<String>,
    /// The items, each the JSON of one object as the server sent it. Slices of one body: copy them
    /// to keep them for long.
    pub items: Vec<Bytes>,
}

impl ListPage {
    /// A page of items, for sources without HTTP.
    pub fn new(resource_version: impl Into<String>, items: Vec<Bytes>) -> Self {
        Self { resource_version: resource_version.into(), continue_token: None, items }
    }

    /// Adds the token of the next page.
    pub fn continued(mut self, token: impl Into<String>) -> Self {
        self.continue_token = Some(token.into());
        self
    }

    /// Splits the body of an answer. The items share the body.
    ///
    /// # Errors
    /// As [`ListSplitter`]: if it is not JSON, or not a list.
    pub fn parse(body: &Bytes) -> Result<Self, SourceError> {
        let mut splitter = ListSplitter::default();
        splitter.feed(body.clone());
        let mut items = Vec::new();
        while let Some((item, _)) = splitter.next_item()? {
            items.push(item);
        }
        let end = splitter.finish()?;
        Ok(Self {
            resource_version: end.resource_version,
            continue_token: end.continue_token,
            items,
        })
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_split_into_the_exact_bytes_of_its_items() {
        let body = Bytes::from_static(
            br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"t"},
                "items":[ {"metadata":{"name":"a"}} , {"metadata":{"name":"\"]}"},"x":[1, 2]}]}"#,
        );
        let page = ListPage::parse(&body).unwrap();
        assert_eq!(page.resource_version, "7");
        assert_eq!(page.continue_token.as_deref(), Some("t"));
        let items: Vec<&[u8]> = page.items.iter().map(|item| &item[..]).collect();
        assert_eq!(
            items,
            [
                &br#"{"metadata":{"name":"a"}}"#[..],
                &br#"{"metadata":{"name":"\"]}"},"x":[1, 2]}"#[..]
            ]
        );
    }

    #[test]
    fn ref_7_a_table_is_an_error() {
        let body = Bytes::from_static(br#"{"kind":"Table","metadata":{"resourceVersion":"7"}}"#);
        assert!(matches!(ListPage::parse(&body), Err(SourceError::Protocol { .. })));
    }

    #[test]
    fn invariant_16_null_and_absent_items_are_an_empty_list() {
        for body in [&br#"{"kind":"PodList","items":null}"#[..], br#"{"metadata":{}}"#] {
            assert_eq!(ListPage::parse(&Bytes::from_static(body)).unwrap(), ListPage::default());
        }
    }
}
