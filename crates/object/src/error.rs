//! Texts of errors.

use std::error::Error;

/// An error with its causes in one line, for logs and messages: `{error}: {cause}: {its cause}`.
///
/// The `Display` of an error of this workspace tells its own level only. A cause is left out if the
/// text already ends with it, because errors of other crates may print their causes themselves.
///
/// ```
/// use setpoint_object::error::chain;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("read the kubeconfig")]
/// struct Unread(#[source] std::io::Error);
///
/// let error = Unread(std::io::ErrorKind::NotFound.into());
/// assert_eq!(chain(&error), "read the kubeconfig: entity not found");
/// ```
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

/// Joins texts of errors as Go's aggregates do: one as it is, otherwise `[a, b]`.
pub fn aggregate<T: AsRef<str>>(texts: &[T]) -> String {
    if let [one] = texts {
        return one.as_ref().to_owned();
    }
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    /// An error that prints this text, and has this cause.
    #[derive(Debug)]
    struct Level(&'static str, Option<Box<Level>>);

    impl fmt::Display for Level {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Level {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &dyn Error)
        }
    }

    #[test]
    fn a_cause_that_the_error_prints_itself_is_not_repeated() {
        let level = |text, cause| Some(Box::new(Level(text, cause)));
        let refused = || level("connection refused", None);
        let prints_it = level("connect: connection refused", refused());
        assert_eq!(chain(&Level("list pods", prints_it)), "list pods: connect: connection refused");
        let prints_less = level("connect", refused());
        assert_eq!(
            chain(&Level("list pods", prints_less)),
            "list pods: connect: connection refused"
        );
    }
}
