//! The user in a client certificate: the subject's common name is the user, each organization a
//! group, as on the reference server.
//!
//! TLS has verified the certificate before. Only the DER structure up to the subject is parsed
//! here.

use crate::Identity;
use rustls::pki_types::CertificateDer;

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";

/// The DER tags up to the subject.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `[0] EXPLICIT Version`, which certificates of version 1 do not have.
const VERSION: u8 = 0xa0;
/// UTF8String, PrintableString, IA5String: the forms of text that are ASCII or UTF-8.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// `id-at-commonName` 2.5.4.3 and `id-at-organizationName` 2.5.4.10.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 3];
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 10];

/// The identity in a certificate; `None` without a common name.
pub(super) fn identity(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (mut user, mut groups) = (None, Vec::new());
    let mut name = subject(certificate)?;
    while let Some((SET, mut set)) = element(&mut name) {
        while let Some((SEQUENCE, mut attribute)) = element(&mut set) {
            let (OBJECT_IDENTIFIER, kind) = element(&mut attribute)? else { return None };
            let (tag, text) = element(&mut attribute)?;
            let text = TEXTS.contains(&tag).then(|| std::str::from_utf8(text).ok()).flatten();
            match text {
                // The last one, as in Go's parser.
                Some(text) if kind == COMMON_NAME => user = Some(text),
                Some(text) if kind == ORGANIZATION => groups.push(text),
                // A user or group that cannot be read must not be left out: a user with fewer
                // groups may have more rights.
                None if kind == COMMON_NAME || kind == ORGANIZATION => return None,
                _ => {}
            }
        }
    }
    let user = user.filter(|user| !user.is_empty())?;
    groups.push(AUTHENTICATED);
    Some(Identity::new(user, groups))
}

/// The content of `Certificate.tbsCertificate.subject`.
fn subject<'a>(certificate: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
    let mut rest: &[u8] = certificate;
    let (SEQUENCE, mut certificate) = element(&mut rest)? else { return None };
    let (SEQUENCE, mut to_be_signed) = element(&mut certificate)? else { return None };
    if to_be_signed.first() == Some(&VERSION) {
        element(&mut to_be_signed)?;
    }
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        element(&mut to_be_signed)?;
    }
    let (SEQUENCE, subject) = element(&mut to_be_signed)? else { return None };
    Some(subject)
}

/// Reads the first element: its tag and content.
fn element<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, after) = rest.split_first()?;
    let (&first, mut after) = after.split_first()?;
    let n_bytes = if first < 0x80 {
        usize::from(first)
    } else {
        // A length of up to four bytes: no certificate is longer.
        let (digits, behind) = after.split_at_checked(usize::from(first & 0x7f))?;
        after = behind;
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit))
    };
    let (content, behind) = after.split_at_checked(n_bytes)?;
    *rest = behind;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn certificate(names: &[(DnType, &str)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, text) in names {
            params.distinguished_name.push(kind.clone(), *text);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn common_name_is_the_user_and_organizations_are_groups() {
        let long = "x".repeat(300);
        let certificate = certificate(&[
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "dévs"),
            (DnType::CommonName, &long),
        ]);
        assert_eq!(identity(&certificate), Some(Identity::new(&long, ["dévs", AUTHENTICATED])));
    }

    #[test]
    fn a_certificate_without_common_name_or_a_truncated_one_has_no_identity() {
        assert_eq!(identity(&certificate(&[(DnType::OrganizationName, "devs")])), None);
        assert_eq!(identity(&certificate(&[(DnType::CommonName, "")])), None);
        let whole = certificate(&[(DnType::CommonName, "a")]);
        for n in 0..120 {
            let half = CertificateDer::from(whole[..n].to_vec());
            assert_eq!(identity(&half), None, "{n} bytes");
        }
    }
}
