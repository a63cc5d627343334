//! Semantic versions.

use std::any::Any;
use std::cmp::Ordering;

use semver::Version;

use super::{Cost, Overload, global, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool, Int, String as Text};
use crate::value::{Opaque, Value};

type Result<'v> = std::result::Result<Value<'v>, Error>;

#[derive(Clone, Debug)]
struct Semver(Version);

impl Opaque for Semver {
    fn type_of(&self) -> Type {
        Type::SEMVER
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        let other = other.as_any().downcast_ref::<Semver>();
        other.is_some_and(|other| self.0.cmp_precedence(&other.0).is_eq())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let v = || Type::SEMVER;
    vec![
        global("semver", "string_to_semver", [Text], v()).cost(Cost::Parse).call(semver),
        global("semver", "string_bool_to_semver", [Text, Bool], v()).cost(Cost::Parse).call(semver),
        global("isSemver", "is_semver_string", [Text], Bool).cost(Cost::Parse).call(is_semver),
        global("isSemver", "is_semver_string_bool", [Text, Bool], Bool)
            .cost(Cost::Parse)
            .call(is_semver),
        member("isGreaterThan", "semver_is_greater_than", [v(), v()], Bool).call(is_greater),
        member("isLessThan", "semver_is_less_than", [v(), v()], Bool).call(is_less),
        member("compareTo", "semver_compare_to", [v(), v()], Int).call(compare_to),
        member("major", "semver_major", [v()], Int).call(major),
        member("minor", "semver_minor", [v()], Int).call(minor),
        member("patch", "semver_patch", [v()], Int).call(patch),
    ]
}

/// Reads a version; with `normalize`, `v1.2` and `01.2.3` too.
fn parse(args: &[Value<'_>]) -> std::result::Result<Semver, Error> {
    let (text, normalize) = match args {
        [Value::String(text)] => (text, false),
        [Value::String(text), Value::Bool(normalize)] => (text, *normalize),
        _ => return Err(Error::NoSuchOverload),
    };
    let text = if normalize { normalized(text) } else { text.to_string() };
    let message = match () {
        () if text.is_empty() => "Version string empty".to_owned(),
        () if text.splitn(3, '.').count() < 3 => "No Major.Minor.Patch elements found".to_owned(),
        () => match Version::parse(&text) {
            Ok(version) => return Ok(Semver(version)),
            Err(error) => error.to_string(),
        },
    };
    Err(Error::message(message))
}

/// Without `v`, with three parts, without leading zeros.
fn normalized(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| match part.trim_start_matches('0') {
            _ if part.len() <= 1 => part.to_owned(),
            rest if rest.starts_with(|c: char| c.is_ascii_digit()) => rest.to_owned(),
            rest => format!("0{rest}"),
        })
        .collect();
    // A version of less than three parts cannot have a pre-release.
    if parts.len() < 3 && parts.last().is_some_and(|part| !part.contains(['+', '-'])) {
        while parts.len() < 3 {
            parts.push("0".to_owned());
        }
    }
    parts.join(".")
}

fn version<'a>(value: Option<&'a Value<'_>>) -> std::result::Result<&'a Version, Error> {
    value.and_then(Value::downcast).map(|Semver(version)| version).ok_or(Error::NoSuchOverload)
}

fn semver<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::opaque(parse(args)?))
}

fn is_semver<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(parse(args).is_ok()))
}

fn order(args: &[Value<'_>]) -> std::result::Result<Ordering, Error> {
    Ok(version(args.first())?.cmp_precedence(version(args.get(1))?))
}

fn is_greater<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(order(args)?.is_gt()))
}

fn is_less<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(order(args)?.is_lt()))
}

fn compare_to<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Int(order(args)? as i64))
}

fn number<'v>(number: u64) -> Value<'v> {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn major<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(number(version(args.first())?.major))
}

fn minor<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(number(version(args.first())?.minor))
}

fn patch<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(number(version(args.first())?.patch))
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn versions_are_read_and_compared() {
        check("isSemver('1.2.3-beta.1+build.1')", "true");
        check("isSemver('v1.2')", "false");
        check("isSemver('v1.2', true)", "true");
        check("semver('v1.2', true).patch()", "0");
        check("semver('01.02.03', true).minor()", "2");
        check("semver('1.2.3').major()", "1");
        check("semver('1.2.3').isLessThan(semver('1.10.0'))", "true");
        check("semver('1.2.3').isGreaterThan(semver('1.2.3-rc1'))", "true");
        check("semver('1.2.3+a').compareTo(semver('1.2.3+b'))", "0");
        check("semver('1.2')", "error: No Major.Minor.Patch elements found");
    }
}
