//! Character classes: in brackets, of Perl, of POSIX and of Unicode.

use super::go::{SyntaxError, fault};
use regex_syntax::hir::{Class, HirKind};
use std::collections::HashMap;
use std::fmt::Write as _;

/// A class that matches nothing.
pub(super) const NOTHING: &str = r"[^\x{0}-\x{10ffff}]";
/// A class that matches everything.
const ANYTHING: &str = r"[\x{0}-\x{10ffff}]";
/// Names of POSIX classes.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];
/// Scripts whose names have four letters, as otherwise only short codes have, which Go does not
/// know.
const SCRIPTS_OF_FOUR: [&str; 7] = ["ahom", "cham", "kawi", "lisu", "modi", "thai", "toto"];

/// Unicode classes that one pattern has named so far, and how many code points their ranges name.
#[derive(Debug, Default)]
pub(super) struct Tables(HashMap<String, Option<(&'static str, usize)>>);

impl Tables {
    /// The property of a name (`gc` or `sc`) and the size of its table; `None` for a name
    /// that Go does not know.
    fn get(&mut self, name: &str) -> Option<(&'static str, usize)> {
        if let Some(known) = self.0.get(name) {
            return *known;
        }
        let found = look_up(name);
        self.0.insert(name.to_owned(), found);
        found
    }
}

fn look_up(name: &str) -> Option<(&'static str, usize)> {
    // Like Go, the `regex` crate ignores case, spaces, dashes and underscores.
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b' ');
    if name.is_empty() || !name.bytes().all(plain) {
        return None;
    }
    let canonical = canonical(name);
    let is_code = canonical.len() == 4 && !SCRIPTS_OF_FOUR.contains(&canonical.as_str());
    let properties: &[&str] = if is_code { &["gc"] } else { &["gc", "sc"] };
    properties.iter().find_map(|property| {
        let hir = regex_syntax::parse(&format!(r"\p{{{property}={name}}}")).ok()?;
        match hir.kind() {
            HirKind::Class(Class::Unicode(class)) => Some((*property, class.ranges().len() * 2)),
            _ => Some((*property, 2)),
        }
    })
}

fn canonical(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

/// Reads a class that begins with a backslash: `\d`, `\pL`, `\P{Greek}`. Returns what follows and
/// how many code points it names.
pub(super) fn escaped<'p>(
    text: &'p str,
    out: &mut String,
    tables: &mut Tables,
) -> Result<(&'p str, usize), SyntaxError> {
    let Some(&kind) = text.as_bytes().get(1) else {
        return Err(fault("trailing backslash at end of expression", ""));
    };
    let set = match kind {
        b'd' => "[0-9]",
        b'D' => "[^0-9]",
        b'w' => "[0-9A-Za-z_]",
        b'W' => "[^0-9A-Za-z_]",
        b's' => r"[\t\n\f\r\x20]",
        b'S' => r"[^\t\n\f\r\x20]",
        _ => return unicode(text, out, tables),
    };
    out.push_str(set);
    Ok((&text[2..], 4))
}

/// `\pL`, `\p{Name}`, `\p{^Name}` and their negations.
fn unicode<'p>(
    text: &'p str,
    out: &mut String,
    tables: &mut Tables,
) -> Result<(&'p str, usize), SyntaxError> {
    const WHAT: &str = "invalid character class range";
    let mut negated = text.as_bytes().get(1) == Some(&b'P');
    let Some(first) = text.get(2..).and_then(|rest| rest.chars().next()) else {
        return Err(fault(WHAT, text));
    };
    let end = if first == '{' {
        text.find('}').ok_or_else(|| fault(WHAT, text))? + 1
    } else {
        2 + first.len_utf8()
    };
    let (sequence, after) = text.split_at(end);
    let mut name = if first == '{' { &text[3..end - 1] } else { &sequence[2..] };
    if let Some(rest) = name.strip_prefix('^') {
        negated = !negated;
        name = rest;
    }
    if matches!(canonical(name).as_str(), "cs" | "surrogate") {
        out.push_str(if negated { ANYTHING } else { NOTHING });
        return Ok((after, 2));
    }
    let Some((property, runes)) = tables.get(name) else {
        return Err(fault(WHAT, sequence));
    };
    let p = if negated { 'P' } else { 'p' };
    // A String takes every write.
    _ = write!(out, r"\{p}{{{property}={name}}}");
    Ok((after, runes))
}

/// Reads a class in brackets. Returns what follows and how many code points it names.
pub(super) fn bracketed<'p>(
    text: &'p str,
    out: &mut String,
    tables: &mut Tables,
) -> Result<(&'p str, usize), SyntaxError> {
    let mut rest = text.get(1..).unwrap_or_default();
    out.push('[');
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    let content = out.len();
    let (mut runes, mut first) = (0_usize, true);
    // A bracket that comes first is a member.
    while first || !rest.starts_with(']') {
        first = false;
        if let Some(end) = rest.strip_prefix("[:").and_then(|inner| inner.find(":]")) {
            let (class, after) = rest.split_at(end + 4);
            let name = &class[2..class.len() - 2];
            if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
                return Err(fault("invalid character class range", class));
            }
            out.push_str(class);
            rest = after;
            continue;
        }
        if matches!(
            rest.as_bytes(),
            [b'\\', b'd' | b'D' | b's' | b'S' | b'w' | b'W' | b'p' | b'P', ..]
        ) {
            let (after, n) = escaped(rest, out, tables)?;
            runes = runes.saturating_add(n);
            rest = after;
            continue;
        }
        let range = rest;
        let (low, after) = member(rest, text)?;
        let mut high = low;
        rest = after;
        // A dash before the closing bracket is a member.
        if rest.starts_with('-') && rest.len() > 1 && !rest.starts_with("-]") {
            (high, rest) = member(&rest[1..], text)?;
            if high < low {
                let shown = &range[..range.len() - rest.len()];
                return Err(fault("invalid character class range", shown));
            }
        }
        runes = runes.saturating_add(2);
        push_range(out, low, high);
    }
    if out.len() == content {
        // Nothing but surrogates.
        out.push_str(NOTHING);
    }
    out.push(']');
    Ok((&rest[1..], runes))
}

/// One member of a class that begins at `whole`.
fn member<'p>(text: &'p str, whole: &str) -> Result<(u32, &'p str), SyntaxError> {
    match text.chars().next() {
        None => Err(fault("missing closing ]", whole)),
        Some('\\') => rune_escape(text),
        Some(c) => Ok((u32::from(c), &text[c.len_utf8()..])),
    }
}

/// Writes a range without its surrogates.
fn push_range(out: &mut String, low: u32, high: u32) {
    for (from, to) in [(low, high.min(0xd7ff)), (low.max(0xe000), high)] {
        if from <= to {
            _ = write!(out, r"\x{{{from:x}}}-\x{{{to:x}}}");
        }
    }
}

/// Reads the escape of one code point.
pub(super) fn rune_escape(text: &str) -> Result<(u32, &str), SyntaxError> {
    let mut rest = text.get(1..).unwrap_or_default().chars();
    let Some(c) = rest.next() else {
        return Err(fault("trailing backslash at end of expression", ""));
    };
    let invalid =
        |rest: &str| Err(fault("invalid escape sequence", &text[..text.len() - rest.len()]));
    let is_octal = |rest: &str| rest.starts_with(|c: char| matches!(c, '0'..='7'));
    let rune = match c {
        // A single digit but zero would refer back to a group.
        '1'..='7' if !is_octal(rest.as_str()) => return invalid(rest.as_str()),
        '0'..='7' => {
            let mut rune = u32::from(c) - u32::from('0');
            for _ in 0..2 {
                if !is_octal(rest.as_str()) {
                    break;
                }
                rune = rune * 8 + rest.next().and_then(|c| c.to_digit(8)).unwrap_or_default();
            }
            rune
        }
        'x' => match rest.next() {
            None => return invalid(""),
            Some('{') => {
                let (mut rune, mut n_digits) = (0_u32, 0);
                loop {
                    match rest.next() {
                        None => return invalid(""),
                        Some('}') => break,
                        Some(c) => match c.to_digit(16) {
                            Some(digit) if rune * 16 + digit <= 0x10_ffff => {
                                rune = rune * 16 + digit;
                                n_digits += 1;
                            }
                            _ => return invalid(rest.as_str()),
                        },
                    }
                }
                if n_digits == 0 {
                    return invalid(rest.as_str());
                }
                rune
            }
            Some(high) => {
                let low = rest.next();
                match (high.to_digit(16), low.and_then(|c| c.to_digit(16))) {
                    (Some(high), Some(low)) => high * 16 + low,
                    _ => return invalid(rest.as_str()),
                }
            }
        },
        'a' => 0x07,
        'f' => 0x0c,
        'n' => 0x0a,
        'r' => 0x0d,
        't' => 0x09,
        'v' => 0x0b,
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => u32::from(c),
        _ => return invalid(rest.as_str()),
    };
    Ok((rune, rest.as_str()))
}
