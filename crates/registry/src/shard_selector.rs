//! Shards of a resource: `shardSelector` of a list or watch (KEP-5866).
//!
//! # Theory
//!
//! An object is in a shard if the hash of its uid, or of its namespace, is in one of the shard's
//! ranges. The hash is FNV-1a of 64 bits, as on every server, so that clients can divide the
//! objects among themselves. The text is an expression in CEL that is never evaluated:
//!
//! ```text
//! shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || shardRange(…)
//! ```
//!
//! The start of a range is in it, and the end is not. Both have 16 hexadecimal digits; the end of
//! the last range is 2⁶⁴. Ranges are kept in order and joined, so an object costs one binary search
//! however many there are.

use fnv::FnvHasher;
use setpoint_cel::ast::{Expr, ExprKind, Literal, operators};
use setpoint_cel::{Macros, parse};
use setpoint_object::ApiError;
use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;

/// Beyond the last hash: 2⁶⁴.
const END_TEXT: &str = "0x10000000000000000";
/// The longest text, bytes. A range has about 80.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// No macros: `shardRange` is all there is.
const MACROS: Macros = Macros {
    optionals: false,
    two_variables: false,
    sort_by: false,
    exists_one: false,
    bind: false,
};

/// The field whose hash decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardField {
    /// `object.metadata.uid`.
    Uid,
    /// `object.metadata.namespace`.
    Namespace,
}

impl fmt::Display for ShardField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        })
    }
}

/// Some of the objects of a resource, by the hash of a field. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardSelector {
    field: ShardField,
    /// As a list's metadata shows it.
    text: Arc<str>,
    /// First hash, and first hash beyond: in order, without overlaps.
    ranges: Arc<[(u64, u128)]>,
}

impl ShardSelector {
    /// Parses a selector.
    ///
    /// # Errors
    ///
    /// 400 if the text is anything but `shardRange` calls with `||` between them, all of one field,
    /// or longer than 64 KiB.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        Self::read(text)
            .map_err(|why| ApiError::bad_request(format!("invalid shard selector: {why}")))
    }

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            let why =
                "empty shard selector is not allowed; omit the parameter for unfiltered lists";
            return Err(why.to_owned());
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("{} bytes, at most {TEXT_BYTES_MAX}", text.len()));
        }
        let ast = parse(text, &MACROS).map_err(|issues| {
            let first = issues.issues().first();
            format!("CEL parse error: {}", first.map_or("", |issue| &*issue.message))
        })?;
        let mut calls = Vec::new();
        collect(&ast.root, &mut calls)?;
        let Some((field, ..)) = calls.first().copied() else {
            return Err("no shardRange()".to_owned());
        };
        if let Some((other, ..)) = calls.iter().find(|(other, ..)| *other != field) {
            return Err(format!(
                "all shard ranges must use the same field, got \"{field}\" and \"{other}\""
            ));
        }
        let shown = |(_, start, end): &(ShardField, &str, &str)| {
            format!("shardRange({field}, '{start}', '{end}')")
        };
        let shown: Vec<String> = calls.iter().map(shown).collect();
        let number = |text: &str| u128::from_str_radix(text.trim_start_matches("0x"), 16);
        let mut ranges = Vec::new();
        for (_, start, end) in calls {
            let (Ok(start), Ok(end)) = (number(start), number(end)) else { continue };
            // A start is less than an end, which is at most 2⁶⁴.
            ranges.extend(u64::try_from(start).ok().map(|start| (start, end)));
        }
        ranges.sort_unstable();
        let mut joined: Vec<(u64, u128)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match joined.last_mut() {
                Some(last) if u128::from(start) <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        Ok(Self { field, text: shown.join(" || ").into(), ranges: joined.into() })
    }

    /// The field whose value [`has`](Self::has) takes.
    pub fn field(&self) -> ShardField {
        self.field
    }

    /// Whether an object with this value of the field is in the shard.
    pub fn has(&self, value: &str) -> bool {
        let mut hasher = FnvHasher::default();
        hasher.write(value.as_bytes());
        let hash = hasher.finish();
        let after = self.ranges.partition_point(|(start, _)| *start <= hash);
        let before = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        before.is_some_and(|(_, end)| u128::from(hash) < *end)
    }

    /// The selector as `metadata.shardInfo.selector` of a list shows it.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }
}

/// Field, start and end of a call.
type Call<'a> = (ShardField, &'a str, &'a str);

/// Collects the calls of an expression, in the order of the text. As deep as the parser permits.
fn collect<'a>(expr: &'a Expr, calls: &mut Vec<Call<'a>>) -> Result<(), String> {
    let ExprKind::Call { function, target: None, args } = &expr.kind else {
        return Err(format!(
            "unexpected {}; expected shardRange() call or || operator",
            kind_of(&expr.kind)
        ));
    };
    match &**function {
        operators::OR => args.iter().try_for_each(|operand| collect(operand, calls)),
        "shardRange" => {
            calls.push(call(args)?);
            Ok(())
        }
        other => {
            Err(format!("unsupported function {other:?}; only shardRange() and || are allowed"))
        }
    }
}

fn call(args: &[Expr]) -> Result<Call<'_>, String> {
    let [field, start, end] = args else {
        return Err(format!("shardRange() requires exactly 3 arguments, got {}", args.len()));
    };
    let path =
        path_of(field).map_err(|why| format!("shardRange() first argument: {why}"))?.join(".");
    let field = [ShardField::Uid, ShardField::Namespace]
        .into_iter()
        .find(|field| field.to_string() == path)
        .ok_or_else(|| {
            format!(
                "unsupported field path {path:?}; supported: object.metadata.uid, object.metadata.namespace"
            )
        })?;
    let (start, end) = (bound(start, "hexStart")?, bound(end, "hexEnd")?);
    // Longer is larger, and digits of one length have the order of their text.
    if (start.len(), start) >= (end.len(), end) {
        return Err(format!("shard range start {start} must be less than end {end}"));
    }
    Ok((field, start, end))
}

/// The names of a chain of selections.
fn path_of(expr: &Expr) -> Result<Vec<&str>, String> {
    let (mut names, mut expr): (Vec<&str>, _) = (Vec::new(), expr);
    loop {
        match &expr.kind {
            ExprKind::Ident(name) => {
                names.push(name);
                names.reverse();
                return Ok(names);
            }
            ExprKind::Select { operand, field, test: false } => {
                names.push(field);
                expr = operand;
            }
            other => {
                return Err(format!(
                    "expected field path (e.g. object.metadata.uid), got {}",
                    kind_of(other)
                ));
            }
        }
    }
}

/// A hash of 16 digits, or the end.
fn bound<'a>(expr: &'a Expr, name: &str) -> Result<&'a str, String> {
    let ExprKind::Literal(Literal::String(text)) = &expr.kind else {
        return Err(format!(
            "{name} must be a string literal (e.g. '0xff'), got {}",
            kind_of(&expr.kind)
        ));
    };
    let Some(digits) = text.strip_prefix("0x") else {
        return Err(format!("{name} must have '0x' prefix, got {text:?}"));
    };
    if digits.is_empty() {
        return Err(format!("{name}: hex value is required after '0x'"));
    }
    let n_digits = digits.len();
    if n_digits > 17 {
        return Err(format!("{name}: hex value too long ({n_digits} chars, max 17): {digits:?}"));
    }
    if let Some(c) = digits.chars().find(|c| !matches!(c, '0'..='9' | 'a'..='f')) {
        return Err(format!("{name}: invalid hex character \"{c}\" in {text:?}"));
    }
    if n_digits == 17 && **text != *END_TEXT {
        return Err(format!(
            "{name}: 17-digit hex value must be '{END_TEXT}' (2^64), got {text:?}"
        ));
    }
    if n_digits < 16 {
        let meant = format!("0x{digits:0>16}");
        return Err(format!(
            "{name} must be a 0x-prefixed 16-digit hex value, got {text:?} (did you mean {meant:?}?)"
        ));
    }
    Ok(text)
}

/// What an expression is, for an error.
fn kind_of(kind: &ExprKind) -> &'static str {
    match kind {
        ExprKind::Literal(_) => "a literal",
        ExprKind::Ident(_) => "a name",
        ExprKind::Select { .. } => "a selection",
        ExprKind::Call { target: Some(_), .. } => "a method call",
        ExprKind::Call { .. } => "a call",
        ExprKind::List { .. } => "a list",
        ExprKind::Map(_) => "a map",
        ExprKind::Struct { .. } => "a message",
        ExprKind::Comprehension(_) => "a loop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const END: u128 = 1 << 64;

    fn range(field: &str, start: &str, end: &str) -> String {
        format!("shardRange(object.metadata.{field}, '{start}', '{end}')")
    }
    fn refused(text: &str) -> String {
        let error = ShardSelector::parse(text).unwrap_err();
        assert_eq!(error.code(), 400);
        error.to_string().trim_start_matches("invalid shard selector: ").to_owned()
    }

    #[test]
    fn hashes_are_those_of_every_server() {
        // The test vectors of FNV-1a.
        for (value, hash) in [
            ("", 0xcbf2_9ce4_8422_2325_u64),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            let only = |start: u64, end: u128| {
                let (start, end) = (format!("0x{start:016x}"), format!("0x{end:016x}"));
                ShardSelector::parse(&range("uid", &start, &end)).unwrap().has(value)
            };
            assert!(only(hash, u128::from(hash) + 1), "{value}");
            assert!(!only(0, u128::from(hash)) && !only(hash + 1, END), "{value}");
        }
    }

    #[test]
    fn the_text_is_shown_in_one_form() {
        let all = format!("{END:#x}");
        assert_eq!(all, END_TEXT);
        let (low, high) = (
            range("namespace", "0x0000000000000000", "0x8000000000000000"),
            range("namespace", "0x8000000000000000", END_TEXT),
        );
        let sent = format!("  ( {high}||{} ) ", low.replace('\'', "\""));
        let selector = ShardSelector::parse(&sent).unwrap();
        assert_eq!(selector.field(), ShardField::Namespace);
        assert_eq!(**selector.text(), format!("{high} || {low}"));
        assert_eq!(*selector.ranges, [(0, END)], "what touches is joined");
    }

    #[test]
    fn everything_else_is_refused() {
        let (zero, half) = ("0x0000000000000000", "0x8000000000000000");
        for (text, why) in [
            (
                " ".to_owned(),
                "empty shard selector is not allowed; omit the parameter for unfiltered lists",
            ),
            (
                range("name", zero, half),
                "unsupported field path \"object.metadata.name\"; supported: object.metadata.uid, object.metadata.namespace",
            ),
            (
                range("uid", half, zero),
                "shard range start 0x8000000000000000 must be less than end 0x0000000000000000",
            ),
            (
                range("uid", half, half),
                "shard range start 0x8000000000000000 must be less than end 0x8000000000000000",
            ),
            (
                range("uid", "0x0", half),
                "hexStart must be a 0x-prefixed 16-digit hex value, got \"0x0\" (did you mean \"0x0000000000000000\"?)",
            ),
            (range("uid", "", half), "hexStart must have '0x' prefix, got \"\""),
            (range("uid", "0x", half), "hexStart: hex value is required after '0x'"),
            (
                range("uid", zero, "0x800000000000000G"),
                "hexEnd: invalid hex character \"G\" in \"0x800000000000000G\"",
            ),
            (
                range("uid", zero, "0x20000000000000000"),
                "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x20000000000000000\"",
            ),
            (
                range("uid", zero, "0x100000000000000000"),
                "hexEnd: hex value too long (18 chars, max 17): \"100000000000000000\"",
            ),
            (
                format!("shardRange(object.metadata.uid, 1, '{half}')"),
                "hexStart must be a string literal (e.g. '0xff'), got a literal",
            ),
            (
                format!("shardRange(1, '{zero}', '{half}')"),
                "shardRange() first argument: expected field path (e.g. object.metadata.uid), got a literal",
            ),
            ("shardRange()".to_owned(), "shardRange() requires exactly 3 arguments, got 0"),
            ("f(1)".to_owned(), "unsupported function \"f\"; only shardRange() and || are allowed"),
            (
                format!("{} && true", range("uid", zero, half)),
                "unsupported function \"_&&_\"; only shardRange() and || are allowed",
            ),
            ("true".to_owned(), "unexpected a literal; expected shardRange() call or || operator"),
            (
                format!("{} || {}", range("uid", zero, half), range("namespace", zero, half)),
                "all shard ranges must use the same field, got \"object.metadata.uid\" and \"object.metadata.namespace\"",
            ),
        ] {
            assert_eq!(refused(&text), why, "{text}");
        }
        assert!(refused("shardRange(").starts_with("CEL parse error: "));
        assert!(refused(&"(".repeat(70_000)).starts_with("70000 bytes, at most "));
    }

    proptest! {
        #[test]
        fn every_object_is_in_one_of_the_shards_that_divide_all(
            mut cuts in prop::collection::vec(1..u64::MAX, 0..8), value in "[a-z0-9-]{0,40}",
        ) {
            cuts.sort_unstable();
            cuts.dedup();
            let mut bounds: Vec<String> = vec![format!("0x{:016x}", 0)];
            bounds.extend(cuts.iter().map(|cut| format!("0x{cut:016x}")));
            bounds.push(END_TEXT.to_owned());
            let shards: Vec<ShardSelector> = bounds
                .windows(2)
                .map(|pair| ShardSelector::parse(&range("uid", &pair[0], &pair[1])).unwrap())
                .collect();
            prop_assert_eq!(shards.iter().filter(|shard| shard.has(&value)).count(), 1);
            let all: Vec<&str> = shards.iter().map(|shard| &**shard.text()).collect();
            prop_assert!(ShardSelector::parse(&all.join(" || ")).unwrap().has(&value));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = ShardSelector::parse(&text);
        }
    }
}
