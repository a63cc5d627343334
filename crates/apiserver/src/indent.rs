//! Indents encoded JSON.

use setpoint_object::members::string_end;

/// Indents compact JSON with two spaces as Go's `json.Indent` does.
pub(crate) fn indented(bytes: &[u8]) -> Vec<u8> {
    // With room for the newline that ends an answer.
    let mut out = Vec::with_capacity(bytes.len() * 2 + 1);
    push(&mut out, bytes, 0);
    out
}

/// Appends a part of a JSON text, indented. `depth`: the number of open brackets before it. A part
/// ends after a value or an item of a list, or after an opening bracket that is not closed at once.
pub(crate) fn push(out: &mut Vec<u8>, bytes: &[u8], mut depth: usize) {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at).unwrap_or(bytes.len());
                out.extend_from_slice(&bytes[at..end]);
                at = end;
                continue;
            }
            open @ (b'{' | b'[') => {
                out.push(open);
                let next = skip_space(bytes, at + 1);
                if matches!(bytes.get(next), Some(b'}' | b']')) {
                    out.push(bytes[next]);
                    at = next + 1;
                    continue;
                }
                depth += 1;
                push_line(out, depth);
            }
            close @ (b'}' | b']') => {
                depth = depth.saturating_sub(1);
                push_line(out, depth);
                out.push(close);
            }
            b',' => {
                out.push(b',');
                push_line(out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            b' ' | b'\n' | b'\r' | b'\t' => {}
            other => out.push(other),
        }
        at += 1;
    }
}

/// Starts a line inside `depth` brackets.
fn push_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + depth * 2, b' ');
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn indented_json_equals_that_of_go() {
        assert_eq!(
            String::from_utf8(indented(br#"{"a":{},"b":[],"c":[1,{"d":"x:y,{"}]}"#)).unwrap(),
            "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    {\n      \"d\": \"x:y,{\"\n    }\n  ]\n}"
        );
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((".{0,6}", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn indented_json_is_the_same_value(value in json()) {
            let text = value.to_string();
            prop_assert_eq!(&serde_json::from_slice::<Value>(&indented(text.as_bytes())).unwrap(), &value);
        }
    }
}
