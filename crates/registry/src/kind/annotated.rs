//! Structs that annotations hold in JSON, read as Go's decoder reads them: names of members in any
//! case, unknown members ignored, errors in its words.
use crate::kind::at::At;
use serde_json::{Map, Value};
use setpoint_schema::decode::{self, Format};
use setpoint_schema::patch::json_type;

/// A struct of Go.
pub(crate) struct Struct {
    /// Its name, with the package.
    pub(crate) name: &'static str,
    /// Its members, with the names that errors have.
    pub(crate) members: &'static [(&'static str, Type)],
}

/// The type of a member.
#[derive(Clone, Copy)]
pub(crate) enum Type {
    /// A string, with the name of its type.
    Text(&'static str),
    Integer,
    Boolean,
    Time,
    Struct(&'static Struct),
    List(&'static Struct),
}

impl Type {
    fn name(self) -> String {
        match self {
            Self::Text(name) => name.to_owned(),
            Self::Integer => "int64".to_owned(),
            Self::Boolean => "bool".to_owned(),
            Self::Time => "string".to_owned(),
            Self::Struct(of) => of.name.to_owned(),
            Self::List(of) => format!("[]{}", of.name),
        }
    }
}

/// Reads a value of a type. Members have their published names in it, and no `null`.
///
/// # Errors
///
/// The first fault, in the words of Go's decoder.
pub(crate) fn read(text: &str, ty: Type) -> Result<Value, String> {
    let decoded = decode::parse_typed(text.as_bytes(), Format::Json).map_err(|error| error.0)?;
    let mut reader = Reader { first: None };
    let value = reader.value(&decoded.value, ty, &Place { owner: None, fields: String::new() })?;
    reader.first.map_or(Ok(value), Err)
}

/// Holds what an annotation has, if it has something, to rules, at the annotation's name. A text
/// that cannot be read is reported at `wrong`.
pub(in crate::kind) fn check(
    annotations: &At<'_, '_>,
    (name, ty): (&str, Type),
    wrong: &At<'_, '_>,
    rules: impl FnOnce(&At<'_, '_>),
) {
    let text = annotations.key(name).text();
    if text.is_empty() {
        return;
    }
    match read(text, ty) {
        Ok(read) => rules(&annotations.shown_as(name, &read)),
        Err(fault) => wrong.invalid_as(&name.into(), fault),
    }
}

/// Where a value is: the innermost struct and the path of members.
struct Place {
    owner: Option<&'static Struct>,
    fields: String,
}

impl Place {
    fn member(&self, owner: &'static Struct, name: &str) -> Self {
        let fields = match self.fields.as_str() {
            "" => name.to_owned(),
            fields => format!("{fields}.{name}"),
        };
        Self { owner: Some(owner), fields }
    }

    fn fault(&self, found: &str, ty: Type) -> String {
        let field = match self.owner {
            None => String::new(),
            Some(owner) => {
                let (_, short) = owner.name.rsplit_once('.').unwrap_or(("", owner.name));
                format!("{short}.{}", self.fields)
            }
        };
        decode::wrong_type(found, &field, &ty.name())
    }
}

struct Reader {
    /// The first value of a wrong type. What comes after it is read, and can have worse faults.
    first: Option<String>,
}

impl Reader {
    /// Fails where Go's decoder stops at once.
    fn value(&mut self, value: &Value, ty: Type, place: &Place) -> Result<Value, String> {
        let read = match (ty, value) {
            (_, Value::Null) => Value::Null,
            (Type::Text(_), Value::String(_)) | (Type::Boolean, Value::Bool(_)) => value.clone(),
            (Type::Integer, Value::Number(number)) if number.is_i64() => value.clone(),
            (Type::Time, Value::String(text)) => match decode::time_fault(text) {
                None => value.clone(),
                Some(fault) => return Err(fault),
            },
            (Type::Time, other) => return Err(place.fault(json_type(other), ty)),
            (Type::Struct(of), Value::Object(members)) => self.members(members, of, place)?,
            (Type::List(of), Value::Array(items)) => items
                .iter()
                .map(|item| match self.value(item, Type::Struct(of), place)? {
                    // An item is a struct without members then.
                    Value::Null => Ok(Value::Object(Map::new())),
                    item => Ok(item),
                })
                .collect::<Result<Vec<_>, String>>()?
                .into(),
            (_, other) => {
                let found = match (ty, other) {
                    (Type::Integer, Value::Number(number)) => format!("number {number}"),
                    _ => json_type(other).to_owned(),
                };
                self.first.get_or_insert_with(|| place.fault(&found, ty));
                Value::Null
            }
        };
        Ok(read)
    }

    fn members(
        &mut self,
        members: &Map<String, Value>,
        of: &'static Struct,
        place: &Place,
    ) -> Result<Value, String> {
        let mut read = Map::new();
        for (written, value) in members {
            let found = of.members.iter().find(|(name, _)| name.eq_ignore_ascii_case(written));
            let Some((name, ty)) = found else { continue };
            let value = self.value(value, *ty, &place.member(of, name))?;
            if !value.is_null() {
                let (first, rest) = name.split_at(1);
                read.insert(format!("{}{rest}", first.to_ascii_lowercase()), value);
            }
        }
        Ok(read.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const INNER: Struct = Struct { name: "v1.Inner", members: &[("Text", Type::Text("v1.Word"))] };
    const OUTER: Struct = Struct {
        name: "core.Outer",
        members: &[
            ("Seconds", Type::Integer),
            ("IsOn", Type::Boolean),
            ("At", Type::Time),
            ("Inner", Type::Struct(&INNER)),
            ("All", Type::List(&INNER)),
        ],
    };

    #[test]
    fn names_have_any_case_and_unknown_members_are_ignored() {
        let text = r#"[null, {"SECONDS": 3, "isOn": true, "x": 1, "at": null,
            "inner": {"text": "a"}, "all": [{}, null], "At": "2020-01-01T00:00:00Z"}]"#;
        assert_eq!(
            read(text, Type::List(&OUTER)),
            Ok(json!([{}, {"seconds": 3, "isOn": true, "at": "2020-01-01T00:00:00Z",
                "inner": {"text": "a"}, "all": [{}, {}]}]))
        );
        assert_eq!(read("null", Type::List(&OUTER)), Ok(Value::Null));
    }

    #[test]
    fn faults_are_told_in_the_words_of_go() {
        for (text, fault) in [
            ("x", "invalid character 'x' looking for beginning of value"),
            ("[", "unexpected end of JSON input"),
            ("{}", "json: cannot unmarshal object into Go value of type []core.Outer"),
            ("[1, true]", "json: cannot unmarshal number into Go value of type core.Outer"),
            (
                r#"[{"seconds": "1"}]"#,
                "json: cannot unmarshal string into Go struct field Outer.Seconds of type int64",
            ),
            (
                r#"[{"seconds": 1.5}]"#,
                "json: cannot unmarshal number 1.5 into Go struct field Outer.Seconds of type int64",
            ),
            (
                r#"[{"all": [{"text": 1}]}]"#,
                "json: cannot unmarshal number into Go struct field Inner.All.Text of type v1.Word",
            ),
            (
                r#"[{"all": [1]}]"#,
                "json: cannot unmarshal number into Go struct field Outer.All of type v1.Inner",
            ),
            (
                r#"[{"at": 1}]"#,
                "json: cannot unmarshal number into Go struct field Outer.At of type string",
            ),
            // A time that is none ends the reading.
            (
                r#"[{"IsOn": 1}, {"at": "x"}]"#,
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
            ),
        ] {
            assert_eq!(read(text, Type::List(&OUTER)).unwrap_err(), fault, "{text}");
        }
    }
}
