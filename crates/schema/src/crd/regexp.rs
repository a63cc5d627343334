//! Patterns of Go's regular expressions in the syntax of the `regex` crate.
//!
//! Both descend from RE2. Where they differ, the text is rewritten: Go's `\d \w \s \b` are ASCII, a `{` that opens no repetition
//! is a literal, and inside a class `[`, `&` and `~` are literals.
use regex::Regex;

/// The largest compiled program of one pattern, in bytes.
const PROGRAM_BYTES_MAX: usize = 4 << 20;

/// Compiles a pattern as Go would; the error is the `regex` crate's.
pub(crate) fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    regex::RegexBuilder::new(&translate(pattern)).size_limit(PROGRAM_BYTES_MAX).build()
}

/// Why Go would refuse the pattern, in its words: `error parsing regexp: missing closing ): …`.
pub(crate) fn go_error(pattern: &str) -> Option<String> {
    compile(pattern).err()?;
    let (what, shown) = fault(pattern);
    Some(format!("error parsing regexp: {what}: `{shown}`"))
}

/// The commonest faults as Go names them.
fn fault(pattern: &str) -> (&'static str, String) {
    let bytes = pattern.as_bytes();
    let (mut depth, mut at, mut class) = (0_usize, 0, None);
    let mut atom = false;
    while at < bytes.len() {
        let byte = bytes[at];
        match (class, byte) {
            (_, b'\\') => {
                if at + 1 == bytes.len() {
                    return ("trailing backslash at end of expression", String::new());
                }
                let escaped = bytes[at + 1];
                if escaped.is_ascii_digit() && escaped != b'0'
                    || b"acghijkmopuXyYZeERNGKO".contains(&escaped) && !b"ac".contains(&escaped)
                {
                    return ("invalid escape sequence", pattern[at..at + 2].to_owned());
                }
                at += 1;
                atom = true;
            }
            (None, b'[') => class = Some(at),
            (Some(start), b']') if at > start + 1 && &bytes[start + 1..at] != b"^" => {
                class = None;
                atom = true;
            }
            (Some(_), _) => {}
            (None, b'(') => {
                if bytes.get(at + 1) == Some(&b'?') {
                    let rest = &pattern[at..];
                    if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|p| rest.starts_with(p)) {
                        let end = if rest.starts_with("(?<") { 4 } else { 3 };
                        return ("invalid or unsupported Perl syntax", rest[..end].to_owned());
                    }
                }
                depth += 1;
                atom = false;
            }
            (None, b')') => {
                if depth == 0 {
                    return ("unexpected )", pattern.to_owned());
                }
                depth -= 1;
                atom = true;
            }
            (None, b'*' | b'+' | b'?')
                if !(atom || byte == b'?' && bytes[..at].ends_with(b"(")) =>
            {
                return ("missing argument to repetition operator", char::from(byte).to_string());
            }
            (None, b'|') => atom = false,
            (None, _) => atom = true,
        }
        at += 1;
    }
    if let Some(start) = class {
        return ("missing closing ]", pattern[start..].to_owned());
    }
    if depth > 0 {
        return ("missing closing )", pattern.to_owned());
    }
    ("invalid character class range", pattern.to_owned())
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.char_indices().peekable();
    let mut class = false;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped)) => escape(&mut out, escaped, class),
                None => out.push('\\'),
            },
            '[' if !class => {
                class = true;
                out.push('[');
                if chars.next_if(|(_, c)| *c == '^').is_some() {
                    out.push('^');
                }
                if chars.next_if(|(_, c)| *c == ']').is_some() {
                    out.push_str(r"\]");
                }
            }
            '[' if pattern[at..].starts_with("[:") => {
                let end = pattern[at..].find(":]").map_or(pattern.len(), |i| at + i + 2);
                out.push_str(&pattern[at..end]);
                while chars.next_if(|(i, _)| *i < end).is_some() {}
            }
            '[' | '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            ']' if class => {
                class = false;
                out.push(']');
            }
            '{' if !class && !repetition(&pattern[at..]) => out.push_str(r"\{"),
            _ => out.push(c),
        }
    }
    out
}

/// Whether a text starts with `{n}`, `{n,}` or `{n,m}`.
fn repetition(text: &str) -> bool {
    let Some(end) = text.find('}') else { return false };
    let (low, high) = text[1..end].split_once(',').unwrap_or((&text[1..end], ""));
    !low.is_empty()
        && low.bytes().all(|b| b.is_ascii_digit())
        && high.bytes().all(|b| b.is_ascii_digit())
}

fn escape(out: &mut String, escaped: char, class: bool) {
    let (open, close) = if class { ("", "") } else { ("[", "]") };
    let set = match escaped {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => r"\t\n\f\r\x20",
        'D' => return out.push_str("[^0-9]"),
        'W' => return out.push_str("[^0-9A-Za-z_]"),
        'S' => return out.push_str(r"[^\t\n\f\r\x20]"),
        'b' | 'B' if !class => {
            out.push_str("(?-u:\\");
            out.push(escaped);
            return out.push(')');
        }
        _ => {
            out.push('\\');
            return out.push(escaped);
        }
    };
    out.push_str(open);
    out.push_str(set);
    out.push_str(close);
}

#[cfg(test)]
mod tests {
    use super::{compile, go_error};

    #[test]
    fn classes_are_ascii_and_braces_literal_as_in_go() {
        let matches = |pattern: &str, text: &str| compile(pattern).unwrap().is_match(text);
        assert!(matches(r"^\d+$", "12") && !matches(r"^\d+$", "٣"));
        assert!(matches(r"^[\w.]+$", "a_1.") && !matches(r"^[\w.]+$", "é"));
        assert!(matches("^{a}$", "{a}") && matches("^a{2}$", "aa") && matches("^a{,2}$", "a{,2}"));
        assert!(
            matches("^[[a]+$", "[a") && matches("^[a&&b]+$", "&") && matches("^[[:alpha:]]$", "q")
        );
        assert!(matches("^[]a]+$", "]a") && matches(r"^[^]]$", "x"));
        assert!(matches(r"^\S \D\W$", "a b-"));
    }

    #[test]
    fn faults_read_as_in_go() {
        assert_eq!(go_error("a+"), None);
        assert_eq!(go_error("(").unwrap(), "error parsing regexp: missing closing ): `(`");
        assert_eq!(go_error("[a").unwrap(), "error parsing regexp: missing closing ]: `[a`");
        assert_eq!(
            go_error("(?!a)").unwrap(),
            "error parsing regexp: invalid or unsupported Perl syntax: `(?!`"
        );
        assert_eq!(
            go_error("*a").unwrap(),
            "error parsing regexp: missing argument to repetition operator: `*`"
        );
    }
}
