//! Blocks of PEM as Go's `encoding/pem` finds them: text around them does not matter, and what is
//! broken is skipped.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "\n-----END ";
const DASHES: &str = "-----";

/// A block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'t> {
    pub(super) kind: &'t str,
    /// It has lines such as `Proc-Type: 4,ENCRYPTED`.
    pub(super) has_headers: bool,
    pub(super) content: Vec<u8>,
}

/// The blocks of a text. Each last line of a block is looked at once, with the nearest first line
/// before it, so that the time is linear whatever the text repeats.
pub(super) fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (before, behind) = rest.split_once(END)?;
            rest = behind;
            if let Some((found, after)) = block(before, behind) {
                rest = after;
                return Some(found);
            }
        }
    })
}

/// The first line without white space at its end, and what follows it; `None`: it has no end.
fn line(text: &str) -> (&str, Option<&str>) {
    let (line, rest) = text.split_once('\n').map_or((text, None), |(l, rest)| (l, Some(rest)));
    (line.trim_end_matches([' ', '\t', '\r']), rest)
}

/// The block that ends between two texts, and what follows it; `None`: it is broken.
fn block<'t>(before: &'t str, behind: &'t str) -> Option<(Block<'t>, &'t str)> {
    let at = before.rfind(BEGIN)?;
    let (outside, begun) = before.split_at_checked(at)?;
    if !outside.is_empty() && !outside.ends_with('\n') {
        return None;
    }
    let (first, content) = line(begun.strip_prefix(BEGIN)?);
    let kind = first.strip_suffix(DASHES)?;
    let (mut content, mut has_headers) = (content.unwrap_or_default(), false);
    loop {
        let (header, next) = line(content);
        if !header.contains(':') {
            break;
        }
        has_headers = true;
        // An empty line at least is between headers and the end.
        content = next?;
    }
    let (blank, after) = line(behind.strip_prefix(kind)?.strip_prefix(DASHES)?);
    if !blank.is_empty() {
        return None;
    }
    let encoded: String = content.split_ascii_whitespace().collect();
    let content = STANDARD.decode(encoded).ok()?;
    Some((Block { kind, has_headers, content }, after.unwrap_or_default()))
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
        check("-----BEGIN A-----\nK: v\n-----END A-----", &[]);
        check("-----BEGIN A-----\nK: v\n\n-----END A-----", &[("A", true, b"")]);
        check("-----BEGIN A-----\nYWJj\n-----END A----- x", &[]);
    }

    #[test]
    fn repeated_first_and_last_lines_are_read_once() {
        let begun = "-----BEGIN A-----\n".repeat(60_000);
        assert_eq!(blocks(&begun).count(), 0);
        let ended = format!("{begun}-----END A-----\n");
        assert_eq!(blocks(&ended).count(), 1);
        assert_eq!(blocks(&format!("{begun}YWJj\n-----END B-----\n")).count(), 0);
        assert_eq!(blocks(&"\n-----END A-----".repeat(60_000)).count(), 0);
        assert_eq!(blocks(&"-----BEGIN A:x-----\n".repeat(60_000)).count(), 0);
    }
}
