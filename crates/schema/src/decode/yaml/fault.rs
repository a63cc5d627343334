//! What is wrong with a text of YAML, in the words of Go's decoder.

use granit_parser::ScanError;

/// The message of Go's decoder for a text that the parser refuses, as far as both know the same.
///
/// Go counts lines from zero, and says nothing about line zero. Its scanner, which makes tokens of
/// characters, adds one; its parser, which makes nodes of tokens, does not.
pub(super) fn message(text: &str, error: &ScanError) -> String {
    let (info, line) = (error.info(), error.marker().line().saturating_sub(1));
    let info = info.as_str();
    let scanned = |what: &str| scanned_at(line, what);
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
            let rest = rest(text, error);
            let name = rest.strip_prefix('*').unwrap_or(rest);
            let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
            let end = name.find(|char| !is_name(char)).unwrap_or(name.len());
            format!("unknown anchor '{}' referenced", &name[..end])
        }
        "unclosed quote" => unexpected_end(text),
        // Go does not look at the indentation.
        _ if what.starts_with("invalid indentation in multiline")
            && !rest(text, error).contains(['"', '\'']) =>
        {
            unexpected_end(text)
        }
        _ if what.contains("surrogate") => scanned("found invalid Unicode character escape code"),
        // Found on the line after it.
        "simple key expected ':'" => format!("line {}: could not find expected ':'", line + 2),
        "did not find expected hexadecimal number" => {
            scanned("did not find expected hexdecimal number")
        }
        // After a block.
        "misplaced bracket" if starts_line(text, error) => parsed(line, NO_KEY),
        "misplaced bracket" => parsed(line, NO_NODE),
        _ if what.starts_with("unexpected EOF while parsing") => parsed(line, NO_NODE),
        _ if what.starts_with("unexpected character") || what.starts_with("tabs disallowed") => {
            scanned(NO_TOKEN)
        }
        _ if what.starts_with("unclosed bracket") => {
            // A line without an end is ended.
            let n_lines = text.lines().count();
            let between = if what.contains('[') { NO_COMMA_IN_LIST } else { NO_COMMA_IN_MAP };
            let wants_node = text.trim_end().ends_with(['[', '{', ',', ':']);
            parsed(n_lines, if wants_node { NO_NODE } else { between })
        }
        _ if what.starts_with("invalid trailing content") => {
            let what = match innermost_bracket(before(text, error)) {
                Some('[') => NO_COMMA_IN_LIST,
                Some(_) => NO_COMMA_IN_MAP,
                None => NO_KEY,
            };
            parsed(line, what)
        }
        _ if what.starts_with("mismatched bracket '['") => parsed(line, NO_COMMA_IN_LIST),
        _ if what.starts_with("mismatched bracket") => parsed(line, NO_COMMA_IN_MAP),
        "expected ',' or ']'" => parsed(line, NO_COMMA_IN_LIST),
        _ if is_in_node(context) => parsed(line, what),
        _ => scanned(what),
    }
}

/// What Go's scanner says of a line, counted from zero.
fn scanned_at(line: usize, what: &str) -> String {
    match line {
        0 => what.to_owned(),
        line => format!("line {}: {what}", line + 1),
    }
}

/// What Go's scanner says of a tab before the first token; `None` if there is none.
pub(super) fn leading_tab(text: &str) -> Option<String> {
    let token = text.trim_start_matches([' ', '\n', '\r']);
    let line = text[..text.len() - token.len()].matches('\n').count();
    token.starts_with('\t').then(|| scanned_at(line, NO_TOKEN))
}

/// The document in braces or brackets before a bracket that ends nothing.
pub(super) fn flow_before<'t>(text: &'t str, error: &ScanError) -> Option<&'t str> {
    let document = before(text, error);
    let is_whole = error.info() == "misplaced bracket"
        && document.trim_start().starts_with(['{', '['])
        && innermost_bracket(document).is_none();
    is_whole.then_some(document)
}

/// A quoted scalar without its end.
fn unexpected_end(text: &str) -> String {
    scanned_at(text.matches('\n').count(), "found unexpected end of stream")
}

/// Where an error is in its text, in bytes.
fn place(text: &str, error: &ScanError) -> usize {
    text.char_indices().nth(error.marker().index()).map_or(text.len(), |(at, _)| at)
}

fn before<'t>(text: &'t str, error: &ScanError) -> &'t str {
    &text[..place(text, error)]
}

fn rest<'t>(text: &'t str, error: &ScanError) -> &'t str {
    &text[place(text, error)..]
}

/// Whether an error stands before all else of a line that is not the first one with a text.
fn starts_line(text: &str, error: &ScanError) -> bool {
    before(text, error)
        .rsplit_once('\n')
        .is_some_and(|(lines, start)| start.trim().is_empty() && !lines.trim().is_empty())
}

/// The bracket in which a text of flow collections ends.
fn innermost_bracket(text: &str) -> Option<char> {
    let mut open = Vec::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (quote, char) {
            (Some('"'), '\\') => _ = chars.next(),
            (Some(mark), char) if mark == char => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(char),
            (None, '[' | '{') => open.push(char),
            (None, ']' | '}') => _ = open.pop(),
            (None, _) => {}
        }
    }
    open.pop()
}

const NO_TOKEN: &str = "found character that cannot start any token";
const NO_KEY: &str = "did not find expected key";
const NO_NODE: &str = "did not find expected node content";
const NO_COMMA_IN_LIST: &str = "did not find expected ',' or ']'";
const NO_COMMA_IN_MAP: &str = "did not find expected ',' or '}'";

fn is_in_node(context: &str) -> bool {
    ["a node", "block", "flow"].iter().any(|what| context.contains(what))
}
