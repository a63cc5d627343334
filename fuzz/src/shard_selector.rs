//! Shard selectors.
use setpoint_registry::ShardSelector;

/// A text is refused, or is a selector whose own text is the same selector.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(selector) = ShardSelector::parse(&text) else { return };
    let again = ShardSelector::parse(selector.text()).ok();
    assert_eq!(again.as_ref(), Some(&selector), "{text:?} shows as {:?}", selector.text());
    let _ = selector.has(&text);
}
