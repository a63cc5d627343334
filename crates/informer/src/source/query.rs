//! The query string of a request.

/// Builds a query string.
#[derive(Debug, Default)]
pub(super) struct Query(String);

impl Query {
    /// Adds a parameter; an empty value adds nothing.
    pub(super) fn add(mut self, name: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    self.0.push(char::from(byte));
                }
                _ => self.0.push_str(&format!("%{byte:02X}")),
            }
        }
        self
    }

    /// The text with its question mark; empty without parameters.
    pub(super) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_empty_ones_left_out() {
        let query =
            Query::default().add("limit", "").add("labelSelector", "a in (b,é)").add("watch", "1");
        assert_eq!(query.finish(), "?labelSelector=a%20in%20%28b%2C%C3%A9%29&watch=1");
    }
}
