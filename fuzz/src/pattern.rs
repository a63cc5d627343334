//! Go's regular expressions, translated for the `regex` crate.
use setpoint_schema::crd;
use setpoint_schema::{pattern, validate};

/// Maximum length of a compiled pattern in bytes: longer ones take longer and find nothing new.
const PATTERN_BYTES_MAX: usize = 256;

/// A pattern that Go accepts compiles, unless the program would be too large, and matches without a
/// panic; one that Go refuses is refused with Go's message. The first line of the input is the
/// pattern, the rest a text.
pub fn check(input: &[u8]) {
    let input = String::from_utf8_lossy(input);
    let (source, text) = input.split_once('\n').unwrap_or((&input, "aB1_é\u{3a9}\n"));
    let translated = match pattern::translate(source) {
        Ok(translated) => translated,
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("error parsing regexp: ") && error.ends_with('`'), "{error}");
            return;
        }
    };
    // Translation is linear: an atom expands to a class at most.
    assert!(translated.len() <= 64 * (source.len() + 1), "{source:?} became {}", translated.len());
    if source.len() > PATTERN_BYTES_MAX {
        return;
    }
    let schema = crd::type_schema(&serde_json::json!({
        "type": "object", "properties": {"a": {"type": "string", "pattern": source}}
    }));
    let errors = validate::validate(&schema, &serde_json::json!({ "a": text }), None);
    for error in &errors {
        let error = error.to_string();
        let is_known = ["should match", "it compiles to more than", "validation stopped after"];
        assert!(is_known.iter().any(|known| error.contains(known)), "{error}");
    }
}
