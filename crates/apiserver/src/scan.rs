//! Scans the top level of an encoded object without a tree. Lists, tables and metadata-only answers
//! are cut from stored bytes.

use setpoint_object::ValueEnd;
use std::ops::Range;

/// One member of an object, as byte ranges of the encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The name, between its quotes.
    pub(crate) name: Range<usize>,
    /// The value.
    pub(crate) value: Range<usize>,
}

/// The members of an encoded object in order. Stops at anything that is not JSON: the bytes come
/// from the registry, which encoded them.
#[derive(Debug, Clone)]
pub(crate) struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Iterates over the members of an object.
pub(crate) fn members(bytes: &[u8]) -> Members<'_> {
    let at = skip_space(bytes, 0);
    let at = if bytes.get(at) == Some(&b'{') { at + 1 } else { bytes.len() };
    Members { bytes, at }
}

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        let (name, value) = self.name()?;
        let value_end = value_end(self.bytes, value)?;
        self.at = value_end;
        Some(Member { name, value: value..value_end })
    }
}

impl Members<'_> {
    /// The next member, without its end: its name, and where its value begins. The same again
    /// until [`go_on`](Self::go_on).
    pub(crate) fn name(&self) -> Option<(Range<usize>, usize)> {
        let mut at = skip_space(self.bytes, self.at);
        if self.bytes.get(at) == Some(&b',') {
            at = skip_space(self.bytes, at + 1);
        }
        let name_end = string_end(self.bytes, at)?;
        let colon = skip_space(self.bytes, name_end);
        if self.bytes.get(colon) != Some(&b':') {
            return None;
        }
        Some((at + 1..name_end - 1, skip_space(self.bytes, colon + 1)))
    }

    /// Continues after the value that ends before this byte.
    pub(crate) fn go_on(&mut self, value_end: usize) {
        self.at = value_end;
    }

    /// After the last member: the first byte after the object.
    pub(crate) fn end(&self) -> Option<usize> {
        let at = skip_space(self.bytes, self.at);
        (self.bytes.get(at) == Some(&b'}')).then_some(at + 1)
    }
}

/// The bytes of one member's value.
pub(crate) fn member<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    members(bytes)
        .find(|member| &bytes[member.name.clone()] == name.as_bytes())
        .map(|member| &bytes[member.value])
}

/// Indents compact JSON with two spaces as Go's `json.Indent` does.
pub(crate) fn indent(bytes: &[u8]) -> Vec<u8> {
    // With room for the newline that ends an answer.
    let mut out = Vec::with_capacity(bytes.len() * 2 + 1);
    push_indented(&mut out, bytes, 0);
    out
}

/// Appends a part of a JSON text, indented. `depth`: the number of open brackets before it. A part
/// ends after a value or an item of a list, or after an opening bracket that is not closed at once.
pub(crate) fn push_indented(out: &mut Vec<u8>, bytes: &[u8], mut depth: usize) {
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

/// The byte after the closing quote of the string that starts at `at`.
pub(crate) fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// The byte after the value that starts at `at`.
fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => {
            // 64 bytes at a time. It fails for what nests deeply.
            if let Ok(Some(len)) = ValueEnd::default().feed(&bytes[at..]) {
                return Some(at + len);
            }
            let (mut at, mut depth) = (at, 0_usize);
            loop {
                match bytes.get(at)? {
                    b'"' => {
                        at = string_end(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        _ => {
            let len = bytes[at..]
                .iter()
                .position(|b| matches!(b, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'))?;
            Some(at + len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn a_member_after_nested_and_escaped_ones_is_found() {
        let object = br#"{"a":{"metadata":1},"b":"\"metadata\":2","metadata":{"name":"x"},"z":3}"#;
        assert_eq!(member(object, "metadata"), Some(&br#"{"name":"x"}"#[..]));
        assert_eq!(member(object, "absent"), None);
    }

    #[test]
    fn indented_json_equals_that_of_go() {
        assert_eq!(
            String::from_utf8(indent(br#"{"a":{},"b":[],"c":[1,{"d":"x:y,{"}]}"#)).unwrap(),
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
        fn scanning_agrees_with_a_parser(value in json()) {
            let text = value.to_string();
            prop_assert_eq!(&serde_json::from_slice::<Value>(&indent(text.as_bytes())).unwrap(), &value);
            if let Value::Object(object) = &value {
                let scanned: Vec<Value> = members(text.as_bytes())
                    .map(|m| serde_json::from_slice(&text.as_bytes()[m.value]).unwrap())
                    .collect();
                prop_assert_eq!(scanned, object.values().cloned().collect::<Vec<_>>());
            }
        }
    }
}
