//! An object's managedFields beside it.
//!
//! They often are half of an object, and most writes change one entry of them. As a tree, each
//! field is a map of its own. As text, entries that a write does not touch are copied, and the
//! fields of others are written once, from the set.

use serde_json::Value;
use setpoint_object::Head;
use std::borrow::Cow;
use std::ops::Range;

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

    /// Those of an object. `None`: it has none, or is no JSON object, or they are no list.
    pub fn of(text: &'a str) -> Option<Self> {
        Self::find(text)?.map(|(_, owners)| owners)
    }

    /// The text of an object without its managedFields, and those if it has any. `None`: it is no
    /// JSON object, or they are no list.
    pub fn cut(text: &'a str) -> Option<(Cow<'a, str>, Option<Self>)> {
        Some(match Self::find(text)? {
            None => (text.into(), None),
            Some((member, owners)) => {
                ([&text[..member.start], &text[member.end..]].concat().into(), Some(owners))
            }
        })
    }

    /// Reads an object, with its managedFields if it has any. `None`: as [`Owners::cut`].
    pub fn split(text: &'a str) -> Option<(Value, Option<Self>)> {
        let (object, owners) = Self::cut(text)?;
        Some((serde_json::from_str(&object).ok()?, owners))
    }

    /// With the range of the member.
    fn find(text: &'a str) -> Option<Option<(Range<usize>, Self)>> {
        let head = Head::of(text.as_bytes()).ok().filter(|h| !h.has_repeated_managed_fields())?;
        let Some(member) = head.managed_fields() else { return Some(None) };
        // Its name and, before or after it, a comma.
        let (_, list) = text[member.clone()].split_once(':')?;
        let list = list.trim().trim_end_matches(',').trim_end();
        list.starts_with('[').then(|| Some((member, Self::of_text(list))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_wherever_it_is() {
        let check = |text: &str, rest: &str, owners: Option<&str>| {
            let (cut, found) = Owners::cut(text).expect("an object");
            assert_eq!((&*cut, found.as_ref().map(Owners::as_str)), (rest, owners), "{text}");
            assert_eq!(Owners::of(text), found);
        };
        check(r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"a"}}"#, None);
        let (bare, list) = (r#"{"metadata":{"name":"a"}}"#, Some(r#"[{"a":"],"}]"#));
        check(r#"{"metadata":{"name":"a","managedFields":[{"a":"],"}]}}"#, bare, list);
        check(r#"{"metadata":{"managedFields":[{"a":"],"}],"name":"a"}}"#, bare, list);
        let spaced = r#"{"metadata":{ "managedFields" : [{"a":"],"}] , "name":"a"}}"#;
        check(spaced, r#"{"metadata":{ "name":"a"}}"#, list);
        check(r#"{"metadata":{"managedFields":[]}}"#, r#"{"metadata":{}}"#, Some("[]"));
        // Not of the object itself.
        let inner = r#"{"spec":{"metadata":{"managedFields":[1]}}}"#;
        check(inner, inner, None);
        for text in [
            "[]",
            "{",
            r#"{"metadata":{"managedFields":null}}"#,
            r#"{"metadata":{"managedFields":{"a":[1]}}}"#,
            r#"{"metadata":{"managedFields":[1],"managedFields":[2]}}"#,
        ] {
            assert_eq!(Owners::cut(text), None, "{text}");
        }
    }
}
