//! What a server accepts in a handshake.

use super::{crypto_provider, name};
use rustls::crypto::CryptoProvider;
use rustls::{NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};

/// The newest version of TLS.
static NEWEST: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Why a policy is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsPolicyError {
    /// Not a name of a version.
    #[error("unknown tls version {0:?}")]
    Version(String),
    /// No cipher suite, or one that is not offered because it is weak.
    #[error("Cipher suite {0} not supported or doesn't exist")]
    Suite(String),
    /// A group that no number can name.
    #[error("curve preference {0} is out of range (must be 1-65535)")]
    Range(i64),
    /// A group that is named twice.
    #[error("duplicate curve preference {0}")]
    Twice(u16),
    /// A group that is not there.
    #[error("curve preference {0} is not supported")]
    Group(u16),
}

/// The versions of TLS, the cipher suites, the groups of the key exchange and the protocols that a
/// server accepts. Default: TLS 1.2 and 1.3 with all that [`crypto_provider`] has, HTTP/2 and
/// HTTP/1.1.
///
/// Names and errors are those of kube-apiserver's options, which are Go's.
///
/// ```
/// use setpoint_serve::tls::TlsPolicy;
///
/// let policy = TlsPolicy::default()
///     .min_version("VersionTLS12")?
///     .cipher_suites(["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"])?;
/// let error = policy.cipher_suites(["TLS_RSA_WITH_RC4_128_SHA"]).unwrap_err();
/// assert!(error.to_string().starts_with("Cipher suite TLS_RSA_WITH_RC4_128_SHA not supported"));
/// # Ok::<(), setpoint_serve::tls::TlsPolicyError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct TlsPolicy {
    has_tls13_only: bool,
    /// The names of the suites of TLS 1.2; `None`: all.
    suites: Option<Vec<&'static str>>,
    /// `None`: all.
    groups: Option<Vec<NamedGroup>>,
    is_http1_only: bool,
}

impl TlsPolicy {
    /// The oldest version: `VersionTLS10` to `VersionTLS13`. The first two mean TLS 1.2, because
    /// there are no older ones.
    ///
    /// # Errors
    ///
    /// Another name.
    pub fn min_version(mut self, name: &str) -> Result<Self, TlsPolicyError> {
        self.has_tls13_only = match name {
            "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            _ => return Err(TlsPolicyError::Version(name.to_owned())),
        };
        Ok(self)
    }

    /// The cipher suites of TLS 1.2, by their registered names. The order does not matter. Those of
    /// TLS 1.3 may be named too, and are always accepted, as by Go's servers. Without a name, all
    /// are accepted.
    ///
    /// # Errors
    ///
    /// A suite that does not exist, or is not there: all without forward secrecy or without
    /// authenticated encryption.
    pub fn cipher_suites<'a>(
        mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, TlsPolicyError> {
        let all = crypto_provider().cipher_suites;
        let mut suites = Vec::new();
        for wanted in names {
            let found = all.iter().map(registered).find(|suite| is_named(suite, wanted));
            suites.push(found.ok_or_else(|| TlsPolicyError::Suite(wanted.to_owned()))?.0);
        }
        self.suites = (!suites.is_empty()).then_some(suites);
        Ok(self)
    }

    /// The groups of the key exchange, by their registered numbers: 23 (P-256), 24 (P-384), 29
    /// (X25519). The order does not matter. Without a number, all are accepted.
    ///
    /// # Errors
    ///
    /// A number that is out of range, named twice, or of a group that is not there.
    pub fn groups(
        mut self,
        numbers: impl IntoIterator<Item = i64>,
    ) -> Result<Self, TlsPolicyError> {
        let all = crypto_provider().kx_groups;
        let mut groups = Vec::new();
        for wanted in numbers {
            let number = u16::try_from(wanted).ok().filter(|number| *number > 0);
            let number = number.ok_or(TlsPolicyError::Range(wanted))?;
            let group = NamedGroup::from(number);
            if groups.contains(&group) {
                return Err(TlsPolicyError::Twice(number));
            }
            if !all.iter().any(|known| known.name() == group) {
                return Err(TlsPolicyError::Group(number));
            }
            groups.push(group);
        }
        self.groups = (!groups.is_empty()).then_some(groups);
        Ok(self)
    }

    /// Whether HTTP/2 may be negotiated. Default: yes.
    pub fn http2(mut self, is_served: bool) -> Self {
        self.is_http1_only = !is_served;
        self
    }

    /// The algorithms.
    pub fn provider(&self) -> CryptoProvider {
        let mut provider = crypto_provider();
        if let Some(accepted) = &self.suites {
            let is_accepted = |suite: &SupportedCipherSuite| {
                suite.tls13().is_some() || accepted.contains(&name(suite.suite()))
            };
            provider.cipher_suites.retain(is_accepted);
        }
        if let Some(accepted) = &self.groups {
            provider.kx_groups.retain(|group| accepted.contains(&group.name()));
        }
        provider
    }

    /// The versions.
    pub fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        match self.has_tls13_only {
            true => NEWEST,
            false => rustls::ALL_VERSIONS,
        }
    }

    /// The protocols, the preferred one first, as ALPN names them.
    pub fn protocols(&self) -> Vec<Vec<u8>> {
        let all: &[&[u8]] = match self.is_http1_only {
            true => &[b"http/1.1"],
            false => &[b"h2", b"http/1.1"],
        };
        all.iter().map(|protocol| protocol.to_vec()).collect()
    }
}

/// rustls' name of a suite, and whether the suite is one of TLS 1.3. These have another name in the
/// registry.
fn registered(suite: &SupportedCipherSuite) -> (&'static str, bool) {
    (name(suite.suite()), suite.tls13().is_some())
}

/// Whether a suite has a registered name, or one that Go still knows.
fn is_named((own, is_tls13): &(&'static str, bool), wanted: &str) -> bool {
    match (*is_tls13, own.strip_prefix("TLS13_"), wanted.strip_prefix("TLS_")) {
        (true, Some(own), Some(wanted)) => own == wanted,
        (true, ..) => false,
        _ => {
            *own == wanted
                || own.strip_suffix("_SHA256").is_some_and(|short| {
                    short == wanted && wanted.ends_with("_WITH_CHACHA20_POLY1305")
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(policy: &TlsPolicy) -> Vec<&'static str> {
        policy.provider().cipher_suites.iter().map(|suite| name(suite.suite())).collect()
    }

    #[test]
    fn suites_of_tls_1_2_are_chosen_and_those_of_1_3_stay() {
        const AES: &str = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
        let all = suites(&TlsPolicy::default());
        let of = |names: &[&str]| {
            TlsPolicy::default().cipher_suites(names.iter().copied()).map(|p| suites(&p))
        };
        let tls13: Vec<_> = all.iter().copied().filter(|name| name.starts_with("TLS13_")).collect();
        assert_eq!(of(&[]).unwrap(), all);
        assert_eq!(of(&["TLS_AES_128_GCM_SHA256"]).unwrap(), tls13);
        assert_eq!(of(&[AES]).unwrap(), [&tls13[..], &[AES]].concat());
        let cha_cha = of(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]).unwrap();
        let last = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";
        assert_eq!(cha_cha, [&tls13[..], &[last]].concat());
        for bad in ["x", "", "TLS13_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"] {
            let error = of(&[AES, bad]).unwrap_err().to_string();
            assert_eq!(error, format!("Cipher suite {bad} not supported or doesn't exist"));
        }
    }

    #[test]
    fn groups_are_chosen_by_number() {
        let of = |numbers: &[i64]| {
            let policy = TlsPolicy::default().groups(numbers.iter().copied());
            policy.map(|policy| policy.provider().kx_groups.len()).map_err(|e| e.to_string())
        };
        assert_eq!(of(&[]), Ok(3));
        assert_eq!(of(&[29, 23]), Ok(2));
        let error = |numbers| of(numbers).unwrap_err();
        assert_eq!(error(&[70000]), "curve preference 70000 is out of range (must be 1-65535)");
        assert_eq!(error(&[-1]), "curve preference -1 is out of range (must be 1-65535)");
        assert_eq!(error(&[23, 23]), "duplicate curve preference 23");
        assert_eq!(error(&[9999]), "curve preference 9999 is not supported");
    }

    #[test]
    fn versions_are_chosen_by_name() {
        let n = |name| TlsPolicy::default().min_version(name).map(|policy| policy.versions().len());
        assert_eq!((n("VersionTLS10"), n("VersionTLS12")), (Ok(2), Ok(2)));
        assert_eq!(n("VersionTLS13"), Ok(1));
        let error = n("TLS1.2").unwrap_err().to_string();
        assert_eq!(error, r#"unknown tls version "TLS1.2""#);
    }
}
