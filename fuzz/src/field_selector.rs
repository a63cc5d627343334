//! Field selectors.
use setpoint_object::field_selector::FieldSelector;
use std::borrow::Cow;

/// A text is refused, or is a selector whose own text is the same selector.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(selector) = FieldSelector::parse(&text) else { return };
    let shown = selector.to_string();
    assert_eq!(FieldSelector::parse(&shown).as_ref(), Ok(&selector), "{text:?} shows as {shown:?}");
    let _ = selector.matches(|name| Cow::Owned(name.to_owned()));
}
