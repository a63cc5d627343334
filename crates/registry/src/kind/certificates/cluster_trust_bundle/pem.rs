//! Blocks of PEM as Go's `encoding/pem` finds them: text around them does not matter, and what is
//! broken is skipped.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// A block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'t> {
    pub(super) kind: &'t str,
    /// It has lines such as `Proc-Type: 4,ENCRYPTED`.
    pub(super) has_headers: bool,
    pub(super) content: Vec<u8>,
}

/// The blocks of a text.
pub(super) fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let begun = after_start(rest, BEGIN)?;
            match block(begun) {
                Ok((found, behind)) => {
                    rest = behind;
                    return Some(found);
                }
                Err(behind) => rest = behind,
            }
        }
    })
}

/// What follows the first line that begins with a word, after the word.
fn after_start<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    if let Some(rest) = text.strip_prefix(word) {
        return Some(rest);
    }
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find(word) {
        let at = from + at;
        if text.get(..at)?.ends_with('\n') {
            return text.get(at + word.len()..);
        }
        from = at + word.len();
    }
    None
}

/// The first line without white space at its end, and the rest.
fn line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    (line.trim_end_matches([' ', '\t', '\r']), rest)
}

/// Reads a block from its kind on. `Err`: it is broken; with the text in which to look on.
fn block(text: &str) -> Result<(Block<'_>, &str), &str> {
    let (first, mut rest) = line(text);
    let Some(kind) = first.strip_suffix(DASHES) else { return Err(rest) };
    let mut has_headers = false;
    let behind_kind = rest;
    loop {
        let (header, next) = line(rest);
        if !header.contains(':') {
            break;
        }
        has_headers = true;
        rest = next;
    }
    let Some(behind) = after_start(rest, END) else { return Err(behind_kind) };
    let n_bytes = rest.len() - behind.len() - END.len();
    let encoded = rest.get(..n_bytes).unwrap_or_default();
    let (last, after) = line(behind);
    if last.strip_suffix(DASHES) != Some(kind) {
        return Err(behind_kind);
    }
    let encoded: String = encoded.split_ascii_whitespace().collect();
    match STANDARD.decode(encoded) {
        Ok(content) => Ok((Block { kind, has_headers, content }, after)),
        Err(_) => Err(behind_kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_between_text_and_broken_ones_are_skipped() {
        let check = |text: &str, expected: &[(&str, bool, &[u8])]| {
            let found: Vec<_> = blocks(text).collect();
            let found: Vec<_> =
                found.iter().map(|b| (b.kind, b.has_headers, &b.content[..])).collect();
            assert_eq!(found, expected, "{text:?}");
        };
        let one = "-----BEGIN A-----\nYWJj\n-----END A-----\n";
        check("", &[]);
        check(one, &[("A", false, b"abc")]);
        check(&format!("x\n{one}y\n{one}"), &[("A", false, b"abc"), ("A", false, b"abc")]);
        check(&one.replace('\n', "\r\n"), &[("A", false, b"abc")]);
        check("-----BEGIN A-----\nK: v\n\nYW\nJj\n-----END A-----", &[("A", true, b"abc")]);
        check(&format!("x {one}"), &[]);
        check(&format!("-----BEGIN B-----\n{one}"), &[("A", false, b"abc")]);
        check(&format!("-----BEGIN B-----\n!\n-----END B-----\n{one}"), &[("A", false, b"abc")]);
        check("-----BEGIN A-----\nYWJj\n-----END B-----\n", &[]);
        check("-----BEGIN A-----\nYWJj", &[]);
        check("-----BEGIN A-----\n-----END A-----", &[("A", false, b"")]);
    }
}
