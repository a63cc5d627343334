//! Label selectors.
use setpoint_object::label::Selector;

/// A text is refused, or is a selector whose own text is the same selector. A selector as an object
/// is refused or matches without a panic.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(selector) = Selector::parse(&text) {
        let shown = selector.to_string();
        assert_eq!(Selector::parse(&shown).as_ref(), Ok(&selector), "{text:?} shows as {shown:?}");
        let label = |name: &str| (name == "a").then_some("1");
        assert_eq!(Selector::parse(&shown).unwrap().matches(label), selector.matches(label));
    }
    if let Ok(object) = serde_json::from_slice(input)
        && let Ok(Some(selector)) = Selector::from_object(&object)
    {
        let _ = selector.matches(|_| Some("1"));
    }
}
