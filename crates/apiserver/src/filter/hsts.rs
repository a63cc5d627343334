//! HTTP Strict Transport Security (RFC 6797): browsers use HTTPS only.

use http::HeaderValue;

/// Why a list of directives is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HstsError {
    /// A directive is empty.
    #[error("empty value in strict-transport-security-directives")]
    Empty,
    /// It is not one of RFC 6797, section 6.1.
    #[error(
        "directive {0:?} is invalid, allowed values: max-age=expireTime, includeSubDomains, preload"
    )]
    Directive(String),
}

/// The header `Strict-Transport-Security` of every answer, as
/// `--strict-transport-security-directives`.
///
/// ```
/// use setpoint_apiserver::Hsts;
///
/// assert!(Hsts::new(["max-age=31536000", "includeSubDomains"]).is_ok());
/// assert!(Hsts::new(["max-age"]).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hsts(pub(crate) HeaderValue);

impl Hsts {
    /// The header with these directives.
    ///
    /// # Errors
    ///
    /// A directive that kube-apiserver refuses.
    pub fn new<'a>(directives: impl IntoIterator<Item = &'a str>) -> Result<Self, HstsError> {
        let directives: Vec<&str> = directives.into_iter().collect();
        for directive in &directives {
            if directive.trim().is_empty() {
                return Err(HstsError::Empty);
            }
            let is_known = ["includeSubDomains", "preload"].contains(directive)
                || matches!(directive.split('=').collect::<Vec<_>>()[..], ["max-age", _]);
            if !is_known {
                return Err(HstsError::Directive((*directive).to_owned()));
            }
        }
        let value = HeaderValue::try_from(directives.join("; "));
        Ok(Self(value.map_err(|_| HstsError::Directive(directives.join(",")))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_those_of_the_original() {
        let header = Hsts::new(["max-age=1", "includeSubDomains", "preload"]).unwrap();
        assert_eq!(header.0, "max-age=1; includeSubDomains; preload");
        assert_eq!(Hsts::new([" "]), Err(HstsError::Empty));
        for wrong in ["max-age", "max-age=1=2", "preload2", "Max-Age=1", " max-age=1"] {
            assert_eq!(Hsts::new([wrong]), Err(HstsError::Directive(wrong.to_owned())));
        }
    }
}
