//! Texts of errors, for logs. Not those of `setpoint-object`, which this crate must not know.

use std::error::Error;

/// An error with its causes in one line: `{error}: {cause}: {its cause}`. A cause is left out if
/// the text already ends with it, because errors of other crates may print their causes themselves.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConnectionError;
    use std::io;

    #[test]
    fn causes_follow_an_error_once() {
        let reset = || io::Error::new(io::ErrorKind::ConnectionReset, "reset by peer");
        let set_up = ConnectionError::SetUp(io::Error::other(reset()));
        assert_eq!(chain(&set_up), "set up the connection: reset by peer");
        let http = ConnectionError::Http(Box::new(reset()));
        assert_eq!(chain(&http), "exchange HTTP messages: reset by peer");
    }
}
