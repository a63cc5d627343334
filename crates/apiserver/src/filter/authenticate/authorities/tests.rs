//! Which client certificates are accepted.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

type Ca = CertifiedIssuer<'static, KeyPair>;

/// 2026-06-01.
const NOW: Timestamp = Timestamp::from_secs(1_780_272_000);

fn params() -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2027, 1, 1);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn ca_params() -> CertificateParams {
    let mut params = params();
    params.extended_key_usages.clear();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn ca() -> Ca {
    CertifiedIssuer::self_signed(ca_params(), KeyPair::generate().unwrap()).unwrap()
}

/// A certificate by its changed parameters.
fn certificate(ca: &Ca, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = params();
    change(&mut params);
    params.signed_by(&KeyPair::generate().unwrap(), ca).unwrap().der().clone()
}

fn verify(
    accepted: &ClientAuthorities,
    chain: Vec<CertificateDer<'static>>,
    now: Timestamp,
) -> bool {
    accepted.verify(&PeerCertificate::new(chain), now)
}

fn authorities(cas: &[&Ca]) -> ClientAuthorities {
    ClientAuthorities::new(cas.iter().map(|ca| ca.der().clone()).collect()).unwrap()
}

#[test]
fn a_certificate_must_be_of_an_authority_for_clients_and_for_now() {
    let (known, other) = (ca(), ca());
    let accepted = authorities(&[&known]);
    let verify = |chain: Vec<CertificateDer<'static>>| verify(&accepted, chain, NOW);
    assert!(verify(vec![certificate(&known, |_| {})]));
    assert!(!verify(vec![certificate(&other, |_| {})]), "another authority");
    let of = |change: &dyn Fn(&mut CertificateParams)| verify(vec![certificate(&known, change)]);
    assert!(!of(&|params| params.not_after = date_time_ymd(2026, 5, 31)), "expired");
    assert!(!of(&|params| params.not_before = date_time_ymd(2026, 6, 2)), "not valid yet");
    let server = vec![ExtendedKeyUsagePurpose::ServerAuth];
    assert!(!of(&|params| params.extended_key_usages.clone_from(&server)), "of a server");
    let mail = vec![ExtendedKeyUsagePurpose::EmailProtection];
    assert!(!of(&|params| params.extended_key_usages.clone_from(&mail)), "of mail");
    // The certificate of the authority itself is nobody's, and neither is an empty chain.
    assert!(!verify(vec![known.der().clone()]), "an authority");
    assert!(!verify(Vec::new()), "no certificate");
    assert!(!verify(vec![CertificateDer::from(vec![48, 3, 2, 1, 1])]), "garbage");
}

#[test]
fn a_certificate_does_not_sign_others_unless_it_is_an_authority() {
    let root = ca();
    let accepted = authorities(&[&root]);
    let signed_by = |issuer: CertificateParams| {
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::signed_by(issuer, key, &root).unwrap();
        let own = params().signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        verify(&accepted, vec![own.der().clone(), issuer.der().clone()], NOW)
    };
    assert!(signed_by(ca_params()), "an authority in between");
    assert!(!signed_by(params()), "a client that signs");
    let mut without_right = ca_params();
    without_right.not_after = date_time_ymd(2026, 5, 31);
    assert!(!signed_by(without_right), "an authority in between that has expired");
    let mut signs_only = params();
    signs_only.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    assert!(!signed_by(signs_only), "a client that may sign documents");
}

#[test]
fn a_certificate_ends_with_its_authority_and_with_its_time() {
    let (first, second) = (ca(), ca());
    let accepted = authorities(&[&first, &second]);
    let of_first = certificate(&first, |_| {});
    let of_second = certificate(&second, |_| {});
    let both = [of_first, of_second];
    let verify = |now| both.each_ref().map(|one| verify(&accepted, vec![one.clone()], now));
    // Twice: a result is remembered.
    assert_eq!([verify(NOW), verify(NOW)], [[true, true]; 2]);
    assert!(accepted.set(vec![second.der().clone()]).unwrap());
    assert_eq!(verify(NOW), [false, true]);
    assert!(!accepted.set(vec![second.der().clone()]).unwrap(), "the same one");
    // What cannot be used changes nothing.
    assert!(accepted.set(Vec::new()).is_err());
    assert_eq!(verify(NOW), [false, true]);
    let end = Timestamp::from_secs(1_798_761_600);
    assert_eq!(verify(end + Duration::from_secs(1)), [false, false]);
}
