//! Literal format strings and the types of their arguments.

use crate::ast::{Expr, ExprKind};
use crate::check::Checked;
use crate::types::Type;

/// Checks a format string against its arguments. A fault is of an argument, or of the call.
pub(super) fn check<'a>(
    checked: &Checked,
    text: &str,
    args: &'a [Expr],
) -> Result<(), (Option<&'a Expr>, String)> {
    let bytes = text.as_bytes();
    let of_call = |message: String| (None, message);
    let unparsed =
        |message: String| (None, format!("could not parse formatting clause: {message}"));
    let mut seen = 0;
    let mut at = 0;
    while let Some(found) = memchr_percent(&bytes[at..]) {
        at += found + 1;
        if bytes.get(at) == Some(&b'%') {
            at += 1;
            continue;
        }
        if at >= bytes.len() {
            return Err(of_call("unexpected end of string".to_owned()));
        }
        let Some(arg) = args.get(seen) else {
            return Err(of_call(format!("index {seen} out of range")));
        };
        if bytes[at] == b'.' {
            at += 1;
            let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
            let precision = &text[at..at + digits];
            at += digits;
            if at >= bytes.len() {
                return Err(unparsed(
                    "error while parsing precision: could not find end of precision specifier"
                        .to_owned(),
                ));
            }
            if precision.parse::<i64>().is_err() {
                let why =
                    if precision.is_empty() { "invalid syntax" } else { "value out of range" };
                return Err(unparsed(format!(
                    "error while parsing precision: error while converting precision to integer: \
                     strconv.Atoi: parsing \"{precision}\": {why}"
                )));
            }
        }
        let verb = bytes[at];
        at += 1;
        clause(checked, verb, arg)
            .ok_or_else(|| {
                // A byte, as cel-go reads it.
                unparsed(format!("unrecognized formatting clause \"{}\"", char::from(verb)))
            })?
            .map_err(|(expr, message)| {
                (Some(expr), format!("error during formatting: {message}"))
            })?;
        seen += 1;
    }
    if args.len() > seen {
        return Err(of_call(format!(
            "too many arguments supplied to string.format (expected {seen}, got {})",
            args.len()
        )));
    }
    Ok(())
}

fn memchr_percent(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'%')
}

/// Checks an argument against the letter of its clause; none if there is no such letter.
fn clause<'a>(
    checked: &Checked,
    verb: u8,
    arg: &'a Expr,
) -> Option<Result<(), (&'a Expr, String)>> {
    let ty = checked.type_of(arg.id);
    let (fits, what) = match verb {
        b's' => return Some(printable(checked, arg)),
        b'd' => {
            (matches!(ty, Type::Int | Type::Uint), "decimal clause can only be used on integers")
        }
        b'f' => (
            matches!(ty, Type::Double | Type::String),
            "fixed-point clause can only be used on doubles",
        ),
        b'e' => (
            matches!(ty, Type::Double | Type::String),
            "scientific clause can only be used on doubles",
        ),
        b'b' => (
            matches!(ty, Type::Int | Type::Uint | Type::Bool),
            "only integers and bools can be formatted as binary",
        ),
        b'x' | b'X' => (
            matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
        b'o' => (matches!(ty, Type::Int | Type::Uint), "octal clause can only be used on integers"),
        _ => return None,
    };
    if fits || ty.is_dyn() {
        return Some(Ok(()));
    }
    Some(Err((arg, format!("{what}, was given {}", name(ty)))))
}

/// Whether `%s` can show an argument and, of a literal, everything in it.
fn printable<'a>(checked: &Checked, arg: &'a Expr) -> Result<(), (&'a Expr, String)> {
    let ty = checked.type_of(arg.id);
    if matches!(ty, Type::Optional(_) | Type::Object(_) | Type::Opaque(_) | Type::Param(_)) {
        let message = format!(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, \
             types, durations, and timestamps, was given {}",
            name(ty)
        );
        return Err((arg, message));
    }
    match &arg.kind {
        ExprKind::List { elements, .. } => {
            elements.iter().try_for_each(|element| printable(checked, element))
        }
        ExprKind::Map(entries) => entries.iter().try_for_each(|entry| {
            printable(checked, &entry.key)?;
            printable(checked, &entry.value)
        }),
        _ => Ok(()),
    }
}

/// The name of a type without its parameters, but for types of types.
fn name(ty: &Type) -> String {
    match ty {
        Type::Type(_) => ty.to_string(),
        ty => ty.name().into_owned(),
    }
}
