//! JSON paths of columns.
use serde_json::json;
use setpoint_object::jsonpath::JsonPath;

/// A text is refused, or is a path that selects without a panic and in bounded memory.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(path) = JsonPath::parse(&text) else { return };
    let object = json!({
        "a": [1, {"b": "x", "type": "Ready"}, [2, 3, null], "é"],
        "b": {"a": {"a": {"a": [true]}}, "c.d": 1.5, "": {}},
        "metadata": {"name": "x", "annotations": {"ex.io/a": "1"}},
    });
    assert!(path.find(&object).len() <= 1 << 20, "{text:?} selects too much");
}
