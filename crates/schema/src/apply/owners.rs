//! An object's managedFields beside it.
//!
//! They often are half of an object, and most writes change one entry of them. As a tree, each
//! field is a map of its own. As text, entries that a write does not touch are copied, and the
//! fields of others are written once, from the set.

use serde_json::Value;
use setpoint_object::Head;
use std::borrow::Cow;

/// `metadata.managedFields` as the text of a list, beside an object that does not have them.
///
/// ```
/// use serde_json::json;
/// use setpoint_schema::apply::Owners;
///
/// let text = r#"{"metadata":{"managedFields":[{"manager":"kubectl"}],"name":"a"}}"#;
/// let (mut object, owners) = Owners::split(text).unwrap();
/// assert_eq!(object, json!({"metadata": {"name": "a"}}));
/// owners.unwrap().join(&mut object);
/// assert_eq!(object, serde_json::from_str::<serde_json::Value>(text)?);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners<'a>(Cow<'a, str>);

impl<'a> Owners<'a> {
    pub(super) fn of_text(text: impl Into<Cow<'a, str>>) -> Self {
        Self(text.into())
    }

    /// Reads an object, with its managedFields if it has any. `None`: it is no JSON object, or they
    /// are no list.
    pub fn split(text: &'a str) -> Option<(Value, Option<Self>)> {
        let head = Head::of(text.as_bytes()).ok().filter(|h| !h.has_repeated_managed_fields())?;
        let Some(member) = head.managed_fields() else {
            return Some((serde_json::from_str(text).ok()?, None));
        };
        let rest = [&text[..member.start], &text[member.end..]].concat();
        // Its name and, before or after it, a comma.
        let (_, list) = text[member].split_once(':')?;
        let list = list.trim().trim_end_matches(',').trim_end();
        let is_list = list.starts_with('[');
        is_list.then_some((serde_json::from_str(&rest).ok()?, Some(Self::of_text(list))))
    }

    /// The text of the list.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Puts them into their object.
    pub fn join(&self, object: &mut Value) {
        // It was read as JSON, or written by this crate.
        let list = serde_json::from_str(&self.0).unwrap_or_default();
        super::managed::put(object, Some(list));
    }
}
