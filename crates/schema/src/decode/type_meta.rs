//! How a document names its type: by members that Go finds in any case.

use super::wrong_type;
use crate::patch::json_type;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// `apiVersion` and `kind` of a document, empty if it names none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeMeta<'a> {
    /// `apps/v1`.
    pub api_version: Cow<'a, str>,
    /// `Deployment`.
    pub kind: Cow<'a, str>,
}

/// The type that a document names. Of `kind` and `Kind`, or of one that is there twice, the last
/// one counts, and `null` changes nothing. `text`: the JSON that the value was read from, with the
/// `problems` that were found; empty if its members had no other order than that of their names.
///
/// # Errors
///
/// The document is no object, or a member is no text, in Go's words. If several are wrong, it is
/// the first in `text`.
pub fn type_meta<'a>(
    value: &'a Value,
    text: &[u8],
    problems: &[String],
) -> Result<TypeMeta<'a>, String> {
    const HEAD: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let Value::Object(members) = value else {
        return Err(wrong_type(json_type(value), "", HEAD));
    };
    // Most documents have each once, and by its own name.
    let is_plain = members.iter().all(|(name, value)| match Part::of(name) {
        Some(part) => name == part.name() && value.is_string(),
        None => true,
    });
    let is_repeated = || problems.iter().any(|problem| REPEATED.contains(&&**problem));
    if is_plain && !is_repeated() {
        let of = |part: Part| members.get(part.name()).and_then(Value::as_str).unwrap_or_default();
        return Ok(TypeMeta {
            api_version: of(Part::ApiVersion).into(),
            kind: of(Part::Kind).into(),
        });
    }
    let mut found = Found::default();
    let text = super::json::readable(text);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    if text.is_empty() || deserializer.deserialize_map(&mut found).is_err() {
        found = Found::default();
        for (name, value) in members {
            if let Some(part) = Part::of(name) {
                found.take(part, value);
            }
        }
    }
    match found.fault {
        Some(fault) => Err(fault),
        None => Ok(found.meta),
    }
}

/// What decoding notes of members that are there twice.
const REPEATED: [&str; 2] = [r#"duplicate field "apiVersion""#, r#"duplicate field "kind""#];

/// A member that names the type.
#[derive(Debug, Clone, Copy)]
enum Part {
    ApiVersion,
    Kind,
}

impl Part {
    fn of(name: &str) -> Option<Self> {
        let is = |part: &Self| name.eq_ignore_ascii_case(part.name());
        [Self::ApiVersion, Self::Kind].into_iter().find(is)
    }

    fn name(self) -> &'static str {
        match self {
            Self::ApiVersion => "apiVersion",
            Self::Kind => "kind",
        }
    }
}

/// What the members so far say.
#[derive(Debug, Default)]
struct Found {
    meta: TypeMeta<'static>,
    fault: Option<String>,
}

impl Found {
    fn take(&mut self, part: Part, value: &Value) {
        let text = match value {
            Value::Null => return,
            Value::String(text) => Cow::Owned(text.clone()),
            other => {
                let field = format!(".{}", part.name());
                let fault = || wrong_type(json_type(other), &field, "string");
                self.fault.get_or_insert_with(fault);
                return;
            }
        };
        match part {
            Part::ApiVersion => self.meta.api_version = text,
            Part::Kind => self.meta.kind = text,
        }
    }
}

impl<'de> Visitor<'de> for &mut Found {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            match Part::of(&name) {
                Some(part) => self.take(part, &map.next_value::<Value>()?),
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, Format, parse};
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn a_type_is_named_in_any_case_and_the_first_fault_of_it_is_told() {
        let named = |body: &str| {
            let Decoded { value, problems } = parse(body.as_bytes(), Format::Json).unwrap();
            let meta = type_meta(&value, body.as_bytes(), &problems);
            meta.map_or_else(|fault| fault, |meta| format!("{} {}", meta.api_version, meta.kind))
        };
        expect![[r#"
            [" "," ","v1 Pod","v1 Other","v1 Pod","v1 ","json: cannot unmarshal number into Go struct field .kind of type string","json: cannot unmarshal array into Go struct field .apiVersion of type string","json: cannot unmarshal number into Go struct field .kind of type string"]"#]]
        .assert_eq(&serde_json::to_string(&[
            named("{}"),
            named(r#"{"kind":null}"#),
            named(r#"{"apiVersion":"v1","kind":"Pod"}"#),
            named(r#"{"apiVersion":"v1","kind":"Pod","Kind":"Other","metadata":{"kind":1}}"#),
            named(r#"{"apiVersion":"v1","kind":"Pod","kind":null}"#),
            named(r#"{"kind":"Pod","apiVersion":"v1","kind":""}"#),
            named(r#"{"kind":1,"apiVersion":[]}"#),
            named(r#"{"apiVersion":[],"kind":1}"#),
            named(r#"{"apiVersion":"v1","Kind":1,"kind":"Pod"}"#),
        ])
        .unwrap());
        let sorted = json!({"Kind": "A", "kind": "B"});
        assert_eq!(type_meta(&sorted, &[], &[]).unwrap().kind, "B");
    }
}
