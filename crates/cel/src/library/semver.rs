//! Semantic versions.

use std::any::Any;
use std::cmp::Ordering;

use semver::Version;

use super::{Cost, Overload, global, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool, Int, String as Text};
use crate::value::{Opaque, Value};
use setpoint_object::field::quote;

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

    fn text_bytes(&self) -> usize {
        self.0.pre.len() + self.0.build.len()
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

/// The value of a text.
pub(crate) fn value(text: &str) -> std::result::Result<Value<'static>, Error> {
    parse(&[Value::from(text)]).map(Value::opaque)
}

/// Reads a version; with `normalize`, `v1.2` and `01.2.3` too.
fn parse(args: &[Value<'_>]) -> std::result::Result<Semver, Error> {
    let (text, normalize) = match args {
        [Value::String(text)] => (text, false),
        [Value::String(text), Value::Bool(normalize)] => (text, *normalize),
        _ => return Err(Error::NoSuchOverload),
    };
    let text = if normalize { normalized(text) } else { text.to_string() };
    if normalize && text.splitn(3, '.').count() < 3 {
        return Err(Error::message("short version cannot contain PreRelease/Build meta data"));
    }
    if let Some(fault) = fault(&text) {
        return Err(Error::message(fault));
    }
    Version::parse(&text).map(Semver).map_err(|error| Error::message(error.to_string()))
}

/// What is wrong with a version, in the reference's words.
fn fault(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("Version string empty".to_owned());
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Some("No Major.Minor.Patch elements found".to_owned());
    };
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(a, b)| (a, Some(b)));
    let (patch, before) = rest.split_once('-').map_or((rest, None), |(a, b)| (a, Some(b)));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = |text: &str| text.len() > 1 && text.starts_with('0');
    let other = |text: &str| text.bytes().any(|byte| !byte.is_ascii_alphanumeric() && byte != b'-');
    for (name, number) in [("major", major), ("minor", minor), ("patch", patch)] {
        let quoted = quote(number);
        if !digits(number) {
            return Some(format!("Invalid character(s) found in {name} number {quoted}"));
        }
        if padded(number) {
            let name = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
            return Some(format!("{name} number must not contain leading zeroes {quoted}"));
        }
        if number.parse::<u64>().is_err() {
            let why = if number.is_empty() { "invalid syntax" } else { "value out of range" };
            return Some(format!("strconv.ParseUint: parsing {quoted}: {why}"));
        }
    }
    for part in before.into_iter().flat_map(|text| text.split('.')) {
        let quoted = quote(part);
        if part.is_empty() {
            return Some("Prerelease is empty".to_owned());
        }
        if digits(part) && padded(part) {
            let why = "Numeric PreRelease version must not contain leading zeroes";
            return Some(format!("{why} {quoted}"));
        }
        if other(part) {
            return Some(format!("Invalid character(s) found in prerelease {quoted}"));
        }
    }
    for part in build.into_iter().flat_map(|text| text.split('.')) {
        if part.is_empty() {
            return Some("Build meta data is empty".to_owned());
        }
        if other(part) {
            return Some(format!("Invalid character(s) found in build meta data {}", quote(part)));
        }
    }
    None
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

    #[test]
    fn faults_are_in_the_words_of_the_reference() {
        for (text, fault) in [
            ("", "Version string empty"),
            ("01.2.3", "Major number must not contain leading zeroes \"01\""),
            ("1.x.3", "Invalid character(s) found in minor number \"x\""),
            ("1.2.", "strconv.ParseUint: parsing \"\": invalid syntax"),
            (
                "1.2.99999999999999999999",
                "strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
            ),
            ("1.2.3-", "Prerelease is empty"),
            ("1.2.3-01", "Numeric PreRelease version must not contain leading zeroes \"01\""),
            ("1.2.3-a_b", "Invalid character(s) found in prerelease \"a_b\""),
            ("1.2.3+", "Build meta data is empty"),
        ] {
            check(&format!("semver('{text}')"), &format!("error: {fault}"));
        }
        let short = "error: short version cannot contain PreRelease/Build meta data";
        check("semver('1.2-a', true)", short);
    }
}
