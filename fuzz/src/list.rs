//! The items of a list.
use crate::pieces;
use bytes::Bytes;
use serde_json::Value;
use setpoint_informer::source::{ListPage, ListSplitter};
use setpoint_object::Head;

/// The items do not depend on chunk boundaries, and agree with `serde_json`.
pub fn check(input: &[u8]) {
    let (pieces, whole) = pieces(input);
    let page = ListPage::parse(&whole).ok();
    assert_eq!(split(pieces), page);

    let Ok(tree) = serde_json::from_slice::<Value>(&whole) else { return };
    let Some(page) = page else { return };
    let items = page.items.iter().map(|item| serde_json::from_slice::<Value>(item).unwrap());
    match &tree["items"] {
        Value::Array(expected) => assert!(items.eq(expected.iter().cloned())),
        other => assert!(other.is_null() && page.items.is_empty()),
    }
    let version = tree["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    assert_eq!(page.resource_version, version);
}

fn split(pieces: Vec<Bytes>) -> Option<ListPage> {
    let (mut splitter, mut items) = (ListSplitter::default(), Vec::new());
    for piece in pieces {
        splitter.feed(piece);
        while let Some((item, head)) = splitter.next_item().ok()? {
            assert_eq!(Head::of(&item).as_ref(), Ok(&head));
            items.push(item);
        }
    }
    let end = splitter.finish().ok()?;
    let page = ListPage::new(end.resource_version, items);
    Some(match end.continue_token {
        Some(token) => page.continued(token),
        None => page,
    })
}
