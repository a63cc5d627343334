//! Client certificates.
use rustls_pki_types::CertificateDer;
use setpoint_apiserver::{ClientAuthorities, PeerCertificate, certificate_user};
use setpoint_object::time::Timestamp;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The authority that has signed most certificates of the corpus.
const CA: &[u8] = include_bytes!("../corpus/certificate/ca");
/// The certificates of it that clients may use.
const ACCEPTED: [&[u8]; 10] = [
    include_bytes!("../corpus/certificate/client"),
    include_bytes!("../corpus/certificate/ed25519"),
    include_bytes!("../corpus/certificate/many"),
    include_bytes!("../corpus/certificate/multi"),
    include_bytes!("../corpus/certificate/no-name"),
    include_bytes!("../corpus/certificate/rsa"),
    include_bytes!("../corpus/certificate/two-names"),
    include_bytes!("../corpus/certificate/two-uids"),
    include_bytes!("../corpus/certificate/uid"),
    include_bytes!("../corpus/certificate/unicode"),
];
/// 2030: after the end of one of them.
const NOW: Timestamp = Timestamp::from_secs(1_893_456_000);

/// No certificate is accepted but those that the authority has signed. Any bytes name a user or
/// nobody, the same user as another parser finds.
pub fn check(input: &[u8]) {
    let authorities = ClientAuthorities::new(vec![CertificateDer::from(CA)]).unwrap();
    let certificate = CertificateDer::from(input.to_vec());
    let peer = PeerCertificate::new(vec![certificate.clone()]);
    let is_valid = authorities.verify(&peer, NOW);
    assert_eq!(is_valid, ACCEPTED.contains(&input));
    let Some(user) = certificate_user(&certificate) else { return };
    assert!(!user.user.is_empty());
    let Ok((_, parsed)) = X509Certificate::from_der(input) else { return };
    let subject = parsed.subject();
    let names: Vec<&str> =
        subject.iter_common_name().filter_map(|name| name.as_str().ok()).collect();
    assert_eq!(names.last(), Some(&&*user.user));
    let groups: Vec<&str> =
        subject.iter_organization().filter_map(|name| name.as_str().ok()).collect();
    let (_, own) = user.groups.split_last().unwrap();
    assert!(own.iter().map(|group| &**group).eq(groups));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_has_certificates_that_are_accepted_and_refused() {
        let user = |der: &[u8]| certificate_user(&CertificateDer::from(der));
        let jane = user(include_bytes!("../corpus/certificate/client")).unwrap();
        assert_eq!((&*jane.user, jane.groups.len()), ("jane", 3));
        assert_eq!(&*user(include_bytes!("../corpus/certificate/uid")).unwrap().uid, "7");
        assert!(user(include_bytes!("../corpus/certificate/two-uids")).is_none());
        assert!(user(include_bytes!("../corpus/certificate/no-name")).is_none());
    }
}
