//! Kubernetes' searches with patterns.

use super::{Cost, Overload, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Int, String as Text};
use crate::value::{Str, Value};

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let texts = || Type::list(Text);
    vec![
        member("find", "string_find_string", [Text, Text], Text).cost(Cost::Find).call(find),
        member("findAll", "string_find_all_string", [Text, Text], texts())
            .cost(Cost::Find)
            .call(find_all),
        member("findAll", "string_find_all_string_int", [Text, Text, Int], texts())
            .cost(Cost::Find)
            .call(find_all),
    ]
}

fn illegal(error: Error) -> Error {
    match error {
        error if error.is_final() => error,
        error => Error::message(format!("Illegal regex: {error}")),
    }
}

fn find<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<Value<'v>, Error> {
    let [Value::String(text), Value::String(pattern)] = args else {
        return Err(Error::NoSuchOverload);
    };
    let regex = context.pattern(pattern).map_err(illegal)?;
    Ok(match text {
        Str::Borrowed(text) => regex.find(text)?.unwrap_or_default().into(),
        Str::Shared(text) => regex.find(text)?.unwrap_or_default().to_owned().into(),
    })
}

fn find_all<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<Value<'v>, Error> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => (text, pattern, *limit),
        _ => return Err(Error::NoSuchOverload),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = context.find_all(pattern, text, limit).map_err(illegal)?;
    context.allocate(text.len() + found.len() * 2 * size_of::<Value<'_>>())?;
    Ok(found.into_iter().map(|one| one.to_owned().into()).collect::<Vec<_>>().into())
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn matches_are_found() {
        check("'abc 123'.find('[0-9]+')", "\"123\"");
        check("'abc'.find('[0-9]+')", "\"\"");
        check("'123 abc 456'.findAll('[0-9]+')", "[\"123\", \"456\"]");
        check("'123 abc 456'.findAll('[0-9]+', 1)", "[\"123\"]");
        check("'abc'.findAll('[0-9]+')", "[]");
        check("'aaa'.find('a+?')", "\"a\"");
        check("'aaa'.findAll('a??')", "[\"\", \"\", \"\", \"\"]");
        check("'abc'.matches('b')", "true");
        check("'abc'.matches('^b$')", "false");
        check("'٣'.matches('^\\\\d$')", "false");
    }

    #[test]
    fn what_is_not_a_pattern_is_refused_in_gos_words() {
        check("'a'.matches(string('('))", "error: error parsing regexp: missing closing ): `(`");
        check(
            "'a'.find(string('*'))",
            "error: Illegal regex: error parsing regexp: missing argument to repetition operator: `*`",
        );
    }
}
