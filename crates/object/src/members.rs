//! Members of an encoded object, and elements of a list, as byte ranges, without a tree. For
//! cutting parts out of objects that this process has encoded.

use crate::scan::Cursor;
use std::ops::Range;

pub use crate::scan::string_end;

/// One member of an object, as byte ranges of the encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name as written, between its quotes.
    pub name: Range<usize>,
    /// The value.
    pub value: Range<usize>,
}

/// The members of an encoded object in order. Stops at anything that is not JSON. Nesting has no
/// limit.
#[derive(Debug, Clone)]
pub struct Members<'a> {
    cursor: Cursor<'a>,
    is_first: bool,
}

/// Iterates over the members of an object; over none if the text is no object.
///
/// ```
/// use setpoint_object::members;
///
/// let object = br#"{"a": [1], "b": {"a": 2}}"#;
/// let names: Vec<_> = members::of(object).map(|member| &object[member.name]).collect();
/// assert_eq!(names, [b"a", b"b"]);
/// ```
pub fn of(object: &[u8]) -> Members<'_> {
    let mut cursor = Cursor::new(object);
    if cursor.object().is_err() {
        cursor = Cursor::new(&[]);
    }
    Members { cursor, is_first: true }
}

/// The bytes of one member's value. `name` is compared with the name as it is written.
///
/// ```
/// let object = br#"{"kind": "Pod", "metadata": {"name": "a"}}"#;
/// let found = setpoint_object::members::value(object, "metadata");
/// assert_eq!(found, Some(&br#"{"name": "a"}"#[..]));
/// ```
pub fn value<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    of(object)
        .find(|member| &object[member.name.clone()] == name.as_bytes())
        .map(|member| &object[member.value])
}

/// The elements of an encoded list in order. Stops at anything that is not JSON. Nesting has no
/// limit.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    cursor: Cursor<'a>,
    is_first: bool,
}

/// Iterates over the ranges of a list's elements; over none if the text is no list.
///
/// ```
/// use setpoint_object::members;
///
/// let list = br#"[{"a": [1]}, 2]"#;
/// let elements: Vec<_> = members::elements(list).map(|element| &list[element]).collect();
/// assert_eq!(elements, [&br#"{"a": [1]}"#[..], b"2"]);
/// ```
pub fn elements(list: &[u8]) -> Elements<'_> {
    let mut cursor = Cursor::new(list);
    if cursor.array().is_err() {
        cursor = Cursor::new(&[]);
    }
    Elements { cursor, is_first: true }
}

impl Iterator for Elements<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let follows = self.cursor.element(&mut self.is_first).unwrap_or(false);
        follows.then(|| self.cursor.skip_unlimited())?
    }
}

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        let (name, value) = self.name()?;
        self.go_on(value);
        let value = self.cursor.skip_unlimited()?;
        Some(Member { name, value })
    }
}

impl Members<'_> {
    /// The next member, without its end: its name, and where its value begins. The same again
    /// until [`go_on`](Self::go_on).
    pub fn name(&self) -> Option<(Range<usize>, usize)> {
        let (mut cursor, mut is_first) = (self.cursor.clone(), self.is_first);
        let name = cursor.key(&mut is_first).ok()??;
        cursor.peek()?;
        Some((name.at..name.at + name.raw.len(), cursor.position()))
    }

    /// Continues after the value that ends before this byte.
    pub fn go_on(&mut self, value_end: usize) {
        self.cursor.move_to(value_end);
        self.is_first = false;
    }

    /// After the last member: the first byte after the object.
    pub fn end(&self) -> Option<usize> {
        let (mut cursor, mut is_first) = (self.cursor.clone(), self.is_first);
        let next = cursor.key(&mut is_first).ok()?;
        next.is_none().then(|| cursor.position())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_strategy;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn a_member_after_nested_and_escaped_ones_is_found() {
        let object = br#"{"a":{"metadata":1},"b":"\"metadata\":2","metadata":{"name":"x"},"z":3}"#;
        assert_eq!(value(object, "metadata"), Some(&br#"{"name":"x"}"#[..]));
        assert_eq!(value(object, "absent"), None);
        assert_eq!((of(b"[1]").next(), of(br#"{"a":,}"#).next()), (None, None));
    }

    #[test]
    fn elements_end_with_the_list_or_at_a_fault() {
        let all = |list: &'static str| -> Vec<&str> {
            elements(list.as_bytes()).map(|element| &list[element]).collect()
        };
        assert_eq!(all(r#" [ {"a]":[1]} , "," ,[] ] 1"#), [r#"{"a]":[1]}"#, r#"",""#, "[]"]);
        assert_eq!(all("[]"), Vec::<&str>::new());
        assert_eq!((all("[1 2]"), all("[1,}"), all("{}")), (vec!["1"], vec!["1"], vec![]));
    }

    #[test]
    fn a_member_after_one_that_nests_deeply_is_found() {
        let object = format!("{{\"a\":{}\"]}}\"{},\"b\":1}}", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(value(object.as_bytes(), "b"), Some(&b"1"[..]));
    }

    #[test]
    fn a_name_is_the_same_until_the_caller_goes_on() {
        let object = br#"{ "a" : {"b":1} , "c":2} tail"#;
        let mut all = of(object);
        let (name, at) = all.name().unwrap();
        assert_eq!((&object[name], all.name().unwrap().1), (&b"a"[..], at));
        let inner = &object[at..];
        let mut of_inner = of(inner);
        assert!(of_inner.by_ref().count() == 1);
        all.go_on(at + of_inner.end().unwrap());
        assert_eq!(&object[all.next().unwrap().value], b"2");
        assert_eq!(&object[all.end().unwrap()..], b" tail");
    }

    proptest! {
        #[test]
        fn members_agree_with_a_parser(value in json_strategy::object()) {
            let text = value.to_string();
            if let Value::Object(object) = &value {
                let scanned: Vec<Value> = of(text.as_bytes())
                    .map(|m| serde_json::from_slice(&text.as_bytes()[m.value]).unwrap())
                    .collect();
                prop_assert_eq!(scanned, object.values().cloned().collect::<Vec<_>>());
            }
        }
    }
}
