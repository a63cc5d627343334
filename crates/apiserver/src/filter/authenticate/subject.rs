//! The user in a client certificate: the subject's common name is the user, each organization a
//! group, a certain attribute the uid, as on the reference server.
//!
//! The certificate has been verified before. Only the DER structure up to the subject is parsed
//! here.

use super::authenticated;
use rustls::pki_types::CertificateDer;
use setpoint_object::time::Timestamp;
use setpoint_object::users::CREDENTIAL_ID;
use setpoint_registry::Identity;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// The DER tags up to the subject.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0] EXPLICIT Version`, which certificates of version 1 do not have.
const VERSION: u8 = 0xa0;
/// UTF8String, PrintableString, IA5String: the forms of text that are ASCII or UTF-8.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// `id-at-commonName` 2.5.4.3 and `id-at-organizationName` 2.5.4.10.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 3];
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 10];
/// Kubernetes' attribute for the uid: 1.3.6.1.4.1.57683.2.
const UID: [u8; 9] = [0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

/// The common name of a certificate, if it can be read.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    identity(certificate).map(|identity| identity.user.to_string())
}

/// The user that a client certificate names: its common name, with its organizations as groups.
/// `None` if it names nobody, or has a name that cannot be read. The certificate must be verified
/// ([`ClientAuthorities::verify`](crate::ClientAuthorities::verify)): anybody can make one.
pub fn identity(certificate: &CertificateDer<'_>) -> Option<Identity> {
    let (mut user, mut uid, mut groups) = (None, "", Vec::new());
    let mut name = subject(certificate)?;
    while !name.is_empty() {
        let (SET, mut set) = element(&mut name)? else { return None };
        while !set.is_empty() {
            let (SEQUENCE, mut attribute) = element(&mut set)? else { return None };
            let (OBJECT_IDENTIFIER, kind) = element(&mut attribute)? else { return None };
            let (tag, text) = element(&mut attribute)?;
            let text = TEXTS.contains(&tag).then(|| std::str::from_utf8(text).ok()).flatten();
            match text {
                // The last one, as in Go's parser.
                Some(text) if kind == COMMON_NAME => user = Some(text),
                Some(text) if kind == ORGANIZATION => groups.push(text),
                // Two are no uid, nor is an empty one.
                Some(text) if kind == UID && uid.is_empty() && !text.is_empty() => uid = text,
                _ if kind == UID => return None,
                // A user or group that cannot be read must not be left out: a user with fewer
                // groups may have more rights.
                None if kind == COMMON_NAME || kind == ORGANIZATION => return None,
                _ => {}
            }
        }
    }
    let user = user.filter(|user| !user.is_empty())?;
    let mut id = "X509SHA256=".to_owned();
    for byte in Sha256::digest(certificate) {
        // Writing to a String cannot fail.
        _ = write!(id, "{byte:02x}");
    }
    let extra = Arc::new(BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![id])]));
    Some(authenticated(Identity { uid: uid.into(), extra, ..Identity::new(user, groups) }))
}

/// The end of a certificate's time, if it can be read.
pub(crate) fn valid_until(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let [mut validity, _] = validity_and_subject(certificate)?;
    element(&mut validity)?;
    let (tag, text) = element(&mut validity)?;
    let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
    // `YYMMDDhhmmssZ` of the years 1950 to 2049, or `YYYYMMDDhhmmssZ`.
    let century = match (tag, text.get(..2)?) {
        (UTC_TIME, years) if years >= "50" => "19",
        (UTC_TIME, _) => "20",
        (GENERALIZED_TIME, _) => "",
        _ => return None,
    };
    let text = format!("{century}{text}");
    let part = |from: usize, to: usize| text.get(from..to);
    Timestamp::parse(&format!(
        "{}-{}-{}T{}:{}:{}{}",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(8, 10)?,
        part(10, 12)?,
        part(12, 14)?,
        text.get(14..)?
    ))
}

/// The content of `Certificate.tbsCertificate.subject`.
fn subject<'a>(certificate: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
    validity_and_subject(certificate).map(|[_, subject]| subject)
}

/// The contents of `validity` and `subject` in `Certificate.tbsCertificate`.
fn validity_and_subject<'a>(certificate: &'a CertificateDer<'_>) -> Option<[&'a [u8]; 2]> {
    let mut rest: &[u8] = certificate;
    let (SEQUENCE, mut certificate) = element(&mut rest)? else { return None };
    let (SEQUENCE, mut to_be_signed) = element(&mut certificate)? else { return None };
    if to_be_signed.first() == Some(&VERSION) {
        element(&mut to_be_signed)?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        element(&mut to_be_signed)?;
    }
    let (_, validity) = element(&mut to_be_signed)?;
    let (SEQUENCE, subject) = element(&mut to_be_signed)? else { return None };
    Some([validity, subject])
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
    use setpoint_object::users::{ANONYMOUS, AUTHENTICATED};

    fn certificate(names: &[(DnType, &str)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, text) in names {
            params.distinguished_name.push(kind.clone(), *text);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_end_of_the_time_is_read_in_both_forms() {
        for (year, end) in [(2031, "2031-02-03T00:00:00Z"), (2051, "2051-02-03T00:00:00Z")] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 2, 3);
            let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(valid_until(signed.der()).unwrap().rfc3339(), end);
        }
        assert_eq!(valid_until(&CertificateDer::from(vec![0x30, 1, 2])), None);
    }

    #[test]
    fn common_name_is_the_user_and_organizations_are_groups() {
        let long = "x".repeat(300);
        let certificate = certificate(&[
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "dévs"),
            (DnType::CommonName, &long),
        ]);
        let identity = identity(&certificate).unwrap();
        assert_eq!((&*identity.user, &*identity.uid), (&*long, ""));
        let groups: Vec<&str> = identity.groups.iter().map(|group| &**group).collect();
        assert_eq!(groups, ["dévs", AUTHENTICATED]);
        let id = &identity.extra[CREDENTIAL_ID][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
    }

    #[test]
    fn a_certificate_of_nobody_is_not_authenticated() {
        let nobody = identity(&certificate(&[(DnType::CommonName, ANONYMOUS)])).unwrap();
        assert!(!nobody.is_in(AUTHENTICATED));
    }

    #[test]
    fn an_attribute_is_the_uid() {
        let of = |uids: &[&str]| {
            let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
            let mut names = vec![(DnType::CommonName, "a")];
            names.extend(uids.iter().map(|text| (uid.clone(), *text)));
            identity(&certificate(&names)).map(|identity| identity.uid.to_string())
        };
        assert_eq!(of(&["u-7"]).as_deref(), Some("u-7"));
        assert_eq!(of(&[""]), None);
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

    /// What is left out might be a group, and a user with fewer groups may have more rights.
    #[test]
    fn a_malformed_part_of_the_subject_is_not_left_out() {
        let names = [(DnType::OrganizationName, "devs"), (DnType::CommonName, "a")];
        let mut der = certificate(&names).to_vec();
        let organization = [OBJECT_IDENTIFIER, 3, 0x55, 4, 10];
        // The last is that of the subject, behind the issuer's. Before it is a length.
        let at = der.windows(5).rposition(|part| part == organization).unwrap();
        for (at, byte) in [(at - 1, 0x55), (at - 2, 0x31), (at - 4, 0x30)] {
            let former = std::mem::replace(&mut der[at], byte);
            assert_eq!(identity(&CertificateDer::from(&*der)), None, "{byte:x} at {at}");
            der[at] = former;
        }
        assert!(identity(&CertificateDer::from(&*der)).is_some());
    }
}
