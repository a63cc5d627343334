//! Field selectors (spec: api-server §8).
//!
//! This module has the grammar and the comparison. The registry checks which fields a kind
//! supports.
use crate::label::ParseError;
use std::borrow::Cow;
use std::fmt;

/// A parsed field selector. The empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
}
/// `path=value` or `path!=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Term {
    pub path: String,
    /** Without its escapes. */
    pub value: String,
    pub negated: bool,
}
impl FieldSelector {
    /// A selector that matches everything.
    pub fn everything() -> Self {
        Self::default()
    }
    /// A selector that requires this `metadata.name`.
    pub fn name(name: impl Into<String>) -> Self {
        let path = "metadata.name".to_owned();
        Self { terms: vec![Term { path, value: name.into(), negated: false }] }
    }
    /// Parses the query form: `a=b,c!=d`, with `\`, `,` and `=` in values escaped by a backslash. A
    /// term of operators alone, such as `=`, selects everything.
    ///
    /// # Errors
    ///
    /// Displays as the message of the API's 400 response.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let parts = split_unescaped(text).into_iter().filter(|part| !part.is_empty());
        let terms = parts.map(|part| {
            let Some(at) = part.find('=') else {
                let message = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(ParseError(message));
            };
            let (path, value) = (&part[..at], &part[at + 1..]);
            let (path, negated) = path.strip_suffix('!').map_or((path, false), |path| (path, true));
            let value = if negated { value } else { value.strip_prefix('=').unwrap_or(value) };
            Ok(Term { path: path.to_owned(), value: unescape(value)?, negated })
        });
        let is_blank = |term: &Term| term.path.is_empty() && term.value.is_empty();
        let terms = terms.filter(|term| !term.as_ref().is_ok_and(is_blank));
        Ok(Self { terms: terms.collect::<Result<_, _>>()? })
    }
    /// The terms.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }
    /// Whether it has no terms.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }
    /// The required name, if it has a term `metadata.name=x`.
    pub fn requires_name(&self) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| !t.negated && t.path == "metadata.name")
            .map(|t| t.value.as_str())
    }
    /// Matches an object's fields, given as a lookup function. An absent field reads as empty.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Cow<'a, str>) -> bool {
        self.terms.iter().all(|term| (field(&term.path) == term.value) != term.negated)
    }
}
/// The query form, which parses to the same selector.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, Term { path, value, negated }) in self.terms.iter().enumerate() {
            let comma = if idx > 0 { "," } else { "" };
            write!(f, "{comma}{path}{}", if *negated { "!=" } else { "=" })?;
            for c in value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// Splits at commas that are not escaped with a backslash.
fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}
fn unescape(value: &str) -> Result<String, ParseError> {
    let fault = |what: String| Err(ParseError(format!("invalid field selector: {what}")));
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return fault(format!("invalid escape sequence: \\{c}")),
                None => return fault("invalid escape sequence: \\".to_owned()),
            },
            // Go prints the number of the character.
            ',' | '=' => return fault(format!("unescaped character in value: {}", u32::from(c))),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_match_as_the_api_does() {
        let field = |path: &str| match path {
            "metadata.name" => Cow::Borrowed("a"),
            "x" => Cow::Borrowed("1,="),
            _ => Cow::Borrowed(""),
        };
        for (text, expected) in [
            ("", true),
            (",", true),
            ("metadata.name=a", true),
            ("metadata.name==a", true),
            ("metadata.name!=a", false),
            ("metadata.name!=b,x=1\\,\\=", true),
            ("absent=", true),
            ("absent!=", false),
            ("=", true),
            ("==,!=,metadata.name=a", true),
            ("=x", false),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(field), expected, "{text}");
        }
        let selector = FieldSelector::parse("x!=y,metadata.name=a").unwrap();
        assert_eq!(selector.requires_name(), Some("a"));
        assert_eq!(FieldSelector::parse("metadata.name!=a").unwrap().requires_name(), None);
    }

    #[test]
    fn messages_are_those_of_the_api() {
        for (text, message) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
            ("a=\\z", "invalid field selector: invalid escape sequence: \\z"),
            ("a=\\", "invalid field selector: invalid escape sequence: \\"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn displayed_selector_parses_to_the_same(
            terms in proptest::collection::vec(("[a-z.]{1,5}", "[a,=!é\\\\]{0,5}", any::<bool>()), 0..4),
        ) {
            let terms: Vec<_> = terms
                .into_iter()
                .map(|(path, value, negated)| Term { path, value, negated })
                .collect();
            let selector = FieldSelector { terms };
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }

        #[test]
        fn no_text_causes_a_panic(text in "[a,=!é\\\\]{0,8}") {
            _ = FieldSelector::parse(&text);
        }
    }
}
