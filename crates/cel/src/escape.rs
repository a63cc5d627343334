//! Reserved words, and names of properties as expressions spell them.

/// Words that are no names in expressions.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether a word is no name in expressions: a variable cannot be called so.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// A property's name as expressions spell it: `a-b` is `a__dash__b`, `if` is `__if__`.
///
/// None if it cannot be spelled: it is empty, begins with a digit or has other characters than
/// letters, digits, `_`, `-`, `.` and `/`.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (taken, text) = match c {
            '_' if rest.starts_with("__") => (2, "__underscores__"),
            '.' => (1, "__dot__"),
            '-' => (1, "__dash__"),
            '/' => (1, "__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => (1, &rest[..1]),
            _ => return None,
        };
        escaped.push_str(text);
        rest = &rest[taken..];
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped_as_in_kubernetes() {
        let escaped = |name| escape(name).unwrap_or_default();
        assert_eq!(escaped("plain_1"), "plain_1");
        assert_eq!(escaped("a-b.c/d"), "a__dash__b__dot__c__slash__d");
        assert_eq!(escaped("a__b"), "a__underscores__b");
        assert_eq!(escaped("a___b"), "a__underscores___b");
        assert_eq!(escaped("namespace"), "__namespace__");
        assert_eq!(escaped("int"), "int");
        assert_eq!(escape("1a"), None);
        assert_eq!(escape("a b"), None);
        assert_eq!(escape("ä"), None);
        assert_eq!(escape(""), None);
    }
}
