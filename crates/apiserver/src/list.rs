//! Lists, assembled from the bytes of their items: nothing is decoded.
//!
//! Items of built-in kinds leave out `apiVersion` and `kind`, which the list's own kind tells; items of custom resources keep
//! both. The envelopes differ in the order of their members, as they do on the reference server.

use crate::scan;
use bytes::Bytes;
use serde_json::json;
use setpoint_registry::{List, Listed, Resource};

/// Bytes of a list around its items, generously.
const ENVELOPE_BYTES: usize = 512;

/// The list as JSON.
pub(crate) fn encode(row: &Resource, list: &List) -> Bytes {
    let items: usize = list.items.iter().map(|item| item.room() + 1).sum();
    let mut out = Vec::with_capacity(items + ENVELOPE_BYTES);
    let version = row.group_version().to_string();
    if row.custom {
        out.extend_from_slice(
            format!("{{\"apiVersion\":{},\"items\":[", json!(version)).as_bytes(),
        );
        push_items(&mut out, &list.items, |out, item| item.push_to(out));
        out.extend_from_slice(
            format!(
                "],\"kind\":{},\"metadata\":{}}}",
                json!(&*row.list_kind),
                metadata(list, true)
            )
            .as_bytes(),
        );
    } else {
        out.extend_from_slice(
            format!(
                "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
                json!(&*row.list_kind),
                json!(version),
                metadata(list, false)
            )
            .as_bytes(),
        );
        // One object at a time is made, and its type cut out on the way.
        let mut object = Vec::new();
        push_items(&mut out, &list.items, |out, item| {
            object.clear();
            item.push_to(&mut object);
            scan::push_without_type(out, &object);
        });
        out.extend_from_slice(b"]}");
    }
    out.into()
}

fn push_items(out: &mut Vec<u8>, items: &[Listed], mut push: impl FnMut(&mut Vec<u8>, &Listed)) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        push(out, item);
    }
}

/// The list's metadata. `custom`: members in alphabetical order, `continue` always there.
pub(crate) fn metadata(list: &List, custom: bool) -> String {
    let token = (custom || !list.continue_token.is_empty())
        .then(|| format!("\"continue\":{}", json!(list.continue_token)));
    let remaining = list.remaining.map(|n| format!("\"remainingItemCount\":{n}"));
    let revision = Some(format!("\"resourceVersion\":\"{}\"", list.revision));
    let members = if custom { [token, remaining, revision] } else { [revision, token, remaining] };
    format!("{{{}}}", members.into_iter().flatten().collect::<Vec<_>>().join(","))
}
