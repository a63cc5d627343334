//! Warnings of the server: deprecated versions, unknown fields.

use std::sync::Arc;

use http::{HeaderMap, header};
use lru::LruCache;
use parking_lot::Mutex;
use setpoint_object::bounded;

use super::{Call, Client};

/// How many warning texts a client remembers. 256: a program's types and mistakes are few. The
/// oldest is dropped first, and would be logged again.
pub const WARNING_TEXTS_MAX: usize = 256;

/// Which warnings of a server are logged (CLI-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WarningPolicy {
    /// All.
    Each,
    /// Each text once, while it is among the last [`WARNING_TEXTS_MAX`], since reconcilers repeat
    /// their requests.
    #[default]
    OncePerText,
    /// None.
    Silent,
}

/// The policy, and the logged texts.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    policy: WarningPolicy,
    logged: Mutex<Logged>,
}

/// The texts that were logged.
#[derive(Debug)]
struct Logged(LruCache<Box<str>, ()>);

impl Default for Logged {
    fn default() -> Self {
        Self(bounded::lru(WARNING_TEXTS_MAX))
    }
}

impl Logged {
    /// Remembers a text; returns whether it is new.
    fn add(&mut self, text: &str) -> bool {
        if self.0.contains(text) {
            return false;
        }
        self.0.put(text.into(), ());
        true
    }
}

impl Warnings {
    /// Logs the warnings in an answer's headers.
    pub(super) fn log(&self, call: &Call, headers: &HeaderMap) {
        if self.policy == WarningPolicy::Silent {
            return;
        }
        for header in headers.get_all(header::WARNING) {
            for text in header.to_str().map(texts).unwrap_or_default() {
                if self.policy == WarningPolicy::Each || self.logged.lock().add(&text) {
                    tracing::warn!(%call, "the server warns: {text}");
                }
            }
        }
    }
}

impl Client {
    /// A clone with another warning policy. Clones share the logged texts. Default: once per text.
    #[must_use]
    pub fn warnings(&self, policy: WarningPolicy) -> Self {
        let warnings = Arc::new(Warnings { policy, ..Warnings::default() });
        Self { warnings, ..self.clone() }
    }
}

/// The texts of the warnings with code 299 in one header: `299 agent "text" ["date"], …` (RFC 7234
/// §5.5). Stops at malformed input.
fn texts(header: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = header.trim_start();
    loop {
        let Some((code, after)) = rest.split_once(' ') else { return texts };
        let Some((_agent, after)) = after.trim_start().split_once(' ') else { return texts };
        let Some((text, after)) = quoted(after) else { return texts };
        if code == "299" && !text.is_empty() {
            texts.push(text);
        }
        // A date may follow.
        let after = quoted(after).map_or(after, |(_date, after)| after);
        let Some(next) = after.trim_start().strip_prefix(',') else { return texts };
        rest = next.trim_start();
    }
}

/// The quoted string at the start, unescaped, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start().strip_prefix('"')?;
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            char => value.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_code_299_are_read() {
        let read = |header: &str| texts(header).join(" · ");
        assert_eq!(read(r#"299 - "unknown field \"spec.x\"""#), r#"unknown field "spec.x""#);
        assert_eq!(
            read(
                r#"299 - "a", 299 k8s "b, c" "Wed, 21 Oct 2015 07:28:00 GMT",199 - "d", 299 - "e""#
            ),
            "a · b, c · e"
        );
        for malformed in ["", "299", "299 -", r#"299 - ""#, r#"299 - "a\"#, r#"299 - """#] {
            assert_eq!(read(malformed), "", "{malformed}");
        }
    }

    #[test]
    fn text_is_logged_once_and_memory_is_bounded() {
        let mut logged = Logged::default();
        assert!(logged.add("first") && !logged.add("first"));
        for n in 0..WARNING_TEXTS_MAX {
            assert!(logged.add(&n.to_string()));
        }
        assert_eq!(logged.0.len(), WARNING_TEXTS_MAX);
        assert!(logged.add("first"), "forgotten");
    }
}
