//! Named formats of Kubernetes, which say what is wrong with a text.

use std::any::Any;

use setpoint_object::name;

use super::{Cost, Overload, global, member, url};
use crate::eval::{Context, Error};
use crate::formats::{is_base64, is_date_time, is_uuid};
use crate::types::Type::{self, String as Text};
use crate::value::{Opaque, Timestamp, Value};

/// One format.
struct Format {
    /// Its name in expressions.
    name: &'static str,
    /// The function that gives it.
    function: &'static str,
    /// The size of the pattern its cost is counted by.
    pattern: u64,
    /// Errors of a text.
    validate: fn(&str) -> Vec<String>,
}

#[derive(Clone, Copy)]
struct Named(&'static Format);

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "format {}", self.0.name)
    }
}

impl Opaque for Named {
    fn type_of(&self) -> Type {
        Type::FORMAT
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Named>().is_some_and(|other| other.0.name == self.0.name)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The label that a prefix could become: what stands before a dash at the end counts.
fn as_prefix(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut masked = rest.to_owned();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => text.to_owned(),
    }
}

fn faults(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

const fn format(
    name: &'static str,
    function: &'static str,
    pattern: u64,
    validate: fn(&str) -> Vec<String>,
) -> Format {
    Format { name, function, pattern, validate }
}

/// All formats, with the sizes Kubernetes counts them by.
static FORMATS: [Format; 13] = [
    format("dns1123Label", "format.dns1123Label", 30, name::dns1123_label),
    format("dns1123Subdomain", "format.dns1123Subdomain", 60, name::dns1123_subdomain),
    format("dns1035Label", "format.dns1035Label", 30, name::dns1035_label),
    format("qualifiedName", "format.qualifiedName", 60, name::qualified_name),
    format("dns1123LabelPrefix", "format.dns1123LabelPrefix", 30, |text| {
        name::dns1123_label(&as_prefix(text))
    }),
    format("dns1123SubdomainPrefix", "format.dns1123SubdomainPrefix", 60, |text| {
        name::dns1123_subdomain(&as_prefix(text))
    }),
    format("dns1035LabelPrefix", "format.dns1035LabelPrefix", 30, |text| {
        name::dns1035_label(&as_prefix(text))
    }),
    format("labelValue", "format.labelValue", 40, name::label_value),
    format("uri", "format.uri", 1103, |text| url::check_uri(text).err().into_iter().collect()),
    format("uuid", "format.uuid", 70, |text| {
        faults(is_uuid(text), "does not match the UUID format")
    }),
    format("byte", "format.byte", 84, |text| faults(is_base64(text), "invalid base64")),
    format("date", "format.date", 71, |text| {
        faults(Timestamp::parse_date(text).is_some(), "invalid date")
    }),
    format("datetime", "format.datetime", 71, |text| {
        faults(is_date_time(text), "invalid datetime")
    }),
];

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let mut rows = vec![
        member(
            "validate",
            "format-validate",
            [Type::FORMAT, Text],
            Type::optional(Type::list(Text)),
        )
        .cost(Cost::Validate)
        .call(validate),
        global("format.named", "format-named", [Text], Type::optional(Type::FORMAT)).call(named),
    ];
    // Each format has a function without operands that gives it. They differ in nothing else, and
    // functions carry no data: one for each place in the table.
    macro_rules! constants {
        ($($index:literal)*) => { $(
            if let Some(format) = FORMATS.get($index) {
                rows.push(global(format.function, format.function, [], Type::FORMAT).call(
                    |_, _| match FORMATS.get($index) {
                        Some(format) => Ok(Value::opaque(Named(format))),
                        None => Err(Error::NoSuchOverload),
                    },
                ));
            }
        )* };
    }
    constants!(0 1 2 3 4 5 6 7 8 9 10 11 12);
    rows
}

/// The size of a format's pattern.
pub(super) fn pattern_size(value: &Value<'_>) -> u64 {
    value.downcast::<Named>().map_or(1, |named| named.0.pattern)
}

fn named<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<Value<'v>, Error> {
    let [Value::String(wanted)] = args else { return Err(Error::NoSuchOverload) };
    let found = FORMATS.iter().find(|format| *format.name == **wanted);
    Ok(found.map_or(Value::NONE, |format| Value::some(Value::opaque(Named(format)))))
}

fn validate<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<Value<'v>, Error> {
    let [format, Value::String(text)] = args else { return Err(Error::NoSuchOverload) };
    let Some(Named(format)) = format.downcast() else { return Err(Error::NoSuchOverload) };
    let faults = (format.validate)(text);
    if faults.is_empty() {
        return Ok(Value::NONE);
    }
    let faults: Vec<Value<'v>> = faults.into_iter().map(Into::into).collect();
    Ok(Value::some(faults.into()))
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn formats_say_what_is_wrong() {
        check("format.dns1123Label().validate('my-name').hasValue()", "false");
        check("format.dns1123Label().validate('My').value().size()", "1");
        check("format.named('dns1123Label').value().validate('x').hasValue()", "false");
        check("format.named('nope').hasValue()", "false");
        check("format.dns1123LabelPrefix().validate('abc-').hasValue()", "false");
        check("format.dns1123Label().validate('abc-').hasValue()", "true");
        check("format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()", "false");
        check("format.uuid().validate('x').value()", "[\"does not match the UUID format\"]");
        check("format.byte().validate('aGVsbG8=').hasValue()", "false");
        check("format.byte().validate('x').value()", "[\"invalid base64\"]");
        check("format.date().validate('2021-01-01').hasValue()", "false");
        check("format.datetime().validate('2021-01-01T00:00:00Z').hasValue()", "false");
        check("format.datetime().validate('2021-01-01').value()", "[\"invalid datetime\"]");
        check("format.uri().validate('https://a.b').hasValue()", "false");
        check(
            "format.uri().validate('a').value()",
            "[\"parse \\\"a\\\": invalid URI for request\"]",
        );
        check("format.labelValue().validate('a b').hasValue()", "true");
        check("format.qualifiedName().validate('a.b/c').hasValue()", "false");
        check("format.dns1035Label() == format.dns1035Label()", "true");
    }
}
