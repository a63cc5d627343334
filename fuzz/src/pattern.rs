//! Go's regular expressions, rewritten for the `regex` crate.
use setpoint_schema::crd;
use setpoint_schema::{pattern, validate};

/// The longest pattern that is compiled, bytes: a longer one tells no more, and takes longer.
const PATTERN_BYTES_MAX: usize = 256;

/// What Go's syntax admits compiles, unless the program would be too large, and matches without a
/// panic; what it refuses is refused in its words. The first line is the pattern, the rest a text.
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
    // Rewriting is linear: an atom grows to a class at most.
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
