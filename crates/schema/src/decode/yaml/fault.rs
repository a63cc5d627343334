//! What is wrong with a text of YAML, in the words of Go's decoder.

use granit_parser::ScanError;

/// The message of Go's decoder for a text that the parser refuses, as far as both know the same.
///
/// Go counts lines from zero, and says nothing about line zero. Its scanner, which makes tokens of
/// characters, adds one; its parser, which makes nodes of tokens, does not.
pub(super) fn message(text: &str, error: &ScanError) -> String {
    let (info, line) = (error.info(), error.marker().line().saturating_sub(1));
    let info = info.as_str();
    let scanned = |what: &str| match line {
        0 => what.to_owned(),
        line => format!("line {}: {what}", line + 1),
    };
    let parsed = |line: usize, what: &str| match line {
        0 => what.to_owned(),
        line => format!("line {line}: {what}"),
    };
    let (context, what) = match info.strip_prefix("while ").and_then(|rest| rest.split_once(", ")) {
        Some((context, what)) => (context, what),
        None => ("", info),
    };
    match what {
        "found unknown anchor" => {
            let rest: String = text.chars().skip(error.marker().index()).collect();
            let name = rest.strip_prefix('*').unwrap_or(&rest);
            let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
            let end = name.find(|char| !is_name(char)).unwrap_or(name.len());
            format!("unknown anchor '{}' referenced", &name[..end])
        }
        "unclosed quote" => scanned("found unexpected end of stream"),
        // Found on the line after it.
        "simple key expected ':'" => format!("line {}: could not find expected ':'", line + 2),
        "did not find expected hexadecimal number" => {
            scanned("did not find expected hexdecimal number")
        }
        "misplaced bracket" => parsed(line, NO_NODE),
        _ if what.starts_with("unexpected EOF while parsing") => parsed(line, NO_NODE),
        _ if what.starts_with("unexpected character") || what.starts_with("tabs disallowed") => {
            scanned("found character that cannot start any token")
        }
        _ if what.starts_with("unclosed bracket") => {
            // A line without an end is ended.
            let n_lines = text.lines().count();
            let between = if what.contains('[') { NO_COMMA_IN_LIST } else { NO_COMMA_IN_MAP };
            let wants_node = text.trim_end().ends_with(['[', '{', ',']);
            parsed(n_lines, if wants_node { NO_NODE } else { between })
        }
        _ if what.starts_with("invalid trailing content") => parsed(line, NO_KEY),
        _ if what.starts_with("mismatched bracket '['") => parsed(line, NO_COMMA_IN_LIST),
        _ if what.starts_with("mismatched bracket") => parsed(line, NO_COMMA_IN_MAP),
        "expected ',' or ']'" => parsed(line, NO_COMMA_IN_LIST),
        _ if is_of_parser(context) => parsed(line, what),
        _ => scanned(what),
    }
}

const NO_KEY: &str = "did not find expected key";
const NO_NODE: &str = "did not find expected node content";
const NO_COMMA_IN_LIST: &str = "did not find expected ',' or ']'";
const NO_COMMA_IN_MAP: &str = "did not find expected ',' or '}'";

fn is_of_parser(context: &str) -> bool {
    ["a node", "block", "flow"].iter().any(|what| context.contains(what))
}
